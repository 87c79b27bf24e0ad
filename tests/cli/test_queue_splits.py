"""`logbroker queue split` and `unsplit`, and what other commands say of split lanes."""

from __future__ import annotations

import uuid

import pytest

from logbroker.client.sync import Admin, Producer, QueueAdmin, Worker
from tests.cli.queues import Queue
from tests.waiting import until


@pytest.fixture
def topic(queue: Queue) -> str:
    """The name of an empty topic."""
    name = f"t-{uuid.uuid4()}"
    with Admin(queue.address) as admin:
        admin.create_topic(name, 2)
    return name


def fill(queue: Queue, topic: str, count: int = 20) -> None:
    with Producer(queue.address) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, b"hot", headers=[("part", b"%d" % (number % 4))])


def state(queue: Queue, name: str) -> str:
    return str(queue.json("explain", name, "hot")["state"])


def test_a_hot_lane_is_split_explained_and_joined(queue: Queue, topic: str, name: str) -> None:
    queue("create", name, "--topic", topic, "--max-attempts", "1")
    fill(queue, topic)
    told = queue("split", name, "hot", "--by", "header:part", "--into", "50")
    assert told == "split lane hot by header:part into 50 sub-lanes\n"
    until(lambda: state(queue, name) == "split")
    sub_lanes = [lane["key"] for lane in queue.json("explain", name, "hot")["sub_lanes"]]
    assert len(sub_lanes) == 4
    assert all(key.startswith("hot#") for key in sub_lanes)
    text = queue("explain", name, "hot")
    for word in (
        *sub_lanes,
        "4 of 4 sub-lanes with records",
        "its records are in sub-lanes",
        "waiting       20 records",
    ):
        assert word in text
    with Worker(queue.address, name) as worker, worker.session(sub_lanes[0].encode()) as session:
        next(iter(session))  # It counts as long as it is in flight.
        assert queue.json("explain", name, "hot")["waiting"] == 20
    until(lambda: state(queue, name) == "split")
    with Worker(queue.address, name) as worker:
        deliveries = iter(worker)
        next(deliveries).nack(reason="broken").result()
        for _ in range(15):
            next(deliveries).ack()
    [held] = queue.json("lanes", name, "--order", "held")["lanes"]
    assert held["key"] in sub_lanes
    [split] = queue.json("describe", name)["splits"]
    assert (split["key"], split["by"], split["into"], split["state"], split["waiting"], split["automatic"]) == (
        *("hot", "header:part", 50, "split"),
        5,
        False,
    )
    assert "header:part" in queue("describe", name)
    assert "name one of them" in queue("resume", name, "hot", exit_code=1)
    assert queue("unsplit", name, "hot") == "lane hot is one lane again when its sub-lanes are done\n"
    assert state(queue, name) == "joining"
    fill(queue, topic, 3)
    text = queue("explain", name, "hot")
    assert "its new records wait until its sub-lanes are done" in text
    assert "waiting       8 records" in text
    assert "the lane is joining" in queue("skip", name, "hot", exit_code=1)
    queue("drop", name, held["key"], "--yes")
    assert state(queue, name) == "ready"
    assert queue.json("describe", name)["splits"] == []


def test_json_repeats_what_was_asked_for(queue: Queue, topic: str, name: str) -> None:
    queue("create", name, "--topic", topic)
    assert queue.json("split", name, "aG90", "--base64", "--by", "none") == {"key": "hot", "by": "none", "into": 16}
    assert queue.json("unsplit", name, "hot") == {"key": "hot"}


@pytest.mark.parametrize(
    ("arguments", "exit_code", "why"),
    [
        (["hot", "--by", "part"], 1, "give header:NAME, key-suffix:SEPARATOR or none"),
        (["hot", "--by", "header:"], 1, "needs the name of a header"),
        (["hot", "--by", "key-suffix:/"], 1, "the same suffix: split by a header"),
        (["hot", "--by", "none:x"], 1, "needs no name"),
        (["hot", "--by", "none", "--into", "1"], 2, "2"),
        (["hot", "--by", "none", "--into", "1001"], 2, "1"),
        (["hot"], 2, "--by"),
        (["split", "--by", "none"], 1, "undo that split first"),
        (["split#0", "--by", "none"], 1, "is a sub-lane of 'split'"),
    ],
)
def test_a_wrong_split_is_told_and_changes_nothing(
    queue: Queue, topic: str, name: str, arguments: list[str], exit_code: int, why: str
) -> None:
    queue("create", name, "--topic", topic)
    queue("split", name, "split", "--by", "header:part")
    before = queue.json("describe", name)["splits"]
    assert why in queue("split", name, *arguments, exit_code=exit_code)
    assert queue.json("describe", name)["splits"] == before
    assert "is not split" in queue("unsplit", name, "hot", exit_code=1)


def test_settings_split_hot_lanes(queue: Queue, topic: str, name: str) -> None:
    queue("create", name, "--topic", topic, "--split-by", "header:part", "--split-into", "3", "--split-age", "0.1")
    assert "by header:part into 3, if over 50% for 0.1 s" in queue("describe", name)
    fill(queue, topic, 600)
    until(lambda: [each["automatic"] for each in queue.json("describe", name)["splits"]] == [True])
    with Worker(queue.address, name) as worker:
        for _, delivery in zip(range(600), worker, strict=False):
            delivery.ack()
    until(lambda: queue.json("describe", name)["splits"] == [])
    assert "orders by the record's key" in queue("alter", name, "--split-by", "key-suffix:/", exit_code=1)


def test_a_program_splits_and_joins(queue: Queue, topic: str, name: str) -> None:
    with QueueAdmin(queue.address) as admin:
        admin.create_queue(name, topic)
        fill(queue, topic, 4)
        admin.split_lane(name, b"hot", by="header:part", into=50)
        until(lambda: admin.explain_lane(name, b"hot").state == "split")
        assert len(admin.explain_lane(name, b"hot").sub_lanes) == 4
        [split] = admin.describe_queue(name).splits
        assert (split.key, split.by, split.into, split.waiting) == (b"hot", "header:part", 50, 4)
        admin.join_lane(name, b"hot")
        assert admin.describe_queue(name).splits[0].state == "joining"
