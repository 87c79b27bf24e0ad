"""Checks of a batch, from its header and its place in the log. No I/O."""

from __future__ import annotations

from typing import Final

import msgspec

from logbroker.record.header import (
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    MAX_CODEC,
    BatchHeader,
)

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""Relative offsets in an index are int32."""

_ZERO_HEADER: Final = BatchHeader(*HEADER.unpack(bytes(HEADER_BYTES)))


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a log that does not hold the expected batch."""

    position: int
    end: int
    """End of the damaged bytes. It is equal to `position` if batches are missing and no bytes are damaged."""
    offset: int
    """The offset that should have come at `position`."""
    reason: str
    followed: bool = False
    """Whether a good batch comes after the damage."""


def header_fault(header: BatchHeader, room_bytes: int) -> str | None:
    """Return the reason why a batch within `room_bytes` cannot have this header, or None if it can."""
    if header == _ZERO_HEADER:
        return "zeros"
    if header.magic != MAGIC:
        return f"magic {header.magic}, not {MAGIC}"
    if header.length < HEADER_BYTES - LENGTH_OVERHEAD_BYTES:
        return f"length {header.length} is less than a header's"
    if header.size_bytes > room_bytes:
        return f"it says it has {header.size_bytes} bytes, but {room_bytes} are left"
    return None


def content_fault(header: BatchHeader, *, gaps_allowed: bool) -> str | None:
    """Return how the fields of a batch contradict each other although its CRC is right, or None."""
    if header.codec > MAX_CODEC:
        return f"codec {header.codec} is unknown"
    if header.last_offset_delta < 0:
        return f"last offset delta {header.last_offset_delta} is negative"
    # Compaction removes records and keeps the deltas. It may leave a batch without records.
    if not 0 <= header.record_count <= header.last_offset_delta + 1 or (
        not gaps_allowed and header.record_count != header.last_offset_delta + 1
    ):
        return f"it counts {header.record_count} records, but its last offset delta is {header.last_offset_delta}"
    return None


def place_fault(
    header: BatchHeader, expected_offset: int, segment_offset: int, leader_epoch: int, *, gaps_allowed: bool
) -> str | None:
    """Return the reason why a sound batch cannot come where `expected_offset` is expected, or None if it can.

    `leader_epoch` is the leader epoch of the batch before.
    """
    if header.base_offset < expected_offset:
        return f"offset {header.base_offset} goes back, {expected_offset} should follow"
    if header.next_offset - 1 - segment_offset > MAX_RELATIVE_OFFSET:
        return f"offset {header.base_offset} is too far from the segment's first, {segment_offset}"
    if header.leader_epoch < leader_epoch or header.leader_epoch < -1:
        return f"leader epoch {header.leader_epoch} goes back from {leader_epoch}"
    if header.base_offset > expected_offset and not gaps_allowed:
        return f"offsets {expected_offset} to {header.base_offset - 1} are missing"
    return None
