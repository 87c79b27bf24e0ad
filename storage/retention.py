"""Retention's choice of the segments that a partition may remove: a pure decision over sizes and times."""

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
    """Time of its youngest record; -1: not known, so age does not expire it."""
    is_active: bool = False
    """Whether it takes appends: such a segment expires by age alone."""


class ExpiredOffsets(NamedTuple):
    """The offsets that retention asks for; both are the log start offset where it asks for nothing."""

    start_offset: int
    """Offset below which nobody needs the records, and they may be removed."""
    wanted_offset: int
    """Offset below which all records should be removed, once holders that need some have released them."""


def expired_offsets(
    segments: Sequence[SyncedSegment],
    log_start_offset: int,
    size_bytes: int,
    config: TopicConfig,
    now_ms: int,
    needed_from: int,
) -> ExpiredOffsets:
    """Return what retention asks for of a partition of `size_bytes`, where a holder needs the records from
    `needed_from` on.

    Expired segments with such records stay, but only the youngest `retention.hold.bytes` of them are meant to.
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

    As in Kafka, a segment expires by size when the remaining ones still hold `retention.bytes`, and by age when its
    youngest record is older than `retention.ms`; so the active one expires by age when the whole log has.
    """
    excess_bytes = size_bytes - config.retention_bytes
    for count, segment in enumerate(segments):
        excess_bytes -= segment.size_bytes
        too_much = config.retention_bytes >= 0 and excess_bytes >= 0 and not segment.is_active
        too_old = config.retention_ms >= 0 and 0 <= segment.youngest_ms < now_ms - config.retention_ms
        if not (too_much or too_old):
            return count
    return len(segments)
