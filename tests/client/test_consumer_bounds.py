"""Bounded loops and what they leave out, and the end of a loop that would wait for ever."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from logbroker.client import Admin, Consumer, Producer, Record, TopicPartition
from logbroker.errors import BrokerUnavailableError, OffsetOutOfRangeError


async def create(address: str, topic: str, records: tuple[int, ...]) -> list[TopicPartition]:
    """Create a topic with so many records in each partition, in batches of one."""
    async with Admin(address) as admin, Producer(address, batch_bytes=1) as producer:
        await admin.create_topic(topic, len(records))
        for partition, count in enumerate(records):
            for _ in range(count):
                await producer.send(topic, b"", partition=partition)
    return [TopicPartition(topic, partition) for partition in range(len(records))]


async def read_ahead(consumer: Consumer) -> set[int]:
    """Wait until something is read ahead; return of which partitions."""
    while not (found := {chunk.assigned.partition.partition for chunk in consumer._core.fetcher._chunks}):
        await asyncio.sleep(0.01)
    return found


async def until_end(consumer: Consumer) -> list[Record]:
    async with asyncio.timeout(25):
        return [record async for record in consumer.until_end()]


async def poll_for_ever(consumer: Consumer) -> None:
    while True:
        await consumer.poll(timeout_seconds=25)


@pytest.mark.parametrize("group", [None, "readers"])
async def test_what_comes_where_the_end_was_reached_before_is_read_later(
    address: str, topic: str, group: str | None
) -> None:
    _, empty = await create(address, topic, (100, 0))
    ahead: set[int] = set()
    seen: list[Record] = []
    async with Consumer(address, group=group and topic, buffer_bytes=500) as consumer, Producer(address) as producer:
        await (consumer.subscribe(topic) if group else consumer.assign(topic))
        async for record in consumer.until_end():
            seen.append(record)
            if len(seen) == 1:
                await producer.send_and_wait(topic, b"later", partition=empty.partition)
            if empty.partition not in ahead and len(seen) < 90:
                ahead |= await read_ahead(consumer)
        assert len(seen) == 100
        assert empty.partition in ahead
        assert [record.value for record in await consumer.poll(timeout_seconds=25)] == [b"later"]


async def test_a_bounded_loop_does_not_wait_for_what_is_paused(address: str, topic: str) -> None:
    one, _ = await create(address, topic, (10, 10))
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        consumer.pause(one)
        assert len(await until_end(consumer)) == 10
        consumer.resume()
        assert len(await until_end(consumer)) == 10
        await consumer.seek_to_beginning()
        seen = 0
        async with asyncio.timeout(25):
            async for _ in consumer.until_end():
                seen += 1
                consumer.pause(one)
        assert 10 <= seen <= 11
        consumer.resume()
        assert len(await until_end(consumer)) == 20 - seen


@pytest.mark.prove
async def test_nor_for_a_partition_that_an_error_has_ended(address: str, topic: str) -> None:
    one, two = await create(address, topic, (10, 10))
    async with Consumer(address) as consumer:
        await consumer.assign([one, two])
        await consumer.seek(one, 1000)
        with pytest.raises(OffsetOutOfRangeError):
            await poll_for_ever(consumer)
        await consumer.seek(two, 0)
        async with Producer(address, batch_bytes=1) as producer:
            for _ in range(1000):
                await producer.send(topic, b"", partition=0)
        assert {record.partition for record in await until_end(consumer)} == {1}
        await consumer.seek(one, 1000)
        assert len(await until_end(consumer)) == 10


async def test_an_assignment_changes_what_a_bounded_loop_waits_for(address: str, topic: str) -> None:
    one, two = await create(address, topic, (10, 10))
    async with Consumer(address) as consumer:
        await consumer.assign([one, two])
        seen: list[Record] = []
        async with asyncio.timeout(25):
            async for record in consumer.until_end():
                seen.append(record)
                if len(seen) == 1:
                    await consumer.assign(two, 5)
        assert [record.offset for record in seen[1:]] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("group", [None, "readers"])
@pytest.mark.parametrize("how", ["poll", "loop", "batches"])
async def test_closing_ends_a_wait_for_records(address: str, topic: str, how: str, group: str | None) -> None:
    """A caller that would wait for ever is told, as is one that asks later."""
    await create(address, topic, (1,))
    consumer = Consumer(address, group=group and topic)
    await (consumer.subscribe(topic) if group else consumer.assign(topic))

    async def read(seen: list[object]) -> None:
        while how == "poll":
            seen += await consumer.poll(timeout_seconds=60)
        async for something in consumer if how == "loop" else consumer.batches():
            seen += [something]

    seen: list[object] = []
    reading = asyncio.create_task(read(seen))
    while not (seen and consumer._core.fetcher.waiting):
        await asyncio.sleep(0.01)
    await consumer.close()
    with pytest.raises(BrokerUnavailableError, match="closed"):
        async with asyncio.timeout(25):
            await reading
    with pytest.raises(BrokerUnavailableError, match="closed"):
        await read([])
    await consumer.close()


async def test_a_second_close_tells_nobody_again(address: str, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    await create(address, topic, (1,))
    revoked: list[list[TopicPartition]] = []
    async with Consumer(address, group=topic) as consumer:
        await consumer.subscribe(topic, on_revoked=revoked.append)
        assert await consumer.poll(timeout_seconds=25)
        await consumer.close()
    assert len(revoked) == 1
    assert "not committed" not in caplog.text


async def test_a_close_that_is_given_up_lets_go_of_everything(address: str, topic: str) -> None:
    await create(address, topic, (1,))
    consumer = Consumer(address, group=topic)
    await consumer.subscribe(topic)
    assert await consumer.poll(timeout_seconds=25)
    before = asyncio.all_tasks()
    closing = asyncio.create_task(consumer.close())
    while not consumer._core._group or not consumer._core._group.member.is_leaving:
        await asyncio.sleep(0)
    closing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await closing
    async with asyncio.timeout(25):
        await asyncio.gather(*before - {asyncio.current_task()}, return_exceptions=True)


@pytest.mark.parametrize("arrived", [0, 1, 2])
async def test_a_position_that_is_reset_before_the_loop_begins_is_gone_on_from(
    address: str, topic: str, arrived: int
) -> None:
    """Whatever the stream has brought by then: nothing, the place to go on at, or records from there."""
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic(topic, 1)
        for number in range(3):
            await producer.send(topic, b"%d" % number)
    async with Consumer(address, auto_offset_reset="earliest") as consumer:
        await consumer.assign(TopicPartition(topic, 0), 7)
        async with asyncio.timeout(25):
            while len(consumer._core.fetcher._chunks) < arrived:
                await asyncio.sleep(0.001)
        assert [record.offset for record in await until_end(consumer)] == [0, 1, 2]
