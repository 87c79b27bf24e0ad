"""The index: the order of lanes and of their successors, chunks in a store, and the line."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.queues.machine.fifo import FifoLine
from logbroker.queues.machine.lane_index import LaneIndex
from logbroker.queues.machine.successors import CHUNKS_IN_MEMORY
from logbroker.queues.model.lane import CHUNK_RECORDS, PARKED, Lane, Run, lane_key
from logbroker.queues.state.change_set import ChangeSet


class DictStore:
    """Chunks in a dict."""

    def __init__(self) -> None:
        self.chunks: dict[int, array[int]] = {}
        self.puts = 0

    def put(self, record_ids: array[int]) -> int:
        assert len(record_ids) == CHUNK_RECORDS
        self.puts += 1
        self.chunks[self.puts] = record_ids
        return self.puts

    def take(self, number: int) -> array[int]:
        return self.chunks.pop(number)

    def drop(self, number: int) -> None:
        del self.chunks[number]

    def close(self) -> None:
        self.chunks.clear()


def no_entry(lane: Lane) -> None:
    raise AssertionError(f"nothing is to be looked at in {lane}")


def taken(lanes: LaneIndex, credit: int) -> list[Lane]:
    """Take what is ready for so much credit; only lanes."""
    found: list[Lane] = []
    for piece in lanes.take(credit):
        assert isinstance(piece, list)
        found += piece
    return found


@pytest.mark.parametrize("stored", [False, True])
def test_a_deep_lane_gives_its_records_in_order_and_keeps_little_in_memory(stored: bool) -> None:
    store = DictStore() if stored else None
    lanes = LaneIndex(ChangeSet(), store)
    count = CHUNK_RECORDS * (CHUNKS_IN_MEMORY + 4) + 100
    lanes.admit(0, range(count), [b"k"] * count, None)
    lane = lanes.get(b"k")
    assert lane is not None
    if store is not None:
        assert len(store.chunks) == 4
    seen: list[int] = []
    while found := taken(lanes, 5):
        assert len(lane) == count - len(seen)
        seen.append(found[0].head)
        if len(seen) == 10:
            # What arrives meanwhile comes last.
            lanes.admit(0, range(count, count + 700), [b"k"] * 700, None)
            count += 700
        lanes.advance(found, set(), no_entry)
    assert seen == list(range(count))
    assert lanes.get(b"k") is None
    assert list(lanes.successors.long_lanes()) == []
    assert store is None or store.chunks == {}


def test_clearing_drops_what_is_stored() -> None:
    store = DictStore()
    lanes = LaneIndex(ChangeSet(), store)
    count = CHUNK_RECORDS * (CHUNKS_IN_MEMORY + 4)
    lanes.admit(0, range(count), [b"k"] * count, None)
    assert store.chunks
    lanes.clear()
    assert store.chunks == {}
    assert lanes.ready_records == lanes.count == 0


def test_lanes_go_round_and_what_was_given_back_comes_first() -> None:
    lanes = LaneIndex(ChangeSet())
    lanes.admit(0, range(6), [b"a", b"b", b"a", b"c", None, b"b"], None)
    first = taken(lanes, 2)
    assert [lane.head for lane in first] == [0, 1]
    lanes.advance(first[:1], set(), no_entry)
    lanes.give_back(first[1:])
    assert [lane.head for lane in taken(lanes, 10)] == [1, 3, 4, 2]


def test_runs_join_split_and_stay_in_line() -> None:
    line = FifoLine()
    line.admit_run(0, 10, redelivered=False)
    line.admit_run(10, 20, redelivered=False)
    line.admit_run(25, 30, redelivered=False)
    line.append(Lane(None, 99, 0))
    assert line.records == 26
    pieces = line.take(12) + line.take(100)
    assert [(run.start, run.end) for run in pieces if isinstance(run, Run)] == [(0, 12), (12, 20), (25, 30)]
    assert [[lane.head for lane in piece] for piece in pieces if isinstance(piece, list)] == [[99]]
    assert line.records == 0
    line.give_back_run(12, 20, redelivered=True)
    assert line.records == 8


def test_a_parked_lane_takes_all_that_arrives_and_gives_nothing() -> None:
    lanes = LaneIndex(ChangeSet())
    lane = lanes.add_parked(b"k")
    assert len(lane) == 0
    lanes.admit(0, range(3), [b"k", b"other", b"k"], None)
    assert lane.state == PARKED
    assert len(lane) == 2
    assert [found.key for found in taken(lanes, 10)] == [b"other"]
    assert [lane.head, lanes.pop_head(lane), lanes.pop_head(lane)] == [0, 2, -1]


def test_long_keys_are_kept_by_a_hash() -> None:
    assert lane_key(b"") == b""
    assert lane_key(b"k" * 256) == b"k" * 256
    long = [b"k" * (1 << 20), b"k" * (1 << 20) + b"x", b"k" * 257]
    assert len({lane_key(key) for key in long}) == 3
    assert all(len(lane_key(key)) == 96 and lane_key(key).startswith(b"k" * 64) for key in long)


@given(st.lists(st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=12), max_size=6), st.integers(1, 4))
def test_each_key_keeps_its_order_however_the_credit_falls(batches: list[list[bytes]], credit: int) -> None:
    lanes = LaneIndex(ChangeSet())
    seen: dict[bytes | None, list[int]] = {}
    expected: dict[bytes | None, list[int]] = {}
    offset = 0
    for keys in (*batches, *[[]] * 100):
        lanes.admit(0, range(offset, offset + len(keys)), keys, None)
        for number, key in enumerate(keys, offset):
            expected.setdefault(key, []).append(number)
        offset += len(keys)
        found = taken(lanes, credit)
        assert len({lane.key for lane in found}) == len(found)
        for lane in found:
            seen.setdefault(lane.key, []).append(lane.head)
        lanes.advance(found, set(), no_entry)
    assert seen == expected
