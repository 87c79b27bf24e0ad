"""The index that a queue group keeps: used where it fits, and gone when it is of no use."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from logbroker.engine import Append
from logbroker.queues.model.messages import Settlement
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import Ordering
from logbroker.queues.model.starts import StartAt
from logbroker.queues.scan.index_cache import cache as cache_module
from logbroker.queues.scan.index_cache.files import DIRECTORY, IndexCacheFiles
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.message_headers import NOT_BEFORE, PRIORITY
from tests.queues.index_caches import (
    ORDERINGS,
    PARTITIONS,
    Reads,
    all_values,
    files,
    fill,
    group_of,
    order_without_index_cache,
    small_blocks,
)
from tests.queues.shell import ack, hello, records, shell, take, until


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("ending", ["stop", "crash", "crash after a checkpoint", "without files"])
async def test_the_order_after_a_restart_is_that_without_one(tmp_path: Path, ordering: Ordering, ending: str) -> None:
    seed, acked = 5, 20
    expected = await order_without_index_cache(tmp_path / "other", ordering, seed, acked)
    path = tmp_path / "one"
    async with shell(path, crash=ending.startswith("crash")) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, ordering)
        await fill(opened, random.Random(seed))
        await until(lambda: group.scanner.unscanned() == 0 and not group.scanner.is_indexing)
        link = await group.connect(hello())
        for _ in range(acked):
            [(receipt, _)] = await take(link, 1)
            await ack(link, receipt)
        await link.goodbye()
        if ending == "crash after a checkpoint":
            group.index_cache.close()
    if ending == "without files":
        for file in files(path):
            if file.is_file():
                file.unlink()
    async with shell(path) as opened:
        reads = Reads(opened)
        group = opened.groups.group("g")
        await until(lambda: not group.scanner.is_indexing)
        used = ending in ("stop", "crash after a checkpoint")
        assert bool(reads.offsets) is not used, "the log was read for what is kept of it, or nothing was kept"
        assert await all_values(group) == expected


async def test_a_rewind_uses_what_is_kept_and_misses_nothing(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, Ordering.NONE)
        await fill(opened, random.Random(1))
        before = await all_values(group)
        await group.operations.rewind(StartAt())
        assert await all_values(group) == before


async def test_not_before_times_are_kept(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        topic = await opened.topic()
        await group_of(opened, Ordering.NONE)
        headers: list[tuple[str, bytes | None]] = [(NOT_BEFORE, b"9999999999999"), (PRIORITY, b"9")]
        batch = encode_batch([NewRecord(b"later", None, headers), NewRecord(b"now", None, [(PRIORITY, b"0")])])
        await opened.engine.append([Append(topic.id, 0, batch)])
        group = opened.groups.group("g")
        await until(lambda: group.queue.open_records == 2)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        link = await group.connect(hello())
        [(_, record)] = await take(link, 1)
        assert record.value == b"now"
        assert group.queue.ready_records() == 0


async def test_a_deleted_group_leaves_no_files_and_another_of_its_name_sees_none(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, Ordering.NONE)
        await fill(opened, random.Random(1))
        await until(lambda: group.scanner.unscanned() == 0)
        group.index_cache.close()
        assert files(tmp_path)
        await opened.groups.delete("g")
        assert not files(tmp_path)
    stray = tmp_path / "data" / DIRECTORY / "gone.index" / "1.blocks"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"x")
    async with shell(tmp_path):
        assert not files(tmp_path)


def full(files: IndexCacheFiles, data: bytes) -> tuple[int, int]:
    raise OSError(28, "No space left on device")


async def test_a_disk_that_takes_nothing_is_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(IndexCacheFiles, "append", full)
    with small_blocks(monkeypatch, 16):
        async with shell(tmp_path) as opened:
            await opened.topic(partitions=PARTITIONS)
            group = await group_of(opened, Ordering.NONE)
            await fill(opened, random.Random(1))
            await until(lambda: group.scanner.unscanned() == 0)
            count = group.queue.open_records
            assert len(await all_values(group)) == count
    assert (
        caplog.text.count("is not kept on disk any more (No space left on device; free some space, then try again)")
        == 1
    )
    assert not files(tmp_path)


async def test_what_is_done_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logbroker.queues.scan.index_cache.files.FILE_BYTES", 1000)
    with small_blocks(monkeypatch, 16):
        async with shell(tmp_path) as opened:
            await opened.topic(partitions=PARTITIONS)
            group = await group_of(opened, Ordering.NONE)
            draw = random.Random(1)
            for _ in range(10):  # What is scanned at once may go into one file.
                await fill(opened, draw, batches=10)
                await until(lambda: group.scanner.unscanned() == 0)
            before = len(files(tmp_path))
            link = await group.connect(hello())
            await ack(link, *[receipt for receipt, _ in await take(link, group.queue.open_records)])
            await link.settle(Settlement())
            group.index_cache.close()
            assert before > 4
            assert len([file for file in files(tmp_path) if file.suffix == ".blocks"]) <= 1


@pytest.mark.parametrize("why", ["blocks take too much room", "the disk is full"])
async def test_files_stay_for_as_long_as_the_index_may_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    monkeypatch.setattr("logbroker.queues.scan.index_cache.files.FILE_BYTES", 1000)
    with small_blocks(monkeypatch, 16):
        async with shell(tmp_path) as opened:
            await opened.topic(partitions=PARTITIONS)
            group = await group_of(opened, Ordering.NONE)
            await fill(opened, random.Random(1), batches=100)
            await until(lambda: group.scanner.unscanned() == 0)
        async with shell(tmp_path) as opened:
            group = opened.groups.group("g")
            await until(lambda: not group.scanner.is_indexing)
            if why == "the disk is full":
                monkeypatch.setattr(IndexCacheFiles, "append", full)
            else:
                monkeypatch.setattr(cache_module, "MAX_BYTES", 0)
            await fill(opened, random.Random(2), batches=20)
            await until(lambda: group.scanner.unscanned() == 0)
            for _ in group.index_cache._steps(1):
                pass
            count = group.queue.open_records
            assert len(await all_values(group)) == count
            group.index_cache.close()
            assert "damaged" not in caplog.text
            kept = [file for file in files(tmp_path) if file.suffix == ".blocks"]
            assert len(kept) <= 1 or why == "the disk is full", "what is done keeps its files"


async def test_a_group_without_priorities_keeps_nothing(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await opened.group()
        await fill(opened, random.Random(1))
        await until(lambda: group.scanner.unscanned() == 0)
    assert not files(tmp_path)


async def test_workers_come_back_for_what_lies_in_blocks_that_are_not_read(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, Ordering.NONE, grace_seconds=1.0)
        await fill(opened, random.Random(1))
        await until(lambda: group.scanner.unscanned() == 0)
        link = await group.connect(hello())
        link.add_credit(7)
        delivered = await link.next_deliveries()
        held = list(map(record_id_of, delivered.partitions, delivered.offsets))
        waiting = group.queue.open_records
        group.index_cache.close()
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        link = await group.connect(hello(held=held))
        assert sorted(record_id for granted in link.reclaimed for record_id in granted.record_ids) == sorted(held)
        other = await group.connect(hello("other"))
        rest = await take(other, waiting - len(held))
        assert len({record.value for _, record in rest}) == len(rest)
        assert not {record.value for _, record in rest} & {record.value for record in records(delivered)}
