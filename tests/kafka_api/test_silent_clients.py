"""Clients that stop in the middle, or read no answers, are disconnected in the end, and so are too many of them."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest

from logbroker.kafka_api import connection, server
from logbroker.kafka_wire.apis import API_VERSIONS, FETCH, JOIN_GROUP, METADATA, PRODUCE
from logbroker.kafka_wire.codec import Api
from logbroker.kafka_wire.messages.api_versions import ApiVersionsRequest
from logbroker.kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from logbroker.kafka_wire.messages.metadata import MetadataRequest
from tests.kafka_api.raw_client import batch_of, frame, produce_request
from tests.kafka_api.test_apis import fetch_request
from tests.kafka_api.test_order import listening

SECONDS = 60


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CHECK_SECONDS", 0.01)
    for name in ("FIRST_REQUEST_SECONDS", "REQUEST_SECONDS", "STALL_SECONDS"):
        monkeypatch.setattr(connection, name, 0.2)


@pytest.mark.parametrize("sent", [b"", struct.pack(">i", 1000), struct.pack(">i", 1000) + b"\0\3"])
async def test_a_client_that_stops_in_the_middle_is_disconnected(tmp_path: Path, sent: bytes) -> None:
    async with listening(tmp_path) as (_, address), asyncio.timeout(SECONDS):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        assert await ended(reader)
        writer.close()


@pytest.mark.parametrize("part", [100, 1 << 20])
async def test_a_large_request_that_stops_is_given_up_as_soon_as_a_small_one(tmp_path: Path, part: int) -> None:
    async with listening(tmp_path) as (listener, address), asyncio.timeout(SECONDS):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(struct.pack(">ihhi", listener.max_request_bytes, 0, 9, 1) + bytes(part))
        assert await ended(reader)
        writer.close()


@pytest.mark.parametrize("pace_seconds", [0.0, 0.01])
async def test_requests_that_stop_hold_no_memory_that_others_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pace_seconds: float
) -> None:
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 10 * SECONDS)
    monkeypatch.setattr(connection, "HURRIED_SECONDS", 0.2)
    async with listening(tmp_path) as (listener, address), asyncio.timeout(SECONDS):
        host, _, port = address.rpartition(":")
        slow = []
        while listener.memory.free_bytes > 0:
            reader, writer = await asyncio.open_connection(host, int(port))
            slow.append(writer)
            before = listener.memory.free_bytes
            writer.write(struct.pack(">ihhi", listener.max_request_bytes, 0, 9, 1) + bytes(100))
            while listener.memory.free_bytes == before:
                await asyncio.sleep(0)
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(frame(PRODUCE, 9, produce_request("missing", {0: batch_of(bytes(100_000))})))

        async def send_some_more() -> None:
            while pace_seconds:
                for each in slow:
                    each.write(b"\0")
                await asyncio.sleep(pace_seconds)

        sending = asyncio.create_task(send_some_more())
        assert await reader.readexactly(4)
        sending.cancel()
        for each in (*slow, writer):
            each.close()


@pytest.mark.parametrize("api", [FETCH, JOIN_GROUP], ids=lambda api: api.name)
async def test_no_request_waits_for_a_client_that_is_gone(tmp_path: Path, api: Api) -> None:
    """A program that is closed or killed sends an end; so does one that sends no more and still reads."""
    async with listening(tmp_path) as (listener, address), asyncio.timeout(SECONDS):
        await listener.node.engine.create_topic("t", 1, {})
        host, _, port = address.rpartition(":")
        if api is FETCH:
            waiting = frame(FETCH, 12, fetch_request(12, "t", b"", 0, max_wait_ms=1000 * SECONDS))
        else:
            protocols = [JoinGroupRequestProtocol(name="range")]
            waiting = frame(
                JOIN_GROUP,
                1,
                JoinGroupRequest(
                    group_id="g",
                    session_timeout_ms=1000 * SECONDS,
                    rebalance_timeout_ms=1000 * SECONDS,
                    protocol_type="consumer",
                    protocols=protocols,
                ),
            )
            # The first member never comes back, so the second one would wait for it.
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(waiting)
            assert await reader.readexactly(4)
            writer.close()
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(waiting)
        writer.write_eof()
        assert bool(await reader.read()) == (api is FETCH), "a Fetch is answered; the connection ends"
        writer.close()


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return not await reader.read(1)
    except ConnectionError:
        return True


@pytest.mark.prove
async def test_a_client_that_reads_nothing_is_disconnected(tmp_path: Path) -> None:
    async with listening(tmp_path) as (listener, address), asyncio.timeout(SECONDS):
        for number in range(100):
            await listener.node.engine.create_topic(f"topic-{number}", 20, {})
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)

        async def ask_without_end() -> None:
            while True:
                writer.write(frame(METADATA, 12, MetadataRequest(topics=None)))
                await writer.drain()

        with pytest.raises(ConnectionError):
            await ask_without_end()
        del reader


async def test_a_client_that_is_slow_but_reads_stays(tmp_path: Path) -> None:
    async with listening(tmp_path) as (_, address), asyncio.timeout(SECONDS):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in range(5):
            writer.write(frame(API_VERSIONS, 0, ApiVersionsRequest()))
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(size)
            await asyncio.sleep(0.3)  # Longer than all limits but the one of idle clients.
        writer.close()


async def test_too_many_clients_are_refused_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "max_connections", lambda _: 1)
    async with listening(tmp_path) as (_, address), asyncio.timeout(SECONDS):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(frame(PRODUCE, 9, produce_request("missing", {0: batch_of(b"a")})))
        assert await reader.readexactly(4)
        others = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        for other, its_writer in others:
            assert await ended(other)
            its_writer.close()
        writer.write(frame(API_VERSIONS, 0, ApiVersionsRequest()))
        assert await reader.readexactly(4)
        writer.close()
    assert sum("further ones are refused" in line for line in caplog.messages) == 1
