"""The admin clients of three libraries: each makes, describes, alters, grows, shortens and deletes a topic."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # It reads its schemas in an old way.
    import kafka
    import kafka.admin

from logbroker.client.sync import Admin
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import UnknownTopicError
from logbroker.kafka_wire.apis import INIT_PRODUCER_ID
from logbroker.kafka_wire.messages.init_producer_id import InitProducerIdRequest
from tests.kafka_api.clients import SECONDS, apart
from tests.kafka_api.raw_client import RawClient, batch_of, produce

CREATED = {"retention.ms": "1000"}
ALTERED = {"retention.ms": "2000"}
PARTITIONS, GROWN = 2, 3
RECORDS = 3
INVALID_CONFIG = 40


@dataclass
class Report:
    """Observations of a client."""

    nodes: list[str]
    configs: dict[str, str]
    """Those of the topic that are no defaults, after they were altered."""
    refusal: int
    """The error code for a config that does not exist."""
    partitions: int
    """After the growth."""
    low_watermarks: dict[int, int]
    """After records were deleted below the offset 2 in one partition, and all in another."""
    log_dirs: dict[str, dict[int, int]] = field(default_factory=dict)
    """Sizes of the topic's partitions, by directory, where the client asks for them."""
    producers: list[tuple[int, int]] = field(default_factory=list)
    """Ids and last sequences of producers in a partition, where the client asks for them."""
    latest: tuple[int, bool] | None = None
    """Offset of the largest timestamp in a partition, and whether there is a timestamp, where the client asks for
    it."""


# --- confluent-kafka ---


def _confluent_create(address: str, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": address})
    client.create_topics([NewTopic(topic, PARTITIONS, 1, config=CREATED)])[topic].result(SECONDS)


def _confluent_manage(address: str, topic: str) -> Report:
    client = AdminClient({"bootstrap.servers": address})

    def alter(configs: dict[str, str]) -> Any:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        [altered] = client.incremental_alter_configs(
            [ConfigResource("topic", topic, incremental_configs=entries)]
        ).values()
        return altered.exception(SECONDS)

    assert alter(ALTERED) is None
    refusal = alter({"nonsense": "1"}).args[0].code()
    [configs] = client.describe_configs([ConfigResource("topic", topic)]).values()
    client.create_partitions([NewPartitions(topic, GROWN)])[topic].result(SECONDS)
    [found] = client.describe_topics(confluent_kafka.TopicCollection([topic])).values()
    places = [(0, 2), (1, confluent_kafka.OFFSET_END)]
    deleted = client.delete_records([confluent_kafka.TopicPartition(topic, *place) for place in places])
    place = confluent_kafka.TopicPartition(topic, 0)
    latest = client.list_offsets({place: OffsetSpec.max_timestamp()})[place].result(SECONDS)
    return Report(
        nodes=[f"{node.host}:{node.port}" for node in client.describe_cluster().result(SECONDS).nodes],
        configs={name: each.value for name, each in configs.result(SECONDS).items() if not each.is_default},
        refusal=refusal,
        partitions=len(found.result(SECONDS).partitions),
        low_watermarks={place.partition: each.result(SECONDS).low_watermark for place, each in deleted.items()},
        latest=(latest.offset, latest.timestamp > 0),
    )


def _confluent_delete(address: str, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": address})
    client.delete_topics([topic])[topic].result(SECONDS)


# --- kafka-python ---


def _python_create(address: str, topic: str) -> None:
    client = kafka.admin.KafkaAdminClient(bootstrap_servers=address)
    client.create_topics({topic: {"num_partitions": PARTITIONS, "replication_factor": 1, "configs": CREATED}})
    client.close()


def _python_manage(address: str, topic: str) -> Report:
    client = kafka.admin.KafkaAdminClient(bootstrap_servers=address)
    kind = kafka.admin.ConfigResourceType.TOPIC

    def alter(configs: dict[str, str], **ways: Any) -> str:
        resource = kafka.admin.ConfigResource(kind, topic, configs=configs)
        outcome: str = client.alter_configs([resource], **ways)["topic"][topic]
        return outcome

    assert alter({"retention.ms": "1500"}, incremental=True) == "OK"
    assert alter(ALTERED, incremental=False) == "OK"
    refusal = alter({"nonsense": "1"}, raise_on_unknown=False)
    configs = client.describe_configs([kafka.admin.ConfigResource(kind, topic)])["topic"][topic]
    client.create_partitions({topic: GROWN})
    pages = client.describe_topic_partitions([topic], response_partition_limit=2)
    assert pages["next_cursor"] == {"topic_name": topic, "partition_index": 2}
    rest = client.describe_topic_partitions([topic], cursor=pages["next_cursor"])
    place = kafka.TopicPartition(topic, 0)
    deleted = client.delete_records({place: 2, kafka.TopicPartition(topic, 1): -1})
    [node] = client.describe_log_dirs([topic])
    producers = client.describe_producers([place])[place].active_producers
    latest = client.list_partition_offsets({place: kafka.admin.OffsetSpec.MAX_TIMESTAMP})[place]
    report = Report(
        nodes=[f"{node['host']}:{node['port']}" for node in client.describe_cluster()["brokers"]],
        configs={name: each["value"] for name, each in configs.items()},
        refusal=INVALID_CONFIG if f"[Error {INVALID_CONFIG}]" in refusal else -1,
        partitions=sum(len(each["topics"][0]["partitions"]) for each in (pages, rest)),
        low_watermarks={place.partition: each["low_watermark"] for place, each in deleted.items()},
        log_dirs={
            directory["log_dir"]: {
                each["partition_index"]: each["partition_size"]
                for found in directory["topics"]
                for each in found["partitions"]
            }
            for directory in node["log_dirs"]
        },
        producers=[(each.producer_id, each.last_sequence) for each in producers],
        latest=(latest.offset, latest.timestamp > 0),
    )
    client.close()
    return report


def _python_delete(address: str, topic: str) -> None:
    client = kafka.admin.KafkaAdminClient(bootstrap_servers=address)
    client.delete_topics([topic])
    client.close()


# --- aiokafka ---


async def _aio(address: str, work: Callable[[AIOKafkaAdminClient], Any]) -> Any:
    client = AIOKafkaAdminClient(bootstrap_servers=address)
    await client.start()
    try:
        return await asyncio.wait_for(work(client), SECONDS)
    finally:
        await client.close()


def _aio_create(address: str, topic: str) -> None:
    new = AioNewTopic(topic, PARTITIONS, 1, topic_configs=CREATED)
    asyncio.run(_aio(address, lambda client: client.create_topics([new])))


def _aio_manage(address: str, topic: str) -> Report:
    kind = AioConfigResourceType.TOPIC

    async def manage(client: AIOKafkaAdminClient) -> Report:
        async def alter(configs: dict[str, str]) -> int:
            [answer] = await client.alter_configs([AioConfigResource(kind, topic, configs=configs)])
            code: int = answer.resources[0][0]
            return code

        assert await alter(ALTERED) == 0
        refusal = await alter({"nonsense": "1"})
        [described] = await client.describe_configs([AioConfigResource(kind, topic)])
        await client.create_partitions({topic: AioNewPartitions(GROWN)})
        [found] = await client.describe_topics([topic])
        deleted = await client.delete_records(
            {
                aiokafka.TopicPartition(topic, 0): RecordsToDelete(2),
                aiokafka.TopicPartition(topic, 1): RecordsToDelete(-1),
            }
        )
        entries = described.resources[0][4]
        return Report(
            nodes=[f"{node['host']}:{node['port']}" for node in (await client.describe_cluster())["brokers"]],
            configs={name: value for name, value, _, source, *_ in entries if source == 1},
            refusal=refusal,
            partitions=len(found["partitions"]),
            low_watermarks={place.partition: offset for place, offset in deleted.items()},
        )

    report: Report = asyncio.run(_aio(address, manage))
    return report


def _aio_delete(address: str, topic: str) -> None:
    asyncio.run(_aio(address, lambda client: client.delete_topics([topic])))


@dataclass(frozen=True)
class AdminOf:
    """The admin client of a library."""

    name: str
    create: Callable[[str, str], None]
    manage: Callable[[str, str], Report]
    delete: Callable[[str, str], None]
    has_more: bool = False
    """Whether it describes log directories and producers."""

    def __repr__(self) -> str:
        return self.name


ADMINS = (
    AdminOf("confluent-kafka", _confluent_create, _confluent_manage, _confluent_delete),
    AdminOf(
        "kafka-python",
        partial(apart, _python_create),
        partial(apart, _python_manage),
        partial(apart, _python_delete),
        has_more=True,
    ),
    AdminOf("aiokafka", _aio_create, _aio_manage, _aio_delete),
)


def follow_a_topic(broker: EmbeddedBroker, admin: AdminOf) -> None:
    """Let an admin client do all with a topic, and compare with what the broker has."""
    topic, address = f"of-{admin.name.strip('@').replace('/', '-')}", broker.kafka_address
    admin.create(address, topic)
    with Admin(broker.address) as ours:
        made = ours.describe_topic(topic)
        assert made.info.partitions == PARTITIONS
        assert {each.name: each.value for each in made.configs if not each.is_default} == CREATED
    with RawClient(address) as client:
        producer = client.call(INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))
        sequence = {"producer_id": producer.producer_id, "producer_epoch": 0, "base_sequence": 0}
        for number in range(PARTITIONS):
            assert produce(client, topic, number, batch_of(*[b"a"] * RECORDS, **sequence)).error_code == 0
    report = admin.manage(address, topic)
    assert report.nodes == [address]
    assert report.configs == ALTERED
    assert report.refusal == INVALID_CONFIG
    assert report.partitions == GROWN
    assert report.low_watermarks == {0: 2, 1: RECORDS}
    with Admin(broker.address) as ours:
        found = ours.describe_topic(topic)
        assert [each.log_start_offset for each in found.partitions] == [2, RECORDS, 0]
        assert {each.name: each.value for each in found.configs if not each.is_default} == ALTERED
        if admin.has_more:
            sizes = {each.partition: each.size_bytes for each in found.partitions}
            assert report.log_dirs == {str(broker.data_dir): sizes}
            assert report.producers == [(producer.producer_id, RECORDS - 1)]
        assert report.latest in (None, (2, True))
        admin.delete(address, topic)
        with pytest.raises(UnknownTopicError):
            ours.describe_topic(topic)


@pytest.mark.parametrize("admin", ADMINS, ids=repr)
def test_a_topic_from_its_creation_to_its_deletion(broker: EmbeddedBroker, admin: AdminOf) -> None:
    follow_a_topic(broker, admin)
