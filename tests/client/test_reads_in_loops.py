"""The body of a loop over records may use its consumer: read, move and assign. Nothing is skipped or repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import pytest

from logbroker import client
from logbroker.client import Record, TopicPartition
from logbroker.client.sync import Admin, Consumer, Producer

RECORDS = 120
"""In each of two partitions, in two batches each."""

LOOPS: dict[str, Callable[[Any], Any]] = {
    "records": lambda consumer: consumer.until_end(),
    "batches": lambda consumer: consumer.batches(until_end=True),
    "small batches": lambda consumer: consumer.batches(until_end=True, max_records=7),
    "batches of few bytes": lambda consumer: consumer.batches(until_end=True, max_bytes=20),
}
READS: dict[str, Callable[[Any], Any]] = {
    "poll of 3": lambda consumer: consumer.poll(max_records=3),
    "poll": lambda consumer: consumer.poll(timeout_seconds=0),
    "poll of few bytes": lambda consumer: consumer.poll(max_bytes=10),
    "one record": lambda consumer: consumer.until_end(),
    "one batch": lambda consumer: consumer.batches(until_end=True, max_records=2),
    "one record without end": lambda consumer: iter(consumer) if isinstance(consumer, Consumer) else consumer,
}


def fill(address: str, topic: str, *counts: int, batches: int = 2) -> list[TopicPartition]:
    """Create a topic with so many records in each partition."""
    with Admin(address) as admin, Producer(address) as producer:
        admin.create_topic(topic, len(counts))
        sent = [0 for _ in counts]
        for _ in range(batches):
            for partition, count in enumerate(counts):
                for _ in range(max(1, count // batches) if sent[partition] < count else 0):
                    sent[partition] += 1
                    producer.send(topic, b"v" * 5, partition=partition)
            producer.flush()
    return [TopicPartition(topic, partition) for partition in range(len(counts))]


def listed(given: Record | list[Record]) -> list[Record]:
    return [given] if isinstance(given, Record) else given


def places(records: Iterable[Record]) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for record in records)


EVERYTHING = [(partition, offset) for partition in range(2) for offset in range(RECORDS)]


def assign(consumer: Consumer, topic: str, group: str | None) -> None:
    if group:
        consumer.subscribe(topic)
    else:
        consumer.assign(topic)


def read_once(read: Any) -> list[Record]:
    """Take what one read gives: a list, or the first of a loop that is then left."""
    return read if isinstance(read, list) else next((listed(each) for each in read), [])


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize("group", [None, "group"])
@pytest.mark.parametrize("inner", READS)
@pytest.mark.parametrize("outer", LOOPS)
def test_a_read_in_the_body_of_a_loop_skips_nothing(
    address: str, topic: str, outer: str, inner: str, group: str | None
) -> None:
    fill(address, topic, RECORDS, RECORDS)
    seen: list[Record] = []
    with Consumer(address, group=group and topic) as consumer:
        assign(consumer, topic, group)
        for given in LOOPS[outer](consumer):
            seen += listed(given)
            if len(seen) < 2 * RECORDS - 10:
                seen += read_once(READS[inner](consumer))
        seen += consumer.poll(timeout_seconds=0)
        assert places(seen) == EVERYTHING
        assert [consumer.position(each) for each in consumer.assignment()] == [RECORDS, RECORDS]


async def read_once_async(read: Any) -> list[Record]:
    if asyncio.iscoroutine(read):
        records: list[Record] = await read
        return records
    async for each in read:
        return listed(each)
    return []


@pytest.mark.parametrize("inner", READS)
@pytest.mark.parametrize("outer", LOOPS)
async def test_nor_does_one_in_an_async_loop(address: str, topic: str, outer: str, inner: str) -> None:
    await asyncio.to_thread(fill, address, topic, RECORDS, RECORDS)
    seen: list[Record] = []
    async with client.Consumer(address) as consumer:
        await consumer.assign(topic)
        async for given in LOOPS[outer](consumer):
            seen += listed(given)
            if len(seen) < 2 * RECORDS - 10:
                seen += await read_once_async(READS[inner](consumer))
        seen += await consumer.poll(timeout_seconds=0)
        assert places(seen) == EVERYTHING


@pytest.mark.parametrize("outer", LOOPS)
def test_loops_that_take_turns_share_the_records(address: str, topic: str, outer: str) -> None:
    fill(address, topic, RECORDS, RECORDS)
    seen: list[Record] = []
    with Consumer(address) as consumer:
        consumer.assign(topic)
        loops: list[Iterator[Any]] = [
            iter(LOOPS[outer](consumer)),
            consumer.until_end(),
            consumer.batches(until_end=True, max_records=11),
        ]
        while loops:
            for loop in list(loops):
                if (given := next(loop, None)) is None:
                    loops.remove(loop)
                else:
                    seen += listed(given)
        assert places(seen) == EVERYTHING


def read_by(read: str, consumer: Consumer) -> list[Record]:
    return consumer.poll(max_records=1) if read == "poll" else read_once(consumer.until_end())


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize("group", [None, "group"])
@pytest.mark.parametrize("inner", ["poll", "loop"])
@pytest.mark.parametrize("outer", LOOPS)
def test_a_read_may_begin_a_partition_that_the_loop_has_left(
    address: str, topic: str, outer: str, inner: str, group: str | None
) -> None:
    """The read gets one of several batches that arrived together; the next loop gets the others."""
    fill(address, topic, 2, RECORDS, batches=RECORDS // 2)
    seen: list[Record] = []
    has_grown = False
    with (
        Producer(address, batch_bytes=1) as producer,
        Consumer(address, group=group and topic, buffer_bytes=1000) as consumer,
    ):
        assign(consumer, topic, group)
        for given in LOOPS[outer](consumer):
            seen += listed(given)
            positions = [consumer.position(each) for each in consumer.assignment()]
            if not has_grown and min(positions) == 2 and max(positions) > 4:
                has_grown = True
                for _ in range(5):
                    producer.send(topic, b"later", partition=0)
                producer.flush()
                while (0, 2) not in places(seen):
                    seen += read_by(inner, consumer)
        assert has_grown
        seen += list(consumer.until_end())
        assert places(seen) == [(0, offset) for offset in range(7)] + [(1, offset) for offset in range(RECORDS)]


@pytest.mark.parametrize("outer", ["records", "batches"])
def test_a_loop_without_end_goes_on_after_one_with_an_end(address: str, topic: str, outer: str) -> None:
    """The outer loop reads what arrived behind the end of the inner one."""
    fill(address, topic, RECORDS, RECORDS)
    seen: list[Record] = []
    with Producer(address) as producer, Consumer(address) as consumer:
        consumer.assign(topic)
        loop: Iterable[Record | list[Record]] = consumer if outer == "records" else consumer.batches()
        for number, given in enumerate(loop):
            seen += listed(given)
            if number == 0:
                for record in consumer.until_end():
                    seen.append(record)
                    if len(seen) == RECORDS:
                        producer.send_and_wait(topic, b"later", partition=0)
                        producer.send_and_wait(topic, b"later", partition=1)
            if len(seen) == 2 * RECORDS + 2:
                break
    assert places(seen) == sorted([*EVERYTHING, (0, RECORDS), (1, RECORDS)])


@pytest.mark.parametrize("outer", LOOPS)
def test_an_assignment_in_the_body_is_read_to_its_end(address: str, topic: str, outer: str) -> None:
    """Also in partitions that the loop had read to their end, and in topics that are new to it."""
    partitions = fill(address, topic, 10, RECORDS)
    fill(address, other := f"{topic}-other", 20)
    seen: list[Record] = []
    has_assigned = False
    with Consumer(address) as consumer:
        consumer.assign(topic)
        for given in LOOPS[outer](consumer):
            seen += listed(given)
            if not has_assigned and all(consumer.position(each) >= 10 for each in partitions):
                has_assigned = True
                seen.clear()
                consumer.assign([topic, other])
    assert has_assigned
    assert places(record for record in seen if record.topic == topic) == [
        *((0, offset) for offset in range(10)),
        *((1, offset) for offset in range(RECORDS)),
    ]
    assert places(record for record in seen if record.topic == other) == [(0, offset) for offset in range(20)]


async def test_an_assignment_in_an_async_body_is_read_to_its_end(address: str, topic: str) -> None:
    partitions = await asyncio.to_thread(fill, address, topic, 10, RECORDS)
    loops: list[Callable[[client.Consumer], AsyncIterator[Any]]] = [LOOPS["records"], LOOPS["batches"]]
    for loop in loops:
        async with client.Consumer(address) as consumer:
            await consumer.assign(topic)
            seen: list[Record] = []
            has_assigned = False
            async for given in loop(consumer):
                seen += listed(given)
                if not has_assigned and all(consumer.position(each) >= 10 for each in partitions):
                    has_assigned = True
                    seen.clear()
                    await consumer.assign(topic)
        assert has_assigned
        assert len(places(seen)) == 10 + RECORDS


@pytest.mark.parametrize("outer", LOOPS)
def test_a_partition_that_is_moved_back_is_read_again_after_another_loop(address: str, topic: str, outer: str) -> None:
    partitions = fill(address, topic, RECORDS, RECORDS)
    seen: list[Record] = []
    moved: TopicPartition | None = None
    with Consumer(address) as consumer:
        consumer.assign(topic)
        for given in LOOPS[outer](consumer):
            seen += listed(given)
            if moved is None:
                moved = next((each for each in partitions if consumer.position(each) == RECORDS), None)
                if moved is not None:
                    seen += read_once(consumer.until_end())
                    consumer.seek(moved, 5)
    assert moved is not None
    assert places(seen) == sorted([*EVERYTHING, *((moved.partition, offset) for offset in range(5, RECORDS))])
