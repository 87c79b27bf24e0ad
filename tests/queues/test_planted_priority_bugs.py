"""The models catch bugs of the order: each is planted, and must be found within some hundred runs."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import pytest

from logbroker.queues.machine.alteration import Alteration
from logbroker.queues.machine.lane_index import LaneIndex
from logbroker.queues.machine.reindex import Index
from logbroker.queues.model.lane import READY, Lane, RankedLane, ranked
from logbroker.queues.model.settings import OnExhausted, Ordering, Priority, PriorityRank
from logbroker.queues.priority.ranking import Ranking
from logbroker.queues.priority.ready_queue import PriorityLine
from logbroker.queues.priority.runs import RunCursor
from tests.queues.priority_stateful import PriorityMachine
from tests.queues.ranked_stateful import RankedMachine
from tests.queues.test_planted_bugs import Plant, hunt


def head_not_read_again_after_pop(patch: pytest.MonkeyPatch) -> None:
    """The source goes back into the heap as if its next record were as old as the one that was taken."""
    take_front: Callable[..., RankedLane | None] = PriorityLine._take_front

    def bug(self: PriorityLine, level: int) -> RankedLane | None:
        before, _, _, source = self._heaps[level][0]
        lane = take_front(self, level)
        if isinstance(source, RunCursor) and len(source):
            heap = self._heaps[level]
            heap[:] = [(before, *entry[1:]) if entry[3] is source else entry for entry in heap]
            heapq.heapify(heap)
        return lane

    patch.setattr(PriorityLine, "_take_front", bug)


def inheritance_dropped(patch: pytest.MonkeyPatch) -> None:
    """A lane is ranked by its head, though it is set to be ranked by its most urgent record."""
    patch.setattr(RankedLane, "urgency", property(lambda self: self.priority))


def a_hot_successor_does_not_raise_a_lane_that_is_ready(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PriorityLine, "rise", lambda *_: None)


def line_rebuilt_without_leased_lanes(patch: pytest.MonkeyPatch) -> None:
    """Another rank takes effect while records are in flight, which the index that is made anew does not know: their
    lanes come into the line a second time."""
    rebuild = Alteration.rebuild_if_drained

    def bug(self: Alteration) -> None:
        deliveries = self._parts.deliveries
        in_flight, deliveries.in_flight = deliveries.in_flight, 0
        rebuild(self)
        deliveries.in_flight = in_flight

    patch.setattr(Alteration, "rebuild_if_drained", bug)


def priorities_forgotten_when_a_lane_goes_on(patch: pytest.MonkeyPatch) -> None:
    def bug(self: Ranking, lane: Lane, left: int) -> None:
        self.ranks.take(lane.head)

    patch.setattr(Ranking, "go_on", bug)


def what_comes_back_goes_to_the_front(patch: pytest.MonkeyPatch) -> None:
    def bug(self: PriorityLine, lanes: list[Lane]) -> None:
        for lane in lanes:
            lane.state = READY
            kept, ranked(lane).timestamp_ms = ranked(lane).timestamp_ms, -1
            self.append(lane)
            ranked(lane).timestamp_ms = kept

    patch.setattr(PriorityLine, "give_back", bug)


def offsets_alone_decide(patch: pytest.MonkeyPatch) -> None:
    admit: Callable[..., None] = Ranking.admit

    def bug(self: Ranking, base: int, offsets: Any, priorities: bytes, times: Any) -> None:
        admit(self, base, offsets, priorities, [0] * len(offsets))

    patch.setattr(Ranking, "admit", bug)


def the_first_lane_with_a_key_is_not_the_best(patch: pytest.MonkeyPatch) -> None:
    def bug(self: PriorityLine) -> bytes | None:
        keyed = (lane for lane in self._sources() if isinstance(lane, RankedLane) and lane.key is not None)
        return next((lane.key for lane in keyed), None)

    patch.setattr(PriorityLine, "next_key", bug)


def a_reserved_lane_stays_in_its_heap(patch: pytest.MonkeyPatch) -> None:
    def bug(self: LaneIndex, key: bytes) -> None:
        lane = self.get(key)
        if lane is not None and lane.state == READY:
            self.make_ready(lane)

    patch.setattr(LaneIndex, "reserve", bug)


def ranks_stay_when_their_records_are_done(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ranking, "clear", lambda self: None)


def parked_lanes_are_forgotten_by_another_rank(patch: pytest.MonkeyPatch) -> None:
    rebuild: Callable[..., None] = Index.rebuild
    patch.setattr(Index, "rebuild", lambda self, *, keep_keys, **rest: rebuild(self, keep_keys=False, **rest))


_STRICT: dict[str, Any] = {"priorities": (Priority.STRICT,)}
_BY_LANE: dict[str, Any] = {**_STRICT, "ranks": (PriorityRank.LANE,)}
_PARK: dict[str, Any] = {"policies": (OnExhausted.PARK,), "attempts": (1,)}
_KEYED: dict[str, Any] = {**_STRICT, "orderings": (Ordering.KEY,)}


@pytest.mark.parametrize(
    ("machine", "plant", "pins"),
    [
        (PriorityMachine, head_not_read_again_after_pop, _STRICT),
        (PriorityMachine, inheritance_dropped, _BY_LANE),
        (RankedMachine, inheritance_dropped, {**_BY_LANE, **_KEYED}),
        (PriorityMachine, a_hot_successor_does_not_raise_a_lane_that_is_ready, _BY_LANE),
        (RankedMachine, line_rebuilt_without_leased_lanes, _STRICT),
        (PriorityMachine, priorities_forgotten_when_a_lane_goes_on, _STRICT),
        (PriorityMachine, what_comes_back_goes_to_the_front, _STRICT),
        (PriorityMachine, offsets_alone_decide, _STRICT),
        (PriorityMachine, the_first_lane_with_a_key_is_not_the_best, _STRICT),
        (RankedMachine, a_reserved_lane_stays_in_its_heap, _KEYED),
        (RankedMachine, ranks_stay_when_their_records_are_done, _KEYED),
        (RankedMachine, parked_lanes_are_forgotten_by_another_rank, {**_KEYED, **_PARK}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.prove(keep=1)
def test_a_planted_bug_is_caught(
    machine: type[Any], plant: Plant, pins: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    hunt(type("Planted", (machine,), pins))
