"""Kafka clients that send heartbeats: one owner at any time, no orphan once quiet, no commit of an old epoch, and no
client is fenced that does everything right. Whatever happens, and with bugs planted."""

from __future__ import annotations

import random

import pytest

from logbroker.consumer_groups.coordinator import Coordinator
from logbroker.consumer_groups.heartbeats import member as heartbeats
from logbroker.consumer_groups.heartbeats.member import HeartbeatMember
from logbroker.consumer_groups.heartbeats.messages import MemberHeartbeat
from logbroker.consumer_groups.member import Member
from logbroker.types import PartitionKey
from tests.consumer_groups.heartbeat_world import run_walks
from tests.speeds import examples


def test_whatever_happens() -> None:
    run_walks([random.randrange(1 << 32) for _ in range(examples(6, 300))])


def assert_caught(*symptoms: str) -> None:
    """The same walks every time: whether a plant is caught must not depend on luck."""
    with pytest.raises(AssertionError) as caught:
        run_walks(range(200))
    assert any(symptom in str(caught.value) for symptom in symptoms), caught.value


def test_a_stale_member_epoch_that_is_accepted_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeartbeatMember, "accepts", lambda self, beat, member: True)
    assert_caught("a heartbeat of another epoch was accepted", "two owners")


def test_a_commit_of_another_epoch_that_is_accepted_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, check = Coordinator.stage_of_member, heartbeats.check_epoch

    def unchecked(group: Coordinator, member_id: str, epoch: int) -> Member:
        member = group.machine.member(member_id)
        return check(group, member_id, epoch if member is None else heartbeats._epoch(member))

    def staged(group, link, epoch, topics, *, may_go_back=False):  # type: ignore[no-untyped-def]
        member = group.machine.member(link.member_id)
        return stage(group, link, member.epoch, topics, may_go_back=may_go_back)

    monkeypatch.setattr(heartbeats, "check_epoch", unchecked)
    monkeypatch.setattr(Coordinator, "stage_of_member", staged)
    assert_caught("a commit of another epoch was accepted")


def test_a_commit_of_a_fenced_member_that_is_accepted_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = heartbeats.commit

    async def of_anybody(group, member_id, epoch, topics):  # type: ignore[no-untyped-def]
        if group.machine.member(member_id) is None:
            return group._stage(topics, None)
        return await commit(group, member_id, epoch, topics)

    monkeypatch.setattr(heartbeats, "commit", of_anybody)
    assert_caught("a commit of a fenced member was accepted")


def test_a_partition_that_is_free_before_it_is_given_up_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    take = HeartbeatMember._take

    def hasty(self: HeartbeatMember) -> bool:
        self._may_own = frozenset[PartitionKey]()
        return take(self)

    monkeypatch.setattr(HeartbeatMember, "_take", hasty)
    assert_caught("two owners")


def test_a_lost_answer_that_is_not_repeated_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemberHeartbeat, "is_full", property(lambda self: False))
    assert_caught("orphans", "not stable")


def test_an_answer_that_is_given_before_it_is_stored_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart, the broker does not know the epoch that it has told."""

    async def at_once(self: Coordinator) -> None:
        link_messages, self._messages = self._messages, []
        self.machine.rebalance(self._loop.time())
        self._take_outputs()
        link_messages, self._messages = [*link_messages, *self._messages], []
        for link, message in link_messages:
            link.channel.send(self._outgoing(link, message))

    monkeypatch.setattr(Coordinator, "synced", at_once)
    assert_caught("was fenced although", "two owners", "an epoch went back")


def test_a_member_that_is_forgotten_after_the_grace_of_streams_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart, a client is expected for its session: it sends heartbeats more rarely than streams come back."""
    from logbroker.consumer_groups.group import Group

    def hasty(self: Group, member: Member, now: float) -> None:
        member.expires_at = now + 0.0
        self._deadlines.arm(member, member.deadline())

    monkeypatch.setattr(Group, "_expect_back", hasty)
    assert_caught("was fenced although", "an honest commit was refused")
