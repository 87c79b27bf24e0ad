"""Bounds on calls and memory per record. `tests.queues.speed` prints what these take in CPU time."""

from __future__ import annotations

from logbroker.queues.model.settings import Ordering
from tests.calls import counted
from tests.queues.speed import admit, admit_runs, deliver, fill_deep, fill_lanes, keys_of, memory_mb, new_queue


def test_calls_per_record_with_many_keys() -> None:
    queue = new_queue(Ordering.KEY)
    with counted() as calls:
        admit(queue, keys_of(10_000), 20_000)
    assert calls.count < 3 * 20_000, "2.5 each"
    with counted() as calls:
        deliver(queue, 10_000)
    assert calls.count < 4 * 10_000, "3.2 each, with their acknowledgement"


def test_calls_per_record_without_order() -> None:
    queue = new_queue(Ordering.NONE)
    with counted() as calls:
        admit_runs(queue, 20_000)
    assert calls.count < 0.05 * 20_000, "0.03 each"
    with counted() as calls:
        deliver(queue, 20_000)
    assert calls.count < 0.25 * 20_000, "0.14 each, with their acknowledgement"


def test_a_delivery_costs_the_same_however_much_waits() -> None:
    """A hundred times as many records: what goes through all of them takes a hundred times as long."""
    times, called = [], []
    for backlog in (5_000, 500_000):
        queue = new_queue(Ordering.KEY)
        fill_deep(queue, 100, backlog)
        times.append(min(sum(deliver(queue, 1_000)) for _ in range(4)))
        with counted() as calls:
            deliver(queue, 1_000)
        called.append(calls.count)
    assert called[1] < 1.5 * called[0]
    assert times[1] < 20 * times[0]


def test_memory_per_lane_and_per_waiting_record() -> None:
    assert memory_mb(lambda queue: fill_lanes(queue, 20_000)) < 5
    assert memory_mb(lambda queue: fill_deep(queue, 100, 100_000)) < 1.6
