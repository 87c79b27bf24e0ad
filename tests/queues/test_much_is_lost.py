"""Records lost at once are taken back by and by, and are lost to their holder all the same: nothing holds the loop for
long, nothing is handed out twice, and nothing is forgotten."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logbroker.errors import LeaseLostError, StaleSessionError
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.messages import Settlement
from logbroker.queues.model.settings import Ordering
from tests.queues.groups import ack, at, new_queue, receipts, record_ids
from tests.queues.losses import goodbye, grace_ends, lease_ends
from tests.queues.sessions import taken

COUNT = 5_500
AT_ONCE = 1_100
"""Records that may come back in one tick."""
LATER = 10_000.0


def another_incarnation(queue: Queue) -> None:
    queue.lifecycle.lost("w", at(0))


HAPPENS = [lease_ends, grace_ends, goodbye, another_incarnation]


def now_of(happens: Callable[[Queue], None]) -> float:
    if happens is lease_ends:
        return 100.0
    return 5.0 if happens is grace_ends else 0.0


@pytest.mark.parametrize("happens", HAPPENS)
@pytest.mark.parametrize("size", [7, 3_000])
@pytest.mark.parametrize("ordering", [Ordering.KEY, Ordering.NONE])
def test_deliveries(happens: Callable[[Queue], None], size: int, ordering: Ordering) -> None:
    """In grants of some size; the worker comes back under its id meanwhile."""
    queue = new_queue(ordering=ordering, max_in_flight=100_000, backoff_initial_seconds=0.0)
    keys = [b"%d" % number for number in range(COUNT)] if ordering is Ordering.KEY else []
    queue.admit(0, 1, range(COUNT), COUNT, keys, (), at(0))
    held: dict[int, int] = {}
    while granted := queue.take("w", size, at(0)):
        held.update(zip(receipts(granted), record_ids(granted), strict=True))
    assert len(held) == COUNT
    seconds = now_of(happens)
    happens(queue)
    in_flight = [queue.deliveries.in_flight]
    assert COUNT - in_flight[0] <= AT_ONCE
    again: dict[int, int] = {}
    while in_flight[-1] > len(again):
        deadline = queue.deadline()
        assert deadline <= seconds, "it goes on at once"
        # To its worker all is lost, whether it is taken back or not; what it is handed now is its own.
        late = [next(iter(held)), max(held)]
        for receipt in late:
            [refusal] = queue.settle("w", Settlement(acks=[(receipt, receipt)]), at(seconds))
            assert type(refusal.error) is LeaseLostError
        before = queue.deliveries.in_flight - len(again)
        queue.tick(at(seconds))
        in_flight.append(queue.deliveries.in_flight)
        assert before - (in_flight[-1] - len(again)) <= AT_ONCE
        granted = queue.take("w", 10, at(seconds))
        again.update(zip(receipts(granted), record_ids(granted), strict=True))
        in_flight.append(queue.deliveries.in_flight)
    assert not again.keys() & held.keys()
    assert queue.deliveries.in_flight == len(again)
    assert queue.settle("w", Settlement(acks=[(receipt, receipt) for receipt in again]), at(seconds)) == []
    rest: list[int] = []
    for _ in range(COUNT):
        granted = queue.take("v", COUNT, at(LATER))
        rest += record_ids(granted)
        ack(queue, granted, LATER, "v")
        if len(rest) + len(again) == COUNT:
            break
    assert sorted([*rest, *again.values()]) == list(range(COUNT)), "each once more"
    assert queue.done.floor(0) == COUNT


@pytest.mark.parametrize("happens", HAPPENS)
def test_sessions(happens: Callable[[Queue], None]) -> None:
    count = 1_500
    queue = new_queue(max_in_flight=100_000, backoff_initial_seconds=0.0)
    queue.admit(0, 1, range(count), count, [b"%d" % number for number in range(count)], (), at(0))
    tokens: dict[bytes, int] = {}
    for number in range(count):
        session = queue.sessions.open("w", b"%d" % number, 1, at(0))
        assert session is not None
        tokens[session.key] = session.token
    held = receipts(taken(queue))
    assert len(held) == count
    seconds = now_of(happens)
    happens(queue)
    rounds = 0
    while len(queue.sessions):
        rounds += 1
        before = len(queue.sessions)
        for key, token in (min(tokens.items()), max(tokens.items())):
            with pytest.raises(StaleSessionError):
                queue.sessions.renew("w", key, token, at(seconds))
        for receipt in (held[0], held[-1]):
            [refusal] = queue.settle("w", Settlement(acks=[(receipt, receipt)]), at(seconds))
            assert type(refusal.error) is StaleSessionError
        deadline = queue.deadline()
        assert not len(queue.sessions) or deadline <= seconds
        assert before - len(queue.sessions) <= 4 * AT_ONCE
    assert rounds, "not all at once"
    found: list[int] = []
    for _ in range(count):
        granted = queue.take("v", count, at(LATER))
        found += record_ids(granted)
        ack(queue, granted, LATER, "v")
        if len(found) == count:
            break
    assert sorted(found) == list(range(count))


def test_backoffs_that_end_at_once() -> None:
    count = 20_000
    queue = new_queue(max_in_flight=100_000)
    keys = [b"%d" % number for number in range(count)]
    queue.admit(0, 1, range(count), count, keys, [(number, 50_000) for number in range(count)], at(0))
    assert queue.lanes.ready_records == 0
    ready = [0]
    while ready[-1] < count:
        queue.tick(at(50))
        ready.append(queue.lanes.ready_records)
        assert 0 < ready[-1] - ready[-2] <= 5_000
        deadline = queue.deadline()
        assert ready[-1] == count or deadline <= 50
