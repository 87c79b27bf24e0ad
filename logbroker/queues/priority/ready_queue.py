"""The ready queue with priorities: records are kept by level, and within each level in the order of timestamp and
record id.

Ten heaps, one for each level, contain *sources*: a ready lane, or a `RunCursor` or `Unread`, which stand for many
records without an ordering key. A heap contains only the first record of each source, the *front* of the source. To
take a record is to take the first of these fronts and to replace it by the next record of its source. So a delivery
costs O(log sources), however many records wait. `Unread` sources become cursors level by level, when their front is
taken. Many records that are admitted at once become an `Unread` first, instead of being sorted into cursors.

An entry is (timestamp, record id, number, source). If the source is taken out or moved to another level, its number
changes, and the old entry is void. Void entries are dropped when they come to the front, or when there are too many.

A lane has the level of its most urgent record, so that a less urgent head does not hold back the records behind it;
with `by_head`, it has the level of its head. Within a level, lanes are sorted by the timestamp and record id of their
heads. Records that come back return to the position of their rank.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from logbroker.queues.model.lane import IN_FLIGHT, READY, Lane, RankedLane, ranked
from logbroker.queues.model.record_id import OFFSET_MASK, PARTITION_SHIFT
from logbroker.queues.priority.levels import counts_of, heads_of, of_level
from logbroker.queues.priority.policy import ALL_LEVELS, LEVELS, SchedulingPolicy
from logbroker.queues.priority.runs import Cursors, RunCursor, Unread

Source = RankedLane | RunCursor | Unread
Entry = tuple[int, int, int, Source]

UNREAD_RECORDS: Final = 256
"""Minimum number of records that become an `Unread` when they are admitted together and have several levels. Fewer
become cursors at once."""
MAX_READS: Final = 128
"""Maximum number of reads of `Unread` sources in one `take`. So many reads take about 10 ms."""
_COMPACT_AT: Final = 64


class PriorityLine:
    """The ready lanes and records of a queue group with priorities."""

    def __init__(self, policy: SchedulingPolicy, *, by_head: bool) -> None:
        self.policy = policy
        self.by_head = by_head
        """Whether a lane is ranked by its head, and not by its most urgent record. May change only while the queue is
        empty."""
        self.records = 0
        """Number of records that could be handed out at once."""
        self.overtaken = [0] * LEVELS
        """Number of times, by level, that a record of a higher level was taken while an older one of this level was
        ready."""
        self._heaps: list[list[Entry]] = [[] for _ in range(LEVELS)]
        self._void = [0] * LEVELS
        """Number of void entries, by level."""
        self._ready = [0] * LEVELS
        """Number of ready records, by level."""
        self._active = 0
        """The levels that have records, as bits."""
        self._is_settled = True
        """Whether the front entry of each level with records is known to be valid (not void)."""
        self._reads = 0
        """Number of reads of `Unread` sources by the last `take`."""
        self._cursors = Cursors(self._enter, self._leave)
        self._number = 0

    # --- queries -----------------------------------------------------------------------------------------------------

    def ready(self, levels: int) -> int:
        """Return the number of records of some levels that could be handed out at once."""
        if levels == ALL_LEVELS:
            return self.records
        return sum(count for level, count in enumerate(self._ready) if levels >> level & 1)

    def oldest_ms(self, level: int) -> int | None:
        """Return the timestamp of the first record of a level; None: it has none."""
        self._settle()
        return self._heaps[level][0][0] if self._ready[level] else None

    # --- adding ------------------------------------------------------------------------------------------------------

    def append(self, lane: Lane) -> None:
        """Add a lane that is ready."""
        lane = ranked(lane)
        level = lane.level = lane.priority if self.by_head else lane.urgency
        self._number = lane.entry = self._number + 1
        heapq.heappush(self._heaps[level], (lane.timestamp_ms, lane.head, lane.entry, lane))
        self._count(level, 1)

    def rise(self, lane: RankedLane) -> None:
        """Move up a lane that is in the queue and may have become more urgent."""
        if not self.by_head and lane.urgency != lane.level:
            self.remove(lane)
            self.append(lane)

    def admit(self, base: int, offsets: Sequence[int], priorities: bytes, times: Sequence[int]) -> None:
        """Admit records without an ordering key, with ascending offsets. `base` is the record id of offset 0 in the
        partition."""
        levels = set(priorities)
        if len(levels) > 1 and len(priorities) >= UNREAD_RECORDS:
            counts, heads = counts_of(priorities), heads_of(offsets, priorities, times)
            read = partial(of_level, offsets, priorities, times)
            self.admit_unread(Unread(base, offsets[0], offsets[-1] + 1, counts, heads, read))
            return
        for level in levels:
            if len(levels) == 1:
                chosen, stamps = array("q", offsets), array("q", times)
            else:
                chosen, stamps = of_level(offsets, priorities, times, level)
            self._count(level, len(stamps))
            self._cursors.admit(base, level, chosen, stamps)

    def admit_unread(self, unread: Unread) -> None:
        """Admit records without an ordering key. The records of a level are read when its first one is taken."""
        self._number = number = unread.entry = self._number + 1
        base, heaps, ready = unread.base, self._heaps, self._ready
        for level, (count, (timestamp_ms, offset)) in enumerate(zip(unread.counts, unread.heads, strict=True)):
            if count:
                heapq.heappush(heaps[level], (timestamp_ms, base | offset, number, unread))
                if ready[level]:
                    # This does the same as `_count` in half the time. A start of the broker admits many such sources.
                    ready[level] += count
                    self.records += count
                else:
                    self._count(level, count)

    # --- taking ------------------------------------------------------------------------------------------------------

    def take(self, credit: int, levels: int = ALL_LEVELS) -> list[Lane]:
        """Take up to `credit` records of some levels, in the order of the policy; they are then in flight. Returns
        fewer records if more would need many reads. Returns none only if no record is ready or the records cannot be
        read."""
        self._settle()
        choose, heaps = self.policy.choose, self._heaps
        taken: list[Lane] = []
        served, begun = -1, 0
        self._reads = 0
        while len(taken) < credit and self._active & levels and self._reads < MAX_READS:
            level = choose(self._active, levels, heaps)
            if level != served:
                self._reckon(served, taken, begun)
                served, begun = level, len(taken)
            lane = self._take_front(level)
            if lane is None:
                break
            taken.append(lane)
        self._reckon(served, taken, begun)
        return taken

    def _take_front(self, level: int) -> RankedLane | None:
        """Take the first record of a level; None: it cannot be read. The front of the level must not be void, and no
        front is void afterwards."""
        heap = self._heaps[level]
        timestamp_ms, record_id, number, source = heap[0]
        if type(source) is Unread:
            heapq.heappop(heap)
            self._reads += 1
            if not self._read(source, level):
                return None
            timestamp_ms, record_id, number, source = heap[0]
        # Runs for each record, so the usual source comes first, and `_count` is written out.
        if type(source) is RunCursor:
            lane = RankedLane(None, record_id, IN_FLIGHT, priority=level, timestamp_ms=timestamp_ms, level=level)
            if (head := source.advance()) is not None:
                heapq.heapreplace(heap, (*head, number, source))
            else:
                heapq.heappop(heap)
                self._cursors.drop(source)
        else:
            assert isinstance(source, RankedLane)
            heapq.heappop(heap)
            source.entry = 0
            lane = source
            lane.state = IN_FLIGHT
        self.records -= 1
        count = self._ready[level] = self._ready[level] - 1
        if not count:
            self._active &= ~(1 << level)
        if heap and heap[0][3].entry != heap[0][2]:
            self._is_settled = False
            self._settle()
        return lane

    def _reckon(self, level: int, taken: Sequence[Lane], begun: int) -> None:
        """Count, for each lower level, how many of the records `taken[begun:]`, all of which are from `level`, overtook
        its first record."""
        count = len(taken) - begun
        if not count:
            return
        below = self._active & (1 << level) - 1
        last = _rank(taken[-1])
        while below:
            lower = below.bit_length() - 1
            below ^= 1 << lower
            front = self._heaps[lower][0][:2]
            if last > front:
                self.overtaken[lower] += 1 if count == 1 else len(taken) - bisect_left(taken, front, begun, key=_rank)

    def take_these(self, wanted: Sequence[int]) -> list[Lane]:
        """Take out the `wanted` records that are in the queue. Examines all sources in the queue, and searches the
        cursors of the records' partitions."""
        heads = set(wanted)
        by_base: dict[int, set[int]] = {}
        for record_id in wanted:
            by_base.setdefault(record_id >> PARTITION_SHIFT << PARTITION_SHIFT, set()).add(record_id & OFFSET_MASK)
        in_order = sorted(heads)
        for level, heap in enumerate(self._heaps):
            unread = [source for *_, source in heap if isinstance(source, Unread) and source.has_any(in_order)]
            if unread:
                numbers = {source.entry for source in unread}
                heap[:] = [entry for entry in heap if entry[2] not in numbers]
                heapq.heapify(heap)
                self._is_settled = False
                for each in unread:
                    self._read(each, level)
        found: list[Lane] = []
        for source in list(self._sources()):
            if isinstance(source, RankedLane):
                if source.head in heads:
                    self.remove(source)
                    source.state = IN_FLIGHT
                    found.append(source)
            elif isinstance(source, RunCursor) and source.base in by_base:
                found += self._take_out(source, by_base[source.base])
        return found

    def take_out(self, lanes: Sequence[Lane]) -> None:
        """Take out some lanes, wherever they are."""
        for lane in lanes:
            self.remove(lane)
            lane.state = IN_FLIGHT

    def _take_out(self, cursor: RunCursor, offsets: set[int]) -> list[RankedLane]:
        found = cursor.take(offsets)
        if found:
            self._count(cursor.level, -len(found))
            self._leave(cursor)
            if len(cursor):
                self._enter(cursor)
            else:
                self._cursors.drop(cursor)
        level = cursor.level
        return [
            RankedLane(None, cursor.base | offset, IN_FLIGHT, priority=level, timestamp_ms=time, level=level)
            for time, offset in found
        ]

    def give_back(self, lanes: Sequence[Lane]) -> None:
        """Put back lanes with heads that were not worked on. Each lane returns to the position of its rank."""
        for lane in lanes:
            lane.state = READY
            self.append(lane)

    def next_key(self) -> bytes | None:
        """Return the key of the next lane that has a key. If there are records without a key, too, this scans the
        queue."""
        self._settle()
        fronts: list[list[Entry]] = [[] for _ in range(LEVELS)]
        active = 0
        for level, heap in enumerate(self._heaps):
            if self._ready[level] and (entry := _first_with_key(heap)) is not None:
                fronts[level].append(entry)
                active |= 1 << level
        if not active:
            return None
        source = fronts[self.policy.choose(active, ALL_LEVELS, fronts)][0][3]
        assert isinstance(source, RankedLane)
        return source.key

    def remove(self, lane: Lane) -> None:
        """Take out a lane."""
        lane = ranked(lane)
        lane.entry = 0
        self._count(lane.level, -1)
        self._void_one(lane.level)

    @property
    def containers(self) -> list[Any]:
        """The large containers. `clear` replaces them by new ones; the caller of `clear` takes the old ones before, and
        frees them step by step."""
        return [*self._heaps, *self._cursors.containers]

    def clear(self) -> None:
        self._heaps = [[] for _ in range(LEVELS)]
        self._void = [0] * LEVELS
        self._ready = [0] * LEVELS
        self._active = self.records = 0
        self._cursors.clear()

    # --- internals ---------------------------------------------------------------------------------------------------

    def _count(self, level: int, change: int) -> None:
        self.records += change
        count = self._ready[level] = self._ready[level] + change
        if not count:
            self._active &= ~(1 << level)
        elif count == change:
            self._active |= 1 << level
            self._is_settled = False  # A heap without records may keep void entries.

    def _enter(self, cursor: RunCursor) -> None:
        self._number = cursor.entry = self._number + 1
        heapq.heappush(self._heaps[cursor.level], (*cursor.head, cursor.entry, cursor))

    def _leave(self, cursor: RunCursor) -> None:
        cursor.entry = 0
        self._void_one(cursor.level)

    def _void_one(self, level: int) -> None:
        """Count an entry of a level that has become void, and remove the void entries if they are too many."""
        self._void[level] += 1
        self._is_settled = False
        heap = self._heaps[level]
        if self._void[level] * 2 > len(heap) + _COMPACT_AT:
            heap[:] = [entry for entry in heap if entry[3].entry == entry[2]]
            heapq.heapify(heap)
            self._void[level] = 0

    def _settle(self) -> None:
        """Drop void entries from the front of each level that has records."""
        levels = 0 if self._is_settled else self._active
        while levels:
            level = levels.bit_length() - 1
            heap = self._heaps[level]
            if heap[0][3].entry != heap[0][2]:
                heapq.heappop(heap)
                self._void[level] -= 1
            else:
                levels ^= 1 << level
        self._is_settled = True

    def _read(self, unread: Unread, level: int) -> bool:
        """Make a cursor of the records of an `Unread` in one level; return False if they cannot be read. The entry of
        the `Unread` in this level must be removed before."""
        found = unread.read(level)
        if found is None:
            self._count(level, -unread.counts[level])
            self._is_settled = False
            return False
        self._cursors.admit(unread.base, level, *found)
        return True

    def _sources(self) -> Iterator[Source]:
        """Return all sources in the queue."""
        return (entry[3] for heap in self._heaps for entry in heap if entry[3].entry == entry[2])


def _rank(lane: Lane) -> tuple[int, int]:
    lane = ranked(lane)
    return lane.timestamp_ms, lane.head


def _first_with_key(heap: Sequence[Entry]) -> Entry | None:
    """Return the entry of the first lane with a key."""
    if isinstance(heap[0][3], RankedLane) and heap[0][3].key is not None:
        return heap[0]
    keyed = (
        entry
        for entry in heap
        if isinstance(entry[3], RankedLane) and entry[3].entry == entry[2] and entry[3].key is not None
    )
    return min(keyed, default=None)
