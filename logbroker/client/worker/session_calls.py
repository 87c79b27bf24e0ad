"""The requests of a worker about its sessions (open, renew, close), sent over its stream, and the broker's answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Generic, TypeVar

from logbroker.client.runtime.tasks import wait_until
from logbroker.client.transport.status import error_of_item
from logbroker.client.worker.held_session import HeldSession
from logbroker.client.worker.held_sessions import HeldSessions
from logbroker.client.worker.leased_record import LeasedRecord
from logbroker.errors import BrokerUnavailableError, LogbrokerError, RequestTimeoutError, StaleSessionError
from logbroker.v1 import queues_pb2

D = TypeVar("D", bound=LeasedRecord)


class SessionCalls(Generic[D]):
    """The session requests of one worker. Belongs to its event loop."""

    def __init__(
        self,
        sessions: HeldSessions[D],
        send: Callable[..., None],
        connected: asyncio.Event,
        answer_due: Callable[[float, float], float],
    ) -> None:
        """`send` takes a field of WorkerRequest by its name. `answer_due` takes the time when the request was sent
        (monotonic seconds) and how long the broker may wait, and returns the time by which the answer must come."""
        self._sessions = sessions
        self._send = send
        self._connected = connected
        self._answer_due = answer_due
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._opening: dict[int, tuple[int, int, float]] = {}
        """Prefetch, credit in bytes and time of each request that opens a session."""
        self._last_id = 0

    async def open(self, key: bytes | None, prefetch: int, wait_ms: int) -> HeldSession[D]:
        """Open the session of a key, or of the next free key that has records. Raises the broker's refusal."""
        call_id = self._next_id()
        self._sessions.ask_for(1)
        credit_bytes = self._sessions.window.part_bytes
        self._opening[call_id] = prefetch, credit_bytes, monotonic()
        request = queues_pb2.OpenSession(
            correlation_id=call_id,
            key=key,
            prefetch=prefetch,
            max_wait_ms=wait_ms,
            credit_bytes=credit_bytes,
        )
        try:
            opened = await self._call(call_id, wait_ms / 1000, open_session=request)
        finally:
            del self._opening[call_id]
            self._sessions.ask_for(-1)
        assert isinstance(opened, HeldSession)
        return opened

    def abandon(self, session: HeldSession[D]) -> None:
        """Give back a session whose caller stopped waiting for it."""
        self._sessions.lost(session.token, session.key, StaleSessionError("nobody waited for it any more"))
        self._give_back(session.token, session.key)

    def renew(self, session: HeldSession[D]) -> None:
        """Ask for a longer lock without waiting for the answer."""
        session.renewal_id, session.renewal_at = self._next_id(), monotonic()
        ref = queues_pb2.SessionRef(key=session.key, token=session.token)
        self._send(renew_session=queues_pb2.RenewSession(correlation_id=session.renewal_id, session=ref))

    async def close(self, session: HeldSession[D]) -> None:
        """Give a session back, with its unsettled deliveries. Raises nothing, because the session may be lost
        already."""
        call_id = self._next_id()
        with suppress(LogbrokerError):
            await self._call(call_id, 0.0, close_session=_closing(call_id, session.token, session.key))

    def fail(self, error: LogbrokerError) -> None:
        """Handle the end of the stream. Pending requests get no answer any more."""
        for answered in self._waiting.values():
            if not answered.done():
                answered.set_exception(BrokerUnavailableError(f"no answer about the session: {error}"))

    def answered(self, answer: queues_pb2.SessionAnswer) -> None:
        """Handle an answer of the broker, or its notice that a session is lost."""
        error = error_of_item(answer.status)
        if not answer.correlation_id:
            self._sessions.lost(answer.token, answer.key, error or LogbrokerError("lost without a reason"))
            return
        if self._sessions.answered(answer, error):
            return
        answered = self._waiting.get(answer.correlation_id)
        opening = self._opening.get(answer.correlation_id)
        if answered is None or answered.done():
            if error is None and answer.lock_ms:
                self._give_back(answer.token, answer.key)
        elif error is not None:
            answered.set_exception(error)
        elif opening is not None:
            # Added at once, because its records may follow immediately.
            answered.set_result(self._sessions.opened(answer, *opening, monotonic()))
        else:
            answered.set_result(None)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    async def _call(self, call_id: int, wait_seconds: float, **request: Any) -> Any:
        if not self._connected.is_set():
            raise BrokerUnavailableError("the worker is not connected at the moment")
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = answered
        asked_at = monotonic()
        self._send(**request)
        try:
            if not await wait_until(answered, lambda: self._answer_due(asked_at, wait_seconds)):
                raise RequestTimeoutError("the broker has not answered about the session")
            return answered.result()
        except BaseException:
            # The caller may have stopped waiting in the same round of the loop in which the answer arrived.
            is_answered = answered.done() and not answered.cancelled() and answered.exception() is None
            if is_answered and isinstance(opened := answered.result(), HeldSession):
                self.abandon(opened)
            elif not answered.done() and call_id in self._opening:
                # Otherwise the broker would keep the wait, and a session that it opens, until the time is over.
                self._send(close_session=queues_pb2.CloseSession(correlation_id=self._next_id(), opening=call_id))
            raise
        finally:
            del self._waiting[call_id]

    def _give_back(self, token: int, key: bytes) -> None:
        """Close a session whose caller stopped waiting for it."""
        self._send(close_session=_closing(self._next_id(), token, key))


def _closing(call_id: int, token: int, key: bytes) -> queues_pb2.CloseSession:
    return queues_pb2.CloseSession(correlation_id=call_id, session=queues_pb2.SessionRef(key=key, token=token))
