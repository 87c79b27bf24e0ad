"""The layout that packaging, linters and newcomers rely on."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAPPED = ("storage", "consumer_groups", "tools")


def modules() -> list[Path]:
    """Every module written by hand, once (the folders at the root are not followed again as symlinks)."""
    found = [path for folder in ("logbroker", "compare", *MAPPED, "tests") for path in (ROOT / folder).rglob("*.py")]
    return sorted({path.resolve() for path in found if not path.name.endswith("_pb2.py")})


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", MAPPED)
def test_a_root_folder_is_a_subpackage_by_a_relative_symlink(folder: str, pyproject: dict[str, Any]) -> None:
    link = ROOT / "logbroker" / folder
    assert link.is_symlink()
    assert link.readlink() == Path("..", folder)
    assert pyproject["tool"]["setuptools"]["package-dir"][f"logbroker.{folder}"] == folder


def test_every_package_is_listed_for_the_wheel(pyproject: dict[str, Any]) -> None:
    present = set()
    for top in ("logbroker", *MAPPED):
        for init in (ROOT / top).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT).parts
            if parts[0] != "logbroker":
                parts = ("logbroker", *parts)
            present.add(".".join(parts))
    assert set(pyproject["tool"]["setuptools"]["packages"]) == present


def test_no_folder_with_modules_lacks_its_init() -> None:
    folders = {path.parent for path in modules() if ROOT / "tests" not in path.parents}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_says_what_it_does_and_defers_annotations(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if not text:
        assert path.name == "__init__.py"
        return
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "no docstring"
    if len(tree.body) > 1:
        assert "from __future__ import annotations\n" in text


def test_the_lock_pins_every_dependency_with_hashes_and_names_no_registry(pyproject: dict[str, Any]) -> None:
    lock = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    assert re.search(r"https?:|--(extra-)?index|--find-links", lock) is None
    pinned = set(re.findall(r"^([a-z0-9-]+)==\S+ (?:; .*)?\\$", lock, flags=re.MULTILINE))
    wanted = pyproject["project"]["dependencies"] + pyproject["dependency-groups"]["dev"]
    assert {match[0] for entry in wanted if (match := re.match(r"[a-z0-9-]+", entry))} <= pinned
