"""The output of `logbroker segment`: streamed lines, tables, and JSON."""

from __future__ import annotations

import datetime
import os
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from logbroker.cli.common import terminal
from logbroker.cli.common.json_text import Text, Unset, text_of
from logbroker.cli.common.lines import counted, write_line
from logbroker.record.codec import LogRecord
from logbroker.record.compression import Codec
from logbroker.record.header import MAX_CODEC, TRANSACTIONAL_FLAG, BatchHeader
from logbroker.texts import size_text
from logbroker.tools.segments.find import FoundRecord
from logbroker.tools.segments.findings import PartitionReport, SegmentFacts, Severity
from logbroker.tools.segments.mend import RepairPlan
from logbroker.tools.segments.partition_repair import PartitionPlan, Survey
from logbroker.tools.segments.stats import Stats

_CONTROL_KEY: Final = struct.Struct(">hh")
_CONTROL_TYPES: Final = {0: "abort", 1: "commit"}
_MAX_RANGES: Final = 10
"""Maximum number of offset ranges on one line."""
_MAX_SHOWN: Final = 200
"""Maximum number of characters of a key or value that are shown in text. JSON has the whole key or value."""


class _JsonHeader(msgspec.Struct, gc=False):
    key: str
    value: Text
    value_encoding: str | Unset = msgspec.UNSET


class _JsonRecord(msgspec.Struct, kw_only=True, gc=False, tag="record", tag_field="kind"):
    offset: int
    timestamp: int
    key: Text
    key_encoding: str | Unset = msgspec.UNSET
    value: Text
    value_encoding: str | Unset = msgspec.UNSET
    headers: list[_JsonHeader]


def short(path: str) -> str:
    """Return a path below the working directory as a relative path, and any other unchanged.

    If the working directory is `/`, every path is returned unchanged.
    """
    relative = os.path.relpath(path)
    return path if relative.startswith("..") or os.getcwd() == os.sep else relative


def time_text(timestamp_ms: int) -> str:
    """Write a time in ISO 8601, UTC. A time that the calendar does not have is written as a number."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- dump ----------------------------------------------------------------------------------------------------------


def batch_line(position: int, header: BatchHeader) -> str:
    """Describe a batch."""
    parts = [
        f"byte {position}",
        f"offsets {header.base_offset}-{header.next_offset - 1}",
        f"records {header.record_count}",
        f"size {header.size_bytes}",
        f"epoch {header.leader_epoch}",
        _codec(header),
        time_text(header.max_timestamp_ms),
    ]
    if header.producer_id >= 0:
        parts.append(f"producer {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}")
    if header.attributes & TRANSACTIONAL_FLAG:
        parts.append("transactional")
    if header.is_control:
        parts.append("control")
    return "  ".join(parts)


def batch_document(position: int, header: BatchHeader) -> dict[str, Any]:
    """Return all fields of a batch's header for a program."""
    return {
        "kind": "batch",
        "position": position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.next_offset - 1,
        "records": header.record_count,
        "leader_epoch": header.leader_epoch,
        "crc": header.crc,
        "compression": _codec(header),
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "first_timestamp": header.first_timestamp_ms,
        "max_timestamp": header.max_timestamp_ms,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": bool(header.attributes & TRANSACTIONAL_FLAG),
        "control": header.is_control,
    }


def _codec(header: BatchHeader) -> str:
    return Codec(header.codec).name.lower() if header.codec <= MAX_CODEC else str(header.codec)


def record_line(record: LogRecord, *, control: bool) -> str:
    """Describe a record."""
    parts = [f"  offset {record.offset}", time_text(record.timestamp_ms)]
    if control and record.key is not None and len(record.key) >= _CONTROL_KEY.size:
        kind = _CONTROL_KEY.unpack_from(record.key)[1]
        parts.append(_CONTROL_TYPES.get(kind, f"control {kind}"))
    else:
        parts += (f"key {_shown(record.key)}", f"value {_shown(record.value)}")
    parts += (f"{name}: {_shown(content)}" for name, content in record.headers)
    return "  ".join(parts)


def record_document(record: LogRecord) -> _JsonRecord:
    """Return a record for a program, in the fields of `logbroker consume --format json`."""
    key, key_encoding = text_of(record.key)
    value, value_encoding = text_of(record.value)
    return _JsonRecord(
        offset=record.offset,
        timestamp=record.timestamp_ms,
        key=key,
        key_encoding=key_encoding,
        value=value,
        value_encoding=value_encoding,
        headers=[_JsonHeader(name, *text_of(content)) for name, content in record.headers],
    )


def _shown(content: bytes | None) -> str:
    text, encoding = text_of(content)
    if text is None:
        return "null"
    if len(text) > _MAX_SHOWN:
        text = f"{text[:_MAX_SHOWN]}..."
    return f"base64:{text}" if encoding is not msgspec.UNSET else repr(text)


# --- tables --------------------------------------------------------------------------------------------------------


def show_segments(rows: Iterable[SegmentFacts]) -> None:
    """Show the table of `list`."""
    numbers = ("base offset", "next offset", "records", "batches", "size")
    made = terminal.table("segment", *numbers, "oldest", "youngest", "", numbers=numbers)
    for row in rows:
        made.add_row(
            short(row.path),
            str(row.base_offset) if row.base_offset >= 0 else "-",
            str(row.next_offset),
            f"{row.records:,}",
            f"{row.batches:,}",
            size_text(row.size_bytes),
            time_text(row.min_timestamp_ms),
            time_text(row.max_timestamp_ms),
            "" if row.damaged_at is None else f"damaged at byte {row.damaged_at}",
        )
    terminal.show(made)


def show_findings(reports: Iterable[PartitionReport]) -> None:
    """Show the findings of `verify`."""
    made = terminal.table("", "file", "byte", "what", numbers=("byte",))
    styles = {Severity.ERROR: "red", Severity.TORN_TAIL: "yellow", Severity.NOTE: "dim"}
    for report in reports:
        for finding in report.findings:
            severity = finding.severity
            at = "" if finding.position is None else str(finding.position)
            if finding.position is not None and finding.end is not None and finding.end > finding.position:
                at = f"{finding.position}-{finding.end - 1}"
            made.add_row(severity.value, short(finding.path), at, finding.message, cell_styles=(styles[severity],))
    if len(made):
        terminal.show(made)


def checked_line(reports: Sequence[PartitionReport], seconds: float) -> str:
    """Return a line that says how much `verify` has checked."""
    segments = [item for report in reports for item in report.segments]
    size_bytes = sum(item.size_bytes for item in segments)
    records = sum(item.records for item in segments)
    rate = f"{size_bytes / max(seconds, 1e-9) / 1e9:.1f} GB/s"
    return (
        f"checked {counted(len(reports), 'partition')}, {counted(len(segments), 'segment')}, "
        f"{counted(records, 'record')}, "
        f"{size_text(size_bytes)} in {seconds:.1f} s ({rate})"
    )


def show_stats(stats: Stats, top: int) -> None:
    """Show the counts of `stats`."""
    document = stats.document(top)
    about = "about " if stats.keys.sampled else ""
    print_line(
        f"{counted(stats.keys.records, 'record')}, {stats.keys.without_key:,} of them without a key; "
        f"{about}{counted(stats.keys.keys(), 'key')}"
    )
    keys = terminal.table("key", "records", "share", numbers=("records", "share"))
    for key, count in stats.keys.top(top):
        keys.add_row(_shown(key), f"{count:,}", f"{100 * count / stats.keys.records:.2f} %")
    terminal.show(keys)
    if stats.keys.top_error:
        print_line(f"each count may be too low, by at most {stats.keys.top_error:,}")
    columns = ("count", "mean", "p50", "p90", "p99", "largest")
    spread = terminal.table("", *columns, numbers=columns)
    for name, title in (
        ("records_per_key", "records per key"),
        ("records_per_batch", "records per batch"),
        ("batch_bytes", "bytes per batch"),
    ):
        figures = document[name]
        assert isinstance(figures, dict)
        spread.add_row(title, *(f"{figures[column]:,}" for column in columns))
    terminal.show(spread)
    numbers = ("batches", "stored", "uncompressed", "ratio")
    codecs = terminal.table("compression", *numbers, numbers=numbers)
    for name, codec in sorted(stats.codecs.items()):
        sizes = (size_text(codec.stored_bytes), size_text(codec.plain_bytes))
        codecs.add_row(name, f"{codec.batches:,}", *sizes, f"{codec.ratio:.2f}")
    terminal.show(codecs)
    for count, what in (
        (stats.control_batches, "control batches"),
        (stats.undecodable_batches, "batches that cannot be decoded"),
        (stats.damaged_bytes, "damaged bytes"),
    ):
        if count:
            print_line(f"{count:,} {what}, not counted above")


# --- find, repair --------------------------------------------------------------------------------------------------


def found_line(found: FoundRecord) -> str:
    """Return a line with the position of a record."""
    return f"offset {found.offset}  byte {found.position}  {time_text(found.timestamp)}  {short(found.path)}"


def plan_lines(plan: RepairPlan) -> list[str]:
    """Return the lines that describe a repair of a file."""
    lines = [
        f"{short(plan.path)}: the log ends at byte {plan.position} (offset {plan.offset}): {plan.reason}",
    ]
    if plan.removed_bytes:
        lines.append(f"  cut the file there, and keep {counted(plan.removed_bytes, 'byte')} in {short(plan.side_path)}")
    if plan.good_batches:
        batches = counted(plan.good_batches, "good batch", "good batches")
        records = counted(plan.good_records, "record")
        lines.append(f"  these bytes include {batches} ({records}) after the bad batch")
    lines += (f"  rename {short(source)} to {os.path.basename(target)}" for source, target in plan.set_aside)
    if plan.epochs:
        lines.append(f"  begin leader epoch {plan.epochs[-1].epoch} at offset {plan.offset}")
    if plan.checkpoint is not None:
        lines.append(f"  set the recovery point to offset {plan.offset}")
    lines.append("  remove its indexes, which the broker builds again")
    return lines


def problem_lines(found: Survey) -> list[str]:
    """Return the lines that describe the problems of a partition."""
    return [f"{short(problem.path)}: {problem.message}" for problem in found.problems]


def partition_plan_lines(plan: PartitionPlan) -> list[str]:
    """Return the lines that describe a repair of a partition."""
    lines = [f"the repair: {outcome_line(plan)}"]
    for kept in plan.changed:
        size_bytes = kept.size_bytes - kept.kept_bytes
        lines.append(
            f"  take {counted(size_bytes, 'byte')} out of {short(kept.segment.path)}, into side files beside it"
        )
    lines += (f"  rename {short(source)} to {os.path.basename(target)}" for source, target in plan.set_aside)
    if plan.begin_segment:
        lines.append(f"  continue in a new segment at offset {plan.end_offset}")
    if plan.survey.rewrite_metadata:
        lines.append("  write partition.metadata again: make sure that these are the right files")
    if plan.epochs:
        lines.append(f"  begin leader epoch {plan.epochs[-1].epoch} at offset {plan.end_offset}")
    if plan.checkpoint is not None:
        lines.append(f"  set the recovery point to offset {plan.checkpoint.recovery_point}")
    return lines


def outcome_line(plan: PartitionPlan) -> str:
    """Return a line that says where the log ends after a repair and which offsets are lost."""
    lost = ", ".join(f"{first} to {behind - 1}" for first, behind in plan.lost[:_MAX_RANGES])
    more = ", ..." if len(plan.lost) > _MAX_RANGES else ""
    begins = "" if plan.checkpoint is None else f"begins at offset {plan.checkpoint.log_start_offset} and "
    if lost:
        loss = f"offsets {lost}{more} are lost"
    else:
        # If gaps are allowed, nothing shows which offsets the end of a segment held.
        takes_out = plan.set_aside or any(True for kept in plan.kept for _ in kept.removed)
        loss = "no lost offset is known, but the removed bytes may have held some" if takes_out else "nothing is lost"
    back = [(first, min(behind, plan.end_offset)) for first, behind in plan.survey.returned if first < plan.end_offset]
    if returned := ", ".join(f"{first} to {behind - 1}" for first, behind in back[:_MAX_RANGES]):
        more = ", ..." if len(back) > _MAX_RANGES else ""
        loss += f"; offsets {returned}{more} are back"
    return f"the log {begins}ends at {plan.end_offset}; {loss}"


def print_line(line: str) -> None:
    """Write a line to standard output."""
    write_line(line, flush=False)


def key_document(key: bytes, count: int) -> dict[str, Any]:
    """Return a key and its number of records for a program."""
    text, encoding = text_of(key)
    document: dict[str, Any] = {"key": text, "records": count}
    if encoding is not msgspec.UNSET:
        document["key_encoding"] = encoding
    return document
