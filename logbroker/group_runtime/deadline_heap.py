"""A heap of deadlines. Most of them move later again and again, or are dropped long before they are reached.

Each item has at most one live entry, which is not later than its deadline. Moving a deadline later or ending an item
does not touch the heap: when the entry is reached, the item is asked for its deadline. So `next_at` may be early but
never late, and a heartbeat costs nothing here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

NEVER: Final = float("inf")
_SLACK: Final = 64
"""Number of dead entries that are not worth a clean-up."""

T = TypeVar("T", bound=Hashable)


class DeadlineHeap(Generic[T]):
    """Items with their deadlines (monotonic seconds)."""

    def __init__(self, deadline_of: Callable[[T], float]) -> None:
        """`deadline_of` returns the current deadline of an armed item; NEVER: it has none."""
        self.next_at = NEVER
        """A lower bound of all deadlines."""
        self._deadline_of = deadline_of
        self._armed: dict[T, float] = {}
        """The time of each item's live entry."""
        self._entries: list[tuple[float, int, int, T]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._entries)

    def arm(self, item: T, deadline: float, order: int = 0) -> None:
        """Arm an item for its deadline. Items with the same time come in the order of `order`.

        Call it for a new item and when a deadline moves earlier. At other times the call costs little.
        """
        if deadline >= self._armed.get(item, NEVER):
            return
        self._armed[item] = deadline
        self._pushed += 1
        heapq.heappush(self._entries, (deadline, order, self._pushed, item))
        if len(self._entries) > 2 * len(self._armed) + _SLACK:
            self._entries = [entry for entry in self._entries if self._armed.get(entry[3]) == entry[0]]
            heapq.heapify(self._entries)
        self.next_at = self._entries[0][0]

    def disarm(self, item: T) -> None:
        """Forget an item, if it is armed."""
        self._armed.pop(item, None)

    def is_due(self, now: float) -> bool:
        """Return whether any deadline is reached. If not, `next_at` is later than `now`."""
        while self.next_at <= now:
            armed_for, order, _, item = self._entries[0]
            if self._armed.get(item) == armed_for:
                deadline = self._deadline_of(item)
                if deadline <= now:
                    return True
                self._take_first()
                self.arm(item, deadline, order)
            else:
                self._take_first()
        return False

    def pop(self, now: float) -> T | None:
        """Remove and return the first item whose deadline is reached; None: there is none."""
        return self._take_first() if self.is_due(now) else None

    def clear(self) -> None:
        self._armed.clear()
        self._entries.clear()
        self.next_at = NEVER

    def _take_first(self) -> T:
        armed_for, _, _, item = heapq.heappop(self._entries)
        if self._armed.get(item) == armed_for:
            del self._armed[item]
        self.next_at = self._entries[0][0] if self._entries else NEVER
        return item
