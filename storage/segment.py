"""One segment: a .log file of consecutive record batches, and its two indexes.

The owner thread updates the facts and indexes in memory before the bytes are written. Any thread may write the bytes,
and look up batches below a limit that it gets from the owner.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from logbroker.config import MAX_INT64, MAX_STORED_BATCH_BYTES, TopicConfig
from logbroker.errors import BrokerUnavailableError, CorruptLogError
from logbroker.record.header import HEADER_BYTES, BatchHeader
from logbroker.storage.continuity import ANY_ORDER, Continuity, DamagedLogError
from logbroker.storage.files import NOT_OURS, Files, storage_failed
from logbroker.storage.handles import Handle, HandleCache
from logbroker.storage.header_walk import (
    CHECKED_WALK_BYTES,
    LONG_WALK_BYTES,
    NO_TIMESTAMP,
    SHORT_WALK_BYTES,
    index_entries,
    until_damage,
    walk_headers,
)
from logbroker.storage.index_file import OFFSET_ENTRY, TIME_ENTRY, Entry, IndexFile

_log = logging.getLogger(__name__)

SUFFIXES: Final = (".log", ".index", ".timeindex")
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
MAX_POSITION: Final = 2**31 - 1
_MAX_BASE_OFFSET: Final = MAX_INT64 - MAX_RELATIVE_OFFSET - 1
"""Highest base offset with which all offsets in a segment, and the one after them, are int64."""
_LOG_NAME: Final = re.compile(r"([0-9]{20})\.log")

_Found = TypeVar("_Found")

_DIRECT_STEPS: Final = 4
"""If a chunk has at most about this many batches, its end is found by their headers. With more batches, the chunk is
read and cut."""
_MAX_UNINDEXED_BYTES: Final = 2 * MAX_STORED_BATCH_BYTES
"""Maximum distance between the end of an index and the end of its log. If it is larger, the index has lost entries."""
_SHORT_LOG_BYTES: Final = 256 * 1024
"""The index of a log of at most this size is made within some milliseconds, however small its batches are."""


def base_offset_of(name: str) -> int | None:
    """Return the base offset in the name of a segment's log file, or None if no segment has such a name."""
    match = _LOG_NAME.fullmatch(name)
    base_offset = int(match[1]) if match else _MAX_BASE_OFFSET + 1
    return base_offset if base_offset <= _MAX_BASE_OFFSET else None


class Segment:
    """The facts of one segment, and the access to its files."""

    __slots__ = (
        "_bytes_since_entry",
        "_files",
        "_handles",
        "_indexed_timestamp_ms",
        "_lock",
        "_stem",
        "base_offset",
        "created_ms",
        "first_crc",
        "first_timestamp_ms",
        "is_damaged",
        "loaded",
        "log_path",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "modified_ms",
        "offset_index",
        "removed",
        "rules",
        "sealed",
        "size_bytes",
        "time_index",
    )

    offset_index: IndexFile
    time_index: IndexFile

    def __init__(
        self, directory: str, base_offset: int, files: Files, handles: HandleCache, rules: Continuity = ANY_ORDER
    ) -> None:
        self.base_offset = base_offset
        self.rules = rules
        """Rules that its batches must follow to continue the log."""
        self.size_bytes = 0
        self.first_crc = -1
        """CRC of the first batch; -1: not known."""
        self.first_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.created_ms = 0
        """Time at which this process made the segment or first appended to it. It gives the segment's age if the
        records have no timestamps."""
        self.modified_ms = -1
        """Time of the last append, by the wall clock at that time; -1: take it from the file."""
        self.removed = False
        self.loaded = False
        """Whether the indexes are loaded, so that the segment can take appends."""
        self.is_damaged = False
        """Whether a read has found damage. Records that the segment took from then on could not be read."""
        self.sealed = False
        """Whether the segment is complete: it gets no more appends."""
        self._stem = f"{directory}/{base_offset:020d}"
        self.log_path = self._stem + SUFFIXES[0]
        self._files = files
        self._handles = handles
        self._lock = threading.Lock()
        self._bytes_since_entry = 0
        self._indexed_timestamp_ms = NO_TIMESTAMP

    # --- appending -------------------------------------------------------------------------------------------------

    def create(self, now_ms: int) -> None:
        """Make the files of a new segment, and make it ready for appends.

        Raises TooManyOpenFilesError (there may be an empty file then) and OSError.
        """
        # A late reader of a deleted topic of the same name may have left a file in the cache.
        self.close()
        self._handles.release(self._handles.acquire(self.log_path, create=True))
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        """Make an empty segment ready for appends."""
        self.created_ms = now_ms
        self._make_indexes()
        self.offset_index.begin()
        self.time_index.begin()
        self.loaded = True

    def append(self, last_offset: int, size_bytes: int, timestamp_ms: int, index_interval_bytes: int) -> int:
        """Note a batch at the end of the segment, and return its position. The segment must be loaded."""
        position = self.size_bytes
        if not position:
            self.first_timestamp_ms = timestamp_ms
        if timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
            self.max_timestamp_offset = last_offset
        if self._bytes_since_entry > index_interval_bytes:
            self.offset_index.append(last_offset - self.base_offset, position)
            if self.max_timestamp_ms > self._indexed_timestamp_ms:
                self._append_time_entry()
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes
        self.size_bytes = position + size_bytes
        return position

    def seal(self) -> None:
        """Mark the segment as complete: it gets no more appends."""
        if self.loaded:
            self._append_time_entry()
        self.sealed = True

    def finish(self) -> None:
        """Complete the index files before the log is closed. Raises StorageFailedError."""
        if self.loaded:
            self._append_time_entry()
            self.save_indexes()

    def is_full(self, last_offset: int, size_bytes: int, timestamp_ms: int, now_ms: int, config: TopicConfig) -> bool:
        """Return whether a new batch needs a new segment: this segment would become too large, is too old, or is
        damaged."""
        size_after_bytes = self.size_bytes + size_bytes
        self.created_ms = min(self.created_ms, now_ms)  # The clock may have been ahead.
        # As in Kafka, the records' own timestamps give the age, if there are any. The segment would not age until the
        # time of a first timestamp that is ahead.
        if timestamp_ms >= 0 and 0 <= self.first_timestamp_ms <= now_ms:
            age_ms = timestamp_ms - self.first_timestamp_ms
        else:
            age_ms = now_ms - self.created_ms
        return self.size_bytes > 0 and (
            self.is_damaged
            or size_after_bytes > config.segment_bytes
            or size_after_bytes > MAX_POSITION
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
            or age_ms > config.segment_ms
        )

    def youngest_ms(self, now_ms: int) -> int:
        """Return the time that gives the segment's age, never later than now; -1: it cannot be found.

        It is the largest timestamp. If the records have no timestamp, or one in the future, it is the file's last
        modification. If the last modification is in the future, too, the clock was wrong at the write. The file's time
        of modification is then set to now.
        """
        if 0 <= self.max_timestamp_ms <= now_ms:
            return self.max_timestamp_ms
        try:
            if self.modified_ms < 0:
                self.modified_ms = self._files.modified_ms(self.log_path)
            if self.modified_ms > now_ms:
                self._files.set_modified(self.log_path, now_ms)
                self.modified_ms = now_ms
        except OSError as error:
            _log.warning("cannot tell the age of %s: %s; it stays", self.log_path, error.strerror or error)
            return -1
        return self.modified_ms

    def _append_time_entry(self) -> None:
        if self.max_timestamp_ms > self._indexed_timestamp_ms:
            self.time_index.append(self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset)
            self._indexed_timestamp_ms = self.max_timestamp_ms

    # --- index files -----------------------------------------------------------------------------------------------

    @property
    def unsaved_index_bytes(self) -> int:
        return self.offset_index.unsaved_bytes + self.time_index.unsaved_bytes if self.loaded else 0

    def save_indexes(self) -> None:
        """Save the unsaved entries of both indexes. Raises StorageFailedError."""
        self.offset_index.save()
        self.time_index.save()

    def sync_indexes(self) -> None:
        """Sync both index files. Raises StorageFailedError."""
        self.offset_index.sync()
        self.time_index.sync()

    def load(self, next_offset: int, *, nowait: bool = False) -> None:
        """Load the indexes of a segment of an earlier run, up to `size_bytes`, once. `next_offset` is the offset after
        its last record. With `nowait`, raise BlockingIOError instead of making an index from a long log.

        Raises OSError if the log cannot be read (nothing has changed then), DamagedLogError, TooManyOpenFilesError and
        StorageFailedError.
        """
        if not self._lock.acquire(blocking=not nowait):
            raise BlockingIOError("another thread makes the index")
        try:
            if not self.loaded:
                self._load(next_offset - self.base_offset, nowait=nowait)
                self.loaded = True
        finally:
            self._lock.release()

    def _load(self, offsets: int, *, nowait: bool) -> None:
        self._make_indexes()
        there = self.offset_index.load((offsets, self.size_bytes))
        there &= self.time_index.load((self.max_timestamp_ms + 1, offsets))
        indexed_bytes = self._indexed_bytes()
        if not there or self.size_bytes - indexed_bytes > _MAX_UNINDEXED_BYTES:
            if nowait and self.size_bytes > _SHORT_LOG_BYTES:
                raise BlockingIOError("the index has to be made from the log")
            self._rebuild()
            indexed_bytes = self._indexed_bytes()
        self._bytes_since_entry = self.size_bytes - indexed_bytes
        last_time = self.time_index.last_loaded()
        self._indexed_timestamp_ms = last_time[0] if last_time else NO_TIMESTAMP
        # Any offset below the end will do: a time entry only says that no record before its batch is younger.
        self.max_timestamp_offset = self.base_offset + offsets - 1
        if self.size_bytes:
            with self._handles.pinned(self.log_path) as handle:
                first = next(self.headers(handle, 0, self.size_bytes))[1]
            if self.first_crc not in (first.crc, -1):
                # The file may be of another partition: a batch does not name its partition, and everything else may
                # fit.
                raise DamagedLogError(self.log_path, 0, self.base_offset, "is not the one that was written there")
            self.first_crc = first.crc
            self.first_timestamp_ms = first.max_timestamp_ms

    def _indexed_bytes(self) -> int:
        last = self.offset_index.last_loaded()
        return last[1] if last else 0

    def close(self) -> None:
        """Close the files; they open again on use."""
        if self.loaded:
            self.offset_index.owe_no_file()
            self.time_index.owe_no_file()
        for suffix in SUFFIXES:
            self._handles.forget(self._stem + suffix)

    def remove_files(self) -> None:
        """Delete the files. Whatever is not a file, or may not be deleted, stays and is logged. Raises
        StorageFailedError."""
        self.close()
        for suffix in SUFFIXES:
            try:
                self._files.unlink(self._stem + suffix)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in NOT_OURS:
                    raise storage_failed("delete", self._stem + suffix, error) from error
                _log.warning("cannot delete %s: %s; remove it yourself", self._stem + suffix, error.strerror or error)

    def rebuild_indexes(self) -> None:
        """Build both indexes from the batch headers; the segment gets no more appends. Raises CorruptLogError."""
        with self._lock:
            self._rebuild()

    def _make_indexes(self) -> None:
        self.offset_index = IndexFile(self._stem + SUFFIXES[1], OFFSET_ENTRY, self._files, self._handles)
        self.time_index = IndexFile(self._stem + SUFFIXES[2], TIME_ENTRY, self._files, self._handles)

    def _rebuild(self) -> None:
        with self._handles.pinned(self.log_path) as handle:
            walk = partial(self.headers, handle, 0, self.size_bytes, window_bytes=LONG_WALK_BYTES)
            offsets, _ = index_entries(self._until_shut(walk()), self.base_offset)
            # A time entry vouches for all records before it, so the time index ends at the first damage.
            _, times = index_entries(self._until_shut(until_damage(walk(check_crc=True))), self.base_offset)
        self.offset_index.replace(offsets)
        self.time_index.replace(times)

    def _until_shut(self, headers: Iterator[tuple[int, BatchHeader]]) -> Iterator[tuple[int, BatchHeader]]:
        """Yield headers, unless the partition is closed meanwhile. Raises BrokerUnavailableError then."""
        handles = self._handles
        for each in headers:
            if handles.is_shut:
                raise BrokerUnavailableError("the broker is stopping, or the topic was deleted")
            yield each

    # --- looking up ------------------------------------------------------------------------------------------------

    def headers(
        self,
        handle: Handle,
        position: int,
        limit: int,
        offset: int | None = None,
        *,
        nowait: bool = False,
        window_bytes: int = SHORT_WALK_BYTES,
        check_crc: bool = False,
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Walk the batches from `position` to `limit`; see `walk_headers`. The first batch begins at `offset`.

        Without an offset, a walk from a position above 0 may begin at any batch of the segment.
        """
        return walk_headers(
            self._files,
            handle,
            self.rules,
            self.base_offset if offset is None else offset,
            position,
            limit,
            exact=offset is not None or not position,
            nowait=nowait,
            window_bytes=window_bytes,
            check_crc=check_crc,
        )

    def locate(self, handle: Handle, offset: int, limit: int, *, nowait: bool) -> tuple[int, int]:
        """Find the first batch that ends above `offset`, and return its position and base offset.

        If there is no such batch below `limit`, return `limit` and the offset after the last batch.
        """

        def walk(indexed: bool) -> tuple[int, int]:
            entry = self.offset_index.last_at_most(offset - self.base_offset, nowait=nowait) if indexed else None
            next_offset = self.base_offset
            for position, header in self._from_entry(handle, entry, limit, nowait=nowait):
                next_offset = header.next_offset
                if next_offset > offset:
                    return position, header.base_offset
            return limit, next_offset

        return self._look_up(walk, limit, nowait=nowait)

    def end_of_few(
        self, handle: Handle, start: int, offset: int, limit: int, max_bytes: int, *, nowait: bool
    ) -> int | None:
        """Return the end position of a chunk of large whole batches that begins at `start` with `offset`.

        The chunk has at least one batch and, if possible, at most `max_bytes`. The header behind a larger chunk is
        checked, too. Returns None if one of the batches is small.
        """
        few = self.headers(handle, start, limit, offset, nowait=nowait, window_bytes=HEADER_BYTES)
        for position, header in few:
            end = position + header.size_bytes
            if end > start + max_bytes:
                if position > start:
                    return position
                next(few, None)  # This checks that the next batch continues the log.
                return end
            if header.size_bytes < max_bytes // _DIRECT_STEPS:
                return None
        return limit

    def locate_time(self, handle: Handle, timestamp_ms: int, limit: int) -> Iterator[tuple[int, BatchHeader]]:
        """Find a batch before which all records are older than `timestamp_ms`, and walk from this batch on.

        Each batch is checked as a whole, so that no damaged batch is skipped without notice.
        """
        checked = partial(self.headers, handle, limit=limit, window_bytes=CHECKED_WALK_BYTES, check_crc=True)
        before_ms = timestamp_ms
        while entry := self.time_index.last_at_most(before_ms - 1, nowait=False):
            start, offset = self.locate(handle, self.base_offset + entry[1], limit, nowait=False)
            _, header = next(self.headers(handle, start, limit, offset), (limit, None))
            # What an entry says about earlier batches cannot be checked, so it must at least match its own batch.
            if header and entry == (header.max_timestamp_ms, header.next_offset - 1 - self.base_offset):
                return checked(position=start, offset=offset)
            before_ms = entry[0]
        return checked(position=0)

    def _from_entry(
        self, handle: Handle, entry: Entry | None, limit: int, *, nowait: bool
    ) -> Iterator[tuple[int, BatchHeader]]:
        if entry is None:
            yield from self.headers(handle, 0, limit, nowait=nowait)
            return
        position = entry[1]
        if not 0 <= position < limit:
            raise _UnsoundIndexError
        checked = False
        try:
            for found in self.headers(handle, position, limit, nowait=nowait):
                if not checked and found[1].next_offset - 1 - self.base_offset != entry[0]:
                    raise _UnsoundIndexError
                checked = True
                yield found
        except CorruptLogError:
            if checked:
                raise
            raise _UnsoundIndexError from None

    def _look_up(self, look_up: Callable[[bool], _Found], limit: int, *, nowait: bool) -> _Found:
        """Look up with the index. If the index is damaged, rebuild it, or search without it."""
        try:
            return look_up(True)
        except _UnsoundIndexError:
            if nowait:
                raise BlockingIOError("the index has to be rebuilt") from None
        # A segment is sealed when the next one begins, but some of its staged batches may not be written yet.
        if self.sealed and limit == self.size_bytes:
            self.rebuild_indexes()
            with suppress(_UnsoundIndexError):
                return look_up(True)
        return look_up(False)


class _UnsoundIndexError(Exception):
    """Raised if an index entry leads to no batch, or to another batch than it says."""
