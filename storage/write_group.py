"""What the owner of a partition hands to the thread that writes: batches that were given their place."""

from __future__ import annotations

import msgspec

from logbroker.storage.files import Buffer
from logbroker.storage.partition_files import EpochStart
from logbroker.storage.segment import Segment


class Staged(msgspec.Struct, gc=False):
    """What was decided about a batch."""

    base_offset: int
    next_offset: int
    log_append_time_ms: int
    """-1 under CreateTime, and for a duplicate."""
    duplicate: bool
    """An idempotent producer sent it before; the offsets are the original's."""


class WriteGroup(msgspec.Struct):
    """Batches that were staged together and are written together."""

    end_offset: int = 0
    """The log end offset after it."""
    end_position: int = 0
    """Where it ends in its last segment."""
    max_timestamp_ms: int = -1
    """The largest of that segment, up to there."""
    runs: list[tuple[Segment, int, list[Buffer]]] = []
    """Per segment: where to write, and what."""
    sealed: list[Segment] = []
    """Segments that got their last batch in or before this group."""
    created_segment: bool = False
    epochs: list[EpochStart] | None = None
    """The leader epochs to store, where they changed."""

    def add(
        self, segment: Segment, position: int, prefix: bytes, rest: Buffer, end_position: int, next_offset: int
    ) -> None:
        """Add a batch that `segment` has, in two parts, so that its bytes need not be copied to patch the first 16."""
        runs = self.runs
        if runs and runs[-1][0] is segment:
            runs[-1][2].extend((prefix, rest))
        else:
            runs.append((segment, position, [prefix, rest]))
        self.end_offset = next_offset
        self.end_position = end_position
        self.max_timestamp_ms = segment.max_timestamp_ms
