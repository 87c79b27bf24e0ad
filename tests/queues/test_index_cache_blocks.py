"""The blocks of an index cache: found as a plain list would find them, and written without holding anybody up."""

from __future__ import annotations

import asyncio
import random
from array import array
from pathlib import Path

import pytest

from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import Ordering, Priority
from logbroker.queues.records.columns import Columns
from logbroker.queues.scan.index_cache import cache as cache_module
from logbroker.queues.scan.index_cache.blocks import Blocks
from logbroker.queues.scan.index_cache.cache import IndexCache
from logbroker.queues.scan.index_cache.files import IndexCacheFiles
from logbroker.queues.scan.index_cache.format import BlockSummary, Checkpoint, decode, split
from tests.queues.fake_log import FakeLog
from tests.queues.groups import new_queue


def summary(partition: int, first: int, end: int, file: int = 1, position: int = 0) -> BlockSummary:
    counts = [0] * 4 + [end - first] + [0] * 5
    return BlockSummary(partition, 1, 0, first, end, counts, [(0, first)] * 10, 0, file, position, 10 + end - first)


@pytest.mark.parametrize("seed", range(20))
def test_blocks_are_those_of_a_plain_list(seed: int) -> None:
    draw = random.Random(seed)
    blocks = Blocks()
    plain: list[BlockSummary] = []
    for number in range(200):
        before = blocks.changes, list(plain)
        partition, offset = draw.randrange(3), draw.randrange(60)
        how = draw.choice(
            ["put", "put", "put", "put", "below", "drop", "files", "clear" if number % 50 == 49 else "put"]
        )
        if how == "put":
            new = summary(partition, offset, offset + draw.randrange(1, 8), draw.randrange(4), number)
            plain = [
                each
                for each in plain
                if each.partition != partition
                or each.next_offset <= new.first_offset
                or each.first_offset >= new.next_offset
            ]
            plain.append(new)
            blocks.put(new)
        elif how == "below":
            plain = [each for each in plain if each.partition != partition or each.next_offset > offset]
            blocks.drop_below(partition, offset)
        elif how == "drop":
            gone = draw.choice(plain) if plain and draw.random() < 0.7 else summary(partition, offset, offset + 2)
            plain = [each for each in plain if each != gone]
            blocks.drop(gone)
        elif how == "files":
            gone_files = {draw.randrange(4)}
            plain = [each for each in plain if each.file not in gone_files]
            blocks.drop_files(gone_files)
        else:
            plain = []
            blocks.clear()
        assert sorted(blocks, key=_place) == sorted(plain, key=_place)
        assert blocks.changes > before[0] or before[1] == plain
        found = [each for each in plain if each.partition == partition and offset in range(*_span(each))]
        assert blocks.at(partition, offset) == (found[0] if found else None)
        sizes = {file: sum(each.size_bytes for each in plain if each.file == file) for file in range(4)}
        assert blocks.bytes_by_file == {file: size for file, size in sizes.items() if size}


def _place(block: BlockSummary) -> int:
    return record_id_of(block.partition, block.first_offset)


def _span(block: BlockSummary) -> tuple[int, int]:
    return block.first_offset, block.next_offset


def ranked_queue(log: FakeLog) -> Queue:
    return new_queue(len(log.partitions), ordering=Ordering.NONE, priority=Priority.STRICT)


async def index_cache_of(path: Path, log: FakeLog) -> IndexCache:
    cache = IndexCache("g", ranked_queue(log), log.engine, path)
    await cache.load()
    return cache


def gather(cache: IndexCache, partition: int, first: int, count: int) -> None:
    offsets = range(first, first + count)
    columns = Columns(offsets, offsets.stop, [], [], bytes(count), array("q", offsets), [])
    cache.gather(partition, 1, first, columns)


def kept(path: Path) -> list[tuple[int, int, int]]:
    """Return what a start would find: partitions and offsets of all blocks."""
    parts = [decode(part, Checkpoint) for part in split(IndexCacheFiles(path, "g").read_checkpoint())]
    return sorted((block.partition, *_span(block)) for part in parts if part is not None for block in part.blocks)


async def test_a_checkpoint_takes_many_steps_and_counts_when_all_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "PART_BLOCKS", 2)
    log = FakeLog(7)
    cache = await index_cache_of(tmp_path, log)
    for partition in range(7):
        gather(cache, partition, 0, 3)
    for _ in cache._steps(1):
        pass
    assert kept(tmp_path) == [(partition, 0, 3) for partition in range(7)]
    for partition in range(7):
        gather(cache, partition, 3, 3)
    steps = cache._steps(1)
    for _ in range(7 + 5):  # All blocks, and most of their parts.
        next(steps)
    assert kept(tmp_path) == [(partition, 0, 3) for partition in range(7)], "a part of a checkpoint counted"
    del steps
    gather(cache, 0, 6, 3)
    cache.close()
    assert len(kept(tmp_path)) == 2 * 7 + 1
    assert len(list((await index_cache_of(tmp_path, log))._blocks)) == 2 * 7 + 1


async def test_others_have_their_turn_between_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "PART_BLOCKS", 1)
    monkeypatch.setattr(cache_module, "CHECKPOINT_SECONDS", 0.0)
    log = FakeLog(50)
    cache = await index_cache_of(tmp_path, log)
    for partition in range(50):
        gather(cache, partition, 0, cache_module.MIN_BLOCK_RECORDS)
    keeping = asyncio.create_task(cache.keep())
    turns = 0
    async with asyncio.timeout(25):
        while len(kept(tmp_path)) < 50:
            await asyncio.sleep(0)
            turns += 1
    keeping.cancel()
    await asyncio.wait([keeping])
    assert turns >= 100, "a turn for each block, and for each part of the checkpoint"


async def stopped_with_blocks(path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int) -> FakeLog:
    """Leave a checkpoint of one block a partition, each a part of its own."""
    monkeypatch.setattr(cache_module, "PART_BLOCKS", 1)
    log = FakeLog(partitions)
    cache = await index_cache_of(path, log)
    for partition in range(partitions):
        gather(cache, partition, 0, 3)
    cache.close()
    assert len(kept(path)) == partitions
    return log


async def test_others_have_their_turn_while_a_checkpoint_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await stopped_with_blocks(tmp_path, monkeypatch, 50)
    loading = asyncio.create_task(index_cache_of(tmp_path, log))
    turns = 0
    while not loading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 50, "a turn for each part"
    assert len(list(loading.result()._blocks)) == 50


async def test_a_stop_within_the_takeover_leaves_the_files_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await stopped_with_blocks(tmp_path, monkeypatch, 5)
    stopped = IndexCache("g", ranked_queue(log), log.engine, tmp_path)
    loading = asyncio.create_task(stopped.load())
    while not list(stopped._blocks):
        await asyncio.sleep(0)
    loading.cancel()
    await asyncio.wait([loading])
    stopped.close()
    assert len(list(stopped._blocks)) < 5, "all was taken over already"
    assert len(list((await index_cache_of(tmp_path, log))._blocks)) == 5


async def test_what_is_too_much_to_gather_is_written_little_by_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "MAX_GATHERED_RECORDS", 100)
    cache = await index_cache_of(tmp_path, FakeLog(10))
    written: list[int] = []
    for partition in range(10):
        gather(cache, partition, 0, 30)
        written.append(len(list(cache._blocks)))
        assert cache._gathered_records < 100
    assert written == [0, 0, 0, 1, 2, 3, 4, 5, 6, 7]


async def test_a_disk_that_is_full_within_a_checkpoint_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = FakeLog(3)
    cache = await index_cache_of(tmp_path, log)
    for partition in range(3):
        gather(cache, partition, 0, 3)
    monkeypatch.setattr("os.write", lambda fd, data: 1)
    cache.close()
    assert caplog.text.count("is not kept on disk any more (the disk is full)") == 1
    assert kept(tmp_path) == []
