"""Planted bugs: small faults put into a running broker, to prove that the storm's checkers find such faults.

Each function replaces something in the modules of this process, which then goes on as ever. None of this is in the
product. `python -m tests.queue_storm.queue_plants NAME serve ...` is a broker with one of them. Those of the machine
without I/O are planted, and found much faster, in tests/queues; these show that the real thing is looked at as closely.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


def two_in_flight_in_a_lane() -> None:
    """Hand out the successor of a lane beside its head."""
    from logbroker.queues.machine.lane_index import LaneIndex
    from logbroker.queues.model.lane import Lane

    def make(take: Any) -> Any:
        def greedy(self: Any, *given: int) -> Any:
            taken = take(self, *given)
            for piece in taken:
                for lane in piece if isinstance(piece, list) else ():
                    if lane.tail:
                        self.make_ready(Lane(None, lane.tail.pop(0), 0))
                        lane.tail = lane.tail or None
            return taken

        return greedy

    _replace(LaneIndex, "take", make)


def late_settlements_accepted() -> None:
    """Accept settlements after the lease has ended, though the record is handed out again."""
    from logbroker.queues.machine.leases import Deliveries

    finish = Deliveries._finish

    def make(expire: Any) -> Any:
        def leave_open(self: Any, now: float) -> Any:
            Deliveries._finish = lambda *_: None  # type: ignore[method-assign]
            lost = expire(self, now)
            Deliveries._finish = finish  # type: ignore[method-assign]
            return lost

        return leave_open

    _replace(Deliveries, "pop_expired", make)
    Deliveries._gone_by = lambda *_: None  # type: ignore[method-assign]


def answered_before_synced() -> None:
    """Answer settlements at once, and store them half a second later."""
    from logbroker.group_runtime.group_commit import GroupCommit
    from logbroker.group_runtime.group_store import GroupStore

    def make(synced: Any) -> Any:
        def at_once(self: Any, result: Any, rows: Any = ()) -> Any:
            future = synced(self, result, rows)
            if not isinstance(result, list):
                return future
            answered = asyncio.get_running_loop().create_future()
            answered.set_result(result)
            return answered

        return at_once

    def make_slow(commit: Any) -> Any:
        async def slow(self: Any, events: Any) -> None:
            await asyncio.sleep(0.5 if self._is_stored else 0)
            await commit(self, events)

        return slow

    _replace(GroupCommit, "synced", make)
    _replace(GroupStore, "commit", make_slow)


def attempts_forgotten_at_restart() -> None:
    """Load a queue group without its failures."""
    from logbroker.queues.state.failures import Failures

    _replace(Failures, "load", lambda _: lambda *_: None)


def backoffs_ignored() -> None:
    """Hand a record that failed out again at once."""
    from logbroker.queues.machine.stalled_lanes import StalledLanes

    _replace(StalledLanes, "wait", lambda _: lambda self, lane, _due: self._lanes.make_ready(lane))


def parked_lanes_leak() -> None:
    """Let one successor out of each lane that is parked."""
    from logbroker.queues.machine.stalled_lanes import StalledLanes
    from logbroker.queues.model.lane import Lane

    def make(park: Any) -> Any:
        def leaky(self: Any, lane: Any, *rest: Any) -> None:
            park(self, lane, *rest)
            if lane.key is not None and lane.tail:
                self._lanes.make_ready(Lane(None, lane.tail.pop(), 0))
                lane.tail = lane.tail or None

        return leaky

    _replace(StalledLanes, "_park", make)


def stale_tokens_accepted() -> None:
    """Let whoever names the key of a session write its state."""
    from logbroker.queues.machine.sessions import Sessions

    def make(own: Any) -> Any:
        def anybody(self: Any, worker_id: str, key: bytes, token: int) -> Any:
            return self._table.get(key) or own(self, worker_id, key, token)

        return anybody

    _replace(Sessions, "_own", make)


PLANTS: Final[Mapping[str, Callable[[], None]]] = {
    plant.__name__: plant
    for plant in (
        two_in_flight_in_a_lane,
        late_settlements_accepted,
        answered_before_synced,
        attempts_forgotten_at_restart,
        backoffs_ignored,
        parked_lanes_leak,
        stale_tokens_accepted,
    )
}


def main() -> None:
    """Run the command `logbroker` with the bug that the first argument names."""
    from logbroker.cli.main import main as logbroker

    PLANTS[sys.argv.pop(1)]()
    logbroker()


if __name__ == "__main__":
    main()
