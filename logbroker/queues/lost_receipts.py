"""Receipts whose delivery was lost: the last 4,096 ranges of them, so that who comes late is told so."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from typing import Final

MAX_REMEMBERED: Final = 4096


class LostReceipts:
    """Ranges of receipts, each with whether a session ended with it."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ranges: dict[int, tuple[int, bool]] = {}
        """Last receipt, and whether a session ended, by the first."""
        self._order: deque[int] = deque()

    def add(self, first: int, last: int, *, ended: bool) -> None:
        insort(self._firsts, first)
        self._ranges[first] = last, ended
        self._order.append(first)
        if len(self._order) > MAX_REMEMBERED:
            oldest = self._order.popleft()
            del self._firsts[bisect_left(self._firsts, oldest)]
            del self._ranges[oldest]

    def find(self, receipt: int) -> tuple[int, bool] | None:
        """The last receipt of the range that holds this one, and whether a session ended with it."""
        index = bisect_right(self._firsts, receipt) - 1
        found = self._ranges[self._firsts[index]] if index >= 0 else None
        return found if found is not None and receipt <= found[0] else None

    def next(self, receipt: int) -> int | None:
        """The first receipt of the next range behind this one."""
        index = bisect_right(self._firsts, receipt)
        return self._firsts[index] if index < len(self._firsts) else None
