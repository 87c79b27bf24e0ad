"""Fetches records by their ids: from the cache if their batch is still there, else from the log.

The index holds no records, so its size does not depend on the size of the records. If records are handed out soon after
the scan, their batches are kept as bytes, and only the requested records are decoded. Other batches are read again. A
batch that is read for one record is kept, too, because its other records are likely to be next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from logbroker.engine import Read, ReadableLog, ReadResult, damage_at
from logbroker.errors import (
    CorruptLogError,
    InvalidRequestError,
    LogbrokerError,
    OffsetOutOfRangeError,
    OverloadedError,
)
from logbroker.queues.model.record_id import OFFSET_MASK, offset_of, partition_of, record_id_of
from logbroker.queues.records.batch_cache import BatchCache, Found, GroupBatches
from logbroker.queues.records.decoder import INLINE_BYTES, in_decoder_if
from logbroker.record.codec import LogRecord
from logbroker.record.stored_batch import Pieces, StoredBatch, stored_batches
from logbroker.types import TopicId

MAX_READ_BYTES: Final = 1024 * 1024
INLINE_RECORDS: Final = 2048

_NEAR_RECORDS: Final = 256
"""Distance up to which records are read with a single read."""
_READS_AT_ONCE: Final = 16

NO_BOUND: Final = 1 << 63
LATER: Final = OverloadedError("the records before it take all the memory that one fetch may take")


class Records:
    """The records of one topic, for one queue group."""

    def __init__(self, engine: ReadableLog, topic_id: TopicId, cache: BatchCache) -> None:
        self.batches = GroupBatches(cache)
        self._engine = engine
        self._topic_id = topic_id
        self._record_bytes = 1.0
        """Mean size of records in the last read."""
        self._starts: dict[int, int] = {}
        """Record id of the log start of the partitions from which records were removed."""

    # --- reading -----------------------------------------------------------------------------------------------------

    async def fetch(self, record_ids: Sequence[int], max_bytes: int = NO_BOUND) -> list[LogRecord | LogbrokerError]:
        """Return the records with these ids, in their order.

        An error takes the place of a record: OffsetOutOfRangeError if the log no longer has it, an InvalidRequestError
        (such as CorruptBatchError) if its batch is stored as it was sent and cannot be decoded, and `LATER` if the
        records before it take about `max_bytes` of memory or more. Any other error means that the record cannot be read
        now (such as PartitionOfflineError, or CorruptLogError if the stored bytes are damaged). At least one record is
        fetched.
        """
        groups = await self.find(record_ids, max_bytes)
        closed = {
            found.start: found.batch
            for _, found in groups
            if isinstance(found.batch, StoredBatch) and not found.batch.is_open
        }
        records = await in_decoder_if(
            len(record_ids) > INLINE_RECORDS or any(map(is_large, closed.values())),
            lambda: _decode(groups, max_bytes),
        )
        for start in closed:
            self.batches.recount(start)
        self.batches.cache.evict()
        await self._blame_damage(groups, records)
        return records

    async def _blame_damage(
        self, groups: Sequence[tuple[Sequence[int], Found]], records: list[LogRecord | LogbrokerError]
    ) -> None:
        """Replace the errors of batches that cannot be decoded because the stored bytes are damaged."""
        index = 0
        for record_ids, found in groups:
            end = index + len(record_ids)
            if isinstance(records[index], InvalidRequestError):
                partition = partition_of(found.start)
                damage = await damage_at(self._engine, self._topic_id, partition, offset_of(found.start))
                if damage is not None:
                    records[index:end] = [damage.as_value()] * len(record_ids)
            index = end

    async def find(self, record_ids: Sequence[int], max_bytes: int = NO_BOUND) -> list[tuple[Sequence[int], Found]]:
        """Return the batches with these record ids: slices of the ids in their order, each with its batch. Decodes
        nothing.

        After about `max_bytes` are read from the log, the other batches are `LATER`.
        """
        loaded: list[Found] = []
        while True:
            groups, missing = self._group(record_ids, loaded)
            if not missing:
                return groups
            # A batch that was in the cache may be evicted by now. Then another round reads it.
            loaded = sorted([*loaded, *await self._load(_spans(missing), max_bytes)], key=lambda found: found.start)

    def _group(
        self, record_ids: Sequence[int], loaded: Sequence[Found]
    ) -> tuple[list[tuple[Sequence[int], Found]], list[tuple[int, int]]]:
        """Return slices of the record ids with their batches, and the spans (first, last) without a known batch."""
        groups: list[tuple[Sequence[int], Found]] = []
        missing: list[tuple[int, int]] = []
        index, count = 0, len(record_ids)
        while index < count:
            record_id = record_ids[index]
            found = self.batches.find(record_id) or _covering(loaded, record_id)
            if found is None:
                last = (
                    self.batches.last_not_kept(record_id, record_ids.stop)
                    if isinstance(record_ids, range)
                    else record_id
                )
                missing.append((record_id, last))
                index += last + 1 - record_id
                continue
            begun, start, end = index, found.start, found.end
            if isinstance(record_ids, range):
                index = min(count, begun + end - record_id)
            else:
                while index < count and start <= record_ids[index] < end:
                    index += 1
            groups.append((record_ids[begun:index], found))
        return groups, missing

    async def _load(self, spans: list[tuple[int, int]], max_bytes: int) -> list[Found]:
        """Read the batches with the records of some spans (first, last); the results cover all spans."""
        loaded: list[Found] = []
        while spans and max_bytes > 0:
            now, spans = spans[:_READS_AT_ONCE], spans[_READS_AT_ONCE:]
            results = await self._engine.read([self._wish(first, last) for first, last in now])
            for (first, last), result in zip(now, results, strict=True):
                if isinstance(result, ReadResult):
                    max_bytes -= len(result.batches)
                covered = self._take_in(first, last, result, loaded)
                if covered <= last:
                    spans.append((covered, last))
        loaded += (Found(first, last + 1, LATER) for first, last in spans)
        self.batches.cache.evict()
        return loaded

    def _wish(self, first: int, last: int) -> Read:
        size_bytes = min(MAX_READ_BYTES, int((last - first + 1) * self._record_bytes))
        return Read(self._topic_id, partition_of(first), offset_of(first), max(1, size_bytes))

    def _take_in(self, first: int, last: int, result: ReadResult | LogbrokerError, loaded: list[Found]) -> int:
        """Add the batches read for a span; return the record id below which the span is now covered."""
        partition = partition_of(first)
        if isinstance(result, LogbrokerError):
            end = last + 1
            readable_from = -1
            if isinstance(result, OffsetOutOfRangeError):
                readable_from = self._log_start(partition)
            elif isinstance(result, CorruptLogError):
                readable_from = result.readable_from
            if readable_from >= 0:
                end = min(end, max(first + 1, record_id_of(partition, readable_from)))
            loaded.append(Found(first, end, result))
            return end
        if not result.batches:
            loaded.append(Found(first, last + 1, OffsetOutOfRangeError(f"offset {offset_of(first)} is not readable")))
            return last + 1
        record_id = begun = first
        start = max(record_id_of(partition, result.log_start_offset), self._starts.get(partition, 0))
        try:
            for batch in stored_batches(result.batches):
                found = _found(partition, batch)
                if found.start < start < found.end:
                    found = found._replace(start=start)  # The records before the log start are deleted.
                begun = min(begun, found.start)
                if record_id < found.start:
                    loaded.append(Found(record_id, found.start, OffsetOutOfRangeError("the log has a gap there")))
                loaded.append(found)
                self.batches.add(found)
                record_id = found.end
        except LogbrokerError as error:
            loaded.append(Found(record_id, last + 1, error))
            return last + 1
        self._record_bytes = len(result.batches) / (record_id - begun)
        return record_id

    def _log_start(self, partition: int) -> int:
        try:
            return self._engine.partition_facts(self._topic_id, partition).log_start_offset
        except LogbrokerError:
            return 0

    # --- keeping -----------------------------------------------------------------------------------------------------

    def removed(self, partition: int, log_start_offset: int) -> None:
        """Note that the records of a partition below an offset were removed from the log. Those that the group still
        needs are read from its copies, and the others are deleted. So none of them is taken from the cache."""
        start = self._starts[partition] = record_id_of(partition, log_start_offset)
        self.batches.remove_between(record_id_of(partition, 0), start)

    def keep(self, partition: int, batch: StoredBatch) -> None:
        """Keep a scanned batch in the cache, because its records will be handed out soon."""
        found = _found(partition, batch)
        if found.start >= self._starts.get(partition, 0):
            self.batches.add(found)
            self.batches.cache.evict()


def _found(partition: int, batch: StoredBatch) -> Found:
    header = batch.header
    return Found(record_id_of(partition, header.base_offset), record_id_of(partition, header.next_offset), batch)


def _covering(loaded: Sequence[Found], record_id: int) -> Found | None:
    index = bisect_right(loaded, record_id, key=lambda found: found.start) - 1
    return loaded[index] if index >= 0 and record_id < loaded[index].end else None


def _spans(missing: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join neighbouring spans (first, last) that are read with a single read."""
    missing.sort()
    spans: list[tuple[int, int]] = []
    first, last = missing[0]
    for begin, end in missing:
        if begin - last > _NEAR_RECORDS:
            spans.append((first, last))
            first = begin
        last = max(last, end)
    spans.append((first, last))
    return spans


def is_large(batch: StoredBatch) -> bool:
    """Return whether searching a batch belongs in the decoder thread."""
    return len(batch.raw) > INLINE_BYTES or batch.header.codec != 0


def _decode(groups: Sequence[tuple[Sequence[int], Found]], max_bytes: int) -> list[LogRecord | LogbrokerError]:
    # Decoding batch after batch holds only one expanded batch at a time.
    if all(map(_needs_no_expansion, groups)):
        try:
            decoded = _decode_at_once(groups, max_bytes)
        except LogbrokerError:
            decoded = None
        if decoded is not None:
            return [*decoded]
    return _decode_one_by_one(groups, max_bytes)  # Here, an error of one record does not affect the others.


def _needs_no_expansion(group: tuple[Sequence[int], Found]) -> bool:
    batch = group[1].batch
    return isinstance(batch, StoredBatch) and (batch.is_open or not batch.header.codec)


def _decode_at_once(groups: Sequence[tuple[Sequence[int], Found]], max_bytes: int) -> list[LogRecord] | None:
    """Decode all records in one pass; None: they would take more than `max_bytes`. Raises the error of the first record
    that cannot be decoded."""
    pieces = Pieces()
    for record_ids, found in groups:
        if max_bytes <= 0:
            return None
        assert isinstance(found.batch, StoredBatch)
        max_bytes -= pieces.add(found.batch, [record_id & OFFSET_MASK for record_id in record_ids])
    return pieces.records()


def _decode_one_by_one(
    groups: Sequence[tuple[Sequence[int], Found]], max_bytes: int
) -> list[LogRecord | LogbrokerError]:
    records: list[LogRecord | LogbrokerError] = []
    for record_ids, found in groups:
        batch = found.batch
        if isinstance(batch, LogbrokerError) or max_bytes <= 0:
            records += [batch if isinstance(batch, LogbrokerError) else LATER] * len(record_ids)
            continue
        size_bytes = batch.size_bytes
        decoded = _records_of(batch, record_ids)
        batch.let_go()
        max_bytes -= batch.size_bytes - size_bytes
        max_bytes -= sum(len(record.value or b"") for record in decoded if isinstance(record, LogRecord))
        records += decoded
    return records


def _records_of(batch: StoredBatch, record_ids: Sequence[int]) -> Sequence[LogRecord | LogbrokerError]:
    try:
        return batch.records([offset_of(record_id) for record_id in record_ids])
    except OffsetOutOfRangeError as error:
        # A missing record does not affect the others.
        return (
            [error.as_value()]
            if len(record_ids) == 1
            else [_records_of(batch, [record_id])[0] for record_id in record_ids]
        )
    except LogbrokerError as error:
        return [error.as_value()] * len(record_ids)
