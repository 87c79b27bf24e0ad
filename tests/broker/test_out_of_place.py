"""Something else where a file or directory of the broker belongs: that partition is offline, and all others serve."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from logbroker.engine import Read, ReadResult
from logbroker.errors import CorruptLogError, PartitionOfflineError
from logbroker.storage.partition_files import EPOCHS_NAME, METADATA_NAME
from tests.broker.conftest import Opened, OpenEngine


def a_file(path: Path) -> None:
    path.write_bytes(b"")


def a_directory(path: Path) -> None:
    path.mkdir()


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_loop(path: Path) -> None:
    path.symlink_to(path.name)


def a_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


Put = Callable[[Path], None]
IN_THE_PLACE_OF_DIRECTORIES = pytest.mark.parametrize("put", [a_file, a_fifo, a_loop, a_dangling_link])
IN_THE_PLACE_OF_FILES = pytest.mark.parametrize("put", [a_directory, a_fifo, a_loop, a_dangling_link])


async def fill(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        for name in ("good", "bad"):
            topic = await opened.engine.create_topic(name, 1, {})
            await opened.append(topic.id, name.encode())


async def read(opened: Opened, name: str) -> object:
    [found] = await opened.engine.read([Read(opened.engine.topic(name).id, 0, 0, 1 << 20)])
    return found


async def check_one_is_offline(open_at: OpenEngine, path: Path) -> None:
    async with open_at() as opened:
        refusal = await read(opened, "bad")
        assert isinstance(refusal, PartitionOfflineError)
        assert str(path) in refusal.message
        assert isinstance(await read(opened, "good"), ReadResult)
        assert await opened.append(opened.engine.topic("good").id, b"more") == 1
        assert opened.failures == []


@IN_THE_PLACE_OF_DIRECTORIES
@pytest.mark.parametrize("empty", [False, True])
async def test_in_the_place_of_a_partition(open_at: OpenEngine, tmp_path: Path, put: Put, *, empty: bool) -> None:
    if empty:
        async with open_at() as opened:
            await opened.append((await opened.engine.create_topic("good", 1, {})).id, b"good")
            await opened.engine.create_topic("bad", 1, {})
    else:
        await fill(open_at)
    path = tmp_path / "data" / "bad-0"
    kept = tmp_path / "kept"
    path.rename(kept)
    put(path)
    await check_one_is_offline(open_at, path)
    path.unlink()
    kept.rename(path)
    async with open_at() as opened:
        assert await opened.append(opened.engine.topic("bad").id, b"more") == (0 if empty else 1)


@IN_THE_PLACE_OF_FILES
@pytest.mark.parametrize("name", [f"{0:020d}.log", EPOCHS_NAME, METADATA_NAME])
async def test_in_the_place_of_a_file_of_a_partition(open_at: OpenEngine, tmp_path: Path, put: Put, name: str) -> None:
    await fill(open_at)
    path = tmp_path / "data" / "bad-0" / name
    path.unlink()
    put(path)
    await check_one_is_offline(open_at, path)


@IN_THE_PLACE_OF_DIRECTORIES
async def test_in_the_place_of_a_new_partition(open_at: OpenEngine, tmp_path: Path, put: Put) -> None:
    async with open_at() as opened:
        path = tmp_path / "data" / "new-1"
        put(path)
        with pytest.raises(CorruptLogError, match=f"cannot use {path}: "):
            await opened.engine.create_topic("new", 2, {})
        assert opened.failures == []
        path.unlink()
        topic = await opened.engine.create_topic("new", 2, {})
        assert await opened.append(topic.id, b"a") == 0


async def test_directories_that_are_no_partitions_are_named_once(
    open_at: OpenEngine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(open_at)
    data_dir = tmp_path / "data"
    for number in range(7):
        (data_dir / f"old-{number}").mkdir()
    (data_dir / "old-0" / f"{0:020d}.log").write_bytes(b"")
    (data_dir / "queue-index").mkdir()
    shutil.copytree(data_dir / "good-0", data_dir / "good-9")
    with caplog.at_level(logging.WARNING):
        async with open_at():
            pass
    [ignored] = [record.getMessage() for record in caplog.records if "ignored" in record.getMessage()]
    assert ignored.startswith(f"7 directories in {data_dir} have no partition.metadata")
    assert ignored.endswith("old-0, old-1, old-2, old-3, old-4, ...")
    [strays] = [record.getMessage() for record in caplog.records if "belong to no topic" in record.getMessage()]
    assert strays.endswith(": good-9")
