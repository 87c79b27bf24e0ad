"""Records on their way to the dead-letter topic: intent, append, done.

An intent is a row that names the record, the partition of the dead-letter topic, and the number of the letter in that
partition. The letter is appended under a producer id of the group, with a sequence that is computed from this number.
When the append is synced, one transaction marks the record as done and deletes the intent. After a crash between the
two, the remaining intents are carried out again with the same sequences, and the deduplication of producers in the
dead-letter topic drops the copies. A partition remembers the last five batches of a producer, so at most five intents
per partition are outstanding. Further records wait for an intent as heads of their lanes.

A letter that the topic refuses is *set apart*: its intent then also names the producer under which it was sent, and all
later letters of its partition continue under another producer, so that their sequences have no gap. The letter is no
longer outstanding. It is sent again under its own producer and sequence. If the letter is in the topic already, the
topic drops the copy. After a set-apart letter, its producer appends only letters that were sent together with it, so
the topic does not forget the letter's sequence. A letter is also set apart if it is certainly not in the topic, and its
key has another partition there since the topic has grown. Its intent then names the current partition.

    row     key                              value
    intent  b"d" partition (4) offset (8)    msgpack array: partition of the dead-letter topic, sequence; and, if it
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
"""Maximum number of outstanding intents for each partition of the dead-letter topic. It is the number of batches of a
producer that a partition remembers."""

WHOLE_TOPIC: Final = -1
"""Stands for all partitions of the dead-letter topic."""

Route = Callable[[bytes | None], int]
"""Returns the partition of the dead-letter topic for an ordering key."""


class _Intent(msgspec.Struct, array_like=True, gc=False):
    partition: int
    sequence: int
    producer: LetterProducer | None = None
    """The producer of a letter that is set apart."""


class _Waiting(NamedTuple):
    """A lane whose head is on its way to the dead-letter topic."""

    lane: Lane
    partition: int
    """Partition of the dead-letter topic."""


class DeadLetters:
    """All intents of a queue group, and the lanes that wait for them."""

    def __init__(self, route: Route, changes: ChangeSet) -> None:
        self._route = route
        self._intents: dict[int, _Intent] = {}
        """Intents by record id, in the order of their creation."""
        self._lanes: dict[int, _Waiting] = {}
        """Lanes whose heads are on their way, by record id, with or without an intent yet."""
        self._waiting: dict[int, deque[int]] = {}
        """Ids of records that wait for an intent, by partition. An id is void if its lane no longer waits."""
        self._outstanding: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        self._unsent = changes.unsent_letters
        self._unsettled: set[int] = set()
        """Records with an intent whose letters may be in the topic already."""
        self._refusals: dict[int, str] = {}
        """Reasons why letters are refused, by record id."""
        self._troubles: dict[int, str] = {}
        """Reasons why no letters are accepted, by partition of the dead-letter topic or `WHOLE_TOPIC`."""
        self._rows = ChangedRows(changes, partial(record_row_key, INTENT_ROW), self._row_of)
        self._sequence_rows = ChangedRows(changes, partial(partition_key, SEQUENCE_ROW), self._sequences.get)

    def load(self, rows: Mapping[bytes, bytes], ends: Mapping[int, int]) -> None:
        """Load the stored intents, all of which are to be carried out again. Raises CorruptLogError."""
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
        """Stall a lane until its head is in the dead-letter topic, or withdrawn."""
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
        """Return the lane with this head, if the head is on its way."""
        waiting = self._lanes.get(record_id)
        return None if waiting is None else waiting.lane

    def lanes(self) -> list[Lane]:
        """Return the lanes whose heads are on their way."""
        return [waiting.lane for waiting in self._lanes.values()]

    def forget_lanes(self) -> None:
        """Forget the lanes, because the index is rebuilt. `request` is called again for each lane whose head is on its
        way."""
        self._lanes.clear()
        self._waiting.clear()

    def forget_lane(self, record_id: int) -> None:
        """Forget the lane with this head, as `forget_lanes` does."""
        del self._lanes[record_id]

    def __len__(self) -> int:
        """Return the number of lanes whose heads are on their way."""
        return len(self._lanes)

    # --- intents -----------------------------------------------------------------------------------------------------

    def has_intent(self, record_id: int) -> bool:
        return record_id in self._intents

    def intents(self) -> Iterator[int]:
        """Return the records that have an intent."""
        return iter(self._intents)

    def holds(self, letter: DeadLetter) -> bool:
        """Return whether a letter still has its intent: it is not done, was not withdrawn, and was not routed anew."""
        intent = self._intents.get(letter.record_id)
        return intent is not None and (intent.partition, intent.sequence) == (letter.partition, letter.sequence)

    def done(self, record_id: int) -> Lane | None:
        """Note that an append is synced; return the lane that waited for it, if it is admitted. Raises KeyError."""
        self._forget(record_id)
        waiting = self._lanes.pop(record_id, None)
        return None if waiting is None else waiting.lane

    def may_return(self, record_id: int) -> bool:
        """Return whether a record on its way is certainly neither in the dead-letter topic nor being sent there."""
        return record_id not in self._unsettled

    def withdraw(self, record_id: int) -> None:
        """Withdraw a record. The lane that waited for it is forgotten here."""
        self._lanes.pop(record_id, None)
        if record_id in self._intents:
            self._forget(record_id)

    def refused(self) -> list[int]:
        """Return the records whose letters are refused and certainly not in the dead-letter topic."""
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

    # --- outcomes of letters -----------------------------------------------------------------------------------------

    def sending(self, letters: Iterable[DeadLetter]) -> None:
        """Note that letters are being sent. Until the outcome is known, they may be in the topic or not."""
        self._unsettled.update(letter.record_id for letter in letters)

    def not_there(self, letter: DeadLetter) -> None:
        """Note that the topic certainly does not have a letter."""
        if self.holds(letter):
            self._unsettled.discard(letter.record_id)

    def topic_is_gone(self) -> None:
        """Note that there is no dead-letter topic, and so no letter in it."""
        self._unsettled.clear()

    def set_apart(self, letter: DeadLetter, producer: LetterProducer) -> None:
        """Set a letter apart: it keeps this producer from now on, and no other letter has to wait for it."""
        if not self.holds(letter):
            return
        intent = self._intents[letter.record_id]
        was_apart = intent.producer is not None
        intent.producer = letter.producer = producer
        self._rows.changed(letter.record_id)
        if not was_apart:
            self._outstanding[intent.partition] -= 1
            self._issue(intent.partition)

    def route_anew(self, letter: DeadLetter, partition: int, producer: LetterProducer) -> None:
        """Let a letter that is set apart, and certainly not in the topic, go to another partition, under this producer
        from now on."""
        if not self.holds(letter):
            return
        intent = self._intents[letter.record_id]
        intent.partition = letter.partition = partition
        intent.producer = letter.producer = producer
        self._rows.changed(letter.record_id)
        waiting = self._lanes.get(letter.record_id)
        if waiting is not None:
            self._lanes[letter.record_id] = waiting._replace(partition=partition)

    def refuse(self, letter: DeadLetter, why: str) -> None:
        """Note that the topic refuses this letter for now."""
        if self.holds(letter):
            self._refusals[letter.record_id] = why

    def take_up(self, letter: DeadLetter) -> None:
        """Forget the refusal of a letter that is tried again."""
        self._refusals.pop(letter.record_id, None)

    def trouble(self, partition: int, why: str) -> None:
        """Note why a partition of the dead-letter topic, or `WHOLE_TOPIC`, accepts nothing for now; "": it accepts
        letters again."""
        if why:
            self._troubles[partition] = why
        else:
            self._troubles.pop(partition, None)

    @property
    def troubles(self) -> Mapping[int, str]:
        """Reasons why no letters are accepted, by partition of the dead-letter topic or `WHOLE_TOPIC`. Empty: none."""
        return self._troubles

    @property
    def refusals(self) -> Mapping[int, str]:
        """Reasons why single letters are refused, by the ids of their records."""
        return self._refusals

    @property
    def under_way(self) -> int:
        """Number of records that have an intent, and that no known obstacle keeps from arriving. It is 0 only if the
        topic has all records on their way, or takes none of the others."""
        if not self._troubles:
            return len(self._intents) - len(self._refusals)
        if WHOLE_TOPIC in self._troubles:
            return 0
        return sum(
            record_id not in self._refusals and intent.partition not in self._troubles
            for record_id, intent in self._intents.items()
        )

    def refusal(self, record_id: int) -> str:
        """Return why a record on its way does not arrive; "": no obstacle is known. Obstacles for all letters come
        first, because nothing else helps before they are removed."""
        waiting = self._lanes.get(record_id)
        if self._troubles and (waiting is not None or record_id in self._refusals) and WHOLE_TOPIC in self._troubles:
            return self._troubles[WHOLE_TOPIC]
        if why := self._refusals.get(record_id):
            return why
        return "" if waiting is None or not self._troubles else self._troubles.get(waiting.partition, "")

    # --- outputs -----------------------------------------------------------------------------------------------------

    def take(self, failures: Failures) -> list[DeadLetter]:
        """Return the intents to carry out, in the order of their sequences. Their rows must be synced first."""
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
