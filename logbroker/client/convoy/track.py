"""The track of a partition knows which of the records that the convoy has taken are done.

Records are done in any order. The *floor* is the offset of the first record that is not done; it may be committed. A
text beside the committed offset lists the done records beyond the floor (`done_offsets`), and its room is limited. So a
record is started only if the text will fit, whichever of the running records end first (`may_start`). Why it always
fits: each running record adds at most one range of done offsets when it ends, and `may_start` counts this range
beforehand; afterwards ranges only join, and the floor only rises. The record at the floor may always start, since its
end adds no range.

A linked list has, in the order of offsets, a node for each record that is not done, and one for each range of done
records between them. An offset without a record belongs to the node before it: compaction has removed its record for
ever.
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
    """It waits behind another record of its key, or is ready to start."""
    RUNNING = 1
    RETRYING = 2
    """Its handler failed, or its dead letter could not be sent. It is started again when its backoff is over."""
    BLOCKED = 3
    """Its attempts are used up, and its key is blocked."""
    DONE = 4
    GONE = 5
    """The convoy has forgotten it: its partition was given away, lost or moved back, or the convoy has ended."""
    LOST = 6
    """The convoy has forgotten it, because its lease has ended. It may still be in a lane, which passes over it."""


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
        """Whether the program's function for the key failed. Each attempt calls it again."""
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
        """The last failures of the handler as text, at most as many as a dead letter has room for."""
        self.refusal: Exception | None = None
        """Why the dead letter could not be sent."""
        self.first_failure_ms = 0
        self.abandon: Any = None
        """Called to interrupt the handler; None if it cannot be interrupted."""
        self.settlement: Any = None
        """The functions `ack` and `nack` of the source; None if the source has partitions."""


class Track:
    """The records of one partition, or of a source without partitions."""

    def __init__(self, name: Any, position: int | None = None, done: DoneOffsets | None = None) -> None:
        """`position` is the offset at which reading begins, if it is known; `done` has the later offsets that are
        done."""
        self.name = name
        self.lanes: dict[Hashable, Entry] = {}
        """The last record of each key that has any."""
        self.running = 0
        self.is_open = True
        """Whether records may be started."""
        self.changes = 0
        """Grows when the text beside the committed offset changes although the floor stays."""
        self.end = position
        """The offset after the last record or, before the first record, the position; None if it is not known."""
        self._head: Entry | None = None
        self._tail: Entry | None = None
        self._ranges = 0
        """Number of nodes that are done."""
        self._horizon = 0
        """All records that were started or are done have lower offsets."""
        self._epoch = NO_EPOCH
        self._unread: list[Range] = []
        """Ranges that were done before this track began and are not read again yet, in descending order."""
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
        """Whether the done offsets will fit into the text, in whatever order the running records and this one end."""
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
        """Note that a record does not run any more, although it is not done."""
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
        """Iterate over the records that are not done, and the first record of each range that is done."""
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
        """Return the done offsets from `base` on, or None if there are none. While any record is not done, `base` must
        be the floor: for others, the answer is None."""
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
        """Return the text to store beside the committed offset `base`."""
        done = self.done_from(base)
        return "" if done is None else encode(done)

    def again(self) -> Track:
        """Return a new track, for reading the partition again from the floor on."""
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
