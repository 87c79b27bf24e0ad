"""A dead letter: a record with its key, value and headers as they were, and more headers that tell what happened to it.

header                      value
logbroker-origin-topic      name of the topic that the record failed in
logbroker-origin-partition  ASCII decimal, as all numbers here
logbroker-origin-offset
logbroker-origin-timestamp  milliseconds since 1970, as all times here; -1: it had none
logbroker-group             id of the queue group
logbroker-attempts          number of failed attempts
logbroker-first-failure     time
logbroker-last-failure      time
logbroker-reason            reason of a failed attempt; one header for each of the last eight attempts, in order
logbroker-undecodable       only if the value is a whole record batch that the group could not decode

A record may become a dead letter more than once: it failed in a dead-letter topic, too, or was redriven and failed
again. Then it also has these headers, about the first time:

logbroker-first-origin-topic, -partition, -offset, -timestamp
logbroker-first-origin-group
logbroker-first-origin-attempts
logbroker-first-origin-failure    time of the first failure
logbroker-first-origin-reason     the last reason; absent if none was given
logbroker-dead-lettered           how many times it has become a dead letter
logbroker-letter                  only if the record failed in a dead-letter topic: all headers of these names that it
                                  had, as a msgpack array of names and values. A redrive puts them back
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from logbroker.record.codec import Headers, LogRecord, NewRecord

ORIGIN_TOPIC: Final = "logbroker-origin-topic"
ORIGIN_PARTITION: Final = "logbroker-origin-partition"
ORIGIN_OFFSET: Final = "logbroker-origin-offset"
ORIGIN_TIMESTAMP: Final = "logbroker-origin-timestamp"
GROUP: Final = "logbroker-group"
ATTEMPTS: Final = "logbroker-attempts"
FIRST_FAILURE: Final = "logbroker-first-failure"
LAST_FAILURE: Final = "logbroker-last-failure"
REASON: Final = "logbroker-reason"
UNDECODABLE: Final = "logbroker-undecodable"
FIRST_TOPIC: Final = "logbroker-first-origin-topic"
FIRST_PARTITION: Final = "logbroker-first-origin-partition"
FIRST_OFFSET: Final = "logbroker-first-origin-offset"
FIRST_TIMESTAMP: Final = "logbroker-first-origin-timestamp"
FIRST_GROUP: Final = "logbroker-first-origin-group"
FIRST_ATTEMPTS: Final = "logbroker-first-origin-attempts"
FIRST_TIME: Final = "logbroker-first-origin-failure"
FIRST_REASON: Final = "logbroker-first-origin-reason"
TIMES: Final = "logbroker-dead-lettered"
LETTER: Final = "logbroker-letter"

_FIRST_ORIGIN: Final = (
    FIRST_TOPIC,
    FIRST_PARTITION,
    FIRST_OFFSET,
    FIRST_TIMESTAMP,
    FIRST_GROUP,
    FIRST_ATTEMPTS,
    FIRST_TIME,
    FIRST_REASON,
)
HEADERS: Final = frozenset(
    (
        ORIGIN_TOPIC,
        ORIGIN_PARTITION,
        ORIGIN_OFFSET,
        ORIGIN_TIMESTAMP,
        GROUP,
        ATTEMPTS,
        FIRST_FAILURE,
        LAST_FAILURE,
        REASON,
        UNDECODABLE,
        *_FIRST_ORIGIN,
        TIMES,
        LETTER,
    )
)

MAX_REASONS: Final = 8
"""Maximum number of reasons that a dead letter names. The last ones are kept."""
_MAX_DIGITS: Final = 19
_decode_letter: Final = msgspec.msgpack.Decoder(list[tuple[str, bytes | None]]).decode


class FirstOrigin(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The place where a record first became a dead letter."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    group: str
    attempts: int
    failure_ms: int
    reason: str
    times: int
    """How many times the record has become a dead letter so far."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a dead letter, and the reasons why it failed."""

    topic: str
    partition: int
    offset: int
    group: str
    attempts: int
    first_failure_ms: int
    last_failure_ms: int
    reasons: Sequence[str]
    undecodable: bool = False


def dead_letter(
    record: LogRecord, origin: Origin, *, first: FirstOrigin | None = None, was_letter: bool = False
) -> NewRecord:
    """Return the dead letter of a record. Its timestamp is the time of its own append: its retention begins then.

    `first`: the first origin, if the record was a dead letter before. `was_letter`: the record comes from a dead-letter
    topic; its headers of these names are trusted, and kept for a redrive. In any other record, a producer wrote such
    headers, and they are dropped.
    """
    told: list[tuple[str, bytes | None]] = [
        (ORIGIN_TOPIC, origin.topic.encode()),
        (ORIGIN_PARTITION, b"%d" % origin.partition),
        (ORIGIN_OFFSET, b"%d" % origin.offset),
        (ORIGIN_TIMESTAMP, b"%d" % record.timestamp_ms),
        (GROUP, origin.group.encode()),
        (ATTEMPTS, b"%d" % origin.attempts),
        (FIRST_FAILURE, b"%d" % origin.first_failure_ms),
        (LAST_FAILURE, b"%d" % origin.last_failure_ms),
    ]
    # A worker wrote the reason: the text may contain characters that UTF-8 cannot encode.
    told += [(REASON, reason.encode(errors="replace")) for reason in origin.reasons]
    if origin.undecodable:
        told.append((UNDECODABLE, b"1"))
    own = [header for header in record.headers if header[0] in HEADERS] if was_letter else []
    if first is None:
        first = first_origin(own)
    if first is not None:
        told += [
            (FIRST_TOPIC, first.topic.encode()),
            (FIRST_PARTITION, b"%d" % first.partition),
            (FIRST_OFFSET, b"%d" % first.offset),
            (FIRST_TIMESTAMP, b"%d" % first.timestamp_ms),
            (FIRST_GROUP, first.group.encode()),
            (FIRST_ATTEMPTS, b"%d" % first.attempts),
            (FIRST_TIME, b"%d" % first.failure_ms),
            *([(FIRST_REASON, first.reason.encode())] if first.reason else []),
            (TIMES, b"%d" % (first.times + 1)),
        ]
    if own:
        told.append((LETTER, msgspec.msgpack.encode(own)))
    return NewRecord(record.value, record.key, [*without_origin(record.headers), *told])


def first_origin(headers: Headers) -> FirstOrigin | None:
    """Return the first origin of a dead letter from its headers, or None if the headers do not state it."""
    if header_value(headers, FIRST_TOPIC) is None:
        names = ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ORIGIN_TIMESTAMP, GROUP, ATTEMPTS, FIRST_FAILURE, REASON
        times: int | None = 1
    else:
        names = _FIRST_ORIGIN
        times = _number(headers, TIMES)
    topic, partition, offset, timestamp_ms, group, attempts, failure_ms, reason = names
    partition_number, offset_number = _number(headers, partition), _number(headers, offset)
    if partition_number is None or offset_number is None:
        return None
    return FirstOrigin(
        topic=_text(headers, topic),
        partition=partition_number,
        offset=offset_number,
        timestamp_ms=_or(_number(headers, timestamp_ms), -1),
        group=_text(headers, group),
        attempts=_or(_number(headers, attempts), 0),
        failure_ms=_or(_number(headers, failure_ms), -1),
        reason=_text(headers, reason),
        times=_or(times, 1),
    )


def _number(headers: Headers, name: str) -> int | None:
    """Return the number in a header, or None for an invalid one: anybody may write to the dead-letter topic."""
    text = header_value(headers, name) or b""
    return int(text) if len(text) <= _MAX_DIGITS and text.isdigit() else None


def _or(number: int | None, default: int) -> int:
    return default if number is None else number


def _text(headers: Headers, name: str) -> str:
    return (header_value(headers, name) or b"").decode(errors="replace")


def without_origin(headers: Headers) -> Headers:
    """Return the headers without those of a dead letter."""
    return [header for header in headers if header[0] not in HEADERS]


def as_it_was(headers: Headers) -> Headers:
    """Return the headers that the record had before it became a dead letter, including those of an earlier dead
    letter."""
    packed = header_value(headers, LETTER)
    try:
        own = [] if packed is None else _decode_letter(packed)
    except msgspec.MsgspecError:
        own = []  # The broker did not write it.
    return [*without_origin(headers), *own]


def header_value(headers: Headers, name: str) -> bytes | None:
    """Return the value of the last header of a name."""
    return next((value for header, value in reversed(headers) if header == name), None)
