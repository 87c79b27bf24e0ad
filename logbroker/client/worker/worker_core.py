"""The part that the asynchronous and the synchronous worker share: everything except waiting for deliveries and calling
the program."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar, Token
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from logbroker.client.runtime import forking
from logbroker.client.runtime.arguments import MAX_INT, check_bounds
from logbroker.client.runtime.lifetime import Lifetime
from logbroker.client.runtime.tasks import let_go_of_error, waiter
from logbroker.client.transport.connection import Connection, running_loop
from logbroker.client.worker.held_session import HeldSession, IdleWait
from logbroker.client.worker.in_flight import InFlight
from logbroker.client.worker.leased_record import LeasedRecord, reason_of
from logbroker.client.worker.prefetch_buffer import PrefetchBuffer
from logbroker.client.worker.settlements import SettlementBatch
from logbroker.client.worker.worker_connection import WorkerConnection, WorkerOptions
from logbroker.errors import (
    BrokerUnavailableError,
    InvalidRequestError,
    LeaseLostError,
    LogbrokerError,
    NoFreeSessionError,
    OverloadedError,
    RequestTimeoutError,
    SessionHeldError,
    StaleSessionError,
    quoted_key,
)

_log = logging.getLogger(__name__)

D = TypeVar("D", bound=LeasedRecord)

DEFAULT_PREFETCH: Final = 100
DEFAULT_LIST_BYTES: Final = 16 * 1024 * 1024
DEFAULT_MAX_EXTENSION_SECONDS: Final = 3600.0
MAX_PREFETCH: Final = 1_000_000
MAX_PREFETCH_BYTES: Final = 1 << 40
_AT_ONCE: Final = 256
"""Maximum number of deliveries that are taken at once under the lock, because the event loop waits for the lock."""
_ASK_SECONDS: Final = 5.0
"""The time that one request for a session waits."""
_LOOK_SECONDS: Final = 1.0
"""The interval at which a loop over sessions checks whether the worker is to stop."""
_AWAY_SECONDS: Final = 0.1
"""The pause between two requests for a session while the broker is away."""
_REFUSED_SECONDS: Final = 1.0
"""The pause between two requests for a session while the broker has no room."""
_LOSSES: Final = LeaseLostError | StaleSessionError
_CLOSED: Final = "the session was closed: its unsettled records come again"
_SENT_BEHIND_ACK: Final = (
    "records were sent after the session's last ack: neither they nor a state that was set since"
    " then are stored; call send and set the state before the ack of a delivery"
)
_CLOSED_UNANSWERED: Final = (
    "the session was closed before the broker had answered (the connection was lost, or the broker is slow): a record"
    " whose settlement the broker did not get comes again"
)


class _Handling:
    """A `with` block in which handlers of a worker are called.

    It is not made with `contextlib.contextmanager`, because that assigns to attributes of the handler's exception, and
    some classes of exceptions forbid this.
    """

    __slots__ = ("_before", "worker")

    def __init__(self, worker: object) -> None:
        self.worker: object = worker
        """The worker; None after the block. A task that a handler has made may go on after the block, and is then in no
        handler any more."""
        self._before: Token[tuple[_Handling, ...]] | None = None

    def __enter__(self) -> None:
        self._before = _HANDLING.set((*_HANDLING.get(), self))

    def __exit__(self, *_: object) -> None:
        self.worker = None
        if self._before is not None:
            _HANDLING.reset(self._before)


_HANDLING: ContextVar[tuple[_Handling, ...]] = ContextVar("handling", default=())
"""The blocks of handlers in which the running code was called, the outermost first. Tasks that a handler makes inherit
them."""


class WorkerCore(Generic[D]):
    """One worker. Deliveries may be taken and settled in any thread, and `stop` may be called in any thread or signal
    handler. The coroutines belong to the event loop of `start`."""

    def __init__(
        self,
        broker: str,
        group: str,
        *,
        make: Callable[..., D],
        prefetch: int | None,
        prefetch_bytes: int,
        max_extension_seconds: float,
        worker_id: str | None,
        client_name: str | None,
        band: str | None,
        request_timeout_seconds: float,
    ) -> None:
        if prefetch is not None:
            check_bounds(1, MAX_PREFETCH, prefetch=prefetch)
        check_bounds(1, MAX_INT, prefetch_bytes=prefetch_bytes)
        check_bounds(0, math.inf, max_extension_seconds=max_extension_seconds)
        self.lifetime = Lifetime("Worker", broker)
        self.connection = Connection(broker, request_timeout_seconds=request_timeout_seconds, lifetime=self.lifetime)
        self.group = group
        self.prefetch = prefetch
        self.stopping = False
        """Whether `stop` was called. Nothing resets it: a stop that arrives before a loop begins counts, too."""
        self.closed = False
        self.has_handlers = False
        """Whether `run`, `sessions` or a convoy has called handlers. Then it is normal that deliveries are lost now and
        then: it was logged, and the records come again."""
        self._closing: set[asyncio.Task[Any]] = set()
        """Tasks that give back sessions whose `close` was cancelled."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self.in_flight = InFlight(
            make,
            wake=self._wake,
            max_extension_seconds=max_extension_seconds,
            prefetch_bytes=min(prefetch_bytes, MAX_PREFETCH_BYTES),
        )
        options = WorkerOptions(
            group_id=group,
            worker_id=worker_id or "",
            client_name=client_name or "",
            band=band or "",
        )
        self.link: WorkerConnection[D] = WorkerConnection(self.connection, options, self.in_flight)
        self.lifetime.finish = self.flush
        self.in_flight.outbox.check_loop = self.lifetime.check_loop
        forking.watch(self)

    def forked(self) -> None:
        """See `forking.Forked`. The parent process keeps the deliveries in hand, and settles them."""
        if self.link.begun:
            self.in_flight.lock.leave_to_parent()
            forking.leave_alone((self._loop, self.link))
        else:
            self.in_flight.lock.renew()

    def _wake(self) -> None:
        if threading.get_ident() == self._loop_thread:
            self.link.wake()
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(self.link.wake)

    def check_open(self) -> None:
        if self.closed:
            raise BrokerUnavailableError("this worker is closed; open another one")
        self.lifetime.check()

    def check_loop(self) -> None:
        """See `Lifetime.check_loop`."""
        self.lifetime.check_loop()

    async def start(self, prefetch: int | None = None) -> None:
        """Connect for a loop. Does nothing if the worker was stopped: the loop ends at once, even without a broker.
        `prefetch` is the number of unsettled deliveries outside of sessions; None keeps the previous number, which is 0
        at first."""
        self.check_open()
        self.check_loop()
        if not self.stopping:
            await self.connect(prefetch, lambda: self.stopping)

    async def connect(self, prefetch: int | None = None, is_over: Callable[[], bool] = lambda: False) -> None:
        """Connect, even if the worker was stopped. Return before the broker has answered if `is_over` returns true
        after a stop. For `prefetch` see `start`."""
        self.check_open()
        self.check_loop()
        self._loop = running_loop()
        self._loop_thread = threading.get_ident()
        self.lifetime.opened(self.connection.close, self.link.leave)
        await self.link.start(prefetch, is_over)

    def take(self, buffer: PrefetchBuffer[D], now: float, *, keeps: bool = False) -> D | None:
        """See `PrefetchBuffer.take`. Raises the error that ended the worker."""
        delivery = self.in_flight.take(buffer, now, keeps=keeps)
        if delivery is None:
            self.link.check()
        return delivery

    def take_more(self, taken: list[D], max_records: int, max_bytes: int, *, keeps: bool = False) -> None:
        """Add available deliveries to `taken`, which holds the first one, up to `max_records` in all. Stop after the
        delivery that brings the decoded size of all to `max_bytes`."""
        room_bytes = max_bytes - taken[0].size_bytes
        while room_bytes > 0 and (room := min(_AT_ONCE, max_records - len(taken))) > 0:
            room_bytes = self.in_flight.take_more(taken, room, room_bytes, monotonic(), keeps=keeps)

    def stop(self) -> None:
        """End all loops over deliveries and sessions once the program's current deliveries are finished. Loops that
        begin later end at once."""
        self.stopping = True
        if self._loop is not None and not (self.link.ordering or self.lifetime.is_forked):
            # If the event loop has ended, nothing waits for the first connection any more.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.link.look_again)
        self.wake_loops()

    def wake_loops(self) -> None:
        """Let loops that wait for a delivery check whether they are over. May be called in a signal handler."""
        # A forked child has the signal handlers of its parent, and one of them may call this.
        if self.lifetime.is_forked:
            return
        if self._loop is not None and self.in_flight.lock.is_mine():
            # A signal handler has interrupted the thread that holds the lock.
            self._loop.call_soon_threadsafe(self.in_flight.tell_all)
        else:
            self.in_flight.tell_all()

    def handling(self) -> AbstractContextManager[None]:
        """Note that handlers of `run` or `sessions` are called during a `with` block, by this task or thread and by the
        tasks that it makes."""
        self.has_handlers = True
        return _Handling(self)

    def check_runs_in_no_handler(self, name: str) -> None:
        """Raise InvalidRequestError if a handler calls `run` or `sessions`. Such a call might wait for ever: the
        handler's own delivery stays unsettled until the call returns, and may be all that the worker takes at a
        time."""
        if any(handling.worker is self for handling in _HANDLING.get()):
            raise InvalidRequestError(
                f"{name}() is called in a handler of the same worker: let the handler return first, or open another"
                " worker"
            )

    def handlers_ended(self) -> None:
        """Give back all deliveries that wait outside of sessions, because no handler will take them."""
        self.in_flight.give_back_unwanted(monotonic(), at_once=True)

    def told(self, delivery: D, error: Exception | None) -> None:
        """Settle a delivery at the end of its handler, unless the handler did. A lost delivery is only logged."""
        lost: LogbrokerError | None = None
        try:
            if error is None and not delivery.settled:
                delivery.ack()
            elif error is not None and not delivery.settled:
                delivery.nack(reason=reason_of(error))
        except LogbrokerError as refused:
            lost = refused.as_value()
        # The logging comes last, because a logging handler of the program may raise an error.
        if error is not None:
            _log.error(
                "attempt %d of %s failed: %s", delivery.attempt, _name(delivery), reason_of(error), exc_info=error
            )
        if lost is not None:
            _log.warning("%s: %s", _name(delivery), lost)

    def interrupted(self, delivery: D) -> None:
        """Release a delivery whose handler was interrupted, for instance by a cancellation, unless it was settled."""
        if not (delivery.settled or delivery.lost):
            delivery.release()

    async def start_lists(self, max_records: int, max_bytes: int) -> None:
        """Connect, for lists of deliveries. Raises InvalidRequestError for invalid limits."""
        check_bounds(1, MAX_PREFETCH, max_records=max_records)
        check_bounds(1, MAX_INT, max_bytes=max_bytes)
        await self.start(max(max_records, self.prefetch or DEFAULT_PREFETCH))

    async def open_session(self, key: bytes | None, prefetch: int, wait_seconds: float | None) -> HeldSession[D]:
        """Open the session of a key, or of the next free key. Repeats the request until it succeeds or the time is
        over.

        Raises SessionHeldError, NoFreeSessionError, or the error that kept it from asking the broker. Errors that may
        be temporary are not raised before the time is over. OverloadedError is raised at once, because the deliveries
        that fill the worker may be the caller's own.
        """
        self.check_loop()
        deadline = None if wait_seconds is None else monotonic() + wait_seconds
        while True:
            self.check_open()
            left = _ASK_SECONDS if deadline is None else min(_ASK_SECONDS, max(0.0, deadline - monotonic()))
            try:
                return await self.link.sessions.open(key, prefetch, round(left * 1000))
            except LogbrokerError as error:
                self.link.check()
                if not _passes(error) or isinstance(error, OverloadedError):
                    raise
                if deadline is not None and monotonic() >= deadline:
                    raise
                wait = _pause_seconds(error)
            await asyncio.sleep(wait if deadline is None else min(wait, max(0.0, deadline - monotonic())))

    async def next_session(self, prefetch: int, is_over: Callable[[], bool]) -> HeldSession[D] | None:
        """Wait for the next free session, even while the broker is away. Return None if the worker is to stop, or if
        the loop over sessions `is_over`.

        Raises the error that ended the worker, and errors that are not temporary.
        """
        told = ""
        while not (self.stopping or is_over()):
            self.check_open()
            try:
                return await self.link.sessions.open(None, prefetch, round(_LOOK_SECONDS * 1000))
            except LogbrokerError as error:
                self.link.check()
                if not _passes(error):
                    raise
                wait = _pause_seconds(error)
                if wait and told != type(error).__name__:
                    # A broken stream logs its own warning.
                    level = logging.DEBUG if isinstance(error, BrokerUnavailableError) else logging.WARNING
                    _log.log(level, "still waiting for a session of queue group %s: %s", self.link.group_id, error)
                    told = type(error).__name__
            await asyncio.sleep(wait)
        return None

    async def session_handled(self, session: HeldSession[D], failure: Exception | None) -> None:
        """Handle the end of a session's handler. If it failed, nack a record with the failure as the reason, drop what
        no ack has stored, and log the failure. Raises the error that ended the worker, and a failure that says that
        something was lost.

        The record is the first one that the handler took and has not settled. If it took none, it is the first one of
        the session. Otherwise, a handler that always fails before its first record would be called with the same
        session again and again, and nobody would see why. If the handler settled all that it took, there is no such
        record.
        """
        if failure is None and session.has_sent_behind_ack:
            failure = InvalidRequestError(_SENT_BEHIND_ACK)
        if failure is None:
            return
        if isinstance(failure, LogbrokerError):
            self.link.check()
        reason = reason_of(failure)
        # The delivery may be lost or, in another thread, settled. The closing of a lost session raises its error.
        with suppress(LogbrokerError):
            delivery = session.first_in_hand()
            if delivery is None and session.last_taken() is None:
                delivery = await self._first_delivery(session)
            if delivery is not None:
                delivery.nack(reason=reason)
        with self.in_flight.lock.free():
            session.drop_unstored()
        # The logging comes last, because a logging handler of the program may raise an error.
        if isinstance(failure, _LOSSES):
            raise failure
        taken = delivery or session.last_taken()
        _log.error(
            "the handler of the session of key %s failed%s: %s",
            quoted_key(session.key),
            "" if taken is None else f" in attempt {taken.attempt} of {_name(taken)}",
            reason,
            exc_info=failure,
        )

    async def _first_delivery(self, session: HeldSession[D]) -> D | None:
        """Wait for the first delivery of a session, if the broker has announced one."""
        delivery = self.take(session.buffer, monotonic()) or await self.next_of_session(session, 0)
        if delivery is not None:
            session.handed_out(delivery)
        return delivery

    def session_failed(self, session: HeldSession[D], error: LogbrokerError) -> None:
        """Log the loss of a session, or a temporary error of its closing, such as a broker that is away. The next
        holder gets the unsettled records. Raises other errors: the worker has ended, or the state is too large for the
        broker, which no repeat would change."""
        if not (isinstance(error, _LOSSES) or _passes(error)):
            raise error
        _log.warning("the session of key %s: %s", quoted_key(session.key), error)

    async def next_of_session(self, session: HeldSession[D], idle_seconds: float | None) -> D | None:
        """Wait for the next delivery of a session and return it. Return None if the worker is to stop, or if none has
        come for `idle_seconds`. Raises the error that ended the worker or the session."""
        session.check()
        wait = IdleWait(session, idle_seconds, monotonic())
        while True:
            try:
                async with asyncio.timeout(wait.until - monotonic() if wait.until < math.inf else None):
                    return await self.next_delivery(session.buffer, session)
            except TimeoutError:
                if self.is_idle(wait):
                    return None

    async def next_delivery(self, buffer: PrefetchBuffer[D], session: HeldSession[D] | None = None) -> D | None:
        """Wait for the next delivery and return it, or None if the worker is to stop. Raises the error that ended the
        worker or the session."""
        self.check_loop()
        while not self.stopping:
            delivery = self.take(buffer, monotonic())
            if delivery is not None:
                return delivery
            if session is not None:
                session.check()
            told, tell = waiter()
            buffer.waiters.append(tell)
            try:
                await told
            except asyncio.CancelledError:
                if tell in buffer.waiters:
                    buffer.waiters.remove(tell)
                else:
                    # This waiter was woken at the same moment: wake another one in its place.
                    buffer.tell(1)
                raise
        return None

    def is_idle(self, wait: IdleWait) -> bool:
        """Return whether a wait for a session's next record is over. If it is not, request an answer from the broker:
        without a recent one, silence does not prove that the lane is idle."""
        if wait.is_over(self.in_flight.outbox.heard_at, monotonic()):
            return True
        self.in_flight.question_due = True
        self._wake()
        return False

    async def close_session(self, session: HeldSession[D], *, save: bool) -> None:
        """Wait until the settlements of a session are answered, and give it back. Raises the first refusal, the error
        with which the session was lost before, or InvalidRequestError for records that were sent after the last ack."""
        self.lifetime.check()
        self.check_loop()
        is_incomplete = save and session.has_sent_behind_ack
        try:
            settlements = await self._give_back(session, save=save and not is_incomplete)
        except asyncio.CancelledError:
            if session.lost is None:
                self.close_later(session)
            raise
        for settlement in settlements:
            error = settlement.first_failure()
            if error is not None:
                self.in_flight.outbox.told(settlement)
                raise type(error)(error.message)
        if is_incomplete:
            raise InvalidRequestError(_SENT_BEHIND_ACK)

    async def _give_back(self, session: HeldSession[D], *, save: bool) -> list[SettlementBatch]:
        """Give a session back when its settlements are answered. Return these settlements. Raises LogbrokerError."""
        settlements: list[SettlementBatch] = []
        try:
            if session.lost is None:
                if save:
                    self.in_flight.save_state(session)
                settlements = session.unfinished()
                await self.link.answered(settlements)
            session.check()
        except LogbrokerError:
            for settlement in settlements:
                self.in_flight.outbox.told(settlement)
            await self._end_session(session, _CLOSED_UNANSWERED)
            raise
        await self._end_session(session, _CLOSED)
        return settlements

    async def _end_session(self, session: HeldSession[D], reason: str) -> None:
        if session.lost is None:
            await self.link.sessions.close(session)
            self.in_flight.sessions.lost(session.token, session.key, StaleSessionError(reason))

    def close_later(self, session: HeldSession[D]) -> None:
        """End a session for the program, and give it back in the background when its settlements are answered.
        Otherwise, settlements that are not sent yet would be lost."""
        self.in_flight.sessions.leave(session, StaleSessionError(_CLOSED))

        async def give_back() -> None:
            try:
                await self.link.answered(session.unfinished())
            finally:
                await self.link.sessions.close(session)
                # This fails only settlements that are still unanswered.
                self.in_flight.sessions.lost(session.token, session.key, StaleSessionError(_CLOSED_UNANSWERED))

        closing = asyncio.get_running_loop().create_task(give_back())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        closing.add_done_callback(let_go_of_error)

    async def flush(self) -> None:
        """Wait until the broker has synced all settlements.

        Raises the first unreported refusal, or RequestTimeoutError if the broker does not answer in time.
        """
        await self._flush()

    async def _flush(self, *, with_losses: bool = True) -> None:
        """Flush. Without `with_losses`, the loss of a delivery is not raised: it was logged when it was noticed."""
        self.lifetime.check_loop()
        await self.link.answered(self.in_flight.unfinished())
        error = self.in_flight.outbox.take_untold(with_losses=with_losses)
        if error is not None:
            raise type(error)(error.message)

    async def close_link(self) -> None:
        """Flush, say goodbye and close the connection.

        Raises the errors of `flush`. But if handlers were called, the loss of a delivery is not raised: nobody is left
        who could do anything about it, and the record comes again.
        """
        if self.closed or not self.lifetime.may_close():
            return
        self.closed = True
        self.stop()
        try:
            if self._closing:
                await asyncio.wait(self._closing)
            if self.link.begun:
                await self._flush(with_losses=not self.has_handlers)
        finally:
            try:
                await self.link.leave()
            finally:
                try:
                    await self.connection.close()
                finally:
                    self.lifetime.closed()


def _passes(error: LogbrokerError) -> bool:
    """Whether the same request may succeed later."""
    return error.retriable or type(error) is LogbrokerError


def _pause_seconds(error: LogbrokerError) -> float:
    """Return how long to wait before the next request; 0 if the broker itself has waited."""
    if isinstance(error, SessionHeldError | NoFreeSessionError | RequestTimeoutError):
        return 0.0
    return _AWAY_SECONDS if isinstance(error, BrokerUnavailableError) else _REFUSED_SECONDS


def _name(delivery: LeasedRecord) -> str:
    key = "" if delivery.key is None else f", key {quoted_key(delivery.key)}"
    return f"{delivery.topic}-{delivery.partition}, offset {delivery.offset}{key}"
