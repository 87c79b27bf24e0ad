"""Records without ordering key in a queue group with priorities: as sorted runs, of which the line has only the heads.

A *cursor* stands for records of one partition and one priority, sorted by timestamp and offset: 16 bytes each. What is
older than the last record of one cursor goes to another, so that nothing is ever put in between. *Unread* are records
of which the first of each priority is known, and the others are not looked at before that one is taken.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Final

import msgspec

from logbroker.queues.priority.levels import Head, rises

MAX_CURSORS: Final = 32
"""Of one partition and priority. Where timestamps are all in disorder, the shorter half is joined to one: a record is
moved a few times then, as in a merge sort."""
MAX_JOINED_RECORDS: Final = 16_384
"""In some 10 ms. Longer cursors stay as they are, and are more than MAX_CURSORS where there must be."""

_CONSUMED: Final = 4096
"""The first records are dropped from memory, where so many, and half of all, are consumed."""


_NOTHING: Final = array("q")


class RunCursor(msgspec.Struct, gc=False, eq=False):
    """A run of records, of which the first ones are consumed."""

    base: int
    """The record id of offset 0 of its partition."""
    level: int
    offsets: array[int]
    times: array[int]
    at: int = 0
    """The index of the head; behind the last one, the cursor is at its end."""
    entry: int = 0
    """The number of its entry in the line; 0: it is not there."""

    def __len__(self) -> int:
        return len(self.offsets) - self.at

    @property
    def head(self) -> tuple[int, int]:
        """Timestamp and record id."""
        return self.times[self.at], self.base | self.offsets[self.at]

    def consume(self) -> bool:
        """Go on behind the head; return whether there is another."""
        at = self.at = self.at + 1
        if at >= _CONSUMED and at * 2 >= len(self.offsets):
            del self.offsets[:at], self.times[:at]
            self.at = 0
        return self.at < len(self.offsets)

    def take(self, wanted: Set[int]) -> list[tuple[int, int]]:
        """Take the records of these offsets out, wherever they are; return timestamps and offsets. Goes through all."""
        waiting = self.offsets[self.at :]
        if wanted.isdisjoint(waiting):
            return []
        pairs = list(zip(self.times[self.at :], waiting, strict=True))
        self.times, self.offsets = _columns(pair for pair in pairs if pair[1] not in wanted)
        self.at = 0
        return [pair for pair in pairs if pair[1] in wanted]


class Unread(msgspec.Struct, gc=False, eq=False):
    """Consecutive records of one partition that wait; those of a priority are read when the first of them is taken."""

    base: int
    first_offset: int
    next_offset: int
    counts: Sequence[int]
    """How many wait, by priority."""
    heads: Sequence[Head]
    """By priority; anything where none waits."""
    read: Callable[[int], tuple[array[int], array[int]] | None]
    """Return offsets and timestamps of what waits of a priority; None where that cannot be read. Called once each."""
    entry: int = 0
    """The number of its entries in the line, one for each priority that is not read yet."""

    def has_any(self, record_ids: Sequence[int]) -> bool:
        """Whether one of these record ids, which are sorted, lies in it."""
        index = bisect_left(record_ids, self.base | self.first_offset)
        return index < len(record_ids) and record_ids[index] < self.base | self.next_offset


class Cursors:
    """All cursors that are not at their end, by partition and level."""

    def __init__(self, enter: Callable[[RunCursor], None], leave: Callable[[RunCursor], None]) -> None:
        """A cursor has come to be, or is replaced by another."""
        self._enter = enter
        self._leave = leave
        self._cursors: dict[int, list[RunCursor]] = {}
        """By base | level, in the order of their making."""

    def admit(self, base: int, level: int, offsets: array[int], times: array[int]) -> None:
        """Take in records of rising offsets, that are in no cursor."""
        end = len(times)
        if end > 1 and not rises(times):
            times, offsets = _columns(sorted(zip(times, offsets, strict=True)))
        cursors = self._cursors.setdefault(base | level, [])
        for cursor in cursors:
            # What comes after its last record. Usually all, and by its time alone; an earlier block is read later.
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
        """What holds much, and is no more theirs after `clear`."""
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
            # Its entry may lie in the line for long, and is void.
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
