"""How worker `w` of a queue group loses what it has."""

from __future__ import annotations

from logbroker.queues.machine.queue import Queue
from tests.queues.groups import at


def lease_ends(queue: Queue) -> None:
    queue.tick(at(100))


def grace_ends(queue: Queue) -> None:
    queue.lifecycle.gone("w", at(0))
    queue.tick(at(5))


def goodbye(queue: Queue) -> None:
    queue.lifecycle.goodbye("w", at(0))
