"""Kafka clients of other languages, unchanged, with the listener: what they write and read, and what a kill leaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import logbroker
from logbroker.client.sync import Admin, Consumer, Producer
from logbroker.embedded_broker import EmbeddedBroker
from tests.interop.kafka.stories import ALL, produce_through_stops
from tests.interop.kafka.toolchains import MissingToolError
from tests.kafka_api.clients import Found, Keyed
from tests.kafka_api.test_clients import PARTITIONS, check, place, records

each_client = pytest.mark.parametrize("client", ALL, ids=repr)
_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with logbroker.embedded(kafka=True, group_initial_rebalance_delay_seconds=0) as broker:
        yield broker


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"topic-{next(_numbers)}"
    with Admin(broker.address) as admin:
        admin.create_topic(name, partitions=PARTITIONS)
    return name


@pytest.fixture(autouse=True)
def _skips(request: pytest.FixtureRequest) -> None:
    client: Any = request.getfixturevalue("client")
    try:
        client.command  # noqa: B018
    except MissingToolError as error:
        pytest.skip(str(error))


def read_by_grpc(broker: EmbeddedBroker, topic: str, number: int) -> list[Found]:
    found: list[Found] = []
    with Consumer(broker.address) as consumer:
        consumer.assign(topic, start="earliest")
        for each in consumer:
            found.append(Found(each.partition, each.offset, each.key, each.value or b""))
            if len(found) == number:
                break
    return found


def write_by_grpc(broker: EmbeddedBroker, topic: str, sent: Iterable[Keyed], codec: str = "none") -> None:
    with Producer(broker.address, compression=codec) as producer:
        for key, value in sent:
            producer.send(topic, value, key=key)
        producer.flush()


@pytest.mark.prove
@each_client
def test_what_one_writes_the_others_read(broker: EmbeddedBroker, topic: str, client: Any) -> None:
    """With every codec and kind of acks, by both listeners."""
    ways: list[dict[str, Any]] = [{"codec": codec} for codec in client.codecs]
    ways += [{"acks": 0}, {"acks": 1}, {"idempotent": True}]
    sent: list[Keyed] = []
    placed: dict[bytes, tuple[int, int]] = {}
    for way in ways:
        part = records(200, f"{client}-{way}".replace(" ", ""))
        acknowledged = client.produce(broker.kafka_address, topic, part, **way)
        assert [number for number, _, _ in sorted(acknowledged)] == list(range(len(part))), way
        if way.get("acks") != 0:  # Some make up an offset.
            told = [(part[number][1], (partition, offset)) for number, partition, offset in acknowledged]
            placed |= {value: where for value, where in told if where[1] >= 0}
        sent += part
        if way.get("codec") in client.reads:
            by_grpc = records(200, f"grpc-{way}".replace(" ", ""))
            write_by_grpc(broker, topic, by_grpc, way["codec"])
            sent += by_grpc
    found = client.read(broker.kafka_address, topic, PARTITIONS, "earliest", len(sent))
    check(found, sent)
    assert placed.items() <= {each.value: place(each) for each in found}.items()
    assert sorted(read_by_grpc(broker, topic, len(sent)), key=place) == sorted(found, key=place)


@pytest.mark.prove
@each_client
def test_reading_from_a_time_and_from_the_end(broker: EmbeddedBroker, topic: str, client: Any) -> None:
    before, after = records(100, "before"), records(100, "after")
    write_by_grpc(broker, topic, before)
    time.sleep(0.02)
    now_ms = int(time.time() * 1000)
    time.sleep(0.02)
    write_by_grpc(broker, topic, after)
    check(client.read(broker.kafka_address, topic, PARTITIONS, now_ms, len(after)), after)
    has_read = threading.Event()

    def write() -> None:
        """Write until the client has seen something: nobody knows when it stands at the end."""
        for number in count():
            write_by_grpc(broker, topic, records(10, f"later-{number}"))
            if has_read.wait(0.1):
                return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        found = client.read(broker.kafka_address, topic, PARTITIONS, "latest", 5)
    finally:
        has_read.set()
        thread.join()
    assert {each.value[:6] for each in found} == {b"later-"}


@pytest.mark.prove
@each_client
def test_a_restart_and_kills_lose_and_repeat_nothing(client: Any, tmp_path: Path) -> None:
    produce_through_stops(client, tmp_path, ("stop", "kill", "kill"))
