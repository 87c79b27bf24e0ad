"""Others use the public methods of queue groups and the public modules of their package, and nothing behind these."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUEUES = ROOT / "logbroker" / "queues"
OUTSIDE = ["logbroker", "tools", "consumer_groups", "storage"]

PUBLIC_MODULES: Final = re.compile(
    r"logbroker\.queues(\.(registry|group|operations|description|lanes|model|delivery\.worker_stream)(\..*)?)?"
)
READ_ROWS: Final = ("tools/metadata_restore.py", "tools/move/rows.py")
"""Modules that read the rows of a directory which no queue group has loaded, because it is restored or moved."""

PUBLIC_VALUES: Final = {
    "QueueGroup": {"group_id", "has_failed", "operations"},
    "WorkerLink": {
        "worker_id", "incarnation", "client_name", "connected", "resumed", "reclaimed", "sessions", "on_session_lost",
        "on_obstacle",
    },
}  # fmt: skip
"""Attributes of each class that are for others as well: plain values, a callback and, of a group, what operators may
decide. All other attributes are its parts."""
DEFINED_IN: Final = {"QueueGroup": "group.py", "WorkerLink": "delivery/worker_stream.py"}
ANNOTATED: Final = re.compile(r"\b(QueueGroup|WorkerLink)\b")


def parts_of(name: str) -> set[str]:
    """Return the attributes of a class that are not for others."""
    module = ast.parse((QUEUES / DEFINED_IN[name]).read_text(encoding="utf-8"))
    [found] = [node for node in module.body if isinstance(node, ast.ClassDef) and node.name == name]
    attributes = {
        node.attr
        for node in ast.walk(found)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }
    assert PUBLIC_VALUES[name] <= attributes
    return attributes - PUBLIC_VALUES[name]


PARTS: Final = parts_of("QueueGroup") | parts_of("WorkerLink")


class Groups:
    """Expressions of a module that are queue groups or the streams of their workers, as far as its text shows."""

    def __init__(self, tree: ast.Module) -> None:
        self._names: set[str] = set()
        self._makers: set[str] = set()
        """Functions of the module that return some."""
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.arg) and _is_annotated(node.annotation):
                self._names.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and _is_annotated(node.annotation):
                self._names.add(ast.unparse(node.target))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_annotated(node.returns):
                self._makers.add(node.name)
        known = -1
        while known < len(self._names):  # A name may be given on to a name further up.
            known = len(self._names)
            for node in nodes:
                match node:
                    case ast.Assign() if self.include(node.value):
                        self._add(*node.targets)
                    case ast.NamedExpr() if self.include(node.value):
                        self._add(node.target)
                    case ast.For() | ast.comprehension() if ".links" in ast.unparse(node.iter):
                        self._add(node.target)

    def _add(self, *targets: ast.expr) -> None:
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            self._names.update(ast.unparse(part) for part in parts)

    def include(self, node: ast.expr) -> bool:
        match node:
            case ast.Await(value):
                return self.include(value)
            case ast.Subscript(ast.Attribute(attr="links")):
                return True
            case ast.Call(ast.Attribute(owner, called)):
                return called in self._makers or (
                    ast.unparse(owner).endswith("queues") if called != "connect" else self.include(owner)
                )
            case ast.Call(ast.Name(called)):
                return called in self._makers
            case _:
                return ast.unparse(node) in self._names


def _is_annotated(annotation: ast.expr | None) -> bool:
    return annotation is not None and ANNOTATED.search(ast.unparse(annotation)) is not None


def reaches(source: str) -> Iterator[str]:
    """Yield where code touches a part of a queue group, or of a worker's stream."""
    tree = ast.parse(source)
    groups = Groups(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in PARTS and groups.include(node.value):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def inner_imports(source: str) -> Iterator[str]:
    """Yield where code imports a module of `queues` that is not public."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "logbroker.queues":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module]
        else:
            continue
        for name in names:
            if name.startswith("logbroker.queues") and not PUBLIC_MODULES.fullmatch(name):
                yield f"line {node.lineno}: {name}"


def outside(folder: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of each module of a folder that is not in `queues` itself."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        if QUEUES not in path.parents:
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("folder", OUTSIDE)
def test_nobody_reaches_into_the_parts_of_a_queue_group(folder: str) -> None:
    assert [f"{path}, {reach}" for path, source in outside(folder) for reach in reaches(source)] == []


@pytest.mark.prove
@pytest.mark.parametrize("folder", OUTSIDE)
def test_nobody_imports_an_inner_module_of_queues(folder: str) -> None:
    found = [
        f"{path}, {inner}"
        for path, source in outside(folder)
        if not path.endswith(READ_ROWS)
        for inner in inner_imports(source)
    ]
    assert found == []


@pytest.mark.parametrize(
    "planted",
    [
        "def f(group: QueueGroup) -> None: group.scanner.rouse()",
        "def f(group: QueueGroup | None) -> None: group and group.scanner.rouse()",
        "async def f(group: 'QueueGroup') -> None: await group.records.fetch([])",
        "def f(group: QueueGroup) -> None: scanner = group.scanner",
        "class A:\n def __init__(self, group: QueueGroup): self._group = group\n def f(self): self._group.queue.tick()",
        "class A:\n def __init__(self, of: QueueGroup): self._mine = of\n def f(self): self._mine.queue.tick()",
        "class A:\n def __init__(self, q): self._mine: QueueGroup = q.get()\n def f(self): self._mine.queue.tick()",
        "def f(link: WorkerLink) -> None: link.pull.sent(1)",
        "def f(group: QueueGroup) -> None: [link.pull for link in group.links.values()]",
        "def f(group: QueueGroup) -> None: group.links['w'].pull.sent(1)",
        "async def f(group: QueueGroup, hello):\n link = await group.connect(hello)\n link.pull.sent(1)",
        "def f(self, request): self._queues.group(request.group_id).queue.draining",
        "def f(self, request):\n group = self._queues.group(request.group_id)\n group.scanner.rouse()",
        "async def f(broker, request):\n group, new = await broker.queues.create('g')\n group.queue.tick()",
        "async def g() -> tuple[QueueGroup, WorkerLink]: ...\nasync def f():\n _, link = await g()\n link.pull.sent(1)",
    ],
)  # fmt: skip
def test_a_reach_is_found(planted: str) -> None:
    assert list(reaches(planted))


@pytest.mark.parametrize(
    "planted",
    [
        "import logbroker.queues.scan.scanner",
        "from logbroker.queues import machine",
        "from logbroker.queues.state.rows import HEADER_ROW",
        "def f():\n from logbroker.queues.delivery.dispatcher import Dispatcher",
    ],
)
def test_an_inner_import_is_found(planted: str) -> None:
    assert list(inner_imports(planted))


def test_what_is_public_is_allowed() -> None:
    source = (
        "from logbroker.queues import registry\n"
        "from logbroker.queues.model.settings import QueueGroupSettings\n"
        "async def f(group: QueueGroup, described):\n"
        " await group.catch_up()\n group.settings.lease_seconds\n group.operations.resume(name)\n described.alarms"
    )
    assert [*reaches(source), *inner_imports(source)] == []
