"""The stream of one group member: its requests to the group's coordinator, in order, and its messages back."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final

import grpc

from logbroker.broker.homes import Homes
from logbroker.consumer_groups.membership import (
    CommitDone,
    Ended,
    GenerationsToRead,
    MemberLink,
    MemberMessage,
    SubscriptionDone,
)
from logbroker.engine import LogEngine
from logbroker.errors import BrokerUnavailableError, InvalidRequestError, MemberFencedError, RequestTimeoutError
from logbroker.grpc_api.groups.messages import member_response, read_join, read_positions, read_subscription
from logbroker.grpc_api.groups.offsets import read_commits
from logbroker.grpc_api.status import Context
from logbroker.v1 import groups_pb2 as pb

MAX_ANSWERS_DUE: Final = 64
"""Maximum number of heartbeats, commits and subscriptions of one stream without an answer. At the limit the broker
stops reading. So if a client reads no answers, flow control stops its requests, heartbeats included, and its session
times out."""
LAST_ANSWERS_SECONDS: Final = 5.0
"""Time limit for the answers that are due when the client half-closes the stream or the broker stops: a client may not
read."""
JOIN_SECONDS: Final = 10.0
"""Time limit for the Join of a new stream."""

_HEARTBEAT_ANSWER: Final = pb.MemberResponse(heartbeat=pb.HeartbeatAnswer()).SerializeToString()


class MemberStream:
    """One stream, the `Channel` of its member. One task reads requests, one writes messages, and one waits until the
    broker stops."""

    def __init__(self, homes: Homes, engine: LogEngine, context: Context, stopping: asyncio.Event) -> None:
        self._homes = homes
        self._engine = engine
        self._context = context
        self._stopping = stopping
        self._answers_due = asyncio.Semaphore(MAX_ANSWERS_DUE)
        self._waiting_for_all = asyncio.Lock()
        self._outbox: deque[MemberMessage | None] = deque()  # None: the answer to a heartbeat
        self._wake = asyncio.Event()
        self._writing = False
        self._ending = False

    def send(self, message: MemberMessage | None) -> None:
        """Queue a message. The queue is bounded: it holds the answers that are due, at most one Assignment that is not
        taken, and between two such messages at most one about generations."""
        last = self._outbox[-1] if self._outbox else None
        if isinstance(message, GenerationsToRead) and isinstance(last, GenerationsToRead):
            last.topics |= message.topics
        else:
            self._outbox.append(message)
        self._wake.set()

    async def run(self) -> None:
        """Serve from the Join until the member leaves, is fenced, or its stream breaks.

        Raises the refusal of the Join, or the error that ends the stream otherwise.
        """
        membership = await self._join()
        reading = asyncio.create_task(self._follow_requests(membership))
        writing = asyncio.create_task(self._write_messages())
        stopping = asyncio.create_task(self._follow_stop())
        try:
            done, _ = await asyncio.wait([reading, writing, stopping], return_when=asyncio.FIRST_COMPLETED)
            if reading in done:
                if not (reading.result() or self._stopping.is_set()):
                    await self._write_answers_due()  # The client half-closed the stream, and may wait for answers.
                else:  # The stream ends when a Leave is stored, or when the stopping broker has written its answers.
                    done, _ = await asyncio.wait([writing, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except asyncio.CancelledError:
            writing.cancel()  # The call is gone, so no status is needed.
            raise
        finally:
            if not self._stopping.is_set():
                membership.disconnected()
            self._ending = True
            for task in (reading, stopping, writing):
                # gRPC's core finishes a write that has begun, and sends the status only after it.
                if task is not writing or not self._writing:
                    task.cancel()
            # Gathered, so that asyncio does not log the other errors as never retrieved.
            await asyncio.gather(reading, stopping, writing, return_exceptions=True)

    async def _join(self) -> MemberLink:
        try:
            async with asyncio.timeout(JOIN_SECONDS):
                request = await self._context.read()
        except TimeoutError:
            raise RequestTimeoutError(f"no Join came within {JOIN_SECONDS:g} s; send it first") from None
        if request is grpc.aio.EOF or request.WhichOneof("request") != "join":
            raise InvalidRequestError("the first message of a member's stream is a Join")
        if self._stopping.is_set():
            raise BrokerUnavailableError("the broker is stopping; clients can connect again once it is back")
        group_id = request.join.group_id
        join = await read_join(self._engine, request.join)
        return await self._homes.of(group_id).groups.join(group_id, join, self)

    async def _follow_requests(self, membership: MemberLink) -> bool:
        """Carry out requests until their end; return whether the member sent Leave."""
        while (request := await self._context.read()) is not grpc.aio.EOF:
            kind = request.WhichOneof("request")
            if kind == "heartbeat":
                await self._answers_due.acquire()
                if request.heartbeat.positions:
                    membership.tell(await read_positions(self._engine, request.heartbeat.positions))
                if membership.heartbeat(polled=request.heartbeat.polled):
                    self.send(None)
            elif kind == "commit":
                commit = request.commit
                await self._answers_due.acquire()
                topics = await read_commits(self._engine, commit.topics)
                await membership.commit_in_turns(commit.correlation_id, commit.epoch, topics)
            elif kind == "taken":
                membership.taken(request.taken.epoch)
            elif kind == "subscription":
                await self._subscribe(membership, request.subscription)
            elif kind == "leave":
                membership.leave()
                return True
            else:
                raise InvalidRequestError("after the Join a member sends heartbeats, commits, ... but no second Join")
        return False

    async def _subscribe(self, membership: MemberLink, message: pb.Subscription) -> None:
        if not message.correlation_id:
            membership.subscribe(read_subscription(message))
            return
        await self._answers_due.acquire()
        try:
            membership.subscribe(read_subscription(message))
        except InvalidRequestError as error:
            self.send(SubscriptionDone(message.correlation_id, error.as_value()))
        else:
            self.send(SubscriptionDone(message.correlation_id))

    async def _write_messages(self) -> None:
        while True:
            while self._outbox:
                message = self._outbox.popleft()
                if isinstance(message, Ended) and not isinstance(message.error, MemberFencedError):
                    if message.error is None:
                        return
                    raise message.error.anew()
                response = _HEARTBEAT_ANSWER if message is None else await member_response(self._engine, message)
                self._writing = True
                try:
                    await self._context.write(response)
                except grpc.aio.InternalError:
                    return  # The client is gone; the reader or the end of the call reports it.
                finally:
                    self._writing = False
                if message is None or isinstance(message, CommitDone | SubscriptionDone):
                    self._answers_due.release()
                if self._ending or isinstance(message, Ended):
                    return
            self._wake.clear()
            await self._wake.wait()

    async def _follow_stop(self) -> None:
        """When the broker stops, take no more requests, and end the stream when the earlier requests are answered, so
        that members learn which commits were stored."""
        await self._stopping.wait()
        await self._write_answers_due()
        raise BrokerUnavailableError("the broker is stopping; clients can connect again once it is back")

    async def _write_answers_due(self) -> None:
        """Wait until earlier requests are answered, at most LAST_ANSWERS_SECONDS: the client may not read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_ANSWERS_SECONDS), self._waiting_for_all:
                for _ in range(MAX_ANSWERS_DUE):
                    await self._answers_due.acquire()
