"""Producers and consumers of topics with bands: where records go by priority and key, and who reads which band."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.client import Admin, Producer, Record, TopicInfo, sync
from logbroker.client.topic_route import TopicRoute
from logbroker.errors import InvalidRequestError
from logbroker.record.bands import Band, parse_bands, partitions_of
from logbroker.record.partitioner import PartitionCache
from logbroker.types import TopicId
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
    way = TopicRoute(info).way_of([("logbroker-priority", b"%d" % priority)])
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
        "logbroker.client.topic_route.PartitionCache",
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
