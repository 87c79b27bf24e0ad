"""Batches go round through our codec and aiokafka's, and damage is always told as CorruptBatchError."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from typing import Any

import google_crc32c
import pytest
from aiokafka.record import MemoryRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from logbroker.errors import (
    BatchExpandsTooFarError,
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    UnsupportedCompressionError,
    UnsupportedFormatError,
)
from logbroker.record.codec import (
    BatchBuilder,
    LogRecord,
    NewRecord,
    check_crc,
    decode_batch,
    encode_batch,
    split_batches,
    with_producer,
)
from logbroker.record.compression import Codec
from logbroker.record.header import HEADER_BYTES, check_new_batch, parse_header, stored_prefix
from logbroker.record.windows import MAX_HEADERS

MIB = 1024 * 1024
NOW_MS = 1_700_000_000_000

nullable = st.none() | st.binary(max_size=60)
new_records = st.lists(
    st.builds(
        NewRecord,
        value=nullable,
        key=nullable,
        headers=st.lists(st.tuples(st.text(max_size=8), nullable), max_size=3).map(tuple),
        timestamp_ms=st.integers(0, 1 << 50),
    ),
    min_size=1,
    max_size=20,
)
codecs = st.sampled_from(Codec)


def stored(records: list[NewRecord], base_offset: int = 0) -> list[LogRecord]:
    return [
        LogRecord(base_offset + index, record.timestamp_ms or 0, record.key, record.value, tuple(record.headers))
        for index, record in enumerate(records)
    ]


def batch_of(*payloads: bytes, count: int | None = None, attributes: int = 0) -> bytes:
    """A batch with a right header and CRC around record bytes of any kind."""
    body = b"".join(payloads)
    records = len(payloads) if count is None else count
    tail = struct.pack(">hiqqqhii", attributes, max(records - 1, 0), NOW_MS, NOW_MS, -1, -1, -1, records) + body
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, google_crc32c.value(tail)) + tail


def varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


@given(new_records, codecs)
def test_records_come_back_as_they_were(records: list[NewRecord], codec: Codec) -> None:
    batch = encode_batch(records, codec=codec, producer_id=7, producer_epoch=2, base_sequence=40)
    header = check_new_batch(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert header.codec in (codec, Codec.NONE)
    assert list(decode_batch(batch)) == stored(records)


@given(new_records, codecs)
def test_aiokafka_reads_what_we_write(records: list[NewRecord], codec: Codec) -> None:
    memory = MemoryRecords(encode_batch(records, codec=codec))
    theirs: Any = memory.next_batch()
    assert theirs is not None
    assert theirs.validate_crc()
    seen = [LogRecord(r.offset, r.timestamp or 0, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert seen == stored(records)


@given(new_records, codecs)
def test_we_read_what_aiokafka_writes(records: list[NewRecord], codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, MIB)
    for index, record in enumerate(records):
        builder.append(index, record.timestamp_ms, record.key, record.value, list(record.headers))
    assert list(decode_batch(bytes(builder.build()))) == stored(records)


@given(new_records, new_records, codecs)
def test_a_buffer_splits_into_its_batches(one: list[NewRecord], two: list[NewRecord], codec: Codec) -> None:
    parts = []
    for base_offset, records in ((10, one), (500, two)):
        batch = encode_batch(records, codec=codec)
        parts.append(stored_prefix(base_offset, len(batch) - 12, 3) + batch[16:])
    seen = []
    for header, batch in split_batches(b"".join(parts)):
        check_crc(header, batch)
        seen += list(decode_batch(batch))
    assert seen == stored(one, 10) + stored(two, 500)


@given(new_records, codecs, st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1))
def test_another_producer_can_be_stamped_in(
    records: list[NewRecord], codec: Codec, producer_id: int, epoch: int, sequence: int
) -> None:
    stamped = with_producer(encode_batch(records, codec=codec), producer_id, epoch, sequence)
    assert stamped == encode_batch(
        records, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    check_new_batch(stamped)


@pytest.mark.parametrize("bit", range(6, 16))
def test_attributes_without_a_meaning_are_refused_from_producers_and_read_from_the_log(bit: int) -> None:
    """docs/FORMAT.md says so: Kafka's broker stores them."""
    plain = encode_batch([NewRecord(b"value", timestamp_ms=NOW_MS)])
    attributes = 1 << bit if bit < 15 else -(1 << 15)
    batch = bytearray(plain)
    struct.pack_into(">h", batch, 21, attributes)
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[21:])))
    with pytest.raises(InvalidRecordError, match=f"0x{1 << bit:04x}"):
        check_new_batch(bytes(batch))
    assert list(decode_batch(bytes(batch))) == list(decode_batch(plain))


def test_a_batch_is_full_when_the_next_record_would_reach_its_size() -> None:
    builder = BatchBuilder(1000)
    count = 0
    while builder.append(count, NOW_MS, None, b"x" * 100, []) is not None:
        count += 1
    assert builder.size_bytes() < 1000 <= builder.size_bytes() + 108
    assert len(list(decode_batch(builder.build()))) == count


def test_a_first_record_is_always_taken() -> None:
    builder = BatchBuilder(10)
    assert builder.append(0, NOW_MS, None, b"x" * 100, []) is not None


def test_a_wrong_type_adds_nothing() -> None:
    builder = BatchBuilder(1000)
    builder.append(0, NOW_MS, b"key", b"value", [])
    for key, value, headers in (("text", b"", []), (b"", "text", []), (b"", b"", [("name", "text")]), (b"", b"", [1])):
        with pytest.raises(TypeError):
            builder.append(1, NOW_MS, key, value, headers)
    assert [record.value for record in decode_batch(builder.build())] == [b"value"]


def test_records_that_do_not_compress_stay_as_they_are() -> None:
    batch = encode_batch([NewRecord(b"\x00\x91\x17")], codec=Codec.ZSTD)
    assert parse_header(batch).codec == Codec.NONE


def test_append_time_wins_where_the_flag_is_set() -> None:
    batch = bytearray(encode_batch([NewRecord(b"a", timestamp_ms=5), NewRecord(b"b", timestamp_ms=6)]))
    struct.pack_into(">h", batch, 21, 0x08)
    struct.pack_into(">q", batch, 35, NOW_MS)
    assert [record.timestamp_ms for record in decode_batch(bytes(batch))] == [NOW_MS, NOW_MS]


def test_nothing_and_negative_times_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch([])
    with pytest.raises(InvalidTimestampError, match="-5"):
        encode_batch([NewRecord(b"", timestamp_ms=-5)])


# --- damage --------------------------------------------------------------------------------------------------------

RECORD = b"\x00\x00\x00\x01\x01\x00"  # attributes, time delta 0, offset delta 0, no key, no value, no headers
BIG = 2**31 - 1
HUGE = 2**63 - 1


def record_of(*fields: int, tail: bytes = b"") -> bytes:
    body = b"\x00" + b"".join(varint(field) for field in fields) + tail
    return varint(len(body)) + body


@pytest.mark.parametrize(
    "batch",
    [
        batch_of(record_of(0, 0, BIG)),
        batch_of(record_of(0, 0, HUGE)),
        batch_of(record_of(0, 0, HUGE - 40, tail=b"x" * 60)),
        batch_of(record_of(0, 0, -1, BIG)),
        batch_of(record_of(0, 0, -1, HUGE)),
        batch_of(record_of(0, 0, -1, -1, BIG)),
        batch_of(record_of(0, 0, -1, -1, -1)),
        batch_of(record_of(0, 0, -1, -1, HUGE, tail=b"\x00\x00" * 5)),
        batch_of(record_of(0, 0, -1, -1, 1, -1)),
        batch_of(record_of(0, 0, -1, -1, 1, BIG)),
        batch_of(record_of(0, 0, -1, -1, 1, HUGE)),
        batch_of(record_of(0, 0, -1, -1, 1, 1, tail=b"\xff\x00")),
        batch_of(b"\x0c" + b"\x00" + b"\xff" * 12),
        batch_of(b"\xff" * 11),
        batch_of(b"\x80"),
        batch_of(b""),
        batch_of(b"\x0d" + RECORD),
        batch_of(b"\x0c" + RECORD, b"\x0c" + RECORD),
        batch_of(record_of(0, 1, -1, -1, 0)),
        batch_of(record_of(0, -1, -1, -1, 0)),
        batch_of(record_of(0, HUGE, -1, -1, 0)),
        batch_of(b"\x0c" + RECORD, count=BIG),
        batch_of(b"\x0c" + RECORD, count=0),
        batch_of(b"\x0c" + RECORD, count=-1),
        batch_of(b"\x0c" + RECORD, b"tail", count=1),
    ],
    ids=lambda batch: bytes(batch[HEADER_BYTES:]).hex()[:40],
)
def test_impossible_lengths_and_counts_are_a_corrupt_batch(batch: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatchError):
            list(decode_batch(batch))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < MIB


def test_the_hand_made_batch_without_damage_is_read() -> None:
    """So that the cases above fail for their damage and for nothing else."""
    assert list(decode_batch(batch_of(b"\x0c" + RECORD))) == [LogRecord(0, NOW_MS, None, None, ())]
    assert list(decode_batch(batch_of(count=0))) == []


@pytest.mark.prove
@given(new_records, codecs, st.data())
def test_flipped_bytes_never_raise_anything_else(records: list[NewRecord], codec: Codec, data: st.DataObject) -> None:
    batch = bytearray(encode_batch(records, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        for _, part in split_batches(bytes(batch)):
            list(decode_batch(part, max_expanded_bytes=MIB))
    except (CorruptBatchError, UnsupportedFormatError, UnsupportedCompressionError, BatchExpandsTooFarError):
        pass


@given(new_records, st.data())
def test_any_body_behind_a_right_header_is_safe(records: list[NewRecord], data: st.DataObject) -> None:
    body = data.draw(st.binary(max_size=120))
    with contextlib.suppress(CorruptBatchError):
        list(decode_batch(batch_of(body, count=data.draw(st.sampled_from([1, 2, 50, BIG])))))


@given(new_records, codecs, st.data())
def test_a_cut_buffer_is_a_corrupt_batch(records: list[NewRecord], codec: Codec, data: st.DataObject) -> None:
    batch = encode_batch(records, codec=codec)
    end = data.draw(st.integers(1, len(batch) - 1))
    with pytest.raises(CorruptBatchError):
        list(split_batches(batch[:end]))
    with pytest.raises(CorruptBatchError):
        list(decode_batch(batch[:end]))


def test_a_wrong_crc_is_found_where_it_is_asked_for() -> None:
    batch = bytearray(encode_batch([NewRecord(b"value")]))
    batch[-3] ^= 1
    ((header, part),) = split_batches(bytes(batch))
    with pytest.raises(CorruptBatchError, match="CRC"):
        check_crc(header, part)


def test_other_magics_and_codecs_are_named() -> None:
    batch = bytearray(encode_batch([NewRecord(b"value")]))
    batch[16] = 1
    with pytest.raises(UnsupportedFormatError, match="magic 1"):
        list(split_batches(bytes(batch)))
    with pytest.raises(UnsupportedFormatError, match="magic 1"):
        list(decode_batch(bytes(batch)))
    with pytest.raises(UnsupportedCompressionError, match="codec 6"):
        list(decode_batch(batch_of(b"x", attributes=6)))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_bomb_is_refused_within_the_readers_bound(codec: Codec) -> None:
    batch = encode_batch([NewRecord(bytes(32 * MIB))], codec=codec)
    assert len(batch) < 2 * MIB
    tracemalloc.start()
    try:
        with pytest.raises(BatchExpandsTooFarError):
            list(decode_batch(batch, max_expanded_bytes=4 * MIB))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 6 * MIB + 2 * len(batch)


def test_no_batch_has_more_headers_in_a_record_than_are_read() -> None:
    """A dead letter has more headers than its record had."""
    with pytest.raises(BatchExpandsTooFarError, match="at most 524288 are read"):
        encode_batch([NewRecord(value=b"", headers=[("", None)] * (MAX_HEADERS + 1))])
