"""Two operations that write: they rebuild indexes, and cut a log at its first bad batch.

Both hold the lock of the data directory meanwhile, so no broker runs. A repair that dies half-way can be run again: it
first copies the removed bytes to a side file and syncs it, and cuts the log last. If an error stops it before the cut,
it removes the side file, because the log still has the bytes.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from logbroker.errors import CorruptLogError, DataDirError
from logbroker.private_files import private_opener
from logbroker.storage.data_dir import META_NAME, DataDir
from logbroker.storage.files import RealFiles, named, open_regular, read_regular, replace_file
from logbroker.storage.header_walk import index_entries
from logbroker.storage.index_file import OFFSET_ENTRY, TIME_ENTRY
from logbroker.storage.metadata.metadata_store import MetadataStore
from logbroker.storage.partition_checkpoint import (
    PartitionCheckpoint,
    SegmentCheckpoint,
    encode_checkpoint,
    epochs_unknown_below,
)
from logbroker.storage.partition_files import EPOCHS_NAME, EpochStart, decode_epochs, encode_epochs
from logbroker.storage.system_calls import lock_record, sync_all
from logbroker.tools.segments.locate import PartitionFiles, SegmentFile, file_bytes, segments_in
from logbroker.tools.segments.log_file import HEADERS_WINDOW_BYTES, LogFile
from logbroker.tools.segments.metadata import Knowledge, checkpoint_key, knowledge_of, open_metadata
from logbroker.tools.segments.partition_checks import gap_between, never_written
from logbroker.tools.segments.reading import Progress
from logbroker.tools.segments.scan import LogScan

_KAFKA_LOCK_NAME: Final = ".lock"
_COPY_BYTES: Final = 1 << 20


@contextmanager
def exclusive(partition: PartitionFiles) -> Iterator[None]:
    """Keep brokers, of logbroker and of Kafka, out of the data directory of the partition.

    Raises DataDirError if a broker uses it already.
    """
    kafka_lock = next(
        (path / _KAFKA_LOCK_NAME for path in partition.parents if (path / _KAFKA_LOCK_NAME).exists()), None
    )
    if partition.data_dir is not None:
        held = DataDir.open(partition.data_dir)
        try:
            yield
        finally:
            held.close()
    elif kafka_lock is not None:
        with open(open_regular(kafka_lock, os.O_RDWR), "r+b") as file:
            try:
                lock_record(file)
            except OSError:
                raise DataDirError(f"Kafka uses {kafka_lock.parent}; stop it first") from None
            yield
    else:
        mounted = _mount_points() & {str(partition.directory), *(segment.path for segment in partition.segments)}
        if mounted:
            raise DataDirError(
                f"{mounted.pop()} is mounted from elsewhere, where a broker may have it open; give the path that it has"
                " there, or the path of a copy"
            )
        yield


def _mount_points() -> set[str]:
    """Return the mount points, as Linux reports them (proc(5), mountinfo); empty on other systems."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return set()
    # The file has blanks, tabs, line ends and backslashes as octal numbers.
    return {re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), line.split(" ")[4]) for line in lines}


def rebuild_index(segment: SegmentFile, progress: Progress) -> tuple[int, int]:
    """Build both indexes of a segment from its batch headers. Return their numbers of entries.

    Raises CorruptLogError if the headers do not lead to the end of the log, and OSError.
    """
    with LogFile(segment.path, HEADERS_WINDOW_BYTES) as log:
        scan = LogScan(log, segment.base_offset, check_crc=False)
        offsets, _ = index_entries(scan.batches(), segment.base_offset)
        # Time entries end at the first damage, because the broker trusts what an entry says about the batches before
        # it.
        _, times = index_entries(LogScan(log, segment.base_offset).batches(), segment.base_offset)
        progress(log.size_bytes)
    if scan.faults:
        fault = scan.faults[0]
        raise CorruptLogError(
            f"{segment.path}: no good batch at byte {fault.position}: {fault.reason}; "
            "run `logbroker segment repair` first"
        )
    for path, entry, entries in (
        (segment.index_path, OFFSET_ENTRY, offsets),
        (segment.time_index_path, TIME_ENTRY, times),
    ):
        put(path, b"".join(entry.pack(*item) for item in entries), segment.path)
    RealFiles().sync_directory(os.path.dirname(segment.path))
    return len(offsets), len(times)


class RepairPlan(msgspec.Struct, kw_only=True):
    """The plan of a repair."""

    path: str
    reason: str
    position: int
    """The position at which the log is cut."""
    offset: int
    """The next offset after the cut."""
    removed_bytes: int
    good_batches: int
    """Number of good batches after the first bad batch. They are cut off, too."""
    good_records: int
    side_path: str
    """The file in which the removed bytes are kept."""
    set_aside: list[tuple[str, str]]
    """Later segments, and their new names."""
    epochs: list[EpochStart] | None
    """The new leader epochs, or None if they stay as they are. A new epoch tells a client that records which it has
    read are gone."""
    checkpoint: PartitionCheckpoint | None
    """The checkpoint with the new recovery point, if the old recovery point is behind the cut."""
    checkpoint_key: bytes = b""
    data_dir: Path | None = None


def plan_repair(partition: PartitionFiles, progress: Progress) -> RepairPlan | None:
    """Plan the cut at the first bad batch of the named segment, or at its end if records are missing there. Return None
    if there is no fault.

    Writes nothing.

    Raises DataDirError and CorruptLogError if there is a metadata store that cannot be read, and OSError.
    """
    (segment,) = partition.segments
    if segment.base_offset < 0:
        raise CorruptLogError(f"{segment.path}: not the name of a segment, <20 digits>.log")
    known = knowledge_for_repair(partition)
    ours = known.topic_id is not None
    with LogFile(segment.path) as log:
        scan = LogScan(log, segment.base_offset, gaps_allowed=known.may_have_gaps, resume=True)
        batches = records = 0
        position, offset, max_timestamp_ms = 0, segment.base_offset, -1
        for start, header in scan.batches():
            if scan.faults:
                batches += 1
                records += header.record_count
            else:
                position, offset = start + header.size_bytes, header.next_offset
                max_timestamp_ms = max(max_timestamp_ms, header.max_timestamp_ms)
        size_bytes = log.size_bytes
        progress(size_bytes)
    segments = segments_in(partition.directory)
    later = [other for other in segments if other.base_offset > segment.base_offset]
    unwritten = never_written(known.checkpoint, file_bytes(segments))
    following = next((other for other in later if other.base_offset not in unwritten), None)
    reason = ""
    if scan.faults:
        reason = scan.faults[0].reason
    elif _is_short(known.checkpoint, segment, size_bytes):
        reason = "the file was longer when it was synced"
    elif following is not None and not known.may_have_gaps:  # With gaps allowed, missing offsets are no fault.
        reason = gap_between(offset, following.base_offset) or ""
        reason = reason and f"{os.path.basename(following.path)} does not go on there: {reason}"
    if not reason:
        return None
    checkpoint = _lowered(known.checkpoint, segment, position, offset, max_timestamp_ms)
    return RepairPlan(
        path=segment.path,
        reason=reason,
        position=position,
        offset=offset,
        removed_bytes=size_bytes - position,
        good_batches=batches,
        good_records=records,
        side_path=free_name(f"{segment.path}.cut-{position}"),
        set_aside=[(other.path, free_name(f"{other.path}.cut-0")) for other in later] if ours else [],
        epochs=_raised(partition.directory, known.checkpoint, offset) if ours else None,
        checkpoint=checkpoint,
        checkpoint_key=_key(partition, known),
        data_dir=partition.data_dir,
    )


def repair(plan: RepairPlan) -> None:
    """Carry out the plan. The caller holds `exclusive`. Raises OSError and StorageFailedError."""
    files, directory = RealFiles(), os.path.dirname(plan.path)
    with named_in_errors(plan.path), ExitStack() as until_the_cut:
        if plan.removed_bytes:
            copy_out(plan.path, plan.position, plan.position + plan.removed_bytes, plan.side_path)
            until_the_cut.callback(remove, plan.side_path)
        for source, target in plan.set_aside:
            files.rename(source, target)
            drop_indexes(source)
        if plan.epochs is not None:
            put(f"{directory}/{EPOCHS_NAME}", encode_epochs(plan.epochs), plan.path)
        files.sync_directory(directory)
        if plan.checkpoint is not None and plan.data_dir is not None:
            store_checkpoint(plan.data_dir, plan.checkpoint_key, plan.checkpoint)
        drop_indexes(plan.path)
        fd = files.open(plan.path)
        try:
            until_the_cut.pop_all()
            files.truncate(fd, plan.position)
            files.fdatasync(fd)
        finally:
            files.close(fd)
        files.sync_directory(directory)


def knowledge_for_repair(partition: PartitionFiles, *, with_producers: bool = False) -> Knowledge:
    """Look up a partition in the metadata store. Raises DataDirError if the store has no answer."""
    if partition.data_dir is None:
        return Knowledge()
    metadata, trouble = open_metadata(partition.data_dir)
    try:
        known = knowledge_of(partition, metadata, live=False, trouble=trouble, with_producers=with_producers)
    finally:
        if metadata is not None:
            metadata.close()
    if known.trouble:
        raise DataDirError(f"{known.trouble}; move {partition.directory} out of {partition.data_dir} to repair it")
    return known


def _key(partition: PartitionFiles, known: Knowledge) -> bytes:
    found = partition.topic_partition
    return b"" if found is None or known.topic_id is None else checkpoint_key(known.topic_id, found[1])


def _is_short(checkpoint: PartitionCheckpoint | None, segment: SegmentFile, size_bytes: int) -> bool:
    """Whether the file was larger when it was last synced."""
    entries = checkpoint.segments if checkpoint is not None else []
    return any(entry.base_offset == segment.base_offset and size_bytes < entry.size_bytes for entry in entries)


def _lowered(
    checkpoint: PartitionCheckpoint | None, segment: SegmentFile, position: int, offset: int, max_timestamp_ms: int
) -> PartitionCheckpoint | None:
    """Return the checkpoint of a log that ends at `position` of `segment`, or None if the recovery point is not behind
    this end."""
    if checkpoint is None or checkpoint.recovery_point <= offset:
        return None
    before = [entry for entry in checkpoint.segments if entry.base_offset < segment.base_offset]
    return msgspec.structs.replace(
        checkpoint,
        recovery_point=offset,
        log_start_offset=min(checkpoint.log_start_offset, offset),
        segments=[*before, SegmentCheckpoint(segment.base_offset, position, max_timestamp_ms)],
        epochs=[entry for entry in checkpoint.epochs if entry.start_offset < offset],
        # There may be a gap before a segment that stays empty.
        gaps_below=min(checkpoint.gaps_below, offset if position else offset + 1),
        given_up=[entry for entry in checkpoint.given_up if entry.base_offset < offset],
    )


def _raised(directory: Path, checkpoint: PartitionCheckpoint | None, offset: int) -> list[EpochStart]:
    """Return the leader epochs of a log that ends at `offset`, with a new one from there on."""
    path = f"{directory}/{EPOCHS_NAME}"
    try:
        epochs = decode_epochs(path, read_regular(path))
    except FileNotFoundError:
        epochs = []
    highest = max((entry.epoch for entry in epochs), default=0)
    if checkpoint is not None:
        highest = max([highest, *(entry.epoch for entry in checkpoint.epochs)])
        if epochs[: len(checkpoint.epochs)] != checkpoint.epochs or epochs_unknown_below(checkpoint, epochs):
            # The file is damaged. Below the cut, the log has no other epochs than the checkpoint.
            epochs = checkpoint.epochs
    return [*(entry for entry in epochs if entry.start_offset < offset), EpochStart(highest + 1, offset)]


def free_name(path: str) -> str:
    """Return an unused name, so that files kept by an earlier repair stay."""
    names = itertools.chain([path], (f"{path}-{number}" for number in itertools.count(2)))
    return next(name for name in names if not os.path.exists(name))


def copy_out(path: str, start: int, end: int, side_path: str) -> None:
    """Copy a range of bytes of a log into a new side file, and sync it. The caller syncs the directory. Raises OSError;
    then there is no side file."""
    side = open(side_path, "xb", opener=private_opener)  # noqa: SIM115 (a file that is there must stay)
    with removed_after_errors(side_path), side:
        with named(path), open(path, "rb") as source:
            copy_bytes(source, side, start, end)
        with named(side_path):
            side.flush()
            sync_all(side.fileno())
        give(side_path, path)


def copy_bytes(source: BinaryIO, target: BinaryIO, start: int, end: int) -> None:
    """Append a range of bytes of one file to another."""
    source.seek(start)
    left = end - start
    while left and (part := source.read(min(left, _COPY_BYTES))):
        target.write(part)
        left -= len(part)


def put(path: str, content: bytes, like: str) -> None:
    """Replace a file, and give it to the owner of the file `like`. The caller syncs the directory."""
    with removed_after_errors(f"{path}.tmp"):
        replace_file(RealFiles(), path, content)
    give(path, like)


@contextmanager
def named_in_errors(path: str) -> Iterator[None]:
    """Add the path to an OSError that names no file, such as that of a write."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise


@contextmanager
def removed_after_errors(path: str) -> Iterator[None]:
    """Remove a new file that could not be completed, for example because the disk is full; an OSError names it."""
    try:
        with named_in_errors(path):
            yield
    except BaseException:
        remove(path)
        raise


def remove(path: str) -> None:
    """Remove a file, if it is there and can be removed."""
    with suppress(OSError):
        os.unlink(path)


def give(path: str, like: str) -> None:
    """Give a file to the owner of the file `like`, because root may repair files that a broker of another user must
    write."""
    status = os.stat(like)
    try:
        os.chown(path, status.st_uid, status.st_gid)
    except PermissionError:
        # Without root only the group may differ, for example in a directory that root made for the broker's user.
        if status.st_uid != os.geteuid():
            raise


def drop_indexes(log_path: str) -> None:
    """Remove the indexes of a log. The broker builds them again."""
    segment = SegmentFile(path=log_path, base_offset=-1)
    for path in (segment.index_path, segment.time_index_path):
        with suppress(FileNotFoundError):
            os.unlink(path)


def store_checkpoint(data_dir: Path, key: bytes, checkpoint: PartitionCheckpoint) -> None:
    """Store the checkpoint of a partition for the broker. Raises StorageFailedError."""
    # The future raises the error of a failed commit, too.
    store = MetadataStore.open(data_dir / META_NAME, on_failure=lambda _failure: None)
    try:
        store.submit(encode_checkpoint(key, checkpoint)).result()
    finally:
        store.close()
