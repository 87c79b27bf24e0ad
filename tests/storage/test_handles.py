"""The cache of open files, and more partitions than descriptors."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from logbroker.errors import StorageFailedError, TooManyOpenFilesError
from logbroker.storage.handles import HandleCache
from tests.storage.faulty_files import FaultyFiles


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


def names(directory: Path, count: int) -> list[str]:
    return [f"{directory}/{number}" for number in range(count)]


def touch(handles: HandleCache, path: str) -> None:
    with handles.pinned(path, create=True):
        pass


def test_the_least_recently_used_file_is_closed(tmp_path: Path, files: FaultyFiles) -> None:
    a, b, c = names(tmp_path, 3)
    handles = HandleCache(files, 2)
    for path in (a, b, a, c):
        touch(handles, path)
    files.calls.clear()
    touch(handles, a)
    assert files.calls["open"] == 0
    touch(handles, b)
    assert files.calls["open"] == 1
    assert len(handles) == 2
    handles.close()
    assert len(handles) == 0


def test_a_pinned_file_is_never_closed(tmp_path: Path, files: FaultyFiles) -> None:
    first, *others = names(tmp_path, 5)
    handles = HandleCache(files, 1)
    handle = handles.acquire(first, create=True)
    for path in others:
        touch(handles, path)
    assert files.pwritev(handle.fd, [b"x"], 0) == 1
    handles.release(handle)


def test_a_forgotten_file_is_closed_by_its_last_user(tmp_path: Path, files: FaultyFiles) -> None:
    [path] = names(tmp_path, 1)
    handles = HandleCache(files, 1)
    handle = handles.acquire(path, create=True)
    assert handles.acquire(path) is handle
    handles.forget(path)
    handles.release(handle)
    assert files.pwritev(handle.fd, [b"x"], 0) == 1
    handles.release(handle)
    with pytest.raises(OSError, match="descriptor"):
        files.pwritev(handle.fd, [b"x"], 0)


def test_a_dirty_file_goes_last_and_is_synced_first(tmp_path: Path, files: FaultyFiles) -> None:
    dirty, *others = names(tmp_path, 4)
    handles = HandleCache(files, 2)
    with handles.pinned(dirty, create=True) as handle:
        handle.dirty = True
    for path in others:
        touch(handles, path)
    assert files.calls["fdatasync"] == 0
    with handles.pinned(others[-1]):
        touch(handles, others[0])
    assert files.journal == [("fdatasync", "0")]


def test_a_dirty_file_that_cannot_be_synced_is_fatal(tmp_path: Path, files: FaultyFiles) -> None:
    dirty, other = names(tmp_path, 2)
    handles = HandleCache(files, 1)
    with handles.pinned(dirty, create=True) as handle:
        handle.dirty = True
    files.fail("fdatasync", errno.EIO)
    with pytest.raises(StorageFailedError):
        touch(handles, other)
    # It may have been a reader that met it: the writer must not sync that file again, and with success.
    with pytest.raises(StorageFailedError):
        touch(handles, dirty)


def test_idle_files_make_room_when_descriptors_run_out(tmp_path: Path, files: FaultyFiles) -> None:
    *others, last = names(tmp_path, 4)
    handles = HandleCache(files, 100)
    for path in others:
        touch(handles, path)
    for _ in others:
        files.fail("open", errno.EMFILE)
    touch(handles, last)
    assert len(handles) == 1
    files.fail("open", errno.EMFILE)
    files.fail("open", errno.EMFILE)
    with pytest.raises(TooManyOpenFilesError, match="ulimit -n"):
        touch(handles, others[0])


def test_a_forgotten_file_is_closed_when_its_last_user_is_done(tmp_path: Path, files: FaultyFiles) -> None:
    (path,) = names(tmp_path, 1)
    handles = HandleCache(files, 2)
    with handles.pinned(path, create=True) as handle:
        handles.forget(path)
        files.pwritev(handle.fd, [b"x"], 0)
        assert files.calls["close"] == 0
        with handles.pinned(path) as another:
            assert another.fd != handle.fd
    assert files.calls["close"] == 1


MANY_PARTITIONS = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from tests.storage.partition import *
partitions = [PartitionOnDisk(Path(sys.argv[1]) / f"t-{n}") for n in range(150)]
shared = HandleCache(RealFiles(), 10_000)
for partition in partitions:
    partition.kill()
    partition.log = PartitionLog.open(
        partition.directory, partition.topic_id, SMALL, files=partition.files, handles=shared, checkpoint=None
    )
for value in (b"a", b"b"):
    for partition in partitions:
        partition.append(batch_of(value, bytes(1500)), sync=value == b"b")
for partition in partitions:
    assert partition.values() == [b"a", bytes(1500), b"b", bytes(1500)], partition.values()
print(len(shared))
"""


@pytest.mark.prove
def test_many_partitions_work_with_few_descriptors(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", MANY_PARTITIONS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert ended.returncode == 0, ended.stderr
    assert 10 < int(ended.stdout) < 64
