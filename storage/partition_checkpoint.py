"""What the metadata store keeps of a partition."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from logbroker.storage.partition_files import EpochStart
from logbroker.storage.producer_state import ProducerSnapshot
from logbroker.storage.segment import Segment

_BOOT_ID_PATH: Final = Path("/proc/sys/kernel/random/boot_id")


class SegmentCheckpoint(msgspec.Struct, gc=False, array_like=True):
    """What is known of a segment at or below the recovery point."""

    base_offset: int
    size_bytes: int
    """Of the part below the recovery point."""
    max_timestamp_ms: int
    """At least that of its records; -1: none has one."""


class PartitionCheckpoint(msgspec.Struct, gc=False):
    """Lets a later open read nothing below the recovery point."""

    recovery_point: int
    """Every record below is synced."""
    log_start_offset: int
    segments: list[SegmentCheckpoint]
    """Those below the recovery point, in order; the last one holds it."""
    producers: list[ProducerSnapshot]
    """As of the recovery point."""
    boot_id: str = ""
    """Of the machine when this was made: another one means that a power cut may have taken unsynced bytes."""
    epochs: list[EpochStart] = []
    """The leader epochs that the synced file begins with: it has no checksum of its own."""
    unsynced_bound_bytes: int = -1
    """At no time until the next checkpoint more bytes than these at the log's end are unsynced; -1: no bound."""


def segment_checkpoints(
    segments: Sequence[Segment], synced_segment: Segment | None, synced_position: int
) -> list[SegmentCheckpoint]:
    """What to store of the segments up to the one that holds the synced end; None: nothing is synced."""
    known = segments[: segments.index(synced_segment) + 1] if synced_segment else ()
    rows = [SegmentCheckpoint(segment.base_offset, segment.size_bytes, segment.max_timestamp_ms) for segment in known]
    if rows:
        rows[-1].size_bytes = synced_position
    return rows


@functools.cache
def boot_id() -> str:
    """A text that changes with every start of the machine; empty where the system has none."""
    try:
        return _BOOT_ID_PATH.read_text(encoding="ascii").strip()
    except OSError:
        return ""
