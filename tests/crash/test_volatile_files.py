"""The files that forget: readers in the process see every write, the disk only what was synced or slipped through."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.volatile_files import SECTOR_BYTES, VolatileFiles

WRITES = 60


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> VolatileFiles:
    monkeypatch.setenv("LOGBROKER_CRASH_SEED", "1")
    return VolatileFiles()


@pytest.fixture
def fd(files: VolatileFiles, tmp_path: Path) -> Iterator[int]:
    found = files.open(str(tmp_path / "log"), create=True)
    yield found
    files.close(found)


def test_the_process_reads_what_it_wrote(files: VolatileFiles, fd: int, tmp_path: Path) -> None:
    content = bytes(range(1, 251)) * 40
    for start in range(0, len(content), 1000):
        files.pwritev(fd, [content[start : start + 400], content[start + 400 : start + 1000]], start)
    assert files.pread(fd, 20_000, 0) == content
    assert files.pread_cached(fd, 777, 950) == content[950 : 950 + 777]
    assert files.size_bytes(str(tmp_path / "log")) == len(content)
    assert files.list_directory(str(tmp_path)) == {"log": len(content)}
    files.truncate(fd, 1500)
    assert files.pread(fd, 20_000, 0) == content[:1500]


def test_the_disk_has_what_was_synced(files: VolatileFiles, fd: int, tmp_path: Path) -> None:
    files.pwritev(fd, [b"synced"], 0)
    files.fdatasync(fd)
    for number in range(WRITES):
        files.pwritev(fd, [b"x" * 3000], 6 + 3000 * number)
    on_disk = (tmp_path / "log").read_bytes()
    assert on_disk.startswith(b"synced")
    files.fdatasync(fd)
    assert (tmp_path / "log").read_bytes() == b"synced" + b"x" * 3000 * WRITES


def test_what_was_not_synced_is_there_whole_in_part_or_not_at_all(tmp_path: Path, files: VolatileFiles) -> None:
    found = set()
    for number in range(WRITES):
        path = tmp_path / str(number)
        fd = files.open(str(path), create=True)
        files.pwritev(fd, [b"x" * 4 * SECTOR_BYTES], 0)
        on_disk = path.read_bytes()
        whole = on_disk == b"x" * 4 * SECTOR_BYTES
        hole = bytes(SECTOR_BYTES) in on_disk
        found.add("whole" if whole else "hole" if hole else "beginning" if on_disk else "nothing")
        files.close(fd)
    assert found == {"whole", "hole", "beginning", "nothing"}


def test_names_take_their_unsynced_bytes_along(files: VolatileFiles, tmp_path: Path) -> None:
    (tmp_path / "topic-0").mkdir()
    path = tmp_path / "topic-0" / "log"
    fd = files.open(str(path), create=True)
    files.pwritev(fd, [b"x" * 10], 0)
    files.rename(str(path), str(path) + ".cut")
    files.rename(str(tmp_path / "topic-0"), str(tmp_path / "gone"))
    moved = tmp_path / "gone" / "log.cut"
    assert files.size_bytes(str(moved)) == 10
    files.fdatasync(fd)
    assert moved.read_bytes() == b"x" * 10
    files.close(fd)
    files.unlink(str(moved))
    assert files.list_directory(str(tmp_path / "gone")) == {}
