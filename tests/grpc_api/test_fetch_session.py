"""The pure part of the fetch stream: turns, credit, and what a client is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.broker.topics import new_topic
from logbroker.config import TopicConfig
from logbroker.errors import InvalidRequestError
from logbroker.grpc_api.log.fetch import Position
from logbroker.grpc_api.log.fetch_session import FetchSession
from logbroker.types import TopicId

TOPIC = new_topic("t", TopicId(bytes(16)), 8, {}, TopicConfig(), 0)


def position(partition: int, offset: int = 0) -> Position:
    return Position(TOPIC, partition, offset, 1000, -1)


def test_a_new_partition_is_read_without_credit() -> None:
    session = FetchSession()
    session.assign(position(0), 1)
    assert session.has_work()
    picked = session.pick()
    assert picked is not None
    session.sent(picked, 0, 0, more=True)
    assert not session.has_work(), "it has more, but there is no credit"
    session.add_credit(1)
    assert session.pick() is picked


def test_turns_go_round() -> None:
    session = FetchSession()
    session.add_credit(1000)
    for number in range(3):
        session.assign(position(number), 1)
    order = []
    for _ in range(7):
        picked = session.pick()
        assert picked is not None
        order.append(picked.position.partition)
        session.sent(picked, picked.position.offset + 1, 10, more=True)
    assert order == [0, 1, 2, 0, 1, 2, 0]


def test_credit_may_go_below_zero_and_is_paid_back() -> None:
    session = FetchSession()
    session.add_credit(10)
    session.assign(position(0), 1)
    picked = session.pick()
    assert picked is not None
    session.sent(picked, 5, 25, more=True)
    session.add_credit(15)
    assert not session.has_work(), "the debt of 15 is just paid"
    session.add_credit(1)
    assert session.has_work()


def test_an_idle_partition_wakes_when_its_watermark_moves() -> None:
    session = FetchSession()
    session.add_credit(100)
    session.assign(position(0), 1)
    picked = session.pick()
    assert picked is not None
    session.sent(picked, 5, 10, more=False)
    assert not session.has_work()
    session.moved([picked.position.key])
    assert session.pick() is picked


def test_a_watermark_that_moves_during_the_read_is_not_missed() -> None:
    session = FetchSession()
    session.add_credit(100)
    session.assign(position(0), 1)
    picked = session.pick()
    assert picked is not None
    session.moved([picked.position.key])  # after the read, before it was sent
    session.sent(picked, 5, 10, more=False)
    assert session.pick() is picked


def test_assigning_again_makes_the_old_turn_void() -> None:
    session = FetchSession()
    session.add_credit(100)
    session.assign(position(0, offset=0), 1)
    old = session.pick()
    assert old is not None
    session.assign(position(0, offset=50), 2)
    assert not session.is_current(old)
    session.sent(old, 10, 10, more=True)
    new = session.pick()
    assert new is not None
    assert (new.position.offset, new.correlation_id) == (50, 2)
    assert session.pick() is None, "the old one must not come back"


def test_what_was_put_back_is_next() -> None:
    session = FetchSession()
    session.add_credit(100)
    for number in range(2):
        session.assign(position(number), 1)
        picked = session.pick()
        assert picked is not None
        session.sent(picked, 1, 1, more=True)
    first = session.pick()
    assert first is not None
    session.put_back(first)
    assert session.pick() is first


def test_removed_and_failed_partitions_are_gone() -> None:
    session = FetchSession()
    session.add_credit(100)
    session.assign(position(0), 1)
    session.assign(position(1), 1)
    session.remove(position(0).key)
    picked = session.pick()
    assert picked is not None
    assert picked.position.partition == 1
    session.failed(picked)
    session.moved([position(0).key, position(1).key])
    assert not session.has_work()
    assert session.pick() is None


def test_negative_credit_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="-1"):
        FetchSession().add_credit(-1)


@given(st.lists(st.tuples(st.sampled_from(["assign", "remove", "moved", "read", "credit"]), st.integers(0, 3))))
def test_no_readable_partition_is_forgotten(steps: list[tuple[str, int]]) -> None:
    """Against a model: a partition with unread records is always picked again once there is credit."""
    session = FetchSession()
    end_offsets = [0] * 4
    assigned: set[int] = set()
    for step, number in steps:
        if step == "assign":
            session.assign(position(number), 1)
            assigned.add(number)
        elif step == "remove":
            session.remove(position(number).key)
            assigned.discard(number)
        elif step == "moved":
            end_offsets[number] += 1
            session.moved([position(number).key])
        elif step == "credit":
            session.add_credit(number)
        elif (picked := session.pick()) is not None:
            partition = picked.position.partition
            size = 1 if picked.position.offset < end_offsets[partition] and session.credit_bytes > 0 else 0
            offset = picked.position.offset + size
            session.sent(picked, offset, size, more=offset < end_offsets[partition])
    session.add_credit(10_000)
    read: dict[int, int] = {}
    while (picked := session.pick()) is not None:
        partition = picked.position.partition
        offset = min(picked.position.offset + 1, end_offsets[partition])
        read[partition] = offset
        session.sent(picked, offset, 1, more=offset < end_offsets[partition])
    for number in assigned & set(read):
        assert read[number] == end_offsets[number]
    unread = {n for n in assigned - set(read) if end_offsets[n]}
    current = {key.partition: entry for key, entry in session._partitions.items()}
    assert all(current[number].position.offset == end_offsets[number] for number in unread)
