"""Finds records: all records of a key, or the first record at or after a time."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from logbroker.record.codec import LogRecord
from logbroker.tools.segments.locate import Located
from logbroker.tools.segments.metadata import is_live
from logbroker.tools.segments.reading import UNREADABLE, Progress, SegmentBatch, SegmentReading, records_of


class FoundRecord(msgspec.Struct, kw_only=True, gc=False):
    """A record that was found, and its position."""

    path: str
    """Path of the log file."""
    position: int
    """Position of the batch's first byte."""
    offset: int
    timestamp: int
    """Milliseconds since 1970; -1 if the record has no timestamp."""


def find_key(located: Located, key: bytes, progress: Progress, damaged: list[SegmentReading]) -> Iterator[FoundRecord]:
    """Yield every record with this key. Batches that cannot be decoded are skipped. Raises OSError.

    Segments that have damage are added to `damaged`, because their damaged parts may have held such records.
    """
    for partition in located.partitions:
        live = is_live(partition)
        for segment in partition.listed():
            reading = SegmentReading(segment, progress, live=live)
            for batch in reading.batches():
                for record in _records(batch, holding=key):
                    if record.key == key:
                        yield _found(segment.path, batch, record)
            if reading.faults:
                damaged.append(reading)


def find_time(
    located: Located, timestamp_ms: int, progress: Progress, damaged: list[SegmentReading]
) -> Iterator[FoundRecord]:
    """Yield the first record of each partition at or after a time. Raises OSError.

    Reads and checks the batches of the log and does not use the time index, so a damaged header or index does not
    mislead. Segments with damage before the record are added to `damaged`.
    """
    for partition in located.partitions:
        live = is_live(partition)
        for segment in partition.listed():
            reading = SegmentReading(segment, progress, live=live)
            found = next(_at_or_after(segment.path, reading, timestamp_ms), None)
            if reading.faults:
                damaged.append(reading)
            if found is not None:
                yield found
                break


def _at_or_after(path: str, reading: SegmentReading, timestamp_ms: int) -> Iterator[FoundRecord]:
    for batch in reading.batches():
        if batch.header.max_timestamp_ms >= timestamp_ms:
            for record in _records(batch):
                if record.timestamp_ms >= timestamp_ms:
                    yield _found(path, batch, record)


def _records(batch: SegmentBatch, holding: bytes = b"") -> Iterator[LogRecord]:
    """Yield the records of a batch. Yield none if the batch does not contain the bytes `holding`, or cannot be
    decoded."""
    if batch.header.is_control:
        return
    try:
        plain = batch.plain()
        if holding in plain:
            yield from records_of(plain)
    except UNREADABLE:
        return


def _found(path: str, batch: SegmentBatch, record: LogRecord) -> FoundRecord:
    return FoundRecord(path=path, position=batch.position, offset=record.offset, timestamp=record.timestamp_ms)
