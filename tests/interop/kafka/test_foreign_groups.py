"""Groups of Kafka clients of other languages, unchanged: a member is killed, one leaves, one resumes, and the broker is
killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logbroker.client.sync import Admin
from logbroker.embedded_broker import EmbeddedBroker
from tests.interop.kafka.kcat import KCAT, KcatMember
from tests.interop.kafka.ports import restartable
from tests.interop.kafka.programs import CLIENTS, MemberProgram
from tests.interop.kafka.toolchains import MissingToolError
from tests.kafka_api.group_checks import CommitWatch, Members, check_handled
from tests.kafka_api.test_consumer_protocol_clients import come_back, share_with_grpc
from tests.kafka_api.test_group_clients import (
    GROUP,
    LONG_MS,
    PARTITIONS,
    SECONDS,
    committed,
    ends,
    replace_static_member,
    send,
    share_cooperatively,
    until_shared_by,
)
from tests.waiting import until

SESSION_MS = 3_000
BY_NAME = {client.name: client for client in CLIENTS}
KINDS = [
    *((client, MemberProgram, {"protocol": "classic"}) for client in CLIENTS),
    *((BY_NAME[name], MemberProgram, {"protocol": "consumer"}) for name in ("java", "franz-go", "@platformatic/kafka")),
    (KCAT, KcatMember, {}),
]


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A broker with short sessions of the consumer protocol, or those that the test names."""
    with restartable(
        group_initial_rebalance_delay_seconds=0.1,
        group_heartbeat_interval_seconds=0.2,
        group_session_timeout_seconds=getattr(request, "param", SESSION_MS) / 1000,
    ) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic("t", partitions=PARTITIONS)
        yield broker


def skip_without(client: Any) -> None:
    try:
        client.command  # noqa: B018
    except MissingToolError as error:
        pytest.skip(str(error))


@pytest.mark.prove
@pytest.mark.parametrize(
    ("client", "make", "settings"), KINDS, ids=["-".join([repr(kind[0]), *kind[2].values()]) for kind in KINDS]
)
def test_a_group_outlives_a_member_and_a_broker(
    broker: EmbeddedBroker, client: Any, make: Any, settings: dict[str, str], tmp_path: Path
) -> None:
    skip_without(client)
    watch = CommitWatch(GROUP)
    with Members(
        client, broker.kafka_address, "t", GROUP, tmp_path, make, session_ms=SESSION_MS, **settings
    ) as members:
        first, victim = members.start(), members.start()
        until_shared_by(broker, 2)
        sent = send(broker, 200, "before")
        until(lambda: members.values() >= sent, SECONDS)
        assert victim.handled()
        victim.kill()
        sent |= send(broker, 200, "killed")
        until(lambda: members.values() >= sent, SECONDS)
        until_shared_by(broker, 1)
        watch.look(broker.address)
        broker.kill()
        broker.start()
        sent |= send(broker, 200, "restarted")
        until(lambda: members.values() >= sent, SECONDS)
        until(lambda: watch.look(broker.address) and committed(broker) == ends(broker), SECONDS)
        first.leave()
        with Admin(broker.address) as admin:
            assert admin.describe_group(GROUP).info.state == "empty"
        after = send(broker, 200, "resumed")
        second = members.start()
        until(lambda: {each.value for each in second.handled()} >= after, SECONDS)
        assert {each.value for each in second.handled()} == after
        second.leave()
        watch.look(broker.address)
        check_handled(members.handled(), sent | after)


def members_of(broker: EmbeddedBroker, name: str, directory: Path, topic: str = "t", **settings: Any) -> Members:
    skip_without(BY_NAME[name])
    return Members(BY_NAME[name], broker.kafka_address, topic, GROUP, directory, MemberProgram, **settings)


@pytest.mark.prove
@pytest.mark.parametrize("name", ["java", "franz-go", "sarama"])
def test_a_static_member_comes_back_without_a_rebalance(broker: EmbeddedBroker, name: str, tmp_path: Path) -> None:
    replace_static_member(broker, members_of(broker, name, tmp_path, session_ms=LONG_MS, assignor="range"))


@pytest.mark.prove
@pytest.mark.parametrize("name", ["java", "franz-go"])
def test_a_cooperative_group_keeps_what_it_has(broker: EmbeddedBroker, name: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"session_ms": LONG_MS, "assignor": "cooperative-sticky"}
    share_cooperatively(broker, members_of(broker, name, tmp_path, **settings))


@pytest.mark.prove
@pytest.mark.parametrize("broker", [LONG_MS], indirect=True)
def test_a_static_member_with_the_consumer_protocol_comes_back(broker: EmbeddedBroker, tmp_path: Path) -> None:
    come_back(broker, members_of(broker, "java", tmp_path, protocol="consumer"))


@pytest.mark.prove
def test_a_java_client_and_a_member_over_grpc_share_a_group(broker: EmbeddedBroker, tmp_path: Path) -> None:
    share_with_grpc(broker, members_of(broker, "java", tmp_path, protocol="consumer"))


@pytest.mark.prove
def test_java_reads_the_topics_of_a_regular_expression(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The client learns the names of its topics by their ids."""
    with members_of(broker, "java", tmp_path, "^t$", protocol="consumer") as members:
        member = members.start()
        sent = send(broker, 40, "matched")
        until(lambda: members.values() == sent, SECONDS)
        until(lambda: committed(broker) == ends(broker), SECONDS)
        member.leave()
