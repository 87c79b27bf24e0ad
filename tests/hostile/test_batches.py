"""Malformed batches to whoever decodes them: the client, the tools, a plain fetch."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter

import pytest

from logbroker.errors import (
    BatchExpandsTooFarError,
    CorruptBatchError,
    InvalidRecordError,
    InvalidRequestError,
    UnsupportedCompressionError,
    UnsupportedFormatError,
)
from logbroker.record.codec import check_crc, decode_batch, split_batches
from logbroker.record.compression import Codec
from logbroker.record.header import check_new_batch
from tests.hostile.batch_mutants import MIB, bomb_records, mutated_batch, sealed, sound_batch

SEED = 1
BATCHES = 10_000
MAX_EXPANDED_BYTES = MIB
RECORD_BYTES = 7
"""The least that a record takes."""

DECODING = (CorruptBatchError, UnsupportedFormatError, UnsupportedCompressionError, BatchExpandsTooFarError)
CHECKING = (CorruptBatchError, UnsupportedFormatError, UnsupportedCompressionError, InvalidRecordError)


@pytest.mark.prove
def test_ten_thousand_mutated_batches_raise_our_errors_only() -> None:
    seen: Counter[str] = Counter()
    for number in range(BATCHES):
        rng = random.Random(f"{SEED}-{number}")
        batch = mutated_batch(rng, sound_batch(rng))
        try:
            seen[_checked(batch)] += 1
            seen[_decoded(batch)] += 1
        except Exception as error:
            error.add_note(f"seed {SEED}, batch {number}: {batch.hex()[:2000]}")
            raise
    # All ways were gone, so the mutations are neither too coarse nor too fine.
    for kind in (*DECODING, InvalidRecordError):
        assert seen[kind.__name__] > 50, seen
    assert seen["taken"] > 1000
    assert seen["decoded"] > 1000


def _checked(batch: bytes) -> str:
    """As the broker does with what a producer sends."""
    try:
        check_new_batch(batch)
    except CHECKING as error:
        return type(error).__name__
    return "taken"


def _decoded(batch: bytes) -> str:
    """As a client does with what a broker sends."""
    expanded = records = 0
    try:
        for header, part in split_batches(batch):
            check_crc(header, part)
            for record in decode_batch(part, max_expanded_bytes=MAX_EXPANDED_BYTES):
                expanded += len(record.key or b"") + len(record.value or b"")
                records += 1
    except DECODING as error:
        return type(error).__name__
    finally:
        assert expanded <= 2 * MAX_EXPANDED_BYTES  # it may be two batches
        assert records <= 2 * MAX_EXPANDED_BYTES // RECORD_BYTES
    return "decoded"


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
@pytest.mark.parametrize("count", [1, 9_000_000, 2**31 - 1])
def test_a_bomb_takes_no_more_than_the_readers_bound(codec: Codec, count: int) -> None:
    batch = sealed([0, 0, -1, 2, 0, codec, count - 1, 0, 0, -1, -1, -1, count], bomb_records(codec))
    tracemalloc.start()
    try:
        with pytest.raises(BatchExpandsTooFarError):
            list(decode_batch(batch, max_expanded_bytes=4 * MIB))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 * 4 * MIB + MIB + 3 * len(batch)


def test_every_error_of_a_batch_is_the_senders() -> None:
    assert all(issubclass(error, InvalidRequestError) for error in (*DECODING, *CHECKING))
