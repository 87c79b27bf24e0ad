"""How far a partition's log is written and synced: plain bookkeeping of its owner."""

from __future__ import annotations

import msgspec

from logbroker.storage.segment import Segment
from logbroker.storage.write_group import WriteGroup


class LogEnd(msgspec.Struct, gc=False, frozen=True):
    """An end of the log between two groups."""

    offset: int
    segment: Segment | None
    position: int
    max_timestamp_ms: int = -1
    """The largest of the segment, up to there."""


class LogProgress:
    """Groups are written in order; a sync covers all that was written before it."""

    __slots__ = ("synced", "written")

    def __init__(self, end: LogEnd) -> None:
        self.written = end
        """Everything before is written."""
        self.synced = end
        """Everything before is synced."""

    def wrote(self, group: WriteGroup, *, synced: bool) -> LogEnd:
        """Go on behind a group; returns its end."""
        end = self.written = LogEnd(group.end_offset, group.runs[-1][0], group.end_position, group.max_timestamp_ms)
        if synced:
            self.synced = end
        return end

    def begin_segment(self, segment: Segment) -> None:
        """Take note that the log goes on in a new segment; all that was appended is synced."""
        self.written = self.synced = LogEnd(self.synced.offset, segment, 0)

    def mark_synced(self, end: LogEnd) -> LogEnd:
        """Take note that a sync covered what was `written` at a moment; returns what is synced now."""
        if end.offset > self.synced.offset:
            self.synced = end
        return self.synced
