"""In which order a worker's stream tells of a session and of its records. Within the test's own event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from logbroker.broker.read_budget import ReadBudget
from logbroker.grpc_api.queues.worker_sessions import WorkerSessions
from logbroker.grpc_api.queues.worker_stream import WorkerStream
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.messages import Delivered
from logbroker.v1 import queues_pb2 as pb
from tests.queues.shell import Shell, hello, shell, until


async def keyed(opened: Shell, *keys: bytes) -> QueueGroup:
    """A group with a record of each of the keys."""
    await opened.topic()
    await opened.append(*((key, b"value") for key in keys))
    group = await opened.group(grace_seconds=5, lease_seconds=60)
    await until(lambda: group.queue.position(0) == len(keys))
    return group


def of_session(token: int, key: bytes) -> Delivered:
    return Delivered(1, 1, b"", [0], [0], [], [], (token, key))


async def test_no_record_of_a_session_goes_before_the_worker_is_told_of_it(tmp_path: Path) -> None:
    """Two are opened at the same time; the one that had waited is answered last, though its token is lower."""
    async with shell(tmp_path) as opened:
        group = await keyed(opened, b"a", b"b")
        holder, link = await group.connect(hello("holder")), await group.connect(hello())
        held = await holder.open_session(b"a")
        told: list[tuple[bytes, bool, bool]] = []
        tokens: dict[bytes, int] = {}

        def answer(message: pb.SessionAnswer) -> None:
            knows = [sessions.knows(of_session(tokens[key], key)) for key in (b"a", b"b")]
            told.append((message.key, knows[0], knows[1]))

        sessions = WorkerSessions(group, link, answer)
        sessions.open(pb.OpenSession(correlation_id=1, key=b"a", max_wait_ms=10_000))
        await asyncio.sleep(0.01)
        group.queue.sessions.close("holder", b"a", held.token, group.moment())
        group.session_waiters.serve()
        sessions.open(pb.OpenSession(correlation_id=2, key=b"b"))
        await asyncio.sleep(0)
        tokens |= {session.key: session.token for session in group.queue.sessions.held_by("w")}
        assert tokens[b"a"] < tokens[b"b"]
        assert not sessions.knows(of_session(tokens[b"a"], b"a"))
        await until(lambda: len(told) == 2)
        assert told == [(b"b", False, True), (b"a", True, True)]
        await link.close_session(b"a", tokens[b"a"])
        assert sessions.knows(of_session(tokens[b"a"], b"a")), "they hold up nothing when it is over"


class Context:
    """A call: what its client sends, the test decides."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[pb.WorkerRequest] = asyncio.Queue()
        self.written: list[pb.WorkerResponse] = []

    async def read(self) -> Any:
        return await self.requests.get()

    async def write(self, message: bytes) -> None:
        self.written.append(pb.WorkerResponse.FromString(message))
        await asyncio.sleep(0)

    def send(self, **request: Any) -> None:
        self.requests.put_nowait(pb.WorkerRequest(**request))

    def offsets(self) -> list[int]:
        """Return the offsets of all that was delivered."""
        return [
            offset
            for response in self.written
            if response.WhichOneof("response") == "deliveries"
            for offset in response.deliveries.offsets
        ]


async def test_what_was_taken_back_before_it_was_sent_is_not_sent_any_more(tmp_path: Path) -> None:
    """After the answer to a nack a worker takes whatever comes."""
    async with shell(tmp_path) as opened:
        group = await keyed(opened, b"a", b"a", b"a")
        context: Any = Context()
        stream = WorkerStream(opened.groups.group, opened.engine, context, ReadBudget(1 << 26, 1.0), asyncio.Event())
        context.send(hello=pb.Hello(group_id="g", worker_id="w", incarnation=1))
        context.send(open_session=pb.OpenSession(correlation_id=1, key=b"a", prefetch=2))
        serving = asyncio.create_task(stream.run())
        await until(lambda: context.offsets() == [0, 1])
        deliveries = group.queue.deliveries
        first = next(receipt for receipt, _ in deliveries.held_by("w"))
        release = asyncio.Event()
        find = group.records.fetch

        async def held(*args: Any) -> Any:
            await release.wait()
            return await find(*args)

        group.records.fetch = held  # type: ignore[method-assign, assignment]
        context.send(settle=pb.Settle(correlation_id=2, acks=pb.Receipts(firsts=[first], lasts=[first])))
        await until(lambda: any(place == 2 for _, place in deliveries.held_by("w")))
        nack = pb.Nack(first_receipt=first + 1, last_receipt=first + 1, delay_ms=60_000)
        context.send(settle=pb.Settle(correlation_id=3, nacks=[nack]))
        await until(lambda: any(response.settled.correlation_id == 3 for response in context.written))
        release.set()
        await asyncio.sleep(0.05)
        assert context.offsets() == [0, 1]
        assert not group.queue.deliveries.in_flight
        # The stream goes on.
        await opened.append((b"b", b"value"))
        context.send(credit=pb.Credit(records=1))
        await until(lambda: context.offsets() == [0, 1, 3])
        context.send(goodbye=pb.Goodbye())
        await serving


async def test_a_record_of_a_session_waits_for_the_answer_that_names_it(tmp_path: Path) -> None:
    """It is granted at once; the answer goes out when the token is synced."""
    async with shell(tmp_path) as opened:
        await keyed(opened, b"a")
        context: Any = Context()
        stream = WorkerStream(opened.groups.group, opened.engine, context, ReadBudget(1 << 26, 1.0), asyncio.Event())
        context.send(hello=pb.Hello(group_id="g", worker_id="w", incarnation=1))
        serving = asyncio.create_task(stream.run())
        await until(lambda: context.written)
        with opened.commits_held() as release:
            context.send(open_session=pb.OpenSession(correlation_id=1, key=b"a"))
            await until(lambda: stream._unsent is not None or context.offsets())
            release.set()
        await until(lambda: context.offsets() == [0])
        told = [response.WhichOneof("response") for response in context.written]
        assert told == ["welcome", "session", "deliveries"]
        context.send(goodbye=pb.Goodbye())
        await serving
