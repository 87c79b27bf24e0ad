"""Workers that connect, break off, return and leave: what happens to their deliveries and sessions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from logbroker.queues.machine.leases import LOST_AT_ONCE, Deliveries
from logbroker.queues.machine.outcomes import Outcomes
from logbroker.queues.machine.reconnect_grace import ReconnectGraces
from logbroker.queues.machine.sessions import Sessions
from logbroker.queues.machine.stalled_lanes import StalledLanes
from logbroker.queues.model.holders import LeaseHolder
from logbroker.queues.model.lost_receipts import Loss
from logbroker.queues.model.record_id import Moment

WORKER_LOST: Final = "the worker was lost"


class WorkerLifecycle:
    """The workers of a queue group. Only those that hold something or are in their grace are known."""

    def __init__(
        self,
        deliveries: Deliveries,
        stalled: StalledLanes,
        sessions: Sessions,
        outcomes: Outcomes,
        graces: ReconnectGraces,
        tick: Callable[[Moment], None],
    ) -> None:
        """`tick` is the queue's method that carries out whatever is due. It is called before each change."""
        self._deliveries = deliveries
        self._stalled = stalled
        self._sessions = sessions
        self._outcomes = outcomes
        self._graces = graces
        self._tick = tick
        self.going: deque[LeaseHolder] = deque()
        """Workers that are gone, and whose deliveries and sessions `tick` takes back step by step."""

    def gone(self, worker_id: str, now: Moment) -> None:
        """Note that the stream of a worker broke. For the grace, the worker keeps its deliveries, and gets no more."""
        self._tick(now)
        self._graces.begin(worker_id, now.seconds + self._stalled.settings.grace_seconds)
        self._tick(now)

    def back(self, worker_id: str, now: Moment) -> bool:
        """Note that a worker came back; return whether it was in time and keeps its deliveries and sessions."""
        self._tick(now)
        in_time = self._graces.cancel(worker_id)
        self._sessions.offer_again(worker_id)
        return in_time

    def lost(self, worker_id: str, now: Moment) -> None:
        """Give up a worker in its grace, because another incarnation of it came."""
        self._tick(now)
        self._graces.cancel(worker_id)
        self._let_go(worker_id, Loss.WORKER_LOST)
        self._tick(now)

    def goodbye(self, worker_id: str, now: Moment) -> None:
        """Note that a worker left. Its deliveries and sessions are free at once, and no attempt is counted."""
        self._tick(now)
        self._graces.cancel(worker_id)
        self._let_go(worker_id, Loss.WORKER_LEFT)
        self._tick(now)

    def end_graces(self, now: Moment) -> None:
        """Give up workers that did not come back in time, and take back some deliveries of workers that are gone.
        Called by `tick`."""
        for worker_id in self._graces.pop(now.seconds):
            self._let_go(worker_id, Loss.WORKER_LOST)
        room = LOST_AT_ONCE
        while self.going and room > 0:
            room -= self._take_back(self.going[0], now)

    def forget_going(self) -> None:
        """Forget workers that are gone, because nothing is in flight any more, and no session is open."""
        self.going.clear()

    def _let_go(self, worker_id: str, why: Loss) -> None:
        worker = self._deliveries.let_go(worker_id, why)
        if worker is not None:
            self.going.append(worker)

    def _take_back(self, worker: LeaseHolder, now: Moment) -> int:
        """Take back one session of a worker that is gone or, after the sessions, some deliveries. Return the cost: 1
        plus the number of records."""
        why = worker.gone
        assert why is not None
        for session in worker.sessions.values():
            count = session.in_flight
            self._sessions.end(session, why, now)
            return 1 + count
        if not worker.grants:
            self.going.popleft()
            return 1
        # Records that are given back go to the front of the ready queue, so the last ones are given back first.
        comes_back = why is Loss.WORKER_LEFT or next(reversed(worker.grants.values())).excused
        settled, excused = self._deliveries.lose_some(worker, why, last=comes_back)
        if excused or why is Loss.WORKER_LEFT:
            self._outcomes.give_back(settled)
        else:
            self._outcomes.tally.leases_lost += len(settled)
            self._outcomes.fail(settled, worker.reason(WORKER_LOST), None, now)
        return 1 + len(settled)
