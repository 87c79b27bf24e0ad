"""Verifies partitions: each segment, the offsets between segments, the small files and the recovery point."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Final

from logbroker.errors import CorruptLogError, DataDirError
from logbroker.errors.system import reason_of
from logbroker.record.header import HEADER_BYTES, parse_header
from logbroker.storage.data_dir import META_NAME
from logbroker.storage.files import kind_name, open_regular, read_regular
from logbroker.storage.partition_checkpoint import (
    PartitionCheckpoint,
    SegmentCheckpoint,
    power_cut_may_have_taken_metadata,
)
from logbroker.storage.partition_files import (
    EPOCHS_NAME,
    LINKED_ADVICE,
    METADATA_NAME,
    decode_epochs,
    decode_metadata,
    encode_epochs,
    owner_of,
)
from logbroker.tools.segments.findings import Finding, PartitionReport, Severity
from logbroker.tools.segments.locate import (
    Located,
    PartitionFiles,
    SegmentFile,
    file_bytes,
    has_partition_files,
    segments_in,
)
from logbroker.tools.segments.metadata import Knowledge, Metadata, is_held, knowledge_of, open_metadata
from logbroker.tools.segments.partition_checks import (
    EpochRuns,
    epoch_faults,
    gap_between,
    indexes_are_complete,
    is_torn_tail,
    needed_segments,
    never_written,
    segment_faults,
    synced_bytes,
    unknown_epochs,
)
from logbroker.tools.segments.verify_segment import Progress, SegmentCheck
from logbroker.types import topic_id_text

_MENDED: Final = "; the next start writes it anew"


def verify(located: Located, progress: Progress, *, gaps_allowed: bool | None = None) -> Iterator[PartitionReport]:
    """Verify partitions, one after the other. `gaps_allowed` None allows gaps if another program wrote the log.

    Anything that cannot be read is reported as a finding, and the rest is verified.
    """
    by_data_dir: dict[Path | None, list[PartitionFiles]] = {data_dir: [] for data_dir in located.data_dirs}
    for partition in located.partitions:
        by_data_dir.setdefault(partition.data_dir, []).append(partition)
    for data_dir, members in by_data_dir.items():
        metadata, trouble = (None, "") if data_dir is None else open_metadata(data_dir)
        live = data_dir is not None and is_held(data_dir)
        if data_dir in located.data_dirs and metadata is None:
            yield _unreadable(data_dir / META_NAME, trouble)
        try:
            for partition in members:
                look_up = partial(knowledge_of, partition, metadata, live=live, trouble=trouble)
                known = look_up()
                report = _PartitionVerification(partition, known, look_up, progress, gaps_allowed).run()
                if not report.sound and _is_deleted_meanwhile(partition, known, metadata):
                    report.findings = [_deleted_meanwhile(partition)]
                yield report
            if metadata is not None and data_dir in located.data_dirs:
                yield from _missing(data_dir, metadata, {partition.directory for partition in members})
        finally:
            if metadata is not None:
                metadata.close()


def _is_deleted_meanwhile(partition: PartitionFiles, known: Knowledge, metadata: Metadata | None) -> bool:
    """Whether a running broker has deleted the topic of a partition since it was located. Then the files were removed,
    or are those of another topic of this name, while they were read."""
    if not known.live or metadata is None:
        return False
    if known.topic_id is None:  # The topic was deleted before the store was opened, or it is no topic's directory.
        return not os.path.lexists(partition.directory)
    with suppress(CorruptLogError, DataDirError):
        return not metadata.has_topic(known.topic_id)
    return False


def _deleted_meanwhile(partition: PartitionFiles) -> Finding:
    return Finding(severity=Severity.NOTE, path=str(partition.directory), message="its topic was deleted meanwhile")


def _missing(data_dir: Path, metadata: Metadata, verified: Container[Path]) -> Iterator[PartitionReport]:
    """Report partitions that held records, but have no directory, or have something else in its place."""
    for name, (topic_id, row) in metadata.topics.items():
        for number in range(row.partitions):
            path = data_dir / f"{name}-{number}"
            if path in verified:
                continue
            try:
                checkpoint = metadata.checkpoint(topic_id, number)
                held = f"it held offsets up to {checkpoint.recovery_point}" if checkpoint is not None else ""
                report = None
                if path.is_dir():
                    # A running broker may have made it since the directories were listed.
                    if checkpoint is not None and checkpoint.recovery_point and not has_partition_files(path):
                        report = _unreadable(path, f"the directory has no file of a partition; {held}")
                elif os.path.lexists(path):
                    message = f"it is no directory, but {kind_name(os.lstat(path).st_mode)}"
                    report = _unreadable(path, f"{message}; {held}" if held else message)
                elif checkpoint is not None and checkpoint.recovery_point:
                    report = _unreadable(path, f"the directory is missing; {held}")
                # A broker says in the store that a topic is deleted before it removes the directories.
                if report is not None and metadata.has_topic(topic_id):
                    yield report
            except (CorruptLogError, DataDirError) as error:
                yield _unreadable(path, error.message)


def _unreadable(path: Path, message: str) -> PartitionReport:
    finding = Finding(severity=Severity.ERROR, path=str(path), message=message)
    return PartitionReport(path=str(path), live=False, segments=[], findings=[finding])


def _read_small(path: Path) -> bytes:
    """Return the content of a small file, which a running broker may make at this moment. Raises OSError, and
    CorruptLogError if the file is too large."""
    try:
        return read_regular(path)
    except FileNotFoundError:
        if os.path.exists(path):
            return read_regular(path)
        raise


def _is_another(segment: SegmentFile, entry: SegmentCheckpoint) -> bool:
    """Whether a file does not begin with the batch that the broker wrote there."""
    with open(open_regular(segment.path), "rb") as log:
        header = log.read(HEADER_BYTES)
    return len(header) == HEADER_BYTES and entry.first_crc not in (parse_header(header).crc, -1)


class _PartitionVerification:
    def __init__(
        self,
        partition: PartitionFiles,
        known: Knowledge,
        look_up: Callable[[], Knowledge],
        progress: Progress,
        gaps_allowed: bool | None,
    ) -> None:
        """`look_up` returns what the metadata store knows at the time of the call. `known` is from before."""
        self._partition = partition
        self._known = known
        self._look_up = look_up
        self._progress = progress
        self._gaps_allowed = known.may_have_gaps if gaps_allowed is None else gaps_allowed
        self._epochs = EpochRuns()
        self._report = PartitionReport(path=str(partition.directory), live=known.live, segments=[], findings=[])

    def run(self) -> PartitionReport:
        partition, known = self._partition, self._known
        if known.topic_id is not None and partition.directory.is_symlink():
            message = f"it is a symbolic link, which the broker does not follow; {LINKED_ADVICE}"
            self._tell(Severity.ERROR, str(partition.directory), message)
        if known.trouble:
            self._tell(Severity.NOTE, str(partition.directory), f"the recovery point is not known: {known.trouble}")
        segments = partition.segments
        if partition.whole:
            # List them again: a running broker may have begun a segment that the metadata store knows already.
            try:
                segments = segments_in(partition.directory)
            except OSError as error:
                self._tell_unreadable(partition.directory, error)
                return self._report
            self._check_sizes(segments)
        end_offset: int | None = None
        leader_epoch = -1
        before_was_active = False
        is_complete = True
        unwritten = self._never_written(segments)
        for segment, after in zip_longest(segments, segments[1:]):
            if segment.base_offset in unwritten:
                self._tell(Severity.NOTE, segment.path, "it is empty and was never written; the next start removes it")
                continue
            if known.topic_id is not None and os.path.islink(segment.path) and os.path.exists(segment.path):
                message = "it is a symbolic link, which the broker does not follow; put the file itself there"
                self._tell(Severity.ERROR, segment.path, message)
            try:
                follows = self._partition.whole and after is not None and after.base_offset not in unwritten
                following = after.base_offset if after is not None and follows else None
                check = self._check_segment(segment, leader_epoch, following)
            except OSError as error:
                if isinstance(error, FileNotFoundError) and not os.path.lexists(segment.path):
                    # Retention has removed it before it was read.
                    self._tell(Severity.NOTE, segment.path, "it was removed meanwhile")
                else:
                    self._tell_unreadable(segment.path, error)
                end_offset = None
                is_complete = False
                continue
            gap = None if end_offset is None else gap_between(end_offset, segment.base_offset)
            # A running broker creates the next file before it has written the end of this file.
            growing = known.live and before_was_active
            if (
                gap is not None
                and not growing
                and not (self._gaps_allowed and segment.base_offset >= (end_offset or 0))
            ):
                self._tell(Severity.ERROR, segment.path, gap, 0)
            end_offset = check.facts.next_offset
            before_was_active = check.active
            leader_epoch = check.leader_epoch
        if partition.whole:
            self._tell_side_files()
            self._check_metadata()
            self._check_epochs(end_offset or 0, is_complete=is_complete)
        return self._report

    def _never_written(self, segments: Sequence[SegmentFile]) -> Container[int]:
        """Return the base offsets of segments that the next start of the broker removes."""
        is_stopped = self._partition.whole and self._known.topic_id is not None and not self._known.live
        return never_written(self._known.checkpoint, file_bytes(segments)) if is_stopped else ()

    def _check_sizes(self, segments: Sequence[SegmentFile]) -> None:
        checkpoint = self._known.checkpoint
        if checkpoint is None:
            return
        sizes = file_bytes(segments)
        faults = segment_faults(checkpoint, sizes)
        # A running broker stores the new log start before it removes a file.
        later = self._look_up().checkpoint if faults and self._known.live else None
        needed = {entry.base_offset for entry in needed_segments(later or checkpoint)}
        for base_offset, reason in faults:
            path = f"{self._partition.directory}/{base_offset:020d}.log"
            if base_offset not in sizes and (os.path.lexists(path) or base_offset not in needed):
                continue  # Something else is there, and the reader reports it; or retention has removed it.
            self._tell(Severity.ERROR, path, reason, sizes.get(base_offset))

    def _check_segment(self, segment: SegmentFile, leader_epoch: int, following: int | None) -> SegmentCheck:
        """Check a segment. `following` is the offset at which the next one begins."""
        known, checkpoint = self._known, self._known.checkpoint
        active = self._partition.is_last(segment)
        reaches, ends_there = following or 0, following is not None
        if active and following is None and checkpoint is not None:
            reaches, ends_there = checkpoint.recovery_point, known.stopped_cleanly
        check = SegmentCheck(
            segment,
            gaps_allowed=self._gaps_allowed,
            active=active,
            live=known.live,
            indexes_complete=indexes_are_complete(checkpoint, segment.base_offset, live=known.live),
            leader_epoch=leader_epoch,
            reaches=reaches,
            ends_there=ends_there,
        )
        entries = {entry.base_offset: entry for entry in checkpoint.segments} if checkpoint else {}
        entry = entries.get(segment.base_offset)
        holds_recovery_point = checkpoint is not None and bool(entries) and entry is checkpoint.segments[-1]
        check.run(
            self._epochs,
            self._progress,
            recovery_point=checkpoint.recovery_point if checkpoint is not None and holds_recovery_point else None,
            recovery_position=entry.size_bytes if entry else 0,
            ceiling_ms=entry.max_timestamp_ms if entry else -1,
        )
        self._report.segments.append(check.facts)
        synced = synced_bytes(checkpoint, segment.base_offset, check.facts.size_bytes)
        for fault in check.faults:
            severity, message = Severity.ERROR, fault.reason
            if is_torn_tail(fault, synced, last_segment=active, power_cut=known.power_cut and not known.live):
                if known.live:
                    message = (
                        f"offset {fault.offset}: {fault.reason}; it does not change, so it is no write in progress:"
                        " `logbroker topic describe` shows whether the partition is offline"
                    )
                elif known.stopped_cleanly:
                    message = (
                        f"offset {fault.offset}: {fault.reason}; the broker had stopped cleanly, so no crash"
                        " explains it, and the partition will be offline: see `logbroker segment repair`"
                    )
                else:
                    severity = Severity.TORN_TAIL
                    message = f"offset {fault.offset}: {fault.reason}; the broker will cut it off when it starts"
            elif fault.end > fault.position:
                message = f"offset {fault.offset}: {fault.reason}"
                if synced is not None and fault.position < synced:
                    message += "; below the recovery point"
                if fault.followed:
                    message += f"; a good batch follows at byte {fault.end}"
            self._tell(severity, segment.path, message, fault.position, fault.end)
        self._report.findings += check.findings
        if entry is not None and not any(fault.position == 0 for fault in check.faults) and _is_another(segment, entry):
            self._tell(Severity.ERROR, segment.path, "its first batch is not the one that was written there", 0)
        return check

    def _tell_side_files(self) -> None:
        paths: list[Path] = []
        with suppress(FileNotFoundError):  # The topic was deleted meanwhile.
            paths = sorted(self._partition.directory.glob("*.log.cut-*"))
        for path in paths:
            with suppress(FileNotFoundError):
                size_bytes = path.stat().st_size
                self._tell(Severity.NOTE, str(path), f"{size_bytes} bytes that recovery or a repair cut off the log")

    def _check_metadata(self) -> None:
        path, content = self._partition.directory / METADATA_NAME, b""
        topic_id = self._known.topic_id
        try:
            content = _read_small(path)
            found = decode_metadata(str(path), content)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not os.path.lexists(path):
                is_mended = self._start_mends_metadata(content)
                severity = Severity.NOTE if topic_id is None or is_mended else Severity.ERROR
                self._tell(severity, str(path), "there is no such file" + _MENDED * is_mended)
            else:
                self._tell_unreadable(path, error)
        except CorruptLogError as error:
            # If the creation of a topic was interrupted, an empty directory remains.
            unfinished = topic_id is None and not self._report.segments
            is_mended = self._start_mends_metadata(content)
            severity = Severity.NOTE if unfinished or is_mended else Severity.ERROR
            self._tell(severity, str(path), error.message.removeprefix(f"{path}: ") + _MENDED * is_mended)
        else:
            number = owner_of(str(self._partition.directory), found.topic_id).partition
            if topic_id is not None and found.topic_id != topic_id:
                of = (
                    f"topic {topic_id_text(found.topic_id)}, but its directory to {topic_id_text(topic_id)} by its name"
                )
                self._tell(Severity.ERROR, str(path), f"it belongs to {of}")
            elif found.partition >= 0 and found.partition != number:
                of = f"partition {found.partition}, but its directory to partition {number} by its name"
                self._tell(Severity.ERROR, str(path), f"it belongs to {of}")

    def _start_mends_metadata(self, content: bytes) -> bool:
        """Whether the next start writes the missing or unreadable partition.metadata anew."""
        known = self._known
        checkpoint = known.checkpoint or PartitionCheckpoint(recovery_point=0, log_start_offset=0, segments=[])
        is_known = known.topic_id is not None and not known.trouble
        return is_known and not known.live and power_cut_may_have_taken_metadata(checkpoint, content)

    def _check_epochs(self, end_offset: int, *, is_complete: bool) -> None:
        path = self._partition.directory / EPOCHS_NAME
        checkpoint = self._known.checkpoint
        known = checkpoint.epochs if checkpoint is not None else []
        try:
            epochs = decode_epochs(str(path), _read_small(path))
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or os.path.lexists(path):
                self._tell_unreadable(path, error)
            elif known:
                content = encode_epochs(known).decode("ascii")
                self._tell(Severity.ERROR, str(path), f"there is no such file; restore it, it began with {content!r}")
            elif self._epochs.runs and not self._known.live:
                self._tell(Severity.NOTE, str(path), "there is no such file")
            return
        except CorruptLogError as error:
            self._tell(Severity.ERROR, str(path), error.message.removeprefix(f"{path}: "))
            return
        reasons = epoch_faults(epochs, self._epochs.runs, end_offset, live=self._known.live) if is_complete else []
        if checkpoint is not None and not reasons:
            runs = self._epochs.runs if is_complete and not self._known.live else None
            reasons = unknown_epochs(epochs, checkpoint, runs, end_offset)
        for reason in reasons:
            self._tell(Severity.ERROR, str(path), reason)

    def _tell_unreadable(self, path: str | Path, error: OSError) -> None:
        text = reason_of(error)
        if isinstance(error, FileNotFoundError):
            text = "it is a symbolic link to nothing"
        else:
            with suppress(OSError):
                mode = os.stat(path).st_mode
                text = text if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else f"it is no file, but {kind_name(mode)}"
        self._tell(Severity.ERROR, str(path), f"it cannot be read: {text}")

    def _tell(
        self, severity: Severity, path: str, message: str, position: int | None = None, end: int | None = None
    ) -> None:
        self._report.findings.append(Finding(severity=severity, path=path, position=position, end=end, message=message))
