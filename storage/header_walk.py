"""Walking a log file from batch header to batch header."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from logbroker.errors import CorruptLogError
from logbroker.record.header import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC, BatchHeader, parse_header
from logbroker.storage.files import Files
from logbroker.storage.handles import Handle
from logbroker.storage.index_file import Entry

SHORT_WALK_BYTES: Final = 4096
"""Read at a time where a few headers are wanted: small batches share a read, of large ones little is read in vain."""
LONG_WALK_BYTES: Final = 1 << 18
"""Read at a time where all headers of a segment are wanted."""
NO_TIMESTAMP: Final = -1

_INDEX_INTERVAL_BYTES: Final = 4096


def walk_headers(
    files: Files,
    handle: Handle,
    base_offset: int,
    position: int,
    limit: int,
    *,
    nowait: bool = False,
    window_bytes: int = SHORT_WALK_BYTES,
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches from `position` to `limit`, both batch boundaries.

    Raises CorruptLogError where the headers do not lead from one to the next, and BlockingIOError if `nowait` and not
    in the page cache.
    """
    read = files.pread_cached if nowait else files.pread
    window = b""
    start = position
    offset = base_offset
    while position < limit:
        if position + HEADER_BYTES > start + len(window):
            start = position
            window = read(handle.fd, min(window_bytes, limit - position), position)
        try:
            header = parse_header(window, position - start)
        except struct.error:
            raise CorruptLogError(f"{handle.path}: the batch at byte {position} is cut off") from None
        if (
            header.magic != MAGIC
            or header.length < HEADER_BYTES - LENGTH_OVERHEAD_BYTES
            or header.base_offset < offset
            or header.last_offset_delta < 0
            or position + header.size_bytes > limit
        ):
            raise CorruptLogError(f"{handle.path}: no valid batch header at byte {position}")
        yield position, header
        offset = header.next_offset
        position += header.size_bytes


def index_entries(headers: Iterator[tuple[int, BatchHeader]], base_offset: int) -> tuple[list[Entry], list[Entry]]:
    """What the offset index and the time index of a sealed segment should hold, at Kafka's default interval."""
    offsets: list[Entry] = []
    times: list[Entry] = []
    since_entry_bytes = 0
    largest = (NO_TIMESTAMP, 0)

    def add_time() -> None:
        if largest[0] > (times[-1][0] if times else NO_TIMESTAMP):
            times.append(largest)

    for position, header in headers:
        last = header.next_offset - 1 - base_offset
        if header.max_timestamp_ms > largest[0]:
            largest = (header.max_timestamp_ms, last)
        if since_entry_bytes > _INDEX_INTERVAL_BYTES:
            offsets.append((last, position))
            add_time()
            since_entry_bytes = 0
        since_entry_bytes += header.size_bytes
    add_time()
    return offsets, times
