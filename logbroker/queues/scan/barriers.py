"""Scan barriers: who takes one is not served before all is scanned that was readable at that moment.

The scan is seen as rounds. A round is over when each partition of it is scanned up to the end that it had when the
round first read it. So a round ends however fast the partitions grow, and what comes to be readable meanwhile makes
the next one. A barrier is the number of the round with which all is scanned that was readable when it was taken.
"""

from __future__ import annotations

from typing import Final

NO_BARRIER: Final = 0
"""A barrier that has always passed."""
_UNREAD: Final = -2
_READING: Final = -1


class ScanBarriers:
    """The rounds of one scan, which reads one partition at a time. No I/O."""

    def __init__(self) -> None:
        self._round = 1
        self._ends: dict[int, int] = {}
        """By partition of this round that is not scanned yet, the offset up to which it is to be scanned."""
        self._next: dict[int, bool] = {}
        """Partitions of the next round; whether they came to have more since they were read last."""
        self._is_behind = True

    # --- what is asked -----------------------------------------------------------------------------------------------

    def take(self) -> int:
        """Return a barrier at what is readable now; NO_BARRIER where all is scanned."""
        if self._next:
            return self._round + 1
        return NO_BARRIER if self._is_idle else self._round

    def has_passed(self, barrier: int) -> bool:
        """Whether all is scanned that was readable when the barrier was taken."""
        return barrier < self._round or self._is_idle

    @property
    def _is_idle(self) -> bool:
        """Whether all is scanned, as far as it is known; then no partition waits for the next round either."""
        return not self._ends and not self._is_behind

    @property
    def rounds(self) -> int:
        """Rises with each round that is over."""
        return self._round

    @property
    def is_behind(self) -> bool:
        """Whether there are generations of the topic that are not begun: the round goes on until they are."""
        return self._is_behind

    @is_behind.setter
    def is_behind(self, is_behind: bool) -> None:
        was_behind, self._is_behind = self._is_behind, is_behind
        if was_behind and self._is_idle:
            self._end_round()

    # --- what the scan tells -----------------------------------------------------------------------------------------

    def begin(self, partition: int) -> None:
        """A partition is to be scanned in this round, whatever it has."""
        self._ends[partition] = _UNREAD

    def note(self, partition: int) -> None:
        """A partition has more."""
        if self._ends:
            self._next[partition] = True
        else:
            self._ends[partition] = _UNREAD

    def reading(self, partition: int) -> None:
        """A partition is about to be read: what it is noted for from now on, the read may not show."""
        if self._ends.get(partition) == _UNREAD:
            self._ends[partition] = _READING
        if partition in self._next:
            self._next[partition] = False

    def has_end(self, partition: int, end: int) -> None:
        """The read showed up to where the partition is readable."""
        if self._ends.get(partition) == _READING:
            self._ends[partition] = end

    def scanned(self, partition: int, position: int) -> None:
        """A partition is scanned up to a position."""
        end = self._ends.get(partition, _UNREAD)
        if 0 <= end <= position:
            self._leave(partition)

    def scanned_all(self, partition: int) -> None:
        """A partition is scanned up to the end that the last read of it showed, or to the end of its generation."""
        if not self._next.get(partition, True):
            del self._next[partition]
        if self._ends.get(partition, _UNREAD) != _UNREAD:
            self._leave(partition)

    def drop(self, partition: int) -> None:
        """A partition cannot be scanned: nobody waits for it."""
        self._next.pop(partition, None)
        if partition in self._ends:
            self._leave(partition)

    def drop_all(self) -> None:
        """All is to be scanned anew, by generations that are to begin: until then the round goes on."""
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
