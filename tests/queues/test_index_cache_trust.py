"""The index that a queue group kept counts only where it fits: not damaged, nor of another boot, log or key."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logbroker.broker.local_engine.engine import LocalEngine
from logbroker.engine import Append, Appended
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.settings import Ordering, Priority
from logbroker.queues.records.columns import Block
from logbroker.queues.scan.index_cache.cache import IndexCache
from logbroker.queues.scan.index_cache.format import Checkpoint
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.message_headers import PRIORITY
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
from tests.queues.shell import Shell, shell, until


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("seed", range(3))
async def test_damaged_files_are_never_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordering: Ordering, seed: int
) -> None:
    draw = random.Random(seed)
    expected = await order_without_index_cache(tmp_path / "other", ordering, seed, 0)
    path = tmp_path / "one"
    with small_blocks(monkeypatch, 16):
        async with shell(path) as opened:
            await opened.topic(partitions=PARTITIONS)
            group = await group_of(opened, ordering)
            await fill(opened, random.Random(seed))
            await until(lambda: group.scanner.unscanned() == 0 and not group.scanner.is_indexing)
        [blocks] = [file for file in files(path) if file.suffix == ".blocks"]
        data = bytearray(blocks.read_bytes())
        if seed == 0:
            data = data[: len(data) // 2]
        for _ in range(5):
            data[draw.randrange(len(data))] ^= 0xFF
        blocks.write_bytes(data)
        async with shell(path) as opened:
            group = opened.groups.group("g")
            values = await all_values(group)
            assert sorted(map(str, values)) == sorted(map(str, expected))
            if ordering is Ordering.KEY:
                assert values == expected


async def refused_files(path: Path, change: Callable[[], Any], **settings: Any) -> list[tuple[int, int]]:
    """Return the reads of the log at a start after a change."""
    async with shell(path) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, Ordering.KEY, **settings)
        await fill(opened, random.Random(1))
        await until(lambda: group.scanner.unscanned() == 0 and not group.scanner.is_indexing)
    change()
    async with shell(path) as opened:
        reads = Reads(opened)
        group = opened.groups.group("g")
        await until(lambda: not group.scanner.is_indexing)
        return reads.offsets


async def test_files_of_another_boot_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await refused_files(tmp_path / "a", lambda: None) == []
    change = lambda: monkeypatch.setattr(LocalEngine, "boot_id", "another boot")  # noqa: E731
    assert await refused_files(tmp_path / "b", change) != []


async def append(opened: Shell, *batch: NewRecord) -> None:
    [result] = await opened.engine.append([Append(opened.engine.topic("t").id, 0, encode_batch(batch))])
    assert isinstance(result, Appended)


def of_priority(priority: int, value: bytes) -> NewRecord:
    return NewRecord(value, None, [(PRIORITY, b"%d" % priority)], timestamp_ms=1000)


async def test_blocks_of_a_log_that_was_cut_are_not_used(tmp_path: Path) -> None:
    """Where the log was cut, what is written there since may be another record."""
    async with shell(tmp_path / "killed") as opened:
        await opened.topic()
        group = await group_of(opened, Ordering.NONE)
        await append(opened, of_priority(5, b"kept"))
        await append(opened, of_priority(9, b"lost"), of_priority(0, b"lost too"))
        await until(lambda: group.scanner.unscanned() == 0)
        group.index_cache.close()
        # What a killed process leaves behind, but for the end of its last write.
        shutil.copytree(tmp_path / "killed" / "data", tmp_path / "data")
    [log] = (tmp_path / "data" / "t-0").glob("*.log")
    os.truncate(log, log.stat().st_size - 1)
    async with shell(tmp_path, crash=True) as opened:
        assert [record.value for record in await opened.stored("t")] == [b"kept"]
        group = opened.groups.group("g")
        await append(opened, of_priority(0, b"cold"), of_priority(9, b"urgent"))
        await until(lambda: group.scanner.unscanned() == 0)
    async with shell(tmp_path) as opened:
        assert await all_values(opened.groups.group("g")) == [b"urgent", b"kept", b"cold"]


async def lanes_after(path: Path, before: dict[str, Any], changes: dict[str, Any]) -> list[set[bytes | None]]:
    """The keys that a group has lanes of after other settings, when blocks of those before are there: at once, and
    after a crash. Its records have keys k0 to k4 and tenants t0 and t1."""
    found: list[set[bytes | None]] = []

    async def look(group: QueueGroup) -> None:
        await until(lambda: not group.scanner.is_indexing)
        found.append({lane.key for lane in group.queue.lanes})

    async with shell(path, crash=True) as opened:
        await opened.topic()
        group = await opened.group(priority=Priority.STRICT, **before)
        batch = [NewRecord(b"", b"k%d" % (number % 5), [("tenant", b"t%d" % (number % 2))]) for number in range(10)]
        await append(opened, *batch)
        await until(lambda: group.scanner.unscanned() == 0)
        group.index_cache.close()
        await opened.groups.alter("g", changes)
        await look(group)
    async with shell(path) as opened:
        await look(opened.groups.group("g"))
    return found


KEYS = {b"k%d" % number for number in range(5)}
TENANTS = {b"t0", b"t1"}


async def test_blocks_of_another_ordering_are_not_used(tmp_path: Path) -> None:
    assert await lanes_after(tmp_path, {"ordering": Ordering.NONE}, {"ordering": Ordering.KEY}) == [KEYS, KEYS]


async def test_blocks_of_another_key_header_are_not_used(tmp_path: Path) -> None:
    assert await lanes_after(tmp_path / "a", {}, {"key_header": "tenant"}) == [TENANTS, TENANTS]
    assert await lanes_after(tmp_path / "b", {"key_header": "tenant"}, {"key_header": ""}) == [KEYS, KEYS]


async def test_what_is_kept_after_other_settings_is_of_them(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, Ordering.NONE)
        await fill(opened, random.Random(1))
        await until(lambda: group.scanner.unscanned() == 0)
        assert group.queue.lanes.count == 0
        await opened.groups.alter("g", {"ordering": Ordering.KEY})
        await until(lambda: group.queue.lanes.count and not group.scanner.is_indexing)
        lanes = group.queue.lanes.count
    async with shell(tmp_path) as opened:
        reads = Reads(opened)
        group = opened.groups.group("g")
        await until(lambda: not group.scanner.is_indexing)
        assert (reads.offsets, group.queue.lanes.count) == ([], lanes)


async def test_a_topic_of_the_same_name_never_sees_old_files(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        topic = await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, Ordering.NONE)
        await fill(opened, random.Random(1))
        await until(lambda: group.scanner.unscanned() == 0)
        group.index_cache.close()
        kept = {file: file.read_bytes() for file in files(tmp_path) if file.is_file()}
        await opened.engine.delete_topic(topic.id)
        await until(lambda: not opened.groups.ids())
        await opened.topic(partitions=PARTITIONS)
        for file, data in kept.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        group = await group_of(opened, Ordering.NONE)
        assert group.queue.open_records == 0


# --- planted bugs ----------------------------------------------------------------------------------------------------


def boot_ignored(patch: pytest.MonkeyPatch) -> None:
    fits = IndexCache._fits
    patch.setattr(
        IndexCache,
        "_fits",
        lambda cache, found: fits(cache, msgspec.structs.replace(found, boot_id=cache._engine.boot_id)),
    )


def leader_epoch_ignored(patch: pytest.MonkeyPatch) -> None:
    block_at = IndexCache.block_at

    def bug(cache: IndexCache, partition: int, generation: int, position: int) -> Block | None:
        epoch = cache._engine.partition_facts(cache._topic_id, partition).leader_epoch
        for block in [block for block in cache._blocks if block.partition == partition]:
            cache._blocks.put(msgspec.structs.replace(block, leader_epoch=epoch))
        return block_at(cache, partition, generation, position)

    patch.setattr(IndexCache, "block_at", bug)


def keys_ignored_at_a_start(patch: pytest.MonkeyPatch) -> None:
    fits = IndexCache._fits

    def bug(cache: IndexCache, found: Checkpoint) -> bool:
        ordering, key_header = cache._keyed_by
        return fits(cache, msgspec.structs.replace(found, ordering=ordering, key_header=key_header))

    patch.setattr(IndexCache, "_fits", bug)


def keys_ignored_at_a_change(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IndexCache, "_clear", lambda cache: None)


@pytest.mark.parametrize("plant", [keys_ignored_at_a_start, keys_ignored_at_a_change])
async def test_planted_keys_of_other_settings_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        await test_blocks_of_another_key_header_are_not_used(tmp_path)


async def test_planted_a_block_of_a_cut_log_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leader_epoch_ignored(monkeypatch)
    with pytest.raises(AssertionError):
        await test_blocks_of_a_log_that_was_cut_are_not_used(tmp_path)


async def test_planted_files_of_another_boot_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot_ignored(monkeypatch)
    with pytest.raises(AssertionError):
        await test_files_of_another_boot_are_not_used(tmp_path, monkeypatch)
