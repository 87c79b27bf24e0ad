"""Searches for good batches in bytes that may not have been synced before a crash."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import google_crc32c

from logbroker.config import MAX_STORED_BATCH_BYTES
from logbroker.record.header import CRC_START, HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC, BatchHeader, parse_header
from logbroker.storage.files import Files

_SEARCH_BYTES: Final = 1 << 20
_SEARCH_FACTOR: Final = 16
_LEAST_SEARCH_BYTES: Final = 4 * MAX_STORED_BATCH_BYTES
_HEADER_COST_BYTES: Final = 256
"""Cost of checking one header: the check takes at least as long as reading this many bytes."""
_HEADER_LIKE: Final = re.compile(rb"(?s)(?=.{8}[\x00-\x7f].{3}(?:\x00\x00..|\xff{4})\x02)")
"""Pattern of a header: a length above 0, a leader epoch below 65536 or none, and magic 2. It also finds overlapping
matches."""


def header_like(content: bytes) -> Iterator[int]:
    """Find positions where a header may begin: some of its bytes are nearly always the same."""
    return (match.start() for match in _HEADER_LIKE.finditer(content))


def good_batch(buffer: bytes, position: int, offset: int) -> BatchHeader | None:
    """Return the header of the whole, undamaged batch at `position`, or None. The batch may begin at `offset` or later,
    in any leader epoch: the CRC covers neither."""
    if len(buffer) - position < HEADER_BYTES:
        return None
    header = parse_header(buffer, position)
    end = position + header.size_bytes
    if (
        header.magic != MAGIC
        or header.length < HEADER_BYTES - LENGTH_OVERHEAD_BYTES
        or end > len(buffer)
        or header.last_offset_delta < 0
        or header.base_offset < offset
        or google_crc32c.value(buffer[position + CRC_START : end]) != header.crc
    ):
        return None
    return header


class SearchBudget:
    """The bytes that a search for good batches may read: a multiple of the range that it searches.

    Anything that looks like a header may claim a batch of 16 MiB, and a client can send bytes with very many such
    headers. To read the batch of each would take time that grows with the square of the size.
    """

    def __init__(self, size_bytes: int) -> None:
        self._left_bytes = _LEAST_SEARCH_BYTES + _SEARCH_FACTOR * size_bytes

    def spend(self, size_bytes: int) -> bool:
        """Charge the check of one header and the read of so many bytes. Return whether the budget was large enough."""
        self._left_bytes -= _HEADER_COST_BYTES + size_bytes
        return self._left_bytes >= 0


class FoundBatch(NamedTuple):
    """The result of a search."""

    position: int
    """Position of the first good batch; -1: there is none."""
    is_sure: bool = True
    """Whether the batch was checked. False: it only looks like a batch, because the budget is used up."""


def find_good_batch(files: Files, fd: int, start: int, end: int, offset: int) -> FoundBatch:
    """Find the first good batch at or above `offset` between two positions of a file.

    The batch may have any leader epoch: a torn write does not explain a batch of a lower epoch either. Raises OSError.
    """
    budget = SearchBudget(end - start)
    while end - start >= HEADER_BYTES:
        content = files.pread(fd, min(_SEARCH_BYTES + HEADER_BYTES, end - start), start)
        for found in header_like(content):
            if found >= _SEARCH_BYTES or len(content) - found < HEADER_BYTES:
                break
            position = start + found
            header = parse_header(content, found)
            possible = header.base_offset >= offset and header.size_bytes <= min(end - position, MAX_STORED_BATCH_BYTES)
            if not budget.spend(header.size_bytes if possible else 0):
                return FoundBatch(position, is_sure=False)
            if possible and good_batch(files.pread(fd, header.size_bytes, position), 0, offset):
                return FoundBatch(position)
        start += _SEARCH_BYTES
    return FoundBatch(-1)
