"""Helpers shared by the tests of group members."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypedDict

from logbroker.client import Admin, Consumer, Producer, Record, TopicPartition


async def fill(address: str, topic: str, partitions: int, records: int) -> None:
    """Create a topic of records with the values 0, 1, ..., spread evenly."""
    async with Admin(address) as admin:
        await admin.create_topic(topic, partitions)
    await add(address, topic, partitions, records)


async def add(address: str, topic: str, partitions: int, records: int) -> None:
    async with Producer(address, batch_bytes=500) as producer:
        for number in range(records):
            await producer.send(topic, b"%d" % number, partition=number % partitions)


class Listeners(TypedDict):
    on_assigned: Callable[[list[TopicPartition]], None]
    on_revoked: Callable[[list[TopicPartition]], None]
    on_lost: Callable[[list[TopicPartition]], None]


class Events:
    """Calls of several members' callbacks, in order."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str, list[int]]] = []

    def listen(self, name: str) -> Listeners:
        def noting(kind: str) -> Callable[[list[TopicPartition]], None]:
            return lambda partitions: self.all.append((name, kind, sorted(number for _, number in partitions)))

        return {"on_assigned": noting("assigned"), "on_revoked": noting("revoked"), "on_lost": noting("lost")}


def numbers(consumer: Consumer) -> list[int]:
    return sorted(number for _, number in consumer.assignment())


async def settle(*consumers: Consumer, partitions: int) -> None:
    """Let all ask for records until together they hold so many partitions, and none is asked to change."""
    async with asyncio.timeout(20):
        while True:
            for records in await asyncio.gather(*(consumer.poll(timeout_seconds=0.02) for consumer in consumers)):
                assert not records, "settle before there are records"
            sizes = [len(consumer.assignment()) for consumer in consumers]
            if sum(sizes) == partitions and max(sizes) - min(sizes) <= 1:
                return


async def take(consumer: Consumer, count: int) -> list[Record]:
    """Take so many records in a loop; the last one is in hand."""
    records: list[Record] = []
    async with asyncio.timeout(20):
        async for record in consumer:
            records.append(record)
            if len(records) == count:
                break
    return records


async def drain(consumer: Consumer, count: int) -> list[Record]:
    """Take so many records by lists."""
    records: list[Record] = []
    async with asyncio.timeout(20):
        while len(records) < count:
            records += await consumer.poll(timeout_seconds=0.2)
    return records


async def committed(address: str, group: str) -> dict[int, int]:
    async with Admin(address) as admin:
        found = await admin.fetch_offsets(group)
    return {partition: offset.offset for (_, partition), offset in found.items()}


async def wait_for_commit(address: str, group: str, expected: dict[int, int]) -> None:
    async with asyncio.timeout(20):
        while await committed(address, group) != expected:
            await asyncio.sleep(0.02)


async def rest(consumer: Consumer) -> list[Record]:
    return [record async for record in consumer.until_end()]
