"""The log of one partition: the owner thread decides, other threads write what was decided, anyone reads.

A batch goes through `stage` (offset, duplicate check, roll), `take_staged`, `write` (and `sync`) and `wrote`. Nothing
but `write`, `sync`, `flush_indexes` and `remove_files` may run on another thread than the owner's, at most one of the
first three at a time; `read` and `offset_for_time` may run anywhere.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

import msgspec

from logbroker.config import TopicConfig
from logbroker.engine import FoundOffset
from logbroker.errors import LogTruncatedError, TooManyOpenFilesError
from logbroker.record.header import PREFIX_BYTES, BatchHeader, stamped_with_append_time, stored_prefix
from logbroker.storage.files import Buffer, Files, replace_file, storage_failed, write_all
from logbroker.storage.handles import HandleCache
from logbroker.storage.log_reader import LogRead, LogReader, LogView
from logbroker.storage.partition_files import EPOCHS_NAME, METADATA_NAME, EpochStart, encode_epochs
from logbroker.storage.producer_state import ProducerStates
from logbroker.storage.recovery import PartitionCheckpoint, SegmentCheckpoint, create_partition, recover_partition
from logbroker.storage.retention import SealedSegment, expired_count
from logbroker.storage.segment import MAX_POSITION, MAX_RELATIVE_OFFSET, Segment
from logbroker.types import Durability, TimestampType, TopicId

__all__ = ["LogRead", "PartitionCheckpoint", "PartitionLog", "Staged", "WriteGroup"]

_UNSAVED_INDEX_BYTES = 4096
"""An index tail this long is saved with the next write: it bounds memory and what a recovery has to walk."""


class Staged(msgspec.Struct, gc=False):
    """What was decided about a batch."""

    base_offset: int
    next_offset: int
    log_append_time_ms: int
    """-1 under CreateTime."""
    duplicate: bool
    """An idempotent producer sent it before; the offsets are the original's."""


class WriteGroup:
    """Batches that were staged together and are written together."""

    __slots__ = ("batches", "created_segment", "end_offset", "end_position", "new_epoch", "runs", "sealed", "size_bytes")

    def __init__(self) -> None:
        self.batches = 0
        self.size_bytes = 0
        self.end_offset = 0
        """The log end offset after it."""
        self.end_position = 0
        """Where it ends in its last segment."""
        self.runs: list[tuple[Segment, int, list[Buffer]]] = []
        """Per segment: where to write, and what."""
        self.sealed: list[Segment] = []
        self.created_segment = False
        self.new_epoch = False


class _Progress(msgspec.Struct, gc=False, frozen=True):
    """A point of the log between two groups."""

    offset: int
    segment: Segment | None
    position: int
    bytes_appended: int
    batches_appended: int


class PartitionLog:
    """One partition. Made by `open`; closed by `close`."""

    __slots__ = (
        "_appended_batches",
        "_appended_bytes",
        "_checkpointed",
        "_directory",
        "_dirty",
        "_epochs",
        "_files",
        "_first_segment_unsynced",
        "_handles",
        "_new_epoch_unsynced",
        "_new_segment_unsynced",
        "_pending",
        "_producers",
        "_reader",
        "_sealed_unsynced",
        "_staged",
        "_synced",
        "_view",
        "config",
        "leader_epoch",
        "log_end_offset",
        "size_bytes",
        "topic_id",
    )

    def __init__(
        self, directory: Path, topic_id: TopicId, config: TopicConfig, files: Files, handles: HandleCache
    ) -> None:
        self._directory = str(directory)
        self._files = files
        self._handles = handles
        self._reader = LogReader(directory.name, files, handles)
        self.topic_id = topic_id
        self.config = config
        """May be set at any time."""
        self._staged: WriteGroup | None = None
        self._pending: deque[_Progress] = deque()
        self._dirty: dict[Segment, None] = {}
        self._sealed_unsynced: list[Segment] = []
        self._new_segment_unsynced = False
        self._new_epoch_unsynced = False
        self._appended_bytes = 0
        self._appended_batches = 0

    @staticmethod
    def create(directory: Path, topic_id: TopicId, files: Files) -> None:
        """Make the directory of a new partition. Not synced: that comes with its first segment.

        Raises StorageFailedError.
        """
        create_partition(str(directory), topic_id, files)

    @classmethod
    def open(
        cls,
        directory: Path,
        topic_id: TopicId,
        config: TopicConfig,
        *,
        files: Files,
        handles: HandleCache,
        checkpoint: PartitionCheckpoint | None,
    ) -> PartitionLog:
        """Open a partition as the last run left it; see `recovery` for what that does after a crash.

        All that is there is readable: the high watermark is the log end offset. Raises CorruptLogError where what
        should be there below the recovery point is not, StorageFailedError and TooManyOpenFilesError.
        """
        log = cls(directory, topic_id, config, files, handles)
        found = recover_partition(str(directory), topic_id, config, files, handles, checkpoint)
        segments = tuple(found.segments)
        end_segment = segments[-1] if segments else None
        end_position = end_segment.size_bytes if end_segment else 0
        log._epochs = found.epochs
        log.leader_epoch = found.epochs[-1].epoch if found.epochs else 0
        log._producers = ProducerStates(found.producers)
        log.log_end_offset = found.log_end_offset
        log.size_bytes = sum(segment.size_bytes for segment in segments)
        log._first_segment_unsynced = not segments
        log._view = LogView(
            segments,
            tuple(segment.base_offset for segment in segments),
            found.log_start_offset,
            found.log_end_offset,
            end_segment,
            end_position,
        )
        log._synced = log._checkpointed = _Progress(found.log_end_offset, end_segment, end_position, 0, 0)
        return log

    # --- facts -----------------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self._view.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self._view.high_watermark

    @property
    def synced_offset(self) -> int:
        """Everything below is synced."""
        return self._synced.offset

    @property
    def segment_count(self) -> int:
        return len(self._view.segments)

    @property
    def unsynced_bytes(self) -> int:
        """Staged above the recovery point of the last `checkpoint`."""
        return self._appended_bytes - self._checkpointed.bytes_appended

    @property
    def unsynced_batches(self) -> int:
        """Staged above the recovery point of the last `checkpoint`."""
        return self._appended_batches - self._checkpointed.batches_appended

    # --- deciding --------------------------------------------------------------------------------------------------

    def stage(self, batch: bytes, header: BatchHeader, now_ms: int) -> Staged:
        """Give a checked batch its offset; it is written with the group that `take_staged` returns.

        Raises ProducerFencedError, OutOfOrderSequenceError, UnknownProducerIdError or TooManyOpenFilesError (nothing
        has changed then) and StorageFailedError.
        """
        has_producer = header.producer_id >= 0
        if has_producer:
            original = self._producers.check(header)
            if original is not None:
                return Staged(original.base_offset, original.next_offset, -1, True)
        config = self.config
        timestamp_ms = header.max_timestamp_ms
        append_time_ms = -1
        if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            timestamp_ms = append_time_ms = now_ms
            batch = stamped_with_append_time(batch, now_ms)
        base_offset = self.log_end_offset
        next_offset = base_offset + header.last_offset_delta + 1
        size_bytes = len(batch)
        segment = self._segment_for(next_offset - 1, size_bytes, timestamp_ms, now_ms)
        group = self._staged
        if group is None:
            group = self._staged = WriteGroup()
        if not self._epochs:
            self._epochs = [EpochStart(self.leader_epoch, base_offset)]
            group.new_epoch = True
        if has_producer:
            self._producers.append(header, base_offset, now_ms, self._synced.offset)
        position = segment.append(next_offset - 1, size_bytes, timestamp_ms, config.index_interval_bytes)
        runs = group.runs
        if not runs or runs[-1][0] is not segment:
            runs.append((segment, position, []))
        runs[-1][2].extend(
            (stored_prefix(base_offset, header.length, self.leader_epoch), memoryview(batch)[PREFIX_BYTES:])
        )
        group.batches += 1
        group.size_bytes += size_bytes
        group.end_offset = self.log_end_offset = next_offset
        group.end_position = position + size_bytes
        self.size_bytes += size_bytes
        self._appended_bytes += size_bytes
        self._appended_batches += 1
        return Staged(base_offset, next_offset, append_time_ms, False)

    def take_staged(self) -> WriteGroup | None:
        """Everything staged since the last call, to be written; None: nothing."""
        group, self._staged = self._staged, None
        return group

    def _segment_for(self, last_offset: int, size_bytes: int, timestamp_ms: int, now_ms: int) -> Segment:
        """The segment that a batch goes to: the active one, or a new one."""
        segments = self._view.segments
        if not segments:
            return self._roll(None, now_ms)
        active = segments[-1]
        if not active.loaded:
            active.load(self.log_end_offset)
            active.created_ms = now_ms
        config = self.config
        size_after = active.size_bytes + size_bytes
        if timestamp_ms >= 0 and active.first_timestamp_ms >= 0:
            age_ms = timestamp_ms - active.first_timestamp_ms
        else:
            age_ms = now_ms - active.created_ms
        if active.size_bytes and (
            size_after > config.segment_bytes
            or size_after > MAX_POSITION
            or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            or age_ms > config.segment_ms
        ):
            return self._roll(active, now_ms)
        if self._staged is None:
            self._handles.ensure_open(active.log_path)
        return active

    def _roll(self, active: Segment | None, now_ms: int) -> Segment:
        segment = Segment(self._directory, self.log_end_offset, self._files, self._handles)
        try:
            self._handles.release(self._handles.acquire(segment.log_path, create=True))
        except OSError as error:
            raise storage_failed("create", segment.log_path, error) from error
        segment.begin(now_ms)
        group = self._staged
        if group is None:
            group = self._staged = WriteGroup()
        group.created_segment = True
        if active is not None:
            active.finish()
            active.sealed = True
            group.sealed.append(active)
        view = self._view
        self._view = view._replace(
            segments=(*view.segments, segment), base_offsets=(*view.base_offsets, segment.base_offset)
        )
        return segment

    # --- doing -----------------------------------------------------------------------------------------------------

    def write(self, group: WriteGroup) -> None:
        """Write a group's bytes. Groups are written in the order in which they were taken.

        Raises StorageFailedError.
        """
        for segment, position, buffers in group.runs:
            path = segment.log_path
            try:
                handle = self._handles.acquire(path)
                try:
                    handle.dirty = True
                    self._dirty[segment] = None
                    write_all(self._files, handle.fd, buffers, position)
                finally:
                    self._handles.release(handle)
            except OSError as error:
                raise storage_failed("write", path, error) from error
            except TooManyOpenFilesError as error:
                raise storage_failed("write", path, OSError(error.message)) from error
        for segment in group.sealed:
            segment.save_indexes()
        self._sealed_unsynced += group.sealed
        last = group.runs[-1][0]
        if last.unsaved_index_bytes > _UNSAVED_INDEX_BYTES:
            last.save_indexes()
        self._new_segment_unsynced |= group.created_segment
        self._new_epoch_unsynced |= group.new_epoch

    def sync(self) -> None:
        """Make all that `write` has written durable, new files and directories included.

        Raises StorageFailedError; it is not to be called again then.
        """
        path = self._directory
        first_segment = self._first_segment_unsynced and self._new_segment_unsynced
        try:
            if first_segment:
                path = f"{self._directory}/{METADATA_NAME}"
                with self._handles.pinned(path) as handle:
                    self._files.fdatasync(handle.fd)
                self._handles.forget(path)
            if self._new_epoch_unsynced:
                path = f"{self._directory}/{EPOCHS_NAME}"
                replace_file(self._files, path, encode_epochs(self._epochs))
            for segment in self._dirty:
                path = segment.log_path
                self._sync_log(segment)
            for segment in self._sealed_unsynced:
                if not segment.removed:
                    segment.sync_indexes()
            if self._new_segment_unsynced or self._new_epoch_unsynced:
                path = self._directory
                self._files.sync_directory(path)
            if first_segment:
                path = self._directory.rpartition("/")[0]
                self._files.sync_directory(path)
        except OSError as error:
            raise storage_failed("sync", path, error) from error
        self._first_segment_unsynced &= not first_segment
        self._new_segment_unsynced = self._new_epoch_unsynced = False
        self._dirty.clear()
        self._sealed_unsynced.clear()

    def _sync_log(self, segment: Segment) -> None:
        try:
            handle = self._handles.acquire(segment.log_path)
        except FileNotFoundError:
            if segment.removed:
                return
            raise
        try:
            self._files.fdatasync(handle.fd)
            handle.dirty = False
        finally:
            self._handles.release(handle)

    def wrote(self, group: WriteGroup, *, synced: bool) -> None:
        """Take note that a group is written, and synced with all before it: moves the high watermark accordingly."""
        before = self._pending[-1] if self._pending else self._synced
        progress = _Progress(
            group.end_offset,
            group.runs[-1][0],
            group.end_position,
            before.bytes_appended + group.size_bytes,
            before.batches_appended + group.batches,
        )
        if synced:
            self._pending.clear()
            self._synced = progress
        else:
            self._pending.append(progress)
        if synced or self.config.durability is Durability.WRITTEN:
            self._advance_high_watermark(progress)

    def mark_synced(self, offset: int) -> None:
        """Take note that a later `sync` covered everything written below `offset`, the end of a group."""
        while self._pending and self._pending[0].offset <= offset:
            self._synced = self._pending.popleft()
        self._advance_high_watermark(self._synced)

    def _advance_high_watermark(self, to: _Progress) -> None:
        if to.offset > self._view.high_watermark:
            self._view = self._view._replace(
                high_watermark=to.offset, end_segment=to.segment, end_position=to.position
            )

    # --- reading ---------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, nowait: bool) -> LogRead:
        """Read whole batches from the one that holds `offset` on, below the high watermark.

        At least one batch, else at most `max_bytes`, from one segment (a read may be shorter than what there is);
        empty at the high watermark. With `nowait`, raises BlockingIOError where the disk would have to be waited for:
        repeat it without, on another thread. Raises OffsetOutOfRangeError and CorruptLogError.
        """
        return self._reader.read(self._view, offset, max_bytes, nowait=nowait)

    def offset_for_time(self, timestamp_ms: int) -> FoundOffset:
        """Find the first record whose timestamp is at least `timestamp_ms`. Waits for the disk and decodes a batch.

        A batch that cannot be decoded counts as a whole, by its largest timestamp. Raises CorruptLogError.
        """
        return self._reader.offset_for_time(self._view, timestamp_ms)

    def check_leader_epoch(self, last_leader_epoch: int, offset: int) -> None:
        """Raises LogTruncatedError if what the caller read in its epoch, up to `offset`, was cut off since."""
        if last_leader_epoch < 0:
            return
        if last_leader_epoch > self.leader_epoch:
            end = 0
        else:
            later = (entry.start_offset for entry in self._epochs if entry.epoch > last_leader_epoch)
            end = next(later, self.log_end_offset)
        if offset > end:
            raise LogTruncatedError(
                f"the log was cut: leader epoch {last_leader_epoch} ends at offset {end}, before {offset}; what was "
                f"read from there on is gone, go on at {end}"
            )

    # --- upkeep ----------------------------------------------------------------------------------------------------

    def expired_segments(self, now_ms: int) -> int:
        """The log start offset that retention asks for; the current one where nothing expires."""
        view = self._view
        if len(view.segments) < 2:
            return view.log_start_offset
        # Not above what is synced, so that the recovery point never lies below the log start offset.
        bound = min(view.high_watermark, self._synced.offset)
        sealed = [
            SealedSegment(next_offset, segment.size_bytes, segment.max_timestamp_ms)
            for segment, next_offset in zip(view.segments, view.base_offsets[1:])
            if next_offset < bound
        ]
        active_bytes = self.size_bytes - sum(segment.size_bytes for segment in sealed)
        count = expired_count(sealed, active_bytes, self.config, now_ms)
        return max(view.log_start_offset, sealed[count - 1].next_offset) if count else view.log_start_offset

    def advance_log_start(self, offset: int) -> list[Segment]:
        """Begin the log at `offset`, which is stored already; returns the segments to give to `remove_files`."""
        view = self._view
        taken = []
        for segment, next_offset in zip(view.segments, view.base_offsets[1:]):
            if next_offset > offset or segment is view.end_segment or segment is self._synced.segment:
                break
            segment.removed = True
            taken.append(segment)
        count = len(taken)
        self.size_bytes -= sum(segment.size_bytes for segment in taken)
        self._view = view._replace(
            segments=view.segments[count:],
            base_offsets=view.base_offsets[count:],
            log_start_offset=max(view.log_start_offset, offset),
        )
        return taken

    def remove_files(self, taken: list[Segment]) -> None:
        """Delete the files of segments that `advance_log_start` took. Raises StorageFailedError."""
        for segment in taken:
            segment.remove_files()

    def checkpoint(self) -> PartitionCheckpoint:
        """What to store so that the next `open` begins at the synced offset. Call `flush_indexes` before storing it."""
        synced = self._synced
        self._checkpointed = synced
        segments = []
        for segment in self._view.segments if synced.segment else ():
            size_bytes = synced.position if segment is synced.segment else segment.size_bytes
            segments.append(SegmentCheckpoint(segment.base_offset, size_bytes, segment.max_timestamp_ms))
            if segment is synced.segment:
                break
        return PartitionCheckpoint(
            recovery_point=synced.offset,
            log_start_offset=self.log_start_offset,
            segments=segments,
            producers=self._producers.snapshot(synced.offset),
        )

    def flush_indexes(self) -> None:
        """Write to the index files what they lack. Raises StorageFailedError."""
        for segment in self._view.segments[-1:]:
            if segment.unsaved_index_bytes:
                segment.save_indexes()

    def close(self) -> None:
        """Save the indexes and close the files; `write` and `sync` are over. Raises StorageFailedError."""
        for segment in self._view.segments[-1:]:
            if segment.loaded:
                segment.finish()
                segment.save_indexes()
        for segment in self._view.segments:
            segment.close()
