"""A worker's stream as its queue group sees it: the worker's operations, and its deliveries."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.queues.delivery.dispatcher import Dispatcher
from logbroker.queues.delivery.pull_line import PullRequest
from logbroker.queues.delivery.session_waiters import SessionWaiters
from logbroker.queues.model.messages import AskedOutput, Delivered, Granted, Refusal, Settlement
from logbroker.queues.model.worker_messages import (
    DISPATCH_BYTES,
    MAX_CREDIT_BYTES,
    Hello,
    ListedSession,
    OpenedSession,
    check_credit,
    check_credit_bytes,
)
from logbroker.record.bands import Band


class WorkerHost(Protocol):
    """The interface of a queue group to the streams of its workers."""

    @property
    def dispatcher(self) -> Dispatcher: ...
    @property
    def session_waiters(self) -> SessionWaiters: ...
    def check_room(self) -> None: ...
    def credited(self, link: WorkerLink, records: int) -> None: ...
    def credited_bytes(self) -> None: ...
    def settle(self, worker_id: str, settlement: Settlement) -> asyncio.Future[list[Refusal]]: ...
    async def settle_with_outputs(
        self, worker_id: str, settlement: Settlement, asked: Sequence[AskedOutput], check: Callable[[], None]
    ) -> asyncio.Future[list[Refusal]]: ...
    async def settle_in_turns(
        self, worker_id: str, settlement: Settlement, check: Callable[[], None]
    ) -> Sequence[asyncio.Future[list[Refusal]]]: ...
    def is_void(self, worker_id: str, receipts: tuple[int, int]) -> bool: ...
    def release(self, worker_id: str, receipts: Sequence[tuple[int, int]], *, are_unseen: bool = True) -> None: ...
    def excuse(self, worker_id: str, receipts: Sequence[tuple[int, int]]) -> None: ...
    async def goodbye(self, link: WorkerLink) -> None: ...
    def disconnected(self, link: WorkerLink) -> None: ...


class WorkerLink:
    """One stream of a worker. Made by `QueueGroup.connect`.

    Records are handed out only when `next_deliveries` asks for them, so a slow stream does not keep records from other
    workers.
    """

    def __init__(self, group: WorkerHost, hello: Hello, band: Band | None) -> None:
        self._group = group
        self.worker_id = hello.worker_id
        self.incarnation = hello.incarnation
        self.client_name = hello.client_name
        self.connected = True
        self.is_in = False
        """Whether the worker has its earlier deliveries and sessions again; set by the group."""
        self.kept_until = 0.0
        """End of the grace of a worker whose stream broke (monotonic, s)."""
        self.resumed = False
        """Whether the worker came back in time: the receipts that it listed as held are valid."""
        self.reclaimed: list[Granted] = []
        """Deliveries that the worker listed as held and reclaimed after a start, with new receipts."""
        self.sessions: list[ListedSession] = []
        """Sessions that the worker listed as held and still has."""
        self.on_session_lost: Callable[[bytes, int, LogbrokerError], None] = lambda key, token, why: None
        """Called with key, token and reason if a session ended although the worker did not close it; set by the
        stream."""
        self.on_obstacle: Callable[[str], None] = lambda why: None
        """Called with the reason when the group hands out nothing although records are ready, and with "" when it goes
        on; set by the stream."""
        self.pull = PullRequest(hello.worker_id, band)
        self.pull.credit_bytes = self.pull.window_bytes = hello.credit_bytes
        for session in hello.sessions:
            self.credit_session(session.token, session.credit_bytes)
        self._unsent: deque[Delivered] = deque()
        self._error: LogbrokerError | None = None
        self._over = asyncio.Event()

    def bound_dispatches(self, allowance: Callable[[int], int]) -> None:
        """Bound each dispatch to the number of bytes that `allowance(DISPATCH_BYTES)` returns at that moment."""
        self.pull.max_bytes = partial(allowance, DISPATCH_BYTES)

    # --- requests ----------------------------------------------------------------------------------------------------

    def add_credit(self, records: int) -> None:
        """Add to the credit in records. Raises InvalidRequestError."""
        check_credit(records)
        check_credit(self.pull.credit + records)
        self._group.credited(self, records)

    def add_credit_bytes(self, size_bytes: int, session_token: int = 0) -> None:
        """Add to the credit in bytes, of a session or outside of sessions; credit of an ended session is ignored.
        Raises InvalidRequestError."""
        check_credit_bytes(size_bytes)
        pull = self.pull
        if session_token:
            if session_token in pull.session_credit_bytes:
                left = pull.session_credit_bytes[session_token] + size_bytes
                pull.session_credit_bytes[session_token] = min(left, MAX_CREDIT_BYTES)
        elif pull.credit_bytes is None:
            raise InvalidRequestError("the stream has no credit in bytes: give the first one in the Hello")
        else:
            pull.credit_bytes = pull.window_bytes = min(pull.credit_bytes + size_bytes, MAX_CREDIT_BYTES)
        self._group.credited_bytes()

    def credit_session(self, token: int, credit_bytes: int | None) -> None:
        """Set the credit in bytes of a session; None: not bounded."""
        if credit_bytes is not None:
            self.pull.session_credit_bytes[token] = credit_bytes

    def forget_session(self, token: int) -> None:
        """Drop the credit in bytes of a session that ended."""
        self.pull.session_credit_bytes.pop(token, None)

    def settle(self, settlement: Settlement) -> asyncio.Future[list[Refusal]]:
        """Apply a settlement at once. The future completes with the refusals once all accepted changes are synced.
        Raises the error that ended the link."""
        self._check_connected()
        return self._group.settle(self.worker_id, settlement)

    async def settle_with_outputs(
        self, settlement: Settlement, outputs: Sequence[AskedOutput]
    ) -> asyncio.Future[list[Refusal]]:
        """See `QueueGroup.settle_with_outputs`. Raises the error that ended the link, too."""
        return await self._group.settle_with_outputs(self.worker_id, settlement, outputs, self._check_connected)

    async def settle_in_turns(self, settlement: Settlement) -> Sequence[asyncio.Future[list[Refusal]]]:
        """See `QueueGroup.settle_in_turns`. Raises the error that ended the link, too."""
        return await self._group.settle_in_turns(self.worker_id, settlement, self._check_connected)

    def _check_connected(self) -> None:
        """Raise the error that ended the link. The worker repeats on its new stream what it has said on this one. If
        that came first, an older state of a session would replace a newer one."""
        if not self.connected:
            raise (self._error or LogbrokerError("the worker's stream is over")).anew()

    async def open_session(
        self, key: bytes | None, prefetch: int = 1, wait_seconds: float = 0, credit_bytes: int | None = None
    ) -> OpenedSession:
        """Open the session of an ordering key or, with None, of the next free key with records; wait up to
        `wait_seconds`. `credit_bytes` is its credit in bytes; None: not bounded.

        Return when its token is synced. Raises SessionHeldError, NoFreeSessionError, InvalidRequestError,
        OverloadedError or DiskFullError.
        """
        self._group.check_room()
        tokens: list[int] = []

        def on_open(token: int) -> None:
            tokens.append(token)
            self.credit_session(token, credit_bytes)

        try:
            return await self._group.session_waiters.open(self.worker_id, key, prefetch, wait_seconds, on_open)
        except BaseException:
            for token in tokens:
                self.forget_session(token)
            raise

    def renew_session(self, key: bytes, token: int) -> None:
        """Extend the lock of a session to the lease of the group from now. Raises StaleSessionError."""
        self._group.session_waiters.renew(self.worker_id, key, token)

    async def close_session(self, key: bytes, token: int) -> None:
        """Free a session; returns when that is synced. Raises StaleSessionError."""
        await self._group.session_waiters.close_session(self.worker_id, key, token)

    async def goodbye(self) -> None:
        """Leave: the worker's deliveries and sessions are free at once, and no attempt is counted. Return when that is
        synced."""
        if self.connected:
            await self._group.goodbye(self)

    def disconnected(self) -> None:
        """Tell the group that the stream broke or is over."""
        if self.connected:
            self._group.disconnected(self)

    # --- deliveries --------------------------------------------------------------------------------------------------

    async def next_deliveries(self) -> Delivered:
        """Wait for records, within the credit or of a session, and return the next message. Only one task may call it.

        Raises the error that ended the link, such as WorkerReplacedError, UnknownGroupError or UnknownTopicError.
        """
        while not self._unsent:
            self._check_connected()
            self._unsent += await self._group.dispatcher.next(self.pull, sessions=True)
        return self._unsent.popleft()

    def is_void(self, delivered: Delivered) -> bool:
        """Return whether some records of an unsent message have been taken back from the worker."""
        return self._group.is_void(self.worker_id, _receipts(delivered))

    def drop(self, delivered: Delivered) -> None:
        """Release a message that is not sent."""
        self._group.release(self.worker_id, [_receipts(delivered)])

    def sending(self, delivered: Delivered) -> None:
        """Charge a message that is about to be written to the credit in bytes."""
        self.pull.sent(len(delivered.batches), 0 if delivered.session is None else delivered.session[0])

    def put_back(self, delivered: Delivered) -> None:
        """Put back a message that was not written when the stream broke; it is released when the link ends, and no
        attempt is counted."""
        if self.connected:
            self._unsent.appendleft(delivered)

    def excuse(self, delivered: Delivered) -> None:
        """Excuse a message that was being written when the stream broke. The worker may have it, and keeps it for the
        grace like its other deliveries. If the worker does not come back by then, no attempt is counted. If the worker
        is back already, it has listed its deliveries, and this does nothing."""
        if self.connected:
            self._group.excuse(self.worker_id, [_receipts(delivered)])

    async def ended(self) -> LogbrokerError | None:
        """Wait until the link has ended, and return the error to end the stream with; None: the worker said goodbye, or
        the stream broke."""
        await self._over.wait()
        return self._error

    def end(self, error: LogbrokerError | None) -> list[Delivered]:
        """End the link; return the messages that it had not sent. Called only by the group."""
        self.connected = False
        self._error = error
        self._over.set()
        unsent = list(self._unsent)
        self._unsent.clear()
        return unsent


def _receipts(delivered: Delivered) -> tuple[int, int]:
    """Return the first and the last receipt."""
    return delivered.first_receipt, delivered.first_receipt + delivered.count - 1
