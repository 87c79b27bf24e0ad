"""A producer's choice of partitions, made again where a topic grows meanwhile."""

from __future__ import annotations

import pytest

from logbroker.client import Admin, Producer
from logbroker.client.producer.delivery import Delivery
from logbroker.record.partitioner import partition_for_key
from tests.client.reading import read_all


async def create(address: str, topic: str, partitions: int) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, partitions)


async def test_an_ordering_key_chooses_the_partition_instead_of_the_key(address: str, topic: str) -> None:
    await create(address, topic, 8)
    async with Producer(address) as producer:
        for number in range(50):
            tenant = b"tenant-%d" % (number % 7)
            headers = (("tenant", tenant),)
            placed = await producer.send_and_wait(topic, b"", b"%d" % number, headers=headers, ordering_key=tenant)
            assert placed.partition == partition_for_key(tenant, 8)
        assert (await producer.send_and_wait(topic, b"", ordering_key=b"x", partition=3)).partition == 3
    assert {record.key for record in await read_all(address, topic)} == {None, *(b"%d" % n for n in range(50))}


@pytest.mark.parametrize("by_ordering_key", [False, True])
async def test_growth_routes_again_what_was_not_appended(address: str, topic: str, *, by_ordering_key: bool) -> None:
    """The keys of the records choose the partitions, or the ordering keys beside them."""
    await create(address, topic, 2)
    keys = [b"key-%d" % number for number in range(30)]
    sent: list[tuple[Delivery, bytes]] = []
    async with Producer(address, batch_bytes=500, max_requests_in_flight=2) as producer, Admin(address) as admin:

        async def send(first: int, last: int) -> None:
            for number in range(first, last):
                key = keys[number % 30]
                own_key, ordering_key = (None, key) if by_ordering_key else (key, None)
                sent.append((await producer.send(topic, b"%d" % number, own_key, ordering_key=ordering_key), key))

        by_hand = await producer.send(topic, b"0", b"by hand", partition=1)
        await send(0, 3000)
        await admin.alter_topic(topic, partitions=5)
        await send(3000, 6000)
        await producer.flush()
        assert (await by_hand).partition == 1
        assert (await producer.send_and_wait(topic, b"1", b"by hand", partition=4)).partition == 4
        generations = (await admin.describe_topic(topic)).generations
        places = [(await delivery, key) for delivery, key in sent]
    records = await read_all(address, topic)
    assert len(records) == 6002
    stored = {(record.partition, record.offset): record for record in records}
    fence = generations[-1].start_offsets
    for number, (place, key) in enumerate(places):
        record = stored[place.partition, place.offset]
        assert (record.value, record.timestamp_ms) == (b"%d" % number, place.timestamp_ms)
        assert record.key == (None if by_ordering_key else key)
        old = place.partition < 2 and place.offset < fence[place.partition]
        assert place.partition == partition_for_key(key, 2 if old else 5)
    for key in keys:
        mine = [stored[place.partition, place.offset] for place, its_key in places if its_key == key]
        generation = [record.partition < 2 and record.offset < fence[record.partition] for record in mine]
        assert generation == sorted(generation, reverse=True), "a record of the old generation after one of the new"
        for partition in range(5):
            offsets = [record.offset for record in mine if record.partition == partition]
            assert offsets == sorted(offsets)
