"""A worker's stream that breaks at a moment which no real connection can be brought to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from logbroker.grpc_api.budget import ReadBudget
from logbroker.grpc_api.status import Context
from logbroker.grpc_api.worker_stream import WorkerStream
from logbroker.v1 import queues_pb2 as pb
from tests.queues.shell import DEADLINE_SECONDS, hello, shell, until


class StuckClient:
    """A call whose client reads nothing after the welcome."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[pb.WorkerRequest] = asyncio.Queue()
        self.welcomed = asyncio.Event()
        self.stuck = asyncio.Event()
        self.gone = asyncio.Event()

    async def read(self) -> pb.WorkerRequest:
        return await self.requests.get()

    async def write(self, message: bytes) -> None:
        if not self.welcomed.is_set():
            self.welcomed.set()
            return
        self.stuck.set()
        await self.gone.wait()
        raise grpc.aio.InternalError("the client is gone")


@pytest.mark.parametrize("grace_seconds", [0.0, 20.0])
async def test_what_was_not_written_when_the_stream_broke_did_not_fail(tmp_path: Path, grace_seconds: float) -> None:
    async with shell(tmp_path) as broker:
        await broker.topic()
        group = await broker.group(grace_seconds=grace_seconds)
        client = StuckClient()
        context = cast(Context, client)
        budget = ReadBudget(1 << 20, DEADLINE_SECONDS)
        stream = WorkerStream(broker.groups, cast(Any, broker.engine), context, budget, asyncio.Event())
        client.requests.put_nowait(
            pb.WorkerRequest(hello=pb.Hello(group_id=group.group_id, worker_id="gone", incarnation=1))
        )
        client.requests.put_nowait(pb.WorkerRequest(credit=pb.Credit(records=10)))
        call = asyncio.create_task(stream.run())
        await client.welcomed.wait()
        client.requests.put_nowait(pb.WorkerRequest(settle=pb.Settle(correlation_id=1)))
        await client.stuck.wait()  # In the answer; deliveries are pulled meanwhile.
        await until(lambda: group.links["gone"].seat.turn is not None)
        await broker.append((b"k", b"v"))
        await until(lambda: stream._pull is not None and stream._pull.done())
        assert group.queue.deliveries.in_flight == 1

        call.cancel()
        client.gone.set()
        await asyncio.wait([call])
        link = await group.connect(hello("other"))
        link.add_credit(1)
        async with asyncio.timeout(DEADLINE_SECONDS):
            delivered = await link.next_deliveries()
        assert delivered.count == 1
        assert not delivered.attempts, "not all are first attempts"
        assert group.queue.tally.leases_lost == 0
