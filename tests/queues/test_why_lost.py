"""Whoever is refused, or told that something is over, is told why: the cause that it has, and the remedy for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from logbroker.errors import LeaseLostError, LogbrokerError, StaleSessionError
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.messages import Nack, Settlement
from logbroker.queues.model.settings import Ordering, QueueGroupSettings
from tests.queues.groups import ack, admit, at, new_queue, receipts, restart
from tests.queues.losses import goodbye, grace_ends, lease_ends
from tests.queues.sessions import opened, taken

WORDS = {
    "lease": "its lease ended",
    "grace": "did not come back within the grace",
    "goodbye": "said goodbye",
    "before": "an earlier record of its session",
    "lock": "its lock ended",
    "closed": "it was closed",
    "rewind": "rewound the queue group",
    "alteration": "another ordering",
}
"""Words that tell each cause from all others."""


def check(message: str, cause: str) -> None:
    assert [name for name, words in WORDS.items() if words in message] == [cause], message


def refused(queue: Queue, receipt: int, kind: type[LogbrokerError], seconds: float = 0) -> str:
    [refusal] = queue.settle("w", Settlement(acks=[(receipt, receipt)]), at(seconds))
    assert type(refusal.error) is kind
    return refusal.error.message


def rewind(queue: Queue) -> None:
    queue.rewind({0: 0}, at(0))


@pytest.mark.parametrize(
    ("happens", "cause"), [(lease_ends, "lease"), (grace_ends, "grace"), (goodbye, "goodbye"), (rewind, "rewind")]
)
@pytest.mark.parametrize("ordering", [Ordering.KEY, Ordering.NONE])
def test_why_a_delivery_is_lost(happens: Callable[[Queue], None], cause: str, ordering: Ordering) -> None:
    queue = new_queue(ordering=ordering)
    admit(queue, [b"k"])
    [receipt] = receipts(queue.take("w", 1, at(0)))
    happens(queue)
    message = refused(queue, receipt, LeaseLostError, 100)
    check(message, cause)
    assert ("extend" in message) == (cause == "lease")


def test_why_what_followed_in_a_session_is_lost() -> None:
    queue = new_queue()
    admit(queue, [b"k", b"k"])
    opened(queue)
    first, second = receipts(taken(queue))
    assert queue.settle("w", Settlement(nacks=[Nack(first, first)]), at(0)) == []
    check(refused(queue, second, LeaseLostError), "before")


def close(queue: Queue) -> None:
    [session] = queue.sessions.held_by("w")
    queue.sessions.close("w", b"k", session.token, at(0))


@pytest.mark.parametrize(
    ("happens", "cause", "is_told"),
    [
        (lease_ends, "lock", True),
        (grace_ends, "grace", True),
        (goodbye, "goodbye", False),
        (close, "closed", False),
        (rewind, "rewind", True),
    ],
)
def test_why_a_session_is_over(happens: Callable[[Queue], None], cause: str, is_told: bool) -> None:
    queue = new_queue()
    admit(queue, [b"k", b"k"])
    opened(queue)
    first, _ = receipts(taken(queue))
    happens(queue)
    check(refused(queue, first, StaleSessionError, 100), cause)
    assert [cause] * is_told == check_told(queue, cause)


def check_told(queue: Queue, cause: str) -> Sequence[str]:
    told = [why.of_session for _, why in queue.take_outputs().lost_sessions]
    for error in told:
        check(error.message, cause)
    return [cause] * len(told)


def test_a_session_that_another_ordering_ended_is_told_so() -> None:
    queue = new_queue()
    admit(queue, [b"k"])
    opened(queue, prefetch=1)
    held = taken(queue)
    queue.alter(QueueGroupSettings(ordering=Ordering.NONE))
    ack(queue, held)
    assert check_told(queue, "alteration")


def test_of_a_receipt_that_nobody_was_given_nothing_is_said_that_was_not() -> None:
    """It may be of an earlier group epoch, or of none at all: only that it is of none since is known."""
    queue = new_queue()
    admit(queue, [b"k"])
    rows = {event.key: event.value for event in queue.take_outputs().events if event.value is not None}
    queue = restart(rows, 1)
    for receipt in (0, 5, queue.group_epoch - 1):
        message = refused(queue, receipt, LeaseLostError)
        assert f"receipt {receipt} does not belong to a delivery since" in message
        assert "unless it was settled" in message
        assert "the delivery was made" not in message
