"""Reading a whole topic, and what must hold of it."""

from __future__ import annotations

from collections import defaultdict

from logbroker.client import Admin, Consumer, Record


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


async def numbers_over_growth(address: str, topic: str) -> dict[bytes, list[int]]:
    """Return the same of a topic that grew: first what a key has in an older generation, then that in a newer one."""
    async with Admin(address) as admin:
        generations = (await admin.describe_topic(topic)).generations[1:]

    def place(record: Record) -> tuple[int, int]:
        starts = [each.start_offsets[record.partition : record.partition + 1] for each in generations]
        return sum(not start or start[0] <= record.offset for start in starts), record.offset

    return numbers_by_key(sorted(await read_all(address, topic), key=place))
