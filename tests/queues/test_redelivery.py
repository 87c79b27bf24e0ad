"""Whether a record is marked as one that may have been handed out before: never too seldom, nor for ever in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from logbroker.queues.machine.inspect import Inspector
from logbroker.queues.machine.load import load_queue
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.messages import Nack, Settlement
from logbroker.queues.model.settings import OnExhausted, Ordering, Priority, QueueGroupSettings
from logbroker.queues.state.completion import PAGE_RECORDS
from tests.queues.groups import ack, admit, at, commit, keep, nack, new_queue, receipts, record_ids


def start(rows: dict[bytes, bytes], ends: dict[int, int]) -> Queue:
    """A start with the ends of those logs that can be looked at."""
    queue = load_queue(rows, ends, random=lambda: 0.0, route=lambda key: 0)
    queue.begin_generation(1, ())
    return queue


def stop(queue: Queue, rows: dict[bytes, bytes]) -> None:
    keep(queue.take_outputs(), rows)
    for event in queue.stop_events():
        if event.value is None:
            rows.pop(event.key, None)
        else:
            rows[event.key] = event.value


@pytest.mark.parametrize("crashes", [1, 2])
def test_what_was_handed_out_before_a_crash_is_marked_also_where_its_log_comes_back_lives_later(crashes: int) -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue(2)
    admit(queue, [b"a", b"b"], partition=0)
    assert len(record_ids(queue.take("w", 2, at(0)))) == 2
    commit(queue, rows)
    for _ in range(crashes):
        queue = start(rows, {1: 0})
        commit(queue, rows)
    stop(start(rows, {1: 0}), rows)
    queue = start(rows, {0: 3, 1: 0})
    assert not queue.after_crash
    admit(queue, [b"a", b"b", b"c"], partition=0)
    [granted] = queue.take("w", 3, at(0))
    assert granted.redelivered[:2] == [True, True]


def test_a_log_that_comes_back_after_a_clean_stop_has_the_marks_that_it_had() -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue(2)
    admit(queue, [b"a", b"b"], partition=0)
    queue.take("w", 1, at(0))
    stop(queue, rows)
    stop(start(rows, {1: 0}), rows)
    queue = start(rows, {0: 2, 1: 0})
    admit(queue, [b"a", b"b"], partition=0)
    [granted] = queue.take("w", 2, at(0))
    assert granted.redelivered == [True, False]


def test_what_came_back_is_not_known_one_by_one_once_all_before_it_is_marked() -> None:
    queue = new_queue(ordering=Ordering.NONE)
    queue.admit(0, 1, range(100), 100, (), (), at(0))
    nack(queue, queue.take("w", 10, at(0)), delay_seconds=0)
    queue.settle(
        "w", Settlement(releases=[(receipt, receipt) for receipt in receipts(queue.take("w", 99, at(0)))]), at(0)
    )
    assert queue.redelivery.returned
    queue.rewind({0: 5}, at(0))
    queue.take_outputs()
    queue.begin_generation(1, ())
    queue.admit(0, 1, range(100), 100, (), (), at(0))
    granted = queue.take("w", 100, at(0))
    flags = {
        record_id: flag
        for piece in granted
        for record_id, flag in zip(piece.record_ids, piece.redelivered or [False] * len(piece), strict=True)
    }
    assert all(flags[record_id] for record_id in range(5, 10))
    ack(queue, granted)
    assert queue.redelivery.returned == set()


def read(queue: Queue, count: int, keys: Sequence[bytes] = ()) -> None:
    """Let the scan that an emptied index asks for go through a partition."""
    assert queue.take_outputs().rescan
    queue.begin_generation(1, ())
    offsets = range(queue.position(0), count)
    wanted = keys[offsets.start :] if queue.settings.ordering is Ordering.KEY else ()
    queue.admit(0, 1, offsets, count, wanted, (), at(0))


def flags(queue: Queue, count: int, worker_id: str = "v") -> dict[int, bool]:
    """Whether what is handed out now is marked, by record id."""
    return {
        record_id: flag
        for piece in queue.take(worker_id, count, at(0))
        for record_id, flag in zip(piece.record_ids, piece.redelivered or [False] * len(piece), strict=True)
    }


def other_ordering(queue: Queue) -> None:
    changed = Ordering.NONE if queue.settings.ordering is Ordering.KEY else Ordering.KEY
    queue.alter(QueueGroupSettings(ordering=changed, max_in_flight=1_000))


def priorities(queue: Queue) -> None:
    queue.alter(QueueGroupSettings(ordering=queue.settings.ordering, max_in_flight=1_000, priority=Priority.STRICT))


def rewind_elsewhere(queue: Queue) -> None:
    queue.rewind({1: 0}, at(0))


def rewind_here(queue: Queue) -> None:
    queue.rewind({0: 0}, at(0))


@pytest.mark.parametrize("happens", [other_ordering, priorities, rewind_elsewhere, rewind_here])
@pytest.mark.parametrize("ordering", [Ordering.KEY, Ordering.NONE])
@pytest.mark.parametrize("seed", range(6))
def test_when_the_index_is_made_anew_only_what_was_handed_out_is_marked(
    happens: Callable[[Queue], None], ordering: Ordering, seed: int
) -> None:
    """Records are handed out, and come back or are done, in any order; some wait behind others of their key."""
    chance = random.Random(seed)
    count = 60
    queue = new_queue(2, ordering=ordering, max_in_flight=1_000)
    keys = [b"%d" % chance.randrange(25) for _ in range(count)]
    queue.admit(0, 1, range(count), count, keys if ordering is Ordering.KEY else [], (), at(0))
    seen: set[int] = set()
    for _ in range(2):
        granted = queue.take("w", chance.randrange(10, 25), at(0))
        seen.update(record_ids(granted))
        pairs = list(zip(receipts(granted), record_ids(granted), strict=True))
        chance.shuffle(pairs)
        acked = {record_id: receipt for receipt, record_id in pairs[: len(pairs) // 3]}
        # A rewind says of all below the floor that it was handed out: the first record is not among it.
        acked.pop(0, None)
        others = [receipt for receipt, record_id in pairs if record_id not in acked]
        failed, released = others[::2], others[1::2]
        held = released if happens in (rewind_elsewhere, rewind_here) and chance.random() < 0.5 else []
        settlement = Settlement(
            acks=[(receipt, receipt) for receipt in acked.values()],
            nacks=[Nack(receipt, receipt, "broken", 0.0) for receipt in failed],
            releases=[] if held else [(receipt, receipt) for receipt in released],
        )
        assert queue.settle("w", settlement, at(0)) == []
    happens(queue)
    read(queue, count, keys)
    told: dict[int, bool] = {}
    while granted := queue.take("v", 1_000, at(0)):
        for piece in granted:
            told.update(zip(piece.record_ids, piece.redelivered or [False] * len(piece), strict=True))
        ack(queue, granted, worker_id="v")
    assert told.keys() >= set(range(count)) - seen
    assert {record_id for record_id, flag in told.items() if flag} == seen & told.keys()
    assert len(seen) < count


def test_what_was_noted_is_forgotten_below_the_floor() -> None:
    queue = new_queue(ordering=Ordering.NONE, max_in_flight=1_000_000)
    count = 3 * PAGE_RECORDS
    queue.admit(0, 1, range(count), count, (), (), at(0))
    assert len(record_ids(queue.take("w", count, at(0)))) == count
    queue.rewind({0: 0}, at(0))
    read(queue, count)
    assert len(queue.redelivery.noted.pages) == 3
    ack(queue, queue.take("w", count, at(0)))
    for _ in range(4):
        queue.take_outputs()
    assert not queue.redelivery.noted.pages


def test_a_resumed_lane_does_not_forget_that_the_record_behind_was_handed_out() -> None:
    """It was parked for it, and a rewind put another before it."""
    queue = new_queue(max_attempts=1, on_exhausted=OnExhausted.PARK)
    admit(queue, [b"k", b"k"])
    ack(queue, queue.take("w", 1, at(0)))
    nack(queue, queue.take("w", 1, at(0)))
    queue.rewind({0: 0}, at(0))
    assert queue.take_outputs().rescan
    queue.begin_generation(1, ())
    admit(queue, [b"k", b"k"])
    inspector = Inspector(queue)
    inspector.skip(inspector.lane(b"k"), at(0))
    assert flags(queue, 1) == {1: True}
