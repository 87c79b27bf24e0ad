"""Reading a partition: by offset in chunks of whole batches, and by time. Works on a view that the owner publishes.

Safe on any thread while the owner appends: a view is replaced, never changed, and files below its end only grow.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from contextlib import nullcontext
from typing import Final

import msgspec
from msgspec.structs import replace

from logbroker.engine import FoundOffset
from logbroker.errors import (
    BatchExpandsTooFarError,
    CorruptBatchError,
    CorruptLogError,
    OffsetOutOfRangeError,
    PartitionOfflineError,
    UnsupportedCompressionError,
)
from logbroker.record.header import BatchHeader
from logbroker.storage.files import Files
from logbroker.storage.handles import Handle, HandleCache
from logbroker.storage.segment import Segment

MAX_HINTS: Final = 64
"""Positions remembered per partition: as many readers can follow each other without an index lookup."""

_expanding: Final = threading.Lock()
"""Held while a lookup by time decodes a compressed batch: what such a batch may expand to is there once, however many
threads look up."""


class LogRead(msgspec.Struct, gc=False):
    """Whole batches, back to back, of one segment."""

    batches: bytes
    next_offset: int
    """The offset after the last batch, or the one asked for where there is none."""


class LogView(msgspec.Struct, frozen=True, gc=False):
    """What is readable at one moment."""

    segments: tuple[Segment, ...]
    base_offsets: tuple[int, ...]
    log_start_offset: int
    high_watermark: int
    end_segment: Segment | None
    """Holds the record below the high watermark; None: no record is readable."""
    end_position: int
    """Where the high watermark lies in it."""

    def with_segments(self, segments: tuple[Segment, ...]) -> LogView:
        base_offsets = tuple(segment.base_offset for segment in segments)
        return replace(self, segments=segments, base_offsets=base_offsets)

    def end_of(self, index: int) -> tuple[int, int]:
        """Where reading of a segment ends: (position, the offset that follows)."""
        segment = self.segments[index]
        if segment is self.end_segment:
            return self.end_position, self.high_watermark
        return segment.size_bytes, self.base_offsets[index + 1]


class LogReader:
    """The read side of one partition."""

    __slots__ = ("_closed", "_files", "_handles", "_hints", "_name")

    def __init__(self, name: str, files: Files, handles: HandleCache) -> None:
        self._name = name
        self._files = files
        self._handles = handles
        self._hints: OrderedDict[int, tuple[Segment, int]] = OrderedDict()
        self._closed = False

    def close(self) -> None:
        """Refuse to read from now on: the files may make room for those of a new topic of the same name."""
        self._closed = True

    def read(self, view: LogView, offset: int, max_bytes: int, *, nowait: bool) -> LogRead:
        """See PartitionLog.read."""
        while True:
            if not view.log_start_offset <= offset <= view.high_watermark:
                raise self._out_of_range(view, offset)
            if offset == view.high_watermark or view.end_segment is None:
                return LogRead(b"", offset)
            index = bisect_right(view.base_offsets, offset) - 1
            segment = view.segments[index]
            limit, end_offset = view.end_of(index)
            try:
                found = self._read_segment(segment, limit, end_offset, offset, max_bytes, nowait=nowait)
            except FileNotFoundError:
                if segment.removed:
                    raise self._out_of_range(view, offset) from None
                raise CorruptLogError(f"{segment.log_path}: the file is missing") from None
            except BlockingIOError:
                raise
            except OSError as error:
                raise CorruptLogError(f"{segment.log_path}: cannot be read: {error.strerror or error}") from error
            if found is not None:
                return found
            # A gap reaches from the offset to the end of the segment, as compaction leaves them.
            offset = end_offset

    def _read_segment(
        self, segment: Segment, limit: int, end_offset: int, offset: int, max_bytes: int, *, nowait: bool
    ) -> LogRead | None:
        if not segment.loaded:
            if nowait:
                raise BlockingIOError("the segment's index has to be opened")
            segment.load(end_offset)
        handles = self._handles
        handle = handles.acquire(segment.log_path)
        try:
            if self._closed:
                raise PartitionOfflineError(f"{self._name} is closed")
            if offset == segment.base_offset:
                start = 0
            else:
                hint = self._hints.get(offset)
                if hint is not None and hint[0] is segment:
                    start = hint[1]
                else:
                    start = segment.locate(handle, offset, limit, nowait=nowait)
            if start >= limit:
                return None
            if limit - start <= max_bytes:
                end, next_offset = limit, end_offset
            else:
                end, next_offset = segment.chunk_end(handle, start, limit, max_bytes, nowait=nowait)
            batches = self._read_bytes(segment, handle, start, end, nowait=nowait)
        finally:
            handles.release(handle)
        self._remember(next_offset, segment, end)
        return LogRead(batches, next_offset)

    def _read_bytes(self, segment: Segment, handle: Handle, start: int, end: int, *, nowait: bool) -> bytes:
        read = self._files.pread_cached if nowait else self._files.pread
        batches = read(handle.fd, end - start, start)
        if len(batches) != end - start:
            raise CorruptLogError(f"{segment.log_path}: the file ends at byte {start + len(batches)}, before {end}")
        return batches

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        hints = self._hints
        hints[offset] = (segment, position)
        if len(hints) > MAX_HINTS:
            hints.popitem(last=False)

    def offset_for_time(self, view: LogView, timestamp_ms: int) -> FoundOffset:
        """See PartitionLog.offset_for_time."""
        for index, segment in enumerate(view.segments if view.end_segment else ()):
            limit, end_offset = view.end_of(index)
            if segment.max_timestamp_ms >= timestamp_ms and end_offset > view.log_start_offset:
                found = self._search_segment(view, segment, limit, end_offset, timestamp_ms)
                if found is not None:
                    return found
            if segment is view.end_segment:
                break
        return FoundOffset(-1, -1, -1)

    def _search_segment(
        self, view: LogView, segment: Segment, limit: int, end_offset: int, timestamp_ms: int
    ) -> FoundOffset | None:
        segment.load(end_offset)
        with self._handles.pinned(segment.log_path) as handle:
            for position, header in segment.locate_time(handle, timestamp_ms, limit):
                if header.max_timestamp_ms < timestamp_ms or header.next_offset <= view.log_start_offset:
                    continue
                batch = self._read_bytes(segment, handle, position, position + header.size_bytes, nowait=False)
                with _expanding if header.codec else nullcontext():
                    found = _first_record(batch, header, timestamp_ms, view.log_start_offset)
                if found is not None:
                    return FoundOffset(found[0], found[1], header.leader_epoch)
        return None

    def _out_of_range(self, view: LogView, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"{self._name} holds offsets {view.log_start_offset} to {view.high_watermark}, not {offset}; "
            "seek to the earliest or latest offset"
        )


def _first_record(
    batch: bytes, header: BatchHeader, timestamp_ms: int, log_start_offset: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record of a batch that is young enough."""
    # Lazily, since most brokers never look a time up and the codec is the larger part of their memory.
    from logbroker.record.codec import decode_batch

    if header.is_control:
        return None
    if header.is_log_append_time:
        return max(header.base_offset, log_start_offset), header.max_timestamp_ms
    try:
        for record in decode_batch(batch):
            if record.timestamp_ms >= timestamp_ms and record.offset >= log_start_offset:
                return record.offset, record.timestamp_ms
    except (CorruptBatchError, BatchExpandsTooFarError, UnsupportedCompressionError):
        # What cannot be decoded is still somebody's record: begin with its batch.
        return max(header.base_offset, log_start_offset), header.max_timestamp_ms
    return None
