"""Frames around requests, and damage to their bytes: lengths and counts that lie, parts that are missing or moved."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Final

from logbroker.kafka_wire.codec import Api

_CLIENT_IDS: Final = (b"fuzz", b"", b"\xd0\xba", b"c" * 300)
_NUMBERS: Final = (
    *(b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xfe", b"\0\0\0\0", b"\0\x0f\xff\xff"),
    *(b"\xff\xff", b"\x7f\xff", b"\x80\0", b"\0\0", b"\xff\xfe"),
    *(b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\0", b"\x80\0"),
    *(b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"\xff" * 8, b"\x7f" + b"\xff" * 7),
)
"""Counts, lengths and varints that nobody sends: negative, huge, too long, and none."""
_HEADER_BYTES: Final = 8
"""API, version and correlation id."""


def framed(rng: random.Random, api: Api, version: int, correlation_id: int, body: bytes) -> bytes:
    """Return a request with header and length."""
    client_id = rng.choice(_CLIENT_IDS) if rng.random() < 0.2 else b"fuzz"
    is_flexible = api.request_header_version(version) > 1
    head = struct.pack(">hhih", api.key, version, correlation_id, len(client_id)) + client_id
    if is_flexible:
        head += b"\0" if rng.random() < 0.95 else b"\1\5\3abc"
    return struct.pack(">i", len(head) + len(body)) + head + body


def damaged(rng: random.Random, frame: bytes) -> bytes:
    """Return a frame with one or a few wrong places. Its length is right again, mostly."""
    content = frame[4:]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = rng.choice(_DAMAGES)(rng, content)
    if rng.random() < 0.02:
        lie = rng.choice((0, -1, -(2**31), 2**31 - 1, len(content) + 5, max(len(content) - 5, 1), 2**20))
        return struct.pack(">i", lie) + content
    return struct.pack(">i", len(content)) + content


def noise(rng: random.Random, correlation_id: int) -> bytes:
    """Return a frame of rubbish, some of it after the header of an API that may exist."""
    head = struct.pack(">hhi", rng.randrange(-1, 100), rng.randrange(-1, 20), correlation_id)
    content = rng.choice((b"", head, head)) + rng.choice(
        (rng.randbytes(rng.randrange(100)), b"\xff" * rng.randrange(30), bytes(rng.randrange(30)))
    )
    return struct.pack(">i", len(content)) + content


def _place(rng: random.Random, content: bytes) -> int:
    """Pick a position after API and version, mostly."""
    least = _HEADER_BYTES if len(content) > _HEADER_BYTES and rng.random() < 0.95 else 0
    return rng.randrange(least, len(content)) if len(content) > least else 0


def _number(rng: random.Random, content: bytes) -> bytes:
    at, number = _place(rng, content), rng.choice(_NUMBERS)
    return content[:at] + number + content[at + len(number) :]


def _flipped(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    if changed:
        changed[_place(rng, content)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _random_bytes(rng: random.Random, content: bytes) -> bytes:
    at, size = _place(rng, content), rng.choice((1, 1, 2, 4, 20))
    return content[:at] + rng.randbytes(size) + content[at + size :]


def _cut(rng: random.Random, content: bytes) -> bytes:
    return content[: _place(rng, content)]


def _longer(rng: random.Random, content: bytes) -> bytes:
    return content + rng.choice((b"\0", b"\0" * 4, rng.randbytes(10), content[_place(rng, content) :]))


def _inserted(rng: random.Random, content: bytes) -> bytes:
    at = _place(rng, content)
    return content[:at] + rng.choice(_NUMBERS) + content[at:]


def _left_out(rng: random.Random, content: bytes) -> bytes:
    at = _place(rng, content)
    return content[:at] + content[at + rng.choice((1, 2, 4, 8)) :]


def _swapped(rng: random.Random, content: bytes) -> bytes:
    """Two places change their bytes."""
    size = rng.choice((1, 2, 4, 8))
    first, second = sorted((_place(rng, content), _place(rng, content)))
    if second < first + size:
        return content
    a, b = content[first : first + size], content[second : second + size]
    return content[:first] + b + content[first + size : second] + a + content[second + size :]


def _again(rng: random.Random, content: bytes) -> bytes:
    at = _place(rng, content)
    part = content[at : at + rng.choice((2, 6, 20))]
    return content[:at] + part * rng.choice((1, 2, 50)) + content[at:]


_DAMAGES: Final[Sequence[Callable[[random.Random, bytes], bytes]]] = (
    _number,
    _number,
    _number,
    _flipped,
    _random_bytes,
    _cut,
    _longer,
    _inserted,
    _left_out,
    _swapped,
    _again,
)
