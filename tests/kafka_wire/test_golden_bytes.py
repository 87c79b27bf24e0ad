"""Messages as bytes that were put together by hand from the protocol's documentation, and what is known of the APIs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from logbroker.kafka_wire import apis
from logbroker.kafka_wire.codec import MessageCodec
from logbroker.kafka_wire.messages import (
    api_versions,
    consumer_group_heartbeat,
    consumer_protocol,
    fetch,
    headers,
    list_offsets,
    metadata,
    produce,
    sasl_handshake,
)
from tests.kafka_wire.messages import CASES

TOPIC_ID = bytes(range(16))
GOLDEN: list[tuple[MessageCodec[Any], int, Any, str]] = [
    # Key 18, version 0, correlation id 7, a client id with a length of two bytes.
    (
        headers.REQUEST_HEADER,
        1,
        headers.RequestHeader(request_api_key=18, request_api_version=0, correlation_id=7, client_id="me"),
        "0012 0000 00000007 0002 6d65",
    ),
    # The same, null, and no tagged fields: the client id is not compact in a flexible header either.
    (
        headers.REQUEST_HEADER,
        2,
        headers.RequestHeader(request_api_key=18, request_api_version=3, correlation_id=7, client_id=None),
        "0012 0003 00000007 ffff 00",
    ),
    (headers.RESPONSE_HEADER, 1, headers.ResponseHeader(correlation_id=-1), "ffffffff 00"),
    # Error 35 and one range: what is answered to a version that is not known.
    (
        api_versions.RESPONSE,
        0,
        api_versions.ApiVersionsResponse(
            error_code=35, api_keys=[api_versions.ApiVersionsResponseVersion(api_key=18, max_version=4)]
        ),
        "0023 00000001 0012 0000 0004",
    ),
    # A compact array of one with its tags, throttle time, and tag 1 (FinalizedFeaturesEpoch) of 8 bytes.
    (
        api_versions.RESPONSE,
        3,
        api_versions.ApiVersionsResponse(
            api_keys=[api_versions.ApiVersionsResponseVersion(api_key=1, min_version=4, max_version=11)],
            finalized_features_epoch=5,
        ),
        "0000 02 0001 0004 000b 00 00000000 01 01 08 0000000000000005",
    ),
    (metadata.REQUEST, 0, metadata.MetadataRequest(topics=[]), "00000000"),
    (
        metadata.REQUEST,
        12,
        metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(topic_id=TOPIC_ID, name=None)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        ),
        "02 000102030405060708090a0b0c0d0e0f 00 00 00 01 00",
    ),
    # No transactional id, acks of all, 30 s, one topic, one partition, 3 bytes.
    (
        produce.REQUEST,
        3,
        produce.ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                produce.ProduceRequestTopicProduceData(
                    name="t",
                    partition_data=[produce.ProduceRequestPartitionProduceData(index=2, records=b"abc")],
                )
            ],
        ),
        "ffff ffff 00007530 00000001 0001 74 00000001 00000002 00000003 616263",
    ),
    (
        produce.REQUEST,
        13,
        produce.ProduceRequest(
            transactional_id="x",
            acks=1,
            timeout_ms=1,
            topic_data=[
                produce.ProduceRequestTopicProduceData(
                    topic_id=TOPIC_ID,
                    partition_data=[produce.ProduceRequestPartitionProduceData(index=2, records=None)],
                )
            ],
        ),
        "02 78 0001 00000001 02 000102030405060708090a0b0c0d0e0f 02 00000002 00 00 00 00",
    ),
    # Tags 0 (the cluster's id) and 1 (a follower's state).
    (
        fetch.REQUEST,
        15,
        fetch.FetchRequest(
            cluster_id="c",
            replica_state=fetch.FetchRequestReplicaState(replica_id=3, replica_epoch=4),
            max_wait_ms=500,
            min_bytes=1,
            session_epoch=0,
        ),
        "000001f4 00000001 7fffffff 00 00000000 00000000 01 01 01 02 00 02 02 63 01 0d 00000003 0000000000000004 00",
    ),
    (
        list_offsets.REQUEST,
        1,
        list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsRequestTopic(
                    name="t", partitions=[list_offsets.ListOffsetsRequestPartition(partition_index=0, timestamp=-2)]
                )
            ],
        ),
        "ffffffff 00000001 0001 74 00000001 00000000 fffffffffffffffe",
    ),
    (sasl_handshake.REQUEST, 1, sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"), "0005 504c41494e"),
    # A structure that may be null has a byte before it.
    (
        consumer_group_heartbeat.RESPONSE,
        0,
        consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(
            member_id="m",
            member_epoch=1,
            heartbeat_interval_ms=5000,
            assignment=consumer_group_heartbeat.ConsumerGroupHeartbeatResponseAssignment(topic_partitions=[]),
        ),
        "00000000 0000 00 02 6d 00000001 00001388 01 01 00 00",
    ),
    (
        consumer_group_heartbeat.RESPONSE,
        0,
        consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(),
        "00000000 0000 00 00 00000000 00000000 ff 00",
    ),
    (
        consumer_protocol.SUBSCRIPTION,
        0,
        consumer_protocol.ConsumerProtocolSubscription(topics=["t"], user_data=None),
        "00000001 0001 74 ffffffff",
    ),
]


@pytest.mark.parametrize(("codec", "version", "message", "text"), GOLDEN)
def test_golden_bytes(codec: MessageCodec[Any], version: int, message: Any, text: str) -> None:
    wire = bytes.fromhex(text)
    assert codec.write(message, version).hex() == wire.hex()
    assert codec.read(wire, version) == message


def test_the_index_has_every_api_with_its_versions_and_headers() -> None:
    for case in CASES:
        if case.definition.api_key is None:
            continue
        api = apis.APIS[case.definition.api_key]
        codec = api.request if case.name.endswith("Request") else api.response
        assert codec.name == case.name
        assert codec.versions == api.versions == case.versions
        for version in api.versions:
            is_flexible = version in case.definition.flexible_versions
            assert api.request_header_version(version) == 1 + is_flexible
            assert api.response_header_version(version) == (is_flexible and api is not apis.API_VERSIONS)
        assert (api.last_stable_version < api.last_version) == (api is apis.INIT_PRODUCER_ID)
    assert apis.FETCH.key == 1


def test_only_the_messages_that_are_asked_for_are_loaded() -> None:
    program = (
        "import sys; from logbroker.kafka_wire.apis import APIS; "
        "assert 'logbroker.kafka_wire.messages' not in sys.modules; APIS[3].request; "
        "print(*(name for name in sys.modules if '.messages.' in name))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["logbroker.kafka_wire.messages.metadata"]
