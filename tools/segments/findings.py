"""What `verify` finds, as values."""

from __future__ import annotations

import enum

import msgspec


class Severity(enum.Enum):
    """How bad a finding is."""

    ERROR = "error"
    TORN_TAIL = "torn tail"
    """What a crash leaves: the broker cuts it off at its next start."""
    NOTE = "note"
    """Nothing is wrong."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to tell of a file or directory."""

    severity: Severity
    path: str
    position: int | None = None
    end: int | None = None
    """Behind the last byte concerned."""
    message: str


class SegmentFacts(msgspec.Struct, kw_only=True):
    """What one way through a segment tells."""

    path: str
    base_offset: int
    next_offset: int
    size_bytes: int
    batches: int = 0
    records: int = 0
    missing_offsets: int = 0
    """Where gaps are allowed."""
    min_timestamp_ms: int = -1
    max_timestamp_ms: int = -1


class PartitionReport(msgspec.Struct, kw_only=True):
    """What there is to tell of one partition."""

    path: str
    live: bool
    """Whether a broker holds it."""
    segments: list[SegmentFacts]
    findings: list[Finding]

    @property
    def sound(self) -> bool:
        return all(finding.severity is Severity.NOTE for finding in self.findings)
