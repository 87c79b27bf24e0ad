"""The part of a producer that runs in the event loop: one ordered stream to the broker, and its recovery after a
break."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc

from logbroker.client.producer.accumulator import Accumulator
from logbroker.client.producer.delivery import NO_RECORD, Batch
from logbroker.client.producer.partition_queue import ANONYMOUS, PartitionQueue, ProducerIdentity
from logbroker.client.producer.topic_route import TopicRoute
from logbroker.client.runtime import forking
from logbroker.client.runtime.tasks import waiter
from logbroker.client.transport.background import Background, end_works
from logbroker.client.transport.connection import (
    KEEPALIVE_TIMEOUT_SECONDS,
    Connection,
    Stream,
    run_stream,
)
from logbroker.client.transport.metadata import DEFAULT_MAX_REQUEST_BYTES, TopicInfo, find_topic
from logbroker.client.transport.status import error_of_item
from logbroker.errors import (
    BrokerUnavailableError,
    DiskFullError,
    InvalidRecordError,
    InvalidTimestampError,
    LogbrokerError,
    OverloadedError,
    ProducerForgottenError,
    RecordTooLargeError,
    StaleGenerationError,
    TooManyOpenFilesError,
    UnknownTopicError,
    quoted,
)
from logbroker.v1 import log_pb2

_log = logging.getLogger(__name__)
REFUSALS: Final = logging.getLogger("logbroker.client.producer.refusals")
"""Logs why the broker keeps refusing records or the producer id."""

_MAX_REQUEST_BYTES: Final = 1024 * 1024
"""A request is closed at this size. A single batch may be larger."""
_ITEM_FIELDS_BYTES: Final = 64
"""Maximum size of a request's item, without its batch."""
_REQUEST_FIELDS_BYTES: Final = 64 + _ITEM_FIELDS_BYTES
"""Maximum size of a request with one item, without its batch."""
_EXPIRY_CHECK_SECONDS: Final = 0.25
_GROWTH_PAUSE_SECONDS: Final = 0.02
"""Pause before records are sent again while their topic grows."""
_LASTING_REFUSALS: Final = 5
"""Refusals in a row, in about one second, after which a partition's refusal is logged as a warning."""
_QUICK_SECONDS: Final = KEEPALIVE_TIMEOUT_SECONDS / 2
"""A link counts as quick while requests are answered within this time. The first keepalive timeout is enough for such a
link."""
_QUICK_FOR_SECONDS: Final = 60.0
"""A connection with a longer timeout gets the first timeout back if no answer was slow for this long. So a link that is
slow only for large requests breaks at most once in this time."""

_CANCELLED: Final = (
    "the tasks of this producer were cancelled, as happens when its event loop ends: close the producer before its loop"
    " ends, and open another one in the next loop"
)
_OF_SINGLE_RECORDS: Final = (RecordTooLargeError, InvalidTimestampError, InvalidRecordError)
"""Refusals of a batch that may be caused by some of its records."""

_Sent = list[tuple[TopicRoute, PartitionQueue, Batch]]


class Sender:
    """Sends the batches of the accumulator until it is closed.

    `wake` tells the sender that there may be something to send. It must be called in the event loop.
    """

    def __init__(
        self,
        connection: Connection,
        accumulator: Accumulator[Any],
        *,
        durability: log_pb2.Durability,
        idempotent: bool,
        max_requests_in_flight: int,
    ) -> None:
        self._connection = connection
        self._accumulator = accumulator
        self._durability = durability
        self._max_requests_in_flight = max_requests_in_flight
        self._identity: ProducerIdentity | None = None if idempotent else ANONYMOUS
        self._used_in_dropped: ProducerIdentity | None = None
        """The newest identity under which batches may have been sent to a topic whose route was dropped since: because
        it was not used for long, or because the topic was deleted. A deleted topic may return with its records if an
        operator restores its files."""
        self._in_flight: dict[int, tuple[float, _Sent]] = {}
        """Time at which each request was written, and its batches, by correlation id."""
        self._correlation_id = 0
        self._max_request_bytes = DEFAULT_MAX_REQUEST_BYTES
        """The largest request that the broker accepts."""
        self._attempt = 0
        self._break_log = _log
        """Log that tells of the present break, and of its end."""
        self._last_failure: LogbrokerError | None = None
        """The error that currently keeps batches from the broker."""
        self._told_refusal = ""
        """Reason of the refusal that was logged as lasting; empty if the broker has accepted a batch since then."""
        self._work = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._works: list[Background] = []
        self._stream: Stream | None = None
        self._is_answered = False
        """Whether the broker has answered on this stream."""
        self._slow_at = math.inf
        """The time of the last answer that took long, or of the break that made the connection patient."""
        self._is_quick_again = False
        """Whether the connection is more patient than its link needs. It is then replaced once nothing is in flight."""
        self._over: LogbrokerError | None = None
        """The error that `send` raises because the sender takes no more records."""
        self._is_closed = False
        forking.watch(self)
        self.on_cancelled: Callable[[], None] = lambda: None
        """Called if the event loop ends before `close`, after undelivered records have failed."""

    def start(self) -> None:
        """Start sending in this event loop. Does nothing if the sender has started."""
        if self._works:
            return
        self._loop = asyncio.get_running_loop()
        connection, over = self._connection, self._cut_off
        self._works = [
            Background("the producer's stream", connection, self._run, on_break=self._interrupted, on_over=over),
            Background("the producer's check for overdue batches", connection, self._expire_for_ever, on_over=over),
        ]
        for work in self._works:
            work.start()

    def _cut_off(self) -> None:
        """Handle the end of the event loop. Waiting records fail, because nobody would learn of their outcome."""
        if not self._is_closed:
            self._is_closed = True
            self._over = error = BrokerUnavailableError(_CANCELLED).as_value()
            self._fail_rest(error, self._forget_routes())
            self.on_cancelled()

    def check(self) -> None:
        """Raise an error if the sender takes no more records."""
        if self._over is not None:
            raise self._over.anew()

    def wake(self) -> None:
        self._work.set()

    def wake_soon(self) -> None:
        """Call `wake` from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.wake)

    def forked(self) -> None:
        """See `forking.Forked`. The parent delivers the records that were appended before the fork."""
        if self._works:
            forking.leave_alone((self._loop, self._works))
            self._accumulator.lock.leave_to_parent()
            self._over = forking.error().as_value()
            self._accumulator.give_up(self._over)
        else:
            self._accumulator.lock.renew()

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic. Asks the broker if the route is unknown; raises UnknownTopicError."""
        self.check()
        accumulator = self._accumulator
        routes = accumulator.routes
        if topic not in routes:
            info = await self._find_topic(topic)
            now = time.monotonic()
            with accumulator.lock.free():
                if accumulator.forget_unused(now):
                    self._note_dropped()
                # Another task may have asked too; the first answer is kept.
                return routes.setdefault(topic, TopicRoute(info, self._used_in_dropped, now))
        return routes[topic]

    async def _find_topic(self, name: str) -> TopicInfo:
        """Look the topic up at the broker. Note the largest request that the broker reads. Raises UnknownTopicError."""
        info = await find_topic(self._connection, name)
        self._max_request_bytes = info.max_request_bytes
        self._accumulator.max_request_batch_bytes = max(1, self._max_request_bytes - _REQUEST_FIELDS_BYTES)
        return info

    async def refresh(self, route: TopicRoute) -> None:
        """Ask the broker whether a topic has grown, because a partition is unknown. Raises UnknownTopicError."""
        accumulator = self._accumulator
        info = await self._find_topic(route.name)
        with accumulator.lock.free():
            is_newest = info.id == route.topic_id and info.generation == route.generation
            if is_newest or accumulator.routes.get(route.name) is not route:
                return
            route.stale = True
        told, tell = waiter()
        route.when_fresh.append(tell)
        self.wake()
        await told

    def shut(self) -> None:
        """Take no more records."""
        if self._over is None:
            self._over = BrokerUnavailableError("this producer is closed; open another one").as_value()
        with self._accumulator.lock.free():
            self._accumulator.shut()

    async def flush(self) -> None:
        """Wait until all appended records are done. Raises the first unreported failure."""
        await self.drain()
        error = self._accumulator.take_unseen_failure()
        if error is not None:
            raise error

    async def drain(self) -> None:
        """Wait until all appended records are done, whatever their outcome."""
        accumulator = self._accumulator
        with accumulator.lock.free():
            accumulator.close_open_batches()
            unfinished = list(accumulator.unfinished)
        self.wake()
        # Records may be routed again many times while a topic grows, those of several batches into the same ones.
        met = set(unfinished)
        while unfinished:
            batch = unfinished.pop()
            if not batch.done:
                told, tell = waiter()
                # This wait reports no record. `flush` raises the first failure afterwards.
                batch.when_done(tell, NO_RECORD)
                try:
                    await told
                finally:
                    batch.wait_no_longer(tell, NO_RECORD)
            if batch.moved is not None:
                with accumulator.lock.free():
                    accumulator.close_open_batches()
                unfinished += (new := {each for each, _ in batch.moved} - met)
                met |= new

    async def close(self) -> None:
        """Stop. Unfinished records fail and all waiters are woken, however often the call is cancelled."""
        self._is_closed = True
        self.shut()
        routes = self._forget_routes()
        try:
            await end_works(*self._works)
        finally:
            self._stream = None
            self._fail_rest(BrokerUnavailableError("the producer was closed before the record was delivered"), routes)

    def _forget_routes(self) -> list[TopicRoute]:
        with self._accumulator.lock.free():
            routes = list(self._accumulator.routes.values())
            self._accumulator.routes.clear()
        return routes

    def _fail_rest(self, error: LogbrokerError, routes: list[TopicRoute]) -> None:
        accumulator = self._accumulator
        with accumulator.lock.free():
            accumulator.close_open_batches()
            for batch in list(accumulator.unfinished):
                accumulator.finish(batch, error=error)
            for route in routes:
                route.refreshed()

    # --- the stream -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            try:
                if self._identity is None:
                    self._identity = await self._new_identity(None)
            except LogbrokerError as error:
                is_refusal = isinstance(error, DiskFullError | OverloadedError | TooManyOpenFilesError)
                await self._broken(error, REFUSALS if is_refusal else _log)
                continue
            self._stream = self._connection.stream("ProduceStream")
            self._is_answered, begun = False, time.monotonic()
            failure = await run_stream(self._connection, self._stream, self._read, self._write)
            if self._is_quick_again and not self._in_flight:
                self._connection.renew_without_patience()
                self._is_quick_again = False
                self.wake()
                continue
            # A connection that is too slow for the data being sent ends in one of two ways: the keepalive ping is not
            # answered in time, or the kernel gives up a peer that accepts no data (TCP_USER_TIMEOUT, which gRPC sets).
            if self._in_flight and not self._is_answered and time.monotonic() - begun > KEEPALIVE_TIMEOUT_SECONDS:
                self._connection.renew_with_patience()
                self._slow_at = time.monotonic()
            await self._broken(failure)
            if isinstance(failure, OverloadedError):
                await self._learn_bound()

    async def _learn_bound(self) -> None:
        """Ask for the largest request that the broker reads, because it may have been restarted with a lower limit."""
        for name in list(self._accumulator.routes)[:1]:
            with contextlib.suppress(LogbrokerError):
                await self._find_topic(name)

    def _interrupted(self, error: LogbrokerError, cancelled: bool) -> None:
        self._lost(error)
        self.wake()

    def _lost(self, error: LogbrokerError) -> None:
        """Handle the end of the stream. Unanswered requests are sent again."""
        self._last_failure = error
        with self._accumulator.lock.free():
            for queue in self._accumulator.queues():
                queue.lost(error)
            # Overdue batches would break the next stream too.
            self._accumulator.expire(time.monotonic(), error)
        self._in_flight.clear()

    async def _broken(self, error: LogbrokerError, log: logging.Logger = _log) -> None:
        self._lost(error)
        level = logging.DEBUG
        if not self._attempt:
            self._break_log, level = log, logging.WARNING
        then = "trying again" if log is REFUSALS else "reconnecting"
        log.log(level, "producing to %s: %s; %s", self._connection.brokers, error, then)
        await asyncio.sleep(self._connection.backoff_seconds(self._attempt))
        self._attempt += 1
        self.wake()

    async def _write(self, stream: Stream) -> None:
        accumulator = self._accumulator
        while True:
            self._work.clear()
            if self._is_quick_again:
                if not self._in_flight:
                    return
                await self._work.wait()
                continue
            assert self._identity is not None
            sent: _Sent = []
            now = time.monotonic()
            if len(self._in_flight) < self._max_requests_in_flight:
                with accumulator.lock.free():
                    sent = accumulator.take(now, self._identity, _MAX_REQUEST_BYTES)
            if sent:
                for some in self._requests_of(sent):
                    self._correlation_id += 1
                    self._in_flight[self._correlation_id] = (time.monotonic(), some)
                    await stream.write(self._request(self._correlation_id, some))
            elif stuck := self._queues_that_need_an_epoch():
                # Raise the epoch if that is enough: the broker then refuses batches of the old epoch that are still on
                # their way.
                needs_new_id = any(queue.needs_new_id for queue in stuck)
                self._identity = await self._new_identity(None if needs_new_id else self._identity)
            elif routes := accumulator.stale_routes():
                for route in routes:
                    await self._reroute(route)
            else:
                await self._wait_for_work(now)

    def _requests_of(self, sent: _Sent) -> Iterator[_Sent]:
        """Split batches into requests that the broker reads. Refuse a batch that is too large for any request."""
        bound = self._max_request_bytes - _REQUEST_FIELDS_BYTES
        size_bytes = 0
        some: _Sent = []
        for item in sent:
            batch_bytes = len(item[2].payload)
            if batch_bytes > bound:
                with self._accumulator.lock.free():
                    self._refuse_unsent(*item)
                continue
            if some and size_bytes + batch_bytes > bound:
                yield some
                some, size_bytes = [], 0
            some.append(item)
            size_bytes += batch_bytes + _ITEM_FIELDS_BYTES
        if some:
            yield some

    def _refuse_unsent(self, route: TopicRoute, queue: PartitionQueue, batch: Batch) -> None:
        unknown = "; whether it was written before is not known" if batch.was_uncertain else ""
        error = RecordTooLargeError(
            f"the batch has {len(batch.payload)} bytes, and its request up to {_REQUEST_FIELDS_BYTES} more; the broker"
            f" reads {self._max_request_bytes} at once (max_request_bytes){unknown}"
        )
        queue.answered(batch, error, time.monotonic())
        if batch.count > 1 and not unknown:
            self._accumulator.split(route, queue, batch, error)
        else:
            self._accumulator.finish(batch, error=error)

    def _queues_that_need_an_epoch(self) -> list[PartitionQueue]:
        with self._accumulator.lock.free():
            return [queue for queue in self._accumulator.queues() if queue.needs_epoch == self._identity]

    async def _wait_for_work(self, now: float) -> None:
        """Wait until there may be something to send. `now` is the time at which nothing was due: at a later time, a
        batch might be due that nobody waits for."""
        with self._accumulator.lock.free():
            due_seconds = self._accumulator.next_due_seconds(now)
        timer = asyncio.get_running_loop().call_later(due_seconds, self._work.set)
        try:
            await self._work.wait()
        finally:
            timer.cancel()

    def _request(self, correlation_id: int, sent: _Sent) -> log_pb2.ProduceRequest:
        return log_pb2.ProduceRequest(
            correlation_id=correlation_id,
            durability=self._durability,
            items=[
                log_pb2.ProduceItem(
                    topic_id=queue.topic_id,
                    partition=queue.partition,
                    generation=None if batch.by_hand else route.generation,
                    batch=batch.payload,
                )
                for route, queue, batch in sent
            ],
        )

    async def _read(self, stream: Stream) -> None:
        while True:
            response: Any = await stream.read()
            if response is grpc.aio.EOF:
                raise BrokerUnavailableError("the broker ended the stream")
            if self._attempt:
                self._break_log.warning("producing to %s: going on", self._connection.brokers)
            self._attempt, self._last_failure, self._is_answered = 0, None, True
            written, sent = self._in_flight.pop(response.correlation_id)
            now = time.monotonic()
            if now - written > _QUICK_SECONDS:
                self._slow_at = now
            elif now - self._slow_at > _QUICK_FOR_SECONDS and self._connection.is_patient:
                self._is_quick_again = True
            with self._accumulator.lock.free():
                for (route, queue, batch), result in zip(sent, response.results, strict=True):
                    self._answer(route, queue, batch, result, now)
            self.wake()

    def _answer(
        self, route: TopicRoute, queue: PartitionQueue, batch: Batch, result: log_pb2.ProduceResult, now: float
    ) -> None:
        accumulator = self._accumulator
        error = error_of_item(result.status)
        if isinstance(error, RecordTooLargeError):
            error.with_bound(result.max_message_bytes)
            route.max_batch_bytes = result.max_message_bytes or route.max_batch_bytes
        elif isinstance(error, InvalidTimestampError):
            error.with_bound(result.max_timestamp_ms)
        elif error is None and len(batch.payload) > route.max_batch_bytes:
            route.max_batch_bytes = len(batch.payload)  # The limit was raised.
        elif isinstance(error, UnknownTopicError):
            error = _gone(route)
        was_uncertain = batch.was_uncertain
        if queue.answered(batch, error, now):
            if isinstance(error, ProducerForgottenError) and was_uncertain:
                error = ProducerForgottenError(
                    f"whether the record was written is not known: an attempt was not answered, and now {error.message}"
                )
            if isinstance(error, _OF_SINGLE_RECORDS) and batch.count > 1:
                accumulator.split(route, queue, batch, error)
            else:
                accumulator.finish(
                    batch, base_offset=result.base_offset, log_append_time_ms=result.log_append_time_ms, error=error
                )
        if isinstance(error, StaleGenerationError):
            route.stale = True
        elif isinstance(error, UnknownTopicError):
            self._drop(route, error)
        elif error is not None:
            _log.info("%s-%d: %s: %s", route.name, queue.partition, error.reason, error)
            self._tell_of_lasting(error, queue)
        elif self._told_refusal:
            self._told_refusal = ""
            REFUSALS.warning("producing to %s: the broker accepts records again", self._connection.brokers)

    def _tell_of_lasting(self, error: LogbrokerError, queue: PartitionQueue) -> None:
        """Warn once if batches are refused again and again, as on a full disk. Otherwise the program would wait without
        knowing why."""
        if error.retriable and queue.refusals == _LASTING_REFUSALS and self._told_refusal != error.reason:
            self._told_refusal = error.reason
            REFUSALS.warning(
                "producing to %s: %s; trying again, for up to %g s a record",
                self._connection.brokers,
                error,
                self._accumulator.delivery_timeout_seconds,
            )

    # --- requests beside the stream ----------------------------------------------------------------------------------

    async def _new_identity(self, old: ProducerIdentity | None) -> ProducerIdentity:
        request = log_pb2.InitProducerIdRequest()
        if old is not None:
            request.producer_id, request.producer_epoch = old.id, old.epoch
        try:
            response = await self._connection.unary("InitProducerId", request)
        except LogbrokerError as error:
            if old is None or error.retriable:
                raise
            # The broker does not raise the epoch of this id any more, so get a new id.
            response = await self._connection.unary("InitProducerId", log_pb2.InitProducerIdRequest())
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    async def _reroute(self, route: TopicRoute) -> None:
        accumulator = self._accumulator
        try:
            info = await self._find_topic(route.name)
        except UnknownTopicError as error:
            with accumulator.lock.free():
                self._drop(route, error)
            return
        if (info.id, info.generation) == (route.topic_id, route.generation):
            # The broker refuses records of the old generation while the growth is being stored.
            await asyncio.sleep(_GROWTH_PAUSE_SECONDS)
        with accumulator.lock.free():
            if info.id != route.topic_id:
                self._drop(route, _recreated(route))
                return
            if info.generation != route.generation:
                _log.info("topic %s grew from %d to %d partitions", route.name, route.partitions, info.partitions)
            accumulator.reroute(route, info)

    def _drop(self, route: TopicRoute, error: LogbrokerError) -> None:
        self._note_dropped()
        self._accumulator.drop(route, error)

    def _note_dropped(self) -> None:
        if self._identity is not ANONYMOUS:
            self._used_in_dropped = self._identity

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_CHECK_SECONDS)
            with self._accumulator.lock.free():
                overdue = self._accumulator.expire(time.monotonic(), self._last_failure)
            if overdue and self._stream is not None:
                # The broker does not answer on this stream. The batches in flight fail once the stream is broken.
                self._connection.failed(self._connection.broker)
                self._stream.cancel()


def _gone(route: TopicRoute) -> UnknownTopicError:
    # The broker was asked by the topic's id, and its message has only the id.
    return UnknownTopicError(
        f"topic {quoted(route.name)} was deleted after this producer asked for it; create it, unless it is there again,"
        " and send the record again"
    )


def _recreated(route: TopicRoute) -> UnknownTopicError:
    return UnknownTopicError(
        f"topic {route.name!r} was deleted, and one of the same name created, after the record was sent; send it again"
    )
