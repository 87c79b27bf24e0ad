"""Opening a partition: what of its files can be trusted, and what a crash left of the rest.

Below the recovery point everything is known to be synced: segments that are missing there or have another size are
corruption. Where the files end exactly at the recovery point, nothing more is read. Above it, every batch is checked;
the log ends at the first bad one. What is cut off goes to a side file, and the leader epoch is raised, so that a
client that had read it notices. What is kept is written again and synced, since after a crash nobody knows whether
the pages that a read returns ever reached the disk.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import google_crc32c
import msgspec

from logbroker.config import TopicConfig
from logbroker.errors import CorruptLogError
from logbroker.record.header import CRC_START, HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC, BatchHeader, parse_header
from logbroker.storage.files import Files, read_file, replace_file, storage_failed, write_all, write_file
from logbroker.storage.handles import Handle, HandleCache
from logbroker.storage.partition_files import (
    EPOCHS_NAME,
    METADATA_NAME,
    EpochStart,
    decode_epochs,
    decode_metadata,
    encode_epochs,
    encode_metadata,
)
from logbroker.storage.producer_state import ProducerSnapshot, ProducerStates
from logbroker.storage.segment import Segment
from logbroker.types import TopicId, topic_id_text

_LOG_NAME = re.compile(r"(\d{20})\.log")
_SCAN_WINDOW_BYTES: Final = 1 << 20


class SegmentCheckpoint(msgspec.Struct, gc=False, array_like=True):
    """What is known of a segment at or below the recovery point."""

    base_offset: int
    size_bytes: int
    """Of the part below the recovery point."""
    max_timestamp_ms: int
    """At least that of its records; -1: none has one."""


class PartitionCheckpoint(msgspec.Struct, gc=False):
    """What the metadata store keeps of a partition; an `open` with it reads nothing below the recovery point."""

    recovery_point: int
    """Every record below is synced."""
    log_start_offset: int
    segments: list[SegmentCheckpoint]
    """Those below the recovery point, in order; the last one holds it."""
    producers: list[ProducerSnapshot]
    """As of the recovery point."""


@dataclass(slots=True, kw_only=True)
class RecoveredPartition:
    """A partition's files, brought in order."""

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    epochs: list[EpochStart]
    producers: list[ProducerSnapshot]


def create_partition(directory: str, topic_id: TopicId, files: Files) -> None:
    """Make a partition's directory, or complete one that was begun. Raises StorageFailedError."""
    path = directory
    try:
        with suppress(FileExistsError):
            files.make_directory(directory)
        path = f"{directory}/{METADATA_NAME}"
        write_file(files, path, encode_metadata(topic_id), sync=False)
    except OSError as error:
        raise storage_failed("create", path, error) from error


def recover_partition(
    directory: str,
    topic_id: TopicId,
    config: TopicConfig,
    files: Files,
    handles: HandleCache,
    checkpoint: PartitionCheckpoint | None,
) -> RecoveredPartition:
    """Bring a partition's files in order; see the module's head. Raises CorruptLogError and StorageFailedError."""
    return _Recovery(directory, topic_id, config, files, handles, checkpoint).run()


class _Recovery:
    def __init__(
        self,
        directory: str,
        topic_id: TopicId,
        config: TopicConfig,
        files: Files,
        handles: HandleCache,
        checkpoint: PartitionCheckpoint | None,
    ) -> None:
        self._directory = directory
        self._topic_id = topic_id
        self._config = config
        self._files = files
        self._handles = handles
        self._has_checkpoint = checkpoint is not None
        self._checkpoint = checkpoint or PartitionCheckpoint(
            recovery_point=0, log_start_offset=0, segments=[], producers=[]
        )

    def run(self) -> RecoveredPartition:
        try:
            return self._run()
        except OSError as error:
            raise storage_failed("recover", error.filename or self._directory, error) from error

    def _run(self) -> RecoveredPartition:
        checkpoint = self._checkpoint
        sizes = self._list_files()
        self._check_metadata(sizes)
        epochs = self._read_epochs(sizes)
        on_disk = {int(match[1]): sizes[name] for name in sizes if (match := _LOG_NAME.fullmatch(name))}
        known = self._known_segments(on_disk)
        self._remove_below(on_disk, known)
        segments = [self._segment(entry.base_offset) for entry in known]
        for segment, entry in zip(segments, known):
            segment.size_bytes = entry.size_bytes
            segment.max_timestamp_ms = entry.max_timestamp_ms
            segment.sealed = True
        new_bases = sorted(base for base in on_disk if not known or base > known[-1].base_offset)
        log_start_offset = checkpoint.log_start_offset
        recovered = RecoveredPartition(
            segments=segments,
            log_start_offset=log_start_offset,
            log_end_offset=checkpoint.recovery_point,
            epochs=epochs,
            producers=checkpoint.producers,
        )
        if new_bases or (known and on_disk[known[-1].base_offset] != known[-1].size_bytes):
            self._scan_above(recovered, on_disk, new_bases)
        if segments := recovered.segments:
            segments[-1].sealed = False
            if not self._has_checkpoint:
                recovered.log_start_offset = segments[0].base_offset
        return recovered

    # --- below the recovery point ----------------------------------------------------------------------------------

    def _list_files(self) -> dict[str, int]:
        try:
            return self._files.list_directory(self._directory)
        except FileNotFoundError:
            if self._checkpoint.recovery_point:
                raise CorruptLogError(
                    f"{self._directory}: the directory is missing, but it held {self._checkpoint.recovery_point} "
                    "offsets; restore it from a backup"
                ) from None
        create_partition(self._directory, self._topic_id, self._files)
        return self._files.list_directory(self._directory)

    def _check_metadata(self, sizes: dict[str, int]) -> None:
        path = f"{self._directory}/{METADATA_NAME}"
        if not sizes.get(METADATA_NAME) and not self._checkpoint.recovery_point:
            # Never synced, and a power cut took it.
            write_file(self._files, path, encode_metadata(self._topic_id), sync=True)
            return
        if METADATA_NAME not in sizes:
            raise CorruptLogError(f"{path}: the file is missing; restore it, topic_id: {topic_id_text(self._topic_id)}")
        found = decode_metadata(path, read_file(self._files, path))
        if found != self._topic_id:
            raise CorruptLogError(
                f"{path}: the files belong to topic {topic_id_text(found)}, not to {topic_id_text(self._topic_id)}; "
                "move the directory away or restore the right one"
            )

    def _read_epochs(self, sizes: dict[str, int]) -> list[EpochStart]:
        if EPOCHS_NAME not in sizes:
            return []
        path = f"{self._directory}/{EPOCHS_NAME}"
        return decode_epochs(path, read_file(self._files, path))

    def _known_segments(self, on_disk: dict[int, int]) -> list[SegmentCheckpoint]:
        """The checkpoint's segments that hold something from the log start offset on; checks that they are whole."""
        known = self._checkpoint.segments
        kept = [
            entry
            for entry, after in zip(known, [*known[1:], None])
            if after is None or after.base_offset > self._checkpoint.log_start_offset
        ]
        for entry in kept:
            path = self._segment(entry.base_offset).log_path
            size_bytes = on_disk.get(entry.base_offset)
            if size_bytes is None:
                if entry.size_bytes == 0:
                    on_disk[entry.base_offset] = 0
                    write_file(self._files, path, b"", sync=True)
                    self._files.sync_directory(self._directory)
                    continue
                raise CorruptLogError(f"{path}: the file is missing; restore it from a backup")
            if size_bytes < entry.size_bytes or (size_bytes > entry.size_bytes and entry is not kept[-1]):
                raise CorruptLogError(
                    f"{path}: the file has {size_bytes} bytes, but {entry.size_bytes} were synced; "
                    "restore it from a backup"
                )
        return kept

    def _remove_below(self, on_disk: dict[int, int], known: list[SegmentCheckpoint]) -> None:
        """Finish the deletion of segments that lie below the log start offset."""
        for base in sorted(on_disk) if known else ():
            if base < known[0].base_offset:
                del on_disk[base]
                self._segment(base).remove_files()

    def _segment(self, base_offset: int) -> Segment:
        return Segment(self._directory, base_offset, self._files, self._handles)

    # --- above it --------------------------------------------------------------------------------------------------

    def _scan_above(self, recovered: RecoveredPartition, on_disk: dict[int, int], new_bases: Sequence[int]) -> None:
        segments = recovered.segments
        producers = ProducerStates(recovered.producers)
        epochs = list(recovered.epochs)
        offset = recovered.log_end_offset
        pending = list(new_bases)
        cut = False
        if segments:
            self._prepare(segments[-1], offset)
        while True:
            if segments:
                segment = segments[-1]
                file_bytes = on_disk[segment.base_offset]
                offset = self._scan(segment, file_bytes, offset, producers, epochs)
                if segment.size_bytes < file_bytes:
                    self._cut(segment)
                    cut = True
            if not pending or cut:
                break
            base = pending.pop(0)
            if segments or self._has_checkpoint:
                # Our own segments follow each other without a gap; those of an imported log need not.
                cut = base < offset or (base > offset and self._has_checkpoint)
                if cut:
                    pending.insert(0, base)
                    break
            if segments:
                segments[-1].finish()
                segments[-1].sealed = True
                segments[-1].save_indexes()
                segments[-1].sync_indexes()
            segment = self._segment(base)
            self._drop_indexes(segment.log_path)
            segment.begin(0)
            segments.append(segment)
            offset = base
        for base in pending:
            self._set_aside(self._segment(base).log_path)
        self._write_epochs(recovered.epochs, epochs, offset, cut)
        self._files.sync_directory(self._directory)
        recovered.log_end_offset = offset
        recovered.epochs = epochs
        recovered.producers = producers.snapshot(offset)

    def _prepare(self, segment: Segment, recovery_point: int) -> None:
        """Make ready to take what follows a segment that is known up to the recovery point; its headers must reach it."""
        segment.load(recovery_point)
        with self._handles.pinned(segment.log_path) as handle:
            segment.locate(handle, recovery_point, segment.size_bytes, nowait=False)

    def _scan(
        self,
        segment: Segment,
        file_bytes: int,
        offset: int,
        producers: ProducerStates,
        epochs: list[EpochStart],
    ) -> int:
        """Check and take over the batches behind `segment.size_bytes`, as far as they are good; returns the end."""
        with self._handles.pinned(segment.log_path) as handle:
            while segment.size_bytes < file_bytes:
                start = segment.size_bytes
                window = self._read_window(handle, start, file_bytes)
                while (header := self._good_batch(window, segment.size_bytes - start, offset)) is not None:
                    if not epochs or header.leader_epoch > epochs[-1].epoch:
                        epochs.append(EpochStart(max(header.leader_epoch, 0), header.base_offset))
                    if header.producer_id >= 0 and not header.is_control:
                        producers.append(header, header.base_offset, header.max_timestamp_ms, offset)
                    offset = header.next_offset
                    segment.append(
                        offset - 1, header.size_bytes, header.max_timestamp_ms, self._config.index_interval_bytes
                    )
                taken = segment.size_bytes - start
                if not taken:
                    break
                write_all(self._files, handle.fd, [memoryview(window)[:taken]], start)
            self._files.fdatasync(handle.fd)
        return offset

    def _read_window(self, handle: Handle, start: int, file_bytes: int) -> bytes:
        """Bytes from `start` on, the whole first batch at least, if its header can be believed."""
        window = self._files.pread(handle.fd, min(_SCAN_WINDOW_BYTES, file_bytes - start), start)
        if len(window) >= HEADER_BYTES:
            size_bytes = parse_header(window).size_bytes
            if len(window) < size_bytes <= file_bytes - start:
                window = self._files.pread(handle.fd, size_bytes, start)
        return window

    def _good_batch(self, window: bytes, position: int, offset: int) -> BatchHeader | None:
        if len(window) - position < HEADER_BYTES:
            return None
        header = parse_header(window, position)
        end = position + header.size_bytes
        if (
            header.magic != MAGIC
            or header.length < HEADER_BYTES - LENGTH_OVERHEAD_BYTES
            or end > len(window)
            or header.last_offset_delta < 0
            or header.base_offset < offset
            or (header.base_offset > offset and self._has_checkpoint)
            or google_crc32c.value(window[position + CRC_START : end]) != header.crc
        ):
            return None
        return header

    def _cut(self, segment: Segment) -> None:
        """End a segment's file where its good batches end; the rest is kept in a side file."""
        path = segment.log_path
        end = segment.size_bytes
        side_path = f"{path}.cut-{end}"
        with self._handles.pinned(path) as handle, self._handles.pinned(side_path, create=True) as side:
            position = end
            while part := self._files.pread(handle.fd, _SCAN_WINDOW_BYTES, position):
                write_all(self._files, side.fd, [part], position - end)
                position += len(part)
            self._files.truncate(side.fd, position - end)
            self._files.fdatasync(side.fd)
            # The side file must be findable before the only other copy goes.
            self._files.sync_directory(self._directory)
            self._files.truncate(handle.fd, end)
            self._files.fdatasync(handle.fd)
        self._handles.forget(side_path)

    def _set_aside(self, path: str) -> None:
        """Take a segment behind the end of the log out of it."""
        self._files.rename(path, f"{path}.cut-0")
        self._drop_indexes(path)

    def _drop_indexes(self, log_path: str) -> None:
        for suffix in (".index", ".timeindex"):
            with suppress(FileNotFoundError):
                self._files.unlink(log_path.removesuffix(".log") + suffix)

    def _write_epochs(self, before: list[EpochStart], epochs: list[EpochStart], end_offset: int, cut: bool) -> None:
        if cut:
            highest = max((entry.epoch for entry in (*before, *epochs)), default=0)
            epochs[:] = [entry for entry in epochs if entry.start_offset < end_offset]
            epochs.append(EpochStart(highest + 1, end_offset))
        if epochs != before:
            replace_file(self._files, f"{self._directory}/{EPOCHS_NAME}", encode_epochs(epochs))
