"""Progress of writing and syncing a partition's log. Only the owner of the log uses it."""

from __future__ import annotations

import msgspec

from logbroker.storage.segment import Segment
from logbroker.storage.write_group import WriteGroup


class LogEnd(msgspec.Struct, gc=False, frozen=True):
    """An end of the log between two write groups."""

    offset: int
    segment: Segment | None
    position: int
    max_timestamp_ms: int = -1
    """Largest timestamp of the segment up to this end; -1: none."""


class LogProgress:
    """The written and the synced end of a log. Write groups are written in order; a sync covers everything written
    before it."""

    __slots__ = ("synced", "written")

    def __init__(self, end: LogEnd) -> None:
        self.written = end
        """End before which everything is written."""
        self.synced = end
        """End before which everything is synced."""

    def wrote(self, group: WriteGroup, *, synced: bool) -> LogEnd:
        """Move the written end, and with `synced` also the synced end, to the end of a write group. Return this end."""
        end = self.written = LogEnd(group.end_offset, group.runs[-1][0], group.end_position, group.max_timestamp_ms)
        if synced:
            self.synced = end
        return end

    def begin_segment(self, segment: Segment) -> None:
        """Note that the log goes on in a new segment; everything appended is synced."""
        self.written = self.synced = LogEnd(self.synced.offset, segment, 0)

    def mark_synced(self, end: LogEnd) -> LogEnd:
        """Note that a sync covered everything up to `end`, which was the written end when the sync began. Return the
        synced end."""
        if end.offset > self.synced.offset:
            self.synced = end
        return self.synced
