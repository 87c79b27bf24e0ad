"""Columns that a scan takes out of batches, joined and cut, with ranks where the group has priorities."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from logbroker.queues.model.settings import Ordering, Priority, QueueGroupSettings
from logbroker.queues.records.columns import MAX_RECORDS, Columns, Undecodable, columns_of
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.compression import Codec, compress
from logbroker.record.header import HEADER
from logbroker.record.message_headers import DEFAULT_PRIORITY, NOT_BEFORE, PRIORITY
from logbroker.record.stored_batch import KEPT_EXPANDED_BYTES, StoredBatch, stored_batches
from tests.hostile.batch_mutants import sealed

STRICT = QueueGroupSettings(priority=Priority.STRICT)


def record(time: int, priority: bytes | None = None, key: bytes | None = None, *others: tuple[str, bytes]) -> NewRecord:
    headers = others if priority is None else (*others, (PRIORITY, priority))
    return NewRecord(b"v", key, headers, time)


def batch_of(records: Sequence[NewRecord]) -> StoredBatch:
    [batch] = stored_batches(encode_batch(records))
    return batch


def columns(records: Sequence[NewRecord], settings: QueueGroupSettings) -> Columns:
    [found] = columns_of([batch_of(records)], 0, settings)
    assert isinstance(found, Columns)
    return found


def test_ranks_are_taken_from_headers_and_timestamps() -> None:
    found = columns([record(30, b"9"), record(10), record(20, b"0"), record(5, b"high"), record(6, b"10")], STRICT)
    assert found.priorities == bytes([9, DEFAULT_PRIORITY, 0, DEFAULT_PRIORITY, DEFAULT_PRIORITY])
    assert found.times == array("q", [30, 10, 20, 5, 6])


def test_the_last_header_of_a_record_counts() -> None:
    assert columns([record(1, b"2", None, (PRIORITY, b"7"))], STRICT).priorities == bytes([2])


def test_without_such_a_header_all_are_of_the_default_priority() -> None:
    found = columns([record(time, key=b"k") for time in range(3)], STRICT)
    assert found.priorities == bytes([DEFAULT_PRIORITY] * 3)
    assert found.keys == [b"k"] * 3


def test_a_group_without_priorities_pays_for_none() -> None:
    found = columns([record(1, b"9"), record(2, b"1")], QueueGroupSettings())
    assert (found.priorities, found.times) == (b"", array("q"))


def test_all_is_taken_in_one_piece_whatever_is_asked_for() -> None:
    for ordering in (Ordering.KEY, Ordering.NONE):
        for key_header in ("", "customer") if ordering is Ordering.KEY else ("",):
            settings = QueueGroupSettings(priority=Priority.STRICT, ordering=ordering, key_header=key_header)
            found = columns([record(7, b"3", b"k", ("customer", b"c"), (NOT_BEFORE, b"99"))], settings)
            assert found.keys == ([] if ordering is Ordering.NONE else [b"c"] if key_header else [b"k"])
            assert (found.priorities, found.times, found.not_before) == (bytes([3]), array("q", [7]), [(0, 99)])


def test_ranks_are_cut_and_joined_as_their_records_are() -> None:
    times = [time % 97 for time in range(MAX_RECORDS + 10)]
    whole = batch_of([record(time, b"%d" % (time % 10)) for time in times])
    pieces = [piece for piece in columns_of([whole], 0, STRICT) if isinstance(piece, Columns)]
    assert [len(piece.offsets) for piece in pieces] == [MAX_RECORDS, 10]
    assert [time for piece in pieces for time in piece.times] == times
    assert b"".join(piece.priorities for piece in pieces) == bytes(time % 10 for time in times)
    pieces[0].add(pieces[1])
    assert list(pieces[0].times) == times
    assert len(pieces[0].priorities) == len(times)


def test_what_cannot_be_decoded_is_not_kept_expanded() -> None:
    damaged = compress(Codec.ZSTD, b"\xff" * (2 * KEPT_EXPANDED_BYTES))
    [batch] = stored_batches(
        sealed(HEADER.unpack_from(encode_batch([NewRecord(b"v" * 99)], codec=Codec.ZSTD)), damaged)
    )
    [found] = columns_of([batch], 0, QueueGroupSettings())
    assert isinstance(found, Undecodable)
    assert batch.size_bytes == len(batch.raw)
