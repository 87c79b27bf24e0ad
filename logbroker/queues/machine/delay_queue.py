"""Lanes that wait for a time: the end of a backoff, the not-before time of their head, or the next attempt to read
it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from logbroker.group_runtime.deadline_heap import DeadlineHeap
from logbroker.queues.model.lane import Lane

READY_AT_ONCE: Final = 4_000
"""Maximum number of lanes per `pop`. Other lanes that are due become ready a moment later."""


class DelayQueue:
    """Lanes by the time (monotonic seconds) at which they become ready again. A lane waits for one time only."""

    def __init__(self) -> None:
        self._lanes: dict[int, tuple[float, Lane]] = {}
        """Due times and lanes, by the heads of the lanes."""
        self.deadlines = DeadlineHeap[int](self._due_of)
        """Due times by the heads of the lanes."""

    def add(self, lane: Lane, due: float) -> None:
        self._lanes[lane.head] = due, lane
        self.deadlines.arm(lane.head, due, lane.head)

    def cancel(self, lane: Lane) -> None:
        del self._lanes[lane.head]
        self.deadlines.disarm(lane.head)

    def due(self, lane: Lane) -> float:
        return self._lanes[lane.head][0]

    def get(self, record_id: int) -> Lane | None:
        """Return the waiting lane with this head."""
        entry = self._lanes.get(record_id)
        return None if entry is None else entry[1]

    def lanes(self) -> list[Lane]:
        return [lane for _, lane in self._lanes.values()]

    def heads(self) -> Iterable[int]:
        return self._lanes.keys()

    def __len__(self) -> int:
        return len(self._lanes)

    def pop(self, now: float) -> list[Lane]:
        """Return lanes that are due, ordered by their times, at most `READY_AT_ONCE`."""
        lanes: list[Lane] = []
        while len(lanes) < READY_AT_ONCE and (head := self.deadlines.pop(now)) is not None:
            lanes.append(self._lanes.pop(head)[1])
        return lanes

    def clear(self) -> None:
        self._lanes.clear()
        self.deadlines.clear()

    def _due_of(self, head: int) -> float:
        return self._lanes[head][0]
