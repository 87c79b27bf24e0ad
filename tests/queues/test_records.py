"""Fetching records by their ids: whatever is asked, in whatever order, with a cache that is large or hardly one."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.errors import (
    BatchExpandsTooFarError,
    CorruptBatchError,
    OffsetOutOfRangeError,
    OverloadedError,
    PartitionOfflineError,
)
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.records.batch_cache import BatchCache
from logbroker.queues.records.fetch import MAX_READ_BYTES, Records
from logbroker.record import stored_batch
from logbroker.record.codec import LogRecord, NewRecord, decode_batch, split_batches
from logbroker.record.compression import Codec
from logbroker.types import TopicId
from tests.queues.fake_log import FakeLog, undecodable_batch
from tests.queues.groups import TOPIC_ID


def records_of(log: FakeLog, cache_bytes: int = 1 << 20) -> Records:
    return Records(log.engine, TopicId(TOPIC_ID), BatchCache(cache_bytes))


def all_records(log: FakeLog) -> dict[int, LogRecord]:
    """Return all records by record id, decoded batch by batch."""
    return {
        record_id_of(number, record.offset): record
        for number, partition in enumerate(log.partitions)
        for batch in partition.batches
        for header, raw in split_batches(batch)
        if not header.is_control
        for record in decode_batch(raw)
    }


def filled_log(sizes: list[int], seed: int) -> FakeLog:
    """Batches of so many records over two partitions, some compressed, with gaps and control batches between."""
    draw = random.Random(seed)
    log = FakeLog(2)
    for size in sizes:
        partition = draw.randrange(2)
        match draw.randrange(8):
            case 0:
                log.leave_gap(draw.randint(1, 400), partition)
            case 1:
                log.append_control_batch(partition)
        records = [
            NewRecord(
                draw.randbytes(draw.choice((0, 3, 70, 9000))),
                draw.choice((None, b"", b"k")),
                [("h", b"v")] * draw.randrange(3),
                draw.choice((0, 5, 1_700_000_000_000)),
            )
            for _ in range(size)
        ]
        log.append(*records, partition=partition, codec=draw.choice((Codec.NONE, Codec.NONE, Codec.GZIP)))
    return log


@pytest.mark.prove
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.integers(0, 1 << 32),
    st.sampled_from((0, 3000, 1 << 20)),
    st.data(),
)
def test_every_record_is_found_in_any_order_and_nothing_else(
    sizes: list[int], seed: int, cache_bytes: int, data: st.DataObject
) -> None:
    log = filled_log(sizes, seed)
    known = all_records(log)
    ends = [partition.end for partition in log.partitions]
    control = {
        record_id_of(number, header.base_offset)
        for number, partition in enumerate(log.partitions)
        for batch in partition.batches
        for header, _ in split_batches(batch)
        if header.is_control
    }
    some_record_id = (
        st.integers(0, 1)
        .flatmap(lambda p: st.integers(0, ends[p] + 3).map(lambda offset: record_id_of(p, offset)))
        .filter(lambda record_id: record_id not in control)
    )
    wanted = data.draw(
        st.lists(st.lists(st.one_of(st.sampled_from(sorted(known)), some_record_id), max_size=40), max_size=4)
    )

    async def fetch() -> None:
        records = records_of(log, cache_bytes)
        log.before_read = lambda: asyncio.sleep(0)
        for record_ids, found in zip(wanted, await asyncio.gather(*map(records.fetch, wanted)), strict=True):
            assert len(record_ids) == len(found)
            for record_id, record in zip(record_ids, found, strict=True):
                if record_id in known:
                    assert record == known[record_id]
                else:
                    assert isinstance(record, OffsetOutOfRangeError)
        batches, cache = records.batches, records.batches.cache
        assert cache.used_bytes == sum(cache._sizes.values()) <= cache_bytes
        assert sorted(batches._kept) == batches._starts == sorted(start for _, start in cache._sizes)

    asyncio.run(fetch())


async def test_places_near_each_other_are_read_at_once_and_kept() -> None:
    log = FakeLog()
    for number in range(1000):
        log.append(NewRecord(b"%d" % number))
    records = records_of(log)
    await records.fetch([0])
    log.reads.clear()
    assert [r.value for r in await records.fetch(range(100, 300)) if isinstance(r, LogRecord)] == [
        b"%d" % number for number in range(100, 300)
    ]
    assert len(log.reads) <= 3
    log.reads.clear()
    await records.fetch(range(299, 99, -1))
    assert log.reads == []


async def test_places_far_from_each_other_are_read_alone() -> None:
    log = FakeLog()
    for number in range(100):
        log.append(*(NewRecord(b"%d" % (number * 1000 + index)) for index in range(1000)))
    records = records_of(log)
    record_ids = list(range(500, 100_000, 2000))
    fetched = await records.fetch(record_ids)
    assert [r.value for r in fetched if isinstance(r, LogRecord)] == [b"%d" % record_id for record_id in record_ids]
    assert len(log.reads) == len(record_ids)
    assert sum(wish.max_bytes for wish in log.reads) < MAX_READ_BYTES


async def test_what_retention_took_is_out_of_range_and_what_follows_is_there() -> None:
    log = FakeLog()
    for number in range(10):
        log.append_values(b"%d" % number)
    log.drop_below(4)
    fetched = await records_of(log).fetch(range(2, 7))
    assert [isinstance(record, OffsetOutOfRangeError) for record in fetched] == [True, True, False, False, False]


@pytest.mark.parametrize("error", [PartitionOfflineError("broken"), OverloadedError("later")])
async def test_an_error_of_one_partition_spares_the_others(error: Exception) -> None:
    log = FakeLog(2)
    log.append_values(b"a")
    log.append_values(b"b", partition=1)
    log.partitions[0].error = error  # type: ignore[assignment]
    records = records_of(log)
    broken, sound = await records.fetch([0, record_id_of(1, 0)])
    assert broken is error
    assert isinstance(sound, LogRecord)
    log.partitions[0].error = None
    assert isinstance((await records.fetch([0]))[0], LogRecord)


async def test_a_batch_that_cannot_be_decoded_spares_its_neighbours() -> None:
    log = FakeLog()
    log.append_values(b"a")
    log.append_batch(undecodable_batch(b"x", b"y"))
    damaged = bytearray(log.partitions[0].batches[0])
    damaged[-1] ^= 1
    log.append_batch(bytes(damaged))
    log.append_values(b"b")
    kinds = [type(record) for record in await records_of(log).fetch(range(5))]
    assert kinds == [LogRecord, CorruptBatchError, CorruptBatchError, CorruptBatchError, LogRecord]


async def test_a_bomb_of_empty_records_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_batch, "MAX_RECORDS", 100)
    log = FakeLog()
    log.append(*[NewRecord(b"")] * 101, codec=Codec.ZSTD)
    assert isinstance((await records_of(log).fetch([7]))[0], BatchExpandsTooFarError)


async def test_the_cache_counts_what_decompressing_brings() -> None:
    log = FakeLog()
    for _ in range(20):
        log.append(*[NewRecord(bytes(1000))] * 100, codec=Codec.ZSTD)
    records = records_of(log, 250_000)
    for start in range(0, 2000, 100):
        await records.fetch(range(start, start + 100))
        assert records.batches.cache.used_bytes <= 250_000
    assert len(records.batches) == 2
