"""The track knows, for one partition, which of the records that the program was given are done.

Records are done in any order. The *floor* is the offset of the first record that is not done: it is what may be
committed. What is done beyond the floor is written beside the committed offset (`done_offsets`), where room is
limited. So a record is started only if the text still fits whichever of the running records end (`may_start`). Why it
always fits: each running record adds at most one range of done offsets when it ends, and `may_start` counts it
beforehand; afterwards ranges only join, and the floor only rises. The record at the floor may always start, since its
end adds no range.

The nodes of a list, in the order of offsets, are the records that are not done, and one node for each range between
them that is done. An offset without a record belongs to the node before it: compaction has removed its record for ever.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterator
from typing import Any, Final

from logbroker.client.convoy.done_offsets import DoneOffsets, Range, encode, may_fit

NO_EPOCH: Final = -1


class RecordState(enum.IntEnum):
    """The state of a record in the convoy."""

    WAITING = 0
    """Behind another record of its key, or in the line of what is ready."""
    RUNNING = 1
    RETRYING = 2
    """It failed, and is started again when its backoff is over."""
    BLOCKED = 3
    """Its attempts are used up, and its key stands."""
    DONE = 4
    GONE = 5
    """The convoy has nothing to do with it any more, because its partition is somebody else's."""
    LOST = 6
    """As GONE, because the lease of this single record has ended. It may be in a lane still, which passes over it."""


class Entry:
    """A record in the convoy."""

    __slots__ = (
        "abandon",
        "after",
        "attempts",
        "before",
        "due_at",
        "error",
        "first_failure_ms",
        "item",
        "key",
        "lacks_key",
        "offset",
        "reasons",
        "refusal",
        "settlement",
        "size_bytes",
        "state",
        "successor",
        "track",
    )

    def __init__(self, track: Track, offset: int, key: Hashable | None, item: Any, size_bytes: int) -> None:
        self.track = track
        self.offset = offset
        self.key = key
        self.lacks_key = False
        """Whether the program's function could not name the key. Each attempt asks it again."""
        self.item = item
        self.size_bytes = size_bytes
        self.state = RecordState.WAITING
        self.attempts = 0
        """Number of failed attempts."""
        self.before: Entry | None = None
        self.after: Entry | None = None
        self.successor: Entry | None = None
        """The next record of the key."""
        self.due_at = 0.0
        self.error: Exception | None = None
        """The last error of the handler."""
        self.reasons: tuple[str, ...] = ()
        """The last failures of the handler as text, as many as a dead letter names."""
        self.refusal: Exception | None = None
        """Why the dead letter could not be sent."""
        self.first_failure_ms = 0
        self.abandon: Any = None
        """Called to interrupt the handler; None if it cannot be interrupted."""
        self.settlement: Any = None
        """How the source is told: its functions `ack` and `nack`."""


class Track:
    """The records of one partition, or of a source without partitions."""

    def __init__(self, name: Any, position: int | None = None, done: DoneOffsets | None = None) -> None:
        """`position` is the offset at which the partition is read, if it is known; `done` is what is done from there
        on."""
        self.name = name
        self.lanes: dict[Hashable, Entry] = {}
        """The last record of each key that has any."""
        self.running = 0
        self.is_open = True
        """Whether records may be started."""
        self.changes = 0
        """Grows whenever something is done out of order."""
        self.end = position
        """The offset after the last record; the position if there was none yet. None: not known."""
        self._head: Entry | None = None
        self._tail: Entry | None = None
        self._ranges = 0
        """Number of nodes that are done."""
        self._horizon = 0
        """All records that were ever started or are done are before this offset."""
        self._epoch = NO_EPOCH
        self._unread: list[Range] = []
        """Ranges that were done before, and that were not read again yet; the first one last."""
        self._unread_epoch = NO_EPOCH
        if done is not None:
            self._unread = list(reversed(done.ranges))
            self._unread_epoch = done.epoch
            self._horizon = done.ranges[-1][1]

    @property
    def floor(self) -> int | None:
        """The offset of the first record that is not done, or else the one after the last record."""
        return self.end if self._head is None else self._head.offset

    def is_done(self, offset: int, epoch: int) -> bool:
        """Whether the record was done before. Called for each record, in order."""
        unread = self._unread
        if not unread:
            return False
        if epoch > self._unread_epoch:
            # The log was cut, and everything from here on is new.
            unread.clear()
            self.changes += 1
            return False
        while unread and unread[-1][1] <= offset:
            unread.pop()
        return bool(unread) and unread[-1][0] <= offset

    def skip(self, offset: int, epoch: int) -> None:
        """Add a record that was done before."""
        self.end = offset + 1
        self._epoch = max(self._epoch, epoch)
        tail = self._tail
        if tail is not None and tail.state is not RecordState.DONE:
            node = Entry(self, offset, None, None, 0)
            node.state = RecordState.DONE
            self._append(node)
            self._ranges += 1

    def add(self, entry: Entry, epoch: int) -> None:
        """Add a record that is to be done."""
        self.end = entry.offset + 1
        self._epoch = max(self._epoch, epoch)
        self._append(entry)

    def _append(self, node: Entry) -> None:
        tail = self._tail
        if tail is None:
            self._head = node
        else:
            tail.after, node.before = node, tail
        self._tail = node

    def may_start(self, entry: Entry) -> bool:
        """Whether what is done can still be written down, however the running records and this one end."""
        head = self._head
        if head is None or entry is head:
            return True
        span = max(self._horizon, entry.offset + 1) - head.offset
        return may_fit(self._ranges + len(self._unread) + self.running + 1, span)

    def started(self, entry: Entry) -> None:
        self.running += 1
        if entry.offset >= self._horizon:
            self._horizon = entry.offset + 1

    def stopped(self) -> None:
        """Note that a running record has failed."""
        self.running -= 1

    def done(self, entry: Entry) -> None:
        """Note that a record is done."""
        before, after = entry.before, entry.after
        is_after = after is not None and after.state is RecordState.DONE
        if before is None:
            self._unlink(entry)
            if is_after and after is not None:
                self._unlink(after)
                self._ranges -= 1
            return
        self.changes += 1
        if before.state is RecordState.DONE:
            self._unlink(entry)
            if is_after and after is not None:
                self._unlink(after)
                self._ranges -= 1
        elif is_after and after is not None:
            self._unlink(after)
        else:
            self._ranges += 1

    def nodes(self) -> Iterator[Entry]:
        """Iterate over the records that are not done, and the first of each range that is."""
        node = self._head
        while node is not None:
            after = node.after
            yield node
            node = after

    def _unlink(self, node: Entry) -> None:
        before, after = node.before, node.after
        if before is None:
            self._head = after
        else:
            before.after = after
        if after is None:
            self._tail = before
        else:
            after.before = before
        node.before = node.after = None

    @property
    def has_pending(self) -> bool:
        """Whether any record is not done."""
        return self._head is not None

    def done_from(self, base: int) -> DoneOffsets | None:
        """Return what is done from an offset on, or None if nothing is. The offset is the floor or, if everything is
        done, any."""
        end = 0 if self.end is None else self.end
        ranges: list[Range] = [
            (node.offset, min(self._horizon, end if node.after is None else node.after.offset))
            for node in self.nodes()
            if node.state is RecordState.DONE
        ]
        for first, last in reversed(self._unread):
            first = max(first, end, base)
            if ranges and ranges[-1][1] == first:
                ranges[-1] = (ranges[-1][0], last)
            elif first < last:
                ranges.append((first, last))
        if not ranges or (self.has_pending and base != self.floor):
            return None
        return DoneOffsets(base, max(self._epoch, self._unread_epoch if self._unread else NO_EPOCH), tuple(ranges))

    def text(self, base: int) -> str:
        """Return what is done from a committed offset on, as it is stored beside it."""
        done = self.done_from(base)
        return "" if done is None else encode(done)

    def again(self) -> Track:
        """Return the track of somebody who reads the partition again from the floor on."""
        floor = self.floor
        return Track(self.name, floor, None if floor is None else self.done_from(floor))


class LooseTrack(Track):
    """The records of a source that settles each by itself and knows no offsets."""

    def add(self, entry: Entry, epoch: int) -> None:
        self._append(entry)

    def may_start(self, entry: Entry) -> bool:
        return True

    def done(self, entry: Entry) -> None:
        self._unlink(entry)
