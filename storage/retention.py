"""Decides which segments of a partition retention may remove, from sizes and times. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from logbroker.config import TopicConfig


class SyncedSegment(NamedTuple):
    """The facts that retention needs of a segment whose records are all synced."""

    next_offset: int
    """Offset after its last record."""
    size_bytes: int
    youngest_ms: int
    """Time of its youngest record; -1: not known, so the segment does not expire by age."""
    is_active: bool = False
    """Whether the segment takes appends. Such a segment expires only by age."""


class ExpiredOffsets(NamedTuple):
    """The offsets that retention asks for. If it asks for nothing, both are the log start offset."""

    start_offset: int
    """Offset below which nobody needs the records, and they may be removed."""
    wanted_offset: int
    """Offset below which all records should be removed. Holders that still need some of them should release them."""


def expired_offsets(
    segments: Sequence[SyncedSegment],
    log_start_offset: int,
    size_bytes: int,
    config: TopicConfig,
    now_ms: int,
    needed_from: int,
) -> ExpiredOffsets:
    """Return the offsets that retention asks for in a partition of `size_bytes`. A holder needs records from
    `needed_from` on.

    Expired segments with such records stay, but the holder should release all except the youngest
    `retention.hold.bytes`.
    """
    expired = segments[: _expired_count(segments, size_bytes, config, now_ms)]
    removable = sum(segment.next_offset <= needed_from for segment in expired)
    wanted = len(expired)
    held_bytes = 0
    while wanted > removable:
        held_bytes += expired[wanted - 1].size_bytes
        if 0 <= config.retention_hold_bytes < held_bytes:
            break
        wanted -= 1
    start_offset, wanted_offset = (
        max(log_start_offset, expired[count - 1].next_offset if count else 0) for count in (removable, wanted)
    )
    return ExpiredOffsets(start_offset, wanted_offset)


def _expired_count(segments: Sequence[SyncedSegment], size_bytes: int, config: TopicConfig, now_ms: int) -> int:
    """Return how many segments, from the oldest on, have expired.

    As in Kafka, a segment expires by size if the remaining segments still have `retention.bytes`, and by age if its
    youngest record is older than `retention.ms`. The active segment expires last, and only by age.
    """
    excess_bytes = size_bytes - config.retention_bytes
    for count, segment in enumerate(segments):
        excess_bytes -= segment.size_bytes
        too_much = config.retention_bytes >= 0 and excess_bytes >= 0 and not segment.is_active
        too_old = config.retention_ms >= 0 and 0 <= segment.youngest_ms < now_ms - config.retention_ms
        if not (too_much or too_old):
            return count
    return len(segments)
