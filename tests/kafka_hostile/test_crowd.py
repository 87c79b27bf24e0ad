"""Ten thousand connections that come to nothing, and a thousand clients: others are served, and memory is bounded."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import struct
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from logbroker.address import parse_address
from logbroker.client.sync import Admin
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.kafka_wire.apis import API_VERSIONS, FETCH, METADATA, PRODUCE
from logbroker.kafka_wire.codec import Api
from logbroker.kafka_wire.messages.api_versions import ApiVersionsRequest
from logbroker.kafka_wire.messages.headers import RESPONSE_HEADER
from logbroker.kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.hostile.broker import MIB, LimitedBroker
from tests.hostile.crowd import many_descriptors
from tests.kafka_api.raw_client import RawClient, batch_of, frame, produce_request
from tests.kafka_api.test_apis import fetch_request, values_of
from tests.kafka_hostile.barrage import MEMORY_BYTES, SETTINGS, STEADY, SteadyClient
from tests.waiting import until

HALF_OPEN: Final = 10_000
OWN_DESCRIPTORS: Final = 500
CLIENTS: Final = 1000
BYTES_EACH: Final = 32 * 1024
"""Limit on the broker's memory for each connection. Measured: 4 KiB for one that comes to nothing, 15 for a client."""
AT_ONCE: Final = 500
SECONDS: Final = 60
UNFINISHED: Final = (
    b"",
    b"\0\0",
    struct.pack(">ihh", 100, 3, 9),
    struct.pack(">ihh", MIB, 0, 9) + bytes(100),
    struct.pack(">ihhih", 10, 18, 0, 1, -1)[:-1],
)


@pytest.mark.prove
def test_ten_thousand_half_open_connections_do_not_disturb_others(tmp_path: Path) -> None:
    with (
        many_descriptors(),
        ExitStack() as opened,
        LimitedBroker(tmp_path, memory_bytes=MEMORY_BYTES, **SETTINGS) as broker,
    ):
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        with Admin(broker.address) as admin:
            admin.create_topic(STEADY)
        steady = opened.enter_context(SteadyClient(broker.kafka_address))
        steady.round()
        before_bytes, before = broker.resident_bytes(), broker.descriptors()
        address = parse_address(broker.kafka_address)
        half_open = []
        for number in range(min(HALF_OPEN, most - OWN_DESCRIPTORS)):
            one = opened.enter_context(socket.create_connection(address, timeout=SECONDS))
            half_open.append(one)
            with suppress(ConnectionError):  # There are as many of them as it takes.
                one.sendall(UNFINISHED[number % len(UNFINISHED)])
        held = broker.descriptors() - before
        assert held > 1000
        steady.go_on()
        assert broker.resident_bytes() - before_bytes < held * BYTES_EACH
        for one in half_open:
            one.close()
        until(lambda: broker.descriptors() < before + 20, SECONDS)
        steady.round()


def test_clients_that_come_all_at_once_do_not_wait_for_each_other(logbroker_kafka_broker: EmbeddedBroker) -> None:
    """They come while the broker does nothing, as all do after a restart."""
    broker = logbroker_kafka_broker
    with many_descriptors(), ExitStack() as opened:
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            for _ in range(AT_ONCE):
                address = parse_address(broker.kafka_address)
                opened.enter_context(socket.create_connection(address, timeout=0.5))
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        with RawClient(broker.kafka_address) as client:
            assert not client.call(API_VERSIONS, 4, ApiVersionsRequest()).error_code


class _Client:
    """One of a thousand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def call(self, api: Api, version: int, request: Any) -> Any:
        self._writer.write(frame(api, version, request))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        data = await self._reader.readexactly(size)
        _, at = RESPONSE_HEADER.read_part(data, api.response_header_version(version))
        return api.response.read(data, version, at)

    def close(self) -> None:
        self._writer.close()

    async def begin(self) -> None:
        assert not (await self.call(API_VERSIONS, 4, ApiVersionsRequest())).error_code
        metadata = await self.call(METADATA, 12, MetadataRequest(topics=[MetadataRequestTopic(name=STEADY)]))
        assert not metadata.topics[0].error_code

    async def next_values(self) -> list[bytes | None]:
        """Wait for the first records."""
        answer = await self.call(FETCH, 12, fetch_request(12, STEADY, b"", 0, max_wait_ms=1000 * SECONDS))
        return values_of(bytes(answer.responses[0].partitions[0].records))

    async def append(self, value: bytes) -> int:
        answer = await self.call(PRODUCE, 9, produce_request(STEADY, {0: batch_of(value)}, acks=1))
        [result] = answer.responses[0].partition_responses
        assert not result.error_code
        offset: int = result.base_offset
        return offset


@pytest.mark.prove
async def test_a_thousand_clients_wait_and_work_at_once(tmp_path: Path) -> None:
    with many_descriptors(), LimitedBroker(tmp_path, memory_bytes=MEMORY_BYTES, **SETTINGS) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic(STEADY)
        before_bytes = broker.resident_bytes()
        host, port = parse_address(broker.kafka_address)
        async with asyncio.timeout(SECONDS):
            clients = [_Client(*await asyncio.open_connection(host, port)) for _ in range(CLIENTS)]
            await asyncio.gather(*[each.begin() for each in clients])
            waiting = [asyncio.create_task(each.next_values()) for each in clients[1:]]
            assert await clients[0].append(b"first") == 0
            assert await asyncio.gather(*waiting) == [[b"first"]] * (CLIENTS - 1)
            offsets = await asyncio.gather(*[each.append(b"value") for each in clients])
            assert sorted(offsets) == list(range(1, CLIENTS + 1))
            assert broker.resident_bytes() - before_bytes < CLIENTS * BYTES_EACH
            for each in clients:
                each.close()
