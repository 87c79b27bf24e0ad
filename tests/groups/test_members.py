"""Members come, go and come back: who holds what, and who may commit."""

from __future__ import annotations

import grpc

from tests.groups.conftest import Group
from tests.groups.members import Member


def two_members(group: Group) -> tuple[Member, Member]:
    """The first holds partitions 0 and 1, the second 2 and 3."""
    first = group.member("first")
    first.holds({group.topic: [0, 1, 2, 3]})
    second = group.member("second")
    first.holds({group.topic: [0, 1]})
    second.holds({group.topic: [2, 3]})
    return first, second


def test_a_member_gets_everything_commits_and_its_offsets_can_be_read(group: Group) -> None:
    member = group.member("one")
    assert member.assigned() == {group.topic: [0, 1, 2, 3]}
    assert set(member.committed.values()) == {-1}
    assert member.commit(group.topic, {0: 10, 1: 0, 3: 7}) == {}
    assert group.groups.offsets(group.id) == {(group.topic, 0): 10, (group.topic, 1): 0, (group.topic, 3): 7}
    described = group.groups.describe(group.id)
    assert (described.group.state, described.group.members, described.assignor) == ("stable", 1, "sticky")
    assert described.members[0].epoch == member.epoch == described.epoch


def test_a_partition_is_granted_only_when_its_holder_has_let_go(group: Group) -> None:
    first = group.member("first")
    first.holds({group.topic: [0, 1, 2, 3]})
    second = group.member("second")
    assert first.assigned(take=False) == {group.topic: [0, 1]}
    assert second.assigned() == {}
    second.heartbeat()  # Its answer comes, an assignment does not.
    assert set(group.owners().values()) == {"first"}
    assert first.commit(group.topic, {2: 5}) == {}, "what is revoked is committed before it is let go of"
    old_epoch = first.epoch
    first.take()
    assert second.assigned() == {group.topic: [2, 3]}
    assert second.committed == {(group.topic, 2): 5, (group.topic, 3): -1}
    assert first.commit(group.topic, {0: 1}, epoch=old_epoch) == {0: "STALE_MEMBER_EPOCH"}
    assert first.commit(group.topic, {0: 1, 2: 6}) == {2: "NOT_OWNER"}
    assert group.groups.offsets(group.id) == {(group.topic, 0): 1, (group.topic, 2): 5}


def test_a_committed_offset_goes_back_only_under_another_holder(group: Group) -> None:
    first = group.member("first")
    first.holds({group.topic: [0, 1, 2, 3]})
    assert first.commit(group.topic, {3: 5}) == {}
    assert first.commit(group.topic, {3: 4}) == {3: "OFFSET_GOES_BACK"}
    assert first.commit(group.topic, {3: 5}) == {}
    second = group.member("second")
    first.holds({group.topic: [0, 1]})
    second.holds({group.topic: [2, 3]})
    assert second.commit(group.topic, {3: 2}) == {}
    again = group.back(second)
    assert again.commit(group.topic, {3: 1}) == {3: "OFFSET_GOES_BACK"}


def test_commits_may_be_sent_without_waiting_for_their_answers(group: Group) -> None:
    member = group.member("one")
    member.assigned()
    for number in range(1, 11):
        member.send_commit(group.topic, {0: number})
    member.send_commit(group.topic, {0: 3})
    for _ in range(10):
        assert member.commit_refused() == {}
    assert member.commit_refused() == {0: "OFFSET_GOES_BACK"}
    assert group.groups.offsets(group.id) == {(group.topic, 0): 10}


def test_a_broken_stream_comes_back_and_nothing_moves(group: Group) -> None:
    first, second = two_members(group)
    second.break_()
    again = group.back(second)
    assert group.owners() == {0: "first", 1: "first", 2: "second", 3: "second"}
    assert again.commit(group.topic, {2: 4}) == {}
    first.heartbeat()  # Its answer comes, an assignment does not.


def test_a_new_stream_takes_over_whether_or_not_the_break_was_noticed(group: Group) -> None:
    first, second = two_members(group)
    again = group.back(second)
    assert second.fenced() == "MEMBER_REPLACED"
    assert again.commit(group.topic, {2: 4}) == {}
    assert first.commit(group.topic, {0: 4}) == {}


def test_what_a_member_does_not_list_when_it_comes_back_is_given_anew(group: Group) -> None:
    first, second = two_members(group)
    first.commit(group.topic, {0: 3, 1: 4})
    first.break_()
    again = group.back(first, owned={group.topic: [1]})
    assert again.assigned() == {group.topic: [0, 1]}
    assert again.committed == {(group.topic, 0): 3, (group.topic, 1): 4}
    assert second.commit(group.topic, {2: 1}) == {}


def test_a_goodbye_releases_at_once(group: Group) -> None:
    first, second = two_members(group)
    assert second.commit(group.topic, {2: 9}) == {}
    second.leave()
    assert first.assigned() == {group.topic: [0, 1, 2, 3]}
    assert first.committed[group.topic, 2] == 9
    assert group.groups.describe(group.id).group.members == 1


def test_commits_before_a_goodbye_are_answered(group: Group) -> None:
    member = group.member("one")
    member.assigned()
    member.send_commit(group.topic, {0: 5})
    member.leave_without_waiting()
    assert member.commit_refused() == {}
    member.ends()
    assert group.groups.offsets(group.id) == {(group.topic, 0): 5}


def test_requests_before_the_end_of_the_requests_are_answered(group: Group) -> None:
    member = group.member("one")
    member.assigned()
    for number in range(1, 11):
        member.send_commit(group.topic, {0: number})
    member.half_close()
    for _ in range(10):
        assert member.commit_refused() == {}
    member.ends()
    assert group.groups.offsets(group.id) == {(group.topic, 0): 10}


def test_another_incarnation_of_a_connected_member_is_refused(group: Group) -> None:
    member = group.member("one")
    member.assigned()
    code, details = group.joining("one").refused()
    assert code == grpc.StatusCode.ALREADY_EXISTS
    assert "choose" in details
    member.heartbeat()


def test_a_static_member_keeps_its_partitions_through_a_restart(group: Group) -> None:
    first = group.member("life-1", instance_id="instance")
    first.holds({group.topic: [0, 1, 2, 3]})
    other = group.member("other")
    first.holds({group.topic: [0, 1]})
    other.holds({group.topic: [2, 3]})
    code, details = group.joining("life-2", instance_id="instance").refused()
    assert code == grpc.StatusCode.ALREADY_EXISTS
    assert "instance" in details
    first.leave()
    assert group.owners() == {0: "life-1", 1: "life-1", 2: "other", 3: "other"}
    second = group.member("life-2", instance_id="instance")
    assert second.assigned() == {group.topic: [0, 1]}
    other.heartbeat()  # Its answer comes, an assignment does not.


def test_new_partitions_and_topics_are_assigned_and_deleted_ones_go(group: Group) -> None:
    member = group.member("one", pattern=f"{group.topic}(-more)?")
    assert member.assigned() == {group.topic: [0, 1, 2, 3]}
    group.grow(6)
    assert member.assigned() == {group.topic: [0, 1, 2, 3, 4, 5]}
    group.api.create(f"{group.topic}-more", 2)
    assert member.assigned() == {group.topic: [0, 1, 2, 3, 4, 5], f"{group.topic}-more": [0, 1]}
    assert member.commit(f"{group.topic}-more", {0: 0}) == {}
    group.delete_topic(f"{group.topic}-more")
    assert member.assigned() == {group.topic: [0, 1, 2, 3, 4, 5]}
    assert group.groups.offsets(group.id) == {}


def test_a_member_may_change_what_it_reads(group: Group) -> None:
    other = f"{group.topic}-other"
    group.api.create(other, 1)
    member = group.member("one")
    assert member.assigned() == {group.topic: [0, 1, 2, 3]}
    member.subscribe([other])
    assert member.assigned() == {other: [0]}


def test_many_members_that_join_at_once_share_evenly(group: Group) -> None:
    members = 16
    joining = [group.joining(f"member-{number:02}") for number in range(members)]
    for member in joining:
        member.joined()
    group.grow(2 * members)
    group.settle(joining)
    owners = group.owners()
    assert sorted(owners) == list(range(2 * members))
    assert {list(owners.values()).count(member.member_id) for member in joining} == {2}
