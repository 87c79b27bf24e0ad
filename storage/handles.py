"""Cache of a limited number of open files: far more partitions can be in use than the process may have descriptors."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from logbroker.errors import PartitionOfflineError, StorageFailedError
from logbroker.storage.files import OUT_OF_DESCRIPTORS, Files, storage_failed, too_many_open_files

_Result = TypeVar("_Result")


class Handle:
    """An open file. Its `fd` may be used from `acquire` to `release`."""

    __slots__ = ("dirty", "fd", "forgotten", "path", "pins")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.pins = 0
        self.dirty = False
        self.forgotten = False


class HandleCache:
    """An LRU cache of open files, safe to use from several threads.

    A handle in use is never closed. A dirty handle (written, not synced) is closed only if no clean handle can be
    closed. It is synced first, because the kernel reports an error of its write-back only to an open descriptor. No
    more than `max_open` handles are open, unless more are in use at one moment.
    """

    def __init__(self, files: Files, max_open: int) -> None:
        self._files = files
        self._max_open = max_open
        self._lock = threading.Lock()
        self._failure: StorageFailedError | None = None
        """First failure of a sync. The kernel reports a failure only once, so the next sync of the same file would seem
        to succeed."""
        self._created_files = 0
        self._owed_files = 0
        self._open: OrderedDict[str, Handle] = OrderedDict()
        """Handles by path; the handle that was acquired last is at the end."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_shut(self) -> bool:
        """Whether the cache refuses to open files."""
        return False

    @property
    def created_files(self) -> int:
        """Number of files that were opened with `create` so far: at most so many are new."""
        return self._created_files

    @property
    def owed_files(self) -> int:
        """Number of files that will be made later, without a check whether there is room: see `owe`."""
        return self._owed_files

    def owe(self, files: int) -> None:
        """Count files that will be made later, or, with a negative number, that were made or are not needed."""
        with self._lock:
            self._owed_files += files

    def acquire(self, path: str, *, create: bool = False) -> Handle:
        """Return the file's handle, pinned; `release` it soon.

        Raises TooManyOpenFilesError if no descriptor is left (nothing has changed then), StorageFailedError if a sync
        to make room failed, now or before, and OSError for everything else, such as a missing file.
        """
        with self._lock:
            return self._acquire(path, create)

    def _acquire(self, path: str, create: bool) -> Handle:
        if self._failure is not None:
            raise self._failure.anew()
        handle = self._open.get(path)
        if handle is None:
            handle = self._open[path] = Handle(path, self._open_file(path, create))
            self._created_files += create
        else:
            self._open.move_to_end(path)
        handle.pins += 1
        return handle

    def release(self, handle: Handle) -> None:
        """Unpin a handle that `acquire` returned."""
        with self._lock:
            handle.pins -= 1
            if handle.forgotten and not handle.pins:
                self._files.close(handle.fd)

    @contextmanager
    def pinned(self, path: str, *, create: bool = False) -> Iterator[Handle]:
        """`acquire` and `release` around a block."""
        handle = self.acquire(path, create=create)
        try:
            yield handle
        finally:
            self.release(handle)

    def ensure_open(self, path: str) -> None:
        """Open a file if it is not open, so that a lack of descriptors is noticed now. Raises as `acquire` does."""
        if path not in self._open:
            self.release(self.acquire(path))

    def forget(self, path: str) -> None:
        """Close a removed or replaced file, at once or when its last user releases it."""
        with self._lock:
            handle = self._open.pop(path, None)
            if handle is None:
                return
            handle.forgotten = True
            if not handle.pins:
                self._files.close(handle.fd)

    def close(self) -> None:
        """Close every file that is not in use."""
        for path in list(self._open):
            self.forget(path)

    def with_room(self, operation: Callable[[], _Result]) -> _Result:
        """Run an operation that opens a file itself. If no descriptor is left, close an idle file and run it again.

        Raises TooManyOpenFilesError if no file is idle.
        """
        while True:
            try:
                return operation()
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                failed = error
            with self._lock:
                if not self._evict():
                    raise too_many_open_files(str(failed.filename)) from None

    def _open_file(self, path: str, create: bool) -> int:
        while len(self._open) >= self._max_open and self._evict():
            pass
        while True:
            try:
                return self._files.open(path, create=create)
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
            if not self._evict():
                raise too_many_open_files(path)

    def _first_idle(self, *, dirty: bool) -> Handle | None:
        return next((handle for handle in self._open.values() if not handle.pins and handle.dirty == dirty), None)

    def _evict(self) -> bool:
        """Close the idle file that was acquired longest ago, a clean one if possible. Return False if all are in
        use."""
        handle = self._first_idle(dirty=False) or self._first_idle(dirty=True)
        if handle is None:
            return False
        if handle.dirty:
            try:
                self._files.fdatasync(handle.fd)
            except OSError as error:
                self._failure = storage_failed("sync", handle.path, error)
                raise self._failure.anew() from error
        del self._open[handle.path]
        self._files.close(handle.fd)
        return True


class PartitionHandles(HandleCache):
    """The files of one partition in a shared cache. After `shut`, none of them is opened any more.

    If a topic is deleted and made again, its paths are reused: a late user of the old topic, on any thread, must not
    open, read or write the files of the new one.
    """

    def __init__(self, name: str, cache: HandleCache) -> None:
        self._name = name
        self._cache = cache
        self._is_shut = False

    def shut(self) -> None:
        """Refuse to open files from now on. After this, `forget` the open files."""
        with self._cache._lock:
            self._is_shut = True

    @property
    def is_shut(self) -> bool:
        """Whether the partition is closed: the broker stops, or the topic is deleted."""
        return self._is_shut

    def acquire(self, path: str, *, create: bool = False) -> Handle:
        cache = self._cache
        with cache._lock:
            self._check()
            return cache._acquire(path, create)

    def release(self, handle: Handle) -> None:
        self._cache.release(handle)

    def owe(self, files: int) -> None:
        self._cache.owe(files)

    def ensure_open(self, path: str) -> None:
        self._cache.ensure_open(path)

    def forget(self, path: str) -> None:
        self._cache.forget(path)

    def with_room(self, operation: Callable[[], _Result]) -> _Result:
        self._check()
        return self._cache.with_room(operation)

    def _check(self) -> None:
        if self._is_shut:
            raise PartitionOfflineError(f"{self._name} is closed")
