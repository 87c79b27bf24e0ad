"""The oldest lanes of many partitions are found, and few records are read for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from logbroker.pacing import at_once
from logbroker.queues.lanes import OldestFirst
from logbroker.queues.model.lane import READY, Lane
from logbroker.queues.model.record_id import record_id_of

UNREADABLE = -1


def oldest(count: int, partitions: Mapping[int, Sequence[int]]) -> tuple[list[int], int]:
    """Search partitions that have lanes with heads of these timestamps, in this order. Return the timestamps of the
    lanes that are found, and how many records were read."""
    dates: dict[int, int] = {}
    by_partition: dict[int, list[tuple[int, int, Lane]]] = {}
    for partition, timestamps in partitions.items():
        for offset, timestamp in enumerate(timestamps):
            head = record_id_of(partition, 3 * offset)
            by_partition.setdefault(partition, []).append((head, len(dates), Lane(b"%d" % head, head, READY)))
            dates[head] = timestamp
    search = OldestFirst(count, by_partition)
    reads: list[int] = []
    while heads := at_once(search.heads_to_read()):
        reads += heads
        search.dates.update((head, dates[head]) for head in heads if dates[head] != UNREADABLE)
    assert len(set(reads)) == len(reads)
    return [dates[lane.head] for lane in at_once(search.oldest())], len(reads)


def test_a_partition_that_is_far_behind_has_all_the_oldest_lanes() -> None:
    partitions = {partition: range(1_000, 1_010) for partition in range(1_200)}
    partitions[1_199] = range(100)
    found, reads = oldest(20, partitions)
    assert found == list(range(20))
    assert reads <= 1_200 + 4 * 20


def test_more_lanes_are_found_than_are_read_at_once() -> None:
    found, reads = oldest(3_000, {0: range(10_000), 1: range(5_000, 15_000)})
    assert found == list(range(3_000))
    assert reads <= 2 + 4 * 3_000


def test_lanes_that_cannot_be_read_hide_no_others() -> None:
    assert oldest(3, {0: [*[UNREADABLE] * 100, 1, 2, 9], 1: [5, 6, 7]})[0] == [1, 2, 5]
    assert oldest(3, {0: [UNREADABLE] * 2, 1: [5]})[0] == [5, UNREADABLE, UNREADABLE]


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=12).map(sorted), max_size=8),
    st.integers(1, 20),
    st.sets(st.tuples(st.integers(0, 7), st.integers(0, 11))),
)
def test_the_search_finds_what_a_look_at_all_lanes_finds(
    partitions: list[list[int]], count: int, unreadable: set[tuple[int, int]]
) -> None:
    lanes = {
        partition: [
            UNREADABLE if (partition, index) in unreadable else timestamp for index, timestamp in enumerate(timestamps)
        ]
        for partition, timestamps in enumerate(partitions)
    }
    readable = sorted(timestamp for each in lanes.values() for timestamp in each if timestamp != UNREADABLE)
    found, reads = oldest(count, lanes)
    total = sum(map(len, lanes.values()))
    assert found == [*readable, *[UNREADABLE] * (total - len(readable))][:count]
    assert reads <= total
