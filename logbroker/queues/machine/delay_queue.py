"""Lanes that wait for a time: for the end of a backoff, or for the not-before time of their head."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from logbroker.group_runtime.deadline_heap import DeadlineHeap
from logbroker.queues.model.lane import Lane

READY_AT_ONCE: Final = 4_000
"""The others are ready a moment later."""


class DelayQueue:
    """Lanes by the moment (monotonic seconds) at which they are ready again; each waits for one."""

    def __init__(self) -> None:
        self._lanes: dict[int, tuple[float, Lane]] = {}
        """By their heads."""
        self.deadlines = DeadlineHeap[int](self._due_of)
        """By heads."""

    def add(self, lane: Lane, due: float) -> None:
        self._lanes[lane.head] = due, lane
        self.deadlines.arm(lane.head, due, lane.head)

    def cancel(self, lane: Lane) -> None:
        del self._lanes[lane.head]
        self.deadlines.disarm(lane.head)

    def due(self, lane: Lane) -> float:
        return self._lanes[lane.head][0]

    def get(self, record_id: int) -> Lane | None:
        """The waiting lane whose head this is."""
        entry = self._lanes.get(record_id)
        return None if entry is None else entry[1]

    def lanes(self) -> list[Lane]:
        return [lane for _, lane in self._lanes.values()]

    def heads(self) -> Iterable[int]:
        return self._lanes.keys()

    def __len__(self) -> int:
        return len(self._lanes)

    def pop(self, now: float) -> list[Lane]:
        """Return lanes that are due, in the order of their times, up to `READY_AT_ONCE` of them."""
        lanes: list[Lane] = []
        while len(lanes) < READY_AT_ONCE and (head := self.deadlines.pop(now)) is not None:
            lanes.append(self._lanes.pop(head)[1])
        return lanes

    def clear(self) -> None:
        self._lanes.clear()
        self.deadlines.clear()

    def _due_of(self, head: int) -> float:
        return self._lanes[head][0]
