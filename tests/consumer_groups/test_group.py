"""Timeouts, refusals and places of single members, with a clock that the test turns."""

from __future__ import annotations

import msgspec
import pytest

from logbroker.consumer_groups.assignors import AssignableTopic
from logbroker.consumer_groups.group import Assignment, Fenced, Group, Join, Message, Subscription
from logbroker.consumer_groups.rows import encode_row, member_key
from logbroker.engine import StateEvent
from logbroker.errors import (
    AssignorMismatchError,
    GroupNotEmptyError,
    InstanceIdInUseError,
    InvalidRequestError,
    MemberIdInUseError,
    MemberNotReleasedError,
    OverloadedError,
    PollTimedOutError,
    RebalanceTimedOutError,
    SessionTimedOutError,
    UnknownMemberError,
)
from logbroker.record.bands import parse_bands
from logbroker.types import TopicId

TOPICS = {"a": AssignableTopic("a", TopicId(b"a" * 16), 4)}


def a_group(grace_seconds: float = 2.0) -> Group:
    group = Group("g", reconnect_grace_seconds=grace_seconds, max_members=3)
    group.topics_changed(TOPICS)
    return group


def a_join(member_id: str = "x", incarnation: int = 1, **fields: object) -> Join:
    return Join(member_id=member_id, incarnation=incarnation, subscription=Subscription(("a",)), **fields)  # type: ignore[arg-type]


def settled(group: Group, now: float = 0.0) -> None:
    while True:
        group.rebalance(now)
        messages = group.take_outputs(wall_ms=1).messages
        if not messages:
            return
        for member_id, message in messages:
            if isinstance(message, Assignment):
                group.taken(member_id, message.epoch, now)


def told(group: Group) -> list[tuple[str, Message]]:
    return group.take_outputs(wall_ms=1).messages


def fencing(group: Group) -> type[Exception]:
    ((_, message),) = told(group)
    assert isinstance(message, Fenced)
    return type(message.error)


def test_a_silent_member_is_fenced_after_its_session_timeout_and_no_sooner() -> None:
    group = a_group()
    group.join(a_join(session_timeout_ms=5_000), 0.0)
    settled(group)
    group.heartbeat("x", 3.0, polled=False)
    group.tick(7.9)
    assert told(group) == []
    group.tick(8.0)
    ((_, message),) = told(group)
    assert isinstance(message, Fenced)
    assert isinstance(message.error, SessionTimedOutError)
    assert "for 5000 ms" in str(message.error)
    assert "blocks its event loop for longer, run that work in a thread or raise the session timeout" in str(
        message.error
    )
    with pytest.raises(UnknownMemberError):
        group.heartbeat("x", 8.0, polled=True)


def test_members_that_come_and_go_leave_nothing_behind() -> None:
    group = a_group()
    for number in range(1_000):
        group.join(a_join(f"member {number}"), 0.0)
        group.leave(f"member {number}", 0.0)
    assert len(group._deadlines) < 100


def test_a_member_that_holds_something_must_poll() -> None:
    group = a_group()
    group.join(a_join("x", max_poll_interval_ms=4_000), 0.0)
    settled(group)
    group.heartbeat("x", 3.9, polled=False)
    group.tick(4.0)
    assert fencing(group) is PollTimedOutError


def test_a_member_that_holds_nothing_need_not_poll() -> None:
    group = a_group()
    group.topics_changed({})
    group.join(a_join("x", max_poll_interval_ms=4_000), 0.0)
    settled(group)
    group.heartbeat("x", 9.0, polled=False)
    group.tick(9.0)
    group.topics_changed(TOPICS)
    settled(group, 9.0)
    group.tick(12.9)
    assert told(group) == []


def test_a_member_that_does_not_let_go_is_fenced_and_the_other_gets_all() -> None:
    group = a_group()
    group.join(a_join("x", rebalance_timeout_ms=3_000), 0.0)
    settled(group)
    group.join(a_join("y", 2), 0.0)
    group.rebalance(0.0)
    for member_id, message in told(group):
        if isinstance(message, Assignment) and member_id == "y":
            assert not message.partitions
            group.taken("y", message.epoch, 0.0)
    group.tick(3.0)
    assert fencing(group) is RebalanceTimedOutError
    settled(group, 3.0)
    (member,) = group.members()
    assert len(member.taken) == 4


def test_a_member_that_only_gains_may_work_on_until_its_poll_interval_ends() -> None:
    """Nobody waits for what it would take: a topic that its pattern matches was created, or partitions were added."""
    group = a_group()
    group.topics_changed({})
    group.join(a_join("x", rebalance_timeout_ms=3_000, max_poll_interval_ms=300_000, session_timeout_ms=20_000), 0.0)
    settled(group)
    group.topics_changed(TOPICS)
    group.rebalance(0.0)
    told(group)
    for now in range(10, 300, 10):
        group.heartbeat("x", now, polled=False)
        group.tick(now)
        assert told(group) == []
    group.tick(300.0)
    assert fencing(group) is PollTimedOutError


def test_a_member_that_polls_and_never_takes_what_it_gains_is_fenced_after_its_poll_interval() -> None:
    group = a_group()
    group.join(a_join("x", rebalance_timeout_ms=3_000, max_poll_interval_ms=30_000, session_timeout_ms=20_000), 0.0)
    group.rebalance(5.0)
    told(group)
    for now in range(10, 35, 5):
        group.heartbeat("x", now, polled=True)
        group.tick(now)
        assert told(group) == []
    group.tick(35.0)
    ((_, message),) = told(group)
    assert isinstance(message, Fenced)
    assert isinstance(message.error, RebalanceTimedOutError)
    assert "did not take the assignment of epoch 1 for 30000 ms" in str(message.error)


def test_a_member_may_work_on_when_nobody_waits_for_its_partitions_any_more() -> None:
    group = a_group()
    group.join(a_join("x", rebalance_timeout_ms=3_000), 0.0)
    settled(group)
    group.join(a_join("y", 2), 0.0)
    group.rebalance(0.0)
    group.leave("y", 1.0)
    group.rebalance(1.0)
    told(group)
    group.tick(4.0)
    assert told(group) == [], "the rebalance timeout went on though nobody waited"
    group.join(a_join("y", 3), 5.0)
    group.rebalance(5.0)
    told(group)
    group.tick(7.9)
    assert told(group) == []
    group.tick(8.0)
    assert fencing(group) is RebalanceTimedOutError


def test_a_member_that_gains_is_fenced_soon_once_another_waits_for_its_partitions() -> None:
    group = a_group()
    group.topics_changed({})
    group.join(a_join("x", rebalance_timeout_ms=3_000), 0.0)
    settled(group)
    group.topics_changed(TOPICS)
    group.rebalance(0.0)
    group.tick(4.0)
    group.join(a_join("y", 2), 4.0)
    group.rebalance(4.0)
    group.rebalance(5.0)
    told(group)
    group.tick(6.9)
    assert told(group) == []
    group.tick(7.0)
    assert fencing(group) is RebalanceTimedOutError


def test_without_grace_a_broken_stream_frees_at_once() -> None:
    group = a_group(grace_seconds=0)
    group.join(a_join(), 0.0)
    settled(group)
    group.disconnected("x", 1.0)
    assert len(group) == 0


def test_a_new_incarnation_of_a_static_member_gets_its_assignment_once_the_old_one_is_away() -> None:
    group = a_group()
    for number in (1, 2):
        group.join(a_join(f"m{number}", instance_id=f"i{number}"), 0.0)
    settled(group)
    before = group.member("m1")
    assert before is not None
    held = before.taken
    with pytest.raises(InstanceIdInUseError):
        group.join(a_join("m3", 3, instance_id="i1"), 1.0)
    group.leave("m1", 1.0)
    settled(group, 1.0)
    group.tick(9.0)
    group.join(a_join("m3", 3, instance_id="i1"), 9.0)
    settled(group, 9.0)
    after = group.member("m3")
    assert after is not None
    assert after.taken == held


@pytest.mark.parametrize("place", ["instance", "member id"])
def test_a_new_incarnation_waits_until_the_one_before_surely_delivers_nothing_any_more(place: str) -> None:
    """It lost its stream, and may not know it: its ownership lasts for the shorter of grace and session."""
    for grace_seconds, session_ms in ((2.0, 10_000), (5.0, 3_000)):
        group = a_group(grace_seconds)
        new_id, instance_id = ("y", "i") if place == "instance" else ("x", "")
        group.join(a_join("x", instance_id=instance_id, session_timeout_ms=session_ms), 0.0)
        settled(group)
        group.heartbeat("x", 10.0, polled=True)
        group.disconnected("x", 11.0)
        over = 10.0 + min(grace_seconds, session_ms / 1000)
        with pytest.raises(MemberNotReleasedError) as refused:
            group.join(a_join(new_id, 2, instance_id=instance_id, session_timeout_ms=session_ms), over)
        assert refused.value.retriable
        assert [member.join.incarnation for member in group.members()] == [1]
        group.join(a_join(new_id, 2, instance_id=instance_id, session_timeout_ms=session_ms), over + 0.001)
        assert [member.join.incarnation for member in group.members()] == [2]


def test_a_new_incarnation_need_not_wait_for_who_surely_delivers_nothing() -> None:
    def away(group: Group, *, goodbye: bool = False, holds: bool = True) -> Group:
        if not holds:
            group.topics_changed({})
        group.join(a_join("x", instance_id="i"), 0.0)
        settled(group)
        (group.leave if goodbye else group.disconnected)("x", 1.0)
        return group

    restarted = a_group()
    restarted.load(
        {event.key: event.value for event in rows_of(away(a_group())) if event.value is not None}, TOPICS, now=100.0
    )
    with pytest.raises(MemberNotReleasedError):
        restarted.join(a_join("y", 2, instance_id="i"), 101.0)
    at_once = [
        (away(a_group(), goodbye=True), 1.0),
        (away(a_group(), holds=False), 1.0),
        (away(a_group(grace_seconds=0)), 1.0),
        (away(a_group()), 2.001),
        (restarted, 102.001),
    ]
    for group, now in at_once:
        group.join(a_join("y", 2, instance_id="i"), now)
        assert [member.member_id for member in group.members()] == ["y"]


def rows_of(group: Group) -> list[StateEvent]:
    (member,) = group.members()
    return [StateEvent(member_key(member.member_id), encode_row(member.to_row()))]


def test_who_may_not_join_is_told_why() -> None:
    group = a_group()
    group.join(a_join("x", assignor="range"), 0.0)
    with pytest.raises(MemberIdInUseError):
        group.join(a_join("x", 2), 0.0)
    with pytest.raises(AssignorMismatchError):
        group.join(a_join("y", 2, assignor="sticky"), 0.0)
    for bad in (
        a_join("", 1),
        a_join("y" * 201, 1),
        a_join("y", 0),
        a_join("y", 1, assignor="best"),
        a_join("y", 1, session_timeout_ms=99),
        a_join("y", 1, client_name="n" * 256),
    ):
        with pytest.raises(InvalidRequestError):
            group.join(bad, 0.0)
    with pytest.raises(GroupNotEmptyError):
        group.detached_change()
    group.join(a_join("y", 2), 0.0)
    group.join(a_join("z", 3), 0.0)
    with pytest.raises(OverloadedError):
        group.join(a_join("more", 4), 0.0)


def test_the_bands_of_a_member_outlive_the_broker_and_rows_without_them_mean_all() -> None:
    bands = parse_bands("hot=5-9:1,cold=0-4:3")
    topics = {"a": AssignableTopic("a", TOPICS["a"].topic_id, 4, bands)}
    group = a_group()
    group.topics_changed(topics)
    group.join(Join(member_id="x", incarnation=1, subscription=Subscription(("a",), bands=("cold",))), 0.0)
    group.rebalance(0.0)
    rows = {event.key: event.value for event in group.take_outputs(wall_ms=1).events if event.value is not None}
    older = {
        key: msgspec.msgpack.encode(msgspec.msgpack.decode(value)[:12]) if key.startswith(b"m") else value
        for key, value in rows.items()
    }
    for stored, expected in ((rows, ("cold",)), (older, ())):
        loaded = a_group()
        loaded.load(stored, topics, 0.0)
        member = loaded.member("x")
        assert member is not None
        assert member.subscription == Subscription(("a",), bands=expected)
        assert {partition.partition for partition in member.held} == {1, 2, 3}


def test_a_member_that_was_heard_of_is_not_due_and_costs_no_step() -> None:
    group = a_group()
    group.join(a_join(session_timeout_ms=1000), 0.0)
    settled(group)
    group.heartbeat("x", 0.6, polled=True)
    assert group.deadline() == 1.0
    assert not group.is_due(1.0)
    assert group.deadline() == 1.6
    assert group.is_due(1.6)
    group.tick(1.6)
    assert fencing(group) is SessionTimedOutError
