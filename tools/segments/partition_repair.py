"""Repairs a partition with an interrupted log: a segment is missing, damaged, or belongs to another partition.

A survey reads the whole directory and reports every fault, the lowest offset first. Then an operator chooses one of two
repairs. *Cut* ends the log at the first fault that is not in deleted records. *Accept gaps* keeps all good batches at
their offsets, and readers skip the missing offsets between them.

Bytes that a repair removes from the log are kept in side files. The row of the metadata store is written last, after
everything else is synced. If a repair dies half-way, a broker still either refuses the partition or can open it safely,
and the repair can be run again.

The new row says that the whole log is synced, so the recovery point is the end of the log. It also begins a new leader
epoch there. A reader that has read further therefore learns that these records are gone (LOG_TRUNCATED), and the next
start of the broker clamps the offsets of groups.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from logbroker.config import MAX_INT64
from logbroker.errors import CorruptLogError
from logbroker.private_files import private_opener
from logbroker.record.header import BatchHeader
from logbroker.storage.continuity import ANY_ORDER, Continuity
from logbroker.storage.files import RealFiles, kind_name, read_regular
from logbroker.storage.partition_checkpoint import (
    PartitionCheckpoint,
    SegmentCheckpoint,
    boot_id,
    epochs_unknown_below,
)
from logbroker.storage.partition_files import (
    EPOCHS_NAME,
    METADATA_NAME,
    EpochStart,
    decode_epochs,
    decode_metadata,
    encode_epochs,
    encode_metadata,
    epoch_beyond_end,
    owner_of,
)
from logbroker.storage.producer_state import ProducerStates
from logbroker.storage.segment import base_offset_of
from logbroker.storage.system_calls import sync_all
from logbroker.tools.segments.batch_chain import BatchChain
from logbroker.tools.segments.batch_checks import MAX_RELATIVE_OFFSET, Fault, header_fault
from logbroker.tools.segments.locate import PartitionFiles, SegmentFile, file_bytes, segments_in
from logbroker.tools.segments.log_file import LogFile
from logbroker.tools.segments.mend import (
    copy_bytes,
    copy_out,
    drop_indexes,
    free_name,
    give,
    knowledge_for_repair,
    named_in_errors,
    put,
    remove,
    removed_after_errors,
    store_checkpoint,
)
from logbroker.tools.segments.metadata import Knowledge, checkpoint_key
from logbroker.tools.segments.partition_checks import needed_segments, never_written
from logbroker.tools.segments.reading import Progress
from logbroker.tools.segments.scan import MAX_FAULTS, LogScan
from logbroker.types import topic_id_text

_MAX_EPOCH: Final = 2**31 - 1


class Problem(msgspec.Struct, kw_only=True):
    """A problem because of which a partition cannot be opened, or cannot be read to its end."""

    path: str
    message: str
    position: int | None = None
    end: int | None = None
    """The position after the wrong bytes."""
    missing: tuple[int, int] | None = None
    """The offsets that cannot be read: the first one, and the offset after the last one."""
    is_in_log: bool = True
    """Whether the problem interrupts the log. If it does not, the log is complete without the named file or bytes."""


class Piece(msgspec.Struct):
    """Good batches that follow each other without a break in one file."""

    start: int
    end: int
    first_offset: int
    next_offset: int
    goes_on: bool
    """Whether the first offset may follow the records before this piece."""


class Kept(msgspec.Struct, kw_only=True):
    """The good part of one segment."""

    segment: SegmentFile
    size_bytes: int
    goes_on: bool = True
    """Whether the segment begins at an offset that may follow the segment before it."""
    pieces: list[Piece] = []
    first_crc: int = -1
    max_timestamp_ms: int = -1

    @property
    def kept_bytes(self) -> int:
        return sum(piece.end - piece.start for piece in self.pieces)

    @property
    def removed(self) -> Iterator[tuple[int, int]]:
        """The ranges of bytes before, between and after the pieces."""
        ends = [0, *(piece.end for piece in self.pieces)]
        starts = [*(piece.start for piece in self.pieces), self.size_bytes]
        return ((end, start) for end, start in zip(ends, starts, strict=True) if end < start)


class Survey(msgspec.Struct, kw_only=True):
    """The contents of a partition's directory."""

    partition: PartitionFiles
    known: Knowledge
    problems: list[Problem] = []
    """The problems in the order of the log. Problems of other files come first."""
    kept: list[Kept] = []
    strays: list[str] = []
    """Files and directories that are named like log files and are not part of the log."""
    epochs: list[EpochStart] = []
    highest_epoch: int = 0
    end_offset: int = 0
    """The offset after the last good batch."""
    reached_offset: int = 0
    """The offset up to which the log is known to have reached."""
    headers: list[BatchHeader] = []
    """Headers of the good batches above the recovery point that have a producer id."""
    returned: list[tuple[int, int]] = []
    """The ranges of offsets that an earlier repair gave up, and that are back. The end of a range is not included."""
    undecided: list[Problem] = []
    """The files that may be taken back or not, as only the operator knows whether they are of this partition."""
    is_foreign: bool = False
    """Whether the files belong to another partition, so that nothing can be repaired."""
    rewrite_metadata: bool = False

    @property
    def log_start_offset(self) -> int:
        """The offset below which all records are deleted, whether their bytes are still there or not."""
        checkpoint = self.known.checkpoint
        return checkpoint.log_start_offset if checkpoint is not None else 0


class PartitionPlan(msgspec.Struct, kw_only=True):
    """The plan of a repair."""

    survey: Survey
    kept: list[Kept]
    set_aside: list[tuple[str, str]]
    """Files to be renamed, and their new names."""
    end_offset: int
    """The offset at which the log will end."""
    begin_segment: bool
    """Whether an empty segment is created at `end_offset`."""
    lost: list[tuple[int, int]]
    """The ranges of offsets that can no longer be read. The end of a range is not included."""
    epochs: list[EpochStart] | None
    checkpoint: PartitionCheckpoint | None

    @property
    def changed(self) -> list[Kept]:
        return [kept for kept in self.kept if kept.kept_bytes != kept.size_bytes]


def survey(partition: PartitionFiles, progress: Progress, *, take_back: bool = False) -> Survey:
    """Read a whole partition, and report what is wrong. Writes nothing.

    `take_back`: whether to take back files that fit into an accepted gap even if it is not known which files were lost
    there. Raises DataDirError and CorruptLogError if there is a metadata store that cannot be read, and OSError.
    """
    if partition.directory.is_symlink():
        raise CorruptLogError(f"{partition.directory}: it is a symbolic link; put the directory itself there")
    known = knowledge_for_repair(partition, with_producers=True)
    return _Surveyor(partition, known, progress, take_back=take_back).run()


class _Surveyor:
    def __init__(self, partition: PartitionFiles, known: Knowledge, progress: Progress, *, take_back: bool) -> None:
        self._directory = partition.directory
        self._known = known
        self._checkpoint = known.checkpoint
        self._progress = progress
        self._takes_unknown_back = take_back
        self._survey = Survey(partition=partition, known=known)
        self._expected: int | None = None
        """The offset that comes next; None if any offset may come."""
        self._leader_epoch = -1
        self._entries: list[SegmentCheckpoint] = []
        """The segments that the metadata store knows, from the log start on."""
        self._lacks_bytes = False
        """Whether the latest segment has fewer bytes than the metadata store knows. The offsets that are missing in it
        and behind it are then not in a gap that an earlier repair accepted."""
        self._rules = Continuity()
        """The rules for where offsets may be missing."""
        self._epoch_rules = Continuity()
        """The rules for the leader epochs of batches."""

    def run(self) -> Survey:
        found, checkpoint = self._survey, self._checkpoint
        self._check_metadata()
        if found.is_foreign:
            return found
        are_known = self._read_epochs()
        # A log without a checkpoint was written by another program, which may have left gaps.
        self._rules = Continuity(found.epochs, MAX_INT64 if checkpoint is None else checkpoint.gaps_below)
        self._epoch_rules = self._rules if are_known and checkpoint is not None else ANY_ORDER
        entries = self._entries = self._needed()
        if checkpoint is not None:
            self._expected = entries[0].base_offset if entries else checkpoint.recovery_point
        segments = list(self._segments(entries))
        last_base = entries[-1].base_offset if entries else -1
        bases = {entry.base_offset for entry in entries}
        for number, segment in enumerate(segments):
            entry = next((each for each in entries if each.base_offset == segment.base_offset), None)
            behind = (each.base_offset for each in segments[number + 1 :])
            next_base = next((base for base in behind if base in bases or base > last_base), None)
            later = (each.base_offset for each in entries if each.base_offset > segment.base_offset)
            closed_at = next(later, MAX_INT64)
            if entry is None and closed_at != MAX_INT64 and (why_not := self._take_back(segment, closed_at)):
                self._tell_stray(segment, why_not)
                continue
            problems = len(found.problems)
            self._look_at(segment, next_base, closed_at, entry)
            if entry is not None and len(found.problems) == problems:
                self._check_size(segment, entry.size_bytes, is_closed=closed_at != MAX_INT64)
        end = self._expected or 0
        found.end_offset = found.reached_offset = end
        if checkpoint is not None:
            found.reached_offset = max(end, checkpoint.recovery_point)
            for missing in self._missing_before(found.reached_offset):
                self._tell_missing(str(self._directory), *missing, "at the end of the log")
        self._check_last_epoch()
        return found

    def _tell_missing(self, path: str, first: int, behind: int, where: str) -> None:
        message = f"offsets {first} to {behind - 1} are missing {where}"
        self._survey.problems.append(Problem(path=path, message=message, missing=(first, behind)))

    # --- the small files ---------------------------------------------------------------------------------------------

    def _check_metadata(self) -> None:
        topic_id = self._known.topic_id
        if topic_id is None:
            return
        path = str(self._directory / METADATA_NAME)
        owner = owner_of(str(self._directory), topic_id)
        try:
            content = decode_metadata(path, read_regular(path))
        except (OSError, CorruptLogError) as error:
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                raise
            self._survey.rewrite_metadata = True
            message = "it is missing or damaged, and is written anew, if these are the right files"
            self._survey.problems.append(Problem(path=path, message=message, is_in_log=False))
            return
        of = ""
        if content.topic_id != topic_id:
            of = f"topic {topic_id_text(content.topic_id)}, not to {topic_id_text(topic_id)}"
        elif content.partition not in (owner.partition, -1):
            of = f"partition {content.partition} of the topic, not to {owner.partition}"
        if of:
            self._survey.is_foreign = True
            message = f"the files belong to {of}; move the directory away and restore the right one"
            self._survey.problems.append(Problem(path=path, message=message))

    def _read_epochs(self) -> bool:
        """Read the leader epochs. Return whether all of them are known, so that batches can be compared with them."""
        found, path = self._survey, str(self._directory / EPOCHS_NAME)
        known = self._checkpoint.epochs if self._checkpoint is not None else []
        epochs: list[EpochStart] = []
        try:
            epochs = decode_epochs(path, read_regular(path))
        except FileNotFoundError:
            pass
        except CorruptLogError:
            message = "it is damaged, and is written anew from what is known"
            found.problems.append(Problem(path=path, message=message, is_in_log=False))
        found.highest_epoch = max((entry.epoch for entry in (*epochs, *known)), default=0)
        unknown = epochs_unknown_below(self._checkpoint, epochs) if self._checkpoint is not None else []
        if self._known.topic_id is not None and (epochs[: len(known)] != known or unknown):
            message = "it is not what the metadata store knows" if epochs else "it is missing"
            if not any(problem.path == path for problem in found.problems):
                found.problems.append(Problem(path=path, message=f"{message}, and is written anew", is_in_log=False))
            epochs = list(known)
            found.epochs = epochs
            return False
        found.epochs = epochs
        return bool(epochs)

    def _check_last_epoch(self) -> None:
        """Drop the leader epochs that begin above the end of the log. The file has no checksum, so it does not tell
        where the log ends."""
        found = self._survey
        if self._known.topic_id is not None and (beyond := epoch_beyond_end(found.epochs, found.reached_offset)):
            path = str(self._directory / EPOCHS_NAME)
            found.problems.insert(0, Problem(path=path, message=f"{beyond}; it is written anew", is_in_log=False))
            found.epochs = [entry for entry in found.epochs if entry.start_offset <= found.reached_offset]

    # --- the segments ------------------------------------------------------------------------------------------------

    def _needed(self) -> list[SegmentCheckpoint]:
        """Return the segments that the metadata store knows, from the log start on."""
        return [] if self._checkpoint is None else needed_segments(self._checkpoint)

    def _segments(self, entries: list[SegmentCheckpoint]) -> Iterator[SegmentFile]:
        """Yield the log files that may be segments, in order, and report the others."""
        try:
            segments = segments_in(self._directory)
        except FileNotFoundError:
            segments = ()
        unwritten = never_written(self._checkpoint, file_bytes(segments)) if self._known.topic_id is not None else ()
        for segment in segments:
            mode = os.lstat(segment.path).st_mode
            if not stat.S_ISREG(mode):
                self._tell_stray(segment, f"it is no file, but {kind_name(mode)}")
            elif entries and segment.base_offset < entries[0].base_offset:
                continue  # It is below the log start: the next start of the broker removes it.
            elif segment.base_offset in unwritten:
                self._survey.strays.append(segment.path)
            else:
                yield segment

    def _tell_stray(self, segment: SegmentFile, message: str) -> None:
        if stat.S_ISREG(os.lstat(segment.path).st_mode):
            message += _right_name(segment)
        self._survey.strays.append(segment.path)
        self._survey.problems.append(Problem(path=segment.path, message=message, is_in_log=False))

    def _missing_before(self, base_offset: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of offsets that are missing between the latest segment and one that begins at `base_offset`,
        and that no earlier repair gave up.

        As at a start, an accepted gap excuses no segment that the metadata store knows, and none of its bytes.
        """
        end = self._expected
        if end is None or end >= base_offset:
            return
        if not self._rules.may_skip_to(base_offset):
            yield end, base_offset
            return
        latest = self._survey.kept[-1].segment.base_offset if self._survey.kept else -1
        gone = [entry for entry in self._entries if latest < entry.base_offset < base_offset and entry.size_bytes]
        starts = {max(end, entry.base_offset) for entry in gone} | ({end} if self._lacks_bytes else set())
        given_up = self._checkpoint.given_up if self._checkpoint is not None else []
        known = [entry.base_offset for entry in (*self._entries, *given_up)]
        missing: list[tuple[int, int]] = []
        for start in sorted(starts):
            behind = min([base_offset, *(base for base in known if base > start)])
            if missing and missing[-1][1] == start:
                start, _ = missing.pop()
            missing.append((start, behind))
        yield from missing

    def _look_at(
        self, segment: SegmentFile, next_base: int | None, closed_at: int, entry: SegmentCheckpoint | None
    ) -> None:
        """Read a whole log file, even beyond its known size, because inserted bytes move the bytes behind them.

        `closed_at` is the offset at which the next segment was begun, if it is known. No offset from there on belongs
        to this segment. `entry` is what the metadata store knows of the segment.
        """
        found = self._survey
        first_crc = entry.first_crc if entry is not None else -1
        known_bytes = entry.size_bytes if entry is not None else 0
        if self._expected is not None and segment.base_offset < self._expected:
            message = f"it begins at offset {segment.base_offset}, but the segment before ends at {self._expected}"
            self._tell_stray(segment, message)
            return
        with LogFile(segment.path) as log:
            size_bytes = log.size_bytes
            first = log.header(0)
            if (
                first is not None
                and first_crc not in (-1, first.crc)
                and _is_sound(log, first)
                and not self._lost_its_first(segment, first, first_crc)
                and not self._has_its_first_again(log, segment, first_crc)
            ):
                self._tell_stray(segment, "its first batch is not the one that was written there")
                return
            before, lacked_bytes = self._expected, self._lacks_bytes
            missing = list(self._missing_before(segment.base_offset))
            self._expected = segment.base_offset
            self._lacks_bytes = size_bytes < known_bytes
            faults: list[Fault] = []
            kept = self._keep(log, segment, closed_at, next_base, faults)
            kept.goes_on = not missing
            self._progress(size_bytes)
        if not kept.pieces and size_bytes:
            self._tell_stray(segment, "it has no batch that is good")
            self._expected = before if before is not None else segment.base_offset
            self._lacks_bytes = lacked_bytes
            return
        self._lacks_bytes = kept.kept_bytes < known_bytes
        for each in missing:
            self._tell_missing(segment.path, *each, "before it")
        self._tell_damage(kept, faults)
        found.kept.append(kept)

    def _take_back(self, segment: SegmentFile, closed_at: int) -> str:
        """Take back a file that the metadata store does not know, if it fills a gap that an earlier repair accepted.
        Return why it is not taken back, or "".

        Its batches must be sound and continue each other from the offset of its name on. No batch names its partition,
        so the CRC of the first batch must be the one that was known of the lost file. If none was known, the operator
        must say that the file is the right one. `closed_at` is the offset at which the next segment begins.
        """
        before, first = self._expected, segment.base_offset
        if before is None or first < before or not self._rules.may_skip_to(closed_at):
            return "it is no part of this log"
        with LogFile(segment.path) as log:
            scan = LogScan(log, first)
            epochs_are_right = all(
                header.leader_epoch == self._rules.epoch_at(header.base_offset) for _, header in scan.batches()
            )
            behind = scan.next_offset
            if scan.faults or not epochs_are_right or not first < behind <= closed_at:
                return "it does not fit into the gap that an earlier repair accepted"
            given_up = self._checkpoint.given_up if self._checkpoint is not None else []
            first_crc = next((entry.first_crc for entry in given_up if entry.base_offset == first), -1)
            header = log.header(0)
            assert header is not None
            if first_crc not in (-1, header.crc) and not self._has_its_first_again(log, segment, first_crc):
                return "its first batch is not the one of the file that an earlier repair gave up"
        has = f"it has offsets {first} to {behind - 1}, which an earlier repair gave up"
        if first_crc == -1 and not self._takes_unknown_back:
            why_not = (
                f"{has}, but nothing is known of the file that was lost there, so it may be of another partition; if"
                " you know that it is of this one, take it back with --take-back, else move it away"
            )
            self._survey.undecided.append(Problem(path=segment.path, message=why_not, is_in_log=False))
            return why_not
        self._survey.returned.append((first, behind))
        self._survey.problems.append(
            Problem(path=segment.path, message=f"{has}; it is taken back", is_in_log=False),
        )
        return ""

    def _check_size(self, segment: SegmentFile, size_bytes: int, *, is_closed: bool) -> None:
        """Compare the size of a segment whose batches are all good with that in the metadata store, which has that of
        its part below the recovery point. The segment may be a copy that was made before a repair."""
        found_bytes = os.path.getsize(segment.path)
        if not is_closed:
            with LogFile(segment.path) as log:
                batches = LogScan(log, segment.base_offset, gaps_allowed=True, check_crc=False).batches()
                above = (start for start, header in batches if header.base_offset >= self._known_end())
                found_bytes = next(above, found_bytes)
        if found_bytes != size_bytes:
            message = f"it has {found_bytes} bytes, the metadata store says {size_bytes}; all of them are good"
            self._survey.problems.append(Problem(path=segment.path, message=message, is_in_log=False))

    def _known_end(self) -> int:
        """Return the offset up to which the log is known to have reached."""
        return self._checkpoint.recovery_point if self._checkpoint is not None else 0

    def _keep(
        self, log: LogFile, segment: SegmentFile, closed_at: int, next_base: int | None, faults: list[Fault]
    ) -> Kept:
        """Take the good batches of a file that form one ascending log. If not all of them do, read the file again and
        choose the best chain of them."""
        found = self._survey
        before = self._expected, self._leader_epoch, found.epochs, found.highest_epoch, len(found.headers)
        kept = Kept(segment=segment, size_bytes=log.size_bytes)
        if self._take_all(kept, self._batches(log, segment, closed_at, faults), next_base):
            return kept
        self._expected, self._leader_epoch, found.epochs, found.highest_epoch, headers = before
        del found.headers[headers:]
        faults.clear()
        chain = BatchChain()
        for position, header in self._batches(log, segment, closed_at, faults):
            chain.add(position, header.size_bytes, header.base_offset, header.next_offset, self._order_epoch(header))
        kept = Kept(segment=segment, size_bytes=log.size_bytes)
        chosen = ((position, log.header(position)) for position in chain.best())
        self._take_all(kept, ((position, header) for position, header in chosen if header is not None), next_base)
        return kept

    def _batches(
        self, log: LogFile, segment: SegmentFile, closed_at: int, faults: list[Fault]
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the good batches of a file that may be part of the segment, however much is damaged."""
        position, epoch_before = 0, self._leader_epoch
        end_offset = min(closed_at, segment.base_offset + MAX_RELATIVE_OFFSET + 1)
        gaps_allowed = self._rules.gaps_below > segment.base_offset
        while True:
            scan = LogScan(log, segment.base_offset, gaps_allowed=gaps_allowed, resume=True)
            for start, header in scan.batches(position):
                if (
                    segment.base_offset <= header.base_offset
                    and header.next_offset <= end_offset
                    and epoch_before <= self._order_epoch(header)
                    and not self._epoch_rules.fault(header, header.base_offset, -1)
                ):
                    yield start, header
            faults += scan.faults
            if len(scan.faults) < MAX_FAULTS or not scan.faults[-1].followed:
                return
            position = scan.faults[-1].end

    def _order_epoch(self, header: BatchHeader) -> int:
        """Return the leader epoch that must not go back from batch to batch. It is a constant where the offset of a
        batch determines its epoch."""
        return header.leader_epoch if self._epoch_rules.may_skip_to(header.base_offset) else _MAX_EPOCH

    def _take_all(self, kept: Kept, batches: Iterator[tuple[int, BatchHeader]], next_base: int | None) -> bool:
        """Take batches up to the first one in which the offset or the epoch goes back. Return whether there is no such
        batch."""
        last: tuple[int, BatchHeader] | None = None
        for position, header in batches:
            if last is not None:
                before = last[1]
                if header.base_offset < before.next_offset or self._order_epoch(header) < self._order_epoch(before):
                    return False
                self._take(kept, *last)
            last = position, header
        if last is not None and not self._is_astray(kept, *last, next_base):
            self._take(kept, *last)
        return True

    def _is_astray(self, kept: Kept, position: int, header: BatchHeader, next_base: int | None) -> bool:
        """Whether a flipped bit, not a gap, explains the offset of a segment's last batch. No batch behind it can show
        that its offset is right.

        `next_base`: the offset at which the next segment begins.
        """
        if header.base_offset == self._expected or self._rules.may_skip_to(header.base_offset):
            return False
        if next_base is not None:
            return header.next_offset > next_base
        is_behind_damage = position != (kept.pieces[-1].end if kept.pieces else 0)
        return not is_behind_damage and not self._was_repaired(kept) and header.next_offset > self._known_end()

    @staticmethod
    def _was_repaired(kept: Kept) -> bool:
        """Whether bytes of a file were removed before. A repair that died may not have stored this in the metadata
        yet."""
        path = Path(kept.segment.path)
        return any(path.parent.glob(f"{path.name}.cut-*"))

    @staticmethod
    def _lost_its_first(segment: SegmentFile, found: BatchHeader, first_crc: int) -> bool:
        """Whether a repair took the first batch, which had this CRC, out of a file that begins with another one now.
        The metadata store does not know of it if the repair died, or if a backup was restored."""
        if found.base_offset == segment.base_offset:
            return False  # It has a first batch: that of another partition.
        path = Path(segment.path)
        for side in sorted(path.parent.glob(f"{path.name}.cut-0*")):
            with LogFile(str(side)) as log:
                first = log.header(0)
                if first is None or first.crc == first_crc or not _is_sound(log, first):
                    return True
        return False

    def _has_its_first_again(self, log: LogFile, segment: SegmentFile, first_crc: int) -> bool:
        """Whether a file is the one from which a repair took the first batches: the batch that came first then, which
        has this CRC, follows them."""
        batches = LogScan(log, segment.base_offset, gaps_allowed=True).batches()
        return any(header.crc == first_crc and self._rules.may_skip_to(header.base_offset) for _, header in batches)

    def _take(self, kept: Kept, position: int, header: BatchHeader) -> None:
        found, checkpoint, pieces = self._survey, self._checkpoint, kept.pieces
        end = position + header.size_bytes
        may_skip = not self._lacks_bytes and self._rules.may_skip_to(header.base_offset)
        goes_on = header.base_offset == self._expected or may_skip
        if pieces and pieces[-1].end == position and goes_on:
            pieces[-1].end, pieces[-1].next_offset = end, header.next_offset
        else:
            pieces.append(Piece(position, end, header.base_offset, header.next_offset, goes_on))
        if kept.first_crc < 0:
            kept.first_crc = header.crc
        kept.max_timestamp_ms = max(kept.max_timestamp_ms, header.max_timestamp_ms)
        self._expected = header.next_offset
        self._leader_epoch = header.leader_epoch
        if not found.epochs or header.leader_epoch > found.epochs[-1].epoch:
            found.epochs = [*found.epochs, EpochStart(max(header.leader_epoch, 0), header.base_offset)]
            found.highest_epoch = max(found.highest_epoch, header.leader_epoch)
        is_numbered = header.producer_id >= 0 and not header.is_control
        if checkpoint is not None and header.base_offset >= checkpoint.recovery_point and is_numbered:
            found.headers.append(header)

    def _tell_damage(self, kept: Kept, faults: list[Fault]) -> None:
        """Report the bytes that are not kept, with the reasons that the scan gave, and the missing offsets."""
        path, problems = kept.segment.path, self._survey.problems
        position, offset = 0, kept.segment.base_offset
        for piece in kept.pieces:
            is_damaged = piece.start > position
            # Offsets that were lost by damage are no gap, even if gaps are allowed.
            is_missing = not piece.goes_on or (is_damaged and offset < piece.first_offset)
            missing = (offset, piece.first_offset) if is_missing else None
            if is_damaged:
                problems.append(_damage(path, position, piece.start, faults, missing, self._survey.log_start_offset))
            elif missing is not None:
                self._tell_missing(path, *missing, f"before byte {piece.start}")
            position, offset = piece.end, piece.next_offset
        if position < kept.size_bytes:
            problems.append(_damage(path, position, kept.size_bytes, faults, None, 0))


def _right_name(segment: SegmentFile) -> str:
    """Return advice about the right name of a log file, in case files were mixed up, or "" if its name is right."""
    with LogFile(segment.path) as log:
        first = log.header(0)
        if first is None or first.base_offset == segment.base_offset or not _is_sound(log, first):
            return ""
    name = f"{first.base_offset:020d}.log"
    return f"; it begins with offset {first.base_offset}: if files were mixed up, rename it to {name} and try again"


def _is_sound(log: LogFile, first: BatchHeader) -> bool:
    """Whether the first batch of a file is undamaged."""
    return header_fault(first, log.size_bytes) is None and log.batch_crc(0, first.size_bytes) == first.crc


def _damage(
    path: str, start: int, end: int, faults: list[Fault], missing: tuple[int, int] | None, log_start: int
) -> Problem:
    reason = next((fault.reason for fault in faults if start <= fault.position < end), "it does not go on there")
    lost = ""
    if missing is not None:
        are = "had been deleted" if missing[1] <= log_start else "are lost"
        lost = f"; offsets {missing[0]} to {missing[1] - 1} {are}"
    message = f"bytes {start} to {end - 1} are damaged: {reason}{lost}"
    return Problem(path=path, message=message, position=start, end=end, missing=missing)


def plan_repair(found: Survey, *, accept_gaps: bool) -> PartitionPlan | None:
    """Return what a repair would do, or None if there is nothing to repair. Raises CorruptLogError if no repair can
    help, or if the operator has to decide about a file first."""
    if not found.problems:
        return None
    if found.is_foreign:
        raise CorruptLogError(f"{found.problems[0].path}: {found.problems[0].message}")
    for problem in found.undecided:
        raise CorruptLogError(f"{problem.path}: {problem.message}")
    log_start, ours = found.log_start_offset, found.known.topic_id is not None
    if accept_gaps:
        kept = [each for each in found.kept if each.pieces]
        end_offset = found.reached_offset
    else:
        kept, end_offset = _before_the_first_problem(found)
        if end_offset < log_start:
            kept, end_offset = [], log_start
    names = {each.segment.path for each in kept}
    active = f"{found.partition.directory}/{end_offset:020d}.log"
    gone = [each.segment.path for each in found.kept if each.segment.path not in names]
    begin_segment = ours and (not kept or kept[-1].pieces[-1].next_offset < end_offset)
    if begin_segment and active in gone and not os.path.getsize(active):
        gone.remove(active)  # It is there already, and empty.
    gaps = list(_gaps(kept, end_offset))
    epochs = None
    if ours:
        below = [entry for entry in found.epochs if entry.start_offset < end_offset]
        epochs = [*below, EpochStart(found.highest_epoch + 1, end_offset)]
    lost = [problem.missing for problem in found.problems if problem.missing is not None]
    if not accept_gaps:
        lost = [(end_offset, max([found.end_offset, end_offset, *(behind for _, behind in lost)]))]
    return PartitionPlan(
        survey=found,
        kept=kept,
        set_aside=[(path, free_name(f"{path}.cut-0")) for path in dict.fromkeys([*found.strays, *gone])],
        end_offset=end_offset,
        begin_segment=begin_segment,
        lost=[(max(first, log_start), behind) for first, behind in lost if max(first, log_start) < behind],
        epochs=epochs,
        checkpoint=_checkpoint(found, kept, end_offset, gaps, epochs or [], begin_segment=begin_segment),
    )


def _before_the_first_problem(found: Survey) -> tuple[list[Kept], int]:
    """Return the part of the log before the first interruption after the log start, and the end offset of that
    part."""
    kept: list[Kept] = []
    log_start = end_offset = found.log_start_offset
    for each in found.kept:
        if not each.goes_on:
            break
        position, pieces = 0, []
        for piece in each.pieces:
            # A fault that lies below the log start is in records that are deleted.
            if (piece.start != position or not piece.goes_on) and piece.first_offset > log_start:
                break
            pieces.append(piece)
            position, end_offset = piece.end, piece.next_offset
        if pieces:
            kept.append(replace(each, pieces=pieces))
        else:
            end_offset = max(end_offset, each.segment.base_offset)
        if position != each.size_bytes:
            break
    return kept, end_offset


def _gaps(kept: list[Kept], end_offset: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of offsets that are missing between the kept batches and before the end of the log."""
    offset: int | None = None
    for each in kept:
        for piece in each.pieces:
            # A segment may begin below its first batch.
            before = each.segment.base_offset if offset is None else offset
            if piece.first_offset > before:
                yield before, piece.first_offset
            offset = piece.next_offset
    if offset is not None and offset < end_offset:
        yield offset, end_offset


def _checkpoint(
    found: Survey,
    kept: list[Kept],
    end_offset: int,
    gaps: list[tuple[int, int]],
    epochs: list[EpochStart],
    *,
    begin_segment: bool,
) -> PartitionCheckpoint | None:
    """Return the metadata row of a partition after the planned repair, or None if it has none."""
    before = found.known.checkpoint
    if before is None:
        return None
    segments = [
        SegmentCheckpoint(each.segment.base_offset, each.kept_bytes, each.max_timestamp_ms, each.first_crc)
        for each in kept
    ]
    if begin_segment:
        segments.append(SegmentCheckpoint(end_offset, 0, -1))
    producers = ProducerStates(before.producers, forgotten_below=before.forgotten_below)
    if end_offset < before.recovery_point:
        producers = ProducerStates(producers.snapshot(end_offset), forgotten_below=before.forgotten_below)
    for header in found.headers:
        if header.next_offset <= end_offset:
            producers.append(header, header.base_offset, end_offset, header.max_timestamp_ms)
    bases = {entry.base_offset for entry in segments}
    log_start = min(max(before.log_start_offset, segments[0].base_offset), end_offset)
    given_up = [
        entry
        for entry in sorted([*before.given_up, *before.segments], key=lambda entry: entry.base_offset)
        if log_start <= entry.base_offset < end_offset and entry.base_offset not in bases
    ]
    return replace(
        before,
        recovery_point=end_offset,
        log_start_offset=log_start,
        segments=segments,
        producers=producers.snapshot(end_offset),
        forgotten_producers=producers.forgotten(),
        forgotten_below=producers.forgotten_below,
        boot_id=boot_id(),
        epochs=[entry for entry in epochs if entry.start_offset < end_offset],
        gaps_below=max([min(before.gaps_below, end_offset), *(behind + 1 for _, behind in gaps)]),
        history_unknown=False,
        given_up=given_up,
    )


def repair(plan: PartitionPlan) -> None:
    """Carry out the plan. The caller holds `exclusive`. Raises OSError and StorageFailedError."""
    files, partition = RealFiles(), plan.survey.partition
    directory = str(partition.directory)
    with named_in_errors(directory), ExitStack() as until_a_log_changes:
        with suppress(FileExistsError):
            files.make_directory(directory)
            give(directory, os.path.dirname(directory))
        rewritten = []
        for kept in plan.changed:
            path = kept.segment.path
            for start, end in kept.removed:
                side_path = free_name(f"{path}.cut-{start}")
                copy_out(path, start, end, side_path)
                until_a_log_changes.callback(remove, side_path)
            if len(list(kept.removed)) > 1 or kept.pieces[-1].end == kept.size_bytes:
                _write_pieces(kept)
                until_a_log_changes.callback(remove, f"{path}.tmp")
                rewritten.append(path)
        files.sync_directory(directory)
        for source, target in plan.set_aside:
            files.rename(source, target)
            drop_indexes(source)
        before = plan.survey.known.checkpoint
        sizes = {entry.base_offset: entry.size_bytes for entry in before.segments} if before is not None else {}
        for kept in plan.kept:
            path = kept.segment.path
            if not kept.size_bytes == kept.kept_bytes == sizes.get(kept.segment.base_offset, kept.kept_bytes):
                drop_indexes(path)  # They belong to a file that was longer or had other bytes.
            if path in rewritten:
                until_a_log_changes.pop_all()
                files.rename(f"{path}.tmp", path)
        topic_id = plan.survey.known.topic_id
        if plan.survey.rewrite_metadata and topic_id is not None:
            put(f"{directory}/{METADATA_NAME}", encode_metadata(owner_of(directory, topic_id)), directory)
        if plan.epochs is not None:
            put(f"{directory}/{EPOCHS_NAME}", encode_epochs(plan.epochs), directory)
        active = f"{directory}/{plan.end_offset:020d}.log"
        if plan.begin_segment:
            drop_indexes(active)
            files.close(files.open(active, create=True))
            give(active, directory)
        _drop_orphaned_indexes(partition.directory)
        for path, size_bytes in [*((kept.segment.path, kept.kept_bytes) for kept in plan.kept)]:
            # It is unknown whether an earlier, interrupted repair has synced it.
            fd = files.open(path)
            try:
                until_a_log_changes.pop_all()
                files.truncate(fd, size_bytes)
                files.fdatasync(fd)
            finally:
                files.close(fd)
        files.sync_directory(directory)
        files.sync_directory(os.path.dirname(directory))
        if plan.checkpoint is not None and topic_id is not None and partition.data_dir is not None:
            found = partition.topic_partition
            assert found is not None
            store_checkpoint(partition.data_dir, checkpoint_key(topic_id, found[1]), plan.checkpoint)


def _drop_orphaned_indexes(directory: Path) -> None:
    """Remove the indexes of segments that are gone. A later segment of the same name would take them for its own."""
    for path in directory.iterdir():
        log_path = path.with_suffix(".log")
        is_index = path.suffix in (".index", ".timeindex") and base_offset_of(log_path.name) is not None
        if is_index and path.is_file() and not os.path.lexists(log_path):
            path.unlink()


def _write_pieces(kept: Kept) -> None:
    """Write the kept part of a segment to a temporary file beside it."""
    path = kept.segment.path
    temporary = f"{path}.tmp"
    with removed_after_errors(temporary), open(temporary, "wb", opener=private_opener) as target:
        with open(path, "rb") as source:
            for piece in kept.pieces:
                copy_bytes(source, target, piece.start, piece.end)
        target.flush()
        sync_all(target.fileno())
        give(temporary, path)
