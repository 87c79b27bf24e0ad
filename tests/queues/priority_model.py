"""The order of a line with priorities, said once more: by looking at all that is ready, each time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from logbroker.queues.model.settings import PriorityRank


@dataclass
class ModelRecord:
    """One record; the key None is a lane of its own."""

    record_id: int
    key: bytes | None
    priority: int
    timestamp_ms: int


@dataclass
class ModelLane:
    """Records that wait in order; ready, or not."""

    records: list[ModelRecord] = field(default_factory=list)

    @property
    def head(self) -> ModelRecord:
        return self.records[0]

    def level(self, rank: PriorityRank) -> int:
        """As the docs define it: the most urgent that waits in the lane, or the head."""
        return max(record.priority for record in self.records) if rank is PriorityRank.LANE else self.head.priority

    def order(self, rank: PriorityRank) -> tuple[int, int, int]:
        """The least goes first, in strict order."""
        return -self.level(rank), self.head.timestamp_ms, self.head.record_id


def strict_order(ready: Iterable[ModelLane], rank: PriorityRank, levels: range = range(10)) -> list[ModelLane]:
    """The lanes that are served, in their order."""
    return sorted(
        (lane for lane in ready if lane.level(rank) in levels),
        key=lambda lane: lane.order(rank),
    )


def aged_order(
    ready: Iterable[ModelLane], rank: PriorityRank, age_ms: int, levels: range = range(10)
) -> list[ModelLane]:
    """Return the lanes in order, where each age waited counts as one level more urgent."""

    def key(lane: ModelLane) -> tuple[int, int, int, int]:
        level, head = lane.level(rank), lane.head
        return head.timestamp_ms - level * age_ms, -level, head.timestamp_ms, head.record_id

    return sorted((lane for lane in ready if lane.level(rank) in levels), key=key)


def overtaken(taken: ModelLane, ready: Sequence[ModelLane], rank: PriorityRank) -> list[int]:
    """The levels below that of a lane that is taken which have something older, each once."""
    level, head = taken.level(rank), taken.head
    return sorted(
        {
            lane.level(rank)
            for lane in ready
            if lane.level(rank) < level
            and (lane.head.timestamp_ms, lane.head.record_id) < (head.timestamp_ms, head.record_id)
        }
    )
