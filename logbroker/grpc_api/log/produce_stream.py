"""The produce stream: it appends requests in their order, and answers each once it is durable."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

import grpc

from logbroker.clock import Clock
from logbroker.engine import LogEngine, RoutingFence
from logbroker.errors import BrokerUnavailableError, LogbrokerError
from logbroker.grpc_api.log.produce import PreparedProduce
from logbroker.grpc_api.log.produce_wire import WireRequest, read_produce
from logbroker.grpc_api.status import Context, Statuses
from logbroker.v1.log_pb2 import ProduceResponse

_STOPPING: Final = "the broker is stopping; clients can connect again once it is back"
_NOT_APPENDED: Final = "the broker is stopping, and has not appended this: send it again when the broker is back"

_log = logging.getLogger(__name__)

_QUIET_SECONDS: Final = 0.1
"""When the broker stops, a stream counts as drained after this time without a request."""
_REFUSING_SECONDS: Final = 2.0
"""Maximum time for which a stopping broker refuses further requests, after all appends are answered."""
MAX_REQUESTS_IN_FLIGHT: Final = 64
"""Maximum number of requests in flight per stream. At the limit the broker stops reading, and HTTP/2 flow control makes
the client wait."""


class ProduceStream:
    """One stream. The reader starts appends in order; each append writes its answer when it is done."""

    def __init__(self, engine: LogEngine, clock: Clock, context: Context, stopping: asyncio.Event) -> None:
        self._engine = engine
        self._clock = clock
        self._fence = RoutingFence()
        self._context = context
        self._stopping = stopping
        self._slots = asyncio.Semaphore(MAX_REQUESTS_IN_FLIGHT)
        self._writing = asyncio.Lock()
        self._appends: set[asyncio.Task[None]] = set()
        self._handling = False
        """Whether a request was read, but is not yet refused and not yet among the appends."""
        self._requests_read = 0
        self._is_over = False

    async def run(self) -> None:
        """Serve until the client has sent all its requests and got all answers.

        When the broker stops, requests that it has read are still appended and answered. Later requests are refused,
        item by item, until no more come; then BrokerUnavailableError is raised. Ending the stream while requests are
        still arriving might break the connection, and lose answers that the client has not read yet.
        """
        reading = asyncio.create_task(self._follow_requests())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
            is_stopped = not reading.done() and await self._refuse_the_rest(reading)
            while self._appends:
                await asyncio.wait(self._appends)
            if is_stopped:
                raise BrokerUnavailableError(_STOPPING)
            reading.result()
        finally:
            # Appended records stay; only their answers are lost.
            tasks = (reading, stopping, *self._appends)
            for task in tasks:
                task.cancel()
            # Gathered, so that asyncio does not log the other errors as never retrieved.
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _refuse_the_rest(self, reading: asyncio.Task[None]) -> bool:
        """Refuse further requests until no more come, or until _REFUSING_SECONDS after all appends are answered. Return
        whether the client might send more."""
        loop = asyncio.get_running_loop()
        answered_at: float | None = None
        while True:
            before = self._requests_read
            done, _ = await asyncio.wait([reading], timeout=_QUIET_SECONDS)
            if done:
                return False
            if self._handling and answered_at is None:
                continue
            if self._appends:
                await asyncio.wait(self._appends)
            now = loop.time()
            answered_at = answered_at or now
            if self._requests_read == before and not self._handling:
                reading.cancel()  # It is waiting for a request, so no request is lost.
                await asyncio.wait([reading])
                return True
            if now - answered_at > _REFUSING_SECONDS:
                self._is_over = True
                await asyncio.wait([reading])
                return True

    async def _follow_requests(self) -> None:
        while not self._is_over:
            self._handling = False
            message = await self._context.read()
            if message is grpc.aio.EOF:
                return
            self._handling = True
            self._requests_read += 1
            is_late = self._stopping.is_set()
            await self._slots.acquire()
            request = await read_produce(message)
            if is_late:
                await self._refuse(request, BrokerUnavailableError(_NOT_APPENDED))
                continue
            prepared = PreparedProduce(self._engine, self._clock, request, self._fence)
            try:
                await prepared.prepare()
            except BaseException as error:
                prepared.release()
                if not isinstance(error, LogbrokerError):
                    raise
                await self._refuse(request, error)
                continue
            # Tasks run their first step in the order of their creation, and the first step assigns the offsets.
            task = asyncio.create_task(self._append(request, prepared))
            self._appends.add(task)
            task.add_done_callback(self._appends.discard)
            # Not in the task itself: a task that is cancelled before its first step never runs.
            task.add_done_callback(lambda _, prepared=prepared: prepared.release())  # type: ignore[misc]
            if prepared.is_long:
                # Later requests must not overtake the later steps of this one.
                await asyncio.wait([task])

    async def _append(self, request: WireRequest, prepared: PreparedProduce) -> None:
        try:
            try:
                response = await prepared.append()
            except LogbrokerError as error:
                response = _refusal(request, error)
            except Exception:
                # Without an answer the client would wait for ever.
                _log.exception("an append failed")
                response = _refusal(request, LogbrokerError("the broker met an unexpected error; its log tells more"))
            async with self._writing:
                # Before the write, because the sender may send again before the write returns.
                prepared.answered()
                with suppress(
                    grpc.aio.InternalError
                ):  # The client is gone; the reader or the end of the call reports it.
                    await self._context.write(response)
        finally:
            self._slots.release()

    async def _refuse(self, request: WireRequest, error: LogbrokerError) -> None:
        self._slots.release()
        async with self._writing:
            await self._context.write(_refusal(request, error))


def _refusal(request: WireRequest, error: LogbrokerError) -> ProduceResponse:
    statuses = Statuses()
    response = ProduceResponse(correlation_id=request.correlation_id)
    for _ in request.items:
        response.results.add(status=statuses.of(error), base_offset=-1, log_append_time_ms=-1)
    return response
