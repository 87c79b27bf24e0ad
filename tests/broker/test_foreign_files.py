"""Files in a partition's directory that the broker did not make: that partition may suffer, nothing else does."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from logbroker.engine import Read, ReadResult
from logbroker.errors import CorruptLogError, LogbrokerError, PartitionOfflineError
from logbroker.storage.files import RealFiles
from logbroker.types import TopicId
from tests.broker.conftest import Opened, OpenEngine
from tests.broker.test_upkeep import apply_retention
from tests.storage.partition import decoded

CONFIGS = {"segment.bytes": "1000", "retention.bytes": "3000"}
AHEAD = 12
"""Offsets for which the next segment may be made."""


def _directory(path: Path) -> None:
    path.mkdir()


def _full_directory(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()


def _dangling_link(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path)


THINGS = [_directory, _full_directory, os.mkfifo, _dangling_link, _link_to_itself]


def _put(path: Path, thing: Callable[[Path], None]) -> None:
    path.unlink(missing_ok=True)
    thing(path)


async def _fill(opened: Opened, topic_id: TopicId, count: int) -> list[bytes]:
    """Append until it is refused, in one of the ways that are the partition's own."""
    sent = []
    for number in range(count):
        value = b"%0200d" % number
        try:
            await opened.append(topic_id, value)
        except (CorruptLogError, PartitionOfflineError):
            break
        sent.append(value)
    return sent


async def _values(opened: Opened, topic_id: TopicId) -> list[bytes | None] | LogbrokerError:
    found: list[bytes | None] = []
    offset = opened.engine.partition_facts(topic_id, 0).log_start_offset
    while True:
        [read] = await opened.engine.read([Read(topic_id, 0, offset, 2000)])
        if not isinstance(read, ReadResult):
            return read
        if not read.batches:
            return found
        found += [record.value for record in decoded(read.batches)]
        offset = read.next_offset


async def _other_is_well(opened: Opened, topic_id: TopicId) -> None:
    """It takes appends, its old segments go, and it gives all that is left."""
    start = opened.engine.partition_facts(topic_id, 0).log_start_offset
    sent = await _fill(opened, topic_id, 40)
    assert len(sent) == 40
    await apply_retention(opened.engine)
    assert opened.engine.partition_facts(topic_id, 0).log_start_offset > start
    values = await _values(opened, topic_id)
    assert isinstance(values, list)
    assert values == sent[-len(values) :]
    assert not opened.failures


@pytest.mark.prove
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".log"])
@pytest.mark.parametrize("thing", THINGS)
async def test_what_is_put_there_while_the_broker_runs_stays_the_partitions_own_trouble(
    open_at: OpenEngine, tmp_path: Path, thing: Callable[[Path], None], suffix: str
) -> None:
    partition = tmp_path / "data" / "a-0"
    async with open_at() as opened:
        topic, other = [await opened.engine.create_topic(name, 1, CONFIGS) for name in ("a", "b")]
        sent = await _fill(opened, topic.id, 24)
        if suffix != ".log":
            for path in sorted(partition.glob(f"*{suffix}"))[:4]:
                _put(path, thing)
        for offset in range(24, 24 + AHEAD):
            _put(partition / f"{offset:020d}{suffix}", thing)
        more = await _fill(opened, topic.id, 24)
        assert len(more) == 24 or suffix == ".log"
        sent += more
        await apply_retention(opened.engine)
        values = await _values(opened, topic.id)
        assert isinstance(values, list)
        assert values == sent[-len(values) :]
        await _other_is_well(opened, other.id)
        end_offset = opened.engine.partition_facts(topic.id, 0).log_end_offset
    async with open_at() as opened:
        if suffix == ".log":
            with pytest.raises(PartitionOfflineError, match=r"cannot use .*\.log: it is no file, but a .*; move away"):
                opened.engine.partition_facts(topic.id, 0)
        else:
            assert opened.engine.partition_facts(topic.id, 0).log_end_offset == end_offset
            assert await _values(opened, topic.id) == values
        await _other_is_well(opened, other.id)
        await opened.engine.delete_topic(topic.id)
        await _other_is_well(opened, other.id)
    async with open_at() as opened:
        await _other_is_well(opened, other.id)


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint", "leader-epoch-checkpoint.tmp", ""])
@pytest.mark.parametrize("thing", THINGS)
async def test_what_lies_there_at_a_start_takes_one_partition_offline_at_most(
    open_at: OpenEngine, tmp_path: Path, thing: Callable[[Path], None], name: str
) -> None:
    """`""`: in the place of the directory itself. A topic without a record is as good as any."""
    async with open_at() as opened:
        topics = [await opened.engine.create_topic(each, 1, CONFIGS) for each in ("a", "c", "b")]
        await _fill(opened, topics[0].id, 9)
    for each in ("a", "c"):
        path = tmp_path / "data" / f"{each}-0" / name
        if not name:
            shutil.rmtree(path)
        _put(path, thing)
    async with open_at() as opened:
        for topic in topics[:2]:
            await _fill(opened, topic.id, 3)
        await _other_is_well(opened, topics[2].id)
        for topic in topics[:2]:
            await opened.engine.delete_topic(topic.id)
        await _other_is_well(opened, topics[2].id)
    async with open_at() as opened:
        await _other_is_well(opened, topics[2].id)


@pytest.mark.parametrize("thing", THINGS)
async def test_a_name_that_something_has_is_refused_to_a_new_topic(
    open_at: OpenEngine, tmp_path: Path, thing: Callable[[Path], None]
) -> None:
    async with open_at() as opened:
        other = await opened.engine.create_topic("b", 1, CONFIGS)
        thing(tmp_path / "data" / "a-0")
        if thing in (_directory, _full_directory):
            (tmp_path / "data" / "a-0" / "partition.metadata").mkdir()
        with pytest.raises(CorruptLogError, match="cannot use"):
            await opened.engine.create_topic("a", 1, CONFIGS)
        await _other_is_well(opened, other.id)


async def test_segments_that_may_not_be_deleted_stop_no_retention(
    open_at: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where an operator has made a file immutable: root may do anything else."""
    unlink = RealFiles.unlink

    def refuse(self: RealFiles, path: str) -> None:
        if "/a-0/" in path:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
        unlink(self, path)

    async with open_at() as opened:
        topic, other = [await opened.engine.create_topic(name, 1, CONFIGS) for name in ("a", "b")]
        await _fill(opened, topic.id, 40)
        with monkeypatch.context() as patch:
            patch.setattr(RealFiles, "unlink", refuse)
            await apply_retention(opened.engine)
            await _other_is_well(opened, other.id)
        assert "cannot delete" in caplog.text
        start = opened.engine.partition_facts(topic.id, 0).log_start_offset
        assert start > 0
        assert (tmp_path / "data" / "a-0" / f"{0:020d}.log").exists()
    with monkeypatch.context() as patch:
        patch.setattr(RealFiles, "unlink", refuse)
        async with open_at() as opened:
            assert opened.engine.partition_facts(topic.id, 0).log_start_offset == start
            await _other_is_well(opened, other.id)
    async with open_at() as opened:
        assert opened.engine.partition_facts(topic.id, 0).log_start_offset == start
    assert not (tmp_path / "data" / "a-0" / f"{0:020d}.log").exists()


async def test_a_directory_that_may_not_be_read_takes_one_partition_offline(
    open_at: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at() as opened:
        topic, other = [await opened.engine.create_topic(name, 1, CONFIGS) for name in ("a", "b")]
        await _fill(opened, topic.id, 9)
    listed = RealFiles.list_directory

    def refuse(self: RealFiles, path: str) -> dict[str, int]:
        if path.endswith("/a-0"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return listed(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(RealFiles, "list_directory", refuse)
        async with open_at() as opened:
            with pytest.raises(PartitionOfflineError, match="Permission denied"):
                opened.engine.partition_facts(topic.id, 0)
            await _other_is_well(opened, other.id)
    async with open_at() as opened:
        assert len(await _fill(opened, topic.id, 1)) == 1
