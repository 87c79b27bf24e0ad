"""Requests from the wire, refused before they cost more memory than their bytes.

Protobuf makes an object of every element of a list before anybody can count them: 16 MiB of empty items would become
700 MiB. So a large message is counted first. Bytes that are no message are refused like any other wrong request, not
answered with an error of the transport.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from logbroker.errors import InvalidRequestError
from logbroker.grpc_api.wire_format import (
    BYTES,
    GROUP_END,
    GROUP_START,
    end_of,
    malformed,
    read_varint32,
    skip_value,
)

UNCOUNTED_BYTES: Final = 64 * 1024
"""What is smaller cannot hold enough to matter."""
MAX_ELEMENTS: Final = 100_000
"""Of all lists of one request together."""


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
            raise malformed(descriptor.name) from None

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
        tag = field.number << 3 | BYTES
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
            tag, position = read_varint32(message, position)
            if tag in shape.lists:
                elements += 1
                if elements > MAX_ELEMENTS:
                    raise InvalidRequestError(f"the request lists more than {MAX_ELEMENTS} things; split it")
            if tag in shape.nested:
                size, position = read_varint32(message, position)
                ends_and_shapes.append((end_of(position, size, end), shape.nested[tag]))
            elif tag & 7 in (GROUP_START, GROUP_END):
                # The old groups have a tag before and one after their fields, which count as if they stood here.
                position = end_of(position, 0, end)
            else:
                position = skip_value(message, position, tag, end)
    except (IndexError, DecodeError):
        raise malformed(name) from None
