"""Faults of one line, put into the broker's process to see whether the barrage finds them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from logbroker.broker.local_engine import engine
from logbroker.grpc_api import methods, request_parsing, wire_format
from logbroker.grpc_api.log import plain_records, produce_wire
from logbroker.record.header import parse_header


def _put(owner: ModuleType, name: str, value: object) -> None:
    assert hasattr(owner, name), name
    setattr(owner, name, value)


def _bombs_expand() -> None:
    _put(plain_records, "MAX_EXPANDED_BYTES", 1 << 40)


def _lengths_unchecked() -> None:
    _put(wire_format, "end_of", lambda position, size, end: position + size)


def _varints_without_end() -> None:
    def varint(message: bytes, position: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, position

    for name in ("read_varint", "read_varint32"):
        _put(produce_wire, name, varint)
        _put(wire_format, name, varint)


def _transport_parses() -> None:
    def uncounted(descriptor: Descriptor) -> Callable[[bytes], Awaitable[Message]]:
        async def parsed(message: bytes) -> Message:
            return GetMessageClass(descriptor).FromString(message)

        return parsed

    _put(methods, "request_parser", uncounted)


def _batches_unchecked() -> None:
    _put(engine, "check_new_batch", parse_header)


def _elements_uncounted() -> None:
    _put(request_parsing, "UNCOUNTED_BYTES", 1 << 40)


PLANTS: Final[Mapping[str, Callable[[], None]]] = {
    "bombs-expand": _bombs_expand,
    "lengths-unchecked": _lengths_unchecked,
    "varints-without-end": _varints_without_end,
    "transport-parses": _transport_parses,
    "batches-unchecked": _batches_unchecked,
    "elements-uncounted": _elements_uncounted,
}
