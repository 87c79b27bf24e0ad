"""Groups of both kinds that are made, or go on, while a partition of their topic is offline."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logbroker.client.admin.queue_admin import QueueStart
from logbroker.client.sync import Admin, Consumer, Producer, QueueAdmin, Worker
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.errors import PartitionOfflineError
from logbroker.types import TopicPartition

RECORDS = 4


def send(address: str, partition: int, prefix: str) -> None:
    with Producer(address) as producer:
        for number in range(RECORDS):
            producer.send("t", f"{prefix}{number}".encode(), partition=partition)
        producer.flush()


def values(prefix: str) -> set[bytes]:
    return {f"{prefix}{number}".encode() for number in range(RECORDS)}


def take(address: str, group: str, count: int) -> set[bytes]:
    with Worker(address, group) as worker:
        return {delivery.ack().value or b"" for delivery in itertools.islice(worker, count)}


@contextmanager
def offline(data_dir: Path) -> Iterator[EmbeddedBroker]:
    """A broker whose partition 1 of topic t is away."""
    with embedded(data_dir) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic("t", 2)
        for partition in range(2):
            send(broker.address, partition, f"{partition}:")
    path = data_dir / "t-1"
    path.rename(data_dir.parent / "kept")
    path.touch()
    with embedded(data_dir) as broker:
        yield broker
    path.unlink()
    (data_dir.parent / "kept").rename(path)


@pytest.mark.prove
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_queue_group_begins_in_a_partition_when_that_is_back(tmp_path: Path, start: QueueStart) -> None:
    data_dir = tmp_path / "data"
    old = start == "earliest"
    with offline(data_dir) as broker, QueueAdmin(broker.address) as queues:
        queues.create_queue("q", "t", start=start)
        send(broker.address, 0, "new ")
        expected = values("new ") | (values("0:") if old else set())
        assert take(broker.address, "q", len(expected)) == expected
        [served, away] = queues.describe_queue("q").partitions
        assert served.error is None
        assert isinstance(away.error, PartitionOfflineError)
        assert "t-1" in str(away.error)
        assert away.floor == away.done == (0 if old else -1)
    with embedded(data_dir) as broker, QueueAdmin(broker.address) as queues:
        send(broker.address, 1, "later ")
        expected = values("later ") | (values("1:") if old else set())
        assert take(broker.address, "q", len(expected)) == expected
        assert [each.error for each in queues.describe_queue("q").partitions] == [None, None]
        assert queues.describe_queue("q").counts.unscanned == 0


def test_a_time_cannot_be_looked_up_in_it(tmp_path: Path) -> None:
    with offline(tmp_path / "data") as broker, QueueAdmin(broker.address) as queues:
        with pytest.raises(PartitionOfflineError, match=r"t-1 is offline.*begin at the earliest"):
            queues.create_queue("q", "t", start=datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        queues.create_queue("q", "t")


@pytest.mark.prove
def test_a_consumer_group_reads_the_others(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    away = TopicPartition("t", 1)
    with (
        offline(data_dir) as broker,
        Consumer(broker.address, group="g", start="earliest", auto_commit=False) as consumer,
    ):
        consumer.subscribe("t")
        found: set[bytes] = set()
        told = None
        for _ in range(200):
            try:
                found |= {record.value or b"" for record in consumer.poll(timeout_seconds=0.1)}
            except PartitionOfflineError as error:
                told = error
            if told is not None and found == values("0:"):
                break
        assert found == values("0:")
        assert told is not None
        assert "t-1" in str(told)
        assert away in told.partitions
        consumer.commit()
    with embedded(data_dir) as broker, Consumer(broker.address, group="g", start="earliest") as consumer:
        consumer.subscribe("t")
        found = set()
        while found < values("1:"):
            found |= {record.value or b"" for record in consumer.poll(timeout_seconds=5)}
        assert found == values("1:")
