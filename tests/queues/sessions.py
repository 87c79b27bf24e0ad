"""Sessions at hand, in a few words."""

from __future__ import annotations

from logbroker.errors import (
    LogbrokerError,
)
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.holders import WorkerSession
from logbroker.queues.model.messages import Granted, Settlement
from tests.queues.groups import at


def opened(
    queue: Queue, key: bytes | None = b"k", prefetch: int = 2, seconds: float = 0, worker: str = "w"
) -> WorkerSession:
    session = queue.sessions.open(worker, key, prefetch, at(seconds))
    assert session is not None
    return session


def taken(queue: Queue, seconds: float = 0) -> list[Granted]:
    """Take all that sessions have ready."""
    queue.tick(at(seconds))
    return [piece for session in queue.sessions.ready() for piece in queue.sessions.take(session, at(seconds))]


def settled(queue: Queue, settlement: Settlement, seconds: float = 0, worker: str = "w") -> list[type[LogbrokerError]]:
    return [type(refusal.error) for refusal in queue.settle(worker, settlement, at(seconds))]
