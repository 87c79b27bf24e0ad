"""Batches that are decoded in parts, as they expand far: no record is lost, and headers take no more than they may."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from logbroker.errors import BatchExpandsTooFarError, CorruptBatchError
from logbroker.record.codec import NewRecord, decode_batch, encode_batch
from logbroker.record.compression import Codec, compress
from logbroker.record.stored_batch import StoredBatch, stored_batches
from logbroker.record.windows import MAX_HEADERS, WINDOW_BYTES
from tests.hostile.batch_mutants import MIB, NOW_MS, sealed
from tests.hostile.wire_mutants import varint

NULL = varint(1)
HEADERS = 4 * MAX_HEADERS


def with_headers(count: int, *, records: int = 1, lie: int | None = None) -> StoredBatch:
    """A compressed batch of records with so many empty headers; `lie`: what they say of their length."""
    body = b"\0\0%b" + NULL + NULL + varint(2 * count) + bytes(2 * count)
    contents = [body.replace(b"%b", varint(2 * number)) for number in range(records)]
    plain = b"".join(varint(2 * (len(each) if lie is None else lie)) + each for each in contents)
    header = [0, 0, -1, 2, 0, Codec.ZSTD, records - 1, NOW_MS, NOW_MS, -1, -1, -1, records]
    [batch] = stored_batches(sealed(header, compress(Codec.ZSTD, plain)))
    return batch


READERS: dict[str, Callable[[StoredBatch], object]] = {
    "one by one": lambda batch: [record.offset for record in decode_batch(batch.raw)],
    "keys": lambda batch: batch.column("key"),
    "headers": lambda batch: batch.column("headers", "key"),
    "records": lambda batch: batch.records(range(batch.header.record_count)),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("records", "lie"), [(1, None), (1, 6)])
def test_a_record_with_millions_of_headers_takes_no_memory(reader: str, records: int, lie: int | None) -> None:
    batch = with_headers(HEADERS, records=records, lie=lie)
    batch.plain()
    tracemalloc.start()
    try:
        with pytest.raises(BatchExpandsTooFarError if lie is None else CorruptBatchError):
            READERS[reader](batch)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 3 * HEADERS * 2 + 100 * MAX_HEADERS


@pytest.mark.parametrize("reader", ["headers", "records"])
def test_headers_of_many_records_are_counted_together(reader: str) -> None:
    batch = with_headers(MAX_HEADERS // 10, records=40)
    with pytest.raises(BatchExpandsTooFarError):
        READERS[reader](batch)
    assert len(list(decode_batch(batch.raw))) == 40, "one by one they are few"


@pytest.mark.parametrize("sizes", [[10] * 20_000, [100_000] * 30, [10, 3 * MIB, 10, 10], [3 * MIB], [WINDOW_BYTES] * 3])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_are_as_they_were_whatever_their_sizes(sizes: list[int], codec: Codec) -> None:
    records = [
        NewRecord(b"%d" % number * (size // 4), b"%d" % number, [("h", b"v")], NOW_MS + number % 7)
        for number, size in enumerate(sizes)
    ]
    raw = encode_batch(records, codec=codec)
    decoded = [NewRecord(each.value, each.key, each.headers, each.timestamp_ms) for each in decode_batch(raw)]
    assert [(each.value, each.key, tuple(each.headers), each.timestamp_ms) for each in records] == [
        (each.value, each.key, each.headers, each.timestamp_ms) for each in decoded
    ]
    [batch] = stored_batches(raw)
    offsets, keys = batch.column("key")
    assert (offsets, keys) == (range(len(sizes)), [each.key for each in records])
    assert batch.records(offsets) == list(decode_batch(raw))


def test_a_count_that_lies_is_found() -> None:
    records = [NewRecord(bytes(MIB)) for _ in range(3)]
    raw = bytearray(encode_batch(records))
    raw[57:61] = (2).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError):
        list(decode_batch(bytes(raw)))
