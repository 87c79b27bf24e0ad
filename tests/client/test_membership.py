"""A member's rights to deliver, claim and commit, whatever its stream and its program do. No I/O, no clock."""

from __future__ import annotations

import math

import pytest

from logbroker.client.consumer.membership import AssignedPartitions, GrantedPartitions, Membership, MembershipState
from logbroker.client.consumer.ownership_deadline import NOT_NOW
from logbroker.errors import (
    InstanceIdInUseError,
    LogbrokerError,
    OverloadedError,
    SessionTimedOutError,
    UnknownMemberError,
)
from logbroker.types import TopicId, TopicPartition

SESSION_SECONDS = 10.0
POLL_SECONDS = 25.0


def assignment(epoch: int, *partitions: int) -> AssignedPartitions:
    return AssignedPartitions(
        epoch, {TopicPartition("t", number): GrantedPartitions(TopicId(b"t" * 16), -1) for number in partitions}
    )


def numbers(membership: Membership) -> list[int]:
    return [partition for _, partition in membership.owned]


def new_member() -> Membership:
    return Membership(session_timeout_seconds=SESSION_SECONDS, max_poll_interval_seconds=POLL_SECONDS)


def may_join(membership: Membership) -> bool:
    return membership.may_join


@pytest.fixture
def member() -> Membership:
    """One that holds partitions 0 and 1 in epoch 5, and was heard of at 100."""
    membership = new_member()
    membership.joining(100.0)
    membership.joined(resumed=False, session_timeout_seconds=SESSION_SECONDS)
    assert give(membership, assignment(5, 0, 1))
    return membership


def give(membership: Membership, pushed: AssignedPartitions) -> bool:
    membership.assigned(pushed)
    taken = membership.take(pushed)
    membership.place()
    return taken


def test_a_new_member_delivers_nothing_before_its_partitions_have_their_places() -> None:
    membership = new_member()
    assert may_join(membership)
    membership.joining(100.0)
    assert not may_join(membership)
    membership.joined(resumed=False, session_timeout_seconds=SESSION_SECONDS)
    assert not membership.lost
    assert membership.ownership.until == -math.inf
    pushed = assignment(1, 0)
    membership.assigned(pushed)
    assert membership.take(pushed)
    assert membership.ownership.until == -math.inf
    membership.place()
    assert membership.ownership.until == 110.0
    assert (membership.epoch, numbers(membership)) == (1, [0])


def test_the_ownership_deadline_lasts_a_session_from_the_sending_of_the_last_heartbeat_that_was_answered(
    member: Membership,
) -> None:
    assert member.ownership.until == 110.0
    member.heartbeat(103.0, polled=True)
    member.heartbeat(106.0, polled=True)
    assert member.ownership.until == 110.0
    member.heartbeat_answered()
    assert member.ownership.until == 113.0
    assert member.silent_since(107.0) == 1.0
    member.heartbeat_answered()
    assert member.ownership.until == 116.0
    assert member.silent_since(200.0) == 0.0


def test_the_ownership_deadline_ends_a_poll_interval_after_the_last_poll_that_was_told(member: Membership) -> None:
    for now in (105.0, 110.0, 115.0, 120.0):
        member.heartbeat(now, polled=now < 107)
        member.heartbeat_answered()
    assert member.ownership.until == 130.0
    member.heartbeat(131.0, polled=True)
    member.heartbeat_answered()
    assert member.ownership.until == 141.0


def test_the_session_is_as_long_as_the_broker_says() -> None:
    membership = new_member()
    membership.joining(100.0)
    membership.joined(resumed=False, session_timeout_seconds=3.0)
    give(membership, assignment(1))
    assert membership.ownership.until == 103.0


def test_it_delivers_no_longer_than_what_it_holds_is_kept_after_a_break() -> None:
    membership = new_member()
    membership.joining(100.0)
    membership.joined(resumed=False, session_timeout_seconds=SESSION_SECONDS, reconnect_grace_seconds=2.0)
    give(membership, assignment(1))
    assert membership.ownership.until == 102.0
    membership.heartbeat(101.0, polled=True)
    membership.heartbeat_answered()
    assert membership.ownership.until == 103.0


def test_nothing_is_delivered_between_a_push_and_its_taking(member: Membership) -> None:
    pushed = assignment(6, 1, 2)
    member.assigned(pushed)
    assert member.ownership.until == -math.inf
    assert (member.epoch, numbers(member)) == (5, [0, 1])
    member.heartbeat(104.0, polled=True)
    member.heartbeat_answered()
    assert member.ownership.until == -math.inf
    assert member.take(pushed)
    member.place()
    assert (member.epoch, numbers(member)) == (6, [1, 2])
    assert member.ownership.until == 114.0


def test_one_that_slept_does_nothing_with_what_was_pushed_before_it_hears_of_the_broker_again(
    member: Membership,
) -> None:
    member.assigned(assignment(6, 0, 1, 2))
    assert member.is_sure(110.0)
    assert not member.needs_heartbeat(110.0)
    assert not member.is_sure(111.0)
    assert member.needs_heartbeat(111.0)
    member.heartbeat(111.0, polled=True)
    assert not member.needs_heartbeat(111.0)
    member.heartbeat_answered()
    assert member.is_sure(111.0)
    member.fenced(SessionTimedOutError("silent"))
    assert not member.is_sure(111.0)
    assert not member.needs_heartbeat(111.0)


def test_nor_after_a_break_before_it_is_let_in_again(member: Membership) -> None:
    member.broken()
    assert not member.is_sure(100.0)
    member.joining(107.0)
    assert not member.is_sure(107.0)
    assert not member.needs_heartbeat(107.0)
    member.joined(resumed=True, session_timeout_seconds=SESSION_SECONDS)
    assert member.is_sure(117.0)


def test_a_break_stops_delivery_and_what_was_held_is_claimed(member: Membership) -> None:
    member.broken()
    assert member.ownership.until == -math.inf
    assert may_join(member)
    assert (member.epoch, numbers(member)) == (5, [0, 1])
    member.joining(107.0)
    member.joined(resumed=True, session_timeout_seconds=SESSION_SECONDS)
    assert member.ownership.until == 117.0
    assert not member.lost


def test_an_assignment_of_a_broken_stream_cannot_be_taken(member: Membership) -> None:
    pushed = assignment(6, 1)
    member.assigned(pushed)
    member.broken()
    assert not member.take(pushed)
    member.joining(107.0)
    member.joined(resumed=True, session_timeout_seconds=SESSION_SECONDS)
    again = assignment(6, 1)
    member.assigned(again)
    assert not member.take(pushed)
    assert member.take(again)


def test_answers_to_heartbeats_of_an_old_stream_count_for_nothing(member: Membership) -> None:
    member.heartbeat(109.0, polled=True)
    member.broken()
    member.joining(200.0)
    assert member.silent_since(203.0) == 3.0
    member.joined(resumed=True, session_timeout_seconds=SESSION_SECONDS)
    member.heartbeat_answered()
    assert member.ownership.until == 210.0


def test_let_in_anew_it_has_lost_everything(member: Membership) -> None:
    losses = member.losses
    member.broken()
    member.joining(200.0)
    member.joined(resumed=False, session_timeout_seconds=SESSION_SECONDS)
    assert member.lost
    assert (member.epoch, numbers(member)) == (0, [])
    with pytest.raises(UnknownMemberError):
        member.check_commit(losses)
    pushed = assignment(9, 0)
    member.assigned(pushed)
    assert member.ownership.until == -math.inf
    member.forget()
    assert member.take(pushed)
    member.place()
    assert member.ownership.until == 210.0
    with pytest.raises(UnknownMemberError):
        member.check_commit(losses)
    member.check_commit(member.losses)


def test_one_that_was_fenced_joins_again_when_the_program_has_seen_it(member: Membership) -> None:
    member.fenced(SessionTimedOutError("silent"))
    assert member.state is MembershipState.OUT
    assert member.lost
    assert not may_join(member)
    assert member.ownership.until == -math.inf
    assert member.take_error() is None
    member.forget()
    assert may_join(member)
    assert (member.epoch, numbers(member)) == (0, [])


def test_one_that_is_refused_joins_again_when_the_program_has_heard_why(member: Membership) -> None:
    member.broken()
    member.joining(101.0)
    error = InstanceIdInUseError("in use")
    member.fenced(error)
    assert member.lost
    member.forget()
    assert not may_join(member)
    assert member.take_error() is error
    assert member.take_error() is None
    assert may_join(member)


def test_a_refusal_that_may_pass_costs_nothing(member: Membership) -> None:
    member.broken()
    member.joining(101.0)
    member.fenced(OverloadedError("later"))
    assert may_join(member)
    assert (member.epoch, numbers(member)) == (5, [0, 1])


def test_any_other_error_of_a_member_is_for_the_program(member: Membership) -> None:
    member.fenced(LogbrokerError("a bug"))
    assert member.lost
    member.forget()
    assert not may_join(member)
    assert isinstance(member.take_error(), LogbrokerError)


def test_patience_leaves_time_to_come_back_within_the_session(member: Membership) -> None:
    """A heartbeat is answered, or another connection tried, long before the session is over, however rare they are."""
    assert member.session_timeout_seconds == 10.0
    assert 6.0 + member.patience_seconds(0) + member.patience_seconds(1) < 9.0
    assert member.patience_seconds(0) < member.patience_seconds(6) < member.patience_seconds(1000) <= 15.0


@pytest.mark.parametrize("round_trip_seconds", [0.3, 0.6, 1.2])
def test_patience_is_longer_than_answers_take(round_trip_seconds: float) -> None:
    """On a slow link, and with a session that is short for it, no connection is given up, not even the first."""
    membership = Membership(session_timeout_seconds=1.0, max_poll_interval_seconds=POLL_SECONDS)
    now = 100.0
    for resumed in (False, True):
        membership.joining(now)
        now += 3 * round_trip_seconds  # A connection is made before.
        assert membership.silent_since(now) < membership.patience_seconds(0)
        membership.answered(now)
        membership.joined(resumed=resumed, session_timeout_seconds=1.0)
        for _ in range(3):
            membership.heartbeat(now, polled=True)
            now += round_trip_seconds
            assert membership.silent_since(now) < membership.patience_seconds(0)
            membership.answered(now)
            membership.heartbeat_answered()
        membership.broken()
    # A dead connection is soon noticed again on a fast link.
    membership.joining(now)
    membership.answered(now + 0.01)
    membership.joined(resumed=True, session_timeout_seconds=1.0)
    assert membership.patience_seconds(0) < 0.3


def test_what_is_in_hand_may_go_on_beside_an_outstanding_assignment_until_it_must_be_taken() -> None:
    membership = Membership(
        session_timeout_seconds=SESSION_SECONDS, max_poll_interval_seconds=POLL_SECONDS, rebalance_timeout_seconds=30.0
    )
    membership.joining(100.0)
    membership.joined(resumed=False, session_timeout_seconds=SESSION_SECONDS)
    give(membership, assignment(5, 0, 1))
    assert membership.keeping.until == membership.ownership.until == 110.0
    membership.assigned(assignment(6, 0))
    assert membership.ownership.until == NOT_NOW
    assert membership.keeping.until == 110.0
    # Heartbeats go on, but the assignment was pushed after the one of 100, and 30 s later the broker fences the member.
    for now in (108.0, 116.0, 124.0, 129.0):
        membership.heartbeat(now, polled=True)
        membership.heartbeat_answered()
        assert membership.keeping.until == min(now + SESSION_SECONDS, 130.0)
    pushed = assignment(7, 0)
    membership.assigned(pushed)
    assert membership.keeping.until == 130.0
    assert membership.take(pushed)
    assert membership.keeping.until == 139.0
    membership.broken()
    assert membership.keeping.until == NOT_NOW
