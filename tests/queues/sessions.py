"""Sessions at hand, in a few words."""

from __future__ import annotations

from logbroker.errors import (
    LogbrokerError,
)
from logbroker.queues.holders import Session
from logbroker.queues.messages import Granted, Settlement
from logbroker.queues.queue import Queue
from tests.queues.groups import at


def opened(queue: Queue, key: bytes | None = b"k", prefetch: int = 2, seconds: float = 0, worker: str = "w") -> Session:
    session = queue.sessions.open(worker, key, prefetch, at(seconds))
    assert session is not None
    return session


def taken(queue: Queue, seconds: float = 0) -> list[Granted]:
    """What all sessions have to take."""
    queue.tick(at(seconds))
    return [piece for session in queue.sessions.ready() for piece in queue.sessions.take(session, at(seconds))]


def settled(queue: Queue, settlement: Settlement, seconds: float = 0, worker: str = "w") -> list[type[LogbrokerError]]:
    return [type(refusal.error) for refusal in queue.settle(worker, settlement, at(seconds))]
