"""Groups of real clients, unchanged: members that are killed and leave, static ones, and brokers that are killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logbroker
from logbroker.client.sync import Admin, GroupDescription, Producer, TopicPartition
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import UnknownGroupError
from tests.kafka_api.group_checks import CommitWatch, Member, Members, check_handled
from tests.waiting import until

LIBRARIES = ("confluent-kafka", "kafka-python", "aiokafka")
PARTITIONS = 4
SECONDS = 60.0
GROUP = "g"
LONG_MS = 60_000
"""A session that does not end within a test."""
each_library = pytest.mark.parametrize("library", LIBRARIES)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with logbroker.embedded(kafka=True, group_initial_rebalance_delay_seconds=0.1) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic("t", partitions=PARTITIONS)
        yield broker


def send(broker: EmbeddedBroker, count: int, mark: str) -> set[bytes]:
    sent = [f"{mark}-{number}".encode() for number in range(count)]
    with Producer(broker.address) as producer:
        for number, value in enumerate(sent):
            producer.send("t", value, key=b"key-%d" % (number % 20))
        producer.flush()
    return set(sent)


def committed(broker: EmbeddedBroker) -> dict[int, int]:
    with Admin(broker.address) as admin:
        return {partition.partition: each.offset for partition, each in admin.fetch_offsets(GROUP).items()}


def ends(broker: EmbeddedBroker) -> dict[int, int]:
    with Admin(broker.address) as admin:
        found = {each.partition: each.high_watermark for each in admin.describe_topic("t").partitions}
    return {partition: end for partition, end in found.items() if end}


def members_of(broker: EmbeddedBroker) -> dict[str, set[TopicPartition]]:
    """Return the partitions of the members of the group, once it is stable."""
    with Admin(broker.address) as admin:
        try:
            found = admin.describe_group(GROUP)
        except UnknownGroupError:
            return {}
    return {each.id: set(each.owned) for each in found.members} if found.info.state == "stable" else {}


def until_shared_by(broker: EmbeddedBroker, count: int) -> None:
    def is_shared() -> bool:
        owned = members_of(broker).values()
        return len(owned) == count and all(owned) and sum(map(len, owned)) == PARTITIONS

    until(is_shared, SECONDS)


def until_settled(broker: EmbeddedBroker, members: Members, count: int) -> GroupDescription:
    """Wait until members share the partitions and read, since some join once more when they have seen the topic."""
    until_shared_by(broker, count)
    warm = send(broker, 100, "warm-up")
    until(lambda: members.values() >= warm, SECONDS)
    until_shared_by(broker, count)
    found: list[GroupDescription] = []

    def is_stable() -> bool:
        with Admin(broker.address) as admin:
            found[:] = [admin.describe_group(GROUP)]
        return found[0].info.state == "stable"

    until(is_stable, SECONDS)
    return found[0]


@pytest.mark.prove(keep=1)
@each_library
def test_a_group_goes_on_when_a_member_is_killed(broker: EmbeddedBroker, library: str, tmp_path: Path) -> None:
    with Members(library, broker.kafka_address, "t", GROUP, tmp_path) as members:
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


@each_library
def test_a_group_resumes_where_it_has_committed(broker: EmbeddedBroker, library: str, tmp_path: Path) -> None:
    with Members(library, broker.kafka_address, "t", GROUP, tmp_path) as members:
        first = members.start()
        before = send(broker, 300, "before")
        until(lambda: members.values() == before, SECONDS)
        until(lambda: committed(broker) == ends(broker), SECONDS)
        first.leave()
        with Admin(broker.address) as admin:
            assert admin.describe_group(GROUP).info.state == "empty"
        after = send(broker, 300, "after")
        second = members.start()
        until(lambda: {each.value for each in second.handled()} >= after, SECONDS)
        assert {each.value for each in second.handled()} == after
        second.leave()


def replace_static_member(broker: EmbeddedBroker, members: Members) -> None:
    """Kill a static member and start another one of the same name, and check that nothing is assigned anew."""
    with members:
        other = members.start(instance_id="a")
        static = members.start(instance_id="b")
        before = until_settled(broker, members, 2)
        sent = members.values()
        owned = {each.instance_id: {at.partition for at in each.owned} for each in before.members}
        until(lambda: other.assignments()[-1:] == [owned["a"]], SECONDS)
        given = len(other.assignments())
        static.kill()
        again = members.start(instance_id="b")
        until(again.assignments, SECONDS)
        with Admin(broker.address) as admin:
            after = admin.describe_group(GROUP)
        assert after.epoch == before.epoch
        assert len(other.assignments()) == given
        assert {each.instance_id: each.owned for each in after.members} == {
            each.instance_id: each.owned for each in before.members
        }
        sent |= send(broker, 200, "after")
        until(lambda: members.values() == sent, SECONDS)


@each_library
def test_a_static_member_comes_back_without_a_rebalance(broker: EmbeddedBroker, library: str, tmp_path: Path) -> None:
    replace_static_member(broker, Members(library, broker.kafka_address, "t", GROUP, tmp_path, session_ms=LONG_MS))


def share_cooperatively(broker: EmbeddedBroker, members: Members) -> None:
    """Let members of a cooperative assignor come and go, and check that one keeps partitions while another joins."""
    with members:
        members.start()
        until_settled(broker, members, 1)
        (before,) = members_of(broker).items()
        second = members.start()
        until_settled(broker, members, 2)
        now = members_of(broker)
        assert now[before[0]] < before[1]
        sent = members.values() | send(broker, 400, "shared")
        until(lambda: members.values() == sent, SECONDS)
        second.leave()
        until_shared_by(broker, 1)
        sent |= send(broker, 400, "alone")
        until(lambda: members.values() == sent, SECONDS)
        check_handled(members.handled(), sent)


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("library", ["confluent-kafka", "kafka-python"])
def test_a_cooperative_group_keeps_what_it_has(broker: EmbeddedBroker, library: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"assignor": "cooperative-sticky", "session_ms": LONG_MS}
    share_cooperatively(broker, Members(library, broker.kafka_address, "t", GROUP, tmp_path, **settings))


def outlive_two_kills(broker: EmbeddedBroker, members: Members) -> None:
    """Kill the broker twice while two members read, and check that no offset, record or member is lost."""
    watch, is_over = CommitWatch(GROUP), threading.Event()
    failures: list[BaseException] = []
    sent: set[bytes] = set()

    def produce() -> None:
        try:
            for number in range(1000):
                if is_over.is_set():
                    return
                sent.update(send(broker, 10, f"{number}"))
                is_over.wait(0.01)
        except BaseException as error:
            failures.append(error)

    def grown(member: Member) -> None:
        """Wait until a member handles further records."""
        before = len(member.handled())

        def has_grown() -> bool:
            watch.look(broker.address)
            return len(member.handled()) > before

        until(has_grown, SECONDS)

    with members:
        first, second = members.start(), members.start()
        before = until_settled(broker, members, 2)
        sent |= members.values()
        thread = threading.Thread(target=produce)
        thread.start()
        try:
            for _ in range(2):
                grown(first)
                grown(second)
                broker.kill()
                broker.start()
                watch.look(broker.address)
            grown(first)
            grown(second)
            with Admin(broker.address) as admin:
                after = admin.describe_group(GROUP)
            assert {each.id: each.epoch for each in after.members} == {each.id: each.epoch for each in before.members}
            assert after.epoch == before.epoch
        finally:
            is_over.set()
            thread.join()
        assert failures == []
        until(lambda: members.values() >= sent, SECONDS)
        check_handled(members.handled(), sent)
        until(lambda: watch.look(broker.address) and committed(broker) == ends(broker), SECONDS)


@pytest.mark.prove(keep=1)
@each_library
def test_a_broker_that_is_killed_loses_no_offset_and_no_record(
    broker: EmbeddedBroker, library: str, tmp_path: Path
) -> None:
    outlive_two_kills(broker, Members(library, broker.kafka_address, "t", GROUP, tmp_path, session_ms=LONG_MS))
