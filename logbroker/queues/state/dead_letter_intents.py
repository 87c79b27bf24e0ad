"""Records on their way to the dead-letter topic: intent, append, done.

An intent is a row that names the record, the partition of the dead-letter topic and the sequence under which the
group's own producer id appends it there. Only when the append is synced, the record is done and the intent gone, in one
transaction. After a crash between the two the intents that are left are given out again, with the same sequences, and
the dead-letter topic's memory of its producers drops the copies. It remembers the last five batches, so no more than
five intents per partition are outstanding; further records wait for theirs, as heads of their lanes.

A letter that the topic refuses is *set apart*: its intent then names the producer under which it was sent, and all
later letters of its partition go on under another one, so that their sequences have no gap. It is outstanding no more,
and is sent again under the producer and sequence that it has: should it be in the topic after all, it is dropped as the
repeat that it is. No producer appends anything after a letter that was set apart but what was sent together with it,
so the topic's memory of it does not pass.

    row     key                              value
    intent  b"d" partition (4) offset (8)    msgpack array: partition of the dead-letter topic, sequence; and, where it
                                             is set apart, its `LetterProducer`
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

import msgspec

from logbroker.queues.model.lane import DEAD_LETTERING, Lane
from logbroker.queues.model.messages import DeadLetter, LetterProducer
from logbroker.queues.model.record_id import OFFSET_MASK, partition_of
from logbroker.queues.state.change_set import ChangedRows, ChangeSet
from logbroker.queues.state.failures import Failures
from logbroker.queues.state.rows import (
    INTENT_ROW,
    SEQUENCE_ROW,
    decode,
    partition_in,
    partition_key,
    record_id_in,
    record_row_key,
)

MAX_OUTSTANDING: Final = 5
"""Per partition of the dead-letter topic: so many batches of a producer a partition remembers."""

WHOLE_TOPIC: Final = -1
"""In place of a partition of the dead-letter topic."""

Route = Callable[[bytes | None], int]
"""The partition of the dead-letter topic for an ordering key."""


class _Intent(msgspec.Struct, array_like=True, gc=False):
    partition: int
    sequence: int
    producer: LetterProducer | None = None
    """It is set apart."""


class _Waiting(NamedTuple):
    """A lane whose head is on its way."""

    lane: Lane
    partition: int
    """Of the dead-letter topic."""


class DeadLetters:
    """All intents of a queue group, and the lanes that wait for one."""

    def __init__(self, route: Route, changes: ChangeSet) -> None:
        self._route = route
        self._intents: dict[int, _Intent] = {}
        """By record id, in the order of their making."""
        self._lanes: dict[int, _Waiting] = {}
        """Lanes whose heads are on their way, by record id, with or without an intent yet."""
        self._waiting: dict[int, deque[int]] = {}
        """Ids of records that wait for an intent, by partition; void where no such lane waits any more."""
        self._outstanding: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        self._unsent = changes.unsent_letters
        self._unsettled: set[int] = set()
        """Intents whose letters may be in the topic already."""
        self._refusals: dict[int, str] = {}
        """Why a letter is refused, by record id."""
        self._troubles: dict[int, str] = {}
        """Why a partition of the dead-letter topic takes no letters, or the `WHOLE_TOPIC`."""
        self._rows = ChangedRows(changes, partial(record_row_key, INTENT_ROW), self._row_of)
        self._sequence_rows = ChangedRows(changes, partial(partition_key, SEQUENCE_ROW), self._sequences.get)

    def load(self, rows: Mapping[bytes, bytes], ends: Mapping[int, int]) -> None:
        """Take over what is stored; all intents are to be carried out again. Raises CorruptLogError."""
        intents: list[tuple[int, int, int, _Intent]] = []
        for key, value in rows.items():
            if key.startswith(INTENT_ROW):
                record_id = record_id_in(key)
                intent = decode(key, value, _Intent)
                self._rows.load(record_id)
                if record_id & OFFSET_MASK < ends.get(partition_of(record_id), OFFSET_MASK):
                    intents.append((intent.partition, intent.sequence, record_id, intent))
                else:
                    self._rows.changed(record_id)
            elif key.startswith(SEQUENCE_ROW):
                self._sequences[partition_in(key)] = decode(key, value, int)
        intents.sort(key=lambda found: found[:3])
        for partition, _, record_id, intent in intents:
            self._intents[record_id] = intent
            self._outstanding[partition] = self._outstanding.get(partition, 0) + (intent.producer is None)
            self._unsent[record_id] = None
            self._unsettled.add(record_id)

    # --- lanes -------------------------------------------------------------------------------------------------------

    def request(self, lane: Lane) -> None:
        """The head of a lane is to go; the lane is held until `done`."""
        record_id = lane.head
        lane.state = DEAD_LETTERING
        intent = self._intents.get(record_id)
        if intent is not None:
            self._lanes[record_id] = _Waiting(lane, intent.partition)
            return
        partition = self._route(lane.key)
        self._lanes[record_id] = _Waiting(lane, partition)
        self._waiting.setdefault(partition, deque()).append(record_id)
        self._issue(partition)

    def find(self, record_id: int) -> Lane | None:
        """The lane that waits for its head to go, by that head."""
        waiting = self._lanes.get(record_id)
        return None if waiting is None else waiting.lane

    def lanes(self) -> list[Lane]:
        """The lanes that wait for their heads to go."""
        return [waiting.lane for waiting in self._lanes.values()]

    def forget_lanes(self) -> None:
        """The lanes are made anew: those whose head has no intent will ask again."""
        self._lanes.clear()
        self._waiting.clear()

    def __len__(self) -> int:
        """How many lanes wait for their heads to be there."""
        return len(self._lanes)

    # --- intents -----------------------------------------------------------------------------------------------------

    def has_intent(self, record_id: int) -> bool:
        return record_id in self._intents

    def intents(self) -> Iterator[int]:
        """The records that have an intent."""
        return iter(self._intents)

    def holds(self, letter: DeadLetter) -> bool:
        """Whether a letter is still to be carried out: nobody withdrew it meanwhile."""
        intent = self._intents.get(letter.record_id)
        return intent is not None and (intent.partition, intent.sequence) == (letter.partition, letter.sequence)

    def done(self, record_id: int) -> Lane | None:
        """An append is synced: return the lane that waited for it, if it is admitted. Raises KeyError."""
        self._forget(record_id)
        waiting = self._lanes.pop(record_id, None)
        return None if waiting is None else waiting.lane

    def may_return(self, record_id: int) -> bool:
        """Whether a record that is on its way is certainly not in the dead-letter topic, nor under way there."""
        return record_id not in self._unsettled

    def withdraw(self, record_id: int) -> None:
        """A record is not to go after all; the lane that waited for it is its own again."""
        self._lanes.pop(record_id, None)
        if record_id in self._intents:
            self._forget(record_id)

    def refused(self) -> list[int]:
        """The records whose letters are refused and certainly not in the dead-letter topic."""
        return [record_id for record_id in self._refusals if record_id not in self._unsettled]

    def _forget(self, record_id: int) -> None:
        intent = self._intents.pop(record_id)
        self._rows.changed(record_id)
        self._unsent.pop(record_id, None)
        self._unsettled.discard(record_id)
        self._refusals.pop(record_id, None)
        if intent.producer is None:
            self._outstanding[intent.partition] -= 1
            self._issue(intent.partition)

    def _issue(self, partition: int) -> None:
        waiting = self._waiting.get(partition)
        while waiting and self._outstanding.get(partition, 0) < MAX_OUTSTANDING:
            record_id = waiting.popleft()
            if record_id in self._intents or record_id not in self._lanes:
                continue
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = sequence + 1
            self._outstanding[partition] = self._outstanding.get(partition, 0) + 1
            self._intents[record_id] = _Intent(partition, sequence)
            self._unsent[record_id] = None
            self._rows.changed(record_id)
            self._sequence_rows.changed(partition)

    # --- what becomes of letters -------------------------------------------------------------------------------------

    def sending(self, letters: Iterable[DeadLetter]) -> None:
        """These letters are under way: nobody can tell whether they are in the topic until something is known again."""
        self._unsettled.update(letter.record_id for letter in letters)

    def not_there(self, letter: DeadLetter) -> None:
        """The topic has told that it does not have a letter."""
        if self.holds(letter):
            self._unsettled.discard(letter.record_id)

    def topic_is_gone(self) -> None:
        """There is no dead-letter topic, and no letter in it."""
        self._unsettled.clear()

    def set_apart(self, letter: DeadLetter, producer: LetterProducer) -> None:
        """A letter has this producer from now on, whatever becomes of others; no other has to wait for it."""
        if not self.holds(letter):
            return
        intent = self._intents[letter.record_id]
        was_apart = intent.producer is not None
        intent.producer = letter.producer = producer
        self._rows.changed(letter.record_id)
        if not was_apart:
            self._outstanding[intent.partition] -= 1
            self._issue(intent.partition)

    def refuse(self, letter: DeadLetter, why: str) -> None:
        """The topic does not take this letter, for now."""
        if self.holds(letter):
            self._refusals[letter.record_id] = why

    def take_up(self, letter: DeadLetter) -> None:
        """A letter that was refused is tried again."""
        self._refusals.pop(letter.record_id, None)

    def trouble(self, partition: int, why: str) -> None:
        """A partition of the dead-letter topic, or the `WHOLE_TOPIC`, takes nothing, for now; "": it does again."""
        if why:
            self._troubles[partition] = why
        else:
            self._troubles.pop(partition, None)

    @property
    def troubles(self) -> Mapping[int, str]:
        """Why partitions of the dead-letter topic, or the `WHOLE_TOPIC`, take no letters; () where they do."""
        return self._troubles

    @property
    def refusals(self) -> Mapping[int, str]:
        """Why single letters are refused, by the ids of their records."""
        return self._refusals

    def refusal(self, record_id: int) -> str:
        """Why a record that is on its way does not arrive; "": nothing is known to hinder it. What hinders all letters
        comes first: before that is mended, nothing else helps."""
        waiting = self._lanes.get(record_id)
        if self._troubles and (waiting is not None or record_id in self._refusals) and WHOLE_TOPIC in self._troubles:
            return self._troubles[WHOLE_TOPIC]
        if why := self._refusals.get(record_id):
            return why
        return "" if waiting is None or not self._troubles else self._troubles.get(waiting.partition, "")

    # --- outputs -----------------------------------------------------------------------------------------------------

    def take(self, failures: Failures) -> list[DeadLetter]:
        """Return the intents to carry out, in the order of their sequences, as soon as their rows are synced."""
        letters: list[DeadLetter] = []
        for record_id in self._unsent:
            intent = self._intents[record_id]
            failure = failures.get(record_id)
            told = (
                (0, 0, 0, ())
                if failure is None
                else (failure.count, failure.first_ms, failure.last_ms, failure.reasons)
            )
            letters.append(DeadLetter(record_id, intent.partition, intent.sequence, *told, intent.producer))
        self._unsent.clear()
        return letters

    def _row_of(self, record_id: int) -> tuple[int, int] | _Intent | None:
        intent = self._intents.get(record_id)
        if intent is None or intent.producer is not None:
            return intent
        return intent.partition, intent.sequence
