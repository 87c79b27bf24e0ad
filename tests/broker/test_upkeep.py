"""Lasting state: topics, recovery points, retention, producer ids and state, over restarts and interrupted changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from logbroker.broker.local_engine.engine import LocalEngine
from logbroker.broker.local_engine.topic_rows import TOPICS, encode_topic
from logbroker.config import DAY_MS
from logbroker.engine import Append, Appended, Read, ReadResult, StateEvent, Topic
from logbroker.errors import DataDirError, InvalidRequestError, OffsetOutOfRangeError, UnknownTopicError
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.storage.metadata.metadata_store import MetadataStore
from tests.broker.conftest import HeldSync, Opened, OpenEngine, batch


async def apply_retention(engine: LocalEngine) -> None:
    await engine._upkeep.apply_retention()


async def test_retention_by_size_moves_the_start_for_good(open_at: OpenEngine, tmp_path: Path) -> None:
    configs = {"segment.bytes": "1000", "retention.bytes": "3000"}
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, configs)
        for number in range(40):
            await opened.append(topic.id, b"%0200d" % number)
        await apply_retention(opened.engine)
        facts = opened.engine.partition_facts(topic.id, 0)
        assert facts.log_start_offset > 0
        assert 3000 <= facts.size_bytes < 4500
        assert len(list((tmp_path / "data" / "t-0").glob("*.log"))) == facts.segments
        [gone] = await opened.engine.read([Read(topic.id, 0, 0, 1000)])
        assert isinstance(gone, OffsetOutOfRangeError)
    async with open_at() as opened:
        assert opened.engine.partition_facts(topic.id, 0) == facts
        [first] = await opened.engine.read([Read(topic.id, 0, facts.log_start_offset, 1000)])
        assert isinstance(first, ReadResult)
        assert first.batches


async def test_retention_by_age_takes_the_active_segment_where_all_has_expired(
    open_at: OpenEngine, tmp_path: Path
) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {"segment.bytes": "1000"})
        for number in range(40):
            await opened.append(topic.id, b"%0200d" % number)
        await apply_retention(opened.engine)
        assert opened.engine.partition_facts(topic.id, 0).log_start_offset == 0
        opened.clock.ahead_ms = 8 * DAY_MS
        await apply_retention(opened.engine)
        facts = opened.engine.partition_facts(topic.id, 0)
        for _ in range(3):
            await apply_retention(opened.engine)
            assert facts == opened.engine.partition_facts(topic.id, 0)
            assert (facts.segments, facts.size_bytes) == (1, 0)
            assert facts.log_start_offset == facts.log_end_offset == facts.high_watermark == 40
            assert [path.name for path in (tmp_path / "data" / "t-0").glob("*.log")] == [f"{40:020d}.log"]
    async with open_at() as opened:
        assert opened.engine.partition_facts(topic.id, 0) == facts
        await opened.append(topic.id, b"next")
        [found] = await opened.engine.read([Read(topic.id, 0, 40, 1000)])
        assert isinstance(found, ReadResult)
        assert found.next_offset == 41


@pytest.mark.parametrize("restart", [False, True])
async def test_a_stamp_of_next_year_does_not_hold_retention_up_for_a_year(open_at: OpenEngine, restart: bool) -> None:
    configs = {"segment.bytes": "1000", "message.timestamp.after.max.ms": str(366 * DAY_MS)}
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, configs)
        ahead_ms = opened.clock.wall_ms() + 365 * DAY_MS
        for _ in range(2):
            one = encode_batch([NewRecord(bytes(900), timestamp_ms=ahead_ms)])
            [appended] = await opened.engine.append([Append(topic.id, 0, one)])
            assert isinstance(appended, Appended)
        if not restart:
            await _expires_in_a_week(opened, topic)
    if restart:
        async with open_at() as opened:
            await _expires_in_a_week(opened, topic)


async def _expires_in_a_week(opened: Opened, topic: Topic) -> None:
    for days, start_offset in ((6, 0), (8, 2)):
        opened.clock.ahead_ms = days * DAY_MS
        await apply_retention(opened.engine)
        assert opened.engine.partition_facts(topic.id, 0).log_start_offset == start_offset


async def test_a_restart_begins_at_the_recovery_point(open_at: OpenEngine) -> None:
    async with open_at(checkpoint_seconds=3600) as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        sent = [batch(b"x", producer_id=7, producer_epoch=0, base_sequence=number) for number in range(8)]
        for one in sent:
            await opened.engine.append([Append(topic.id, 0, one)])
    async with open_at() as opened:
        [again] = await opened.engine.append([Append(topic.id, 0, sent[-1])])
        assert isinstance(again, Appended)
        assert (again.base_offset, again.duplicate) == (7, True)


async def test_an_interrupted_deletion_is_finished_at_start(open_at: OpenEngine, tmp_path: Path) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 2, {})
        await opened.append(topic.id, b"x")
    store = MetadataStore.open(tmp_path / "data" / "meta", on_failure=print)
    store.submit([(TOPICS, topic.id, encode_topic(topic, deleted=True))]).result(25)
    store.close()
    async with open_at() as opened:
        with pytest.raises(UnknownTopicError):
            opened.engine.topic("t")
        assert [path.name for path in (tmp_path / "data").iterdir() if path.name.startswith("t-")] == []
        new = await opened.engine.create_topic("t", 1, {})
        assert opened.engine.partition_facts(new.id, 0).log_end_offset == 0


async def test_deletion_leaves_nothing_behind(open_at: OpenEngine, tmp_path: Path) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 3, {})
        await opened.append(topic.id, b"x")
        appends = asyncio.create_task(opened.append(topic.id, b"y"))
        await opened.engine.delete_topic(topic.id)
        await asyncio.wait([appends])
    assert [path.name for path in (tmp_path / "data").iterdir() if path.name.startswith("t-")] == []
    store = MetadataStore.open(tmp_path / "data" / "meta", on_failure=print)
    assert store.scan("topics") == []
    assert store.scan("partitions") == []
    store.close()


async def test_producer_ids_are_never_handed_out_twice(open_at: OpenEngine) -> None:
    seen: set[int] = set()
    for _ in range(3):
        async with open_at() as opened:
            ids = [await opened.engine.init_producer_id() for _ in range(1100)]
            assert {epoch for _, epoch in ids} == {0}
            fresh = {producer_id for producer_id, _ in ids}
            assert len(fresh) == 1100
            assert not fresh & seen
            seen |= fresh


async def test_epochs_run_out_into_a_new_id(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        producer_id, _ = await opened.engine.init_producer_id()
        assert await opened.engine.init_producer_id(producer_id, 4) == (producer_id, 5)
        new_id, epoch = await opened.engine.init_producer_id(producer_id, 32_767)
        assert (new_id > producer_id, epoch) == (True, 0)
        with pytest.raises(InvalidRequestError):
            await opened.engine.init_producer_id(new_id + 10_000, 0)


async def test_state_is_kept_by_scope(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        await opened.state.commit("a", [StateEvent(b"k", b"1"), StateEvent(b"gone", b"x")])
        await opened.state.commit("ab", [StateEvent(b"k", b"2")])
        await opened.state.commit("a", [StateEvent(b"gone", None), StateEvent(b"b", b"")])
        with pytest.raises(InvalidRequestError):
            await opened.state.commit("a", [StateEvent(b"", b"x")])
    async with open_at() as opened:
        assert await opened.state.load("a") == {b"k": b"1", b"b": b""}
        assert await opened.state.load("ab") == {b"k": b"2"}
        assert await opened.state.load("nothing") == {}


async def test_one_process_per_data_directory(open_at: OpenEngine) -> None:
    async with open_at():
        with pytest.raises(DataDirError, match="another broker"):
            async with open_at():
                pass


async def test_a_stop_during_a_checkpoint_still_syncs_everything(open_at: OpenEngine, held_sync: HeldSync) -> None:
    async with open_at(checkpoint_seconds=0.01) as opened:
        topic = await opened.engine.create_topic("t", 1, {"durability": "written"})
        held_sync.active = True
        await opened.append(topic.id, b"x")
        assert await asyncio.to_thread(held_sync.entered.wait, 10)
        log = opened.engine._partitions.get(topic.id, 0).log
        asyncio.get_running_loop().call_later(0.1, held_sync.release.set)
    assert log.synced_offset == 1


async def test_an_engine_that_is_left_by_an_error_closes_too(open_at: OpenEngine) -> None:
    opening = open_at(checkpoint_seconds=3600)
    opened = await opening.__aenter__()
    topic = await opened.engine.create_topic("t", 1, {"durability": "written"})
    await opened.append(topic.id, b"x")
    error = ZeroDivisionError()
    assert not await opening.__aexit__(ZeroDivisionError, error, None)
    assert opened.engine._partitions.get(topic.id, 0).log.synced_offset == 1
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "upkeep"] == []
