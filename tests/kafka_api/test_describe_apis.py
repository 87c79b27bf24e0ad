"""Topics in pages, the data directory, and producers, as admin clients see them: every version, spoken by hand."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

import logbroker
from logbroker.client.sync import Admin
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.kafka_api.apis.table import TABLE
from logbroker.kafka_wire.apis import (
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TOPIC_PARTITIONS,
    INIT_PRODUCER_ID,
    METADATA,
)
from logbroker.kafka_wire.messages import describe_log_dirs as dl
from logbroker.kafka_wire.messages import describe_producers as dp
from logbroker.kafka_wire.messages import describe_topic_partitions as dtp
from logbroker.kafka_wire.messages.init_producer_id import InitProducerIdRequest
from logbroker.kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from logbroker.record.codec import NewRecord, encode_batch
from tests.kafka_api.raw_client import RawClient, batch_of, produce

UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_REQUEST = 3, 17, 42
TOPICS = {"a": 3, "b": 1, "c": 4}


@pytest.fixture(scope="module")
def few() -> Iterator[EmbeddedBroker]:
    """A broker with these topics and no others."""
    with logbroker.embedded(kafka=True) as broker:
        with Admin(broker.address) as admin:
            for name, partitions in TOPICS.items():
                admin.create_topic(name, partitions=partitions)
        yield broker


# --- DescribeTopicPartitions ---


def page(
    client: RawClient, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None
) -> dtp.DescribeTopicPartitionsResponse:
    request = dtp.DescribeTopicPartitionsRequest(
        topics=[dtp.DescribeTopicPartitionsRequestTopic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else dtp.DescribeTopicPartitionsRequestCursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer: dtp.DescribeTopicPartitionsResponse = client.call(DESCRIBE_TOPIC_PARTITIONS, 0, request)
    return answer


def all_pages(client: RawClient, names: list[str], limit: int) -> list[list[tuple[str | None, int]]]:
    pages, cursor = [], None
    while True:
        found = page(client, names, limit, cursor)
        pages.append([(topic.name, each.partition_index) for topic in found.topics for each in topic.partitions])
        if found.next_cursor is None:
            return pages
        cursor = found.next_cursor.topic_name, found.next_cursor.partition_index


@pytest.mark.parametrize("names", [[], ["c", "a", "b", "a"]])
@pytest.mark.parametrize("limit", [-1, 0, 1, 2, 3, 4, 7, 8, 2**31 - 1])
def test_pages_are_full_and_hold_everything(few: EmbeddedBroker, names: list[str], limit: int) -> None:
    everything = [(name, number) for name, count in TOPICS.items() for number in range(count)]
    with RawClient(few.kafka_address) as client:
        pages = all_pages(client, names, limit)
    assert [place for each in pages for place in each] == everything
    assert {len(each) for each in pages[:-1]} <= {max(limit, 1)}


def test_partitions_are_described_as_in_metadata(few: EmbeddedBroker) -> None:
    with RawClient(few.kafka_address) as client:
        [found] = page(client, ["a"]).topics
        [known] = client.call(METADATA, 13, MetadataRequest(topics=[MetadataRequestTopic(name="a")])).topics
    assert (found.error_code, found.topic_id, found.is_internal) == (0, known.topic_id, False)
    assert [(each.leader_id, each.leader_epoch, each.replica_nodes, each.isr_nodes) for each in found.partitions] == [
        (each.leader_id, each.leader_epoch, each.replica_nodes, each.isr_nodes) for each in known.partitions
    ]
    assert [each.eligible_leader_replicas for each in found.partitions] == [[], [], []]


def test_topics_that_do_not_exist(few: EmbeddedBroker) -> None:
    with RawClient(few.kafka_address) as client:
        found = page(client, ["b", "missing", "no topic name!"]).topics
        assert [(each.name, each.error_code) for each in found] == [
            ("b", 0),
            ("missing", UNKNOWN_TOPIC),
            ("no topic name!", INVALID_TOPIC),
        ]
        gone = page(client, [], cursor=("bb", 5))
        assert [each.name for each in gone.topics] == ["c"], "the topic of the cursor is gone meanwhile"
        shrunk = page(client, [], cursor=("b", 5))
        assert [(each.name, len(each.partitions)) for each in shrunk.topics] == [("b", 0), ("c", 4)]
        assert [each.error_code for each in page(client, [], cursor=("b", -1)).topics] == [INVALID_REQUEST]
        assert page(client, [], cursor=("d", 0)).topics == []


# --- DescribeLogDirs ---


@pytest.mark.parametrize("version", list(TABLE[DESCRIBE_LOG_DIRS.key].versions))
def test_the_data_directory(few: EmbeddedBroker, version: int) -> None:
    def found(*topics: tuple[str, list[int]], everything: bool = False) -> dict[str, dict[int, int]]:
        wanted = [
            dl.DescribeLogDirsRequestDescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in topics
        ]
        request = dl.DescribeLogDirsRequest(topics=None if everything else wanted)
        answer = client.call(DESCRIBE_LOG_DIRS, version, request)
        [directory] = answer.results
        assert (answer.error_code, directory.error_code, directory.log_dir) == (0, 0, str(few.data_dir))
        if version >= 4:
            assert directory.total_bytes == shutil.disk_usage(few.data_dir).total
            assert 0 < directory.usable_bytes < directory.total_bytes
        for topic in directory.topics:
            assert all((each.offset_lag, each.is_future_key) == (0, False) for each in topic.partitions)
        return {
            topic.name: {each.partition_index: each.partition_size for each in topic.partitions}
            for topic in directory.topics
        }

    batch = batch_of(b"x" * 1000)
    with RawClient(few.kafka_address) as client:
        before = found(everything=True)
        assert {name: len(sizes) for name, sizes in before.items()} == TOPICS
        produce(client, "a", 1, batch)
        size = before["a"][1] + len(batch)
        assert found(everything=True) == before | {"a": before["a"] | {1: size}}
        assert found(("a", [1, 7, -1, 1]), ("missing", [0]), ("a", [2])) == {"a": {1: size, 2: 0}}
        assert found() == {}


# --- DescribeProducers ---


def producers_of(client: RawClient, *wanted: tuple[str, list[int]]) -> dict[tuple[str, int], Any]:
    topics = [dp.DescribeProducersRequestTopic(name=name, partition_indexes=numbers) for name, numbers in wanted]
    answer = client.call(DESCRIBE_PRODUCERS, 0, dp.DescribeProducersRequest(topics=topics))
    return {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}


def test_producers_and_their_last_batches(broker: EmbeddedBroker, topic: str) -> None:
    def state(partition: int) -> list[tuple[int, int, int, int]]:
        found = producers_of(client, (topic, [partition, partition]))[topic, partition]
        assert found.error_code == 0
        for each in found.active_producers:
            assert (each.coordinator_epoch, each.current_txn_start_offset) == (-1, -1)
        return [
            (each.producer_id, each.producer_epoch, each.last_sequence, each.last_timestamp)
            for each in found.active_producers
        ]

    def send(producer: Any, sequence: int, *times: int, partition: int = 0) -> None:
        batch = encode_batch(
            [NewRecord(b"a", timestamp_ms=each) for each in times],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
        )
        assert produce(client, topic, partition, batch).error_code == 0

    with RawClient(broker.kafka_address) as client:
        first, second = (
            client.call(INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None)) for _ in range(2)
        )
        assert state(0) == []
        produce(client, topic, 0, batch_of(b"by no producer"))
        send(first, 0, 1_000, 3_000, 2_000)
        send(second, 0, 5_000)
        send(first, 3, 4_000)
        expected = [(second.producer_id, 0, 0, 5_000), (first.producer_id, 0, 3, 4_000)]
        assert state(0) == expected
        assert state(1) == []
        found = producers_of(client, (topic, [7, -1]), ("missing", [0]))
        assert {each.error_code for each in found.values()} == {UNKNOWN_TOPIC}
        assert all(each.error_message for each in found.values())
    for stop in (broker.stop, broker.kill):
        stop()
        broker.start()
        with RawClient(broker.kafka_address) as client:
            assert sorted(state(0)) == sorted(expected), "after a restart, and after recovery"


def test_the_time_of_a_producer_where_the_broker_stamps(broker: EmbeddedBroker, topic: str) -> None:
    with Admin(broker.address) as admin:
        admin.alter_topic(topic, set_configs={"message.timestamp.type": "LogAppendTime"})
    with RawClient(broker.kafka_address) as client:
        producer = client.call(INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))
        batch = encode_batch(
            [NewRecord(b"a", timestamp_ms=1_000)], producer_id=producer.producer_id, producer_epoch=0, base_sequence=0
        )
        appended = produce(client, topic, 0, batch)
        [found] = producers_of(client, (topic, [0]))[topic, 0].active_producers
        assert found.last_timestamp == appended.log_append_time_ms > 1_000
