"""`logbroker queue`: groups from their creation to their end, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from logbroker.cli.common.clients import CommandQueueAdmin
from logbroker.cli.main import run
from logbroker.client.sync import Admin, Producer, QueueDescription, Worker
from tests.cli.queues import Queue
from tests.waiting import until


def test_a_group_is_created_described_altered_and_deleted(queue: Queue, topic: str, name: str) -> None:
    made = queue.json("create", name, "--topic", topic, "--lease", "7.5", "--backoff", "0.5,3,60")
    assert (made["created"], made["topic"], made["state"]) == (True, topic, "serving")
    settings = made["settings"]
    assert settings["lease_seconds"] == 7.5
    assert [settings[f"backoff_{part}"] for part in ("initial_seconds", "factor", "cap_seconds")] == [0.5, 3.0, 60.0]
    assert settings["max_attempts"] == 5
    assert queue.json("create", name, "--topic", topic, "--lease", "7.5", "--backoff", "0.5,3,60")["created"] is False
    assert "other settings" in queue("create", name, "--topic", topic, exit_code=1)
    listed = next(group for group in queue.json("list") if group["id"] == name)
    assert listed["topic"] == topic
    assert name in queue("list")
    altered = queue.json("alter", name, "--max-attempts", "9", "--ordering", "none")
    assert (altered["settings"]["max_attempts"], altered["settings"]["ordering"]) == (9, "none")
    text = queue("describe", name)
    for word in (
        "serving",
        "ordering none",
        "20 waiting",
        "no workers",
        "0.5 s, times 3, up to 60 s",
        "copied",
        "expired",
    ):
        assert word in text
    assert queue("delete", name, "--yes") == f"deleted queue group {name}\n"
    assert name not in [group["id"] for group in queue.json("list")]


def test_a_group_hands_out_by_priority_and_says_so(queue: Queue, topic: str, name: str) -> None:
    made = queue.json("create", name, "--topic", topic, "--priority", "weighted", "--weights", "hot=2,cold=1")
    settings = made["settings"]
    assert (settings["priority"], settings["weights"]) == ("weighted", {"hot": 2, "cold": 1})
    altered = queue.json("alter", name, "--priority", "ageing", "--age-seconds", "5", "--priority-rank", "head")
    assert [altered["settings"][key] for key in ("priority", "age_seconds", "weights")] == ["ageing", 5.0, {}]
    queue("alter", name, "--priority", "strict", "--priority-rank", "lane")
    with Producer(queue.address) as producer:
        for priority in (1, 8, 9):
            producer.send(topic, b"p%d" % priority, b"key of %d" % priority, priority=priority)
        producer.send(topic, b"behind it", b"key of 1", priority=7)
    worked = queue("work", name, "--band", "hot", "--print", "--max-records", "2").splitlines()
    assert [json.loads(line)["value"] for line in worked] == ["p9", "p8"]
    with Worker(queue.address, name, band="cold") as worker, ThreadPoolExecutor(1) as pool:
        running = pool.submit(worker.run, lambda delivery: None)
        until(lambda: queue.json("describe", name)["workers"])
        [described] = queue.json("describe", name)["workers"]
        assert (described["band"], described["priorities"]) == ("cold", [0, 3])
        assert re.search("connected +cold +", queue("describe", name))
        why = "no connected worker takes its priority, 7: they take other bands only (cold)"
        assert why in queue("explain", name, "key of 1")
        worker.stop()
        running.result()
    told = {each["priority"]: each for each in queue.json("describe", name)["priorities"]}
    assert [told[9][key] for key in ("waiting", "delivered", "oldest_timestamp_ms")] == [0, 1, None]
    assert told[4]["waiting"] == 20
    assert told[4]["overtaken"] >= 2
    text = queue("describe", name)
    for words in ("priority   waiting   oldest   delivered   overtaken", "strict", "its most urgent record"):
        assert words in text
    assert "level         7, as its most urgent record" in queue("explain", name, "key of 1")
    assert queue.json("explain", name, "key of 1")["level"] == 7
    assert "ask for hot or warm or cold" in queue("work", name, "--print", "--band", "tepid", exit_code=1)
    queue("alter", name, "--priority", "none")
    assert "no priorities" in queue("work", name, "--print", "--band", "hot", exit_code=1)


@pytest.mark.parametrize(("start", "waiting"), [("earliest", 20), ("latest", 0), ("2001-01-01", 20), ("2100-01-01", 0)])
def test_a_group_begins_where_it_is_told(queue: Queue, topic: str, name: str, start: str, waiting: int) -> None:
    queue("create", name, "--topic", topic, "--from", start)
    counts = queue.json("describe", name)["counts"]
    assert counts["open"] + counts["unscanned"] == waiting


FEW = "--ordering key --key-header x --weights hot=5,warm=0,cold=1 --priority weighted --priority-rank head"
ALL_NUMBERS = (
    "--lease 7.5 --max-attempts 9 --backoff 0.1,2.25,1e3 --jitter 0.1234567890123 --grace 0 --alarm-share 0.25"
    " --alarm-age 12 --max-parked 7 --max-in-flight 8 --max-ready 9 --max-held-lanes 10 --max-delayed 11 --split-into 4"
    " --split-share 1e-05 --split-age 0.3"
)


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ("", "--priority none"),
        (f"{FEW} {ALL_NUMBERS} --on-exhausted park", None),
        ("--ordering single", "--ordering single --priority none"),
        ("--priority ageing --age-seconds 0.5", None),
        ("--on-exhausted dead-letter", "--priority none --on-exhausted dead-letter"),
        ("--on-undecodable dead-letter --dead-letter-topic letters.of.many", None),
        ("--ordering none --backoff 0,2,300", "--ordering none --priority none --backoff 0,2,300"),
        ("--key-header x --split-by 'key-suffix:\"' --max-attempts 1", None),
    ],
)
def test_a_group_is_made_again_by_the_command_that_its_description_gives(
    queue: Queue, name: str, options: str, command: str | None
) -> None:
    with Admin(queue.address) as admin:
        admin.create_topic(name, 1)
    made = queue.json("create", name, "--topic", name, *shlex.split(options))
    described = queue.json("describe", name)
    if command is not None:
        assert described["create_command"] == f"logbroker queue create {name} --topic {name} {command}"
    queue("delete", name, "--yes")
    program, group, *arguments = shlex.split(described["create_command"])
    assert (program, group) == ("logbroker", "queue")
    again = queue.json(*arguments)
    assert again["created"] is True
    assert again["settings"] == made["settings"] == described["settings"]
    queue("delete", name, "--yes")


def test_a_group_is_made_again_without_what_is_left_of_an_earlier_policy(queue: Queue, name: str) -> None:
    with Admin(queue.address) as admin:
        admin.create_topic(name, 2, {"priority.bands": "hot=8-9:1,cold=0-7:1"})
    queue(
        "create", name, "--topic", name, "--priority", "ageing", "--age-seconds", "5", "--on-exhausted", "dead-letter"
    )
    altered = queue.json("alter", name, "--priority", "none", "--on-exhausted", "park")
    command = altered["create_command"]
    assert command == f"logbroker queue create {name} --topic {name} --priority none --on-exhausted park"
    queue("delete", name, "--yes")
    again = queue.json(*shlex.split(command)[2:])
    assert (again["settings"]["priority"], again["settings"]["on_exhausted"]) == ("none", "park")
    queue("delete", name, "--yes")


def test_describe_tells_who_works(queue: Queue, topic: str, name: str) -> None:
    queue("create", name, "--topic", topic)
    with Worker(queue.address, name, client_name="desk-1", prefetch=3) as worker:
        key = (next(iter(worker)).key or b"").decode()
        document = queue.json("describe", name)
        text = queue("describe", name)
        lane, explained = queue.json("explain", name, key), queue("explain", name, key)
    (described,) = document["workers"]
    assert (described["client_name"], described["connected"]) == ("desk-1", True)
    assert 1 <= document["counts"]["in_flight"] <= 3
    assert "desk-1" in text
    assert (lane["state"], lane["worker_id"], lane["worker_client"]) == ("in flight", described["id"], "desk-1")
    assert f"holder        {described['id']} (desk-1)" in explained


def test_describe_tells_what_retention_removed(
    queue: Queue, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue("create", name, "--topic", topic)
    assert queue.json("describe", name)["counts"]["removed"] == 0
    assert "records deleted" not in queue("describe", name)
    describe = CommandQueueAdmin.describe_queue

    def with_removed(admin: CommandQueueAdmin, group: str, **options: bool) -> QueueDescription:
        described = describe(admin, group, **options)
        counts = msgspec.structs.replace(described.counts, removed=1200, expired=34)
        return msgspec.structs.replace(described, counts=counts)

    monkeypatch.setattr(CommandQueueAdmin, "describe_queue", with_removed)
    text = " ".join(queue("describe", name).split())
    assert "records deleted before the group had finished them: about 1,234; if they were not" in text
    assert f"retention.hold.bytes of topic {topic}" in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("describe", "nowhere"), "nowhere"),
        (("delete", "nowhere", "--yes"), "nowhere"),
        (("explain", "nowhere", "k"), "nowhere"),
        (("alter", "nowhere", "--lease", "5"), "nowhere"),
        (("create", "a b", "--topic", "TOPIC"), "a b"),
        (("create", "NAME", "--topic", "no-topic"), "no-topic"),
        (("create", "NAME", "--topic", "TOPIC", "--ordering", "single"), "partition"),
        (("create", "NAME", "--topic", "TOPIC", "--backoff", "9,2,1"), "cap"),
        (("create", "NAME", "--topic", "TOPIC", "--priority", "weighted", "--weights", "hot=0"), "weights are 0"),
        (("create", "NAME", "--topic", "TOPIC", "--priority", "weighted", "--weights", "warmer=1"), "warmer"),
        (("create", "NAME", "--topic", "TOPIC", "--priority", "strict", "--age-seconds", "5"), "set ageing"),
        (("work", "nowhere", "--print"), "nowhere"),
        (("delete", "nowhere"), "nowhere"),
        (("skip", "nowhere", "--all"), "nowhere"),
        (("drop", "nowhere", "--all"), "nowhere"),
        (("drop", "nowhere", "k"), "nowhere"),
        (("rewind", "nowhere", "--to", "latest"), "nowhere"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    queue: Queue, topic: str, name: str, arguments: tuple[str, ...], complaint: str
) -> None:
    error = queue(*({"NAME": name, "TOPIC": topic}.get(word, word) for word in arguments), exit_code=1)
    assert error.count("\n") == 1
    assert error.startswith("logbroker: ")
    assert complaint in error


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "g"),
        ("create", "g", "--topic", "t", "--lease", "0"),
        ("create", "g", "--topic", "t", "--lease", "31536000"),
        ("create", "g", "--topic", "t", "--priority", "ageing", "--age-seconds", "0"),
        ("create", "g", "--topic", "t", "--max-attempts", "1001"),
        ("alter", "g", "--split-into", "1"),
        ("create", "g", "--topic", "t", "--ordering", "any"),
        ("create", "g", "--topic", "t", "--backoff", "1,2"),
        ("create", "g", "--topic", "t", "--from", "7"),
        ("create", "g", "--topic", "t", "--priority", "urgent"),
        ("create", "g", "--topic", "t", "--weights", "hot"),
        ("create", "g", "--topic", "t", "--weights", "hot=1,hot=2"),
        ("create", "g", "--topic", "t", "--weights", "hot=-1"),
        ("alter", "g"),
        ("resume", "g"),
        ("resume", "g", "k", "--all"),
        ("skip", "g"),
        ("skip", "g", "--record", "1"),
        ("drop", "g", "--yes"),
        ("replace", "g", "--value", "x"),
        ("explain", "g", "!", "--base64"),
        ("rewind", "g", "--yes"),
        ("rewind", "g", "--to", "7", "--yes"),
        ("lanes", "g", "--top", "0"),
        ("work", "g"),
        ("work", "g", "--print", "--exec", "true"),
    ],
)
def test_a_wrong_call_exits_with_2(queue: Queue, arguments: tuple[str, ...]) -> None:
    assert "Error: " in queue(*arguments, exit_code=2)


COMMANDS = "create list describe lanes explain parked resume skip drop replace redrive rewind alter delete work"


@pytest.mark.parametrize("command", COMMANDS.split())
def test_every_command_has_help(queue: Queue, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["queue", command, "--help"]) == 0
    assert "Usage: " in capsys.readouterr().out


def test_a_time_that_no_calendar_has_is_shown_as_a_number(queue: Queue, name: str) -> None:
    """A producer that stamps in microseconds, and a topic that lets it."""
    stamp_ms = 1_700_000_000_000_000
    with Admin(queue.address) as admin, Producer(queue.address) as producer:
        admin.create_topic(name, configs={"message.timestamp.after.max.ms": str(2**63 - 1)})
        producer.send(name, b"v", b"k", timestamp_ms=stamp_ms).result(timeout=20)
    queue("create", name, "--topic", name)
    assert f"{stamp_ms} ms" in queue("explain", name, "k")
    for command in ("describe", "lanes", "parked"):
        queue(command, name)
