"""The scan over what cannot be read or decoded."""

from __future__ import annotations

import asyncio
import tracemalloc

import msgspec
import pytest

from logbroker.errors import CorruptBatchError
from logbroker.queues.machine.load import load_queue
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import OnUndecodable, Ordering, QueueGroupSettings
from logbroker.queues.records.columns import MAX_BATCHES, Columns, columns_of
from logbroker.queues.state.completion import PAGE_RECORDS
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.compression import Codec, compress
from logbroker.record.header import HEADER, MAX_EXPANDED_BYTES, parse_header, stored_prefix
from logbroker.record.stored_batch import StoredBatch
from tests.hostile.batch_mutants import MIB, sealed
from tests.queues.fake_log import FakeLog, undecodable_batch, unopened_queue
from tests.queues.groups import ack, keep
from tests.queues.scans import NOW, Scan, ready, scanning, some_turns


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
        assert letter.record_id == 1
        assert "cannot be decoded" in letter.reasons[0]
        assert isinstance((await scan.records.fetch([1]))[0], CorruptBatchError)
        scan.queue.dead_lettered(1, NOW)
        ack(scan.queue, scan.queue.take("w", 10, NOW))
        scan.queue.take_outputs()
        assert scan.queue.done.floor(0) == 5


@pytest.mark.prove
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
async def test_an_error_that_is_kept_keeps_nothing_of_what_was_expanded(codec: Codec) -> None:
    log = FakeLog(3)
    bomb = encode_batch([NewRecord(bytes(MAX_EXPANDED_BYTES))], codec=codec)
    damaged = sealed(HEADER.unpack_from(bomb), compress(codec, b"\xff" * (MAX_EXPANDED_BYTES // 2)))
    for partition, batch in enumerate((bomb, bomb, damaged)):
        log.append_batch(batch, partition)
    async with scanning(log) as scan:
        tracemalloc.start()
        try:
            await scan.until(lambda: len(scan.scanner.stopped) == 3)
            errors = await scan.records.fetch([record_id_of(partition, 0) for partition in range(3)])
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert [type(error) for error in errors] == [type(error) for error in scan.scanner.stopped.values()]
        assert kept_bytes < 4 * MIB


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
        assert [(letter.record_id, letter.attempts) for letter in outputs.dead_letters] == [(1, 1)]
        keep(outputs, rows)
        queue = load_queue(rows, {0: 4}, random=lambda: 0.0, route=lambda key: 0)


async def test_such_a_batch_is_one_dead_letter_where_a_start_passes_over_the_page_it_begins_in() -> None:
    log = FakeLog()
    log.append_values(b"held")
    log.leave_gap(PAGE_RECORDS - 2)
    log.append_values(b"last of the first page")
    log.leave_gap(PAGE_RECORDS - 2)
    log.append_batch(undecodable_batch(b"x", b"y", b"z", b"zz"))
    queue = unopened_queue(on_undecodable=OnUndecodable.DEAD_LETTER, dead_letter_topic="d")
    rows: dict[bytes, bytes] = {}
    letters: list[int] = []
    for _ in range(2):
        scan = Scan(log, queue)
        task = asyncio.create_task(scan.scanner.run())
        await scan.all_scanned()
        task.cancel()
        outputs = queue.take_outputs()
        keep(outputs, rows)
        for letter in outputs.dead_letters:
            letters.append(letter.record_id)
            queue.dead_lettered(letter.record_id, NOW)
        assert scan.queue.open_records == 2, "both others"
        keep(queue.take_outputs(), rows)
        queue = load_queue(rows, {0: log.partitions[0].end}, random=lambda: 0.0, route=lambda key: 0)
    assert letters == [2 * PAGE_RECORDS - 2]


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
    pieces = [piece for piece in columns_of(batches, 1990, QueueGroupSettings()) if isinstance(piece, Columns)]
    assert [piece.offsets for piece in pieces] == [range(1990, 2000)]
    pieces = [piece for piece in columns_of(batches, 0, QueueGroupSettings()) if isinstance(piece, Columns)]
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
