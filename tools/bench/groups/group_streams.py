"""Group members that are only streams: they take assignments at once, and commit as fast as the broker answers."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from logbroker.errors import InvalidRequestError, from_status
from logbroker.tools.bench.harness import load
from logbroker.v1 import groups_pb2 as pb

_MEMBER: Final = "/logbroker.v1.Groups/Member"
_STREAMS_PER_CHANNEL: Final = 25
_NEVER_MS: Final = 3_600_000
"""Timeouts of these members, which send no heartbeats."""


class StreamMember:
    """One member. `on_change` is called when it has taken an assignment."""

    def __init__(self, channel: load.Channel, group: str, topic: str, on_change: Callable[[], None]) -> None:
        self.held: dict[bytes, list[int]] = {}
        """Partitions by the id of their topic."""
        self._on_change = on_change
        self._epoch = 0
        self._answers: asyncio.Queue[pb.CommitAnswer] = asyncio.Queue()
        call: Any = channel.stream_stream(_MEMBER, response_deserializer=pb.MemberResponse.FromString)
        self._call = call()
        self._join = pb.Join(
            group_id=group,
            member_id=str(uuid.uuid4()),
            incarnation=1,
            subscription=pb.Subscription(topics=[topic]),
            session_timeout_ms=_NEVER_MS,
            max_poll_interval_ms=_NEVER_MS,
        )
        self._reading = asyncio.create_task(self._read())

    @property
    def count(self) -> int:
        """The number of partitions that the member holds."""
        return sum(map(len, self.held.values()))

    async def _send(self, **request: Any) -> None:
        await self._call.write(pb.MemberRequest(**request).SerializeToString())

    async def _read(self) -> None:
        await self._send(join=self._join)
        async for response in self._call:
            kind = response.WhichOneof("response")
            if kind == "assignment":
                self._epoch = response.assignment.epoch
                await self._send(taken=pb.AssignmentTaken(epoch=self._epoch))
                self.held = {topic.topic_id: list(topic.partitions) for topic in response.assignment.topics}
                self._on_change()
            elif kind == "commit":
                self._answers.put_nowait(response.commit)
            elif kind == "fenced":
                raise from_status(*_status(response.fenced.status))

    async def commit_for(self, seconds: float, *, offsets: int, in_flight: int) -> int:
        """Commit offset 1 of the first `offsets` partitions of the member, again and again. Return the number of
        commits."""
        topics, left = [], offsets
        for topic_id, partitions in self.held.items():
            chosen = partitions[:left]
            left -= len(chosen)
            topics.append(pb.TopicOffsets(topic_id=topic_id, partitions=chosen, offsets=[1] * len(chosen)))
        if left:
            raise InvalidRequestError(f"a member holds only {offsets - left} partitions, not {offsets}")
        request = pb.MemberRequest(commit=pb.Commit(epoch=self._epoch, topics=topics)).SerializeToString()
        end = time.perf_counter() + seconds
        for _ in range(in_flight):
            await self._call.write(request)
        count = 0
        while True:
            answer = await self._answers.get()
            for result in answer.topics:
                for status in (result.status, *(failure.status for failure in result.failures)):
                    if status.code:
                        raise from_status(*_status(status))
            count += 1
            if time.perf_counter() < end:
                await self._call.write(request)
            elif count % in_flight == 0:
                return count

    async def leave(self) -> None:
        """Leave the group, and wait until the broker has ended the stream."""
        await self._send(leave=pb.Leave())
        await self._reading

    async def end(self) -> None:
        self._call.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    def check(self) -> None:
        """Raise the error that ended the stream, if there is one."""
        if self._reading.done():
            self._reading.result()


class Crowd:
    """Many members of one group."""

    def __init__(self, address: str, group: str, topic: str, partitions: int) -> None:
        self.members: list[StreamMember] = []
        self._address = address
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._channels: list[load.Channel] = []
        self._changed = asyncio.Event()

    def join(self, count: int) -> Sequence[StreamMember]:
        """Let `count` members begin to join, and return them. The broker has not accepted them yet."""
        for _ in range(count):
            if len(self.members) >= _STREAMS_PER_CHANNEL * len(self._channels):
                # A server takes about a hundred streams on one connection.
                self._channels.append(load.open_channel(self._address))
            channel = self._channels[len(self.members) // _STREAMS_PER_CHANNEL]
            self.members.append(StreamMember(channel, self._group, self._topic, self._changed.set))
        return self.members[-count:]

    async def leave_one(self) -> None:
        await self.members.pop().leave()

    async def settled(self) -> None:
        """Wait until every partition is held, and the numbers of partitions of any two members differ by at most 1."""
        fewest = self._partitions // len(self.members)
        most = -(-self._partitions // len(self.members))
        while True:
            self._changed.clear()
            counts = [member.count for member in self.members]
            if sum(counts) == self._partitions and min(counts) >= fewest and max(counts) <= most:
                return
            await self._changed.wait()
            for member in self.members:
                member.check()

    async def end(self) -> None:
        await asyncio.gather(*(member.end() for member in self.members))
        for channel in self._channels:
            await channel.close()


def _status(status: Any) -> tuple[int, str, str]:
    return status.code, status.reason, status.message
