"""A disk that cannot read one file of one partition: that partition may suffer, nothing else does."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logbroker.engine import Read, ReadResult
from logbroker.errors import CorruptLogError, LogbrokerError, PartitionOfflineError
from logbroker.storage.files import RealFiles
from logbroker.types import TopicId
from tests.broker.conftest import Opened, OpenEngine
from tests.storage.partition import decoded

CONFIGS = {"segment.bytes": "1000", "index.interval.bytes": "1"}
RECORDS = 24


@pytest.fixture
def break_file(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes every read of the files whose path ends so fail, also the listing of a directory; "": none."""
    broken = ""

    def wrap(name: str) -> None:
        call = getattr(RealFiles, name)

        def failing(self: RealFiles, target: int | str, *arguments: Any, **fields: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else target
            if broken and path.endswith(broken):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return call(self, target, *arguments, **fields)

        monkeypatch.setattr(RealFiles, name, failing)

    for name in ("pread", "pread_cached", "size_bytes", "list_directory", "list_others"):
        wrap(name)

    def break_it(suffix: str) -> None:
        nonlocal broken
        broken = suffix

    return break_it


async def _fill(opened: Opened, topic_id: TopicId, count: int = RECORDS) -> list[bytes]:
    values = [b"%0200d" % number for number in range(count)]
    for value in values:
        await opened.append(topic_id, value)
    return values


async def _values(opened: Opened, topic_id: TopicId) -> list[bytes | None]:
    """All records from the beginning; raises the error of a read."""
    found: list[bytes | None] = []
    while True:
        # From each record on, not from the end of the last read, so that each read looks into an index.
        [read] = await opened.engine.read([Read(topic_id, 0, len(found), 1)])
        if isinstance(read, LogbrokerError):
            raise read
        assert isinstance(read, ReadResult)
        if not read.batches:
            return found
        found += [record.value for record in decoded(read.batches)]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
async def test_an_index_that_cannot_be_read_costs_nothing_but_time(
    open_at: OpenEngine, break_file: Callable[[str], None], suffix: str
) -> None:
    """Neither that of the active segment nor that of an earlier one."""
    async with open_at() as opened:
        topic = await opened.engine.create_topic("a", 1, CONFIGS)
        values = await _fill(opened, topic.id)
    break_file(suffix)
    for _life in range(2):
        async with open_at() as opened:
            values += await _fill(opened, topic.id, 1)
            assert await _values(opened, topic.id) == values
            assert (await opened.engine.offset_for_time(topic.id, 0, 1)).offset == 0
            assert not opened.failures
    break_file("")
    async with open_at() as opened:
        break_file(suffix)  # What was loaded before cannot be read any more.
        values += await _fill(opened, topic.id, 1)
        assert await _values(opened, topic.id) == values
        assert not opened.failures


async def test_a_log_that_cannot_be_read_refuses_the_appends_and_reads_of_its_partition(
    open_at: OpenEngine, break_file: Callable[[str], None], tmp_path: Path
) -> None:
    async with open_at() as opened:
        topic, other = [await opened.engine.create_topic(name, 1, CONFIGS) for name in ("a", "b")]
        values = await _fill(opened, topic.id)
    for _life in range(2):
        active = max((tmp_path / "data" / "a-0").glob("*.log"))
        async with open_at() as opened:
            break_file(f"/a-0/{active.name}")
            for _ in range(2):
                with pytest.raises(CorruptLogError, match=f"cannot use .*{active.name}: Input/output error; check the"):
                    await opened.append(topic.id, b"x")
            with pytest.raises(CorruptLogError, match=f"{active.name}: cannot be read: Input/output error"):
                await _values(opened, topic.id)
            await _fill(opened, other.id, 2)
            break_file(f"/a-0/{0:020d}.log")
            with pytest.raises(CorruptLogError, match=f"{0:020d}.log: cannot be read: Input/output error"):
                await opened.engine.offset_for_time(topic.id, 0, 1)
            assert not opened.failures
            break_file("")
            values += await _fill(opened, topic.id, 1)
            assert await _values(opened, topic.id) == values


@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint", ""])
async def test_a_small_file_that_cannot_be_read_at_a_start_takes_its_partition_offline(
    open_at: OpenEngine, break_file: Callable[[str], None], name: str
) -> None:
    """`""`: the directory itself."""
    async with open_at() as opened:
        topic, other = [await opened.engine.create_topic(each, 1, CONFIGS) for each in ("a", "b")]
        values = await _fill(opened, topic.id)
    path = f"/a-0/{name}".removesuffix("/")
    break_file(path)
    async with open_at() as opened:
        with pytest.raises(PartitionOfflineError, match=f"cannot use .*{path}: Input/output error; check the disk"):
            opened.engine.partition_facts(topic.id, 0)
        await _fill(opened, other.id, 2)
        assert not opened.failures
    break_file("")
    async with open_at() as opened:
        assert await _values(opened, topic.id) == values


async def test_the_directory_of_a_deleted_topic_that_cannot_be_listed_stays(
    open_at: OpenEngine, break_file: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("a", 1, CONFIGS)
        await _fill(opened, topic.id)
        break_file("-delete")
        await opened.engine.delete_topic(topic.id)
        assert "cannot remove" in caplog.text
        assert not opened.failures
        again = await opened.engine.create_topic("a", 1, CONFIGS)
        await _fill(opened, again.id)


async def test_a_topic_whose_new_files_cannot_be_read_is_refused(
    open_at: OpenEngine, break_file: Callable[[str], None]
) -> None:
    async with open_at() as opened:
        break_file("/a-0/partition.metadata")
        with pytest.raises(CorruptLogError, match=r"cannot use .*/a-0/partition.metadata: Input/output error"):
            await opened.engine.create_topic("a", 1, CONFIGS)
        assert not opened.failures
        break_file("")
        topic = await opened.engine.create_topic("a", 1, CONFIGS)
        break_file("/a-1")
        with pytest.raises(CorruptLogError, match="Input/output error"):
            await opened.engine.alter_topic(topic.id, partitions=2)
        break_file("")
        await opened.engine.alter_topic(topic.id, partitions=2)
        assert await _values(opened, topic.id) == []
        await _fill(opened, topic.id)
