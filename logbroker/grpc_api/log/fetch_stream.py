"""The fetch stream: a `FetchSession` decides what to send next, and this module reads and sends it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import grpc

from logbroker.broker.read_budget import ReadBudget
from logbroker.engine import LogEngine, Read, ReadResult
from logbroker.errors import BrokerUnavailableError, InvalidRequestError, LogbrokerError
from logbroker.grpc_api.log.fetch import (
    DECODED_PER_STEP,
    READ_STEPS,
    Position,
    checked_max_bytes,
    facts_at_end,
    fail_result,
    generation_end,
    name_damage,
    note_end,
    position_of,
    read_up_to,
)
from logbroker.grpc_api.log.fetch_session import FetchAssignment, FetchSession
from logbroker.grpc_api.log.framing import FramedResponse
from logbroker.grpc_api.log.plain_records import INLINE_BYTES, plain_records
from logbroker.grpc_api.paging import ITEM_STEPS
from logbroker.grpc_api.refs import check_isolation, check_item_count, echoed_id, echoed_name, topic_of
from logbroker.grpc_api.status import Context, item_status
from logbroker.pacing import Pace
from logbroker.types import PartitionKey
from logbroker.v1.log_pb2 import FetchItem, FetchResult

DEFAULT_RESPONSE_BYTES = 1024 * 1024


class FetchStream:
    """One stream. One task reads requests, one sends responses, and one waits until the broker stops.

    At most one response is in memory, until gRPC has passed it on; the read budget counts its bytes.
    """

    def __init__(
        self,
        engine: LogEngine,
        context: Context,
        budget: ReadBudget,
        max_response_bytes: int,
        stopping: asyncio.Event,
    ) -> None:
        self._engine = engine
        self._context = context
        self._budget = budget
        self._stopping = stopping
        self._max_response_bytes = max_response_bytes
        self._response_bytes = min(DEFAULT_RESPONSE_BYTES, max_response_bytes)
        self._plain = False
        self._session = FetchSession()
        self._wake = asyncio.Event()
        """Set when the task that writes responses has work, or when there are new records."""
        self._watch = engine.watch(self._wake.set)
        self._requests_ended = False
        self._writing = False
        self._ending = False
        self._refused: deque[FetchResult] = deque()
        self._refusals_sent = asyncio.Event()
        self._refusals_sent.set()

    async def run(self) -> None:
        """Serve until the client cancels, or has ended its requests and used up its credit.

        Raises any other error that ends the stream, and grpc.aio.InternalError if the connection broke.
        """
        sending = asyncio.create_task(self._send())
        followers = [asyncio.create_task(follow()) for follow in (self._follow_requests, self._follow_stop)]
        running = {sending, *followers}
        try:
            # Requests may end before the sending does; an error of any task ends the stream.
            while not sending.done():
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        except asyncio.CancelledError:
            sending.cancel()  # The call is gone, so no status is needed.
            raise
        finally:
            self._ending = True
            for task in running:
                # gRPC's core finishes a write that has begun, and sends the status only after it.
                if task is not sending or not self._writing:
                    task.cancel()
            # Gathered, so that asyncio does not log the other errors as never retrieved.
            await asyncio.gather(sending, *followers, return_exceptions=True)
            self._watch.close()

    async def _follow_requests(self) -> None:
        first = True
        pace = Pace()
        while (request := await self._context.read()) is not grpc.aio.EOF:
            if request.HasField("settings"):
                if not first:
                    raise InvalidRequestError("settings belong into the first request of a stream")
                check_isolation(request.settings.isolation)
                if request.settings.HasField("max_response_bytes"):
                    wanted = request.settings.max_response_bytes
                    self._response_bytes = checked_max_bytes(wanted, self._max_response_bytes)
                self._plain = request.settings.plain_records
            first = False
            check_item_count(len(request.assign) + len(request.remove))
            for item in request.assign:
                self._assign(item, request.correlation_id)
                await pace.step(ITEM_STEPS)
            for ref in request.remove:
                await pace.step(2)
                try:
                    key = PartitionKey(topic_of(self._engine, ref).id, ref.partition)
                except LogbrokerError:
                    continue  # It is already gone.
                self._session.remove(key)
                self._watch.remove(key)
            self._session.add_credit(request.add_credit_bytes)
            self._wake.set()
            # Wait, so that refusals do not pile up here if the client does not read.
            await self._refusals_sent.wait()
        self._requests_ended = True
        self._wake.set()

    def _assign(self, item: FetchItem, correlation_id: int) -> None:
        try:
            position = position_of(self._engine, item, self._response_bytes)
            self._watch.add(position.key)
            self._session.assign(position, correlation_id)
        except LogbrokerError as error:
            self._refusals_sent.clear()
            self._refused.append(
                FetchResult(
                    status=item_status(error),
                    topic=echoed_name(item.topic),
                    topic_id=echoed_id(item.topic_id),
                    partition=item.partition,
                    next_offset=item.offset,
                    correlation_id=correlation_id,
                )
            )

    async def _follow_stop(self) -> None:
        await self._stopping.wait()
        raise BrokerUnavailableError("the broker is stopping; clients can connect again once it is back")

    async def _send(self) -> None:
        while True:
            self._session.moved(self._watch.moved())
            if not self._session.has_work() and not self._refused:
                if self._requests_ended and self._session.credit_bytes <= 0:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            response, pace = FramedResponse(), Pace()
            try:
                while self._refused and response.size_bytes < self._response_bytes:
                    self._add_frame(response, self._refused.popleft())
                    await pace.step(3)
                await self._fill(response)
                if response.size_bytes:
                    await self._write(response.serialized())
                if self._ending:
                    return
                if not self._refused:
                    self._refusals_sent.set()
            finally:
                self._budget.release(response.size_bytes)

    async def _write(self, message: bytes) -> None:
        self._writing = True
        try:
            await self._context.write(message)
        finally:
            self._writing = False

    async def _fill(self, response: FramedResponse) -> None:
        """Add results until the response is full or no partition has more."""
        session, pace = self._session, Pace()
        bound = self._budget.allowance(self._response_bytes)
        # If the room left is too small for most batches, do not read: the batches would probably not fit.
        while (room := bound - response.size_bytes) > bound // 4 and (assigned := session.pick()) is not None:
            position = assigned.position
            if position.generation and self._is_at_end(response, assigned):
                continue
            limit = min(room, position.max_bytes)
            wish = Read(position.topic.id, position.partition, position.offset, limit, position.last_leader_epoch)
            [outcome] = await self._engine.read([wish])
            await pace.step(READ_STEPS)
            if not session.is_current(assigned):
                continue  # It was removed or assigned anew while a cold read was under way.
            if isinstance(outcome, ReadResult):
                outcome = self._of_generation(position, outcome)
            if isinstance(outcome, LogbrokerError):
                self._add_frame(response, self._failure(assigned, outcome))
            elif len(outcome.batches) <= room:
                await self._add(response, assigned, outcome, room, pace)
            elif response.size_bytes:
                session.put_back(assigned)  # The next response begins with this large batch.
                return
            elif self._budget.fits(len(outcome.batches)):
                await self._add(response, assigned, outcome, room, pace)
            else:
                session.put_back(assigned)
                del outcome
                await self._budget.wait()

    def _is_at_end(self, response: FramedResponse, assigned: FetchAssignment) -> bool:
        """Return whether the position has reached the end of the requested generation. If so, tell the client once."""
        try:
            found = facts_at_end(self._engine, assigned.position)
        except LogbrokerError as error:
            self._add_frame(response, self._failure(assigned, error))
            return True
        if found is None:
            return False
        end, facts = found
        if end != assigned.told_end or not assigned.answered:
            result = _blank_result(assigned)
            note_end(result, end, facts)
            assigned.told_end = end
            self._add_frame(response, result)
        self._session.sent(assigned, assigned.position.offset, 0, more=False)
        return True

    def _of_generation(self, position: Position, outcome: ReadResult) -> ReadResult | LogbrokerError:
        """Return a read result up to the end of the requested generation."""
        try:
            end = generation_end(self._engine, position)
        except LogbrokerError as error:
            return error.as_value()
        if end is not None and position.offset >= end:
            # The read has checked the leader epoch. Without the epoch, `_is_at_end` can answer next time.
            position.last_leader_epoch = -1
        return outcome if end is None else read_up_to(outcome, end)

    def _add_frame(
        self,
        response: FramedResponse,
        result: FetchResult,
        batches: Sequence[bytes] = (),
        records: Sequence[bytes] = (),
    ) -> None:
        before_bytes = response.size_bytes
        response.add(result, batches, records)
        self._budget.hold(response.size_bytes - before_bytes)

    async def _decoded(
        self, response: FramedResponse, result: FetchResult, batches: bytes, room: int, pace: Pace
    ) -> list[bytes]:
        self._budget.hold(len(batches))
        try:
            held_bytes = response.size_bytes + len(batches)
            await pace.step(min(len(batches), INLINE_BYTES) // DECODED_PER_STEP)
            return await plain_records(result, batches, result.next_offset, room, self._budget, held_bytes)
        finally:
            self._budget.release(len(batches))

    async def _add(
        self, response: FramedResponse, assigned: FetchAssignment, outcome: ReadResult, room: int, pace: Pace
    ) -> None:
        """Add a read result, unless it tells the client nothing new. With plain records, add about as many as fit."""
        session, position = self._session, assigned.position
        result = _blank_result(assigned)
        result.high_watermark = result.last_stable_offset = outcome.high_watermark
        result.log_start_offset = outcome.log_start_offset
        result.leader_epoch = outcome.leader_epoch
        result.gaps_below = outcome.gaps_below
        is_news = not assigned.answered
        end = generation_end(self._engine, position)
        if end is not None:
            # A log that was cut may end earlier.
            result.generation_end = min(end, outcome.high_watermark)
            is_news = is_news or result.generation_end != assigned.told_end
            assigned.told_end = result.generation_end
        if not outcome.batches or session.credit_bytes <= 0:
            if not outcome.batches and outcome.next_offset > position.offset:
                # A gap extends to the end of the generation.
                result.next_offset = outcome.next_offset
                is_news = True
            if is_news:
                self._add_frame(response, result)
            session.sent(assigned, result.next_offset, 0, more=bool(outcome.batches))
            return
        if self._plain:
            records = await self._decoded(response, result, outcome.batches, room, pace)
            if result.HasField("status"):
                await name_damage(self._engine, result)
            self._add_frame(response, result, records=records)
            if result.HasField("status"):
                self._leave(assigned)
                return
            size_bytes = sum(map(len, records))
        else:
            result.next_offset = outcome.next_offset
            self._add_frame(response, result, [outcome.batches])
            size_bytes = len(outcome.batches)
        more = result.next_offset < outcome.high_watermark
        session.sent(assigned, result.next_offset, size_bytes, more=more)

    def _failure(self, assigned: FetchAssignment, error: LogbrokerError) -> FetchResult:
        result = _blank_result(assigned)
        fail_result(result, error)
        self._leave(assigned)
        return result

    def _leave(self, assigned: FetchAssignment) -> None:
        if self._session.failed(assigned):
            self._watch.remove(assigned.position.key)


def _blank_result(assigned: FetchAssignment) -> FetchResult:
    position = assigned.position
    return FetchResult(
        topic=position.topic.name,
        topic_id=position.topic.id,
        partition=position.partition,
        next_offset=position.offset,
        correlation_id=assigned.correlation_id,
    )
