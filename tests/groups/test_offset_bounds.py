"""Committed offsets are bounded, and a broker at the bound goes on for those who have their place."""

from __future__ import annotations

import pytest

from logbroker.consumer_groups.offsets import OFFSET_BYTES
from logbroker.embedded_broker import embedded
from logbroker.v1 import groups_pb2 as pb
from tests.groups.conftest import Group
from tests.groups.members import GroupsApi

GROUPS_THAT_FIT = 20
PARTITIONS = 4


def reasons(groups: GroupsApi, group_id: str, topic: str, metadata: str = "") -> set[str]:
    """Commit offset 1 to all partitions; return the reasons of those that were refused, "" for those that were not."""
    item = pb.TopicOffsets(
        topic=topic, partitions=range(PARTITIONS), offsets=[1] * PARTITIONS, metadata=[metadata] * PARTITIONS
    )
    [result] = groups.calls.CommitOffsets(pb.CommitOffsetsRequest(group_id=group_id, topics=[item])).topics
    assert not result.status.code
    refused = [failure.status.reason for failure in result.failures]
    return {*refused, *[""][len(refused) // PARTITIONS :]}


@pytest.mark.prove
def test_offsets_of_all_groups_are_bounded_over_restarts_and_deletions() -> None:
    room_bytes = GROUPS_THAT_FIT * PARTITIONS * OFFSET_BYTES
    with embedded(max_offsets_bytes=room_bytes) as broker:
        group = Group(broker)

        def commit(number: int, metadata: str = "") -> set[str]:
            return reasons(group.groups, f"filler-{number}", group.topic, metadata)

        assert [commit(number) for number in range(GROUPS_THAT_FIT)] == [{""}] * GROUPS_THAT_FIT
        for _ in range(2):
            assert commit(GROUPS_THAT_FIT) == {"OFFSETS_FULL"}
            assert commit(0, "x") == {"OFFSETS_FULL"}
            assert commit(0) == {""}, "who has its place goes on"
            broker.kill()
            broker.start()
            group.connect()
        group.groups.delete("filler-3")
        assert commit(GROUPS_THAT_FIT) == {""}, "a deleted group has made room"
        assert commit(GROUPS_THAT_FIT + 1) == {"OFFSETS_FULL"}
        group.delete_topic(group.topic)
        again = Group(broker)
        assert reasons(again.groups, again.id, again.topic) == {""}, "so has a deleted topic"
        again.close()
        group.close()


def test_a_group_with_much_metadata_is_refused_more_and_others_are_not() -> None:
    with embedded(max_group_offsets_bytes=10_000) as broker:
        group = Group(broker)
        assert reasons(group.groups, "greedy", group.topic, "x" * 4096) == {"", "OFFSETS_FULL"}
        assert reasons(group.groups, "modest", group.topic, "x" * 100) == {""}
        group.close()
