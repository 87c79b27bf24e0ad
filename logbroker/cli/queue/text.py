"""Queue groups and lanes as text and as JSON."""

from __future__ import annotations

import codecs
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from logbroker.cli.common import terminal
from logbroker.cli.common.json_text import text_of
from logbroker.cli.common.lines import counted
from logbroker.cli.common.output_formats import json_record
from logbroker.cli.queue.options import creation_command
from logbroker.client.sync import ConfigValue, LaneDescription, QueueDescription, QueuePartition, QueueSettings
from logbroker.texts import shown, size_text

_MAX_SHOWN_BYTES: Final = 256
"""Maximum number of bytes of a key in text output. JSON output has the whole key."""

_VALUE_BYTES: Final = 90
"""Maximum number of bytes of a value in text output."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def key_text(key: bytes | None) -> str:
    """Write an ordering key for people."""
    if key is None:
        return "(no key)"
    return content_text(key)


def content_text(content: bytes) -> str:
    """Write any bytes for people: plain and short text unchanged, everything else as Python writes bytes."""
    if len(content) > _MAX_SHOWN_BYTES:
        return f"{content[:_MAX_SHOWN_BYTES]!r}... ({counted(len(content), 'byte')})"
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return repr(content)
    # A key must not look like the text that stands for another key.
    is_plain = text.isprintable() and text.strip() == text != "" and not text.startswith(("b'", 'b"', "("))
    return text if is_plain else repr(content)


def value_text(value: bytes | None) -> str:
    """Write the beginning of a record's value in one line, for people."""
    if not value:
        return "(none)" if value is None else "(empty)"
    cut = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode(
        value[:_VALUE_BYTES], final=len(value) <= _VALUE_BYTES
    )
    return shown(cut) if len(value) <= _VALUE_BYTES else f"{shown(cut)}... ({counted(len(value), 'byte')})"


def key_document(key: bytes | None) -> dict[str, Any]:
    text, encoding = text_of(key)
    return {"key": text} | ({} if encoding is msgspec.UNSET else {"key_encoding": encoding})


def seconds_text(seconds: float) -> str:
    """Write the value of a duration setting."""
    return f"{seconds:,.10g} s"


def share_text(part: int, whole: int) -> str:
    """Write a share, rounded down: 100 % means all."""
    return f"{part * 1000 // whole / 10}%" if whole > 0 else "-"


def moment_text(moment_ms: int) -> str:
    """Write a time, with how long ago or how far ahead it is."""
    age_ms = now_ms() - moment_ms
    age = f"{terminal.age_text(age_ms)} ago" if age_ms >= 0 else f"in {terminal.age_text(-age_ms)}"
    return f"{terminal.local_time_text(moment_ms)} ({age})"


def halt_text(queue: QueueDescription) -> str:
    """Return what a group that is draining or waiting waits for; "": it is in another state."""
    if queue.state == "draining":
        in_flight = queue.counts.in_flight
        left = f"{counted(in_flight, 'record')} in flight {'is' if in_flight == 1 else 'are'} settled"
        return f"nothing new is handed out until {left}: the altered settings take effect then"
    if queue.state == "waiting":
        grace = seconds_text(queue.settings.grace_seconds or 0)
        return f"only the workers from before the start of the broker are served, until the grace is over ({grace})"
    return ""


def letters_kept_text(configs: Iterable[ConfigValue]) -> str:
    """Return how long a dead-letter topic with these configs keeps letters."""
    values = {
        config.name: int(config.value) for config in configs if config.name in ("retention.ms", "retention.bytes")
    }
    limits = []
    if values["retention.ms"] >= 0:
        limits.append(f"for {terminal.age_text(values['retention.ms'])}")
    if values["retention.bytes"] >= 0:
        limits.append(f"up to {size_text(values['retention.bytes'])} a partition")
    return f"{', '.join(limits)}, sent back or not; then retention removes them" if limits else "for ever"


def settings_rows(settings: QueueSettings, letters_kept: str) -> Iterator[tuple[str, str]]:
    """Yield the settings with their values, for people. `letters_kept` is how long the dead-letter topic keeps letters,
    if there is one."""
    yield "ordering key", f"header {settings.key_header}" if settings.key_header else "the record key"
    yield from _priority_rows(settings)
    yield "lease", seconds_text(settings.lease_seconds or 0)
    yield "max attempts", f"{settings.max_attempts:,}"
    first, longest = (
        seconds_text(span or 0) for span in (settings.backoff_initial_seconds, settings.backoff_cap_seconds)
    )
    backoff = f"{first}, times {settings.backoff_factor:g}, up to {longest}, jitter {settings.backoff_jitter:g}"
    yield "backoff", backoff
    yield "when exhausted", f"{settings.on_exhausted}"
    yield "undecodable batches", f"{settings.on_undecodable}"
    if settings.dead_letter_topic:
        yield "dead-letter topic", settings.dead_letter_topic
    if letters_kept:
        yield "dead letters are kept", letters_kept
    yield "grace", seconds_text(settings.grace_seconds or 0)
    yield "alarm: share of a lane", f"over {settings.alarm_share:.0%} of the waiting records, and over 512"
    yield "alarm: age of waiting records", f"over {seconds_text(settings.alarm_age_seconds or 0)}"
    yield "alarm: parked", f"over {counted(settings.max_parked_records or 0, 'record')}"
    if settings.split_by:
        hot = f"over {settings.split_share:.0%} for {seconds_text(settings.split_age_seconds or 0)}"
        yield "hot lanes are split", f"by {settings.split_by} into {settings.split_into:,}, if {hot}"
    yield "in flight, a worker", f"{settings.max_in_flight:,}"
    yield "ready, before the scan pauses", f"{settings.max_ready_records:,}"
    yield "stalled lanes, before it pauses", f"{settings.max_held_lanes:,}"
    yield "delayed, before it pauses", f"{settings.max_delayed_records:,}"


def _priority_rows(settings: QueueSettings) -> Iterator[tuple[str, str]]:
    if settings.priority == "none":
        yield "priority", "none"
        return
    shares = sorted((settings.weights or {}).items(), key=lambda share: -share[1])
    weights = ", ".join(f"{name} {weight}" for name, weight in shares)
    how = {
        "weighted": f", in shares: {weights}",
        "ageing": f", a level every {seconds_text(settings.age_seconds or 0)}",
    }
    yield "priority", f"{settings.priority}{how.get(settings.priority or '', '')}"
    if settings.ordering == "key":
        yield "rank of a key", "its first record" if settings.priority_rank == "head" else "its most urgent record"


def indexed_text(queue: QueueDescription) -> str:
    """Return how far a queue group has indexed the log."""
    whole = sum(max(0, partition.end - partition.floor) for partition in queue.partitions)
    return f"{share_text(whole - queue.counts.unscanned, whole)}, {counted(queue.counts.unscanned, 'record')} to go"


def description_document(queue: QueueDescription) -> dict[str, Any]:
    """Return all fields of a description, for programs."""
    document: dict[str, Any] = msgspec.structs.asdict(queue)
    document["create_command"] = creation_command(queue.id, queue.topic, queue.settings)
    document["counts"] = {**msgspec.structs.asdict(queue.counts), "waiting": queue.counts.waiting}
    document["oldest_timestamp_ms"] = queue.oldest_timestamp_ms
    document["oldest_age_ms"] = age_ms(queue)
    document["partitions"] = [
        msgspec.structs.asdict(partition) | {"error": None if partition.error is None else str(partition.error)}
        for partition in queue.partitions
    ]
    document["splits"] = [{**msgspec.structs.asdict(split), **key_document(split.key)} for split in queue.splits]
    document["alarms"] = [
        {"kind": alarm.kind, **key_document(alarm.key), "message": alarm.message} for alarm in queue.alarms
    ]
    return document


def age_ms(of: LaneDescription | QueuePartition | QueueDescription) -> int | None:
    """Return the age of the oldest record of a lane, of a partition or of a queue group."""
    return None if of.oldest_timestamp_ms is None else max(0, now_ms() - of.oldest_timestamp_ms)


def oldest_text(of: LaneDescription | QueuePartition | QueueDescription) -> str:
    """Write the age of the oldest record for people."""
    age = age_ms(of)
    return "-" if age is None else terminal.age_text(age)


def lane_document(lane: LaneDescription) -> dict[str, Any]:
    """Return all fields of a lane, for programs."""
    fields = msgspec.structs.asdict(lane)
    del fields["key"], fields["cause"], fields["cause_attempts"], fields["record"]
    fields["sub_lanes"] = [key_document(key) for key in lane.sub_lanes]
    if lane.cause is not None:
        partition, offset = lane.cause
        fields["cause"] = {"partition": partition, "offset": offset, "failures": lane.cause_attempts}
    head = {name: None if fields[name] < 0 else fields[name] for name in ("partition", "offset")}
    return {
        **key_document(lane.key),
        **fields,
        **head,
        "worker_id": lane.worker_id or None,
        "worker_client": lane.worker_client or None,
        "oldest_age_ms": age_ms(lane),
        "session_token": lane.session_token or None,
        **({} if lane.record is None else {"record": json_record(lane.record)}),
    }
