"""Planted bugs: small faults put into a running broker, to prove that the storm's checkers find such faults.

Each function replaces something in the modules of this process, which then goes on as ever. None of this is in the
product. `python -m tests.priority.priority_plants NAME serve ...` is a broker with one of them. Those of the machine
without I/O are planted, and found much faster, in tests/queues; these show that the real thing is looked at as closely.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final


def head_not_reread_after_pop() -> None:
    """Leave a run of records where its first one was in the line, however old those behind that one are."""
    from logbroker.queues.priority.runs import RunCursor

    def stale_head(self: RunCursor) -> tuple[int, int]:
        return self.times[0], self.base | self.offsets[self.at]

    advance = RunCursor.advance
    RunCursor.head = property(stale_head)  # type: ignore[method-assign, assignment]
    RunCursor.advance = lambda self: advance(self) and stale_head(self)  # type: ignore[method-assign]


def inheritance_dropped() -> None:
    """Rank a lane as its head, whatever waits behind that."""
    from logbroker.queues.model.lane import RankedLane

    RankedLane.urgency = property(lambda self: self.priority)  # type: ignore[method-assign, assignment]


def heap_rebuilt_without_leased_lanes() -> None:
    """Never let into the line what workers had at a restart, and have again."""
    from logbroker.queues.model.lane import Lane
    from logbroker.queues.priority.ready_queue import PriorityLine

    take_these, append = PriorityLine.take_these, PriorityLine.append
    leased: dict[int, Lane] = {}

    def take_and_forget(self: PriorityLine, wanted: Any) -> Any:
        found = take_these(self, wanted)
        leased.update((id(lane), lane) for lane in found)
        return found

    def append_others(self: PriorityLine, lane: Lane) -> None:
        if id(lane) not in leased:
            append(self, lane)

    PriorityLine.take_these = take_and_forget  # type: ignore[method-assign]
    PriorityLine.append = append_others  # type: ignore[method-assign]


def mark_not_awaited() -> None:
    """Hand out what is known, though there is more to scan that was readable when the worker asked."""
    from logbroker.queues.scan.scanner import Scanner

    slow_scan()
    Scanner.may_serve = lambda _self, mark: True  # type: ignore[method-assign, assignment]


def slow_scan() -> None:
    """No bug: the scan of a group takes its time over each partition, as if the disk was slow."""
    from logbroker.queues.scan.scanner import Scanner

    scan_some = Scanner._scan_some

    async def slowly(self: Scanner, partition: int) -> None:
        await asyncio.sleep(_SCAN_SECONDS)
        await scan_some(self, partition)

    Scanner._scan_some = slowly  # type: ignore[method-assign]


PLANTS: Final[Mapping[str, Callable[[], None]]] = {
    plant.__name__: plant
    for plant in (
        head_not_reread_after_pop,
        inheritance_dropped,
        heap_rebuilt_without_leased_lanes,
        mark_not_awaited,
    )
}

_SCAN_SECONDS: Final = 0.002


def main() -> None:
    """Run the command `logbroker` with the bug that the first argument names."""
    from logbroker.cli.main import main as logbroker

    {**PLANTS, slow_scan.__name__: slow_scan}[sys.argv.pop(1)]()
    logbroker()


if __name__ == "__main__":
    main()
