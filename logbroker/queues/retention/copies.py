"""Copies of records that a queue group still needs when they are deleted from the log. The copies lie in an internal
topic of the group.

The internal topic is named after the group. It is made when it is first needed, and has as many partitions as the
group's topic. A copy has the key, value, headers and time of the record, and two more headers with the topic and the
offset of the record. The rows of the group name the batches that hold copies. A copy is valid once the row of its batch
is committed. If a crash leaves a batch without a row, its records are still in the log, and are copied again.

    row       key                                    value
    topic     b"t"                                   the id of the internal topic
    copies    b"c" partition (4) offset (8)          msgpack array, the fields of `CopyBatch`; the key has the offset of
                                                     the last record that is copied in the batch

When all records of a batch are done, the retention of the internal topic deletes the batch. `Copies` is the `Holder` of
that topic.

A batch is lost if its partition can be read, and has another batch or none in its place: an operator has repaired the
partition, and accepted the loss. Its row is given up, and its records are passed over like records that were deleted.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, insort
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from logbroker.config import MAX_INT32, MAX_INT64, MAX_STORED_BATCH_BYTES, MIB, OWN_BYTES
from logbroker.engine import Append, DiskUse, LogEngine, Read, StateEvent, Topic
from logbroker.errors import (
    CorruptLogError,
    LogbrokerError,
    OffsetOutOfRangeError,
    TooManyOpenFilesError,
    UnknownTopicError,
)
from logbroker.queues.model.record_id import offset_of, partition_of, record_id_of
from logbroker.queues.records.decoder import in_decoder
from logbroker.queues.state.completion import DoneRecords
from logbroker.queues.state.rows import (
    COPIES_ROW,
    COPIES_TOPIC_ROW,
    decode,
    delete,
    record_id_in,
    record_row_key,
    upsert,
)
from logbroker.record.codec import BatchBuilder, LogRecord, check_crc, decode_batch
from logbroker.record.compression import Codec
from logbroker.record.header import MAX_EXPANDED_BYTES, parse_header
from logbroker.record.message_headers import COPY_OF, COPY_TOPIC
from logbroker.types import INTERNAL_PREFIX, Durability, TopicId, topic_id_text

_log = logging.getLogger(__name__)

_CODECS: Final = (Codec.ZSTD, Codec.GZIP)
"""Codecs in the order in which they are tried. Gzip is tried only if the batch is too large with zstd."""
_CONFIGS: Final = {
    "durability": "synced",
    "max.message.bytes": str(MAX_STORED_BATCH_BYTES),
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": str(MAX_INT64),
    "segment.bytes": str(16 * MIB),
    # Keep only the records that the group holds.
    "retention.bytes": "0",
    "retention.ms": "-1",
    "retention.hold.bytes": "-1",
}


class CopyBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch of copies."""

    first: int
    """Offset of the first record that is copied in the batch."""
    base_offset: int
    """Base offset of the batch in the internal topic."""


class Copies:
    """The copies of one queue group, and the `Holder` of their internal topic: it tells retention which copies are
    needed."""

    def __init__(
        self,
        group_id: str,
        origin_id: TopicId,
        engine: LogEngine,
        done: DoneRecords,
        commit: Callable[[Sequence[StateEvent]], Awaitable[None]],
    ) -> None:
        """`origin_id` is the group's topic. `commit` stores rows of the group."""
        self.group_id = group_id
        self._name = INTERNAL_PREFIX + group_id
        self._origin_id = origin_id
        self._engine = engine
        self._done = done
        self._commit = commit
        self._batches: dict[int, CopyBatch] = {}
        """Batches of copies, by the id of the last record that each copies."""
        self._lasts: list[int] = []
        """Keys of `_batches`, sorted."""
        self._void: list[StateEvent] = []
        """Events that delete the rows of an internal topic that is gone."""
        self.topic_id: TopicId | None = None
        """Id of the internal topic; None: there is none."""
        self._making: asyncio.Future[Topic] | None = None
        self._begun: dict[int, int] = {}
        """Offset in the internal topic from which copies without a row may lie, by partition, while they are made."""
        self._lost: set[int] = set()
        """Ids of the last records of batches that are lost and still have a row."""
        self._is_open = False

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Load the stored rows. Raises CorruptLogError."""
        if COPIES_TOPIC_ROW not in rows:
            return
        topic_id = TopicId(rows[COPIES_TOPIC_ROW])
        keys = [key for key in rows if key.startswith(COPIES_ROW)]
        try:
            self._engine.topic_by_id(topic_id)
        except UnknownTopicError:
            _log.error("the topic %s is gone, and with it %d batches of records that it kept", self._name, len(keys))
            self._void = [delete(key) for key in keys]
            return
        self._batches = {record_id_in(key): decode(key, rows[key], CopyBatch) for key in keys}
        self._lasts = sorted(self._batches)
        self.topic_id = topic_id

    async def take_up(self) -> None:
        """Adopt copies that the metadata does not know, because the metadata was restored from a backup.

        A batch is adopted if the log no longer has any of its records. If the log has some of them, the others are
        copied again. If it has all of them, the batch was left by a crash, and is ignored.
        """
        try:
            topic = self._engine.topic(self._name)
        except UnknownTopicError:
            return
        if self.topic_id is None:
            await self._engine.alter_topic(topic.id, set_configs=_CONFIGS)
            await self._keep_topic(topic.id)
        for partition in range(topic.partitions):
            try:
                await self._take_up(topic.id, partition)
            except LogbrokerError as error:
                _log.error(
                    "the copies in partition %d of the topic %s cannot be adopted: %s",
                    partition,
                    self._name,
                    error.message,
                )

    async def _take_up(self, topic_id: TopicId, partition: int) -> None:
        facts = self._engine.partition_facts(topic_id, partition)
        kept_from = self._engine.partition_facts(self._origin_id, partition).log_start_offset
        start_offset = facts.log_start_offset
        # The rows go before other copies are appended in the place of those that a repair has cut off.
        end_offset = facts.log_end_offset if self._engine.is_sole_writer else MAX_INT64
        gone = [each for each in self.batches(partition) if not start_offset <= each[1].base_offset < end_offset]
        self._note_lost(partition, [each for each in gone if each[0] >= self.floor(partition)])
        await self.forget(partition, [last for last, _ in gone])
        known = {batch.base_offset for _, batch in self.batches(partition)}
        offset = max(known | {start_offset})
        while offset < facts.high_watermark:
            [result] = await self._engine.read([Read(topic_id, partition, offset, 1, check_crc=True)])
            if isinstance(result, LogbrokerError):
                raise result
            if not result.batches:
                return  # The end of the log is a gap, as a repair leaves one.
            base_offset = parse_header(result.batches).base_offset
            if not await in_decoder(partial(_are_of, result.batches, self._origin_id)):
                offset = result.next_offset  # A group of this name on another topic wrote it, after the backup.
                continue
            records = await in_decoder(partial(_originals, result.batches))
            left = [record for record in records if record.offset < kept_from]
            if base_offset not in known and len(left) == len(records):
                await self._keep(partition, [records], [base_offset])
            elif base_offset not in known and left:
                await self.add(partition, left)
            offset = result.next_offset

    def open(self) -> None:
        """Hold the needed part of the internal topic."""
        if self.topic_id is not None:
            self._engine.hold(self.topic_id, self)
            self._is_open = True

    def close(self) -> None:
        """Release the internal topic."""
        if self._is_open:
            assert self.topic_id is not None
            self._is_open = False
            self._engine.release(self.topic_id, self)

    async def delete(self) -> None:
        """Delete the internal topic of a deleted group, even one that is still being made."""
        if self._making is not None:
            await asyncio.wait([self._making])
        await delete_copies(self._engine, self._name)

    # --- queries -----------------------------------------------------------------------------------------------------

    def batches(self, partition: int, offset: int = 0) -> list[tuple[int, CopyBatch]]:
        """Return the batches with copies of a partition's records from `offset` on, sorted, as pairs: the last copied
        offset, and the batch."""
        index = bisect_left(self._lasts, record_id_of(partition, offset))
        end = bisect_left(self._lasts, record_id_of(partition + 1, 0))
        return [(offset_of(last), self._batches[last]) for last in self._lasts[index:end]]

    def next_batch(self, partition: int, offset: int) -> tuple[int, CopyBatch] | None:
        """Return the batch with the copy of the first record at or above `offset` that was copied, as a pair: the last
        offset that it copies, and the batch."""
        index = bisect_left(self._lasts, record_id_of(partition, offset))
        if index == len(self._lasts) or partition_of(self._lasts[index]) != partition:
            return None
        last = self._lasts[index]
        return offset_of(last), self._batches[last]

    def floor(self, partition: int) -> int:
        """Return the offset below which all records of a partition are done."""
        return self._done.floor(partition) if self._done.is_open(partition) else 0

    def size_bytes(self, partition: int) -> int:
        """Return the bytes that the copies take on disk, including copies that are no longer needed."""
        with suppress(LogbrokerError):
            if self.topic_id is not None:
                return self._engine.partition_facts(self.topic_id, partition).size_bytes
        return 0

    def count_not_done(self, partition: int) -> int:
        """Estimate how many copied records of a partition are not done. The estimate is never too low, unless the
        partition of the internal topic is offline."""
        batches = self.batches(partition)
        if self.topic_id is None or not batches:
            return 0
        with suppress(LogbrokerError):
            end = self._engine.partition_facts(self.topic_id, partition).high_watermark
            bases = sorted(batch.base_offset for _, batch in batches)
            # The offsets of a replaced batch are counted as part of the batch before it.
            sizes = {base: following - base for base, following in zip(bases, [*bases[1:], end], strict=True)}
            first_id = record_id_of(partition, 0)
            return sum(
                min(sizes[batch.base_offset], self._done.count_not_done(first_id | batch.first, (first_id | last) + 1))
                for last, batch in batches
            )
        return 0

    async def read(self, partition: int, last: int, batch: CopyBatch) -> list[LogRecord]:
        """Return the records that a batch copies, as they were; none if the batch is lost.

        Raises UnknownTopicError, PartitionOfflineError, CorruptLogError or CorruptBatchError.
        """
        if self.topic_id is None:
            raise UnknownTopicError(f"the topic {self._name} is gone, and with it the records that it kept")
        [result] = await self._engine.read([Read(self.topic_id, partition, batch.base_offset, 1, check_crc=True)])
        if isinstance(result, LogbrokerError) and not isinstance(result, OffsetOutOfRangeError):
            raise result
        if (
            isinstance(result, OffsetOutOfRangeError)
            or not result.batches
            or parse_header(result.batches).base_offset != batch.base_offset
        ):
            if not self._engine.is_sole_writer:
                # The node that answered may not know the whole log.
                name = f"partition {partition} of {self._name}"
                raise CorruptLogError(f"{name} has no batch at {batch.base_offset} any more")
            self._note_lost(partition, [(last, batch)])
            return []
        return await in_decoder(partial(_originals, result.batches))

    def _note_lost(self, partition: int, lost: Sequence[tuple[int, CopyBatch]]) -> None:
        """Note that batches are lost. Their rows are deleted when batches are forgotten the next time."""
        found = {record_id_of(partition, last): batch for last, batch in lost}
        # A row may have got another batch during the read.
        new = [each for each, batch in found.items() if self._batches.get(each) == batch and each not in self._lost]
        if new:
            self._lost.update(new)
            _log.error(
                "queue group %s: the copies of records %d to %d of partition %d are lost, and given up: %s-%d has no"
                " batch at offset %d any more",
                *(self.group_id, found[new[0]].first, offset_of(new[-1]), partition),
                *(self._name, partition, found[new[0]].base_offset),
            )

    # --- adding and forgetting ---------------------------------------------------------------------------------------

    async def add(self, partition: int, records: Sequence[LogRecord], instead_of: Iterable[int] = ()) -> None:
        """Append a batch of copies of records of a partition, in offset order.

        The new batch replaces those whose last copied offsets are `instead_of`. Raises DiskFullError and the other
        errors of an append or of making a topic.
        """
        await self._add(partition, [records], instead_of)

    async def _add(self, partition: int, batches: Sequence[Sequence[LogRecord]], instead_of: Iterable[int]) -> None:
        topic_id = await self._topic_for(partition)
        self._begun[partition] = self._engine.partition_facts(topic_id, partition).high_watermark
        try:
            base_offsets: list[int] = []
            for records in batches:
                batch = await in_decoder(partial(_encoded_of, self._origin_id, records))
                # Copying lets retention free far more.
                append = Append(topic_id, partition, batch, use=DiskUse.USES_RESERVE)
                [appended] = await self._engine.append([append], Durability.SYNCED)
                if isinstance(appended, LogbrokerError):
                    raise appended
                base_offsets.append(appended.base_offset)
            await self._keep(partition, batches, base_offsets, instead_of)
        finally:
            del self._begun[partition]

    async def _keep(
        self,
        partition: int,
        batches: Sequence[Sequence[LogRecord]],
        base_offsets: Sequence[int],
        instead_of: Iterable[int] = (),
    ) -> None:
        """Store the rows of batches of copies in the place of other rows."""
        added = {
            record_id_of(partition, records[-1].offset): CopyBatch(records[0].offset, base_offset)
            for records, base_offset in zip(batches, base_offsets, strict=True)
        }
        gone = [record_id_of(partition, offset) for offset in instead_of]
        events = [delete(record_row_key(COPIES_ROW, record_id)) for record_id in gone if record_id not in added]
        await self._commit([*events, *(upsert(record_row_key(COPIES_ROW, last), each) for last, each in added.items())])
        self._remove(gone)
        for last, copied in added.items():
            if last not in self._batches:
                insort(self._lasts, last)
            self._batches[last] = copied

    async def forget(self, partition: int, lasts: Iterable[int]) -> None:
        """Delete the rows of the batches with these last copied offsets. Their copies are then no longer needed."""
        gone = [record_id_of(partition, offset) for offset in lasts]
        if gone:
            await self._commit([delete(record_row_key(COPIES_ROW, record_id)) for record_id in gone])
            self._remove(gone)

    async def split(self, partition: int, offset: int) -> None:
        """Split the batch that copies records on both sides of an offset, if there is one. Raises the errors of `read`
        and `add`."""
        for last, batch in self.batches(partition, offset):
            if batch.first < offset:
                records = await self.read(partition, last, batch)
                sides = (
                    [record for record in records if record.offset < offset],
                    [record for record in records if record.offset >= offset],
                )
                await self._add(partition, [side for side in sides if side], [last])

    async def forget_done(self, partition: int) -> None:
        """Forget the batches whose records are all done, and those that are lost."""
        floor = self.floor(partition)
        lasts = [last for last, _ in self.batches(partition)]
        await self.forget(
            partition, [last for last in lasts if last < floor or record_id_of(partition, last) in self._lost]
        )

    def _remove(self, lasts: Iterable[int]) -> None:
        for last in lasts:
            del self._batches[last]
            self._lost.discard(last)
            del self._lasts[bisect_left(self._lasts, last)]

    async def _topic_for(self, partition: int) -> TopicId:
        """Return the id of the internal topic, after making or growing it so that it has this partition."""
        partitions = self._engine.topic_by_id(self._origin_id).partitions
        if self.topic_id is None:
            with suppress(UnknownTopicError):  # Made before a crash and not recorded.
                await self._engine.delete_topic(self._engine.topic(self._name).id)
            # A cancellation of this call does not interrupt the creation of the topic.
            self._making = asyncio.ensure_future(self._engine.create_topic(self._name, partitions, _CONFIGS))
            topic = await asyncio.shield(self._making)
            await self._keep_topic(topic.id)
            self.open()
            return topic.id
        topic = self._engine.topic_by_id(self.topic_id)
        if topic.config.max_message_bytes < MAX_STORED_BATCH_BYTES:
            await self._engine.alter_topic(self.topic_id, set_configs=_CONFIGS)  # Made by a version with a lower limit.
        if partition >= topic.partitions:
            await self._engine.alter_topic(self.topic_id, partitions=partitions)
        return self.topic_id

    async def _keep_topic(self, topic_id: TopicId) -> None:
        """Store the id of the internal topic."""
        await self._commit([*self._void, StateEvent(COPIES_TOPIC_ROW, topic_id)])
        self._void = []
        self.topic_id = topic_id

    # --- holder of the internal topic --------------------------------------------------------------------------------

    def needed_from(self, partition: int) -> int:
        batches = self.batches(partition, self.floor(partition))
        begun = self._begun.get(partition, MAX_INT64)
        return min(begun, min((batch.base_offset for _, batch in batches), default=MAX_INT64))

    def let_go(self, partition: int, offset: int) -> Awaitable[None]:
        """Forget the batches whose records are all done. When that is stored, what `needed_from` said before is, too.
        Only a log whose retention does not wait for holders asks: the topic sets no bound on what is held."""
        return self.forget_done(partition)

    def removed(self, partition: int) -> None:
        """Do nothing: only copies that are not needed are removed."""


async def delete_copies(engine: LogEngine, name: str) -> None:
    """Delete the internal topic of a deleted group, if it exists."""
    try:
        with suppress(UnknownTopicError):
            await engine.delete_topic(engine.topic(name).id)
    except TooManyOpenFilesError as error:
        _log.warning("%s is deleted, but its files are not gone yet: %s", name, error.message)


def _encoded_of(origin_id: TopicId, records: Sequence[LogRecord]) -> bytes:
    topic = (COPY_TOPIC, topic_id_text(origin_id).encode("ascii"))
    return _encoded([replace(record, headers=(*record.headers, topic)) for record in records])


def _are_of(batch: bytes, origin_id: TopicId) -> bool:
    """Return whether a batch may copy records of this topic; copies that older brokers made do not name their topic."""
    for record in decode_batch(batch, max_expanded_bytes=MAX_EXPANDED_BYTES + OWN_BYTES):
        told = [value for name, value in record.headers[-2:] if name == COPY_TOPIC]
        return told in ([], [topic_id_text(origin_id).encode("ascii")])
    return False


def _encoded(records: Sequence[LogRecord]) -> bytes:
    batch = b""
    for codec in _CODECS:
        builder = BatchBuilder(MAX_INT32, codec)
        for index, record in enumerate(records):
            headers = [*record.headers, (COPY_OF, b"%d" % record.offset)]
            builder.append(index, record.timestamp_ms, record.key, record.value, headers)
        packed = builder.build()
        batch = min(batch or packed, packed, key=len)
        if len(batch) <= MAX_STORED_BATCH_BYTES:
            break
    return batch


def _originals(batch: bytes) -> list[LogRecord]:
    check_crc(parse_header(batch), batch)
    # Copying has added headers to the records, so the bound is higher.
    records = list(decode_batch(batch, max_expanded_bytes=MAX_EXPANDED_BYTES + OWN_BYTES))
    for record in records:
        name, value = record.headers[-1] if record.headers else ("", None)
        if name != COPY_OF or value is None or not value.isdigit():
            raise CorruptLogError(f"the record at offset {record.offset} is no copy")
        own = 2 if len(record.headers) > 1 and record.headers[-2][0] == COPY_TOPIC else 1
        record.headers = record.headers[:-own]
        record.offset = int(value)
    return records
