"""Records without an ordering key in a queue group with priorities, as sorted runs. Only the head of a run is in the
ready queue.

A *cursor* stands for records of one partition and one priority, sorted by timestamp and offset, at 16 bytes each.
Records older than the last one of a cursor go to another cursor, so that nothing is ever inserted in the middle. An
*unread* source stands for records of which only the first of each priority is known. The other records of a priority
are read when its first one is taken.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Final

import msgspec

from logbroker.queues.priority.levels import Head, rises

MAX_CURSORS: Final = 32
"""Maximum number of cursors of one partition and priority. It is reached if timestamps are in complete disorder. The
shorter half of the cursors is then joined into one, so that a record is moved only a few times, as in a merge sort."""
MAX_JOINED_RECORDS: Final = 16_384
"""Maximum number of records that are joined at a time, which takes about 10 ms. Longer cursors are not joined, even if
there are then more than MAX_CURSORS."""

_CONSUMED: Final = 4096
"""Consumed records are removed from memory when there are at least this many, and they are at least half of all."""


_NOTHING: Final = array("q")


class RunCursor(msgspec.Struct, gc=False, eq=False):
    """A run of records. The first ones may be consumed."""

    base: int
    """The record id of offset 0 of the partition."""
    level: int
    offsets: array[int]
    times: array[int]
    at: int = 0
    """Index of the head. At the length of `offsets`, the cursor is at its end."""
    entry: int = 0
    """Number of the run's entry in the ready queue; 0: the run has no entry."""

    def __len__(self) -> int:
        return len(self.offsets) - self.at

    @property
    def head(self) -> tuple[int, int]:
        """Timestamp and record id."""
        return self.times[self.at], self.base | self.offsets[self.at]

    def advance(self) -> tuple[int, int] | None:
        """Take the head off the run; return timestamp and record id of the next head, or None if there is none."""
        at = self.at = self.at + 1
        if at >= _CONSUMED and at * 2 >= len(self.offsets):
            del self.offsets[:at], self.times[:at]
            at = self.at = 0
        if at == len(self.offsets):
            return None
        return self.times[at], self.base | self.offsets[at]

    def take(self, wanted: Set[int]) -> list[tuple[int, int]]:
        """Take out the records with these offsets, wherever they are; return timestamps and offsets. Scans the whole
        run."""
        waiting = self.offsets[self.at :]
        if wanted.isdisjoint(waiting):
            return []
        pairs = list(zip(self.times[self.at :], waiting, strict=True))
        self.times, self.offsets = _columns(pair for pair in pairs if pair[1] not in wanted)
        self.at = 0
        return [pair for pair in pairs if pair[1] in wanted]


class Unread(msgspec.Struct, gc=False, eq=False):
    """Consecutive waiting records of one partition. The records of a priority are read when the first of them is
    taken."""

    base: int
    first_offset: int
    next_offset: int
    counts: Sequence[int]
    """Number of waiting records, by priority."""
    heads: Sequence[Head]
    """First record by priority; any value if none waits."""
    read: Callable[[int], tuple[array[int], array[int]] | None]
    """Return offsets and timestamps of the waiting records of a priority, or None if they cannot be read. Called once
    for each priority."""
    entry: int = 0
    """The number that all its entries in the ready queue have. There is an entry for each priority that is not read
    yet."""

    def has_any(self, record_ids: Sequence[int]) -> bool:
        """Return whether one of these record ids is between the first and the last record. `record_ids` is sorted."""
        index = bisect_left(record_ids, self.base | self.first_offset)
        return index < len(record_ids) and record_ids[index] < self.base | self.next_offset


class Cursors:
    """All cursors that are not at their end, by partition and level."""

    def __init__(self, enter: Callable[[RunCursor], None], leave: Callable[[RunCursor], None]) -> None:
        """`enter` is called with each new cursor, `leave` with each cursor that another cursor replaces."""
        self._enter = enter
        self._leave = leave
        self._cursors: dict[int, list[RunCursor]] = {}
        """Cursors by base | level, in the order of their creation."""

    def admit(self, base: int, level: int, offsets: array[int], times: array[int]) -> None:
        """Admit records with ascending offsets that are in no cursor."""
        end = len(times)
        if end > 1 and not rises(times):
            times, offsets = _columns(sorted(zip(times, offsets, strict=True)))
        cursors = self._cursors.setdefault(base | level, [])
        for cursor in cursors:
            # Append the records that follow the last one of the cursor. Usually all do, because their timestamps are
            # higher. Some do not if a block is read after a later block.
            last_ms = cursor.times[-1]
            start = bisect_left(times, last_ms, 0, end)
            if start < end and times[start] == last_ms:
                start = bisect_left(offsets, cursor.offsets[-1], start, bisect_right(times, last_ms, start, end))
            cursor.offsets += offsets[start:end]
            cursor.times += times[start:end]
            end = start
            if not end:
                return
        if len(cursors) >= MAX_CURSORS:
            self._join_shorter_half(cursors)
        cursors.append(cursor := RunCursor(base, level, offsets[:end], times[:end]))
        self._enter(cursor)

    def drop(self, cursor: RunCursor) -> None:
        """Forget a cursor that is at its end."""
        cursors = self._cursors[cursor.base | cursor.level]
        cursors.remove(cursor)
        if not cursors:
            del self._cursors[cursor.base | cursor.level]

    @property
    def containers(self) -> list[Any]:
        """The large containers. `clear` replaces them by new ones; the caller of `clear` takes the old ones before, and
        frees them step by step."""
        return [self._cursors]

    def clear(self) -> None:
        self._cursors = {}

    def _join_shorter_half(self, cursors: list[RunCursor]) -> None:
        cursors.sort(key=len, reverse=True)
        begun, records = len(cursors), 0
        while begun > MAX_CURSORS // 2 and records + len(cursors[begun - 1]) <= MAX_JOINED_RECORDS:
            begun -= 1
            records += len(cursors[begun])
        if begun > len(cursors) - 2:
            return
        shorter = cursors[begun:]
        del cursors[begun:]
        pairs: list[tuple[int, int]] = []
        for cursor in shorter:
            self._leave(cursor)
            pairs += zip(cursor.times[cursor.at :], cursor.offsets[cursor.at :], strict=True)
            # Free the memory: the void entry of the cursor may stay in the ready queue for long.
            cursor.times = cursor.offsets = _NOTHING
        times, offsets = _columns(sorted(pairs))
        cursors.append(joined := RunCursor(shorter[0].base, shorter[0].level, offsets, times))
        self._enter(joined)


def _columns(pairs: Iterable[tuple[int, int]]) -> tuple[array[int], array[int]]:
    """Return the timestamps and the offsets of pairs."""
    times, offsets = array("q"), array("q")
    for time, offset in pairs:
        times.append(time)
        offsets.append(offset)
    return times, offsets
