"""How sessions end, and who may have them then."""

from __future__ import annotations

import pytest

from logbroker.errors import (
    StaleSessionError,
)
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.lost_receipts import Loss
from logbroker.queues.model.messages import Extension, SessionWrite, Settlement
from logbroker.queues.model.settings import Ordering, QueueGroupSettings
from tests.queues.groups import ack, admit, at, commit, new_queue, receipts, record_ids, restart
from tests.queues.sessions import opened, settled, taken


def test_a_lock_that_ends_frees_the_session_and_only_the_first_in_flight_has_failed() -> None:
    queue = new_queue(lease_seconds=10.0, backoff_initial_seconds=1.0)
    admit(queue, [b"k"] * 3)
    session = opened(queue)
    first, second = receipts(taken(queue))
    assert queue.deadline() == 10.0
    queue.sessions.renew("w", b"k", session.token, at(5))
    assert settled(queue, Settlement(extensions=[Extension(first, first, 2.0)]), 6) == []
    queue.tick(at(14))
    queue.take_outputs()
    queue.tick(at(15))
    assert queue.take_outputs().lost_sessions == [(session, Loss.LOCK_ENDED)]
    write = SessionWrite(b"k", session.token, b"late")
    assert settled(queue, Settlement(acks=[(first, second)]), 15) == [StaleSessionError]
    assert settled(queue, Settlement(states=[write]), 15) == [StaleSessionError]
    again = opened(queue, seconds=16, worker="v")
    assert again.token > session.token
    (granted,) = taken(queue, 16)
    assert (granted.record_ids, granted.attempts, granted.redelivered) == ([0, 1], [2, 1], [True, True])
    assert settled(queue, Settlement(acks=[(first, second)]), 16) == [StaleSessionError]
    assert queue.sessions.state(b"k") == b""


def test_settling_keeps_a_session_alive() -> None:
    queue = new_queue(lease_seconds=10.0)
    admit(queue, [b"k"] * 2)
    opened(queue, prefetch=1)
    ack(queue, taken(queue, 9), 9)
    assert len(taken(queue, 18)) == 1
    queue.tick(at(19))
    assert len(queue.sessions) == 0


@pytest.mark.parametrize("how", ["grace", "goodbye", "lost"])
def test_a_worker_that_goes_frees_its_sessions(how: str) -> None:
    queue = new_queue(backoff_initial_seconds=0.0, grace_seconds=2.0)
    admit(queue, [b"k"] * 2)
    opened(queue)
    held = taken(queue)
    if how == "goodbye":
        queue.lifecycle.goodbye("w", at(0))
    else:
        queue.lifecycle.gone("w", at(0))
        assert queue.sessions.open("w", b"free", 1, at(1)) is None
        queue.lifecycle.back("w", at(1))
        (receipt, _) = receipts(held)
        assert settled(queue, Settlement(acks=[(receipt, receipt)]), 1) == []
        queue.lifecycle.gone("w", at(1))
        if how == "lost":
            queue.lifecycle.lost("w", at(1))
        queue.tick(at(3))
    (granted,) = queue.take("v", 10, at(3))
    assert granted.record_ids == ([0] if how == "goodbye" else [1])
    assert granted.attempts == ([] if how == "goodbye" else [2])


def test_a_worker_that_comes_back_gets_what_arrived_meanwhile() -> None:
    queue = new_queue()
    opened(queue)
    queue.lifecycle.gone("w", at(0))
    admit(queue, [b"k"])
    assert taken(queue, 1) == []
    assert queue.lifecycle.back("w", at(1))
    assert record_ids(taken(queue, 1)) == [0]


def stopped(queue: Queue, rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the rows of a queue after a clean stop."""
    for event in queue.stop_events():
        if event.value is None:
            rows.pop(event.key, None)
        else:
            rows[event.key] = event.value
    return rows


@pytest.mark.parametrize("clean", [False, True])
def test_after_a_restart_the_last_holder_may_have_its_session_again(clean: bool) -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue(lease_seconds=10.0)
    admit(queue, [b"k"] * 3)
    stale = opened(queue)
    queue.tick(at(10))
    session = opened(queue, seconds=10)
    assert record_ids(taken(queue, 10)) == [0, 1]
    commit(queue, rows)
    if clean:
        stopped(queue, rows)
    queue = restart(rows, 3)
    admit(queue, [b"k"] * 3)
    with pytest.raises(StaleSessionError):
        queue.sessions.reclaim("w", b"k", stale.token, 2, at(0))
    again = queue.sessions.reclaim("w", b"k", session.token, 2, at(0))
    assert again.token == session.token
    with pytest.raises(StaleSessionError):
        queue.sessions.reclaim("v", b"k", session.token, 2, at(0))
    (granted,) = taken(queue)
    assert (granted.record_ids, granted.redelivered) == ([0, 1], [True, True])
    queue.sessions.close("w", b"k", session.token, at(0))
    assert opened(queue).token > session.token


@pytest.mark.parametrize("clean", [False, True])
def test_sessions_that_nobody_reclaims_leave_no_rows(clean: bool) -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue()
    session = opened(queue)
    commit(queue, rows)
    if clean:
        stopped(queue, rows)
    queue = restart(rows, 0)
    queue.sessions.forget_unclaimed()
    commit(queue, rows)
    with pytest.raises(StaleSessionError):
        queue.sessions.reclaim("w", b"k", session.token, 2, at(0))
    assert not [key for key in rows if key.startswith(b"z")]


def test_another_ordering_ends_sessions_when_what_they_have_is_settled() -> None:
    queue = new_queue()
    admit(queue, [b"k"] * 2)
    session = opened(queue, prefetch=1)
    held = taken(queue)
    queue.alter(QueueGroupSettings(ordering=Ordering.NONE))
    assert queue.sessions.open("w", b"other", 1, at(0)) is None
    queue.alter(QueueGroupSettings())
    assert opened(queue, b"other") is not None
    queue.alter(QueueGroupSettings(ordering=Ordering.NONE))
    ack(queue, held)
    outputs = queue.take_outputs()
    assert outputs.rescan
    assert (session, Loss.REARRANGED) in outputs.lost_sessions
    assert len(queue.sessions) == 0
