"""A reader's expansion is bounded, whatever the bytes claim."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc
import zlib

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given
from hypothesis import strategies as st

from logbroker.errors import BatchExpandsTooFarError, CorruptBatchError, UnsupportedCompressionError
from logbroker.record.compression import Codec, codec_named, compress, decompress

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
KIB = 1024
MIB = 1024 * 1024

THEIR_DECODERS = {
    Codec.GZIP: aiokafka_codec.gzip_decode,
    Codec.SNAPPY: aiokafka_codec.snappy_decode,
    Codec.LZ4: aiokafka_codec.lz4_decode,
    Codec.ZSTD: aiokafka_codec.zstd_decode,
}
THEIR_ENCODERS = {
    Codec.GZIP: aiokafka_codec.gzip_encode,
    Codec.SNAPPY: aiokafka_codec.snappy_encode,
    Codec.LZ4: aiokafka_codec.lz4_encode,
    Codec.ZSTD: aiokafka_codec.zstd_encode,
}


def bomb(codec: Codec, size: int) -> bytes:
    return compress(codec, bytes(size))


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(min_size=1, max_size=2000) | st.binary(min_size=1, max_size=9).map(lambda part: part * 30_000))
def test_other_clients_read_what_we_write_and_we_read_what_they_write(codec: Codec, data: bytes) -> None:
    assert THEIR_DECODERS[codec](compress(codec, data)) == data
    assert decompress(codec, THEIR_ENCODERS[codec](data), len(data)) == data


@given(st.binary(min_size=1, max_size=2000))
def test_raw_snappy_is_read_too(data: bytes) -> None:
    assert decompress(Codec.SNAPPY, bytes(aiokafka_codec.snappy_encode(data, xerial_compatible=False)), 2000) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_bound_is_exact(codec: Codec) -> None:
    data = bytes(range(256)) * 1024
    assert decompress(codec, compress(codec, data), len(data)) == data
    with pytest.raises(BatchExpandsTooFarError):
        decompress(codec, compress(codec, data), len(data) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_costs_no_more_memory_than_the_bound(codec: Codec) -> None:
    data = bomb(codec, 64 * MIB)
    tracemalloc.start()
    try:
        with pytest.raises(BatchExpandsTooFarError):
            decompress(codec, data, 4 * MIB)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * MIB * 9 // 8 + MIB + len(data)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_expands_is_there_once_behind_its_head(codec: Codec) -> None:
    data = compress(codec, bytes(15 * MIB))
    tracemalloc.start()
    try:
        expanded = decompress(codec, data, 16 * MIB, head=b"head")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert expanded == b"head" + bytes(15 * MIB)
    assert peak_bytes < 16 * MIB * 9 // 8 + MIB + len(data)


def test_a_snappy_block_that_lies_about_its_size_is_refused_before_it_is_expanded() -> None:
    four_gib_less_one = b"\xff\xff\xff\xff\x0f"
    for data in (
        four_gib_less_one + b"\x00",
        b"\x82SNAPPY\x00" + bytes(8) + b"\x00\x00\x00\x06" + four_gib_less_one + b"\x00",
    ):
        with pytest.raises(BatchExpandsTooFarError):
            decompress(Codec.SNAPPY, data, MIB)


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=200))
def test_garbage_is_a_corrupt_batch(codec: Codec, data: bytes) -> None:
    for candidate in (data, compress(codec, b"some bytes " * 50)[: len(data)], compress(codec, b"some") + data):
        with contextlib.suppress(CorruptBatchError, BatchExpandsTooFarError):
            decompress(codec, candidate, 64 * KIB)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_truncation_is_found(codec: Codec) -> None:
    data = compress(codec, bytes(range(256)) * 8)
    for end in range(len(data)):
        with pytest.raises(CorruptBatchError):
            decompress(codec, data[:end], 64 * KIB)


def test_a_second_gzip_member_is_refused() -> None:
    """No producer writes one, and millions of empty ones would be slow to read."""
    with pytest.raises(CorruptBatchError, match="follow its end"):
        decompress(Codec.GZIP, gzip.compress(b"one") + gzip.compress(b"two"), KIB)


def test_cramjam_still_tells_no_room_from_damage() -> None:
    """`decompress` depends on this text."""
    for module in (cramjam.lz4, cramjam.zstd):
        with pytest.raises(cramjam.DecompressionError, match=r"^failed to write whole buffer$"):
            module.decompress_into(bytes(module.compress(bytes(1000))), bytearray(10))


def test_gzip_is_readable_by_zlib() -> None:
    assert zlib.decompress(compress(Codec.GZIP, b"bytes"), wbits=31) == b"bytes"


def test_codecs_go_by_name() -> None:
    assert codec_named("zstd") is Codec.ZSTD
    with pytest.raises(UnsupportedCompressionError, match="none, gzip, snappy, lz4, zstd"):
        codec_named("brotli")
