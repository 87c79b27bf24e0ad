"""Workers that come and go, and what becomes of what they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logbroker.queues.deliveries import Deliveries
from logbroker.queues.graces import Graces
from logbroker.queues.held import HeldLanes
from logbroker.queues.ledger import Ledger
from logbroker.queues.lost_receipts import Loss
from logbroker.queues.places import Moment
from logbroker.queues.sessions import Sessions

WORKER_LOST: Final = "the worker was lost"


class Presence:
    """All workers of a queue group, of which only those are known that hold something or have a grace."""

    def __init__(
        self,
        deliveries: Deliveries,
        held: HeldLanes,
        sessions: Sessions,
        ledger: Ledger,
        graces: Graces,
        tick: Callable[[Moment], None],
    ) -> None:
        """`tick`: the queue's, by which whatever is due happens before and after."""
        self._deliveries = deliveries
        self._held = held
        self._sessions = sessions
        self._ledger = ledger
        self._graces = graces
        self._tick = tick

    def gone(self, worker_id: str, now: Moment) -> None:
        """The stream of a worker broke: it keeps what it holds for the grace, and is handed out nothing."""
        self._tick(now)
        self._graces.begin(worker_id, now.seconds + self._held.settings.grace_seconds)
        self._tick(now)

    def back(self, worker_id: str, now: Moment) -> bool:
        """A worker came back; return whether it was in time and keeps what it held."""
        self._tick(now)
        in_time = self._graces.cancel(worker_id)
        self._sessions.offer_again(worker_id)
        return in_time

    def lost(self, worker_id: str, now: Moment) -> None:
        """Another life of a worker came while the one before had its grace: that one is gone for good."""
        self._tick(now)
        self._graces.cancel(worker_id)
        self._lose(worker_id, now)
        self._tick(now)

    def goodbye(self, worker_id: str, now: Moment) -> None:
        """A worker leaves: what it holds is free at once, and no attempt is counted."""
        self._tick(now)
        self._graces.cancel(worker_id)
        self._sessions.end_all(worker_id, Loss.WORKER_LEFT, now)
        for settled in reversed(self._deliveries.lose_all(worker_id, Loss.WORKER_LEFT)):
            self._ledger.give_back(settled)
        self._tick(now)

    def end_graces(self, now: Moment) -> None:
        """Those who did not come back in time are lost. For `tick`."""
        for worker_id in self._graces.pop(now.seconds):
            self._lose(worker_id, now)

    def _lose(self, worker_id: str, now: Moment) -> None:
        self._sessions.end_all(worker_id, Loss.WORKER_LOST, now)
        for settled in self._deliveries.lose_all(worker_id, Loss.WORKER_LOST):
            self._ledger.tally.leases_lost += len(settled)
            self._ledger.fail(settled, WORKER_LOST, None, now)
