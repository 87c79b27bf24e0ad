"""Reading a whole topic, and what must hold of it."""

from __future__ import annotations

from collections import defaultdict

from logbroker.client import Consumer, Record


async def read_all(address: str, topic: str) -> list[Record]:
    """Return what the topic holds now."""
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        return [record async for record in consumer.until_end()]


def numbers_by_key(records: list[Record]) -> dict[bytes, list[int]]:
    """Return the values, which are numbers, of each key in the order of the log."""
    numbers: dict[bytes, list[int]] = defaultdict(list)
    for record in records:
        numbers[record.key or b""].append(int(record.value or b""))
    return numbers
