"""Bounds on time and memory per record: generous ones, several times what `tests.queues.speed` prints on two cores."""

from __future__ import annotations

from logbroker.queues.settings import Ordering
from tests.queues.speed import admit, admit_runs, deliver, fill_deep, fill_lanes, keys_of, memory_mb, new_queue


def test_time_per_record_with_many_keys() -> None:
    queue = new_queue(Ordering.KEY)
    assert admit(queue, keys_of(10_000), 100_000) < 4
    taking, acknowledging = deliver(queue, 50_000)
    assert taking < 3
    assert acknowledging < 4


def test_time_per_record_without_order() -> None:
    queue = new_queue(Ordering.NONE)
    assert admit_runs(queue, 200_000) < 1
    assert sum(deliver(queue, 200_000)) < 1


def test_a_delivery_costs_the_same_however_much_waits() -> None:
    costs = []
    for backlog in (10_000, 1_000_000):
        queue = new_queue(Ordering.KEY)
        fill_deep(queue, 100, backlog)
        costs.append(min(sum(deliver(queue, 2_500)) for _ in range(4)))
    assert costs[1] < 4 * costs[0]


def test_memory_per_lane_and_per_waiting_record() -> None:
    assert memory_mb(lambda queue: fill_lanes(queue, 100_000)) < 25
    assert memory_mb(lambda queue: fill_deep(queue, 100, 500_000)) < 8
