"""Rehearses the opening of a partition: recovery runs as at a start of the broker, but changes nothing on disk."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from logbroker.config import TopicConfig
from logbroker.errors import CorruptLogError
from logbroker.storage.files import Buffer, RealFiles
from logbroker.storage.handles import HandleCache
from logbroker.storage.partition_checkpoint import PartitionCheckpoint
from logbroker.storage.recovery.partition import recover_partition
from logbroker.types import TopicId

_MAX_OPEN: Final = 4
_STORAGE_LOGGER: Final = logging.getLogger("logbroker.storage")


def why_refused(
    directory: str,
    topic_id: TopicId,
    config: TopicConfig,
    checkpoint: PartitionCheckpoint | None,
    *,
    progress: Callable[[int], None],
) -> str:
    """Return why a start after an unclean stop will refuse a partition, "" if it will open it.

    Reads everything above the recovery point. `progress` is called with the number of bytes after each read. Raises
    StorageFailedError and TooManyOpenFilesError.
    """
    files = _UnchangedFiles(progress)
    handles = HandleCache(files, _MAX_OPEN)
    try:
        with _no_warnings():
            recover_partition(directory, topic_id, config, files, handles, checkpoint, stopped_cleanly=False)
    except CorruptLogError as error:
        return str(error)
    finally:
        handles.close()
    return ""


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Log nothing in the block: the warnings of recovery say what it has changed."""
    level = _STORAGE_LOGGER.level
    _STORAGE_LOGGER.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        _STORAGE_LOGGER.setLevel(level)


class _UnchangedFiles(RealFiles):
    """The real file system, on which every change succeeds and does nothing.

    Recovery never reads back what it wrote: bytes that it keeps are written over themselves, and indexes are hints. It
    only opens or lists again what it has made, which is empty here.
    """

    def __init__(self, progress: Callable[[int], None]) -> None:
        super().__init__()
        self._progress = progress
        self._made: set[str] = set()
        self._removed: set[str] = set()

    def open(self, path: str, *, create: bool = False) -> int:
        is_there = path not in self._removed and os.path.lexists(path)
        if create and not is_there:
            self._made.add(path)
        if path in self._made:
            return os.open(os.devnull, os.O_RDWR)
        if not is_there:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return super().open(path)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        content = super().pread(fd, size_bytes, position)
        self._progress(len(content))
        return content

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        return sum(map(len, buffers))

    def fdatasync(self, fd: int) -> None:
        pass

    def truncate(self, fd: int, size_bytes: int) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass

    def set_modified(self, path: str, wall_ms: int) -> None:
        pass

    def list_directory(self, path: str) -> dict[str, int]:
        return {} if path in self._made else super().list_directory(path)

    def list_others(self, path: str) -> list[str]:
        return [] if path in self._made else super().list_others(path)

    def make_directory(self, path: str) -> None:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._made.add(path)

    def remove_directory(self, path: str) -> None:
        pass

    def rename(self, source: str, target: str) -> None:
        pass

    def unlink(self, path: str) -> None:
        self._removed.add(path)
