"""The data directory: its layout, and its lock against a second broker.

The lock (flock) is on the directory itself, because a file in it could be removed, or restored from a copy. The file
`lock` is locked as well, for brokers of older versions, and holds the process id of the broker.

<data-dir>/lock                      held with flock while a broker runs; its content is the holder's process id
<data-dir>/meta/                     the metadata store (LMDB)
<data-dir>/issued-numbers            bounds above all numbers that were given out, so that none is given out twice, even
                                     if the metadata store is lost
<data-dir>/<topic>-<partition>/      one directory per partition
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import Final

from logbroker.errors import CorruptLogError, DataDirError, StorageFailedError
from logbroker.errors.system import advice_for, reason_of
from logbroker.private_files import DIRECTORY_MODE
from logbroker.storage import system_calls
from logbroker.storage.files import RealFiles, kind_name, open_regular, read_regular, what_is_at
from logbroker.storage.partition_files import METADATA_NAME
from logbroker.storage.removal import is_set_aside

LOCK_NAME: Final = "lock"
META_NAME: Final = "meta"
OPEN_TO_OTHERS: Final = 0o027
"""Bits of a directory's mode that cause a warning. Read access for the group (0750) is allowed: somebody chose it."""
_NO_DIRECTORY_LOCKS: Final = (errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of file systems that lock only files open for writing, such as NFS."""

_log = logging.getLogger(__name__)


class DataDir:
    """A data directory that this process holds until `close`."""

    def __init__(self, path: Path, directory_fd: int, lock_fd: int) -> None:
        self.path = path
        self.directory_fd = directory_fd
        """Descriptor of the directory, wherever it is moved; -1: closed, or the system cannot open directories."""
        self._lock_fd = lock_fd

    @classmethod
    def open(cls, path: Path) -> DataDir:
        """Create the directory if needed, and lock it.

        Raises DataDirError if another broker holds the directory, or the directory cannot be made or written.
        """
        path = path.absolute()
        descriptors: list[int] = []
        try:
            path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
            descriptors.append(system_calls.open_directory(path))
            _lock_directory(path, descriptors[0])
            descriptors.append(open_regular(path / LOCK_NAME, os.O_RDWR | os.O_CREAT))
            _lock_file(path, descriptors[1])
            if not _is_still_at(path, descriptors[0]):
                raise DataDirError(f"the data directory {path} was moved while it was opened; try again")
        except BaseException as error:
            for fd in descriptors:
                system_calls.close(fd)
            if not isinstance(error, OSError):
                raise
            if isinstance(error, FileExistsError | NotADirectoryError) and (what := _what_is_in_the_way(path)):
                raise DataDirError(f"cannot use the data directory {path}: {what}; choose another directory") from None
            lock = path / LOCK_NAME
            if what := what_is_at(lock):
                raise DataDirError(f"cannot use {lock}: {what}; move it away, the broker makes a file there") from None
            raise DataDirError(
                f"cannot use the data directory {path}, or the file {LOCK_NAME} in it: {reason_of(error)}; choose one"
                " that this user can write"
            ) from None
        return cls(path, descriptors[0], descriptors[1])

    def mode_open_to_others(self) -> int:
        """Return the directory's mode if its group may write, or if users other than its owner and group may access it;
        else 0."""
        mode = stat.S_IMODE(os.fstat(self.directory_fd).st_mode)
        return mode if mode & OPEN_TO_OTHERS else 0

    def check_in_place(self) -> None:
        """Raise StorageFailedError if the path now leads to another directory: new files would not be in this broker's
        directory."""
        if not _is_still_at(self.path, self.directory_fd):
            raise StorageFailedError(
                f"the data directory {self.path} was moved, removed or replaced while the broker ran; move it back, or"
                " name its new place, then start the broker again"
            )

    def keep(self, files: RealFiles) -> None:
        """Let `files` change this directory only, also when it is moved, and raise StorageFailedError then."""
        if self.directory_fd >= 0:
            files.hold(str(self.path), self.directory_fd, self.check_in_place)

    @property
    def meta_path(self) -> Path:
        return self.path / META_NAME

    def partition_dir(self, topic_name: str, partition: int) -> Path:
        return self.path / f"{topic_name}-{partition}"

    def close(self) -> None:
        """Release the locks."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            system_calls.close(self.directory_fd)
            self._lock_fd = self.directory_fd = -1


def _what_is_in_the_way(path: Path) -> str:
    """Return, for messages, which part of a directory's path is no directory, and what it is; "" if there is no such
    part."""
    for part in reversed((path, *path.parents)):
        if part.is_dir():
            continue
        if part.is_symlink() and not part.exists():
            return f"{part} is a symbolic link to {os.readlink(part)}, which leads nowhere"
        if part.exists():
            return f"{part} is {kind_name(part.stat().st_mode)}"
        break
    return ""


def _lock_directory(path: Path, fd: int) -> None:
    """Lock the directory, if the file system supports it. Raises DataDirError."""
    try:
        system_calls.lock(fd)
    except BlockingIOError:
        raise _in_use(path) from None
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_LOCKS:
            raise _cannot_lock(path, error) from None
        _log.warning(
            "the file system of %s has no locks on directories (%s): only the file %s keeps a second broker out; do not"
            " remove it while a broker runs",
            path,
            reason_of(error),
            LOCK_NAME,
        )


def _lock_file(path: Path, fd: int) -> None:
    """Lock the file `lock` and write the process id to it. Raises DataDirError."""
    try:
        system_calls.lock(fd)
        holder = f"{os.getpid()}\n".encode("ascii")
        system_calls.pwrite(fd, holder, 0)
        os.ftruncate(fd, len(holder))
    except BlockingIOError:
        raise _in_use(path) from None
    except OSError as error:
        raise _cannot_lock(path, error) from None


def _in_use(path: Path) -> DataDirError:
    pid = ""
    with suppress(OSError, CorruptLogError):
        pid = read_regular(path / LOCK_NAME)[:20].decode("ascii", "replace").strip()
    by = f" (process {pid})" if pid.isdigit() else ""
    return DataDirError(
        f"the data directory {path} is in use by another broker{by}; stop it or choose another directory"
    )


def _cannot_lock(path: Path, error: OSError) -> DataDirError:
    return DataDirError(f"cannot lock the data directory {path}: {reason_of(error)}; {advice_for(error.errno or 0)}")


def _is_still_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # Not known; later reads and writes will report the error.


def partition_directories(data_dir: Path, known: Container[str] = ()) -> list[str]:
    """Return the names of the directories that hold a partition's files, except `known` ones; sorted. Raises
    OSError."""
    return [name for name in _names(data_dir, known) if os.path.exists(data_dir / name / METADATA_NAME)]


def unnamed_directories(data_dir: Path, known: Container[str]) -> list[str]:
    """Return the names of the directories without partition.metadata, except `known` ones; sorted. Raises OSError."""
    return [
        name
        for name in _names(data_dir, known)
        if os.path.isdir(data_dir / name) and not os.path.exists(data_dir / name / METADATA_NAME)
    ]


def _names(data_dir: Path, known: Container[str]) -> list[str]:
    # os.path functions never raise, even for a directory that only root may read, such as lost+found, or a link to
    # itself.
    return sorted(name for name in os.listdir(data_dir) if name not in known and not is_set_aside(name))
