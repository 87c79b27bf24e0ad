"""Which segments a partition may let go: a pure decision over sizes and times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from logbroker.config import TopicConfig


class SealedSegment(NamedTuple):
    """What retention looks at of a segment that gets no more appends."""

    next_offset: int
    """The base offset of the segment that follows."""
    size_bytes: int
    max_timestamp_ms: int
    """Of its records; -1: they have none, age does not expire it."""


def expired_count(sealed: Sequence[SealedSegment], size_bytes: int, config: TopicConfig, now_ms: int) -> int:
    """How many segments from the oldest on have expired, of a partition that has `size_bytes` in all.

    By size, as in Kafka, a segment goes when what remains still holds `retention.bytes`; by age, when its youngest
    record is older than `retention.ms`.
    """
    excess_bytes = size_bytes - config.retention_bytes
    for count, segment in enumerate(sealed):
        excess_bytes -= segment.size_bytes
        too_much = config.retention_bytes >= 0 and excess_bytes >= 0
        too_old = config.retention_ms >= 0 and 0 <= segment.max_timestamp_ms < now_ms - config.retention_ms
        if not (too_much or too_old):
            return count
    return len(sealed)
