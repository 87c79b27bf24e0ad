"""The deadlines of many members, most of which only ever move later.

A heap with one live entry per member, not later than its deadline. A heartbeat, which moves a deadline later, does not
touch the heap: when the entry is reached, the member is asked again. So `next` may be early, never late.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

from logbroker.consumer_groups.member import Member, State

_SLACK = 64
"""Dead entries that are not worth a clean-up."""


class Deadlines:
    """Monotonic seconds at which members are to be looked at."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Member]] = []
        self._entries = 0

    def arm(self, member: Member, live: int) -> None:
        """Note the deadline of a member; `live` is the number of members that there are."""
        deadline = member.deadline()
        if deadline >= member.armed_for:
            return
        member.armed_for = deadline
        self._entries += 1  # orders entries of the same time
        heapq.heappush(self._heap, (deadline, self._entries, member))
        if len(self._heap) > 2 * live + _SLACK:
            self._heap = [entry for entry in self._heap if _is_live(entry[0], entry[2])]
            heapq.heapify(self._heap)

    def next(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def is_due(self, now: float, live: int) -> bool:
        """Whether any member is to be fenced by now. Arms those anew that were heard of since."""
        while self._heap and self._heap[0][0] <= now:
            armed_for, _, member = self._heap[0]
            if _is_live(armed_for, member):
                if member.deadline() <= now:
                    return True
                member.armed_for = math.inf
                heapq.heappop(self._heap)
                self.arm(member, live)
            else:
                heapq.heappop(self._heap)
        return False

    def due(self, now: float) -> Iterator[Member]:
        """Take out the members whose entry is reached: each is to be armed again, or removed."""
        while self._heap and self._heap[0][0] <= now:
            armed_for, _, member = heapq.heappop(self._heap)
            if _is_live(armed_for, member):
                member.armed_for = math.inf
                yield member


def _is_live(armed_for: float, member: Member) -> bool:
    return member.armed_for == armed_for and member.state is not State.GONE
