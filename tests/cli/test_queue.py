"""`logbroker queue`: what people and programs see. Run in this process, which is faster than one each."""

from __future__ import annotations

import io
import itertools
import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from logbroker.cli.main import run
from logbroker.client.sync import Admin, Producer, Worker, WorkerDelivery
from logbroker.embedded_broker import EmbeddedBroker


class Queue:
    """Runs `logbroker queue ...` in this process against one broker."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.address = address
        self._capsys = capsys

    def __call__(self, *arguments: str, exit_code: int = 0) -> str:
        """Return standard output or, where the command is to fail, standard error."""
        assert run(["queue", *arguments, "--broker", self.address]) == exit_code
        out, err = self._capsys.readouterr()
        return err if exit_code else out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture
def address(logbroker_session_broker: EmbeddedBroker) -> str:
    return logbroker_session_broker.address


@pytest.fixture
def queue(address: str, capsys: pytest.CaptureFixture[str]) -> Queue:
    return Queue(address, capsys)


@pytest.fixture
def topic(address: str) -> str:
    """A topic of 2 partitions with the values 0 to 19 of 5 keys."""
    name = f"t-{uuid.uuid4()}"
    with Admin(address) as admin:
        admin.create_topic(name, 2)
    send(address, name, range(20))
    return name


def send(address: str, topic: str, numbers: range) -> None:
    with Producer(address) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, b"c%d" % (number % 5))


@pytest.fixture
def name() -> str:
    """Of a queue group that no other test uses."""
    return f"q-{uuid.uuid4()}"


def take(address: str, group: str, count: int) -> list[int]:
    """Ack so many."""
    with Worker(address, group) as worker:
        return [int(delivery.ack().value or b"") for delivery in itertools.islice(worker, count)]


def exhaust(queue: Queue, topic: str, group: str, policy: str, *options: str) -> None:
    """Let all of key c2 fail, and all others be done."""
    queue(
        "create",
        group,
        "--topic",
        topic,
        "--max-attempts",
        "2",
        "--backoff",
        "0,1,1",
        "--on-exhausted",
        policy,
        *options,
    )

    def handle(delivery: WorkerDelivery) -> None:
        if delivery.key == b"c2":
            delivery.nack(reason="no good")

    with Worker(queue.address, group) as worker, ThreadPoolExecutor(1) as pool:
        running = pool.submit(worker.run, handle)
        deadline = time.monotonic() + 30
        done = (16, 4) if policy == "dead-letter" else (16, 0)
        while True:
            counts = queue.json("describe", group)["counts"]
            stands = counts["blocked_lanes"] + counts["parked_lanes"]
            if (counts["acked"], counts["dead_lettered"]) == done and stands == (policy != "dead-letter"):
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        worker.stop()
        running.result()


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


def test_describe_tells_who_works(queue: Queue, topic: str, name: str) -> None:
    queue("create", name, "--topic", topic)
    with Worker(queue.address, name, client_name="desk-1", prefetch=3) as worker:
        next(iter(worker))
        document = queue.json("describe", name)
        text = queue("describe", name)
        lane = queue.json("explain", name, "c0")
    (described,) = document["workers"]
    assert (described["client_name"], described["connected"]) == ("desk-1", True)
    assert 1 <= document["counts"]["in_flight"] <= 3
    assert "desk-1" in text
    assert lane["state"] in ("in flight", "ready")


def test_explain_says_on_one_screen_why_a_key_stands(queue: Queue, topic: str, name: str) -> None:
    exhaust(queue, topic, name, "block")
    text = queue("explain", name, "c2")
    assert text.count("\n") <= 24
    for word in ("blocked", "2 of 2 failed", "4 records", "no good", "offset", "first failure", "ago", "resume it"):
        assert word in text
    lane = queue.json("explain", name, "c2")
    assert (lane["key"], lane["state"], lane["waiting"], lane["attempt"]) == ("c2", "blocked", 4, 3)
    assert lane["reasons"] == ["no good", "no good"]
    assert 0 <= lane["oldest_age_ms"] < 60_000
    assert queue.json("explain", name, "YzI=", "--base64")["state"] == "blocked"
    idle = queue.json("explain", name, "c1")
    assert (idle["state"], idle["waiting"], idle["offset"]) == ("idle", 0, None)
    assert "nothing of it waits" in queue("explain", name, "c1")


def test_lanes_shows_the_hottest_and_the_oldest(queue: Queue, topic: str, name: str) -> None:
    queue("create", name, "--topic", topic)
    with Producer(queue.address) as producer:
        for _ in range(30):
            producer.send(topic, b"", b"c3")
    with Worker(queue.address, name, prefetch=1) as worker:
        next(iter(worker))  # All is scanned now.
        deadline = time.monotonic() + 20
        while queue.json("describe", name)["counts"]["unscanned"]:
            assert time.monotonic() < deadline
        both = queue.json("lanes", name, "--top", "2")
        assert set(both) == {"hottest", "oldest"}
        assert both["hottest"]["total"] == 5
        assert (both["hottest"]["lanes"][0]["key"], both["hottest"]["lanes"][0]["waiting"]) == ("c3", 34)
        assert len(both["oldest"]["lanes"]) == 2
        assert queue.json("lanes", name, "--order", "held") == {"total": 0, "lanes": []}
        text = queue("lanes", name)
    for word in ("hottest", "oldest", "c3", "34"):
        assert word in text


@pytest.mark.parametrize("policy", ["block", "park"])
def test_a_lane_that_stands_is_resumed_skipped_and_dropped(queue: Queue, topic: str, name: str, policy: str) -> None:
    exhaust(queue, topic, name, policy)
    held = queue.json("parked", name)
    assert held["total"] == 1
    (lane,) = held["lanes"]
    assert (lane["key"], lane["state"]) == ("c2", "blocked" if policy == "block" else "parked")
    assert "c2" in queue("parked", name)
    assert queue("skip", name, "c2") == "skipped the first record of lane c2: 1 record done\n"
    assert queue.json("explain", name, "c2")["waiting"] == 3
    assert take(queue.address, name, 3) == [7, 12, 17]
    assert queue("parked", name) == "no lane is blocked or parked\n"
    error = queue("resume", name, "c2", "nothing", exit_code=1)
    assert error.count("\n") == 1
    assert "1 more failed" in error


def test_describe_shows_alarms_and_counts_them(queue: Queue, topic: str, name: str) -> None:
    exhaust(queue, topic, name, "park", "--max-parked", "3")
    document = queue.json("describe", name)
    assert [alarm["kind"] for alarm in document["alarms"]] == ["parked"]
    assert document["counts"]["alarms_raised"] == 1
    assert "ALARM parked: 4 records are parked" in queue("describe", name)


def test_all_lanes_that_stand_are_resumed(queue: Queue, topic: str, name: str) -> None:
    exhaust(queue, topic, name, "park")
    assert queue.json("resume", name, "--all") == [{"key": "c2"}]
    assert queue("resume", name, "--all") == "no lane is blocked or parked\n"
    assert take(queue.address, name, 4) == [2, 7, 12, 17]


def test_a_lane_is_dropped_with_all_that_is_there(
    queue: Queue, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exhaust(queue, topic, name, "block")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert "nothing was done" in queue("drop", name, "c2", exit_code=1)
    assert queue.json("drop", name, "c2", "--yes") == [{"key": "c2", "records_done": 4}]
    send(queue.address, topic, range(22, 23))
    assert take(queue.address, name, 1) == [22]


def test_the_head_of_a_lane_is_replaced(queue: Queue, topic: str, name: str) -> None:
    exhaust(queue, topic, name, "block")
    assert "replaced" in queue("replace", name, "c2", "--value", "mended", "--header", "by=me")
    with Worker(queue.address, name) as worker:
        for delivery in worker:
            assert (delivery.value, delivery.key, delivery.headers) == (b"mended", b"c2", (("by", b"me"),))
            delivery.ack().result()
            break


def test_dead_letters_go_back_in_their_order(queue: Queue, topic: str, name: str) -> None:
    exhaust(queue, topic, name, "dead-letter")
    planned = queue.json("redrive", name, "--dry-run")
    assert planned == {"records": 4, "keys": 1, "more": False, "dry_run": True}
    assert "would be" in queue("redrive", name, "--dry-run")
    assert queue("redrive", name, "--key", "c2") == "4 dead letters sent back\n"
    assert take(queue.address, name, 4) == [2, 7, 12, 17]
    assert queue.json("redrive", name)["records"] == 0


def test_a_group_is_rewound(queue: Queue, topic: str, name: str) -> None:
    queue("create", name, "--topic", topic)
    assert sorted(take(queue.address, name, 20)) == list(range(20))
    before = {
        row["partition"]: row["floor_before"] for row in queue.json("rewind", name, "--to", "earliest", "--dry-run")
    }
    assert sum(before.values()) == 20
    assert "nothing was changed" in queue("rewind", name, "--to", "earliest", "--dry-run")
    rewound = queue.json("rewind", name, "--to", str(before[0] - 1), "--partition", "0", "--yes")
    assert rewound == [{"partition": 0, "floor_before": before[0], "floor": before[0] - 1}]
    assert len(take(queue.address, name, 1)) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("describe", "nowhere"), "nowhere"),
        (("delete", "nowhere", "--yes"), "nowhere"),
        (("explain", "nowhere", "k"), "nowhere"),
        (("alter", "nowhere", "--lease", "5"), "nowhere"),
        (("create", "a b", "--topic", "TOPIC"), "a b"),
        (("create", "NAME", "--topic", "no-topic"), "no-topic"),
        (("create", "NAME", "--topic", "TOPIC", "--lease", "0"), "lease_seconds"),
        (("create", "NAME", "--topic", "TOPIC", "--lease", "31536000"), "lease_seconds"),
        (("create", "NAME", "--topic", "TOPIC", "--ordering", "single"), "partition"),
        (("create", "NAME", "--topic", "TOPIC", "--backoff", "9,2,1"), "cap"),
        (("create", "NAME", "--topic", "TOPIC", "--priority", "weighted", "--weights", "hot=0"), "weights are 0"),
        (("create", "NAME", "--topic", "TOPIC", "--priority", "weighted", "--weights", "warmer=1"), "warmer"),
        (("create", "NAME", "--topic", "TOPIC", "--priority", "strict", "--age-seconds", "5"), "set ageing"),
        (("create", "NAME", "--topic", "TOPIC", "--priority", "ageing", "--age-seconds", "0"), "age_seconds is 0"),
        (("work", "nowhere", "--print"), "nowhere"),
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
