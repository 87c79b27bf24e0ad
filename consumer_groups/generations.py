"""The generation that a group reads of each topic, so that growth keeps the records of a key in order. No I/O.

When a topic grows, a key can move to another partition. So the group reads generation g of a topic to its end in all
partitions before it reads anything of g + 1 in any. Members fetch with the generation that they are told, and the
broker sends them nothing after its end. This module decides when the next generation begins.

A partition is finished up to the end of a generation in these cases:

1. The committed offset has reached the end. Then a crash cannot bring back any record before it.
2. Its member has reported a position that has reached the end. If the group has committed nothing in the topic, this
   counts at once. In a group that commits, it counts when the member has stayed there for its max poll interval:
   members that commit late are waited for, but members that never commit the last records of a generation do not block
   it for ever. It also counts at once if the member says that no commit will follow, because it began there or its
   commits are refused.
3. There is nothing left to read: the partition has no records before the end, they were deleted, or the log was cut
   before the end and the group has read what is left.
4. Nobody can read the partition: it is offline, or its member has reported that an error ended the reading. For a
   paused partition, the group waits for the max poll interval of its member.

Nothing of this is stored. Committed offsets survive a restart. Members that come back report their positions again, and
a position is dropped when the member no longer holds the partition. So in a group without commits, the generation may
go back: a partition gets another member, which begins before the end, or a program seeks back. The other members then
wait again until this member has caught up. In a group that commits, committed offsets never go back while there are
members. So the generation goes back there only if a case other than 1 let it advance.

Cost: almost nothing for topics that have not grown. Otherwise O(partitions) when a generation begins or goes back, and
O(1) per commit (only the first unfinished partition is checked, and those before it never again).
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from logbroker.consumer_groups.offsets import Committed
from logbroker.engine import PartitionFacts, Topic
from logbroker.errors import LogbrokerError, UnknownTopicError
from logbroker.types import PartitionKey, TopicId

NO_BOUND: Final = 0
"""Used in place of a generation: everything may be read."""


class TopicLogs(Protocol):
    """The view of the topics' logs that `Generations` needs."""

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        """Return the topic with this id. Raises UnknownTopicError."""
        ...

    def partition_facts(self, topic_id: TopicId, partition: int) -> PartitionFacts:
        """Return the facts of a partition. Raises a LogbrokerError if the partition cannot be read."""
        ...


class ReadingState(enum.Enum):
    """The activity of a member in a partition that it holds."""

    READING = 0
    PAUSED = 1
    FAILED = 2
    FINISHED = 3
    """The member will commit nothing more before its position."""


class ToldPosition(msgspec.Struct, frozen=True):
    """The position in a partition that a member has reported."""

    partition: PartitionKey
    offset: int
    """The program has finished all records before this offset."""
    state: ReadingState = ReadingState.READING


class Wait(msgspec.Struct, frozen=True):
    """A partition that is not finished up to the end of the generation that is read."""

    partition: int
    end_offset: int
    finished_offset: int
    """The committed offset or, if nothing is committed in the topic, the offset that the member reported; -1 if there
    is none."""


class _Told(msgspec.Struct, gc=False):
    member_id: str
    offset: int
    state: ReadingState
    since: float
    patience_seconds: float


class _Reading:
    """The state of one topic that the group reads."""

    def __init__(self) -> None:
        self.topic: Topic | None = None
        """The topic as it was when the generation was computed; None: the generation has to be computed again."""
        self.generation = 1
        self.waits: deque[int] = deque()
        """Partitions that are perhaps not finished up to the end of the generation. All others are finished."""
        self.announced = NO_BOUND


class Generations:
    """The generations of all topics of one group. `now` is in monotonic seconds."""

    def __init__(self, logs: TopicLogs, committed: Callable[[TopicId], Mapping[int, Committed]]) -> None:
        """`committed` returns the committed and synced offsets of the partitions of a topic."""
        self._logs = logs
        self._committed = committed
        self._readings: dict[TopicId, _Reading] = {}
        self._due: dict[TopicId, None] = {}
        """Topics to check, because something has happened to them or may happen at any time."""
        self._told: dict[TopicId, dict[int, _Told]] = {}

    # --- queries -----------------------------------------------------------------------------------------------------

    def of(self, topic_id: TopicId, now: float) -> int:
        """Return the generation of a topic to read. From now on, `advanced` reports changes of it."""
        reading = self._readings.get(topic_id)
        if reading is None:
            reading = self._readings[topic_id] = _Reading()
        if not self._find(topic_id, reading, now):
            return NO_BOUND
        if reading.announced == NO_BOUND:
            reading.announced = reading.generation
        if reading.waits or reading.announced != reading.generation:
            self._due[topic_id] = None
        return reading.generation

    def advanced(self, now: float) -> dict[TopicId, int]:
        """Return the topics with a generation to read that differs from the one announced last."""
        changed = {}
        due, self._due = self._due, {}
        for topic_id in due:
            reading = self._readings.get(topic_id)
            if reading is None or not self._find(topic_id, reading, now):
                continue
            if reading.announced != reading.generation:
                changed[topic_id] = reading.announced = reading.generation
            if reading.waits:
                self._due[topic_id] = None
        return changed

    @property
    def are_waiting(self) -> bool:
        """Whether time or changes of logs may let a generation begin. If so, `advanced` must be called again."""
        return bool(self._due)

    def grown(self) -> Iterator[tuple[Topic, int]]:
        """Yield the topics that have grown, with the generation that is read."""
        for reading in self._readings.values():
            if reading.topic is not None and reading.topic.generation > 1:
                yield reading.topic, reading.generation

    def grown_topic(self, topic_id: TopicId) -> tuple[Topic, int] | None:
        """Return the pair that `grown` yields for a topic, or None."""
        reading = self._readings.get(topic_id)
        if reading is None or reading.topic is None or reading.topic.generation == 1:
            return None
        return reading.topic, reading.generation

    def waits(self, topic_id: TopicId, now: float) -> list[Wait]:
        """Return the partitions that the generation of a topic waits for."""
        reading = self._readings.get(topic_id)
        if reading is None or reading.topic is None or reading.generation == reading.topic.generation:
            return []
        ends = reading.topic.generations[reading.generation].start_offsets
        return [
            Wait(partition, ends[partition], self._offset(topic_id, partition))
            for partition in sorted(reading.waits)
            if not self._is_finished(topic_id, partition, ends[partition], now)
        ]

    # --- changes -----------------------------------------------------------------------------------------------------

    def tell(self, member_id: str, position: ToldPosition, now: float, patience_seconds: float) -> None:
        """Note the position of a member in a partition that it holds."""
        topic_id, partition = position.partition
        told = self._told.setdefault(topic_id, {})
        before = told.get(partition)
        since = now
        if before is not None and (before.member_id, before.state) == (member_id, position.state):
            is_still_there = before.offset == position.offset or position.state is ReadingState.PAUSED
            since = before.since if is_still_there else now
        told[partition] = _Told(member_id, position.offset, position.state, since, patience_seconds)
        if before is not None and (before.offset > position.offset or before.state is not position.state):
            self._begin_anew(topic_id)
        self._due[topic_id] = None

    def forget(self, member_id: str, held: Container[PartitionKey] = ()) -> None:
        """Forget the positions that a member reported, except in the partitions `held`, which it still holds."""
        for topic_id, told in list(self._told.items()):
            void = [
                partition
                for partition, each in told.items()
                if each.member_id == member_id and PartitionKey(topic_id, partition) not in held
            ]
            for partition in void:
                del told[partition]
            if void:
                self._begin_anew(topic_id)
            if not told:
                del self._told[topic_id]

    def forget_all(self) -> None:
        """Forget everything, because the group has no members."""
        self._readings.clear()
        self._due.clear()
        self._told.clear()

    def topics_changed(self) -> None:
        """Check all topics again, because they may have grown or been deleted."""
        self._due.update(dict.fromkeys(self._readings))

    def _begin_anew(self, topic_id: TopicId) -> None:
        reading = self._readings.get(topic_id)
        if reading is not None:
            reading.topic = None
            self._due[topic_id] = None

    # --- decisions ---------------------------------------------------------------------------------------------------

    def _find(self, topic_id: TopicId, reading: _Reading, now: float) -> bool:
        """Compute the last generation before which everything is finished. Return False if the topic does not exist
        (any more)."""
        try:
            topic = self._logs.topic_by_id(topic_id)
        except UnknownTopicError:
            del self._readings[topic_id]
            return False
        if topic is not reading.topic:
            if reading.topic is not None and reading.topic.generations == topic.generations:
                reading.topic = topic
            else:
                self._find_anew(topic, reading, now)
                return True
        if reading.generation < topic.generation:
            ends, waits = topic.generations[reading.generation].start_offsets, reading.waits
            while waits and self._is_finished(topic_id, waits[0], ends[waits[0]], now):
                waits.popleft()
            if not waits:
                self._find_anew(topic, reading, now)
        return True

    def _find_anew(self, topic: Topic, reading: _Reading, now: float) -> None:
        """Take the generation of the partition that is farthest behind. The cost is O(partitions), however often the
        topic has grown."""
        spans = topic.generations
        lowest = topic.generation
        for partition in range(topic.partitions):

            def is_unfinished(generation: int, partition: int = partition) -> bool:
                ends = spans[generation].start_offsets
                return partition < len(ends) and not self._is_finished(topic.id, partition, ends[partition], now)

            if lowest > 1 and is_unfinished(lowest - 1):
                # Ends only grow: a partition that has reached a later end has reached the earlier ones.
                lowest = 1 + bisect_left(range(1, lowest), True, key=is_unfinished)
        reading.topic, reading.generation, reading.waits = topic, lowest, deque()
        if lowest < topic.generation:
            ends = spans[lowest].start_offsets
            reading.waits.extend(
                partition for partition, end in enumerate(ends) if not self._is_finished(topic.id, partition, end, now)
            )

    def _is_finished(self, topic_id: TopicId, partition: int, end: int, now: float) -> bool:
        if end <= 0:
            return True
        offsets = self._committed(topic_id)
        committed = offsets.get(partition)
        reached = -1 if committed is None else committed.offset
        if reached >= end:
            return True
        told = self._told.get(topic_id, {}).get(partition)
        if told is not None:
            patient = now < told.since + told.patience_seconds
            if told.state is ReadingState.FAILED or (told.state is ReadingState.PAUSED and not patient):
                return True
            if told.state is ReadingState.FINISHED or not (offsets and patient):
                reached = max(reached, told.offset)
        if reached >= end:
            return True
        try:
            facts = self._logs.partition_facts(topic_id, partition)
        except LogbrokerError:
            return True  # Nobody can read it.
        # A log that was cut before the end is read as far as it goes.
        end = min(end, facts.high_watermark)
        return facts.log_start_offset >= end or reached >= end

    def _offset(self, topic_id: TopicId, partition: int) -> int:
        offsets = self._committed(topic_id)
        if offsets:
            return offsets[partition].offset if partition in offsets else -1
        told = self._told.get(topic_id, {}).get(partition)
        return -1 if told is None else told.offset
