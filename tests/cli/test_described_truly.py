"""Descriptions tell what is: lag behind retention, deleted topics, records without a key, many lanes at once."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logbroker.cli.common.clients import CommandAdmin
from logbroker.cli.main import run
from logbroker.cli.queue.text import moment_text
from logbroker.client.admin.queue_descriptions import queue_description
from logbroker.client.sync import Admin, Producer, QueueAdmin, TopicDescription, TopicPartition, Worker
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.v1 import queues_pb2
from tests.cli.command import ENVIRONMENT, LOGBROKER
from tests.cli.commands import parameters
from tests.cli.queues import Queue
from tests.cli.test_group import Group, member
from tests.waiting import until

RECORDS = 60
MANY = 150


@pytest.fixture(scope="module")
def short_lived() -> Iterator[EmbeddedBroker]:
    """A broker that looks for what has expired all the time."""
    with embedded(retention_check_seconds=0.02) as broker:
        yield broker


@pytest.mark.prove
def test_lag_counts_from_the_committed_offset_also_behind_retention(
    short_lived: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group(short_lived.address, capsys)
    places = [0, 7, RECORDS - 1, RECORDS]
    with Admin(group.address) as admin, Producer(group.address) as producer:
        admin.create_topic("kept", 1, {"segment.bytes": "1000", "retention.ms": "-1"})
        for number in range(RECORDS):
            producer.send("kept", b"%0200d" % number)
            producer.flush()
        for place in places:
            admin.commit_offsets(f"at-{place}", {TopicPartition("kept", 0): place})
        admin.alter_topic("kept", set_configs={"retention.bytes": "2000"})
        until(lambda: admin.describe_topic("kept").partitions[0].log_start_offset > 40)
        start = admin.describe_topic("kept").partitions[0].log_start_offset
    for place in places:
        [row] = rows_of(group, f"at-{place}")
        text = group("describe", f"at-{place}")
        assert (row["committed_offset"], row["log_start_offset"], row["end_offset"]) == (place, start, RECORDS)
        assert row["lag_records"] == RECORDS - place
        assert row["removed_records"] == max(0, start - place)
        assert f"{RECORDS - place} record{'' if place == RECORDS - 1 else 's'} behind" in text
        assert (f"{start - place} of them no longer in the log" in text) == (place < start)
    with member(group.address, "idle", "kept"):
        [row] = rows_of(group, "idle")
        text = group("describe", "idle")
    assert (row["committed_offset"], row["lag_records"], row["removed_records"]) == (None, None, None)
    assert "0 records behind, nothing committed in 1 of 1 partitions" in text


def rows_of(group: Group, name: str) -> list[dict[str, Any]]:
    return list(group.json("describe", name)["partitions"])


def test_a_group_whose_topic_was_deleted_is_described_so(
    address: str, capsys: pytest.CaptureFixture[str], topic: str, name: str
) -> None:
    """The member holds its partitions until it hears of it; a frozen one does not."""
    group = Group(address, capsys)
    command = [*LOGBROKER, "consume", topic, "--group", name, "--broker", address]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=ENVIRONMENT) as consumer:
        try:
            with Admin(address) as admin:
                until(lambda: name in [info.id for info in admin.list_groups()])
                until(lambda: len([row for row in rows_of(group, name) if row["owner"]]) == 2)
                consumer.send_signal(signal.SIGSTOP)
                admin.delete_topic(topic)
            found = rows_of(group, name)
            text = group("describe", name)
            (frozen,) = group.json("members", name)
            members_text = group("members", name)
        finally:
            consumer.kill()
            consumer.send_signal(signal.SIGCONT)
    assert [(row["topic"], row["partition"]) for row in found] == [(None, 0), (None, 1)]
    for row in found:
        assert "the topic was deleted" in row["error"]
    assert "names no topic" not in text
    assert "(deleted)" in text
    assert frozen["owned"] == [{"topic": None, "partition": 0}, {"topic": None, "partition": 1}]
    assert "(deleted) 0, 1" in members_text


@pytest.mark.parametrize("size", [1000, 40_000])
def test_done_counts_what_is_done_above_a_key_that_stands(queue: Queue, name: str, size: int) -> None:
    with Admin(queue.address) as admin, Producer(queue.address) as producer:
        admin.create_topic(name, 2)
        for number in range(size):
            producer.send(name, b"v", b"k%d" % number, partition=0)
    queue("create", name, "--topic", name, "--max-attempts", "1", "--on-exhausted", "block")
    with Worker(queue.address, name, prefetch=1000) as worker:
        first, left = True, size
        for deliveries in worker.batches(max_records=1000):
            if first:
                deliveries[0].nack(reason="no good").result()
            first, left = False, left - len(deliveries)
            deliveries.ack().result()
            if not left:
                break
        until(lambda: queue.json("describe", name)["counts"]["blocked_lanes"] == 1)
    full, empty = queue.json("describe", name)["partitions"]
    assert [full[field] for field in ("floor", "end", "done")] == [0, size, size - 1]
    assert [empty[field] for field in ("floor", "end", "done")] == [0, 0, 0]
    assert full["oldest_timestamp_ms"] is not None
    assert empty["oldest_timestamp_ms"] is None
    rows = [line.split() for line in queue("describe", name).splitlines()]
    [behind] = [row for row in rows if row[:5] == ["0", "0", str(size), str(size), "99.9%"]]
    assert behind[6:] in (["ms"], ["s"])
    assert ["1", "0", "0", "0", "-", "-"] in rows
    queue("skip", name, "--all", "--yes")
    [full, _] = queue.json("describe", name)["partitions"]
    assert [full[field] for field in ("floor", "end", "done")] == [size, size, size]
    rows = [line.split() for line in queue("describe", name).splitlines()]
    assert ["0", str(size), str(size), str(size), "100.0%", "-"] in rows


@pytest.mark.prove
def test_the_oldest_record_is_the_first_that_is_left_behind_retention(short_lived: EmbeddedBroker, name: str) -> None:
    """Records are a second apart. One partition has records that retention removed, one is done, and one is empty."""
    begun_ms = 1_700_000_000_000
    with Admin(short_lived.address) as admin, Producer(short_lived.address) as producer:
        configs = {"segment.bytes": "1000", "retention.ms": "-1", "retention.hold.bytes": "0"}
        admin.create_topic(name, 3, configs)
        for number in range(RECORDS):
            producer.send(name, b"%0200d" % number, partition=0, timestamp_ms=begun_ms + 1000 * number)
            producer.flush()
        producer.send(name, b"done", partition=1, timestamp_ms=begun_ms)
        producer.flush()
        with QueueAdmin(short_lived.address) as queues:
            queues.create_queue(name, name)
            queues.rewind(name, "latest", partitions=[1])

            def oldest() -> list[int | None]:
                description = queues.describe_queue(name, oldest=True)
                assert description.oldest_timestamp_ms == description.partitions[0].oldest_timestamp_ms
                return [each.oldest_timestamp_ms for each in description.partitions]

            assert oldest() == [begun_ms, None, None]
            admin.alter_topic(name, set_configs={"retention.bytes": "2000"})
            until(lambda: admin.describe_topic(name).partitions[0].log_start_offset > 40)
            start = admin.describe_topic(name).partitions[0].log_start_offset
            assert oldest() == [begun_ms + 1000 * start, None, None]


def test_an_older_broker_tells_what_is_done_below_the_floor_only() -> None:
    older = queues_pb2.DescribedQueue(partitions=[queues_pb2.QueuePartition(floor=7, scanned=9, end=9)])
    assert queue_description(older).partitions[0].done == 7


def test_records_without_a_key_that_wait_are_listed(queue: Queue, topic: str, name: str) -> None:
    queue("create", name, "--topic", topic, "--ordering", "none", "--backoff", "3000,1,3000", "--max-attempts", "3")
    with Worker(queue.address, name) as worker:
        for delivery in islice(worker, 3):
            delivery.nack(reason="no good")
        until(lambda: queue.json("describe", name)["counts"]["held_lanes"] == 3)
        for listed in (*queue.json("lanes", name).values(), queue.json("lanes", name, "--order", "waiting")):
            assert listed["total"] == 3
            for lane in listed["lanes"]:
                assert (lane["key"], lane["state"], lane["attempt"], lane["reasons"]) == (
                    None,
                    "waiting",
                    2,
                    ["no good"],
                )
                assert lane["due_in_ms"] > 0
        places = [f"{lane['partition']}:{lane['offset']}" for lane in listed["lanes"]]
        text = queue("lanes", name)
        for word in (*places, "no good", "without an ordering key"):
            assert word in text
    queue("resume", name, *(word for place in places for word in ("--record", place)))
    assert queue.json("lanes", name, "--order", "waiting")["total"] == 0


@pytest.mark.parametrize("decision", ["resume", "skip", "drop"])
def test_a_decision_about_all_lanes_is_one_request_and_one_line(queue: Queue, name: str, decision: str) -> None:
    with Admin(queue.address) as admin, Producer(queue.address) as producer:
        admin.create_topic(name, 2)
        for number in range(2 * MANY):
            producer.send(name, b"v", b"k%d" % (number % MANY))
    queue("create", name, "--topic", name, "--max-attempts", "1", "--backoff", "0,1,1", "--on-exhausted", "block")
    with Worker(queue.address, name) as worker:
        for delivery in islice(worker, MANY):
            delivery.nack(reason="no good")
        until(lambda: queue.json("describe", name)["counts"]["blocked_lanes"] == MANY)
    more = [] if decision == "resume" else ["--yes"]
    text = queue(decision, name, "--all", *more)
    done = {"resume": 0, "skip": MANY, "drop": 2 * MANY}[decision]
    assert text.count("\n") == 1
    assert f"{MANY} lanes" in text
    assert decision == "resume" or f"{done} records done" in text
    counts = queue.json("describe", name)["counts"]
    assert (counts["blocked_lanes"], counts["open"]) == (0, 2 * MANY - done)
    assert queue(decision, name, "--all", *more) == "no lane waits for an operator\n"
    assert json.loads(queue(decision, name, "--all", "--json", *more)) == {"lanes": 0, "records_done": 0, "refused": 0}
    assert "give KEY, --record or --all" in queue(decision, name, *more, exit_code=2)


def test_many_lanes_that_are_named_are_told_in_part(queue: Queue, name: str) -> None:
    keys = [f"k{number}" for number in range(50)]
    with Admin(queue.address) as admin, Producer(queue.address) as producer:
        admin.create_topic(name, 1)
        for key in keys:
            producer.send(name, b"v", key.encode())
    queue("create", name, "--topic", name, "--max-attempts", "1", "--backoff", "0,1,1", "--on-exhausted", "block")
    with Worker(queue.address, name) as worker:
        for delivery in islice(worker, len(keys)):
            delivery.nack(reason="no good")
        until(lambda: queue.json("describe", name)["counts"]["blocked_lanes"] == len(keys))
    lines = queue("resume", name, *keys).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "resumed 30 more lanes"


@pytest.mark.parametrize("max_ready", [1, 1000])
def test_lists_of_lanes_say_whether_all_is_scanned(queue: Queue, topic: str, max_ready: int) -> None:
    """20 records of 5 keys; the scan pauses where more are ready than the group may have."""
    queue("create", topic, "--topic", topic, "--max-ready", f"{max_ready}")
    is_incomplete = max_ready == 1
    for listed in (*queue.json("lanes", topic).values(), queue.json("parked", topic)):
        assert listed["incomplete"] is is_incomplete
    with QueueAdmin(queue.address) as admin:
        found = admin.list_lanes(topic)
    assert found.incomplete is is_incomplete
    assert (found.total == len(found.lanes) == 5) is not is_incomplete
    for view in ("lanes", "parked"):
        assert ("not scanned yet" in queue(view, topic)) is is_incomplete
    # A key that may come: the same is told of it, in the same words.
    told = queue("explain", topic, "nobody")
    assert ("it has no waiting records in the scanned part of the log; " in told) is is_incomplete
    assert ("not scanned yet: ask again later" in told) is is_incomplete


def test_an_offline_partition_has_no_end_and_no_lag(capsys: pytest.CaptureFixture[str]) -> None:
    with embedded() as broker:
        with Admin(broker.address) as admin, Producer(broker.address) as producer:
            admin.create_topic("t", 2)
            for partition in (0, 1):
                producer.send("t", b"v", partition=partition).result(20)
            admin.commit_offsets("readers", {TopicPartition("t", 0): 0, TopicPartition("t", 1): 0})
        queue, group = Queue(broker.address, capsys), Group(broker.address, capsys)
        queue("create", "workers", "--topic", "t")
        broker.stop()
        (log,) = Path(broker.data_dir, "t-1").glob("*.log")
        log.unlink()
        broker.start()
        described, lag = queue("describe", "workers"), group("describe", "readers")
        lags = {each["id"]: each for each in group.json("list", "--lag")}
        assert run(["queue", "rewind", "workers", "--to", "latest", "--dry-run", "--broker", broker.address]) == 1
        rewound = capsys.readouterr().out
    assert "at least 1 record behind, 1 of 2 partitions cannot be asked" in lag
    assert {name: each["unknown_partitions"] for name, each in lags.items()} == {"workers": 1, "readers": 1}
    assert ["1", "0", "0", "-", "-"] in [line.split()[:5] for line in described.splitlines()]
    assert ["1", "-", "-", "0"] in [line.split()[:4] for line in rewound.splitlines()]


@pytest.mark.prove
def test_letters_in_an_offline_partition_are_not_told_as_sent_back(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = range(10)
    with embedded() as broker:
        with Admin(broker.address) as admin, Producer(broker.address) as producer:
            admin.create_topic("t", 2)
            for number in numbers:
                producer.send("t", b"v", b"k%d" % number)
        queue = Queue(broker.address, capsys)
        queue("create", "workers", "--topic", "t", "--max-attempts", "1", "--on-exhausted", "dead-letter")
        with Worker(broker.address, "workers") as worker:
            for delivery in islice(worker, len(numbers)):
                delivery.nack(reason="no")
        until(lambda: len(queue.json("letters", "workers")["letters"]) == len(numbers))
        letters = queue.json("letters", "workers")["letters"]
        gone, others = (
            [letter["key"] for letter in letters if letter["partition"] == partition] for partition in (0, 1)
        )
        assert gone
        assert others
        broker.stop()
        (log,) = Path(broker.data_dir, "workers.dead-letters-0").glob("*.log")
        log.unlink()
        broker.start()

        def told(*command: str) -> tuple[str, str]:
            assert run(["queue", *command, "--broker", broker.address]) == 1
            out, err = capsys.readouterr()
            assert err.startswith(
                "logbroker: not all dead letters can be read: partition workers.dead-letters-0 is off"
            )
            return out, err

        assert told("letters", "workers", "--key", gone[0])[0] == ""
        listed = json.loads(told("letters", "workers", "--json")[0])
        assert [letter["key"] for letter in listed["letters"]] == others
        counted, error = told("redrive", "workers", "--dry-run", "--json")
        count = json.loads(counted)
        assert (count["records"], count["keys"], count["more"], count["held"]) == (len(others), len(others), False, 0)
        assert count["why_held"] == listed["why_held"]
        assert listed["why_held"] in error
        told("redrive", "workers", "--dry-run", "--key", gone[0])
        with QueueAdmin(broker.address) as queues:
            found = queues.list_letters("workers", key=gone[0].encode())
        assert (found.letters, found.more, found.why_held) == ([], False, listed["why_held"])


@pytest.mark.parametrize(
    ("command", "commands"),
    [
        ("topic describe nowhere", ["topic list", "topic create"]),
        ("group describe nowhere", ["group list"]),
        ("queue describe nowhere", ["queue list", "queue create"]),
        ("queue explain nowhere key", ["queue list", "queue create"]),
        ("queue describe CONSUMERS", ["group"]),
        ("group describe QUEUE", ["queue"]),
    ],
)
def test_a_name_that_is_not_there_or_of_another_kind_is_answered_with_the_commands_that_help(
    queue: Queue, topic: str, name: str, command: str, commands: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    queue("create", name, "--topic", topic)
    with Admin(queue.address) as admin:
        admin.commit_offsets(topic, {TopicPartition(topic, 0): 0})
    words = [{"CONSUMERS": topic, "QUEUE": name}.get(word, word) for word in command.split()]
    assert run([*words, "--broker", queue.address]) == 1
    assert re.findall("`logbroker (.+?)`", capsys.readouterr().err) == commands


@pytest.fixture
def zone_with_summer_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A time zone that is named WIN and one hour ahead in winter, SUM and two hours ahead in summer."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "WIN-1SUM-2,M3.5.0,M10.5.0")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("zone_with_summer_time")
@pytest.mark.parametrize(
    ("created_at_ms", "shown"),
    [(1_768_478_400_000, "2026-01-15 13:00:00 WIN"), (1_784_116_800_000, "2026-07-15 14:00:00 SUM")],
)
def test_a_time_is_shown_with_the_zone_of_that_time(
    queue: Queue,
    topic: str,
    created_at_ms: int,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    describe = CommandAdmin.describe_topic

    def at_that_time(admin: CommandAdmin, name: str) -> TopicDescription:
        return msgspec.structs.replace(describe(admin, name), created_at_ms=created_at_ms)

    monkeypatch.setattr(CommandAdmin, "describe_topic", at_that_time)
    assert run(["topic", "describe", topic, "--broker", queue.address]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(f", created {shown}")
    assert moment_text(created_at_ms).startswith(f"{shown} (")


def test_the_examples_of_the_help_use_a_name_for_one_kind_of_group() -> None:
    """They can be run one after the other on one broker."""
    texts = {parameter.command.help or "" for parameter in parameters()}
    examples = [line for text in texts for line in text.splitlines() if line.strip().startswith("logbroker ")]
    consumers = {found for line in examples for found in re.findall(r"group [a-z-]+ ([a-z]+)|--group ([a-z]+)", line)}
    queues = {found for line in examples for found in re.findall(r"logbroker queue [a-z-]+ ([a-z]+)", line)}
    assert {"reports"} <= (names := {name for pair in consumers for name in pair if name})
    assert {"billing"} <= queues
    assert not names & queues
