"""A broker that is killed in the middle: nothing that was acknowledged is lost, nothing of an idempotent producer comes
twice, and the records of a key keep their order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import logbroker
from logbroker.client.sync import Admin
from logbroker.embedded_broker import EmbeddedBroker
from tests.kafka_api.clients import CLIENTS, Client
from tests.kafka_api.test_clients import PARTITIONS, check, records
from tests.waiting import until

RECORDS = 30_000
KILLS = 3


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with logbroker.embedded(kafka=True) as broker:
        yield broker


def written(broker: EmbeddedBroker) -> int:
    with Admin(broker.address) as admin:
        return sum(each.high_watermark for each in admin.describe_topic("t").partitions)


@pytest.mark.prove
@pytest.mark.parametrize("client", CLIENTS, ids=repr)
def test_a_kill_loses_and_repeats_nothing(broker: EmbeddedBroker, client: Client) -> None:
    with Admin(broker.address) as admin:
        admin.create_topic("t", partitions=PARTITIONS)
    sent = records(RECORDS, "kill")
    failures: list[BaseException] = []

    def produce() -> None:
        try:
            client.produce(broker.kafka_address, "t", sent, idempotent=True)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=produce)
    thread.start()
    kills = 0
    while kills < KILLS and thread.is_alive():
        before = written(broker)
        until(lambda before=before: written(broker) > before or not thread.is_alive())  # type: ignore[misc]
        broker.kill()
        kills += 1
        broker.start()
    thread.join()
    assert failures == []
    assert kills
    check(client.read(broker.kafka_address, "t", PARTITIONS, "earliest", len(sent)), sent)
    assert written(broker) == len(sent)
