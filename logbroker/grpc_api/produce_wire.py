"""Produce requests read from the wire without copying their batches.

Protobuf's parser copies a bytes field twice, and makes an object of every item before anybody can count them: a request
of empty items would grow a hundredfold. Here a batch stays a view of the received bytes, and items and records are
counted while they are read. Encoding: protobuf.dev, "Encoding"; unknown fields are passed over, the last value of a
field counts.
"""

from __future__ import annotations

from typing import Final

import msgspec
from google.protobuf.message import DecodeError

from logbroker.errors import InvalidRequestError
from logbroker.grpc_api.refs import MAX_ITEMS
from logbroker.grpc_api.wire_format import BYTES, VARINT, end_of, malformed, read_varint32, skip_value
from logbroker.record.varint import read_varint
from logbroker.v1.log_pb2 import PlainRecords

MAX_RECORDS: Final = 100_000
"""Plain records that one item may hold."""

# Field number << 3 | wire type, as log.proto has them; a test compares.
_CORRELATION_ID: Final = 1 << 3 | VARINT
_DURABILITY: Final = 2 << 3 | VARINT
_ITEMS: Final = 3 << 3 | BYTES
_TOPIC: Final = 1 << 3 | BYTES
_TOPIC_ID: Final = 2 << 3 | BYTES
_PARTITION: Final = 3 << 3 | VARINT
_GENERATION: Final = 4 << 3 | VARINT
_BATCH: Final = 5 << 3 | BYTES
_RECORDS: Final = 6 << 3 | BYTES
_RECORD: Final = 1 << 3 | BYTES


class WireItem(msgspec.Struct, gc=False):
    """A ProduceItem. At most one of `batch` and `records` is set."""

    topic: str = ""
    topic_id: bytes = b""
    partition: int | None = None
    generation: int = 0
    batch: memoryview | None = None
    records: PlainRecords | None = None


class WireRequest(msgspec.Struct, gc=False):
    """A ProduceRequest."""

    correlation_id: int
    durability: int
    items: list[WireItem]


def read_produce_request(message: bytes) -> WireRequest:
    """Read a serialized ProduceRequest; raises InvalidRequestError for bytes that are none, or hold too much."""
    correlation_id = durability = position = 0
    items: list[WireItem] = []
    end = len(message)
    try:
        while position < end:
            tag, position = read_varint32(message, position)
            if tag == _ITEMS:
                if len(items) >= MAX_ITEMS:
                    raise InvalidRequestError(f"the request lists more than {MAX_ITEMS} items; split it")
                size, position = read_varint32(message, position)
                item_end = end_of(position, size, end)
                items.append(_read_item(message, position, item_end))
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


def _read_item(message: bytes, position: int, end: int) -> WireItem:
    topic, topic_id, partition, generation, batch, records = "", b"", None, 0, None, None
    while position < end:
        # Numbers of one byte are read in place: this loop runs for every batch that comes in.
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
                batch, records = memoryview(message)[position:field_end], None
            elif tag == _TOPIC:
                topic = message[position:field_end].decode()
            elif tag == _TOPIC_ID:
                topic_id = message[position:field_end]
            elif tag == _RECORDS:
                _count_records(message, position, field_end)
                # A message field that comes twice is merged.
                records = records or PlainRecords()
                records.MergeFromString(message[position:field_end])
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
    return WireItem(topic, topic_id, partition, generation, batch, records)


def _count_records(message: bytes, position: int, end: int) -> None:
    """Refuse more records than allowed before protobuf makes an object of each."""
    count = 0
    while position < end:
        tag, position = read_varint32(message, position)
        position = skip_value(message, position, tag, end)
        count += tag == _RECORD
        if count > MAX_RECORDS:
            raise InvalidRequestError(f"an item holds more than {MAX_RECORDS} records; split it")
