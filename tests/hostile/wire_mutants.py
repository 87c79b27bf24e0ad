"""Protobuf messages, damaged: by structure (a field is changed and the rest stays whole) and by bytes.

A message is read into its fields without being understood, so that what is written back may be wrong in one place and
right in all others; that reaches deeper than random bytes do. Encoding: protobuf.dev, "Encoding".
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from google.protobuf.descriptor import Descriptor

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
GROUP_START: Final = 3
GROUP_END: Final = 4
FIXED32: Final = 5

NUMBERS: Final = (0, 1, 2, -1, -2, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32, 2**63 - 1, -(2**63), 2**62)
TEXTS: Final = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"..",
    b"../../escaped",
    b"a/b",
    b"name\nwith a line",
    "ключ".encode(),
    "\U0001f4a3".encode() * 100,
    b"n" * 249,
    b"n" * 250,
    b"n" * 70_000,
)
"""Bytes that nobody expects as a name or a value; some are not UTF-8."""


class Field(msgspec.Struct):
    """One field of a message, as it is written: what it says of itself may be overridden."""

    number: int
    wire_type: int
    value: int | bytes | list[Field]
    padding: int = 0
    """Bytes by which its varint, or its length, is longer than it has to be."""
    claimed_length: int | None = None


def fields_of(message: bytes, descriptor: Descriptor) -> list[Field]:
    """Read a sound message; its submessages too."""
    known = {field.number: field for field in descriptor.fields}
    found = []
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        value: int | bytes | list[Field]
        if wire_type == BYTES:
            size, position = _read_varint(message, position)
            value = message[position : position + size]
            position += size
            nested = known[number].message_type
            if nested is not None:
                value = fields_of(value, nested)
        else:
            assert wire_type == VARINT, wire_type
            value, position = _read_varint(message, position)
        found.append(Field(number, wire_type, value))
    return found


def message_of(fields: Sequence[Field]) -> bytes:
    """Write fields, one after the other."""
    return b"".join(map(_written, fields))


def varint(value: int, padding: int = 0) -> bytes:
    """Encode a number as protobuf does, in so many bytes more than it needs."""
    value &= 2**64 - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    if padding:
        encoded[-1] |= 0x80
        encoded += b"\x80" * (padding - 1) + b"\x00"
    return bytes(encoded)


def mutated(rng: random.Random, message: bytes, descriptor: Descriptor, names: Sequence[bytes]) -> bytes:
    """Return the message with one or a few wrong places; now and then as it was, or right by chance.

    `names` are values that mean something, to be put where they do not belong.
    """
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if rng.random() < 0.75:
            try:
                fields = fields_of(message, descriptor)
            except (IndexError, KeyError, AssertionError):
                message = rng.choice(_BYTE_MUTATIONS)(rng, message)  # a change before this one broke it
                continue
            rng.choice(_FIELD_MUTATIONS)(rng, _any_list(rng, fields), names)
            message = message_of(fields)
        else:
            message = rng.choice(_BYTE_MUTATIONS)(rng, message)
    return message


def _written(field: Field) -> bytes:
    tag = varint(field.number << 3 | field.wire_type)
    value = field.value
    if field.wire_type == VARINT and isinstance(value, int):
        return tag + varint(value, field.padding)
    if field.wire_type in (FIXED32, FIXED64) and isinstance(value, int):
        return tag + (value & 2**64 - 1).to_bytes(8, "little")[: 4 if field.wire_type == FIXED32 else 8]
    content = message_of(value) if isinstance(value, list) else varint(value) if isinstance(value, int) else value
    if field.wire_type in (GROUP_START, GROUP_END):
        return tag + content
    if field.wire_type != BYTES:
        return tag + content  # a number was promised, and this is what comes
    length = len(content) if field.claimed_length is None else field.claimed_length
    return tag + varint(length, field.padding) + content


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise IndexError


def _any_list(rng: random.Random, fields: list[Field]) -> list[Field]:
    """Pick the message to change: this one, or one inside."""
    nested = [field.value for field in fields if isinstance(field.value, list)]
    if nested and (rng.random() < 0.75 or not fields):
        return _any_list(rng, rng.choice(nested))
    return fields


# --- changes of one field ------------------------------------------------------------------------------------------


def _new_value(rng: random.Random, fields: list[Field], names: Sequence[bytes]) -> None:
    if not fields:
        return
    field = rng.choice(fields)
    if field.wire_type == VARINT:
        field.value = rng.choice((*NUMBERS, rng.getrandbits(64)))
    else:
        field.wire_type = BYTES
        field.value = rng.choice((rng.choice(TEXTS), rng.choice(names), rng.randbytes(rng.randrange(40))))


def _overlong(rng: random.Random, fields: list[Field], _names: Sequence[bytes]) -> None:
    if fields:
        rng.choice(fields).padding = rng.choice((1, 2, 5, 8, 9, 10, 20, 1000))


def _wrong_length(rng: random.Random, fields: list[Field], _names: Sequence[bytes]) -> None:
    lengthy = [field for field in fields if field.wire_type == BYTES]
    if lengthy:
        rng.choice(lengthy).claimed_length = rng.choice((0, 1, 2, 3, *NUMBERS, 100, 2**20))


def _wrong_wire_type(rng: random.Random, fields: list[Field], _names: Sequence[bytes]) -> None:
    if fields:
        rng.choice(fields).wire_type = rng.randrange(8)


def _wrong_number(rng: random.Random, fields: list[Field], _names: Sequence[bytes]) -> None:
    if fields:
        rng.choice(fields).number = rng.choice((0, *range(1, 14), 15, 16, 19_000, 2**29 - 1, 2**29, 2**32, 2**60))


def _again(rng: random.Random, fields: list[Field], _names: Sequence[bytes]) -> None:
    if fields:
        field = rng.choice(fields)
        count = rng.choice((1, 1, 2, 3, 20))
        if rng.random() < 0.03:
            count = rng.choice((1_000, 20_001, 120_000)) if len(_written(field)) < 8 else 1_000
        fields += [field] * count


def _gone(rng: random.Random, fields: list[Field], _names: Sequence[bytes]) -> None:
    if fields:
        fields.pop(rng.randrange(len(fields)))


def _other_order(rng: random.Random, fields: list[Field], _names: Sequence[bytes]) -> None:
    rng.shuffle(fields)


def _unknown(rng: random.Random, fields: list[Field], _names: Sequence[bytes]) -> None:
    number = rng.choice((17, 100, 18_999, 2**29 - 1))
    depth = rng.choice((0, 1, 3, 60, 5_000))  # protobuf takes 100
    value = rng.choice((VARINT, FIXED32, FIXED64, BYTES))
    inner = [Field(number, value, rng.choice(NUMBERS))]
    start, end = varint(number << 3 | GROUP_START), varint(number << 3 | GROUP_END)
    content = start * depth + message_of(inner) + end * (depth - (rng.random() < 0.2))
    # Written as it is: a field of a number has no length.
    fields.insert(rng.randrange(len(fields) + 1), Field(number, GROUP_START, content[len(varint(number << 3)) :]))


def _inside_itself(rng: random.Random, fields: list[Field], _names: Sequence[bytes]) -> None:
    nested = [field for field in fields if isinstance(field.value, list)]
    if nested:
        field = rng.choice(nested)
        content = message_of([field])
        for _ in range(rng.choice((1, 2, 50, 150))):
            content = varint(field.number << 3 | BYTES) + varint(len(content)) + content
        field.value = content


_FIELD_MUTATIONS: Final[Sequence[Callable[[random.Random, list[Field], Sequence[bytes]], None]]] = (
    _new_value,
    _new_value,
    _new_value,
    _overlong,
    _wrong_length,
    _wrong_wire_type,
    _wrong_number,
    _again,
    _gone,
    _other_order,
    _unknown,
    _inside_itself,
)


# --- changes of bytes ----------------------------------------------------------------------------------------------


def _cut(rng: random.Random, message: bytes) -> bytes:
    return message[: rng.randrange(len(message) + 1)]


def _flipped(rng: random.Random, message: bytes) -> bytes:
    changed = bytearray(message)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if changed:
            changed[rng.randrange(min(len(changed), rng.choice((20, 200, 1 << 30))))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _inserted(rng: random.Random, message: bytes) -> bytes:
    at = rng.randrange(len(message) + 1)
    return message[:at] + rng.randbytes(rng.choice((1, 2, 10, 1000))) + message[at:]


def _left_out(rng: random.Random, message: bytes) -> bytes:
    at = rng.randrange(len(message) + 1)
    return message[:at] + message[at + rng.choice((1, 2, 10)) :]


def _spliced(rng: random.Random, message: bytes) -> bytes:
    return message[: rng.randrange(len(message) + 1)] + message[rng.randrange(len(message) + 1) :]


def _noise(rng: random.Random, _message: bytes) -> bytes:
    return rng.choice((rng.randbytes(rng.randrange(100)), b"\xff" * rng.randrange(30), bytes(rng.randrange(30))))


_BYTE_MUTATIONS: Final[Sequence[Callable[[random.Random, bytes], bytes]]] = (
    _cut,
    _flipped,
    _flipped,
    _inserted,
    _left_out,
    _spliced,
    _noise,
)
