"""The batches of a fetch that readers see: whole ones, without markers, and without those of aborted transactions."""

from __future__ import annotations

import pytest

from logbroker.broker.cluster_engine.connection.link import ClusterLink
from logbroker.broker.cluster_engine.connection.requests import whole_batches
from logbroker.broker.cluster_engine.log.reading import visible
from logbroker.broker.cluster_engine.log.remote_partition import RemotePartition
from logbroker.kafka_wire.messages.fetch import FetchResponseAbortedTransaction, FetchResponsePartitionData
from logbroker.record.codec import NewRecord, encode_batch, split_batches, with_producer
from logbroker.record.header import CONTROL_FLAG, TRANSACTIONAL_FLAG
from logbroker.types import PartitionKey, TopicId

_ATTRIBUTES_AT = 21


def batch(offset: int, count: int, *, producer: int = -1, flags: int = 0) -> bytes:
    plain = encode_batch([NewRecord(value=b"v%d" % number) for number in range(count)])
    stamped = bytearray(with_producer(plain, producer, 0, 0) if producer >= 0 else plain)
    stamped[0:8] = offset.to_bytes(8, "big")
    stamped[_ATTRIBUTES_AT + 1] |= flags
    return bytes(stamped)


def seen(data: bytes, offset: int, *aborted: tuple[int, int]) -> tuple[list[int], int]:
    """Return the base offsets of the batches that are seen, and the next offset. `aborted` are pairs of a producer and
    the first offset of its transaction."""
    answer = FetchResponsePartitionData(
        aborted_transactions=[
            FetchResponseAbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted
        ]
    )
    batches, next_offset = visible(data, offset, answer)
    return [header.base_offset for header, _ in split_batches(batches)], next_offset


def test_markers_are_hidden_and_read_past() -> None:
    data = batch(0, 2) + batch(2, 1, producer=5, flags=TRANSACTIONAL_FLAG | CONTROL_FLAG) + batch(3, 1)
    assert seen(data, 0) == ([0, 3], 4)
    assert seen(batch(2, 1, producer=5, flags=TRANSACTIONAL_FLAG | CONTROL_FLAG), 2) == ([], 3)


def test_batches_of_aborted_transactions_are_hidden_up_to_their_marker() -> None:
    marker = TRANSACTIONAL_FLAG | CONTROL_FLAG
    data = b"".join(
        (
            batch(0, 1, producer=5, flags=TRANSACTIONAL_FLAG),  # Committed by the first marker.
            batch(1, 1, producer=5, flags=marker),
            batch(2, 1, producer=5, flags=TRANSACTIONAL_FLAG),  # Aborted.
            batch(3, 1, producer=6, flags=TRANSACTIONAL_FLAG),  # Another producer's, committed.
            batch(4, 1),
            batch(5, 1, producer=5, flags=marker),
            batch(6, 1, producer=5, flags=TRANSACTIONAL_FLAG),  # Its next transaction.
        )
    )
    assert seen(data, 0, (5, 2)) == ([0, 3, 4, 6], 7)
    # A read that begins within the aborted transaction is told of it, too.
    assert seen(data[len(batch(0, 1, producer=5)) * 2 :], 2, (5, 2)) == ([3, 4, 6], 7)


@pytest.mark.parametrize("max_bytes", [1, 100, 10_000])
def test_an_answer_that_is_cut_off_anywhere_gives_its_whole_batches(max_bytes: int) -> None:
    sizes = [len(batch(0, 1)), len(batch(1, 50)), len(batch(51, 3))]
    data = batch(0, 1) + batch(1, 50) + batch(51, 3)
    ends = [0, sizes[0], sizes[0] + sizes[1], sum(sizes)]
    for cut in range(len(data) + 1):
        whole, wanted = whole_batches(data[:cut], max_bytes)
        there = [end for end in ends if end <= cut]
        fitting = [end for end in there if end <= max(max_bytes, sizes[0])]
        assert whole == fitting[-1]
        if wanted:
            assert wanted == sizes[ends.index(whole)]
        if whole < cut and cut - whole >= 12:
            assert wanted


def test_whichever_answer_tells_of_removed_records_the_holders_hear_of_it_once() -> None:
    def partition() -> tuple[RemotePartition, list[PartitionKey]]:
        told: list[PartitionKey] = []
        made = RemotePartition(ClusterLink("127.0.0.1:1"), lambda: None, "topic", TopicId(bytes(16)), 3)
        made.on_removed = told.append
        return made, told

    swept, told = partition()
    swept.heard(5, 9)
    swept.heard_stable(5, 9, 9)
    assert told == [swept.key]
    fetched, told = partition()
    fetched.heard_stable(5, 9, 9)
    fetched.heard(5, -1)
    assert told == [fetched.key]
