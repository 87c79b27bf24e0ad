"""`logbroker group` and `logbroker consume --group`: what people and programs see."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest

from logbroker.cli.main import run
from logbroker.client.sync import Admin, Consumer, Producer, QueueAdmin, Worker
from tests.cli.command import ENVIRONMENT, LOGBROKER, failure_of, line_of, output_of
from tests.waiting import until

START_MS = 1_700_000_000_000


class Group:
    """Runs `logbroker group ...` in this process against one broker."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.address = address
        self._capsys = capsys

    def __call__(self, *arguments: str, exit_code: int = 0) -> str:
        """Return standard output or, where the command is to fail, standard error."""
        assert run(["group", *arguments, "--broker", self.address]) == exit_code
        out, err = self._capsys.readouterr()
        return err if exit_code else out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture
def group(address: str, capsys: pytest.CaptureFixture[str]) -> Group:
    return Group(address, capsys)


@pytest.fixture
def topic(address: str) -> str:
    """A topic of 2 partitions with 10 records each, a second apart."""
    name = f"t-{uuid.uuid4()}"
    with Admin(address) as admin, Producer(address) as producer:
        # The records are old, and the broker lives longer than it takes until old ones go.
        admin.create_topic(name, 2, {"retention.ms": "-1"})
        for number in range(20):
            producer.send(name, b"%d" % number, partition=number % 2, timestamp_ms=START_MS + number // 2 * 1000)
    return name


@pytest.fixture
def name() -> str:
    """Name of a group that no other test uses."""
    return f"g-{uuid.uuid4()}"


@contextmanager
def member(address: str, name: str, topic: str, **options: Any) -> Iterator[Consumer]:
    """One that holds all partitions and has read nothing yet."""
    with Consumer(address, group=name, **options) as consumer:
        consumer.subscribe(topic, on_assigned=lambda partitions: consumer.pause(*partitions))
        while not consumer.assignment():
            assert not consumer.poll(timeout_seconds=0.02)
        yield consumer


def offsets(group: Group, name: str) -> list[tuple[int, int | None]]:
    return [(row["partition"], row["committed_offset"]) for row in group.json("describe", name)["partitions"]]


def test_describe_tells_who_reads_what_and_how_far_it_is_behind(group: Group, topic: str, name: str) -> None:
    group("reset-offsets", name, "--topic", topic, "--partition", "0", "--to", "4")
    with member(group.address, name, topic, instance_id="desk-1", auto_commit=False):
        document = group.json("describe", name)
        (described,) = group.json("members", name)
        text = group("describe", name)
        listed = next(info for info in group.json("list") if info["id"] == name)
        members_text = group("members", name)
    assert (document["id"], document["state"], document["members"]) == (name, "stable", 1)
    first, second = document["partitions"]
    assert (first["topic"], first["partition"], first["owner"]) == (topic, 0, described["id"])
    assert (first["committed_offset"], first["end_offset"], first["lag_records"]) == (4, 10, 6)
    with Admin(group.address) as admin:
        described_topic = admin.describe_topic(topic)
    assert first["lag_ms"] >= described_topic.created_at_ms - START_MS - 4000
    assert (second["committed_offset"], second["lag_records"], second["lag_ms"]) == (None, None, None)
    assert described["instance_id"] == "desk-1"
    assert described["owned"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
    for word in ("stable", "1 member", "sticky", "6 records behind", "desk-1", "lag in time", " d"):
        assert word in text
    assert (listed["type"], listed["members"]) == ("consumer", 1)
    for word in ("desk-1", "connected", "the same", "0, 1"):
        assert word in members_text
    assert name in group("list")


def test_a_list_tells_how_far_groups_of_both_types_are_behind(group: Group, topic: str, name: str) -> None:
    """The topic has 10 records without a key in each of 2 partitions, a second apart."""
    queue, other = f"{name}-queue", f"{name}-other"
    with QueueAdmin(group.address) as queues:
        queues.create_queue(queue, topic)
        group("reset-offsets", name, "--topic", topic, "--to", "4")
        group("reset-offsets", other, "--topic", topic, "--to", "latest")
        with Worker(group.address, queue, prefetch=1) as worker:
            for delivery in islice(worker, 5):
                delivery.ack().result()
            next(iter(worker))  # It is in flight: it does not wait, and is not done.
            told = {each["id"]: each for each in group.json("list", "--lag")}
            text = group("list", "--lag")
            description = queues.describe_queue(queue, oldest=True)
            assert queues.describe_queue(queue).oldest_timestamp_ms is None
    assert (description.counts.in_flight, description.counts.waiting) == (1, 14)
    oldest = [None if each.floor == 10 else START_MS + 1000 * each.floor for each in description.partitions]
    assert [each.oldest_timestamp_ms for each in description.partitions] == oldest
    assert [told[each]["behind"] for each in (name, queue, other)] == [12, 15, 0]
    assert [told[each]["unknown_partitions"] for each in (name, queue, other)] == [0, 0, 0]
    assert [told[each]["oldest_timestamp_ms"] for each in (name, queue, other)] == [
        START_MS + 4000,
        description.oldest_timestamp_ms,
        None,
    ]
    assert told[other]["oldest_age_ms"] is None
    for each in (told[name], told[queue]):
        assert each["oldest_age_ms"] == pytest.approx(time.time() * 1000 - each["oldest_timestamp_ms"], abs=60_000)
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.startswith(f" {name}")}
    assert rows[name][:4] == ["consumer", "empty", "0", "12"]
    assert rows[queue][:4] == ["queue", "serving", "1", "15"]
    assert rows[other] == ["consumer", "empty", "0", "0", "-"]
    assert "behind" not in group("list")
    assert "behind" not in group.json("list")[0]


def test_a_list_tells_where_it_does_not_know_the_whole_lag(group: Group, topic: str, name: str) -> None:
    group("reset-offsets", name, "--topic", topic, "--partition", "0", "--to", "4")
    with member(group.address, name, topic, auto_commit=False):
        [told] = [each for each in group.json("list", "--lag") if each["id"] == name]
        assert (told["behind"], told["unknown_partitions"]) == (6, 1)
        assert "at least 6" in group("list", "--lag")
        assert "at least 6 records behind, nothing committed in 1 of 2 partitions" in group("describe", name)


def test_a_group_without_members_has_all_partitions_of_its_topics(group: Group, topic: str, name: str) -> None:
    """Kafka clients commit only where they have read. What comes to the other partitions is unread, too."""
    with Admin(group.address) as admin:
        admin.alter_topic(topic, partitions=3)
    group("reset-offsets", name, "--topic", topic, "--partition", "0", "--to", "4")
    [told] = [each for each in group.json("list", "--lag") if each["id"] == name]
    assert (told["behind"], told["unknown_partitions"]) == (6, 1), "an empty partition has no lag"
    [row] = [line.split() for line in group("list", "--lag").splitlines() if line.startswith(f" {name}")]
    assert row[4:7] == ["at", "least", "6"]
    described = group.json("describe", name)["partitions"]
    assert [(each["committed_offset"], each["end_offset"], each["lag_records"]) for each in described] == [
        (4, 10, 6),
        (None, 10, None),
        (None, 0, 0),
    ]
    text = group("describe", name)
    assert "at least 6 records behind, nothing committed in 1 of 3 partitions" in text


def test_describe_tells_which_generation_is_read_and_what_it_waits_for(group: Group, topic: str, name: str) -> None:
    group("reset-offsets", name, "--topic", topic, "--partition", "0", "--to", "10")
    with Admin(group.address) as admin:
        admin.alter_topic(topic, partitions=3)
    with member(group.address, name, topic) as consumer:
        (generation,) = group.json("describe", name)["generations"]
        assert generation == {
            "topic": topic,
            "generation": 1,
            "last_generation": 2,
            "waiting": 1,
            "waits_for": [{"partition": 1, "finished_offset": None, "end_offset": 10}],
        }
        text = group("describe", name)
        assert (
            f"topic {topic}: reads generation 1 of 2; the next one begins when partition 1 (at - of 10) is finished"
            in text
        )
        consumer.resume()
        until(
            lambda: (
                consumer.poll(timeout_seconds=0.02) == []
                and not group.json("describe", name)["generations"][0]["waiting"]
            )
        )
        assert f"topic {topic}: reads generation 2 of 2\n" in group("describe", name)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--to", "earliest"), [(0, 0), (1, 0)]),
        (("--to", "latest"), [(0, 10), (1, 10)]),
        (("--to", "7"), [(0, 7), (1, 7)]),
        (("--to", "2023-11-14T22:13:26Z"), [(0, 6), (1, 6)]),
        (("--to", "2100-01-01"), [(0, 10), (1, 10)]),
        (("--shift-by", "-2"), [(0, 3), (1, 3)]),
        (("--shift-by", "100"), [(0, 10), (1, 10)]),
        (("--shift-by", "-100"), [(0, 0), (1, 0)]),
    ],
)
def test_offsets_are_reset(
    group: Group, topic: str, name: str, arguments: tuple[str, ...], expected: list[tuple[int, int]]
) -> None:
    group("reset-offsets", name, "--topic", topic, "--to", "5")
    planned = group.json("reset-offsets", name, *arguments, "--dry-run")
    assert [(row["partition"], row["old_offset"], row["new_offset"]) for row in planned] == [
        (partition, 5, offset) for partition, offset in expected
    ]
    assert offsets(group, name) == [(0, 5), (1, 5)]
    assert "nothing was changed" in group("reset-offsets", name, *arguments, "--dry-run")
    assert "nothing was changed" not in group("reset-offsets", name, *arguments)
    assert offsets(group, name) == expected
    assert group.json("describe", name)["state"] == "empty"


def test_a_reset_of_some_leaves_the_others(group: Group, topic: str, name: str) -> None:
    group("reset-offsets", name, "--topic", topic, "--partition", "1", "--to", "latest")
    assert offsets(group, name) == [(0, None), (1, 10)]
    group("reset-offsets", name, "--topic", topic, "--partition", "0", "--to", "3")
    assert offsets(group, name) == [(0, 3), (1, 10)]
    with member(group.address, name, topic) as consumer:
        consumer.resume()
        assert [(record.partition, record.offset) for record in consumer.until_end()] == [(0, n) for n in range(3, 10)]


def test_nothing_is_reset_or_deleted_while_members_are_active(group: Group, topic: str, name: str) -> None:
    with member(group.address, name, topic):
        for arguments in (("reset-offsets", name, "--to", "0", "--topic", topic), ("delete", name, "--yes")):
            error = group(*arguments, exit_code=1)
            assert error.count("\n") == 1
            assert "1 active member" in error or "has members (1)" in error
    assert group("delete", name, "--yes") == f"deleted group {name}\n"
    assert name not in [info["id"] for info in group.json("list")]


@pytest.mark.prove
def test_a_static_member_that_may_come_back_is_waited_for(group: Group, topic: str, name: str) -> None:
    with member(group.address, name, topic, instance_id="desk-1", session_timeout_seconds=1.0):
        pass
    reset = ("reset-offsets", name, "--to", "0", "--topic", topic)
    assert "may still come back" in group(*reset, exit_code=1)
    deadline = time.monotonic() + 30
    while group.json("describe", name)["members"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    group(*reset)


def test_a_deletion_is_asked_about(group: Group, topic: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    group("reset-offsets", name, "--topic", topic, "--to", "5")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert "nothing was done" in group("delete", name, exit_code=1)
    assert offsets(group, name) == [(0, 5), (1, 5)]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("describe", "nowhere"), "nowhere"),
        (("members", "nowhere"), "nowhere"),
        (("delete", "nowhere", "--yes"), "nowhere"),
        (("delete", "nowhere"), "nowhere"),
        (("reset-offsets", "nowhere", "--to", "earliest"), "nowhere"),
        (("reset-offsets", "NAME", "--to", "earliest", "--topic", "no-topic"), "no-topic"),
        (("reset-offsets", "NAME", "--to", "11", "--topic", "TOPIC"), "0 to 10"),
        (("reset-offsets", "NAME", "--to", "11", "--topic", "TOPIC", "--partition", "1"), "0 to 10, not 11\n"),
        (("reset-offsets", "NAME", "--to", "1", "--topic", "TOPIC", "--partition", "2"), "no partition 2"),
        (("reset-offsets", "NAME", "--shift-by", "1", "--topic", "TOPIC"), "--to"),
        (("reset-offsets", "a b", "--to", "1", "--topic", "TOPIC"), "a b"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    group: Group, topic: str, name: str, arguments: tuple[str, ...], complaint: str
) -> None:
    error = group(*({"NAME": name, "TOPIC": topic}.get(word, word) for word in arguments), exit_code=1)
    assert error.count("\n") == 1
    assert error.startswith("logbroker: ")
    assert complaint in error
    assert ("name the partitions" in error) == (complaint == "0 to 10"), "what was given is not asked for"


@pytest.mark.parametrize(
    "arguments",
    [
        ("reset-offsets", "g"),
        ("reset-offsets", "g", "--to", "earliest", "--shift-by", "1"),
        ("reset-offsets", "g", "--to", "yesterday"),
        ("reset-offsets", "g", "--to", "1", "--partition", "0"),
        ("describe",),
    ],
)
def test_a_wrong_call_exits_with_2(group: Group, arguments: tuple[str, ...]) -> None:
    assert "Error: " in group(*arguments, exit_code=2)


@pytest.mark.prove
def test_consumers_of_a_group_share_a_topic_and_go_on_where_it_was(address: str, topic: str, name: str) -> None:
    common = ("consume", topic, "--broker", address, "--group", name)
    first = output_of(*common, "--max-records", "7").split()
    assert len(first) == 7
    rest = output_of(*common, "--until-end").split()
    assert sorted([*first, *rest], key=int) == [b"%d" % number for number in range(20)]
    assert output_of(*common, "--until-end") == b""
    command = [*LOGBROKER, *common, "--format", "json"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as one,
        subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as two,
    ):
        try:
            _wait_for_members(address, name, 2)
            with Producer(address) as producer:
                for partition in (0, 1):
                    producer.send(topic, b"new", partition=partition)
            records = [json.loads(line_of(process)) for process in (one, two)]
            assert sorted(record["partition"] for record in records) == [0, 1]
        finally:
            for process in (one, two):
                process.terminate()


def _wait_for_members(address: str, name: str, count: int) -> None:
    deadline = time.monotonic() + 30
    with Admin(address) as admin:
        while time.monotonic() < deadline:
            group = admin.describe_group(name)
            if group.info.state == "stable" and group.info.members == count:
                return
            time.sleep(0.02)
    raise TimeoutError(f"the group never had {count} members")


@pytest.mark.prove
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_is_a_goodbye(group: Group, topic: str, name: str, stop: signal.Signals) -> None:
    command = [*LOGBROKER, "consume", topic, "--broker", group.address, "--group", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for _ in range(20):
                assert process.stdout.readline()
            # All is committed, so the command waits for more: a signal in the midst of its work may come too early.
            deadline = time.monotonic() + 30
            while offsets(group, name) != [(0, 10), (1, 10)]:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            process.send_signal(stop)
            assert process.wait(30) == (130 if stop is signal.SIGINT else 0)
            assert process.stderr.read().strip() == b""
        finally:
            process.kill()
    assert group.json("describe", name)["state"] == "empty"


def test_a_topic_that_is_not_there_and_options_that_do_not_fit_are_refused(address: str, topic: str, name: str) -> None:
    assert "nowhere" in failure_of("consume", "nowhere", "--broker", address, "--group", name)
    for options in (("--partition", "0"), ("--from", "5"), ("--from", "2026-01-31")):
        assert run(["consume", topic, "--broker", address, "--group", name, *options]) == 2
