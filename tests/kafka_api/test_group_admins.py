"""Admin clients, unchanged, list, describe, reset and delete groups."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # It reads its schemas in an old way.
    import kafka

import logbroker
from logbroker.client.sync import Admin, Producer, TopicPartition
from logbroker.embedded_broker import EmbeddedBroker
from tests.kafka_api.clients import apart
from tests.kafka_api.test_groups import RawMember, members

SECONDS = 30.0
ENDED, MOVING = "ended", "moving"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """One with a group that has a member and a group that has none; both have committed in the topic `t`."""
    with logbroker.embedded(kafka=True, group_initial_rebalance_delay_seconds=0) as broker:
        with Admin(broker.address) as admin, Producer(broker.address) as producer:
            admin.create_topic("t", partitions=2)
            for number in range(10):
                producer.send("t", b"%d" % number, partition=0)
            producer.flush()
        yield broker


@pytest.fixture(autouse=True)
def groups(broker: EmbeddedBroker) -> Iterator[None]:
    with members(broker, MOVING, None) as (member,), members(broker, ENDED, None) as (other,):
        assert isinstance(member, RawMember)
        member.start()
        assert member.commit("t", 5, committed_metadata="m") == 0
        assert other.commit("t", 7) == 0
        yield
        member.leave()


def committed(broker: EmbeddedBroker, group: str) -> int:
    with Admin(broker.address) as admin:
        return admin.fetch_offsets(group)[TopicPartition("t", 0)].offset


def test_confluent_kafka(broker: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka_address})
    listed = {each.group_id: each for each in admin.list_consumer_groups(request_timeout=SECONDS).result().valid}
    assert {MOVING, ENDED} <= set(listed)
    assert (listed[MOVING].state.name, listed[ENDED].state.name) == ("STABLE", "EMPTY")
    described = admin.describe_consumer_groups([MOVING, ENDED], request_timeout=SECONDS)
    moving = described[MOVING].result()
    assert (moving.state.name, moving.partition_assignor) == ("STABLE", "range")
    (member,) = moving.members
    assert (member.client_id, member.host) == ("raw", "/127.0.0.1")
    assert [(each.topic, each.partition) for each in member.assignment.topic_partitions] == [("t", 0), ("t", 1)]
    assert described[ENDED].result().state.name == "EMPTY"

    place = confluent_kafka.TopicPartition("t", 0)
    asked = [confluent_kafka.ConsumerGroupTopicPartitions(MOVING, [place])]
    found = admin.list_consumer_group_offsets(asked, request_timeout=SECONDS)[MOVING].result().topic_partitions
    assert [each.offset for each in found] == [5]
    change = confluent_kafka.ConsumerGroupTopicPartitions(ENDED, [confluent_kafka.TopicPartition("t", 0, 2)])
    admin.alter_consumer_group_offsets([change], request_timeout=SECONDS)[ENDED].result()
    assert committed(broker, ENDED) == 2
    change = confluent_kafka.ConsumerGroupTopicPartitions(MOVING, [confluent_kafka.TopicPartition("t", 0, 2)])
    (refused,) = admin.alter_consumer_group_offsets([change], request_timeout=SECONDS)[MOVING].result().topic_partitions
    assert refused.error.name() == "UNKNOWN_MEMBER_ID"
    assert committed(broker, MOVING) == 5

    deleted = admin.delete_consumer_groups([MOVING, ENDED], request_timeout=SECONDS)
    with pytest.raises(confluent_kafka.KafkaException, match="not empty"):
        deleted[MOVING].result()
    deleted[ENDED].result()
    with Admin(broker.address) as own:
        assert [each.id for each in own.list_groups()] == [MOVING]


def _with_kafka_python(address: str) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=address)
    try:
        listed = {each["group_id"]: each for each in admin.list_groups()}
        assert {MOVING, ENDED} <= set(listed)
        assert listed[MOVING]["group_state"] == "Stable"
        described = admin.describe_groups([MOVING, ENDED])
        (member,) = described[MOVING]["members"]
        assert (described[MOVING]["group_state"], member["client_id"]) == ("Stable", "raw")
        assert described[ENDED]["group_state"] == "Empty"
        place = kafka.TopicPartition("t", 0)
        (found,) = admin.list_group_offsets(MOVING)[MOVING].values()
        assert (found.offset, found.metadata) == (5, "m")
        admin.alter_group_offsets(ENDED, {place: kafka.OffsetAndMetadata(3, "", -1)})
        assert [each.offset for each in admin.list_group_offsets(ENDED)[ENDED].values()] == [3]
        admin.delete_group_offsets(ENDED, [place])
        assert not admin.list_group_offsets(ENDED)[ENDED]
        admin.delete_groups([ENDED])
        assert ENDED not in {each["group_id"] for each in admin.list_groups()}
    finally:
        admin.close()


def test_kafka_python(broker: EmbeddedBroker) -> None:
    apart(_with_kafka_python, broker.kafka_address)
