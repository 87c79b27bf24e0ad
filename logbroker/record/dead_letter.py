"""A dead letter: a record with its key, value and headers as they were, and more headers that tell what happened to it.

header                      value
logbroker-origin-topic      name of the topic
logbroker-origin-partition  ASCII decimal, as all numbers here
logbroker-origin-offset
logbroker-origin-timestamp  milliseconds since 1970, as all times here; -1: it had none
logbroker-group             id of the queue group
logbroker-attempts          how many failed
logbroker-first-failure     time
logbroker-last-failure      time
logbroker-reason            of a failed attempt; one header each for the last eight, the last one last
logbroker-undecodable       only where the value is a whole record batch that the group could not decode
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
    )
)


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a dead letter comes from, and why it is one."""

    topic: str
    partition: int
    offset: int
    group: str
    attempts: int
    first_failure_ms: int
    last_failure_ms: int
    reasons: Sequence[str]
    undecodable: bool = False


def dead_letter(record: LogRecord, origin: Origin) -> NewRecord:
    """Return the dead letter of a record, stamped with the time of its appending, so that it is kept from then on.

    Headers of a dead letter that the record was before are not kept.
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
    # A reason is a worker's text: it may hold what UTF-8 cannot.
    told += [(REASON, reason.encode(errors="replace")) for reason in origin.reasons]
    if origin.undecodable:
        told.append((UNDECODABLE, b"1"))
    return NewRecord(record.value, record.key, [*without_origin(record.headers), *told])


def without_origin(headers: Headers) -> Headers:
    """The headers that a dead letter had before it was one."""
    return [header for header in headers if header[0] not in HEADERS]


def header_value(headers: Headers, name: str) -> bytes | None:
    """The value of the last header of a name."""
    return next((value for header, value in reversed(headers) if header == name), None)
