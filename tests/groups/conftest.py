"""Brokers for the whole folder, one per length of the reconnect grace; tests use groups and topics of their own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

import pytest

from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.types import TopicId
from logbroker.v1 import admin_pb2
from tests.groups.members import DEADLINE_SECONDS, GroupsApi, Member, raise_for
from tests.grpc_api.api import Api

HASTY_GRACE_SECONDS = 0.3

_numbers = count()


class Group:
    """A group and its topic of four partitions, ten records in each, on one broker."""

    def __init__(self, broker: EmbeddedBroker, *, partitions: int = 4) -> None:
        number = next(_numbers)
        self.id = f"group-{number}"
        self.topic = f"topic-{number}"
        self.broker = broker
        self.api = Api(broker.address)
        self.groups = GroupsApi(self.api.channel)
        self.topic_id = TopicId(self.api.create(self.topic, partitions).id)
        for partition in range(partitions):
            self.api.produce_values(self.topic, [b"value"] * 10, partition)

    def connect(self) -> None:
        """Connect anew after the broker was started again: gRPC waits a while before it tries by itself."""
        self.close()
        self.api = Api(self.broker.address)
        self.groups = GroupsApi(self.api.channel)

    def member(self, member_id: str, **fields: Any) -> Member:
        """A new stream of a member, which is joined."""
        member = self.joining(member_id, **fields)
        joined = member.joined()
        assert joined.resumed == fields.get("back", False)
        return member

    def joining(self, member_id: str, **fields: Any) -> Member:
        """A stream that has sent its Join."""
        fields.pop("back", None)
        if "pattern" not in fields:
            fields.setdefault("topics", [self.topic])
        return Member(self.api.channel, self.id, member_id, **fields)

    def back(self, member: Member, **fields: Any) -> Member:
        """The same incarnation of a member, on a new stream, with all that it holds."""
        fields = {"owned": member.held, "epoch": member.epoch, **fields}
        again = self.joining(member.member_id, incarnation=member.incarnation, **fields)
        assert again.joined().resumed
        again.epoch, again.held = member.epoch, member.held
        return again

    def grow(self, partitions: int) -> None:
        """Give the topic more partitions."""
        alteration = admin_pb2.TopicAlteration(topic=admin_pb2.TopicRef(name=self.topic), partitions=partitions)
        raise_for(self.api.admin.AlterTopics(admin_pb2.AlterTopicsRequest(topics=[alteration])).results[0].status)

    def delete_topic(self, name: str) -> None:
        ref = admin_pb2.TopicRef(name=name)
        raise_for(self.api.admin.DeleteTopics(admin_pb2.DeleteTopicsRequest(topics=[ref])).results[0].status)

    def exists(self) -> None:
        """Wait until the first member has joined."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.id not in {listed.group_id for listed in self.groups.list().groups}:
            assert time.monotonic() < deadline

    def settle(self, members: Iterable[Member]) -> None:
        """Take assignments until every member holds what it shall."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.groups.describe(self.id).group.state != "stable":
            assert time.monotonic() < deadline
            for member in members:
                member.take_what_has_come()

    def owners(self) -> dict[int, str]:
        """Return the owner of each partition of the topic, as `describe` says; fails where a partition has two."""
        found: dict[int, str] = {}
        for member in self.groups.describe(self.id).members:
            for topic in member.owned:
                for number in topic.partitions:
                    assert number not in found
                    found[number] = member.member_id
        return found

    def close(self) -> None:
        self.api.channel.close()


@pytest.fixture(scope="session")
def patient_broker() -> Iterator[EmbeddedBroker]:
    """Its members have half a minute to come back."""
    with embedded(reconnect_grace_seconds=30.0, max_group_members=20) as broker:
        yield broker


@pytest.fixture(scope="session")
def hasty_broker() -> Iterator[EmbeddedBroker]:
    with embedded(reconnect_grace_seconds=HASTY_GRACE_SECONDS) as broker:
        yield broker


@pytest.fixture
def group(patient_broker: EmbeddedBroker) -> Iterator[Group]:
    found = Group(patient_broker)
    yield found
    found.close()


@pytest.fixture
def hasty_group(hasty_broker: EmbeddedBroker) -> Iterator[Group]:
    found = Group(hasty_broker)
    yield found
    found.close()
