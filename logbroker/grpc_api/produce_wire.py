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
from logbroker.v1.log_pb2 import PlainRecords

MAX_RECORDS: Final = 100_000
"""Plain records that one item may hold."""

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5

# Field number << 3 | wire type, as log.proto has them; a test compares.
_CORRELATION_ID: Final = 1 << 3 | _VARINT
_DURABILITY: Final = 2 << 3 | _VARINT
_ITEMS: Final = 3 << 3 | _BYTES
_TOPIC: Final = 1 << 3 | _BYTES
_TOPIC_ID: Final = 2 << 3 | _BYTES
_PARTITION: Final = 3 << 3 | _VARINT
_GENERATION: Final = 4 << 3 | _VARINT
_BATCH: Final = 5 << 3 | _BYTES
_RECORDS: Final = 6 << 3 | _BYTES
_RECORD: Final = 1 << 3 | _BYTES


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
    view = memoryview(message)
    request = WireRequest(0, 0, [])
    position, end = 0, len(message)
    try:
        while position < end:
            tag, position = _varint32(message, position)
            if tag == _ITEMS:
                size, position = _varint32(message, position)
                if len(request.items) >= MAX_ITEMS:
                    raise InvalidRequestError(f"the request lists more than {MAX_ITEMS} items; split it")
                item_end = position + size
                if item_end > end:
                    raise _malformed()
                request.items.append(_read_item(message, view, position, item_end))
                position = item_end
            elif tag == _CORRELATION_ID:
                request.correlation_id, position = _varint(message, position)
            elif tag == _DURABILITY:
                request.durability, position = _varint(message, position)
            else:
                position = _skip(message, position, tag, end)
    except (IndexError, UnicodeDecodeError, DecodeError):
        raise _malformed() from None
    return request


def _read_item(message: bytes, view: memoryview, position: int, end: int) -> WireItem:
    item = WireItem()
    while position < end:
        # Numbers of one byte are read in place: this loop runs for every batch that comes in.
        tag = message[position]
        if tag < 0x80:
            position += 1
        else:
            tag, position = _varint32(message, position)
        if tag & 7 == _BYTES:
            size = message[position]
            if size < 0x80:
                position += 1
            else:
                size, position = _varint32(message, position)
            field_end = position + size
            if field_end > end:
                raise _malformed()
            if tag == _BATCH:
                item.batch, item.records = view[position:field_end], None
            elif tag == _TOPIC:
                item.topic = message[position:field_end].decode()
            elif tag == _TOPIC_ID:
                item.topic_id = message[position:field_end]
            elif tag == _RECORDS:
                _count_records(message, position, field_end)
                # A message field that comes twice is merged.
                item.records = item.records or PlainRecords()
                item.records.MergeFromString(message[position:field_end])
                item.batch = None
            elif not tag >> 3:
                raise _malformed()
            position = field_end
        elif tag == _PARTITION:
            value, position = _varint(message, position)
            value &= 0xFFFF_FFFF
            item.partition = value - (1 << 32) if value >> 31 else value
        elif tag == _GENERATION:
            value, position = _varint(message, position)
            item.generation = value & 0xFFFF_FFFF
        else:
            position = _skip(message, position, tag, end)
    if position != end:
        raise _malformed()
    return item


def _count_records(message: bytes, position: int, end: int) -> None:
    """Refuse more records than allowed before protobuf makes an object of each."""
    count = 0
    while position < end:
        tag, position = _varint32(message, position)
        position = _skip(message, position, tag, end)
        count += tag == _RECORD
        if count > MAX_RECORDS:
            raise InvalidRequestError(f"an item holds more than {MAX_RECORDS} records; split it")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position and the position behind it; IndexError where the bytes end before."""
    value = message[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    for shift in range(7, 70, 7):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
    raise _malformed()


def _varint32(message: bytes, position: int) -> tuple[int, int]:
    """Return a tag or a length and the position behind it: protobuf takes no more than 5 bytes and 32 bits."""
    value = message[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    for shift in range(7, 35, 7):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise _malformed()
    if value >> 32:
        raise _malformed()
    return value, position


def _skip(message: bytes, position: int, tag: int, end: int) -> int:
    """Return the position behind a field whose tag was read."""
    wire_type = tag & 7
    if not tag >> 3:
        raise _malformed()
    if wire_type == _VARINT:
        return _end(_varint(message, position)[1], 0, end)
    if wire_type == _BYTES:
        size, position = _varint32(message, position)
        return _end(position, size, end)
    if wire_type == _FIXED64:
        return _end(position, 8, end)
    if wire_type == _FIXED32:
        return _end(position, 4, end)
    raise _malformed()


def _end(position: int, size: int, end: int) -> int:
    if position + size > end:
        raise _malformed()
    return position + size


def _malformed() -> InvalidRequestError:
    return InvalidRequestError("the message is not a ProduceRequest of logbroker.v1; check the client's .proto files")
