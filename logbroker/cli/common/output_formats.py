"""Standard output of `logbroker consume` and `queue work --print`: values as lines, or records as JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from logbroker.cli.common.json_text import Text, Unset, text_of
from logbroker.client.sync import Record, WorkerDelivery
from logbroker.record.message_headers import stated_priority
from logbroker.texts import shown, shown_json


class _JsonHeader(msgspec.Struct, gc=False):
    key: str
    value: Text
    value_encoding: str | Unset = msgspec.UNSET


class _JsonRecord(msgspec.Struct, kw_only=True, gc=False):
    """One line. Bytes that are not UTF-8 are base64, and the encoding is named beside them."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    key: Text
    key_encoding: str | Unset = msgspec.UNSET
    value: Text
    value_encoding: str | Unset = msgspec.UNSET
    headers: list[_JsonHeader]
    priority: int | Unset = msgspec.UNSET
    """Unset if the record has no priority."""


class _JsonDelivery(_JsonRecord, kw_only=True, gc=False):
    """One line of `queue work --print`."""

    attempt: int
    redelivered: bool


def lines(records: Iterable[Record]) -> bytes:
    """Return the values unchanged, each with a line feed. A null value becomes an empty line."""
    return b"".join([(record.value or b"") + b"\n" for record in records])


def json_lines(records: Iterable[Record]) -> bytes:
    """Return each record as a JSON object, with a line feed."""
    return _encode_lines([json_record(record) for record in records])


def shown_lines(records: Iterable[Record]) -> bytes:
    """Return each value as a line for a terminal. Control characters, line ends included, are escaped."""
    return b"".join([_shown_line(record.value or b"") for record in records])


def _shown_line(value: bytes) -> bytes:
    cells = value.decode("utf-8", "backslashreplace").split("\t")  # Tabs are not escaped.
    return "\t".join(map(shown, cells)).encode() + b"\n"


def _encode_lines(records: Sequence[_JsonRecord]) -> bytes:
    return shown_json(_ENCODER.encode_lines(records))


_ENCODER: Final = msgspec.json.Encoder()


def json_delivery(delivery: WorkerDelivery) -> bytes:
    """Return a delivery as a JSON object, with a line feed: the record, `attempt` and `redelivered`."""
    fields = _fields(delivery)
    return _encode_lines([_JsonDelivery(**fields, attempt=delivery.attempt, redelivered=delivery.redelivered)])


def json_record(record: Record) -> _JsonRecord:
    """Return a record as an object that is written as JSON."""
    return _JsonRecord(**_fields(record))


def _fields(record: Record | WorkerDelivery) -> dict[str, Any]:
    key, key_encoding = text_of(record.key)
    value, value_encoding = text_of(record.value)
    priority = stated_priority(record.headers) if record.headers else None
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": value_encoding,
        "headers": [_JsonHeader(name, *text_of(content)) for name, content in record.headers],
        "priority": msgspec.UNSET if priority is None else priority,
    }


FORMATS: Final[dict[str, Callable[[Iterable[Record]], bytes]]] = {"lines": lines, "json": json_lines}
