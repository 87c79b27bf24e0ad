"""The log of one partition: the owner thread assigns offsets and positions, the owner or another thread writes the
bytes, and any thread reads.

A batch goes through `stage` (duplicate check, roll, offset), `take_staged`, `write` (and `sync`) and `wrote`. Other
threads than the owner's may run `write`, `begin_sync`, `sync`, `flush_indexes`, `load_active`, `sync_directory` and
`remove_files`, but no other method that changes anything. At most one thread writes and at most one syncs at a time; a
write may run during a sync. `read` and `offset_for_time` may run on any thread at any time.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from logbroker.config import MAX_INT64, TopicConfig
from logbroker.engine import FoundOffset, ProducerFacts
from logbroker.errors import OutOfOrderSequenceError, ProducerFencedError, ProducerForgottenError
from logbroker.record.header import PREFIX_BYTES, BatchHeader, parse_header, stamped_with_append_time, stored_prefix
from logbroker.storage.continuity import Continuity, DamagedLogError
from logbroker.storage.files import Files, creation_failed, storage_failed, unusable
from logbroker.storage.handles import HandleCache, PartitionHandles
from logbroker.storage.log_reader import LogRead, LogReader, LogView
from logbroker.storage.log_writer import LogWriter, SyncDue
from logbroker.storage.partition_checkpoint import PartitionCheckpoint, boot_id, segment_checkpoints
from logbroker.storage.partition_files import EpochStart, check_epoch, create_partition, end_of_epoch
from logbroker.storage.producer_state import ProducerCount
from logbroker.storage.progress import LogEnd, LogProgress
from logbroker.storage.recovery.partition import RecoveredPartition, recover_partition
from logbroker.storage.retention import ExpiredOffsets, SyncedSegment, expired_offsets
from logbroker.storage.segment import Segment
from logbroker.storage.write_group import Staged, WriteGroup
from logbroker.types import Durability, TimestampType, TopicId

__all__ = ["LogEnd", "LogRead", "PartitionCheckpoint", "PartitionLog", "Staged", "WriteGroup"]


_log = logging.getLogger(__name__)


class PartitionLog:
    """One partition. Made by `open`; closed by `close`."""

    __slots__ = (
        "_begun_segment",
        "_directory",
        "_epochs",
        "_files",
        "_given_up",
        "_handles",
        "_producers",
        "_progress",
        "_reader",
        "_rules",
        "_staged",
        "_view",
        "_writer",
        "config",
        "cut_bytes",
        "cut_offset",
        "leader_epoch",
        "log_end_offset",
        "size_bytes",
        "unsynced_bound_bytes",
    )

    def __init__(
        self,
        directory: str,
        found: RecoveredPartition,
        config: TopicConfig,
        files: Files,
        handles: PartitionHandles,
        producer_count: ProducerCount | None,
    ) -> None:
        segments = tuple(found.segments)
        active = segments[-1] if segments else None
        end_position = active.size_bytes if active else 0
        self.config = config
        """Config of the topic; may be set at any time."""
        self.leader_epoch = found.epochs[-1].epoch if found.epochs else 0
        self.log_end_offset = found.log_end_offset
        self.cut_bytes = found.cut_bytes
        """Bytes that recovery cut off the end of the log when it was opened."""
        self.cut_offset = found.log_end_offset if found.cut_bytes else 0
        """Offset of that cut; 0: there was none."""
        self.size_bytes = sum(segment.size_bytes for segment in segments)
        self._directory = directory
        self._files = files
        self._handles = handles
        self._rules = Continuity(found.epochs, found.gaps_below)
        self._given_up = found.given_up
        for segment in segments:
            segment.rules = self._rules
        self._reader = LogReader(directory.rpartition("/")[2], files, handles, self._rules)
        self._writer = LogWriter(directory, files, handles, new_directory=not segments)
        self._epochs = found.epochs
        self._producers = found.producers
        if producer_count is not None:
            self._producers.count_in(producer_count)
        self._view = LogView(
            segments,
            tuple(segment.base_offset for segment in segments),
            found.log_start_offset,
            found.log_end_offset,
            active,
            end_position,
        )
        self._staged: WriteGroup | None = None
        self._begun_segment = False
        """Whether the active segment was made without a write group. The sync of the next write group then makes its
        name durable."""
        self.unsynced_bound_bytes = -1
        """Maximum bytes of a `synced` topic that this run leaves unsynced at any time; -1: no limit."""
        max_timestamp_ms = active.max_timestamp_ms if active else -1
        self._progress = LogProgress(LogEnd(found.log_end_offset, active, end_position, max_timestamp_ms))

    @staticmethod
    def create(directory: Path, topic_id: TopicId, files: Files) -> None:
        """Make the directory of a new partition. It is not synced: this happens with its first segment.

        Raises StorageFailedError, DiskFullError, TooManyOpenFilesError, InvalidTopicNameError if the file system does
        not take so long a name, and CorruptLogError if there are segments already.
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
        stopped_cleanly: bool = False,
        producer_count: ProducerCount | None = None,
    ) -> PartitionLog:
        """Open a partition as the last run left it; `recovery.partition` describes recovery after a crash.

        All records are readable: the high watermark is the log end offset. `stopped_cleanly` says that the last run
        synced everything before it stopped. `producer_count` grows by the number of producers that this partition
        remembers. Store `checkpoint()` before the first append. Raises CorruptLogError if something is missing and no
        crash explains it, StorageFailedError and TooManyOpenFilesError.
        """
        own = PartitionHandles(directory.name, handles)
        found = recover_partition(
            str(directory), topic_id, config, files, own, checkpoint, stopped_cleanly=stopped_cleanly
        )
        return cls(str(directory), found, config, files, own, producer_count)

    # --- facts -----------------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self._view.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self._view.high_watermark

    @property
    def synced_offset(self) -> int:
        """Offset below which everything is synced."""
        return self._progress.synced.offset

    @property
    def segment_count(self) -> int:
        return len(self._view.segments)

    @property
    def gaps_below(self) -> int:
        """Offset below which batches may leave gaps before them."""
        return self._rules.gaps_below

    @property
    def damage(self) -> str:
        """Reason why a part of the log cannot be read, if a read has found one, the first if there are several; "":
        none is known."""
        return self._reader.damage

    @property
    def written_end(self) -> LogEnd:
        """End before which everything is written."""
        return self._progress.written

    # --- deciding --------------------------------------------------------------------------------------------------

    def is_retry(self, header: BatchHeader, *, may_repeat: bool = False) -> bool:
        """Return whether `stage` would find that an idempotent producer sent this batch before.

        Raises ProducerForgottenError if the partition may have forgotten the producer.
        """
        try:
            return header.producer_id >= 0 and self._producers.check(header, may_repeat=may_repeat) is not None
        except ProducerForgottenError:
            raise
        except (OutOfOrderSequenceError, ProducerFencedError):
            return False

    def stage(self, batch: bytes | memoryview, header: BatchHeader, now_ms: int, *, may_repeat: bool = False) -> Staged:
        """Assign an offset to a checked batch, and add it to the write group that `take_staged` returns.
        `may_repeat`: see `Append`.

        Raises ProducerFencedError, OutOfOrderSequenceError, UnknownProducerIdError, ProducerForgottenError,
        DiskFullError, CorruptLogError or TooManyOpenFilesError (nothing has changed then), StorageFailedError, and
        BlockingIOError if `load_active` has to run in a thread first.
        """
        has_producer = header.producer_id >= 0
        if has_producer:
            original = self._producers.check(header, may_repeat=may_repeat)
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
        group = self._staged
        if group is None:
            group = self._begin_group(now_ms)
        segments = self._view.segments
        segment = segments[-1] if segments else None
        if segment is None or segment.is_full(next_offset - 1, size_bytes, timestamp_ms, now_ms, config):
            segment = self._roll(group, segment, now_ms)
        self._staged = group
        if not self._epochs:
            group.epochs = self._epochs = [EpochStart(self.leader_epoch, base_offset)]
        if has_producer:
            self._producers.append(header, base_offset, self._progress.synced.offset, timestamp_ms)
        position = segment.append(next_offset - 1, size_bytes, timestamp_ms, config.index_interval_bytes)
        segment.modified_ms = now_ms
        if not position:
            segment.first_crc = parse_header(batch).crc
        prefix = stored_prefix(base_offset, header.length, self.leader_epoch)
        group.add(segment, position, prefix, memoryview(batch)[PREFIX_BYTES:], position + size_bytes, next_offset)
        self.log_end_offset = next_offset
        self.size_bytes += size_bytes
        return Staged(base_offset, next_offset, append_time_ms, False)

    @property
    def has_staged(self) -> bool:
        """Whether `take_staged` has something to return."""
        return self._staged is not None

    def take_staged(self) -> WriteGroup | None:
        """Return the write group of all batches that were staged since the last call, or None. The caller writes it."""
        group, self._staged = self._staged, None
        if group is not None and self._begun_segment:
            group.created_segment, self._begun_segment = True, False
        return group

    def load_active(self, *, nowait: bool = False) -> None:
        """Load the index of the active segment, unless the segment is damaged. This may take long; with `nowait`, raise
        BlockingIOError then. Also raises CorruptLogError, TooManyOpenFilesError or StorageFailedError."""
        for active in self._view.segments[-1:]:
            if active.is_damaged:
                continue
            try:
                if not active.loaded:
                    active.load(self.log_end_offset, nowait=nowait)
                self._handles.ensure_open(active.log_path)
            except DamagedLogError as error:
                self._reader.note_damage(active, self.log_end_offset, error)
            except BlockingIOError:
                raise
            except OSError as error:
                raise unusable(active.log_path, error) from error  # A failed read: nothing has changed.

    def _begin_group(self, now_ms: int) -> WriteGroup:
        """Open the active segment if needed, and return a new write group. An error here refuses the batch; an error at
        the write would stop the broker."""
        self.load_active(nowait=True)
        for active in self._view.segments[-1:]:
            active.created_ms = active.created_ms or now_ms
        return WriteGroup()

    def _roll(self, group: WriteGroup, active: Segment | None, now_ms: int) -> Segment:
        """Begin a new segment, which is written and synced with the write group.

        This happens, too, if damage was found in the active segment: no reader gets past the damage to the end of that
        segment, so records that it took now could not be read.
        """
        segment = Segment(self._directory, self.log_end_offset, self._files, self._handles, self._rules)
        try:
            segment.create(now_ms)
        except OSError as error:
            raise creation_failed(segment.log_path, error) from error
        group.created_segment = True
        if active is not None:
            if active.is_damaged:
                text = "%s is damaged: a new segment begins at offset %d, and is read from there on"
                _log.warning(text, active.log_path, segment.base_offset)
            active.seal()
            if active.loaded:
                group.sealed.append(active)
        self._view = self._view.with_segments((*self._view.segments, segment))
        return segment

    # --- writing ---------------------------------------------------------------------------------------------------

    def write(self, group: WriteGroup) -> None:
        """Write the bytes of a write group. Write groups are written in the order in which they were taken.

        Raises StorageFailedError.
        """
        self._writer.write(group)

    def begin_sync(self) -> SyncDue:
        """Return what `sync` has to cover: everything that `write` has written so far. Call it on the thread that calls
        `write`."""
        return self._writer.begin_sync()

    def sync(self, due: SyncDue) -> None:
        """Make everything in `due` durable, new files and directories included. Later write groups may be written
        meanwhile.

        One sync at a time. Raises StorageFailedError; after that the state of the files is unknown, and no other sync
        may follow.
        """
        self._writer.sync(due)

    def wrote(self, group: WriteGroup, *, synced: bool) -> None:
        """Note that a write group is written or, with `synced`, that it and everything before it is synced. Move the
        high watermark accordingly."""
        end = self._progress.wrote(group, synced=synced)
        if synced or self.config.durability is Durability.WRITTEN:
            self._show(end)

    def mark_synced(self, end: LogEnd) -> None:
        """Note that a `sync` covered everything written up to `end`, which was `written_end` when it began."""
        self._show(self._progress.mark_synced(end))

    def _show(self, end: LogEnd) -> None:
        """Move the high watermark to an end of the log."""
        view = self._view
        if end.offset > view.high_watermark:
            # Runs for every write group; `replace` would take longer.
            self._view = LogView(
                view.segments, view.base_offsets, view.log_start_offset, end.offset, end.segment, end.position
            )

    # --- reading ---------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, nowait: bool, check_crc: bool = False) -> LogRead:
        """Read whole batches below the high watermark, beginning with the batch that holds `offset`.

        Return at most `max_bytes`, but at least one batch, and nothing at the high watermark. All batches come from one
        segment, so more may be readable. With `nowait`, raise BlockingIOError instead of waiting for the disk: then
        repeat the call without it on another thread. With `check_crc`, stop before the first batch with a wrong CRC.
        Raises OffsetOutOfRangeError, CorruptLogError, TooManyOpenFilesError.
        """
        return self._reader.read(self._view, offset, max_bytes, nowait=nowait, check_crc=check_crc)

    def offset_for_time(self, timestamp_ms: int) -> FoundOffset:
        """Find the first record whose timestamp is at least `timestamp_ms`. Waits for the disk and decodes a batch.

        For a batch that cannot be decoded, its base offset and largest timestamp are taken. Raises CorruptLogError and
        TooManyOpenFilesError.
        """
        return self._reader.offset_for_time(self._view, timestamp_ms)

    def offset_for_latest_time(self) -> FoundOffset:
        """Find the first record with the largest timestamp; offset and timestamp -1: there is none. Otherwise as
        `offset_for_time`."""
        return self._reader.offset_for_latest_time(self._view)

    def check_leader_epoch(self, last_leader_epoch: int, offset: int) -> None:
        """Raise LogTruncatedError if the caller has read records up to `offset` in its leader epoch that were cut off
        since."""
        check_epoch(self._epochs, last_leader_epoch, offset, self.log_start_offset, self.log_end_offset)

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        """Return the last leader epoch up to this one, and the offset at which it ends; None if there is none."""
        return end_of_epoch(self._epochs, leader_epoch, self.log_start_offset, self.log_end_offset)

    # --- upkeep ----------------------------------------------------------------------------------------------------

    def expired_segments(self, now_ms: int, needed_from: int = MAX_INT64) -> ExpiredOffsets:
        """Return two offsets: retention may remove the records below the first now, and those below the second once the
        holders release them. A holder needs records from `needed_from` on."""
        view, synced, end_offset = self._view, self._progress.synced, self.log_end_offset
        # Not above the synced offset: the recovery point must never be below the log start offset.
        bound = min(view.high_watermark, synced.offset)
        by_age = self.config.retention_ms >= 0
        segments: list[SyncedSegment] = []
        for segment, next_offset in zip(view.segments, (*view.base_offsets[1:], end_offset), strict=False):
            is_active = segment is view.segments[-1]
            if next_offset > bound or (is_active and not segment.size_bytes):
                break
            if not is_active and (segment is view.end_segment or segment is synced.segment):
                break  # Later batches are staged, and perhaps not written yet.
            youngest_ms = segment.youngest_ms(now_ms) if by_age else -1
            segments.append(SyncedSegment(next_offset, segment.size_bytes, youngest_ms, is_active))
        return expired_offsets(segments, view.log_start_offset, self.size_bytes, self.config, now_ms, needed_from)

    def begin_segment(self, now_ms: int) -> None:
        """Begin a new segment, so that retention can remove all earlier segments. Do nothing if the active segment is
        empty.

        Everything appended must be synced. Call `sync_directory` before storing anything that refers to the new
        segment. Raises DiskFullError, CorruptLogError or TooManyOpenFilesError (nothing has changed then) and
        StorageFailedError.
        """
        segments = self._view.segments
        if not segments or not segments[-1].size_bytes:
            return
        segment = self._roll(WriteGroup(), None, now_ms)
        segments[-1].sealed = True
        self._begun_segment = True
        self._progress.begin_segment(segment)
        self._view = replace(self._view, end_segment=segment, end_position=0)

    def sync_directory(self) -> None:
        """Make the names of the partition's files durable. Raises StorageFailedError and TooManyOpenFilesError."""
        try:
            self._handles.with_room(partial(self._files.sync_directory, self._directory))
        except OSError as error:
            raise storage_failed("sync", self._directory, error) from error

    def advance_log_start(self, offset: int) -> list[Segment]:
        """Begin the log at `offset`, which must be stored already. Return the segments that `remove_files` should
        delete."""
        view = self._view
        taken: list[Segment] = []
        for segment, next_offset in zip(view.segments, view.base_offsets[1:], strict=False):
            if next_offset > offset or segment is view.end_segment or segment is self._progress.synced.segment:
                break
            segment.removed = True
            taken.append(segment)
        self.size_bytes -= sum(segment.size_bytes for segment in taken)
        kept = view.with_segments(view.segments[len(taken) :])
        self._view = replace(kept, log_start_offset=max(view.log_start_offset, offset))
        return taken

    def remove_files(self, taken: list[Segment]) -> None:
        """Delete the files of segments that `advance_log_start` took. Raises StorageFailedError."""
        for segment in taken:
            segment.remove_files()

    def checkpoint(self) -> PartitionCheckpoint:
        """Return a checkpoint: with it, the next `open` begins at the current synced offset. Later batches may be in
        flight.

        It has the producers that appended since the checkpoint last given to `stored`, or all producers if there was
        none. Call `flush_indexes` before it is stored.
        """
        synced = self._progress.synced
        return PartitionCheckpoint(
            recovery_point=synced.offset,
            log_start_offset=self.log_start_offset,
            segments=segment_checkpoints(self._view.segments, synced.segment, synced.position, synced.max_timestamp_ms),
            producers=self._producers.snapshot(synced.offset),
            forgotten_producers=self._producers.forgotten(),
            forgotten_below=self._producers.forgotten_below,
            boot_id=boot_id(),
            # An epoch that begins at the synced offset may not be in the file yet, or a later epoch may replace it.
            epochs=[entry for entry in self._epochs if entry.start_offset < synced.offset],
            unsynced_bound_bytes=-1 if self.config.durability is Durability.WRITTEN else self.unsynced_bound_bytes,
            gaps_below=self._rules.gaps_below,
            given_up=[entry for entry in self._given_up if entry.base_offset >= self.log_start_offset],
        )

    def stored(self, checkpoint: PartitionCheckpoint) -> None:
        """Note that a checkpoint, and the rows of all its producers, are stored."""
        self._producers.stored(checkpoint.recovery_point, checkpoint.forgotten_producers)

    def producers(self) -> list[ProducerFacts]:
        """Return what is known of the idempotent producers, the one that appended longest ago first."""
        return self._producers.facts()

    @property
    def producer_count(self) -> int:
        return len(self._producers)

    @property
    def producer_ids_end(self) -> int:
        """Number above the ids of all producers that are or were remembered."""
        return self._producers.ids_end()

    def forget_producers(self, count: int) -> None:
        """Forget the `count` idempotent producers that appended longest ago."""
        self._producers.forget(count)

    def flush_indexes(self) -> None:
        """Save the unsaved entries of the indexes. Raises StorageFailedError."""
        for segment in self._view.segments[-1:]:
            if segment.unsaved_index_bytes:
                segment.save_indexes()

    def close(self, *, to_be_removed: bool = False) -> None:
        """Save the indexes, unless `to_be_removed`, and close the files. Writes and syncs must have ended.

        Raises StorageFailedError.
        """
        self._reader.close()
        self._producers.close()
        for segment in () if to_be_removed else self._view.segments[-1:]:
            segment.finish()
        self._handles.shut()
        for segment in self._view.segments:
            segment.close()
