"""The low-water mark of the disk: refusals before anything can go wrong."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from logbroker.broker.local_engine.disk_space import KEPT_FILES, DiskSpace
from logbroker.broker.local_engine.state_store import LocalStateStore
from logbroker.config import MIB, BrokerConfig
from logbroker.engine import Append, Appended, DiskUse, StateEvent
from logbroker.errors import DiskFullError, StorageFailedError
from logbroker.storage.metadata.metadata_store import MetadataStore
from logbroker.v1 import admin_pb2 as pb
from logbroker.v1 import groups_pb2
from tests.broker.conftest import OpenEngine, batch
from tests.cli.command import failure_of
from tests.faults.conftest import KeepSurvivors
from tests.faults.fake_disk import FakeDisk
from tests.faults.serving import Served
from tests.grpc_api.api import Service
from tests.waiting import until


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FakeDisk:
    fake = FakeDisk(free_bytes=10 * MIB)
    monkeypatch.setattr(os, "statvfs", fake.statvfs)
    return fake


def test_what_was_accepted_counts_until_the_next_measurement(tmp_path: Path, disk: FakeDisk) -> None:
    space = DiskSpace(tmp_path, 9 * MIB)
    for _ in range(4):
        space.check(200_000)
        space.take(200_000)
    assert disk.calls == 1
    with pytest.raises(DiskFullError, match=r"has 9\.\d MiB left, and 9\.0 MiB are kept free"):
        space.check(MIB)
    assert disk.calls == 1  # measured a moment ago
    space.measure()
    space.check(200_000)


def test_space_that_was_freed_is_noticed(tmp_path: Path, disk: FakeDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("logbroker.broker.local_engine.disk_space.time", SimpleNamespace(monotonic=lambda: now[0]))
    space = DiskSpace(tmp_path, 9 * MIB)
    disk.free_bytes = 9 * MIB
    space.measure()
    disk.free_bytes = 20 * MIB
    with pytest.raises(DiskFullError):
        space.check(1)
    now[0] = 1.0
    space.check(1)


def test_each_mark_is_logged_once_when_it_is_reached_and_left(
    tmp_path: Path, disk: FakeDisk, caplog: pytest.LogCaptureFixture
) -> None:
    space = DiskSpace(tmp_path, 8 * MIB)

    def log_of(free_bytes: int, free_files: int = 5000, files: int = 0) -> list[str]:
        caplog.clear()
        disk.free_bytes, disk.free_files = free_bytes, free_files
        space.measure()
        for use in 2 * list(DiskUse):
            with suppress(DiskFullError):
                space.check(1, use, files=files)
        return [entry.getMessage().replace(str(tmp_path), "DIR").partition(" (min_free")[0] for entry in caplog.records]

    assert log_of(10 * MIB) == []
    refused = (
        "writes that take room are refused: the disk of DIR has {} MiB left, and 8.0 MiB are kept free for other writes"
    )
    assert log_of(7 * MIB) == [refused.format("7.0")]
    too = (
        "commits and acks are refused, too, and queue groups hand out nothing: the disk of DIR has {} MiB left, and 4.0"
    )
    assert [line.partition(" MiB are kept")[0] for line in log_of(3 * MIB)] == [too.format("3.0")]
    assert log_of(3 * MIB) == []
    again = "the disk of DIR has room for commits and acks again: 5.0 MiB; writes that take room are still refused"
    assert log_of(5 * MIB) == [again]
    room = "the disk of DIR has room again: 9.0 MiB and room for 5,000 more files (inodes)"
    assert log_of(9 * MIB) == [room]
    assert len(log_of(9 * MIB, KEPT_FILES, files=1)) == 1
    assert log_of(9 * MIB) == [room]


@pytest.mark.parametrize("scarce", ["bytes", "files", "files that are owed"])
def test_a_disk_that_is_full_for_what_is_asked_is_told_once(
    tmp_path: Path, disk: FakeDisk, caplog: pytest.LogCaptureFixture, scarce: str
) -> None:
    """Writes fill a disk up to somewhere between the mark and the mark plus one write."""
    space = DiskSpace(tmp_path, 8 * MIB, owed_files=lambda: 100)
    size_bytes, files = (MIB, 3) if scarce == "bytes" else (1, 3)
    disk.free_bytes = 8 * MIB + MIB // 2
    if scarce != "bytes":
        disk.free_files = KEPT_FILES + (102 if scarce == "files" else 50)
    for _ in range(3):
        space.measure()
        with pytest.raises(DiskFullError):
            space.check(size_bytes, files=files)
        with suppress(DiskFullError):
            space.check(1)
    assert len(caplog.records) == 1
    disk.free_bytes, disk.free_files = 10 * MIB, 5000
    space.measure()
    space.check(size_bytes, files=files)
    assert len(caplog.records) == 2
    assert "room again: 10.0 MiB and room for 4,900 more files" in caplog.records[1].getMessage()


def test_a_full_disk_is_told_once_whatever_is_asked(
    tmp_path: Path, disk: FakeDisk, caplog: pytest.LogCaptureFixture
) -> None:
    space = DiskSpace(tmp_path, 8 * MIB)
    disk.free_bytes = 5 * MIB
    space.measure()
    for asked in (10_000, 100, 0):
        with pytest.raises(DiskFullError):
            space.check(asked)
    assert len(caplog.records) == 1


def test_a_request_that_no_disk_has_room_for_hides_no_full_disk(
    tmp_path: Path, disk: FakeDisk, caplog: pytest.LogCaptureFixture
) -> None:
    space = DiskSpace(tmp_path, 8 * MIB)

    def told() -> list[str]:
        lines = [entry.getMessage().partition(":")[0] for entry in caplog.records]
        caplog.clear()
        return lines

    for _ in range(3):
        with pytest.raises(DiskFullError):
            space.check(100 * MIB, files=30_000)
        with pytest.raises(DiskFullError):
            space.check(1, files=2_000_000)
    assert told() == ["writes that take room are refused"] * 2
    disk.free_bytes = 8 * MIB
    space.measure()
    for asked in (1000, 2000, 999, 1001, 0, 0):
        with pytest.raises(DiskFullError):
            space.check(asked)
    assert told() == ["writes that take room are refused"], "whatever is asked, nothing is left"
    disk.free_bytes, disk.free_files = 10 * MIB, 5_000_000
    space.measure()
    assert len(told()) == 1


async def test_rows_that_are_not_stored_yet_count_though_the_disk_is_measured_meanwhile(
    tmp_path: Path, disk: FakeDisk
) -> None:
    space = DiskSpace(tmp_path, 9 * MIB)
    stored: Future[None] = Future()
    store: Any = SimpleNamespace(submit=lambda _writes: stored)
    helpers: Any = None
    numbers: Any = None
    state = LocalStateStore(store, helpers, space, numbers)
    commit = asyncio.create_task(state.commit("s", [StateEvent(b"k", bytes(MIB))]))
    await asyncio.sleep(0)
    space.measure()
    with pytest.raises(DiskFullError):
        space.check(1)
    stored.set_result(None)
    await commit
    space.measure()
    space.check(1)


async def test_appends_and_new_topics_are_refused_and_reads_are_not(open_at: OpenEngine, disk: FakeDisk) -> None:
    async with open_at(min_free_disk_bytes=9 * MIB, checkpoint_seconds=0.01) as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        await opened.append(topic.id, b"a")
        disk.free_bytes = 9 * MIB + 100
        await disk.measured_again()
        with pytest.raises(DiskFullError):
            await opened.append(topic.id, bytes(200))
        disk.free_bytes = 9 * MIB
        await disk.measured_again()
        with pytest.raises(DiskFullError):
            await opened.engine.create_topic("u", 1, {})
        with pytest.raises(DiskFullError):
            await opened.engine.alter_topic(topic.id, partitions=2)
        assert [each.name for each in opened.engine.topics()] == ["t"]
        assert opened.engine.partition_facts(topic.id, 0).log_end_offset == 1
        await opened.engine.alter_topic(topic.id, set_configs={"retention.bytes": "0"})
        disk.free_bytes = 10 * MIB
        await disk.measured_again()
        assert await opened.append(topic.id, b"b") == 1
        assert opened.failures == []


async def test_what_makes_files_is_refused_while_few_are_free(open_at: OpenEngine, disk: FakeDisk) -> None:
    """Files, and not bytes, are scarce: what makes none goes on."""
    async with open_at(min_free_disk_bytes=MIB, checkpoint_seconds=0.01) as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        await opened.append(topic.id, b"a")
        disk.free_files = KEPT_FILES + 20
        await disk.measured_again()
        with pytest.raises(DiskFullError, match=r"room for \d+ more files \(inodes\), this takes up to 60"):
            await opened.engine.create_topic("u", 10, {})
        with pytest.raises(DiskFullError, match="inodes"):
            await opened.engine.alter_topic(topic.id, partitions=11)
        await opened.append(topic.id, b"b")
        disk.free_files = KEPT_FILES
        await disk.measured_again()
        with pytest.raises(DiskFullError, match="inodes"):
            await opened.append(topic.id, b"c")
        [taken] = await opened.engine.append([Append(topic.id, 0, batch(b"copy"), use=DiskUse.USES_RESERVE)])
        assert isinstance(taken, Appended)
        opened.state.check_room(DiskUse.TAKES_ROOM)
        await opened.engine.init_producer_id()
        await opened.engine.alter_topic(topic.id, set_configs={"retention.bytes": "0"})
        disk.free_files = KEPT_FILES // 2
        await disk.measured_again()
        [refused] = await opened.engine.append([Append(topic.id, 0, batch(b"copy"), use=DiskUse.USES_RESERVE)])
        assert isinstance(refused, DiskFullError)
        disk.free_files = KEPT_FILES + 100
        await disk.measured_again()
        await opened.append(topic.id, b"d")
        assert opened.failures == []


async def test_the_indexes_of_new_segments_count_before_they_are_made(open_at: OpenEngine, disk: FakeDisk) -> None:
    """A stop, or the next rolls, would make all of them at once. This disk never shows a file that was made."""
    async with open_at(min_free_disk_bytes=MIB, checkpoint_seconds=0.01) as opened:
        topic = await opened.engine.create_topic("t", 12, {"segment.bytes": "256"})

        async def append(*partitions: int) -> int:
            """Append to partitions at once; return how many took it."""
            await disk.measured_again()
            results = await opened.engine.append([Append(topic.id, each, batch(bytes(100))) for each in partitions])
            assert all(isinstance(result, Appended | DiskFullError) for result in results)
            return sum(isinstance(result, Appended) for result in results)

        # Each begins a segment, and there is no entry for its indexes yet.
        disk.free_files = KEPT_FILES + 11
        for partition in range(5):
            assert await append(partition)
        assert not await append(5)
        disk.free_files += 2
        assert await append(5)
        # What the first ones of a call make counts before the disk is measured again.
        disk.free_files += 9
        assert await append(*range(6, 12)) == 3
        # The indexes of a segment are made when the next one begins, and those of a deleted topic never.
        assert await append(0)
        await opened.engine.delete_topic(topic.id)
        disk.free_files = KEPT_FILES + 6
        await disk.measured_again()
        await opened.engine.create_topic("u", 1, {})
        assert opened.failures == []


async def test_a_file_system_without_a_limit_on_files(open_at: OpenEngine, disk: FakeDisk) -> None:
    disk.files = disk.free_files = 0
    async with open_at(min_free_disk_bytes=MIB) as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        assert await opened.append(topic.id, b"a") == 0


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
async def test_an_index_for_which_no_file_is_left_stays_in_memory(
    open_at: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """A roll, a stop and a start do without it; the first start that finds room makes it anew."""
    real = os.open

    def full(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT and str(path).removesuffix(".tmp").endswith(suffix) and not os.path.exists(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return real(path, flags, mode, dir_fd=dir_fd)

    def made() -> list[Path]:
        return list((tmp_path / "data" / "t-0").glob(f"*{suffix}*"))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        for run in range(2):
            async with open_at() as opened:
                if not run:
                    await opened.engine.create_topic("t", 1, {"segment.bytes": "600"})
                topic = opened.engine.topic("t")
                for number in range(20):
                    assert await opened.append(topic.id, bytes(200)) == 20 * run + number
                assert opened.engine.partition_facts(topic.id, 0).segments > 5
                assert await opened.engine.offset_for_time(topic.id, 0, 0) is not None
                assert opened.failures == []
        assert made() == []
    async with open_at() as opened:
        assert await opened.append(opened.engine.topic("t").id, b"x") == 40
        assert opened.failures == []
    assert made()


async def test_appends_cost_no_system_call(open_at: OpenEngine, disk: FakeDisk) -> None:
    async with open_at(min_free_disk_bytes=0) as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        calls = disk.calls
        [*outcomes] = await opened.engine.append([Append(topic.id, 0, batch(b"x")) for _ in range(500)])
        assert all(isinstance(outcome, Appended) for outcome in outcomes)
        assert disk.calls == calls


async def test_a_disk_that_is_full_when_a_segment_is_made_is_a_refusal(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def full(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT and str(path).endswith(".log"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return real(path, flags, mode, dir_fd=dir_fd)

    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", full)
            with pytest.raises(DiskFullError):
                await opened.append(topic.id, b"a")
        assert await opened.append(topic.id, b"a") == 0
        assert opened.failures == []


def test_a_negative_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="min_free_disk_bytes"):
        BrokerConfig(min_free_disk_bytes=-1)


@pytest.fixture
def small_disk(tmp_path: Path, keep_survivors: KeepSurvivors) -> Iterator[Path]:
    """A file system of 24 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "logbroker-test", str(path)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("this user cannot mount a tmpfs; the same is tested with a file system that only says it is full")
    yield path
    keep_survivors(path / "data")
    subprocess.run(["umount", str(path)], check=True)


@pytest.mark.prove
def test_a_disk_is_filled_to_the_mark_and_no_further(small_disk: Path) -> None:
    with Served(small_disk / "data", min_free_disk_bytes=8 * MIB) as broker:
        broker.create_topic()
        acknowledged = broker.produce_until_refused(DiskFullError, size_bytes=300_000)
        assert len(acknowledged) > 20
        assert os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize > 6 * MIB
        assert broker.values() == acknowledged
    with Served(small_disk / "data", min_free_disk_bytes=MIB) as broker:
        acknowledged.append(broker.produce(b"more" + bytes(300_000)))
        assert broker.values() == acknowledged


@pytest.mark.prove
def test_rolls_and_new_topics_leave_enough_files_for_a_stop_and_a_start(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", f"remount,nr_inodes={KEPT_FILES + 400}", str(small_disk)], check=True)
    data_dir = small_disk / "data"
    with Served(data_dir, min_free_disk_bytes=MIB) as broker:
        broker.create_topic(segment_bytes="1000")
        acknowledged = broker.produce_until_refused(DiskFullError, size_bytes=600)
        assert len(acknowledged) > 100
        assert os.statvfs(small_disk).f_favail > KEPT_FILES // 2
        request = pb.CreateTopicsRequest(topics=[pb.NewTopic(name="t2", partitions=1)])
        [result] = broker.api.admin.CreateTopics(request).results
        assert result.status.reason == "DISK_FULL"
    request = pb.CreateTopicsRequest(topics=[pb.NewTopic(name="t", partitions=1)])
    with Served(data_dir, min_free_disk_bytes=MIB) as broker:
        assert broker.values() == acknowledged
        [deleted] = broker.api.admin.DeleteTopics(pb.DeleteTopicsRequest(topics=[pb.TopicRef(name="t")])).results
        assert not deleted.status.code
        until(lambda: os.statvfs(small_disk).f_favail > KEPT_FILES + 350)
        # The broker measures the disk ten times a second.
        until(lambda: not broker.api.admin.CreateTopics(request).results[0].status.code)
        broker.produce(b"more")


def fill_up(disk: Path, left_bytes: int, name: str = "filler") -> Path:
    filler = disk / name
    room = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with filler.open("wb") as file:
        file.write(bytes(max(0, room - left_bytes)))
    return filler


@pytest.mark.prove
def test_a_commit_on_a_disk_without_room_says_that_the_disk_is_full(small_disk: Path) -> None:
    """The system cuts a write of LMDB short, or refuses it, depending on the pages that still fit."""
    failures: list[StorageFailedError] = []
    for left_bytes in range(0, 40_000, 4096):
        path = small_disk / f"meta-{left_bytes}"
        with closing(MetadataStore.open(path, on_failure=failures.append)) as store:
            filler = fill_up(small_disk, left_bytes)
            with pytest.raises(StorageFailedError, match="No space left on device; free some space, then start"):
                store.submit([("state", b"%d" % number, bytes(1000)) for number in range(100)]).result(30)
        filler.unlink()
    assert not any("restore" in failure.message for failure in failures)


@pytest.mark.prove
@pytest.mark.parametrize(
    ("written", "end"),
    [([b"before"], "the broker accepts records again"), ([], "going on")],
    ids=["records refused", "producer id refused"],
)
def test_produce_tells_a_script_that_a_full_disk_has_room_again(
    small_disk: Path, tmp_path: Path, written: list[bytes], end: str
) -> None:
    """It does so once, where it told of the full disk."""
    said = tmp_path / "said"
    with Served(small_disk / "data", min_free_disk_bytes=8 * MIB) as served, said.open("wb") as errors:
        served.create_topic()
        command = [sys.executable, "-m", "logbroker", "produce", "t", "--broker", served.address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors, bufsize=0) as producer:
            assert producer.stdin is not None
            try:
                for value in written:
                    producer.stdin.write(value + b"\n")
                until(lambda: served.values() == written)
                filler = fill_up(small_disk, 6 * MIB)
                # The broker measures the disk ten times a second.
                accepted = [*written, *served.produce_until_refused(DiskFullError, size_bytes=10)]
                producer.stdin.write(b"value\n")
                until(lambda: "trying again" in said.read_text())
                filler.unlink()
                until(lambda: end in said.read_text())
                producer.stdin.close()
                assert producer.wait(30) == 0
            finally:
                producer.kill()
        assert served.values() == [*accepted, b"value"]
    assert [line.endswith(end) for line in said.read_text().splitlines()] == [False, True]


@pytest.mark.prove
def test_what_groups_store_is_refused_before_it_ends_the_broker(small_disk: Path) -> None:
    """Offsets with metadata, of one group after the other: the broker goes on, and what an operator deletes goes."""
    with Served(small_disk / "data", min_free_disk_bytes=4 * MIB, checkpoint_seconds=0.1) as broker:
        broker.create_topic()
        kept = broker.produce(b"kept")
        groups = Service(broker.api.channel, groups_pb2.DESCRIPTOR.services_by_name["Groups"])

        def is_refused(group_id: str) -> bool:
            offsets = groups_pb2.TopicOffsets(topic="t", partitions=[0], offsets=[1], metadata=["m" * 4000])
            request = groups_pb2.CommitOffsetsRequest(group_id=group_id, topics=[offsets])
            try:
                [result] = groups.CommitOffsets(request).topics
            except grpc.RpcError as error:
                return is_disk_full(error)
            assert not result.status.code, result
            return False

        def is_disk_full(error: grpc.RpcError) -> bool:
            details = error.details() or ""
            return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "delete topics or groups" in details

        assert not is_refused("first")
        filler = fill_up(small_disk, 3 * MIB)
        names = count()
        until(lambda: is_refused(f"new-{next(names)}"))
        # A group that there is goes on by the reserve.
        assert not is_refused("first")
        rest = fill_up(small_disk, MIB, "rest")
        until(lambda: is_refused("first"))
        for number in range(500):  # Twice as much as is left.
            assert is_refused(f"g{number}")
        [deleted] = groups.DeleteGroups(groups_pb2.DeleteGroupsRequest(group_ids=["first"])).results
        assert not deleted.code
        assert broker.values() == [kept]
        rest.unlink()
        filler.unlink()
        until(lambda: not is_refused("again"))
        broker.produce(b"more")


@pytest.mark.prove
def test_topics_are_made_until_the_disk_is_full_and_those_that_were_are_kept(small_disk: Path) -> None:
    created: list[str] = []
    broker = Served(small_disk / "data", min_free_disk_bytes=0, checkpoint_seconds=3600)
    with suppress(AssertionError), broker:  # it is refused a clean stop, too
        broker.create_topic()
        kept = broker.produce(b"kept")
        filler = fill_up(small_disk, 256 * 1024)
        with suppress(grpc.RpcError):
            for number in range(1000):
                topic = pb.NewTopic(name=f"more-{number}", partitions=4)
                [result] = broker.api.admin.CreateTopics(pb.CreateTopicsRequest(topics=[topic])).results
                if result.status.code:
                    assert result.status.reason in ("DISK_FULL", "STORAGE_FAILED"), result
                    break
                created.append(topic.name)
    assert created
    assert len(created) < 1000
    rest = fill_up(small_disk, 0, "rest")
    line = failure_of("serve", "--data-dir", small_disk / "other", "--listen", "127.0.0.1:0", "--log-level", "error")
    assert f"{small_disk}/other" in line
    assert "No space left on device; free some space" in line
    rest.unlink()
    filler.unlink()
    with Served(small_disk / "data", min_free_disk_bytes=0) as again:
        assert again.values() == [kept]
        names = {topic.name for topic in again.api.admin.ListTopics(pb.ListTopicsRequest()).topics}
        assert set(created) <= names


def test_a_disk_that_runs_full_in_mid_write_ends_the_broker_and_loses_nothing(small_disk: Path) -> None:
    filler = small_disk / "filler"
    with Served(small_disk / "data", min_free_disk_bytes=0) as broker:
        broker.create_topic()
        acknowledged = [broker.produce(b"%d" % number + bytes(200_000)) for number in range(5)]
        refusal: Exception | None = DiskFullError("not tried yet")
        while isinstance(refusal, DiskFullError):
            # The broker measures the disk at this append, and not again before the next one if that comes soon enough.
            filler.unlink(missing_ok=True)
            acknowledged.append(broker.produce(b"%d" % len(acknowledged)))
            room = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
            with filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, room - MIB)
            refusal = broker.refusal(bytes(3 * MIB))
        assert broker.exit_code() == 1
        [line] = broker.error_lines()
        assert "No space left on device" in line
        assert broker.clean_stop_is_marked() is False
    filler.unlink()
    with Served(small_disk / "data", min_free_disk_bytes=0) as broker:
        assert broker.values()[: len(acknowledged)] == acknowledged
        broker.produce(b"again")
        assert broker.values()[-1] == b"again"


@pytest.mark.parametrize("kind", ["small rows", "half pages", "large values"])
async def test_rows_count_as_much_as_they_take(open_at: OpenEngine, tmp_path: Path, kind: str) -> None:
    """Whatever else is counted, the file grows by the pages of LMDB: offsets of a few bytes filled a disk unnoticed."""
    rng = random.Random(1)
    key_bytes, value_bytes, rows = {
        "small rows": (21, 12, 20_000),
        "half pages": (20, 2_100, 1_000),
        "large values": (20, 4_200, 1_000),
    }[kind]
    async with open_at(checkpoint_seconds=3600.0) as opened:
        path, disk = tmp_path / "data" / "meta" / "data.mdb", opened.state._disk
        size_bytes, free_bytes = path.stat().st_size, disk._free_bytes
        for _ in range(100):
            events = [StateEvent(rng.randbytes(key_bytes), bytes(value_bytes)) for _ in range(rows // 100)]
            await opened.state.commit("scope", events)
        assert free_bytes - disk._free_bytes >= path.stat().st_size - size_bytes


def test_what_other_programs_write_is_noticed_soon(
    tmp_path: Path, disk: FakeDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("logbroker.broker.local_engine.disk_space.time", SimpleNamespace(monotonic=lambda: now[0]))
    space = DiskSpace(tmp_path, MIB)
    disk.free_bytes = MIB // 2
    now[0] += 0.2
    with pytest.raises(DiskFullError):
        space.check()
