"""Producers and consumers of topics with bands: where records go by priority and key, and who reads which band."""

from __future__ import annotations

import asyncio
import itertools
import random
import warnings
from collections.abc import Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.client import Admin, Consumer, Producer, Record, TopicInfo, TopicPartition, sync
from logbroker.client.producer.topic_route import TopicRoute
from logbroker.embedded_broker import embedded
from logbroker.errors import InvalidRequestError
from logbroker.record.bands import Band, parse_bands, partitions_of
from logbroker.record.partitioner import PartitionCache
from logbroker.types import TopicId
from tests.client.group_helpers import drain, numbers
from tests.client.reading import read_all
from tests.record.test_bands import band_texts

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python still uses importlib.resources.read_text
    from kafka.partitioner.default import murmur2

BANDS = "hot=7-9:1,warm=4-6:2,cold=0-3:8"
HOT, WARM, COLD = parse_bands(BANDS)


async def create(address: str, topic: str, routing: str = "priority") -> TopicInfo:
    async with Admin(address) as admin:
        return await admin.create_topic(topic, configs={"priority.bands": BANDS, "priority.routing": routing})


def band_of(priority: int) -> Band:
    return HOT if priority >= 7 else WARM if priority >= 4 else COLD


def partition_of(key: bytes, partitions: Sequence[int]) -> int:
    place: int = (murmur2(key) & 0x7FFF_FFFF) % len(partitions)
    return partitions[place]


def check_route(text: str, key: bytes, priority: int) -> None:
    bands = parse_bands(text)
    info = TopicInfo("t", TopicId(bytes(16)), partitions_of(bands), 1, bands)
    [band] = [band for band in bands if band.lowest_priority <= priority <= band.highest_priority]
    way = TopicRoute(info, None, 0).way_of([("logbroker-priority", b"%d" % priority)])
    assert way.partition_of[key] == partition_of(key, band.partition_range)
    for _ in range(3):
        before = way.sticky
        way.next_sticky()
        assert way.sticky in band.partition_range
        assert way.sticky != before or band.partitions == 1


@given(band_texts(), st.binary(max_size=12), st.integers(0, 9))
def test_a_key_lies_where_kafkas_murmur2_says_within_its_band(text: str, key: bytes, priority: int) -> None:
    check_route(text, key, priority)


def test_a_key_that_is_counted_over_the_whole_topic_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: the partitions of the topic instead of those of the band."""
    check_route(BANDS, b"key", 9)
    monkeypatch.setattr(
        "logbroker.client.transport.band_route.PartitionCache",
        lambda partitions, *, first: PartitionCache(partitions_of((HOT, WARM, COLD)), first=first),
    )
    with pytest.raises(AssertionError):
        check_route(BANDS, b"key", 9)


async def test_records_go_to_their_band_and_there_by_their_key(address: str, topic: str) -> None:
    info = await create(address, topic)
    assert (info.bands, info.routes_by_key) == ((HOT, WARM, COLD), False)
    keyed = [(b"key-%d" % (number % 40), number % 10) for number in range(400)]
    async with Producer(address, batch_bytes=300) as producer:
        sent = [(key, priority, await producer.send(topic, b"v", key, priority=priority)) for key, priority in keyed]
        for key, priority, delivery in sent:
            assert (await delivery).partition == partition_of(key, band_of(priority).partition_range)
        assert (await producer.send_and_wait(topic, b"v", b"k", priority=9, partition=5)).partition == 5, "by hand"
        ordered = await producer.send_and_wait(topic, b"v", b"k", priority=0, ordering_key=b"o")
        assert ordered.partition == partition_of(b"o", COLD.partition_range)
    records = await read_all(address, topic)
    assert sorted(record.priority for record in records) == sorted([*(priority for _, priority in keyed), 9, 0])
    for number in range(40):
        of_key = [(record.partition, record.offset) for record in records if record.key == b"key-%d" % number]
        assert len(of_key) == 10


async def test_records_without_key_fill_the_partitions_of_their_band(address: str, topic: str) -> None:
    await create(address, topic)
    async with Producer(address, batch_bytes=200) as producer:
        sent = [(number % 10, await producer.send(topic, bytes(50), priority=number % 10)) for number in range(600)]
        found = [(priority, (await delivery).partition) for priority, delivery in sent]
    for band in (HOT, WARM, COLD):
        partitions = {partition for priority, partition in found if band_of(priority) == band}
        assert partitions == set(band.partition_range), "each of the band, and none of another"


async def test_what_tells_no_priority_counts_as_4_and_a_header_as_good_as_the_argument(
    address: str, topic: str
) -> None:
    await create(address, topic)
    header = "logbroker-priority"
    async with Producer(address) as producer:
        for headers, priority, band in (
            ((), None, WARM),
            (((header, b"9"),), None, HOT),
            (((header, b"9"), (header, b"0")), None, COLD),
            (((header, b"high"), ("h", b"x")), None, WARM),
            (((header, b"0"), ("h", b"x")), 8, HOT),
        ):
            for _ in range(2):  # into a new batch, then into the open one
                placed = await producer.send_and_wait(topic, b"v", b"k", headers=headers, priority=priority)
                assert placed.partition == partition_of(b"k", band.partition_range), (headers, priority)
    replaced = [record for record in await read_all(address, topic) if record.priority == 8]
    assert [record.headers for record in replaced] == [(("h", b"x"), (header, b"8"))] * 2


async def test_a_topic_that_routes_by_key_keeps_a_key_together(address: str, topic: str) -> None:
    info = await create(address, topic, "key")
    assert info.routes_by_key
    async with Producer(address) as producer:
        for number in range(60):
            key = b"key-%d" % (number % 6)
            placed = await producer.send_and_wait(topic, b"v", key, priority=number % 10)
            assert placed.partition == partition_of(key, range(11))


@pytest.mark.parametrize("priority", [-1, 10, "high", 4.5, b"4"])
async def test_what_is_no_priority_is_refused(address: str, topic: str, priority: int) -> None:
    await create(address, topic)
    with sync.Producer(address) as twin:
        for _ in range(2):
            with pytest.raises(InvalidRequestError, match="is no priority: give 0 to 9, 9 for the most urgent"):
                twin.send(topic, b"v", priority=priority)
    async with Producer(address) as producer:
        with pytest.raises(InvalidRequestError, match="is no priority: give 0 to 9, 9 for the most urgent"):
            await producer.send(topic, b"v", priority=priority)
    assert not await read_all(address, topic)


def test_the_synchronous_producer_routes_alike(address: str, topic: str) -> None:
    with sync.Admin(address) as admin:
        admin.create_topic(topic, configs={"priority.bands": BANDS})
    draw = random.Random(9)
    with sync.Producer(address) as producer:
        for _ in range(50):
            key, priority = draw.randbytes(4), draw.randrange(10)
            placed = producer.send_and_wait(topic, b"v", key, priority=priority)
            assert placed.partition == partition_of(key, band_of(priority).partition_range)


def test_a_record_has_a_priority() -> None:
    assert Record("t", 0, 0, 0, None, None, ()).priority == 4
    assert Record("t", 0, 0, 0, None, None, (("logbroker-priority", b"7"),)).priority == 7


# --- consumers ---


async def fill(address: str, topic: str, records: int) -> None:
    """Create a topic with bands, of records with the values 0, 1, ... and priorities that go round from 0 to 9."""
    await create(address, topic)
    async with Producer(address) as producer:
        for number in range(records):
            await producer.send(topic, b"%d" % number, b"key-%d" % (number % 13), priority=number % 10)


def values(records: Iterable[Record]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


def numbers_of(bands: Collection[Band], records: int) -> list[int]:
    return [number for number in range(records) if band_of(number % 10) in bands]


async def test_a_consumer_reads_the_bands_that_it_is_assigned(address: str, topic: str) -> None:
    await fill(address, topic, 100)
    async with Consumer(address) as consumer:
        for bands, expected in (("hot", [HOT]), (["warm", "cold"], [WARM, COLD]), ([], [HOT, WARM, COLD])):
            await consumer.assign(topic, bands=bands)
            assert {number for _, number in consumer.assignment()} == {
                partition for band in expected for partition in band.partition_range
            }
            assert values([record async for record in consumer.until_end()]) == numbers_of(expected, 100)
        before = consumer.assignment()
        with pytest.raises(InvalidRequestError, match=r"'hott' is no band of .*there are hot, warm, cold"):
            await consumer.assign(topic, bands=["hot", "hott"])
        with pytest.raises(InvalidRequestError, match="'hot' is no band of a topic that is read as a whole"):
            await consumer.assign(TopicPartition(topic, 1), bands="hot")
        assert consumer.assignment() == before


async def test_bands_leave_topics_without_bands_whole(address: str, topic: str) -> None:
    plain, keyed = f"{topic}-plain", f"{topic}-keyed"
    await create(address, topic)
    await create(address, keyed, "key")
    async with Admin(address) as admin:
        await admin.create_topic(plain, 2)
    async with Consumer(address) as consumer:
        await consumer.assign([topic, plain, keyed], bands="hot")
        found = consumer.assignment()
        assert [sum(name == each for name, _ in found) for each in (topic, plain, keyed)] == [1, 2, 11]
        for name in (plain, keyed):
            with pytest.raises(InvalidRequestError, match=r"is no band of .*: there are none with partitions"):
                await consumer.assign(name, bands="hot")


async def until_held(consumers: dict[Consumer, list[int]]) -> None:
    """Let all ask for records until each holds these partitions."""
    async with asyncio.timeout(20):
        while any(numbers(consumer) != expected for consumer, expected in consumers.items()):
            for records in await asyncio.gather(*(consumer.poll(timeout_seconds=0.02) for consumer in consumers)):
                assert not records, "look at assignments before there are records"


async def test_members_of_a_group_serve_bands_of_their_own(address: str, topic: str) -> None:
    await create(address, topic)
    async with AsyncExitStack() as stack:
        hot, cold, other = [await stack.enter_async_context(Consumer(address, group=topic)) for _ in range(3)]
        await hot.subscribe(topic, bands="hot")
        await cold.subscribe(topic, bands=["cold", "not-there-yet"])
        await until_held({hot: [0], cold: list(range(3, 11))})
        async with Admin(address) as admin:
            members = (await admin.describe_group(topic)).members
            assert sorted(member.bands for member in members) == [("cold", "not-there-yet"), ("hot",)]
        await other.subscribe(topic, bands=["cold", "warm"])
        async with asyncio.timeout(20):
            while not (numbers(other) and numbers(other)[:2] == [1, 2] and len(numbers(cold) + numbers(other)) == 10):
                await asyncio.gather(*(each.poll(timeout_seconds=0.02) for each in (hot, cold, other)))
        assert numbers(hot) == [0]
        await other.close()
        await until_held({hot: [0], cold: list(range(3, 11))})
        await hot.subscribe(topic, bands=["hot", "warm"])
        await until_held({hot: [0, 1, 2], cold: list(range(3, 11))})
        await hot.subscribe(topic)
        await cold.subscribe(topic, bands="not-there-yet")
        await until_held({hot: list(range(11)), cold: []})
        await create(address, f"{topic}-keyed", "key")
        await hot.subscribe(topic, bands="hot")
        await cold.subscribe(f"{topic}-keyed", bands="hot")
        await until_held({hot: [0], cold: list(range(11))})  # whose priorities are spread over all partitions


async def test_a_group_reads_each_band_once_and_leaves_what_nobody_subscribes_to(address: str, topic: str) -> None:
    await fill(address, topic, 300)
    async with Consumer(address, group=topic) as hot, Consumer(address, group=topic) as cold:
        await hot.subscribe(topic, bands="hot")
        await cold.subscribe(topic, bands="cold")
        expected = {hot: numbers_of([HOT], 300), cold: numbers_of([COLD], 300)}
        found = await asyncio.gather(*(drain(consumer, len(wanted)) for consumer, wanted in expected.items()))
        assert [values(records) for records in found] == list(expected.values())
        await asyncio.gather(hot.commit(), cold.commit())
    async with Admin(address) as admin:
        committed = {partition.partition for partition in await admin.fetch_offsets(topic)}
    assert committed.isdisjoint(WARM.partition_range), "nobody read what nobody subscribed to"
    async with Consumer(address, group=topic) as consumer:
        await consumer.subscribe(topic)
        assert values(await drain(consumer, 90)) == numbers_of([WARM], 300), "the rest, and nothing twice"


@pytest.mark.prove
async def test_a_member_keeps_its_bands_when_the_broker_is_killed(tmp_path: Path) -> None:
    with embedded(data_dir=tmp_path) as broker:
        await fill(broker.address, "t", 100)
        async with Consumer(broker.address, group="g") as hot, Consumer(broker.address, group="g") as cold:
            await hot.subscribe("t", bands="hot")
            await cold.subscribe("t", bands="cold")
            for consumer, band in ((hot, HOT), (cold, COLD)):
                wanted = numbers_of([band], 100)
                assert values(await drain(consumer, len(wanted))) == wanted
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.restart)
            async with Producer(broker.address) as producer:
                for number in range(100, 130):
                    await producer.send("t", b"%d" % number, b"%d" % number, priority=number % 10)
            for consumer, band in ((hot, HOT), (cold, COLD)):
                wanted = [number for number in numbers_of([band], 130) if number >= 100]
                assert values(await drain(consumer, len(wanted))) == wanted
                assert set(numbers(consumer)) == set(band.partition_range)


def test_the_synchronous_consumer_reads_bands_too(address: str, topic: str) -> None:
    with sync.Admin(address) as admin, sync.Producer(address) as producer:
        admin.create_topic(topic, configs={"priority.bands": BANDS})
        for number in range(50):
            producer.send(topic, b"%d" % number, priority=number % 10)
    with sync.Consumer(address) as consumer:
        consumer.assign(topic, bands="hot")
        assert values(consumer.until_end()) == numbers_of([HOT], 50)
    with sync.Consumer(address, group=topic) as consumer:
        consumer.subscribe(topic, bands=["warm"])
        wanted = numbers_of([WARM], 50)
        assert values(itertools.islice(consumer, len(wanted))) == wanted


async def test_names_that_no_band_can_have_are_refused(address: str, topic: str) -> None:
    async with Consumer(address, group=topic) as consumer:
        with pytest.raises(InvalidRequestError, match="'a b' is not the name of a band"):
            await consumer.subscribe(topic, bands=["hot", "a b"])
