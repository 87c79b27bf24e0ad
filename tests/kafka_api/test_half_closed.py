"""A client that has closed its side for sending still gets served whatever it sent whole."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from logbroker.embedded_broker import EmbeddedBroker
from logbroker.kafka_api.connection import MAX_REQUESTS, KafkaConnection
from logbroker.kafka_wire.apis import API_VERSIONS, LIST_OFFSETS, PRODUCE
from logbroker.kafka_wire.messages.api_versions import ApiVersionsRequest
from tests.kafka_api.raw_client import RawClient, batch_of, frame, produce_request
from tests.kafka_api.test_apis import offsets_request
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
