"""The log's access to the file system.

All reads and writes of segments, indexes and other files of partitions go through `Files`, so that tests can count
calls and make them fail. Implementations raise OSError; the callers decide whether the error refuses a request, means
corruption, or ends the process.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Literal, Protocol

from logbroker.errors import CorruptLogError, DiskFullError, LogbrokerError, StorageFailedError, TooManyOpenFilesError
from logbroker.errors.system import advice_for, reason_of
from logbroker.private_files import DIRECTORY_MODE, FILE_MODE
from logbroker.storage import system_calls

Buffer = bytes | bytearray | memoryview
Cut = Callable[[Buffer], int]
"""Function that returns how many of the bytes read are wanted."""

OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
OUT_OF_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
NOT_OURS: Final = (
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
    errno.EEXIST,
    errno.ELOOP,
    errno.ENXIO,
    errno.EACCES,
    errno.EPERM,
)
"""Errors for a path with something that the broker did not make, or may not use. They say nothing about the disk, so
the broker goes on."""
_NO_FILE: Final = (errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP)
"""Errors of the system if something other than a file is at the path."""
MAX_BUFFERS: Final = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in getattr(os, "sysconf_names", {}) else 16
"""Maximum number of buffers in one pwritev."""
MAX_SMALL_BYTES: Final = 4 << 20
"""Maximum size of a file that is read as a whole. Even the file of leader epochs is smaller, although it has a line for
each recovery that cut the log."""


class Files(Protocol):
    """The file system as storage uses it. Paths are absolute; the caller closes descriptors."""

    def open(self, path: str, *, create: bool = False) -> int:
        """Open a regular file for reading and writing."""
        ...

    def close(self, fd: int) -> None: ...

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        """Read up to `size_bytes`; less only at the end of the file."""
        ...

    def pread_cached(self, fd: int, size_bytes: int, position: int, cut: Cut | None = None) -> bytes:
        """Read from the page cache. Raises BlockingIOError if not all `size_bytes` are cached, or the file ends before.
        Where the system cannot tell what is cached, read like `pread`.

        `cut` returns how many of the bytes are wanted; the others are not copied.
        """
        ...

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """Write at most MAX_BUFFERS buffers one after the other; return the number of bytes written."""
        ...

    def fdatasync(self, fd: int) -> None: ...

    def truncate(self, fd: int, size_bytes: int) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def size_bytes(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """Return when the content of a file was last changed, by the wall clock at that time."""
        ...

    def set_modified(self, path: str, wall_ms: int) -> None: ...

    def list_directory(self, path: str) -> dict[str, int]:
        """Return the names of the regular files in a directory, with their sizes."""
        ...

    def list_directories(self, path: str) -> list[str]:
        """Return the names of the directories in a directory."""
        ...

    def list_others(self, path: str) -> list[str]:
        """Return the names of everything in a directory other than regular files."""
        ...

    def is_link(self, path: str) -> bool:
        """Return whether the path is a symbolic link, wherever it leads."""
        ...

    def make_directory(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...


class RealFiles:
    """The file system of the operating system."""

    def __init__(self) -> None:
        self._nowait = getattr(os, "RWF_NOWAIT", 0) if hasattr(os, "preadv") else 0
        self._scratch = threading.local()
        self._root = ""
        self._root_fd: int | None = None
        self._check_place: Callable[[], None] = lambda: None

    def hold(self, root: str, root_fd: int, check_place: Callable[[], None]) -> None:
        """Open and change everything below the path `root` in the directory that is open as `root_fd`. If this
        directory is moved, and another one put in its place, nothing changes in the other one.

        `check_place` is called after each opening of a file and each creation of a directory. It raises an error if the
        directory was moved.
        """
        self._root, self._root_fd, self._check_place = root.rstrip("/"), root_fd, check_place

    @contextmanager
    def _placed(self, path: str) -> Iterator[tuple[str, int | None]]:
        """Yield the path for system calls, and the descriptor of the directory from which it leads. Errors name the
        whole path."""
        below = self._root_fd is not None and path.startswith(f"{self._root}/")
        try:
            yield (path[len(self._root) + 1 :] or ".", self._root_fd) if below else (path, None)
        except OSError as error:
            error.filename = path
            raise

    def open(self, path: str, *, create: bool = False) -> int:
        # With `create`, do not follow a link: the next start would not find a file that was made through a link.
        flags = os.O_RDWR | (os.O_CREAT | system_calls.NO_FOLLOW if create else 0)
        with self._placed(path) as place:
            fd = open_regular(path, flags, place)
        try:
            self._check_place()
        except BaseException:
            os.close(fd)
            raise
        return fd

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        return system_calls.pread(fd, size_bytes, position)

    def pread_cached(self, fd: int, size_bytes: int, position: int, cut: Cut | None = None) -> bytes:
        if not self._nowait:
            return cut_bytes(system_calls.pread(fd, size_bytes, position), cut)
        # preadv fills a given buffer. Each thread keeps one buffer, because a new buffer would be filled with zeros
        # first.
        scratch: bytearray | None = getattr(self._scratch, "buffer", None)
        if scratch is None or len(scratch) < size_bytes:
            scratch = self._scratch.buffer = bytearray(max(size_bytes, 1 << 16))
        with memoryview(scratch)[:size_bytes] as view:
            try:
                count = os.preadv(fd, [view], position, self._nowait)
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                self._nowait = 0
                return cut_bytes(os.pread(fd, size_bytes, position), cut)
            if count < size_bytes:
                # The end of the file, or the end of what is cached.
                raise BlockingIOError(errno.EAGAIN, "not in the page cache")
            return bytes(view if cut is None else view[: cut(view)])

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        return system_calls.pwritev(fd, buffers, position)

    def fdatasync(self, fd: int) -> None:
        system_calls.sync_data(fd)

    def truncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def sync_directory(self, path: str) -> None:
        with self._placed(path) as (place, directory_fd):
            system_calls.sync_directory(place, directory_fd)

    def size_bytes(self, path: str) -> int:
        return os.stat(path).st_size  # By the whole path: it may be too long even if the rest of it is not.

    def modified_ms(self, path: str) -> int:
        with self._placed(path) as (place, directory_fd):
            return os.stat(place, dir_fd=directory_fd).st_mtime_ns // 1_000_000

    def set_modified(self, path: str, wall_ms: int) -> None:
        with self._placed(path) as (place, directory_fd):
            os.utime(place, ns=(wall_ms * 1_000_000, wall_ms * 1_000_000), dir_fd=directory_fd)

    def list_directory(self, path: str) -> dict[str, int]:
        with os.scandir(path) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file(follow_symlinks=False)}

    def list_directories(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]

    def list_others(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if not entry.is_file(follow_symlinks=False)]

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def make_directory(self, path: str) -> None:
        with self._placed(path) as (place, directory_fd):
            os.mkdir(place, DIRECTORY_MODE, dir_fd=directory_fd)
        self._check_place()

    def remove_directory(self, path: str) -> None:
        with self._placed(path) as (place, directory_fd):
            os.rmdir(place, dir_fd=directory_fd)

    def rename(self, source: str, target: str) -> None:
        with self._placed(source) as (old, old_fd), self._placed(target) as (new, new_fd):
            os.rename(old, new, src_dir_fd=old_fd, dst_dir_fd=new_fd)

    def unlink(self, path: str) -> None:
        with self._placed(path) as (place, directory_fd):
            os.unlink(place, dir_fd=directory_fd)


def open_regular(
    path: str | os.PathLike[str], flags: int = os.O_RDONLY, place: tuple[str, int | None] | None = None
) -> int:
    """Open a regular file. Anything else at the path is refused: opening a FIFO would wait for a writer.

    `place` is a relative path to the file, and the descriptor of the directory from which it leads. Raises OSError; its
    text says what is there instead.
    """
    name, directory_fd = place or (path, None)
    try:
        fd = os.open(name, flags | system_calls.READ_FLAGS, FILE_MODE, dir_fd=directory_fd)
    except OSError as error:
        # The system's text for a socket is "No such device or address".
        if error.errno in _NO_FILE and (what := what_is_at(path)):
            raise OSError(error.errno, what, os.fspath(path)) from None
        raise
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    raise OSError(errno.ENXIO, f"it is no file, but {kind_name(mode)}", os.fspath(path))


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Read the whole of a small file. Raises OSError, as `open_regular` does, and CorruptLogError if the file is too
    large."""
    with named(path), open(open_regular(path), "rb") as file:
        return _small(os.fspath(path), file.read(MAX_SMALL_BYTES + 1))


def _small(path: str, content: bytes) -> bytes:
    if len(content) > MAX_SMALL_BYTES:
        raise CorruptLogError(f"{path}: the file is damaged: it has more than {MAX_SMALL_BYTES:,} bytes; restore it")
    return content


def what_is_at(path: str | os.PathLike[str], wanted: Literal["file", "directory"] = "file") -> str:
    """Return, for messages, what is at a path instead of the wanted kind: "it is no file, but a FIFO". Return "" if the
    wanted kind is there, nothing is there, or this is not known. A link is always reported as a link."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return ""
    is_wanted = stat.S_ISREG(mode) if wanted == "file" else stat.S_ISDIR(mode)
    return "" if is_wanted else f"it is no {wanted}, but {kind_name(mode)}"


def why_absent(path: str) -> str:
    """Return why a needed file is missing from its directory, for messages."""
    what = what_is_at(path)
    return f"{what}; move that away" if what else "the file is missing"


def kind_name(mode: int) -> str:
    """Return the kind of a file by its `st_mode`, for messages: "a directory"."""
    names = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a directory",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return names.get(stat.S_IFMT(mode), "something else")


def storage_failed(action: str, path: str, error: OSError) -> StorageFailedError:
    """Return the error for a failed write, sync or rename, after which nobody knows what the file holds."""
    return StorageFailedError(
        f"cannot {action} {path}: {reason_of(error)}; check the disk, then start the broker again"
    )


def unusable(path: str, error: OSError) -> CorruptLogError:
    """Return the error for a failed read, for a missing file, or for a path with something that the broker did not make
    (NOT_OURS). Nothing has changed, so the broker goes on."""
    advice = "move away what is there, or let the user of the broker read and write it"
    if error.errno == errno.ENAMETOOLONG:
        advice = advice_for(error.errno)
    elif error.errno not in NOT_OURS:
        advice = "check the disk, and restore the file if it cannot be read any more"
    if not isinstance(error, FileNotFoundError):
        reason = reason_of(error)
        if isinstance(error, NotADirectoryError) and (what := what_is_at(path, "directory")):
            reason = what
        return CorruptLogError(f"cannot use {path}: {reason}; {advice}")
    if os.path.islink(path):
        return CorruptLogError(f"cannot use {path}: it is a symbolic link to nothing; restore what it led to")
    return CorruptLogError(f"cannot use {path}: {reason_of(error)}; restore what is missing")


@contextmanager
def named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the path in an OSError of the block that names none: the system names a file only where it is opened."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn a failed read in the block into a CorruptLogError that names the path. A failed read has changed nothing, so
    it does not end the broker as a failed write does. A missing file, and a lack of descriptors, stay OSErrors."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOENT, *OUT_OF_DESCRIPTORS):
            raise
        raise unusable(path, error) from error


def too_many_open_files(path: str) -> TooManyOpenFilesError:
    return TooManyOpenFilesError(
        f"no file descriptor is left to open {path}; raise the limit (ulimit -n) or try again later"
    )


def creation_failed(path: str, error: OSError) -> LogbrokerError:
    """Return the error for a file or directory that could not be made. Nothing has changed, so a lack of space or
    descriptors only refuses the request."""
    if error.errno in OUT_OF_DESCRIPTORS:
        return too_many_open_files(path)
    if error.errno in OUT_OF_SPACE:
        return DiskFullError(f"cannot create {path}: {error.strerror}; free some space, then try again")
    if error.errno in (*NOT_OURS, errno.ENOENT, errno.ENAMETOOLONG):
        return unusable(path, error)
    return storage_failed("create", path, error)


def write_all(files: Files, fd: int, buffers: Sequence[Buffer], position: int) -> None:
    """Write all buffers from `position` on, if needed in several calls. Raises OSError."""
    for first in range(0, len(buffers), MAX_BUFFERS):
        part = buffers[first : first + MAX_BUFFERS]
        missing = sum(map(len, part))
        while True:
            written = files.pwritev(fd, part, position)
            position += written
            missing -= written
            if not missing:
                break
            if written == 0:
                raise OSError(errno.EIO, "the file takes no more bytes")
            part = _after(part, written)


def _after(buffers: Sequence[Buffer], skip_bytes: int) -> list[Buffer]:
    """Return the buffers without their first `skip_bytes`."""
    rest: list[Buffer] = []
    for buffer in buffers:
        if skip_bytes < len(buffer):
            rest.append(memoryview(buffer)[skip_bytes:])
        skip_bytes = max(0, skip_bytes - len(buffer))
    return rest


def cut_bytes(content: bytes, cut: Cut | None) -> bytes:
    """Apply a cut, if there is one."""
    return content if cut is None else content[: cut(content)]


def read_file(files: Files, path: str) -> bytes:
    """Return the whole of a small file. Raises OSError, and CorruptLogError if the file is too large."""
    fd = files.open(path)
    try:
        parts = []
        position = 0
        with named(path):
            while position <= MAX_SMALL_BYTES and (part := files.pread(fd, 1 << 14, position)):
                parts.append(part)
                position += len(part)
        return _small(path, b"".join(parts))
    finally:
        files.close(fd)


def write_file(files: Files, path: str, content: bytes, *, sync: bool) -> None:
    """Replace the content of a file in place. Raises OSError."""
    fd = files.open(path, create=True)
    try:
        write_all(files, fd, [content], 0)
        # Truncated after the write: if a file was truncated to nothing, ext4 flushes it when it is closed.
        files.truncate(fd, len(content))
        if sync:
            files.fdatasync(fd)
    finally:
        files.close(fd)


def replace_file(files: Files, path: str, content: bytes) -> None:
    """Replace a file so that a crash leaves either the old or the new content. The caller syncs the directory."""
    temporary = path + ".tmp"
    try:
        write_file(files, temporary, content, sync=True)
    except OSError as error:
        if error.errno not in NOT_OURS:
            raise
        with suppress(FileNotFoundError):
            files.unlink(temporary)  # It is a link or a FIFO.
        write_file(files, temporary, content, sync=True)
    files.rename(temporary, path)
