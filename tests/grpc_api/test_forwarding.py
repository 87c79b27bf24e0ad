"""Gateways send calls on to the owners of their groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from logbroker import embedded
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.grpc_api import forwarding
from logbroker.queues import group as queue_group
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.v1 import admin_pb2, groups_pb2, log_pb2
from logbroker.v1 import queues_pb2 as pb
from tests.client.links import Link
from tests.grpc_api.gateways import DEADLINE_SECONDS, Caller, Gateway, Refusal, gateway
from tests.grpc_api.queue_workers import Delivery, receipts, unpacked
from tests.grpc_api.test_slow_readers import FIXED_WINDOW

MIB: Final = 1 << 20
HELD_SECONDS: Final = 60.0
"""A lease that no test outlives: what comes again was given back."""

_numbers = count()


class Setting:
    """Two gateways: `asked` sends calls for the group on to `owner`, which has it. Both have the topic."""

    def __init__(self, asked: Gateway, asking: Caller, owner: Caller, owner_address: str) -> None:
        self.asked = asked
        self.asking = asking
        self.owner = owner
        self.owner_address = owner_address
        self.group_id = ""
        self.topic = ""

    async def begin(self, **configs: str) -> None:
        """Make a new topic at both gateways, and a queue group at the owner, by a call to the other one."""
        number = next(_numbers)
        self.group_id, self.topic = f"forwarded-{number}", f"forwarded-topic-{number}"
        new = admin_pb2.NewTopic(name=self.topic, partitions=1, configs=configs)
        for caller in (self.asking, self.owner):
            [result] = (await caller.call("CreateTopics", admin_pb2.CreateTopicsRequest(topics=[new]))).results
            assert not result.status.code, result.status
        self.asked.owners[self.group_id] = self.owner_address
        settings = pb.QueueSettings(lease_seconds=HELD_SECONDS, max_attempts=2)
        request = pb.CreateQueueRequest(group_id=self.group_id, topic=self.topic, settings=settings)
        assert (await self.asking.call("CreateQueue", request)).created

    async def produce(self, *values: bytes) -> None:
        """Append at the owner, each record with its own key."""
        batch = encode_batch([NewRecord(value, b"%d" % next(_numbers)) for value in values])
        item = log_pb2.ProduceItem(topic=self.topic, partition=0, batch=batch)
        [result] = (await self.owner.call("Produce", log_pb2.ProduceRequest(items=[item]))).results
        assert not result.status.code, result.status

    def receiving(self, seconds: float | None = DEADLINE_SECONDS, at: Caller | None = None, **fields: Any) -> Any:
        request = pb.ReceiveRequest(**{"group_id": self.group_id, "max_wait_ms": 10_000, **fields})
        return (at or self.asking).call("Receive", request, seconds)

    def described(self) -> pb.DescribeQueuesRequest:
        return pb.DescribeQueuesRequest(group_ids=[self.group_id])

    def settling(self, deliveries: list[Delivery], **fields: Any) -> pb.SettleRequest:
        return pb.SettleRequest(group_id=self.group_id, settle=pb.Settle(acks=receipts(deliveries)), **fields)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logbroker.grpc_api.forwarding.PATIENCE_SECONDS", 0.2)


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path / "asked") as found:
        yield found


@pytest.fixture
async def two(asked: Gateway, shared_broker: EmbeddedBroker) -> AsyncIterator[Setting]:
    """The owner is another process."""
    async with Caller(asked.address) as asking, Caller(shared_broker.address) as owner:
        setting = Setting(asked, asking, owner, shared_broker.address)
        await setting.begin()
        yield setting


@pytest.fixture
async def near(asked: Gateway, tmp_path: Path) -> AsyncIterator[Setting]:
    """The owner is in this process, where `waiting` sees it."""
    async with (
        gateway(tmp_path / "owner") as owning,
        Caller(asked.address) as asking,
        Caller(owning.address) as owner,
    ):
        setting = Setting(asked, asking, owner, owning.address)
        await setting.begin()
        yield setting


class Waiting:
    """Counts the Receives that wait for records in this process."""

    def __init__(self) -> None:
        self.calls = 0
        self._changed = asyncio.Event()

    def add(self, number: int) -> None:
        self.calls += number
        self._changed.set()

    async def become(self, calls: int) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while self.calls != calls:
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    found = Waiting()
    receive = queue_group.QueueGroup.receive

    async def counted(*given: Any) -> Any:
        found.add(1)
        try:
            return await receive(*given)
        finally:
            found.add(-1)

    monkeypatch.setattr(queue_group.QueueGroup, "receive", counted)
    return found


def deliveries_in(response: pb.ReceiveResponse) -> list[Delivery]:
    return [delivery for message in response.deliveries for delivery in unpacked(message)]


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await holds():
            await asyncio.sleep(0.005)


async def test_calls_for_a_queue_group_are_answered_by_its_owner(two: Setting) -> None:
    await two.produce(b"one", b"two")
    received = deliveries_in(await two.receiving(max_records=2))
    assert [delivery.value for delivery in received] == [b"one", b"two"]
    answer = await two.asking.call("Settle", two.settling(received))
    assert not answer.answer.failures
    [described] = (await two.asking.call("DescribeQueues", two.described())).queues
    assert (described.status.code, described.counts.open) == (0, 0)
    lanes = await two.asking.call("ListLanes", pb.ListLanesRequest(group_id=two.group_id))
    assert not lanes.lanes
    request = pb.DeleteQueuesRequest(group_ids=[two.group_id])
    assert not (await two.asking.call("DeleteQueues", request)).results[0].code
    assert (await two.owner.call("DescribeQueues", two.described())).queues[0].status.reason == "UNKNOWN_GROUP"


async def test_offsets_are_committed_at_the_owner(two: Setting) -> None:
    await two.produce(b"one", b"two")
    group_id = f"consumers-of-{two.topic}"
    two.asked.owners[group_id] = two.owner_address
    item = groups_pb2.TopicOffsets(topic=two.topic, partitions=[0], offsets=[1])
    request = groups_pb2.CommitOffsetsRequest(group_id=group_id, topics=[item])
    assert await two.asking.call("CommitOffsets", request)
    for caller in (two.asking, two.owner):
        fetched = await caller.call("FetchOffsets", groups_pb2.FetchOffsetsRequest(group_id=group_id))
        assert [list(topic.offsets) for topic in fetched.topics] == [[1]]


async def test_errors_come_back_as_the_owner_sent_them(two: Setting) -> None:
    two.asked.owners["missing"] = two.owner_address
    requests = [
        ("ListLanes", pb.ListLanesRequest(group_id="missing")),
        ("AlterQueue", pb.AlterQueueRequest(group_id="missing", settings=pb.QueueSettings(max_attempts=3))),
        ("Receive", pb.ReceiveRequest(group_id="missing")),
        ("Receive", pb.ReceiveRequest(group_id=two.group_id, max_records=-1)),
    ]
    for name, request in requests:
        here = await two.asking.refusal(name, request)
        there = await two.owner.refusal(name, request)
        assert here.reason
        assert (here.code, here.message, here.trailers) == (there.code, there.message, there.trailers)


async def test_a_stream_ends_with_the_address_of_the_owner(two: Setting) -> None:
    hello = pb.WorkerRequest(hello=pb.Hello(group_id=two.group_id, worker_id="w", incarnation=1))
    join = groups_pb2.MemberRequest(join=groups_pb2.Join(group_id=two.group_id, member_id="m", incarnation=1))
    for path, request in (("Queues/Work", hello), ("Groups/Member", join)):
        stream: Any = two.asking.channel.stream_stream(f"/logbroker.v1.{path}")(timeout=DEADLINE_SECONDS)
        await stream.write(request.SerializeToString())
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await stream.read()
        refusal = Refusal(failure.value)
        assert (refusal.reason, refusal.metadata) == ("STALE_OWNER", {"owner": two.owner_address})


async def test_an_owner_that_is_not_known_is_the_answer(two: Setting) -> None:
    two.asked.owners[two.group_id] = ""
    refusal = await two.asking.refusal("ListLanes", pb.ListLanesRequest(group_id=two.group_id))
    assert (refusal.code, refusal.reason, refusal.metadata) == (grpc.StatusCode.UNAVAILABLE, "STALE_OWNER", {})
    [described] = (await two.asking.call("DescribeQueues", two.described())).queues
    assert (described.status.reason, described.status.owner) == ("STALE_OWNER", "")


# --- time ------------------------------------------------------------------------------------------------------------


async def test_a_receive_waits_at_the_owner(near: Setting, waiting: Waiting) -> None:
    call = asyncio.ensure_future(near.receiving())
    await waiting.become(1)
    await near.produce(b"late")
    assert [delivery.value for delivery in deliveries_in(await call)] == [b"late"]


async def test_a_receive_ends_with_an_answer_before_its_deadline(two: Setting) -> None:
    assert not (await two.receiving(0.5)).deliveries


async def test_a_deadline_passes_while_the_owner_is_silent(two: Setting) -> None:
    async with Link().to(two.owner_address) as link:
        two.asked.owners[two.group_id] = link.address
        await two.asking.call("ListLanes", pb.ListLanesRequest(group_id=two.group_id))
        link.freeze()
        refusal = await two.asking.refusal("ListLanes", pb.ListLanesRequest(group_id=two.group_id), 0.3)
        assert refusal.code == grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_cancelled_call_ends_at_the_owner(near: Setting, waiting: Waiting) -> None:
    call = near.receiving(None, worker_id="gone", max_wait_ms=60_000)
    ending = asyncio.ensure_future(_outcome(call))
    await waiting.become(1)
    call.cancel()
    assert await ending is not None
    await waiting.become(0)
    await near.produce(b"kept")
    [delivery] = deliveries_in(await near.receiving())
    assert (delivery.attempt, delivery.redelivered) == (1, False)


async def _outcome(call: Any) -> BaseException | None:
    try:
        await call
    except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
        return error
    return None


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("how", ["cancelled", "deadline"])
async def test_deliveries_that_do_not_reach_the_caller_are_handed_back(two: Setting, how: str) -> None:
    for _ in range(3):
        await two.produce(*[bytes(100_000)] * 10)

    async def all_ready() -> bool:
        return bool((await two.owner.call("DescribeQueues", two.described())).queues[0].counts.ready == 30)

    await until(all_ready)
    async with Link(limit_bytes=1000).to(two.asked.address) as link, Caller(link.address, FIXED_WINDOW) as slow:
        seconds = 1.0 if how == "deadline" else DEADLINE_SECONDS
        call = two.receiving(seconds, slow, worker_id="slow", max_records=30)
        ending = asyncio.ensure_future(_outcome(call))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not link.full:
                await asyncio.sleep(0.001)  # The answer begins, and comes no further.
        if how == "cancelled":
            call.cancel()
        assert await ending is not None
    found: list[Delivery] = []
    while len(found) < 30:
        more = deliveries_in(await two.receiving(max_records=30, max_wait_ms=5000))
        assert more, f"only {len(found)} of 30 records are handed out again"
        found += more
    assert [delivery.offset for delivery in found] == list(range(30))
    assert {delivery.attempt for delivery in found} == {1}


# --- owners that change ----------------------------------------------------------------------------------------------


async def test_a_call_follows_a_group_that_has_moved_on(two: Setting, tmp_path: Path) -> None:
    async with gateway(tmp_path / "former") as former:
        former.owners[two.group_id] = two.owner_address
        two.asked.owners[two.group_id] = former.address
        assert not (await two.asking.call("ListLanes", pb.ListLanesRequest(group_id=two.group_id))).lanes
        [described] = (await two.asking.call("DescribeQueues", two.described())).queues
        assert (described.status.code, described.group_id) == (0, two.group_id)
        async with Caller(former.address) as caller:
            assert not (await caller.call("ListLanes", pb.ListLanesRequest(group_id=two.group_id))).lanes


async def test_gateways_that_name_each_other_are_asked_a_few_times_only(asked: Gateway, tmp_path: Path) -> None:
    async with gateway(tmp_path / "other") as other, Caller(asked.address) as caller:
        asked.owners["group"], other.owners["group"] = other.address, asked.address
        refusal = await caller.refusal("ListLanes", pb.ListLanesRequest(group_id="group"))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STALE_OWNER")
        assert refusal.metadata["owner"] in (asked.address, other.address)
        [described] = (await caller.call("DescribeQueues", pb.DescribeQueuesRequest(group_ids=["group"]))).queues
        assert described.status.reason == "STALE_OWNER"
        assert described.status.owner in (asked.address, other.address)


@pytest.mark.prove
async def test_an_owner_that_dies_is_unavailable_until_it_is_back(asked: Gateway) -> None:
    with embedded() as broker:
        async with Caller(asked.address) as asking, Caller(broker.address) as owner:
            two = Setting(asked, asking, owner, broker.address)
            await two.begin()
            request = pb.ReceiveRequest(group_id=two.group_id, max_wait_ms=10_000)
            await two.produce(b"first")
            assert (await two.receiving()).deliveries  # The connection stands.
            call = asyncio.ensure_future(asking.refusal("Receive", request))
            for _ in range(5):  # The request arrives meanwhile.
                await asking.call("ListLanes", pb.ListLanesRequest(group_id=two.group_id))
            broker.kill()
            refusal = await call
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "")
            assert f"the connection to the gateway at {broker.address}" in refusal.message
            assert "whether the request took effect is not known" in refusal.message
            refusal = await asking.refusal("ListLanes", pb.ListLanesRequest(group_id=two.group_id))
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "BROKER_UNAVAILABLE")
            assert f"the gateway at {broker.address}, which serves the group, cannot be reached" in refusal.message
            await asyncio.to_thread(broker.start)

            async def serves() -> bool:
                return not await _outcome(asking.call("ListLanes", pb.ListLanesRequest(group_id=two.group_id)))

            await until(serves)


async def test_an_unused_connection_is_closed(two: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "IDLE_SECONDS", 0.05)
    async with Link().to(two.owner_address) as link:
        two.asked.owners[two.group_id] = link.address
        for connections in (1, 2):
            await two.asking.call("ListLanes", pb.ListLanesRequest(group_id=two.group_id))
            assert len(link.pipes) == connections
            async with asyncio.timeout(DEADLINE_SECONDS):
                while link.open:
                    await asyncio.sleep(0.005)


# --- size and number -------------------------------------------------------------------------------------------------


async def test_requests_and_answers_may_be_large(two: Setting) -> None:
    large = pb.ListLanesRequest(group_id=two.group_id).SerializeToString()
    padding = 16 * MIB
    large += b"\xfa\x7f" + _varint(padding) + bytes(padding)  # A field that no version knows.
    assert not (await two.asking.call("ListLanes", large)).lanes
    await two.begin(**{"max.message.bytes": str(16 * MIB)})
    value = bytes(16 * MIB - 1000)
    await two.produce(value)
    [delivery] = deliveries_in(await two.receiving())
    assert delivery.value == value


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


async def test_settlements_do_not_stand_behind_calls_that_wait(
    asked: Gateway, tmp_path: Path, waiting: Waiting
) -> None:
    """A connection has a quarter of the calls of the owner, at most."""
    async with (
        gateway(tmp_path / "owner", max_concurrent_calls=200) as owning,
        Caller(asked.address) as asking,
        Caller(owning.address) as owner,
    ):
        near = Setting(asked, asking, owner, owning.address)
        await near.begin()
        assert not (await near.receiving(max_wait_ms=0)).deliveries  # The connection knows its limit.
        receiving = [asyncio.ensure_future(near.receiving()) for number in range(200)]
        await waiting.become(50)
        assert not (await asking.call("Settle", near.settling([]))).answer.failures
        for call in receiving:
            call.cancel()
        await asyncio.wait(receiving)


async def test_many_calls_wait_at_once(near: Setting, waiting: Waiting) -> None:
    receiving = [asyncio.ensure_future(near.receiving(worker_id=f"w{number}")) for number in range(200)]
    await waiting.become(200)
    await near.produce(*[b"%d" % number for number in range(200)])
    found = [delivery for response in await asyncio.gather(*receiving) for delivery in deliveries_in(response)]
    assert sorted(delivery.offset for delivery in found) == list(range(200))


# --- calls for several owners ----------------------------------------------------------------------------------------


async def own_queue(two: Setting, group_id: str) -> None:
    """Make a queue group at the gateway that is asked."""
    assert (await two.asking.call("CreateQueue", pb.CreateQueueRequest(group_id=group_id, topic=two.topic))).created


async def test_each_group_of_a_list_is_asked_for_at_its_owner(two: Setting) -> None:
    own = f"own-{two.group_id}"
    await own_queue(two, own)
    two.asked.owners["lost"] = "127.0.0.1:1"
    ids = [own, two.group_id, "lost", "missing"]
    described = (await two.asking.call("DescribeQueues", pb.DescribeQueuesRequest(group_ids=ids))).queues
    assert [queue.group_id for queue in described] == [own, two.group_id, "", ""]
    assert [queue.status.reason for queue in described] == ["", "", "STALE_OWNER", "UNKNOWN_GROUP"]
    assert "the gateway at 127.0.0.1:1" in described[2].status.message
    deleted = (await two.asking.call("DeleteQueues", pb.DeleteQueuesRequest(group_ids=ids))).results
    assert [status.reason for status in deleted] == ["", "", "STALE_OWNER", "UNKNOWN_GROUP"]
    assert (await two.owner.call("DescribeQueues", two.described())).queues[0].status.reason == "UNKNOWN_GROUP"


async def test_a_topic_is_changed_by_its_owner(two: Setting) -> None:
    name = f"made-by-{two.group_id}"
    two.asked.owners[name] = two.owner_address
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=name, partitions=3)])
    [result] = (await two.asking.call("CreateTopics", request)).results
    assert (result.status.code, result.topic.partitions) == (0, 3)
    [described] = (
        await two.owner.call("DescribeTopics", admin_pb2.DescribeTopicsRequest(topics=[admin_pb2.TopicRef(name=name)]))
    ).results
    assert described.topic.id == result.topic.id


async def test_an_answer_of_several_owners_stays_within_its_bound(
    shared_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    async with (
        gateway(tmp_path / "small", max_response_bytes=1024) as asked,
        Caller(asked.address) as asking,
        Caller(shared_broker.address) as owner,
    ):
        two = Setting(asked, asking, owner, shared_broker.address)
        ids = []
        for _ in range(8):
            await two.begin()
            ids.append(two.group_id)
        described = (await asking.call("DescribeQueues", pb.DescribeQueuesRequest(group_ids=ids))).queues
        reasons = [queue.status.reason for queue in described]
        fit = reasons.count("")
        assert 1 <= fit < 8
        assert reasons == [""] * fit + ["OVERLOADED"] * (8 - fit)


async def listed(caller: Caller, page_size: int) -> tuple[list[str], int]:
    """Return the ids of all groups, and the number of pages."""
    ids: list[str] = []
    token, pages = "", 0
    while True:
        request = groups_pb2.ListGroupsRequest(page_size=page_size, page_token=token)
        answer = await caller.call("ListGroups", request)
        assert len(answer.groups) <= page_size
        ids += [group.group_id for group in answer.groups]
        pages += 1
        if not (token := answer.next_page_token):
            return ids, pages


@pytest.mark.parametrize("page_size", [1, 2, 3, 100])
async def test_a_list_has_the_groups_of_all_gateways(tmp_path: Path, page_size: int) -> None:
    async with (
        gateway(tmp_path / "a") as a,
        gateway(tmp_path / "b", max_response_bytes=1) as b,  # Its pages have one group.
        gateway(tmp_path / "c") as c,
    ):
        has = {a.address: "adgh", b.address: "bei", c.address: "cf"}
        for each in (a, b, c):
            each.others = [address for address in has if address != each.address]
            async with Caller(each.address) as caller:
                topic = admin_pb2.NewTopic(name="t", partitions=1)
                await caller.call("CreateTopics", admin_pb2.CreateTopicsRequest(topics=[topic]))
                for group_id in has[each.address]:
                    await caller.call("CreateQueue", pb.CreateQueueRequest(group_id=group_id, topic="t"))
        async with Caller(a.address) as caller:
            ids, pages = await listed(caller, page_size)
            assert ids == list("abcdefghi")
            assert pages >= 9 / page_size
            a.others.append("127.0.0.1:1")
            refusal = await caller.refusal("ListGroups", groups_pb2.ListGroupsRequest())
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "BROKER_UNAVAILABLE")
            assert "127.0.0.1:1" in refusal.message
