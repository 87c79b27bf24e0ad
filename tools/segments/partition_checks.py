"""Checks of a partition's small files, and of the metadata store's entries for it. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import msgspec

from logbroker.storage.partition_checkpoint import PartitionCheckpoint, SegmentCheckpoint
from logbroker.storage.partition_files import EpochStart, encode_epochs, epoch_beyond_end
from logbroker.tools.segments.batch_checks import Fault


class EpochRun(msgspec.Struct, gc=False):
    """Consecutive batches of one leader epoch."""

    epoch: int
    first_offset: int
    next_offset: int


class EpochRuns:
    """Collects the leader epochs of a log, batch by batch."""

    def __init__(self) -> None:
        self.runs: list[EpochRun] = []

    def batch(self, epoch: int, first_offset: int, next_offset: int) -> None:
        runs = self.runs
        if runs and runs[-1].epoch == epoch:
            runs[-1].next_offset = next_offset
        else:
            runs.append(EpochRun(epoch, first_offset, next_offset))


def epoch_faults(epochs: Sequence[EpochStart], runs: Sequence[EpochRun], end_offset: int, *, live: bool) -> list[str]:
    """Compare a leader-epoch-checkpoint with the epochs in the log. Epochs that a running broker has not written yet
    are not reported.

    A later epoch may begin in the gap after an earlier one, because compaction removes records.
    """
    faults = []
    starts = {entry.epoch: entry.start_offset for entry in epochs}
    newest = epochs[-1].epoch if epochs else -1
    lowest = 0
    for run in runs:
        start = starts.get(run.epoch)
        if run.epoch < 0 or (live and run.epoch > newest):
            pass
        elif start is None:
            faults.append(f"leader epoch {run.epoch} of offset {run.first_offset} is missing")
        elif not lowest <= start <= run.first_offset:
            faults.append(f"leader epoch {run.epoch} begins at {start}, in the log at offset {run.first_offset}")
        lowest = run.next_offset
    if not live and (beyond := epoch_beyond_end(epochs, end_offset)):
        faults.append(beyond)
    return faults


def unknown_epochs(
    epochs: Sequence[EpochStart], checkpoint: PartitionCheckpoint, runs: Sequence[EpochRun] | None, end_offset: int
) -> list[str]:
    """Compare a leader-epoch-checkpoint with the epochs that the metadata store has. It must begin with these.

    After these, it may have epochs that began since the recovery point: epochs of batches, and one at the end of the
    log, if nothing was appended since. `runs` None means that not all batches are known.
    """
    known = checkpoint.epochs
    if not known:
        return []  # An older broker wrote it, or no epoch began below the recovery point.
    if list(epochs[: len(known)]) != known:
        return [f"it should begin with {encode_epochs(known).decode('ascii')!r}; restore it"]
    faults = []
    in_log = None if runs is None else {run.epoch for run in runs}
    for entry in epochs[len(known) :]:
        if entry.start_offset < checkpoint.recovery_point:
            faults.append(
                f"leader epoch {entry.epoch} from offset {entry.start_offset} on, below the recovery point, is not"
                " known to the metadata store"
            )
        elif in_log is not None and entry.epoch not in in_log and entry.start_offset != end_offset:
            faults.append(f"leader epoch {entry.epoch} from offset {entry.start_offset} on has no batch in the log")
    return faults


def needed_segments(checkpoint: PartitionCheckpoint) -> list[SegmentCheckpoint]:
    """Return the segments of a checkpoint that hold records from the log start offset on."""
    known = checkpoint.segments
    return [
        entry
        for entry, after in zip_longest(known, known[1:])
        if after is None or after.base_offset > checkpoint.log_start_offset
    ]


def segment_faults(checkpoint: PartitionCheckpoint, file_bytes: Mapping[int, int]) -> list[tuple[int, str]]:
    """Compare the sizes of segments with the sizes in the checkpoint. Return the base offset and the reason of each
    fault."""
    faults = []
    needed = needed_segments(checkpoint)
    for entry in needed:
        size_bytes = file_bytes.get(entry.base_offset)
        if size_bytes is None:
            if entry.size_bytes:
                faults.append((entry.base_offset, f"the file is missing; it had {entry.size_bytes} bytes"))
        elif size_bytes < entry.size_bytes:
            faults.append((entry.base_offset, f"it has {size_bytes} bytes, but had {entry.size_bytes} when synced"))
        elif size_bytes > entry.size_bytes and entry is not needed[-1]:
            faults.append((entry.base_offset, f"it has {size_bytes} bytes, but was closed at {entry.size_bytes}"))
    bases = {entry.base_offset for entry in needed}
    if needed:
        faults += [
            (base_offset, "the file is no part of this log")
            for base_offset in sorted(file_bytes.keys() - bases)
            if needed[0].base_offset < base_offset < needed[-1].base_offset
        ]
    return faults


def never_written(checkpoint: PartitionCheckpoint | None, file_bytes: Mapping[int, int]) -> set[int]:
    """Return the base offsets of empty segments at the end of a log that are not in the metadata store. Each was made
    for a batch that was never written, so it says nothing about the end of the log; the next start removes it."""
    known = {entry.base_offset for entry in checkpoint.segments} if checkpoint is not None else set()
    last = max((base for base, size_bytes in file_bytes.items() if size_bytes or base in known), default=-1)
    return {base for base in file_bytes if base > last}


def synced_bytes(checkpoint: PartitionCheckpoint | None, base_offset: int, size_bytes: int) -> int | None:
    """Return the number of bytes of a segment below the recovery point, or None if there is no recovery point."""
    if checkpoint is None or not checkpoint.segments:
        return None
    last = checkpoint.segments[-1]
    if base_offset == last.base_offset:
        return last.size_bytes
    return size_bytes if base_offset < last.base_offset else 0


def indexes_are_complete(checkpoint: PartitionCheckpoint | None, base_offset: int, *, live: bool) -> bool:
    """Whether the indexes of a segment that is not the last one must be complete.

    A broker writes the first bytes of the next segment before it completes the indexes of this one. It syncs both
    before the recovery point moves into the next segment.
    """
    if checkpoint is None:
        return not live
    return bool(checkpoint.segments) and base_offset < checkpoint.segments[-1].base_offset


def is_torn_tail(fault: Fault, synced: int | None, *, last_segment: bool, power_cut: bool) -> bool:
    """Whether a crash explains the damage, so that the next start will cut it off.

    `synced` is the number of bytes of the segment below the recovery point, or None if it is unknown. `power_cut` says
    that the computer has restarted since, so that any unsynced bytes may be gone. Otherwise only the last write can be
    torn.
    """
    if fault.end == fault.position:
        return False
    if synced is not None and fault.position < synced:
        return False
    if power_cut and synced is not None:
        return True
    return last_segment and not fault.followed


def gap_between(before_end: int, base_offset: int) -> str | None:
    """Return what is wrong between the end of one segment and the start of the next, or None."""
    if base_offset > before_end:
        return f"offsets {before_end} to {base_offset - 1} before it are missing"
    if base_offset < before_end:
        return f"it begins at offset {base_offset}, but the segment before ends at {before_end}"
    return None


def recovery_point_fault(recovery_point: int, position: int, offset: int, *, gaps_allowed: bool) -> str | None:
    """Return the reason why the recovery point cannot be at `position`, or None if it can. `offset` is the next offset
    of the log there."""
    if offset == recovery_point or (gaps_allowed and offset > recovery_point):
        return None
    return f"the recovery point is offset {recovery_point} at byte {position}, but the log has offset {offset} there"
