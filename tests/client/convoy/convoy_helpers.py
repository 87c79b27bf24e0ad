"""Helpers shared by the tests of convoys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from logbroker.client import Admin, Producer
from logbroker.client.convoy.done_offsets import decode

DEADLINE_SECONDS = 40


async def send(address: str, topic: str, keys: list[bytes | None], *, partition: int | None = None) -> None:
    """Send a record of each key, with the values 0, 1, ..."""
    async with Producer(address) as producer:
        for number, key in enumerate(keys):
            await producer.send(topic, b"%d" % number, key=key, partition=partition)


async def create(address: str, topic: str, partitions: int, keys: list[bytes | None]) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, partitions)
    await send(address, topic, keys)


async def stored(address: str, group: str) -> dict[int, tuple[int, set[int]]]:
    """Return the committed offset of each partition, and what is said to be done beyond it."""
    async with Admin(address) as admin:
        found = await admin.fetch_offsets(group)
    offsets = {}
    for (_, partition), committed in found.items():
        done = decode(committed.metadata, committed.offset)
        ranges = [] if done is None else done.ranges
        offsets[partition] = committed.offset, {each for first, end in ranges for each in range(first, end)}
    return offsets


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not holds():
            await asyncio.sleep(0.005)
