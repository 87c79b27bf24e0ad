"""The clean-stop mark, and the recovery points that are stored before the first append."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from logbroker.broker.local_engine.topic_rows import PARTITIONS, partition_row_key
from logbroker.config import MAX_STORED_BATCH_BYTES, BrokerConfig
from logbroker.engine import Append
from logbroker.errors import StorageFailedError
from logbroker.storage.metadata.issued_numbers import ISSUED_NAME
from logbroker.storage.metadata.metadata_store import MetadataReader, MetadataStore
from logbroker.storage.partition_checkpoint import PRODUCERS, PartitionCheckpoint
from logbroker.types import TopicId
from tests.broker.conftest import HeldSync, Opened, OpenEngine, batch

MARK = ("broker", b"clean-stop")


def stored(where: Path | Opened, table: str, key: bytes) -> bytes | None:
    """A row of a stopped or of a running engine."""
    if isinstance(where, Opened):
        return where.state._store.get(table, key)
    reader = MetadataReader.open(where / "data" / "meta")
    try:
        return reader.get(table, key)
    finally:
        reader.close()


def checkpoint_of(where: Path | Opened, topic_id: TopicId) -> PartitionCheckpoint:
    row = stored(where, PARTITIONS, partition_row_key(topic_id, 0))
    assert row is not None
    return msgspec.msgpack.decode(row, type=PartitionCheckpoint)


def change_checkpoint(tmp_path: Path, topic_id: TopicId, **fields: object) -> None:
    checkpoint = msgspec.structs.replace(checkpoint_of(tmp_path, topic_id), **fields)
    store = MetadataStore.open(tmp_path / "data" / "meta", on_failure=print)
    store.submit([(PARTITIONS, partition_row_key(topic_id, 0), msgspec.msgpack.encode(checkpoint))]).result(20)
    store.close()


async def test_the_mark_stands_between_two_runs_only(open_at: OpenEngine, tmp_path: Path) -> None:
    for _ in range(2):
        async with open_at() as opened:
            assert stored(opened, *MARK) is None
        assert stored(tmp_path, *MARK) == b"1"


async def test_a_start_that_is_refused_is_no_run(open_at: OpenEngine, tmp_path: Path) -> None:
    async with open_at() as opened:
        await opened.engine.create_topic("t", 1, {})
    numbers = tmp_path / "data" / ISSUED_NAME
    numbers.unlink(missing_ok=True)
    numbers.symlink_to("a disk that is not mounted")
    with pytest.raises(OSError, match=ISSUED_NAME):
        async with open_at():
            raise AssertionError("the start was not refused")
    assert stored(tmp_path, *MARK) == b"1"


async def test_a_failure_leaves_no_mark(open_at: OpenEngine, tmp_path: Path, held_sync: HeldSync) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        held_sync.error = OSError(errno.EIO, "Input/output error")
        held_sync.active = True
        held_sync.release.set()
        with pytest.raises(StorageFailedError):
            await opened.append(topic.id, b"x")
    assert stored(tmp_path, *MARK) is None


async def test_a_sync_that_fails_at_the_stop_leaves_no_mark(
    open_at: OpenEngine, tmp_path: Path, held_sync: HeldSync
) -> None:
    async def fail_at_the_stop() -> None:
        async with open_at(checkpoint_seconds=3600) as opened:
            topic = await opened.engine.create_topic("t", 1, {"durability": "written"})
            await opened.append(topic.id, b"x")
            held_sync.error = OSError(errno.EIO, "Input/output error")
            held_sync.active = True
            held_sync.release.set()

    with pytest.raises(StorageFailedError):
        await fail_at_the_stop()
    assert stored(tmp_path, *MARK) is None


async def test_a_reboot_after_a_clean_stop_takes_nothing(open_at: OpenEngine, tmp_path: Path) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {"durability": "written"})
        await opened.append(topic.id, b"x")
    change_checkpoint(tmp_path, topic.id, boot_id="an earlier boot")
    async with open_at() as opened:
        assert opened.engine.partition_facts(topic.id, 0).leader_epoch == 0
    change_checkpoint(tmp_path, topic.id, boot_id="an earlier boot")
    store = MetadataStore.open(tmp_path / "data" / "meta", on_failure=print)
    store.submit([(*MARK, None)]).result(20)
    store.close()
    async with open_at() as opened:
        assert opened.engine.partition_facts(topic.id, 0).leader_epoch == 1


async def test_a_new_partition_has_a_recovery_point_at_once(open_at: OpenEngine, tmp_path: Path) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        checkpoint = checkpoint_of(opened, topic.id)
        assert (checkpoint.recovery_point, checkpoint.segments, bool(checkpoint.boot_id)) == (0, [], True)
        assert checkpoint.unsynced_bound_bytes == BrokerConfig().max_produce_bytes_in_flight + MAX_STORED_BATCH_BYTES
        grown = await opened.engine.alter_topic(topic.id, partitions=2)
        assert stored(opened, PARTITIONS, partition_row_key(grown.id, 1)) is not None
        written = await opened.engine.create_topic("w", 1, {"durability": "written"})
        assert checkpoint_of(opened, written.id).unsynced_bound_bytes == -1


async def test_what_recovery_found_is_stored_before_the_first_append(open_at: OpenEngine, tmp_path: Path) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        empty = checkpoint_of(opened, topic.id)
        sent = [batch(b"x", producer_id=7, producer_epoch=0, base_sequence=number) for number in range(3)]
        for one in sent:
            await opened.engine.append([Append(topic.id, 0, one)])
    # As a kill before the first checkpoint leaves it, in its last write.
    store = MetadataStore.open(tmp_path / "data" / "meta", on_failure=print)
    row = msgspec.msgpack.encode(empty)
    store.submit([(*MARK, None), (PARTITIONS, partition_row_key(topic.id, 0), row)]).result(20)
    store.close()
    [log] = (tmp_path / "data" / "t-0").glob("*.log")
    os.truncate(log, log.stat().st_size - 1)
    async with open_at() as opened:
        found = checkpoint_of(opened, topic.id)
        assert found.recovery_point == opened.engine.partition_facts(topic.id, 0).log_end_offset == 2
        producer = stored(opened, PRODUCERS, partition_row_key(topic.id, 0) + (7).to_bytes(8, "big"))
        assert producer is not None
        assert [next_offset for *_, next_offset, _ in msgspec.msgpack.decode(producer)] == [1, 2]
        assert opened.engine.partition_facts(topic.id, 0).leader_epoch == 1
