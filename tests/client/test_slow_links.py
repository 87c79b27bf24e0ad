"""Members and workers behind links that are slow, or long: what they hold does not hang on how fast records come."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

import pytest

from logbroker.client import Consumer, Producer, Session, TopicPartition, Worker, WorkerDelivery, sync
from logbroker.client.worker.session_calls import SessionCalls
from logbroker.embedded_broker import embedded
from tests.client.group_helpers import Events, fill, numbers
from tests.client.group_helpers import take as take_records
from tests.client.links import Link
from tests.client.worker_helpers import create, describe, take

RECORD_BYTES = 20_000
RECORDS = 100
HELD_BACK_BEHIND_BYTES = 300_000


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


async def large_records(address: str, topic: str) -> None:
    await fill(address, topic, 1, 0)
    async with Producer(address) as producer:
        for _ in range(RECORDS):
            await producer.send(topic, b"x" * RECORD_BYTES)


async def test_no_heartbeat_waits_behind_records(address: str, topic: str) -> None:
    """Nor does any other question: the records that are on their way fill what lies between for many sessions."""
    await large_records(address, topic)
    events = Events()
    async with (
        Link(limit_bytes=HELD_BACK_BEHIND_BYTES).to(address) as link,
        Consumer(link.address, group=topic, session_timeout_seconds=1.0) as consumer,
    ):
        await consumer.subscribe(topic, **events.listen("it"))
        await until_assigned(consumer)
        await until(lambda: link.full)
        for _ in range(8):
            before = consumer._core.ownership.until
            await until(lambda before=before: consumer._core.ownership.until > before)  # type: ignore[misc]
        assert await consumer.end_offsets() == {TopicPartition(topic, 0): RECORDS}
        assert link.full
        link.release()
        async with asyncio.timeout(20):
            found = [record.offset async for record in consumer.until_end()]
        assert found == list(range(RECORDS))
        assert [kind for _, kind, _ in events.all] == ["assigned"]


async def until_assigned(consumer: Consumer) -> None:
    async with asyncio.timeout(20):
        while not numbers(consumer):
            assert not await consumer.poll(timeout_seconds=0.01)


@pytest.mark.prove
async def test_a_member_whose_answers_take_long_keeps_its_connection(address: str, topic: str) -> None:
    """As long as they take less than its session and the grace."""
    await fill(address, topic, 1, 20)
    async with (
        Link(delay_seconds=0.7).to(address) as link,
        Consumer(link.address, group=topic, session_timeout_seconds=2.0) as consumer,
    ):
        await consumer.subscribe(topic)
        async with asyncio.timeout(40):
            found = [record.offset for record in await take_records(consumer, 20)]
            connections = len(link.pipes)
            until_seconds = consumer._core.ownership.until + 4
            await until(lambda: consumer._core.ownership.until > until_seconds)
        assert found == list(range(20))
        assert len(link.pipes) == connections
        await consumer.commit()


@pytest.mark.prove
async def test_who_can_never_deliver_in_time_says_why(topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """Every answer comes, and each is too late to permit anything."""
    with embedded(reconnect_grace_seconds=0.3) as broker:
        await fill(broker.address, topic, 1, 10)
        async with (
            Link(delay_seconds=0.4).to(broker.address) as link,
            Consumer(link.address, group=topic) as consumer,
        ):
            await consumer.subscribe(topic)
            await until(lambda: "reconnect_grace_seconds" in caplog.text)
            (said,) = [record for record in caplog.records if "reconnect_grace_seconds" in record.getMessage()]
            assert said.levelno == logging.WARNING
            assert "records may be delivered only within 0.3 s" in said.getMessage()


@pytest.mark.prove
@pytest.mark.parametrize("ordering", ["none", "key"])
async def test_a_worker_is_sent_no_more_ahead_than_its_link_carries_in_time(
    address: str, topic: str, ordering: str
) -> None:
    """One batch takes longer on the link than a lease, and its records less."""
    records, lease_seconds = 50, 2.0
    await create(address, topic, partitions=1, ordering=ordering, lease_seconds=lease_seconds)
    async with Producer(address, linger_ms=1000, batch_bytes=1_000_000) as producer:
        for number in range(records):
            await producer.send(topic, os.urandom(RECORD_BYTES), b"k%d" % number)
    speed = 1_000_000 / (1.5 * lease_seconds)
    attempts: list[int] = []
    async with (
        asyncio.timeout(60),
        Link(bytes_per_second=speed).to(address) as link,
        Worker(link.address, topic) as worker,
    ):
        async for delivery in worker:
            attempts.append(delivery.attempt)
            await delivery.ack()
            if len(attempts) == records:
                break
    assert attempts == [1] * records
    assert (await describe(address, topic)).counts.leases_lost == 0


@pytest.mark.prove
async def test_what_arrives_is_a_sign_of_life(address: str, topic: str) -> None:
    """The answer to an extension comes behind the records that were sent before it."""
    records = 12
    await create(address, topic, partitions=1, lease_seconds=4.0)
    async with Producer(address) as producer:
        for number in range(records):
            await producer.send(topic, os.urandom(RECORD_BYTES), b"k%d" % number)
    async with (
        asyncio.timeout(60),
        Link(bytes_per_second=3 * RECORD_BYTES).to(address) as link,
        Worker(link.address, topic) as worker,
    ):
        kept: list[WorkerDelivery] = []
        async for delivery in worker:
            if not kept:
                kept.append(delivery)
            else:
                await delivery.ack()
                records -= 1
            if records == 1:
                break
        await kept[0].ack()
    assert len(link.pipes) == 1, "the connection was never given up"


@pytest.mark.prove
async def test_a_record_that_takes_longer_than_a_silence_may_comes_all_the_same(address: str, topic: str) -> None:
    """Its worker sees whole messages only, and has asked meanwhile for a longer lease of another record."""
    await create(address, topic, partitions=1, lease_seconds=2.0)
    async with Producer(address) as producer:
        await producer.send_and_wait(topic, b"kept", b"a")
        await producer.send_and_wait(topic, os.urandom(900_000), b"b")
    async with (
        asyncio.timeout(30),
        Link(bytes_per_second=600_000).to(address) as link,
        Worker(link.address, topic) as worker,
    ):
        kept, large = await take(worker, 2)
        await large.ack()
        await kept.ack()
    assert len(link.pipes) < 4, "each connection was given up later than the one before"
    assert (await describe(address, topic)).counts.acked == 2


@pytest.mark.prove
async def test_a_request_has_time_as_long_as_records_arrive_before_its_answer(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow link an answer may wait behind records for longer than a request may take. A session that is given up
    has its records on the link already, or has handed them to the program."""
    keys, request_seconds = 16, 1.0
    await create(address, topic, partitions=1)
    async with Producer(address) as producer:
        for number in range(keys):
            await producer.send(topic, os.urandom(2 * RECORD_BYTES), b"k%d" % number)
    given_up: list[bytes] = []
    give_back = SessionCalls._give_back

    def spied(self: SessionCalls[WorkerDelivery], token: int, key: bytes) -> None:
        given_up.append(key)
        give_back(self, token, key)

    monkeypatch.setattr(SessionCalls, "_give_back", spied)
    handled: list[bytes | None] = []
    async with (
        asyncio.timeout(60),
        Link(bytes_per_second=5 * RECORD_BYTES).to(address) as link,
        Worker(link.address, topic, request_timeout_seconds=request_seconds) as worker,
    ):

        async def handle(session: Session) -> None:
            async for delivery in session:
                delivery.ack()
                handled.append(delivery.key)
                if len(handled) == keys:
                    worker.stop()
                return

        await worker.sessions(handle, concurrency=keys // 2)
    assert sorted(map(bytes, filter(None, handled))) == sorted(b"k%d" % number for number in range(keys))
    assert not given_up


@pytest.mark.prove
@pytest.mark.parametrize("blocking", [False, True])
async def test_a_session_is_not_idle_while_its_next_record_is_on_the_link(
    address: str, topic: str, blocking: bool
) -> None:
    """A session that ended then would give the record back, and the link would carry it again."""
    keys, records, value_bytes, idle_seconds = 4, 3, 2 * RECORD_BYTES, 0.3
    await create(address, topic, partitions=1)
    async with Producer(address) as producer:
        for number in range(keys * records):
            await producer.send(topic, os.urandom(value_bytes), b"k%d" % (number % keys))
    handled: list[int] = []

    def take(delivery: Any) -> None:
        assert delivery.attempt == 1
        delivery.ack()
        handled.append(delivery.offset)

    async def handle(session: Session) -> None:
        async for delivery in session:
            take(delivery)
            if len(handled) == keys * records:
                worker.stop()

    def work(broker: str) -> None:
        with sync.Worker(broker, topic) as worker:

            def handle(session: sync.Session) -> None:
                for delivery in session:
                    take(delivery)
                    if len(handled) == keys * records:
                        worker.stop()

            worker.sessions(handle, concurrency=keys, idle_seconds=idle_seconds)

    async with asyncio.timeout(60), Link(bytes_per_second=4 * RECORD_BYTES).to(address) as link:
        if blocking:
            await asyncio.to_thread(work, link.address)
        else:
            async with Worker(link.address, topic) as worker:
                await worker.sessions(handle, concurrency=keys, idle_seconds=idle_seconds)
        assert sum(pipe.bytes_back for pipe in link.pipes) < 1.2 * keys * records * value_bytes
    assert sorted(handled) == list(range(keys * records))
