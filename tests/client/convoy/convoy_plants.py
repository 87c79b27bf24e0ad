"""Planted bugs: small faults put into a convoy, to prove that the checkers find such faults. None of this is in the
product. Each function takes `setattr`, or one that takes its changes back later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from logbroker.client.convoy import done_offsets, track
from logbroker.client.convoy.lanes import Lanes
from logbroker.client.convoy.track import RecordState, Track

Set = Callable[[Any, str, Any], None]


def committed_while_it_runs(set_attribute: Set) -> None:
    """Count a record as done as soon as it is started."""

    def floor(self: Track) -> int | None:
        waiting = (node.offset for node in self.nodes() if node.state not in (RecordState.RUNNING, RecordState.DONE))
        return next(waiting, self.end)

    def done_from(self: Track, base: int) -> None:
        return None

    set_attribute(Track, "floor", property(floor))
    set_attribute(Track, "done_from", done_from)


def text_cut_off(set_attribute: Set) -> None:
    """Write down no more than some ranges, and forget the others."""
    encode = done_offsets.encode

    def cut_off(done: Any) -> str:
        return encode(done_offsets.DoneOffsets(done.base, done.epoch, done.ranges[:2]))

    set_attribute(track, "encode", cut_off)


def started_too_far_ahead(set_attribute: Set) -> None:
    """Start every record that is ready, whether what is done can still be written down or not."""
    set_attribute(Track, "may_start", lambda self, entry: True)


def successor_before_its_turn(set_attribute: Set) -> None:
    """Let the next record of a key run when one has failed."""
    delay = Lanes.delay

    def and_go_on(self: Lanes, entry: Any, now: float) -> None:
        successor, entry.successor = entry.successor, None
        delay(self, entry, now)
        if successor is not None:
            self._ready.append(successor)
        elif entry.key is not None:
            entry.track.lanes.pop(entry.key, None)
            entry.key = None

    set_attribute(Lanes, "delay", and_go_on)


PLANTS: Final[Mapping[str, Callable[[Set], None]]] = {
    plant.__name__: plant
    for plant in (committed_while_it_runs, text_cut_off, started_too_far_ahead, successor_before_its_turn)
}
