"""The stream of one worker: it passes requests to the queue group, in order, and writes deliveries and answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import grpc

from logbroker.broker.read_budget import ReadBudget
from logbroker.engine import LogEngine
from logbroker.errors import (
    BrokerUnavailableError,
    InvalidRequestError,
    LogbrokerError,
    OverloadedError,
    RequestTimeoutError,
)
from logbroker.grpc_api.groups.messages import topic_name
from logbroker.grpc_api.queues.delivery_frames import worker_response
from logbroker.grpc_api.queues.messages import (
    ReadSettle,
    make_settle_answer,
    read_hello,
    read_settle,
    settle_answer,
    settle_refused,
    welcome_message,
)
from logbroker.grpc_api.queues.outputs import read_outputs
from logbroker.grpc_api.queues.worker_sessions import WorkerSessions
from logbroker.grpc_api.status import Context
from logbroker.pacing import Pace, in_turns
from logbroker.queues.delivery.worker_stream import WorkerLink
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.messages import SMALL_STEPS, Delivered, Refusal, steps_of
from logbroker.queues.model.worker_messages import DISPATCH_BYTES
from logbroker.v1 import queues_pb2 as pb

MAX_ANSWERS_DUE: Final = 64
"""Maximum number of settlements of one stream without an answer. At the limit the broker stops reading."""
MAX_UNSENT_BYTES: Final = 64 * 1024
"""Maximum bytes of answers that a client has not read. Above it the broker also stops reading."""
STOP_ANSWERS_SECONDS: Final = 5.0
"""How long a stopping broker waits until a client has read its answers. It waits for the settlements themselves without
a limit."""
HELLO_SECONDS: Final = 10.0
"""Time limit for the Hello of a new stream."""


class WorkerStream:
    """One stream, with one task for requests, one for answers, one for deliveries, and one that waits until the broker
    stops. Answers go first: records are handed out only when there is nothing else to write."""

    def __init__(
        self,
        find_group: Callable[[str], QueueGroup],
        engine: LogEngine,
        context: Context,
        budget: ReadBudget,
        stopping: asyncio.Event,
        max_request_bytes: int = 0,
    ) -> None:
        """`find_group` returns a group, or raises an error. `max_request_bytes` is told to the worker; 0: not known."""
        self._find_group = find_group
        self._engine = engine
        self._context = context
        self._budget = budget
        self._stopping = stopping
        self._max_request_bytes = max_request_bytes
        self._answers: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._answers_due = 0
        self._answered = asyncio.Event()
        """Set when an answer was queued or written."""
        self._wake = asyncio.Event()
        """Set when the task that writes answers has work."""
        self._delivering: asyncio.Task[None] | None = None
        self._unsent: Delivered | None = None
        """Deliveries that were handed out and are not being written yet."""
        self._unsure: Delivered | None = None
        """Deliveries that are being written; they may or may not arrive."""
        self._writer: asyncio.Task[Any] | None = None
        """Task that is writing: gRPC takes one message at a time."""
        self._reading_ended = False
        self._is_finished = False
        self._pace = Pace()
        self._answering: set[asyncio.Task[None]] = set()
        """Tasks that answer large settlements, which are carried out in parts; the answer follows when all parts are
        synced."""

    async def run(self) -> None:
        """Serve from the Hello until the worker leaves, is replaced, or its stream breaks.

        Raises the refusal of the Hello, or the error that ends the stream otherwise.
        """
        group, link = await self._greet()
        sessions = WorkerSessions(group, link, lambda answer: self._answer(pb.WorkerResponse(session=answer)))
        self._delivering = asyncio.create_task(self._write_deliveries(group, link, sessions))
        writing = asyncio.create_task(self._write_answers()), self._delivering
        tasks = [*writing, asyncio.create_task(self._follow_requests(link, sessions))]
        tasks.append(asyncio.create_task(self._follow_stop()))
        try:
            await self._until_over(tasks)
        except asyncio.CancelledError:
            for task in writing:
                task.cancel()  # The call is gone, so no status is needed.
            raise
        finally:
            if not self._stopping.is_set():
                if self._unsent is not None:
                    link.put_back(self._unsent)  # The worker never saw it, so it did not fail.
                if self._unsure is not None:
                    link.excuse(self._unsure)
                link.disconnected()
            self._answers.clear()
            self._is_finished = self._reading_ended = True
            for task in tasks:
                # gRPC's core finishes a write that has begun, and sends the status only after it.
                if task is not self._writer:
                    task.cancel()
            # Gathered, so that asyncio does not log the other errors as never retrieved.
            await asyncio.gather(*tasks, sessions.end(), return_exceptions=True)

    async def _until_over(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait until the last request is handled and all answers are written. Raises the first error of a task."""
        answering, pending = tasks[0], set(tasks)
        while not answering.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not task.cancelled():  # After the last request, the task that writes deliveries is cancelled.
                    task.result()

    async def _greet(self) -> tuple[QueueGroup, WorkerLink]:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                request = await self._context.read()
        except TimeoutError:
            raise RequestTimeoutError(f"no Hello came within {HELLO_SECONDS:g} s; send it first") from None
        if request is grpc.aio.EOF or request.WhichOneof("request") != "hello":
            raise InvalidRequestError("the first message of a worker's stream is a Hello")
        if self._stopping.is_set():
            raise BrokerUnavailableError("the broker is stopping; clients can connect again once it is back")
        group = self._find_group(request.hello.group_id)
        link = await group.connect(await read_hello(request.hello))
        link.bound_dispatches(self._budget.allowance)
        topic = topic_name(self._engine, group.topic_id)
        welcome = welcome_message(topic, group.settings, group.group_epoch, link, self._max_request_bytes)
        self._answer(welcome)
        link.on_obstacle = lambda why: self._answer(pb.WorkerResponse(obstacle=pb.Obstacle(reason=why)))
        group.tell_obstacle(link)
        return group, link

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _follow_requests(self, link: WorkerLink, sessions: WorkerSessions) -> None:
        """Carry out requests until the client sends no more, and wait until they are answered."""
        said_goodbye = False
        while not said_goodbye and (request := await self._context.read()) is not grpc.aio.EOF:
            kind = request.WhichOneof("request")
            if kind == "settle":
                await self._room_for_answer()
                await self._settle(link, request.settle)
                if request.add_credit:
                    link.add_credit(request.add_credit)
            elif kind == "credit":
                credit = request.credit
                if credit.bytes:
                    link.add_credit_bytes(credit.bytes, credit.session_token)
                if credit.records or not credit.bytes:
                    link.add_credit(credit.records)
            elif kind == "goodbye":
                said_goodbye = True
            elif kind == "open_session":
                await self._room_for_answer()
                sessions.open(request.open_session)
            elif kind == "renew_session":
                await self._room_for_answer()
                sessions.renew(request.renew_session)
            elif kind == "close_session":
                await self._room_for_answer()
                sessions.close(request.close_session)
            else:
                raise InvalidRequestError("after the Hello a worker sends Credit, Settle, ... but no second Hello")
        self._end_deliveries()
        await sessions.end()
        while self._answers_due:
            await self._next_answer()
        if said_goodbye:
            await link.goodbye()
        self._finish()

    def _finish(self) -> None:
        self._is_finished = self._reading_ended = True
        self._wake.set()

    async def _room_for_answer(self) -> None:
        while self._answers_due >= MAX_ANSWERS_DUE or self._unsent_bytes > MAX_UNSENT_BYTES or self._stopping.is_set():
            await self._next_answer()

    async def _next_answer(self) -> None:
        self._answered.clear()
        await self._answered.wait()

    async def _settle(self, link: WorkerLink, message: pb.Settle) -> None:
        """Settle at once; the answer follows when the settlement is synced."""
        asked = await in_turns(read_settle(message), self._pace)
        correlation_id = message.correlation_id
        self._answers_due += 1
        is_large = steps_of(asked.settlement) + len(asked.refusals) > SMALL_STEPS
        if is_large and not message.outputs:
            await self._settle_in_turns(link, correlation_id, asked)
            return

        def done(answer: pb.SettleAnswer) -> None:
            self._answers_due -= 1
            self._answer(pb.WorkerResponse(settled=answer))

        def synced(settling: asyncio.Future[list[Refusal]]) -> None:
            try:
                done(settle_answer(correlation_id, [*asked.refusals, *settling.result()]))
            except LogbrokerError as error:
                done(settle_refused(correlation_id, error))

        try:
            if message.outputs and not asked.refusals:
                outputs = await read_outputs(self._engine, message.outputs, self._pace)
                settling = await link.settle_with_outputs(asked.settlement, outputs)
            else:
                settling = link.settle(asked.settlement)
        except LogbrokerError as error:
            done(settle_refused(correlation_id, error))
        else:
            settling.add_done_callback(synced)

    async def _settle_in_turns(self, link: WorkerLink, correlation_id: int, asked: ReadSettle) -> None:
        """Settle in parts. Later requests wait until all parts are settled, but not for the answer."""
        try:
            settling = await link.settle_in_turns(asked.settlement)
        except LogbrokerError as error:
            self._answers_due -= 1
            self._answer(pb.WorkerResponse(settled=settle_refused(correlation_id, error)))
            return
        task = asyncio.create_task(self._answer_parts(correlation_id, asked.refusals, settling))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer_parts(
        self, correlation_id: int, refusals: list[Refusal], settling: Sequence[asyncio.Future[list[Refusal]]]
    ) -> None:
        try:
            for part in settling:
                refusals += await part
        except LogbrokerError as error:
            answer = settle_refused(correlation_id, error)
        else:
            answer = await in_turns(make_settle_answer(correlation_id, refusals), Pace())
        self._answers_due -= 1
        self._answer(pb.WorkerResponse(settled=answer))

    def _end_deliveries(self) -> None:
        self._reading_ended = True
        if self._delivering is not None and self._delivering is not self._writer:
            self._delivering.cancel()

    # --- responses ---------------------------------------------------------------------------------------------------

    def _answer(self, response: pb.WorkerResponse) -> None:
        message = response.SerializeToString()
        self._answers.append(message)
        self._unsent_bytes += len(message)
        self._wake.set()
        self._answered.set()

    async def _write_answers(self) -> None:
        """Write answers as they come, up to the last one."""
        with suppress(grpc.aio.InternalError):  # The client is gone; the reader or the end of the call reports it.
            while not self._is_finished or self._answers:
                if self._answers and self._writer is None:
                    message = self._answers.popleft()
                    await self._send(message)
                    self._unsent_bytes -= len(message)
                    self._answered.set()
                else:
                    self._wake.clear()
                    await self._wake.wait()

    async def _write_deliveries(self, group: QueueGroup, link: WorkerLink, sessions: WorkerSessions) -> None:
        """Take and write deliveries while there are no answers to write. Raises the error that ended the link."""
        while not self._reading_ended:
            await self._all_answered()
            try:
                delivered = self._unsent = await self._next_deliveries(link)
            except LogbrokerError:
                while self._stopping.is_set() and self._answers_due:
                    await self._next_answer()  # A stopping broker hands out nothing more.
                await self._all_answered()
                raise
            await self._all_answered()
            while not sessions.knows(delivered):
                await self._next_answer()
                await self._all_answered()
            if sessions.is_void(delivered):
                self._unsent = None
                link.drop(delivered)
                continue
            link.sending(delivered)
            self._unsent, self._unsure = None, delivered
            try:
                await self._send_deliveries(delivered, group.lease_left_ms(delivered))
                self._unsure = None
            except grpc.aio.InternalError:
                self._answers.clear()
                self._finish()

    async def _all_answered(self) -> None:
        while self._answers or self._writer is not None:
            await self._next_answer()

    async def _next_deliveries(self, link: WorkerLink) -> Delivered:
        while not self._budget.fits(DISPATCH_BYTES):
            # Settlements go on meanwhile, and may free memory.
            with suppress(OverloadedError):
                await self._budget.wait()
        return await link.next_deliveries()

    async def _send_deliveries(self, delivered: Delivered, lease_ms: int) -> None:
        message = worker_response(delivered, lease_ms)
        self._budget.hold(len(message))
        try:
            await self._send(message)
        finally:
            self._budget.release(len(message))

    async def _send(self, message: bytes) -> None:
        self._writer = asyncio.current_task()
        try:
            await self._context.write(message)
        finally:
            self._writer = None
            if self._answers:
                self._wake.set()

    async def _follow_stop(self) -> None:
        """When the broker stops, take no more requests, and end the stream when earlier settlements are answered."""
        await self._stopping.wait()
        while self._answers_due:
            await self._next_answer()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_ANSWERS_SECONDS):
                await self._all_answered()
        raise BrokerUnavailableError("the broker is stopping; clients can connect again once it is back")
