"""`logbroker topic`: what people and programs see. Run in this process, which is faster than one each."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import logbroker
from logbroker.cli.main import run
from logbroker.client.sync import Admin, Producer, QueueAdmin
from logbroker.embedded_broker import EmbeddedBroker


class Topic:
    """Runs `logbroker topic ...` against one broker."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.address = address
        self._capsys = capsys

    def __call__(self, *arguments: str, exit_code: int = 0) -> str:
        """Return standard output or, where the command is to fail, standard error."""
        assert run(["topic", *arguments, "--broker", self.address]) == exit_code
        out, err = self._capsys.readouterr()
        return err if exit_code else out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture
def topic(logbroker_session_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> Topic:
    return Topic(logbroker_session_broker.address, capsys)


def test_a_topic_from_birth_to_death(topic: Topic) -> None:
    created = topic(
        "create", "orders", "--partitions", "2", "--config", "retention.ms=5000", "--config", "durability=written"
    )
    assert created == "created topic orders (2 partitions)\n"
    assert "orders" in topic("list")
    assert topic("alter", "orders", "--partitions", "4", "--unset", "retention.ms", "--config", "segment.ms=7") != ""
    described = topic.json("describe", "orders")
    assert described["name"] == "orders"
    assert (described["partitions"], described["generation"]) == (4, 2)
    assert described["configs"]["durability"] == {"value": "written", "is_default": False}
    assert described["configs"]["segment.ms"] == {"value": "7", "is_default": False}
    assert described["configs"]["retention.ms"]["is_default"]
    assert [item["generation"] for item in described["generations"]] == [1, 2]
    assert described["generations"][1]["start_offsets"] == [0, 0]
    assert [item["partition"] for item in described["partition_details"]] == [0, 1, 2, 3]
    assert described["partition_details"][0]["high_watermark"] == 0
    text = topic("describe", "orders")
    for word in ("4 partitions", "high watermark", "retention.ms", "set by the topic", "generation"):
        assert word in text
    assert topic("delete", "orders", "--yes") == "deleted topic orders (4 partitions)\n"
    assert "orders" not in [info["name"] for info in topic.json("list")]


def test_a_deletion_is_asked_about(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic("create", "precious")
    for answer in ("", "n\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert "nothing was done" in topic("delete", "precious", exit_code=1)
    assert topic.json("describe", "precious")["name"] == "precious"


def test_a_deletion_names_the_queue_groups_that_go_with_the_topic(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic("create", "worked")
    topic("create", "other")

    def asked() -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        return topic("delete", "worked", exit_code=1)

    with QueueAdmin(topic.address) as queues:
        queues.create_queue("of-other", "other")
        assert "Delete topic worked and all its records? [y/N]" in asked()
        for number in range(12):
            queues.create_queue(f"w{number:02}", "worked")
        assert "records? Queue groups that are deleted with it: w00, w01, " in asked()
        assert "w09 and 2 more [y/N]" in asked()


def test_records_are_deleted(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic("create", "shortened", "--partitions", "2")
    with Producer(topic.address) as producer:
        for number in range(10):
            producer.send("shortened", b"%d" % number, partition=number % 2)
        producer.flush()

    def starts() -> list[int]:
        return [each["log_start_offset"] for each in topic.json("describe", "shortened")["partition_details"]]

    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert "nothing was done" in topic("delete-records", "shortened", exit_code=1)
    assert starts() == [0, 0]
    told = topic("delete-records", "shortened", "--partition", "1", "--before", "3", "--yes")
    assert told == "shortened-1 now begins at offset 3\n"
    assert starts() == [0, 3]
    assert "give an offset from 0 to 5" in topic(
        "delete-records", "shortened", "--partition", "1", "--before", "6", "--yes", exit_code=1
    )
    assert topic.json("delete-records", "shortened", "--yes") == {
        "name": "shortened",
        "partitions": [{"partition": 0, "log_start_offset": 5}, {"partition": 1, "log_start_offset": 5}],
    }
    assert starts() == [5, 5]
    assert "missing" in topic("delete-records", "missing", exit_code=1)


def test_a_deletion_of_records_names_the_queue_groups_that_lose_some(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic("create", "read", "--partitions", "2")
    with Producer(topic.address) as producer, QueueAdmin(topic.address) as queues:
        for number in range(6):
            producer.send("read", b"%d" % number, partition=number % 2)
        producer.flush()
        queues.create_queue("behind", "read")
        queues.create_queue("done", "read", start="latest")
        queues.create_queue("nearly-done", "read")
        queues.rewind("nearly-done", 2, partitions=[0])
        queues.rewind("nearly-done", "latest", partitions=[1])
        for number in range(11):
            queues.create_queue(f"z{number:02}", "read", start="latest")

        def asked(*options: str) -> str:
            monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
            return topic("delete-records", "read", *options, exit_code=1)

        losing = "Queue groups that have not done all of them: "
        assert (
            f"? {losing}behind, nearly-done. They lose the rest, except the records of stalled lanes [y/N]" in asked()
        )
        assert f"{losing}behind. They" in asked("--partition", "0", "--before", "2")
        assert f"{losing}behind, nearly-done. They" in asked("--partition", "0")
        assert f"{losing}behind. They" in asked("--partition", "1")
        queues.rewind("behind", "latest")
        queues.rewind("nearly-done", "latest")
        assert "Delete all records of topic read? [y/N]" in asked()
        for number in range(11):
            queues.rewind(f"z{number:02}", "earliest")
        assert "z08, z09 and 1 more. They" in asked()


def test_ctrl_c_at_a_question_exits_with_130(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(io.StringIO):
        def readline(self, size: int | None = -1) -> str:  # type: ignore[override]
            raise KeyboardInterrupt

    topic("create", "kept")
    monkeypatch.setattr("sys.stdin", Interrupted())
    assert "nothing was done" not in topic("delete", "kept", exit_code=130)
    assert topic.json("describe", "kept")["name"] == "kept"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("create", "a/b"), "a/b"),
        (("create", ""), "empty"),
        (("create", ".."), ".."),
        (("create", "a" * 250), "249"),
        (("create", "never-made", "--partitions", "1000000"), "partition"),
        (("create", "never-made", "--config", "colour=red"), "colour"),
        (("create", "never-made", "--config", "retention.ms=long"), "retention.ms"),
        (("describe", "nowhere"), "nowhere"),
        (("alter", "nowhere", "--partitions", "3"), "nowhere"),
        (("delete", "nowhere", "--yes"), "nowhere"),
    ],
)
def test_what_the_broker_refuses_is_one_line(topic: Topic, arguments: tuple[str, ...], complaint: str) -> None:
    error = topic(*arguments, exit_code=1)
    assert error.count("\n") == 1
    assert error.startswith("logbroker: ")
    assert complaint in error


@pytest.mark.parametrize(
    "arguments",
    [
        ("create",),
        ("create", "t", "--config", "novalue"),
        ("create", "t", "--config", "retention.ms=5", "--config", "retention.ms=6"),
        ("create", "t", "--partitions", "x"),
        ("alter", "t"),
        ("delete-records", "t", "--before", "3"),
        ("frob",),
    ],
)
def test_a_wrong_call_exits_with_2(topic: Topic, arguments: tuple[str, ...]) -> None:
    assert "Error: " in topic(*arguments, exit_code=2)


@pytest.mark.parametrize("address", ["nonsense", ":9192", "host:", "host:0", "host:65536"])
def test_an_address_that_cannot_be_is_a_wrong_call(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "list", "--broker", address]) == 2
    assert address in capsys.readouterr().err


def test_the_environment_names_the_broker(
    topic: Topic,
    logbroker_session_broker: EmbeddedBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic("create", "by-environment")
    monkeypatch.setenv("LOGBROKER_BROKER", logbroker_session_broker.address)
    assert run(["topic", "describe", "by-environment"]) == 0
    assert "by-environment" in capsys.readouterr().out


@pytest.mark.prove
def test_an_offline_partition_is_told_of_and_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    with logbroker.embedded() as broker:
        with Admin(broker.address) as admin:
            admin.create_topic("t", partitions=2)
        with Producer(broker.address) as producer:
            for partition in (0, 1):
                producer.send("t", b"x", partition=partition).result(20)
        broker.stop()
        (log,) = Path(broker.data_dir, "t-1").glob("*.log")
        log.unlink()
        broker.start()
        assert run(["topic", "describe", "t", "--broker", broker.address]) == 0
        described = capsys.readouterr().out
        assert run(["topic", "delete-records", "t", "--yes", "--json", "--broker", broker.address]) == 1
        deleted = capsys.readouterr()
    [done, failed] = json.loads(deleted.out)["partitions"]
    assert done == {"partition": 0, "log_start_offset": 1}
    assert failed["error"] in deleted.err
    lines = described.splitlines()
    below = next(index for index, line in enumerate(lines) if line.startswith("partition t-1 is offline: "))
    assert str(log) in lines[below]
    assert described.count("is offline") == 1
    assert "with the broker stopped" in lines[below]
    rows = [line.split() for line in lines[:below] if line.split()[:1] in (["0"], ["1"])]
    assert rows == [["0", "0", "1", "1", "0", "1", "69", "bytes"], ["1", "offline"]]
    assert max(map(len, lines[:below])) < 100
