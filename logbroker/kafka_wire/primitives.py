"""Primitive types of the Kafka protocol: strings, bytes, counts, varints and tags, read and written within bounds.

The generated modules call these functions. Each reader takes the bytes, a position, the end of what may be read, and
the name of the field; it returns the value and the position after it. A length or count is compared with the bytes that
remain before anything is allocated: reading takes time in proportion to the input, and at most 40 bytes of memory for
each of its bytes (32 KiB more for a short one). Writers append to a list of parts, so records are passed on without a
copy.

Source: kafka.apache.org/protocol, "Protocol Primitive Types"; KIP-482 for compact types and tagged fields.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from logbroker.errors import InvalidRequestError, quoted

Buffer: TypeAlias = bytes | bytearray | memoryview
Parts: TypeAlias = list[Buffer]
T = TypeVar("T")

NO_TAGS: Final = b"\0"

MAX_STRING_BYTES: Final = 0x7FFF
"""Strings are not longer in any version, though the length of a compact string could say more."""
MAX_COUNT: Final = 0x7FFF_FFFE
UUID_BYTES: Final = 16
NO_UUID: Final = bytes(UUID_BYTES)

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT32S: Final = tuple(struct.Struct(f">{count}i") for count in range(9))


class WireFormatError(InvalidRequestError):
    """Bytes are no message of the Kafka protocol, or a message cannot be written in the version that was asked for.

    The message names the field that is wrong. Send what the definition of the message allows.
    """


# --- faults --------------------------------------------------------------------------------------------------------


def cut_short(name: str, at: int, end: int, wanted_bytes: int) -> WireFormatError:
    return WireFormatError(f"{name} takes {wanted_bytes} bytes, but only {max(end - at, 0)} are left")


def unexpected_null(name: str) -> WireFormatError:
    return WireFormatError(f"{name} is null, which this version does not allow")


def unknown_field(name: str, value: object) -> WireFormatError:
    return WireFormatError(f"{name} is {quoted(value)}, but this version does not have the field")


def misfit(items: Sequence[object], codes: Mapping[str, str]) -> WireFormatError:
    """Find the first fixed-width field of some structures that cannot be written; `codes` has their types."""
    for item in items:
        for field, code in codes.items():
            value = getattr(item, field)
            try:
                struct.pack(f">{code}", value)
            except struct.error:
                return WireFormatError(f"{type(item).__name__}.{field} is {quoted(value)}, which does not fit its type")
    return WireFormatError("a field does not fit its type")


# --- varints and tags ----------------------------------------------------------------------------------------------


def read_uvarint(data: Buffer, at: int, end: int, name: str) -> tuple[int, int]:
    """Read an unsigned number of up to 32 bits, in at most 5 bytes."""
    if at >= end:
        raise cut_short(name, at, end, 1)
    number = data[at]
    at += 1
    if number < 0x80:
        return number, at
    number &= 0x7F
    for shift in (7, 14, 21, 28):
        if at >= end:
            raise WireFormatError(f"{name}: the bytes end within a varint")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number > 0xFFFF_FFFF:
                break
            return number, at
    raise WireFormatError(f"{name}: a varint has more than 32 bits")


def uvarint(number: int) -> bytes:
    """Encode a number of at most 32 bits."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


SMALL: Final = tuple(uvarint(number) for number in range(256))
"""Varints of what most lengths and counts are."""


def read_tag(data: Buffer, at: int, end: int, last: int, name: str) -> tuple[int, int, int]:
    """Read tag and size of a tagged field; return the tag, and where its value begins and ends."""
    tag, at = read_uvarint(data, at, end, name)
    if tag <= last:
        raise WireFormatError(f"{name}: tag {tag} follows tag {last}; tags ascend")
    size, at = read_uvarint(data, at, end, name)
    if size > end - at:
        raise cut_short(f"{name}: tag {tag}", at, end, size)
    return tag, at, at + size


def skip_tags(data: Buffer, at: int, end: int, name: str) -> int:
    """Pass over tagged fields, none of which is known, and return the position after them."""
    count, at = read_uvarint(data, at, end, name)
    last = -1
    for _ in range(count):
        last, _, at = read_tag(data, at, end, last, name)
    return at


def check_tag_end(at: int, stop: int, name: str) -> None:
    if at != stop:
        raise WireFormatError(f"{name}: the value of the tagged field ends {stop - at} bytes before its size")


def write_tags(out: Parts, tagged: Sequence[tuple[int, Parts]]) -> None:
    """Write tagged fields, in ascending order of their tags."""
    out.append(uvarint(len(tagged)))
    for tag, parts in tagged:
        out.append(uvarint(tag) + uvarint(sum(map(len, parts))))
        out += parts


# --- counts of arrays ----------------------------------------------------------------------------------------------


def read_count(data: Buffer, at: int, end: int, min_bytes: int, name: str) -> tuple[int, int]:
    """Read the count of an array whose elements take at least `min_bytes` each."""
    if end - at < 4:
        raise cut_short(name, at, end, 4)
    (count,) = _INT32.unpack_from(data, at)
    at += 4
    if count * min_bytes > end - at:
        raise _too_many(name, at, end, count, min_bytes)
    if count < 0:
        raise unexpected_null(name) if count == -1 else _negative(name, count)
    return count, at


def read_nullable_count(data: Buffer, at: int, end: int, min_bytes: int, name: str) -> tuple[int, int]:
    """Read the count of an array; -1: the array is null."""
    if end - at < 4:
        raise cut_short(name, at, end, 4)
    (count,) = _INT32.unpack_from(data, at)
    at += 4
    if count * min_bytes > end - at:
        raise _too_many(name, at, end, count, min_bytes)
    if count < -1:
        raise _negative(name, count)
    return count, at


def read_compact_count(data: Buffer, at: int, end: int, min_bytes: int, name: str) -> tuple[int, int]:
    """Read the count of a compact array whose elements take at least `min_bytes` each."""
    if at < end and data[at] < 0x80:
        count, at = data[at] - 1, at + 1
    else:
        count, at = read_uvarint(data, at, end, name)
        count -= 1
    if count * min_bytes > end - at:
        raise _too_many(name, at, end, count, min_bytes)
    if count < 0:
        raise unexpected_null(name)
    return count, at


def read_compact_nullable_count(data: Buffer, at: int, end: int, min_bytes: int, name: str) -> tuple[int, int]:
    """Read the count of a compact array; -1: the array is null."""
    count, at = read_uvarint(data, at, end, name)
    count -= 1
    if count * min_bytes > end - at:
        raise _too_many(name, at, end, count, min_bytes)
    return count, at


def _too_many(name: str, at: int, end: int, count: int, min_bytes: int) -> WireFormatError:
    return WireFormatError(f"{name} has a count of {count}; an element takes {min_bytes} bytes, {end - at} are left")


def _negative(name: str, number: int) -> WireFormatError:
    return WireFormatError(f"{name} has a length of {number}")


def write_count(out: Parts, items: list[T] | None, name: str) -> list[T]:
    """Write the count of an array, and return the array."""
    if items is None:
        raise unexpected_null(name)
    out.append(_INT32.pack(_counted(items, name)))
    return items


def write_nullable_count(out: Parts, items: list[T] | None, name: str) -> list[T]:
    """Write the count of an array, and return the array; for null, an empty one."""
    out.append(_INT32.pack(-1 if items is None else _counted(items, name)))
    return items or []


def write_compact_count(out: Parts, items: list[T] | None, name: str) -> list[T]:
    """Write the count of a compact array, and return the array."""
    if items is None:
        raise unexpected_null(name)
    out.append(_compact_length(_counted(items, name)))
    return items


def write_compact_nullable_count(out: Parts, items: list[T] | None, name: str) -> list[T]:
    """Write the count of a compact array, and return the array; for null, an empty one."""
    out.append(SMALL[0] if items is None else _compact_length(_counted(items, name)))
    return items or []


def _counted(items: Sequence[object], name: str) -> int:
    if len(items) > MAX_COUNT:
        raise WireFormatError(f"{name} has {len(items)} elements, more than a count can say")
    return len(items)


def _compact_length(length: int) -> bytes:
    return SMALL[length + 1] if length < 255 else uvarint(length + 1)


# --- strings -------------------------------------------------------------------------------------------------------


def read_string(data: Buffer, at: int, end: int, name: str) -> tuple[str, int]:
    if end - at < 2:
        raise cut_short(name, at, end, 2)
    (length,) = _INT16.unpack_from(data, at)
    if length < 0:
        raise unexpected_null(name) if length == -1 else _negative(name, length)
    return _text(data, at + 2, end, length, name)


def read_nullable_string(data: Buffer, at: int, end: int, name: str) -> tuple[str | None, int]:
    if end - at < 2:
        raise cut_short(name, at, end, 2)
    (length,) = _INT16.unpack_from(data, at)
    at += 2
    if length < 0:
        if length < -1:
            raise _negative(name, length)
        return None, at
    return _text(data, at, end, length, name)


def read_compact_string(data: Buffer, at: int, end: int, name: str) -> tuple[str, int]:
    length, at = read_uvarint(data, at, end, name)
    if not length:
        raise unexpected_null(name)
    return _text(data, at, end, length - 1, name)


def read_compact_nullable_string(data: Buffer, at: int, end: int, name: str) -> tuple[str | None, int]:
    length, at = read_uvarint(data, at, end, name)
    if not length:
        return None, at
    return _text(data, at, end, length - 1, name)


def _text(data: Buffer, at: int, end: int, length: int, name: str) -> tuple[str, int]:
    stop = at + length
    if stop > end:
        raise cut_short(name, at, end, length)
    if length > MAX_STRING_BYTES:
        raise WireFormatError(f"{name} has {length} bytes; a string has at most {MAX_STRING_BYTES}")
    try:
        return str(data[at:stop], "utf-8"), stop
    except UnicodeDecodeError:
        raise WireFormatError(f"{name} is not valid UTF-8") from None


def write_string(out: Parts, value: str | None, name: str) -> None:
    encoded = _encoded(value, name)
    out.append(_INT16.pack(len(encoded)) + encoded)


def write_nullable_string(out: Parts, value: str | None, name: str) -> None:
    if value is None:
        out.append(b"\xff\xff")
    else:
        write_string(out, value, name)


def write_compact_string(out: Parts, value: str | None, name: str) -> None:
    encoded = _encoded(value, name)
    out.append(_compact_length(len(encoded)) + encoded)


def write_compact_nullable_string(out: Parts, value: str | None, name: str) -> None:
    if value is None:
        out.append(SMALL[0])
    else:
        write_compact_string(out, value, name)


def _encoded(value: str | None, name: str) -> bytes:
    if value is None:
        raise unexpected_null(name)
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise WireFormatError(f"{name} cannot be encoded as UTF-8: {quoted(value)}") from None
    if len(encoded) > MAX_STRING_BYTES:
        raise WireFormatError(f"{name} has {len(encoded)} bytes; a string has at most {MAX_STRING_BYTES}")
    return encoded


# --- bytes and records ---------------------------------------------------------------------------------------------


def read_nullable_records(data: Buffer, at: int, end: int, name: str) -> tuple[memoryview | None, int]:
    """Read record batches: a view of the bytes, which the view keeps alive."""
    if end - at < 4:
        raise cut_short(name, at, end, 4)
    (length,) = _INT32.unpack_from(data, at)
    at += 4
    if length < 0:
        if length < -1:
            raise _negative(name, length)
        return None, at
    stop = at + length
    if stop > end:
        raise cut_short(name, at, end, length)
    return memoryview(data)[at:stop], stop


def read_compact_nullable_records(data: Buffer, at: int, end: int, name: str) -> tuple[memoryview | None, int]:
    """Read record batches: a view of the bytes, which the view keeps alive."""
    length, at = read_uvarint(data, at, end, name)
    if not length:
        return None, at
    stop = at + length - 1
    if stop > end:
        raise cut_short(name, at, end, length - 1)
    return memoryview(data)[at:stop], stop


def read_nullable_bytes(data: Buffer, at: int, end: int, name: str) -> tuple[bytes | None, int]:
    view, at = read_nullable_records(data, at, end, name)
    return None if view is None else bytes(view), at


def read_bytes(data: Buffer, at: int, end: int, name: str) -> tuple[bytes, int]:
    view, at = read_nullable_records(data, at, end, name)
    if view is None:
        raise unexpected_null(name)
    return bytes(view), at


def read_compact_bytes(data: Buffer, at: int, end: int, name: str) -> tuple[bytes, int]:
    view, at = read_compact_nullable_records(data, at, end, name)
    if view is None:
        raise unexpected_null(name)
    return bytes(view), at


def write_bytes(out: Parts, value: Buffer | None, name: str) -> None:
    if value is None:
        raise unexpected_null(name)
    out.append(_INT32.pack(_counted(value, name)))
    out.append(value)


def write_nullable_bytes(out: Parts, value: Buffer | None, name: str) -> None:
    if value is None:
        out.append(b"\xff\xff\xff\xff")
    else:
        write_bytes(out, value, name)


def write_compact_bytes(out: Parts, value: Buffer | None, name: str) -> None:
    if value is None:
        raise unexpected_null(name)
    out.append(_compact_length(_counted(value, name)))
    out.append(value)


def write_compact_nullable_bytes(out: Parts, value: Buffer | None, name: str) -> None:
    if value is None:
        out.append(SMALL[0])
    else:
        write_compact_bytes(out, value, name)


# --- arrays of primitives ------------------------------------------------------------------------------------------


def read_int32s(data: Buffer, at: int, count: int) -> tuple[list[int], int]:
    """Read the numbers after a count that was checked."""
    codec = _INT32S[count] if count < len(_INT32S) else struct.Struct(f">{count}i")
    return list(codec.unpack_from(data, at)), at + 4 * count


def write_int32s(out: Parts, numbers: list[int], name: str) -> None:
    """Write the numbers after their count."""
    try:
        codec = _INT32S[len(numbers)] if len(numbers) < len(_INT32S) else struct.Struct(f">{len(numbers)}i")
        out.append(codec.pack(*numbers))
    except struct.error:
        raise WireFormatError(f"{name} has a number that does not fit 32 bits: {quoted(numbers)}") from None


def read_strings(data: Buffer, at: int, end: int, count: int, name: str) -> tuple[list[str], int]:
    """Read the strings after a count that was checked."""
    strings: list[str] = []
    for _ in range(count):
        text, at = read_string(data, at, end, name)
        strings.append(text)
    return strings, at


def read_compact_strings(data: Buffer, at: int, end: int, count: int, name: str) -> tuple[list[str], int]:
    """Read the compact strings after a count that was checked."""
    strings: list[str] = []
    for _ in range(count):
        text, at = read_compact_string(data, at, end, name)
        strings.append(text)
    return strings, at


def write_strings(out: Parts, strings: list[str], name: str) -> None:
    """Write the strings after their count."""
    for text in strings:
        write_string(out, text, name)


def write_compact_strings(out: Parts, strings: list[str], name: str) -> None:
    """Write the compact strings after their count."""
    for text in strings:
        write_compact_string(out, text, name)


# --- structures that may be null, and ids --------------------------------------------------------------------------


def read_presence(data: Buffer, at: int, end: int, name: str) -> tuple[int, int]:
    """Read the byte before a structure that may be null: 1 if the structure follows, 0 if it is null.

    As in Kafka's own reader, any negative byte is a null.
    """
    if at >= end:
        raise cut_short(name, at, end, 1)
    return int(data[at] < 0x80), at + 1


def write_presence(out: Parts, item: T | None) -> list[T]:
    """Write the byte before a structure that may be null, and return the structure, if any, as a list."""
    out.append(b"\xff" if item is None else b"\x01")
    return [] if item is None else [item]


def required(item: T | None, name: str) -> list[T]:
    """Return a structure that may not be null, as a list."""
    if item is None:
        raise unexpected_null(name)
    return [item]


def check_uuid(value: bytes | None, name: str) -> None:
    """Check the size of an id, which `struct` would cut or pad."""
    if value is None or len(value) != UUID_BYTES:
        raise WireFormatError(f"{name} is {quoted(value)}; an id has {UUID_BYTES} bytes")
