"""The data directory's lock and layout, and the removal of partitions."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from logbroker.errors import DataDirError, TooManyOpenFilesError
from logbroker.storage.data_dir import DataDir, partition_directories
from logbroker.storage.files import RealFiles
from logbroker.storage.handles import HandleCache
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.removal import remove_set_aside, set_aside
from logbroker.types import new_topic_id
from tests.storage.faulty_files import FaultyFiles


def test_the_directory_is_made_and_laid_out(tmp_path: Path) -> None:
    data_dir = DataDir.open(tmp_path / "a" / "b")
    assert data_dir.partition_dir("flights", 3) == tmp_path / "a" / "b" / "flights-3"
    assert data_dir.meta_path == tmp_path / "a" / "b" / "meta"
    data_dir.close()


def test_a_second_broker_is_refused_by_name(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from logbroker.storage.data_dir import DataDir\n"
        "DataDir.open(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(DataDirError, match=rf"in use by another broker \(process {other.pid}\)"):
            DataDir.open(tmp_path)
        other.stdin.close()
        other.wait(timeout=30)
    DataDir.open(tmp_path).close()


def test_the_lock_goes_with_close(tmp_path: Path) -> None:
    first = DataDir.open(tmp_path)
    with pytest.raises(DataDirError, match=f"process {os.getpid()}"):
        DataDir.open(tmp_path)
    first.close()
    DataDir.open(tmp_path).close()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("file", "file is a file"),
        ("file/data", "file is a file"),
        ("dangling", "dangling is a symbolic link to nothing, which leads nowhere"),
        ("linked", "linked is a file"),
        ("loop", "loop is a symbolic link to loop, which leads nowhere"),
        ("../../../../../../../dev/null", "null is a device"),
    ],
)
def test_a_path_that_cannot_be_a_directory_is_refused(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    for link, target in (("dangling", "nothing"), ("linked", "file"), ("loop", "loop")):
        (tmp_path / link).symlink_to(target)
    with pytest.raises(DataDirError, match=f"cannot use the data directory .*{why}"):
        DataDir.open(tmp_path / name)
    assert not (tmp_path / "nothing").exists()


def test_partitions_are_removed_also_with_the_longest_topic_name(tmp_path: Path) -> None:
    files = RealFiles()
    topic_id = new_topic_id()
    directories = [tmp_path / f"{'x' * 249}-{number}" for number in range(3)]
    for directory in directories[:2]:
        PartitionLog.create(directory, topic_id, files)
    other = tmp_path / "other-0"
    PartitionLog.create(other, new_topic_id(), files)
    handles = HandleCache(files, 4)
    set_aside(directories, topic_id, files, handles)
    assert not directories[0].exists()
    PartitionLog.create(directories[0], new_topic_id(), files)
    remove_set_aside(tmp_path, files, handles)
    assert sorted(tmp_path.iterdir()) == sorted([other, directories[0]])


@pytest.mark.parametrize("name", ["notes-to-delete", "t-0-before-delete", "-delete", f"{'A' * 22}-x-delete"])
def test_what_the_broker_has_not_set_aside_stays(tmp_path: Path, name: str) -> None:
    """Somebody may keep a copy in the data directory, and name it as he likes."""
    files = RealFiles()
    PartitionLog.create(tmp_path / name, new_topic_id(), files)
    remove_set_aside(tmp_path, files, HandleCache(files, 4))
    assert (tmp_path / name / "partition.metadata").exists()
    assert partition_directories(tmp_path) == [name]


def test_only_directories_of_the_deleted_topic_are_removed(tmp_path: Path) -> None:
    """The rows may be of a backup that is older than the topic that has the name now."""
    files, handles = RealFiles(), HandleCache(RealFiles(), 4)
    deleted, other = new_topic_id(), new_topic_id()
    directories = [tmp_path / f"t-{number}" for number in range(3)]
    for directory, owner in zip(directories, (deleted, other, deleted), strict=True):
        PartitionLog.create(directory, owner, files)
    (directories[2] / "partition.metadata").write_bytes(b"")  # as a power cut may leave it
    set_aside(directories, deleted, files, handles)
    remove_set_aside(tmp_path, files, handles)
    assert list(tmp_path.iterdir()) == [directories[1]]


def test_a_lack_of_descriptors_puts_a_removal_off(tmp_path: Path) -> None:
    files = FaultyFiles()
    handles = HandleCache(files, 4)
    topic_id = new_topic_id()
    directory = tmp_path / "t-0"
    PartitionLog.create(directory, topic_id, files)
    files.fail("sync_directory", errno.EMFILE)
    with pytest.raises(TooManyOpenFilesError):
        set_aside([directory], topic_id, files, handles)
    # The rename is done, but not durable before the second call.
    set_aside([directory], topic_id, files, handles)
    assert files.journal[-1] == ("sync_directory", tmp_path.name)
    for operation in ("list_directories", "list_directory"):
        files.fail(operation, errno.EMFILE)
        remove_set_aside(tmp_path, files, handles)
        assert len(list(tmp_path.iterdir())) == 1
    # An idle file makes room.
    with handles.pinned(str(tmp_path / "other"), create=True):
        pass
    files.fail("list_directories", errno.EMFILE)
    remove_set_aside(tmp_path, files, handles)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
