"""Telling good batches from what a crash left, in bytes that were never known to be synced."""

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
"""What a look at a header counts for: Python takes as long for it as for reading so much, or longer."""
_HEADER_LIKE: Final = re.compile(rb"(?s)(?=.{8}[\x00-\x7f].{3}(?:\x00\x00..|\xff{4})\x02)")
"""A length above 0, a leader epoch below 65536 or none, and magic 2; overlapping ones are all found."""


def header_like(content: bytes) -> Iterator[int]:
    """Find positions where a header may begin, from its bytes that are nearly always the same."""
    return (match.start() for match in _HEADER_LIKE.finditer(content))


def good_batch(
    buffer: bytes, position: int, offset: int, *, gaps_allowed: bool, leader_epoch: int | None = None
) -> BatchHeader | None:
    """The header of the whole, undamaged batch at `position` that goes on at `offset`; None: there is none.

    The CRC covers neither base offset nor leader epoch, so these are compared with what they must be, where known.
    """
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
        or (header.base_offset > offset and not gaps_allowed)
        or (leader_epoch is not None and header.leader_epoch != leader_epoch)
        or google_crc32c.value(buffer[position + CRC_START : end]) != header.crc
    ):
        return None
    return header


class SearchBudget:
    """How much a search for good batches may read: some times what it goes through.

    All that looks like a header may name a batch of 16 MiB, and bytes can be made of which very much does: to read each
    would take a time that grows with the square of the size.
    """

    def __init__(self, size_bytes: int) -> None:
        self._left_bytes = _LEAST_SEARCH_BYTES + _SEARCH_FACTOR * size_bytes

    def spend(self, size_bytes: int) -> bool:
        """Count a look at a header, and reading so much behind it; returns whether there is that much left."""
        self._left_bytes -= _HEADER_COST_BYTES + size_bytes
        return self._left_bytes >= 0


class FoundBatch(NamedTuple):
    """What a search has come to."""

    position: int
    """Of the first good batch; -1: there is none."""
    is_sure: bool = True
    """False: of what looks like a batch, where there was too much of that to look at."""


def find_good_batch(files: Files, fd: int, start: int, end: int, offset: int) -> FoundBatch:
    """Find the first good batch at or above `offset` between two positions of a file.

    Of whatever leader epoch: one that is lower than it should be is no work of a torn write either. Raises OSError.
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
            if possible and good_batch(files.pread(fd, header.size_bytes, position), 0, offset, gaps_allowed=True):
                return FoundBatch(position)
        start += _SEARCH_BYTES
    return FoundBatch(-1)
