"""Records on their way to the dead-letter topic: intent, append, done.

An intent is a row that names the record, the partition of the dead-letter topic and the sequence under which the
group's own producer id appends it there. Only when the append is synced, the record is done and the intent gone, in one
transaction. After a crash between the two the intents that are left are given out again, with the same sequences, and
the dead-letter topic's memory of its producers drops the copies. It remembers the last five batches, so no more than
five intents per partition are outstanding; further records wait for theirs, as heads of their lanes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from logbroker.engine import StateEvent
from logbroker.queues.lane import DEAD_LETTERING, Lane
from logbroker.queues.messages import DeadLetter
from logbroker.queues.places import OFFSET_MASK, partition_of
from logbroker.queues.retry import Failures
from logbroker.queues.rows import (
    INTENT_ROW,
    SEQUENCE_ROW,
    decode,
    delete,
    partition_in,
    partition_key,
    place_in,
    place_key,
    upsert,
)

MAX_OUTSTANDING: Final = 5
"""Per partition of the dead-letter topic: so many batches of a producer a partition remembers."""

Route = Callable[[bytes | None], int]
"""The partition of the dead-letter topic for an ordering key."""


class DeadLetters:
    """All intents of a queue group, and the lanes that wait for one."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._intents: dict[int, tuple[int, int]] = {}
        """Partition and sequence, by the record's place, in the order of their making."""
        self._lanes: dict[int, Lane] = {}
        """Lanes whose heads are on their way, by place, with or without an intent yet."""
        self._waiting: dict[int, deque[int]] = {}
        self._outstanding: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        self._unsent: list[int] = []
        self._changed: dict[int, None] = {}
        self._changed_sequences: dict[int, None] = {}

    def load(self, rows: Mapping[bytes, bytes], ends: Mapping[int, int]) -> None:
        """Take over what is stored; all intents are to be carried out again. Raises CorruptLogError."""
        intents: list[tuple[int, int, int]] = []
        for key, value in rows.items():
            if key.startswith(INTENT_ROW):
                place = place_in(key)
                partition, sequence = decode(key, value, tuple[int, int])
                if place & OFFSET_MASK < ends.get(partition_of(place), OFFSET_MASK):
                    intents.append((partition, sequence, place))
                else:
                    self._changed[place] = None
            elif key.startswith(SEQUENCE_ROW):
                self._sequences[partition_in(key)] = decode(key, value, int)
        for partition, sequence, place in sorted(intents):
            self._intents[place] = partition, sequence
            self._outstanding[partition] = self._outstanding.get(partition, 0) + 1
            self._unsent.append(place)

    def request(self, lane: Lane) -> None:
        """The head of a lane is to go; the lane is held until `done`."""
        place = lane.head
        lane.state = DEAD_LETTERING
        self._lanes[place] = lane
        if place not in self._intents:
            partition = self._route(lane.key)
            self._waiting.setdefault(partition, deque()).append(place)
            self._issue(partition)

    def has_intent(self, place: int) -> bool:
        return place in self._intents

    def intents(self) -> Iterator[int]:
        """The records that have an intent."""
        return iter(self._intents)

    def __len__(self) -> int:
        """How many lanes wait for their heads to be there."""
        return len(self._lanes)

    def done(self, place: int) -> Lane | None:
        """An append is synced: return the lane that waited for it, if it is admitted. Raises KeyError."""
        partition, _ = self._intents.pop(place)
        self._changed[place] = None
        self._outstanding[partition] -= 1
        self._issue(partition)
        return self._lanes.pop(place, None)

    def forget_lanes(self) -> None:
        """The lanes are made anew: those whose head has no intent will ask again."""
        self._lanes.clear()
        self._waiting.clear()

    def take(self, failures: Failures) -> list[DeadLetter]:
        """Return the intents to carry out, in the order of their sequences, as soon as their rows are synced."""
        letters: list[DeadLetter] = []
        for place in self._unsent:
            partition, sequence = self._intents[place]
            failure = failures.get(place)
            if failure is None:
                letters.append(DeadLetter(place, partition, sequence, 0, 0, 0, ()))
            else:
                letters.append(
                    DeadLetter(
                        place, partition, sequence, failure.count, failure.first_ms, failure.last_ms, failure.reasons
                    )
                )
        self._unsent.clear()
        return letters

    def take_rows(self) -> list[StateEvent]:
        """Return the rows of all that changed since the last call."""
        events: list[StateEvent] = []
        for place in self._changed:
            key = place_key(INTENT_ROW, place)
            intent = self._intents.get(place)
            events.append(delete(key) if intent is None else upsert(key, intent))
        events += (
            upsert(partition_key(SEQUENCE_ROW, partition), self._sequences[partition])
            for partition in self._changed_sequences
        )
        self._changed.clear()
        self._changed_sequences.clear()
        return events

    def _issue(self, partition: int) -> None:
        waiting = self._waiting.get(partition)
        while waiting and self._outstanding.get(partition, 0) < MAX_OUTSTANDING:
            place = waiting.popleft()
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = sequence + 1
            self._outstanding[partition] = self._outstanding.get(partition, 0) + 1
            self._intents[place] = partition, sequence
            self._unsent.append(place)
            self._changed[place] = self._changed_sequences[partition] = None
