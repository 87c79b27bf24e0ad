"""What the lanes of a queue group with priorities know beside record ids: ranks, and counts by priority.

A lane has the rank of its head, and how many of its records are of which priority, where they are of several; the ranks
of the records behind the head lie in `Ranks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import add

from logbroker.queues.model.lane import IN_FLIGHT, READY, Lane, RankedLane, ranked
from logbroker.queues.model.messages import PriorityCounts
from logbroker.queues.priority.policy import LEVELS
from logbroker.queues.priority.ranks import Ranks
from logbroker.queues.priority.ready_queue import PriorityLine
from logbroker.queues.priority.runs import Unread


class Ranking:
    """Keeps ranks where lanes are changed. All lanes of such a group are `RankedLane`s."""

    def __init__(self, line: PriorityLine) -> None:
        self.line = line
        self.ranks = Ranks()
        self.waiting = [0] * LEVELS
        """By priority, records that are admitted, neither done nor in flight."""
        self.delivered = [0] * LEVELS
        """By priority, since the group has priorities or the broker started."""

    def clear(self) -> None:
        """No lane is left. The line is cleared by itself."""
        self.ranks.clear()
        self.waiting = [0] * LEVELS

    # --- coming in and going out -------------------------------------------------------------------------------------

    def new_lane(self, key: bytes | None, record_id: int, priority: int, timestamp_ms: int) -> RankedLane:
        """Return a lane of one record that waits, for `Lanes` to put where it belongs."""
        self.waiting[priority] += 1
        return RankedLane(key, record_id, READY, priority=priority, timestamp_ms=timestamp_ms)

    def admit(self, base: int, offsets: Sequence[int], priorities: bytes, times: Sequence[int]) -> None:
        """Take in records without ordering key; see `PriorityLine.admit`."""
        for priority in set(priorities):
            self.waiting[priority] += priorities.count(priority)
        self.line.admit(base, offsets, priorities, times)

    def admit_unread(self, unread: Unread) -> None:
        """Take in records without ordering key that are not read yet."""
        self.waiting = list(map(add, self.waiting, unread.counts))
        self.line.admit_unread(unread)

    def take(self, credit: int, levels: int) -> list[Lane]:
        """Take up to `credit` records of some levels out of the line."""
        lanes = self.line.take(credit, levels)
        self.hand_out(lanes)
        return lanes

    # --- a lane's records --------------------------------------------------------------------------------------------

    def begin(self, lane: Lane, record_id: int, priority: int, timestamp_ms: int) -> None:
        """A parked lane without records gets its first one."""
        lane = ranked(lane)
        lane.head, lane.priority, lane.timestamp_ms, lane.counts = record_id, priority, timestamp_ms, None
        self.waiting[priority] += 1

    def join(self, lane: Lane, record_id: int, priority: int, timestamp_ms: int) -> None:
        """A record is about to be the last one of a lane."""
        lane = ranked(lane)
        self.ranks.put(record_id, priority, timestamp_ms)
        self.waiting[priority] += 1
        self._count(lane, priority)
        if lane.state == READY:
            self.line.rise(lane)

    def _count(self, lane: RankedLane, priority: int) -> None:
        """One more record of a lane, that does not have it yet."""
        counts = lane.counts
        if counts is None and priority != lane.priority:
            counts = lane.counts = [0] * LEVELS
            counts[lane.priority] = len(lane)
        if counts is not None:
            counts[priority] += 1

    def go_on(self, lane: Lane, left: int) -> None:
        """The head of a lane, `left`, is gone, and the next record is its head."""
        lane = ranked(lane)
        if lane.counts is not None:
            lane.counts[lane.priority] -= 1
        lane.priority, lane.timestamp_ms = self.ranks.take(lane.head)

    def come_before(self, lane: Lane, record: Lane) -> None:
        """A record is about to be the head of a lane, and what was its head, the first behind it."""
        lane, record = ranked(lane), ranked(record)
        self.ranks.put(lane.head, lane.priority, lane.timestamp_ms)
        self._count(lane, record.priority)
        lane.priority, lane.timestamp_ms = record.priority, record.timestamp_ms

    def detached(self, lane: Lane) -> RankedLane:
        """Return the head of a lane as a lane of its own, which is in flight."""
        lane = ranked(lane)
        head = RankedLane(lane.key, lane.head, IN_FLIGHT, priority=lane.priority, timestamp_ms=lane.timestamp_ms)
        self.hand_out((head,))
        return head

    # --- counts ------------------------------------------------------------------------------------------------------

    def hand_out(self, lanes: Iterable[Lane]) -> None:
        """Heads of lanes are in flight."""
        for lane in lanes:
            priority = ranked(lane).priority
            self.waiting[priority] -= 1
            self.delivered[priority] += 1

    def take_back(self, lanes: Iterable[Lane]) -> None:
        """Heads of lanes are in flight no more, and not done."""
        for lane in lanes:
            self.waiting[ranked(lane).priority] += 1

    def forget(self, lane: Lane) -> None:
        """The head of a lane is done, and was not in flight."""
        self.waiting[ranked(lane).priority] -= 1

    def forget_successor(self, lane: Lane, record_id: int) -> None:
        """A record behind the head of a lane is done."""
        priority, _ = self.ranks.take(record_id)
        self.waiting[priority] -= 1
        counts = ranked(lane).counts
        if counts is not None:
            counts[priority] -= 1

    def told(self) -> list[PriorityCounts]:
        """See `Queue.priority_counts`."""
        counts: list[PriorityCounts] = []
        for priority in reversed(range(LEVELS)):
            waiting, delivered = self.waiting[priority], self.delivered[priority]
            oldest_ms = self.line.oldest_ms(priority)
            if waiting or delivered or oldest_ms is not None:
                counts.append(PriorityCounts(priority, waiting, oldest_ms, delivered, self.line.overtaken[priority]))
        return counts
