"""Batches that are read in parts: the same records as a whole decoding gives, and no crash on damaged bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.errors import BatchExpandsTooFarError, CorruptBatchError, LogbrokerError, OffsetOutOfRangeError
from logbroker.record import stored_batch
from logbroker.record.codec import LogRecord, NewRecord, decode_batch, encode_batch, with_producer
from logbroker.record.compression import Codec
from logbroker.record.header import parse_header, stamped_with_append_time, stored_prefix
from logbroker.record.message_headers import NOT_BEFORE, not_before_ms
from logbroker.record.stored_batch import Pieces, StoredBatch, stored_batches

new_records = st.builds(
    NewRecord,
    value=st.one_of(st.none(), st.binary(max_size=200), st.sampled_from((bytes(9_000), bytes(20_000)))),
    key=st.one_of(st.none(), st.binary(max_size=10)),
    headers=st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=2),
    timestamp_ms=st.integers(0, 1 << 42),
)


def stored(batch: bytes) -> StoredBatch:
    return StoredBatch(parse_header(batch), batch)


@given(st.lists(new_records, min_size=1, max_size=20), st.sampled_from(Codec), st.data())
def test_parts_are_as_the_whole(records: list[NewRecord], codec: Codec, data: st.DataObject) -> None:
    raw = encode_batch(records, codec=codec)
    whole = list(decode_batch(raw))
    batch = stored(raw)
    assert batch.column("key") == (range(len(records)), [record.key for record in whole])
    assert batch.column("headers") == (range(len(records)), [list(record.headers) for record in whole])
    wanted = data.draw(st.lists(st.integers(0, len(records) - 1), max_size=30))
    assert batch.records(wanted) == [whole[offset] for offset in wanted]


@given(
    st.lists(new_records, min_size=2, max_size=20),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damaged_bytes_give_records_or_an_error_and_nothing_else(
    records: list[NewRecord], changes: list[tuple[int, int]]
) -> None:
    damaged = bytearray(encode_batch(records))
    for at, value in changes:
        damaged[61 + at % (len(damaged) - 61)] = value
    raw = with_producer(bytes(damaged), 1, 0, 0)
    for read in (
        lambda: stored(raw).column("key"),
        lambda: stored(raw).records([0, len(records) - 1]),
        lambda: stored(raw).index(),
    ):
        try:
            read()
        except LogbrokerError:
            continue


@given(st.lists(st.lists(new_records, min_size=1, max_size=5), min_size=1, max_size=5), st.sampled_from(Codec))
def test_records_of_many_batches_are_decoded_as_one_by_one(contents: list[list[NewRecord]], codec: Codec) -> None:
    pieces, size_bytes = Pieces(), 0
    alone: list[LogRecord] = []
    for number, records in enumerate(contents):
        raw = encode_batch(records, codec=codec)
        if number % 2:
            raw = stamped_with_append_time(raw, 77)
        raw = stored_prefix(number * 1000, len(raw) - 12, 0) + raw[16:]
        wanted = range(number * 1000 + len(records) - 1, number * 1000 - 1, -1)
        size_bytes += pieces.add(stored(raw), wanted)
        alone += reversed(list(decode_batch(raw)))
    assert pieces.records() == alone
    assert size_bytes >= sum(len(record.value or b"") for record in alone)


def test_what_is_not_there_leaves_what_was_added_before() -> None:
    batch, pieces = stored(encode_batch([NewRecord(b"a"), NewRecord(b"b")])), Pieces()
    pieces.add(batch, [1])
    with pytest.raises(OffsetOutOfRangeError):
        pieces.add(batch, [0, 2])
    pieces.add(batch, [0])
    assert [record.value for record in pieces.records()] == [b"b", b"a"]


def test_a_time_beyond_all_numbers_is_refused() -> None:
    raw = bytearray(encode_batch([NewRecord(b"a", timestamp_ms=0), NewRecord(b"b", timestamp_ms=60)]))
    raw[27:35] = ((1 << 63) - 10).to_bytes(8, "big")
    batch = stored(with_producer(bytes(raw), 1, 0, 0))
    assert [record.timestamp_ms for record in batch.records([0])] == [(1 << 63) - 10]
    with pytest.raises(CorruptBatchError, match="time"):
        batch.records([0, 1])


def with_count(raw: bytes, last_offset_delta: int, count: int) -> bytes:
    changed = bytearray(raw)
    changed[23:27] = last_offset_delta.to_bytes(4, "big")
    changed[57:61] = count.to_bytes(4, "big")
    return with_producer(bytes(changed), 1, 0, 0)


def test_a_batch_with_gaps_is_read_by_its_records_offsets() -> None:
    raw = with_count(encode_batch([NewRecord(b"a"), NewRecord(b"b"), NewRecord(b"c")]), 9, 3)
    batch = stored(raw)
    assert batch.column("offset") == ([0, 1, 2], [0, 1, 2])
    assert [record.value for record in batch.records([2, 0])] == [b"c", b"a"]
    for offset in (-1, 3, 9):
        with pytest.raises(OffsetOutOfRangeError):
            batch.records([offset])


def test_offsets_that_do_not_rise_within_the_batch_are_refused() -> None:
    records = [NewRecord(b"a"), NewRecord(b"b"), NewRecord(b"c")]
    plain = encode_batch(records)
    # The offset delta is the third byte of each record behind its length.
    at = [index for index in range(61, len(plain)) if plain[index : index + 1] in b"abc"]
    swapped = bytearray(plain)
    swapped[at[1] - 3], swapped[at[2] - 3] = plain[at[2] - 3], plain[at[1] - 3]
    batch = stored(with_producer(bytes(swapped), 1, 0, 0))
    with pytest.raises(CorruptBatchError):
        batch.column("key")
    with pytest.raises(CorruptBatchError, match="other offsets"):
        batch.records([1])


def test_counts_that_lie_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = encode_batch([NewRecord(b"a"), NewRecord(b"b")])
    for count in (1, 3):
        with pytest.raises(CorruptBatchError):
            stored(with_count(raw, count - 1, count)).column("key")
        with pytest.raises(CorruptBatchError):
            stored(with_count(raw, count - 1, count)).records([0])
    monkeypatch.setattr(stored_batch, "MAX_RECORDS", 1)
    with pytest.raises(BatchExpandsTooFarError):
        stored(raw).plain()


def test_a_wrong_crc_is_found_before_anything_is_decoded() -> None:
    raw = bytearray(encode_batch([NewRecord(b"aaaa")]))
    raw[-2] ^= 1
    with pytest.raises(CorruptBatchError, match="CRC"):
        stored(bytes(raw)).records([0])


def test_the_size_counts_what_reading_adds() -> None:
    [batch] = stored_batches(encode_batch([NewRecord(bytes(1000))] * 10, codec=Codec.ZSTD))
    before = batch.size_bytes
    batch.records([0])
    assert batch.size_bytes > before + 10_000


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], None),
        ([(NOT_BEFORE, b"12")], 12),
        ([(NOT_BEFORE, b"12"), ("x", b"1"), (NOT_BEFORE, b"13")], 13),
        ([(NOT_BEFORE, b"12"), (NOT_BEFORE, b"soon")], None),
        ([(NOT_BEFORE, None)], None),
        ([(NOT_BEFORE, b"")], None),
        ([(NOT_BEFORE, b"-1")], None),
        ([(NOT_BEFORE, b"1e3")], None),
        ([(NOT_BEFORE, b"9" * 5000)], None),
        ([(NOT_BEFORE, b"%020d" % 12)], 12),
        ([(NOT_BEFORE, b"9" * 15)], 10**15 - 1),
        ([(NOT_BEFORE, b"1764273600000000000")], None),  # Nanoseconds.
        ([(NOT_BEFORE, b"1_000")], None),
    ],
)
def test_the_not_before_time(headers: list[tuple[str, bytes | None]], expected: int | None) -> None:
    assert not_before_ms(headers) == expected
