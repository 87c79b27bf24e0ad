"""Workers that do not read, or do not stop asking: they cost the broker a bounded amount."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from logbroker.broker.read_budget import ReadBudget
from logbroker.embedded_broker import embedded
from logbroker.errors import UnknownReceiptError, UnknownTopicError
from logbroker.grpc_api.queues.worker_stream import MAX_ANSWERS_DUE, MAX_UNSENT_BYTES, WorkerStream
from logbroker.queues.delivery.pull_line import PullRequest
from logbroker.queues.model.messages import Delivered, Refusal
from logbroker.queues.model.settings import QueueGroupSettings
from logbroker.v1 import queues_pb2 as pb
from tests.grpc_api.api import Api
from tests.grpc_api.queue_workers import QueueGroup, Worker
from tests.grpc_api.test_queues import keyed
from tests.grpc_api.test_slow_readers import resident_bytes

MIB = 1024 * 1024


class Link:
    """A worker's link whose settlements are synced when the test says so, and refused at length."""

    def __init__(self, refusals: int) -> None:
        self.pull = PullRequest("worker")
        self.resumed = False
        self.reclaimed: list[Any] = []
        self.sessions: list[Any] = []
        self.is_gone = False
        self.dispatcher: asyncio.Queue[Delivered] = asyncio.Queue()
        self.taken = 0
        self.unsynced: list[asyncio.Future[list[Refusal]]] = []
        self._refusals = refusals

    def settle(self, _: object) -> asyncio.Future[list[Refusal]]:
        self.unsynced.append(asyncio.get_running_loop().create_future())
        return self.unsynced[-1]

    def sync(self) -> None:
        for future in self.unsynced:
            if not future.done():
                future.set_result(
                    [Refusal(number, number, UnknownReceiptError("?")) for number in range(self._refusals)]
                )

    def bound_dispatches(self, _: object) -> None:
        pass

    def is_void(self, _: Delivered) -> bool:
        return False

    def sending(self, _: Delivered) -> None:
        pass

    def excuse(self, _: Delivered) -> None:
        pass

    async def next_deliveries(self) -> Delivered:
        delivered = await self.dispatcher.get()
        self.taken += 1
        return delivered

    def put_back(self, delivered: Delivered) -> None:
        """Called with the delivery that was under way when the stream ended."""

    def disconnected(self) -> None:
        self.is_gone = True


class Context:
    """A call whose client sends endless settlements; what it reads, the test decides."""

    def __init__(self) -> None:
        self.reads = 0
        self.writable = asyncio.Event()
        self.written: list[bytes] = []

    async def read(self) -> Any:
        await asyncio.sleep(0)
        self.reads += 1
        if self.reads == 1:
            return pb.WorkerRequest(hello=pb.Hello(group_id="g", worker_id="worker", incarnation=1))
        return pb.WorkerRequest(settle=pb.Settle(correlation_id=self.reads))

    async def write(self, message: bytes) -> None:
        await self.writable.wait()
        self.written.append(message)


def stream_of(link: Link, context: Any) -> WorkerStream:
    async def connect(_: object) -> Link:
        return link

    def no_topic(_: object) -> None:
        raise UnknownTopicError("gone")

    group = SimpleNamespace(
        connect=connect,
        topic_id=b"t",
        settings=QueueGroupSettings(),
        group_epoch=1,
        lease_left_ms=lambda _: 30_000,
        tell_obstacle=lambda _: None,
    )

    def find_group(_group_id: str) -> Any:
        return group

    engine: Any = SimpleNamespace(topic_by_id=no_topic)
    return WorkerStream(find_group, engine, context, ReadBudget(64 * MIB, 1.0), asyncio.Event())


async def turns(number: int = 2000) -> None:
    """Let everybody go on who can."""
    for _ in range(number):
        await asyncio.sleep(0)


async def stopped(serving: asyncio.Task[None]) -> None:
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_the_broker_reads_no_more_than_it_can_answer() -> None:
    link, context = Link(refusals=0), Context()
    context.writable.set()
    serving = asyncio.create_task(stream_of(link, context).run())
    await turns()
    assert context.reads == 1 + MAX_ANSWERS_DUE + 1, "the Hello, those that wait for a sync, and one more"
    link.sync()
    await turns(20)
    assert context.reads > 1 + MAX_ANSWERS_DUE + 1
    await stopped(serving)
    assert link.is_gone


async def test_the_broker_reads_no_more_where_the_client_reads_no_answers() -> None:
    link, context = Link(refusals=500), Context()
    serving = asyncio.create_task(stream_of(link, context).run())
    await turns()
    for _ in range(10):
        link.sync()
        await turns(500)
    assert context.reads <= 2 * MAX_ANSWERS_DUE
    assert not context.written
    reads = context.reads
    context.writable.set()
    link.sync()
    await turns()
    assert context.reads > reads, "it goes on where it was"
    assert sum(map(len, context.written)) > MAX_UNSENT_BYTES
    await stopped(serving)


async def test_nothing_is_handed_out_that_cannot_be_written() -> None:
    link, context = Link(refusals=0), Context()
    for number in range(10):
        link.dispatcher.put_nowait(Delivered(number, 1, bytes(100), [0], [number], [], []))
    serving = asyncio.create_task(stream_of(link, context).run())
    await turns(200)
    assert link.taken == 0, "the Welcome is not written yet"
    context.writable.set()
    await turns(200)
    assert link.taken == 10
    await stopped(serving)


class SlowContext(Context):
    """A write takes a few turns of the loop; gRPC takes one at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.overlapping = 0

    async def write(self, message: bytes) -> None:
        self.overlapping += self.writes
        self.writes += 1
        await turns(3)
        self.writes -= 1
        self.written.append(message)


async def test_one_message_is_written_at_a_time_and_answers_go_first() -> None:
    link, context = Link(refusals=0), SlowContext()
    for number in range(1000):
        link.dispatcher.put_nowait(Delivered(number, 1, bytes(100), [0], [number], [], []))
    serving = asyncio.create_task(stream_of(link, context).run())
    for _ in range(10):
        link.sync()
        await turns(5)
    assert link.taken == 0, "something was handed out while there were answers to write"
    while link.taken < 500:
        # All is answered, and some of the deliveries are written, before more is synced.
        await turns(MAX_ANSWERS_DUE * 10 + link.taken)
        link.sync()
    await turns(MAX_ANSWERS_DUE * 10)
    assert not context.overlapping
    kinds = [pb.WorkerResponse.FromString(message).WhichOneof("response") for message in context.written]
    assert kinds[0] == "welcome"
    assert kinds.count("deliveries") >= 500 - 1
    assert kinds.count("settled") == sum(future.done() for future in link.unsynced) > MAX_ANSWERS_DUE
    await stopped(serving)


@pytest.mark.prove
def test_workers_that_stall_cost_little_and_hinder_nobody() -> None:
    stalled = 30
    with embedded(max_fetch_bytes_in_flight=16 * MIB) as broker:
        api = Api(broker.address)
        group = QueueGroup(api, ordering="none", lease_seconds=300.0)
        value = bytes(100_000)
        for _ in range(80):
            api.produce_values(group.topic, [value] * 10)
        idle = resident_bytes(broker.pid)
        connections = [Api(broker.address) for _ in range(stalled)]
        workers = [Worker(connection.channel, group.id) for connection in connections]
        for worker in workers:
            worker.credit(1_000_000)
        # Something has come to each of them, which nobody reads.
        for worker in workers:
            worker.welcome()
        other = QueueGroup(api)
        api.produce(other.topic, keyed(*[b"k%d" % number for number in range(100)]))
        lively = other.worker()
        taken = lively.take(100)
        lively.ack(taken)
        assert len(api.values(group.topic)) == 800, "readers go on, too"
        assert resident_bytes(broker.pid) - idle < 160 * MIB
        for connection in connections:
            connection.channel.close()
        api.channel.close()


def test_a_broker_without_memory_for_readers_serves_them_one_at_a_time() -> None:
    with embedded(max_fetch_bytes_in_flight=0) as broker:
        api = Api(broker.address)
        group = QueueGroup(api, ordering="none")
        for _ in range(5):
            api.produce_values(group.topic, [bytes(100_000)] * 2)
        workers = [group.worker(), group.worker()]
        for worker in workers:
            worker.ack(worker.take(4))
        assert group.receive(2, max_wait_ms=20_000)
        assert len(api.values(group.topic)) == 10
        api.channel.close()
