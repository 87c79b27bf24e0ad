"""The scan of a topic: what it admits, where it pauses, and what it costs."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from logbroker.queues.model.record_id import Moment
from logbroker.queues.model.settings import Ordering
from logbroker.queues.records.columns import MAX_RECORDS
from logbroker.record.codec import NewRecord
from logbroker.record.compression import Codec
from logbroker.record.message_headers import NOT_BEFORE
from tests.calls import counted
from tests.queues.fake_log import FakeLog, unopened_queue
from tests.queues.groups import ack, record_ids
from tests.queues.scans import NOW, Scan, ready, scanning, some_turns

# --- what is admitted ------------------------------------------------------------------------------------------------


async def test_everything_is_admitted_and_what_comes_later_follows() -> None:
    log = FakeLog(3)
    for partition in range(3):
        log.append_values(b"a%d" % partition, b"b%d" % partition, partition=partition)
    async with scanning(log) as scan:
        await scan.all_scanned()
        assert await scan.values() == [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"]
        log.append_values(b"c1", b"a1", partition=1)
        await scan.until(lambda: ready(scan) == 1)
        assert await scan.values() == [b"c1"], "a1 waits for the one before"
        assert scan.queue.open_records == 8


async def test_partitions_that_are_due_are_read_along_with_another_one() -> None:
    """A call takes a while on a cluster. What comes between the read and the scan of a partition comes after it."""
    log = FakeLog(60)
    log.partitions_per_read = 20
    for partition in range(60):
        log.append_values(b"%d" % partition, partition=partition)
    async with scanning(log) as scan:
        # The first and the last of the partitions that are read together get a record right after that.
        late = iter([0, 19])

        async def before_read() -> None:
            for partition in late:
                append = partial(log.append_values, b"late %d" % partition, partition=partition)
                asyncio.get_running_loop().call_soon(append)

        log.before_read = before_read
        await scan.until(lambda: ready(scan) == 62)
        assert log.calls_of_read <= 3 + 3, "60 partitions by 20, and the late ones"


async def test_only_what_follows_the_position_is_admitted() -> None:
    log = FakeLog()
    log.append_values(b"a", b"b", b"c")
    scan = Scan(log, unopened_queue())
    scan.queue.open_partition(0, 1)
    task = asyncio.create_task(scan.scanner.run())
    await scan.all_scanned()
    assert await scan.values() == [b"b", b"c"]
    task.cancel()


async def test_control_batches_and_gaps_do_not_hold_back_the_floor() -> None:
    log = FakeLog()
    log.append_control_batch()
    log.append_values(b"a", b"b")
    log.leave_gap(7)
    log.append_control_batch()
    log.append_values(b"c")
    log.append_control_batch()
    async with scanning(log) as scan:
        await scan.until(lambda: scan.position(0) == log.partitions[0].end)
        granted = scan.queue.take("w", 10, NOW)
        assert record_ids(granted) == [1, 2, 11]
        ack(scan.queue, granted)
        scan.queue.take_outputs()
        assert scan.queue.done.floor(0) == log.partitions[0].end


async def test_records_that_retention_took_are_passed_over() -> None:
    log = FakeLog()
    for value in (b"a", b"b", b"c"):
        log.append_values(value)
    log.drop_below(2)
    async with scanning(log) as scan:
        assert scan.scanner.unscanned() == 1
        await scan.all_scanned()
        assert await scan.values() == [b"c"]


async def test_keys_come_from_a_header_where_the_group_names_one() -> None:
    log = FakeLog()
    first, second = [("k", b"1"), ("k", b"2")], [("other", b"x"), ("k", b"2")]
    log.append(
        NewRecord(b"a", b"x", first), NewRecord(b"b", b"y", second), NewRecord(b"c", b"x"), NewRecord(b"d", b"x")
    )
    async with scanning(log, key_header="k") as scan:
        await scan.all_scanned()
        assert await scan.values() == [b"a", b"c", b"d"], "the last header counts; without one there is no order"
        assert scan.queue.lanes.get(b"2") is not None


async def test_long_keys_do_not_fill_the_memory() -> None:
    log = FakeLog()
    log.append_values(b"k" * 100_000, b"k" * 100_001, b"k" * 100_000)
    async with scanning(log) as scan:
        await scan.all_scanned()
        assert ready(scan) == 2
        assert all(len(lane.key or b"") < 200 for lane in scan.queue.lanes)


@pytest.mark.parametrize("ordering", Ordering)
async def test_a_not_before_time_is_kept_and_garbage_in_its_place_is_not(ordering: Ordering) -> None:
    log = FakeLog()
    log.append(NewRecord(b"a", b"k", [(NOT_BEFORE, b"1500")]), NewRecord(b"b", b"k"), NewRecord(b"c", b"l"))
    for number, garbage in enumerate((b"", b"soon", b"-5", b"9" * 40, None, "²".encode())):
        log.append(NewRecord(b"%d" % number, b"g%d" % number, [(NOT_BEFORE, garbage)]))
    async with scanning(log, ordering=ordering) as scan:
        await scan.all_scanned()
        values = {
            Ordering.NONE: [b"b", b"c", b"0", b"1", b"2", b"3", b"4", b"5"],
            Ordering.KEY: [b"c", b"0", b"1", b"2", b"3", b"4", b"5"],
            Ordering.SINGLE: [],
        }[ordering]
        assert await scan.values() == values
        scan.queue.tick(Moment(1.5, 1500))
        assert await scan.values() == [b"a"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_large_batches_are_cut_and_small_ones_joined(codec: Codec) -> None:
    log = FakeLog()
    count = 2 * MAX_RECORDS + 100
    log.append(*(NewRecord(b"%d" % number, b"%d" % number) for number in range(count)), codec=codec)
    for number in range(count, count + 500):
        log.append_values(b"%d" % number)
    admitted: list[int] = []
    async with scanning(log) as scan:
        admit = scan.queue.admit

        def counted(*arguments: object) -> None:
            admitted.append(len(arguments[2]))  # type: ignore[arg-type]
            admit(*arguments)  # type: ignore[arg-type]

        scan.queue.admit = counted  # type: ignore[method-assign, assignment]
        await scan.all_scanned()
        assert sum(admitted) == count + 500
        assert max(admitted) == MAX_RECORDS
        assert len(admitted) <= 4
        assert await scan.values() == [b"%d" % number for number in range(count + 500)]


# --- pausing ---------------------------------------------------------------------------------------------------------


async def test_the_scan_pauses_where_enough_is_ready_and_goes_on_when_woken() -> None:
    log = FakeLog()
    for number in range(100):
        log.append_values(*(b"%d-%d" % (number, index) for index in range(1000)))
    async with scanning(log, max_ready_records=100) as scan:
        await scan.until(lambda: ready(scan) >= 100)
        await some_turns()
        reads = len(log.reads)
        scan.scanner.wake()
        log.append_values(b"more")
        await some_turns()
        assert len(log.reads) == reads, "nothing is read while it pauses"
        taken = 0
        async with asyncio.timeout(25):
            while taken < 100_001:
                taken += len(record_ids(scan.queue.take(f"w{taken}", 10_000, NOW)))
                scan.scanner.wake()
                await asyncio.sleep(0)
                assert ready(scan) < 100 + MAX_RECORDS


# --- what is kept, and what it costs ---------------------------------------------------------------------------------


async def test_what_is_handed_out_at_once_is_not_read_again() -> None:
    log = FakeLog()
    log.append_values(b"a", b"b", b"c")
    async with scanning(log) as scan:
        await scan.all_scanned()
        reads = len(log.reads)
        assert await scan.values() == [b"a", b"b", b"c"]
        assert len(log.reads) == reads


async def test_what_waits_behind_others_is_not_kept() -> None:
    log = FakeLog()
    log.append_values(*[b"k"] * MAX_RECORDS)
    log.append_values(*[b"k"] * MAX_RECORDS)
    async with scanning(log) as scan:
        await scan.all_scanned()
        reads = len(log.reads)
        await scan.records.fetch([MAX_RECORDS + 7])
        assert len(log.reads) == reads + 1
        await scan.records.fetch([5])
        assert len(log.reads) == reads + 1, "the batch of the head is there"


async def test_calls_per_record_of_the_scan() -> None:
    log = FakeLog()
    count = 20_000
    for base in range(0, count, 1000):
        log.append(*(NewRecord(bytes(80), b"key-%05d" % (number % 10_000)) for number in range(base, base + 1000)))
    async with scanning(log) as scan:
        with counted() as calls:
            await scan.all_scanned()
    print(f"scanned: {calls.count / count:.2f} calls/record")  # noqa: T201
    assert calls.count < 3 * count, "1.6 each"
