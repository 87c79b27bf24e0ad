"""The parts of protobuf's wire format that this package reads and writes itself. Source: protobuf.dev, "Encoding".

A message is its fields one after the other; a field is a tag (its number << 3 | its wire type) and its value.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from logbroker.errors import InvalidRequestError
from logbroker.record.varint import read_varint

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
GROUP_START: Final = 3
GROUP_END: Final = 4
FIXED32: Final = 5


def read_varint32(message: bytes, position: int) -> tuple[int, int]:
    """Do as `read_varint` for a tag or a length, which protobuf limits to 5 bytes and 32 bits."""
    value, end = read_varint(message, position)
    if end - position > 5 or value >> 32:
        raise DecodeError("a tag or length of more than 5 bytes, or 32 bits")
    return value, end


def skip_value(message: bytes, position: int, tag: int, end: int) -> int:
    """Return the position after a value, given its tag and where it begins. Raises IndexError or DecodeError (for
    groups, too)."""
    if not tag >> 3:
        raise DecodeError("a field with number 0")
    wire_type = tag & 7
    if wire_type == VARINT:
        return end_of(read_varint(message, position)[1], 0, end)
    if wire_type == BYTES:
        size, position = read_varint32(message, position)
        return end_of(position, size, end)
    if wire_type == FIXED64:
        return end_of(position, 8, end)
    if wire_type == FIXED32:
        return end_of(position, 4, end)
    raise DecodeError(f"wire type {wire_type} of a field that is unknown")


def end_of(position: int, size: int, end: int) -> int:
    """Return the end of `size` bytes from a position on. Raises IndexError if it is above `end`."""
    if position + size > end:
        raise IndexError
    return position + size


def encode_varint(value: int) -> bytes:
    """Encode a number that is not negative."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def bytes_tag(field_number: int) -> bytes:
    """Return the tag of a field with bytes or a message."""
    return encode_varint(field_number << 3 | BYTES)


def malformed(message_name: str) -> InvalidRequestError:
    """Return the refusal of bytes that are no message of this type."""
    return InvalidRequestError(f"the message is not a {message_name}; check the client's .proto files")
