"""The producer against a real broker."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from types import SimpleNamespace
from typing import Any

import pytest

from logbroker.client import Admin, Consumer, Producer, RecordMetadata, TopicPartition
from logbroker.client.producer import sender
from logbroker.client.producer.accumulator import Accumulator
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import (
    BrokerUnavailableError,
    InvalidRequestError,
    InvalidTimestampError,
    RecordTooLargeError,
    RequestTimeoutError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsupportedCompressionError,
)
from logbroker.record.codec import split_batches
from logbroker.record.partitioner import partition_for_key
from logbroker.v1 import log_pb2
from tests.client.reading import numbers_by_key, read_all

YEAR_MS = 365 * 24 * 3_600_000


async def create(address: str, topic: str, partitions: int = 1, **configs: str) -> None:
    async with Admin(address) as admin:
        # Records of some tests are old, and the broker lives longer than it takes until old ones go.
        given = {name.replace("_", "."): value for name, value in configs.items()}
        await admin.create_topic(topic, partitions, {"retention.ms": "-1", **given})


async def test_a_delivery_tells_where_the_record_lies(address: str, topic: str) -> None:
    await create(address, topic)
    async with Producer(address) as producer:
        first = await producer.send(topic, b"one", timestamp_ms=1234)
        second = await producer.send(topic, b"two", timestamp_ms=1235)
        assert not first.done()
        assert await second == RecordMetadata(topic, 0, 1, 1235)
        assert await first == RecordMetadata(topic, 0, 0, 1234)
        assert first.done()
        assert first.result() == await first
        assert (await producer.send_and_wait(topic, b"three")).offset == 2


async def test_a_batch_is_sent_when_it_is_due_however_late_the_sender_is(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is held up when a batch is about to be due, and goes on when it is due."""
    await create(address, topic)
    take, clock, held_up_seconds = Accumulator.take, time.monotonic, 0.0

    def slow_take(self: Accumulator[Any], now: float, *arguments: Any) -> Any:
        nonlocal held_up_seconds
        taken = take(self, now, *arguments)
        due = [due_at - now for batch in open_batches(self) if (due_at := batch.ready_at) > now]
        held_up_seconds += min(due, default=0.0)
        return taken

    def open_batches(accumulator: Accumulator[Any]) -> list[Any]:
        found = (route.open[partition] for route, partition in accumulator._active)
        return [batch for batch in found if batch is not None]

    monkeypatch.setattr(Accumulator, "take", slow_take)
    monkeypatch.setattr(sender, "time", SimpleNamespace(monotonic=lambda: clock() + held_up_seconds))
    async with Producer(address, linger_ms=20) as producer:
        for _ in range(3):
            before = clock()
            await producer.send_and_wait(topic, b"x")
            assert clock() - before < 0.9, "it was sent only when the sender looked again"
    assert held_up_seconds > 0


async def test_records_come_back_as_they_were_sent(address: str, topic: str) -> None:
    await create(address, topic)
    async with Producer(address) as producer:
        await producer.send(topic, b"value", b"key", headers=[("h", b"1"), ("h", None), ("ü", b"")], timestamp_ms=5)
        await producer.send(topic, None, b"")
        await producer.send(topic, b"", None)
    one, two, three = await read_all(address, topic)
    assert (one.topic, one.partition, one.offset, one.timestamp_ms) == (topic, 0, 0, 5)
    assert (one.key, one.value, one.headers) == (b"key", b"value", (("h", b"1"), ("h", None), ("ü", b"")))
    assert (two.key, two.value, two.headers) == (b"", None, ())
    assert (three.key, three.value, three.headers) == (None, b"", ())


async def test_under_log_append_time_the_delivery_has_the_brokers_time(address: str, topic: str) -> None:
    await create(address, topic, message_timestamp_type="LogAppendTime")
    async with Producer(address) as producer:
        placed = await producer.send_and_wait(topic, b"", timestamp_ms=5)
    (record,) = await read_all(address, topic)
    assert placed.timestamp_ms == record.timestamp_ms > 1_000_000_000_000


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_compression_is_read_back(address: str, topic: str, compression: str) -> None:
    await create(address, topic)
    values = [b"value %d " % number * 20 for number in range(500)]
    async with Producer(address, compression=compression) as producer:
        for value in values:
            await producer.send(topic, value)
    assert [record.value for record in await read_all(address, topic)] == values


async def test_keys_go_where_kafka_sends_them_and_keep_their_order(address: str, topic: str) -> None:
    await create(address, topic, 7)
    async with Producer(address, batch_bytes=2000) as producer:
        for number in range(5000):
            await producer.send(topic, b"%d" % number, b"key-%d" % (number % 40))
    records = await read_all(address, topic)
    assert all(record.partition == partition_for_key(record.key or b"", 7) for record in records)
    assert numbers_by_key(records) == {b"key-%d" % key: list(range(key, 5000, 40)) for key in range(40)}


async def test_a_partition_chosen_by_hand_wins_over_the_key(address: str, topic: str) -> None:
    await create(address, topic, 3)
    async with Producer(address) as producer:
        deliveries = [await producer.send(topic, b"", b"same key", partition=number % 3) for number in range(9)]
        assert [(await delivery).partition for delivery in deliveries] == [0, 1, 2] * 3


async def test_records_without_a_key_stay_together_until_their_batch_is_full(address: str, topic: str) -> None:
    await create(address, topic, 4)
    async with Producer(address, batch_bytes=1000, linger_ms=1000) as producer:
        deliveries = [await producer.send(topic, b"x" * 90) for _ in range(100)]
        await producer.flush()
        partitions = [(await delivery).partition for delivery in deliveries]
    runs = [partitions[start : start + 9] for start in range(0, 99, 9)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(one[0] != two[0] for one, two in itertools.pairwise(runs))


async def test_a_record_over_the_batch_size_gets_a_batch_of_its_own(address: str, topic: str) -> None:
    await create(address, topic)
    async with Producer(address, batch_bytes=1000, linger_ms=1000) as producer:
        for size in (10, 5000, 10):
            await producer.send(topic, bytes(size))
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        response = await consumer._core.connection.unary(
            "Fetch", log_pb2.FetchRequest(items=[log_pb2.FetchItem(topic=topic, partition=0)])
        )
    assert [header.record_count for header, _ in split_batches(response.results[0].batches)] == [1, 1, 1]


async def test_a_refused_record_fails_alone(address: str, topic: str) -> None:
    await create(address, topic, max_message_bytes="1000")
    async with Producer(address, batch_bytes=900, linger_ms=50) as producer:
        before = await producer.send(topic, b"before")
        large = await producer.send(topic, bytes(2000))
        future = await producer.send(topic, b"", partition=0, timestamp_ms=4_000_000_000_000)
        after = await producer.send(topic, b"after")
        with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
            await large
        with pytest.raises(InvalidTimestampError):
            await future
        assert (await before).offset == 0
        assert (await after).offset == 1


async def test_flush_raises_the_first_failure_that_nobody_saw(address: str, topic: str) -> None:
    await create(address, topic, max_message_bytes="1000")
    async with Producer(address, batch_bytes=900) as producer:
        await producer.send(topic, bytes(2000))
        with pytest.raises(RecordTooLargeError):
            await producer.flush()
        await producer.flush()
        seen = await producer.send(topic, bytes(2000))
        with pytest.raises(RecordTooLargeError):
            await seen
        await producer.flush()
        await producer.send(topic, bytes(2000))
        with pytest.raises(RecordTooLargeError):
            await producer.close()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"value": "text"}, TypeError),
        ({"value": b"", "key": "text"}, TypeError),
        ({"value": b"", "headers": [("name", "text")]}, TypeError),
        ({"value": b"", "partition": 3}, UnknownPartitionError),
        ({"value": b"", "partition": -1}, UnknownPartitionError),
        ({"value": b"", "timestamp_ms": -1}, InvalidTimestampError),
        ({"value": bytes(17 * 1024 * 1024)}, RecordTooLargeError),
        ({"value": b"", "topic": "nowhere"}, UnknownTopicError),
        ({"value": b"", "topic": "a/b"}, UnknownTopicError),
    ],
)
async def test_send_refuses_what_can_never_be_sent(
    address: str, topic: str, arguments: dict[str, Any], error: type[Exception]
) -> None:
    await create(address, topic, 2)
    async with Producer(address) as producer:
        for _ in range(2):  # into no batch, and into an open one
            with pytest.raises(error):
                await producer.send(**{"topic": topic, **arguments})
            await producer.send(topic, b"good", partition=0)
    assert [record.value for record in await read_all(address, topic)] == [b"good"] * 2


async def test_a_topic_that_was_created_again_is_another_one(address: str, topic: str) -> None:
    await create(address, topic)
    async with Producer(address, linger_ms=60_000) as producer, Admin(address) as admin:
        old = await producer.send(topic, b"old")
        await admin.delete_topic(topic)
        await admin.create_topic(topic)
        with pytest.raises(UnknownTopicError):
            await producer.flush()
        with pytest.raises(UnknownTopicError):
            await old
        await producer.send(topic, b"new")
    assert [(record.offset, record.value) for record in await read_all(address, topic)] == [(0, b"new")]


async def test_a_partition_that_was_added_is_found_when_it_is_asked_for(address: str, topic: str) -> None:
    await create(address, topic, 1)
    async with Producer(address) as producer, Admin(address) as admin:
        await producer.send(topic, b"", partition=0)
        await admin.alter_topic(topic, partitions=3)
        assert (await producer.send_and_wait(topic, b"", partition=2)).partition == 2


async def test_send_waits_while_the_buffer_is_full(logbroker_broker: EmbeddedBroker, topic: str) -> None:
    address = logbroker_broker.address
    await create(address, topic)
    bound = 50_000
    async with Producer(address, max_buffered_bytes=bound, batch_bytes=10_000) as producer:
        await producer.send_and_wait(topic, b"")

        async def send_for_ever() -> None:
            while True:
                await producer.send(topic, bytes(1000))

        os.kill(logbroker_broker.pid, signal.SIGSTOP)
        try:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(send_for_ever(), 0.3)
            assert bound <= producer._accumulator.buffered_bytes < bound + 1100
        finally:
            os.kill(logbroker_broker.pid, signal.SIGCONT)
        await producer.send(topic, b"last")
        await producer.flush()
        assert producer._accumulator.buffered_bytes == 0
    records = await read_all(address, topic)
    assert records[-1].value == b"last"


async def test_a_wait_for_a_delivery_can_be_given_up(logbroker_broker: EmbeddedBroker, topic: str) -> None:
    await create(logbroker_broker.address, topic)
    async with Producer(logbroker_broker.address) as producer:
        await producer.send_and_wait(topic, b"")
        os.kill(logbroker_broker.pid, signal.SIGSTOP)
        try:
            delivery = await producer.send(topic, b"")
            others = asyncio.gather(delivery, delivery)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await delivery
            with pytest.raises(asyncio.InvalidStateError):
                delivery.result()
        finally:
            os.kill(logbroker_broker.pid, signal.SIGCONT)
        assert [placed.offset for placed in await others] == [1, 1]


@pytest.mark.prove
async def test_what_is_not_delivered_in_time_fails(logbroker_broker: EmbeddedBroker, topic: str) -> None:
    await create(logbroker_broker.address, topic)
    async with Producer(logbroker_broker.address, delivery_timeout_seconds=0.5) as producer:
        await producer.send_and_wait(topic, b"first")
        await asyncio.to_thread(logbroker_broker.kill)
        delivery = await producer.send(topic, b"late")
        with pytest.raises(RequestTimeoutError, match=r"not delivered within 0\.5 s.*cannot be reached"):
            await delivery
        await asyncio.to_thread(logbroker_broker.start)
    async with Producer(logbroker_broker.address) as producer:
        await producer.send_and_wait(topic, b"again")
    assert [record.value for record in await read_all(logbroker_broker.address, topic)] == [b"first", b"again"]


@pytest.mark.prove
async def test_each_record_has_its_own_time(logbroker_broker: EmbeddedBroker, topic: str) -> None:
    """While the broker is away, records gather in batches."""
    await create(logbroker_broker.address, topic)
    async with Producer(logbroker_broker.address, delivery_timeout_seconds=4) as producer:
        await producer.send_and_wait(topic, b"first")
        await asyncio.to_thread(logbroker_broker.kill)
        failed_after: list[float] = []

        async def send() -> None:
            begun = time.monotonic()
            with pytest.raises(RequestTimeoutError):
                await producer.send_and_wait(topic, b"late")
            failed_after.append(time.monotonic() - begun)

        sending = []
        for _ in range(20):
            sending.append(asyncio.create_task(send()))
            await asyncio.sleep(0.18)
        await asyncio.gather(*sending)
    assert min(failed_after) > 2, failed_after


async def test_a_broker_that_does_not_answer_fails_in_time_too(logbroker_broker: EmbeddedBroker, topic: str) -> None:
    await create(logbroker_broker.address, topic)
    producer = Producer(logbroker_broker.address, delivery_timeout_seconds=0.5)
    await producer.send_and_wait(topic, b"first")
    os.kill(logbroker_broker.pid, signal.SIGSTOP)
    try:
        delivery = await producer.send(topic, b"late")
        with pytest.raises(RequestTimeoutError, match="whether it was written is not known"):
            await delivery
    finally:
        os.kill(logbroker_broker.pid, signal.SIGCONT)
    placed = await producer.send_and_wait(topic, b"next")
    await producer.close()
    records = await read_all(logbroker_broker.address, topic)
    assert records[placed.offset].value == b"next"
    assert [record.value for record in records].count(b"next") == 1


async def test_an_unreachable_broker_is_said_to_be_so(unused_tcp_port: int) -> None:
    async with Producer(f"127.0.0.1:{unused_tcp_port}", request_timeout_seconds=0.3) as producer:
        with pytest.raises(BrokerUnavailableError, match=f"127.0.0.1:{unused_tcp_port} cannot be reached.*running"):
            await producer.send("topic", b"")


async def test_a_closed_producer_takes_nothing(address: str, topic: str) -> None:
    await create(address, topic)
    producer = Producer(address)
    await producer.send(topic, b"")
    await producer.close()
    await producer.close()
    with pytest.raises(BrokerUnavailableError, match="closed"):
        await producer.send(topic, b"")


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"broker": "localhost"}, InvalidRequestError),
        ({"broker": "localhost:port"}, InvalidRequestError),
        ({"compression": "brotli"}, UnsupportedCompressionError),
        ({"batch_bytes": 0}, InvalidRequestError),
        ({"linger_ms": -1}, InvalidRequestError),
        ({"max_requests_in_flight": 0}, InvalidRequestError),
    ],
)
def test_settings_without_sense_are_refused(settings: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Producer(**{"broker": "localhost:1", **settings})


def test_partitions_are_named_by_topic_and_number() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"
