"""The fetch stream: carries out what a `FetchSession` decides."""

from __future__ import annotations

import asyncio

import grpc

from logbroker.engine import LogEngine, Read, ReadResult
from logbroker.errors import InvalidRequestError, LogbrokerError, OverloadedError
from logbroker.grpc_api.budget import ByteBudget
from logbroker.grpc_api.fetch import checked_max_bytes, position_of
from logbroker.grpc_api.fetch_session import Assigned, FetchSession
from logbroker.grpc_api.plain_records import plain_records
from logbroker.grpc_api.refs import check_item_count, topic_of
from logbroker.grpc_api.status import Context, item_status
from logbroker.types import PartitionKey
from logbroker.v1.log_pb2 import FetchItem, FetchResult, FetchStreamResponse

DEFAULT_RESPONSE_BYTES = 1024 * 1024


class FetchStream:
    """One stream. Three tasks: requests in, high watermarks in, responses out; the session is all that they share.

    At most one response is in memory, and only while it is written: a client that stops reading costs its bytes of
    the budget until `stalled_reader_seconds` are over, then its stream.
    """

    def __init__(
        self,
        engine: LogEngine,
        context: Context,
        budget: ByteBudget,
        max_response_bytes: int,
        stalled_reader_seconds: float,
    ) -> None:
        self._engine = engine
        self._context = context
        self._budget = budget
        self._max_response_bytes = max_response_bytes
        self._stalled_reader_seconds = stalled_reader_seconds
        self._response_bytes = min(DEFAULT_RESPONSE_BYTES, max_response_bytes)
        self._plain = False
        self._session = FetchSession()
        self._watch = engine.watch()
        self._wake = asyncio.Event()
        self._refused: list[FetchResult] = []

    async def run(self) -> None:
        """Serve until the client ends the stream. Raises the error that ends the stream otherwise."""
        followers = [asyncio.create_task(self._follow_requests()), asyncio.create_task(self._follow_watermarks())]
        sender = asyncio.create_task(self._send())
        try:
            done, _ = await asyncio.wait([followers[0], sender], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*followers, sender):
                task.cancel()
            await asyncio.wait([*followers, sender])
            self._watch.close()

    async def _follow_requests(self) -> None:
        first = True
        while (request := await self._context.read()) is not grpc.aio.EOF:
            if request.HasField("settings"):
                if not first:
                    raise InvalidRequestError("settings belong into the first request of a stream")
                if request.settings.HasField("max_response_bytes"):
                    wanted = request.settings.max_response_bytes
                    self._response_bytes = checked_max_bytes(wanted, self._max_response_bytes)
                self._plain = request.settings.plain_records
            first = False
            check_item_count(len(request.assign) + len(request.remove))
            for item in request.assign:
                self._assign(item, request.correlation_id)
            for ref in request.remove:
                try:
                    key = PartitionKey(topic_of(self._engine, ref).id, ref.partition)
                except LogbrokerError:
                    continue  # It is gone already.
                self._session.remove(key)
                self._watch.remove(key)
            self._session.add_credit(request.add_credit_bytes)
            self._wake.set()

    def _assign(self, item: FetchItem, correlation_id: int) -> None:
        try:
            position = position_of(self._engine, item, self._response_bytes)
            self._watch.add(position.key)
            self._session.assign(position, correlation_id)
        except LogbrokerError as error:
            self._refused.append(
                FetchResult(
                    status=item_status(error),
                    topic=item.topic,
                    topic_id=item.topic_id,
                    partition=item.partition,
                    next_offset=item.offset,
                    correlation_id=correlation_id,
                )
            )

    async def _follow_watermarks(self) -> None:
        while True:
            self._session.moved(await self._watch.changed())
            self._wake.set()

    async def _send(self) -> None:
        while True:
            while not self._session.has_work() and not self._refused:
                self._wake.clear()
                await self._wake.wait()
            taken = await self._budget.take(self._response_bytes)
            try:
                response = FetchStreamResponse(results=self._refused)
                self._refused.clear()
                await self._fill(response)
                if response.results:
                    async with asyncio.timeout(self._stalled_reader_seconds):
                        await self._context.write(response)
            except TimeoutError:
                raise OverloadedError(
                    f"the client took nothing for {self._stalled_reader_seconds:g} s; open the stream again to go on"
                ) from None
            finally:
                self._budget.give_back(taken)

    async def _fill(self, response: FetchStreamResponse) -> None:
        """Add results until the response is full or no partition has more."""
        session = self._session
        room = self._response_bytes
        while room > 0 and (assigned := session.pick()) is not None:
            position = assigned.position
            limit = min(room, position.max_bytes)
            wish = Read(position.topic.id, position.partition, position.offset, limit, position.last_leader_epoch)
            [outcome] = await self._engine.read([wish])
            if not session.is_current(assigned):
                continue  # Removed or moved while a cold read was under way.
            if isinstance(outcome, ReadResult) and len(outcome.batches) > room and response.results:
                session.put_back(assigned)  # The next response begins with this large batch.
                return
            if isinstance(outcome, LogbrokerError):
                result: FetchResult | None = self._failure(assigned, outcome)
            else:
                result = await self._result(assigned, outcome)
            if result is not None:
                response.results.append(result)
                room -= result.ByteSize()

    async def _result(self, assigned: Assigned, outcome: ReadResult) -> FetchResult | None:
        """Return what to send of a read, None where the client knows it all."""
        result = _blank_result(assigned)
        result.high_watermark = result.last_stable_offset = outcome.high_watermark
        result.log_start_offset = outcome.log_start_offset
        result.leader_epoch = outcome.leader_epoch
        if not outcome.batches or self._session.credit_bytes <= 0:
            news = not assigned.answered
            self._session.sent(assigned, assigned.position.offset, 0, more=bool(outcome.batches))
            return result if news else None
        if self._plain:
            await plain_records(result, outcome.batches, assigned.position.offset, self._response_bytes)
            if result.HasField("status"):
                self._leave(assigned)
                return result
            size_bytes = result.ByteSize()
        else:
            result.batches = outcome.batches
            result.next_offset = outcome.next_offset
            size_bytes = len(outcome.batches)
        more = result.next_offset < outcome.high_watermark
        self._session.sent(assigned, result.next_offset, size_bytes, more=more)
        return result

    def _failure(self, assigned: Assigned, error: LogbrokerError) -> FetchResult:
        result = _blank_result(assigned)
        result.status.CopyFrom(item_status(error))
        self._leave(assigned)
        return result

    def _leave(self, assigned: Assigned) -> None:
        self._session.failed(assigned)
        self._watch.remove(assigned.position.key)


def _blank_result(assigned: Assigned) -> FetchResult:
    position = assigned.position
    return FetchResult(
        topic=position.topic.name,
        topic_id=position.topic.id,
        partition=position.partition,
        next_offset=position.offset,
        correlation_id=assigned.correlation_id,
    )
