"""Record batches, damaged: headers that lie, records that are none, compressed rubbish, and bombs of every codec.

Most have a right length and CRC, as a hostile client would give them; the others die at the door.
"""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Callable, Sequence
from typing import Final

import cramjam
import google_crc32c

from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.compression import Codec, compress
from logbroker.record.header import CRC_START, HEADER, HEADER_BYTES, LENGTH_OVERHEAD_BYTES
from logbroker.record.message_headers import PRIORITY

MIB: Final = 1024 * 1024
NOW_MS: Final = 1_700_000_000_000
_HEADER_LIMITS: Final = (8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4)
"""Bytes of each header field."""
_BASE_OFFSET, _LENGTH, _EPOCH, _MAGIC, _CRC, _ATTRIBUTES = range(6)
_LAST_DELTA, _COUNT = 6, 12

PRIORITY_BYTES: Final = (b"0", b"9", b"", b"10", b"-1", b"high", b"\xff", b"9" * 1000)
"""Values that a producer may put into the header of a record's priority."""


def sound_batch(rng: random.Random, *, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """A batch that a broker takes, of a few records, in any codec."""
    records = [
        NewRecord(
            value=rng.choice((None, b"", rng.randbytes(rng.randrange(60)), b"value" * rng.randrange(100))),
            key=rng.choice((None, b"", b"key-%d" % rng.randrange(10))),
            headers=[(rng.choice(("name", PRIORITY)), rng.choice((None, *PRIORITY_BYTES)))] * rng.randrange(3),
            timestamp_ms=NOW_MS + rng.randrange(1000),
        )
        for _ in range(rng.choice((1, 1, 2, 5, 30)))
    ]
    id_, epoch, sequence = producer
    return encode_batch(
        records, codec=rng.choice(list(Codec)), producer_id=id_, producer_epoch=epoch, base_sequence=sequence
    )


def mutated_batch(rng: random.Random, batch: bytes) -> bytes:
    """Return a batch that is wrong in some way, or looks right and is wrong inside."""
    for _ in range(rng.choice((1, 1, 2))):
        if len(batch) <= HEADER_BYTES:
            break
        batch = rng.choice(_MUTATIONS)(rng, batch)
    return batch


def sealed(header: Sequence[int], records: bytes) -> bytes:
    """A batch of these header fields and bytes whose length and CRC are right."""
    fields = list(header)
    fields[_LENGTH] = HEADER_BYTES - LENGTH_OVERHEAD_BYTES + len(records)
    batch = bytearray(HEADER.pack(*fields) + records)
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[CRC_START:])))
    return bytes(batch)


@functools.cache
def bomb_records(codec: Codec) -> bytes:
    """Up to 1 MiB of compressed bytes that expand to 20 MiB (snappy), 128 MiB (gzip, lz4) or 2 GiB (zstd)."""
    zeros = bytes(32 * MIB)
    match codec:
        case Codec.GZIP:
            return compress(codec, bytes(128 * MIB))
        case Codec.SNAPPY:
            # It packs to a twentieth at best: 20 MiB in one.
            block = bytes(cramjam.snappy.compress_raw(bytes(4 * MIB)))
            return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (len(block).to_bytes(4, "big") + block) * 5
        case Codec.LZ4:
            return compress(codec, zeros * 4)
        case Codec.ZSTD:
            # Frames one after the other are one stream: 2 GiB in some 100 KiB.
            return compress(codec, zeros) * 64
        case Codec.NONE:
            return zeros[: 64 * 1024]


def bomb(rng: random.Random) -> bytes:
    """A batch with a right CRC that expands a thousandfold."""
    codec = rng.choice((Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD))
    return sealed(_plain_header(rng.choice((1, 1000, 9_000_000)), codec), bomb_records(codec))


def _plain_header(count: int, attributes: int) -> list[int]:
    return [0, 0, -1, 2, 0, attributes, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count]


def _boundary(rng: random.Random, size_bytes: int, *, signed: bool) -> int:
    low, high = (
        (-(1 << 8 * size_bytes - 1), (1 << 8 * size_bytes - 1) - 1) if signed else (0, (1 << 8 * size_bytes) - 1)
    )
    return rng.choice((low, high, 0, 1, 2, high - 1, max(low, -1), max(low, -2), rng.randint(low, high)))


def _header_field(rng: random.Random, batch: bytes) -> bytes:
    """One or more fields at the edge of what they hold; CRC and length right again, mostly."""
    header = list(HEADER.unpack_from(batch))
    for _ in range(rng.choice((1, 1, 2))):
        index = rng.randrange(len(header))
        header[index] = _boundary(rng, _HEADER_LIMITS[index], signed=index != _CRC)
    if rng.random() < 0.3:
        return HEADER.pack(*header) + batch[HEADER_BYTES:]
    return sealed(header, batch[HEADER_BYTES:])


def _count_and_delta(rng: random.Random, batch: bytes) -> bytes:
    """Counts that agree with each other, and with nothing else."""
    header = list(HEADER.unpack_from(batch))
    count = rng.choice((1, 2, 100, 10_000, 9_000_000, 2**31 - 1))
    header[_COUNT], header[_LAST_DELTA] = count, count - 1
    return sealed(header, batch[HEADER_BYTES:])


def _rubbish_records(rng: random.Random, batch: bytes) -> bytes:
    header = list(HEADER.unpack_from(batch))
    header[_ATTRIBUTES] = rng.choice((0, 0, 1, 2, 3, 4, 5, 7))
    rubbish = rng.choice(
        (rng.randbytes(rng.randrange(200)), b"\xff" * rng.randrange(200), b"\x80" * 300, bytes(rng.randrange(300)))
    )
    return sealed(header, rubbish)


def _damaged_records(rng: random.Random, batch: bytes) -> bytes:
    """A byte inside is another; what follows the header is still nearly right."""
    records = bytearray(batch[HEADER_BYTES:])
    for _ in range(rng.choice((1, 1, 2, 5))):
        records[rng.randrange(len(records))] = rng.choice((0, 0x7F, 0x80, 0xFF, 0xFE, rng.randrange(256)))
    return sealed(HEADER.unpack_from(batch), bytes(records))


def _lying_record(rng: random.Random, batch: bytes) -> bytes:
    """A first record whose lengths are -1, 0, 2^31 - 1 or more, or are written too long."""
    header = _plain_header(1, 0)
    numbers = (0, -1, -2, 1, 100, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**62)
    # time delta, offset delta, key length, value length, header count
    body = b"\0" + b"".join(
        _zigzag(rng.choice(numbers) if rng.random() < 0.4 else sound, rng.choice((0, 0, 0, 4, 9)))
        for sound in (0, 0, -1, -1, 0)
    )
    body += bytes(rng.choice((0, 0, 10)))
    length = rng.choice((len(body), len(body), *numbers))
    return sealed(header, _zigzag(length, rng.choice((0, 0, 3, 20))) + body)


def _zigzag(value: int, padding: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    if padding:
        encoded[-1] |= 0x80
        encoded += b"\x80" * (padding - 1) + b"\0"
    return bytes(encoded)


def _compressed_rubbish(rng: random.Random, batch: bytes) -> bytes:
    """Sound compression of unsound records, or sound compression that is damaged."""
    codec = rng.choice((Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD))
    packed = bytearray(compress(codec, rng.choice((b"", batch, rng.randbytes(100), bytes(20_000)))))
    if packed and rng.random() < 0.6:
        packed[rng.randrange(min(len(packed), 40))] = rng.randrange(256)
    if rng.random() < 0.3:
        del packed[rng.randrange(len(packed) + 1) :]
    return sealed(_plain_header(rng.choice((1, 3)), codec), bytes(packed))


def _lying_snappy(rng: random.Random, _batch: bytes) -> bytes:
    """Snappy says first how long it will be."""
    size = rng.choice((2**31 - 1, 2**32 - 1, 2**30, 2**26, 0))
    claim = bytearray()
    while size > 0x7F:
        claim.append(size & 0x7F | 0x80)
        size >>= 7
    claim.append(size)
    return sealed(_plain_header(1, Codec.SNAPPY), bytes(claim) + rng.randbytes(rng.randrange(20)))


def _lying_zstd(rng: random.Random, _batch: bytes) -> bytes:
    """A frame header that claims a content of any size and the largest window."""
    claim = rng.choice((2**63, 2**40, 2**31, 0)).to_bytes(8, "little")
    frame = b"\x28\xb5\x2f\xfd" + bytes([0xC0, rng.choice((0, 0xF8, 0xFF))]) + claim + rng.randbytes(30)
    return sealed(_plain_header(1, Codec.ZSTD), frame)


def _cut(rng: random.Random, batch: bytes) -> bytes:
    return batch[: rng.randrange(len(batch))]


def _two(rng: random.Random, batch: bytes) -> bytes:
    return batch + rng.choice((batch, batch[:30], b"\0", rng.randbytes(61)))


def _flipped(rng: random.Random, batch: bytes) -> bytes:
    changed = bytearray(batch)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


_MUTATIONS: Final[Sequence[Callable[[random.Random, bytes], bytes]]] = (
    _header_field,
    _header_field,
    _count_and_delta,
    _rubbish_records,
    _damaged_records,
    _damaged_records,
    _lying_record,
    _compressed_rubbish,
    _lying_snappy,
    _lying_zstd,
    _cut,
    _two,
    _flipped,
)
