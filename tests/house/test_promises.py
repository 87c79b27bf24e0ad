"""Each promise of docs/DURABILITY.md names its tests, and `make test` runs one of them, as `make prove` runs all."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import FILES_AT_HAND

ROOT = Path(__file__).resolve().parents[2]
_NAMED = re.compile(r"`((?:tests/)?(?:\w+/)*test_\w+\.py)`")


def promises() -> Iterator[tuple[str, list[str]]]:
    """Yield what is promised, and the files that show it, from the tables that have such a column."""
    has_column, named = False, list[str]()
    for line in (ROOT / "docs" / "DURABILITY.md").read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            has_column = False
        elif line.endswith("| shown by |"):
            has_column = True
        elif has_column and not line.startswith("|--"):
            *_, shown_by, _ = line.split("|")
            named = (named if "the same" in shown_by else []) + _NAMED.findall(shown_by)
            yield line.split("|")[1].strip(), named


def found() -> dict[str, list[str]]:
    """All test files by their names, with and without their folders."""
    files: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        full = str(path.relative_to(ROOT))
        for name in {path.name, full, full.removeprefix("tests/")}:
            files[name].append(full)
    return files


def test_each_promise_names_tests_that_are_there() -> None:
    files, told = found(), list(promises())
    assert len(told) > 100
    assert [promise for promise, named in told if not named] == []
    assert [name for _, named in told for name in named if not files[name]] == []


def test_each_promise_has_a_test_at_hand(request: pytest.FixtureRequest) -> None:
    at_hand = request.config.stash[FILES_AT_HAND]
    if not at_hand:
        pytest.skip("only a run of all tests knows")
    files = found()
    assert [
        told for told, named in promises() if at_hand.isdisjoint(path for name in named for path in files[name])
    ] == []
