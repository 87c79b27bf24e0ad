"""The order in which a consumer reads the generations of topics. It keeps the records of a key in order when partitions
are added.

When a topic grows, a key may move to another partition. A consumer that reads a whole topic therefore finishes
generation g in all partitions before it reads any record of generation g + 1. The fetch stream of a partition stops at
the end of the generation that the consumer reads, and reports the offset of that end (`Assigned.generation_end`).
Without a group, this module decides when the next generation begins. In a group the broker decides, from the offsets
that members have committed or reported (`GroupReader`).

The program has finished a partition when it has taken all its records up to the end of the generation and asks for
more. The next generation does not wait for a partition that cannot be read, unless none can be read. It waits for a
paused partition until the partition is resumed. It waits for a partition whose position is not in the log until the
program moves the position.

When a consumer without a group reaches a generation that is new to it, it first asks for the partitions that were
added. It reads them from their beginning, because all their records arrived after the topic was assigned. A consumer
that keeps no order gets no generation ends, so it asks for new partitions at intervals. New partitions join the
assignment only while the program waits for records, so that no other thread sees the assignment change.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from logbroker.client.consumer.fetcher import Assigned, Fetcher
from logbroker.client.transport.background import Background
from logbroker.client.transport.connection import Connection, backoff_seconds
from logbroker.client.transport.metadata import TopicInfo, look_for_topics
from logbroker.errors import LogbrokerError
from logbroker.types import TopicId, TopicPartition

_log = logging.getLogger(__name__)

KEY_ORDER: Final = "key"
NO_ORDER: Final = "none"
FIRST_GENERATION: Final = 1
LOOK_SECONDS: Final = 5.0
"""The interval at which a consumer that keeps no order asks whether partitions were added."""


class TopicGenerations:
    """The generations of one topic that is read as a whole. Belongs to the event loop of its fetcher."""

    def __init__(self, fetcher: Fetcher, assigned: Iterable[Assigned], finished: Callable[[Assigned], int]) -> None:
        self._fetcher = fetcher
        self._finished = finished
        self._assigned = list(assigned)
        self._generation = FIRST_GENERATION
        self._begins: dict[Assigned, int | None] = {}
        """The start offset of the generation in each partition; None if it is unknown because the partition could not
        be read."""
        self._waits = dict.fromkeys(self._assigned)
        """Partitions that are not known to be finished up to the end of the generation."""

    def look(self, assigned: Assigned) -> bool:
        """Check a partition at the end of its generation. Return whether the program has finished all records that can
        be read."""
        if not self._has_finished(assigned):
            return False
        self._waits.pop(assigned, None)
        return True

    @property
    def wanted(self) -> int:
        """Return the generation to read now: the next one if this one is finished in all partitions."""
        is_finished = not self._waits and not all(each.unreadable for each in self._assigned)
        return self._generation + is_finished

    def advance(self) -> None:
        """Begin the next generation if this one is finished in all partitions."""
        if self.wanted > self._generation:
            self._begins = {each: each.generation_end for each in self._assigned}
            self._read(self._generation + 1)

    def add(self, assigned: Assigned) -> None:
        """Also read a partition that was added in a later generation and holds no records of this one."""
        assigned.generation = self._generation
        self._assigned.append(assigned)
        self._begins[assigned] = 0

    def moved(self, assigned: Assigned) -> None:
        """Note that the program moved a partition. If it moved back into an earlier generation, begin with the first
        generation again."""
        if self._generation == FIRST_GENERATION:
            self._waits[assigned] = None
            return
        begin = self._begins.get(assigned)
        if begin is None or assigned.position < begin:
            # Reading all generations again finds the right one. A generation without unread records takes one round
            # trip.
            self._begins = {}
            self._read(FIRST_GENERATION)
        else:
            self._waits[assigned] = None

    def _has_finished(self, assigned: Assigned) -> bool:
        return assigned.limit is not None and self._finished(assigned) >= assigned.limit

    def _read(self, generation: int) -> None:
        self._generation = generation
        self._waits = dict.fromkeys(self._assigned)
        for assigned in self._assigned:
            self._fetcher.read_generation(assigned, generation)


class WholeTopic:
    """A topic that is assigned as a whole, or all its partitions of some bands."""

    def __init__(
        self,
        info: TopicInfo,
        bands: Sequence[str],
        partitions: Iterable[TopicPartition],
        generations: TopicGenerations | None,
    ) -> None:
        """`generations` is None if no order is kept."""
        self.generations = generations
        self.info = info
        self._bands = bands
        self._partitions = set(partitions)

    @property
    def waits(self) -> bool:
        """Whether the generation to read now is not known yet."""
        return self.generations is not None and self.generations.wanted > self.info.generation

    def update(self, found: TopicInfo | LogbrokerError | None) -> list[TopicPartition]:
        """Apply the broker's current answer about the topic. Return the partitions that were added to it."""
        if not isinstance(found, TopicInfo) or found.id != self.info.id or found.generation <= self.info.generation:
            # Nothing was added. If the topic was deleted, or another one has its name now, reading its partitions
            # raises the error.
            return []
        self.info = found
        now = [TopicPartition(found.name, number) for number in found.partitions_of(self._bands)]
        added = [partition for partition in now if partition not in self._partitions]
        self._partitions.update(added)
        return added


class WholeTopics:
    """The topics that a consumer without a group reads as a whole, with partitions that are added later, in the order
    of their generations.

    `finished` returns the offset up to which the program has finished a partition. `add` makes a partition part of the
    assignment.
    """

    def __init__(
        self,
        connection: Connection,
        fetcher: Fetcher,
        finished: Callable[[Assigned], int],
        add: Callable[[Assigned], None],
    ) -> None:
        self._connection = connection
        self._fetcher = fetcher
        self._finished = finished
        self._add = add
        self._topics: dict[str, WholeTopic] = {}
        self._of: dict[Assigned, WholeTopic] = {}
        self._found: Mapping[str, TopicInfo | LogbrokerError] = {}
        """The broker's latest answers about topics that were not applied yet."""
        self._looking: Background | None = None
        self._closed = False
        fetcher.boundary = self._look

    def read(self, info: TopicInfo, bands: Sequence[str], assigned: Sequence[Assigned], *, keeps_order: bool) -> None:
        """Begin with a topic, before its partitions are given to the fetcher."""
        generations = TopicGenerations(self._fetcher, assigned, self._finished) if keeps_order else None
        topic = WholeTopic(info, bands, (each.partition for each in assigned), generations)
        self._topics[info.name] = topic
        self._of |= dict.fromkeys(assigned, topic)
        if keeps_order:
            for each in assigned:
                each.generation = FIRST_GENERATION
        elif self._looking is None:
            self._start(self._look_at_intervals)

    def are_only(self, topic: str, partitions: Iterable[TopicPartition]) -> bool:
        """Whether this is the only topic that is read as a whole, and these partitions are of it."""
        return list(self._topics) == [topic] and all(partition.topic == topic for partition in partitions)

    def moved(self, assigned: Assigned) -> None:
        """Note that the program has moved a partition."""
        topic = self._of.get(assigned)
        if topic is not None and topic.generations is not None:
            topic.generations.moved(assigned)

    async def refresh(self) -> None:
        """Read the partitions that were added up to now, too. Raises BrokerUnavailableError."""
        if self._topics:
            self._found = await look_for_topics(self._connection, self._topics)
            self._take_over()

    async def close(self) -> None:
        """Stop looking for partitions."""
        self._closed = True
        if self._looking is not None:
            await self._looking.end()

    def _look(self) -> bool:
        """Begin the next generation of each topic that has finished its generation. Return whether there is something
        new to read."""
        waiting = self._fetcher.at_boundary
        changed: dict[WholeTopic, None] = {}
        for assigned in list(waiting):
            topic = self._of.get(assigned)
            if topic is None or topic.generations is None:
                del waiting[assigned]
            elif topic.generations.look(assigned):
                del waiting[assigned]
                changed[topic] = None
        grown = self._take_over()
        for topic in changed:
            self._advance(topic)
        return grown or bool(changed)

    def _take_over(self) -> bool:
        found, self._found = self._found, {}
        self._fetcher.has_news = False
        grown = False
        for name, answer in found.items():
            topic = self._topics[name]
            for partition in topic.update(answer):
                grown = True
                assigned = Assigned(partition, topic.info.id, -1, -1, start="earliest")
                self._of[assigned] = topic
                if topic.generations is not None:
                    topic.generations.add(assigned)
                self._add(assigned)
            if topic.generations is not None and answer is topic.info:
                self._advance(topic)
        return grown

    def _advance(self, topic: WholeTopic) -> None:
        assert topic.generations is not None
        if not topic.waits:
            topic.generations.advance()
        elif self._looking is None or not self._looking.is_running:
            self._start(self._look_for_growth)

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._closed:
            self._looking = Background("the search for added partitions", self._connection, work)
            self._looking.start()

    async def _look_for_growth(self) -> None:
        """Keep asking the broker until the next generation of every waiting topic is known, or the topic is known to be
        deleted."""
        for attempt in itertools.count():
            if await self._ask() and not any(self._still_waits(topic) for topic in self._topics.values()):
                return
            await asyncio.sleep(backoff_seconds(attempt))

    def _still_waits(self, topic: WholeTopic) -> bool:
        answer = self._found.get(topic.info.name)
        if not isinstance(answer, TopicInfo):
            return answer is not None and answer.retriable
        return topic.waits and answer.id == topic.info.id and answer.generation <= topic.info.generation

    async def _look_at_intervals(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._ask()

    async def _ask(self) -> bool:
        """Ask the broker about the topics now. The program applies the answers while it waits."""
        try:
            self._found = await look_for_topics(self._connection, self._topics)
        except LogbrokerError as error:
            _log.info("whether partitions were added is not known: %s; asking again", error)
            return False
        self._fetcher.has_news = True
        self._fetcher.interrupt()
        return True


def has_delivered(assigned: Assigned) -> bool:
    """Whether all records of a partition were delivered up to the end of its generation, or as far as it can be
    read."""
    return assigned.limit is not None and assigned.position >= assigned.limit


def held_back_topics(reading: Iterable[Assigned], wanted: Container[TopicPartition]) -> set[TopicId]:
    """Return the topics whose next generation waits for a partition that is neither fetched nor in `wanted`. `wanted`
    has the partitions that a bounded loop reads.

    A partition that is fetched but not in `wanted` had no records when the loop began, and holds no topic back. Either
    the broker reports the end of its generation, or a record arrives, and then the program has to finish that record.
    """
    return {
        assigned.topic_id
        for assigned in reading
        if assigned.generation
        and not assigned.wanted
        and assigned.partition not in wanted
        and not has_delivered(assigned)
    }
