"""What the parts of a running queue group share: its machine, its commits, the time, and whether it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic

from logbroker.clock import Clock
from logbroker.engine import LogEngine, StateEvent
from logbroker.errors import BrokerUnavailableError, LogbrokerError
from logbroker.group_runtime.group_commit import GroupCommit
from logbroker.group_runtime.group_store import GroupStore
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.messages import Outputs
from logbroker.queues.model.record_id import Moment


class GroupContext:
    """One queue group, to those who work for it."""

    def __init__(
        self,
        group_id: str,
        queue: Queue,
        engine: LogEngine,
        store: GroupStore,
        clock: Clock,
        *,
        serve: Callable[[], None],
        on_synced: Callable[[Outputs], None],
        on_failed: Callable[[LogbrokerError], None],
    ) -> None:
        """`serve` hands out what can be; `on_synced` is given outputs whose rows are stored, `on_failed` why nothing
        more is."""
        self.group_id = group_id
        self.queue = queue
        self.engine = engine
        self.serve = serve
        self.commits = GroupCommit(f"queue group {group_id}", store, self._gather, on_synced, on_failed)
        self.error: LogbrokerError | None = None
        """What the group has ended with."""
        self.is_over = False
        """The group has ended, or is about to stop."""
        self.is_frozen = False
        """The broker stops: nothing is handed out any more."""
        self.serving_due = False
        """`serve` is about to be called."""
        self.check_room: Callable[..., None] = store.check_room
        """See `StateStore.check_room`: ask before anything is begun that is to be stored."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()

    def moment(self) -> Moment:
        # Not the loop's time, which some loops keep from the beginning of a round: it would end a backoff early.
        return Moment(monotonic(), self._clock.wall_ms())

    def touched(self) -> None:
        """The machine was given an input: there may be something to store, and somebody to serve."""
        self.commits.request()
        self.serve_soon()

    def serve_soon(self) -> None:
        """Serve a moment later, so that what comes together is handed out together."""
        if not self.serving_due:
            self.serving_due = True
            self._loop.call_soon(self.serve)

    def freeze(self) -> None:
        """The broker stops."""
        self.is_frozen = self.is_over = True

    def end(self, error: LogbrokerError) -> None:
        """The group has ended with this."""
        self.error, self.is_over = error, True

    def check_serving(self, *, settling: bool = False) -> None:
        """Raises what the group has ended with, or BrokerUnavailableError; `settling`: not where it is about to stop,
        for what is in flight then may still be settled."""
        if self.error is not None:
            raise self.error.anew()
        if self.is_frozen and not settling:
            raise BrokerUnavailableError("the broker is stopping; connect again once it is back")

    def stored(self, rows: Sequence[StateEvent]) -> asyncio.Future[None]:
        """Return a future that is done when rows are synced, with all that happened up to now."""
        return self.commits.synced(None, rows)

    def _gather(self) -> tuple[Sequence[StateEvent], Outputs]:
        outputs = self.queue.take_outputs()
        return outputs.events, outputs
