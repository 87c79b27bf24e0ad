"""Groups spoken by hand: every version, and the error that Kafka gives in each case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import logbroker
from logbroker.address import Address
from logbroker.client.sync import Admin, Consumer, Producer, QueueAdmin, TopicPartition
from logbroker.consumer_groups.classic.errors import MemberIdRequiredError
from logbroker.consumer_groups.classic.messages import ClassicJoin
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import GroupNotEmptyError, UnknownGroupError, WrongGroupTypeError
from logbroker.kafka_api.apis.table import TABLE
from logbroker.kafka_api.call import Call
from logbroker.kafka_api.dispatch import LONG_STEPS
from logbroker.kafka_wire.apis import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from logbroker.kafka_wire.codec import Api
from logbroker.kafka_wire.messages import join_group as jg
from logbroker.kafka_wire.messages import leave_group as lg
from logbroker.kafka_wire.messages import offset_commit as oc
from logbroker.kafka_wire.messages import offset_delete as od
from logbroker.kafka_wire.messages import offset_fetch as of
from logbroker.kafka_wire.messages import sync_group as sg
from logbroker.kafka_wire.messages.consumer_protocol import (
    ASSIGNMENT,
    SUBSCRIPTION,
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from logbroker.kafka_wire.messages.delete_groups import DeleteGroupsRequest
from logbroker.kafka_wire.messages.describe_groups import DescribeGroupsRequest
from logbroker.kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from logbroker.kafka_wire.messages.heartbeat import HeartbeatRequest
from logbroker.kafka_wire.messages.list_groups import ListGroupsRequest
from tests.homes import home_of
from tests.kafka_api.raw_client import RawClient, batch_of, produce
from tests.kafka_api.test_order import listening
from tests.waiting import until

UNKNOWN_TOPIC, ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, INVALID_GROUP_ID = 3, 22, 23, 24
UNKNOWN_MEMBER, INVALID_SESSION_TIMEOUT, REBALANCE_IN_PROGRESS, NOT_EMPTY, NOT_FOUND = 25, 26, 27, 68, 69
MEMBER_ID_REQUIRED, GROUP_FULL, FENCED_INSTANCE, SUBSCRIBED, UNKNOWN_ID = 79, 81, 82, 86, 100
OUT_OF_RANGE, METADATA_TOO_LARGE, NOT_COORDINATOR = 1, 12, 16
MAX_MEMBERS = 3
_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with logbroker.embedded(
        kafka=True, group_initial_rebalance_delay_seconds=0, max_group_members=MAX_MEMBERS
    ) as broker:
        yield broker


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    """A topic with ten records in the first of its two partitions."""
    name = f"topic-{next(_numbers)}"
    with Admin(broker.address) as admin, Producer(broker.address) as producer:
        admin.create_topic(name, partitions=2)
        for number in range(10):
            producer.send(name, b"%d" % number, partition=0)
        producer.flush()
    return name


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


def versions(api: Api) -> list[int]:
    return list(TABLE[api.key].versions)


def subscription(*topics: str) -> bytes:
    return b"\0\1" + SUBSCRIPTION.write(ConsumerProtocolSubscription(topics=list(topics)), 1)


def assignment(topic: str, *partitions: int) -> bytes:
    part = ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=list(partitions))
    return b"\0\1" + ASSIGNMENT.write(ConsumerProtocolAssignment(assigned_partitions=[part]), 1)


class RawMember:
    """A member on a connection of its own."""

    def __init__(self, address: str, group: str, *, instance_id: str | None = None, topic: str = "t") -> None:
        self.client = RawClient(address)
        self.group = group
        self.instance_id = instance_id
        self.topic = topic
        self.member_id = ""
        self.generation = -1

    def ask_to_join(self, version: int = 9, **fields: Any) -> None:
        settings: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": 20_000,
            "rebalance_timeout_ms": 20_000,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [jg.JoinGroupRequestProtocol(name="range", metadata=subscription(self.topic))],
        }
        self.client.send(JOIN_GROUP, version, jg.JoinGroupRequest(**settings | fields))

    def joined(self, version: int = 9) -> jg.JoinGroupResponse:
        answer: jg.JoinGroupResponse
        _, answer = self.client.receive(JOIN_GROUP, version)
        self.member_id = answer.member_id or self.member_id
        if not answer.error_code:
            self.generation = answer.generation_id
        return answer

    def join(self, version: int = 9, **fields: Any) -> jg.JoinGroupResponse:
        """Join, with the id that the first answer gives."""
        self.ask_to_join(version, **fields)
        answer = self.joined(version)
        if answer.error_code == MEMBER_ID_REQUIRED:
            assert answer.member_id
            self.ask_to_join(version, **fields)
            answer = self.joined(version)
        return answer

    def sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5) -> sg.SyncGroupResponse:
        answer: sg.SyncGroupResponse = self.client.call(
            SYNC_GROUP,
            version,
            sg.SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id if version >= 3 else None,
                protocol_type="consumer" if version >= 5 else None,
                protocol_name="range" if version >= 5 else None,
                assignments=[
                    sg.SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                    for member_id, data in (assignments or {}).items()
                ],
            ),
        )
        return answer

    def start(self, **fields: Any) -> None:
        """Be the only member, with all partitions."""
        assert self.join(**fields).error_code == 0
        assert self.sync({self.member_id: assignment(self.topic, 0, 1)}).error_code == 0

    def heartbeat(self, version: int = 4, **fields: Any) -> int:
        settings: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id if version >= 3 else None,
        }
        code: int = self.client.call(HEARTBEAT, version, HeartbeatRequest(**settings | fields)).error_code
        return code

    def commit(self, topic: str, offset: int, version: int = 9, partition: int = 0, **fields: Any) -> int:
        """Commit an offset, and return the error code of its partition."""
        settings: dict[str, Any] = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id if version >= 7 else None,
        }
        more = {name: fields.pop(name) for name in ("committed_metadata", "committed_leader_epoch") if name in fields}
        part = oc.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, **more)
        topics = [oc.OffsetCommitRequestTopic(name=topic, partitions=[part])]
        answer = self.client.call(OFFSET_COMMIT, version, oc.OffsetCommitRequest(topics=topics, **settings | fields))
        code: int = answer.topics[0].partitions[0].error_code
        return code

    def leave(self, version: int = 5) -> int:
        if version < 3:
            request = lg.LeaveGroupRequest(group_id=self.group, member_id=self.member_id)
        else:
            member = lg.LeaveGroupRequestMemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
            request = lg.LeaveGroupRequest(group_id=self.group, members=[member])
        answer = self.client.call(LEAVE_GROUP, version, request)
        code: int = answer.members[0].error_code if answer.members else answer.error_code
        return code


@contextmanager
def members(broker: EmbeddedBroker, group: str, *instance_ids: str | None, topic: str = "t") -> Iterator[Any]:
    found = [RawMember(broker.kafka_address, group, instance_id=each, topic=topic) for each in instance_ids]
    try:
        yield found
    finally:
        for each in found:
            each.client.socket.close()


def committed(client: RawClient, group: str, topic: str, version: int = 9) -> of.OffsetFetchResponsePartition:
    """Return the committed offset of the first partition."""
    if version >= 8:
        wish = of.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
        asked = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group_id=group, topics=[wish])])
        found = client.call(OFFSET_FETCH, version, asked).groups[0].topics[0].partitions[0]
    else:
        old = of.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
        asked = of.OffsetFetchRequest(group_id=group, topics=[old])
        found = client.call(OFFSET_FETCH, version, asked).topics[0].partitions[0]
    result: of.OffsetFetchResponsePartition = found
    return result


# --- every version ---


@pytest.mark.parametrize("version", versions(JOIN_GROUP))
def test_each_version_of_join(broker: EmbeddedBroker, group: str, version: int) -> None:
    with members(broker, group, None) as (member,):
        member.ask_to_join(version)
        answer = member.joined(version)
        assert (answer.error_code == MEMBER_ID_REQUIRED) == (version >= 4)
        if answer.error_code:
            member.ask_to_join(version)
            answer = member.joined(version)
        assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
        assert answer.protocol_type == ("consumer" if version >= 7 else None)
        assert answer.leader == answer.member_id == member.member_id
        assert member.member_id.startswith("raw-")
        assert [(each.member_id, each.metadata) for each in answer.members] == [(member.member_id, subscription("t"))]


@pytest.mark.parametrize("version", versions(SYNC_GROUP))
def test_each_version_of_sync(broker: EmbeddedBroker, group: str, version: int) -> None:
    with members(broker, group, None) as (member,):
        member.join()
        answer = member.sync({member.member_id: b"mine"}, version)
        assert (answer.error_code, answer.assignment) == (0, b"mine")
        assert (answer.protocol_type, answer.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))
        assert member.sync(version=version).assignment == b"mine"


@pytest.mark.parametrize("version", versions(HEARTBEAT))
def test_each_version_of_heartbeat(broker: EmbeddedBroker, group: str, version: int) -> None:
    with members(broker, group, None) as (member,):
        assert member.heartbeat(version) == UNKNOWN_MEMBER
        member.start()
        assert member.heartbeat(version) == 0
        assert member.heartbeat(version, generation_id=member.generation - 1) == ILLEGAL_GENERATION
        assert member.heartbeat(version, generation_id=member.generation + 1) == ILLEGAL_GENERATION
        assert member.heartbeat(version, member_id="other") == UNKNOWN_MEMBER
        assert member.heartbeat(version, group_id="") == INVALID_GROUP_ID


@pytest.mark.parametrize("version", versions(LEAVE_GROUP))
def test_each_version_of_leave(broker: EmbeddedBroker, group: str, version: int) -> None:
    with members(broker, group, None) as (member,):
        assert member.leave(version) == UNKNOWN_MEMBER
        member.start()
        assert member.leave(version) == 0
        assert member.leave(version) == UNKNOWN_MEMBER
        assert member.heartbeat() == UNKNOWN_MEMBER


async def test_the_answer_to_a_long_leave_takes_steps(tmp_path: Path) -> None:
    """So it is made in turns, and written in a thread."""
    join = ClassicJoin(
        new_member_id="m",
        protocol_type="consumer",
        protocols=(("range", b""),),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
    )
    request = lg.LeaveGroupRequest(
        group_id="g",
        members=[lg.LeaveGroupRequestMemberIdentity(member_id=str(number)) for number in range(LONG_STEPS)],
    )
    async with listening(tmp_path) as (listener, _):
        with pytest.raises(MemberIdRequiredError):
            await home_of(listener.node.broker).groups.join_classic("g", join)
        call = Call(listener.node, LEAVE_GROUP, 5, 1, b"", 0, Address("", 0))
        answer = await TABLE[LEAVE_GROUP.key].handle(call, request)
        call.is_made()
    assert {member.error_code for member in answer.members} == {UNKNOWN_MEMBER}
    assert call.steps > LONG_STEPS


@pytest.mark.parametrize("version", versions(OFFSET_COMMIT))
def test_each_version_of_commit(broker: EmbeddedBroker, topic: str, group: str, version: int) -> None:
    with members(broker, group, None, topic=topic) as (member,), Admin(broker.address) as admin:
        member.start()
        if version >= 10:
            topic_id = admin.describe_topic(topic).info.id
            part = oc.OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="m")
            topics = [oc.OffsetCommitRequestTopic(topic_id=each, partitions=[part]) for each in (topic_id, b"?" * 16)]
            request = oc.OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=member.generation,
                member_id=member.member_id,
                topics=topics,
            )
            answer = member.client.call(OFFSET_COMMIT, version, request)
            found = [(each.topic_id, each.partitions[0].error_code) for each in answer.topics]
            assert found == [(topic_id, 0), (b"?" * 16, UNKNOWN_ID)]
        else:
            assert member.commit(topic, 5, version, committed_metadata="m") == 0
            assert member.commit("no-such-topic", 5, version) == UNKNOWN_TOPIC
            assert member.commit(topic, 5, version, partition=2) == UNKNOWN_TOPIC
        found_offset = admin.fetch_offsets(group)[TopicPartition(topic, 0)]
        assert (found_offset.offset, found_offset.metadata) == (5, "m")


@pytest.mark.parametrize("version", versions(OFFSET_FETCH))
def test_each_version_of_fetch(broker: EmbeddedBroker, topic: str, group: str, version: int) -> None:
    with members(broker, group, None, topic=topic) as (member,), Admin(broker.address) as admin:
        member.start()
        assert member.commit(topic, 5, committed_leader_epoch=0, committed_metadata="m") == 0
        if version < 10:
            found = committed(member.client, group, topic, version)
            assert (found.committed_offset, found.metadata, found.error_code) == (5, "m", 0)
            assert found.committed_leader_epoch == (0 if version >= 5 else -1)
            assert committed(member.client, "no-such-group", topic, version).committed_offset == -1
            assert committed(member.client, group, "no-such-topic", version).committed_offset == -1
            return
        topic_id = admin.describe_topic(topic).info.id
        wishes = [of.OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (topic_id, b"?" * 16)]
        request = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group_id=group, topics=wishes)])
        first, second = member.client.call(OFFSET_FETCH, version, request).groups[0].topics
        assert (first.topic_id, first.partitions[0].committed_offset, first.partitions[0].error_code) == (
            topic_id,
            5,
            0,
        )
        assert (second.partitions[0].committed_offset, second.partitions[0].error_code) == (-1, UNKNOWN_ID)


@pytest.mark.parametrize("version", [each for each in versions(OFFSET_FETCH) if each >= 2])
def test_all_offsets_of_a_group(broker: EmbeddedBroker, topic: str, group: str, version: int) -> None:
    with members(broker, group, None, topic=topic) as (member,):
        member.start()
        member.commit(topic, 5)
        if version < 8:
            answer = member.client.call(OFFSET_FETCH, version, of.OffsetFetchRequest(group_id=group, topics=None))
        else:
            names = [group, "no-such-group", "no such id"]
            groups = [of.OffsetFetchRequestGroup(group_id=each, topics=None) for each in names]
            answer, unknown, illegal = member.client.call(
                OFFSET_FETCH, version, of.OffsetFetchRequest(groups=groups)
            ).groups
            assert (unknown.error_code, unknown.topics) == (0, [])
            assert (illegal.error_code, illegal.topics) == (INVALID_GROUP_ID, [])
        assert [[each.committed_offset for each in found.partitions] for found in answer.topics] == [[5]]
        assert answer.topics[0].name == ("" if version >= 10 else topic)


def test_an_answer_with_too_many_offsets_is_refused(broker: EmbeddedBroker, topic: str, group: str) -> None:
    with members(broker, group, None, topic=topic) as (member,):
        member.commit(topic, 5, committed_metadata="m" * 4096)
        wish = of.OffsetFetchRequestTopics(name=topic, partition_indexes=[0] * 19_000)
        groups = [of.OffsetFetchRequestGroup(group_id=group, topics=[wish])]
        (answer,) = member.client.call(OFFSET_FETCH, 8, of.OffsetFetchRequest(groups=groups)).groups
        assert (answer.error_code, answer.topics) == (89, [])


@pytest.mark.parametrize("version", versions(LIST_GROUPS))
def test_each_version_of_list(broker: EmbeddedBroker, topic: str, group: str, version: int) -> None:
    with members(broker, group, None) as (member,), Admin(broker.address) as admin:
        member.start()
        admin.commit_offsets(f"{group}-grpc", {TopicPartition(topic, 0): 1})
        fields: dict[str, Any] = {"states_filter": ["stable"]} if version >= 4 else {}
        answer = member.client.call(LIST_GROUPS, version, ListGroupsRequest(**fields))
        found = {each.group_id: each for each in answer.groups}
        assert found[group].protocol_type == "consumer"
        assert (found[group].group_state, found[group].group_type) == (
            "Stable" if version >= 4 else "",
            "classic" if version >= 5 else "",
        )
        assert (f"{group}-grpc" in found) == (version < 4)
        if version >= 5:
            answer = member.client.call(LIST_GROUPS, version, ListGroupsRequest(types_filter=["Consumer"]))
            found = {each.group_id: each for each in answer.groups}
            assert group not in found
            assert found[f"{group}-grpc"].group_state == "Empty"


@pytest.mark.parametrize("version", versions(DESCRIBE_GROUPS))
def test_each_version_of_describe(broker: EmbeddedBroker, group: str, version: int) -> None:
    with members(broker, group, "static") as (member,):
        member.start()
        answer = member.client.call(
            DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=[group, "no-such-group", "no such id"])
        )
        found, unknown, illegal = answer.groups
        assert (found.error_code, found.group_state, found.protocol_type) == (0, "Stable", "consumer")
        assert found.protocol_data == "range"
        (described,) = found.members
        assert (described.member_id, described.client_id, described.client_host) == (
            *(member.member_id, "raw"),
            "/127.0.0.1",
        )
        assert described.group_instance_id == ("static" if version >= 4 else None)
        assert described.member_metadata == subscription("t")
        assert described.member_assignment == assignment("t", 0, 1)
        assert (unknown.error_code, unknown.group_state) == (NOT_FOUND if version >= 6 else 0, "Dead")
        assert illegal.error_code == INVALID_GROUP_ID


@pytest.mark.parametrize("version", versions(DELETE_GROUPS))
def test_each_version_of_delete(broker: EmbeddedBroker, group: str, topic: str, version: int) -> None:
    with members(broker, group, None) as (member,), Admin(broker.address) as admin:
        member.start()
        member.commit(topic, 5)

        def codes(*groups: str) -> list[int]:
            answer = member.client.call(DELETE_GROUPS, version, DeleteGroupsRequest(groups_names=list(groups)))
            assert [each.group_id for each in answer.results] == list(groups)
            return [each.error_code for each in answer.results]

        assert codes(group, "no-such-group") == [NOT_EMPTY, NOT_FOUND]
        member.leave()
        assert codes(group) == [0]
        assert codes(group) == [NOT_FOUND]
        assert committed(member.client, group, topic).committed_offset == -1
        with pytest.raises(UnknownGroupError):
            admin.describe_group(group)


def test_deleting_offsets(broker: EmbeddedBroker, group: str, topic: str) -> None:
    with members(broker, group, None) as (member,):
        member.start()
        member.commit(topic, 5)

        def codes(group: str, *topics: str) -> tuple[int, list[int]]:
            named = [
                od.OffsetDeleteRequestTopic(name=name, partitions=[od.OffsetDeleteRequestPartition(partition_index=0)])
                for name in topics
            ]
            answer = member.client.call(OFFSET_DELETE, 0, od.OffsetDeleteRequest(group_id=group, topics=named))
            return answer.error_code, [each.partitions[0].error_code for each in answer.topics]

        assert codes("no-such-group", topic) == (NOT_FOUND, [])
        assert codes(group, topic, "no-such-topic") == (0, [0, UNKNOWN_TOPIC])
        assert committed(member.client, group, topic).committed_offset == -1
        member.commit(topic, 5)
        member.topic = topic
        member.start()
        assert codes(group, topic) == (0, [SUBSCRIBED])
        assert committed(member.client, group, topic).committed_offset == 5
        member.leave()
        assert codes(group, topic) == (0, [0])
        assert committed(member.client, group, topic).committed_offset == -1


@pytest.mark.parametrize("version", versions(FIND_COORDINATOR))
def test_each_version_of_find_coordinator(broker: EmbeddedBroker, version: int) -> None:
    port = int(broker.kafka_address.rpartition(":")[2])
    with RawClient(broker.kafka_address) as client:
        if version >= 4:
            request = FindCoordinatorRequest(coordinator_keys=["a", "b"])
            found = client.call(FIND_COORDINATOR, version, request).coordinators
            assert [(each.key, each.port, each.error_code) for each in found] == [("a", port, 0), ("b", port, 0)]
        else:
            found = client.call(FIND_COORDINATOR, version, FindCoordinatorRequest(key="a"))
            assert (found.port, found.error_code) == (port, 0)


# --- generations ---


def test_a_second_member_begins_another_generation(broker: EmbeddedBroker, group: str) -> None:
    with members(broker, group, None, None) as (first, second):
        first.start()
        second.ask_to_join()
        assert second.joined().error_code == MEMBER_ID_REQUIRED
        assert first.heartbeat() == 0
        second.ask_to_join()
        until(lambda: first.heartbeat() == REBALANCE_IN_PROGRESS)
        assert first.sync().error_code == REBALANCE_IN_PROGRESS
        assert first.commit("no-such-topic", 0) == UNKNOWN_TOPIC, "commits go on until the generation begins"
        led, followed = first.join(), second.joined()
        assert led.generation_id == followed.generation_id == 2
        assert led.leader == followed.leader == first.member_id
        assert len(led.members) == 2
        assert followed.members == []
        assert second.commit("no-such-topic", 0) == REBALANCE_IN_PROGRESS
        assert first.sync({second.member_id: b"all"}).assignment == b""
        assert second.sync().assignment == b"all"
        assert second.leave() == 0
        assert first.heartbeat() == REBALANCE_IN_PROGRESS
        assert first.join().generation_id == 3


def test_a_commit_is_refused_between_a_generation_and_its_assignment(
    broker: EmbeddedBroker, group: str, topic: str
) -> None:
    with members(broker, group, None) as (member,):
        member.join()
        assert member.commit(topic, 1) == REBALANCE_IN_PROGRESS
        member.sync()
        assert member.commit(topic, 1) == 0


def test_only_the_present_generation_and_its_members_commit(broker: EmbeddedBroker, group: str, topic: str) -> None:
    with members(broker, group, None, None) as (member, other):
        assert member.commit(topic, 1, 8, generation_id_or_member_epoch=1) == ILLEGAL_GENERATION
        assert member.commit(topic, 1, 9, generation_id_or_member_epoch=1) == NOT_FOUND
        assert member.commit(topic, 1) == 0, "nobody else is there"
        member.start()
        assert member.commit(topic, 2) == 0
        old_id, old_generation = member.member_id, member.generation
        assert other.commit(topic, 9) == UNKNOWN_MEMBER
        assert member.commit(topic, 9, member_id="other") == UNKNOWN_MEMBER
        assert member.commit(topic, 9, generation_id_or_member_epoch=old_generation + 1) == ILLEGAL_GENERATION
        member.start()
        assert member.commit(topic, 9, generation_id_or_member_epoch=old_generation) == ILLEGAL_GENERATION
        member.leave()
        member.member_id = ""
        member.start()
        assert member.commit(topic, 9, member_id=old_id) == UNKNOWN_MEMBER
        assert committed(member.client, group, topic).committed_offset == 2
        assert member.commit(topic, 1) == 0, "a member may go back"
        assert member.commit(topic, 11) == OUT_OF_RANGE
        assert member.commit(topic, 1, committed_metadata="m" * 4097) == METADATA_TOO_LARGE


def test_joins_that_are_refused(broker: EmbeddedBroker, group: str) -> None:
    protocol = jg.JoinGroupRequestProtocol(name="other", metadata=b"")
    with members(broker, group, None, None) as (member, other):
        assert member.join(session_timeout_ms=99).error_code == INVALID_SESSION_TIMEOUT
        assert member.join(session_timeout_ms=3_600_001).error_code == INVALID_SESSION_TIMEOUT
        assert member.join(protocols=[]).error_code == INCONSISTENT_PROTOCOL
        assert member.join(protocol_type="").error_code == INCONSISTENT_PROTOCOL
        assert member.join(group_id="").error_code == INVALID_GROUP_ID
        assert member.join(member_id="unknown").error_code == UNKNOWN_MEMBER
        member.member_id = ""
        member.start()
        assert other.join(member_id="unknown").error_code == UNKNOWN_MEMBER
        other.member_id = ""
        assert other.join(protocols=[protocol]).error_code == INCONSISTENT_PROTOCOL
        assert other.join(protocol_type="connect").error_code == INCONSISTENT_PROTOCOL
        assert member.heartbeat() == 0
        wrong = sg.SyncGroupRequest(
            group_id=group, generation_id=member.generation, member_id=member.member_id, protocol_name="other"
        )
        assert member.client.call(SYNC_GROUP, 5, wrong).error_code == INCONSISTENT_PROTOCOL


def test_a_group_has_a_greatest_number_of_members(broker: EmbeddedBroker, group: str) -> None:
    with members(broker, group, *[None] * (MAX_MEMBERS + 1)) as found:
        for member in found[:MAX_MEMBERS]:
            member.ask_to_join()
            assert member.joined().error_code == MEMBER_ID_REQUIRED
        found[-1].ask_to_join()
        assert found[-1].joined().error_code == GROUP_FULL
        assert found[0].leave() == 0
        found[-1].ask_to_join()
        assert found[-1].joined().error_code == MEMBER_ID_REQUIRED


def test_a_silent_member_is_removed(broker: EmbeddedBroker, group: str) -> None:
    with members(broker, group, None, None) as (first, second):
        first.start(session_timeout_ms=300)
        second.ask_to_join()
        assert second.joined().error_code == MEMBER_ID_REQUIRED
        second.ask_to_join()
        assert [each.member_id for each in second.joined().members] == [second.member_id]
        assert first.heartbeat() == UNKNOWN_MEMBER


# --- static members ---


def test_a_static_member_takes_its_place_back(broker: EmbeddedBroker, group: str, topic: str) -> None:
    with members(broker, group, "a", "a") as (before, after):
        before.start()
        answer = after.join(member_id="")
        assert (answer.error_code, answer.generation_id, answer.skip_assignment) == (0, 1, True)
        assert answer.leader == after.member_id != before.member_id
        assert after.sync().assignment == assignment("t", 0, 1)
        assert before.heartbeat() == FENCED_INSTANCE
        assert before.commit(topic, 1) == FENCED_INSTANCE
        assert before.join().error_code == FENCED_INSTANCE
        assert before.sync().error_code == FENCED_INSTANCE
        assert before.leave() == FENCED_INSTANCE
        assert after.heartbeat() == 0
        assert after.commit(topic, 1) == 0


def test_a_static_leader_of_an_old_client_does_not_assign_again(broker: EmbeddedBroker, group: str) -> None:
    with members(broker, group, "a", "a") as (before, after):
        before.start()
        answer = after.join(8)
        assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, before.member_id)
        assert answer.members == []
        assert after.sync().assignment == assignment("t", 0, 1)


def test_a_static_member_may_be_sent_away_by_its_instance_id(broker: EmbeddedBroker, group: str) -> None:
    with members(broker, group, "a") as (member,):
        member.start()
        kept, member.member_id = member.member_id, ""
        assert member.leave() == 0
        assert member.leave() == UNKNOWN_MEMBER
        member.member_id = kept
        assert member.heartbeat() == UNKNOWN_MEMBER


# --- one namespace, and one set of offsets ---


def read(broker: EmbeddedBroker, group: str, topic: str) -> list[Any]:
    """Read as a member over gRPC."""
    with Consumer(broker.address, group=group) as consumer:
        consumer.subscribe(topic)
        return list(consumer.poll(timeout_seconds=20))


def test_a_group_has_one_type_at_a_time(broker: EmbeddedBroker, group: str, topic: str) -> None:
    with members(broker, group, None, topic=topic) as (member,), Admin(broker.address) as admin:
        with Consumer(broker.address, group=group) as consumer:
            consumer.subscribe(topic)
            assert len(consumer.poll(timeout_seconds=20)) == 10
            assert member.join().error_code == INCONSISTENT_PROTOCOL
            assert member.commit(topic, 1) == UNKNOWN_MEMBER
            assert member.heartbeat() == UNKNOWN_MEMBER
        admin.commit_offsets(group, {TopicPartition(topic, 0): 3})
        assert admin.describe_group(group).info.type == "consumer"
        member.start()
        assert admin.describe_group(group).info.type == "classic"
        assert committed(member.client, group, topic).committed_offset == 3
        with pytest.raises(WrongGroupTypeError, match="other protocol"):
            read(broker, group, topic)
        with pytest.raises(GroupNotEmptyError):
            admin.commit_offsets(group, {TopicPartition(topic, 0): 0})
        assert member.commit(topic, 4) == 0
        member.leave()
        assert read(broker, group, topic)[0].offset == 4
        assert admin.describe_group(group).info.type == "consumer"


def test_a_queue_group_is_no_group_of_kafka_clients(broker: EmbeddedBroker, group: str, topic: str) -> None:
    with members(broker, group, None, topic=topic) as (member,), QueueAdmin(broker.address) as admin:
        admin.create_queue(group, topic)
        assert member.join().error_code == INCONSISTENT_PROTOCOL
        assert member.commit(topic, 1) == INCONSISTENT_PROTOCOL
        assert committed(member.client, group, topic).committed_offset == -1
        answer = member.client.call(DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[group]))
        assert [each.error_code for each in answer.results] == [NOT_FOUND]


def test_members_outlive_a_restart_of_the_broker(group: str) -> None:
    with logbroker.embedded(kafka=True, group_initial_rebalance_delay_seconds=0) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic("t", partitions=2)
        with members(broker, group, None, "a") as (first, second):
            first.start()
            second.ask_to_join()
            until(lambda: first.heartbeat() == REBALANCE_IN_PROGRESS)
            first.join()
            second.joined()
            ids = {first.member_id: assignment("t", 0), second.member_id: assignment("t", 1)}
            first.sync(ids)
            second.sync()
            assert first.commit("t", 0) == 0
        for end in (broker.kill, broker.stop):
            end()
            broker.start()
            for member in (first, second):
                member.client = RawClient(broker.kafka_address)
                with member.client:
                    assert member.heartbeat() == 0
                    assert member.sync().assignment == ids[member.member_id]
                    assert member.commit("t", 0, partition=0) == 0


def test_a_stop_answers_those_who_wait(group: str) -> None:
    with (
        logbroker.embedded(kafka=True, group_initial_rebalance_delay_seconds=60) as broker,
        members(broker, group, None) as (member,),
    ):
        member.ask_to_join()
        assert member.joined().error_code == MEMBER_ID_REQUIRED
        member.ask_to_join()
        with Admin(broker.address) as admin:
            until(lambda: [each.members for each in admin.list_groups()] == [1])
        broker.stop()
        assert member.joined().error_code == NOT_COORDINATOR


def test_members_that_wait_hold_no_memory_that_producers_need() -> None:
    mib = 1 << 20
    with (
        logbroker.embedded(
            kafka=True,
            group_initial_rebalance_delay_seconds=60,
            max_request_bytes=mib,
            max_produce_bytes_in_flight=2 * mib,
        ) as broker,
        members(broker, "g", *[None] * 4) as waiting,
        RawClient(broker.kafka_address) as producer,
        Admin(broker.address) as admin,
    ):
        admin.create_topic("t", partitions=1)
        for number, member in enumerate(waiting):
            large = jg.JoinGroupRequestProtocol(name="range", metadata=bytes(mib - 10_000))
            member.ask_to_join(3, protocols=[large], rebalance_timeout_ms=600_000)
            until(lambda count=number + 1: [each.members for each in admin.list_groups()] == [count])  # type: ignore[misc]
        assert produce(producer, "t", 0, batch_of(bytes(mib // 2))).error_code == 0
