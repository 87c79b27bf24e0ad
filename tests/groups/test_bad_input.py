"""Requests that no good client sends: each gets a clear refusal, and the group goes on."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from logbroker.errors import (
    GroupNotEmptyError,
    InvalidGroupIdError,
    UnknownGroupError,
)
from logbroker.v1 import groups_pb2 as pb
from tests.groups.conftest import Group
from tests.groups.members import Member

INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("group_id", ["", "x" * 201, "a/b", "ä", "a b"])
def test_illegal_group_ids(group: Group, group_id: str) -> None:
    code, details = Member(group.api.channel, group_id, "one", [group.topic]).refused()
    assert code == INVALID
    assert "group id" in details
    with pytest.raises(grpc.RpcError) as caught:
        group.groups.commit(group_id, group.topic, {0: 1})
    assert caught.value.code() == INVALID
    for call in (group.groups.describe, group.groups.delete):
        with pytest.raises(InvalidGroupIdError):
            call(group_id)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"member_id": ""}, "member_id"),
        ({"member_id": "x" * 201}, "member_id"),
        ({"instance_id": "x" * 201}, "instance_id"),
        ({"assignor": "fair"}, "sticky"),
        ({"session_timeout_ms": 99}, "session_timeout_ms"),
        ({"session_timeout_ms": 3_600_001}, "session_timeout_ms"),
        ({"rebalance_timeout_ms": 0}, "rebalance_timeout_ms"),
        ({"max_poll_interval_ms": -1}, "max_poll_interval_ms"),
        ({"client_name": "x" * 256}, "client_name"),
        ({"pattern": "(a"}, "pattern"),
        ({"pattern": "a" * 1001}, "pattern"),
        ({"pattern": r"(?=a)b"}, "pattern"),
        ({"topics": ["t"] * 1001}, "topics"),
    ],
)
def test_joins_out_of_bounds(group: Group, fields: dict[str, Any], told: str) -> None:
    fields = {"member_id": "one", **fields}
    code, details = group.joining(fields.pop("member_id"), **fields).refused()
    assert code == INVALID
    assert told in details
    with pytest.raises(UnknownGroupError):
        group.groups.describe(group.id)


def test_descriptions_that_are_too_large_for_one_answer(group: Group) -> None:
    topics = [f"{number:04}" + "x" * 245 for number in range(1000)]
    joined = [group.joining(f"member-{number:02}", topics=topics) for number in range(18)]
    for member in joined:
        member.joined()
    other = Group(group.broker)
    other.member("one")
    members: list[str] = []
    after, pages = "", 0
    while not pages or after:
        request = pb.DescribeGroupsRequest(group_ids=[group.id], members_after=after)
        response = group.groups.calls.DescribeGroups(request)
        assert response.ByteSize() < 4 * 1024 * 1024
        members += [member.member_id for member in response.groups[0].members]
        after, pages = response.groups[0].next_members_after, pages + 1
    assert pages == 2
    assert members == [f"member-{number:02}" for number in range(18)]
    request = pb.DescribeGroupsRequest(group_ids=[other.id, "nobody-knows-it", other.id, group.id, "nor-it"])
    response = group.groups.calls.DescribeGroups(request)
    reasons = [described.status.reason for described in response.groups]
    assert reasons == ["", "UNKNOWN_GROUP", "INVALID_REQUEST", "", "UNKNOWN_GROUP"]
    assert response.ByteSize() < 4 * 1024 * 1024
    other.close()


def test_a_pattern_that_matches_nothing_and_one_that_is_a_trap(group: Group) -> None:
    assert group.member("nothing", pattern="no-such-topic.*").assigned() == {}
    assert group.member("trap", pattern="(a*)*(a*)*(a|aa)+$").assigned() == {}
    group.member("real").holds({group.topic: [0, 1, 2, 3]})


def test_a_stream_that_does_not_begin_with_a_join(group: Group) -> None:
    stub: Any = group.api.channel.stream_stream("/logbroker.v1.Groups/Member")
    heartbeat = pb.MemberRequest(heartbeat=pb.Heartbeat()).SerializeToString()
    for message, told in ((heartbeat, "Join"), (b"\xff\xff nonsense", "MemberRequest"), (b"", "Join")):
        call: Any = stub(iter([message]), timeout=20)
        with pytest.raises(grpc.RpcError):
            next(call)
        assert call.code() == INVALID
        assert told in call.details()


def test_a_member_commits_what_it_may_not(group: Group) -> None:
    member = group.member("one")
    member.assigned()
    assert member.commit(group.topic, {0: 11, 1: -1, 2: 10, 4: 0, 2**31 - 1: 0}) == {
        0: "OFFSET_OUT_OF_RANGE",
        1: "OFFSET_OUT_OF_RANGE",
        4: "NOT_OWNER",
        2**31 - 1: "NOT_OWNER",
    }
    assert member.commit("no-such-topic", {0: 0}) == {0: "UNKNOWN_TOPIC"}
    assert member.commit(group.topic, {0: 1}, epoch=member.epoch + 1) == {0: "STALE_MEMBER_EPOCH"}
    member.send_commit(group.topic, {0: 1, 1: 1}, metadata=["fits", "x" * 4097])
    assert member.commit_refused() == {1: "OFFSET_METADATA_TOO_LARGE"}
    member.send_commit(group.topic, {0: 1, 1: 1}, metadata=["one too few"])
    assert set(member.commit_refused().values()) == {"INVALID_REQUEST"}
    assert group.groups.offsets(group.id) == {(group.topic, 0): 1, (group.topic, 2): 10}


def test_programs_that_are_no_members(group: Group) -> None:
    with pytest.raises(UnknownGroupError):
        group.groups.describe(group.id)
    assert group.groups.commit(group.id, group.topic, {0: 8, 1: 11, 9: 0}) == {
        1: "OFFSET_OUT_OF_RANGE",
        9: "UNKNOWN_PARTITION",
    }
    assert group.groups.commit(group.id, group.topic, {0: 2}) == {}, "a reset may go back"
    assert group.groups.describe(group.id).group.state == "empty"
    member = group.member("one")
    member.assigned()
    assert member.committed[group.topic, 0] == 2
    with pytest.raises(grpc.RpcError) as caught:
        group.groups.commit(group.id, group.topic, {0: 1})
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    with pytest.raises(GroupNotEmptyError):
        group.groups.delete(group.id)
    member.leave()
    group.groups.delete(group.id)
    assert group.groups.offsets(group.id) == {}
    with pytest.raises(UnknownGroupError):
        group.groups.delete(group.id)
    group.member("two").holds({group.topic: [0, 1, 2, 3]})


def test_a_group_takes_so_many_members_and_no_more(group: Group) -> None:
    streams = [group.joining(f"member-{number}") for number in range(60)]
    outcomes = [joins(stream) for stream in streams]
    assert sum(outcomes) == 20
    for stream in streams:
        stream.break_()


def joins(member: Member) -> bool:
    try:
        member.joined()
    except grpc.RpcError:
        assert member.call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "max_group_members" in member.call.details()
        return False
    return True


def test_members_disagree_about_the_assignor(group: Group) -> None:
    group.member("one", assignor="range").assigned()
    code, details = group.joining("two", assignor="sticky").refused()
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "range" in details
    group.member("three")


def test_groups_are_listed_page_by_page(group: Group) -> None:
    ids = sorted(f"{group.id}-listed-{number}" for number in range(5))
    for group_id in ids:
        group.groups.commit(group_id, group.topic, {0: 1})
    found, token = [], ""
    while True:
        page = group.groups.list(page_size=2, page_token=token)
        found += [listed.group_id for listed in page.groups]
        token = page.next_page_token
        if not token:
            break
    assert [group_id for group_id in found if group_id in ids] == ids
    assert found == sorted(set(found))
    with pytest.raises(grpc.RpcError):
        group.groups.list(page_size=0)


def test_fetching_offsets_names_what_is_asked_for(group: Group) -> None:
    group.groups.commit(group.id, group.topic, {0: 3, 2: 4})
    request = pb.FetchOffsetsRequest(
        group_id=group.id,
        topics=[
            pb.TopicPartitions(topic=group.topic, partitions=[2, 1]),
            pb.TopicPartitions(topic="no-such-topic", partitions=[0]),
            pb.TopicPartitions(topic_id=group.topic_id),
        ],
    )
    some, unknown, whole = group.groups.calls.FetchOffsets(request).topics
    assert (list(some.partitions), list(some.offsets)) == ([2, 1], [4, -1])
    assert unknown.status.reason == "UNKNOWN_TOPIC"
    assert (list(whole.partitions), list(whole.offsets), whole.topic) == ([0, 2], [3, 4], group.topic)
    assert all(commit_time_ms > 0 for commit_time_ms in whole.commit_times_ms)
