"""Deliveries that reach nobody cost no attempt, and are handed out again at once."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any, Final, cast

import grpc
import pytest

from logbroker.broker.read_budget import ReadBudget
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.grpc_api.queues.worker_stream import WorkerStream
from logbroker.grpc_api.status import Context
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.compression import Codec
from logbroker.v1 import queues_pb2 as pb
from tests.client.links import Link
from tests.grpc_api.api import Api
from tests.grpc_api.queue_workers import Delivery, QueueGroup, receipts, unpacked
from tests.grpc_api.test_queues import keyed
from tests.grpc_api.test_slow_readers import FIXED_WINDOW
from tests.queues.groups import admit, at, new_queue, record_ids
from tests.queues.shell import DEADLINE_SECONDS, hello, shell
from tests.waiting import until as wait_until

RECORDS: Final = 600
HELD_SECONDS: Final = 60.0
"""A lease that no test outlives: what comes again was given back."""
BIG: Final = bytes(100_000)


def call_of(channel: Any) -> Any:
    return channel.unary_unary(
        "/logbroker.v1.Queues/Receive",
        request_serializer=pb.ReceiveRequest.SerializeToString,
        response_deserializer=pb.ReceiveResponse.FromString,
    )


def deliveries_in(response: pb.ReceiveResponse) -> list[Delivery]:
    return [delivery for message in response.deliveries for delivery in unpacked(message)]


@pytest.mark.prove
def test_no_record_is_given_up_that_no_worker_saw(api: Api) -> None:
    """Calls with little time race with the producer; what anybody gets is settled."""
    seed = random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201
    group = QueueGroup(api, lease_seconds=0.2, max_attempts=2, on_exhausted="dead-letter", backoff_initial_seconds=0.01)
    receive = call_of(api.channel)
    seen: set[int] = set()
    is_over = threading.Event()

    def work(number: int, least: float, most: float) -> None:
        drawn = random.Random(seed + number)
        request = pb.ReceiveRequest(group_id=group.id, worker_id=f"w{number}", max_records=3, max_wait_ms=5000)
        while not is_over.is_set():
            try:
                response = receive(request, timeout=drawn.uniform(least, most))
            except grpc.RpcError:
                continue
            if found := deliveries_in(response):
                seen.update(delivery.offset for delivery in found)
                group.settle(worker_id=request.worker_id, acks=receipts(found))

    spans = [(0.002, 0.006), (0.002, 0.006), (0.002, 0.06), (0.03, 0.06)]
    workers = [threading.Thread(target=work, args=(number, *span)) for number, span in enumerate(spans)]
    for worker in workers:
        worker.start()
    drawn = random.Random(seed)
    produced = 0
    while produced < RECORDS:
        keys = [b"%d" % drawn.randrange(200) for _ in range(drawn.randint(1, 3))]
        api.produce(group.topic, keyed(*keys))
        produced += len(keys)
        is_over.wait(drawn.uniform(0, 0.006))
    wait_until(lambda: (counts := group.describe().counts).open == counts.unscanned == 0, DEADLINE_SECONDS)
    is_over.set()
    for worker in workers:
        worker.join()
    assert produced - len(seen) == 0, f"{group.describe().counts.dead_lettered} records were given up"


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("ordering", ["key", "none"])
@pytest.mark.parametrize("how", ["deadline", "cancelled", "killed"])
async def test_an_answer_that_does_not_arrive_is_given_back_in_order(
    shared_broker: EmbeddedBroker, api: Api, how: str, ordering: str
) -> None:
    group = QueueGroup(api, ordering=ordering, lease_seconds=HELD_SECONDS, max_attempts=2)
    records = [NewRecord(BIG, b"%d" % number) for number in range(30)]
    for start in range(0, 30, 10):
        api.produce(group.topic, encode_batch(records[start : start + 10]))
    await asyncio.to_thread(wait_until, lambda: group.describe().counts.ready == 30)
    request = pb.ReceiveRequest(group_id=group.id, worker_id="gone", max_records=30, max_wait_ms=5000)
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        Link(limit_bytes=1000).to(shared_broker.address) as link,
        grpc.aio.insecure_channel(link.address, options=[FIXED_WINDOW]) as channel,
    ):
        call = call_of(channel)(request, timeout=1.0 if how == "deadline" else DEADLINE_SECONDS)
        while not link.full:
            await asyncio.sleep(0.001)  # The answer begins, and comes no further.
        if how == "cancelled":
            call.cancel()
        elif how == "killed":
            link.cut_far_ends()
        if how != "killed":
            with pytest.raises((grpc.RpcError, asyncio.CancelledError)):
                await call
    found: list[Delivery] = []
    while len(found) < 30:
        more = await asyncio.to_thread(group.receive, 30, max_wait_ms=3000)
        assert more, f"only {len(found)} of 30 records are handed out again"
        found += more
    assert [delivery.offset for delivery in found] == list(range(30))
    assert {delivery.attempt for delivery in found} == {1}
    assert group.describe().counts.leases_lost == 0


def test_a_call_that_is_cancelled_while_it_waits_takes_nothing(api: Api) -> None:
    group = QueueGroup(api, lease_seconds=HELD_SECONDS)
    receive = call_of(api.channel)
    for _ in range(20):
        call = receive.future(pb.ReceiveRequest(group_id=group.id, max_wait_ms=20_000), timeout=DEADLINE_SECONDS)
        call.cancel()
    api.produce(group.topic, keyed(b"a", b"b"))
    found = group.receive(2, max_wait_ms=5000) + group.receive(1, max_wait_ms=0)
    assert [(delivery.offset, delivery.attempt) for delivery in found] == [(0, 1), (1, 1)]


def test_a_call_with_too_little_time_is_told_so_and_takes_nothing(api: Api) -> None:
    group = QueueGroup(api, lease_seconds=HELD_SECONDS)
    api.produce(group.topic, keyed(b"a"))
    receive = call_of(api.channel)
    for _ in range(20):
        with pytest.raises(grpc.RpcError) as refused:
            receive(pb.ReceiveRequest(group_id=group.id, max_wait_ms=1000), timeout=0.02)
        assert cast(grpc.Call, refused.value).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert group.describe().counts.delivered == 0
    assert [delivery.attempt for delivery in group.receive(1, max_wait_ms=5000)] == [1]


def test_a_wait_as_long_as_the_deadline_ends_with_an_answer(api: Api) -> None:
    group = QueueGroup(api)
    response = call_of(api.channel)(pb.ReceiveRequest(group_id=group.id, max_wait_ms=1000), timeout=1.0)
    assert deliveries_in(response) == []


@pytest.mark.prove
def test_a_record_too_large_for_a_client_holds_up_no_other_and_costs_no_attempt(
    shared_broker: EmbeddedBroker, api: Api
) -> None:
    group = QueueGroup(api, lease_seconds=3, max_attempts=1, on_exhausted="dead-letter")
    api.produce(group.topic, encode_batch([NewRecord(bytes(8 << 20), b"large")], codec=Codec.GZIP))
    api.produce(group.topic, keyed(b"a", b"b"))
    wait_until(lambda: group.describe().counts.ready == 3)
    request = pb.ReceiveRequest(group_id=group.id, worker_id="small", plain_records=True)
    with grpc.insecure_channel(shared_broker.address) as channel:
        receive = call_of(channel)
        with pytest.raises(grpc.RpcError) as refused:
            receive(request, timeout=DEADLINE_SECONDS)
        assert cast(grpc.Call, refused.value).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        others = [deliveries_in(receive(request, timeout=DEADLINE_SECONDS)) for _ in range(2)]
    assert [delivery.offset for found in others for delivery in found] == [1, 2]
    group.settle(worker_id="small", acks=receipts(delivery for found in others for delivery in found))
    [large] = group.receive(plain_records=True, max_wait_ms=15_000)
    assert (large.offset, large.attempt, large.redelivered) == (0, 1, True)
    assert group.describe().counts.leases_lost == 0


def test_the_end_of_an_excused_lease_counts_no_attempt() -> None:
    queue = new_queue(lease_seconds=10, max_attempts=1)
    admit(queue, [b"a", b"b", b"c"])
    [granted] = queue.take("w", 3, at(0))
    queue.excuse("w", [(granted.first_receipt + 1, granted.first_receipt + 1)])
    queue.tick(at(10))
    assert record_ids(again := queue.take("w", 3, at(10))) == [1]
    assert [piece.attempts for piece in again] == [[1]]
    assert queue.stalled.count == 2, "the others have used up their attempts"


class StuckClient:
    """A worker's call whose client reads nothing after the welcome."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[pb.WorkerRequest] = asyncio.Queue()
        self.stuck = asyncio.Event()
        self.gone = asyncio.Event()

    async def read(self) -> pb.WorkerRequest:
        return await self.requests.get()

    async def write(self, message: bytes) -> None:
        if pb.WorkerResponse.FromString(message).WhichOneof("response") == "deliveries":
            self.stuck.set()
            await self.gone.wait()
            raise grpc.aio.InternalError("the client is gone")


@pytest.mark.parametrize("is_cancelled_first", [False, True])
async def test_a_stream_that_breaks_while_deliveries_are_written_gives_them_back(
    tmp_path: Path, is_cancelled_first: bool
) -> None:
    async with shell(tmp_path) as broker:
        await broker.topic()
        group = await broker.group(grace_seconds=0.0)
        await broker.append((b"k", b"v"), (b"l", b"w"))
        client = StuckClient()
        budget = ReadBudget(1 << 20, DEADLINE_SECONDS)
        stream = WorkerStream(
            broker.groups.group, cast(Any, broker.engine), cast(Context, client), budget, asyncio.Event()
        )
        greeting = pb.Hello(group_id=group.group_id, worker_id="gone", incarnation=1)
        client.requests.put_nowait(pb.WorkerRequest(hello=greeting))
        client.requests.put_nowait(pb.WorkerRequest(credit=pb.Credit(records=10)))
        call = asyncio.create_task(stream.run())
        await client.stuck.wait()
        if is_cancelled_first:
            call.cancel()
        client.gone.set()
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        link = await group.connect(hello("other"))
        link.add_credit(2)
        count = 0
        async with asyncio.timeout(DEADLINE_SECONDS):
            while count < 2:
                delivered = await link.next_deliveries()
                count += delivered.count
                assert not delivered.attempts, "not all are first attempts"
        assert group.queue.tally.leases_lost == 0
