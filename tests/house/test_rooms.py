"""A folder is a room that one head can hold, and a class has a name of its own."""

from __future__ import annotations

import ast
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_MODULES = 20
BLOCKING = Path("logbroker", "client", "blocking")
"""The synchronous twins have the names of what they are twins of."""
GENERATED = Path("logbroker", "kafka_wire", "messages")
"""One module per API of Kafka: nobody walks through them."""


def _modules() -> list[Path]:
    """All production code, each module once."""
    found = [
        path
        for folder in ("logbroker", "storage", "consumer_groups", "tools")
        for path in (ROOT / folder).rglob("*.py")
    ]
    return sorted({path.resolve().relative_to(ROOT) for path in found if "v1" not in path.parts})


def test_no_folder_is_a_hall() -> None:
    sizes: dict[Path, int] = defaultdict(int)
    for path in _modules():
        sizes[path.parent] += path.name != "__init__.py"
    assert {str(folder): size for folder, size in sizes.items() if size > MAX_MODULES and folder != GENERATED} == {}


def test_every_folder_says_what_it_is_for() -> None:
    silent = [
        path
        for path in _modules()
        if path.name == "__init__.py" and not ast.get_docstring(ast.parse((ROOT / path).read_text()))
    ]
    assert silent == []


def test_a_public_class_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in _modules():
        if path.parent != BLOCKING:
            for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes[node.name].append(str(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


_AT_HOME = {"storage", "consumer_groups", "tools"}
"""Packages of `logbroker` that lie beside it."""


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    parts = ("logbroker", *parts) if parts[0] in _AT_HOME else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path, names: set[str]) -> set[str]:
    """The modules that one names in any import: at its top, in a function, for type checkers only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {module if module in names else node.module for module in modules}
    return found & names - {_name(path)}


def test_no_imports_go_in_a_circle() -> None:
    """Those within functions, and those for type checkers, are counted."""
    modules = {_name(path): path for path in _modules()}
    graph = {name: _imports(path, set(modules)) for name, path in modules.items()}
    assert sum(map(len, graph.values())) > 1000
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None
