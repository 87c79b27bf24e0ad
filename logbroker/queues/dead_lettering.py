"""Carrying out the intents of dead letters: append, sync, done.

A letter goes under the group's own producer id with the sequence of its intent, so that the dead-letter topic drops the
copy where a crash came between append and done. There is one producer id for each partition that the machine routes by:

    row       key                    value
    producer  b"i" partition (4)     msgpack array: topic id, producer id, epoch, base

`base` is the machine's sequence that is sequence 0 of this producer. The row is committed before it is used. Another
takes its place where the topic is another one, or knows nothing of the producer any more; no letter before the first
that waits is sent again then, as all of them are done, durably.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from logbroker.engine import Append, LogEngine, Topic
from logbroker.errors import (
    LogbrokerError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    StorageFailedError,
)
from logbroker.queues.flush import Flush
from logbroker.queues.messages import DeadLetter
from logbroker.queues.places import Moment, offset_of, partition_of
from logbroker.queues.queue import Queue
from logbroker.queues.records import Records
from logbroker.queues.rows import PRODUCER_ROW, decode, partition_in, partition_key, upsert
from logbroker.record.codec import LogRecord, encode_batch, with_producer
from logbroker.record.compression import Codec
from logbroker.record.dead_letter import Origin, dead_letter
from logbroker.record.header import MAX_SEQUENCE
from logbroker.record.partitioner import partition_for_key
from logbroker.record.stored_batch import StoredBatch
from logbroker.types import Durability, TopicId

_log = logging.getLogger(__name__)

LETTERS_AT_ONCE: Final = 64
LETTERS_BYTES: Final = 1024 * 1024
"""About as much is sent at once; a record may be much larger than it was in its compressed batch."""
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 5.0


class Producer(msgspec.Struct, frozen=True, array_like=True):
    """The row of the producer of one partition."""

    topic_id: bytes
    producer_id: int
    epoch: int
    base: int


class DeadLetterTopic:
    """Which topic takes the dead letters of a queue group, and which of its partitions."""

    def __init__(self, engine: LogEngine, name: str) -> None:
        self._engine = engine
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


class DeadLettering:
    """Sends the dead letters of one queue group, however long their topic refuses them."""

    def __init__(
        self,
        group_id: str,
        queue: Queue,
        engine: LogEngine,
        records: Records,
        topic: DeadLetterTopic,
        flush: Flush,
        moment: Callable[[], Moment],
        touched: Callable[[], None],
    ) -> None:
        """`touched` is called when the queue was given an input."""
        self._group_id = group_id
        self._queue = queue
        self._engine = engine
        self._records = records
        self.topic = topic
        self._flush = flush
        self._moment = moment
        self._touched = touched
        self._producers: dict[int, Producer] = {}
        self._pending: dict[int, deque[DeadLetter]] = {}
        """By the partition of their intents, in the order of their sequences."""
        self._sending: asyncio.Task[None] | None = None
        self._complaint = ""
        self.sent = 0
        """Dead letters in this life."""

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Take over what is stored. Raises CorruptLogError."""
        for key, value in rows.items():
            if key.startswith(PRODUCER_ROW):
                self._producers[partition_in(key)] = decode(key, value, Producer)

    def send(self, letters: Sequence[DeadLetter]) -> None:
        """Carry out intents, which are stored."""
        for letter in letters:
            self._pending.setdefault(letter.partition, deque()).append(letter)
        if self._pending and self._sending is None:
            self._sending = asyncio.create_task(self._send_all(), name=f"dead letters of {self._group_id}")

    async def stop(self) -> None:
        """Leave the rest to the next start, which finds their intents."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    async def _send_all(self) -> None:
        pause_seconds = FIRST_PAUSE_SECONDS
        try:
            while self._pending:
                try:
                    await self._send_some()
                except StorageFailedError:
                    return  # The broker ends by this.
                except LogbrokerError as error:
                    self._complain(error.message)
                    await asyncio.sleep(pause_seconds)
                    pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
                else:
                    pause_seconds = FIRST_PAUSE_SECONDS
        finally:
            self._sending = None

    def _complain(self, why: str) -> None:
        if why != self._complaint:
            self._complaint = why
            _log.warning(
                "queue group %s: topic %s does not take its dead letters, whose lanes wait: %s",
                self._group_id,
                self.topic.name,
                why,
            )

    async def _send_some(self) -> None:
        """Send the letters that come next. Raises what the first one was refused with that was."""
        topic = self.topic.get()
        letters: list[DeadLetter] = []
        for partition, waiting in list(self._pending.items()):  # More may come meanwhile.
            if len(letters) < LETTERS_AT_ONCE:
                await self._check_producer(topic, partition, waiting[0].sequence)
                letters += waiting
        contents: list[tuple[LogRecord, bool]] = []
        size_bytes = 0
        for letter in letters:
            contents.append(await self._content(letter))
            size_bytes += len(contents[-1][0].value or b"")
            if size_bytes > LETTERS_BYTES:
                break
        letters = letters[: len(contents)]
        origin = self._engine.topic_by_id(TopicId(self._queue.topic_id)).name
        appends = [
            self._append(topic, origin, letter, content) for letter, content in zip(letters, contents, strict=True)
        ]
        results = await self._engine.append(appends, Durability.SYNCED)
        refused: dict[int, LogbrokerError] = {}
        for letter, result in zip(letters, results, strict=True):
            if isinstance(result, LogbrokerError):
                # What follows in the same partition was refused for want of this one.
                refused.setdefault(letter.partition, result)
            elif letter.partition not in refused:
                self._done(letter)
        for partition, error in refused.items():
            if isinstance(error, OutOfOrderSequenceError | ProducerFencedError):
                del self._producers[partition]  # The topic lost what it knew of it.
        for error in refused.values():
            raise error
        self._complaint = ""

    def _done(self, letter: DeadLetter) -> None:
        waiting = self._pending[letter.partition]
        waiting.popleft()
        if not waiting:
            del self._pending[letter.partition]
        self.sent += 1
        self._queue.dead_lettered(letter.place, self._moment())
        self._touched()

    async def _check_producer(self, topic: Topic, partition: int, sequence: int) -> None:
        """See to it that a partition has a producer for letters from a sequence on."""
        producer = self._producers.get(partition)
        if producer is not None and producer.topic_id == topic.id and producer.base <= sequence:
            return
        # What is done is to be so after a crash, too: nothing before this letter may be asked of the new producer.
        await self._flush.synced(None)
        producer_id, epoch = await self._engine.init_producer_id()
        producer = Producer(topic.id, producer_id, epoch, sequence)
        await self._flush.synced(None, [upsert(partition_key(PRODUCER_ROW, partition), producer)])
        self._producers[partition] = producer

    async def _content(self, letter: DeadLetter) -> tuple[LogRecord, bool]:
        """Return the record of a letter, and whether it is a whole batch that cannot be decoded.

        Raises what kept it from being read, if only for now.
        """
        replacement = self._queue.replacements.get(letter.place)
        if replacement is not None:
            return replacement, False
        [record] = await self._records.fetch([letter.place])
        if isinstance(record, LogRecord):
            return record, False
        if record.retriable:
            raise record
        empty = LogRecord(offset_of(letter.place), -1, None, None, ())
        if isinstance(record, OffsetOutOfRangeError):
            return empty, False
        [(_, found)] = await self._records.find([letter.place])
        if isinstance(found.batch, StoredBatch):
            empty.value = found.batch.raw
            return empty, True
        raise record

    def _append(self, topic: Topic, origin: str, letter: DeadLetter, content: tuple[LogRecord, bool]) -> Append:
        record, undecodable = content
        new = dead_letter(
            record,
            Origin(
                topic=origin,
                partition=partition_of(letter.place),
                offset=offset_of(letter.place),
                group=self._group_id,
                attempts=letter.attempts,
                first_failure_ms=letter.first_ms,
                last_failure_ms=letter.last_ms,
                reasons=letter.reasons,
                undecodable=undecodable,
            ),
        )
        producer = self._producers[letter.partition]
        stamp = (producer.producer_id, producer.epoch, (letter.sequence - producer.base) & MAX_SEQUENCE)
        batch = with_producer(encode_batch([new]), *stamp)
        if len(batch) > topic.config.max_message_bytes:
            batch = with_producer(encode_batch([new], codec=Codec.ZSTD), *stamp)  # So may the record have come.
        return Append(topic.id, letter.partition % topic.partitions, batch)
