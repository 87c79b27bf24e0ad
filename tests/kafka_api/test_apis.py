"""Every API in every version that is announced, spoken by hand."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from logbroker.client.sync import Admin, TopicPartition
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import InvalidRequestError
from logbroker.kafka_api.apis.table import TABLE
from logbroker.kafka_api.refusal import has_refusal
from logbroker.kafka_wire.apis import (
    API_VERSIONS,
    APIS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from logbroker.kafka_wire.codec import Api
from logbroker.kafka_wire.messages import create_topics as ct
from logbroker.kafka_wire.messages import delete_records as dr
from logbroker.kafka_wire.messages import delete_topics as dt
from logbroker.kafka_wire.messages import fetch as f
from logbroker.kafka_wire.messages import list_offsets as lo
from logbroker.kafka_wire.messages import metadata as md
from logbroker.kafka_wire.messages import offset_for_leader_epoch as ole
from logbroker.kafka_wire.messages.api_versions import ApiVersionsRequest
from logbroker.kafka_wire.messages.describe_cluster import DescribeClusterRequest
from logbroker.kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from logbroker.kafka_wire.messages.init_producer_id import InitProducerIdRequest
from logbroker.kafka_wire.messages.produce import ProduceRequestTopicProduceData
from logbroker.kafka_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from logbroker.kafka_wire.messages.sasl_handshake import SaslHandshakeRequest
from logbroker.record.codec import NewRecord, decode_batch, encode_batch, split_batches
from tests.kafka_api.raw_client import RawClient, batch_of, produce, produce_request
from tests.waiting import until

UNKNOWN_TOPIC, UNKNOWN_ID = 3, 100


def versions(api: Api) -> list[int]:
    return list(TABLE[api.key].versions)


def id_of(broker: EmbeddedBroker, topic: str) -> bytes:
    with Admin(broker.address) as admin:
        return admin.describe_topic(topic).info.id


def fetch_request(version: int, topic: str, topic_id: bytes, offset: int, **more: Any) -> f.FetchRequest:
    settings: dict[str, Any] = {"max_bytes": 1 << 20, "min_bytes": 1, "max_wait_ms": 0} | more
    partition: dict[str, Any] = {"partition_max_bytes": 1 << 20, "partition": 0, "fetch_offset": offset}
    partition |= settings.pop("partition", {})
    return f.FetchRequest(
        topics=[
            f.FetchRequestTopic(
                topic=topic,
                topic_id=topic_id if version >= 13 else bytes(16),
                partitions=[f.FetchRequestPartition(**partition)],
            )
        ],
        **settings,
    )


def values_of(records: bytes) -> list[bytes | None]:
    return [record.value for _, batch in split_batches(bytes(records)) for record in decode_batch(batch)]


# --- the first contact ---


@pytest.mark.parametrize("version", versions(API_VERSIONS))
def test_what_is_served_is_announced(broker: EmbeddedBroker, version: int) -> None:
    with RawClient(broker.kafka_address) as client:
        answer = client.call(API_VERSIONS, version, ApiVersionsRequest())
    found = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert found == {key: (each.least_announced, each.versions[-1]) for key, each in TABLE.items()}
    assert found[PRODUCE.key] == (0, 13)


def test_an_unknown_version_of_api_versions_is_answered_with_the_range(broker: EmbeddedBroker) -> None:
    with RawClient(broker.kafka_address) as client:
        client.socket.sendall(struct.pack(">ihhih", 10, 18, 5, 7, -1))
        correlation_id, answer = client.receive(API_VERSIONS, 0)
        assert (correlation_id, answer.error_code) == (7, 35)
        assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [(18, 0, 4)]
        assert client.call(API_VERSIONS, 4, ApiVersionsRequest()).error_code == 0, "the connection goes on"


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_what_is_not_served_gets_an_error_and_the_connection_goes_on(broker: EmbeddedBroker, api: Api) -> None:
    served = TABLE[api.key].versions if api.key in TABLE else range(0)
    asked = sorted({*range(api.last_version + 3), 1000, 0x7FFF} - {*served})
    with RawClient(broker.kafka_address) as client:
        for version in asked if api not in (PRODUCE, API_VERSIONS) else ():
            client.socket.sendall(struct.pack(">ihhih", 10, api.key, version, version, -1))
            written = min(max(version, api.first_version), api.last_version)
            correlation_id, answer = client.receive(api, written)
            assert correlation_id == version
            assert has_refusal(answer)
        assert client.call(API_VERSIONS, 4, ApiVersionsRequest()).error_code == 0


@pytest.mark.parametrize(
    ("key", "version", "reason"),
    [
        (24, 0, "the API number 24 is not served"),
        (1000, 0, "the API number 1000 is not served"),
        (-1, 0, "the API number -1 is not served"),
        (3, -1, "Metadata is not served in version -1"),
        (0, 14, "Produce is not served in version 14"),
    ],
)
def test_what_has_no_answer_ends_the_connection(broker: EmbeddedBroker, key: int, version: int, reason: str) -> None:
    with RawClient(broker.kafka_address) as client:
        client.socket.sendall(struct.pack(">ihhih", 10, key, version, 1, -1))
        assert client.is_closed()
    until(lambda: reason in broker.log_path.read_text())


def test_old_versions_of_produce_are_refused(broker: EmbeddedBroker) -> None:
    with RawClient(broker.kafka_address) as client:
        client.socket.sendall(struct.pack(">ihhihhii", 20, 0, 2, 1, -1, 1, 1000, 0))
        assert client.is_closed()


# --- topics and the node ---


@pytest.mark.parametrize("version", versions(METADATA))
def test_metadata(broker: EmbeddedBroker, topic: str, version: int) -> None:
    topic_id = id_of(broker, topic)
    wanted = [
        md.MetadataRequestTopic(name=topic),
        md.MetadataRequestTopic(name="missing"),
        md.MetadataRequestTopic(name=topic),
    ]
    if version >= 12:
        wanted += [
            md.MetadataRequestTopic(name=None, topic_id=topic_id),
            md.MetadataRequestTopic(name=None, topic_id=b"n" * 16),
        ]
    with RawClient(broker.kafka_address) as client:
        answer = client.call(METADATA, version, md.MetadataRequest(topics=wanted))
        everything = client.call(METADATA, version, md.MetadataRequest(topics=None if version else []))
    [node] = answer.brokers
    assert f"{node.host}:{node.port}" == broker.kafka_address
    found, missing = answer.topics[:2]
    assert (found.name, found.error_code, len(found.partitions)) == (topic, 0, 3)
    assert {partition.leader_id for partition in found.partitions} == {node.node_id}
    assert (missing.name, missing.error_code) == ("missing", UNKNOWN_TOPIC)
    assert topic in [each.name for each in everything.topics]
    if version >= 12:
        by_id, unknown = answer.topics[2:]
        assert (by_id.name, by_id.topic_id, unknown.error_code) == (topic, topic_id, UNKNOWN_ID)
    else:
        assert len(answer.topics) == 2


@pytest.mark.parametrize("version", [12, 13])
@pytest.mark.parametrize("name", [None, "", "other"])
def test_a_topic_is_found_by_its_id_whatever_its_name_is(
    broker: EmbeddedBroker, topic: str, version: int, name: str | None
) -> None:
    """Java leaves the name empty where it gives an id, others leave it out. Kafka asks for the id alone."""
    topic_id, unknown_id = id_of(broker, topic), b"n" * 16
    ids = [topic_id, unknown_id, topic_id]
    wanted = [md.MetadataRequestTopic(name=name, topic_id=each) for each in ids]
    with RawClient(broker.kafka_address) as client:
        found, unknown = client.call(METADATA, version, md.MetadataRequest(topics=wanted)).topics
    assert (found.name, found.topic_id, found.error_code, len(found.partitions)) == (topic, topic_id, 0, 3)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, unknown_id, UNKNOWN_ID)


@pytest.mark.parametrize("version", versions(DESCRIBE_CLUSTER))
def test_the_cluster_has_one_node_and_keeps_its_id(broker: EmbeddedBroker, version: int) -> None:
    with RawClient(broker.kafka_address) as client:
        before = client.call(DESCRIBE_CLUSTER, version, DescribeClusterRequest())
    assert len(before.brokers) == 1
    broker.restart()
    with RawClient(broker.kafka_address) as client:
        assert client.call(DESCRIBE_CLUSTER, version, DescribeClusterRequest()).cluster_id == before.cluster_id
        metadata = client.call(METADATA, 12, md.MetadataRequest(topics=[]))
        assert metadata.cluster_id == before.cluster_id
        if version:
            controllers = client.call(DESCRIBE_CLUSTER, version, DescribeClusterRequest(endpoint_type=2))
            assert controllers.error_code == 114


@pytest.mark.parametrize("version", versions(CREATE_TOPICS))
def test_topics_are_created_and_deleted(broker: EmbeddedBroker, version: int) -> None:
    name = f"made-{version}"

    def new(name: str, **more: Any) -> ct.CreateTopicsRequestCreatableTopic:
        fields: dict[str, Any] = {"name": name, "num_partitions": 2, "replication_factor": 1}
        return ct.CreateTopicsRequestCreatableTopic(**fields | more)

    config = ct.CreateTopicsRequestCreatableTopicConfig
    assignment = ct.CreateTopicsRequestCreatableReplicaAssignment
    topics = [
        new(name, configs=[config(name="retention.ms", value="1000"), config(name="cleanup.policy", value="delete")]),
        new("many", replication_factor=3),
        new("unknown-config", configs=[config(name="cleanup.policy", value="compact")]),
        new("__queue.internal"),
        new("twice"),
        new("twice"),
        new("assigned", num_partitions=-1, replication_factor=-1, assignments=[assignment(broker_ids=[1])]),
        new("elsewhere", num_partitions=-1, replication_factor=-1, assignments=[assignment(broker_ids=[2])]),
    ]
    with RawClient(broker.kafka_address) as client:
        valid = client.call(CREATE_TOPICS, version, ct.CreateTopicsRequest(topics=topics, validate_only=True))
        answer = client.call(CREATE_TOPICS, version, ct.CreateTopicsRequest(topics=topics))
        again = client.call(CREATE_TOPICS, version, ct.CreateTopicsRequest(topics=topics[:1]))
        for each in (valid, answer):
            assert [topic.error_code for topic in each.topics] == [0, 38, 40, 17, 42, 0, 39]
        assert [topic.error_code for topic in again.topics] == [36]
        with Admin(broker.address) as admin:
            made = admin.describe_topic(name)
        assert (made.info.partitions, {each.name: each.value for each in made.configs}["retention.ms"]) == (2, "1000")
        if version >= 5:
            assert {each.name: each.value for each in answer.topics[0].configs}["retention.ms"] == "1000"
        if version >= 7:
            assert answer.topics[0].topic_id == made.info.id
        deletion = min(version, 6)
        states = [dt.DeleteTopicsRequestTopicState(name=each) for each in (name, "assigned", "missing")]
        names = [name, "assigned", "missing"]
        request = dt.DeleteTopicsRequest(topics=states) if deletion >= 6 else dt.DeleteTopicsRequest(topic_names=names)
        deleted = client.call(DELETE_TOPICS, deletion, request)
        assert [each.error_code for each in deleted.responses] == [0, 0, UNKNOWN_TOPIC]


def test_a_topic_is_deleted_by_its_id(broker: EmbeddedBroker, topic: str) -> None:
    states = [dt.DeleteTopicsRequestTopicState(topic_id=each) for each in (id_of(broker, topic), b"n" * 16)]
    with RawClient(broker.kafka_address) as client:
        deleted = client.call(DELETE_TOPICS, 6, dt.DeleteTopicsRequest(topics=states))
    assert [(each.name, each.error_code) for each in deleted.responses] == [(topic, 0), (None, UNKNOWN_ID)]


def test_a_topic_is_not_deleted_by_its_name_and_an_id_together(broker: EmbeddedBroker, topic: str) -> None:
    ids = [id_of(broker, topic), b"n" * 16]
    states = [dt.DeleteTopicsRequestTopicState(name=topic, topic_id=each) for each in ids]
    with RawClient(broker.kafka_address) as client:
        deleted = client.call(DELETE_TOPICS, 6, dt.DeleteTopicsRequest(topics=states))
    assert [each.error_code for each in deleted.responses] == [InvalidRequestError.kafka_code] * 2
    assert id_of(broker, topic) == ids[0]


@pytest.mark.parametrize("version", versions(FIND_COORDINATOR))
def test_this_node_coordinates(broker: EmbeddedBroker, version: int) -> None:
    request = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g", "h"])
    with RawClient(broker.kafka_address) as client:
        answer = client.call(FIND_COORDINATOR, version, request)
    for found in answer.coordinators if version >= 4 else [answer]:
        assert (found.error_code, f"{found.host}:{found.port}") == (0, broker.kafka_address)


@pytest.mark.parametrize("version", versions(SASL_AUTHENTICATE))
def test_sasl_is_out_of_order(broker: EmbeddedBroker, version: int) -> None:
    with RawClient(broker.kafka_address) as client:
        assert client.call(SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=b"x")).error_code == 34


@pytest.mark.parametrize("version", versions(SASL_HANDSHAKE))
def test_sasl_is_refused(broker: EmbeddedBroker, version: int) -> None:
    with RawClient(broker.kafka_address) as client:
        assert client.call(SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism="PLAIN")).error_code == 33


# --- produce ---


@pytest.mark.parametrize("version", versions(PRODUCE))
def test_a_batch_is_appended_as_it_is(broker: EmbeddedBroker, topic: str, version: int) -> None:
    request = produce_request(topic, {0: batch_of(b"a", b"b"), 2: batch_of(b"c"), 3: batch_of(b"d"), 1: b"nonsense"})
    request.topic_data.append(ProduceRequestTopicProduceData(name="missing", topic_id=b"n" * 16, partition_data=[]))
    request.topic_data[1].partition_data = request.topic_data[0].partition_data[:1]
    if version >= 13:
        request.topic_data[0].topic_id, request.topic_data[0].name, request.topic_data[1].name = (
            id_of(broker, topic),
            "",
            "",
        )
    else:
        request.topic_data[1].topic_id = bytes(16)
    with RawClient(broker.kafka_address) as client:
        answer = client.call(PRODUCE, version, request)
        found, missing = answer.responses
        assert [(each.index, each.error_code, each.base_offset) for each in found.partition_responses] == [
            (0, 0, 0),
            (2, 0, 0),
            (3, UNKNOWN_TOPIC, -1),
            (1, 2, -1),
        ]
        assert missing.partition_responses[0].error_code == (UNKNOWN_ID if version >= 13 else UNKNOWN_TOPIC)
        fetched = client.call(FETCH, 12, fetch_request(12, topic, b"", 0))
    assert values_of(fetched.responses[0].partitions[0].records) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("change", "code"), [({"acks": 2}, 21), ({"transactional_id": "t"}, 53), ({"acks": 1}, 0), ({"acks": -1}, 0)]
)
def test_acks_and_transactions_are_checked(
    broker: EmbeddedBroker, topic: str, change: dict[str, Any], code: int
) -> None:
    request = produce_request(topic, {0: batch_of(b"a")})
    for name, value in change.items():
        setattr(request, name, value)
    with RawClient(broker.kafka_address) as client:
        answer = client.call(PRODUCE, 11, request)
    assert answer.responses[0].partition_responses[0].error_code == code


def test_without_acks_there_is_no_answer(broker: EmbeddedBroker, topic: str) -> None:
    with RawClient(broker.kafka_address) as client:
        client.send(PRODUCE, 9, produce_request(topic, {0: batch_of(b"a")}, acks=0))
        latest = client.call(LIST_OFFSETS, 5, offsets_request(topic, -1))
        assert latest.topics[0].partitions[0].offset == 1, "requests after it see what it did"
        client.send(PRODUCE, 9, produce_request("missing", {0: batch_of(b"a")}, acks=0))
        assert client.is_closed(), "which is how the producer learns of the error"


def test_what_was_sent_without_acks_is_kept_when_the_client_leaves(broker: EmbeddedBroker, topic: str) -> None:
    with RawClient(broker.kafka_address) as client:
        for number in range(50):
            client.send(PRODUCE, 9, produce_request(topic, {0: batch_of(b"%d" % number)}, acks=0))
    with RawClient(broker.kafka_address) as client:
        request = fetch_request(12, topic, b"", 49, max_wait_ms=10_000)
        found = client.call(FETCH, 12, request).responses[0].partitions[0]
        while found.error_code:
            found = client.call(FETCH, 12, request).responses[0].partitions[0]
    assert values_of(found.records) == [b"49"]


def test_a_repeat_of_an_idempotent_producer_gets_its_first_offset(broker: EmbeddedBroker, topic: str) -> None:
    with RawClient(broker.kafka_address) as client:
        producer = client.call(INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))
        sequence = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        first = produce(client, topic, 0, batch_of(b"a", base_sequence=0, **sequence))
        repeat = produce(client, topic, 0, batch_of(b"a", base_sequence=0, **sequence))
        gap = produce(client, topic, 0, batch_of(b"c", base_sequence=5, **sequence))
        assert (first.error_code, repeat.error_code, first.base_offset, repeat.base_offset) == (0, 0, 0, 0)
        assert gap.error_code == 45


def test_a_producer_that_the_log_does_not_know_is_told_where_the_log_starts(broker: EmbeddedBroker, topic: str) -> None:
    """Java's producer begins anew only then."""
    with RawClient(broker.kafka_address) as client:
        produce(client, topic, 0, batch_of(b"a", b"b"))
        with Admin(broker.address) as admin:
            admin.delete_records({TopicPartition(topic, 0): 1})
        producer = client.call(INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))
        batch = batch_of(b"c", producer_id=producer.producer_id, producer_epoch=0, base_sequence=3)
        unknown = produce(client, topic, 0, batch)
        assert (unknown.error_code, unknown.log_start_offset) == (59, 1)


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, -1), (0, 0), (1, 0), (1, 2**15 - 1), (2**40, 7), (-2, -2)])
def test_a_producer_gets_a_new_id_whatever_it_names(broker: EmbeddedBroker, producer_id: int, epoch: int) -> None:
    requests = [InitProducerIdRequest(transactional_id=None), InitProducerIdRequest(transactional_id=None)]
    requests[1].producer_id, requests[1].producer_epoch = producer_id, epoch
    with RawClient(broker.kafka_address) as client:
        first, second = (client.call(INIT_PRODUCER_ID, 4, request) for request in requests)
    assert (first.error_code, second.error_code, second.producer_epoch) == (0, 0, 0)
    assert second.producer_id > first.producer_id


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (1, -1)])
def test_a_producer_names_an_id_with_its_epoch(broker: EmbeddedBroker, producer_id: int, epoch: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
    with RawClient(broker.kafka_address) as client:
        assert client.call(INIT_PRODUCER_ID, 4, request).error_code == 42


@pytest.mark.parametrize("version", versions(INIT_PRODUCER_ID))
def test_a_transactional_id_is_refused(broker: EmbeddedBroker, version: int) -> None:
    with RawClient(broker.kafka_address) as client:
        assert client.call(INIT_PRODUCER_ID, version, InitProducerIdRequest(transactional_id="t")).error_code == 53
        assert client.call(INIT_PRODUCER_ID, version, InitProducerIdRequest(transactional_id=None)).error_code == 0


# --- fetch ---


@pytest.mark.parametrize("version", versions(FETCH))
def test_fetch(broker: EmbeddedBroker, topic: str, version: int) -> None:
    topic_id = id_of(broker, topic)
    with RawClient(broker.kafka_address) as client:
        produce(client, topic, 0, batch_of(b"a", b"b"))
        produce(client, topic, 0, batch_of(b"c"))
        found = client.call(FETCH, version, fetch_request(version, topic, topic_id, 1)).responses[0].partitions[0]
        assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 3, 3)
        assert values_of(found.records) == [b"a", b"b", b"c"], "from the batch on that holds the offset"
        end = client.call(FETCH, version, fetch_request(version, topic, topic_id, 3)).responses[0].partitions[0]
        assert (end.error_code, bytes(end.records)) == (0, b"")
        beyond = client.call(FETCH, version, fetch_request(version, topic, topic_id, 4)).responses[0].partitions[0]
        assert beyond.error_code == 1
        unknown = client.call(FETCH, version, fetch_request(version, "missing", b"n" * 16, 0)).responses[0]
        assert unknown.partitions[0].error_code == (UNKNOWN_ID if version >= 13 else UNKNOWN_TOPIC)
        if version >= 9:
            for epoch, code in ((0, 0), (1, 75)):
                request = fetch_request(version, topic, topic_id, 0, partition={"current_leader_epoch": epoch})
                assert client.call(FETCH, version, request).responses[0].partitions[0].error_code == code
        if version >= 7:
            request = fetch_request(version, topic, topic_id, 0, session_id=5, session_epoch=1)
            assert client.call(FETCH, version, request).error_code == 70


def test_a_fetch_waits_for_what_is_appended_later(broker: EmbeddedBroker, topic: str) -> None:
    with RawClient(broker.kafka_address) as reader, RawClient(broker.kafka_address) as writer:
        reader.send(FETCH, 12, fetch_request(12, topic, b"", 0, max_wait_ms=20_000, min_bytes=100))
        written = batch_of(b"a")
        produce(writer, topic, 0, written)
        produce(writer, topic, 0, written)
        _, answer = reader.receive(FETCH, 12)
    assert values_of(answer.responses[0].partitions[0].records) == [b"a", b"a"], "70 bytes were not enough"


def test_a_fetch_keeps_to_its_bytes_but_sends_one_batch(broker: EmbeddedBroker, topic: str) -> None:
    with RawClient(broker.kafka_address) as client:
        for _ in range(3):
            produce(client, topic, 0, batch_of(bytes(10_000)))
        for most, batches in ((1, 1), (10_100, 1), (25_000, 2), (100_000, 3)):
            found = client.call(FETCH, 12, fetch_request(12, topic, b"", 0, max_bytes=most)).responses[0]
            assert len(list(split_batches(bytes(found.partitions[0].records)))) == batches


# --- deletion of records ---


@pytest.mark.parametrize("version", versions(DELETE_RECORDS))
def test_records_are_deleted(broker: EmbeddedBroker, topic: str, version: int) -> None:
    with RawClient(broker.kafka_address) as client:
        for number in range(3):
            produce(client, topic, number, batch_of(b"a", b"b", b"c"))
        wanted = [(0, 2), (1, -1), (2, 4), (3, 0), (2, -2), (0, 3)]
        partitions = [dr.DeleteRecordsRequestPartition(partition_index=index, offset=at) for index, at in wanted]
        topics = [
            dr.DeleteRecordsRequestTopic(name=topic, partitions=partitions),
            dr.DeleteRecordsRequestTopic(name="missing", partitions=partitions[:1]),
            dr.DeleteRecordsRequestTopic(name="__queue.g", partitions=partitions[:1]),
        ]
        answer = client.call(DELETE_RECORDS, version, dr.DeleteRecordsRequest(topics=topics, timeout_ms=20_000))
        found, missing, internal = answer.topics
        assert [(each.partition_index, each.error_code, each.low_watermark) for each in found.partitions] == [
            (0, 0, 2),
            (1, 0, 3),
            (2, 1, -1),
            (3, UNKNOWN_TOPIC, -1),
            (2, 42, -1),
            (0, 42, -1),
        ]
        assert [each.partitions[0].error_code for each in (missing, internal)] == [UNKNOWN_TOPIC, 17]
        early = client.call(FETCH, 12, fetch_request(12, topic, b"", 1)).responses[0].partitions[0]
        assert (early.error_code, early.log_start_offset) == (1, 2)
        kept = client.call(FETCH, 12, fetch_request(12, topic, b"", 2)).responses[0].partitions[0]
        assert (kept.error_code, kept.log_start_offset, values_of(kept.records)) == (0, 2, [b"a", b"b", b"c"])
        assert client.call(LIST_OFFSETS, 5, offsets_request(topic, -2)).topics[0].partitions[0].offset == 2
        by_time = client.call(LIST_OFFSETS, 5, offsets_request(topic, 0)).topics[0].partitions[0]
        assert (by_time.error_code, by_time.offset) == (0, 2)
        again = produce(client, topic, 1, batch_of(b"d"))
        assert (again.base_offset, again.log_start_offset) == (3, 3)


# --- offsets ---


def offsets_request(topic: str, timestamp: int, epoch: int = -1) -> lo.ListOffsetsRequest:
    partition = lo.ListOffsetsRequestPartition(timestamp=timestamp, current_leader_epoch=epoch)
    return lo.ListOffsetsRequest(replica_id=-1, topics=[lo.ListOffsetsRequestTopic(name=topic, partitions=[partition])])


@pytest.mark.parametrize("version", versions(LIST_OFFSETS))
def test_offsets_are_found(broker: EmbeddedBroker, topic: str, version: int) -> None:
    with RawClient(broker.kafka_address) as client:
        produce(client, topic, 0, batch_of(b"a", b"b"))

        def found(timestamp: int, name: str = topic) -> Any:
            return client.call(LIST_OFFSETS, version, offsets_request(name, timestamp)).topics[0].partitions[0]

        assert [found(-2).offset, found(-1).offset, found(0).offset, found(2**60).offset] == [0, 2, 0, -1]
        assert found(0).timestamp > 0
        assert (found(-7).error_code, found(-(2**63)).error_code) == (35, 35)
        assert found(-1, "missing").error_code == UNKNOWN_TOPIC
        since = {-3: 7, -4: 8, -5: 9, -6: 11}
        assert [found(special).error_code for special in since] == [35 * (version < first) for first in since.values()]
        if version >= 11:
            assert [found(special).offset for special in since] == [0, 0, -1, -1]
            assert [found(special).timestamp > 0 for special in since] == [True, False, False, False]


def test_the_largest_time_of_what_is_left(broker: EmbeddedBroker, topic: str) -> None:
    def largest() -> tuple[int, int]:
        found = client.call(LIST_OFFSETS, 11, offsets_request(topic, -3)).topics[0].partitions[0]
        assert not found.error_code
        return found.offset, found.timestamp

    with RawClient(broker.kafka_address) as client:
        assert largest() == (-1, -1)
        for times in ((5, 9, 9), (8, 3)):
            produce(client, topic, 0, encode_batch([NewRecord(b"a", timestamp_ms=each) for each in times]))
        assert largest() == (1, 9)
        for before, after in ((1, (1, 9)), (2, (2, 9)), (3, (3, 8)), (4, (4, 3)), (5, (-1, -1))):
            partitions = [dr.DeleteRecordsRequestPartition(offset=before)]
            topics = [dr.DeleteRecordsRequestTopic(name=topic, partitions=partitions)]
            client.call(DELETE_RECORDS, 2, dr.DeleteRecordsRequest(topics=topics, timeout_ms=20_000))
            assert largest() == after


@pytest.mark.parametrize("version", versions(OFFSET_FOR_LEADER_EPOCH))
def test_the_end_of_an_epoch(broker: EmbeddedBroker, topic: str, version: int) -> None:
    def asked(epoch: int, current: int = -1) -> Any:
        partition = ole.OffsetForLeaderEpochRequestPartition(leader_epoch=epoch, current_leader_epoch=current)
        topics = [ole.OffsetForLeaderEpochRequestTopic(topic=topic, partitions=[partition])]
        request = ole.OffsetForLeaderEpochRequest(replica_id=-1 if version >= 3 else -2, topics=topics)
        return client.call(OFFSET_FOR_LEADER_EPOCH, version, request).topics[0].partitions[0]

    with RawClient(broker.kafka_address) as client:
        produce(client, topic, 0, batch_of(b"a", b"b"))
        assert (asked(0).leader_epoch, asked(0).end_offset) == (0, 2)
        assert (asked(1).leader_epoch, asked(1).end_offset) == (-1, -1)
        assert asked(0, current=1).error_code == 75
