"""Recovery of the tail above the recovery point: every batch is checked, and the log ends before the first bad one.

If the process was killed and the computer did not restart, only the last write can be torn. A good batch after a bad
one then means other damage: the partition is not opened, and no file is changed. The same holds if the history of
crashes is unknown. After a power cut, any unsynced bytes may be missing. Bytes that are cut off go to a side file.
Bytes that are kept are written again and synced: the pages that a read returns may never have reached the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain, count
from typing import Final

from logbroker.command_line import command_line
from logbroker.config import MAX_STORED_BATCH_BYTES
from logbroker.errors import CorruptLogError
from logbroker.record.header import HEADER_BYTES, parse_header
from logbroker.storage.continuity import DamagedLogError
from logbroker.storage.files import NOT_OURS, Files, reading, write_all
from logbroker.storage.handles import Handle, HandleCache
from logbroker.storage.partition_files import EpochStart
from logbroker.storage.producer_state import ProducerStates
from logbroker.storage.recovery.log_scan import find_good_batch, good_batch
from logbroker.storage.segment import MAX_RELATIVE_OFFSET, SUFFIXES, Segment

_log = logging.getLogger(__name__)

_WINDOW_BYTES: Final = 1 << 20


class TailRecovery:
    """One recovery of a partition's tail. Extends the segments, producers and epochs that it is given."""

    def __init__(
        self,
        segments: list[Segment],
        producers: ProducerStates,
        epochs: list[EpochStart],
        index_interval_bytes: int,
        files: Files,
        handles: HandleCache,
        *,
        imported: bool,
        stopped_cleanly: bool,
        only_last_write_torn: bool,
        unsynced_bound_bytes: int,
    ) -> None:
        self.segments = segments
        self.epochs = epochs
        self.end_offset = 0
        """Offset after the last good batch."""
        self.cut = False
        """Whether anything was cut off."""
        self.cut_bytes = 0
        """Bytes that were cut off, including segments that were set aside."""
        self.gaps_below = 0
        """All gaps in the recovered tail, and all its batches with other epochs than `epochs`, lie below this
        offset."""
        self._producers = producers
        self._index_interval_bytes = index_interval_bytes
        self._files = files
        self._handles = handles
        self._imported = imported
        self._stopped_cleanly = stopped_cleanly
        self._only_last_write_torn = only_last_write_torn
        self._unsynced_bound_bytes = unsynced_bound_bytes
        self._file_bytes: dict[int, int] = {}
        self._epoch_before = -1
        """Leader epoch of the last good batch; -1: there is none yet."""

    def run(self, recovery_point: int, new_segments: Sequence[Segment], file_bytes: dict[int, int]) -> None:
        """Recover everything above the recovery point: the rest of the last segment, then the new segments.

        Raises CorruptLogError, TooManyOpenFilesError and OSError.
        """
        self.end_offset = recovery_point
        self._file_bytes = file_bytes
        pending = list(new_segments)
        while pending and not file_bytes[pending[-1].base_offset]:
            # An empty segment: segments are created when their first batch is staged, before earlier batches are
            # written.
            self._remove(pending.pop())
        if self.segments:
            last = self.segments[-1]
            try:
                self._check_start(last, recovery_point)
            except DamagedLogError as error:
                raise CorruptLogError(
                    f"{last.log_path}: the batch at byte {error.position}, where offset {error.offset} belongs, "
                    f"{error.fault}; restore the file from a backup, or {_see_repair(last.log_path)}"
                ) from None
            self._extend(last, file_bytes[last.base_offset], pending)
        while pending and not self.cut:
            if not self._goes_on(pending[0]):
                self._check_bound(pending[0].log_path, 0, pending)
                self.cut = True
            else:
                segment = pending.pop(0)
                self._begin(segment)
                self._extend(segment, file_bytes[segment.base_offset], pending)
        for segment in pending:
            self._set_aside(segment)

    def _check_start(self, last: Segment, recovery_point: int) -> None:
        """Raise DamagedLogError if the headers of the last known segment do not lead exactly to the recovery point."""
        with reading(last.log_path):
            last.load(recovery_point)
            with self._handles.pinned(last.log_path) as handle:
                position, offset = last.locate(handle, recovery_point, last.size_bytes, nowait=False)
        if (position, offset) != (last.size_bytes, recovery_point) and not last.rules.may_skip_to(recovery_point):
            fault = f"is missing: the recovery point is offset {recovery_point}"
            raise DamagedLogError(last.log_path, position, offset, fault)

    def _goes_on(self, segment: Segment) -> bool:
        """Return whether a segment may follow. Logs have gaps only if they are imported or the rules accept them."""
        if segment.base_offset == self.end_offset:
            return True
        may_skip = self._imported or segment.rules.may_skip_to(segment.base_offset)
        if (may_skip and segment.base_offset > self.end_offset) or (self._imported and not self.segments):
            return True
        if self._only_last_write_torn or self._stopped_cleanly:
            raise CorruptLogError(
                f"{segment.log_path}: the log before it ends at offset {self.end_offset}; restore what is missing from "
                f"a backup, or {_see_repair(segment.log_path)}"
            )
        return False

    def _begin(self, segment: Segment) -> None:
        if self.segments:
            sealed = self.segments[-1]
            sealed.seal()
            sealed.save_indexes()
            sealed.sync_indexes()
        self._drop_indexes(segment)
        segment.begin(0)
        if self.segments and segment.base_offset != self.end_offset:
            self.gaps_below = segment.base_offset + 1
        self.segments.append(segment)
        self.end_offset = segment.base_offset

    def _extend(self, segment: Segment, file_bytes: int, later: Sequence[Segment]) -> None:
        """Add the good batches after `segment.size_bytes` to the log, and cut off the rest."""
        with reading(segment.log_path):
            self._handles.ensure_open(segment.log_path)
        with self._handles.pinned(segment.log_path) as handle:
            while segment.size_bytes < file_bytes:
                start = segment.size_bytes
                window = self._read_window(handle, start, file_bytes)
                self._take_batches(segment, window)
                taken = segment.size_bytes - start
                if not taken:
                    break
                write_all(self._files, handle.fd, [memoryview(window)[:taken]], start)
            self._files.fdatasync(handle.fd)
            if segment.size_bytes < file_bytes:
                self._check_cause(segment, handle, file_bytes, later)
                self._cut(segment, handle)

    def _read_window(self, handle: Handle, start: int, file_bytes: int) -> bytes:
        """Return bytes from `start` on. If the header of the first batch is credible, the whole batch is included."""
        window = self._read(handle, min(_WINDOW_BYTES, file_bytes - start), start)
        if len(window) >= HEADER_BYTES:
            size_bytes = parse_header(window).size_bytes
            longest = file_bytes if self._imported else MAX_STORED_BATCH_BYTES
            if len(window) < size_bytes <= min(longest, file_bytes - start):
                window = self._read(handle, size_bytes, start)
        return window

    def _read(self, handle: Handle, size_bytes: int, position: int) -> bytes:
        with reading(handle.path):
            return self._files.pread(handle.fd, size_bytes, position)

    def _take_batches(self, segment: Segment, window: bytes) -> None:
        position = 0
        while header := good_batch(window, position, self.end_offset):
            if not self._imported and segment.rules.fault(header, self.end_offset, self._epoch_before):
                break
            if header.next_offset - 1 - segment.base_offset > MAX_RELATIVE_OFFSET:
                break  # No broker writes such an offset into this segment.
            if not self.epochs or header.leader_epoch > self.epochs[-1].epoch:
                self.epochs.append(EpochStart(max(header.leader_epoch, 0), header.base_offset))
            if header.producer_id >= 0 and not header.is_control:
                self._producers.append(header, header.base_offset, self.end_offset, header.max_timestamp_ms)
            if header.base_offset != self.end_offset or header.leader_epoch != self._epoch_at(header.base_offset):
                self.gaps_below = header.next_offset
            self.end_offset = header.next_offset
            self._epoch_before = header.leader_epoch
            if not segment.size_bytes:
                segment.first_crc = header.crc
            segment.append(
                header.next_offset - 1, header.size_bytes, header.max_timestamp_ms, self._index_interval_bytes
            )
            position += header.size_bytes

    def _epoch_at(self, offset: int) -> int:
        """Return the leader epoch that a batch of logbroker has at an offset; 0 before the first stored epoch."""
        return next((entry.epoch for entry in reversed(self.epochs) if entry.start_offset <= offset), 0)

    def _check_cause(self, segment: Segment, handle: Handle, file_bytes: int, later: Sequence[Segment]) -> None:
        """Raise CorruptLogError if no crash explains the bad batch after the segment's good batches."""
        start = segment.size_bytes
        if self._stopped_cleanly:
            raise CorruptLogError(
                f"{segment.log_path}: the batch at byte {start} (offset {self.end_offset}) is damaged, but the broker "
                f"had stopped cleanly; restore the file from a backup, or {_see_repair(segment.log_path)}"
            )
        self._check_bound(segment.log_path, start, [segment, *later])
        if self._only_last_write_torn:
            self._check_torn(segment, handle, file_bytes, later)

    def _check_bound(self, path: str, start: int, segments: Sequence[Segment]) -> None:
        """Raise CorruptLogError if a cut at byte `start` of the first of `segments` would lose more bytes than can have
        been unsynced."""
        lost_bytes = sum(self._file_bytes[segment.base_offset] for segment in segments) - start
        if 0 <= self._unsynced_bound_bytes < lost_bytes:
            raise CorruptLogError(
                f"{path}: the batch at byte {start} (offset {self.end_offset}) is damaged or missing, and {lost_bytes} "
                f"bytes follow, but at most {self._unsynced_bound_bytes} were not synced; restore the file from a "
                f"backup, or {_see_repair(path)}"
            )

    def _check_torn(self, segment: Segment, handle: Handle, file_bytes: int, later: Sequence[Segment]) -> None:
        start = segment.size_bytes
        with reading(handle.path):
            found = find_good_batch(self._files, handle.fd, start, file_bytes, self.end_offset)
        if found.position == start and found.is_sure:
            what = "is whole, but of another offset or leader epoch, so no torn write explains it"
        elif found.position >= 0 and not found.is_sure:
            what = (
                "is damaged, and more bytes that look like batches follow than can be checked: there is no good one "
                f"before byte {found.position}, but one may follow, and then no torn write explains it"
            )
        elif found.position >= 0:
            what = f"is damaged, but a good one follows at byte {found.position}, so no torn write explains it"
        elif later:
            what = f"is damaged, but {later[0].log_path} follows, so no torn write explains it"
        else:
            return
        raise CorruptLogError(
            f"{segment.log_path}: the batch at byte {start} (offset {self.end_offset}) {what}; restore the "
            f"file from a backup, or {_see_repair(segment.log_path)}"
        )

    def _cut(self, segment: Segment, handle: Handle) -> None:
        """Cut a segment's file after its good batches, and keep the rest in a side file."""
        self.cut = True
        end = position = segment.size_bytes
        side_path = self._side_path(segment, handle)
        with self._handles.pinned(side_path, create=True) as side:
            while part := self._read(handle, _WINDOW_BYTES, position):
                write_all(self._files, side.fd, [part], position - end)
                position += len(part)
            self._files.truncate(side.fd, position - end)
            self._files.fdatasync(side.fd)
        self._handles.forget(side_path)
        self.cut_bytes += position - end
        _log.warning(
            "%s: cut at byte %d, where offset %d belongs: the batch there is damaged, or not whole. The %d bytes that "
            "were cut off are kept in %s",
            segment.log_path,
            end,
            self.end_offset,
            position - end,
            side_path,
        )
        # The side file's name must be durable before the only other copy is cut off.
        self._files.sync_directory(segment.log_path.rpartition("/")[0])
        self._files.truncate(handle.fd, end)
        self._files.fdatasync(handle.fd)

    def _side_path(self, segment: Segment, handle: Handle) -> str:
        """Return the path of a side file for the bytes that are cut off. A side file of an earlier cut at this position
        is not overwritten."""
        path = f"{segment.log_path}.cut-{segment.size_bytes}"
        free = self._free_path(path)
        return path if free != path and self._is_begun(path, handle, segment.size_bytes) else free

    def _free_path(self, path: str) -> str:
        """Return `path` or, if it is in use, `path` with a number that is free."""
        directory, _, name = path.rpartition("/")
        with reading(directory):
            taken = {*self._files.list_directory(directory), *self._files.list_others(directory)}
        names = chain([name], (f"{name}-{number}" for number in count(2)))
        return f"{directory}/{next(candidate for candidate in names if candidate not in taken)}"

    def _is_begun(self, side_path: str, handle: Handle, end: int) -> bool:
        """Return whether a side file holds the first part of the bytes that are cut off here: an interrupted recovery
        leaves such a file."""
        position = 0
        with reading(side_path), self._handles.pinned(side_path) as side:
            while part := self._files.pread(side.fd, _WINDOW_BYTES, position):
                if part != self._read(handle, len(part), end + position):
                    break
                position += len(part)
        self._handles.forget(side_path)
        return not part

    def _set_aside(self, segment: Segment) -> None:
        """Rename a segment after the end of the log, so that it is no longer part of the log."""
        self._handles.forget(segment.log_path)
        side_path = self._free_path(f"{segment.log_path}.cut-0")
        _log.warning(
            "%s: is after the end of the log, which is offset %d; kept in %s",
            segment.log_path,
            self.end_offset,
            side_path,
        )
        self.cut_bytes += self._file_bytes[segment.base_offset]
        self._files.rename(segment.log_path, side_path)
        self._drop_indexes(segment)

    def _remove(self, segment: Segment) -> None:
        """Remove an empty segment from the log."""
        self._handles.forget(segment.log_path)
        self._files.unlink(segment.log_path)
        self._drop_indexes(segment)

    def _drop_indexes(self, segment: Segment) -> None:
        for suffix in SUFFIXES[1:]:
            try:
                self._files.unlink(segment.log_path.removesuffix(SUFFIXES[0]) + suffix)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in NOT_OURS:  # else the index is kept in memory
                    raise


def _see_repair(path: str) -> str:
    """Return the advice to repair the partition of a log file. A repair of the file itself would also drop everything
    good that follows."""
    return f"see what `{command_line('segment repair', path.rpartition('/')[0])}` can do"
