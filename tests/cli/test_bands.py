"""Bands and priorities on the command line: what goes in by a column comes out by its band."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from logbroker.cli.main import run
from logbroker.client.sync import Consumer
from logbroker.embedded_broker import EmbeddedBroker
from tests.cli.command import output_of

BANDS = "hot=7-9:1,warm=4-6:2,cold=0-3:8"


class Commands:
    """Runs `logbroker ...` in this process, against one broker."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.address = address
        self._capsys = capsys

    def __call__(self, *arguments: str) -> str:
        """Return the standard output of a command that must succeed."""
        assert run([*arguments, "--broker", self.address]) == 0
        return self._capsys.readouterr().out

    def failure(self, *arguments: str, exit_code: int = 1) -> str:
        """Return what a command that must fail says; where it is not the usage, in one line."""
        assert run([*arguments, "--broker", self.address]) == exit_code
        lines = self._capsys.readouterr().err.splitlines()
        assert exit_code == 2 or len(lines) == 1
        return lines[-1]


@pytest.fixture
def command(logbroker_session_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(logbroker_session_broker.address, capsys)


@pytest.fixture
def topic(command: Commands) -> str:
    """A new topic with bands."""
    name = f"t-{uuid.uuid4()}"
    assert command("topic", "create", name, "--bands", BANDS) == f"created topic {name} (11 partitions)\n"
    return name


def consumed(command: Commands, topic: str, *options: str) -> list[dict[str, Any]]:
    out = command("consume", topic, "--until-end", "--format", "json", *options)
    return [json.loads(line) for line in out.splitlines()]


def test_bands_are_shown(command: Commands, topic: str) -> None:
    found = json.loads(command("topic", "describe", topic, "--json"))
    assert found["bands"] == [
        {"name": "hot", "priorities": [7, 9], "first_partition": 0, "partitions": 1},
        {"name": "warm", "priorities": [4, 6], "first_partition": 1, "partitions": 2},
        {"name": "cold", "priorities": [0, 3], "first_partition": 3, "partitions": 8},
    ]
    assert not found["routes_by_key"]
    shown = command("topic", "describe", topic).split("partition   start offset")[0]
    assert [line.split() for line in shown.splitlines() if " hot " in line or " cold " in line] == [
        ["hot", "7-9", "1", "0"],
        ["cold", "0-3", "8", "3-10"],
    ]
    [listed] = [info for info in json.loads(command("topic", "list", "--json")) if info["name"] == topic]
    assert listed["bands"] == found["bands"]
    assert BANDS in command("topic", "list")


def test_a_topic_that_routes_by_key_says_so(command: Commands) -> None:
    name = f"t-{uuid.uuid4()}"
    command("topic", "create", name, "--bands", "hot=5-9:1,cold=0-4:3", "--routing", "key")
    assert json.loads(command("topic", "describe", name, "--json"))["routes_by_key"]
    assert "whatever their priorities" in command("topic", "describe", name)


def test_a_column_is_the_priority_and_a_band_is_read(command: Commands, topic: str) -> None:
    rows = [(f"flight-{number}", number % 10) for number in range(200)]
    text = "flight,severity\n" + "".join(f"{flight},{severity}\n" for flight, severity in rows) + "late,\n"
    options = ("--format", "csv", "--key-column", "flight", "--priority-column", "severity")
    output_of("produce", topic, "--broker", command.address, *options, stdin=text.encode())
    for band, priorities, partitions in (("hot", {7, 8, 9}, {0}), ("cold", {0, 1, 2, 3}, set(range(3, 11)))):
        records = consumed(command, topic, "--band", band)
        assert sorted((record["key"], record["priority"]) for record in records) == sorted(
            (flight, severity) for flight, severity in rows if severity in priorities
        )
        assert {record["partition"] for record in records} == partitions
    [late] = [record for record in consumed(command, topic, "--band", "warm") if record["key"] == "late"]
    assert "priority" not in late
    assert len(consumed(command, topic, "--band", "hot", "--band", "warm", "--band", "cold")) == 201
    assert len(consumed(command, topic, "--group", topic, "--band", "hot")) == 60
    assert consumed(command, topic, "--group", topic, "--band", "hot") == []
    assert len(consumed(command, topic, "--group", topic)) == 141, "what is left"


@pytest.mark.prove
def test_one_priority_for_all_and_json_as_consume_writes_it(command: Commands, topic: str) -> None:
    output_of("produce", topic, "--broker", command.address, "--priority", "8", stdin=b"a\nb\n")
    records = consumed(command, topic, "--band", "hot")
    assert [(record["value"], record["priority"]) for record in records] == [("a", 8), ("b", 8)]
    lines = b"".join(
        json.dumps({**record, "partition": None, "priority": priority}).encode() + b"\n"
        for record, priority in zip(records, (1, 8), strict=True)
    )
    output_of("produce", topic, "--broker", command.address, "--format", "json", stdin=lines)
    [cold] = consumed(command, topic, "--band", "cold")
    assert (cold["value"], cold["priority"]) == ("a", 1)
    assert cold["headers"] == [{"key": "logbroker-priority", "value": "1"}], "in place of the one it had"
    output_of("produce", topic, "--broker", command.address, "--format", "json", "--priority", "5", stdin=lines)
    assert [record["priority"] for record in consumed(command, topic, "--band", "warm")] == [5, 5]


def test_members_show_their_bands(command: Commands, topic: str) -> None:
    with Consumer(command.address, group=topic) as consumer:
        consumer.subscribe(topic, bands=["hot", "warm"])
        [member] = json.loads(command("group", "members", topic, "--json"))
        assert member["bands"] == ["hot", "warm"]


@pytest.mark.parametrize(
    ("bands", "told"),
    [
        ("hot=7-9:1,warm=4-7:2,cold=0-3:8", "overlap; hot and warm do"),
        ("hot=7-9:1,cold=0-5:8", "without a gap; priority 6 is in none"),
        ("hot=7-9:0,cold=0-6:8", "hot has none"),
        ("hot=7-9,cold=0-6", "name=priorities:partitions"),
        ("hot=7-10:1,cold=0-6:8", "name=priorities:partitions"),
        ("hot=high:1", "name=priorities:partitions"),
    ],
)
def test_bad_bands_are_refused_in_one_line(command: Commands, bands: str, told: str) -> None:
    line = command.failure("topic", "create", "bad", "--bands", bands)
    assert line.startswith("logbroker: priority.bands takes ")
    assert told in line


def test_what_cannot_be_is_refused_in_one_line(command: Commands, topic: str) -> None:
    plain = f"t-{uuid.uuid4()}"
    command("topic", "create", plain)
    refused: list[tuple[tuple[str, ...], str]] = [
        (("topic", "create", "bad", "--bands", BANDS, "--partitions", "4"), "11 partitions together, not 4"),
        (("topic", "create", "bad", "--routing", "key"), "set priority.bands as well"),
        (("topic", "alter", topic, "--partitions", "12"), "create another topic"),
        (("topic", "alter", topic, "--config", "priority.bands=all=0-9:11"), "create another topic"),
        (("topic", "alter", topic, "--unset", "priority.bands"), "create another topic"),
        (("topic", "alter", topic, "--config", "priority.routing=key"), "create another topic"),
        (("consume", topic, "--band", "hott"), "'hott' is no band of"),
        (("consume", plain, "--band", "hot"), "'hot' is no band of"),
        (("consume", topic, "--group", topic, "--band", "hott"), "'hott' is no band of"),
    ]
    for arguments, told in refused:
        assert told in command.failure(*arguments)


def test_contradictions_are_wrong_usage(command: Commands) -> None:
    wrong: list[tuple[tuple[str, ...], str]] = [
        (("topic", "create", "bad", "--bands", BANDS, "--config", f"priority.bands={BANDS}"), "give one of them"),
        (("consume", "t", "--band", "hot", "--partition", "0"), "give --partition or --band"),
        (("produce", "t", "--priority", "10"), "--priority"),
        (("produce", "t", "--priority", "-1"), "--priority"),
        (("produce", "t", "--priority", "high"), "--priority"),
        (("produce", "t", "--priority-column", "p"), "--priority-column is for --format csv"),
        (("produce", "t", "--format", "csv", "--priority-column", "p", "--priority", "1"), "leave out"),
    ]
    for arguments, told in wrong:
        assert told in command.failure(*arguments, exit_code=2)
