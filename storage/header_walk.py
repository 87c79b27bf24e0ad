"""Walks a log file from batch header to batch header."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import google_crc32c

from logbroker.config import MAX_STORED_BATCH_BYTES
from logbroker.record.header import CRC_START, HEADER_BYTES, BatchHeader, parse_header
from logbroker.storage.continuity import DAMAGED_CRC, Continuity, DamagedLogError, is_intact
from logbroker.storage.files import Files
from logbroker.storage.handles import Handle
from logbroker.storage.index_file import Entry

SHORT_WALK_BYTES: Final = 4096
"""Bytes that are read at a time for a few headers. One read covers several small batches, and only few unneeded bytes
of a large batch."""
CHECKED_WALK_BYTES: Final = 1 << 14
"""Bytes that are read at a time to check whole batches."""
LONG_WALK_BYTES: Final = 1 << 18
"""Bytes that are read at a time for all headers of a segment."""
NO_TIMESTAMP: Final = -1

_INDEX_INTERVAL_BYTES: Final = 4096


def walk_headers(
    files: Files,
    handle: Handle,
    rules: Continuity,
    offset: int,
    position: int,
    limit: int,
    *,
    exact: bool = True,
    nowait: bool = False,
    window_bytes: int = SHORT_WALK_BYTES,
    check_crc: bool = False,
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches from `position` to `limit`, both batch boundaries.

    The first batch must begin at `offset`. Without `exact`, it may also begin later. Raises DamagedLogError if the
    headers do not continue each other or, with `check_crc`, a batch is damaged. With `nowait`, raises BlockingIOError
    if the bytes are not in the page cache.
    """
    read = files.pread_cached if nowait else files.pread
    window = b""
    start = position
    epoch = -1
    before: tuple[int, int] | None = None
    """Position and offset of the previous batch."""

    def damaged(fault: str) -> DamagedLogError:
        if before is not None:
            size_bytes = position - before[0]
            batch = files.pread(handle.fd, size_bytes, before[0]) if size_bytes <= MAX_STORED_BATCH_BYTES else b""
            if len(batch) != size_bytes or not is_intact(batch):
                # The previous batch's end was wrong.
                return DamagedLogError(handle.path, *before, f"does not lead to the next one, which {fault}")
        return DamagedLogError(handle.path, position, offset, fault)

    while position < limit:
        if position + HEADER_BYTES > start + len(window):
            start = position
            window = read(handle.fd, min(window_bytes, limit - position), position)
        try:
            header = parse_header(window, position - start)
        except struct.error:
            found_bytes = max(0, start + len(window) - position)
            raise damaged(f"is cut off: the file ends after {found_bytes} bytes of it") from None
        if not exact and before is None and header.base_offset >= offset:
            offset = header.base_offset
        fault = rules.fault(header, offset, epoch)
        if not fault and position + header.size_bytes > limit:
            fault = "is longer than what is left of its segment"
        if not fault and check_crc and not _is_intact(files, handle, position, header, window, start):
            fault = DAMAGED_CRC
        if fault:
            raise damaged(fault)
        yield position, header
        before = position, offset
        offset, epoch = header.next_offset, header.leader_epoch
        position += header.size_bytes


def _is_intact(
    files: Files, handle: Handle, position: int, header: BatchHeader, window: bytes, window_start: int
) -> bool:
    """Return whether the CRC of a batch matches its bytes, which begin in the window."""
    size_bytes = header.size_bytes
    content = window[position - window_start : position - window_start + size_bytes]
    crc: int = google_crc32c.value(content[CRC_START:])
    done = len(content)
    while done < size_bytes:
        # In pieces, so that the memory does not grow with the batch.
        part = files.pread(handle.fd, min(LONG_WALK_BYTES, size_bytes - done), position + done)
        if not part:
            return False
        crc = google_crc32c.extend(crc, part)
        done += len(part)
    return crc == header.crc


def until_damage(headers: Iterator[tuple[int, BatchHeader]]) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the headers of a walk up to the point where it raises DamagedLogError."""
    with suppress(DamagedLogError):
        yield from headers


def index_entries(headers: Iterator[tuple[int, BatchHeader]], base_offset: int) -> tuple[list[Entry], list[Entry]]:
    """Return the entries that the offset index and the time index of a sealed segment should have, at Kafka's default
    interval."""
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
