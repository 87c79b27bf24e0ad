"""Search for batches that an interrupted append may have left in the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from logbroker.engine import LogEngine, Read
from logbroker.errors import LogbrokerError, OffsetOutOfRangeError
from logbroker.queues.model.messages import Output
from logbroker.record.codec import split_batches
from logbroker.record.header import BatchHeader, parse_header
from logbroker.types import TopicId

READ_BYTES: Final = 1024 * 1024

Stamp = tuple[int, int, int, int]
"""Identity of a batch in the outbox: partition, producer id, epoch and base sequence."""


def stamp(output: Output) -> Stamp:
    """Return the stamp of a batch in the outbox."""
    return _stamp(output.partition, parse_header(output.batch))


async def appended(engine: LogEngine, topic_id: TopicId, outputs: Iterable[Output]) -> set[Stamp]:
    """Return the stamps of the outputs that the log of the topic already has. All outputs must be for this topic.
    Raises the error of a partition that cannot be read."""
    wanted: dict[int, set[Stamp]] = {}
    starts: dict[int, int] = {}
    for output in outputs:
        wanted.setdefault(output.partition, set()).add(stamp(output))
        starts[output.partition] = min(starts.get(output.partition, output.searched_from), output.searched_from)
    found: set[Stamp] = set()
    for partition, start in starts.items():
        found |= await _found(engine, topic_id, partition, start, wanted[partition])
    return found


async def _found(engine: LogEngine, topic_id: TopicId, partition: int, offset: int, wanted: set[Stamp]) -> set[Stamp]:
    found: set[Stamp] = set()
    facts = engine.partition_facts(topic_id, partition)
    offset = max(offset, facts.log_start_offset)
    while offset < facts.high_watermark and len(found) < len(wanted):
        [result] = await engine.read([Read(topic_id, partition, offset, READ_BYTES)])
        if isinstance(result, OffsetOutOfRangeError):
            offset = max(offset + 1, engine.partition_facts(topic_id, partition).log_start_offset)
            continue
        if isinstance(result, LogbrokerError):
            raise result
        for header, _ in split_batches(result.batches):
            found |= {_stamp(partition, header)} & wanted
        offset = result.next_offset
    return found


def _stamp(partition: int, header: BatchHeader) -> Stamp:
    return partition, header.producer_id, header.producer_epoch, header.base_sequence
