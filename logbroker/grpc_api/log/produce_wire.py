"""Parsing of produce requests without copying their batches.

Protobuf's parser copies a bytes field twice. It also makes an object of every item before the items can be counted: a
request of empty items would grow a hundredfold. Here a batch stays a view of the received bytes, and items and records
are counted while they are read. Encoding: protobuf.dev, "Encoding"; unknown fields are skipped, and if a field comes
several times, its last value is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from google.protobuf.message import DecodeError

from logbroker.broker.topics import MAX_ITEMS
from logbroker.errors import InvalidRequestError
from logbroker.grpc_api.request_parsing import (
    FIELD_STEPS,
    MAX_FIELDS,
    MAX_TEXT_BYTES,
    SLICE_FIELDS,
    element_counter,
    too_long,
)
from logbroker.grpc_api.wire_format import BYTES, VARINT, end_of, malformed, read_varint32, skip_value
from logbroker.pacing import Pace, Steps, at_once, in_turns
from logbroker.record.varint import read_varint
from logbroker.v1.log_pb2 import PlainRecords

MAX_RECORDS: Final = 100_000
"""Maximum number of plain records and their headers in one request."""
MAX_ITEM_FIELDS: Final = 10_000

# Field number << 3 | wire type, as in log.proto; a test compares them.
_CORRELATION_ID: Final = 1 << 3 | VARINT
_DURABILITY: Final = 2 << 3 | VARINT
_ITEMS: Final = 3 << 3 | BYTES
_TOPIC: Final = 1 << 3 | BYTES
_TOPIC_ID: Final = 2 << 3 | BYTES
_PARTITION: Final = 3 << 3 | VARINT
_GENERATION: Final = 4 << 3 | VARINT
_BATCH: Final = 5 << 3 | BYTES
_RECORDS: Final = 6 << 3 | BYTES
_TEXTS: Final = {_TOPIC: "ProduceItem.topic", _TOPIC_ID: "ProduceItem.topic_id"}

_count_elements: Final = element_counter(PlainRecords.DESCRIPTOR, "ProduceRequest")


class WireItem(msgspec.Struct, gc=False):
    """A ProduceItem. At most one of `batch` and `records` is set."""

    topic: str = ""
    topic_id: bytes = b""
    partition: int | None = None
    generation: int = 0
    batch: memoryview | None = None
    records: PlainRecords | None = None
    parts: Sequence[tuple[int, int]] = ()
    """Start and end of each field `records` in the request."""
    dropped_parts: int = 0
    """Number of the `parts`, counted from the first, that a later field `batch` replaces."""
    fields: int = 0


class WireRequest(msgspec.Struct, gc=False):
    """A ProduceRequest."""

    correlation_id: int
    durability: int
    items: list[WireItem]


async def read_produce(message: bytes) -> WireRequest:
    """Parse a serialized ProduceRequest. Raises InvalidRequestError for malformed bytes, or too many elements."""
    return await in_turns(produce_steps(message), Pace())


def read_produce_request(message: bytes) -> WireRequest:
    """Do as `read_produce`, without pauses."""
    return at_once(produce_steps(message))


def produce_steps(message: bytes) -> Steps[WireRequest]:
    """Parse a serialized ProduceRequest in steps; see `read_produce`."""
    correlation_id = durability = position = 0
    items: list[WireItem] = []
    end = len(message)
    elements = fields = all_fields = 0
    try:
        while position < end:
            fields += 1
            if fields >= SLICE_FIELDS:
                all_fields += fields
                if all_fields > MAX_FIELDS:
                    raise InvalidRequestError(f"the request has more than {MAX_FIELDS:,} fields; split it")
                yield FIELD_STEPS * fields
                fields = 0
            tag, position = read_varint32(message, position)
            if tag == _ITEMS:
                if len(items) >= MAX_ITEMS:
                    raise InvalidRequestError(f"the request lists more than {MAX_ITEMS} items; split it")
                size, position = read_varint32(message, position)
                item_end = end_of(position, size, end)
                item = _read_item(message, position, item_end)
                fields += item.fields
                if item.parts:
                    elements += yield from _read_records(message, item)
                    if elements > MAX_RECORDS:
                        raise InvalidRequestError(f"the request holds more than {MAX_RECORDS} records; split it")
                items.append(item)
                position = item_end
            elif tag == _CORRELATION_ID:
                correlation_id, position = read_varint(message, position)
            elif tag == _DURABILITY:
                durability, position = read_varint(message, position)
            else:
                position = skip_value(message, position, tag, end)
    except (IndexError, UnicodeDecodeError, DecodeError):
        raise malformed("ProduceRequest") from None
    return WireRequest(correlation_id, durability, items)


def _read_records(message: bytes, item: WireItem) -> Steps[int]:
    """Read the records of an item, and return the number of their elements. Too many elements are refused before
    protobuf makes an object of each."""
    elements = 0
    for number, (start, end) in enumerate(item.parts):
        count = yield from _count_elements(message, start, end)
        # If a message field comes several times, its values are merged into one message. A value before a batch is
        # ignored, but it must be valid.
        before_batch = number < item.dropped_parts
        records = PlainRecords() if before_batch else item.records or PlainRecords()
        records.MergeFromString(message[start:end])
        if not before_batch:
            item.records = records
        elements += count
        yield count // 4
    return elements


def _read_item(message: bytes, position: int, end: int) -> WireItem:
    topic, topic_id, partition, generation, batch = "", b"", None, 0, None
    parts: list[tuple[int, int]] = []
    dropped_parts = fields = 0
    while position < end:
        fields += 1
        if fields > MAX_ITEM_FIELDS:
            raise InvalidRequestError(f"an item of the request has more than {MAX_ITEM_FIELDS:,} fields; split it")
        # One-byte numbers are read inline: this loop runs for every incoming batch.
        tag = message[position]
        if tag < 0x80:
            position += 1
        else:
            tag, position = read_varint32(message, position)
        if tag & 7 == BYTES:
            size = message[position]
            if size < 0x80:
                position += 1
            else:
                size, position = read_varint32(message, position)
            field_end = position + size
            if field_end > end:
                raise IndexError
            if tag == _BATCH:
                batch = memoryview(message)[position:field_end]
                dropped_parts = len(parts)
            elif size > MAX_TEXT_BYTES and tag in _TEXTS:
                raise too_long(_TEXTS[tag], size, MAX_TEXT_BYTES)
            elif tag == _TOPIC:
                topic = message[position:field_end].decode()
            elif tag == _TOPIC_ID:
                topic_id = message[position:field_end]
            elif tag == _RECORDS:
                parts.append((position, field_end))
                batch = None
            elif not tag >> 3:
                raise DecodeError("a field with number 0")
            position = field_end
        elif tag == _PARTITION:
            value, position = read_varint(message, position)
            value &= 0xFFFF_FFFF
            partition = value - (1 << 32) if value >> 31 else value
        elif tag == _GENERATION:
            value, position = read_varint(message, position)
            generation = value & 0xFFFF_FFFF
        else:
            position = skip_value(message, position, tag, end)
    if position != end:
        raise IndexError
    return WireItem(topic, topic_id, partition, generation, batch, None, parts, dropped_parts, fields)
