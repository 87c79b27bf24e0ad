"""Record ids: one integer for the partition and offset of a record.

    record id = partition << 48 | offset

A record id fits a signed 64-bit array and sorts by partition, then by offset. A waiting record costs one machine word.
`record_id >> 15` numbers its page of 32,768 records, over all partitions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

PARTITION_SHIFT: Final = 48
OFFSET_MASK: Final = (1 << PARTITION_SHIFT) - 1
MAX_PARTITIONS: Final = 1 << 15


class Moment(NamedTuple):
    """The time by two clocks: leases use the monotonic clock, and stored times the wall clock."""

    seconds: float
    """Monotonic clock."""
    wall_ms: int
    """Wall clock, in ms since 1970. It may step."""


def record_id_of(partition: int, offset: int) -> int:
    return partition << PARTITION_SHIFT | offset


def partition_of(record_id: int) -> int:
    return record_id >> PARTITION_SHIFT


def offset_of(record_id: int) -> int:
    return record_id & OFFSET_MASK
