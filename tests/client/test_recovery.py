"""Producer and consumer across brokers that are killed, restarted and slow to come back."""

from __future__ import annotations

import asyncio
import logging

import pytest

from logbroker.client import Admin, Consumer, Producer, QueueAdmin, Record, TopicPartition, Worker
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import BrokerUnavailableError
from logbroker.record.codec import NewRecord, encode_batch
from tests.client.reading import numbers_by_key, read_all

KEYS = [b"key-%d" % number for number in range(50)]


@pytest.mark.prove
@pytest.mark.parametrize("durability", ["synced", "written"])
async def test_a_killed_broker_loses_doubles_and_reorders_nothing(
    logbroker_broker: EmbeddedBroker, durability: str
) -> None:
    """Both durabilities outlive a killed process. The kills hit a stream full of requests."""
    async with Admin(logbroker_broker.address) as admin:
        await admin.create_topic("orders", 4, {"durability": durability})
    records, kill_every = 30_000, 8_000
    async with Producer(logbroker_broker.address, batch_bytes=2_000, max_buffered_bytes=200_000) as producer:
        for number in range(records):
            delivery = await producer.send("orders", b"%d" % number, KEYS[number % len(KEYS)])
            if number % kill_every == kill_every - 1:
                assert not delivery.done()
                await asyncio.to_thread(logbroker_broker.kill)
                await asyncio.to_thread(logbroker_broker.start)
        await producer.flush()
    found = numbers_by_key(await read_all(logbroker_broker.address, "orders"))
    assert found == {key: list(range(index, records, len(KEYS))) for index, key in enumerate(KEYS)}


@pytest.mark.prove
async def test_producers_go_on_while_the_broker_is_away(logbroker_broker: EmbeddedBroker) -> None:
    async with Admin(logbroker_broker.address) as admin:
        await admin.create_topic("orders", 2)
    async with Producer(logbroker_broker.address) as producer:
        await producer.send_and_wait("orders", b"0", b"key")
        await asyncio.to_thread(logbroker_broker.stop)
        deliveries = [await producer.send("orders", b"%d" % number, b"key") for number in range(1, 100)]
        assert not any(delivery.done() for delivery in deliveries)
        await asyncio.to_thread(logbroker_broker.start)
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(1, 100))


@pytest.mark.prove
async def test_a_producer_that_is_not_idempotent_keeps_the_order_too(logbroker_broker: EmbeddedBroker) -> None:
    """Records may be there twice; a batch is repeated at once, or not at all."""
    async with Admin(logbroker_broker.address) as admin:
        await admin.create_topic("orders", 1, {"durability": "written"})
    async with Producer(logbroker_broker.address, idempotent=False, batch_bytes=1_000) as producer:
        for number in range(10_000):
            await producer.send("orders", b"%d" % number)
            if number == 5_000:
                await asyncio.to_thread(logbroker_broker.kill)
                await asyncio.to_thread(logbroker_broker.start)
    numbers = [int(record.value or b"") for record in await read_all(logbroker_broker.address, "orders")]
    assert list(dict.fromkeys(numbers)) == list(range(10_000))


@pytest.mark.prove
async def test_a_consumer_goes_on_at_the_right_record(
    logbroker_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    address = logbroker_broker.address
    async with Admin(address) as admin:
        await admin.create_topic("orders", 3, {"durability": "written"})
    seen: list[Record] = []
    async with Producer(address, batch_bytes=3_000) as producer, Consumer(address, buffer_bytes=20_000) as consumer:
        for number in range(6_000):
            await producer.send("orders", b"%d" % number, KEYS[number % len(KEYS)])
        await producer.flush()
        await consumer.assign("orders")
        async for record in consumer:
            seen.append(record)
            if len(seen) == 2_000:
                await asyncio.to_thread(logbroker_broker.restart)
            if len(seen) == 4_000:
                await asyncio.to_thread(logbroker_broker.kill)
                await asyncio.to_thread(logbroker_broker.start)
            if len(seen) == 6_000:
                break
        # Nothing is read twice now either, and what comes later arrives.
        for number in range(6_000, 6_010):
            await producer.send("orders", b"%d" % number, KEYS[number % len(KEYS)])
        await producer.flush()
        while len(seen) < 6_010:
            seen += await consumer.poll(timeout_seconds=25)
    assert {(record.partition, record.offset) for record in seen} == {
        (partition, offset)
        for partition in range(3)
        for offset in range(sum(record.partition == partition for record in seen))
    }
    for partition in range(3):
        offsets = [record.offset for record in seen if record.partition == partition]
        assert offsets == sorted(offsets)
    assert any("reconnecting" in entry.message for entry in caplog.records if entry.levelno == logging.WARNING)


@pytest.mark.prove
async def test_an_interrupt_does_not_wait_for_a_broker_that_is_away(logbroker_broker: EmbeddedBroker) -> None:
    async with Admin(logbroker_broker.address) as admin:
        await admin.create_topic("orders")
    deliveries = []

    async def interrupted() -> None:
        async with Producer(logbroker_broker.address) as producer:
            await producer.send_and_wait("orders", b"")
            await asyncio.to_thread(logbroker_broker.kill)
            deliveries.append(await producer.send("orders", b""))
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await interrupted()
    with pytest.raises(BrokerUnavailableError, match="closed before"):
        await deliveries[0]


@pytest.mark.prove
async def test_where_one_seeks_what_was_read_before_a_cut_does_not_matter(logbroker_broker: EmbeddedBroker) -> None:
    """The log was cut while the consumer rested: where it is told to go on, it has read nothing that could be gone."""
    address, partition = logbroker_broker.address, TopicPartition("orders", 0)
    async with Admin(address) as admin:
        await admin.create_topic("orders", 1)
    async with Consumer(address) as consumer, Producer(address) as producer:
        await producer.send_and_wait("orders", b"0")
        await consumer.assign("orders")
        assert len(await consumer.poll(timeout_seconds=25)) == 1
        consumer.pause()
        await asyncio.to_thread(logbroker_broker.kill)
        with (logbroker_broker.data_dir / str(partition) / f"{0:020d}.log").open("ab") as log:
            log.write(encode_batch([NewRecord(b"torn")])[:-1])
        await asyncio.to_thread(logbroker_broker.start)
        await producer.send_and_wait("orders", b"1")
        await consumer.seek_to_end()
        consumer.resume()
        assert await consumer.poll(timeout_seconds=0.1) == []
        await producer.send_and_wait("orders", b"2")
        assert [record.value for record in await consumer.poll(timeout_seconds=25)] == [b"2"]


async def test_each_client_logs_that_it_goes_on_after_a_break(
    logbroker_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """It does so at the level of the warning that told of the break."""
    caplog.set_level(logging.INFO, "logbroker.client")
    address = logbroker_broker.address
    async with Admin(address) as admin, QueueAdmin(address) as queues:
        await admin.create_topic("orders", 1)
        await queues.create_queue("billing", "orders")

    def logged(level: int) -> list[str]:
        return [entry.message for entry in caplog.records if entry.levelno == level]

    again = {
        f"producing to {address}: going on",
        f"consuming from {address}: connected again",
        "member of group readers: connected again",
        "worker of queue group billing: connected again",
    }
    async with (
        Producer(address) as producer,
        Consumer(address, group="readers", auto_offset_reset="earliest") as consumer,
        Worker(address, "billing") as worker,
    ):
        await consumer.subscribe("orders")
        deliveries = aiter(worker)

        async def pass_one(value: bytes) -> None:
            await producer.send_and_wait("orders", value)
            await (await anext(deliveries)).ack()
            async with asyncio.timeout(30):
                while not [record for record in await consumer.poll() if record.value == value]:
                    pass

        await pass_one(b"first")
        assert not again & set(logged(logging.WARNING))
        await asyncio.to_thread(logbroker_broker.restart)
        await pass_one(b"second")
        async with asyncio.timeout(30):
            while not again <= set(logged(logging.WARNING)):
                await consumer.poll(timeout_seconds=0.1)
    breaks = [warning for warning in logged(logging.WARNING) if warning.endswith("; reconnecting")]
    assert len(breaks) >= 4
