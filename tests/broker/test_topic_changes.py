"""Changes of topics that are interrupted: by a caller that goes away, by a lack of files, by a failure of the disk."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from logbroker.broker.local_engine.partition_table import PartitionTable
from logbroker.engine import Append, LogEngine, Topic
from logbroker.errors import PartitionOfflineError, StorageFailedError, TooManyOpenFilesError, UnknownTopicError
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.storage.log_reader import LogReader
from logbroker.storage.metadata.metadata_store import MetadataStore
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.segment import Segment
from tests.broker.conftest import Opened, OpenEngine


class Gate:
    """Holds the first call of a function on its thread until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        real = getattr(owner, name)

        def held(*arguments: Any, **fields: Any) -> Any:
            if not self.entered.is_set():
                self.entered.set()
                assert self.opened.wait(20)
            return real(*arguments, **fields)

        monkeypatch.setattr(owner, name, held)

    async def cancel_within(self, change: asyncio.Task[Any]) -> None:
        """Cancel the change while it is in the function."""
        assert await asyncio.to_thread(self.entered.wait, 10)
        change.cancel()
        with pytest.raises(asyncio.CancelledError):
            await change
        self.opened.set()


async def settled(engine: LogEngine) -> None:
    """Wait until no change is under way: they come one at a time."""
    await engine.create_topic("settled", 1, {})


@pytest.mark.parametrize(
    ("owner", "step"), [(MetadataStore, "_store"), (PartitionTable, "set_aside"), (PartitionLog, "close")]
)
async def test_a_deletion_is_finished_when_its_caller_goes(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 2, {})
        await opened.append(topic.id, b"old")
        if step == "close":  # runs on the loop, so the caller goes just before it
            change = asyncio.create_task(opened.engine.delete_topic(topic.id))
            while topic in opened.engine.topics():
                await asyncio.sleep(0)
            change.cancel()
            await asyncio.wait([change])
        else:
            gate = Gate(monkeypatch, owner, step)
            await gate.cancel_within(asyncio.create_task(opened.engine.delete_topic(topic.id)))
        await settled(opened.engine)
        with pytest.raises(UnknownTopicError):
            opened.engine.topic("t")
        again = await opened.engine.create_topic("t", 1, {})
        assert await opened.append(again.id, b"new") == 0
    async with open_at() as opened:
        assert opened.engine.topic("t") == again
        assert opened.engine.partition_facts(again.id, 0).log_end_offset == 1


async def test_a_creation_is_finished_when_its_caller_goes(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at() as opened:
        gate = Gate(monkeypatch, MetadataStore, "_store")
        await gate.cancel_within(asyncio.create_task(opened.engine.create_topic("t", 2, {})))
        await settled(opened.engine)
        topic = opened.engine.topic("t")
        assert await opened.append(topic.id, b"x") == 0
    async with open_at() as opened:
        assert opened.engine.topic("t") == topic


async def test_growth_is_finished_when_its_caller_goes(open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        gate = Gate(monkeypatch, MetadataStore, "_store")
        await gate.cancel_within(asyncio.create_task(opened.engine.alter_topic(topic.id, partitions=3)))
        await settled(opened.engine)
        assert opened.engine.topic("t").generation == 2
    async with open_at() as opened:
        assert opened.engine.topic("t").generation == 2
        assert opened.engine.partition_facts(topic.id, 2).log_end_offset == 0


async def test_a_change_under_way_is_finished_before_the_engine_closes(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        gate = Gate(monkeypatch, PartitionTable, "set_aside")
        await gate.cancel_within(asyncio.create_task(opened.engine.delete_topic(topic.id)))
    async with open_at() as opened:
        assert opened.engine.topics() == []


@pytest.mark.parametrize("change", ["create", "grow"])
async def test_where_a_partition_cannot_be_opened_nothing_has_changed(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise TooManyOpenFilesError("no file descriptor is left")

    async with open_at() as opened:
        topic = await opened.engine.create_topic("there", 1, {})
        changes = {
            "create": opened.engine.create_topic("t", 2, {}),
            "grow": opened.engine.alter_topic(topic.id, partitions=3),
        }
        with monkeypatch.context() as patch:
            patch.setattr(PartitionLog, "open", refuse)
            with pytest.raises(TooManyOpenFilesError):
                await changes.pop(change)
        changes.popitem()[1].close()
        assert opened.engine.topics() == [topic]
    async with open_at() as opened:
        assert opened.engine.topics() == [topic]


async def test_a_topic_with_an_offline_partition_does_not_grow(open_at: OpenEngine, tmp_path: Path) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 2, {})
        await opened.append(topic.id, b"x")
    (tmp_path / "data" / "t-0" / "partition.metadata").write_text("nonsense")
    async with open_at() as opened:
        with pytest.raises(PartitionOfflineError):
            await opened.engine.alter_topic(topic.id, partitions=3)


async def test_a_deletion_that_the_disk_fails_is_the_end(open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        other = await opened.engine.create_topic("other", 1, {})

        def fail(*_: Any) -> None:
            raise StorageFailedError("cannot rename")

        monkeypatch.setattr(PartitionTable, "set_aside", fail)
        with pytest.raises(StorageFailedError):
            await opened.engine.delete_topic(topic.id)
        assert len(opened.failures) == 1
        with pytest.raises(StorageFailedError):
            await opened.append(other.id, b"x")


async def test_retention_never_touches_a_recreated_topic(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configs = {"segment.bytes": "1000", "retention.bytes": "0"}
    async with open_at() as opened:
        old = await opened.engine.create_topic("t", 1, configs)
        for _ in range(20):
            await opened.append(old.id, bytes(200))
        gate = Gate(monkeypatch, Segment, "remove_files")
        retention = asyncio.create_task(opened.engine._upkeep.apply_retention())
        assert await asyncio.to_thread(gate.entered.wait, 10)
        deletion = asyncio.create_task(opened.engine.delete_topic(old.id))
        while old in opened.engine.topics():
            await asyncio.sleep(0)

        async def recreate() -> None:
            new = await opened.engine.create_topic("t", 1, configs)
            await opened.append(new.id, b"new")

        recreation = asyncio.create_task(recreate())
        await asyncio.wait([recreation], timeout=0.1)  # It has to wait; this is the time in which it might not.
        gate.opened.set()
        await asyncio.gather(retention, deletion, recreation)
        assert [path.name for path in (tmp_path / "data" / "t-0").glob("*.log")] == [f"{0:020}.log"]


@pytest.mark.parametrize("remembered", [True, False], ids=["open", "of an earlier run"])
async def test_a_late_lookup_by_time_never_opens_the_files_of_a_recreated_topic(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch, remembered: bool
) -> None:
    """It waits for a thread while its topic goes, and another one of that name comes."""
    async with open_at() as opened:
        old = await opened.engine.create_topic("t", 1, {})
        for time_ms in (1_000, 2_000, 3_000):
            await append_at(opened, old, time_ms)
        if remembered:
            await look_up_late(opened, old, monkeypatch)
    if not remembered:
        async with open_at() as opened:
            await look_up_late(opened, old, monkeypatch)


async def append_at(opened: Opened, topic: Topic, time_ms: int) -> None:
    await opened.engine.append([Append(topic.id, 0, encode_batch([NewRecord(value=b"v", timestamp_ms=time_ms)]))])


async def look_up_late(opened: Opened, old: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, LogReader, "offset_for_time")
    lookup = asyncio.create_task(opened.engine.offset_for_time(old.id, 0, 2_000))
    assert await asyncio.to_thread(gate.entered.wait, 10)
    await opened.engine.delete_topic(old.id)
    new = await opened.engine.create_topic("t", 1, {})
    for time_ms in (5_000, 6_000, 7_000):
        await append_at(opened, new, time_ms)
    gate.opened.set()
    with pytest.raises(PartitionOfflineError):
        await lookup
    assert (await opened.engine.offset_for_time(new.id, 0, 6_000)).offset == 1
