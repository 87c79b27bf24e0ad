"""Requests from the wire, refused before they cost more memory than their bytes.

Protobuf makes an object of every element of a list before anybody can count them: 16 MiB of empty items would become
700 MiB. So a large message is counted first. Bytes that are no message are refused like any other wrong request, not
answered with an error of the transport. Encoding: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from logbroker.errors import InvalidRequestError

UNCOUNTED_BYTES: Final = 64 * 1024
"""What is smaller cannot hold enough to matter."""
MAX_ELEMENTS: Final = 100_000
"""Of all lists of one request together."""

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5


def request_parser(descriptor: Descriptor) -> Callable[[bytes], Message]:
    """Return what reads a serialized message of this type; it raises InvalidRequestError."""
    parse = GetMessageClass(descriptor).FromString
    shape = _shape_of(descriptor)

    def parsed(message: bytes) -> Message:
        if len(message) > UNCOUNTED_BYTES:
            _check_elements(message, shape, descriptor.name)
        try:
            return parse(message)
        except DecodeError:
            raise _malformed(descriptor.name) from None

    return parsed


class _Shape(msgspec.Struct):
    """The fields of a message type that hold, or lead to, lists of messages, strings or bytes; by their tags."""

    lists: set[int]
    nested: dict[int, _Shape]


def _shape_of(descriptor: Descriptor) -> _Shape:
    shape = _Shape(set(), {})
    for field in descriptor.fields:
        if field.type not in (field.TYPE_MESSAGE, field.TYPE_STRING, field.TYPE_BYTES):
            continue
        tag = field.number << 3 | _BYTES
        if field.is_repeated:
            shape.lists.add(tag)
        if field.message_type is not None:
            nested = _shape_of(field.message_type)
            if nested.lists or nested.nested:
                shape.nested[tag] = nested
    return shape


def _check_elements(message: bytes, shape: _Shape, name: str) -> None:
    """Raise InvalidRequestError where a message holds too many elements, or is none."""
    elements = 0
    ends_and_shapes = [(len(message), shape)]
    position = 0
    try:
        while ends_and_shapes:
            end, shape = ends_and_shapes[-1]
            if position == end:
                ends_and_shapes.pop()
                continue
            tag, position = _varint(message, position, end)
            wire_type = tag & 7
            if wire_type == _BYTES:
                size, position = _varint(message, position, end)
                if size > end - position:
                    raise IndexError
                if tag in shape.lists:
                    elements += 1
                    if elements > MAX_ELEMENTS:
                        raise InvalidRequestError(f"the request lists more than {MAX_ELEMENTS} things; split it")
                if tag in shape.nested:
                    ends_and_shapes.append((position + size, shape.nested[tag]))
                else:
                    position += size
            elif wire_type == _VARINT:
                position = _varint(message, position, end)[1]
            elif wire_type == _FIXED64:
                position += 8
            elif wire_type == _FIXED32:
                position += 4
            # The old groups have a tag before and one after their fields, which are counted as if they stood here.
            if position > end:
                raise IndexError
    except IndexError:
        raise _malformed(name) from None


def _varint(message: bytes, position: int, end: int) -> tuple[int, int]:
    """Return the number at a position and the position behind it; IndexError where it runs over the end."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= end:
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise IndexError


def _malformed(name: str) -> InvalidRequestError:
    return InvalidRequestError(f"the message is not a {name} of logbroker.v1; check the client's .proto files")
