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

_STOPPING: Final = "the broker is stopping; connect again once it is back"
_NOT_APPENDED: Final = "the broker is stopping, and has not appended this: send it again once it is back"

_log = logging.getLogger(__name__)

_QUIET_SECONDS: Final = 0.1
"""Silence after which a stream counts as drained when the broker stops."""
_REFUSING_SECONDS: Final = 2.0
"""Longest time for which a stopping broker refuses further requests, once all appends are answered."""
MAX_REQUESTS_IN_FLIGHT: Final = 64
"""Most requests in flight of one stream; beyond it the broker stops reading, and HTTP/2 flow control holds the
client."""


class ProduceStream:
    """One stream: the reader starts appends in order, and each answers when it is done."""

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
        """Whether a request was read and is neither refused nor among the appends yet."""
        self._requests_read = 0
        self._is_over = False

    async def run(self) -> None:
        """Serve until the client has sent all its requests and got all answers.

        When the broker stops, requests read before are still appended and answered, and later ones are refused, item by
        item, until none come; then BrokerUnavailableError is raised. Ending the stream while requests are still
        arriving might break the connection, and lose answers that the client has not read yet.
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
            # Appended records stay; only their answers have nobody to go to.
            tasks = (reading, stopping, *self._appends)
            for task in tasks:
                task.cancel()
            # Gathered, so that further errors beside the first are not reported as lost.
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _refuse_the_rest(self, reading: asyncio.Task[None]) -> bool:
        """Refuse further requests until none come, or all appends are answered and the time is over. Return whether the
        client might send more."""
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
                reading.cancel()  # It waits for a request, so none is lost.
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
            # Tasks run their first step in the order of their creation, and that step assigns the offsets.
            task = asyncio.create_task(self._append(request, prepared))
            self._appends.add(task)
            task.add_done_callback(self._appends.discard)
            # Not in the task: one that is cancelled before its first step never runs.
            task.add_done_callback(lambda _, prepared=prepared: prepared.release())  # type: ignore[misc]
            if prepared.is_long:
                # Later requests must not overtake its later steps.
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
                # Noted before the write: the sender may send again before it returns.
                prepared.answered()
                with suppress(
                    grpc.aio.InternalError
                ):  # The client is gone; reading, or the end of the call, tells that.
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
