"""The read side of a partition: it reads chunks of whole batches by offset, and finds offsets by time.

It works on a view that the owner publishes, on any thread, while the owner appends: a view is replaced, never changed,
and the bytes below its end do not change.

The headers of each chunk are checked at each read (`continuity`), so that no facts need be remembered about files that
may change. Damage that was found is remembered: its segment is read up to the damage. Other segments are read as
before, because a read proves by itself that its batches belong where they are. A reader that comes to the damage never
gets past it, because no read goes on in the next segment then.

A file that is missing, or that the disk cannot read, may be back at the next read. So it is tried again each time, and
only remembered to be told, until a read succeeds.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Final, TypeAlias

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
from logbroker.errors.system import reason_of
from logbroker.record.header import HEADER_BYTES, BatchHeader
from logbroker.storage.continuity import DAMAGED_CRC, Continuity, DamagedLogError, Followed, first_damaged
from logbroker.storage.files import Buffer, Cut, Files, cut_bytes, why_absent
from logbroker.storage.handles import Handle, HandleCache
from logbroker.storage.segment import Segment

MAX_HINTS: Final = 64
"""Maximum number of positions that are remembered per partition. This many readers can go on without an index
lookup."""

_log = logging.getLogger(__name__)
_Search: TypeAlias = Callable[[Segment, int], FoundOffset | None]
"""Searches a segment up to a position."""

_noting: Final = threading.Lock()
"""Held while damage is added to what a reader remembers."""

_expanding: Final = threading.Lock()
"""Held while a lookup by time decodes a compressed batch, so that only one expanded batch is in memory, however many
threads look up."""


class LogRead(msgspec.Struct, gc=False):
    """Whole batches, back to back, of one segment."""

    batches: bytes
    next_offset: int
    """Offset after the last batch; if there is no batch, the requested offset."""


class LogView(msgspec.Struct, frozen=True, gc=False):
    """The readable part of the log at one moment."""

    segments: tuple[Segment, ...]
    base_offsets: tuple[int, ...]
    log_start_offset: int
    high_watermark: int
    end_segment: Segment | None
    """Segment with the last record below the high watermark; None: no record is readable."""
    end_position: int
    """Position of the high watermark in that segment."""

    def with_segments(self, segments: tuple[Segment, ...]) -> LogView:
        base_offsets = tuple(segment.base_offset for segment in segments)
        return replace(self, segments=segments, base_offsets=base_offsets)

    def end_of(self, index: int) -> tuple[int, int]:
        """Return where the readable part of a segment ends: the position, and the next offset."""
        segment = self.segments[index]
        if segment is self.end_segment:
            return self.end_position, self.high_watermark
        return segment.size_bytes, self.base_offsets[index + 1]


class _Chunk:
    """A chunk to read: its batches are checked as soon as they are in memory."""

    __slots__ = ("_end_offset", "_exact", "_limit_bytes", "_offset", "_rules", "followed", "max_bytes")

    followed: Followed

    def __init__(
        self, rules: Continuity, offset: int, max_bytes: int, limit_bytes: int, end_offset: int, *, exact: bool
    ) -> None:
        """See Continuity.follow."""
        self.max_bytes = max_bytes
        self._rules = rules
        self._offset = offset
        self._limit_bytes = limit_bytes
        self._end_offset = end_offset
        self._exact = exact

    def cut(self, buffer: Buffer) -> int:
        """Return how many of the bytes are batches that continue each other."""
        self.followed = self._rules.follow(
            buffer,
            self._offset,
            max_bytes=self.max_bytes,
            limit_bytes=self._limit_bytes,
            end_offset=self._end_offset,
            exact=self._exact,
        )
        return self.followed.size_bytes


class Damage(msgspec.Struct, frozen=True, gc=False):
    """The point from which a segment cannot be read."""

    offset: int
    """First offset that cannot be read."""
    position: int
    message: str


class _Unreadable(msgspec.Struct, frozen=True, gc=False):
    """A failed read of a segment, which may succeed later."""

    offset: int
    """Offset that was to be read."""
    is_missing: bool
    """Whether the file was missing. Then any read of the segment shows that it is back."""
    message: str


class LogReader:
    """The read side of one partition."""

    __slots__ = ("_closed", "_damages", "_files", "_handles", "_hints", "_name", "_rules", "_unreadable")

    def __init__(self, name: str, files: Files, handles: HandleCache, rules: Continuity) -> None:
        self._name = name
        self._files = files
        self._handles = handles
        self._rules = rules
        self._hints: OrderedDict[int, tuple[Segment, int]] = OrderedDict()
        self._damages: dict[Segment, Damage] = {}
        """Damage that reads have found, in the order of the segments. The dict is replaced, never changed."""
        self._unreadable: dict[Segment, _Unreadable] = {}
        """First failed read of each segment since which none has succeeded there. The dict is replaced, never
        changed."""
        self._closed = False

    def close(self) -> None:
        """Refuse reads from now on: the paths may soon belong to a new topic of the same name."""
        self._closed = True

    @property
    def damage(self) -> str:
        """First reason why a segment that retention has not removed cannot be read, if reads have found one, else
        ""."""
        found: list[tuple[Segment, Damage | _Unreadable]] = [*self._damages.items(), *self._unreadable.items()]
        there = [(segment.base_offset, known.message) for segment, known in found if not segment.removed]
        return min(there)[1] if there else ""

    def read(self, view: LogView, offset: int, max_bytes: int, *, nowait: bool, check_crc: bool) -> LogRead:
        """See PartitionLog.read."""
        while True:
            if not view.log_start_offset <= offset <= view.high_watermark:
                raise self._out_of_range(view, offset)
            if offset == view.high_watermark or view.end_segment is None:
                return LogRead(b"", offset)
            index = bisect_right(view.base_offsets, offset) - 1
            segment = view.segments[index]
            limit, end_offset = self._end_of(view, index, offset)
            try:
                if not segment.loaded:
                    if nowait:
                        raise BlockingIOError("the segment's index has to be opened")
                    segment.load(view.end_of(index)[1])
                found = self._read_segment(
                    segment, limit, end_offset, offset, max_bytes, nowait=nowait, check_crc=check_crc
                )
            except DamagedLogError as error:
                if segment.removed:
                    raise self._out_of_range(view, offset) from None
                self.note_damage(segment, view.end_of(index)[1], error)
                if self._end_of(view, index, offset) == (limit, end_offset):
                    raise _damaged_until(view.end_of(index)[1], error.message) from None
                continue
            except BlockingIOError:
                raise
            except OSError as error:
                if segment.removed:
                    raise self._out_of_range(view, offset) from None
                message = self._note_unreadable(segment, offset, error)
                raise _damaged_until(view.end_of(index)[1], message) from error
            if found is not None:
                if self._unreadable:
                    self._note_readable(segment, offset, found.next_offset)
                return found
            # There is a gap from the offset to the end of the segment, for example from compaction.
            offset = end_offset

    def _end_of(self, view: LogView, index: int, offset: int) -> tuple[int, int]:
        """Return where the readable part of a segment ends, as LogView.end_of does. Raises CorruptLogError if `offset`
        is in the damaged part of this segment."""
        end = view.end_of(index)
        damage = self._damages.get(view.segments[index])
        if damage is None:
            return end
        if damage.offset <= offset:
            raise _damaged_until(end[1], damage.message)
        return damage.position, damage.offset

    def note_damage(self, segment: Segment, end_offset: int, error: DamagedLogError) -> None:
        """Remember damage in a segment, unless damage at a lower offset of the segment is known.

        At least the last offset of the segment cannot be read. Otherwise a reader that comes from before the damage
        would go on in the next segment, if a wrong offset made the batch before the damage end at `end_offset`.
        """
        offset = min(error.offset, end_offset - 1)
        segment.is_damaged = True
        with _noting:
            known = self._damages.get(segment)
            if known is not None and known.offset <= offset:
                return
            damages = {each: damage for each, damage in self._damages.items() if not each.removed}
            damages[segment] = Damage(offset, error.position, error.message)
            self._damages = dict(sorted(damages.items(), key=lambda item: item[0].base_offset))
        _log.error(
            "partition %s cannot be read from offset %d to the end of the segment: %s",
            self._name,
            offset,
            error.message,
        )

    def _note_unreadable(self, segment: Segment, offset: int, error: OSError) -> str:
        """Remember a failed read, unless one of the segment is known. Return its message."""
        message = _why_unreadable(segment, error)
        with _noting:
            if segment in self._unreadable:
                return message
            unreadable = {each: known for each, known in self._unreadable.items() if not each.removed}
            unreadable[segment] = _Unreadable(offset, isinstance(error, FileNotFoundError), message)
            self._unreadable = unreadable
        _log.error("partition %s cannot be read at offset %d: %s", self._name, offset, message)
        return message

    def _note_readable(self, segment: Segment, offset: int, next_offset: int) -> None:
        """Forget a failed read of a segment if a read has succeeded at the same place, or has found the missing
        file."""
        with _noting:
            known = self._unreadable.get(segment)
            if known is None or not (known.is_missing or offset <= known.offset < next_offset):
                return
            self._unreadable = {each: other for each, other in self._unreadable.items() if each is not segment}
        _log.warning("partition %s can be read at offset %d again", self._name, known.offset)

    def _read_segment(
        self,
        segment: Segment,
        limit: int,
        end_offset: int,
        offset: int,
        max_bytes: int,
        *,
        nowait: bool,
        check_crc: bool,
    ) -> LogRead | None:
        handles = self._handles
        handle = handles.acquire(segment.log_path)
        try:
            if self._closed:
                raise PartitionOfflineError(f"{self._name} is closed")
            hint = None if offset == segment.base_offset else self._hints.get(offset)
            start, first_offset, exact = 0, offset, True
            if hint is not None and hint[0] is segment:
                start = hint[1]
            elif offset != segment.base_offset:
                start, first_offset = segment.locate(handle, offset, limit, nowait=nowait)
                exact = False
            if start >= limit:
                if first_offset == end_offset or self._rules.may_skip_to(end_offset):
                    return None
                fault = f"is missing: the segment ends there, and the log goes on at offset {end_offset}"
                raise DamagedLogError(segment.log_path, limit, first_offset, fault)
            room = read_bytes = limit - start
            if room > max_bytes:
                end = segment.end_of_few(handle, start, first_offset, limit, max_bytes, nowait=nowait)
                if end is not None:
                    room = read_bytes = end - start
                else:
                    # Also read the next header, which must continue the chunk.
                    room, read_bytes = max_bytes, min(max_bytes + HEADER_BYTES, read_bytes)
            chunk = _Chunk(self._rules, first_offset, room, limit - start, end_offset, exact=exact)
            batches = self._read_bytes(handle, start, read_bytes, chunk.cut, nowait=nowait)
            if chunk.followed.wanted_bytes > room:
                # The first batch is larger than the room: read it whole, with the next header.
                chunk.max_bytes = chunk.followed.wanted_bytes
                read_bytes = min(chunk.max_bytes + HEADER_BYTES, limit - start)
                batches = self._read_bytes(handle, start, read_bytes, chunk.cut, nowait=nowait)
        finally:
            handles.release(handle)
        followed = chunk.followed
        if check_crc and (damaged_at := first_damaged(batches)) is not None:
            followed = Followed(*damaged_at, DAMAGED_CRC)
            batches = batches[: followed.size_bytes]
        end = start + followed.size_bytes
        if followed.fault or not followed.size_bytes:
            fault = followed.fault or "is cut off: the file ends within it"
            damaged = DamagedLogError(segment.log_path, end, followed.next_offset, fault)
            if not followed.size_bytes or followed.next_offset == end_offset:
                raise damaged
            self.note_damage(segment, end_offset, damaged)
        next_offset = end_offset if end == limit else followed.next_offset
        self._remember(next_offset, segment, end)
        return LogRead(batches, next_offset)

    def _read_bytes(
        self, handle: Handle, start: int, size_bytes: int, cut: Cut | None = None, *, nowait: bool
    ) -> bytes:
        if nowait:
            return self._files.pread_cached(handle.fd, size_bytes, start, cut)
        return cut_bytes(self._files.pread(handle.fd, size_bytes, start), cut)

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        hints = self._hints
        hints[offset] = (segment, position)
        if len(hints) > MAX_HINTS:
            hints.popitem(last=False)

    def offset_for_time(self, view: LogView, timestamp_ms: int) -> FoundOffset:
        """See PartitionLog.offset_for_time."""
        for index, segment in enumerate(view.segments if view.end_segment else ()):
            _, end_offset = view.end_of(index)
            if segment.max_timestamp_ms >= timestamp_ms and end_offset > view.log_start_offset:
                found = self._search_segment(view, index, partial(self._first_in_segment, view, timestamp_ms))
                if found is not None:
                    return found
            if segment is view.end_segment:
                break
        return FoundOffset(-1, -1, -1)

    def offset_for_latest_time(self, view: LogView) -> FoundOffset:
        """See PartitionLog.offset_for_latest_time."""
        best = FoundOffset(-1, -1, -1)
        if view.end_segment is None:
            return best
        readable = range(view.segments.index(view.end_segment) + 1)
        # The largest timestamp of a segment is an upper bound: its record may be above the high watermark, or below the
        # log start.
        for index in sorted(readable, key=lambda index: -view.segments[index].max_timestamp_ms):
            if view.segments[index].max_timestamp_ms <= best.timestamp_ms:
                break
            if view.end_of(index)[1] > view.log_start_offset:
                found = self._search_segment(view, index, partial(self._latest_in_segment, view), needs_all=True)
                if found is not None and found.timestamp_ms > best.timestamp_ms:
                    best = found
        return best

    def _search_segment(
        self, view: LogView, index: int, search: _Search, *, needs_all: bool = False
    ) -> FoundOffset | None:
        """Search the readable part of a segment. Raises CorruptLogError if the answer may lie in a damaged part. With
        `needs_all`, it may lie there even if a record was found before that part."""
        segment = view.segments[index]
        while True:
            end = self._end_of(view, index, segment.base_offset)
            try:
                segment.load(view.end_of(index)[1])
                found = search(segment, end[0])
            except DamagedLogError as error:
                self.note_damage(segment, view.end_of(index)[1], error)
                if self._end_of(view, index, segment.base_offset) == end:
                    raise
                continue
            except OSError as error:
                if segment.removed:
                    return None  # Retention has removed its records.
                raise CorruptLogError(self._note_unreadable(segment, segment.base_offset, error)) from error
            if (found is None or needs_all) and end != view.end_of(index):
                # The segment after `end` is damaged, so this raises.
                self._end_of(view, index, end[1])
            return found

    def _first_in_segment(self, view: LogView, timestamp_ms: int, segment: Segment, limit: int) -> FoundOffset | None:
        """Find the first record at or after a time."""
        with self._handles.pinned(segment.log_path) as handle:
            for position, header in segment.locate_time(handle, timestamp_ms, limit):
                if header.max_timestamp_ms < timestamp_ms or header.next_offset <= view.log_start_offset:
                    continue
                found = self._find_record(handle, position, header, view.log_start_offset, timestamp_ms)
                if found is not None:
                    return found
        return None

    def _latest_in_segment(self, view: LogView, segment: Segment, limit: int) -> FoundOffset | None:
        """Find the first record with the largest timestamp."""
        start = view.log_start_offset
        found: FoundOffset | None = None
        whole: tuple[int, BatchHeader] | None = None
        latest_ms = -1
        with self._handles.pinned(segment.log_path) as handle:
            for position, header in segment.locate_time(handle, segment.max_timestamp_ms, limit):
                if header.max_timestamp_ms <= latest_ms or header.next_offset <= start or header.is_control:
                    continue
                if header.base_offset >= start:
                    whole = position, header
                    latest_ms = header.max_timestamp_ms
                elif found := self._find_record(handle, position, header, start):
                    latest_ms = found.timestamp_ms
                if latest_ms == segment.max_timestamp_ms:
                    break
            return found if whole is None else self._find_record(handle, *whole, start)

    def _find_record(
        self, handle: Handle, position: int, header: BatchHeader, log_start_offset: int, timestamp_ms: int | None = None
    ) -> FoundOffset | None:
        """Find a record of a batch from the log start on: the first at or after a time or, without a time, the first
        with the largest timestamp."""
        batch = self._read_bytes(handle, position, header.size_bytes, nowait=False)
        with _expanding if header.codec else nullcontext():
            found = _record_of(batch, header, timestamp_ms, log_start_offset)
        return None if found is None else FoundOffset(found[0], found[1], header.leader_epoch)

    def _out_of_range(self, view: LogView, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"{self._name} holds offsets {view.log_start_offset} to {view.high_watermark}, not {offset}; "
            "seek to the earliest or latest offset"
        )


def _damaged_until(end_offset: int, message: str) -> CorruptLogError:
    """Return the error for a read in a segment that ends at an offset."""
    error = CorruptLogError(message)
    error.readable_from = end_offset
    return error


def _why_unreadable(segment: Segment, error: OSError) -> str:
    """Return the message for a failed read of a segment."""
    path = segment.log_path
    what = why_absent(path) if isinstance(error, FileNotFoundError) else f"cannot be read: {reason_of(error)}"
    return f"{path}: {what}"


def _record_of(
    batch: bytes, header: BatchHeader, timestamp_ms: int | None, log_start_offset: int
) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record at or after `timestamp_ms` in a batch, or None. If it is None, the
    first one with the largest timestamp. The CRC must be checked before."""
    # Imported lazily: most brokers never look up a time, and the codec would be the larger part of their memory.
    from logbroker.record.codec import decode_batch

    if header.is_control:
        return None
    if header.is_log_append_time:
        return max(header.base_offset, log_start_offset), header.max_timestamp_ms
    try:
        kept = [record for record in decode_batch(batch) if record.offset >= log_start_offset]
        if timestamp_ms is None:
            latest = max(kept, key=lambda record: record.timestamp_ms, default=None)
        else:
            latest = next((record for record in kept if record.timestamp_ms >= timestamp_ms), None)
        return None if latest is None else (latest.offset, latest.timestamp_ms)
    except (CorruptBatchError, BatchExpandsTooFarError, UnsupportedCompressionError):
        # A batch that cannot be decoded still has records: begin with this batch.
        return max(header.base_offset, log_start_offset), header.max_timestamp_ms
