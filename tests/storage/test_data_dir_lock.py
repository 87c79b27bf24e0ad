"""The lock that keeps a second broker out of a data directory, whatever becomes of the files in it."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from logbroker.errors import DataDirError, StorageFailedError
from logbroker.storage.data_dir import LOCK_NAME, DataDir
from logbroker.storage.files import RealFiles, replace_file, write_file
from logbroker.tools.segments.metadata import is_held


def gone(lock: Path) -> None:
    lock.unlink()


def made_anew(lock: Path) -> None:
    lock.unlink()
    lock.write_bytes(b"")


def moved_away(lock: Path) -> None:
    lock.rename(lock.with_name("lock.old"))


def a_copy(lock: Path) -> None:
    copy = lock.with_name("lock.copy")
    shutil.copy2(lock, copy)
    copy.replace(lock)


def all_but_the_directory(lock: Path) -> None:
    for path in list(lock.parent.iterdir()):
        path.unlink()


@pytest.mark.parametrize("done", [gone, made_anew, moved_away, a_copy, all_but_the_directory])
def test_nothing_that_is_done_to_the_lock_file_lets_a_second_one_in(
    tmp_path: Path, done: Callable[[Path], None]
) -> None:
    first = DataDir.open(tmp_path)
    done(tmp_path / LOCK_NAME)
    with pytest.raises(DataDirError, match="in use by another broker"):
        DataDir.open(tmp_path)
    assert is_held(tmp_path)
    first.close()
    assert not is_held(tmp_path)
    DataDir.open(tmp_path).close()


def test_the_same_directory_by_another_path_is_held_too(tmp_path: Path) -> None:
    first = DataDir.open(tmp_path / "data")
    (tmp_path / "link").symlink_to("data")
    for path in (tmp_path / "link", tmp_path / "data" / ".." / "data"):
        with pytest.raises(DataDirError, match="in use by another broker"):
            DataDir.open(path)
    (tmp_path / "data").rename(tmp_path / "other")
    with pytest.raises(DataDirError, match="in use by another broker"):
        DataDir.open(tmp_path / "other")
    first.close()


def test_a_broker_of_an_older_version_keeps_it_too(tmp_path: Path) -> None:
    """An older version locks the file alone."""
    with (tmp_path / LOCK_NAME).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(DataDirError, match="in use by another broker"):
            DataDir.open(tmp_path)
        assert is_held(tmp_path)
    DataDir.open(tmp_path).close()  # and what was refused has left no lock


def test_what_a_process_runs_does_not_inherit_the_lock(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys; from pathlib import Path; from logbroker.storage.data_dir import DataDir\n"
        "DataDir.open(Path(sys.argv[1]))\n"
        "child = subprocess.Popen(['sleep', '600'], close_fds=False, stdin=subprocess.DEVNULL, stdout=sys.stderr)\n"
        "print(child.pid, flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdin=pipe, stdout=pipe) as other:
        assert other.stdout is not None
        child = int(other.stdout.readline())
        try:
            with pytest.raises(DataDirError):
                DataDir.open(tmp_path)
            other.send_signal(signal.SIGKILL)
            other.wait(timeout=30)
            DataDir.open(tmp_path).close()
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("then", ["nothing", "a new one", "a file"])
def test_a_directory_that_was_taken_away_is_noticed(tmp_path: Path, then: str) -> None:
    path = tmp_path / "data"
    data_dir = DataDir.open(path)
    data_dir.check_in_place()
    path.rename(tmp_path / "data2")
    if then == "a new one":
        path.mkdir()
    elif then == "a file":
        path.write_bytes(b"")
    with pytest.raises(StorageFailedError, match="was moved, removed or replaced"):
        data_dir.check_in_place()
    if then == "nothing":
        (tmp_path / "data2").rename(path)
        data_dir.check_in_place()
    data_dir.close()


def everything_in(path: Path) -> dict[str, tuple[int, int]]:
    """Sizes and times of change of all that lies in a directory."""
    found = {str(each.relative_to(path)): each.stat() for each in path.rglob("*")}
    return {name: (status.st_size, status.st_mtime_ns) for name, status in found.items()}


def test_nothing_changes_in_a_directory_that_was_put_in_the_place_of_the_broker_s(tmp_path: Path) -> None:
    path = tmp_path / "data"
    data_dir, files = DataDir.open(path), RealFiles()
    data_dir.keep(files)
    for name in ("t-0", "empty-0"):
        files.make_directory(f"{path}/{name}")
    partition = f"{path}/t-0"
    for name in ("removed", "renamed", "changed", "replaced"):
        write_file(files, f"{partition}/{name}", name.encode(), sync=True)
    shutil.copytree(path, tmp_path / "other")
    path.rename(tmp_path / "moved")
    (tmp_path / "other").rename(path)
    before = everything_in(path)
    files.unlink(f"{partition}/removed")
    files.rename(f"{partition}/renamed", f"{path}/renamed")
    files.set_modified(f"{partition}/changed", 1000)
    files.remove_directory(f"{path}/empty-0")
    for directory in (str(path), partition):
        files.sync_directory(directory)
    refused: list[Callable[[], object]] = [
        lambda: files.open(f"{partition}/changed"),
        lambda: files.open(f"{partition}/made", create=True),
        lambda: files.make_directory(f"{path}/made-0"),
        lambda: replace_file(files, f"{partition}/replaced", b""),
    ]
    for act in refused:
        with pytest.raises(StorageFailedError, match="was moved, removed or replaced"):
            act()
    with pytest.raises(FileNotFoundError) as absent:
        files.unlink(f"{partition}/removed")
    assert absent.value.filename == f"{partition}/removed"
    assert everything_in(path) == before
    left = everything_in(tmp_path / "moved")
    assert {"removed", "t-0/removed", "t-0/renamed", "empty-0"}.isdisjoint(left)
    assert {"renamed", "t-0/made", "made-0"} <= left.keys()
    assert left["t-0/changed"][1] == 1_000_000_000 == files.modified_ms(f"{partition}/changed") * 1_000_000
    data_dir.close()


def test_a_file_system_without_locks_on_directories_has_that_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As NFS: it locks only what is open for writing."""
    flock = fcntl.flock

    def flock_of_nfs(fd: int, operation: int) -> None:
        if not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_RDWR:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock_of_nfs)
    first = DataDir.open(tmp_path)
    assert "do not remove it while a broker runs" in caplog.text
    with pytest.raises(DataDirError, match=f"process {os.getpid()}"):
        DataDir.open(tmp_path)
    first.close()
    DataDir.open(tmp_path).close()


@pytest.mark.parametrize(("mode", "told"), [(0o700, 0), (0o750, 0), (0o755, 0o755), (0o770, 0o770), (0o701, 0o701)])
def test_a_directory_of_somebody_else_is_taken_as_it_is_and_told_of(tmp_path: Path, mode: int, told: int) -> None:
    path = tmp_path / "data"
    path.mkdir()
    path.chmod(mode)
    data_dir = DataDir.open(path)
    assert data_dir.mode_open_to_others() == told
    data_dir.close()
    assert path.stat().st_mode & 0o777 == mode
