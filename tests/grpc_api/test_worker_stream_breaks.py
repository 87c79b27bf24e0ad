"""A worker's stream that breaks, or whose broker goes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from logbroker.broker.read_budget import ReadBudget
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.grpc_api.queues.worker_stream import WorkerStream
from logbroker.grpc_api.status import Context
from logbroker.v1 import queues_pb2 as pb
from tests.grpc_api.api import Api
from tests.grpc_api.queue_workers import QueueGroup, receipts
from tests.grpc_api.test_queues import keyed
from tests.queues.shell import DEADLINE_SECONDS, hello, shell, until


class StuckClient:
    """A call whose client reads nothing after the welcome, and the answer after it if it is to read two."""

    def __init__(self, reads: int = 1) -> None:
        self.left = reads
        self.requests: asyncio.Queue[pb.WorkerRequest] = asyncio.Queue()
        self.welcomed = asyncio.Event()
        self.stuck = asyncio.Event()
        self.gone = asyncio.Event()

    async def read(self) -> pb.WorkerRequest:
        return await self.requests.get()

    async def write(self, message: bytes) -> None:
        if self.left:
            self.left -= 1
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
        stream = WorkerStream(broker.groups.group, cast(Any, broker.engine), context, budget, asyncio.Event())
        client.requests.put_nowait(
            pb.WorkerRequest(hello=pb.Hello(group_id=group.group_id, worker_id="gone", incarnation=1))
        )
        client.requests.put_nowait(pb.WorkerRequest(credit=pb.Credit(records=10)))
        call = asyncio.create_task(stream.run())
        await client.welcomed.wait()
        client.requests.put_nowait(pb.WorkerRequest(settle=pb.Settle(correlation_id=1)))
        await client.stuck.wait()  # In the answer; deliveries are pulled meanwhile.
        await until(lambda: group.links["gone"].pull.turn is not None)
        await broker.append((b"k", b"v"))
        await until(lambda: stream._unsent is not None)
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


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with embedded(tmp_path / "data") as running:
        yield running


@pytest.mark.prove
def test_a_stop_of_the_broker_ends_streams_and_keeps_what_was_answered(broker: EmbeddedBroker) -> None:
    api = Api(broker.address)
    group = QueueGroup(api, grace_seconds=0.5)
    api.produce(group.topic, keyed(*[b"k%d" % number for number in range(10)]))
    worker, idle = group.worker(), group.worker()
    taken = worker.take(5)
    worker.ack(taken[:2])
    broker.stop()
    for stream in (worker, idle):
        code, details = stream.refused()
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "stopping" in details
    api.channel.close()
    broker.start()
    group.connect(Api(broker.address))
    again = group.worker().take(8)
    assert [delivery.offset for delivery in again] == list(range(2, 10))
    assert [delivery.redelivered for delivery in again] == [True] * 3 + [False] * 5


@pytest.mark.prove
def test_after_a_crash_a_worker_reclaims_what_it_held(broker: EmbeddedBroker) -> None:
    api = Api(broker.address)
    group = QueueGroup(api, grace_seconds=5)
    api.produce(group.topic, keyed(*[b"k%d" % number for number in range(10)]))
    worker = group.worker()
    taken = worker.take(5)
    worker.ack(taken[:2])
    broker.kill()
    assert worker.refused()[0] is grpc.StatusCode.UNAVAILABLE
    api.channel.close()
    broker.start()
    group.connect(Api(broker.address))
    held = pb.Places(partitions=[0] * 3, offsets=[2, 3, 4])
    back = group.joining(worker.worker_id, incarnation=worker.incarnation, held=held)
    welcome = back.welcome()
    assert not welcome.resumed
    reclaimed = [
        (message.first_receipt + index, offset)
        for message in welcome.reclaimed
        for index, offset in enumerate(message.offsets)
    ]
    assert [offset for _, offset in reclaimed] == [2, 3, 4]
    assert not any(message.batches for message in welcome.reclaimed)
    numbers = [receipt for receipt, _ in reclaimed]
    assert set(back.settle(acks=receipts(taken[2:])).values()) == {"LEASE_LOST"}
    assert back.settle(acks=pb.Receipts(firsts=numbers, lasts=numbers)) == {}
    assert [delivery.offset for delivery in back.take(5)] == list(range(5, 10))
    api.channel.close()
