"""The scan of a topic: order, generations, what cannot be read, and what happens meanwhile."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logbroker.broker.local_engine.lifetime import open_engine
from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.engine import Append, Appended
from logbroker.errors import CorruptBatchError, OverloadedError, PartitionOfflineError
from logbroker.queues import scanner as scanner_module
from logbroker.queues.batch_cache import BatchCache
from logbroker.queues.columns import MAX_BATCHES, MAX_RECORDS, Columns, columns_of
from logbroker.queues.done import PAGE_RECORDS
from logbroker.queues.messages import Nack, Settlement
from logbroker.queues.places import Moment, place_of
from logbroker.queues.queue import Queue
from logbroker.queues.records import Records
from logbroker.queues.restart import load_queue
from logbroker.queues.scanner import Scanner
from logbroker.queues.settings import OnExhausted, OnUndecodable, Ordering, QueueSettings
from logbroker.record.codec import LogRecord, NewRecord, encode_batch
from logbroker.record.compression import Codec
from logbroker.record.header import parse_header, stored_prefix
from logbroker.record.message_headers import NOT_BEFORE
from logbroker.record.stored_batch import StoredBatch
from logbroker.types import TopicId
from tests.queues.fake_log import FakeLog, undecodable_batch, unopened_queue
from tests.queues.groups import TOPIC_ID, ack, at, commit, keep, places

NOW = at(0)


class Scan:
    """A scan that runs, and the queue that it feeds."""

    def __init__(self, log: FakeLog, queue: Queue) -> None:
        self.log = log
        self.queue = queue
        self.records = Records(log.engine, TopicId(TOPIC_ID), BatchCache(1 << 25))
        self.scanner = Scanner(log.engine, queue, self.records, lambda: NOW, self._changed)
        self._event = asyncio.Event()

    def _changed(self) -> None:
        self._event.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._event.clear()
                await self._event.wait()

    def position(self, partition: int) -> int:
        return self.queue.position(partition) if self.queue.done.is_open(partition) else 0

    async def all_scanned(self) -> None:
        await self.until(lambda: self.scanner.unscanned() == 0)

    async def values(self, worker_id: str = "w") -> list[bytes | None]:
        """Take all that is ready, and say what it is."""
        granted = self.queue.take(worker_id, 1_000_000, NOW)
        fetched = await self.records.fetch(places(granted))
        return [record.value for record in fetched if isinstance(record, LogRecord)]


@asynccontextmanager
async def scanning(log: FakeLog, **settings: Any) -> AsyncIterator[Scan]:
    scan = Scan(log, unopened_queue(**settings))
    task = asyncio.create_task(scan.scanner.run())
    try:
        yield scan
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled() or task.exception() is None
    assert not log.watches


async def some_turns() -> None:
    """Let happen what would happen."""
    for _ in range(20):
        await asyncio.sleep(0)


def ready(scan: Scan) -> int:
    return scan.queue.lanes.ready_records


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
        assert places(granted) == [1, 2, 11]
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
        async with asyncio.timeout(10):
            while taken < 100_001:
                taken += len(places(scan.queue.take(f"w{taken}", 10_000, NOW)))
                scan.scanner.wake()
                await asyncio.sleep(0)
                assert ready(scan) < 100 + MAX_RECORDS


# --- generations -----------------------------------------------------------------------------------------------------


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
        assert order == [*range(1, 100, 2), place_of(2, 0), place_of(4, 0)]


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
        assert scan.queue.intake.generation == 2


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
        assert scan.queue.intake.generation == 1
        assert isinstance(scan.scanner.stopped[0], PartitionOfflineError)


# --- what cannot be read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordering", Ordering)
async def test_a_batch_that_cannot_be_decoded_stops_its_partition_alone(
    ordering: Ordering, caplog: pytest.LogCaptureFixture
) -> None:
    log = FakeLog(2)
    log.append_values(b"a")
    log.append_batch(undecodable_batch(b"x", b"y"))
    log.append_values(b"b")
    log.append_values(b"c", partition=1)
    async with scanning(log, ordering=ordering) as scan:
        await scan.until(lambda: 0 in scan.scanner.stopped and scan.position(1) == 1)
        assert isinstance(scan.scanner.stopped[0], CorruptBatchError)
        assert scan.position(0) == 1
        log.append_values(b"d", partition=0)
        await some_turns()
        assert sum("not served" in record.message for record in caplog.records) == 1, "it is told once"
        log.append_values(b"e", partition=1)
        await scan.until(lambda: scan.position(1) == 2)
        assert scan.position(0) == 1
        assert scan.scanner.unscanned() == 4


@pytest.mark.parametrize("ordering", Ordering)
async def test_such_a_batch_becomes_one_dead_letter_where_the_group_says_so(ordering: Ordering) -> None:
    log = FakeLog()
    log.append_values(b"a")
    bad = undecodable_batch(b"x", b"y", b"z")
    log.append_batch(bad)
    log.append_values(b"b")
    async with scanning(log, ordering=ordering) as scan:
        await scan.until(lambda: 0 in scan.scanner.stopped)
        settings = msgspec.structs.replace(
            scan.queue.settings, on_undecodable=OnUndecodable.DEAD_LETTER, dead_letter_topic="d"
        )
        scan.queue.alter(settings)
        scan.scanner.wake()
        await scan.all_scanned()
        assert scan.scanner.stopped == {}
        assert scan.queue.open_records == 3, "the batch counts as one record"
        if ordering is Ordering.SINGLE:
            assert scan.queue.take_outputs().dead_letters == [], "in its turn"
        ack(scan.queue, scan.queue.take("w", 1, NOW))
        [letter] = scan.queue.take_outputs().dead_letters
        assert letter.place == 1
        assert "cannot be decoded" in letter.reasons[0]
        assert isinstance((await scan.records.fetch([1]))[0], CorruptBatchError)
        scan.queue.dead_lettered(1, NOW)
        ack(scan.queue, scan.queue.take("w", 10, NOW))
        scan.queue.take_outputs()
        assert scan.queue.done.floor(0) == 5


async def test_such_a_batch_is_one_dead_letter_also_from_its_middle_and_after_a_start() -> None:
    log = FakeLog()
    log.append_batch(undecodable_batch(b"x", b"y", b"z"))
    log.append_values(b"a")
    queue = unopened_queue(on_undecodable=OnUndecodable.DEAD_LETTER, dead_letter_topic="d")
    queue.open_partition(0, 1)
    rows: dict[bytes, bytes] = {}
    for _ in range(3):
        scan = Scan(log, queue)
        task = asyncio.create_task(scan.scanner.run())
        await scan.all_scanned()
        task.cancel()
        assert scan.queue.open_records == 2
        outputs = queue.take_outputs()
        assert [(letter.place, letter.attempts) for letter in outputs.dead_letters] == [(1, 1)]
        keep(outputs, rows)
        queue = load_queue(rows, {0: 4}, random=lambda: 0.0, route=lambda key: 0)


async def test_bytes_that_are_no_batch_stop_the_partition_after_what_comes_before_them() -> None:
    log = FakeLog()
    log.append_values(b"a", b"b")
    log.append_values(b"c")
    log.partitions[0].batches[1] = log.partitions[0].batches[1][:-3]
    async with scanning(log) as scan:
        await scan.until(lambda: bool(scan.scanner.stopped))
        assert isinstance(scan.scanner.stopped[0], CorruptBatchError)
        assert scan.position(0) == 2
        assert ready(scan) == 2


def test_many_small_batches_are_many_pieces() -> None:
    raw = encode_batch([NewRecord(b"v", b"k")])
    batches = []
    for offset in range(2000):
        batch = stored_prefix(offset, len(raw) - 12, 0) + raw[16:]
        batches.append(StoredBatch(parse_header(batch), batch))
    pieces = [piece for piece in columns_of(batches, 1990, QueueSettings()) if isinstance(piece, Columns)]
    assert [piece.offsets for piece in pieces] == [range(1990, 2000)]
    pieces = [piece for piece in columns_of(batches, 0, QueueSettings()) if isinstance(piece, Columns)]
    assert [len(piece.batches) for piece in pieces] == [MAX_BATCHES] * 3 + [2000 - 3 * MAX_BATCHES]
    assert [offset for piece in pieces for offset in piece.offsets] == list(range(2000))


async def test_damaged_bytes_are_never_handed_out() -> None:
    log = FakeLog()
    log.append_values(b"a")
    batch = bytearray(encode_batch([NewRecord(b"value")]))
    batch[-3] ^= 1
    log.append_batch(bytes(batch))
    for ordering in Ordering:
        async with scanning(log, ordering=ordering) as scan:
            await scan.until(lambda scan=scan: bool(scan.scanner.stopped))  # type: ignore[misc]
            assert "CRC" in str(scan.scanner.stopped[0])


async def test_an_engine_with_too_much_to_do_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner_module, "RETRY_SECONDS", 0)
    log = FakeLog()
    log.append_values(b"a")
    log.partitions[0].error = OverloadedError("later")

    async def third() -> None:
        if len(log.reads) == 3:
            log.partitions[0].error = None

    log.before_read = third
    async with scanning(log) as scan:
        await scan.all_scanned()
        assert scan.scanner.stopped == {}


async def test_the_scan_ends_with_its_topic() -> None:
    log = FakeLog()
    log.append_values(b"a")
    scan = Scan(log, unopened_queue())
    task = asyncio.create_task(scan.scanner.run())
    await scan.all_scanned()
    log.deleted = True
    scan.scanner.wake()
    async with asyncio.timeout(10):
        await task


# --- what happens meanwhile ------------------------------------------------------------------------------------------


async def test_a_scan_whose_index_is_emptied_begins_again() -> None:
    log = FakeLog()
    for number in range(20):
        log.append_values(b"%d" % number, b"k")
    async with scanning(log) as scan:
        await scan.all_scanned()
        granted = scan.queue.take("w", 5, NOW)
        scan.queue.alter(msgspec.structs.replace(scan.queue.settings, ordering=Ordering.NONE))
        ack(scan.queue, granted)
        assert scan.queue.intake.generation == 0
        scan.scanner.wake()
        await scan.all_scanned()
        assert ready(scan) == 35
        assert scan.queue.open_records == 35


async def test_an_index_that_is_emptied_during_a_read_or_a_step_of_decoding_takes_nothing_twice() -> None:
    log = FakeLog()
    for number in range(40):
        log.append(*(NewRecord(bytes(50), b"%d-%d" % (number, index)) for index in range(1000)))
    orderings = [Ordering.NONE, Ordering.KEY]
    async with scanning(log) as scan:

        async def alter() -> None:
            if len(log.reads) % 3 == 0 and len(log.reads) < 30:
                ordering = orderings[len(log.reads) // 3 % 2]
                scan.queue.alter(msgspec.structs.replace(scan.queue.settings, ordering=ordering))

        log.before_read = alter
        for turn in range(10):
            await scan.until(lambda turn=turn: scan.position(0) > turn * 1000)  # type: ignore[misc]
            await asyncio.sleep(0)
            scan.queue.alter(msgspec.structs.replace(scan.queue.settings, ordering=orderings[turn % 2]))
            scan.scanner.wake()
        await scan.all_scanned()
        assert scan.queue.open_records == ready(scan) == 40_000


async def test_an_index_that_is_emptied_while_the_log_is_found_to_begin_later_is_not_taken_further() -> None:
    log = FakeLog()
    log.append_values(b"a", b"b")
    async with scanning(log) as scan:
        await scan.all_scanned()
        log.append_values(b"c")
        log.drop_below(3)

        async def alter() -> None:
            log.before_read = None
            scan.queue.alter(msgspec.structs.replace(scan.queue.settings, ordering=Ordering.NONE))

        log.before_read = alter
        log.append_values(b"d")
        await scan.until(lambda: scan.position(0) == 4)
        assert await scan.values() == [b"d"]


async def test_a_position_that_leaps_over_what_is_done_during_a_read_is_scanned_from_there() -> None:
    log = FakeLog()
    for number in range(40):
        log.append(*(NewRecord(b"", b"%d-%d" % (number, index)) for index in range(1000)))
    async with scanning(log) as scan:
        await scan.all_scanned()

        async def finish_a_page() -> None:
            log.before_read = None
            scan.queue.done.mark_range(0, PAGE_RECORDS)
            scan.queue.take_outputs()

        log.before_read = finish_a_page
        scan.queue.alter(msgspec.structs.replace(scan.queue.settings, ordering=Ordering.NONE))
        scan.scanner.wake()
        await scan.until(lambda: scan.position(0) == 40_000 and scan.queue.intake.generation == 1)
        assert scan.queue.open_records == ready(scan) == 40_000 - PAGE_RECORDS


async def test_whole_pages_that_are_done_are_leapt_over_in_the_middle_of_a_read() -> None:
    log = FakeLog()
    for number in range(70):
        values = [b""] * 1000
        log.append_batch(undecodable_batch(*values) if number == 50 else encode_batch([*map(NewRecord, values)]))
    assert sum(map(len, log.partitions[0].batches)) < 1 << 20, "one read"
    async with scanning(log, on_undecodable=OnUndecodable.DEAD_LETTER, dead_letter_topic="d") as scan:
        await scan.all_scanned()
        scan.queue.done.mark_range(PAGE_RECORDS, 2 * PAGE_RECORDS)
        scan.queue.take_outputs()
        scan.queue.alter(msgspec.structs.replace(scan.queue.settings, ordering=Ordering.NONE))
        scan.scanner.wake()
        await scan.until(lambda: scan.position(0) == 70_000 and scan.queue.intake.generation == 1)
        assert scan.queue.open_records == ready(scan) == 70_000 - PAGE_RECORDS


async def test_nothing_done_comes_again_where_the_floor_passes_the_scan_after_a_start() -> None:
    log = FakeLog()
    for number in range(40):
        log.append(*(NewRecord(b"", b"%d-%d" % (number, index)) for index in range(1000)))
    settings = {"max_in_flight": 100_000, "max_attempts": 1, "on_exhausted": OnExhausted.DEAD_LETTER}
    rows: dict[bytes, bytes] = {}
    async with scanning(log, **settings, dead_letter_topic="d") as scan:
        await scan.all_scanned()
        [granted] = scan.queue.take("w", 39_000, NOW)
        first = granted.first_receipt
        settlement = Settlement(acks=[(first + 1, first + 38_999)], nacks=[Nack(first, first, "broken")])
        assert scan.queue.settle("w", settlement, NOW) == []
        commit(scan.queue, rows)
    again = Scan(log, load_queue(rows, {0: 40_000}, random=lambda: 0.0, route=lambda key: 0))
    [letter] = again.queue.take_outputs().dead_letters

    async def synced() -> None:
        log.before_read = None
        again.queue.dead_lettered(letter.place, NOW)
        again.queue.take_outputs()

    log.before_read = synced
    task = asyncio.create_task(again.scanner.run())
    await again.all_scanned()
    task.cancel()
    assert again.queue.open_records == ready(again) == 1000


async def test_records_done_while_they_are_scanned_are_passed_over() -> None:
    log = FakeLog()
    for number in range(5):
        log.append_values(*(b"%d-%d" % (number, index) for index in range(4000)))
    async with scanning(log, ordering=Ordering.NONE) as scan:
        await scan.all_scanned()
        granted = scan.queue.take("w", 12_000, NOW)
        settlement = Settlement(acks=[(granted[0].first_receipt + 100, granted[0].first_receipt + 9_999)])
        assert scan.queue.settle("w", settlement, NOW) == []
        scan.queue.presence.goodbye("w", NOW)
        scan.queue.alter(msgspec.structs.replace(scan.queue.settings, ordering=Ordering.KEY))
        scan.scanner.wake()
        await scan.all_scanned()
        assert scan.queue.open_records == ready(scan) == 20_000 - 9_900


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
        async with asyncio.timeout(10):
            while queue.open_records < count:
                done.clear()
                await done.wait()
        granted = queue.take("w", count, NOW)
        keys = {record.key for record in await records.fetch(places(granted)) if isinstance(record, LogRecord)}
        assert len(keys) == count
        await engine.delete_topic(topic.id)
        scanner.wake()
        async with asyncio.timeout(10):
            await task
        assert failures == []


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


async def test_time_per_record_of_the_scan() -> None:
    log = FakeLog()
    count = 100_000
    for base in range(0, count, 1000):
        log.append(*(NewRecord(bytes(80), b"key-%05d" % (number % 10_000)) for number in range(base, base + 1000)))
    gc.collect()
    async with scanning(log) as scan:
        begun = time.process_time()
        await scan.all_scanned()
        microseconds = (time.process_time() - begun) / count * 1e6
    print(f"scanned: {microseconds:.2f} us/record")  # noqa: T201
    assert microseconds < 8, "0.5 on an idle core"
