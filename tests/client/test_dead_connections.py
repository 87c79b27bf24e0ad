"""Connections that die without a word: what lies between stops to pass anything on, and keeps its sockets open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from logbroker.client import Admin, Consumer, Producer, Worker, sync
from logbroker.client.transport import connection
from logbroker.embedded_broker import embedded
from logbroker.grpc_api.groups.messages import MAX_IDLE_HEARTBEAT_INTERVAL_MS
from tests.client.group_helpers import Events, add, fill, numbers
from tests.client.links import Link
from tests.client.worker_helpers import create, describe, take
from tests.client.worker_helpers import fill as fill_queue

SESSION_SECONDS = 4.0
QUICK_SECONDS = 1.0
"""Until a silent connection is asked, and until it is taken for dead, in little."""


@pytest.fixture
async def link(address: str) -> AsyncIterator[Link]:
    async with Link().to(address) as link:
        yield link


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KEEPALIVE_SECONDS", "KEEPALIVE_TIMEOUT_SECONDS", "MEMBER_KEEPALIVE_SECONDS"):
        monkeypatch.setattr(connection, name, QUICK_SECONDS)


async def until_assigned(consumer: Consumer) -> None:
    async with asyncio.timeout(20):
        while not numbers(consumer):
            assert not await consumer.poll(timeout_seconds=0.01)


def test_what_is_dead_is_noticed_before_the_time_of_a_call_is_over() -> None:
    """Whoever waits on it notices, even without anything to send: gRPC would stop asking after two pings."""
    assert connection.KEEPALIVE_SECONDS + connection.KEEPALIVE_TIMEOUT_SECONDS < 10
    assert connection.MEMBER_KEEPALIVE_SECONDS + connection.KEEPALIVE_TIMEOUT_SECONDS < 15
    assert connection.MEMBER_KEEPALIVE_SECONDS * 1000 > MAX_IDLE_HEARTBEAT_INTERVAL_MS  # Heartbeats are sign enough.
    assert dict(connection._OPTIONS)["grpc.http2.max_pings_without_data"] == 0


@pytest.mark.prove
async def test_a_member_keeps_what_it_holds_over_another_connection(address: str, topic: str, link: Link) -> None:
    """It comes back within its session; its records come on, too, though their connection is as dead."""
    await fill(address, topic, 2, 0)
    events = Events()
    async with Consumer(link.address, group=topic, session_timeout_seconds=SESSION_SECONDS) as consumer:
        await consumer.subscribe(topic, **events.listen("it"))
        await until_assigned(consumer)
        link.freeze()
        await add(address, topic, 1, 10)
        async with asyncio.timeout(15):
            seen = 0
            while seen < 10:
                seen += len(await consumer.poll(timeout_seconds=0.5))
        await consumer.commit()
        assert events.all == [("it", "assigned", [0, 1])]


@pytest.mark.prove
async def test_a_synchronous_member_does_so_too(address: str, topic: str, link: Link) -> None:
    await fill(address, topic, 1, 0)
    lost: list[object] = []

    def read() -> int:
        with sync.Consumer(link.address, group=topic, session_timeout_seconds=SESSION_SECONDS) as consumer:
            consumer.subscribe(topic, on_lost=lost.append)
            while not consumer.assignment():
                consumer.poll(timeout_seconds=0.01)
            loop.call_soon_threadsafe(frozen.set)
            seen = 0
            while seen < 10:
                seen += len(consumer.poll(timeout_seconds=0.5))
            return seen

    loop, frozen = asyncio.get_running_loop(), asyncio.Event()
    reading = asyncio.create_task(asyncio.to_thread(read))
    await frozen.wait()
    link.freeze()
    await add(address, topic, 1, 10)
    async with asyncio.timeout(15):
        assert await reading == 10
    assert not lost


@pytest.mark.prove
async def test_calls_of_a_member_go_over_to_the_new_connection(address: str, topic: str, link: Link) -> None:
    """Else they would wait for a connection that is given up, or end with it."""
    await fill(address, topic, 1, 10)
    async with Consumer(link.address, group=topic, session_timeout_seconds=SESSION_SECONDS) as consumer:
        await consumer.subscribe(topic)
        await until_assigned_any(consumer)
        link.freeze()
        async with asyncio.timeout(15):
            ends = await consumer.end_offsets()
        assert list(ends.values()) == [10]


async def until_assigned_any(consumer: Consumer) -> None:
    async with asyncio.timeout(20):
        while not numbers(consumer):
            await consumer.poll(timeout_seconds=0.01)


@pytest.mark.prove
@pytest.mark.usefixtures("quick")
async def test_a_consumer_that_waits_goes_on(address: str, topic: str, link: Link) -> None:
    await fill(address, topic, 1, 1)
    async with Consumer(link.address) as consumer:
        await consumer.assign(topic)
        assert len(await consumer.poll(timeout_seconds=20)) == 1
        link.freeze()
        await add(address, topic, 1, 5)
        async with asyncio.timeout(25):
            assert [(await anext(records)).offset for records in [consumer.__aiter__()] for _ in range(5)] == [
                1,
                2,
                3,
                4,
                5,
            ]


@pytest.mark.prove
@pytest.mark.usefixtures("quick")
async def test_a_producer_sends_again_and_nothing_is_doubled(address: str, topic: str, link: Link) -> None:
    """Batches that the broker has, but could not acknowledge, are not appended again."""
    await fill(address, topic, 1, 0)
    async with Producer(link.address) as producer, Consumer(address) as consumer:
        await producer.send_and_wait(topic, b"0")
        link.freeze(answers_only=True)
        deliveries = [await producer.send(topic, b"%d" % number) for number in range(1, 20)]
        await consumer.assign(topic)
        async with asyncio.timeout(25):
            assert [(await delivery).offset for delivery in deliveries] == list(range(1, 20))
            assert [record.value async for record in consumer.until_end()] == [b"%d" % n for n in range(20)]


@pytest.mark.prove
@pytest.mark.usefixtures("quick")
async def test_a_call_is_made_again(topic: str, link: Link) -> None:
    async with Admin(link.address) as admin:
        await admin.list_topics()
        link.freeze()
        async with asyncio.timeout(25):
            await admin.list_topics()


@pytest.mark.prove
@pytest.mark.usefixtures("quick")
async def test_a_worker_keeps_what_it_works_on(address: str, topic: str, link: Link) -> None:
    """It comes back under its id, and settles over the new connection; nothing is delivered twice."""
    await create(address, topic, lease_seconds=30.0, ordering="none")
    await fill_queue(address, topic, 3)
    async with Worker(link.address, topic) as worker:
        deliveries = await take(worker, 3)
        link.freeze()
        for delivery in deliveries:
            delivery.ack()
        async with asyncio.timeout(25):
            await worker.flush()
        assert [delivery.attempt for delivery in deliveries] == [1, 1, 1]
        counts = (await describe(address, topic)).counts
        assert counts.open == 0


@pytest.mark.prove
async def test_a_worker_notices_in_time_for_a_short_lease(topic: str) -> None:
    with embedded() as broker:
        await create(broker.address, topic, lease_seconds=4.0)
        await fill_queue(broker.address, topic, 1)
        async with Link().to(broker.address) as link, Worker(link.address, topic) as worker:
            [delivery] = await take(worker, 1)
            link.freeze()
            async with asyncio.timeout(15):
                while len(link.pipes) < 2:
                    await asyncio.sleep(0.01)
            delivery.ack()
            await worker.flush()


@pytest.mark.prove
async def test_an_idle_worker_notices_in_time_for_a_short_lease(topic: str) -> None:
    """Records would be handed out into the dead connection again and again, and use up their attempts."""
    with embedded() as broker:
        await create(broker.address, topic, lease_seconds=2.0)
        await fill_queue(broker.address, topic, 1)
        async with Link().to(broker.address) as link, Worker(link.address, topic) as worker:
            [delivery] = await take(worker, 1)
            await delivery.ack()
            link.freeze()
            async with asyncio.timeout(5):
                while len(link.pipes) < 2:
                    await asyncio.sleep(0.01)
            await fill_queue(broker.address, topic, 1)
            [delivery] = await take(worker, 1)
            assert delivery.attempt == 1
            await delivery.ack()
