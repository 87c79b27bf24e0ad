"""The sparse indexes of a segment: where to begin the search for an offset or a time.

The formats are Kafka's. `.index` holds (int32 offset relative to the segment's base, int32 position in the .log): the
last offset of the batch that begins at the position. `.timeindex` holds (int64 largest timestamp so far, int32 relative
offset of the batch with this timestamp). All numbers are big-endian; both columns ascend.

Indexes are hints. A reader checks the batch header to which an entry leads, so a damaged index costs only time. It is
rebuilt from the log.
"""

from __future__ import annotations

import logging
import struct
import threading
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from logbroker.errors.system import reason_of
from logbroker.storage.files import NOT_OURS, OUT_OF_SPACE, Files, replace_file, storage_failed, write_all
from logbroker.storage.handles import HandleCache

_log = logging.getLogger(__name__)

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")

MAX_INDEX_BYTES: Final = 1 << 27
"""Maximum bytes of an index; further bytes are not read."""
_BLOCK_ENTRIES: Final = 256

Entry = tuple[int, int]


class IndexFile:
    """Ascending entries of two numbers: saved entries in a file, then unsaved entries in memory.

    The file is searched in place, so memory does not grow with the data. One thread appends; any thread may save and
    look up.
    """

    __slots__ = (
        "_entry",
        "_files",
        "_handles",
        "_has_file",
        "_is_owed",
        "_loaded",
        "_lock",
        "_saved",
        "_saving",
        "_tail",
        "path",
    )

    def __init__(self, path: str, entry: struct.Struct, files: Files, handles: HandleCache) -> None:
        self.path = path
        self._entry = entry
        self._files = files
        self._handles = handles
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._saved = 0
        self._loaded: Entry | None = None
        """Last entry that `load` or `replace` found."""
        self._tail = bytearray()
        self._has_file = True
        self._is_owed = False
        """Whether the file is counted as one that will be made."""

    def __len__(self) -> int:
        with self._lock:
            return self._saved + len(self._tail) // self._entry.size

    @property
    def unsaved_bytes(self) -> int:
        return len(self._tail) if self._has_file else 0

    def begin(self) -> None:
        """Begin an index whose file is made when it is first saved."""
        self._is_owed = True
        self._handles.owe(1)

    def owe_no_file(self) -> None:
        """Note that the file is made, or not needed."""
        if self._is_owed:
            self._is_owed = False
            self._handles.owe(-1)

    def load(self, below: Entry) -> bool:
        """Load the file's entries, and cut off entries that do not ascend or are not below the limits.

        If there is no file, or it cannot be read, load nothing and return False. Raises StorageFailedError.
        """
        size = self._entry.size
        try:
            with self._handles.pinned(self.path) as handle:
                file_bytes = self._files.size_bytes(self.path)
                length = min(file_bytes, MAX_INDEX_BYTES)
                count = length // size
                last = self._read(handle.fd, count - 1, nowait=False) if count else (-1, -1)
                is_cut_off = file_bytes % size or length < file_bytes
                if is_cut_off or last[0] >= below[0] or last[1] >= below[1] or (last == (0, 0) and count > 1):
                    content = self._files.pread(handle.fd, length, 0)
                    count = self._valid_entries(content, below)
                    last = self._entry.unpack_from(content, (count - 1) * size) if count else (-1, -1)
                    self._cut(handle.fd, count * size)
        except FileNotFoundError:
            return False
        except OSError as error:
            # A failed read, or something that is no index. Nothing is lost, because the log has everything.
            _log.warning("the index %s cannot be read: %s; it is made anew", self.path, reason_of(error))
            return False
        self._saved = count
        self._loaded = last if count else None
        return True

    def _cut(self, fd: int, size_bytes: int) -> None:
        try:
            self._files.truncate(fd, size_bytes)
        except OSError as error:
            raise storage_failed("cut", self.path, error) from error

    def append(self, first: int, second: int) -> None:
        self._tail += self._entry.pack(first, second)

    def last_loaded(self) -> Entry | None:
        """Return the last entry that `load` or `replace` found."""
        return self._loaded

    def last_at_most(self, target: int, *, nowait: bool) -> Entry | None:
        """Return the last entry with a first column of at most `target`. With `nowait`, raises BlockingIOError if the
        file is not in the page cache."""
        size = self._entry.size
        with self._lock:
            saved, tail = self._saved, self._tail
            in_tail = len(tail) // size
            if in_tail and self._entry.unpack_from(tail, 0)[0] <= target:
                unpack = self._entry.unpack_from
                found = bisect_right(range(in_tail), target, key=lambda index: unpack(tail, index * size)[0])
                return unpack(tail, (found - 1) * size)
        if not saved:
            return None
        try:
            with self._handles.pinned(self.path) as handle:
                return self._search(handle.fd, saved, target, nowait=nowait)
        except BlockingIOError:
            raise
        except OSError:
            return None  # The file is gone, or cannot be read, so the log has to be walked.

    def _search(self, fd: int, saved: int, target: int, *, nowait: bool) -> Entry | None:
        size = self._entry.size
        # Find one block by single entries, then search the block: half as many reads.
        blocks = range(0, saved, _BLOCK_ENTRIES)
        block = bisect_right(blocks, target, key=lambda index: self._read(fd, index, nowait=nowait)[0]) - 1
        if block < 0:
            return None
        read = self._files.pread_cached if nowait else self._files.pread
        first = blocks[block]
        content = read(fd, min(_BLOCK_ENTRIES, saved - first) * size, first * size)
        unpack = self._entry.unpack_from
        found = bisect_right(range(len(content) // size), target, key=lambda index: unpack(content, index * size)[0])
        return unpack(content, (found - 1) * size) if found else None

    def save(self) -> None:
        """Append the unsaved entries to the file; create it even if there are none. Raises StorageFailedError."""
        if not self._has_file:
            return
        with self._saving:
            with self._lock:
                saved, content = self._saved, bytes(self._tail)
            is_open = False
            try:
                with self._handles.pinned(self.path, create=True) as handle:
                    is_open = True
                    self.owe_no_file()
                    if content:
                        write_all(self._files, handle.fd, [content], saved * self._entry.size)
            except OSError as error:
                if error.errno in NOT_OURS or not is_open:  # Nothing was written.
                    # The saved entries are lost, which only costs time.
                    self._do_without_file(error)
                    with self._lock:
                        self._saved = 0
                    return
                raise storage_failed("write", self.path, error) from error
            with self._lock:
                self._saved += len(content) // self._entry.size
                del self._tail[: len(content)]

    def sync(self) -> None:
        """Make the saved entries durable. Raises StorageFailedError."""
        if not self._has_file:
            return
        try:
            with self._handles.pinned(self.path) as handle:
                self._files.fdatasync(handle.fd)
        except OSError as error:
            raise storage_failed("sync", self.path, error) from error

    def replace(self, entries: Iterable[Entry]) -> None:
        """Replace all entries. Raises StorageFailedError."""
        content = b"".join(self._entry.pack(*entry) for entry in entries)
        self._loaded = self._entry.unpack(content[-self._entry.size :]) if content else None
        try:
            self._handles.with_room(lambda: replace_file(self._files, self.path, content))
        except OSError as error:
            if error.errno not in (*NOT_OURS, *OUT_OF_SPACE):
                raise storage_failed("write", self.path, error) from error
            if error.errno in OUT_OF_SPACE:
                with suppress(OSError):
                    self._files.unlink(self.path + ".tmp")
            self._do_without_file(error)
            with self._lock:
                self._saved, self._tail = 0, bytearray(content)
            return
        self._handles.forget(self.path)
        self._has_file = True
        with self._lock:
            self._saved = len(content) // self._entry.size
            self._tail = bytearray()

    def _do_without_file(self, error: OSError) -> None:
        """Keep entries in memory from now on. An index can be rebuilt at any time, so nothing else is affected."""
        if self._has_file:
            _log.warning("the index %s is kept in memory: %s; %s", self.path, reason_of(error), _advice(error))
        self._has_file = False
        self.owe_no_file()

    def _read(self, fd: int, index: int, *, nowait: bool) -> Entry:
        size = self._entry.size
        read = self._files.pread_cached if nowait else self._files.pread
        content = read(fd, size, index * size)
        # If somebody else has cut the file, return an entry that leads nowhere: the reader notices it.
        return self._entry.unpack(content) if len(content) == size else (-1, -1)

    def _valid_entries(self, content: bytes, below: Entry) -> int:
        count = 0
        before = (-1, -1)
        for entry in self._entry.iter_unpack(content[: len(content) - len(content) % self._entry.size]):
            first, second = entry
            if not (before[0] < first < below[0] and before[1] < second < below[1]):
                break
            before = (first, second)
            count += 1
        return count


def _advice(error: OSError) -> str:
    if error.errno in OUT_OF_SPACE:
        return "free some space"
    return "move away what is there" if error.errno in NOT_OURS else "check the disk"
