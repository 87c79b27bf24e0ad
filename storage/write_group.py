"""Write groups: batches with assigned positions, which the owner of a partition hands to the writing thread."""

from __future__ import annotations

import msgspec

from logbroker.storage.files import Buffer
from logbroker.storage.partition_files import EpochStart
from logbroker.storage.segment import Segment


class Staged(msgspec.Struct, gc=False):
    """The result of staging a batch."""

    base_offset: int
    next_offset: int
    log_append_time_ms: int
    """Append time; -1 under CreateTime, and for a duplicate."""
    duplicate: bool
    """Whether an idempotent producer sent the batch before. If so, the offsets are those of the original."""


class WriteGroup(msgspec.Struct):
    """Batches that were staged together and are written together."""

    end_offset: int = 0
    """Log end offset after the write group."""
    end_position: int = 0
    """Position of its end in its last segment."""
    max_timestamp_ms: int = -1
    """Largest timestamp of the last segment, up to `end_position`."""
    runs: list[tuple[Segment, int, list[Buffer]]] = []
    """For each segment: the position to write at, and the buffers."""
    sealed: list[Segment] = []
    """Segments that got their last batch in or before this write group."""
    created_segment: bool = False
    epochs: list[EpochStart] | None = None
    """Leader epochs to store; None: they have not changed."""

    def add(
        self, segment: Segment, position: int, prefix: bytes, rest: Buffer, end_position: int, next_offset: int
    ) -> None:
        """Add a batch of `segment` in two parts: the first 16 bytes are replaced, and the rest need not be copied."""
        runs = self.runs
        if runs and runs[-1][0] is segment:
            runs[-1][2].extend((prefix, rest))
        else:
            runs.append((segment, position, [prefix, rest]))
        self.end_offset = next_offset
        self.end_position = end_position
        self.max_timestamp_ms = segment.max_timestamp_ms
