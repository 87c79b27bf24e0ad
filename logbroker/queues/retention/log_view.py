"""The log of a queue group's topic as the group reads it: records that were deleted are read from the group's copies.

Copies lie at the offsets of their records, with gaps between them, below the start of the remaining log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from logbroker.command_line import command_line
from logbroker.config import MAX_INT32
from logbroker.engine import LogEngine, PartitionFacts, Read, ReadResult, Topic, Watch
from logbroker.errors import CorruptLogError, LogbrokerError, OffsetOutOfRangeError
from logbroker.queues.records.decoder import in_decoder
from logbroker.queues.retention.copies import Copies
from logbroker.record.codec import BatchBuilder, LogRecord
from logbroker.record.header import PREFIX_BYTES, parse_header, stored_prefix
from logbroker.types import TopicId


class RetainedLog:
    """The `logbroker.engine.ReadableLog` of one queue group, for its own topic."""

    def __init__(self, engine: LogEngine, copies: Copies) -> None:
        self._engine = engine
        self._copies = copies
        self.topic_by_id: Callable[[TopicId], Topic] = engine.topic_by_id
        self.partitions_per_read = engine.partitions_per_read

    def partition_facts(self, topic_id: TopicId, partition: int) -> PartitionFacts:
        """Return the engine's facts, with the first offset of the copies as the log start offset."""
        facts = self._engine.partition_facts(topic_id, partition)
        first = self._copies.next_batch(partition, 0)
        if first is not None and first[1].first < facts.log_start_offset:
            facts = msgspec.structs.replace(facts, log_start_offset=first[1].first)
        return facts

    def watch(self, wake: Callable[[], None]) -> Watch:
        return self._engine.watch(wake)

    async def read(self, reads: Sequence[Read]) -> list[ReadResult | LogbrokerError]:
        results = await self._engine.read(reads)
        for index, (wish, result) in enumerate(zip(reads, results, strict=True)):
            if isinstance(result, OffsetOutOfRangeError):
                results[index] = await self._read_below(wish, result)
        return results

    async def _read_below(self, wish: Read, refusal: OffsetOutOfRangeError) -> ReadResult | LogbrokerError:
        """Read one batch of copies or, if none follows, the start of the remaining log. Lost copies are passed over."""
        try:
            facts = self._engine.partition_facts(wish.topic_id, wish.partition)
            log_start_offset = facts.log_start_offset
            if wish.offset >= log_start_offset or self._copies.next_batch(wish.partition, 0) is None:
                return refusal
            offset = wish.offset
            while following := self._copies.next_batch(wish.partition, offset):
                last_copied, batch = following
                if batch.first >= log_start_offset:
                    break
                try:
                    copied = await self._copies.read(wish.partition, last_copied, batch)
                except CorruptLogError as error:
                    options = ("--partition", str(wish.partition), "--to", str(log_start_offset))
                    command = command_line("queue rewind", self._copies.group_id, options=options)
                    damage = CorruptLogError(f"{error.message}. Or give the damaged copies up: `{command}`")
                    damage.readable_from = min(last_copied + 1, log_start_offset)
                    raise damage from None
                # A crash may leave copies of records that the log still has.
                records = [record for record in copied if record.offset < log_start_offset]
                if records and (last := records[-1].offset) >= wish.offset:
                    batches = await in_decoder(partial(_in_place, records))
                    return ReadResult(
                        batches, last + 1, facts.high_watermark, log_start_offset, facts.leader_epoch, log_start_offset
                    )
                offset = last_copied + 1
        except LogbrokerError as error:
            return error.as_value()
        [result] = await self._engine.read([msgspec.structs.replace(wish, offset=log_start_offset)])
        return result


def _in_place(records: Sequence[LogRecord]) -> bytes:
    """Return a batch with the records at their offsets."""
    base_offset = records[0].offset
    builder = BatchBuilder(MAX_INT32)
    for record in records:
        builder.append(record.offset - base_offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    batch = builder.build()
    return stored_prefix(base_offset, parse_header(batch).length, 0) + batch[PREFIX_BYTES:]
