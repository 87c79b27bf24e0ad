"""Keeps the rank of each lane, and its record counts by priority, in a queue group with priorities.

The rank of a record is its priority and its timestamp. A lane holds the rank of its head. If its records have several
priorities, it also holds a count for each priority. The ranks of the records behind the head are in `Ranks`.
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
    """Updates ranks and counts whenever lanes change. All lanes of such a group are `RankedLane`s."""

    def __init__(self, line: PriorityLine) -> None:
        self.line = line
        self.ranks = Ranks()
        self.waiting = [0] * LEVELS
        """Number of records that are admitted, and neither done nor in flight, by priority."""
        self.delivered = [0] * LEVELS
        """Number of records handed out, by priority, since the group got priorities, or since the broker started if
        that was later."""

    def clear(self) -> None:
        """Forget the ranks, when no lane is left. The ready queue is cleared separately."""
        self.ranks.clear()
        self.waiting = [0] * LEVELS

    # --- adding and taking -------------------------------------------------------------------------------------------

    def new_lane(self, key: bytes | None, record_id: int, priority: int, timestamp_ms: int) -> RankedLane:
        """Return a lane of one waiting record. `LaneIndex` then makes the lane ready, or stalls it."""
        self.waiting[priority] += 1
        return RankedLane(key, record_id, READY, priority=priority, timestamp_ms=timestamp_ms)

    def admit(self, base: int, offsets: Sequence[int], priorities: bytes, times: Sequence[int]) -> None:
        """Admit records without an ordering key; see `PriorityLine.admit`."""
        for priority in set(priorities):
            self.waiting[priority] += priorities.count(priority)
        self.line.admit(base, offsets, priorities, times)

    def admit_unread(self, unread: Unread) -> None:
        """Admit records without an ordering key that are not read yet."""
        self.waiting = list(map(add, self.waiting, unread.counts))
        self.line.admit_unread(unread)

    def take(self, credit: int, levels: int) -> list[Lane]:
        """Take up to `credit` records of some levels out of the ready queue."""
        lanes = self.line.take(credit, levels)
        self.hand_out(lanes)
        return lanes

    # --- records of a lane -------------------------------------------------------------------------------------------

    def begin(self, lane: Lane, record_id: int, priority: int, timestamp_ms: int) -> None:
        """Set the first record of a parked lane that has none."""
        lane = ranked(lane)
        lane.head, lane.priority, lane.timestamp_ms, lane.counts = record_id, priority, timestamp_ms, None
        self.waiting[priority] += 1

    def join(self, lane: Lane, record_id: int, priority: int, timestamp_ms: int) -> None:
        """Keep the rank of a record that is about to become the last one of a lane, and count it."""
        lane = ranked(lane)
        self.ranks.put(record_id, priority, timestamp_ms)
        self.waiting[priority] += 1
        self._count(lane, priority)
        if lane.state == READY:
            self.line.rise(lane)

    def _count(self, lane: RankedLane, priority: int) -> None:
        """Count a record for a lane that does not contain it yet."""
        counts = lane.counts
        if counts is None and priority != lane.priority:
            counts = lane.counts = [0] * LEVELS
            counts[lane.priority] = len(lane)
        if counts is not None:
            counts[priority] += 1

    def go_on(self, lane: Lane, left: int) -> None:
        """Update a lane after its old head (record id `left`) is gone and the next record has become the head."""
        lane = ranked(lane)
        if lane.counts is not None:
            lane.counts[lane.priority] -= 1
        lane.priority, lane.timestamp_ms = self.ranks.take(lane.head)

    def come_before(self, lane: Lane, record: Lane) -> None:
        """Update a lane before `record` becomes its head. The old head then becomes the first successor."""
        lane, record = ranked(lane), ranked(record)
        self.ranks.put(lane.head, lane.priority, lane.timestamp_ms)
        self._count(lane, record.priority)
        lane.priority, lane.timestamp_ms = record.priority, record.timestamp_ms

    def detached(self, lane: Lane) -> RankedLane:
        """Return the head of a lane as a lane of its own, in flight."""
        lane = ranked(lane)
        head = RankedLane(lane.key, lane.head, IN_FLIGHT, priority=lane.priority, timestamp_ms=lane.timestamp_ms)
        self.hand_out((head,))
        return head

    # --- counts ------------------------------------------------------------------------------------------------------

    def hand_out(self, lanes: Iterable[Lane]) -> None:
        """Count the heads of lanes as handed out."""
        for lane in lanes:
            priority = ranked(lane).priority
            self.waiting[priority] -= 1
            self.delivered[priority] += 1

    def take_back(self, lanes: Iterable[Lane]) -> None:
        """Count the heads of lanes as waiting. They are no longer in flight, and not done."""
        for lane in lanes:
            self.waiting[ranked(lane).priority] += 1

    def forget(self, lane: Lane) -> None:
        """Remove the head of a lane from the counts. It is done, and was not in flight."""
        self.waiting[ranked(lane).priority] -= 1

    def forget_successor(self, lane: Lane, record_id: int) -> None:
        """Remove a successor of a lane from the counts. It is done."""
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
