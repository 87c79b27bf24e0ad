"""Routing of outputs: which records go to which partitions, in batches within the limits of their topic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from logbroker.engine import LogEngine, Topic
from logbroker.errors import BatchExpandsTooFarError, RecordTooLargeError
from logbroker.queues.model.messages import Output
from logbroker.record.codec import NewRecord, decode_batch, encode_to_fit
from logbroker.record.header import BatchHeader, parse_header
from logbroker.record.partitioner import Router
from logbroker.record.stored_batch import StoredBatch

MAX_BATCH_RECORDS: Final = 10_000
MAX_BATCH_HEADERS: Final = 100_000
"""Maximum number of records of a batch, and of their headers: it may have to be decoded as a whole, to be routed
anew."""


def routed(
    topic: Topic, records: Sequence[NewRecord], partition: int | None, ordering_key: bytes | None
) -> list[tuple[int, bytes]]:
    """Return the batches of records, with their partitions, in order. Without a partition, each record goes where a
    producer would send it, by the ordering key if there is one; records without a key stay together.

    Raises RecordTooLargeError or BatchExpandsTooFarError.
    """
    by_partition: dict[int, list[NewRecord]] = {}
    if partition is not None:
        by_partition[partition] = list(records)
    else:
        router = Router(topic.routing_bands, topic.partitions)
        for record in records:
            key = record.key if ordering_key is None else ordering_key
            by_partition.setdefault(router.partition(key, record.headers), []).append(record)
    return [
        (chosen, batch)
        for chosen, part in by_partition.items()
        for batch in _batches(part, topic.config.max_message_bytes)
    ]


def outputs_for(
    engine: LogEngine,
    topic: Topic,
    batches: Iterable[tuple[int, bytes]],
    generation: int,
    ordering_key: bytes | None,
) -> list[Output]:
    """Return batches as outputs. Raises UnknownPartitionError, PartitionOfflineError or another error of a partition
    that accepts no batches."""
    return [
        Output(
            topic_id=topic.id,
            partition=partition,
            generation=generation,
            searched_from=engine.partition_facts(topic.id, partition).log_end_offset,
            batch=batch,
            ordering_key=ordering_key,
        )
        for partition, batch in batches
    ]


def check_readable(header: BatchHeader, batch: bytes) -> None:
    """Raise an error of decoding if `records_of` could not read the records of a batch to route them anew."""
    _check_count(header)
    _, headers = StoredBatch(header, batch).column("headers")
    if sum(map(len, headers)) > MAX_BATCH_HEADERS:
        raise _too_many_headers()


def records_of(batch: bytes) -> list[NewRecord]:
    """Return the records of a batch, to be routed anew. Raises CorruptBatchError, BatchExpandsTooFarError and other
    errors of decoding."""
    _check_count(parse_header(batch))
    records: list[NewRecord] = []
    headers_left = MAX_BATCH_HEADERS
    for record in decode_batch(batch):
        headers_left -= len(record.headers)
        if headers_left < 0:
            raise _too_many_headers()
        # A timestamp that no record can have is replaced by the broker's time.
        timestamp_ms = record.timestamp_ms if 0 <= record.timestamp_ms < 1 << 62 else None
        records.append(NewRecord(record.value, record.key, record.headers, timestamp_ms))
    return records


def _check_count(header: BatchHeader) -> None:
    if header.record_count > MAX_BATCH_RECORDS:
        raise BatchExpandsTooFarError(
            f"the batch has {header.record_count:,} records; a settlement takes batches of at most"
            f" {MAX_BATCH_RECORDS:,}: send several"
        )


def _too_many_headers() -> BatchExpandsTooFarError:
    return BatchExpandsTooFarError(
        f"the records of the batch have more than {MAX_BATCH_HEADERS:,} headers: send fewer in a batch"
    )


def _batches(records: Sequence[NewRecord], max_bytes: int) -> list[bytes]:
    batch = encode_to_fit(records, max_bytes)
    if len(batch) <= max_bytes:
        return [batch]
    if len(records) == 1:
        raise RecordTooLargeError(
            f"the record makes a batch of {len(batch)} bytes; the topic takes {max_bytes} (max.message.bytes)"
        ).with_bound(max_bytes)
    middle = len(records) // 2
    return _batches(records[:middle], max_bytes) + _batches(records[middle:], max_bytes)
