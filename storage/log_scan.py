"""Telling good batches from what a crash left, in bytes that were never known to be synced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import google_crc32c

from logbroker.config import MAX_STORED_BATCH_BYTES
from logbroker.record.header import CRC_START, HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC, BatchHeader, parse_header
from logbroker.storage.files import Files

_SEARCH_BYTES: Final = 1 << 20
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


def find_good_batch(files: Files, fd: int, start: int, end: int, offset: int) -> int:
    """Position of the first good batch at or above `offset` between two positions of a file; -1: there is none.

    Of whatever leader epoch: one that is lower than it should be is no work of a torn write either. Raises OSError.
    """
    while end - start >= HEADER_BYTES:
        content = files.pread(fd, min(_SEARCH_BYTES + HEADER_BYTES, end - start), start)
        for found in header_like(content):
            if found >= _SEARCH_BYTES or len(content) - found < HEADER_BYTES:
                break
            position = start + found
            header = parse_header(content, found)
            if header.base_offset < offset or header.size_bytes > min(end - position, MAX_STORED_BATCH_BYTES):
                continue
            batch = files.pread(fd, header.size_bytes, position)
            if good_batch(batch, 0, offset, gaps_allowed=True) is not None:
                return position
        start += _SEARCH_BYTES
    return -1
