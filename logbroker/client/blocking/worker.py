"""The synchronous Worker. Its stream runs in the shared loop, and the program works in its own threads."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from time import monotonic
from types import TracebackType
from typing import Final, Self

from logbroker.client.runtime.arguments import check_bounds, checks_arguments
from logbroker.client.runtime.handlers import check_plain, failure_of
from logbroker.client.runtime.lifetime import Droppable
from logbroker.client.runtime.sync_loop import Latch, run, wait_for
from logbroker.client.worker.held_session import HeldSession, IdleWait
from logbroker.client.worker.in_flight import DEFAULT_PREFETCH_BYTES
from logbroker.client.worker.leased_record import SyncWorkerDeliveries, SyncWorkerDelivery
from logbroker.client.worker.prefetch_buffer import PrefetchBuffer
from logbroker.client.worker.sent_records import sent_record
from logbroker.client.worker.worker import DEFAULT_IDLE_SECONDS, DEFAULT_SESSION_PREFETCH, HANDLER, check_idle
from logbroker.client.worker.worker_core import (
    DEFAULT_LIST_BYTES,
    DEFAULT_MAX_EXTENSION_SECONDS,
    DEFAULT_PREFETCH,
    MAX_PREFETCH,
    WorkerCore,
)
from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.record.codec import Headers

Handler = Callable[[SyncWorkerDelivery], object]
SessionHandler = Callable[["Session"], object]

_SIGNAL_CHECK_SECONDS: Final = 0.2
"""The longest single wait. A signal that arrives just before a wait does not end the wait; Python handles it
afterwards."""
_NEVER: Final = Latch()
"""A latch that is never set, for loops that only `stop` ends."""


@checks_arguments()
class Worker(Droppable):
    """Takes records of a queue group, in competition with its other workers: for programs without an event loop.

    with Worker("127.0.0.1:9192", "billing") as worker:
        worker.run(charge, concurrency=16)  # acks after a return; nacks and logs an exception

    or in a loop. `with delivery` raises each exception again after the nack, so the loop has to catch it:

        for delivery in worker:
            try:
                with delivery:              # acks at the end, or nacks if the block raises
                    charge(delivery)
            except Exception:
                logging.exception("offset %d failed", delivery.offset)

    `worker.run` goes on after an exception. Several settlements are sent in one message; `flush`, `close` and
    `delivery.result()` wait until they are synced. The worker extends the leases of unsettled deliveries, up to
    `max_extension_seconds` after the program took them. After the connection breaks, nothing is delivered until the
    broker has confirmed which deliveries are still this worker's. The others are lost, and settling them raises
    LeaseLostError. Leaving the block says goodbye: unsettled deliveries go to other workers at once, and no attempt is
    counted. A worker that is dropped without `close`, or is open when the program ends, does the same in the
    background.

    Many threads may use a worker at once; `run` starts its own.
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
            make=SyncWorkerDelivery,
            prefetch=prefetch,
            prefetch_bytes=prefetch_bytes,
            max_extension_seconds=max_extension_seconds,
            worker_id=worker_id,
            client_name=client_name,
            band=band,
            request_timeout_seconds=request_timeout_seconds,
        )
        self._lifetime = self._core.lifetime

    def __iter__(self) -> Iterator[SyncWorkerDelivery]:
        run(self._core.start(self._core.prefetch or DEFAULT_PREFETCH))
        buffer = self._core.in_flight.buffer
        keeps = _is_main_thread()
        while (delivery := _next_delivery(self._core, buffer, keeps=keeps)) is not None:
            if keeps:
                buffer.on_the_way = []  # Emptied in the same step that hands the delivery on.
            yield delivery

    def batches(
        self, *, max_records: int = DEFAULT_PREFETCH, max_bytes: int = DEFAULT_LIST_BYTES
    ) -> Iterator[SyncWorkerDeliveries]:
        """Iterate over lists of at least one ready delivery, for work that is cheaper in bulk.

        A list has up to `max_records` deliveries, and ends with the delivery that brings its decoded size to
        `max_bytes`. The list's `ack`, `nack` and `release` settle all its deliveries that were not settled singly. In a
        group with ordering, no key is in a list twice, because a record is delivered only after the previous one of its
        key is settled.
        """
        core = self._core
        run(core.start_lists(max_records, max_bytes))
        buffer = core.in_flight.buffer
        keeps = _is_main_thread()
        while (delivery := _next_delivery(core, buffer, keeps=keeps)) is not None:
            deliveries = SyncWorkerDeliveries((delivery,))
            core.take_more(deliveries, max_records, max_bytes, keeps=keeps)
            if keeps:
                buffer.on_the_way = []
            yield deliveries

    def run(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Call `handler` with each delivery, in `concurrency` threads, until `stop` or Ctrl-C.

        A delivery is acked when its handler returns, and nacked if it raises (the exception is logged), unless the
        handler settled it. A CancelledError is handled like any other exception here. The delivery is also nacked if
        the handler's result would have to be awaited. Raises the error that ended the worker. Raises
        InvalidRequestError for a concurrency below 1, for a handler that is async or contains `yield`, because calling
        such a function does nothing, or if a handler of the same worker calls this.
        """
        core = self._core
        check_plain(HANDLER, handler)
        check_bounds(1, MAX_PREFETCH, concurrency=concurrency)
        core.check_runs_in_no_handler("run")
        run(core.start(max(concurrency, core.prefetch or concurrency)))
        try:
            self._in_threads(concurrency, lambda over: self._handle_all(handler, over))
        finally:
            core.handlers_ended()

    def _handle_all(self, handler: Handler, over: Latch) -> None:
        with self._core.handling():
            self._handle(handler, over)

    def _handle(self, handler: Handler, over: Latch) -> None:
        core = self._core
        buffer = core.in_flight.buffer
        while (delivery := _next_delivery(core, buffer, over=over)) is not None:
            try:
                failure = failure_of(HANDLER, handler, delivery)
            except BaseException:
                core.interrupted(delivery)
                raise
            core.told(delivery, failure)

    def session(
        self,
        key: bytes | None = None,
        *,
        prefetch: int = DEFAULT_SESSION_PREFETCH,
        wait_seconds: float | None = None,
        idle_seconds: float | None = None,
    ) -> Session:
        """Return the session of one ordering key, or of the next free key that has records. Use it with `with`, which
        waits for the session up to `wait_seconds` (None: for ever), even while the broker is away. After that time, it
        raises SessionHeldError, NoFreeSessionError (if no key was given), or the error that kept it from asking the
        broker.

        The broker sends up to `prefetch` records of the session ahead. The loop over the session ends when no record
        has arrived for `idle_seconds` (None: never). If the session has records when it is opened, the loop waits for
        the first of them.
        """
        check_bounds(1, MAX_PREFETCH, prefetch=prefetch)
        check_idle(idle_seconds)
        return Session(self, key, prefetch, wait_seconds, idle_seconds)

    def sessions(
        self,
        handler: SessionHandler,
        *,
        concurrency: int = 1,
        prefetch: int = DEFAULT_SESSION_PREFETCH,
        idle_seconds: float = DEFAULT_IDLE_SECONDS,
    ) -> None:
        """Call `handler` with one free session after the other, in `concurrency` threads, until `stop` or Ctrl-C.

        Keeps waiting while the broker is away or overloaded. After its first record, the loop over a session ends when
        no record has arrived for `idle_seconds` (0: when none is available). Then another key gets its turn.

        An exception of a handler is logged, and the next session follows. The first delivery that the handler has
        received and not settled is nacked with the exception as the reason. If it has received none, the first record
        of the session is nacked. The state and the records that no ack has stored are dropped. A CancelledError is
        handled like any other exception here.

        Raises the error that ended the worker, and the error of a state that is larger than the broker's
        `max_request_bytes`. Raises InvalidRequestError for a concurrency below 1, for a handler that is async or
        contains `yield`, because calling such a function does nothing, or if a handler of the same worker calls this.
        """
        check_plain(HANDLER, handler)
        check_bounds(1, MAX_PREFETCH, concurrency=concurrency, prefetch=prefetch)
        check_idle(idle_seconds)
        self._core.check_runs_in_no_handler("sessions")
        run(self._core.start())
        self._in_threads(concurrency, lambda over: self._handle_all_sessions(handler, prefetch, idle_seconds, over))

    def _handle_all_sessions(self, handler: SessionHandler, prefetch: int, idle_seconds: float, over: Latch) -> None:
        with self._core.handling():
            self._handle_sessions(handler, prefetch, idle_seconds, over)

    def _handle_sessions(self, handler: SessionHandler, prefetch: int, idle_seconds: float, over: Latch) -> None:
        core = self._core
        while (held := run(core.next_session(prefetch, over.is_set))) is not None:
            self._handle_session(handler, Session(self, None, prefetch, None, idle_seconds, held, over), held)

    def _handle_session(self, handler: SessionHandler, session: Session, held: HeldSession[SyncWorkerDelivery]) -> None:
        try:
            with session:
                run(self._core.session_handled(held, failure_of(HANDLER, handler, session)))
        except LogbrokerError as error:
            self._core.session_failed(held, error)

    def _in_threads(self, count: int, work: Callable[[Latch], None]) -> None:
        """Run `work` in threads until all return. If one raises, or at Ctrl-C, let the others finish their deliveries,
        and then raise the error. If a daemon thread calls this, the new threads are daemons, too, and the end of the
        program does not wait for them."""
        over = Latch()
        """Set when the threads are to end. It does not stop the worker: the program may use it again after an error."""

        def end() -> None:
            over.set()
            self._core.wake_loops()

        outcomes: list[Future[None]] = [Future() for _ in range(count)]
        ends = [Latch() for _ in range(count)]

        def work_in(outcome: Future[None], ended: Latch) -> None:
            try:
                work(over)
            except BaseException as error:
                end()
                outcome.set_exception(error)
            else:
                outcome.set_result(None)
            finally:
                ended.set()

        threads = [
            threading.Thread(target=work_in, args=(outcomes[number], ends[number]), name=f"logbroker-worker-{number}")
            for number in range(count)
        ]
        try:
            for thread in threads:
                thread.start()
            _wait_for_all(ends)
        except BaseException:
            end()
            # Threads that could not be started, or that a signal kept from starting, are not waited for.
            _wait_for_all([ended for thread, ended in zip(threads, ends, strict=True) if thread.ident is not None])
            raise
        for outcome in outcomes:
            outcome.result()

    def flush(self) -> None:
        """Wait until the broker has synced all settlements. Raises the first unreported refusal, or RequestTimeoutError
        if the broker does not answer in time."""
        run(self._core.flush())

    def stop(self) -> None:
        """End the loops over deliveries and sessions once the deliveries that the program has are finished.

        A stop is final: `run`, `sessions` and loops that begin later return at once. So a signal that arrives before
        they begin still stops them. To go on, make another worker. Settling, `flush`, `close` and opening a `session`
        still work.
        """
        self._core.stop()

    def close(self) -> None:
        """Flush, say goodbye and close the connection. Raises the error of `flush`, after closing. After `run` or
        `sessions`, a lost delivery is no error: it was logged when it was lost, and its record comes again."""
        if not self._core.lifetime.is_forked:
            run(self._core.close_link())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception:
            # An exception of the body takes precedence.
            if error is None:
                raise


class Session:
    """A session: this worker's exclusive hold on the records of one ordering key, in their order.

    with worker.session(b"customer-7") as session:
        for delivery in session:
            with delivery:
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
        held: HeldSession[SyncWorkerDelivery] | None = None,
        over: Latch | None = None,
    ) -> None:
        """Made by `Worker.session`. `held` is the session if it is open already, and `over` is set when the call of
        `Worker.sessions` that opened it ends."""
        self._worker = worker
        """The worker. This reference keeps it alive as long as the session."""
        self._core = worker._core
        self._wanted = (key, prefetch, wait_seconds)
        self._idle_seconds = idle_seconds
        self._held = held
        self._over = _NEVER if over is None else over

    def _session(self) -> HeldSession[SyncWorkerDelivery]:
        if self._held is None:
            raise InvalidRequestError("the session is not open: use it with `with`")
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

    def flush(self) -> None:
        """Wait until the session's settlements and its state are synced. A state waits for the next ack if it was set
        during an unsettled delivery, or if records were sent since the last ack. Raises the first refusal."""
        self._core.in_flight.save_state(self._session())
        run(self._core.flush())

    def __iter__(self) -> Iterator[SyncWorkerDelivery]:
        session = self._session()
        buffer, keeps = session.buffer, _is_main_thread()

        def next_delivery() -> SyncWorkerDelivery | None:
            return _next_delivery(self._core, buffer, session, self._idle_seconds, keeps=keeps, over=self._over)

        while (delivery := next_delivery()) is not None:
            session.handed_out(delivery)
            if keeps:
                buffer.on_the_way = []
            yield delivery

    def open(self) -> None:
        """Wait for the session; `with` calls this. Raises SessionHeldError, NoFreeSessionError, or the error that kept
        it from asking the broker."""
        run(self._core.connect())
        try:
            run(self._open())
        except BaseException:
            # If a signal handler raised the exception, the session may be open already. Without this, its lock would be
            # renewed although nobody uses it.
            held, self._held = self._held, None
            if held is not None:
                run(self._abandon(held))
            raise

    async def _open(self) -> None:
        self._held = await self._core.open_session(*self._wanted)

    async def _abandon(self, held: HeldSession[SyncWorkerDelivery]) -> None:
        self._core.link.sessions.abandon(held)

    def __enter__(self) -> Self:
        if self._held is None:
            self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        session = self._held
        try:
            run(self._core.close_session(self._session(), save=error is None))
        except BaseException as failure:
            if session is not None and session.lost is None:
                # A signal handler raised the exception before the close began. Without this, the lock of the session
                # would be renewed although nobody uses it.
                run(self._close_later(session))
            # An exception of the body takes precedence.
            if error is None or not isinstance(failure, Exception):
                raise

    async def _close_later(self, session: HeldSession[SyncWorkerDelivery]) -> None:
        self._core.close_later(session)


def _is_main_thread() -> bool:
    """Whether signals are handled in this thread. If so, a signal handler may raise an exception between any two
    steps."""
    return threading.current_thread() is threading.main_thread()


def _wait_for_all(ended: list[Latch]) -> None:
    """Wait for the end of threads. Signals are handled during the wait, whichever thread receives them."""
    for each in ended:
        while not each.wait(_SIGNAL_CHECK_SECONDS):
            pass


def _next_delivery(
    core: WorkerCore[SyncWorkerDelivery],
    buffer: PrefetchBuffer[SyncWorkerDelivery],
    session: HeldSession[SyncWorkerDelivery] | None = None,
    idle_seconds: float | None = None,
    *,
    keeps: bool = False,
    over: Latch = _NEVER,
) -> SyncWorkerDelivery | None:
    """Wait for the next delivery and return it. Return None if the worker is to stop, if the loop is `over`, or if the
    session had no delivery for `idle_seconds`.

    With `keeps`, the delivery is put into `on_the_way`, so that it is not lost if a signal handler raises an exception
    before the program has it.
    """
    if keeps and buffer.on_the_way:
        core.in_flight.take_back(buffer)
    wait: IdleWait | None = None
    while not (core.stopping or over.is_set()):
        delivery = core.take(buffer, monotonic(), keeps=keeps)
        if delivery is not None:
            return delivery
        if session is not None and wait is None:
            wait = IdleWait(session, idle_seconds, monotonic())
        deadline = None if wait is None or wait.until == math.inf else wait.until
        if not _wait(core, buffer, session, deadline, over) and (wait is None or core.is_idle(wait)):
            return None
    return None


def next_within(
    core: WorkerCore[SyncWorkerDelivery], buffer: PrefetchBuffer[SyncWorkerDelivery], seconds: float
) -> SyncWorkerDelivery | None:
    """Wait at most this long for the next delivery and return it, or None if there is none. It is also put into
    `on_the_way`. Raises the error that ended the worker."""
    delivery = core.take(buffer, monotonic(), keeps=True)
    if delivery is None and not core.stopping and _wait(core, buffer, None, monotonic() + seconds, _NEVER):
        delivery = core.take(buffer, monotonic(), keeps=True)
    return delivery


def _wait(
    core: WorkerCore[SyncWorkerDelivery],
    buffer: PrefetchBuffer[SyncWorkerDelivery],
    session: HeldSession[SyncWorkerDelivery] | None,
    deadline: float | None,
    over: Latch,
) -> bool:
    """Wait until there may be a delivery to take. Return False when the time is over."""
    told = Latch()
    with core.in_flight.lock.free():
        if buffer.is_ready:
            return True
        buffer.waiters.append(told.set)
    try:
        # Check only after the waiter is registered: any later error wakes it.
        core.link.check()
        if session is not None:
            session.check()
        while not (told.is_set() or core.stopping or over.is_set()):
            left = _SIGNAL_CHECK_SECONDS if deadline is None else min(_SIGNAL_CHECK_SECONDS, deadline - monotonic())
            if left <= 0:
                return False
            wait_for(told, left)
        return True
    finally:
        with core.in_flight.lock.free():
            if told.set in buffer.waiters:
                buffer.waiters.remove(told.set)
            elif deadline is not None and monotonic() >= deadline:
                # This waiter was woken at the same moment: wake another one in its place.
                buffer.tell(1)
