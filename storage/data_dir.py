"""The data directory: its layout, and the lock that keeps a second broker out.

<data-dir>/lock                      held with flock while a broker runs; its content is the holder's process id
<data-dir>/meta/                     the metadata store (LMDB)
<data-dir>/issued-numbers            what must never come again, whatever becomes of the metadata store
<data-dir>/<topic>-<partition>/      one directory per partition
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Container
from pathlib import Path
from typing import Final

from logbroker.errors import DataDirError
from logbroker.errors.system import advice_for, reason_of
from logbroker.storage.files import open_regular
from logbroker.storage.partition_files import METADATA_NAME
from logbroker.storage.removal import SUFFIX as REMOVED_SUFFIX

LOCK_NAME: Final = "lock"
META_NAME: Final = "meta"


class DataDir:
    """A data directory that this process holds until `close`."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self._lock_fd = lock_fd

    @classmethod
    def open(cls, path: Path) -> DataDir:
        """Create the directory if need be and lock it.

        Raises DataDirError: another broker holds it, or it cannot be made or written.
        """
        path = path.absolute()
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock_fd = open_regular(path / LOCK_NAME, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise DataDirError(
                f"cannot use the data directory {path}, or the file {LOCK_NAME} in it: {reason_of(error)}; choose one"
                " that this user can write"
            ) from None
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            holder = f"{os.getpid()}\n".encode("ascii")
            os.pwrite(lock_fd, holder, 0)
            os.ftruncate(lock_fd, len(holder))
        except BlockingIOError:
            pid = os.pread(lock_fd, 20, 0).decode("ascii", "replace").strip()
            os.close(lock_fd)
            by = f" (process {pid})" if pid.isdigit() else ""
            raise DataDirError(
                f"the data directory {path} is in use by another broker{by}; stop it or choose another directory"
            ) from None
        except OSError as error:
            os.close(lock_fd)
            raise DataDirError(
                f"cannot lock the data directory {path}: {reason_of(error)}; {advice_for(error.errno or 0)}"
            ) from None
        return cls(path, lock_fd)

    @property
    def meta_path(self) -> Path:
        return self.path / META_NAME

    def partition_dir(self, topic_name: str, partition: int) -> Path:
        return self.path / f"{topic_name}-{partition}"

    def close(self) -> None:
        """Let another broker in."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def partition_directories(data_dir: Path, known: Container[str] = ()) -> list[str]:
    """Names of the directories that hold a partition's files, but for the `known` ones; sorted. Raises OSError."""
    return [name for name in _names(data_dir, known) if os.path.exists(data_dir / name / METADATA_NAME)]


def unnamed_directories(data_dir: Path, known: Container[str]) -> list[str]:
    """Names of the directories that have no partition.metadata, but for the `known` ones; sorted. Raises OSError."""
    return [
        name
        for name in _names(data_dir, known)
        if os.path.isdir(data_dir / name) and not os.path.exists(data_dir / name / METADATA_NAME)
    ]


def _names(data_dir: Path, known: Container[str]) -> list[str]:
    # Looked at by os.path, which raises for nothing: not for a directory that only root may read, such as lost+found,
    # nor for a link to itself.
    return sorted(name for name in os.listdir(data_dir) if name not in known and not name.endswith(REMOVED_SUFFIX))
