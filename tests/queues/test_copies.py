"""Copies of what retention takes: over crashes, growth, lost and restored metadata, and for a long time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from logbroker.broker.local_engine.state_store import state_key
from logbroker.config import MAX_BATCH_BYTES
from logbroker.engine import Append, Appended, StateEvent
from logbroker.errors import DiskFullError
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import GROUP_TYPE
from logbroker.queues.retention import copies, stalled_records
from logbroker.queues.retention import holder as retention_hold
from logbroker.queues.state.rows import (
    COPIES_ROW,
    COPIES_TOPIC_ROW,
    HEADER_ROW,
    SETTINGS_ROW,
    VERSION,
    HeaderRow,
    decode_header,
    upsert,
)
from logbroker.record.codec import LogRecord, NewRecord, encode_batch, encode_to_fit
from logbroker.record.compression import Codec
from logbroker.record.header import HEADER_BYTES, MAX_EXPANDED_BYTES
from logbroker.storage.metadata.metadata_store import MetadataStore
from tests.queues.retained import CONFIGS, COPIES, KEYS, again, all_held, begin
from tests.queues.shell import shell, until


@pytest.mark.parametrize("when", ["before its row", "after its row"])
async def test_a_crash_between_copying_and_letting_go_keeps_one_copy_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    count = 60
    monkeypatch.setattr(retention_hold, "BATCH_BYTES", 2000)
    async with shell(tmp_path, crash=True) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write(KEYS, range(count))
        await run.work(7 * count)
        commit = run.group.hold.copies._commit
        commits = 0

        async def die_at_the_third(events: Sequence[StateEvent]) -> None:
            nonlocal commits
            commits += any(event.key.startswith(COPIES_ROW) for event in events)
            if commits == 3:
                if when == "after its row":
                    await commit(events)
                raise DiskFullError("as good as a crash: nothing follows it")
            await commit(events)

        monkeypatch.setattr(run.group.hold.copies, "_commit", die_at_the_third)
        await run.look()
        assert run.facts().log_start_offset == 0
        assert run.facts(COPIES).high_watermark > 10
    monkeypatch.undo()
    async with shell(tmp_path, crash=True) as opened:
        run = await again(opened, [b"blocked"])
        await run.write(KEYS, range(count, count + 10))
        await run.work(70)
        await run.retain()
        assert run.facts().log_start_offset > 0
        assert run.copied() == sorted(set(run.copied()))
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await all_held(run, count + 10)
        await run.resume()
        await run.work(count + 10)
        assert run.done == {b"blocked": list(range(count + 10))}


async def test_copies_of_both_sides_of_growth_lie_in_batches_of_their_own(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write([b"blocked"], range(5))
        await opened.engine.alter_topic(opened.engine.topic("t").id, partitions=2)
        await run.write([b"blocked"], range(5, 200))
        assert await run.work_once() == 0
        await until(lambda: run.group.queue.position(0) == 200)
        await run.retain()
        assert run.copied()[:4] == [0, 4, 5, run.copied()[-1]]
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await all_held(run, 200)
        await run.resume()
        await run.work(200)
        assert run.done == {b"blocked": list(range(200))}


async def test_growth_between_the_copies_and_what_is_left_of_the_log_holds_nothing_back(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write([b"blocked"], [0])
        await run.write([b"free"], range(50))
        await opened.engine.alter_topic(opened.engine.topic("t").id, partitions=2)
        await run.write([b"free"], range(50, 200))
        await run.work(200)
        await run.retain()
        assert run.copied() == [0]
        assert run.facts().log_start_offset > 51
        await run.write([b"free"], range(200, 205), partition=1)
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await run.work(5)
        assert run.done == {b"free": list(range(200, 205))}


@pytest.mark.prove
async def test_copies_of_done_records_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One lane stands for ever, others for a while."""
    monkeypatch.setattr(retention_hold, "MIN_REWRITTEN_BYTES", 8_000)
    monkeypatch.setattr(copies, "_CODECS", (Codec.NONE,))
    monkeypatch.setitem(copies._CONFIGS, "segment.bytes", "2000")
    async with shell(tmp_path, crash=True) as opened:
        run = await begin(opened, [b"for ever"])
        sizes = []
        await run.write([b"for ever"], [0])
        assert await run.work_once() == 0
        for turn in range(8):
            key = b"for a while %d" % turn
            run.failing.add(key)
            await run.write([key, b"free"], range(100))
            await run.work(100)
            await run.retain()
            run.failing.discard(key)
            await run.resume(key)
            await run.work(100)
            sizes.append(run.facts(COPIES).size_bytes)
        assert max(sizes) < 60_000, "copies fill the disk"
        assert run.facts(COPIES).log_start_offset > 0
        await run.write([b"for ever"], [1])
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await all_held(run, 2)
        await run.resume()
        await run.work(2)
        assert run.done == {b"for ever": [0, 1]}


async def test_copies_that_a_crash_left_without_their_group_go_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write(KEYS, range(60))
        await run.work(7 * 60)
        await run.retain()
        with monkeypatch.context() as patch:
            patch.setattr(copies.Copies, "delete", lambda self: until(lambda: True))
            await opened.groups.delete("g")
        opened.engine.topic(COPIES)
    async with shell(tmp_path) as opened:
        assert [topic.name for topic in opened.engine.topics()] == ["t"]


async def test_a_group_outlives_the_loss_of_its_copies(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with shell(tmp_path) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write(KEYS, range(60))
        await run.work(7 * 60)
        await run.retain()
        gone = run.facts().log_start_offset
    async with shell(tmp_path) as opened:
        await opened.engine.delete_topic(opened.engine.topic(COPIES).id)
    async with shell(tmp_path) as opened:
        assert f"the topic {COPIES} is gone" in caplog.text
        run = await again(opened, [b"blocked"])  # Its lane goes on, as its head is lost: fail it again.
        await run.write(KEYS, range(60, 120))
        await run.work(7 * 60)
        await run.retain()
        assert run.copied()[0] == gone
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await all_held(run, 120 - gone // 8)
        await run.resume()
        await run.work(120 - gone // 8)
        assert run.done == {b"blocked": list(range(gone // 8, 120))}


@pytest.mark.parametrize("known", [0, 2])
async def test_copies_that_an_older_backup_knows_nothing_of_are_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    """As `logbroker meta restore` leaves them, with a backup from before the first copies, or after two batches."""
    monkeypatch.setattr(retention_hold, "BATCH_BYTES", 2_000)
    async with shell(tmp_path, crash=True) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write(KEYS, range(60))
        await run.work(7 * 60)
        await run.retain()
        batches = run.copied()
        rows = sorted(key for key in await opened.state.load("group:g") if key.startswith(COPIES_ROW))
        assert len(rows) > 3
        gone = rows[known:] if known else [*rows, COPIES_TOPIC_ROW]
        await opened.state.commit("group:g", [StateEvent(key, None) for key in gone])
    async with shell(tmp_path) as opened:
        run = await again(opened)
        assert run.copied() == batches
        await all_held(run, 60)
        await run.resume()
        await run.work(60)
        assert run.done == {b"blocked": list(range(60))}


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("compressed", [False, True])
async def test_the_largest_records_that_there_can_be_are_copied(tmp_path: Path, compressed: bool) -> None:
    """Retention of the partition would wait for ever otherwise; the header of a copy goes beyond what a batch may take,
    and beyond what it may expand to."""
    most = MAX_EXPANDED_BYTES + HEADER_BYTES if compressed else MAX_BATCH_BYTES
    size_bytes = most - (len(encode_batch([NewRecord(bytes(most - 100), b"key")])) - (most - 100))
    value = bytes(size_bytes) if compressed else random.Random(1).randbytes(size_bytes)
    assert len(encode_batch([NewRecord(value, b"key")])) == most
    async with shell(tmp_path) as opened:
        topic = await opened.engine.create_topic("t", 1, {"max.message.bytes": str(MAX_BATCH_BYTES)})
        batch = encode_to_fit([NewRecord(value, b"key")], MAX_BATCH_BYTES)
        [appended] = await opened.engine.append([Append(topic.id, 0, batch)])
        assert isinstance(appended, Appended)
        group = await opened.group()
        [record] = await group.records.fetch([record_id_of(0, 0)])
        assert isinstance(record, LogRecord)
        copied = group.hold.copies
        await copied.add(0, [record])
        [(last, stored)] = copied.batches(0)
        [found] = await copied.read(0, last, stored)
        assert (found.value == value, found.key, found.offset, [*found.headers]) == (True, b"key", 0, [])


async def test_copies_of_another_topic_are_not_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored backup knows a group of this name on another topic: the copies are of one that came after it."""
    monkeypatch.setattr(retention_hold, "BATCH_BYTES", 2_000)
    async with shell(tmp_path, crash=True) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write(KEYS, range(60))
        await run.work(7 * 60)
        await run.retain()
        assert run.copied()
        other = await opened.engine.create_topic("other", 1, CONFIGS)
        for _ in range(200):
            await opened.append((b"k", bytes(180)), topic="other")
        await run.look()
        assert run.facts("other").log_start_offset > 60
        rows = await opened.state.load("group:g")
    store = MetadataStore.open(tmp_path / "data" / "meta", on_failure=print)
    group_epoch = decode_header(rows[HEADER_ROW]).group_epoch
    kept = {
        HEADER_ROW: upsert(HEADER_ROW, HeaderRow(VERSION, GROUP_TYPE, other.id, group_epoch)).value,
        SETTINGS_ROW: rows[SETTINGS_ROW],
    }
    store.submit([("state", state_key("group:g", key), kept.get(key)) for key in rows]).result(20)
    store.close()
    async with shell(tmp_path) as opened:
        run = await again(opened)
        assert run.copied() == []


async def copied_once(path: Path, count: int) -> None:
    """A run copies stalled records, and ends before they are removed."""
    async with shell(path) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write(KEYS, range(count))
        await run.work(7 * count)
        await run.look()
        assert run.facts().log_start_offset == 0
        assert run.copied()


async def test_copies_stay_until_others_are_in_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that is not the broker's own may lose the records at any time."""
    monkeypatch.setattr(retention_hold, "BATCH_BYTES", 2000)
    await copied_once(tmp_path, 60)
    async with shell(tmp_path) as opened:
        run = await again(opened, [b"blocked"])
        before = run.copied()

        async def fail(*args: object) -> None:
            raise DiskFullError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(run.group.hold.copies, "add", fail)
            await run.look()
        assert run.copied() == before
        await run.look()
        assert run.copied() == before
        await run.look()
        assert run.facts().log_start_offset > 0


async def test_records_that_the_log_loses_while_they_are_copied_again_come_from_the_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 60
    monkeypatch.setattr(retention_hold, "BATCH_BYTES", 2000)
    monkeypatch.setattr(stalled_records, "MAX_READ_BYTES", 3000)
    await copied_once(tmp_path, count)
    async with shell(tmp_path) as opened:
        run = await again(opened, [b"blocked"])
        upkeep, topic_id = opened.engine._upkeep, opened.engine.topic("t").id
        [partition] = [each for each in upkeep._partitions if each.key.topic_id == topic_id]
        add, end = run.group.hold.copies.add, run.copied()[-1] + 1

        async def lose(*args: Any) -> None:
            with monkeypatch.context() as patch:
                patch.setattr(upkeep, "_holders", {})
                await upkeep.delete_below(partition, end)
            await add(*args)

        with monkeypatch.context() as patch:
            patch.setattr(run.group.hold.copies, "add", lose)
            await run.look()
        assert run.facts().log_start_offset == end
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await all_held(run, count)
        await run.resume()
        await run.work(count)
        assert run.done == {b"blocked": list(range(count))}
