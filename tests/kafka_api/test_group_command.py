"""`logbroker group` treats groups of Kafka clients as it does others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from logbroker.cli.main import run
from logbroker.client.sync import Producer
from logbroker.embedded_broker import EmbeddedBroker
from tests.kafka_api.test_consumer_protocol import Scene
from tests.kafka_api.test_groups import RawMember, assignment, members

Command = Callable[..., str]


@pytest.fixture
def command(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `logbroker group ...`, and return what it writes."""

    def call(*arguments: str, exit_code: int = 0) -> str:
        assert run(["group", *arguments, "--broker", broker.address]) == exit_code
        out, err = capsys.readouterr()
        return err if exit_code else out

    return call


def table(command: Command, *arguments: str) -> Any:
    return json.loads(command(*arguments, "--json"))


def test_a_classic_group_is_shown_reset_and_deleted(broker: EmbeddedBroker, topic: str, command: Command) -> None:
    name = f"{topic}-group"
    with Producer(broker.address) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0)
        producer.flush()
    with members(broker, name, "desk-1", topic=topic) as (member,):
        assert isinstance(member, RawMember)
        member.join()
        (listed,) = (each for each in table(command, "list") if each["id"] == name)
        assert (listed["type"], listed["state"], listed["members"]) == ("classic", "rebalancing", 1)
        member.sync({member.member_id: assignment(topic, 0, 2)})
        assert member.commit(topic, 4) == 0
        found = table(command, "describe", name)
        assert (found["type"], found["state"], found["assignor"], found["epoch"]) == ("classic", "stable", "range", 1)
        partitions = {each["partition"]: each for each in found["partitions"]}
        assert partitions[0]["owner"] == partitions[2]["owner"] == member.member_id
        assert (partitions[0]["committed_offset"], partitions[0]["lag_records"]) == (4, 6)
        assert f"group {name}: of Kafka clients, stable, 1 member, range, generation 1, 6 records behind" in command(
            "describe", name
        )
        (described,) = table(command, "members", name)
        assert (described["instance_id"], described["client_name"]) == ("desk-1", "raw (127.0.0.1)")
        assert (described["topics"], described["epoch"], described["connected"]) == ([topic], 1, True)
        assert described["owned"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 2}]
        assert "1 active member" in command("reset-offsets", name, "--to", "earliest", exit_code=1)
        assert "members (1)" in command("delete", name, "--yes", exit_code=1)
        member.leave()
        command("reset-offsets", name, "--to", "2")
        assert [each["committed_offset"] for each in table(command, "describe", name)["partitions"]] == [2, None, None]
        (listed,) = (each for each in table(command, "list") if each["id"] == name)
        assert (listed["type"], listed["state"], listed["members"]) == ("classic", "empty", 0)
        command("delete", name, "--yes")
        assert name not in [each["id"] for each in table(command, "list")]


def test_members_that_are_no_consumers_are_shown_without_topics(broker: EmbeddedBroker, command: Command) -> None:
    with members(broker, "connectors", None) as (member,):
        member.join(protocol_type="connect")
        member.generation = 1
        (described,) = table(command, "members", "connectors")
        assert (described["topics"], described["owned"]) == ([], [])


def test_members_whose_data_cannot_be_read_are_shown_without_topics(broker: EmbeddedBroker, command: Command) -> None:
    with members(broker, "odd", None) as (member,):
        member.join()
        member.sync({member.member_id: b"\0\1\xff\xff\xff\xff\xff"})
        (described,) = table(command, "members", "odd")
        assert (described["topics"], described["owned"]) == (["t"], [])


def test_a_group_of_the_consumer_protocol_is_shown(broker: EmbeddedBroker, command: Command) -> None:
    scene = Scene(broker)
    member = scene.joined("me", instance_id="desk-1")
    assert member.commit(0, 4) == 0
    found = table(command, "describe", scene.group)
    assert (found["type"], found["state"], found["assignor"], found["epoch"]) == (
        "consumer",
        "stable",
        "sticky",
        member.epoch,
    )
    partitions = {each["partition"]: each for each in found["partitions"]}
    assert (partitions[0]["owner"], partitions[0]["committed_offset"]) == ("me", 4)
    (described,) = table(command, "members", scene.group)
    assert (described["instance_id"], described["client_name"]) == ("desk-1", "raw (127.0.0.1)")
    assert (described["topics"], described["epoch"], described["connected"]) == ([scene.topic], member.epoch, True)
    assert "1 active member" in command("reset-offsets", scene.group, "--to", "earliest", exit_code=1)
    assert "members (1)" in command("delete", scene.group, "--yes", exit_code=1)
    assert member.ask(member_epoch=-1).error_code == 0
    command("delete", scene.group, "--yes")
    scene.close()
