"""Real clients, unchanged: what one of them writes, the others read, and so do clients of gRPC."""

from __future__ import annotations

import time

import confluent_kafka
import pytest

from logbroker.client.sync import Admin, Consumer, Producer
from logbroker.embedded_broker import EmbeddedBroker, embedded
from tests.kafka_api.clients import CLIENTS, Client, Found

PARTITIONS = 3
each_client = pytest.mark.parametrize("client", CLIENTS, ids=repr)


def records(count: int, mark: str) -> list[tuple[bytes | None, bytes]]:
    """Return records of ten keys, numbered."""
    return [(b"key-%d" % (number % 10), b"%s-%d" % (mark.encode(), number)) for number in range(count)]


def check(found: list[Found], sent: list[tuple[bytes | None, bytes]]) -> None:
    """Each record came once, those of a key in their order."""
    assert sorted(each.value for each in found) == sorted(value for _, value in sent)
    for key in {key for key, _ in sent}:
        assert [each.value for each in found if each.key == key] == [value for of, value in sent if of == key]
        assert len({each.partition for each in found if each.key == key}) == 1


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(
    ("client", "codec"), [(client, codec) for client in CLIENTS for codec in client.codecs], ids=repr
)
def test_each_codec(broker: EmbeddedBroker, topic: str, client: Client, codec: str) -> None:
    sent = records(500, codec)
    client.produce(broker.kafka_address, topic, sent, codec=codec)
    check(client.read(broker.kafka_address, topic, PARTITIONS, "earliest", len(sent)), sent)


@pytest.mark.prove(keep=1)
@each_client
@pytest.mark.parametrize(("acks", "idempotent"), [(0, False), (1, False), (-1, False), (-1, True)])
def test_each_kind_of_acks(broker: EmbeddedBroker, topic: str, client: Client, acks: int, idempotent: bool) -> None:
    sent = records(500, "acks")
    client.produce(broker.kafka_address, topic, sent, acks=acks, idempotent=idempotent)
    check(client.read(broker.kafka_address, topic, PARTITIONS, "earliest", len(sent)), sent)


@pytest.mark.prove(keep=1)
@each_client
def test_reading_from_a_time(broker: EmbeddedBroker, topic: str, client: Client) -> None:
    before, after = records(100, "before"), records(100, "after")
    client.produce(broker.kafka_address, topic, before)
    time.sleep(0.02)
    now_ms = int(time.time() * 1000)
    time.sleep(0.02)
    client.produce(broker.kafka_address, topic, after)
    check(client.read(broker.kafka_address, topic, PARTITIONS, now_ms, len(after)), after)


@pytest.mark.prove(keep=1)
@each_client
def test_reading_from_the_end(broker: EmbeddedBroker, topic: str, client: Client) -> None:
    client.produce(broker.kafka_address, topic, records(100, "before"))
    assert client.read(broker.kafka_address, topic, PARTITIONS, "latest", 0) == []


@pytest.mark.prove(keep=1)
@each_client
def test_both_listeners_serve_the_same_log(broker: EmbeddedBroker, topic: str, client: Client) -> None:
    by_kafka, by_grpc = records(200, "kafka"), records(200, "grpc")
    client.produce(broker.kafka_address, topic, by_kafka)
    with Producer(broker.address) as producer:
        for key, value in by_grpc:
            producer.send(topic, value, key=key)
        producer.flush()
    both = by_kafka + by_grpc
    found = client.read(broker.kafka_address, topic, PARTITIONS, "earliest", len(both))
    check(found, both)
    read: list[Found] = []
    with Consumer(broker.address) as consumer:
        consumer.assign(topic, start="earliest")
        for each in consumer:
            read.append(Found(each.partition, each.offset, each.key, each.value or b""))
            if len(read) == len(both):
                break
    assert sorted(read, key=place) == sorted(found, key=place)


def place(found: Found) -> tuple[int, int]:
    return found.partition, found.offset


@pytest.mark.parametrize("partitions", [1, 16])
def test_a_producer_that_partitions_have_forgotten_goes_on(partitions: int) -> None:
    """The client raises its one epoch with the refusal of each partition, and keeps its id."""
    with embedded(kafka=True, max_producers=2 * partitions + 1) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic("t", partitions)
        confluent = confluent_kafka.Producer({"bootstrap.servers": broker.kafka_address, "enable.idempotence": True})
        offsets: list[int] = []
        numbers = range(3 * partitions)

        def send() -> None:
            for number in numbers:
                confluent.produce(
                    "t",
                    b"%d" % number,
                    partition=number % partitions,
                    on_delivery=lambda error, told: offsets.append(-1 if error else told.offset()),
                )
            assert confluent.flush(20) == 0

        send()
        for _ in range(3):
            for _ in range(4):
                with Producer(broker.address) as other:
                    for partition in range(partitions):
                        other.send_and_wait("t", b"other", partition=partition)
            send()
        assert sorted(offsets) == sorted(
            offset for offset in (0, 1, 2, 7, 8, 9, 14, 15, 16, 21, 22, 23) for _ in range(partitions)
        )


def test_confluent_kafka_lists_all_topics(broker: EmbeddedBroker, topic: str) -> None:
    """It sends more bytes than the request has, which Kafka ignores."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.kafka_address})
    assert topic in producer.list_topics(timeout=20).topics


@pytest.mark.prove
def test_confluent_kafka_subscribes_by_a_regular_expression_in_the_classic_protocol(
    broker: EmbeddedBroker, topic: str
) -> None:
    """It asks for all topics, and matches them itself."""
    with Producer(broker.address) as sending:
        sending.send_and_wait(topic, b"x")
    settings = {"bootstrap.servers": broker.kafka_address, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.subscribe([f"^{topic}$"])
        deadline = time.monotonic() + 60
        while (message := consumer.poll(0.5)) is None or message.error():
            assert time.monotonic() < deadline
        assert message.value() == b"x"
    finally:
        consumer.close()
