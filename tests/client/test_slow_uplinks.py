"""A producer behind a link on which a request takes longer than a connection may be silent."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest

from logbroker.client import Admin, Producer
from logbroker.client.producer import sender
from logbroker.client.transport import connection
from tests.client.links import Link

BUFFER_BYTES = 65_536
RECORD_BYTES = 600_000
"""Three seconds on the link, in which the broker says nothing."""
PATIENCE_FACTOR = 60
NOTICED_SECONDS = 8.0
"""Longer than a connection without patience takes to notice that it is dead, and shorter than one with it."""


@dataclass
class Uplink:
    address: str
    bytes_per_second: float = 200_000


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "KEEPALIVE_SECONDS", 1.0)
    for module in (connection, sender):
        monkeypatch.setattr(module, "KEEPALIVE_TIMEOUT_SECONDS", 0.25)


@asynccontextmanager
async def slow_uplink(broker: str) -> AsyncIterator[Uplink]:
    """Yield a way to a broker that is slow in one direction, and holds little on it."""
    host, _, port = broker.rpartition(":")
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(host, int(port))

        async def up() -> None:
            while data := await reader.read(4096):
                await asyncio.sleep(len(data) / uplink.bytes_per_second)
                there_writer.write(data)
                await there_writer.drain()

        async def down() -> None:
            while data := await there_reader.read(BUFFER_BYTES):
                writer.write(data)
                await writer.drain()

        ways = [asyncio.create_task(up()), asyncio.create_task(down())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (writer, there_writer):
                end.transport.abort()
                with suppress(OSError):
                    await end.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(task := asyncio.create_task(serve(reader, writer)))
        task.add_done_callback(serving.discard)

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    listening.bind(("127.0.0.1", 0))
    uplink = Uplink(":".join(map(str, listening.getsockname())))
    async with await asyncio.start_server(accept, sock=listening, limit=BUFFER_BYTES):
        try:
            yield uplink
        finally:
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)


@pytest.mark.prove
@pytest.mark.usefixtures("quick")
async def test_a_producer_gets_through_though_its_request_takes_longer_than_its_patience(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic)
    async with slow_uplink(address) as slow, Producer(slow.address) as producer, asyncio.timeout(60):
        await (await producer.send(topic, os.urandom(RECORD_BYTES)))
    assert "reconnecting" in caplog.text, "it had patience enough from the start: nothing was shown"


@pytest.mark.prove
@pytest.mark.usefixtures("quick")
async def test_a_producer_loses_its_patience_once_its_link_is_quick(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And then notices a dead connection as soon as any producer does, while its records go on in order, once each."""
    monkeypatch.setattr(connection, "_PATIENCE_FACTOR", PATIENCE_FACTOR)
    monkeypatch.setattr(sender, "_QUICK_FOR_SECONDS", 0.5)
    async with Admin(address) as admin:
        await admin.create_topic(topic)
    async with (
        slow_uplink(address) as slow,
        Link().to(slow.address) as link,
        Producer(link.address) as producer,
        asyncio.timeout(60),
    ):
        sent = [await producer.send(topic, os.urandom(RECORD_BYTES))]
        await sent[0]
        patient = len(link.pipes)
        assert patient > 1, "it had patience enough from the start: nothing was shown"
        slow.bytes_per_second = 1e9
        async with asyncio.timeout(20):
            while len(link.pipes) == patient:
                sent += [await producer.send(topic, b"quick") for _ in range(3)]
                await sent[-1]
        await producer.send_and_wait(topic, b"over the new connection")
        link.freeze()
        async with asyncio.timeout(NOTICED_SECONDS):
            last = await producer.send_and_wait(topic, b"behind a dead connection")
        assert last.offset == len(sent) + 1
        assert [(await each).offset for each in sent] == list(range(len(sent)))
