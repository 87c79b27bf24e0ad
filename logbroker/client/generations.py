"""The generations of topics, as a consumer goes through them: records of a key stay in order when partitions are added.

Growth of a topic gives a key another partition. A consumer that reads a whole topic therefore finishes generation g in
all partitions before it reads anything of g + 1 in any. The fetch stream sends nothing from behind the generation that
a partition is read in, and tells where that ends (`Assigned.generation_end`). A consumer without a group decides here
when the next one begins; in a group the broker does, by what its members have committed or told (`GroupReader`).

A partition is finished when the program has finished all its records up to the end: when it asks for more. One that
cannot be read is not waited for, unless that is true of all. One that is paused is waited for until it is resumed; one
whose position the log does not hold, until the program moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final

from logbroker.client.cursor import Cursor
from logbroker.client.fetcher import Assigned, Fetcher
from logbroker.types import TopicId, TopicPartition

KEY_ORDER: Final = "key"
NO_ORDER: Final = "none"
FIRST_GENERATION: Final = 1


class TopicGenerations:
    """One topic that is read as a whole. Belongs to the event loop of its fetcher."""

    def __init__(self, fetcher: Fetcher, assigned: Iterable[Assigned], finished: Callable[[Assigned], int]) -> None:
        self._fetcher = fetcher
        self._finished = finished
        self._assigned = list(assigned)
        self._generation = FIRST_GENERATION
        self._begins: dict[Assigned, int | None] = {}
        """Where the generation begins in each partition; None: not known, as an error kept it from being read."""
        self._waits = dict.fromkeys(self._assigned)
        """Those that are not finished up to the end of the generation, or were not looked at since."""

    def look(self, assigned: Assigned) -> bool:
        """Look at a partition at the end of its generation; return whether the program has finished all of it that can
        be read."""
        if not self._has_finished(assigned):
            return False
        self._waits.pop(assigned, None)
        return True

    def advance(self) -> None:
        """Begin the next generation where this one is finished in all partitions."""
        if not self._waits and not all(each.unreadable for each in self._assigned):
            self._begins = {each: each.generation_end for each in self._assigned}
            self._read(self._generation + 1)

    def moved(self, assigned: Assigned) -> None:
        """Begin with the first generation again, where the program has moved a partition back into one before this."""
        if self._generation == FIRST_GENERATION:
            self._waits[assigned] = None
            return
        begin = self._begins[assigned]
        if begin is None or assigned.position < begin:
            # Which one it is in shows on the way: where nothing is left to be read, a generation takes a round trip.
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


class OwnGenerations:
    """The topics that a consumer without a group reads as a whole."""

    def __init__(self, fetcher: Fetcher, cursor: Cursor, topics: Iterable[Iterable[Assigned]]) -> None:
        self._fetcher = fetcher
        self._topics: dict[Assigned, TopicGenerations] = {}
        for assigned in topics:
            topic = TopicGenerations(fetcher, assigned, cursor.finished)
            self._topics |= dict.fromkeys(assigned, topic)
        fetcher.boundary = self._look

    def moved(self, assigned: Assigned) -> None:
        """Note that the program has moved a partition."""
        topic = self._topics.get(assigned)
        if topic is not None:
            topic.moved(assigned)

    def _look(self) -> bool:
        waiting = self._fetcher.at_boundary
        changed: dict[TopicGenerations, None] = {}
        for assigned in list(waiting):
            topic = self._topics.get(assigned)
            if topic is None:
                del waiting[assigned]
            elif topic.look(assigned):
                del waiting[assigned]
                changed[topic] = None
        for topic in changed:
            topic.advance()
        return bool(changed)


def has_delivered(assigned: Assigned) -> bool:
    """Whether a partition is delivered up to the end of its generation, or as far as it can be read."""
    return assigned.limit is not None and assigned.position >= assigned.limit


def held_back_topics(reading: Iterable[Assigned], wanted: Container[TopicPartition]) -> set[TopicId]:
    """Return the topics whose next generation waits for a partition that is not wanted now."""
    return {
        assigned.topic_id
        for assigned in reading
        if assigned.generation and assigned.partition not in wanted and not has_delivered(assigned)
    }
