"""The worker takes records of a queue group, each under a lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from time import monotonic
from types import TracebackType
from typing import Final, Self, TypeVar

from logbroker.client.runtime.arguments import check_bounds, check_seconds, checks_arguments
from logbroker.client.runtime.handlers import Slots, check_no_generator
from logbroker.client.runtime.lifetime import Droppable
from logbroker.client.worker.held_session import HeldSession
from logbroker.client.worker.in_flight import DEFAULT_PREFETCH_BYTES
from logbroker.client.worker.leased_record import WorkerDeliveries, WorkerDelivery
from logbroker.client.worker.sent_records import sent_record
from logbroker.client.worker.worker_core import (
    DEFAULT_LIST_BYTES,
    DEFAULT_MAX_EXTENSION_SECONDS,
    DEFAULT_PREFETCH,
    MAX_PREFETCH,
    WorkerCore,
)
from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.record.codec import Headers

Handler = Callable[[WorkerDelivery], Awaitable[object] | object]
SessionHandler = Callable[["Session"], Awaitable[object]]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_TURN_SECONDS: Final = 0.0005
"""After this time without a wait, the event loop gets a turn, in which it sends settlements."""
_HELD_UP_SECONDS: Final = 0.01
"""If a program has held up the event loop for this long, over one delivery or several, the loop gets a pause."""
_PAUSE_SECONDS: Final = 0.001
"""The shortest pause: some turns of the event loop, to send settlements and to read answers."""
_PAUSE_SHARE: Final = 0.02
"""The pause after the event loop was held up for long, as a share of that time."""
_LONGEST_PAUSE_SECONDS: Final = 0.02
DEFAULT_SESSION_PREFETCH: Final = 10
DEFAULT_IDLE_SECONDS: Final = 1.0
HANDLER: Final = "the handler"
_MUST_AWAIT: Final = "it has to await the session's deliveries"


class _LoopTurns:
    """Decides when a loop over deliveries gives the event loop a turn. The body of such a loop might never await
    anything.

    Without these turns, no settlement is sent, no lease is extended, and no answer is read.
    """

    __slots__ = ("_loop", "_since", "_turned_at", "due_at")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.begin()

    def begin(self) -> None:
        """Note that the event loop has just had a turn."""
        self._since = monotonic()
        self._turned_at = 0.0
        self.due_at = self._since + _TURN_SECONDS
        """The time from which a loop pauses after a delivery; in monotonic seconds."""
        self._loop.call_soon(self._turned)

    def _turned(self) -> None:
        self._turned_at = monotonic()
        self.due_at = 0.0

    async def after(self, waiting: Awaitable[_T]) -> _T:
        """Await something, and note that the event loop had its turns during this wait. The code that runs next may
        block the loop."""
        outcome = await waiting
        self.begin()
        return outcome

    async def pause(self, now: float) -> None:
        """Give the event loop a turn after a delivery, unless it has had one in the meantime."""
        held_up_seconds = (self._turned_at or now) - self._since
        if held_up_seconds > _HELD_UP_SECONDS:
            # One turn is too few: to send settlements and extensions, and to read the answers, takes several.
            pause_seconds = max(_PAUSE_SECONDS, held_up_seconds * _PAUSE_SHARE)
            await asyncio.sleep(min(pause_seconds, _LONGEST_PAUSE_SECONDS))
        elif not self._turned_at:
            await asyncio.sleep(0)
        self.begin()


@checks_arguments()
class Worker(Droppable):
    """Takes records of a queue group, in competition with its other workers.

    async with Worker("127.0.0.1:9192", "billing") as worker:
        await worker.run(charge, concurrency=16)  # acks after a return; nacks and logs an exception

    or in a loop. `async with delivery` raises each exception again after the nack, so the loop has to catch it:

        async for delivery in worker:
            try:
                async with delivery:          # acks at the end, or nacks if the block raises
                    await charge(delivery)
            except Exception:
                logging.exception("offset %d failed", delivery.offset)

    Several settlements are sent in one message; `flush`, `close` and `await delivery.ack()` wait until they are synced.
    The worker extends the leases of unsettled deliveries, up to `max_extension_seconds` after the program took them.
    After the connection breaks, nothing is delivered until the broker has confirmed which deliveries are still this
    worker's. The others are lost, and settling them raises LeaseLostError. Leaving the block says goodbye: unsettled
    deliveries go to other workers at once, and no attempt is counted. Use the worker in one event loop.
    """

    def __init__(
        self,
        broker: str,
        group: str,
        *,
        prefetch: int | None = None,
        prefetch_bytes: int = DEFAULT_PREFETCH_BYTES,
        max_extension_seconds: float = DEFAULT_MAX_EXTENSION_SECONDS,
        worker_id: str | None = None,
        client_name: str | None = None,
        band: str | None = None,
        request_timeout_seconds: float = 10.0,
    ) -> None:
        """`broker` is "HOST:PORT" or "HOST:PORT,HOST:PORT". The queue group must exist.

        `prefetch` is the number of unsettled deliveries that the worker may have. The default is 100 in loops, and the
        concurrency in `run`. `prefetch_bytes` bounds the bytes that wait for the program, as received (compressed or
        not), outside of sessions and in each session; a single larger record is still delivered. `worker_id` must be
        unique in the group; None draws one at random. `client_name` is shown to operators. With `band`, the worker
        takes only records of this band, in a queue group with priorities; None takes all. Sessions are not bound to a
        band. `request_timeout_seconds` bounds the first connection, `flush` and `close`. Raises InvalidRequestError for
        invalid settings.
        """
        self._core = WorkerCore(
            broker,
            group,
            make=WorkerDelivery,
            prefetch=prefetch,
            prefetch_bytes=prefetch_bytes,
            max_extension_seconds=max_extension_seconds,
            worker_id=worker_id,
            client_name=client_name,
            band=band,
            request_timeout_seconds=request_timeout_seconds,
        )
        self._lifetime = self._core.lifetime

    def __aiter__(self) -> AsyncIterator[WorkerDelivery]:
        return self._deliveries()

    async def _deliveries(self) -> AsyncGenerator[WorkerDelivery, None]:
        core = self._core
        await core.start(core.prefetch or DEFAULT_PREFETCH)
        buffer, take = core.in_flight.buffer, core.in_flight.take
        turns = _LoopTurns()
        now = monotonic()
        while not core.stopping:
            # A delivery is usually available at once. A coroutine for each would cost more than everything else.
            delivery = take(buffer, now) or await turns.after(core.next_delivery(buffer))
            if delivery is None:
                return
            yield delivery
            now = monotonic()
            if now >= turns.due_at:
                await turns.pause(now)
                now = monotonic()

    async def batches(
        self, *, max_records: int = DEFAULT_PREFETCH, max_bytes: int = DEFAULT_LIST_BYTES
    ) -> AsyncIterator[WorkerDeliveries]:
        """Iterate over lists of at least one ready delivery, for work that is cheaper in bulk.

        A list has up to `max_records` deliveries, and ends with the delivery that brings its decoded size to
        `max_bytes`. The list's `ack`, `nack` and `release` settle all its deliveries that were not settled singly. In a
        group with ordering, no key is in a list twice, because a record is delivered only after the previous one of its
        key is settled.
        """
        core = self._core
        await core.start_lists(max_records, max_bytes)
        buffer = core.in_flight.buffer
        turns = _LoopTurns()
        while not core.stopping:
            delivery = core.take(buffer, monotonic()) or await turns.after(core.next_delivery(buffer))
            if delivery is None:
                return
            deliveries = WorkerDeliveries((delivery,))
            core.take_more(deliveries, max_records, max_bytes)
            yield deliveries
            await turns.pause(monotonic())

    async def run(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Call `handler` with each delivery, `concurrency` at once, until `stop` or cancellation.

        A delivery is acked when its handler returns, and nacked if it raises (the exception is logged), unless the
        handler settled it. If the call is cancelled, unsettled deliveries are released. A CancelledError that a handler
        raises although its task was not cancelled is a failure like any other. Raises InvalidRequestError if the
        handler contains `yield`, since calling it does nothing, or if a handler of the same worker calls this.
        """
        check_bounds(1, MAX_PREFETCH, concurrency=concurrency)
        check_no_generator(HANDLER, handler)
        self._core.check_runs_in_no_handler("run")
        await self._core.start(max(concurrency, self._core.prefetch or concurrency))
        slots = Slots()
        try:
            await slots.run(concurrency, lambda: self._handle_all(handler, slots))
        finally:
            self._core.handlers_ended()

    async def _handle_all(self, handler: Handler, slots: Slots) -> None:
        with self._core.handling():
            await self._handle(handler, slots)

    async def _handle(self, handler: Handler, slots: Slots) -> None:
        core = self._core
        buffer = core.in_flight.buffer
        turns = _LoopTurns()
        # A handler may have suppressed the cancellation of the call.
        while not (core.stopping or slots.are_over):
            delivery = core.take(buffer, monotonic()) or await turns.after(core.next_delivery(buffer))
            if delivery is None:
                return
            try:
                failure = await slots.attempt(HANDLER, handler, delivery)
            except BaseException:
                core.interrupted(delivery)
                raise
            core.told(delivery, failure)
            await slots.outlive_handler()
            if (now := monotonic()) >= turns.due_at:
                await turns.pause(now)

    def session(
        self,
        key: bytes | None = None,
        *,
        prefetch: int = DEFAULT_SESSION_PREFETCH,
        wait_seconds: float | None = None,
        idle_seconds: float | None = None,
    ) -> Session:
        """Return the session of one ordering key, or of the next free key that has records. Use it with `async with`,
        which waits for the session up to `wait_seconds` (None: for ever), even while the broker is away. After that
        time, it raises SessionHeldError, NoFreeSessionError (if no key was given), or the error that kept it from
        asking the broker.

        The broker sends up to `prefetch` records of the session ahead. The loop over the session ends when no record
        has arrived for `idle_seconds` (None: never). If the session has records when it is opened, the loop waits for
        the first of them.
        """
        check_bounds(1, MAX_PREFETCH, prefetch=prefetch)
        check_idle(idle_seconds)
        return Session(self, key, prefetch, wait_seconds, idle_seconds)

    async def sessions(
        self,
        handler: SessionHandler,
        *,
        concurrency: int = 1,
        prefetch: int = DEFAULT_SESSION_PREFETCH,
        idle_seconds: float = DEFAULT_IDLE_SECONDS,
    ) -> None:
        """Call `handler` with one free session after the other, `concurrency` at once, until `stop` or cancellation.

        Keeps waiting while the broker is away or overloaded. After its first record, the loop over a session ends when
        no record has arrived for `idle_seconds` (0: when none is available). Then another key gets its turn.

        An exception of a handler is logged, and the next session follows. The first delivery that the handler has
        received and not settled is nacked with the exception as the reason. If it has received none, the first record
        of the session is nacked. The state and the records that no ack has stored are dropped. A CancelledError that a
        handler raises although its task was not cancelled is a failure like any other.

        Refuses a handler that is not async. Raises the error that ended the worker, and the error of a state that is
        larger than the broker's `max_request_bytes`. Raises InvalidRequestError if the handler contains `yield`, since
        calling it does nothing, or if a handler of the same worker calls this.
        """
        check_bounds(1, MAX_PREFETCH, concurrency=concurrency, prefetch=prefetch)
        check_idle(idle_seconds)
        check_no_generator(HANDLER, handler)
        self._core.check_runs_in_no_handler("sessions")
        await self._core.start()
        slots = Slots()
        await slots.run(concurrency, lambda: self._handle_all_sessions(handler, prefetch, idle_seconds, slots))

    async def _handle_all_sessions(
        self, handler: SessionHandler, prefetch: int, idle_seconds: float, slots: Slots
    ) -> None:
        with self._core.handling():
            await self._handle_sessions(handler, prefetch, idle_seconds, slots)

    async def _handle_sessions(self, handler: SessionHandler, prefetch: int, idle_seconds: float, slots: Slots) -> None:
        while (held := await self._core.next_session(prefetch, lambda: slots.are_over)) is not None:
            await self._handle_session(handler, Session(self, None, prefetch, None, idle_seconds, held), held, slots)

    async def _handle_session(
        self, handler: SessionHandler, session: Session, held: HeldSession[WorkerDelivery], slots: Slots
    ) -> None:
        try:
            async with session:
                failure = await slots.attempt(HANDLER, handler, session, must_be_async=_MUST_AWAIT)
                await slots.outlive_handler()
                await self._core.session_handled(held, failure)
        except LogbrokerError as error:
            self._core.session_failed(held, error)

    async def flush(self) -> None:
        """Wait until the broker has synced all settlements. Raises the first unreported refusal, or RequestTimeoutError
        if the broker does not answer in time."""
        await self._core.flush()

    def stop(self) -> None:
        """End the loops over deliveries and sessions once the deliveries that the program has are finished.

        A stop is final: `run`, `sessions` and loops that begin later return at once. So a signal that arrives before
        they begin still stops them. To go on, make another worker. Settling, `flush`, `close` and opening a `session`
        still work.
        """
        self._core.stop()

    async def close(self) -> None:
        """Flush, say goodbye and close the connection. Raises the error of `flush`, after closing. After `run` or
        `sessions`, a lost delivery is no error: it was logged when it was lost, and its record comes again."""
        await self._core.close_link()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Exception:
            # An exception of the body takes precedence.
            if error is None:
                raise


class Session:
    """A session: this worker's exclusive hold on the records of one ordering key, in their order.

    async with worker.session(b"customer-7") as session:
        async for delivery in session:
            async with delivery:
                session.state = fold(session.state, delivery.value)

    The lock is renewed as long as the block lasts. `state` (up to 256 KiB) is stored atomically with the next ack, of
    whichever delivery, and the next holder reads it. A nacked or released delivery is delivered again, and so are all
    deliveries behind it; `state` goes back to what it was before the program set it during any of these. The same
    happens to all unsettled deliveries when the broker is started again: the session goes on, and the lost deliveries
    raise LeaseLostError when they are settled, or when `state` is set or `send` is called for them. If the session is
    lost, its loop and every settlement raise StaleSessionError. If a state was not stored, or if a crash of the broker
    leaves this unknown, the loop and the settlements raise LeaseLostError: open the session again to read the stored
    state.
    """

    def __init__(
        self,
        worker: Worker,
        key: bytes | None,
        prefetch: int,
        wait_seconds: float | None,
        idle_seconds: float | None,
        held: HeldSession[WorkerDelivery] | None = None,
    ) -> None:
        """Made by `Worker.session`. `held` is the session if it is open already."""
        self._worker = worker
        """The worker. This reference keeps it alive as long as the session."""
        self._core = worker._core
        self._wanted = (key, prefetch, wait_seconds)
        self._idle_seconds = idle_seconds
        self._held = held

    def _session(self) -> HeldSession[WorkerDelivery]:
        if self._held is None:
            raise InvalidRequestError("the session is not open: use it with `async with`")
        return self._held

    @property
    def key(self) -> bytes:
        """The ordering key of the session."""
        return self._session().key

    @property
    def token(self) -> int:
        """The fencing token. It is higher than the token of any earlier holder."""
        return self._session().token

    @property
    def lost(self) -> bool:
        """Whether the session is known to be lost."""
        session = self._session()
        return session.lost is not None or monotonic() > session.until

    @property
    def state(self) -> bytes:
        """The state that was set last; b"" if none was set."""
        return self._session().state

    @state.setter
    def state(self, state: bytes) -> None:
        self._session().set_state(state)

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        sub_key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        ordering_key: bytes | None = None,
        priority: int | None = None,
    ) -> None:
        """Send a record to a topic together with the next ack of the session, once: see `send` of a delivery. The
        record is dropped if the delivery on which the program is working is nacked or released, because that delivery
        is repeated. If the program has acked its last delivery before this call, and the block ends without another
        ack, the block raises InvalidRequestError, and neither the record nor a state that was set since the last ack is
        stored."""
        self._session().send(
            sent_record(topic, value, key, sub_key, headers, partition, timestamp_ms, ordering_key, priority)
        )

    async def flush(self) -> None:
        """Wait until the session's settlements and its state are synced. A state waits for the next ack if it was set
        during an unsettled delivery, or if records were sent since the last ack. Raises the first refusal."""
        session = self._session()
        self._core.in_flight.save_state(session)
        await self._core.flush()

    def __aiter__(self) -> AsyncIterator[WorkerDelivery]:
        return self._deliveries()

    async def _deliveries(self) -> AsyncGenerator[WorkerDelivery, None]:
        session = self._session()
        self._core.check_loop()
        turns = _LoopTurns()
        while not self._core.stopping:
            delivery = self._core.take(session.buffer, monotonic()) or await turns.after(
                self._core.next_of_session(session, self._idle_seconds)
            )
            if delivery is None:
                return
            session.handed_out(delivery)
            yield delivery
            if (now := monotonic()) >= turns.due_at:
                await turns.pause(now)

    async def open(self) -> None:
        """Wait for the session; `async with` calls this. Raises SessionHeldError, NoFreeSessionError, or the error that
        kept it from asking the broker."""
        await self._core.connect()
        self._held = await self._core.open_session(*self._wanted)

    async def __aenter__(self) -> Self:
        if self._held is None:
            await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._core.close_session(self._session(), save=error is None)
        except Exception:
            # An exception of the body takes precedence.
            if error is None:
                raise


def check_idle(idle_seconds: float | None) -> None:
    """Raise InvalidRequestError for an invalid time to wait."""
    if idle_seconds is not None:
        check_seconds(shortest=0, idle_seconds=idle_seconds)
