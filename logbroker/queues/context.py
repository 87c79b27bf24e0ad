"""The state that the parts of a running queue group share: its state machine, commits, clock, and whether it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic

from logbroker.clock import Clock
from logbroker.engine import LogEngine, StateEvent
from logbroker.errors import LogbrokerError
from logbroker.group_runtime.group_commit import GroupCommit
from logbroker.group_runtime.group_store import GroupStore
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.messages import Outputs
from logbroker.queues.model.record_id import Moment


class GroupContext:
    """One queue group, as seen by the parts that work for it."""

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
        """`serve` hands out records that are ready. `on_synced` is called with outputs whose rows are stored;
        `on_failed`, with an error after which no more rows can be stored."""
        self.group_id = group_id
        self.queue = queue
        self.engine = engine
        self.serve = serve
        self.commits = GroupCommit(f"queue group {group_id}", store, self._gather, on_synced, on_failed)
        self.error: LogbrokerError | None = None
        """Terminal error of the group; None while it runs."""
        self.is_over = False
        """Whether the group has ended or is about to stop."""
        self.stopping: LogbrokerError | None = None
        """Error of a group that is stopping, and hands nothing out any more; None: it is not."""
        self.serving_due = False
        """Whether a call of `serve` is scheduled."""
        self.check_room: Callable[..., None] = store.check_room
        """See `StateStore.check_room`. Call it before starting anything that will be stored."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()

    def moment(self) -> Moment:
        # The event loop's time is not used: some loops return the time at which their iteration began, and a backoff
        # would end too early.
        return Moment(monotonic(), self._clock.wall_ms())

    def touched(self) -> None:
        """Request a commit and a call of `serve` after an input to the state machine."""
        if self.queue.splitting.is_changing:
            self.queue.splitting.look_again()
        self.commits.request()
        self.serve_soon()

    def serve_soon(self) -> None:
        """Schedule `serve` for the next loop iteration, so that inputs that come together are served together."""
        if not self.serving_due:
            self.serving_due = True
            self._loop.call_soon(self.serve)

    def freeze(self, error: LogbrokerError) -> None:
        """Stop handing out records because the group is stopping."""
        self.stopping, self.is_over = error, True

    def end(self, error: LogbrokerError) -> None:
        """Mark the group as ended with this error."""
        self.error, self.is_over = error, True

    def check_serving(self, *, settling: bool = False) -> None:
        """Raise the group's terminal error, or the error of a group that is stopping. With `settling`, this is no
        error: deliveries in flight may still be settled."""
        if self.error is not None:
            raise self.error.anew()
        if self.stopping is not None and not settling:
            raise self.stopping.anew()

    def stored(self, rows: Sequence[StateEvent]) -> asyncio.Future[None]:
        """Return a future that completes when these rows and all changes up to now are synced."""
        return self.commits.synced(None, rows)

    def _gather(self) -> tuple[Sequence[StateEvent], Outputs]:
        outputs = self.queue.take_outputs()
        return outputs.events, outputs
