"""Compresses and decompresses the records of a batch, with a limit on the expanded size.

Codec numbers and the framing of the bytes are as in Kafka: gzip (one member), snappy (raw, or in the blocks of the
xerial Java library), lz4 (the frame format with independent blocks) and zstd.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final

import cramjam

from logbroker.errors import BatchExpandsTooFarError, CorruptBatchError, UnsupportedCompressionError

_GZIP_WINDOW: Final = 31
"""zlib's `wbits` for a gzip header and the largest window."""
_GZIP_LEVEL: Final = 6
_ZSTD_LEVEL: Final = 3
_LZ4_LEVEL: Final = 0
"""All three levels are fast ones. For gzip, 6 is Kafka's default, too. Level 9, the default of some Python clients,
takes five times as long and saves a tenth."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_FIRST_GUESS_BYTES: Final = 64 * 1024
_STEP_BYTES: Final = 256 * 1024
_NO_ROOM: Final = "failed to write whole buffer"
"""cramjam's message if the output does not fit, and only then (a test checks this)."""


class Codec(enum.IntEnum):
    """The compression codecs, with Kafka's numbers."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_named(name: str) -> Codec:
    """Return the codec of a name such as "zstd"; raises UnsupportedCompressionError."""
    try:
        return Codec[name.upper()]
    except KeyError:
        raise UnsupportedCompressionError(
            f"there is no compression {name!r}; use {', '.join(codec.name.lower() for codec in Codec)}"
        ) from None


def compress(codec: Codec, data: bytes) -> bytes:
    """Return the bytes as a Kafka client writes them."""
    match codec:
        case Codec.GZIP:
            return zlib.compress(data, _GZIP_LEVEL, wbits=_GZIP_WINDOW)
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            # Kafka's Java reader takes independent blocks only.
            compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
            compressor.compress(data)
            return bytes(compressor.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))
        case Codec.NONE:
            return data


def decompress(codec: Codec, data: bytes, max_bytes: int, *, head: bytes = b"") -> bytes | bytearray:
    """Return `head` followed by the expanded bytes in one buffer, so that they exist only once.

    Allocates at most `max_bytes` (gzip: an eighth more) besides what the codec itself needs, whatever size the data
    claims. Raises BatchExpandsTooFarError if the data would expand further, and CorruptBatchError if it is not valid
    for the codec.
    """
    match codec:
        case Codec.GZIP:
            return _expand_gzip(data, max_bytes, head)
        case Codec.SNAPPY:
            return _expand_snappy(data, max_bytes, head)
        case Codec.LZ4:
            return _expand_by_guesses(cramjam.lz4.decompress_into, codec, data, max_bytes, head)
        case Codec.ZSTD:
            return _expand_by_guesses(cramjam.zstd.decompress_into, codec, data, max_bytes, head)
        case Codec.NONE:
            return head + data


def _too_far(max_bytes: int) -> BatchExpandsTooFarError:
    return BatchExpandsTooFarError(
        f"the batch expands to more than {max_bytes} bytes; raise the limit of the reader if you trust the batch"
    )


def _corrupt(codec: Codec, why: object) -> CorruptBatchError:
    return CorruptBatchError(f"the batch's records are not valid {codec.name.lower()}: {why}")


def _expand_gzip(data: bytes, max_bytes: int, head: bytes) -> bytearray:
    stream = zlib.decompressobj(wbits=_GZIP_WINDOW)
    expanded = bytearray(head)
    end_bytes = len(head) + max_bytes
    try:
        # In steps, because zlib needs twice the memory of each result.
        while not stream.eof:
            step = stream.decompress(data, min(_STEP_BYTES, end_bytes + 1 - len(expanded)))
            expanded += step
            data = stream.unconsumed_tail
            if len(expanded) > end_bytes:
                raise _too_far(max_bytes)
            if not step and not data and not stream.eof:
                raise _corrupt(Codec.GZIP, "it ends too early")
    except zlib.error as error:
        raise _corrupt(Codec.GZIP, error) from None
    if stream.unused_data:
        raise _corrupt(Codec.GZIP, "bytes follow its end")
    return expanded


def _expand_by_guesses(
    decompress_into: Callable[[bytes, memoryview], int], codec: Codec, data: bytes, max_bytes: int, head: bytes
) -> bytearray:
    # No stated size can be trusted, so guess the expanded size, and guess higher while the result does not fit.
    size = min(max_bytes, max(_FIRST_GUESS_BYTES, 8 * len(data)))
    while True:
        expanded = bytearray(len(head) + size)
        try:
            count = decompress_into(data, memoryview(expanded)[len(head) :])
        except cramjam.DecompressionError as error:
            why = str(error)
        else:
            expanded[: len(head)] = head
            del expanded[len(head) + count :]
            return expanded
        del expanded  # Free the memory before the next, larger guess.
        if why != _NO_ROOM:
            raise _corrupt(codec, why)
        if size == max_bytes:
            raise _too_far(max_bytes)
        size = min(max_bytes, 4 * size)


def _compress_xerial(data: bytes) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _expand_snappy(data: bytes, max_bytes: int, head: bytes) -> bytearray:
    is_xerial = data.startswith(_XERIAL_MAGIC)
    try:
        size_bytes = 0
        for block in _xerial_blocks(data) if is_xerial else (data,):
            size_bytes += cramjam.snappy.decompress_raw_len(block)
            if size_bytes > max_bytes:
                raise _too_far(max_bytes)
        expanded = bytearray(len(head) + size_bytes)
        expanded[: len(head)] = head
        room = memoryview(expanded)[len(head) :]
        for block in _xerial_blocks(data) if is_xerial else (data,):
            room = room[cramjam.snappy.decompress_raw_into(block, room) :]
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.SNAPPY, error) from None
    return expanded


def _xerial_blocks(data: bytes) -> Iterator[bytes]:
    position = len(_XERIAL_HEADER)
    if position >= len(data):
        raise _corrupt(Codec.SNAPPY, "it ends inside its header")
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        position += 4
        block = data[position : position + size]
        if len(block) < size or not size:
            raise _corrupt(Codec.SNAPPY, f"a block of {size} bytes at byte {position} runs past the end or is empty")
        yield block
        position += size
