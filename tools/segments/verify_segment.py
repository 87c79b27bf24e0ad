"""Verifies one segment: its batches and its indexes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from logbroker.command_line import command_line
from logbroker.errors.system import reason_of
from logbroker.storage.files import open_regular
from logbroker.storage.index_file import MAX_INDEX_BYTES, OFFSET_ENTRY, TIME_ENTRY
from logbroker.tools.segments.batch_checks import Fault
from logbroker.tools.segments.findings import Finding, SegmentFacts, Severity
from logbroker.tools.segments.index_checks import OffsetIndexCheck, TimeIndexCheck
from logbroker.tools.segments.locate import SegmentFile
from logbroker.tools.segments.log_file import LogFile
from logbroker.tools.segments.partition_checks import EpochRuns, recovery_point_fault
from logbroker.tools.segments.scan import BRIEF_SECONDS, LIVE_SECONDS, LogScan

Progress = Callable[[int], None]
"""A function that is called with the number of bytes read since its last call."""

_PROGRESS_BYTES: Final = 1 << 24


class SegmentCheck:
    """The verification of one segment. After `run`, `faults` and `findings` hold what is wrong."""

    def __init__(
        self,
        segment: SegmentFile,
        *,
        gaps_allowed: bool,
        active: bool,
        live: bool = False,
        indexes_complete: bool = True,
        leader_epoch: int = -1,
        reaches: int = 0,
        ends_there: bool = False,
    ) -> None:
        """`active` says that the segment is the last one, so that batches may be appended to it. `leader_epoch` is the
        last leader epoch of the segment before. `reaches` is an offset up to which the segment had records, and
        `ends_there` says that it had none from there on.

        `indexes_complete` says whether the indexes must be complete if the segment is not active. `live` says whether a
        broker holds the partition, and so may be writing at this moment.
        """
        self.facts = SegmentFacts(
            path=segment.path, base_offset=segment.base_offset, next_offset=segment.base_offset, size_bytes=0
        )
        self.faults: list[Fault] = []
        self.findings: list[Finding] = []
        self.leader_epoch = leader_epoch
        self._segment = segment
        self._gaps_allowed = gaps_allowed
        self.active = active
        self._reaches = reaches
        self._ends_there = ends_there
        self._patience_seconds = (LIVE_SECONDS if live else BRIEF_SECONDS) if active else 0.0
        self._indexes_complete = indexes_complete and not active
        self._indexes_grow = live and not self._indexes_complete

    def run(
        self,
        epochs: EpochRuns,
        progress: Progress,
        *,
        recovery_point: int | None = None,
        recovery_position: int = 0,
        ceiling_ms: int = -1,
    ) -> None:
        """Read the whole segment. The offset `recovery_point` must be at the byte `recovery_position`.

        `ceiling_ms` is explained in TimeIndexCheck. Raises OSError.
        """
        segment, facts, base_offset = self._segment, self.facts, self._segment.base_offset
        # Read the indexes before the log. The broker appends to the log first, so their entries lead to bytes that
        # exist.
        strict = not self._gaps_allowed
        offset_index = self._index(segment.index_path, OFFSET_ENTRY.size)
        time_index = self._index(segment.time_index_path, TIME_ENTRY.size)
        offsets = OffsetIndexCheck(offset_index or b"", strict=strict)
        times = TimeIndexCheck(time_index or b"", strict=strict, ceiling_ms=ceiling_ms)
        with LogFile(segment.path) as log:
            scan = LogScan(
                log,
                base_offset,
                gaps_allowed=self._gaps_allowed,
                resume=True,
                patience_seconds=self._patience_seconds,
                leader_epoch=self.leader_epoch,
            )
            told = seen_faults = 0
            to_reach = recovery_position if recovery_point is not None else -1
            for position, header in scan.batches():
                if len(scan.faults) > seen_faults:
                    seen_faults = self._skip(scan, offsets, times, seen_faults)
                if 0 <= to_reach <= position:
                    self._check_recovery_point(recovery_point, to_reach, position, header.base_offset)
                    to_reach = -1
                next_offset = header.next_offset
                last = next_offset - 1 - base_offset
                offsets.batch(position, header.base_offset - base_offset, last)
                times.batch(last, header.max_timestamp_ms)
                epochs.batch(header.leader_epoch, header.base_offset, next_offset)
                facts.add(header)
                if position - told >= _PROGRESS_BYTES:
                    progress(position - told)
                    told = position
            progress(log.size_bytes - told)
            self._skip(scan, offsets, times, seen_faults)
            facts.size_bytes = log.size_bytes
        if to_reach == scan.good_bytes or (to_reach >= 0 and not scan.faults):
            self._check_recovery_point(recovery_point, to_reach, scan.good_bytes, scan.next_offset)
        facts.next_offset = scan.next_offset
        facts.damaged_at = scan.faults[0].position if scan.faults else None
        facts.missing_offsets = scan.gaps
        self.leader_epoch = scan.leader_epoch
        self.faults = scan.faults
        offsets.finish(facts.size_bytes)
        times.finish(closed=self._indexes_complete and time_index is not None)
        self._tell_index(segment.index_path, offset_index, offsets)
        self._tell_index(segment.time_index_path, time_index, times)
        if scan.gaps:
            cause = "as compaction or `logbroker segment repair --accept-gaps` leaves them"
            reason = f"{scan.gaps} offsets are missing, {cause}"
            self._tell(Severity.NOTE, segment.path, reason)

    def _skip(self, scan: LogScan, offsets: OffsetIndexCheck, times: TimeIndexCheck, seen: int) -> int:
        for fault in scan.faults[seen:]:
            if fault.end > fault.position:
                offsets.skip(fault.end)
                times.skip()
        return len(scan.faults)

    def _check_recovery_point(self, recovery_point: int | None, wanted: int, position: int, offset: int) -> None:
        assert recovery_point is not None
        if position < wanted:
            last = recovery_point - 1
            reason: str | None = f"the log ends at offset {offset}, but it had records up to offset {last}"
        elif position != wanted:
            reason = f"the recovery point lies at byte {wanted}, where no batch begins or ends"
        else:
            reason = recovery_point_fault(recovery_point, position, offset, gaps_allowed=self._gaps_allowed)
        if reason is not None:
            self._tell(Severity.ERROR, self._segment.path, reason, wanted)

    def _index(self, path: str, entry_bytes: int) -> bytes | None:
        try:
            size_bytes = os.stat(path).st_size
            if size_bytes > MAX_INDEX_BYTES:
                self._tell(Severity.ERROR, path, f"{size_bytes} bytes are more than an index can have")
                return b""
            with open(open_regular(path), "rb", buffering=0) as file:
                content = file.read(size_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._tell(Severity.ERROR, path, f"it cannot be read: {reason_of(error)}")
            return b""
        # While the broker writes across pages, a reader may see only a part of an entry.
        return content[: len(content) // entry_bytes * entry_bytes] if self._indexes_grow else content

    def _tell_index(self, path: str, content: bytes | None, check: OffsetIndexCheck | TimeIndexCheck) -> None:
        if content is None and not self.active and self.facts.size_bytes and self._segment.base_offset >= 0:
            self._tell(Severity.NOTE, path, "there is no such file; the broker makes it anew when it opens the segment")
        for fault in check.faults:
            self._tell(Severity.ERROR, path, fault.reason, fault.position)
        proviso = "no record is lost"
        if check.beyond is not None:
            end_offset = self.facts.next_offset
            position, highest = check.beyond
            reason = f"it has records up to offset {self._segment.base_offset + highest}, but the log ends at offset"
            reason += f" {end_offset}"
            if end_offset < self._reaches:
                proviso = ""
                reason += ": records are missing"
            elif not self._ends_there:
                proviso = "if no record is missing"
                reason += ": records are missing, if the index is not damaged"
            self._tell(Severity.ERROR, path, reason, position)
        if proviso and (check.faults or check.beyond is not None):
            command = command_line("segment rebuild-index", self._segment.path)
            self._tell(Severity.NOTE, path, f"{proviso}: with the broker stopped, `{command}` makes it anew")
        if check.loose:
            reason = f"{check.loose} entries are less exact than they could be; Kafka before 4.0 writes such entries"
            self._tell(Severity.NOTE, path, reason)

    def _tell(self, severity: Severity, path: str, message: str, position: int | None = None) -> None:
        self.findings.append(Finding(severity=severity, path=path, position=position, message=message))
