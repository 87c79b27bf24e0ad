"""Telling good batches from what a crash left, in bytes that were never known to be synced."""

from __future__ import annotations

import struct
from typing import Final

import google_crc32c

from logbroker.record.header import CRC_START, HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC, BatchHeader, parse_header

_LEADER_EPOCH_AT: Final = 12
_EPOCH_AND_MAGIC = struct.Struct(">ib")


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


def find_good_batch(buffer: bytes, offset: int, leader_epoch: int) -> int:
    """Position of the first good batch at or above `offset` anywhere in the bytes, of the given epoch; -1: none."""
    pattern = _EPOCH_AND_MAGIC.pack(leader_epoch, MAGIC)
    found = buffer.find(pattern)
    while found >= 0:
        position = found - _LEADER_EPOCH_AT
        if position >= 0 and good_batch(buffer, position, offset, gaps_allowed=True) is not None:
            return position
        found = buffer.find(pattern, found + 1)
    return -1
