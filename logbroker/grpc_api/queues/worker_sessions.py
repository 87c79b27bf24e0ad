"""The session requests of a worker's stream. Each answer has the correlation id of its request, and is sent when the
change is synced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from logbroker.errors import InvalidRequestError, LogbrokerError, OverloadedError
from logbroker.grpc_api.log.fetch import MAX_WAIT_MS
from logbroker.grpc_api.queues.messages import session_lost
from logbroker.grpc_api.status import item_status
from logbroker.queues.delivery.worker_stream import WorkerLink
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.messages import Delivered
from logbroker.queues.model.worker_messages import check_credit_bytes
from logbroker.v1 import queues_pb2 as pb

_log = logging.getLogger(__name__)

MAX_OPENINGS: Final = 1_000
"""Maximum number of requests of one stream that wait for a session."""


class WorkerSessions:
    """The sessions of one stream."""

    def __init__(self, group: QueueGroup, link: WorkerLink, answer: Callable[[pb.SessionAnswer], None]) -> None:
        self._group = group
        self._link = link
        self._answer = answer
        self._openings: set[asyncio.Task[None]] = set()
        self._closings: set[asyncio.Task[None]] = set()
        self._told = {session.token for session in link.sessions}
        """Tokens of the sessions that the worker was told of. Answers are not in the order of the tokens: a request
        that waits is answered later than a request that finds a free session at once."""
        link.on_session_lost = self._lost

    def _lost(self, key: bytes, token: int, why: LogbrokerError) -> None:
        self._forget(token)
        self._answer(session_lost(key, token, why))

    def knows(self, delivered: Delivered) -> bool:
        """Return whether the worker was told of the session of these deliveries. No record of a session is sent before.
        True also without a session."""
        if delivered.session is None:
            return True
        token, key = delivered.session
        return token in self._told or not self._group.has_session(key, token)

    def is_void(self, delivered: Delivered) -> bool:
        """Return whether deliveries of a session were taken back before they were sent, because the worker released an
        earlier delivery. They must not be sent: after the answer to the release, the worker could not tell them from
        the redelivered records."""
        return delivered.session is not None and self._link.is_void(delivered)

    def open(self, request: pb.OpenSession) -> None:
        """Open a session, or wait for it as long as requested; the stream goes on meanwhile."""
        answer = pb.SessionAnswer(correlation_id=request.correlation_id)
        if len(self._openings) >= MAX_OPENINGS:
            error = OverloadedError(f"{MAX_OPENINGS:,} requests of the worker wait for a session: ask again later")
            self._refuse(answer, error)
        else:
            task = self._begin(self._openings, lambda: self._open(request, answer), answer)
            task.set_name(str(request.correlation_id))

    async def _open(self, request: pb.OpenSession, answer: pb.SessionAnswer) -> None:
        if not 0 <= request.max_wait_ms <= MAX_WAIT_MS:
            raise InvalidRequestError(f"max_wait_ms must be 0 to {MAX_WAIT_MS:,}, not {request.max_wait_ms}")
        credit_bytes = request.credit_bytes if request.HasField("credit_bytes") else None
        check_credit_bytes(credit_bytes)
        opened = await self._link.open_session(
            request.key if request.HasField("key") else None,
            request.prefetch if request.HasField("prefetch") else 1,
            request.max_wait_ms / 1000,
            credit_bytes,
        )
        answer.key, answer.token, answer.state = opened.key, opened.token, opened.state
        answer.has_records = opened.has_records
        answer.lock_ms = self._group.lease_ms
        self._told.add(opened.token)

    def renew(self, request: pb.RenewSession) -> None:
        answer = pb.SessionAnswer(correlation_id=request.correlation_id)
        session = request.session
        try:
            self._link.renew_session(session.key, session.token)
        except LogbrokerError as error:
            self._refuse(answer, error)
        else:
            answer.key, answer.token, answer.lock_ms = session.key, session.token, self._group.lease_ms
            self._answer(answer)

    def close(self, request: pb.CloseSession) -> None:
        if request.opening:
            for task in self._openings:
                if task.get_name() == str(request.opening):
                    task.cancel()
            self._answer(pb.SessionAnswer(correlation_id=request.correlation_id))
            return
        session = request.session
        answer = pb.SessionAnswer(correlation_id=request.correlation_id, key=session.key, token=session.token)
        self._forget(session.token)
        self._begin(self._closings, lambda: self._link.close_session(session.key, session.token), answer)

    def _forget(self, token: int) -> None:
        self._told.discard(token)
        self._link.forget_session(token)

    async def end(self) -> None:
        """Cancel the waiting requests for sessions, and finish and answer the requests to close sessions."""
        for task in self._openings:
            task.cancel()
        tasks = (*self._openings, *self._closings)
        if tasks:
            await asyncio.wait(tasks)

    def _begin(
        self,
        tasks: set[asyncio.Task[None]],
        work: Callable[[], Coroutine[Any, Any, None]],
        answer: pb.SessionAnswer,
    ) -> asyncio.Task[None]:
        async def carry_out() -> None:
            try:
                await work()
            except LogbrokerError as error:
                self._refuse(answer, error)
            except Exception:
                # Without an answer the client would wait for ever.
                _log.exception("a request of a session failed")
                self._refuse(answer, LogbrokerError("the broker met an unexpected error; its log tells more"))
            else:
                self._answer(answer)

        # Tasks run their first step in the order of their creation, and the first step decides.
        task = asyncio.create_task(carry_out())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def _refuse(self, answer: pb.SessionAnswer, error: LogbrokerError) -> None:
        answer.status.CopyFrom(item_status(error))
        self._answer(answer)
