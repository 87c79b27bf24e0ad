"""How far a partition's log is staged, written, synced and checkpointed: plain bookkeeping of its owner."""

from __future__ import annotations

from collections import deque

import msgspec

from logbroker.storage.segment import Segment
from logbroker.storage.write_group import WriteGroup


class LogEnd(msgspec.Struct, gc=False, frozen=True):
    """An end of the log between two groups, and what was appended up to there since it was opened."""

    offset: int
    segment: Segment | None
    position: int
    bytes_appended: int = 0
    batches_appended: int = 0


class LogProgress:
    """Groups are written in order; a sync covers all that was written before it."""

    __slots__ = ("_appended_batches", "_appended_bytes", "_checkpointed", "_written", "synced")

    def __init__(self, end: LogEnd) -> None:
        self.synced = end
        """Everything before is synced."""
        self._written: deque[LogEnd] = deque()
        """The ends of groups that are written, but not synced."""
        self._checkpointed = end
        self._appended_bytes = 0
        self._appended_batches = 0

    @property
    def unsynced_bytes(self) -> int:
        """Staged above the last checkpoint."""
        return self._appended_bytes - self._checkpointed.bytes_appended

    @property
    def unsynced_batches(self) -> int:
        """Staged above the last checkpoint."""
        return self._appended_batches - self._checkpointed.batches_appended

    def staged(self, size_bytes: int) -> None:
        """Count a batch."""
        self._appended_bytes += size_bytes
        self._appended_batches += 1

    def wrote(self, group: WriteGroup, *, synced: bool) -> LogEnd:
        """Go on behind a group; returns its end."""
        before = self._written[-1] if self._written else self.synced
        end = LogEnd(
            group.end_offset,
            group.runs[-1][0],
            group.end_position,
            before.bytes_appended + group.size_bytes,
            before.batches_appended + group.batches,
        )
        if synced:
            self._written.clear()
            self.synced = end
        else:
            self._written.append(end)
        return end

    def mark_synced(self, offset: int) -> LogEnd:
        """Take note that all groups that end at or below `offset` are synced; returns what is synced now."""
        while self._written and self._written[0].offset <= offset:
            self.synced = self._written.popleft()
        return self.synced

    def checkpoint(self) -> LogEnd:
        """Take note that a checkpoint is made at the synced end; returns it."""
        self._checkpointed = self.synced
        return self.synced
