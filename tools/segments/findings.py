"""The findings of `verify`, as values."""

from __future__ import annotations

import enum

import msgspec

from logbroker.record.header import BatchHeader


class Severity(enum.Enum):
    """How bad a finding is."""

    ERROR = "error"
    TORN_TAIL = "torn tail"
    """The trace of a crash. The broker cuts it off at its next start."""
    NOTE = "note"
    """Nothing is wrong."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding about a file or directory."""

    severity: Severity
    path: str
    position: int | None = None
    end: int | None = None
    """The position after the last byte that the finding is about."""
    message: str


class SegmentFacts(msgspec.Struct, kw_only=True):
    """The facts from one pass through a segment."""

    path: str
    base_offset: int
    next_offset: int
    size_bytes: int
    batches: int = 0
    records: int = 0
    missing_offsets: int = 0
    """The number of missing offsets, if gaps are allowed."""
    min_timestamp_ms: int = -1
    max_timestamp_ms: int = -1
    damaged_at: int | None = None
    """Position of the first damage; None if there is no damage."""

    def add(self, header: BatchHeader) -> None:
        """Count a batch."""
        self.batches += 1
        self.records += header.record_count
        self.next_offset = header.next_offset
        first, youngest = header.first_timestamp_ms, header.max_timestamp_ms
        if first >= 0 and not 0 <= self.min_timestamp_ms <= first:
            self.min_timestamp_ms = first
        if youngest > self.max_timestamp_ms:
            self.max_timestamp_ms = youngest


class PartitionReport(msgspec.Struct, kw_only=True):
    """The report on one partition."""

    path: str
    live: bool
    """Whether a broker holds the partition."""
    segments: list[SegmentFacts]
    findings: list[Finding]

    @property
    def sound(self) -> bool:
        return all(finding.severity is Severity.NOTE for finding in self.findings)
