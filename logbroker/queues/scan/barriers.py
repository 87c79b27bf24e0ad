"""Scan barriers. A waiter takes a barrier, and is served only when all records that were readable then are scanned.

The scan is divided into rounds. A round is over when each of its partitions is scanned up to the end that it had when
the round first read it. So a round ends however fast the partitions grow. Records that become readable during a round
belong to the next one. A barrier is the number of a round: when this round is over, everything that was readable when
the barrier was taken is scanned.
"""

from __future__ import annotations

from typing import Final

NO_BARRIER: Final = 0
"""A barrier that has always passed."""
_UNREAD: Final = -2
"""Stands for the end of a partition that this round has not read yet."""
_READING: Final = -1
"""Stands for the end of a partition until the first read of this round has shown it."""


class ScanBarriers:
    """The rounds of one scan, which reads one partition at a time. No I/O."""

    def __init__(self) -> None:
        self._round = 1
        self._ends: dict[int, int] = {}
        """End offset that the scan must reach, for each partition of this round that has not reached it yet."""
        self._next: dict[int, bool] = {}
        """Partitions of the next round, and whether each got more records since it was last read."""
        self._is_behind = True

    # --- queries -----------------------------------------------------------------------------------------------------

    def take(self) -> int:
        """Return a barrier for everything that is readable now; NO_BARRIER if all of it is already scanned."""
        if self._next:
            return self._round + 1
        return NO_BARRIER if self._is_idle else self._round

    def has_passed(self, barrier: int) -> bool:
        """Return whether everything that was readable when the barrier was taken is scanned."""
        return barrier < self._round or self._is_idle

    @property
    def _is_idle(self) -> bool:
        """Whether everything known to be readable is scanned. If so, no partition waits for the next round either."""
        return not self._ends and not self._is_behind

    @property
    def rounds(self) -> int:
        """Number of the current round; it grows by one with each finished round."""
        return self._round

    @property
    def is_behind(self) -> bool:
        """Whether some generations of the topic are not begun. The round goes on until all are begun."""
        return self._is_behind

    @is_behind.setter
    def is_behind(self, is_behind: bool) -> None:
        was_behind, self._is_behind = self._is_behind, is_behind
        if was_behind and self._is_idle:
            self._end_round()

    # --- updates by the scan -----------------------------------------------------------------------------------------

    def begin(self, partition: int) -> None:
        """Add a partition to this round, whether or not it has records."""
        self._ends[partition] = _UNREAD

    def note(self, partition: int) -> None:
        """Note that a partition has more records."""
        if self._ends:
            self._next[partition] = True
        else:
            self._ends[partition] = _UNREAD

    def reading(self, partition: int) -> None:
        """Note that a partition is about to be read. The read may miss records that `note` reports from now on."""
        if self._ends.get(partition) == _UNREAD:
            self._ends[partition] = _READING
        if partition in self._next:
            self._next[partition] = False

    def has_end(self, partition: int, end: int) -> None:
        """Note the end of a partition as shown by the read."""
        if self._ends.get(partition) == _READING:
            self._ends[partition] = end

    def scanned(self, partition: int, position: int) -> None:
        """Note that a partition is scanned up to a position."""
        end = self._ends.get(partition, _UNREAD)
        if 0 <= end <= position:
            self._leave(partition)

    def scanned_all(self, partition: int) -> None:
        """Note that a partition is scanned up to the end that its last read showed, or to the end of its generation."""
        if not self._next.get(partition, True):
            del self._next[partition]
        if self._ends.get(partition, _UNREAD) != _UNREAD:
            self._leave(partition)

    def drop(self, partition: int) -> None:
        """Drop a partition that cannot be scanned, so that nobody waits for it."""
        self._next.pop(partition, None)
        if partition in self._ends:
            self._leave(partition)

    def drop_all(self) -> None:
        """Drop all partitions because the scan begins anew; the round goes on until the generations are begun."""
        self._ends.clear()
        self._next.clear()
        self._is_behind = True

    def _leave(self, partition: int) -> None:
        del self._ends[partition]
        if self._is_idle:
            self._end_round()

    def _end_round(self) -> None:
        self._round += 1
        self._ends = {partition: _UNREAD if has_more else _READING for partition, has_more in self._next.items()}
        self._next.clear()
