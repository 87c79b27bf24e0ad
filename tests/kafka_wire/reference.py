"""An encoder of Kafka messages that interprets the definitions, slowly: it shares no code with the generated one.

It can add tagged fields that no version knows, and replace the length or count at any place by another number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

from wiregen.definitions import Field, Message, Structure

Values = dict[str, Any]
"""A structure: its fields by name."""
UNKNOWN_TAG: Final = 1000
_CODES: Final = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}


class Encoder:
    """Encodes one message in one version."""

    def __init__(
        self, message: Message, version: int, *, unknown_tags: Iterable[bytes] = (), lies: dict[int, int] | None = None
    ) -> None:
        self._message = message
        self._version = version
        self._unknown = list(unknown_tags)
        self._lies = lies or {}
        """Numbers to write instead of lengths and counts, by their places."""
        self.places = 0
        """Lengths and counts so far."""

    def encode(self, values: Values) -> bytes:
        return self._structure(self._message.top, values)

    def _structure(self, structure: Structure, values: Values) -> bytes:
        present = [each for each in structure.fields if self._version in each.versions]
        tagged = sorted((each for each in present if self._version in each.tagged_versions), key=lambda each: each.tag)
        out = b"".join(self._value(each, values[each.name]) for each in present if each not in tagged)
        if self._version not in self._message.flexible_versions:
            return out
        tags = [
            (each.tag, self._value(each, values[each.name])) for each in tagged if values[each.name] != default_of(each)
        ]
        tags += [(UNKNOWN_TAG + at, data) for at, data in enumerate(self._unknown)]
        out += self._varint(len(tags))
        for tag, data in tags:
            out += varint(tag) + self._varint(len(data)) + data
        return out

    def _value(self, each: Field, value: Any) -> bytes:
        if each.is_array:
            if value is None:
                return self._length(each, -1, 4)
            return self._length(each, len(value), 4) + b"".join(self._element(each, element) for element in value)
        if each.is_structure and self._version in each.nullable_versions:
            return b"\xff" if value is None else b"\x01" + self._element(each, value)
        return self._element(each, value)

    def _element(self, each: Field, value: Any) -> bytes:
        if each.is_structure:
            return self._structure(self._message.structures[each.kind], value)
        if each.kind in _CODES:
            return struct.pack(f">{_CODES[each.kind]}", value)
        if each.kind == "uuid":
            return bytes(value)
        data = value.encode() if isinstance(value, str) else value
        length = -1 if data is None else len(data)
        return self._length(each, length, 2 if each.kind == "string" else 4) + (data or b"")

    def _length(self, each: Field, length: int, width: int) -> bytes:
        flexible = self._message.flexible_versions if each.flexible_versions is None else each.flexible_versions
        if self._version in flexible:
            return self._varint(length + 1)
        number = self._lie(length)
        return (number & (1 << 8 * width) - 1).to_bytes(width)

    def _varint(self, number: int) -> bytes:
        return varint(self._lie(number) & 0xFFFF_FFFF)

    def _lie(self, number: int) -> int:
        self.places += 1
        return self._lies.get(self.places - 1, number)


def varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def default_of(each: Field) -> Any:
    """Return the default of a field; None for a structure that is tagged."""
    if each.default == "null" or (each.is_structure and not each.is_array) or each.kind == "records":
        return None
    if each.is_array:
        return []
    match each.kind:
        case "string":
            return each.default
        case "bytes":
            return b""
        case "uuid":
            return bytes(16)
        case "bool":
            return each.default == "true"
        case _:
            return int(each.default or "0", 0)
