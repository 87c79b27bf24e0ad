"""Groups of confluent-kafka with the consumer protocol, alone and together with gRPC members; brokers are killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

import logbroker
from logbroker.client.sync import Admin, Consumer
from logbroker.embedded_broker import EmbeddedBroker
from tests.kafka_api.group_checks import Handled, Members, check_handled
from tests.kafka_api.group_member import CONSUMER_PROTOCOL
from tests.kafka_api.test_group_clients import (
    GROUP,
    LONG_MS,
    SECONDS,
    committed,
    ends,
    outlive_two_kills,
    send,
    until_settled,
    until_shared_by,
)
from tests.waiting import until

short_sessions = pytest.mark.parametrize("broker", [5], indirect=True)


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A broker with long sessions, or those that the test names."""
    session_seconds = getattr(request, "param", LONG_MS / 1000)
    with logbroker.embedded(
        kafka=True, group_heartbeat_interval_seconds=0.2, group_session_timeout_seconds=session_seconds
    ) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic("t", partitions=4)
        yield broker


def members_of(broker: EmbeddedBroker, path: Path, topic: str = "t") -> Members:
    return Members(CONSUMER_PROTOCOL, broker.kafka_address, topic, GROUP, path, session_ms=LONG_MS)


@pytest.mark.prove
@short_sessions
def test_a_group_goes_on_when_a_member_is_killed(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with members_of(broker, tmp_path) as members:
        members.start()
        victim = members.start()
        until_shared_by(broker, 2)
        sent = send(broker, 400, "before")
        until(lambda: members.values() == sent, SECONDS)
        assert victim.handled()
        victim.kill()
        sent |= send(broker, 400, "after")
        until(lambda: members.values() == sent, SECONDS)
        check_handled(members.handled(), sent)
        until(lambda: committed(broker) == ends(broker), SECONDS)
        until_shared_by(broker, 1)


def test_a_group_resumes_where_it_has_committed(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The second member subscribes by a regular expression."""
    (tmp_path / "more").mkdir()
    with members_of(broker, tmp_path) as members, members_of(broker, tmp_path / "more", "^t$") as others:
        first = members.start()
        before = send(broker, 300, "before")
        until(lambda: members.values() == before and committed(broker) == ends(broker), SECONDS)
        first.leave()
        with Admin(broker.address) as admin:
            assert admin.describe_group(GROUP).info.state == "empty"
        after = send(broker, 300, "after")
        second = others.start()
        until(lambda: {each.value for each in second.handled()} >= after, SECONDS)
        assert {each.value for each in second.handled()} == after
        second.leave()


@pytest.mark.prove
def test_a_topic_that_is_created_again_is_read(broker: EmbeddedBroker) -> None:
    """The client commits for the old topic by its name, which is that of the new one, before it takes the new one."""
    settings = {
        "bootstrap.servers": broker.kafka_address,
        "group.id": GROUP,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 500,
    }
    consumer = confluent_kafka.Consumer(settings)

    def is_read(sent: set[bytes]) -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            sent.discard(message.value())
        return not sent

    try:
        consumer.subscribe(["t"])
        before = send(broker, 40, "before")
        until(lambda: is_read(before), SECONDS)
        with Admin(broker.address) as admin:
            admin.delete_topic("t")
            admin.create_topic("t", partitions=4)
        after = send(broker, 40, "after")
        until(lambda: is_read(after), SECONDS / 2)  # A client that goes on trying gives up after 45 s.
    finally:
        consumer.close()


def come_back(broker: EmbeddedBroker, members: Members) -> None:
    """Let a static member leave, and another one of the same name take its partitions without a change for others."""
    with members:
        other, static = members.start(instance_id="a"), members.start(instance_id="b")
        before = until_settled(broker, members, 2)
        owned = {each.instance_id: each.owned for each in before.members}
        sent = members.values()
        given = len(other.assignments())
        static.leave()
        members.start(instance_id="b")
        sent |= send(broker, 200, "after")
        until(lambda: members.values() == sent, SECONDS)
        with Admin(broker.address) as admin:
            after = admin.describe_group(GROUP)
        assert {each.instance_id: each.owned for each in after.members} == owned
        assert len(other.assignments()) == given


@pytest.mark.prove
def test_a_static_member_comes_back_to_its_partitions(broker: EmbeddedBroker, tmp_path: Path) -> None:
    come_back(broker, members_of(broker, tmp_path))


@pytest.mark.prove
def test_a_broker_that_is_killed_loses_no_offset_and_no_record(broker: EmbeddedBroker, tmp_path: Path) -> None:
    outlive_two_kills(broker, members_of(broker, tmp_path))


def share_with_grpc(broker: EmbeddedBroker, members: Members) -> None:
    """Let a Kafka client and a gRPC member share a group; the client is killed, and another one comes."""
    handled: list[Handled] = []
    is_over = threading.Event()

    def consume() -> None:
        with Consumer(broker.address, group=GROUP) as consumer:
            consumer.subscribe("t")
            while not is_over.is_set():
                records = consumer.poll(timeout_seconds=0.05)
                handled.extend(Handled(0, each.partition, each.offset, each.value or b"", "grpc") for each in records)

    def values() -> set[bytes]:
        return members.values() | {each.value for each in handled}

    thread = threading.Thread(target=consume)
    with members:
        thread.start()
        try:
            kafka = members.start()
            until_shared_by(broker, 2)
            sent = send(broker, 400, "shared")
            until(lambda: values() == sent, SECONDS)
            both = [{each.partition for each in some} for some in (handled, kafka.handled())]
            assert [len(each) for each in both] == [2, 2]
            assert not both[0] & both[1]
            kafka.kill()
            sent |= send(broker, 400, "alone")
            until(lambda: values() == sent, SECONDS)
            second = members.start()
            until_shared_by(broker, 2)
        finally:
            is_over.set()
            thread.join()
        until_shared_by(broker, 1)
        more = send(broker, 400, "after")
        until(lambda: {each.value for each in second.handled()} >= more, SECONDS)
        until(lambda: committed(broker) == ends(broker), SECONDS)


@pytest.mark.prove
@short_sessions
def test_a_member_over_grpc_and_a_kafka_client_share_a_group(broker: EmbeddedBroker, tmp_path: Path) -> None:
    share_with_grpc(broker, members_of(broker, tmp_path))
