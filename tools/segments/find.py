"""Finding records: all with a key, or the first one of a time."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from logbroker.record.codec import LogRecord
from logbroker.tools.segments.locate import Located
from logbroker.tools.segments.reading import UNREADABLE, Batch, Progress, SegmentReading, records_of


class Found(msgspec.Struct, kw_only=True, gc=False):
    """A record and where it lies."""

    path: str
    """Of the log file."""
    position: int
    """Of the batch's first byte."""
    offset: int
    timestamp: int
    """Milliseconds since 1970; -1: none."""


def find_key(located: Located, key: bytes, progress: Progress) -> Iterator[Found]:
    """Yield every record with this key; batches that cannot be decoded are passed over. Raises OSError."""
    for partition in located.partitions:
        for segment in partition.segments:
            for batch in SegmentReading(segment, progress).batches():
                for record in _records(batch, holding=key):
                    if record.key == key:
                        yield _found(segment.path, batch, record)


def find_time(located: Located, timestamp_ms: int, progress: Progress) -> Iterator[Found]:
    """Yield for each partition its first record of this time or later. Raises OSError.

    Goes by the headers of the log, not by its time index, so that a damaged index does not mislead.
    """
    for partition in located.partitions:
        for segment in partition.segments:
            found = next(
                _at_or_after(segment.path, SegmentReading(segment, progress, headers_only=True), timestamp_ms), None
            )
            if found is not None:
                yield found
                break


def _at_or_after(path: str, reading: SegmentReading, timestamp_ms: int) -> Iterator[Found]:
    for batch in reading.batches():
        if batch.header.max_timestamp_ms >= timestamp_ms:
            for record in _records(batch):
                if record.timestamp_ms >= timestamp_ms:
                    yield _found(path, batch, record)


def _records(batch: Batch, holding: bytes = b"") -> Iterator[LogRecord]:
    """The records of a batch, or none where none has these bytes or they cannot be decoded."""
    if batch.header.is_control:
        return
    try:
        plain = batch.plain()
        if holding in plain:
            yield from records_of(plain)
    except UNREADABLE:
        return


def _found(path: str, batch: Batch, record: LogRecord) -> Found:
    return Found(path=path, position=batch.position, offset=record.offset, timestamp=record.timestamp_ms)
