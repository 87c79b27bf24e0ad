"""The files of a queue group's index cache: numbered files of blocks, and the checkpoint. Nothing in them is synced."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from logbroker.errors.system import reason_of
from logbroker.private_files import DIRECTORY_MODE, FILE_MODE, remove_directory

DIRECTORY: Final = "queue-index"
"""Folder in the data directory, with one directory per queue group."""
SUFFIX: Final = ".index"
"""Suffix of a group's directory name. Without it, a group named `..` would get the data directory itself."""
FILE_BYTES: Final = 32 * 1024 * 1024
"""Approximate size of one file of blocks."""

_CHECKPOINT: Final = "checkpoint"
_BLOCKS: Final = ".blocks"

# Opened without blocking: otherwise, the opening would wait if somebody has put a FIFO there.
_READING: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_WRITING: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK

_log = logging.getLogger(__name__)


class IndexCacheFiles:
    """The files of one queue group, made when first needed. All calls take microseconds in the page cache, and raise
    OSError."""

    def __init__(self, data_dir: Path, group_id: str) -> None:
        self.path = data_dir / DIRECTORY / f"{group_id}{SUFFIX}"
        self._fd = -1
        self._number = 0
        self._size_bytes = 0

    def append(self, data: bytes) -> tuple[int, int]:
        """Append a block; return the number of its file and its position there."""
        if self._fd >= 0 and self._size_bytes >= FILE_BYTES:
            self.close()
        if self._fd < 0:
            self._make_directory()
            self._number = max(self._number, *self.numbers(), 0) + 1
            self._fd = _open(self._file(self._number), _WRITING)
            self._size_bytes = 0
        written = os.pwrite(self._fd, data, self._size_bytes)
        if written < len(data):
            raise OSError("the disk is full")
        position, self._size_bytes = self._size_bytes, self._size_bytes + written
        return self._number, position

    def read(self, number: int, position: int, size_bytes: int) -> bytes:
        """Return the bytes at a position; fewer at the end of the file."""
        fd = _open(self._file(number), _READING)
        try:
            return os.pread(fd, size_bytes, position)
        finally:
            os.close(fd)

    def write_checkpoint(self, parts: Iterable[bytes]) -> Iterator[None]:
        """Write a checkpoint, one part per step; the last step replaces the previous checkpoint."""
        self._make_directory()
        fresh = self.path / f"{_CHECKPOINT}.new"
        fd = _open(fresh, _WRITING)
        try:
            for part in parts:
                if os.write(fd, part) < len(part):
                    raise OSError("the disk is full")
                yield
        finally:
            os.close(fd)
        fresh.replace(self.path / _CHECKPOINT)

    def read_checkpoint(self) -> bytes:
        """Return the checkpoint, or b"" if there is none."""
        with suppress(FileNotFoundError), open(_open(self.path / _CHECKPOINT, _READING), "rb") as file:
            return file.read()
        return b""

    def numbers(self) -> list[int]:
        """Return the numbers of the existing files of blocks, sorted."""
        if not self.path.is_dir():
            return []
        names = [path.stem for path in self.path.iterdir() if path.suffix == _BLOCKS]
        return sorted(int(name) for name in names if name.isdecimal())

    def size_bytes(self, number: int) -> int:
        return self._file(number).stat().st_size

    def keep(self, numbers: Container[int]) -> None:
        """Remove all other files of blocks, except the one that is being written."""
        for number in self.numbers():
            if number not in numbers and not (self._fd >= 0 and number == self._number):
                self._file(number).unlink(missing_ok=True)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self, but: Collection[int] = ()) -> None:
        """Remove everything except some files of blocks."""
        self.close()
        if not but:
            remove_directory(self.path)
            return
        with suppress(OSError):
            (self.path / _CHECKPOINT).unlink(missing_ok=True)
            self.keep(but)

    def _make_directory(self) -> None:
        for path in (self.path.parent, self.path):  # With `parents`, only the last one would get the mode.
            path.mkdir(DIRECTORY_MODE, exist_ok=True)

    def _file(self, number: int) -> Path:
        return self.path / f"{number}{_BLOCKS}"


def _open(path: Path, flags: int) -> int:
    """Open a regular file. Anything else at the path is refused: a device may be endless. Raises OSError."""
    fd = os.open(path, flags, FILE_MODE)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.ENXIO, "it is no file", os.fspath(path))


def remove_strays(data_dir: Path, is_stray: Callable[[str], bool]) -> None:
    """Remove files of deleted groups that a crash left behind. `is_stray` returns whether a group is gone, by its
    id."""
    directory = data_dir / DIRECTORY
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning(
            "%s cannot be used: %s; queue groups go on without their indexes, and each start scans the logs: move away"
            " what is there, or let the user of the broker read and write it",
            directory,
            reason_of(error),
        )
        return
    for name in names:
        if is_stray(name.removesuffix(SUFFIX)):
            remove_directory(directory / name)
