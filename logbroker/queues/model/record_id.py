"""Record ids: a queue group names a record by one integer of partition and offset.

    record id = partition << 48 | offset

A record id fits a signed 64-bit array, sorts by partition and then by offset, and costs one machine word where it
waits. `record_id >> 15` names the page of 32,768 records that it lies in, over all partitions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

PARTITION_SHIFT: Final = 48
OFFSET_MASK: Final = (1 << PARTITION_SHIFT) - 1
MAX_PARTITIONS: Final = 1 << 15


class Moment(NamedTuple):
    """The time, by both clocks: leases run by the first, stored times are of the second."""

    seconds: float
    """Monotonic."""
    wall_ms: int
    """Since 1970. May step."""


def record_id_of(partition: int, offset: int) -> int:
    return partition << PARTITION_SHIFT | offset


def partition_of(record_id: int) -> int:
    return record_id >> PARTITION_SHIFT


def offset_of(record_id: int) -> int:
    return record_id & OFFSET_MASK
