"""Events while the scan reads: the index is emptied, records are done, the topic goes."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from logbroker.errors import OverloadedError
from logbroker.queues.machine.load import load_queue
from logbroker.queues.model.messages import Nack, Settlement
from logbroker.queues.model.settings import OnExhausted, OnUndecodable, Ordering
from logbroker.queues.scan import scanner as scanner_module
from logbroker.queues.state.completion import PAGE_RECORDS
from logbroker.record.codec import NewRecord, encode_batch
from tests.queues.fake_log import FakeLog, undecodable_batch, unopened_queue
from tests.queues.groups import ack, commit
from tests.queues.scans import NOW, Scan, ready, scanning


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
    async with asyncio.timeout(25):
        await task


async def test_a_scan_whose_index_is_emptied_begins_again() -> None:
    log = FakeLog()
    for number in range(20):
        log.append_values(b"%d" % number, b"k")
    async with scanning(log) as scan:
        await scan.all_scanned()
        granted = scan.queue.take("w", 5, NOW)
        scan.queue.alter(msgspec.structs.replace(scan.queue.settings, ordering=Ordering.NONE))
        ack(scan.queue, granted)
        assert scan.queue.admission.generation == 0
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
        await scan.until(lambda: scan.position(0) == 40_000 and scan.queue.admission.generation == 1)
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
        await scan.until(lambda: scan.position(0) == 70_000 and scan.queue.admission.generation == 1)
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
        again.queue.dead_lettered(letter.record_id, NOW)
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
        scan.queue.lifecycle.goodbye("w", NOW)
        scan.queue.alter(msgspec.structs.replace(scan.queue.settings, ordering=Ordering.KEY))
        scan.scanner.wake()
        await scan.all_scanned()
        assert scan.queue.open_records == ready(scan) == 20_000 - 9_900
