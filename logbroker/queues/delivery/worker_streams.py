"""The workers of a queue group: those that are connected, those that may still come back, and the deliveries and
sessions that a worker keeps when it comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import repeat

from logbroker.errors import (
    LogbrokerError,
    OverloadedError,
    WorkerIdInUseError,
    WorkerReplacedError,
    quoted,
)
from logbroker.pacing import Pace, Steps, in_turns
from logbroker.queues.context import GroupContext
from logbroker.queues.delivery.dispatcher import Dispatcher
from logbroker.queues.delivery.worker_stream import WorkerLink
from logbroker.queues.model.holders import WorkerSession
from logbroker.queues.model.lane import lane_key
from logbroker.queues.model.lost_receipts import Loss
from logbroker.queues.model.record_id import Moment, offset_of, partition_of
from logbroker.queues.model.worker_messages import Hello, ListedSession


class WorkerStreams:
    """The streams of the workers of one queue group."""

    def __init__(self, context: GroupContext, dispatcher: Dispatcher, max_workers: int) -> None:
        self.links: dict[str, WorkerLink] = {}
        """Links of the workers that are connected or may still come back, by worker id."""
        self._context = context
        self._queue = context.queue
        self._dispatcher = dispatcher
        self._max_workers = max_workers
        self._scanned = asyncio.Event()
        self._queue.deliveries.client_of = self._client_of

    def _client_of(self, worker_id: str) -> str:
        link = self.links.get(worker_id)
        return "" if link is None else link.client_name

    # --- connecting --------------------------------------------------------------------------------------------------

    async def enter(self, link: WorkerLink, hello: Hello, reserved_until: float) -> None:
        """Connect a worker. Until `reserved_until` (monotonic, s) it may reclaim what it held before the broker
        restarted.

        Raises OverloadedError or WorkerIdInUseError.
        """
        link.resumed = self._replace_previous(link)
        self.links[link.worker_id] = link
        knows_nothing = link.resumed and hello.group_epoch not in (0, self._queue.group_epoch)
        if knows_nothing:
            # The worker's stream broke before the answer to a reclaim arrived, so the worker knows no receipt of this
            # group epoch.
            link.resumed = False
            self._close_unknown(link, hello.sessions)
            self._release_lost(link, ())
        if link.resumed:
            self._close_unknown(link, hello.sessions)
            self._release_lost(link, hello.held)
            link.sessions = [session for session in hello.sessions if self._has(link, session)]
        elif hello.held or hello.sessions:
            try:
                held = await in_turns(self._may_reclaim(hello), Pace())
                await self._wait_for_scan(held, reserved_until)
                found = await in_turns(self._queue.lanes.find_heads(held), Pace())
            except BaseException:
                link.disconnected()
                raise
            if link.connected and (knows_nothing or self._context.moment().seconds < reserved_until):
                link.sessions = [
                    session for session in hello.sessions if self._has(link, session) or self._reclaim(link, session)
                ]
                # The worker has lost the records of its other sessions.
                kept = {lane_key(session.key) for session in link.sessions}
                over = {lane_key(session.key) for session in hello.sessions} - kept
                lost = {lane.head for lane in found if lane.key in over}
                held = [record_id for record_id in held if record_id not in lost]
                link.reclaimed = self._queue.reclaim(link.worker_id, held, self._context.moment(), found)
        link.is_in = True
        self._context.touched()

    def _replace_previous(self, link: WorkerLink) -> bool:
        """Replace the worker's previous stream. Return whether the worker came back in time and keeps its deliveries.

        After a restart of the broker, a worker reclaims its deliveries and sessions. If its previous stream broke
        before it had done so, it reclaims on this one.
        """
        before = self.links.get(link.worker_id)
        if before is None:
            if len(self.links) >= self._max_workers:
                raise OverloadedError(f"the queue group has {len(self.links)} workers, the maximum (max_queue_workers)")
            return False
        if before.incarnation != link.incarnation:
            if before.connected:
                raise WorkerIdInUseError(
                    f"another incarnation of worker {quoted(link.worker_id)} is connected: choose an id that"
                    " nobody else has"
                )
            self._queue.lifecycle.lost(link.worker_id, self._context.moment())
            return False
        if before.connected:
            self._end(before, WorkerReplacedError("the worker came back on another stream"))
            return before.is_in
        return self._queue.lifecycle.back(link.worker_id, self._context.moment()) and before.is_in

    def _release_lost(self, link: WorkerLink, held: Sequence[int]) -> None:
        """Release the worker's deliveries that it does not list: they were lost with the broken stream."""
        known = frozenset(held)
        lost = [
            receipt for receipt, record_id in self._queue.deliveries.held_by(link.worker_id) if record_id not in known
        ]
        self._dispatcher.release(link.worker_id, [(receipt, receipt) for receipt in lost], are_unseen=False)
        self._queue.deliveries.seen(link.worker_id)

    def _close_unknown(self, link: WorkerLink, held: Sequence[ListedSession]) -> None:
        """Close the worker's sessions that it does not list: the answers with their tokens were lost with the broken
        stream."""
        known = {(lane_key(session.key), session.token) for session in held}
        for session in self._queue.sessions.held_by(link.worker_id):
            if (session.key, session.token) not in known:
                self._queue.sessions.close(link.worker_id, session.key, session.token, self._context.moment())

    def _may_reclaim(self, hello: Hello) -> Steps[Sequence[int]]:
        """Return the listed record ids that no other worker can have received after this one.

        Records that have failed after that are left out; the end of a lease counts as a failure. If the group had
        another epoch in between, no id is returned. If the worker lists no attempts or no group epoch, these are not
        checked.
        """
        if hello.group_epoch not in (0, self._queue.previous_epoch, self._queue.group_epoch):
            return ()
        failures = self._queue.failures
        attempts: Iterable[int | None] = hello.attempts or repeat(None, len(hello.held))
        found: list[int] = []
        for record_id, attempt in zip(hello.held, attempts, strict=True):
            if attempt is None or attempt == failures.count(record_id) + 1:
                found.append(record_id)
            yield 1
        return found

    def _has(self, link: WorkerLink, held: ListedSession) -> bool:
        session = self._queue.sessions.get(lane_key(held.key))
        return session is not None and (session.token, session.worker.id) == (held.token, link.worker_id)

    def _reclaim(self, link: WorkerLink, held: ListedSession) -> bool:
        try:
            self._queue.sessions.reclaim(
                link.worker_id, lane_key(held.key), held.token, held.prefetch, self._context.moment()
            )
        except LogbrokerError:
            return False
        return True

    def scanned(self) -> None:
        """Note that the scan has made progress."""
        self._scanned.set()

    async def _wait_for_scan(self, held: Sequence[int], until: float) -> None:
        """Wait until the scan has reached the records that a worker held, or the time is over."""
        last: dict[int, int] = {}
        pace = Pace()
        for record_id in held:
            partition = partition_of(record_id)
            last[partition] = max(last.get(partition, 0), offset_of(record_id))
            await pace.step()
        try:
            async with asyncio.timeout_at(until):
                while any(
                    self._queue.done.is_open(partition) and self._queue.position(partition) <= offset
                    for partition, offset in last.items()
                ):
                    self._scanned.clear()
                    await self._scanned.wait()
        except TimeoutError:
            pass

    # --- disconnecting -----------------------------------------------------------------------------------------------

    def goodbye(self, link: WorkerLink) -> None:
        """Disconnect a worker that leaves."""
        self._end(link, None)
        del self.links[link.worker_id]
        self._queue.lifecycle.goodbye(link.worker_id, self._context.moment())
        self._context.touched()

    def disconnected(self, link: WorkerLink) -> None:
        """Handle a broken stream: for the grace, the worker keeps its deliveries."""
        self._end(link, None)
        now = self._context.moment()
        link.kept_until = now.seconds + self._queue.settings.grace_seconds
        self._queue.lifecycle.gone(link.worker_id, now)
        self.tick(now)
        self._context.touched()

    def _end(self, link: WorkerLink, error: LogbrokerError | None) -> None:
        unsent = link.end(error)
        self._dispatcher.leave(link.pull, unsent, error)

    def tick(self, now: Moment) -> None:
        """Forget workers that did not come back in time."""
        away = [link for link in self.links.values() if not link.connected and link.kept_until <= now.seconds]
        for link in away:
            del self.links[link.worker_id]

    def tell_lost(self, sessions: Iterable[tuple[WorkerSession, Loss]]) -> None:
        """Notify connected workers of sessions that ended although the workers did not close them."""
        for session, why in sessions:
            link = self.links.get(session.worker.id)
            if link is not None and link.connected:
                link.on_session_lost(session.key, session.token, why.of_session)

    def end_all(self, error: LogbrokerError) -> None:
        """End all links of a deleted or failed group."""
        for link in self.links.values():
            link.end(error)
