"""A queue group begins again at other offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.errors import LeaseLostError, StaleSessionError
from logbroker.pacing import at_once
from logbroker.queues.machine.inspect import Inspector
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.lost_receipts import Loss
from logbroker.queues.model.messages import Nack, SessionWrite, Settlement
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import OnExhausted
from logbroker.queues.state.change_set import ChangeSet
from logbroker.queues.state.completion import PAGE_RECORDS, DoneRecords, RecordIds
from tests.queues.groups import ack, admit, at, commit, nack, new_queue, receipts, record_ids, restart


def scan_again(queue: Queue, keys: list[bytes | None]) -> None:
    assert queue.take_outputs().rescan
    admit_again(queue, keys)


def admit_again(queue: Queue, keys: list[bytes | None]) -> None:
    queue.begin_generation(1, ())
    position = queue.position(0)
    admit(queue, keys[position:], start=position)


def commit_rescan(queue: Queue, rows: dict[bytes, bytes]) -> None:
    commit(queue, rows)
    queue.begin_generation(1, ())


def test_what_was_done_from_there_on_comes_again_and_receipts_are_void() -> None:
    queue = new_queue(partitions=2)
    keys: list[bytes | None] = [b"a", b"b", b"c", b"d"]
    admit(queue, keys)
    admit(queue, [b"x"], partition=1)
    granted = queue.take("w", 5, at(0))
    first = granted[0].first_receipt
    settlement = Settlement(acks=[(first, first), (first + 2, first + 2)], nacks=[Nack(first + 1, first + 1)])
    assert queue.settle("w", settlement, at(0)) == []
    assert queue.done.floor(0) == 1
    queue.rewind({0: 0}, at(0))
    refused = queue.settle("w", Settlement(acks=[(first + 3, first + 4)]), at(0))
    assert [type(refusal.error) for refusal in refused] == [LeaseLostError]
    assert queue.open_records == queue.deliveries.in_flight == 0
    scan_again(queue, keys)
    admit(queue, [b"x"], partition=1)
    (again,) = queue.take("w", 5, at(0))
    assert (again.offsets(), again.attempts, again.redelivered) == ([0, 1, 2, 3, 0], [], [True] * 5)
    ack(queue, [again])
    assert queue.done.floor(0) == 4


def test_a_target_above_the_floor_skips_what_lies_below() -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue(max_attempts=1)
    keys: list[bytes | None] = [b"a", b"b", b"c", b"d"]
    admit(queue, keys)
    nack(queue, queue.take("w", 1, at(0)))
    commit(queue, rows)
    queue.rewind({0: 2}, at(0))
    commit_rescan(queue, rows)
    assert not [key for key in rows if key[:1] == b"a"]
    admit(queue, keys[2:], start=2)
    assert record_ids(queue.take("w", 9, at(0))) == [2, 3]
    queue = restart(rows, 4)
    assert queue.position(0) == 2


@pytest.mark.parametrize("include_parked", [False, True])
def test_parked_lanes_stay_so_unless_told_otherwise(include_parked: bool) -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue(max_attempts=1, on_exhausted=OnExhausted.PARK)
    keys: list[bytes | None] = [b"k", b"k", b"k", None]
    admit(queue, keys)
    ack(queue, queue.take("w", 1, at(0)))
    nack(queue, queue.take("w", 2, at(0)))
    assert Inspector(queue).counts().parked == 3
    commit(queue, rows)
    queue.rewind({0: 0}, at(0), include_parked=include_parked)
    commit_rescan(queue, rows)
    for _ in range(2):
        admit(queue, keys)
        assert Inspector(queue).counts().parked == (0 if include_parked else 4)
        if not include_parked:
            assert queue.take("w", 9, at(0)) == []
            inspector = Inspector(queue)
            inspector.resume(inspector.lane(b"k"))
            inspector.resume(inspector.lane_of_record(3))
        assert sorted(record_ids(queue.take("w", 9, at(0)))) == [0, 3]
        queue = restart(rows, 4)


def test_sessions_end_and_their_states_stay() -> None:
    queue = new_queue()
    keys: list[bytes | None] = [b"k", b"k"]
    admit(queue, keys)
    session = queue.sessions.open("w", b"k", 2, at(0))
    assert session is not None
    granted = queue.sessions.take(session, at(0))
    (receipt, _) = receipts(granted)
    write = SessionWrite(b"k", session.token, b"state")
    assert queue.settle("w", Settlement(acks=[(receipt, receipt)], states=[write]), at(0)) == []
    queue.rewind({0: 0}, at(0))
    outputs = queue.take_outputs()
    assert outputs.rescan
    assert outputs.lost_sessions == [(session, Loss.REWOUND)]
    refused = queue.settle("w", Settlement(acks=[(receipt + 1, receipt + 1)]), at(0))
    assert [type(refusal.error) for refusal in refused] == [StaleSessionError]
    admit_again(queue, keys)
    again = queue.sessions.open("v", None, 2, at(0))
    assert again is not None
    assert again.token > session.token
    assert queue.sessions.state(b"k") == b"state"
    assert record_ids(queue.sessions.take(again, at(0))) == [0, 1]


@pytest.mark.parametrize("target", [0, 1])
def test_what_is_on_its_way_to_the_dead_letter_topic_goes_there(target: int) -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue(max_attempts=1, on_exhausted=OnExhausted.DEAD_LETTER, dead_letter_topic="dead")
    admit(queue, [b"k", b"k"])
    nack(queue, queue.take("w", 1, at(0)))
    commit(queue, rows)
    queue.rewind({0: target}, at(0))
    commit_rescan(queue, rows)
    admit(queue, [b"k", b"k"][target:], start=target)
    assert record_ids(queue.take("w", 9, at(0))) == [1][1 - target :]
    queue.dead_lettered(0, at(0))
    assert record_ids(queue.take("w", 9, at(0))) == [1][target:]
    assert queue.open_records == 1
    assert not [key for key in commit(queue, rows) if key[:1] in b"ad"]


@pytest.mark.parametrize("target", [0, 5, PAGE_RECORDS, PAGE_RECORDS + 5, 3 * PAGE_RECORDS + 1, 7 * PAGE_RECORDS])
def test_pages_of_what_is_done_follow(target: int) -> None:
    done = DoneRecords(ChangeSet())
    rows: dict[bytes, bytes] = {}

    def keep() -> None:
        for event in done.take_rows():
            if event.value is None:
                del rows[event.key]
            else:
                rows[event.key] = event.value

    for partition in (0, 1):
        done.open(partition, 0)
        start = record_id_of(partition, 0)
        done.mark_range(start, start + PAGE_RECORDS + 10)
        done.mark_range(start + 2 * PAGE_RECORDS, start + 3 * PAGE_RECORDS)
        done.mark_range(start + 5 * PAGE_RECORDS + 7, start + 5 * PAGE_RECORDS + 70)
    keep()
    done.rewind({0: target}, {})
    keep()
    again = DoneRecords(ChangeSet())
    again.load(rows, {0: 1 << 40, 1: 1 << 40})
    for kept in (done, again):
        assert kept.floor(0) == target
        assert kept.floor(1) == PAGE_RECORDS + 10
        assert at_once(kept.count()) == {0: target, 1: 2 * PAGE_RECORDS + 73}
        assert target not in kept
        assert target == 0 or target - 1 in kept
        kept.mark_range(target, target + 2 * PAGE_RECORDS)
        assert kept.floor(0) == target + 2 * PAGE_RECORDS
    assert len([key for key in rows if key[:1] == b"p" and key[4] == 0]) <= 1
    with pytest.raises(KeyError):
        done.rewind({2: 0}, {})


OFFSETS = st.one_of(
    st.integers(0, 40), st.integers(PAGE_RECORDS - 20, PAGE_RECORDS + 20), st.integers(0, 4 * PAGE_RECORDS)
)


@given(
    done_ranges=st.lists(st.tuples(OFFSETS, OFFSETS), max_size=4),
    kept=st.sets(OFFSETS, max_size=8),
    target=OFFSETS,
    partition=st.sampled_from([0, 3]),
)
def test_what_is_kept_stays_what_it_was(
    done_ranges: list[tuple[int, int]], kept: set[int], target: int, partition: int
) -> None:
    base = record_id_of(partition, 0)
    done, rows = DoneRecords(ChangeSet()), dict[bytes, bytes]()
    done.open(partition, 0)
    was_done = bytearray(5 * PAGE_RECORDS)
    for start, end in done_ranges:
        done.mark_range(base | start, base | max(start, end))
        was_done[start : max(start, end)] = b"\1" * max(0, end - start)
    rows.update({event.key: event.value for event in done.take_rows() if event.value is not None})
    below = {offset for offset in kept if offset < target}
    record_ids = RecordIds()
    record_ids.add(base | offset for offset in below)
    undone = {offset for offset in below if not was_done[offset]}
    assert done.count_undone(record_ids) == len(undone)
    done.rewind({partition: target}, {partition: record_ids})
    for event in done.take_rows():
        if event.value is None:
            del rows[event.key]
        else:
            rows[event.key] = event.value
    again = DoneRecords(ChangeSet())
    again.load(rows, {partition: 1 << 40})
    for each in (done, again):
        assert each.floor(partition) == min(undone, default=target)
        ranges = list(each.undone(base, base | target + 5))
        found = {record_id - base for low, high in ranges for record_id in range(low, high)}
        assert found == undone | set(range(target, target + 5))


def test_a_rewind_of_a_partition_that_is_not_open_changes_nothing() -> None:
    queue = new_queue()
    admit(queue, [b"a", b"b"])
    first, second = receipts(queue.take("w", 2, at(0)))
    assert queue.settle("w", Settlement(acks=[(first, first)]), at(0)) == []
    with pytest.raises(KeyError):
        queue.rewind({0: 0, 1: 0}, at(0))
    assert queue.done.floor(0) == 1
    assert queue.settle("w", Settlement(acks=[(second, second)]), at(0)) == []
    assert queue.done.floor(0) == 2
