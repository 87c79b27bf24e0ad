"""The consumer against a real broker."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from logbroker.client import Admin, Consumer, Producer, Record, TopicPartition
from logbroker.client.transport.connection import Connection
from logbroker.errors import (
    BatchExpandsTooFarError,
    CorruptBatchError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logbroker.record.codec import NewRecord, encode_batch, with_producer
from logbroker.record.partitioner import partition_for_key
from logbroker.v1 import log_pb2

START_MS = 1_700_000_000_000


async def fill(address: str, topic: str, records: int, partitions: int = 1, batch_bytes: int = 1000) -> None:
    """Create a topic with records of the values 0, 1, ... that lie a second apart, spread evenly."""
    async with Admin(address) as admin, Producer(address, batch_bytes=batch_bytes) as producer:
        # The records are old, and the broker lives longer than it takes until old ones go.
        await admin.create_topic(topic, partitions, {"retention.ms": "-1"})
        for number in range(records):
            await producer.send(
                topic, b"%d" % number, partition=number % partitions, timestamp_ms=START_MS + 1000 * number
            )


async def produce_batch(address: str, topic: str, batch: bytes, partition: int = 0) -> None:
    connection = Connection(address, request_timeout_seconds=25)
    item = log_pb2.ProduceItem(topic=topic, partition=partition, batch=batch)
    response = await connection.unary("Produce", log_pb2.ProduceRequest(items=[item]))
    assert not response.results[0].status.code, response
    await connection.close()


async def take(consumer: Consumer, count: int) -> list[Record]:
    records: list[Record] = []
    async with asyncio.timeout(20):
        async for record in consumer:
            records.append(record)
            if len(records) == count:
                break
    return records


async def poll_for_ever(consumer: Consumer, seen: list[Record]) -> None:
    while True:
        seen += await consumer.poll(timeout_seconds=25)


def offsets(records: list[Record]) -> list[int]:
    return [record.offset for record in records]


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 0),
        (0, 0),
        (37, 37),
        (datetime.datetime.fromtimestamp(START_MS / 1000 + 55, datetime.UTC), 55),
        (datetime.datetime.fromtimestamp(START_MS / 1000 + 55.001, datetime.UTC), 56),
        (datetime.datetime.fromtimestamp(0, datetime.UTC), 0),
    ],
)
async def test_reading_begins_where_it_is_told(address: str, topic: str, start: Any, first: int) -> None:
    await fill(address, topic, 100)
    async with Consumer(address) as consumer:
        await consumer.assign(topic, start)
        assert consumer.position(TopicPartition(topic, 0)) == first
        assert [record.offset async for record in consumer.until_end()] == list(range(first, 100))
        assert consumer.position(TopicPartition(topic, 0)) == 100


@pytest.mark.parametrize("start", ["latest", datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)])
async def test_reading_from_the_end_sees_only_what_comes(address: str, topic: str, start: Any) -> None:
    await fill(address, topic, 10)
    async with Consumer(address) as consumer, Producer(address) as producer:
        await consumer.assign(topic, start)
        assert [record async for record in consumer.until_end()] == []
        assert await consumer.poll(timeout_seconds=0.01) == []
        await producer.send_and_wait(topic, b"new")
        assert [record.value for record in await consumer.poll(timeout_seconds=25)] == [b"new"]


async def test_a_loop_that_was_left_goes_on_at_the_next_record(address: str, topic: str) -> None:
    await fill(address, topic, 100)
    partition = TopicPartition(topic, 0)
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        assert offsets(await take(consumer, 7)) == list(range(7))
        assert consumer.position(partition) == 7
        assert offsets(await consumer.poll(max_records=5)) == list(range(7, 12))
        assert consumer.position(partition) == 12
        async for records in consumer.batches():
            assert offsets(records)[0] == 12
            break
        assert consumer.position(partition) == records[-1].offset + 1
        async for record in consumer.until_end():
            assert record.offset == records[-1].offset + 1
            break
        assert [record.offset async for record in consumer.until_end()] == list(range(record.offset + 1, 100))


async def test_poll_fills_up_from_what_has_arrived(address: str, topic: str) -> None:
    await fill(address, topic, 500)
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        seen: list[Record] = []
        while len(seen) < 500:
            records = await consumer.poll(max_records=200, timeout_seconds=25)
            assert 0 < len(records) <= 200
            seen += records
        assert offsets(seen) == list(range(500))


async def test_seeking_drops_what_was_read_ahead(address: str, topic: str) -> None:
    await fill(address, topic, 300)
    partition = TopicPartition(topic, 0)
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        await take(consumer, 10)
        for offset in (250, 3, 3, 77):
            await consumer.seek(partition, offset)
            assert consumer.position(partition) == offset
            assert offsets(await take(consumer, 4)) == list(range(offset, offset + 4))
        await consumer.seek_to_time(partition, START_MS + 123_000)
        assert offsets(await take(consumer, 1)) == [123]
        await consumer.seek_to_beginning()
        assert offsets(await take(consumer, 1)) == [0]
        await consumer.seek_to_end(partition)
        assert consumer.position(partition) == 300


async def test_seeking_inside_a_loop_moves_the_loop(address: str, topic: str) -> None:
    await fill(address, topic, 100)
    seen = []
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        async for record in consumer.until_end():
            seen.append(record.offset)
            if record.offset == 5 and len(seen) < 10:
                await consumer.seek(TopicPartition(topic, 0), 2)
    assert seen == [0, 1, 2, 3, 4, 5, *range(2, 100)]


async def test_a_paused_partition_rests_and_loses_nothing(address: str, topic: str) -> None:
    await fill(address, topic, 600, partitions=3)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        seen = await take(consumer, 10)
        consumer.pause(one, two)
        rest = await take(consumer, 200 - sum(record.partition == 2 for record in seen))
        assert {record.partition for record in rest} == {2}
        assert await consumer.poll(timeout_seconds=0.05) == []
        consumer.resume()
        seen += rest
        while len(seen) < 600:
            seen += await consumer.poll(timeout_seconds=25)
    for number in range(3):
        assert [record.offset for record in seen if record.partition == number] == list(range(200))


async def test_until_end_stops_at_what_the_end_was(address: str, topic: str) -> None:
    await fill(address, topic, 90, partitions=3)
    async with Consumer(address) as consumer, Producer(address) as producer:
        await consumer.assign(topic)
        seen = []
        async for record in consumer.until_end():
            seen.append(record)
            for number in range(3):
                await producer.send(topic, b"later", partition=number)
            await producer.flush()
        assert len(seen) == 90
        # What came later was left out, and is not lost.
        later: list[Record] = []
        while len(later) < 270:
            later += await consumer.poll(timeout_seconds=25)
        assert {record.value for record in later} == {b"later"}
        assert min(record.offset for record in later) == 30


async def test_several_topics_and_single_partitions_are_read_together(address: str, topic: str) -> None:
    await fill(address, topic, 30, partitions=3)
    await fill(address, topic + "-other", 5)
    wanted: list[str | TopicPartition] = [TopicPartition(topic, 2), topic + "-other"]
    async with Consumer(address) as consumer:
        await consumer.assign(wanted)
        assert consumer.assignment() == [TopicPartition(topic, 2), TopicPartition(topic + "-other", 0)]
        assert await consumer.end_offsets() == {TopicPartition(topic, 2): 10, TopicPartition(topic + "-other", 0): 5}
        assert await consumer.beginning_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 0}
        assert len([record async for record in consumer.until_end()]) == 15
        await consumer.assign(TopicPartition(topic, 0), 8)
        assert [record.offset async for record in consumer.until_end()] == [8, 9]


async def test_an_offset_that_is_not_there_raises_once_and_seek_starts_again(address: str, topic: str) -> None:
    await fill(address, topic, 20, partitions=2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        await consumer.seek(one, 1000)
        seen: list[Record] = []
        with pytest.raises(OffsetOutOfRangeError):
            await poll_for_ever(consumer, seen)
        while len(seen) < 10:
            seen += await consumer.poll(timeout_seconds=25)
        assert {record.partition for record in seen} == {two.partition}
        await consumer.seek(one, 4)
        assert offsets(await consumer.poll(timeout_seconds=25)) == list(range(4, 10))


@pytest.mark.parametrize(("policy", "expected"), [("earliest", list(range(10))), ("latest", [10])])
async def test_an_offset_that_is_not_there_may_mean_an_end_of_the_log(
    address: str, topic: str, policy: Any, expected: list[int]
) -> None:
    await fill(address, topic, 10)
    async with Consumer(address, on_out_of_range=policy) as consumer, Producer(address) as producer:
        await consumer.assign(topic, start=1000)
        if policy == "latest":
            assert await consumer.poll(timeout_seconds=0.2) == []
            await producer.send_and_wait(topic, b"new")
        assert offsets(await consumer.poll(timeout_seconds=25)) == expected


async def test_a_topic_that_goes_away_is_said_to_be_gone(address: str, topic: str) -> None:
    """And the new one of the same name is not taken for it."""
    await fill(address, topic, 5)
    async with Consumer(address) as consumer, Admin(address) as admin:
        await consumer.assign(topic)
        assert len(await take(consumer, 5)) == 5
        await admin.delete_topic(topic)
        await admin.create_topic(topic)
        with pytest.raises(UnknownTopicError):
            await take(consumer, 1)


async def test_a_topic_that_was_created_again_meanwhile_is_not_read_on(address: str, topic: str) -> None:
    """The partition is not in the stream while the topic goes away."""
    await fill(address, topic, 5)
    async with Consumer(address) as consumer, Admin(address) as admin:
        await consumer.assign(topic)
        assert len(await take(consumer, 2)) == 2
        consumer.pause()
        await admin.delete_topic(topic)
        await fill(address, topic, 10)
        consumer.resume()
        with pytest.raises(UnknownTopicError):
            await take(consumer, 1)


async def test_a_bomb_ends_its_partition_and_no_other(address: str, topic: str) -> None:
    await fill(address, topic, 4, partitions=2)
    async with Producer(address, compression="zstd") as producer:
        await producer.send(topic, bytes(900_000), partition=0)
        await producer.send(topic, b"after", partition=0)
        await producer.send(topic, b"other", partition=1)
    async with Consumer(address, max_expanded_bytes=100_000) as consumer:
        await consumer.assign(topic)
        seen: list[Record] = []
        with pytest.raises(BatchExpandsTooFarError, match=rf"{topic}-0, offset 2: .*seek to 3;.*segment dump"):
            await poll_for_ever(consumer, seen)
        while len(seen) < 5:
            seen += await consumer.poll(timeout_seconds=25)
        assert sorted((record.partition, record.offset) for record in seen) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
        # Whoever knows better may step over it.
        position = consumer.position(TopicPartition(topic, 0))
        assert position == 2
        await consumer.seek(TopicPartition(topic, 0), position + 2)
        assert await consumer.poll(timeout_seconds=0.05) == []


async def test_a_batch_whose_records_are_damaged_is_told_after_those_before_it(address: str, topic: str) -> None:
    """The broker stores what has a right header and CRC; whoever decodes finds the rest."""
    await fill(address, topic, 3)
    batch = bytearray(encode_batch([NewRecord(b"fine"), NewRecord(b"damaged")]))
    batch[-2 - len(b"damaged")] = 0x7E  # the length of the last value
    await produce_batch(address, topic, with_producer(bytes(batch), -1, -1, -1))
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        seen = await take(consumer, 4)
        with pytest.raises(CorruptBatchError, match=rf"{topic}-0, offset 4: .*seek to 5;.*segment dump"):
            await take(consumer, 1)
        assert [record.value for record in seen] == [b"0", b"1", b"2", b"fine"]
        assert consumer.position(TopicPartition(topic, 0)) == 4


async def test_read_ahead_is_bounded_and_goes_on_as_records_are_taken(address: str, topic: str) -> None:
    await fill(address, topic, 4000, partitions=2, batch_bytes=2000)
    async with Consumer(address, buffer_bytes=10_000) as consumer:
        await consumer.assign(topic)
        largest = 0
        seen = 0
        async for _ in consumer.until_end():
            seen += 1
            largest = max(largest, consumer._core.fetcher._buffered_bytes)
        assert seen == 4000
        assert largest <= 10_000 + 2_000


async def test_assign_refuses_what_is_not_there(address: str, topic: str) -> None:
    await fill(address, topic, 3)
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        for wish, start, error in (
            ("nowhere", "earliest", UnknownTopicError),
            (TopicPartition(topic, 7), "earliest", UnknownPartitionError),
            (topic, -1, InvalidRequestError),
            (topic, "middle", InvalidRequestError),
        ):
            with pytest.raises(error):
                await consumer.assign(wish, start)  # type: ignore[arg-type]
        assert consumer.assignment() == [TopicPartition(topic, 0)]
        assert len(await consumer.poll(timeout_seconds=25)) == 3
        with pytest.raises(InvalidRequestError, match="not assigned"):
            consumer.position(TopicPartition(topic, 1))
        with pytest.raises(InvalidRequestError):
            await consumer.seek(TopicPartition(topic, 0), -1)


async def test_nothing_assigned_is_said_to_be_so(address: str) -> None:
    async with Consumer(address) as consumer:
        with pytest.raises(InvalidRequestError, match="assign"):
            await consumer.poll(timeout_seconds=0.01)


async def test_a_key_can_be_followed_on_its_partition(address: str, topic: str) -> None:
    async with Admin(address) as admin, Producer(address) as producer, Consumer(address) as consumer:
        await admin.create_topic(topic, 8)
        for number in range(400):
            await producer.send(topic, b"%d" % number, b"key-%d" % (number % 20))
        await producer.flush()
        await consumer.assign(TopicPartition(topic, partition_for_key(b"key-7", 8)))
        values = [record.value async for record in consumer.until_end() if record.key == b"key-7"]
    assert values == [b"%d" % number for number in range(7, 400, 20)]
