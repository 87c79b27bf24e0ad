"""System calls that some systems lack, each with a substitute.

A broker runs on Linux and macOS; the segment tools and backups also work on Windows.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Sequence
from typing import Any, Final

try:
    import fcntl
except ImportError:  # Windows.
    fcntl = None  # type: ignore[assignment]

Buffer = bytes | bytearray | memoryview

READ_FLAGS: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags for every file that is opened."""
NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_NOT_HERE: Final = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL)
"""Errors of F_FULLFSYNC on a file system that does not support it."""
_place: Final = threading.Lock()
"""Held if a read or write at a position takes two calls."""


def sync_data(fd: int) -> None:
    """Flush a file's written bytes, and its size, to the medium, where they survive a power cut. Raises OSError.

    On macOS, fsync leaves the bytes in the drive's cache, so F_FULLFSYNC is used.
    """
    if not _full_sync(fd):
        getattr(os, "fdatasync", os.fsync)(fd)


def sync_all(fd: int) -> None:
    """Flush a file as `sync_data` does, or the names in a directory. Raises OSError."""
    if not _full_sync(fd):
        os.fsync(fd)


def _full_sync(fd: int) -> bool:
    command = getattr(fcntl, "F_FULLFSYNC", None)
    if command is None:
        return False
    try:
        fcntl.fcntl(fd, command)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
        return False
    return True


def sync_directory(path: str, parent_fd: int | None = None) -> None:
    """Make the names in a directory durable, if the system supports it. Raises OSError."""
    fd = open_directory(path, parent_fd)
    if fd >= 0:
        try:
            sync_all(fd)
        finally:
            os.close(fd)


def open_directory(path: str | os.PathLike[str], parent_fd: int | None = None) -> int:
    """Open a directory to lock or sync it. Return -1 if the system cannot open directories. Raises OSError."""
    if not hasattr(os, "O_DIRECTORY"):
        return -1
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | READ_FLAGS, dir_fd=parent_fd)


def close(fd: int) -> None:
    """Close a descriptor. Ignores the -1 of `open_directory`."""
    if fd >= 0:
        os.close(fd)


def pread(fd: int, size_bytes: int, position: int) -> bytes:
    """Read at a position. Returns fewer bytes only at the end of the file."""
    if hasattr(os, "pread"):
        return os.pread(fd, size_bytes, position)
    with _place:
        os.lseek(fd, position, os.SEEK_SET)
        return os.read(fd, size_bytes)


def pread_into(fd: int, buffer: memoryview, position: int) -> int:
    """Fill a buffer from a position; return the number of bytes read."""
    if hasattr(os, "preadv"):
        return os.preadv(fd, [buffer], position)
    data = pread(fd, len(buffer), position)
    buffer[: len(data)] = data
    return len(data)


def pwrite(fd: int, data: Buffer, position: int) -> int:
    """Write at a position; return the number of bytes written."""
    if hasattr(os, "pwrite"):
        return os.pwrite(fd, data, position)
    with _place:
        os.lseek(fd, position, os.SEEK_SET)
        return os.write(fd, data)


def pwritev(fd: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write buffers one after the other, in one call; return the number of bytes written."""
    if hasattr(os, "pwritev"):
        return os.pwritev(fd, buffers, position)
    return pwrite(fd, b"".join(buffers), position)


def lock(fd: int) -> None:
    """Lock a file for this process alone. Raises BlockingIOError if another process has the lock, and OSError.

    Does nothing on systems without flock: no broker runs there.
    """
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_record(file: Any) -> None:
    """Lock a file as `lock` does, with the kind of lock that Java takes."""
    if fcntl is not None:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def sysctl_text(name: str) -> str:
    """Return the text that the kernel of macOS or a BSD has under a name, or "" if there is none."""
    buffer = ctypes.create_string_buffer(128)
    size = ctypes.c_size_t(len(buffer))
    try:
        outcome = ctypes.CDLL(None).sysctlbyname(name.encode(), buffer, ctypes.byref(size), None, 0)
    except (OSError, AttributeError, TypeError):
        return ""
    return "" if outcome else buffer.value.decode("ascii", "replace").strip()
