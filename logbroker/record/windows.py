"""Splits large batches into windows, so that a client's bytes cannot become an unlimited number of objects at once.

A record header takes two bytes of a batch and about a hundred in memory. The compiled codec makes all headers of a
record before it checks whether they lie within the record: 300 compressed bytes would become 250 MB. A window cannot
have more headers than half its bytes. If a record is larger than a window, its headers are counted first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from logbroker.errors import BatchExpandsTooFarError, CorruptBatchError
from logbroker.record.header import HEADER_BYTES, BatchHeader
from logbroker.record.varint import read_varint

WINDOW_BYTES: Final = 1024 * 1024
"""Maximum size of a window, without the batch header, unless a single record is larger. Most batches never expand to
more, and are decoded as a whole."""
MAX_HEADERS: Final = WINDOW_BYTES // 2
"""Maximum number of headers of one record, and of all records of a batch that are read together."""

_COUNT_AT: Final = HEADER_BYTES - 4


def windows(header: BatchHeader, plain: bytes | bytearray) -> Iterator[bytes | bytearray]:
    """Yield the records of an uncompressed batch in their order, as one or more smaller batches.

    Raises CorruptBatchError, and BatchExpandsTooFarError for a record with too many headers.
    """
    end = len(plain)
    if end <= HEADER_BYTES + WINDOW_BYTES:
        yield plain
        return
    start = position = HEADER_BYTES
    count, left = 0, header.record_count
    try:
        while position < end:
            length, content = read_varint(plain, position)
            following = content + (length >> 1)
            if not left or length & 1 or following > end:
                raise IndexError
            if following - start > WINDOW_BYTES and count:
                yield _window(plain, start, position, count)
                start, count = position, 0
            if following - start > WINDOW_BYTES:
                _check_headers(header, plain, content)
            position = following
            count += 1
            left -= 1
    except IndexError:
        raise CorruptBatchError(
            f"the batch at offset {header.base_offset} has other records than its header counts"
        ) from None
    if left:
        raise CorruptBatchError(f"the batch at offset {header.base_offset} has other records than its header counts")
    yield _window(plain, start, end, count)


def _window(plain: bytes | bytearray, start: int, end: int, count: int) -> bytes:
    return b"".join((plain[:_COUNT_AT], count.to_bytes(4, "big"), memoryview(plain)[start:end]))


def _check_headers(header: BatchHeader, plain: bytes | bytearray, position: int) -> None:
    position += 1  # attributes
    for _ in range(2):  # time and offset
        _, position = read_varint(plain, position)
    for _ in range(2):  # key and value
        length, position = read_varint(plain, position)
        position += 0 if length & 1 else length >> 1
    count = read_varint(plain, position)[0] >> 1
    if count > MAX_HEADERS:
        raise BatchExpandsTooFarError(
            f"a record of the batch at offset {header.base_offset} has {count} headers; at most {MAX_HEADERS} are read"
        )
