"""Opens sessions: at once if possible, otherwise when they are free, in the order of the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from logbroker.errors import LogbrokerError, NoFreeSessionError, SessionHeldError, StaleSessionError
from logbroker.queues.context import GroupContext
from logbroker.queues.model.holders import WorkerSession
from logbroker.queues.model.lane import lane_key
from logbroker.queues.model.worker_messages import OpenedSession
from logbroker.queues.scan.barriers import NO_BARRIER
from logbroker.queues.scan.scanner import Scanner


class Opening:
    """A wait for a session."""

    def __init__(
        self, worker_id: str, key: bytes | None, prefetch: int, barrier: int, on_open: Callable[[int], None]
    ) -> None:
        """No session is opened before the scan has reached `barrier`. `on_open` is called with the session's token
        before any of its records is handed out."""
        self.barrier = barrier
        self.on_open = on_open
        self.worker_id = worker_id
        self.key = key
        self.prefetch = prefetch
        self.opened: asyncio.Future[WorkerSession] = asyncio.get_running_loop().create_future()
        self.why_not: LogbrokerError = NO_FREE_SESSION


NO_FREE_SESSION: Final = NoFreeSessionError("no free key has records: try again later, or wait for one")


class SessionWaiters:
    """The waits for sessions of one queue group, in the order in which they came."""

    def __init__(self, context: GroupContext, scanner: Scanner) -> None:
        self._context = context
        self._queue = context.queue
        self._scanner = scanner
        self.waiting: list[Opening] = []
        """Pending waits. Other modules only read it."""
        self._error: LogbrokerError | None = None

    async def open(
        self, worker_id: str, key: bytes | None, prefetch: int, wait_seconds: float, on_open: Callable[[int], None]
    ) -> OpenedSession:
        """See `WorkerLink.open_session` and `Opening`."""
        if self._scanner.is_resting:
            await self._scanner.catch_up()
        barrier = readable = NO_BARRIER
        if key is None and self._queue.settings.has_priorities:
            # The next free session must be the most urgent one.
            barrier = self._scanner.barrier()
            wait_seconds = await self._scanner.reached(barrier, wait_seconds)
        elif key is not None:
            # The answer says whether the key has records.
            readable = self._scanner.barrier()
            wait_seconds = await self._scanner.reached(readable, wait_seconds, lambda: self._has_lane(lane_key(key)))
        if self._error is not None:
            raise self._error.anew()
        opening = Opening(worker_id, None if key is None else lane_key(key), prefetch, barrier, on_open)
        self.waiting.append(opening)
        self._context.serve()
        try:
            await self._wait(opening, wait_seconds)
            session = opening.opened.result()
            state, has_records = self._queue.sessions.state(session.key), self._queue.sessions.has_records(session)
            may_have_records = has_records or not (self._has_lane(session.key) or self._scanner.has_scanned(readable))
            return await self._context.commits.synced(
                OpenedSession(session.key if key is None else key, session.token, state, may_have_records)
            )
        except asyncio.CancelledError:
            self._abandon(opening)
            raise

    def _has_lane(self, key: bytes) -> bool:
        return self._queue.lanes.get(key) is not None

    async def _wait(self, opening: Opening, wait_seconds: float) -> None:
        try:
            async with asyncio.timeout(wait_seconds):
                if not opening.opened.done():
                    await asyncio.wait([opening.opened])
        except TimeoutError:
            # The session may have been opened at this very moment.
            if opening.opened.cancel():
                raise opening.why_not.anew() from None
        finally:
            if opening in self.waiting:
                self.waiting.remove(opening)

    def _abandon(self, opening: Opening) -> None:
        """Give up a wait; a session that was opened for it is closed."""
        opened = opening.opened
        if not opened.cancel() and not opened.cancelled() and opened.exception() is None:
            session = opened.result()
            with suppress(StaleSessionError):
                self._queue.sessions.close(opening.worker_id, session.key, session.token, self._context.moment())
                self._context.touched()

    def renew(self, worker_id: str, key: bytes, token: int) -> None:
        """See `WorkerLink.renew_session`."""
        self._queue.sessions.renew(worker_id, lane_key(key), token, self._context.moment())
        self._context.touched()

    async def close_session(self, worker_id: str, key: bytes, token: int) -> None:
        """See `WorkerLink.close_session`."""
        self._queue.sessions.close(worker_id, lane_key(key), token, self._context.moment())
        self._context.touched()
        await self._context.commits.synced(None)

    def serve(self) -> None:
        """Open all sessions that can be opened."""
        if not self.waiting:
            return
        waiting, self.waiting = self.waiting, []
        none_free = False
        for opening in waiting:
            if opening.opened.done():
                continue
            if not (none_free and opening.key is None) and self._may_try(opening) and self._try(opening):
                self._context.touched()
                continue
            none_free = none_free or opening.key is None
            if not opening.opened.done():
                self.waiting.append(opening)

    def _may_try(self, opening: Opening) -> bool:
        if opening.key is not None:
            # The first try finds out whether the session is held. Later tries are made only when it is free, because
            # many callers may wait for held sessions, and this runs after each input.
            return opening.why_not is NO_FREE_SESSION or not self._queue.sessions.is_taken(opening.key)
        if not self._queue.settings.has_priorities:
            return True
        return self._scanner.may_serve(opening.barrier)

    def _try(self, opening: Opening) -> bool:
        try:
            session = self._queue.sessions.open(
                opening.worker_id, opening.key, opening.prefetch, self._context.moment()
            )
        except SessionHeldError as error:
            opening.why_not = error.as_value()
            return False
        except LogbrokerError as error:
            opening.opened.set_exception(error.as_value())
            return False
        if session is None:
            return False
        opening.on_open(session.token)
        opening.opened.set_result(session)
        return True

    def close(self, error: LogbrokerError) -> None:
        """End all waits with the error, and refuse later ones."""
        self._error = error
        for opening in self.waiting:
            if not opening.opened.done():
                opening.opened.set_exception(error.anew())
        self.waiting.clear()
