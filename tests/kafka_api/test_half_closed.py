"""A client that has closed its side for sending still gets served whatever it sent whole, but nothing waits for it."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logbroker.embedded_broker import EmbeddedBroker
from logbroker.kafka_api import dispatch
from logbroker.kafka_api.apis.table import TABLE
from logbroker.kafka_api.call import Call, Served
from logbroker.kafka_api.connection import MAX_REQUESTS, KafkaConnection
from logbroker.kafka_wire.apis import API_VERSIONS, FETCH, LIST_OFFSETS, PRODUCE
from logbroker.kafka_wire.messages.api_versions import ApiVersionsRequest
from tests.kafka_api.raw_client import RawClient, batch_of, frame, produce_request
from tests.kafka_api.samples import sample
from tests.kafka_api.test_apis import fetch_request, offsets_request
from tests.kafka_api.test_order import listening
from tests.waiting import until

COUNT = 10 * MAX_REQUESTS


def asked(number: int) -> bytes:
    return frame(API_VERSIONS, 4, ApiVersionsRequest(), number)


@pytest.mark.parametrize("rest", [b"", b"\0", b"\0\0\0\x0a\0"])
def test_all_whole_requests_are_answered_after_the_end_of_the_requests(broker: EmbeddedBroker, rest: bytes) -> None:
    with RawClient(broker.kafka_address) as client:
        client.socket.sendall(b"".join(map(asked, range(COUNT))) + rest)
        client.socket.shutdown(socket.SHUT_WR)
        assert [client.receive(API_VERSIONS, 4)[0] for _ in range(COUNT)] == list(range(COUNT))
        assert client.is_closed()


def test_batches_without_acks_are_written_after_the_end_of_the_requests(broker: EmbeddedBroker, topic: str) -> None:
    sent = frame(PRODUCE, 9, produce_request(topic, {0: batch_of(b"a")}, acks=0))
    with RawClient(broker.kafka_address) as client:
        client.socket.sendall(sent * COUNT)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()

    def latest() -> int:
        with RawClient(broker.kafka_address) as other:
            found: int = other.call(LIST_OFFSETS, 5, offsets_request(topic, -1)).topics[0].partitions[0].offset
            return found

    until(lambda: latest() == COUNT)


class EagerTransport(asyncio.Transport):
    """It reports the end although reading is paused, as transports with TLS may."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = asyncio.Event()

    def writelines(self, parts: Any) -> None:
        self.written += b"".join(parts)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def close(self) -> None:
        self.closed.set()

    def answered(self) -> list[int]:
        found, at = [], 0
        while at < len(self.written):
            size, number = struct.unpack_from(">ii", self.written, at)
            found.append(number)
            at += 4 + size
        return found


@pytest.mark.parametrize("rest", [b"", b"\0\0\0\x0a\0"])
async def test_requests_that_wait_when_the_end_comes_are_answered(tmp_path: Path, rest: bytes) -> None:
    async with listening(tmp_path) as (listener, _), asyncio.timeout(30):
        connection, transport = KafkaConnection(listener), EagerTransport()
        connection.connection_made(transport)
        connection.data_received(b"".join(map(asked, range(COUNT))) + rest)
        assert connection.eof_received(), "the transport stays open"
        await transport.closed.wait()
        connection.connection_lost(None)
    assert transport.answered() == list(range(COUNT))


async def test_an_end_in_the_middle_of_a_request_ends_the_connection(tmp_path: Path) -> None:
    async with listening(tmp_path) as (listener, _):
        connection, transport = KafkaConnection(listener), EagerTransport()
        connection.connection_made(transport)
        connection.data_received(b"\0\0\0\x0a\0")
        assert not connection.eof_received()
        connection.connection_lost(None)


def long_fetch(topic: str) -> bytes:
    return frame(FETCH, 12, fetch_request(12, topic, b"", 0, max_wait_ms=300_000, min_bytes=1))


def test_a_fetch_that_waits_is_answered_at_the_end_of_the_requests(broker: EmbeddedBroker, topic: str) -> None:
    with RawClient(broker.kafka_address) as client:
        client.socket.sendall(long_fetch(topic) * 3 + asked(7))
        client.socket.shutdown(socket.SHUT_WR)
        for _ in range(3):
            assert client.receive(FETCH, 12)[1].responses[0].partitions[0].error_code == 0
        assert client.receive(API_VERSIONS, 4)[0] == 7
        assert client.is_closed()


@pytest.mark.parametrize("is_begun", [True, False])
@pytest.mark.parametrize("served", [each for each in TABLE.values() if each.is_waiting], ids=lambda each: each.api.name)
async def test_no_connection_is_kept_for_a_client_that_is_gone(
    tmp_path: Path, served: Served, is_begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever waits, begun or not; a batch behind it is written."""
    has_begun = asyncio.Event()

    async def handle(call: Call, request: Any) -> Any:
        has_begun.set()
        if served.can_hurry:
            return await served.handle(call, request)
        return await asyncio.Event().wait()

    monkeypatch.setattr(dispatch, "TABLE", {**TABLE, served.api.key: replace(served, handle=handle)})
    version = served.versions[-1]
    waits = long_fetch("t") if served.api is FETCH else frame(served.api, version, sample(served.api.request.kind))
    batch = frame(PRODUCE, 9, produce_request("t", {0: batch_of(b"a")}, acks=0))
    async with listening(tmp_path) as (listener, _), asyncio.timeout(30):
        engine, free_bytes = listener.node.engine, listener.memory.free_bytes
        topic = await engine.create_topic("t", 1, {})
        connection, transport = KafkaConnection(listener), EagerTransport()
        connection.connection_made(transport)
        connection.data_received((b"" if is_begun else asked(0)) + waits + asked(1))
        if is_begun:
            await has_begun.wait()
        connection.data_received(batch)
        assert connection.eof_received(), "the transport stays open for the answers"
        await transport.closed.wait()
        connection.connection_lost(None)
        while not engine.partition_facts(topic.id, 0).high_watermark or listener.memory.free_bytes < free_bytes:
            await asyncio.sleep(0.01)
    assert transport.answered() == ([] if is_begun else [0]) + ([1, 1] if served.can_hurry else [])
