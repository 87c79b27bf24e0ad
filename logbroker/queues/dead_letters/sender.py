"""Sends dead letters. For each stored intent (see `dead_letter_intents`), it appends the letter to the dead-letter
topic, synced, and then counts the letter's record as done.

A letter is sent under a producer id of the group, with a sequence that is computed from its intent. So if a crash comes
between the append and the commit that marks the record as done, the letter is sent again with the same sequence, and
the dead-letter topic drops the repeat. Each partition of the dead-letter topic to which the queue group routes letters
has one producer id:

    row       key                    value
    producer  b"i" partition (4)     msgpack array, the fields of `LetterProducer`

The row is committed before the producer id is used. Another producer replaces it if the topic was replaced, if the
topic no longer knows the producer, or if a letter was set apart. The new producer begins with the first letter that
still waits. All earlier letters are durably done or set apart, so none of them is sent again under the new producer.

A refusal by the topic holds back no more letters than it must:

    cause                                       letters that wait
    a letter is too large                       that letter, which is set apart until the topic's limit is high enough
    the record of a letter is unreadable        that letter, which is set apart for longer and longer pauses
    a partition of the topic (offline, corrupt) the letters of that partition, for a pause
    the topic (deleted, the disk full)          all letters, for a pause or until topics change

The topic may grow between the intent of a letter and its append. A letter whose key has another partition by then is
offered as a letter of an older generation. If the topic has the letter already, from before a crash, it treats the
offer as a repeat. Otherwise it refuses the letter. The letter is then set apart, and sent to the current partition of
its key. So the letters of a key lie in one partition of each generation.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

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
    StaleGenerationError,
    StorageFailedError,
    UnknownTopicError,
)
from logbroker.queues.context import GroupContext
from logbroker.queues.dead_letters.size_limits import LetterSizeLimit, made_for, stored_room
from logbroker.queues.model.messages import DeadLetter, LetterProducer
from logbroker.queues.model.record_id import offset_of, partition_of
from logbroker.queues.records.columns import lane_key_of
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
"""Minimum number of places in a round for letters that were set apart and are due."""
LETTERS_BYTES: Final = 1024 * 1024
"""A round ends when its letters have more bytes than this. Their number alone does not bound the memory: a record may
be much larger than it was in its compressed batch."""
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 5.0
LONGEST_APART_SECONDS: Final = 60.0
"""Longest pause between attempts at a letter that was set apart for another reason than its size."""

_NEVER: Final = 1 << 62
_OLDER_GENERATION: Final = -1
"""Stands for any older generation, so that the topic refuses the letter as routed by a stale generation."""
_UNSURE: Final = (RequestTimeoutError, BrokerUnavailableError, StorageFailedError)
"""Errors after which it is unknown whether a batch was appended."""
_ADVICE: Final = "skip, resume or replace the record"


class DeadLetterTopic:
    """The topic of a queue group's dead letters, and the choice of its partitions."""

    def __init__(
        self, engine: LogEngine, name: str, takes_letters: Callable[[str, str], bool] = lambda topic, group: False
    ) -> None:
        """`takes_letters(topic, group)` returns whether a topic is the dead-letter topic of any group, or has the
        default name for this group."""
        self._engine = engine
        self.takes_letters = takes_letters
        self.name = name
        """Name that was set last, or the default one."""
        self._next = 0

    def get(self) -> Topic:
        """Return the topic. Raises UnknownTopicError."""
        return self._engine.topic(self.name)

    def route(self, key: bytes | None) -> int:
        """Return the partition for an ordering key; letters without a key go round robin."""
        try:
            partitions = self.get().partitions
        except LogbrokerError:
            return 0  # Any partition will do, because the topic has to be made again.
        if key is not None:
            return partition_for_key(key, partitions)
        self._next += 1
        return self._next % partitions


class _Stream(msgspec.Struct):
    """The letters of one partition that are sent under one producer, in the order of their sequences."""

    letters: deque[DeadLetter]
    due: float = 0.0
    """Time of the next attempt (the event loop's clock)."""
    pause_seconds: float = FIRST_PAUSE_SECONDS
    """Pause after the next refusal."""


class _Encoded(NamedTuple):
    """A letter as a batch."""

    letter: DeadLetter
    batch: bytes
    home: int | None
    """Current partition of the letter's key; None: the letter has no key."""


class _Apart(msgspec.Struct):
    """A letter that was set apart."""

    letter: DeadLetter
    pause_seconds: float = FIRST_PAUSE_SECONDS


class DeadLetterSender:
    """Sends the dead letters of one queue group, and tries again as long as their topic refuses them."""

    def __init__(self, context: GroupContext, records: Records, topic: DeadLetterTopic) -> None:
        self._context = context
        self._queue = context.queue
        self._letters = context.queue.dead_letters
        self._engine = context.engine
        self._records = records
        self.topic = topic
        self._producers: dict[int, LetterProducer] = {}
        """Producers of the streams, by partition."""
        self._streams: dict[int, _Stream] = {}
        """Streams, by the partition of their intents."""
        self._apart: dict[int, _Apart] = {}
        """Letters that were set apart, by record id."""
        self._ready: deque[_Apart] = deque()
        """Set-apart letters that are due."""
        self._taken: dict[int, _Apart] = {}
        """Set-apart letters of the current round whose result is not known yet, by record id."""
        self._large: list[tuple[int, int, int]] = []
        """Heap of set-apart letters that are too large: needed limit, record id and sequence. An entry is void if its
        letter is no longer set apart."""
        self._later: list[tuple[float, int, int]] = []
        """Heap of set-apart letters that are tried again later: time, record id and sequence."""
        self._arrived = asyncio.Event()
        """Set when there may be something to send."""
        self._changed = asyncio.Event()
        """Set when the reason why the topic refused every letter may be gone."""
        self._sending: asyncio.Task[None] | None = None
        self._complaint = ""
        self.room: LetterSizeLimit | None = None
        """Size limit that the broker set on the topic; None: none is stored."""
        self.sent = 0
        """Number of dead letters sent in this group epoch."""

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Load the stored rows. Raises CorruptLogError."""
        for key, value in rows.items():
            if key.startswith(PRODUCER_ROW):
                self._producers[partition_in(key)] = decode(key, value, LetterProducer)
        self.room = stored_room(rows)

    def send(self, letters: Sequence[DeadLetter]) -> None:
        """Send the letters of stored intents."""
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
                del self._producers[letter.partition]  # No other letter may follow under this producer.
        self._arrived.set()
        if (self._streams or self._apart) and self._sending is None:
            self._sending = asyncio.create_task(self._send_all(), name=f"dead letters of {self._context.group_id}")

    def grown_room(self) -> LetterSizeLimit | None:
        """Return the size limit to set on the topic because the limit of the group's own topic was raised; None: no
        change is needed."""
        try:
            dead_topic, topic = self.topic.get(), self._engine.topic_by_id(TopicId(self._queue.topic_id))
        except UnknownTopicError:
            return None
        room = self.room or made_for(dead_topic, topic)
        return None if room is None else room.grown(dead_topic, topic)

    async def keep_room(self, room: LetterSizeLimit | None) -> None:
        """Store the size limit that the topic has; return when that is synced."""
        if room is not None and room != self.room:
            self.room = room
            await self._context.stored([upsert(ROOM_ROW, room)])

    def topics_changed(self) -> None:
        """Try all letters again after a change of topics: the dead-letter topic may be back, or have a higher limit."""
        self._changed.set()
        self._arrived.set()
        for stream in self._streams.values():
            stream.due = 0.0

    async def stop(self) -> None:
        """Stop sending; the next start finds the remaining intents."""
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
                    return  # This error stops the broker.
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
        """Return the time until the next attempt is due (s); None: nothing is due until something happens."""
        moments = [stream.due for stream in self._streams.values()]
        if self._later:
            moments.append(self._later[0][0])
        return max(0.0, min(moments) - _now()) if moments else None

    async def _send_some(self) -> bool:
        """Send the letters that are due; return whether there were any. Raises the error if the topic refuses all
        letters."""
        try:
            # While the topic is pinned, it cannot grow.
            topic = await self._engine.pin(self.topic.get().id)
        except UnknownTopicError:
            self._letters.topic_is_gone()
            raise
        try:
            chosen = self._choose(topic)
            prepared = await self._prepare(topic, chosen)
            if prepared:
                await self._append(topic, prepared)
        finally:
            self._engine.unpin(topic.id)
            self._ready.extendleft(reversed(self._taken.values()))
            self._taken.clear()
        self._trouble(WHOLE_TOPIC, "")
        return bool(chosen)

    def _choose(self, topic: Topic) -> list[DeadLetter]:
        """Return letters that are due, in the order of each partition; set-apart ones among them go to `_taken`."""
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
        """Move set-apart letters that may succeed by now to `_ready`."""
        while self._large and self._large[0][0] <= topic.config.max_message_bytes:
            self._get_ready(*heapq.heappop(self._large)[1:])
        while self._later and self._later[0][0] <= now:
            self._get_ready(*heapq.heappop(self._later)[1:])

    def _get_ready(self, record_id: int, sequence: int) -> None:
        apart = self._apart.get(record_id)
        if apart is not None and apart.letter.sequence == sequence:
            self._ready.append(apart)

    # --- preparing ---------------------------------------------------------------------------------------------------

    async def _prepare(self, topic: Topic, chosen: Sequence[DeadLetter]) -> list[_Encoded]:
        """Encode letters under their producers. A letter that cannot be read or encoded is set apart or waits, and the
        later ones of its stream are left for another round. Raises the error that prevents getting a producer."""
        origin = self._engine.topic_by_id(TopicId(self._queue.topic_id)).name
        encoded: list[_Encoded] = []
        cut: set[int] = set()
        """Streams whose remaining letters wait for another round."""
        size_bytes = 0
        for letter in chosen:
            is_apart = letter.record_id in self._taken
            if not is_apart and letter.partition in cut:
                continue
            try:
                found = await self._encode(topic, origin, letter)
            except StorageFailedError:
                raise
            except Exception as error:
                if not is_apart:
                    cut.add(letter.partition)
                    if letter is not self._streams[letter.partition].letters[0]:
                        continue  # The letters before it are sent first, under the same producer.
                self._unreadable(topic, letter, error)
                continue
            encoded.append(found)
            size_bytes += len(found.batch)
            if size_bytes > LETTERS_BYTES:
                break
        await self._see_to_producers(topic, [each.letter for each in encoded])
        return [each._replace(batch=await self._stamped(each.letter, each.batch)) for each in encoded]

    def _unreadable(self, topic: Topic, letter: DeadLetter, error: Exception) -> None:
        """Handle a letter whose record cannot be read, or that cannot be encoded."""
        if letter.record_id not in self._taken and isinstance(error, LogbrokerError) and error.retriable:
            self._refuse_stream(letter.partition, error)
        else:
            needed_bytes = _NEVER if isinstance(error, BatchExpandsTooFarError) else 0
            self._refuse(topic, letter, f"its dead letter cannot be made: {_words(error)}; {_ADVICE}", needed_bytes)

    async def _encode(self, topic: Topic, origin: str, letter: DeadLetter) -> _Encoded:
        """Encode a letter as a batch, compressed if it would be too large otherwise. Raises the error of reading or
        encoding it."""
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
        is_heavy = size_bytes > min(INLINE_BYTES, max_bytes)
        batch = await in_decoder_if(is_heavy, lambda: encode_to_fit([new], max_bytes))
        key = lane_key_of(record, self._queue.settings)
        return _Encoded(letter, batch, None if key is None else partition_for_key(key, topic.partitions))

    async def _content(self, letter: DeadLetter) -> tuple[LogRecord, bool]:
        """Return the record of a letter, and whether it is a whole batch that cannot be decoded. Raises the error that
        prevents reading it, even if it is temporary.
        """
        replacement = self._queue.replacements.get(letter.record_id)
        if replacement is not None:
            return replacement, False
        [record] = await self._records.fetch([letter.record_id])
        if isinstance(record, LogRecord):
            return record, False
        empty = LogRecord(offset_of(letter.record_id), -1, None, None, ())
        if isinstance(record, OffsetOutOfRangeError):
            return empty, False
        if not isinstance(record, InvalidRequestError):
            raise record  # It cannot be read now: the bytes that were read may be damaged.
        [(_, found)] = await self._records.find([letter.record_id])
        if isinstance(found.batch, StoredBatch):
            empty.value = found.batch.raw
            return empty, True
        raise record

    async def _see_to_producers(self, topic: Topic, letters: Sequence[DeadLetter]) -> None:
        """Make sure that each letter has a producer. The letters of a partition in one round share it: another producer
        may be used only when all earlier letters are durably done or set apart."""
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

    async def _append(self, topic: Topic, encoded: Sequence[_Encoded]) -> None:
        """Append letters and handle the results. Raises the error if the topic refuses all letters."""
        # An operator may have decided about some letters since they were chosen.
        encoded = [each for each in encoded if self._letters.holds(each.letter)]
        appends = [_to_append(topic, each) for each in encoded]
        was_there = [not self._letters.may_return(each.letter.record_id) for each in encoded]
        """Whether an earlier attempt may have appended the letter."""
        self._letters.sending([each.letter for each in encoded])
        results = await self._engine.append(appends, Durability.SYNCED)
        refused: dict[int, tuple[_Encoded, LogbrokerError]] = {}
        """First refused letter of each stream."""
        whole: LogbrokerError | None = None
        for each, result, may_be_there in zip(encoded, results, was_there, strict=True):
            letter = each.letter
            if isinstance(result, Appended):
                self._sent(letter)
                continue
            if not isinstance(result, _UNSURE) and (not may_be_there or _tells(result)):
                self._letters.not_there(letter)
            if result.retriable or isinstance(result, UnknownTopicError | StorageFailedError):
                whole = whole or result
            elif letter.record_id in self._taken:
                self._refused(topic, each, result)
            else:
                # Later letters of the partition were refused because of this one.
                refused.setdefault(letter.partition, (each, result))
        for each, result in refused.values():
            if each.letter is self._streams[each.letter.partition].letters[0]:
                self._refused(topic, each, result)
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

    def _refused(self, topic: Topic, encoded: _Encoded, error: LogbrokerError) -> None:
        """Handle the refusal of a set-apart letter, or of the first letter of a stream."""
        letter, batch, home = encoded
        is_apart = letter.record_id in self._taken
        if isinstance(error, StaleGenerationError) and home is not None:
            apart = self._taken.pop(letter.record_id, None) or self._set_apart(topic, letter)
            self._letters.route_anew(letter, home, _no_producer(topic, letter))
            self._ready.append(apart)
            return
        if isinstance(error, OutOfOrderSequenceError | ProducerFencedError):
            # The topic has forgotten the producer, or a letter before this one was withdrawn or set apart.
            producer = letter.producer if is_apart else self._producers.pop(letter.partition, None)
            if is_apart:
                self._letters.set_apart(letter, _no_producer(topic, letter))
            if producer is not None and producer.base != letter.sequence:
                return  # The letter is tried again at once, under a new producer.
        if isinstance(error, InvalidRequestError):
            needed_bytes = max(len(batch), topic.config.max_message_bytes + 1)
            if isinstance(error, RecordTooLargeError):
                advice = f"raise max.message.bytes there to {needed_bytes} or more, or {_ADVICE}"
                self._refuse(topic, letter, self._not_taken(f"{error.message}; {advice}"), needed_bytes)
            else:
                self._refuse(topic, letter, self._not_taken(f"{error.message}; {_ADVICE}"), 0)
        elif is_apart:
            self._refuse(topic, letter, self._not_taken(f"{error.message}; repair the topic, or {_ADVICE}"), 0)
        else:
            self._refuse_stream(letter.partition, error)

    def _not_taken(self, why: str) -> str:
        return f"topic {self.topic.name} does not take it: {why}"

    def _refuse(self, topic: Topic, letter: DeadLetter, why: str, needed_bytes: int) -> None:
        """Note that a letter is refused, and try it again once the topic allows `needed_bytes` or, if that is 0, after
        a pause. All other letters go on."""
        apart = self._taken.pop(letter.record_id, None) or self._set_apart(topic, letter)
        if needed_bytes:
            heapq.heappush(self._large, (needed_bytes, letter.record_id, letter.sequence))
        else:
            heapq.heappush(self._later, (_now() + apart.pause_seconds, letter.record_id, letter.sequence))
            apart.pause_seconds = min(2 * apart.pause_seconds, LONGEST_APART_SECONDS)
        if not self._letters.refusals:
            _log.warning(
                "queue group %s: dead letters of some lanes cannot be sent; these lanes wait, others go on; the first"
                " letter is of offset %d of partition %d: %s",
                self._context.group_id,
                offset_of(letter.record_id),
                partition_of(letter.record_id),
                why,
            )
        self._letters.refuse(letter, why)
        self._context.touched()

    def _set_apart(self, topic: Topic, letter: DeadLetter) -> _Apart:
        """Set the first letter of its stream apart; the stream goes on under another producer."""
        stream = self._streams[letter.partition]
        producer = self._producers.pop(letter.partition, None)
        if producer is None or not _serves(producer, topic, letter):
            producer = _no_producer(topic, letter)
        stream.letters.popleft()
        self._letters.set_apart(letter, producer)
        apart = self._apart[letter.record_id] = _Apart(letter)
        # Letters that may have been sent under this producer before a crash may be in the topic: only a repeat under
        # this producer shows whether they are.
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
        """Report why a partition of the topic, or the whole topic, takes no letters; "" clears the report."""
        if why and why != self._complaint:
            self._complaint = why
            _log.warning(
                "queue group %s: topic %s does not take its dead letters, and their lanes wait: %s",
                self._context.group_id,
                self.topic.name,
                why,
            )
        elif not why and partition == WHOLE_TOPIC and not self._letters.troubles:
            self._complaint = ""
        where = "" if partition == WHOLE_TOPIC else f" in partition {partition}"
        text = (
            f"topic {self.topic.name} takes no dead letters{where}: {why}; remove the cause, or skip or resume the lane"
        )
        self._letters.trouble(partition, text if why else "")


def _to_append(topic: Topic, encoded: _Encoded) -> Append:
    partition = encoded.letter.partition % topic.partitions
    generation = 0 if encoded.home is None else topic.generation if encoded.home == partition else _OLDER_GENERATION
    return Append(topic.id, partition, encoded.batch, generation)


def _serves(producer: LetterProducer, topic: Topic, letter: DeadLetter) -> bool:
    """Return whether a letter can be sent under a producer."""
    return producer.producer_id >= 0 and producer.topic_id == topic.id and producer.base <= letter.sequence


def _no_producer(topic: Topic, letter: DeadLetter) -> LetterProducer:
    """Return a placeholder for the producer that a letter gets when it is sent."""
    return LetterProducer(topic.id, -1, -1, letter.sequence)


def _tells(error: LogbrokerError) -> bool:
    """Return whether a refusal proves that the topic does not have the letter: the topic checks for repeats before it
    refuses."""
    if isinstance(error, ProducerForgottenError):
        return False
    return isinstance(
        error,
        InvalidRequestError | OutOfOrderSequenceError | ProducerFencedError | StaleGenerationError | UnknownTopicError,
    )


def _words(error: Exception) -> str:
    return error.message if isinstance(error, LogbrokerError) else f"{type(error).__name__}: {error}"


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _wait(event: asyncio.Event, seconds: float | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
