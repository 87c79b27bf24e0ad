"""Carrying out the intents of dead letters: append, sync, done.

A letter goes under the group's own producer id with the sequence of its intent, so that the dead-letter topic drops the
copy where a crash came between append and done. There is one producer id for each partition that the machine routes by:

    row       key                    value
    producer  b"i" partition (4)     msgpack array, the fields of `LetterProducer`

The row is committed before it is used. Another producer takes its place where the topic is another one, or knows
nothing of the producer any more, or where a letter was set apart; no letter before the first that waits is sent again
then, as all of them are done or set apart, durably.

What the topic refuses holds back no more than it must:

    refused                                     what waits, and until when
    a letter (too large, its record unreadable) that letter, set apart: until the topic's limit is high enough, or by
                                                longer and longer pauses; others go on
    a partition of the topic (offline, corrupt) the letters of that partition, by pauses
    the topic (deleted, the disk full)          all letters, by pauses, and until topics change
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from logbroker.engine import Append, Appended, LogEngine, StateEvent, Topic
from logbroker.errors import (
    BatchExpandsTooFarError,
    BrokerUnavailableError,
    InvalidRequestError,
    LogbrokerError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    ProducerForgottenError,
    RecordTooLargeError,
    RequestTimeoutError,
    StorageFailedError,
    UnknownTopicError,
)
from logbroker.queues.context import GroupContext
from logbroker.queues.dead_letters.size_limits import LetterSizeLimit, made_for, stored_room
from logbroker.queues.model.messages import DeadLetter, LetterProducer
from logbroker.queues.model.record_id import offset_of, partition_of
from logbroker.queues.records.decoder import INLINE_BYTES, in_decoder_if
from logbroker.queues.records.fetch import Records
from logbroker.queues.state.dead_letter_intents import WHOLE_TOPIC
from logbroker.queues.state.rows import PRODUCER_ROW, ROOM_ROW, decode, partition_in, partition_key, upsert
from logbroker.record.codec import LogRecord, encode_to_fit, with_producer
from logbroker.record.dead_letter import GROUP, Origin, dead_letter, header_value
from logbroker.record.header import MAX_SEQUENCE
from logbroker.record.partitioner import partition_for_key
from logbroker.record.stored_batch import StoredBatch
from logbroker.types import Durability, TopicId

_log = logging.getLogger(__name__)

LETTERS_AT_ONCE: Final = 64
APART_AT_ONCE: Final = 8
"""Of these, at least, so many that were set apart, if they are due."""
LETTERS_BYTES: Final = 1024 * 1024
"""About as much is sent at once; a record may be much larger than it was in its compressed batch."""
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 5.0
LONGEST_APART_SECONDS: Final = 60.0
"""Between two attempts at a letter that was set apart for another reason than its size."""

_NEVER: Final = 1 << 62
_UNSURE: Final = (RequestTimeoutError, BrokerUnavailableError, StorageFailedError)
"""By these nobody can tell whether a batch was appended."""
_ADVICE: Final = "skip, resume or replace the record"


class DeadLetterTopic:
    """Which topic takes the dead letters of a queue group, and which of its partitions."""

    def __init__(
        self, engine: LogEngine, name: str, takes_letters: Callable[[str, str], bool] = lambda topic, group: False
    ) -> None:
        """`takes_letters` says whether a topic is one of dead letters, those of this group or of any other."""
        self._engine = engine
        self.takes_letters = takes_letters
        self.name = name
        """The one last set: it still takes what was on its way when the setting was taken back."""
        self._next = 0

    def get(self) -> Topic:
        """Raises UnknownTopicError."""
        return self._engine.topic(self.name)

    def route(self, key: bytes | None) -> int:
        """The partition for an ordering key; those without one take turns."""
        try:
            partitions = self.get().partitions
        except LogbrokerError:
            return 0  # Where the topic is made anew, any of its partitions will do.
        if key is not None:
            return partition_for_key(key, partitions)
        self._next += 1
        return self._next % partitions


class _Stream(msgspec.Struct):
    """The letters of one partition that are sent under one producer, in the order of their sequences."""

    letters: deque[DeadLetter]
    due: float = 0.0
    """When they are tried again."""
    pause_seconds: float = FIRST_PAUSE_SECONDS
    """Before that, if they are refused once more."""


class _Apart(msgspec.Struct):
    """A letter that was set apart."""

    letter: DeadLetter
    pause_seconds: float = FIRST_PAUSE_SECONDS


class DeadLetterSender:
    """Sends the dead letters of one queue group, however long their topic refuses them."""

    def __init__(self, context: GroupContext, records: Records, topic: DeadLetterTopic) -> None:
        self._context = context
        self._queue = context.queue
        self._letters = context.queue.dead_letters
        self._engine = context.engine
        self._records = records
        self.topic = topic
        self._producers: dict[int, LetterProducer] = {}
        """Of the streams."""
        self._streams: dict[int, _Stream] = {}
        """By the partition of their intents."""
        self._apart: dict[int, _Apart] = {}
        """By the ids of their records."""
        self._ready: deque[_Apart] = deque()
        """Of these, those that are to be tried."""
        self._taken: dict[int, _Apart] = {}
        """Of these, those of the present round that nothing is decided about yet."""
        self._large: list[tuple[int, int, int]] = []
        """A heap of those that are too large: what the topic must take for them, record id and sequence; void where no
        such letter is set apart any more."""
        self._later: list[tuple[float, int, int]] = []
        """Such a heap of those that are tried again at some moment."""
        self._arrived = asyncio.Event()
        """There may be something to send."""
        self._changed = asyncio.Event()
        """What refused everything may do so no more."""
        self._sending: asyncio.Task[None] | None = None
        self._complaint = ""
        self.room: LetterSizeLimit | None = None
        """Of the topic, if the broker made it."""
        self.sent = 0
        """Dead letters in this group epoch."""

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Take over what is stored. Raises CorruptLogError."""
        for key, value in rows.items():
            if key.startswith(PRODUCER_ROW):
                self._producers[partition_in(key)] = decode(key, value, LetterProducer)
        self.room = stored_room(rows)

    def send(self, letters: Sequence[DeadLetter]) -> None:
        """Carry out intents, which are stored."""
        for letter in letters:
            if letter.producer is None:
                stream = self._streams.get(letter.partition)
                if stream is None:
                    stream = self._streams[letter.partition] = _Stream(deque())
                stream.letters.append(letter)
                continue
            apart = self._apart[letter.record_id] = _Apart(letter)
            self._ready.append(apart)
            producer = self._producers.get(letter.partition)
            if producer is not None and producer.producer_id == letter.producer.producer_id:
                del self._producers[letter.partition]  # Nothing may follow there.
        self._arrived.set()
        if (self._streams or self._apart) and self._sending is None:
            self._sending = asyncio.create_task(self._send_all(), name=f"dead letters of {self._context.group_id}")

    def grown_room(self) -> LetterSizeLimit | None:
        """What the topic is to take from now on, if that has to be set: its room follows the group's own topic."""
        try:
            dead_topic, topic = self.topic.get(), self._engine.topic_by_id(TopicId(self._queue.topic_id))
        except UnknownTopicError:
            return None
        room = self.room or made_for(dead_topic, topic)
        return None if room is None else room.grown(dead_topic, topic)

    async def keep_room(self, room: LetterSizeLimit | None) -> None:
        """Take note of the room that the topic has; returns when that is stored."""
        if room is not None and room != self.room:
            self.room = room
            await self._context.stored([upsert(ROOM_ROW, room)])

    def topics_changed(self) -> None:
        """The dead-letter topic may be there again, or take more than before."""
        self._changed.set()
        self._arrived.set()
        for stream in self._streams.values():
            stream.due = 0.0

    async def stop(self) -> None:
        """Leave the rest to the next start, which finds their intents."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    # --- rounds ------------------------------------------------------------------------------------------------------

    async def _send_all(self) -> None:
        pause_seconds = FIRST_PAUSE_SECONDS
        try:
            while self._streams or self._apart:
                self._arrived.clear()
                self._changed.clear()
                sent = self.sent
                try:
                    tried = await self._send_some()
                except StorageFailedError:
                    return  # The broker ends by this.
                except Exception as error:
                    if not isinstance(error, LogbrokerError):
                        _log.exception("queue group %s: its dead letters could not be sent", self._context.group_id)
                    self._trouble(WHOLE_TOPIC, _words(error))
                    pause_seconds = FIRST_PAUSE_SECONDS if self.sent > sent else pause_seconds
                    await _wait(self._changed, pause_seconds)
                    pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
                else:
                    pause_seconds = FIRST_PAUSE_SECONDS
                    if not tried and (self._streams or self._apart):
                        await _wait(self._arrived, self._pause())
        finally:
            self._sending = None

    def _pause(self) -> float | None:
        """For how long there is nothing to try; None: until something happens."""
        moments = [stream.due for stream in self._streams.values()]
        if self._later:
            moments.append(self._later[0][0])
        return max(0.0, min(moments) - _now()) if moments else None

    async def _send_some(self) -> bool:
        """Send what comes next; return whether there was something. Raises what the whole topic refuses letters
        with."""
        try:
            topic = self.topic.get()
        except UnknownTopicError:
            self._letters.topic_is_gone()
            raise
        chosen = self._choose(topic)
        try:
            prepared = await self._prepare(topic, chosen)
            if prepared:
                await self._append(topic, prepared)
        finally:
            self._ready.extendleft(reversed(self._taken.values()))
            self._taken.clear()
        self._trouble(WHOLE_TOPIC, "")
        return bool(chosen)

    def _choose(self, topic: Topic) -> list[DeadLetter]:
        """Return letters that are due, those of a partition in their order; those that were set apart are `_taken`."""
        now = _now()
        chosen: list[DeadLetter] = []
        for partition, stream in list(self._streams.items()):
            stream.letters = deque(filter(self._letters.holds, stream.letters))
            if not stream.letters:
                del self._streams[partition]
                self._trouble(partition, "")
            elif stream.due <= now and len(chosen) < LETTERS_AT_ONCE:
                try:
                    self._engine.partition_facts(topic.id, partition % topic.partitions)
                except LogbrokerError as error:
                    self._refuse_stream(partition, error)
                else:
                    chosen += stream.letters
        self._take_due(now, topic)
        for _ in range(min(len(self._ready), max(APART_AT_ONCE, LETTERS_AT_ONCE - len(chosen)))):
            apart = self._ready.popleft()
            if self._letters.holds(apart.letter):
                chosen.append(apart.letter)
                self._taken[apart.letter.record_id] = apart
            elif self._apart.get(apart.letter.record_id) is apart:
                del self._apart[apart.letter.record_id]
        return chosen

    def _take_due(self, now: float, topic: Topic) -> None:
        """Move what was set apart to what is to be tried, if it may succeed by now."""
        while self._large and self._large[0][0] <= topic.config.max_message_bytes:
            self._get_ready(*heapq.heappop(self._large)[1:])
        while self._later and self._later[0][0] <= now:
            self._get_ready(*heapq.heappop(self._later)[1:])

    def _get_ready(self, record_id: int, sequence: int) -> None:
        apart = self._apart.get(record_id)
        if apart is not None and apart.letter.sequence == sequence:
            self._ready.append(apart)

    # --- before they are sent ----------------------------------------------------------------------------------------

    async def _prepare(self, topic: Topic, chosen: Sequence[DeadLetter]) -> list[tuple[DeadLetter, bytes]]:
        """Encode letters under their producers. What cannot be read or encoded is set apart, or waits; what follows it
        in its partition is left for another round. Raises what no producer is had by."""
        origin = self._engine.topic_by_id(TopicId(self._queue.topic_id)).name
        encoded: list[tuple[DeadLetter, bytes]] = []
        cut: set[int] = set()
        """Streams of which nothing more is sent in this round."""
        size_bytes = 0
        for letter in chosen:
            is_apart = letter.record_id in self._taken
            if not is_apart and letter.partition in cut:
                continue
            try:
                batch = await self._batch(topic, origin, letter)
            except StorageFailedError:
                raise
            except Exception as error:
                if not is_apart:
                    cut.add(letter.partition)
                    if letter is not self._streams[letter.partition].letters[0]:
                        continue  # Those before it are still to be sent under the producer that it has.
                self._unreadable(topic, letter, error)
                continue
            encoded.append((letter, batch))
            size_bytes += len(batch)
            if size_bytes > LETTERS_BYTES:
                break
        await self._see_to_producers(topic, [letter for letter, _ in encoded])
        return [(letter, await self._stamped(letter, batch)) for letter, batch in encoded]

    def _unreadable(self, topic: Topic, letter: DeadLetter, error: Exception) -> None:
        """The letter of a record cannot be made."""
        if letter.record_id not in self._taken and isinstance(error, LogbrokerError) and error.retriable:
            self._refuse_stream(letter.partition, error)
        else:
            needed_bytes = _NEVER if isinstance(error, BatchExpandsTooFarError) else 0
            self._refuse(topic, letter, f"its letter cannot be made: {_words(error)}; {_ADVICE}", needed_bytes)

    async def _batch(self, topic: Topic, origin: str, letter: DeadLetter) -> bytes:
        """Return a letter as a batch, compressed where it is too large as it is. Raises what hinders that."""
        record, undecodable = await self._content(letter)
        claimed = header_value(record.headers, GROUP) or b""
        new = dead_letter(
            record,
            Origin(
                topic=origin,
                partition=partition_of(letter.record_id),
                offset=offset_of(letter.record_id),
                group=self._context.group_id,
                attempts=letter.attempts,
                first_failure_ms=letter.first_ms,
                last_failure_ms=letter.last_ms,
                reasons=letter.reasons,
                undecodable=undecodable,
            ),
            first=self._queue.origins.get(letter.record_id),
            was_letter=self.topic.takes_letters(origin, claimed.decode(errors="replace")),
        )
        size_bytes = len(new.value or b"") + len(new.key or b"")
        max_bytes = topic.config.max_message_bytes
        return await in_decoder_if(size_bytes > min(INLINE_BYTES, max_bytes), lambda: encode_to_fit([new], max_bytes))

    async def _content(self, letter: DeadLetter) -> tuple[LogRecord, bool]:
        """Return the record of a letter, and whether it is a whole batch that cannot be decoded.

        Raises what kept it from being read, if only for now.
        """
        replacement = self._queue.replacements.get(letter.record_id)
        if replacement is not None:
            return replacement, False
        [record] = await self._records.fetch([letter.record_id])
        if isinstance(record, LogRecord):
            return record, False
        if record.retriable:
            raise record
        empty = LogRecord(offset_of(letter.record_id), -1, None, None, ())
        if isinstance(record, OffsetOutOfRangeError):
            return empty, False
        [(_, found)] = await self._records.find([letter.record_id])
        if isinstance(found.batch, StoredBatch):
            empty.value = found.batch.raw
            return empty, True
        raise record

    async def _see_to_producers(self, topic: Topic, letters: Sequence[DeadLetter]) -> None:
        """Have a producer for each letter, and for each partition the one that all of its letters in the round go
        under: what is done or set apart is so durably before another producer is used."""
        rows: list[StateEvent] = []
        is_new = False
        for letter in letters:
            if letter.producer is not None:
                if not _serves(letter.producer, topic, letter):
                    self._letters.set_apart(letter, await self._new_producer(topic, letter))
                    is_new = True
                continue
            producer = self._producers.get(letter.partition)
            if producer is None or not _serves(producer, topic, letter):
                producer = await self._new_producer(topic, letter)
                self._producers[letter.partition] = producer
                rows.append(upsert(partition_key(PRODUCER_ROW, letter.partition), producer))
        if rows or is_new:
            await self._context.commits.synced(None, rows)

    async def _new_producer(self, topic: Topic, letter: DeadLetter) -> LetterProducer:
        producer_id, epoch = await self._engine.init_producer_id()
        return LetterProducer(topic.id, producer_id, epoch, letter.sequence)

    async def _stamped(self, letter: DeadLetter, batch: bytes) -> bytes:
        producer = letter.producer or self._producers[letter.partition]
        sequence = (letter.sequence - producer.base) & MAX_SEQUENCE
        return await in_decoder_if(
            len(batch) > INLINE_BYTES, lambda: with_producer(batch, producer.producer_id, producer.epoch, sequence)
        )

    # --- sending -----------------------------------------------------------------------------------------------------

    async def _append(self, topic: Topic, encoded: Sequence[tuple[DeadLetter, bytes]]) -> None:
        """Send letters, and see to what becomes of them. Raises what the whole topic refuses letters with."""
        # An operator may have decided otherwise meanwhile.
        encoded = [(letter, batch) for letter, batch in encoded if self._letters.holds(letter)]
        appends = [Append(topic.id, letter.partition % topic.partitions, batch) for letter, batch in encoded]
        was_there = [not self._letters.may_return(letter.record_id) for letter, _ in encoded]
        """Whether it may have been."""
        self._letters.sending([letter for letter, _ in encoded])
        results = await self._engine.append(appends, Durability.SYNCED)
        refused: dict[int, tuple[DeadLetter, bytes, LogbrokerError]] = {}
        """The first of each stream."""
        whole: LogbrokerError | None = None
        for (letter, batch), result, may_be_there in zip(encoded, results, was_there, strict=True):
            if isinstance(result, Appended):
                self._sent(letter)
                continue
            if not isinstance(result, _UNSURE) and (not may_be_there or _tells(result)):
                self._letters.not_there(letter)
            if result.retriable or isinstance(result, UnknownTopicError | StorageFailedError):
                whole = whole or result
            elif letter.record_id in self._taken:
                self._refused(topic, letter, batch, result)
            else:
                # What follows in the same partition was refused for want of this one.
                refused.setdefault(letter.partition, (letter, batch, result))
        for letter, batch, result in refused.values():
            if letter is self._streams[letter.partition].letters[0]:
                self._refused(topic, letter, batch, result)
        if whole is not None:
            raise whole

    def _sent(self, letter: DeadLetter) -> None:
        if self._taken.pop(letter.record_id, None) is not None:
            del self._apart[letter.record_id]
        else:
            stream = self._streams[letter.partition]
            stream.letters.remove(letter)
            stream.pause_seconds = FIRST_PAUSE_SECONDS
            self._trouble(letter.partition, "")
        self.sent += 1
        if self._letters.holds(letter):
            self._done(letter)

    def _done(self, letter: DeadLetter) -> None:
        self._queue.dead_lettered(letter.record_id, self._context.moment())
        self._context.touched()

    def _refused(self, topic: Topic, letter: DeadLetter, batch: bytes, error: LogbrokerError) -> None:
        """The topic refused a letter that was set apart, or the first of a stream."""
        is_apart = letter.record_id in self._taken
        if isinstance(error, OutOfOrderSequenceError | ProducerFencedError):
            # The topic lost what it knew of the producer, or a letter before this one was withdrawn or set apart.
            producer = letter.producer if is_apart else self._producers.pop(letter.partition, None)
            if is_apart:
                self._letters.set_apart(letter, _no_producer(topic, letter))
            if producer is not None and producer.base != letter.sequence:
                return  # It is tried again at once, under a new one.
        if isinstance(error, InvalidRequestError):
            needed_bytes = max(len(batch), topic.config.max_message_bytes + 1)
            if isinstance(error, RecordTooLargeError):
                advice = f"raise max.message.bytes there to {needed_bytes} or more, or {_ADVICE}"
                self._refuse(topic, letter, f"{error.message}; {advice}", needed_bytes)
            else:
                self._refuse(topic, letter, f"{error.message}; {_ADVICE}", 0)
        elif is_apart:
            self._refuse(topic, letter, f"{error.message}; repair the topic, or {_ADVICE}", 0)
        else:
            self._refuse_stream(letter.partition, error)

    def _refuse(self, topic: Topic, letter: DeadLetter, why: str, needed_bytes: int) -> None:
        """Try a letter again when the topic takes so many bytes; 0: after a pause. All others go on."""
        apart = self._taken.pop(letter.record_id, None) or self._set_apart(topic, letter)
        if needed_bytes:
            heapq.heappush(self._large, (needed_bytes, letter.record_id, letter.sequence))
        else:
            heapq.heappush(self._later, (_now() + apart.pause_seconds, letter.record_id, letter.sequence))
            apart.pause_seconds = min(2 * apart.pause_seconds, LONGEST_APART_SECONDS)
        if not self._letters.refusals:
            _log.warning(
                "queue group %s: topic %s does not take its dead letters of some lanes, which wait; others go on: the"
                " first is of offset %d of partition %d: %s",
                self._context.group_id,
                self.topic.name,
                offset_of(letter.record_id),
                partition_of(letter.record_id),
                why,
            )
        self._letters.refuse(letter, f"topic {self.topic.name} does not take it: {why}")
        self._context.touched()

    def _set_apart(self, topic: Topic, letter: DeadLetter) -> _Apart:
        """Take the first letter out of its stream, which goes on under another producer."""
        stream = self._streams[letter.partition]
        producer = self._producers.pop(letter.partition, None)
        if producer is None or not _serves(producer, topic, letter):
            producer = _no_producer(topic, letter)
        stream.letters.popleft()
        self._letters.set_apart(letter, producer)
        apart = self._apart[letter.record_id] = _Apart(letter)
        # What may have been sent under this producer, before a crash, may be there: it is asked under no other.
        while stream.letters and not self._letters.may_return(stream.letters[0].record_id):
            other = stream.letters.popleft()
            self._letters.set_apart(other, producer)
            self._apart[other.record_id] = _Apart(other)
            self._ready.append(self._apart[other.record_id])
        return apart

    def _refuse_stream(self, partition: int, error: LogbrokerError) -> None:
        """Try the letters of a partition again after a pause."""
        stream = self._streams[partition]
        stream.due = _now() + stream.pause_seconds
        stream.pause_seconds = min(2 * stream.pause_seconds, LONGEST_PAUSE_SECONDS)
        self._trouble(partition, error.message)

    def _trouble(self, partition: int, why: str) -> None:
        """Tell why a partition of the topic takes no letters, or all of it; "": it does."""
        if why and why != self._complaint:
            self._complaint = why
            _log.warning(
                "queue group %s: topic %s does not take its dead letters, whose lanes wait: %s",
                self._context.group_id,
                self.topic.name,
                why,
            )
        elif not why and partition == WHOLE_TOPIC and not self._letters.troubles:
            self._complaint = ""
        where = "" if partition == WHOLE_TOPIC else f" in partition {partition}"
        text = f"topic {self.topic.name} takes no dead letters{where}: {why}; mend that, or skip or resume the lane"
        self._letters.trouble(partition, text if why else "")


def _serves(producer: LetterProducer, topic: Topic, letter: DeadLetter) -> bool:
    """Whether a letter can be sent under a producer."""
    return producer.producer_id >= 0 and producer.topic_id == topic.id and producer.base <= letter.sequence


def _no_producer(topic: Topic, letter: DeadLetter) -> LetterProducer:
    """Stands for the producer that a letter gets when it is sent."""
    return LetterProducer(topic.id, -1, -1, letter.sequence)


def _tells(error: LogbrokerError) -> bool:
    """Whether such a refusal says that the topic does not have the letter: it looks for repeats before."""
    if isinstance(error, ProducerForgottenError):
        return False
    return isinstance(error, InvalidRequestError | OutOfOrderSequenceError | ProducerFencedError | UnknownTopicError)


def _words(error: Exception) -> str:
    return error.message if isinstance(error, LogbrokerError) else f"{type(error).__name__}: {error}"


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _wait(event: asyncio.Event, seconds: float | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
