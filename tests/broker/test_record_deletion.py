"""Records that are deleted on request: the log begins later, durably, and queue groups are asked first."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from logbroker.broker.local_engine.partition import Partition
from logbroker.broker.local_engine.record_deletion import MAX_TRIES
from logbroker.broker.local_engine.upkeep import Upkeep
from logbroker.engine import Append, Read, ReadResult, Topic
from logbroker.errors import (
    DiskFullError,
    OffsetOutOfRangeError,
    RecordsNeededError,
    StorageFailedError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logbroker.record.codec import decode_batch, split_batches
from logbroker.storage.partition_checkpoint import PartitionCheckpoint
from logbroker.storage.partition_log import PartitionLog
from tests.broker.conftest import Opened, OpenEngine, batch

RECORDS_OF_SEGMENT = 4
"""Two batches of two records each."""
CONFIGS = {"segment.bytes": "700"}


async def filled_topic(opened: Opened, batches: int = 10, **configs: str) -> Topic:
    topic = await opened.engine.create_topic("t", 1, CONFIGS | configs)
    for number in range(batches):
        await opened.append(topic.id, b"%0100d" % (2 * number), b"%0100d" % (2 * number + 1))
    return topic


async def readable(opened: Opened, topic: Topic) -> list[int]:
    """Read the whole log, and return the numbers of its records from its start on."""
    facts = opened.engine.partition_facts(topic.id, 0)
    found, offset = [], facts.log_start_offset
    while offset < facts.high_watermark:
        [result] = await opened.engine.read([Read(topic.id, 0, offset, 1 << 20)])
        assert isinstance(result, ReadResult), result
        for _, each in split_batches(result.batches):
            found += [int(record.value or b"") for record in decode_batch(each) if record.offset >= offset]
        offset = result.next_offset
    return found


@pytest.mark.parametrize("durability", ["synced", "written"])
@pytest.mark.parametrize("offset", [1, 2, 4, 7, 8, 19, 20, -1])
async def test_the_log_begins_at_the_offset_and_stays_so(open_at: OpenEngine, offset: int, durability: str) -> None:
    """The offsets lie within a batch, between batches, between segments, and at the end."""
    start = 20 if offset == -1 else offset
    async with open_at() as opened:
        topic = await filled_topic(opened, durability=durability)
        assert await opened.engine.delete_records(topic.id, 0, offset) == start
        facts = opened.engine.partition_facts(topic.id, 0)
        assert (facts.log_start_offset, facts.high_watermark) == (start, 20)
        assert await readable(opened, topic) == list(range(start, 20))
        [refused] = await opened.engine.read([Read(topic.id, 0, start - 1, 100)])
        assert isinstance(refused, OffsetOutOfRangeError)
        assert facts.segments == (20 - start) // RECORDS_OF_SEGMENT + bool(start % RECORDS_OF_SEGMENT or start == 20)
        assert await opened.append(topic.id, b"20") == 20
    async with open_at() as opened:
        assert opened.engine.partition_facts(topic.id, 0).log_start_offset == start
        assert await readable(opened, topic) == list(range(start, 21))
        assert await opened.append(topic.id, b"21") == 21


async def test_what_is_deleted_already_stays_deleted(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        topic = await filled_topic(opened)
        assert await opened.engine.delete_records(topic.id, 0, 7) == 7
        for offset in (0, 6, 7):
            assert await opened.engine.delete_records(topic.id, 0, offset) == 7
        assert await opened.engine.delete_records(topic.id, 0, 20) == 20
        assert await opened.engine.delete_records(topic.id, 0, -1) == 20


async def test_a_deletion_that_cannot_be_is_refused(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        topic = await filled_topic(opened)
        for offset in (21, 2**63 - 1, -2, -(2**63)):
            with pytest.raises(OffsetOutOfRangeError, match="from 0 to 20"):
                await opened.engine.delete_records(topic.id, 0, offset)
        with pytest.raises(UnknownPartitionError):
            await opened.engine.delete_records(topic.id, 1, 0)
        await opened.engine.delete_topic(topic.id)
        with pytest.raises(UnknownTopicError):
            await opened.engine.delete_records(topic.id, 0, 0)
        assert not opened.failures


async def test_an_empty_log_has_nothing_to_delete(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, CONFIGS)
        assert await opened.engine.delete_records(topic.id, 0, -1) == 0
        assert await opened.append(topic.id, b"0") == 0


async def test_appends_go_on_while_records_are_deleted(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        topic = await filled_topic(opened, 1)

        async def append() -> None:
            for number in range(2, 300):
                await opened.append(topic.id, b"%0100d" % number)

        appending, starts = asyncio.create_task(append()), [0]
        while not appending.done():
            starts.append(await opened.engine.delete_records(topic.id, 0, -1))
        await appending
        assert starts == sorted(starts)
        assert await readable(opened, topic) == list(range(starts[-1], 300))
    async with open_at() as opened:
        assert await readable(opened, topic) == list(range(starts[-1], 300))


async def test_a_full_disk_does_not_keep_records_from_being_deleted(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise DiskFullError("no room for another segment")

    async with open_at() as opened:
        topic = await filled_topic(opened)
        with monkeypatch.context() as patch:
            patch.setattr(PartitionLog, "begin_segment", full)
            assert await opened.engine.delete_records(topic.id, 0, -1) == 20
        assert opened.engine.partition_facts(topic.id, 0).segments == 1, "the file of the last segment stays"
        assert await readable(opened, topic) == []
        assert await opened.append(topic.id, b"20") == 20
    async with open_at() as opened:
        assert await readable(opened, topic) == [20]


async def test_nothing_is_removed_from_a_directory_that_was_put_in_the_place_of_the_broker_s(
    open_at: OpenEngine, tmp_path: Path
) -> None:
    path, moved, other = tmp_path / "data", tmp_path / "moved", tmp_path / "other"
    async with open_at(checkpoint_seconds=3600) as opened:
        topic = await filled_topic(opened)
        gone = await opened.engine.create_topic("gone", 1, {})
        await opened.append(gone.id, b"7")
        shutil.copytree(path, other)
        path.rename(moved)
        other.rename(path)
        before = sorted(path.rglob("*"))
        logs = len(list((moved / "t-0").glob("*.log")))
        assert await opened.engine.delete_records(topic.id, 0, 9) == 9
        assert len(list((moved / "t-0").glob("*.log"))) < logs
        with suppress(StorageFailedError):
            await opened.engine.delete_topic(gone.id)

        async def append_until_it_fails() -> None:
            for number in range(100):
                await opened.append(topic.id, b"%0100d" % number)

        with pytest.raises(StorageFailedError, match="was moved, removed or replaced"):
            await append_until_it_fails()
        assert sorted(path.rglob("*")) == before
    shutil.rmtree(moved)
    async with open_at() as opened:
        assert await readable(opened, topic) == list(range(20))
        assert await readable(opened, gone) == [7]


@pytest.mark.parametrize("then", ["nothing", "a file"])
async def test_appends_and_deletions_go_on_in_a_directory_that_was_moved_until_that_is_noticed(
    open_at: OpenEngine, tmp_path: Path, then: str
) -> None:
    """The room that they need is measured there, too."""
    path, moved = tmp_path / "data", tmp_path / "moved"
    async with open_at(checkpoint_seconds=3600) as opened:
        topic = await filled_topic(opened, batches=1)
        path.rename(moved)
        if then == "a file":
            path.write_bytes(b"")
        opened.engine._upkeep.disk.measure()
        assert await opened.append(topic.id, b"2") == 2
        assert await opened.engine.delete_records(topic.id, 0, 1) == 1
        assert await readable(opened, topic) == [1, 2]
        assert opened.failures == []
        if then == "a file":
            path.unlink()
        moved.rename(path)
    async with open_at() as opened:
        assert await readable(opened, topic) == [1, 2]


# --- beside checkpoints and callers that leave ---


async def deleted_during_a_checkpoint(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, lock: AbstractAsyncContextManager[Any] | None
) -> Topic:
    """Delete records while a checkpoint of before waits to be stored."""
    topic = await filled_topic(opened)
    upkeep = opened.engine._upkeep
    if lock is not None:
        monkeypatch.setattr(upkeep, "_storing", lock)
    made, go_on = asyncio.Event(), asyncio.Event()
    change = upkeep._helpers.change

    async def slow(work: Any) -> Any:
        if "encode_checkpoint" in work.__code__.co_names:
            made.set()
            await go_on.wait()
        return await change(work)

    monkeypatch.setattr(upkeep._helpers, "change", slow)
    checkpoint = asyncio.create_task(upkeep.checkpoint())
    await made.wait()
    deletion = asyncio.create_task(opened.engine.delete_records(topic.id, 0, 9))
    await asyncio.wait([deletion], timeout=0.2)
    go_on.set()
    assert await deletion == 9
    await checkpoint
    monkeypatch.undo()
    return topic


async def test_an_older_checkpoint_does_not_bring_records_back(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with open_at() as opened:
        topic = await deleted_during_a_checkpoint(opened, monkeypatch, None)
        assert await stored_start(opened, topic) == 9


async def test_a_checkpoint_that_is_not_waited_for_is_seen(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Planted: the lock is none."""
    async with open_at() as opened:
        topic = await deleted_during_a_checkpoint(opened, monkeypatch, nullcontext())
        assert await stored_start(opened, topic) == 0


async def stored_start(opened: Opened, topic: Topic) -> int:
    from logbroker.broker.local_engine.topic_rows import PARTITIONS, partition_row_key
    from logbroker.storage.partition_checkpoint import decode_partition

    key = partition_row_key(topic.id, 0)
    row = opened.engine._upkeep._store.get(PARTITIONS, key)
    assert row is not None
    return decode_partition(key, row).log_start_offset


async def test_a_deletion_goes_on_when_its_caller_leaves(open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_at() as opened:
        topic = await filled_topic(opened)
        checkpoint, begun, go_on = Partition.checkpoint, asyncio.Event(), asyncio.Event()

        async def slow(partition: Partition) -> PartitionCheckpoint:
            begun.set()
            await go_on.wait()
            return await checkpoint(partition)

        monkeypatch.setattr(Partition, "checkpoint", slow)
        deletion = asyncio.create_task(opened.engine.delete_records(topic.id, 0, 9))
        await begun.wait()
        deletion.cancel()
        await asyncio.wait([deletion])
        assert deletion.cancelled()
        go_on.set()
    async with open_at() as opened:
        assert opened.engine.partition_facts(topic.id, 0).log_start_offset == 9


async def test_a_topic_may_be_deleted_while_its_records_are(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at() as opened:
        topic = await filled_topic(opened)
        real, begun, go_on = Upkeep.delete_below, asyncio.Event(), asyncio.Event()

        async def slow(upkeep: Upkeep, partition: Partition, offset: int) -> None:
            begun.set()
            await go_on.wait()
            await real(upkeep, partition, offset)

        monkeypatch.setattr(Upkeep, "delete_below", slow)
        deletion = asyncio.create_task(opened.engine.delete_records(topic.id, 0, 9))
        await begun.wait()
        await opened.engine.delete_topic(topic.id)
        go_on.set()
        with pytest.raises(UnknownTopicError):
            await deletion
        assert not opened.failures


# --- holders ---


class Reader:
    """A holder that lets go of a part at each request, or of nothing."""

    def __init__(self, offset: int, step: int) -> None:
        self.offset = offset
        self.step = step
        self.asked: list[int] = []
        self.removals: list[int] = []

    def removed(self, partition: int) -> None:
        self.removals.append(partition)

    def needed_from(self, partition: int) -> int:
        return self.offset

    def let_go(self, partition: int, offset: int) -> asyncio.Future[None]:
        self.asked.append(offset)

        async def later() -> None:
            await asyncio.sleep(0)
            self.offset += self.step

        return asyncio.create_task(later())


async def test_holders_are_asked_and_waited_for(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        topic = await filled_topic(opened)
        slow, quick, content = Reader(2, 3), Reader(0, 20), Reader(15, 0)
        for reader in (slow, quick, content):
            opened.engine.hold(topic.id, reader)
        assert await opened.engine.delete_records(topic.id, 0, 15) == 15
        assert slow.asked == [15] * 5
        assert (quick.asked, content.asked) == ([15], [])
        assert (slow.removals, quick.removals, content.removals) == ([0], [0], [0])


async def test_what_a_holder_keeps_is_not_deleted(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        topic = await filled_topic(opened)
        reader = Reader(5, 0)
        opened.engine.hold(topic.id, reader)
        with pytest.raises(RecordsNeededError, match="from offset 5 on"):
            await opened.engine.delete_records(topic.id, 0, 9)
        assert len(reader.asked) == MAX_TRIES
        assert opened.engine.partition_facts(topic.id, 0).log_start_offset == 0
        assert await opened.engine.delete_records(topic.id, 0, 5) == 5
        opened.engine.release(topic.id, reader)
        assert await opened.engine.delete_records(topic.id, 0, 9) == 9


async def test_who_comes_while_the_deletion_syncs_is_asked(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at() as opened:
        topic = await filled_topic(opened)
        checkpoint, begun, go_on = Partition.checkpoint, asyncio.Event(), asyncio.Event()

        async def slow(partition: Partition) -> PartitionCheckpoint:
            begun.set()
            await go_on.wait()
            return await checkpoint(partition)

        monkeypatch.setattr(Partition, "checkpoint", slow)
        deletion = asyncio.create_task(opened.engine.delete_records(topic.id, 0, 9))
        await begun.wait()
        late = Reader(3, 0)
        opened.engine.hold(topic.id, late)
        go_on.set()
        with pytest.raises(RecordsNeededError):
            await deletion
        assert opened.engine.partition_facts(topic.id, 0).log_start_offset == 3
        assert late.asked


async def test_batches_of_other_partitions_stay(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 2, CONFIGS)
        for number in range(2):
            await opened.engine.append([Append(topic.id, number, batch(b"a", b"b"))])
        assert await opened.engine.delete_records(topic.id, 1, -1) == 2
        assert [opened.engine.partition_facts(topic.id, each).log_start_offset for each in (0, 1)] == [0, 2]
