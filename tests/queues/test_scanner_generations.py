"""The scan of a topic that grows: all of a generation comes before the first of the next."""

from __future__ import annotations

import asyncio
from pathlib import Path

from logbroker.broker.local_engine.lifetime import open_engine
from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.engine import Append, Appended
from logbroker.errors import PartitionOfflineError
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.records.batch_cache import BatchCache
from logbroker.queues.records.fetch import Records
from logbroker.queues.scan.scanner import Scanner
from logbroker.record.codec import LogRecord, NewRecord, encode_batch
from tests.queues.fake_log import FakeLog, unopened_queue
from tests.queues.groups import record_ids
from tests.queues.scans import NOW, ready, scanning, some_turns


async def test_a_generation_is_admitted_only_after_all_of_the_one_before() -> None:
    log = FakeLog(2)
    for number in range(50):
        log.append_values(b"old-%d" % number, b"k", partition=0)
        log.append_values(b"old-x-%d" % number, partition=1)
    log.grow(3)
    log.append_values(b"k", b"new", partition=2)
    log.append_values(b"new-0", partition=0)
    log.grow(5)
    log.append_values(b"k", b"newest", partition=4)
    seen: list[tuple[int, int]] = []
    async with scanning(log) as scan:
        begin = scan.queue.begin_generation

        def noted(generation: int, start_offsets: tuple[int, ...]) -> None:
            seen.append((generation, scan.queue.open_records))
            begin(generation, start_offsets)

        scan.queue.begin_generation = noted  # type: ignore[method-assign, assignment]
        await scan.all_scanned()
        assert seen == [(1, 0), (2, 150), (3, 153)]
        lane = scan.queue.lanes.get(b"k")
        assert lane is not None
        order = []
        while lane.head >= 0:
            order.append(lane.head)
            scan.queue.lanes.pop_head(lane)
        assert order == [*range(1, 100, 2), record_id_of(2, 0), record_id_of(4, 0)]


async def test_growth_is_noticed_when_woken() -> None:
    log = FakeLog()
    log.append_values(b"a")
    async with scanning(log) as scan:
        await scan.all_scanned()
        log.grow(2)
        log.append_values(b"b", partition=1)
        scan.scanner.wake()
        await scan.all_scanned()
        assert await scan.values() == [b"a", b"b"]
        log.append_values(b"c", partition=1)
        await scan.all_scanned()
        assert scan.queue.admission.generation == 2


async def test_what_is_appended_after_growth_is_of_the_new_generation_also_where_a_read_was_under_way() -> None:
    log = FakeLog(2)
    log.append_values(b"k", partition=1)
    admitted: list[tuple[int, int, int]] = []
    async with scanning(log) as scan:
        await scan.all_scanned()
        admit = scan.queue.admit

        def noted(partition: int, generation: int, offsets: list[int], next_offset: int, *rest: object) -> None:
            admitted.append((partition, generation, next_offset))
            admit(partition, generation, offsets, next_offset, *rest)  # type: ignore[arg-type]

        scan.queue.admit = noted  # type: ignore[method-assign, assignment]

        async def grow_now() -> None:
            log.before_read = None
            log.grow(3)
            # The same read sees a record of before the growth and one of after it.
            log.append_values(b"k", partition=0)

        log.before_read = grow_now
        log.append_values(b"a", partition=0)
        await scan.until(lambda: scan.position(0) == 2)
        assert admitted == [(0, 1, 1), (0, 2, 2)]


async def test_a_generation_whose_last_records_are_gone_does_not_hold_the_next_one_back() -> None:
    """A gap reaches over the growth, as compaction leaves it, or retention behind copies."""
    log = FakeLog()
    log.append_values(b"a")
    log.leave_gap(3)
    log.grow(2)
    log.leave_gap(2)
    log.append_values(b"b")
    log.append_values(b"c", partition=1)
    async with scanning(log) as scan:
        await scan.all_scanned()
        assert scan.queue.admission.generation == 2
        assert sorted(value or b"" for value in await scan.values()) == [b"a", b"b", b"c"]


async def test_partitions_that_are_not_served_do_not_let_a_key_overtake_itself() -> None:
    log = FakeLog(2)
    log.append_values(b"k", partition=0)
    log.partitions[0].error = PartitionOfflineError("broken")
    log.append_values(b"x", partition=1)
    log.grow(3)
    log.append_values(b"k", partition=2)
    async with scanning(log) as scan:
        await scan.until(lambda: bool(scan.scanner.stopped) and ready(scan) == 1)
        await some_turns()
        assert await scan.values() == [b"x"]
        assert scan.queue.admission.generation == 1
        assert isinstance(scan.scanner.stopped[0], PartitionOfflineError)


async def test_a_real_log_that_grows_and_is_deleted_under_the_scan(tmp_path: Path) -> None:
    config = BrokerConfig(data_dir=str(tmp_path / "data"))
    failures: list[Exception] = []
    async with open_engine(config, SystemClock(), failures.append) as (engine, _):
        topic = await engine.create_topic("t", 2, {"segment.bytes": "20000", "durability": "written"})
        queue = unopened_queue(topic_id=topic.id)
        records = Records(engine, topic.id, BatchCache(1 << 25))
        done = asyncio.Event()
        scanner = Scanner(engine, queue, records, lambda: NOW, done.set)
        task = asyncio.create_task(scanner.run())
        count = 0
        for turn in range(60):
            if turn in (20, 40):
                topic = await engine.alter_topic(topic.id, partitions=topic.partitions + 2)
                scanner.wake()
            appends = []
            for partition in range(topic.partitions):
                values = [NewRecord(bytes(50), b"%d-%d-%d" % (turn, partition, index)) for index in range(20)]
                appends.append(Append(topic.id, partition, encode_batch(values), topic.generation))
                count += len(values)
            assert all(isinstance(each, Appended) for each in await engine.append(appends))
        async with asyncio.timeout(25):
            while queue.open_records < count:
                done.clear()
                await done.wait()
        granted = queue.take("w", count, NOW)
        keys = {record.key for record in await records.fetch(record_ids(granted)) if isinstance(record, LogRecord)}
        assert len(keys) == count
        await engine.delete_topic(topic.id)
        scanner.wake()
        async with asyncio.timeout(25):
            await task
        assert failures == []


async def test_an_index_that_is_made_anew_keeps_the_order_of_growth_while_records_arrive() -> None:
    log = FakeLog()
    for number in range(10):
        log.append_values(b"%d" % number + bytes(400_000), partition=0)
    end = log.partitions[0].end
    log.grow(2)
    log.append_values(b"new", partition=1)
    async with scanning(log) as scan:
        await scan.all_scanned()
        early: list[int] = []
        admit = scan.queue.admit

        def noted(partition: int, *rest: object) -> None:
            if partition == 1 and scan.position(0) < end:
                early.append(scan.position(0))
            admit(partition, *rest)  # type: ignore[arg-type]

        async def arrive() -> None:
            log.append_values(b"more", partition=1)

        scan.queue.admit = noted  # type: ignore[method-assign, assignment]
        log.before_read = arrive
        scan.queue.rewind({0: 0, 1: 0}, NOW)
        scan.scanner.wake()
        await scan.until(lambda: scan.queue.admission.generation == 2)
        log.before_read = None
        await scan.all_scanned()
        assert early == []
