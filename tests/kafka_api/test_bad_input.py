"""Bytes that are no Kafka request, and clients that do not behave: one connection ends, and others are served.

Damaged requests to every API: `tests/kafka_hostile`.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

import logbroker
from logbroker.address import parse_address
from logbroker.broker.topics import MAX_ITEMS
from logbroker.client.sync import Admin
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.kafka_api.apis.table import TABLE
from logbroker.kafka_wire.apis import (
    ALTER_CONFIGS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    JOIN_GROUP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from logbroker.kafka_wire.codec import Api
from logbroker.kafka_wire.messages.api_versions import ApiVersionsRequest
from logbroker.kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from logbroker.kafka_wire.primitives import uvarint
from tests.kafka_api.raw_client import RawClient, batch_of, frame, produce, produce_request
from tests.kafka_api.samples import sample
from tests.kafka_api.test_apis import fetch_request, values_of
from tests.waiting import until

MAX_BYTES = 1 << 20


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """One that takes few connections and bytes."""
    with logbroker.embedded(kafka=True, max_request_bytes=MAX_BYTES) as broker:
        yield broker


def serves(broker: EmbeddedBroker) -> bool:
    with RawClient(broker.kafka_address) as client:
        return not client.call(API_VERSIONS, 4, ApiVersionsRequest()).error_code


def lines(broker: EmbeddedBroker, client: RawClient) -> int:
    """Return how many lines of the log tell the end of a connection, or of earlier ones with its port."""
    host, port = client.socket.getsockname()
    return broker.log_path.read_text().count(f"the connection of {host}:{port} is closed: ")


def with_header_tags(api: Api, version: int, count: int) -> bytes:
    """Return a request with so many empty tagged fields in its header."""
    tags = uvarint(count) + b"".join(uvarint(tag) + b"\0" for tag in range(count))
    message = sample(api.request.kind, 0)
    if api is PRODUCE:
        message.acks = 1
    body = api.request.write(message, version)
    return struct.pack(">ihhih", 10 + len(tags) + len(body), api.key, version, 1, -1) + tags + body


@pytest.mark.parametrize("api", [METADATA, PRODUCE, JOIN_GROUP], ids=lambda api: api.name)
def test_a_few_tagged_fields_in_the_header_are_skipped(broker: EmbeddedBroker, api: Api) -> None:
    with RawClient(broker.kafka_address) as client:
        client.socket.sendall(with_header_tags(api, 9, 100))
        assert client.receive(api, 9)[0] == 1


@pytest.mark.parametrize(
    "data",
    [
        *(with_header_tags(api, 9, 10_000) for api in (METADATA, PRODUCE, JOIN_GROUP)),
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", MAX_BYTES + 1),
        struct.pack(">i", 4) + b"\0\x12\0\0",
        struct.pack(">ihhih", 10, 3, 9, 1, 100),  # a client id that is longer than the request
        struct.pack(">ihhihi", 14, 3, 4, 1, -1, 0x7FFF_FFFF),  # two billion topics
        struct.pack(">ihhihhhii", 22, 0, 3, 1, -1, -1, 1, 1000, 0x7FFF_FFFF),
        struct.pack(">ihhih", 10, 99, 0, 1, -1),
        struct.pack(">i", 100_000) + struct.pack(">hhih", 3, 4, 1, -1) + struct.pack(">i", 49_000) + bytes(99_986),
        frame(METADATA, 4, MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 20_001)),
    ],
)
def test_what_is_no_request_ends_the_connection_with_one_line(broker: EmbeddedBroker, data: bytes) -> None:
    with RawClient(broker.kafka_address) as client:
        before = lines(broker, client)
        with suppress(ConnectionError):
            client.socket.sendall(data)
        assert client.is_closed()
        until(lambda: lines(broker, client) == before + 1)
        assert serves(broker)
        assert lines(broker, client) == before + 1


LISTING = (
    *(FETCH, LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH, ALTER_CONFIGS, CREATE_PARTITIONS, CREATE_TOPICS),
    *(DELETE_RECORDS, DELETE_TOPICS, DESCRIBE_CONFIGS, DESCRIBE_LOG_DIRS, DESCRIBE_PRODUCERS),
    *(DESCRIBE_TOPIC_PARTITIONS, INCREMENTAL_ALTER_CONFIGS),
)


@pytest.mark.parametrize("api", LISTING, ids=lambda api: api.name)
def test_too_many_items_end_the_connection_with_one_line(broker: EmbeddedBroker, api: Api) -> None:
    with RawClient(broker.kafka_address) as client:
        before = lines(broker, client)
        with suppress(ConnectionError):
            client.send(api, TABLE[api.key].versions[-1], sample(api.request.kind, count=MAX_ITEMS + 1))
        assert client.is_closed()
        until(lambda: lines(broker, client) == before + 1)
    assert serves(broker)


@pytest.mark.parametrize("api", LISTING, ids=lambda api: api.name)
def test_many_items_are_answered_and_others_are_served_meanwhile(broker: EmbeddedBroker, api: Api) -> None:
    message = sample(api.request.kind, count=3000)
    for items in (getattr(message, name) for name in message.__struct_fields__):
        for number, item in enumerate(items if isinstance(items, list) else ()):
            for name in ("name", "topic", "resource_name"):
                if hasattr(item, name):
                    setattr(item, name, f"sample-{number}")
    version = TABLE[api.key].versions[-1]
    with RawClient(broker.kafka_address) as client:
        sent = client.send(api, version, message)
        assert serves(broker)
        assert client.receive(api, version)[0] == sent


def test_one_byte_at_a_time_is_a_request(broker: EmbeddedBroker) -> None:
    with RawClient(broker.kafka_address) as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame(API_VERSIONS, 4, ApiVersionsRequest()):
            client.socket.sendall(bytes([byte]))
        assert client.receive(API_VERSIONS, 4)[1].error_code == 0


def test_many_requests_in_one_packet_are_answered_in_their_order(broker: EmbeddedBroker) -> None:
    count = 1000
    with RawClient(broker.kafka_address) as client:
        client.socket.sendall(b"".join(frame(API_VERSIONS, 4, ApiVersionsRequest(), number) for number in range(count)))
        assert [client.receive(API_VERSIONS, 4)[0] for _ in range(count)] == list(range(count))


def test_half_open_connections_do_not_keep_others_out(broker: EmbeddedBroker) -> None:
    """Each has sent the length of a large request, and a part of it."""
    address = parse_address(broker.kafka_address)
    opened = [socket.create_connection(address, timeout=20) for _ in range(200)]
    try:
        for one in opened:
            one.sendall(struct.pack(">ihh", MAX_BYTES, 0, 9) + bytes(1000))
        assert serves(broker)
    finally:
        for one in opened:
            one.close()
    with RawClient(broker.kafka_address) as client:  # Their memory is free again.
        large = frame(PRODUCE, 9, produce_request("missing", {0: batch_of(bytes(MAX_BYTES // 2))}))
        client.socket.sendall(large)
        assert client.receive(PRODUCE, 9)[1].responses[0].partition_responses[0].error_code == 3


def test_a_client_that_never_reads_takes_no_memory_from_others(broker: EmbeddedBroker) -> None:
    with Admin(broker.address) as admin:
        admin.create_topic("large")
    everything = {"max_bytes": 8 * MAX_BYTES, "partition": {"partition_max_bytes": 8 * MAX_BYTES}}
    wanted = frame(FETCH, 12, fetch_request(12, "large", b"", 0, **everything))
    with RawClient(broker.kafka_address) as client, ExitStack() as stalled:
        for _ in range(8):
            assert not produce(client, "large", 0, batch_of(bytes(MAX_BYTES // 2))).error_code
        before = memory_bytes(broker.pid)
        for _ in range(50):
            one = stalled.enter_context(RawClient(broker.kafka_address))
            one.socket.settimeout(0.05)
            with suppress(TimeoutError):  # In the end, the broker reads no more of them.
                for _ in range(500):
                    one.socket.sendall(wanted)
        found = client.call(FETCH, 12, fetch_request(12, "large", b"", 0)).responses[0].partitions[0]
        assert values_of(found.records)
        assert memory_bytes(broker.pid) - before < 200 * MAX_BYTES, "max_fetch_bytes_in_flight is 128 MiB"


def memory_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096
