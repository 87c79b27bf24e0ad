"""Messages to workers: the granted records, all of them, in order, with what is known of each."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given
from hypothesis import strategies as st

from logbroker.config import MIB
from logbroker.errors import CorruptBatchError, OffsetOutOfRangeError
from logbroker.queues.delivery.packing import MAX_BATCHES_BYTES, Packed, pack
from logbroker.queues.model.messages import Delivered, Granted
from logbroker.queues.model.record_id import offset_of, partition_of, record_id_of
from logbroker.queues.records.batch_cache import BatchCache
from logbroker.queues.records.fetch import LATER, MAX_READ_BYTES, Records
from logbroker.record.codec import LogRecord, NewRecord, decode_batch, split_batches
from logbroker.record.compression import Codec
from logbroker.record.header import MAX_EXPANDED_BYTES
from logbroker.record.stored_batch import stored_batches
from logbroker.types import TopicId
from tests.calls import counted
from tests.queues.fake_log import FakeLog, undecodable_batch, with_crc
from tests.queues.groups import TOPIC_ID
from tests.queues.test_records import all_records, filled_log, records_of

FIRST = 1 << 44


def received(delivered: Delivered) -> list[LogRecord]:
    """Return a message's records as a worker reads them, with the offsets that they have in the log."""
    records = [record for _, batch in split_batches(delivered.batches) for record in decode_batch(batch)]
    if len(delivered.offsets) < delivered.count:
        [first] = delivered.offsets
        return [record for record in records if record.offset >= first][: delivered.count]
    for offset, record in zip(delivered.offsets, records, strict=True):
        record.offset = offset
    return records


def check(packed: Packed, granted: Granted, known: dict[int, LogRecord]) -> None:
    """Every receipt once, in order, with its record and its columns."""
    unreadable = {each.receipt: each for each in packed.unreadable}
    receipts = iter(granted.receipts())
    for delivered in packed.delivered:
        as_in_log = len(delivered.offsets) < delivered.count
        for index, record in enumerate(received(delivered)):
            receipt = next(receipts)
            while receipt in unreadable:
                receipt = next(receipts)
            assert receipt == delivered.first_receipt + index
            at = receipt - granted.first_receipt
            record_id = granted.record_ids[at]
            assert record == known[record_id]
            if not as_in_log:
                assert record_id == record_id_of(delivered.partitions[index], delivered.offsets[index])
            elif not index:
                assert (delivered.partitions, delivered.offsets) == ([partition_of(record_id)], [offset_of(record_id)])
            for column, whole in (
                (delivered.attempts, granted.attempts),
                (delivered.redelivered, granted.redelivered),
            ):
                assert (column[index] if column else None) == (whole[at] if whole else None)
    for receipt in receipts:
        assert receipt in unreadable
    for each in packed.unreadable:
        assert granted.record_ids[each.receipt - granted.first_receipt] == each.record_id
        assert each.record_id not in known


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(0, 1 << 32), st.data())
def test_lanes_of_any_record_ids(sizes: list[int], seed: int, data: st.DataObject) -> None:
    log = filled_log(sizes, seed)
    known = all_records(log)
    ends = [partition.end for partition in log.partitions]
    gone = st.integers(0, 1).map(lambda partition: record_id_of(partition, ends[partition] + 1))
    record_ids = data.draw(
        st.lists(st.one_of(st.sampled_from(sorted(known)), gone), min_size=1, max_size=60, unique=True)
    )
    draw = random.Random(seed)
    attempts = [draw.randint(1, 5) for _ in record_ids] if draw.randrange(2) else []
    redelivered = [draw.random() < 0.5 for _ in record_ids] if draw.randrange(2) else []
    granted = Granted(FIRST, record_ids, attempts, redelivered)
    check(asyncio.run(pack(records_of(log), granted)), granted, known)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(0, 1 << 32), st.booleans(), st.data())
def test_runs(sizes: list[int], seed: int, redelivered: bool, data: st.DataObject) -> None:
    log = filled_log(sizes, seed)
    known = all_records(log)
    start = data.draw(st.sampled_from(sorted(known)))
    end = start + 1
    while end in known:
        end += 1
    end = data.draw(st.integers(start + 1, end))
    granted = Granted(FIRST, range(start, end), [], [True] * (end - start) if redelivered else [])
    check(asyncio.run(pack(records_of(log), granted)), granted, known)


async def test_batches_of_which_a_run_has_a_quarter_go_as_they_lie_in_the_log() -> None:
    log = FakeLog()
    for _ in range(4):
        log.append(*[NewRecord(b"v")] * 10, codec=Codec.GZIP)
    batches = log.partitions[0].batches
    packed = await pack(records_of(log), Granted(FIRST, range(7, 33), [], []))
    [delivered] = packed.delivered
    assert delivered == Delivered(FIRST, 26, b"".join(batches), [0], [7], [], [])
    packed = await pack(records_of(log), Granted(FIRST, range(8, 22), [], []))
    assert [(each.first_receipt - FIRST, each.count) for each in packed.delivered] == [(0, 2), (2, 10), (12, 2)]
    assert packed.delivered[1].batches == batches[1]
    assert packed.delivered[2].offsets == [20, 21]


async def test_messages_are_bounded_and_a_larger_record_goes_alone() -> None:
    log = FakeLog()
    large = MAX_BATCHES_BYTES + 500
    sizes = [100, 600_000, 600_000, large, large, 100, 100]
    log.append(*(NewRecord(bytes(size)) for size in sizes))
    for record_ids in (list(range(7)), range(7)):
        packed = await pack(records_of(log), Granted(FIRST, record_ids, [], []))
        if isinstance(record_ids, list):
            assert [each.count for each in packed.delivered] == [2, 1, 1, 1, 2]
        else:
            assert [each.count for each in packed.delivered] == [7], "one batch of the log is not cut"
        check(packed, Granted(FIRST, record_ids, [], []), all_records(log))
    for _ in range(8):
        log.append(NewRecord(bytes(300_000)))
    packed = await pack(records_of(log), Granted(FIRST, range(7, 15), [], []))
    assert [each.count for each in packed.delivered] == [3, 3, 2]


async def test_times_are_kept_also_where_a_record_has_none() -> None:
    log = FakeLog()
    stamps = [-1, -1, 7, 3, -1, 1_700_000_000_000, 0]
    for stamp in stamps:
        # Kafka's clients may write -1; our codec does so only as the first of a batch.
        log.append(NewRecord(b"v", timestamp_ms=0))
        batch = bytearray(log.partitions[0].batches.pop())
        batch[27:43] = stamp.to_bytes(8, "big", signed=True) * 2
        log.partitions[0].end -= 1
        log.append_batch(with_crc(batch))
    record_ids = list(range(len(stamps)))
    packed = await pack(records_of(log), Granted(FIRST, record_ids, [], []))
    assert [record.timestamp_ms for each in packed.delivered for record in received(each)] == stamps


async def test_a_replacement_goes_in_a_records_place_also_where_that_is_gone() -> None:
    log = FakeLog()
    log.append_values(b"a", b"b")
    instead = {1: LogRecord(1, 9, b"b", b"better", ()), 5: LogRecord(5, 9, None, b"back", ())}
    packed = await pack(records_of(log), Granted(FIRST, [0, 1, 5], [], []), replacements=instead)
    assert packed.unreadable == []
    [delivered] = packed.delivered
    assert [record.value for record in received(delivered)] == [b"a", b"better", b"back"]


async def test_what_cannot_be_read_is_told_by_receipt() -> None:
    log = FakeLog()
    log.append_values(b"a", b"b")
    log.append_batch(undecodable_batch(b"x"))
    log.append_values(b"c")
    packed = await pack(records_of(log), Granted(FIRST, [0, 2, 9, 3], [1, 2, 3, 4], []))
    assert [(each.receipt - FIRST, each.record_id, type(each.error)) for each in packed.unreadable] == [
        (1, 2, CorruptBatchError),
        (2, 9, OffsetOutOfRangeError),
    ]
    assert [(each.first_receipt - FIRST, each.attempts) for each in packed.delivered] == [(0, [1]), (3, [4])]


async def test_in_a_session_nothing_goes_ahead_of_a_record_that_cannot_be_read() -> None:
    log = FakeLog()
    log.append_values(b"a")
    log.append_batch(undecodable_batch(b"x"))
    log.append_values(b"b", b"c")
    packed = await pack(records_of(log), Granted(FIRST, [0, 1, 2, 3], [], []), session=(7, b"k"))
    assert [(each.count, each.session) for each in packed.delivered] == [(1, (7, b"k"))]
    assert isinstance(packed.unreadable[0].error, CorruptBatchError)
    assert [each.error for each in packed.unreadable[1:]] == [LATER, LATER]
    assert packed.leaves_out


async def test_no_more_is_fetched_than_memory_is_given_for() -> None:
    log = FakeLog()
    for number in range(200):
        log.append(NewRecord(bytes(100_000), b"%d" % number))
    for record_ids in (list(range(200)), range(200)):
        records = records_of(log, 50_000)
        log.reads.clear()
        packed = await pack(records, Granted(FIRST, record_ids, [], []), max_bytes=1_000_000)
        assert 10 <= sum(each.count for each in packed.delivered) <= 40
        assert {each.error for each in packed.unreadable} == {LATER}
        left = [each.receipt for each in packed.unreadable]
        assert left == list(range(FIRST + 200 - len(left), FIRST + 200))
        assert len(left) + sum(each.count for each in packed.delivered) == 200
        assert sum(wish.max_bytes for wish in log.reads) < 20_000_000
        packed = await pack(records, Granted(FIRST, record_ids[:1], [], []), max_bytes=1)
        assert [each.count for each in packed.delivered] == [1]


async def test_what_is_compressed_takes_no_more_memory_either() -> None:
    log = FakeLog()
    for _ in range(50):
        log.append(*[NewRecord(bytes(1_000_000))] * 2, codec=Codec.ZSTD)
    packed = await pack(records_of(log), Granted(FIRST, list(range(0, 100, 2)), [], []), max_bytes=4_000_000)
    assert sum(each.count for each in packed.delivered) <= 3
    assert {each.error for each in packed.unreadable} == {LATER}


async def test_damaged_bytes_are_not_handed_on() -> None:
    log = FakeLog()
    log.append_values(b"a", b"b")
    damaged = bytearray(log.partitions[0].batches[0])
    damaged[-1] ^= 1
    log.append_batch(bytes(damaged))
    packed = await pack(records_of(log), Granted(FIRST, range(4), [], []))
    assert [each.count for each in packed.delivered] == [2]
    assert [each.receipt - FIRST for each in packed.unreadable] == [2, 3]


async def test_calls_per_record() -> None:
    log = FakeLog()
    for _ in range(100):
        log.append(*(NewRecord(bytes(80), b"key-%05d" % number) for number in range(1000)))
    draw = random.Random(1)
    scattered = sorted(draw.sample(range(100_000), 10_000))
    figures = {}
    for name, record_ids in (("together", list(range(10_000))), ("scattered", scattered), ("a run", range(10_000))):
        records = Records(log.engine, TopicId(TOPIC_ID), BatchCache(1 << 25))
        await records.fetch(record_ids)
        with counted() as calls:
            for start in range(0, 10_000, 500):
                assert (await pack(records, Granted(FIRST, record_ids[start : start + 500], [], []))).unreadable == []
        figures[name] = calls.count / 10_000
    print("packed:", ", ".join(f"{name} {figure:.2f}" for name, figure in figures.items()), "calls/record")  # noqa: T201
    assert max(figures.values()) < 12, "9.4, where each lies alone"


async def test_nothing_is_handed_on_behind_what_is_left_out() -> None:
    """Records kept in memory behind it would be given back, as all from there on, and handed to another worker too."""
    log = FakeLog()
    for _ in range(3):
        log.append(NewRecord(bytes(MAX_READ_BYTES)))
    records = records_of(log, 1 << 24)
    [last] = stored_batches(log.partitions[0].batches[2])
    records.keep(0, last)
    packed = await pack(records, Granted(FIRST, range(3), [], []), max_bytes=1)
    assert [(each.first_receipt - FIRST, each.count) for each in packed.delivered] == [(0, 1)]
    assert [(each.receipt - FIRST, each.error) for each in packed.unreadable] == [(1, LATER), (2, LATER)]


async def test_a_record_that_expands_far_goes_in_a_message_that_a_client_takes() -> None:
    log = FakeLog()
    value = bytes(MAX_EXPANDED_BYTES - 100)
    log.append(NewRecord(b"before"), NewRecord(b"", b"k" * 10), codec=Codec.ZSTD)
    log.append(NewRecord(value), codec=Codec.ZSTD)
    packed = await pack(records_of(log), Granted(FIRST, [0, 2], [], []))
    assert not packed.unreadable
    assert sum(len(each.batches) for each in packed.delivered) < 16 * MIB
    assert received(packed.delivered[-1])[-1].value == value
