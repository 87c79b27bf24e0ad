"""The part of a worker that runs in the event loop: its stream, its credit, and its recovery after a break."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Generic, TypeVar

import grpc
import msgspec

from logbroker.client.runtime.identity import Identity
from logbroker.client.runtime.tasks import wait_until, waiter
from logbroker.client.transport.background import CANCELLED, Background
from logbroker.client.transport.connection import CLOSED, Connection, Stream, run_stream
from logbroker.client.transport.metadata import TopicInfo, find_topic
from logbroker.client.transport.owner_route import OwnerRoute
from logbroker.client.worker.in_flight import InFlight
from logbroker.client.worker.leased_record import LeasedRecord
from logbroker.client.worker.patience import Patience, first_patience_seconds
from logbroker.client.worker.session_calls import SessionCalls
from logbroker.client.worker.settlements import SettlementBatch
from logbroker.errors import BrokerUnavailableError, LogbrokerError, RequestTimeoutError
from logbroker.v1 import queues_pb2

_log = logging.getLogger(__name__)

OBSTACLES: Final = logging.getLogger("logbroker.client.worker.obstacles")
"""Log of the obstacles that keep the broker from handing out records; `logbroker queue work` shows its warnings."""

D = TypeVar("D", bound=LeasedRecord)

_LAST_BACKOFF_SECONDS: Final = 0.25
"""Maximum pause before a new stream. It is short, because by default the broker waits only two seconds for a worker to
come back."""
_GOODBYE_SECONDS: Final = 2.0
_NO_ROOM_SECONDS: Final = 0.1
"""If the broker had no room for a settlement, it is sent again after this time."""
_STALL_SECONDS: Final = 1.0
"""How long settlements wait for room at the broker before the log says so."""
_LOOK_UP_SECONDS: Final = 1.0
"""Maximum time for looking up a topic to which the worker sends. Settlements wait meanwhile."""
_LEASE_SHARE: Final = 10
"""Number of times that a short lease or lock is checked before it ends."""
_LONGEST_PAUSE_SECONDS: Final = 1.0


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that a worker sends in its Hello."""

    group_id: str
    worker_id: str
    client_name: str
    band: str


class WorkerConnection(Generic[D]):
    """One incarnation of a worker, over any number of streams. Belongs to one event loop."""

    def __init__(self, connection: Connection, options: WorkerOptions, in_flight: InFlight[D]) -> None:
        self.connection = connection
        self._route = OwnerRoute(connection)
        self.in_flight = in_flight
        self.ordering = ""
        """The group's ordering; empty before the first stream."""
        self.group_id = options.group_id
        self._options = options
        self._identity = Identity(options.worker_id, options.client_name)
        self._prefetch = 0
        self._credit = 0
        """Number of deliveries that the broker may still send outside of sessions, on this stream."""
        self._stalled_at: float | None = None
        """Since when the broker has had no room for settlements."""
        self._is_stall_told = False
        """Whether the log has said so."""
        self._read_at = 0.0
        """The time when the latest message of the broker was read."""
        self._patience = Patience()
        self._hello_at = 0.0
        """When the Hello of this stream was sent, in monotonic seconds."""
        self._connected = asyncio.Event()
        self._outbox: deque[queues_pb2.WorkerRequest] = deque()
        self._work = asyncio.Event()
        self._changed = asyncio.Event()
        self.sessions = SessionCalls(
            in_flight.sessions,
            self._send,
            self._connected,
            self._answer_due,
        )
        self._attempt = 0
        self._leaving = False
        self._returns = False
        """Whether other code ended the stream's task, as happens when the event loop ends, and a new task will open
        another stream."""
        self._stream_work = Background(
            "the worker's stream", connection, self._run, on_break=self._interrupted, on_over=self._cut_off
        )
        self._last_error: LogbrokerError | None = None
        self._error: LogbrokerError | None = None
        """Terminal error."""
        self._is_told = False
        """Whether the program was told the terminal error."""

    @property
    def begun(self) -> bool:
        """Whether `start` was called."""
        return self._stream_work.has_begun

    def wake(self) -> None:
        """Wake the sender. Must be called in the event loop."""
        self._work.set()

    # --- what the program does --------------------------------------------------------------------------------------

    async def start(self, prefetch: int | None, is_over: Callable[[], bool] = lambda: False) -> None:
        """Connect, and from now on hold up to `prefetch` unsettled deliveries outside of sessions; None keeps the
        previous number.

        The first call returns when the broker has accepted the worker, or raises its refusal. It also returns when
        `is_over` returns true; `look_again` asks it.
        """
        if prefetch is not None:
            self._prefetch = prefetch
            self.in_flight.want(monotonic())
        if not self._stream_work.is_running:
            if not self._is_told:
                self.check()
            self._error, self._is_told = None, False
            self._stream_work.start()
        self.wake()
        deadline = monotonic() + self.connection.request_timeout_seconds
        while not (self.ordering or is_over()):
            self.check()
            if self._leaving:
                raise BrokerUnavailableError(CLOSED)
            if not await self._wait(deadline):
                raise BrokerUnavailableError(
                    f"the broker at {self.connection.brokers} did not let the worker into queue group "
                    f"{self._options.group_id!r} within {self.connection.request_timeout_seconds:g} s: "
                    f"{self._last_error or 'it has not answered'}"
                )

    def look_again(self) -> None:
        """Let a `start` that waits for the broker call its `is_over` again. Must be called in the event loop."""
        self._changed.set()

    def check(self) -> None:
        """Raise the terminal error, if there is one. After that the worker may be started again."""
        if self._error is not None:
            self._is_told = True
            # Raise a new error each time: each raise adds its traceback to the error.
            raise type(self._error)(self._error.message)

    async def answered(self, settlements: Iterable[SettlementBatch]) -> None:
        """Wait until these settlements are answered. Raises RequestTimeoutError."""
        asked_at = monotonic()
        self.wake()
        for settlement in settlements:
            while not settlement.answered:
                told, tell = waiter()
                settlement.waiters.append(tell)
                if not await wait_until(told, lambda: self._answer_due(asked_at, 0.0)):
                    stalls = self.in_flight.stalls()
                    what = (
                        f"has no room for settlements: {stalls[0].why}"
                        if stalls
                        else "has not answered all settlements"
                    )
                    raise RequestTimeoutError(
                        f"the broker at {self.connection.brokers} {what}; a record whose settlement is not stored comes"
                        " again"
                    )

    def _answer_due(self, asked_at: float, wait_seconds: float) -> float:
        """Return when to give up a request in which the broker may wait for `wait_seconds`. On a slow link, the answer
        may arrive behind records: while records arrive, the request has more time, up to the length of a lease. It has
        no more time while the broker refuses settlements for want of room."""
        timeout_seconds = self.connection.request_timeout_seconds
        if self.in_flight.stalls():
            return asked_at + wait_seconds + timeout_seconds
        longest_seconds = self.in_flight.shortest_hold_seconds()
        due = asked_at + wait_seconds + timeout_seconds
        return max(due, min(self._read_at + timeout_seconds, asked_at + wait_seconds + longest_seconds))

    async def leave(self) -> None:
        """Say goodbye and end the stream. The deliveries of this worker then go to other workers at once."""
        self._leaving = True
        # Callers that wait for the broker's acceptance stop waiting.
        self._changed.set()
        if not self.begun:
            return
        try:
            if self._connected.is_set():
                self._send(goodbye=queues_pb2.Goodbye())
            if self._connected.is_set() or self._returns:
                await self._stream_work.wait(_GOODBYE_SECONDS)
        finally:
            try:
                await self._stream_work.end()
            finally:
                error = BrokerUnavailableError("the worker is closed; its deliveries go to other workers")
                self.sessions.fail(error)
                self.in_flight.fail(error)

    # --- the stream -------------------------------------------------------------------------------------------------

    def _send(self, **request: Any) -> None:
        self._outbox.append(queues_pb2.WorkerRequest(**request))
        self.wake()

    async def _wait(self, deadline: float) -> bool:
        self._changed.clear()
        try:
            async with asyncio.timeout(max(0.0, deadline - monotonic())):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _run(self) -> None:
        while True:
            self._outbox.clear()
            connection = self._route.connection
            stream = connection.stream("Work")
            error = await run_stream(connection, stream, self._read, self._write, self._look_after)
            self._ended(error)
            if self._leaving:
                return
            if self._route.ended(error):
                owner = self._route.connection.broker
                _log.debug("worker of queue group %s: %s; going on with %s", self._options.group_id, error, owner)
                continue
            if not (error.retriable or type(error) is LogbrokerError):
                self._error = error
                self.in_flight.fail(error)
                self._changed.set()
                return
            self._changed.set()
            level = logging.DEBUG if self._attempt else logging.WARNING
            _log.log(level, "worker of queue group %s: %s; reconnecting", self._options.group_id, error)
            await asyncio.sleep(min(self.connection.backoff_seconds(self._attempt), _LAST_BACKOFF_SECONDS))
            self._attempt += 1

    def _interrupted(self, error: LogbrokerError, cancelled: bool) -> None:
        self._ended(error, returns=cancelled)

    def _cut_off(self) -> None:
        """Handle the end of the event loop, or the cancellation of all its tasks."""
        self._error = BrokerUnavailableError(f"{CANCELLED}; open another one")
        self.in_flight.fail(self._error)
        self._changed.set()

    def _ended(self, error: LogbrokerError, *, returns: bool = False) -> None:
        self._last_error = error
        self._returns = returns
        self._connected.clear()
        self._credit = 0
        self.in_flight.broken()
        self.sessions.fail(error)

    async def _write(self, stream: Stream) -> None:
        self.in_flight.window.begin_stream()
        hello = queues_pb2.Hello(
            group_id=self._options.group_id,
            worker_id=self._identity.id,
            incarnation=self._identity.incarnation,
            client_name=self._identity.client_name,
            held=self.in_flight.held_records(),
            sessions=[
                queues_pb2.SessionRef(
                    key=session.key,
                    token=session.token,
                    prefetch=session.prefetch,
                    credit_bytes=session.buffer.begin_stream(),
                )
                for session in self.in_flight.sessions
            ],
            life=self.in_flight.group_epoch,
            band=self._options.band,
            credit_bytes=self.in_flight.buffer.begin_stream(),
        )
        self._hello_at = monotonic()
        await stream.write(queues_pb2.WorkerRequest(hello=hello))
        while True:
            self._work.clear()
            self.in_flight.outbox.awake = False
            while self._connected.is_set() and (request := self._next_request()) is not None:
                await stream.write(request)
            await self._look_up_routes()
            await self._work.wait()

    async def _look_up_routes(self) -> None:
        """Look up the topics to which the worker sends."""
        routes = self.in_flight.outbox.routes
        for name in routes.due(monotonic()):
            info: TopicInfo | None = None
            with suppress(LogbrokerError, TimeoutError):
                async with asyncio.timeout(_LOOK_UP_SECONDS):
                    info = await find_topic(self.connection, name)
            routes.found(name, info)

    def _next_request(self) -> queues_pb2.WorkerRequest | None:
        settle = self.in_flight.next_settle(monotonic())
        if settle is None and self._outbox:
            return self._outbox.popleft()
        in_flight = self.in_flight
        may_grant = in_flight.buffer.grant_due or in_flight.sessions.held
        if settle is None and may_grant and (grant := in_flight.next_grant()) is not None:
            if not grant.session_token:
                # With a message that is sent in any case, small credits cost nothing.
                grant.records = max(0, self._missing_credit())
                self._credit += grant.records
            return queues_pb2.WorkerRequest(credit=grant)
        credit = self._take_credit()
        if settle is not None:
            return queues_pb2.WorkerRequest(settle=settle, add_credit=credit)
        if credit:
            return queues_pb2.WorkerRequest(credit=queues_pb2.Credit(records=credit))
        question = in_flight.next_question(monotonic()) if in_flight.question_due else None
        return queues_pb2.WorkerRequest(settle=question) if question is not None else None

    def _take_credit(self) -> int:
        """Return the credit to give now."""
        missing = self._missing_credit()
        # Small credits are given only if the program waits and the broker has no credit left.
        if missing > 0 and (2 * missing >= self._prefetch or (not self._credit and self.in_flight.buffer.is_empty)):
            self._credit += missing
            return missing
        return 0

    def _missing_credit(self) -> int:
        in_flight = self.in_flight
        if in_flight.wanted and not in_flight.outbox.may_be_stalled:
            return self._prefetch - in_flight.outbox.in_hand - self._credit
        return in_flight.missing(self._prefetch) - self._credit

    async def _look_after(self, stream: Stream) -> None:
        """Extend leases and locks in time. Give up a connection on which the broker is silent."""
        due = math.inf
        while True:
            await self._connected.wait()
            now = monotonic()
            hold_seconds = self.in_flight.shortest_hold_seconds()
            # If the event loop was held up, an answer may have arrived and not been read.
            is_late = now > due + first_patience_seconds(hold_seconds) / 2
            # On a slow link, the answer may be waiting behind deliveries.
            silent_seconds = min(self.in_flight.silent_since(now), now - self._read_at)
            if not is_late and not self._patience.bears(silent_seconds, hold_seconds, now):
                self.in_flight.window.shrink()
                self._route.connection.renew()
                raise BrokerUnavailableError(f"the broker has not answered for {silent_seconds:.1f} s")
            self.in_flight.give_back_unwanted(now)
            extensions = self.in_flight.extensions(now)
            if extensions is not None:
                self._send(settle=extensions)
            for session in self.in_flight.sessions.renewals(now):
                self.sessions.renew(session)
            pause_seconds = min(_LONGEST_PAUSE_SECONDS, self.in_flight.shortest_hold_seconds() / _LEASE_SHARE)
            due = monotonic() + pause_seconds
            await asyncio.sleep(pause_seconds)

    async def _read(self, stream: Stream) -> None:
        while True:
            response: Any = await stream.read()
            if response is grpc.aio.EOF:
                raise BrokerUnavailableError("the broker ended the stream")
            self._read_at = monotonic()
            kind = response.WhichOneof("response")
            if kind == "deliveries":
                self._credit -= self.in_flight.received(response.deliveries, self._read_at)
                in_flight = self.in_flight
                if self._missing_credit() > 0 or in_flight.question_due or in_flight.buffer.grant_due:
                    # If the program was waiting for this delivery, it may need more soon.
                    self._work.set()
            elif kind == "settled":
                again = self.in_flight.answered(response.settled)
                if again is not None:
                    asyncio.get_running_loop().call_later(_NO_ROOM_SECONDS, self.in_flight.again, again)
                if again is not None or self._stalled_at is not None:
                    self._tell_of_stall()
                self._work.set()
            elif kind == "session":
                self.sessions.answered(response.session)
            elif kind == "welcome":
                self._welcomed(response.welcome)
            elif kind == "obstacle":
                if why := response.obstacle.reason:
                    OBSTACLES.warning("worker of queue group %s waits: %s", self._options.group_id, why)
                else:
                    OBSTACLES.warning("worker of queue group %s goes on", self._options.group_id)

    def _tell_of_stall(self) -> None:
        """Log once that the broker has had no room for settlements for a while, and once that it has again."""
        stalls = self.in_flight.stalls()
        if not stalls:
            if self._is_stall_told:
                _log.warning("worker of queue group %s: all settlements are stored again", self._options.group_id)
            self._stalled_at, self._is_stall_told = None, False
        elif self._stalled_at is None:
            self._stalled_at = self._read_at
        elif not self._is_stall_told and self._read_at - self._stalled_at > _STALL_SECONDS:
            self._is_stall_told = True
            count = sum(stall.deliveries for stall in stalls)
            _log.warning(
                "worker of queue group %s: %d settled deliveries wait, because the broker cannot store them: %s",
                self._options.group_id,
                count,
                stalls[0].why,
            )

    def _welcomed(self, welcome: queues_pb2.Welcome) -> None:
        lost, repeated = self.in_flight.welcomed(welcome, self._hello_at, monotonic())
        if lost:
            _log.warning(
                "worker of queue group %s: %d deliveries were lost in a break of the connection, and come again",
                self._options.group_id,
                lost,
            )
        if repeated:
            _log.warning(
                "worker of queue group %s: its sessions go on after a start of the broker, and %d unsettled deliveries"
                " come again in them",
                self._options.group_id,
                repeated,
            )
        if self._attempt:
            _log.warning("worker of queue group %s: connected again", self._options.group_id)
        self._attempt = 0
        self._route.accepted()
        self._returns = False
        self._connected.set()
        if self._leaving:
            # The goodbye may have been lost with an earlier stream: send it again. A second one does no harm.
            self._send(goodbye=queues_pb2.Goodbye())
        self.ordering = welcome.ordering
        self._changed.set()
        self._work.set()
