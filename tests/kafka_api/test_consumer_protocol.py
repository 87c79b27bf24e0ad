"""The consumer protocol (KIP-848) spoken by hand: every version, and the error that Kafka gives in each case."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import logbroker
from logbroker.client.sync import Admin, Consumer, Producer, QueueAdmin, TopicPartition
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.kafka_wire.apis import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
)
from logbroker.kafka_wire.messages import consumer_group_describe as cgd
from logbroker.kafka_wire.messages import consumer_group_heartbeat as cgh
from logbroker.kafka_wire.messages import offset_commit as oc
from logbroker.kafka_wire.messages import offset_delete as od
from logbroker.kafka_wire.messages import offset_fetch as of
from logbroker.kafka_wire.messages.describe_groups import DescribeGroupsRequest
from logbroker.kafka_wire.messages.list_groups import ListGroupsRequest
from tests.kafka_api.raw_client import RawClient
from tests.kafka_api.test_groups import RawMember
from tests.waiting import until

GROUP_NOT_FOUND, INCONSISTENT_PROTOCOL, UNKNOWN_MEMBER, INVALID_REQUEST, UNKNOWN_TOPIC = 69, 23, 25, 42, 3
GROUP_FULL, FENCED_INSTANCE, SUBSCRIBED = 81, 82, 86
FENCED_EPOCH, UNRELEASED_INSTANCE, UNSUPPORTED_ASSIGNOR, STALE_EPOCH, INVALID_REGEX = 110, 111, 112, 113, 128
MAX_MEMBERS = 3
PARTITIONS = 4
_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with logbroker.embedded(
        kafka=True,
        group_initial_rebalance_delay_seconds=0,
        group_heartbeat_interval_seconds=0.2,
        max_group_members=MAX_MEMBERS,
    ) as broker:
        yield broker


class Scene:
    """A group, and a topic with ten records in each of its four partitions."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        number = next(_numbers)
        self.broker = broker
        self.group = f"beating-{number}"
        self.topic = f"beats-{number}"
        self.topic_id = self.make(self.topic)
        self._clients: list[RawClient] = []

    def make(self, topic: str) -> bytes:
        with Admin(self.broker.address) as admin, Producer(self.broker.address) as producer:
            topic_id = admin.create_topic(topic, partitions=PARTITIONS).id
            for number in range(10 * PARTITIONS):
                producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
            producer.flush()
        return topic_id

    def client(self) -> RawClient:
        client = RawClient(self.broker.kafka_address)
        self._clients.append(client)
        return client

    def member(self, member_id: str, **fields: Any) -> BeatingMember:
        return BeatingMember(self, member_id, **fields)

    def joined(self, member_id: str, **fields: Any) -> BeatingMember:
        """A member that has joined, and has heard of its assignment."""
        member = self.member(member_id, **fields)
        assert member.join().error_code == 0
        return member

    def close(self) -> None:
        for client in self._clients:
            client.socket.close()


class BeatingMember:
    """A member that does at once what an answer says."""

    def __init__(self, scene: Scene, member_id: str, *, instance_id: str | None = None, version: int = 1) -> None:
        self.client = scene.client()
        self.scene = scene
        self.member_id = member_id
        self.instance_id = instance_id
        self.version = version
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}

    @property
    def partitions(self) -> list[int]:
        return self.owned.get(self.scene.topic_id, [])

    def ask(self, **fields: Any) -> cgh.ConsumerGroupHeartbeatResponse:
        """Send a heartbeat, and return the answer without doing what it says."""
        settings: dict[str, Any] = {
            "group_id": self.scene.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
        }
        request = cgh.ConsumerGroupHeartbeatRequest(**settings | fields)
        answer: cgh.ConsumerGroupHeartbeatResponse = self.client.call(CONSUMER_GROUP_HEARTBEAT, self.version, request)
        return answer

    def beat(self, **fields: Any) -> cgh.ConsumerGroupHeartbeatResponse:
        answer = self.ask(**fields)
        if not answer.error_code:
            self.member_id = answer.member_id or self.member_id
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        return answer

    def join(self, **fields: Any) -> cgh.ConsumerGroupHeartbeatResponse:
        settings: dict[str, Any] = {
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": [self.scene.topic],
            "topic_partitions": [],
        }
        return self.beat(**settings | fields)

    def tell(self, **fields: Any) -> cgh.ConsumerGroupHeartbeatResponse:
        """Send a heartbeat with what the member owns."""
        return self.beat(topic_partitions=self.listed(), **fields)

    def listed(self, *partitions: int) -> list[cgh.ConsumerGroupHeartbeatRequestTopicPartitions]:
        owned = {self.scene.topic_id: list(partitions)} if partitions else self.owned
        return [
            cgh.ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in owned.items()
        ]

    def commit(self, partition: int, offset: int, **fields: Any) -> int:
        settings: dict[str, Any] = {
            "group_id": self.scene.group,
            "member_id": self.member_id,
            "generation_id_or_member_epoch": self.epoch,
            "group_instance_id": self.instance_id,
        }
        part = oc.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        topics = [oc.OffsetCommitRequestTopic(name=self.scene.topic, partitions=[part])]
        request = oc.OffsetCommitRequest(topics=topics, **settings | fields)
        code: int = self.client.call(OFFSET_COMMIT, 9, request).topics[0].partitions[0].error_code
        return code

    def fetch(self, **fields: Any) -> of.OffsetFetchResponseGroup:
        settings: dict[str, Any] = {
            "group_id": self.scene.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "topics": [of.OffsetFetchRequestTopics(name=self.scene.topic, partition_indexes=[0])],
        }
        group = of.OffsetFetchRequestGroup(**settings | fields)
        found: of.OffsetFetchResponseGroup = self.client.call(OFFSET_FETCH, 9, of.OffsetFetchRequest(groups=[group]))
        answer: of.OffsetFetchResponseGroup = found.groups[0]  # type: ignore[attr-defined]
        return answer


@pytest.fixture
def scene(broker: EmbeddedBroker) -> Iterator[Scene]:
    scene = Scene(broker)
    yield scene
    scene.close()


def settle(*members: BeatingMember) -> None:
    """Let members send heartbeats until all partitions have an owner that knows it."""

    def is_shared() -> bool:
        for member in members:
            assert member.tell().error_code == 0
        return sorted(number for member in members for number in member.partitions) == list(range(PARTITIONS))

    until(is_shared)


# --- assignments ---


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_and_has_all_partitions(scene: Scene, version: int) -> None:
    member = scene.member("" if version == 0 else "me", version=version)
    answer = member.join()
    assert (answer.error_code, answer.heartbeat_interval_ms) == (0, 200)
    assert answer.member_id
    assert answer.member_id == "me" or version == 0
    assert answer.member_epoch > 0
    assert member.partitions == [0, 1, 2, 3]
    answer = member.tell()
    assert (answer.error_code, answer.assignment) == (0, None), "nothing has changed"
    assert member.beat().assignment is None


def test_a_partition_moves_when_its_owner_has_given_it_up(scene: Scene) -> None:
    first = scene.joined("first")
    old_epoch = first.epoch
    second = scene.joined("second")
    assert (second.partitions, second.epoch > old_epoch) == ([], True)

    answer = first.ask()
    assert answer.member_epoch == old_epoch, "until it has given up partitions, its epoch is the old one"
    assert answer.assignment is not None
    [kept] = answer.assignment.topic_partitions
    assert len(kept.partitions) == 2
    revoked = next(number for number in range(PARTITIONS) if number not in kept.partitions)
    assert first.ask().assignment is None, "it was told already"
    assert first.tell().assignment is None, "it still owns all"
    assert second.tell().assignment is None, "they are not free"
    assert first.commit(revoked, 5) == 0, "what is revoked can be committed until it is given up"

    first.owned = {scene.topic_id: kept.partitions}
    answer = first.tell()
    assert answer.member_epoch > old_epoch
    assert answer.assignment is None, "it was told what it keeps"
    assert first.commit(revoked, 6) == UNKNOWN_TOPIC
    until(lambda: second.tell().assignment is not None)
    assert sorted([*first.partitions, *second.partitions]) == [0, 1, 2, 3]
    assert second.fetch().error_code == 0
    assert second.commit(revoked, 7) == 0
    with Admin(scene.broker.address) as admin:
        assert admin.fetch_offsets(scene.group)[TopicPartition(scene.topic, revoked)].offset == 7


def test_a_goodbye_frees_the_partitions_at_once(scene: Scene) -> None:
    first, second = scene.joined("first"), scene.joined("second")
    settle(first, second)
    answer = first.ask(member_epoch=-1)
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (0, -1, 0)
    assert first.ask().error_code == UNKNOWN_MEMBER
    assert first.ask(member_epoch=-1).error_code == UNKNOWN_MEMBER
    assert first.commit(first.partitions[0], 1) == UNKNOWN_MEMBER
    second.tell()
    assert second.partitions == [0, 1, 2, 3]


def test_a_lost_answer_is_repeated_and_other_epochs_are_fenced(scene: Scene) -> None:
    first = scene.joined("first")
    before = first.epoch
    first.tell(subscribed_topic_names=[])  # Everything is revoked.
    assert first.tell().member_epoch > before
    assert first.owned == {}
    lost = first.ask(subscribed_topic_names=[scene.topic])
    assert lost.assignment is not None
    assert lost.member_epoch > first.epoch
    assert first.ask().error_code == FENCED_EPOCH, "it does not say what it owns"
    for epoch in (before, lost.member_epoch + 1):
        assert first.ask(member_epoch=epoch, topic_partitions=[]).error_code == FENCED_EPOCH
    assert first.ask(topic_partitions=first.listed(0, 9)).error_code == FENCED_EPOCH, "it owns what it does not have"
    assert first.commit(0, 1) == STALE_EPOCH
    answer = first.beat(topic_partitions=[])
    assert (answer.member_epoch, answer.assignment) == (lost.member_epoch, lost.assignment)
    assert first.commit(0, 1) == 0


def test_a_member_that_joins_again_has_given_up_everything(scene: Scene) -> None:
    member = scene.joined("me")
    before = member.epoch
    member.owned = {}
    assert member.join().error_code == 0
    assert (member.partitions, member.epoch > before) == ([0, 1, 2, 3], True)
    assert member.ask(member_epoch=before).error_code == FENCED_EPOCH


def test_a_member_that_does_not_give_up_in_time_is_fenced(scene: Scene) -> None:
    first = scene.member("first")
    first.join(rebalance_timeout_ms=1)  # The interval of heartbeats is added.
    with Admin(scene.broker.address) as admin:
        assert len(admin.describe_group(scene.group).members) == 1
    second = scene.joined("second")
    until(lambda: first.ask().error_code == UNKNOWN_MEMBER)
    assert first.commit(0, 3) == UNKNOWN_MEMBER
    second.tell()
    assert second.partitions == [0, 1, 2, 3]


def test_new_partitions_and_topics_come_with_the_next_heartbeat(scene: Scene) -> None:
    member = scene.member("me")
    member.join(subscribed_topic_names=[scene.topic, f"{scene.topic}-later"])
    with Admin(scene.broker.address) as admin:
        admin.alter_topic(scene.topic, partitions=PARTITIONS + 1)
        later = admin.create_topic(f"{scene.topic}-later", partitions=1).id

        def has_all() -> bool:
            member.tell()
            return member.owned == {scene.topic_id: [0, 1, 2, 3, 4], later: [0]}

        until(has_all)
        admin.delete_topic(f"{scene.topic}-later")

        def has_one() -> bool:
            member.tell()
            return member.owned == {scene.topic_id: [0, 1, 2, 3, 4]}

        until(has_one)


# --- commits ---


def test_a_commit_needs_the_epoch_of_the_member_and_its_partitions(scene: Scene) -> None:
    member = scene.joined("me")
    assert member.commit(0, 5) == 0
    assert member.commit(0, 3) == 0, "members may seek"
    for epoch in (member.epoch - 1, member.epoch + 1, 0):
        assert member.commit(0, 4, generation_id_or_member_epoch=epoch) == STALE_EPOCH
    assert member.commit(0, 4, member_id="other") == UNKNOWN_MEMBER
    assert member.commit(0, 4, member_id="", generation_id_or_member_epoch=-1) == UNKNOWN_MEMBER
    found = member.fetch()
    assert (found.error_code, found.topics[0].partitions[0].committed_offset) == (0, 3)
    member.tell(subscribed_topic_names=[])
    member.tell()
    assert member.commit(0, 4) == UNKNOWN_TOPIC, "it has the epoch, but not the partition"
    assert member.fetch().topics[0].partitions[0].committed_offset == 3


def test_offsets_are_told_to_members_of_this_epoch_and_to_strangers(scene: Scene) -> None:
    member = scene.joined("me")
    assert member.fetch(member_epoch=member.epoch - 1).error_code == STALE_EPOCH
    assert member.fetch(member_epoch=member.epoch + 1).error_code == STALE_EPOCH
    assert member.fetch(member_id="other").error_code == UNKNOWN_MEMBER
    assert member.fetch(member_id=None, member_epoch=-1).error_code == 0


def test_offsets_of_subscribed_topics_stay(scene: Scene) -> None:
    other = f"{scene.topic}-other"
    scene.make(other)
    client = scene.client()
    part = oc.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [oc.OffsetCommitRequestTopic(name=name, partitions=[part]) for name in (scene.topic, other)]
    client.call(OFFSET_COMMIT, 9, oc.OffsetCommitRequest(group_id=scene.group, topics=topics, member_id=""))
    scene.joined("me")
    gone = [od.OffsetDeleteRequestPartition(partition_index=0)]
    wishes = [od.OffsetDeleteRequestTopic(name=name, partitions=gone) for name in (scene.topic, other)]
    answer = client.call(OFFSET_DELETE, 0, od.OffsetDeleteRequest(group_id=scene.group, topics=wishes))
    assert [each.partitions[0].error_code for each in answer.topics] == [SUBSCRIBED, 0]
    with Admin(scene.broker.address) as admin:
        assert {each.topic for each in admin.fetch_offsets(scene.group)} == {scene.topic}


# --- what is refused ---


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": ""}, INVALID_REQUEST),
        ({"member_id": " ", "member_epoch": 3}, INVALID_REQUEST),
        ({"group_id": ""}, INVALID_REQUEST),
        ({"instance_id": ""}, INVALID_REQUEST),
        ({"rack_id": " "}, INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, INVALID_REQUEST),
        ({"topic_partitions": None}, INVALID_REQUEST),
        ({"topic_partitions": [cgh.ConsumerGroupHeartbeatRequestTopicPartitions(partitions=[0])]}, INVALID_REQUEST),
        ({"subscribed_topic_names": None}, INVALID_REQUEST),
        ({"member_epoch": -2}, INVALID_REQUEST),
        ({"member_epoch": -3}, INVALID_REQUEST),
        ({"subscribed_topic_names": [f"topic-{number}" for number in range(1_001)]}, INVALID_REQUEST),
        ({"server_assignor": "sticky"}, UNSUPPORTED_ASSIGNOR),
        ({"server_assignor": ""}, UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "(a"}, INVALID_REGEX),
        ({"subscribed_topic_regex": "(?=look)ahead"}, INVALID_REGEX),
        ({"member_epoch": 3}, GROUP_NOT_FOUND),
        ({"member_epoch": -1}, GROUP_NOT_FOUND),
    ],
)
def test_wrong_heartbeats_are_refused(scene: Scene, fields: dict[str, Any], code: int) -> None:
    answer = scene.member("me").join(**fields)
    assert answer.error_code == code
    assert answer.error_message
    with Admin(scene.broker.address) as admin:
        assert scene.group not in [each.id for each in admin.list_groups()]


def test_an_unknown_member_is_refused(scene: Scene) -> None:
    assert scene.joined("me").ask(instance_id="desk").error_code == UNKNOWN_MEMBER, "it is not static"
    stranger = scene.member("stranger")
    assert stranger.ask(member_epoch=1).error_code == UNKNOWN_MEMBER
    assert stranger.ask(member_epoch=-1).error_code == UNKNOWN_MEMBER
    assert scene.member("stranger", instance_id="desk").ask(member_epoch=1).error_code == UNKNOWN_MEMBER


def test_a_full_group_takes_no_more(scene: Scene) -> None:
    members = [scene.joined(f"member-{number}") for number in range(MAX_MEMBERS)]
    late = scene.member("late")
    assert late.join().error_code == GROUP_FULL
    assert members[0].join().error_code == 0, "it is one of them"
    assert members[0].ask(member_epoch=-1).error_code == 0
    assert late.join().error_code == 0


def test_groups_of_other_kinds_are_refused_while_they_have_members(scene: Scene) -> None:
    classic = RawMember(scene.broker.kafka_address, scene.group, topic=scene.topic)
    with classic.client:
        classic.start()
        member = scene.member("me")
        assert member.join().error_code == GROUP_NOT_FOUND
        assert member.ask(member_epoch=1).error_code == GROUP_NOT_FOUND
        assert classic.commit(scene.topic, 4) == 0
        classic.leave()
        assert member.join().error_code == 0
        assert member.fetch().topics[0].partitions[0].committed_offset == 4
        assert classic.join().error_code == INCONSISTENT_PROTOCOL
        assert classic.heartbeat() == UNKNOWN_MEMBER
        member.ask(member_epoch=-1)
        classic.member_id = ""
        assert classic.join().error_code == 0

    with QueueAdmin(scene.broker.address) as queues:
        queues.create_queue(f"{scene.group}-queue", scene.topic)
    assert member.join(group_id=f"{scene.group}-queue").error_code == GROUP_NOT_FOUND


# --- static members ---


def test_a_static_member_comes_back_to_its_partitions(scene: Scene) -> None:
    first = scene.joined("first", instance_id="desk")
    other = scene.joined("other")
    settle(first, other)
    again = scene.member("again", instance_id="desk")
    assert again.join().error_code == UNRELEASED_INSTANCE
    assert again.ask(member_epoch=3).error_code == FENCED_INSTANCE
    answer = first.ask(member_epoch=-2)
    assert (answer.error_code, answer.member_epoch) == (0, -2)
    assert first.ask().error_code == FENCED_EPOCH
    assert first.commit(first.partitions[0], 1) == STALE_EPOCH
    before = other.epoch
    assert again.join().error_code == 0
    assert again.partitions == first.partitions
    assert first.ask().error_code == FENCED_INSTANCE
    assert first.ask(instance_id=None).error_code == UNKNOWN_MEMBER
    assert (other.tell().assignment, other.epoch) == (None, before)


def test_a_static_member_that_leaves_for_good_gives_up_its_place(scene: Scene) -> None:
    first, other = scene.joined("first", instance_id="desk"), scene.joined("other")
    settle(first, other)
    assert first.ask(member_epoch=-2).error_code == 0
    other.tell()
    assert len(other.partitions) == 2
    assert first.ask(member_epoch=-1).error_code == 0
    other.tell()
    assert other.partitions == [0, 1, 2, 3]


# --- subscriptions and assignors ---


def test_a_regular_expression_matches_whole_names(scene: Scene) -> None:
    more = scene.make(f"{scene.topic}-more")
    member = scene.member("me")
    member.join(subscribed_topic_names=None, subscribed_topic_regex=f"{scene.topic}-m.*|{scene.topic}-mor")
    assert list(member.owned) == [more]
    assert member.ask(subscribed_topic_regex="[").error_code == INVALID_REGEX
    member.tell(subscribed_topic_names=[scene.topic])
    assert set(member.owned) == {more, scene.topic_id}
    member.tell(subscribed_topic_regex="")
    member.tell()
    assert list(member.owned) == [scene.topic_id]


def test_a_group_keeps_the_assignor_of_its_first_member(scene: Scene) -> None:
    first, second = scene.member("first"), scene.member("second")
    assert first.join(server_assignor="range").error_code == 0
    assert second.join(server_assignor="uniform").error_code == 0
    settle(first, second)
    assert (first.partitions, second.partitions) == ([0, 1], [2, 3])
    with Admin(scene.broker.address) as admin:
        assert admin.describe_group(scene.group).assignor == "range"


# --- what is shown ---


def describe(scene: Scene, version: int, *groups: str) -> list[cgd.ConsumerGroupDescribeResponseDescribedGroup]:
    request = cgd.ConsumerGroupDescribeRequest(group_ids=list(groups))
    found: cgd.ConsumerGroupDescribeResponse = scene.client().call(CONSUMER_GROUP_DESCRIBE, version, request)
    return found.groups


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_is_described(scene: Scene, version: int) -> None:
    member, static = scene.joined("me"), scene.member("static", instance_id="desk")
    static.join(subscribed_topic_regex="topic-none")
    settle(member, static)
    group, unknown = describe(scene, version, scene.group, "no-such-group")
    assert (unknown.error_code, unknown.group_id) == (GROUP_NOT_FOUND, "no-such-group")
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
    assert group.group_epoch == group.assignment_epoch == max(member.epoch, static.epoch)
    first, second = sorted(group.members, key=lambda each: each.member_id)
    assert (first.member_id, first.instance_id, first.member_epoch) == ("me", None, member.epoch)
    assert (second.member_id, second.instance_id, second.member_epoch) == ("static", "desk", static.epoch)
    assert (first.client_id, first.client_host) == ("raw", "/127.0.0.1")
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == ([scene.topic], None)
    assert second.subscribed_topic_regex == "topic-none"
    for found, known in ((first, member), (second, static)):
        [listed] = found.assignment.topic_partitions
        assert (listed.topic_name, listed.topic_id, listed.partitions) == (
            scene.topic,
            scene.topic_id,
            known.partitions,
        )
        assert found.target_assignment == found.assignment
        assert found.member_type == (1 if version else -1)


def test_older_requests_do_not_know_the_group_and_the_list_has_its_type(scene: Scene) -> None:
    scene.joined("me")
    client = scene.client()
    [described] = client.call(DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=[scene.group])).groups
    assert (described.error_code, described.group_state) == (GROUP_NOT_FOUND, "Dead")
    for kinds, is_listed in ((["consumer"], True), (["classic"], False), ([], True)):
        listed = client.call(LIST_GROUPS, 5, ListGroupsRequest(types_filter=kinds)).groups
        found = {each.group_id: (each.group_type, each.protocol_type, each.group_state) for each in listed}
        assert found.get(scene.group) == (("consumer", "consumer", "Stable") if is_listed else None)
    classic = RawMember(scene.broker.kafka_address, f"{scene.group}-classic")
    with classic.client:
        classic.start()
        [other] = describe(scene, 1, f"{scene.group}-classic")
        assert other.error_code == GROUP_NOT_FOUND


def test_members_of_both_kinds_share_a_group(scene: Scene) -> None:
    member = scene.joined("kafka")
    with Consumer(scene.broker.address, group=scene.group) as consumer:
        consumer.subscribe(scene.topic)

        def is_shared() -> bool:
            consumer.poll(timeout_seconds=0.05)
            member.tell()
            owned = [partition.partition for partition in consumer.assignment()]
            return sorted([*owned, *member.partitions]) == [0, 1, 2, 3] and len(owned) == 2

        until(is_shared)
        with Admin(scene.broker.address) as admin:
            found = {each.id: each for each in admin.describe_group(scene.group).members}
        assert found["kafka"].client_name == "raw (127.0.0.1)"
        assert {each.partition for each in found["kafka"].owned} == set(member.partitions)
        assert member.commit(consumer.assignment()[0].partition, 1) == UNKNOWN_TOPIC, "the other one has it"
        stolen = next(each for each in found if each != "kafka")
        thief = scene.member(stolen)
        assert thief.ask(member_epoch=found[stolen].epoch).error_code == UNKNOWN_MEMBER
        assert thief.ask(member_epoch=-1).error_code == UNKNOWN_MEMBER
        assert thief.join().error_code == UNKNOWN_MEMBER
        [described] = describe(scene, 1, scene.group)
        assert {each.member_id for each in described.members} == set(found)
        assert member.ask(member_epoch=-1).error_code == 0

        def has_all() -> bool:
            consumer.poll(timeout_seconds=0.05)
            return len(consumer.assignment()) == PARTITIONS

        until(has_all)


# --- restarts ---


@pytest.mark.prove
def test_members_go_on_after_a_restart_of_the_broker() -> None:
    with logbroker.embedded(kafka=True, group_heartbeat_interval_seconds=0.2) as broker:
        scene = Scene(broker)
        first, second = scene.joined("first"), scene.joined("second", instance_id="desk")
        third = scene.joined("third", instance_id="shelf")
        settle(first, second, third)
        assert third.ask(member_epoch=-2).error_code == 0
        with Admin(broker.address) as admin:
            before = admin.describe_group(scene.group)
        scene.close()
        broker.kill()
        broker.start()
        for member in (first, second, third):
            member.client = scene.client()
        assert first.commit(first.partitions[0], 7) == 0, "a commit may come before the first heartbeat"
        assert first.ask(member_epoch=first.epoch - 1).error_code == FENCED_EPOCH
        for member in (first, second):
            epoch, owned = member.epoch, member.owned
            answer = member.beat()
            assert (answer.error_code, answer.member_epoch, member.owned) == (0, epoch, owned)
            assert member.beat().assignment is None
        with Admin(broker.address) as admin:
            after = admin.describe_group(scene.group)
        assert after.epoch == before.epoch
        assert {each.id: each.owned for each in after.members} == {each.id: each.owned for each in before.members}
        assert scene.member("again", instance_id="desk").join().error_code == UNRELEASED_INSTANCE
        again = scene.joined("again", instance_id="shelf")
        assert again.partitions == third.partitions, "it had left for a while before the restart"
        scene.close()
