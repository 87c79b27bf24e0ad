"""Opens a partition, and decides which of its files can be trusted.

Everything below the recovery point is known to be synced: a segment there that is missing or too short is corruption.
If the files end exactly at the recovery point, no segment is opened or read. `tail` recovers everything above the
recovery point.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from itertools import zip_longest

from logbroker.command_line import command_line
from logbroker.config import TopicConfig
from logbroker.errors import CorruptLogError
from logbroker.storage.continuity import Continuity
from logbroker.storage.files import (
    NOT_OURS,
    Files,
    read_file,
    reading,
    replace_file,
    storage_failed,
    unusable,
    what_is_at,
    why_absent,
    write_file,
)
from logbroker.storage.handles import HandleCache
from logbroker.storage.partition_checkpoint import (
    PartitionCheckpoint,
    SegmentCheckpoint,
    boot_id,
    epochs_unknown_below,
    is_of_this_boot,
    power_cut_may_have_taken_metadata,
)
from logbroker.storage.partition_files import (
    EPOCHS_NAME,
    METADATA_NAME,
    EpochStart,
    check_not_linked,
    create_partition,
    decode_epochs,
    decode_metadata,
    encode_epochs,
    encode_metadata,
    epoch_beyond_end,
    owner_of,
)
from logbroker.storage.producer_state import ProducerStates
from logbroker.storage.recovery.tail import TailRecovery
from logbroker.storage.segment import Segment, base_offset_of
from logbroker.types import Durability, TopicId, topic_id_text


@dataclass(slots=True, kw_only=True)
class RecoveredPartition:
    """A partition's files after recovery."""

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    epochs: list[EpochStart]
    producers: ProducerStates
    """Producers at the end of the log. Also knows which producers were forgotten during recovery."""
    gaps_below: int
    """See PartitionCheckpoint."""
    given_up: list[SegmentCheckpoint]
    """See PartitionCheckpoint."""
    cut_bytes: int = 0
    """Bytes that were cut off the log's end, including segments that were set aside."""


def recover_partition(
    directory: str,
    topic_id: TopicId,
    config: TopicConfig,
    files: Files,
    handles: HandleCache,
    checkpoint: PartitionCheckpoint | None,
    *,
    stopped_cleanly: bool,
) -> RecoveredPartition:
    """Recover a partition's files, and return their state. Makes the directory of an empty partition again if it is
    missing.

    Raises CorruptLogError, StorageFailedError and TooManyOpenFilesError.
    """
    recovery = _Recovery(directory, topic_id, config, files, handles, checkpoint, stopped_cleanly)
    try:
        # Recovery may be restarted at any point: its cuts and writes are the same each time.
        return handles.with_room(recovery.run)
    except OSError as error:
        path = error.filename or directory
        if error.errno in (*NOT_OURS, errno.ENOENT):
            # Only this partition's files are wrong; the disk is sound.
            raise unusable(path, error) from None
        raise storage_failed("recover", path, error) from error


def probably_has_tail(directory: str, files: Files, checkpoint: PartitionCheckpoint | None) -> bool:
    """Return whether `recover_partition` will probably have much to read and sync. This is a hint, from the size of one
    file."""
    known = checkpoint.segments[-1] if checkpoint is not None and checkpoint.segments else None
    base_offset, size_bytes = (known.base_offset, known.size_bytes) if known is not None else (0, 0)
    try:
        return files.size_bytes(f"{directory}/{base_offset:020d}.log") > size_bytes
    except OSError:
        return False


class _Recovery:
    def __init__(
        self,
        directory: str,
        topic_id: TopicId,
        config: TopicConfig,
        files: Files,
        handles: HandleCache,
        checkpoint: PartitionCheckpoint | None,
        stopped_cleanly: bool,
    ) -> None:
        self._directory = directory
        self._topic_id = topic_id
        self._config = config
        self._files = files
        self._handles = handles
        self._imported = checkpoint is None
        """Whether there is no checkpoint of logbroker: perhaps Kafka wrote the files."""
        self._stopped_cleanly = stopped_cleanly
        self._checkpoint = checkpoint or PartitionCheckpoint(recovery_point=0, log_start_offset=0, segments=[])

        self._rules = Continuity()
        self._same_boot = is_of_this_boot(self._checkpoint)
        self._history_known = checkpoint is not None and not checkpoint.history_unknown
        """Whether the run that stored the checkpoint was the last run. If True, bytes above the checkpoint may be
        unsynced, and a power cut may have taken them. If False, a later run may have synced them, so that their loss
        must be reported."""

    @property
    def _repair_command(self) -> str:
        return command_line("segment repair", self._directory)

    def run(self) -> RecoveredPartition:
        checkpoint = self._checkpoint
        check_not_linked(self._directory, self._files)
        sizes = self._list_files()
        self._check_others()
        self._check_metadata(sizes)
        epochs = self._read_epochs(sizes)
        self._rules = Continuity(epochs, checkpoint.gaps_below)
        on_disk = {base: size for name, size in sizes.items() if (base := base_offset_of(name)) is not None}
        known = self._known_segments(on_disk)
        segments = [self._restored(entry) for entry in known]
        new_bases = self._new_segments(on_disk, known)
        found = RecoveredPartition(
            segments=segments,
            log_start_offset=checkpoint.log_start_offset,
            log_end_offset=checkpoint.recovery_point,
            epochs=epochs,
            producers=ProducerStates(checkpoint.producers, forgotten_below=checkpoint.forgotten_below),
            gaps_below=checkpoint.gaps_below,
            given_up=checkpoint.given_up,
        )
        cut = False
        if new_bases or (known and on_disk[known[-1].base_offset] > known[-1].size_bytes):
            tail = TailRecovery(
                segments,
                found.producers,
                list(epochs),
                self._config.index_interval_bytes,
                self._files,
                self._handles,
                imported=self._imported,
                stopped_cleanly=self._stopped_cleanly,
                only_last_write_torn=self._same_boot or not self._history_known,
                unsynced_bound_bytes=self._unsynced_bound_bytes(),
            )
            tail.run(checkpoint.recovery_point, [self._segment(base) for base in new_bases], on_disk)
            cut = tail.cut
            found.cut_bytes = tail.cut_bytes
            found.log_end_offset = tail.end_offset
            found.epochs = tail.epochs
            found.gaps_below = max(found.gaps_below, tail.gaps_below)
            self._sync_names()
        if segments:
            segments[-1].sealed = False
            found.log_start_offset = max(found.log_start_offset, segments[0].base_offset)
        if not cut:  # After a cut, a new epoch replaces those above the end of the log.
            self._check_last_epoch(found)
        # A power cut may silently take records that were readable, but only written.
        written = self._config.durability is Durability.WRITTEN
        had_run = checkpoint.boot_id or not (self._imported or boot_id())
        lost = written and had_run and not self._same_boot and not self._stopped_cleanly
        if cut or lost:
            self._raise_epoch(found)
        if found.epochs != epochs:
            replace_file(self._files, f"{self._directory}/{EPOCHS_NAME}", encode_epochs(found.epochs))
            self._sync_names()
        return found

    def _list_files(self) -> dict[str, int]:
        try:
            with reading(self._directory):
                return self._files.list_directory(self._directory)
        except FileNotFoundError:
            if self._checkpoint.recovery_point:
                raise CorruptLogError(
                    f"{self._directory}: the directory is missing, but it held offsets up to "
                    f"{self._checkpoint.recovery_point}; restore it from a backup, or see what "
                    f"`{self._repair_command}` can do without it"
                ) from None
        create_partition(self._directory, self._topic_id, self._files)
        return self._files.list_directory(self._directory)

    def _check_others(self) -> None:
        """Raise an error if something other than a file has the name of a segment: the log would seem to end before it.
        Also raise an error for a directory with the name of another file that the partition needs. Recovery replaces
        anything else with such a name, or reports the file as missing when it needs it."""
        with reading(self._directory):
            others = self._files.list_others(self._directory)
        for name in others:
            path = f"{self._directory}/{name}"
            is_small = name.removesuffix(".tmp") in (METADATA_NAME, EPOCHS_NAME)
            if base_offset_of(name) is not None or (is_small and os.path.isdir(path) and not self._files.is_link(path)):
                raise unusable(path, OSError(errno.ENXIO, what_is_at(path) or "it is no file"))

    def _check_metadata(self, sizes: dict[str, int]) -> None:
        path = f"{self._directory}/{METADATA_NAME}"
        owner = owner_of(self._directory, self._topic_id)
        with reading(path):
            content = read_file(self._files, path) if METADATA_NAME in sizes else b""
        if not _can_be_read(path, content) and power_cut_may_have_taken_metadata(self._checkpoint, content):
            write_file(self._files, path, encode_metadata(owner), sync=True)
            return
        if METADATA_NAME not in sizes:
            text = encode_metadata(owner).decode("ascii")
            raise CorruptLogError(f"{path}: {why_absent(path)}; if these are the right files, restore it: {text!r}")
        found = decode_metadata(path, content)
        if found.topic_id != self._topic_id:
            raise CorruptLogError(
                f"{path}: the files belong to topic {topic_id_text(found.topic_id)}, not to "
                f"{topic_id_text(self._topic_id)}; move the directory away and restore the right one"
            )
        if found.partition not in (owner.partition, -1):
            raise CorruptLogError(
                f"{path}: the files belong to partition {found.partition} of the topic, not to {owner.partition}; "
                "move the directory away and restore the right one"
            )
        if found != owner:
            # Written by Kafka or an older broker, without the number.
            replace_file(self._files, path, encode_metadata(owner))
            self._files.sync_directory(self._directory)

    def _read_epochs(self, sizes: dict[str, int]) -> list[EpochStart]:
        path = f"{self._directory}/{EPOCHS_NAME}"
        with reading(path):
            epochs = decode_epochs(path, read_file(self._files, path)) if EPOCHS_NAME in sizes else []
        known = self._checkpoint.epochs
        if epochs[: len(known)] != known or epochs_unknown_below(self._checkpoint, epochs):
            text = encode_epochs(known).decode("ascii")
            why = "the file is damaged" if EPOCHS_NAME in sizes else why_absent(path)
            raise CorruptLogError(f"{path}: {why}; restore it, it began with {text!r}")
        return epochs

    def _check_last_epoch(self, found: RecoveredPartition) -> None:
        """Raise CorruptLogError if the last epoch begins above the end of the log. Records that were appended below the
        beginning of an epoch could not be read."""
        if beyond := epoch_beyond_end(found.epochs, found.log_end_offset):
            raise CorruptLogError(
                f"{self._directory}/{EPOCHS_NAME}: {beyond}; restore the file, or run "
                f"`{self._repair_command}`, which writes it anew"
            )

    def _known_segments(self, on_disk: dict[int, int]) -> list[SegmentCheckpoint]:
        """Return the checkpoint's segments that hold records from the log start offset on, after checking that they are
        whole."""
        known = self._checkpoint.segments
        log_start_offset = self._checkpoint.log_start_offset
        kept = [
            entry
            for entry, after in zip_longest(known, known[1:])
            if after is None or after.base_offset > log_start_offset
        ]
        for entry in kept:
            path = self._segment(entry.base_offset).log_path
            size_bytes = on_disk.get(entry.base_offset)
            if size_bytes is None and entry.size_bytes:
                raise CorruptLogError(
                    f"{path}: {why_absent(path)}; restore it from a backup, or see what "
                    f"`{self._repair_command}` can do without it"
                )
            if size_bytes is None:
                # The file was created but never written, and its name was not synced.
                on_disk[entry.base_offset] = 0
                write_file(self._files, path, b"", sync=True)
                self._files.sync_directory(self._directory)
            elif size_bytes < entry.size_bytes or (size_bytes > entry.size_bytes and entry is not kept[-1]):
                raise CorruptLogError(
                    f"{path}: the file has {size_bytes} bytes, but it had {entry.size_bytes} when it was synced; "
                    f"restore it from a backup, or see what `{self._repair_command}` can do"
                )
        return kept

    def _new_segments(self, on_disk: dict[int, int], known: list[SegmentCheckpoint]) -> list[int]:
        """Return the base offsets of the segments above the known ones. Delete segments below them, which finishes an
        earlier deletion."""
        if not known:
            return sorted(on_disk)
        for base_offset in on_disk:
            if base_offset < known[0].base_offset:
                self._segment(base_offset).remove_files()
        unknown = on_disk.keys() - {entry.base_offset for entry in known}
        if stray := [base for base in unknown if known[0].base_offset < base < known[-1].base_offset]:
            raise CorruptLogError(
                f"{self._segment(min(stray)).log_path}: the file is no part of this log; move it away or, if a repair "
                f"gave it up before, see what `{self._repair_command}` can do with it"
            )
        return sorted(base for base in unknown if base > known[-1].base_offset)

    def _unsynced_bound_bytes(self) -> int:
        # If the topic became `written` after the checkpoint, it syncs only at the next checkpoint.
        return -1 if self._config.durability is Durability.WRITTEN else self._checkpoint.unsynced_bound_bytes

    def _sync_names(self) -> None:
        """Sync the names of the files that the tail recovery kept."""
        if not self._checkpoint.segments:
            # Perhaps the last run ended before its first sync.
            with self._handles.pinned(f"{self._directory}/{METADATA_NAME}") as handle:
                self._files.fdatasync(handle.fd)
            self._handles.forget(handle.path)
            self._files.sync_directory(self._directory.rpartition("/")[0])
        self._files.sync_directory(self._directory)

    def _segment(self, base_offset: int) -> Segment:
        return Segment(self._directory, base_offset, self._files, self._handles, self._rules)

    def _restored(self, entry: SegmentCheckpoint) -> Segment:
        segment = self._segment(entry.base_offset)
        segment.size_bytes = entry.size_bytes
        segment.max_timestamp_ms = entry.max_timestamp_ms
        segment.first_crc = entry.first_crc
        segment.sealed = True
        return segment

    def _raise_epoch(self, found: RecoveredPartition) -> None:
        """Begin a new leader epoch, so that clients notice if they have read records that are lost."""
        highest = max((entry.epoch for entry in found.epochs), default=0)
        below = [entry for entry in found.epochs if entry.start_offset < found.log_end_offset]
        found.epochs = [*below, EpochStart(highest + 1, found.log_end_offset)]


def _can_be_read(path: str, metadata: bytes) -> bool:
    try:
        decode_metadata(path, metadata)
    except CorruptLogError:
        return False
    return True
