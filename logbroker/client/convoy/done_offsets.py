"""The done offsets beyond a committed offset, as the text that is stored beside it (`TopicOffsets.metadata`).

    text     "convoy:" and base64 of: version (1 byte), base, epoch + 1, form (1 byte), payload, CRC-32 of all before it
    base     the committed offset (varint). The text is valid beside this offset only
    epoch    highest leader epoch of the records that are done (varint). If the log is cut, the later records at the
             same offsets have a higher epoch, which shows that they are not done
    payload  form 0: a bitmap of the offsets from `base` on, lowest bit first
             form 1: lengths of runs (varints) from `base` on: not done, done, not done, done, ...

`encode` writes the shorter form. A consumer that does not know the text begins at the committed offset, and repeats the
records that the text lists. A text that this module did not write, that is damaged, or that belongs to another offset
is ignored.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

MAX_TEXT_BYTES: Final = 4096
"""Maximum that the broker stores beside an offset: see `TopicOffsets.metadata` in groups.proto."""
MAX_PAYLOAD_BYTES: Final = 3000
MAX_BITMAP_OFFSETS: Final = MAX_PAYLOAD_BYTES * 8

_PREFIX: Final = "convoy:"
_VERSION: Final = 1
_BITMAP: Final = 0
_RUNS: Final = 1
_CRC_BYTES: Final = 4
_MAX_OFFSET: Final = (1 << 63) - 1
_MAX_SHIFT: Final = 63
_ONES: Final = re.compile("1+")

Range = tuple[int, int]
"""Offsets from the first number up to, but not including, the second."""


class DoneOffsets(msgspec.Struct, frozen=True):
    """The ranges of offsets that are done beyond a committed offset."""

    base: int
    epoch: int
    ranges: tuple[Range, ...]
    """In order, with gaps between them."""


def may_fit(ranges: int, span: int) -> bool:
    """Whether this number of ranges of done offsets fits into a text, wherever they lie within `span` offsets from the
    base."""
    if span <= MAX_BITMAP_OFFSETS:
        return True
    runs = 2 * ranges
    size, longer = runs, span >> 7
    while longer and size <= MAX_PAYLOAD_BYTES:
        # A run of 128 offsets or more takes a second byte, and so on. `longer` runs of this length fit into the span.
        size += min(runs, longer)
        longer >>= 7
    return size <= MAX_PAYLOAD_BYTES


def encode(done: DoneOffsets) -> str:
    """Return the text; empty if nothing is done beyond the base. Raises ValueError if it does not fit (`may_fit`)."""
    if not done.ranges:
        return ""
    form, payload = _RUNS, _runs(done.base, done.ranges)
    bitmap_bytes = (done.ranges[-1][1] - done.base + 7) >> 3
    if bitmap_bytes < len(payload):
        form, payload = _BITMAP, _bitmap(done.base, done.ranges, bitmap_bytes)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"{len(done.ranges)} ranges of done offsets do not fit beside a committed offset")
    body = bytes([_VERSION]) + _varint(done.base) + _varint(done.epoch + 1) + bytes([form]) + payload
    body += zlib.crc32(body).to_bytes(_CRC_BYTES, "little")
    return _PREFIX + base64.b64encode(body).decode("ascii")


def decode(text: str, base: int) -> DoneOffsets | None:
    """Return the done offsets beyond the committed offset `base` that a text lists. Return None for any text that does
    not belong to this offset."""
    if not text.startswith(_PREFIX) or len(text) > MAX_TEXT_BYTES:
        return None
    try:
        body = base64.b64decode(text[len(_PREFIX) :], validate=True)
        if zlib.crc32(body[:-_CRC_BYTES]).to_bytes(_CRC_BYTES, "little") != body[-_CRC_BYTES:] or body[0] != _VERSION:
            return None
        found, at = _take_varint(body, 1)
        epoch, at = _take_varint(body, at)
        form, payload = body[at], body[at + 1 : -_CRC_BYTES]
        ranges = _of_bitmap(base, payload) if form == _BITMAP else _of_runs(base, payload) if form == _RUNS else ()
    except (ValueError, IndexError, binascii.Error):
        return None
    return DoneOffsets(base, epoch - 1, ranges) if found == base and ranges else None


def _runs(base: int, ranges: Iterable[Range]) -> bytes:
    payload, at = bytearray(), base
    for first, end in ranges:
        payload += _varint(first - at)
        payload += _varint(end - first)
        at = end
    return bytes(payload)


def _of_runs(base: int, payload: bytes) -> tuple[Range, ...]:
    ranges, place, at = [], 0, base
    while place < len(payload):
        waiting, place = _take_varint(payload, place)
        done, place = _take_varint(payload, place)
        at += waiting
        if not done or at + done > _MAX_OFFSET:
            raise ValueError("no run of done offsets")
        ranges.append((at, at + done))
        at += done
    return tuple(ranges)


def _bitmap(base: int, ranges: Iterable[Range], size_bytes: int) -> bytes:
    digits, at = [], base
    for first, end in ranges:
        digits.append("0" * (first - at) + "1" * (end - first))
        at = end
    return int("".join(digits)[::-1], 2).to_bytes(size_bytes, "little")


def _of_bitmap(base: int, payload: bytes) -> tuple[Range, ...]:
    digits = format(int.from_bytes(payload, "little"), "b")[::-1]
    return tuple((base + found.start(), base + found.end()) for found in _ONES.finditer(digits))


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    packed = bytearray()
    while number >= 0x80:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)
    return bytes(packed)


def _take_varint(packed: Sequence[int], at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = packed[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > _MAX_SHIFT:
            raise ValueError("no varint")
