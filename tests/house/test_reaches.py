"""Others use the public methods of a queue group, and do not reach through it into its parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = ["logbroker/grpc_api", "logbroker/broker", "logbroker/cli", "tools"]
FACES = {"operations"}
"""Parts of a queue group that are its public methods, by another name."""
CLASSES = {"QueueGroup", "WorkerLink"}


def reaches(source: str) -> Iterator[str]:
    """Yield where code reaches through something that is annotated as a queue group, or as a worker's stream, or was
    got from the registry of queue groups."""
    tree = ast.parse(source)
    names = {
        argument.arg
        for argument in ast.walk(tree)
        if isinstance(argument, ast.arg)
        and isinstance(argument.annotation, ast.Name)
        and argument.annotation.id in CLASSES
    }
    names |= {f"self._{name}" for name in names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            whole, part = ast.unparse(node.value.value), node.value.attr
            is_group = whole in names or whole.endswith("_queues.group(request.group_id)")
            if is_group and part not in FACES and not is_plain(part):
                yield f"line {node.lineno}: {ast.unparse(node)}"


def is_plain(name: str) -> bool:
    """Whether an attribute is a plain value of the queue group, or of the stream: settings, lists, texts."""
    return name in {"settings", "latest_settings", "links", "sessions", "reclaimed", "group_id", "worker_id"}


@pytest.mark.parametrize("folder", OUTSIDE)
def test_nobody_reaches_into_the_parts_of_a_queue_group(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}, {reach}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for reach in reaches(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "planted",
    [
        "def f(group: QueueGroup) -> None: group.scanner.rouse()",
        "async def f(group: QueueGroup) -> None: await group.records.fetch([])",
        "class A:\n def __init__(self, group: QueueGroup): self._group = group\n def f(self): self._group.queue.tick()",
        "def f(link: WorkerLink) -> None: link.seat.sent(1)",
        "def f(self, request): self._queues.group(request.group_id).queue.draining",
    ],
)
def test_a_reach_is_found(planted: str) -> None:
    assert list(reaches(planted))
