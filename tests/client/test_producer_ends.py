"""A producer at its edges: closed while somebody waits, a full buffer, answers that never come."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from logbroker.client import Admin, Producer, TopicInfo, sync
from logbroker.client.producer import delivery, sender
from logbroker.client.producer.delivery import Batch, Delivery, SyncDelivery
from logbroker.client.producer.producer import new_accumulator, sender_options
from logbroker.client.producer.sender import Sender
from logbroker.client.producer.topic_route import TopicRoute
from logbroker.client.runtime.sync_loop import Latch
from logbroker.client.transport.connection import Connection, Stream
from logbroker.client.transport.metadata import find_topic
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import BrokerUnavailableError, RequestTimeoutError, UnknownPartitionError, UnknownTopicError
from logbroker.record.codec import BatchBuilder
from logbroker.types import TopicId


async def create(address: str, topic: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, 1)


async def test_closing_ends_the_wait_for_a_partition_that_was_added(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(address, topic)
    producer = Producer(address)
    await producer.send_and_wait(topic, b"")
    async with Admin(address) as admin:
        await admin.alter_topic(topic, partitions=2)
    # As while the broker is away: nothing more is learned of the topic.
    monkeypatch.setattr(producer._accumulator, "stale_routes", list)
    waiting = asyncio.create_task(producer.send(topic, b"", partition=1))
    while not producer._accumulator.routes[topic].when_fresh:
        await asyncio.sleep(0.01)
    await producer.close()
    with pytest.raises(BrokerUnavailableError, match="closed"):
        await asyncio.wait_for(waiting, 5)


async def test_who_asks_for_a_partition_of_a_topic_that_goes_meanwhile_does_not_wait(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(address, topic)
    async with Producer(address) as producer:
        await producer.send_and_wait(topic, b"")
        route = producer._accumulator.routes[topic]

        async def find_late(connection: Connection, name: str) -> TopicInfo:
            info = await find_topic(connection, name)
            producer._accumulator.drop(route, UnknownTopicError("it was deleted, and created again"))
            return msgspec.structs.replace(info, generation=2)

        monkeypatch.setattr(sender, "find_topic", find_late)
        with pytest.raises(UnknownPartitionError):
            await asyncio.wait_for(producer.send(topic, b"", partition=1), 5)


async def test_a_full_buffer_lets_go_of_what_lingers_and_closing_of_who_waits_for_room() -> None:
    woken: list[None] = []
    accumulator = new_accumulator(
        Delivery,
        compression="none",
        batch_bytes=10_000,
        linger_ms=60_000,
        max_buffered_bytes=1_000,
        delivery_timeout_seconds=60,
        wake=lambda: woken.append(None),
    )
    route = accumulator.routes["t"] = TopicRoute(TopicInfo("t", TopicId(bytes(16)), 1, 1), None, 0)
    waiting = accumulator.append(route, bytes(2_000), None, (), None, None)
    assert not accumulator.has_room()
    woken.clear()
    has_room = asyncio.Event()
    accumulator.when_room(has_room.set)
    assert woken
    options: dict[str, Any] = sender_options(durability=None, idempotent=True, max_requests_in_flight=1)
    await Sender(Connection("127.0.0.1:1", request_timeout_seconds=1), accumulator, **options).close()
    assert waiting.done()
    assert accumulator.buffered_bytes == 0
    assert has_room.is_set()


def test_who_waits_for_a_record_hears_of_it_where_it_goes_on_in_another_batch_at_that_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop parts the batch, or routes it again, between a thread's look at it and its wait."""
    place = SimpleNamespace(offset=0, timestamp=1)
    one, two = (
        Batch(number=number, topic="t", partition=0, by_hand=False, builder=BatchBuilder(100)) for number in (0, 1)
    )

    def latch() -> Latch:
        if not one.done:
            one.finish_moved([(two, place)])
            threading.Timer(0.01, two.finish, kwargs={"base_offset": 7}).start()
        return Latch()

    monkeypatch.setattr(delivery, "Latch", latch)
    assert SyncDelivery(one, place).result(25).offset == 7


async def test_a_flush_looks_at_each_batch_once_however_often_records_are_routed_again() -> None:
    """While a topic grows, the records of several batches are routed into the same ones, again and again."""
    accumulator = new_accumulator(
        Delivery,
        compression="none",
        batch_bytes=10_000,
        linger_ms=60_000,
        max_buffered_bytes=1_000,
        delivery_timeout_seconds=60,
        wake=lambda: None,
    )
    generations = [
        [
            Batch(number=2 * number + place, topic="t", partition=place, by_hand=False, builder=BatchBuilder(100))
            for place in (0, 1)
        ]
        for number in range(60)
    ]
    for old, new in itertools.pairwise(generations):
        for batch in old:
            batch.finish_moved([(each, SimpleNamespace(offset=0, timestamp=1)) for each in new])
    for batch in generations[-1]:
        batch.finish(base_offset=7)
    accumulator.unfinished.update(dict.fromkeys(generations[0]))
    options: dict[str, Any] = sender_options(durability=None, idempotent=True, max_requests_in_flight=1)
    sender = Sender(Connection("127.0.0.1:1", request_timeout_seconds=1), accumulator, **options)
    looked_at = 0
    accumulator_lock = accumulator.lock

    class Counted:
        def free(self) -> Any:
            nonlocal looked_at
            looked_at += 1
            assert looked_at < 1000
            return accumulator_lock.free()

    accumulator.lock = Counted()  # type: ignore[assignment]
    await sender.drain()
    assert looked_at > 60


def test_what_threads_add_to_is_looked_at_under_the_lock(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dictionary that grows while it is gone through ends the stream."""
    with sync.Admin(address) as admin:
        admin.create_topic(topic, 1)
    with sync.Producer(address) as producer:
        accumulator = producer._accumulator
        queues, unlocked = accumulator.queues, []

        def watched() -> Any:
            if not accumulator.lock.is_mine():
                unlocked.append(True)
            return queues()

        monkeypatch.setattr(accumulator, "queues", watched)
        producer.send_and_wait(topic, b"")
    assert not unlocked


@pytest.mark.prove
async def test_what_has_no_answer_in_time_breaks_one_stream_and_not_the_next(
    logbroker_broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(logbroker_broker.address, topic)
    async with Producer(logbroker_broker.address, delivery_timeout_seconds=0.5) as producer:
        await producer.send_and_wait(topic, b"")
        begun = []
        begin = producer._connection.stream

        def stream(method: str) -> Stream:
            begun.append(method)
            return begin(method)

        monkeypatch.setattr(producer._connection, "stream", stream)
        os.kill(logbroker_broker.pid, signal.SIGSTOP)
        try:
            with pytest.raises(RequestTimeoutError, match="whether it was written is not known"):
                await (await producer.send(topic, b"late"))
        finally:
            os.kill(logbroker_broker.pid, signal.SIGCONT)
        assert not begun


@pytest.mark.prove
async def test_what_was_never_sent_tells_why(logbroker_broker: EmbeddedBroker, topic: str) -> None:
    await create(logbroker_broker.address, topic)
    async with Producer(logbroker_broker.address, delivery_timeout_seconds=1, request_timeout_seconds=0.2) as producer:
        await producer._started().route(topic)
        await asyncio.to_thread(logbroker_broker.kill)
        with pytest.raises(
            RequestTimeoutError, match=r"not delivered within 1 s; the last failure: .*cannot be reached"
        ):
            await (await producer.send(topic, b""))
