"""Blocks of an earlier scan: read late, and all the same in what is handed out."""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.messages import PriorityCounts, Settlement
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import Ordering, Priority, QueueGroupSettings
from logbroker.queues.priority.ready_queue import MAX_READS, UNREAD_RECORDS
from logbroker.queues.records.batch_cache import BatchCache
from logbroker.queues.records.columns import Block, Columns
from logbroker.queues.records.fetch import Records
from logbroker.queues.scan import admitter
from logbroker.queues.scan.index_cache.cache import IndexCache
from logbroker.types import TopicId
from tests.queues.fake_log import FakeLog
from tests.queues.groups import ack, at, commit, nack, new_queue, receipts, record_ids, restart

Ranks = Sequence[tuple[int, int]]
"""Priorities and timestamps."""


class Sealed:
    """A block of records, and how often it was read."""

    def __init__(
        self, ranks: Ranks, first: int = 0, gaps: Sequence[int] = (), due: Sequence[tuple[int, int]] = ()
    ) -> None:
        self.loads = 0
        self.is_readable = True
        offsets = [first + index for index in range(len(ranks)) if index not in gaps]
        self.priorities = bytes(priority for index, (priority, _) in enumerate(ranks) if index not in gaps)
        times = array("q", [time for index, (_, time) in enumerate(ranks) if index not in gaps])
        self.end = first + len(ranks)
        self.columns = Columns(offsets, self.end, [], list(due), self.priorities, times, [])
        counts = [self.priorities.count(level) for level in range(10)]
        records = list(zip(times, offsets, self.priorities, strict=True))
        heads = [
            min(((time, offset) for time, offset, each in records if each == level), default=(0, 0))
            for level in range(10)
        ]
        latest = max((due_ms for _, due_ms in due), default=0)
        self.block = Block(first, self.end, counts, heads, latest, self.load)

    def load(self) -> Columns | None:
        self.loads += 1
        return self.columns if self.is_readable else None

    def admit_to(self, queue: Queue, partition: int = 0, seconds: float = 0) -> None:
        """As a scan admits it."""
        columns = self.columns
        queue.admit(
            partition,
            1,
            columns.offsets,
            self.end,
            (),
            columns.not_before,
            at(seconds),
            -1,
            columns.priorities,
            columns.times,
        )


def ranked_queue(partitions: int = 1, **more: object) -> Queue:
    return new_queue(partitions, ordering=Ordering.NONE, priority=Priority.STRICT, **more)


def some_ranks(count: int, seed: int = 1) -> Ranks:
    random_ = random.Random(seed)
    return [(random_.randrange(10), 1_000 * number + random_.randrange(3_000)) for number in range(count)]


RANKS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), min_size=1, max_size=12)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), RANKS, st.booleans()), min_size=1, max_size=6), st.integers(1, 4))
def test_what_is_read_late_comes_in_the_same_order(pieces: list[tuple[int, Ranks, bool]], credit: int) -> None:
    """Blocks and columns mixed, over several partitions, against columns alone."""
    lazy, eager = ranked_queue(3), ranked_queue(3)
    ends = [0, 0, 0]
    for partition, ranks, is_block in pieces:
        sealed = Sealed(ranks, ends[partition])
        ends[partition] = sealed.end
        if is_block:
            assert lazy.admit_block(partition, 1, sealed.block, at(0))
        else:
            sealed.admit_to(lazy, partition)
        sealed.admit_to(eager, partition)
    while eager.open_records:
        assert [each.waiting for each in lazy.priority_counts()] == [each.waiting for each in eager.priority_counts()]
        assert lazy.ready_records() == eager.ready_records()
        assert lazy.open_records == eager.open_records
        expected, granted = eager.take("w", credit, at(0)), lazy.take("w", credit, at(0))
        assert record_ids(granted) == record_ids(expected)
        ack(lazy, granted)
        ack(eager, expected)
    assert lazy.open_records == 0
    assert lazy.priority_counts() == eager.priority_counts()


def test_a_block_is_read_when_the_first_of_a_priority_is_taken_and_not_before() -> None:
    queue = ranked_queue(2)
    hot, cold = Sealed([(9, 10), (5, 3), (9, 11)]), Sealed([(0, 1), (0, 2)])
    assert queue.admit_block(0, 1, hot.block, at(0))
    assert queue.admit_block(1, 1, cold.block, at(0))
    assert [each.oldest_timestamp_ms for each in queue.priority_counts()] == [10, 3, 1]
    assert (hot.loads, cold.loads, queue.ready_records()) == (0, 0, 5)
    later = Sealed([(0, 100)], first=2)
    assert queue.admit_block(1, 1, later.block, at(0))
    assert record_ids(queue.take("w", 2, at(0))) == [0, 2]
    assert (hot.loads, cold.loads) == (1, 0)
    assert record_ids(queue.take("w", 2, at(0))) == [1, record_id_of(1, 0)]
    assert (hot.loads, cold.loads, later.loads) == (2, 1, 0)


def test_one_take_reads_few_blocks_and_the_next_ones_go_on() -> None:
    queue = ranked_queue(3 * MAX_READS)
    for partition in range(3 * MAX_READS):
        sealed = Sealed([(number % 10, number) for number in range(20)])
        assert queue.admit_block(partition, 1, sealed.block, at(0))
    taken = [record_ids(queue.take("w", 10_000, at(0))) for _ in range(3)]
    assert [len(each) for each in taken] == [MAX_READS] * 3
    assert [record_id for each in taken for record_id in each] == [
        record_id_of(partition, 9) for partition in range(3 * MAX_READS)
    ]
    assert record_ids(queue.take("w", 10, at(0))) == [record_id_of(partition, 19) for partition in range(10)]


@pytest.mark.parametrize("is_sorted", [True, False])
def test_many_records_at_once_come_in_the_order_of_few(is_sorted: bool) -> None:
    """More than are made cursors at once, with times that rise or do not."""
    random_ = random.Random(1)
    times = [random_.randrange(1_000) for _ in range(4 * UNREAD_RECORDS)]
    ranks = [(random_.randrange(10), time) for time in (sorted(times) if is_sorted else times)]
    together, apart = ranked_queue(), ranked_queue()
    for start in range(0, len(ranks), 2 * UNREAD_RECORDS):
        Sealed(ranks[start : start + 2 * UNREAD_RECORDS], start).admit_to(together)
    for start in range(0, len(ranks), UNREAD_RECORDS // 2):
        Sealed(ranks[start : start + UNREAD_RECORDS // 2], start).admit_to(apart)
    while apart.open_records:
        assert together.priority_counts() == apart.priority_counts()
        expected, granted = apart.take("w", 50, at(0)), together.take("w", 50, at(0))
        assert record_ids(granted) == record_ids(expected)
        ack(together, granted)
        ack(apart, expected)
    assert together.open_records == 0


def test_what_is_done_of_a_block_is_not_handed_out_again_after_a_restart() -> None:
    ranks = some_ranks(2_000)
    before = ranked_queue()
    Sealed(ranks).admit_to(before)
    rows = commit(before, {})
    seen = before.take("w", 700, at(0))
    ack(before, seen)
    commit(before, rows)

    after = restart(rows, 2_000)
    sealed = Sealed(ranks)
    assert after.admit_block(0, 1, sealed.block, at(0))
    assert sealed.loads == 1
    assert after.open_records == after.ready_records() == 1_300
    by_priority = {each.priority: each.waiting for each in after.priority_counts()}
    left = set(range(2_000)) - set(record_ids(seen))
    for each in after.priority_counts():
        assert each.oldest_timestamp_ms == min(
            ranks[record_id][1] for record_id in left if ranks[record_id][0] == each.priority
        )
    assert by_priority == {level: count for level in range(10) if (count := sum(ranks[p][0] == level for p in left))}
    order = record_ids(after.take("w", 2_000, at(0)))
    assert order == sorted(left, key=lambda record_id: (-ranks[record_id][0], ranks[record_id][1], record_id))


def test_what_needs_a_look_is_read_at_once() -> None:
    for sealed in (
        Sealed(some_ranks(50), gaps=[7, 8]),
        Sealed(some_ranks(50), due=[(30, 1_000)]),
    ):
        queue = ranked_queue()
        assert queue.admit_block(0, 1, sealed.block, at(0))
        assert sealed.loads == 1
        handed = record_ids(queue.take("w", 100, at(0)))
        assert set(handed) == set(sealed.columns.offsets) - {offset for offset, _ in sealed.columns.not_before}


def test_a_block_with_a_record_that_failed_is_read_at_once() -> None:
    ranks = some_ranks(50)
    queue = ranked_queue(max_attempts=1)
    Sealed(ranks).admit_to(queue)
    rows = commit(queue, {})
    granted = queue.take("w", 1, at(0))
    nack(queue, granted)
    commit(queue, rows)
    after = restart(rows, 50)
    sealed = Sealed(ranks)
    assert after.admit_block(0, 1, sealed.block, at(0))
    assert sealed.loads == 1
    assert after.stalled.find(record_ids(granted)[0]) is not None, "an operator sees the blocked record"
    assert after.ready_records() == 49


def test_a_block_that_cannot_be_read_is_left_to_the_scan() -> None:
    ranks = some_ranks(50)
    queue = ranked_queue()
    sealed = Sealed(ranks, gaps=[3])
    sealed.is_readable = False
    assert not queue.admit_block(0, 1, sealed.block, at(0))
    assert queue.position(0) == 0


def test_where_a_block_cannot_be_read_later_all_is_scanned_anew() -> None:
    ranks = some_ranks(50)
    queue = ranked_queue(2)
    commit(queue, {})
    good, bad = Sealed([(9, 0), (0, 0), (0, 0)]), Sealed(ranks)
    good.admit_to(queue)
    granted = queue.take("w", 1, at(0))
    assert queue.admit_block(1, 1, bad.block, at(0))
    bad.is_readable = False
    assert queue.take("w", 10, at(0)) == [], "nothing is handed out in a wrong order"
    assert queue.draining
    assert not queue.take_outputs().rescan
    ack(queue, granted)
    assert queue.take_outputs().rescan
    queue.begin_generation(1, ())
    assert queue.position(1) == 0
    bad.admit_to(queue, 1)
    assert queue.ready_records() == queue.open_records == 50
    order = [record_id - record_id_of(1, 0) for record_id in record_ids(queue.take("w", 100, at(0)))]
    assert order == sorted(range(50), key=lambda offset: (-ranks[offset][0], ranks[offset][1], offset))


def test_a_reclaim_finds_what_was_not_read_yet() -> None:
    queue = ranked_queue(2)
    sealed = Sealed(some_ranks(100))
    assert queue.admit_block(1, 1, sealed.block, at(0))
    wanted = [record_id_of(1, offset) for offset in (3, 50, 99)]
    assert sorted(record_ids(queue.reclaim("w", wanted, at(0)))) == wanted
    left = record_ids(queue.take("w", 100, at(0)))
    assert sorted([*wanted, *left]) == [record_id_of(1, offset) for offset in range(100)]


def test_a_reclaim_reads_no_block_but_those_that_have_what_is_reclaimed() -> None:
    queue = ranked_queue(2)
    blocks = [Sealed(some_ranks(100, seed), first=100 * seed) for seed in range(20)]
    for sealed in blocks:
        assert queue.admit_block(1, 1, sealed.block, at(0))
    wanted = [record_id_of(1, offset) for offset in (700, 899, 1900)]
    assert sorted(record_ids(queue.reclaim("w", wanted, at(0)))) == wanted
    assert [index for index, sealed in enumerate(blocks) if sealed.loads] == [7, 8, 19]


def test_a_block_that_leaves_records_out_is_refused() -> None:
    queue = ranked_queue()
    with pytest.raises(ValueError, match="leaves out"):
        queue.admit_block(0, 1, Sealed(some_ranks(5), first=1).block, at(0))
    assert queue.admit_block(0, 1, Sealed(some_ranks(5)).block, at(0))
    with pytest.raises(ValueError, match="goes forward"):
        queue.admit_block(0, 1, Sealed(some_ranks(5)).block, at(0))


def test_counts_by_priority() -> None:
    queue = ranked_queue()
    Sealed([(0, 10), (9, 20), (9, 30), (4, 25)]).admit_to(queue)
    granted = queue.take("w", 1, at(0))
    assert queue.priority_counts() == [
        PriorityCounts(9, 1, 30, 1, 0),
        PriorityCounts(4, 1, 25, 0, 0),
        PriorityCounts(0, 1, 10, 0, 1),
    ]
    [receipt] = receipts(granted)
    queue.settle("w", Settlement(releases=[(receipt, receipt)]), at(0))
    assert queue.priority_counts()[0] == PriorityCounts(9, 2, 20, 1, 0)
    ack(queue, queue.take("w", 3, at(0)))
    assert queue.priority_counts() == [
        PriorityCounts(9, 0, None, 3, 0),
        PriorityCounts(4, 0, None, 1, 1),
        PriorityCounts(0, 1, 10, 0, 4),
    ]
    assert QueueGroupSettings(priority=Priority.STRICT).has_priorities


class Kept:
    """An index cache of blocks that take a while to be admitted."""

    def __init__(self, blocks: Sequence[Sealed], takes_seconds: float) -> None:
        self.blocks = {sealed.block.first_offset: sealed.block for sealed in blocks}
        self.takes_seconds = takes_seconds
        self.now = 0.0

    def block_at(self, partition: int, generation: int, position: int) -> Block | None:
        self.now += self.takes_seconds
        return self.blocks.get(position)


@pytest.mark.parametrize(("partitions", "blocks"), [(1, 100), (64, 1)])
async def test_others_have_their_turn_while_many_blocks_are_taken_up(
    monkeypatch: pytest.MonkeyPatch, partitions: int, blocks: int
) -> None:
    queue, log = ranked_queue(partitions), FakeLog(partitions)
    kept = Kept([Sealed(some_ranks(10), first=10 * index, gaps=[3]) for index in range(blocks)], takes_seconds=0.001)
    kept.blocks[10 * (blocks - 1)].is_last = True
    monkeypatch.setattr(admitter, "monotonic", lambda: kept.now)
    records = Records(log.engine, TopicId(queue.topic_id), BatchCache(0))
    taking = admitter.Admitter(queue, records, cast(IndexCache, kept), lambda: at(0))
    stalls, begun = [0.0], 0.0

    async def watch() -> None:
        nonlocal begun
        while True:
            stalls.append(kept.now - begun)
            begun = kept.now
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    for partition in range(partitions):
        assert await taking.take_up(partition)
    watching.cancel()
    assert {queue.position(partition) for partition in range(partitions)} == {10 * blocks}
    assert max(*stalls, kept.now - begun) < 0.01
