"""After a crash, what a worker held is looked for in turns; it gets what it would have got at once."""

from __future__ import annotations

import random

import pytest

from logbroker.pacing import TURN_STEPS, at_once
from logbroker.queues.machine.lane_index import LaneIndex
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.settings import Ordering, Priority
from logbroker.queues.state.change_set import ChangeSet
from tests.queues.groups import ack, at, new_queue, record_ids

COUNT = 400


def filled(ordering: Ordering, priority: Priority, keys: list[bytes | None]) -> Queue:
    queue = new_queue(ordering=ordering, priority=priority, max_in_flight=100_000)
    queue.admit(0, 1, range(COUNT), COUNT, keys if ordering is Ordering.KEY else [], (), at(0), 1_000)
    return queue


@pytest.mark.parametrize("priority", [Priority.NONE, Priority.STRICT])
@pytest.mark.parametrize("ordering", [Ordering.KEY, Ordering.NONE])
@pytest.mark.parametrize("share_without_key", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(3))
def test_it_gets_what_it_would_get_at_once(
    ordering: Ordering, priority: Priority, share_without_key: float, seed: int
) -> None:
    chance = random.Random(seed)
    keys = [None if chance.random() < share_without_key else b"%d" % chance.randrange(300) for _ in range(COUNT)]
    held = sorted(chance.sample(range(COUNT), 60))
    expected = record_ids(filled(ordering, priority, keys).reclaim("w", held, at(0)))
    queue = filled(ordering, priority, keys)
    granted = queue.reclaim("w", held, at(0), at_once(queue.lanes.find_heads(held)))
    assert sorted(record_ids(granted)) == sorted(expected)
    assert expected
    assert queue.deliveries.in_flight == len(expected)
    done = record_ids(granted)
    ack(queue, granted)
    while granted := queue.take("v", COUNT, at(0)):
        done += record_ids(granted)
        ack(queue, granted, worker_id="v")
    assert sorted(done) == list(range(COUNT)), "each once"


@pytest.mark.parametrize("priority", [Priority.NONE, Priority.STRICT])
def test_what_went_on_meanwhile_is_left_out(priority: Priority) -> None:
    """One lane went to a session, one to another worker, one is made anew."""
    queue = filled(Ordering.KEY, priority, [b"%d" % (number % 200) for number in range(COUNT)])
    found = at_once(queue.lanes.find_heads([0, 1, 2, 3]))
    assert [lane.head for lane in found] == [0, 1, 2, 3]
    assert record_ids(queue.reclaim("other", [1], at(0))) == [1]
    assert queue.sessions.open("s", b"2", 1, at(0)) is not None
    ready = queue.lanes.ready_records
    assert record_ids(queue.reclaim("w", [0, 1, 2, 3], at(0), found)) == [0, 3]
    assert queue.lanes.ready_records == ready - 2
    queue.rewind({0: 0}, at(0))
    assert queue.reclaim("w", [0, 1, 2, 3], at(0), found) == []


def test_the_search_gives_way() -> None:
    lanes = LaneIndex(ChangeSet())
    count = 100_000
    lanes.admit(0, range(count), [b"%d" % number for number in range(count)], None)
    steps = list(lanes.find_heads([5, 99_999]))
    assert len(steps) >= 50
    assert max(steps) <= TURN_STEPS
    assert at_once(lanes.find_heads([])) == []
