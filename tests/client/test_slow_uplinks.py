"""A producer behind a link on which a request takes longer than a connection may be silent."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from logbroker.client import Admin, Producer
from logbroker.client.producer import sender
from logbroker.client.transport import connection

BYTES_PER_SECOND = 200_000
BUFFER_BYTES = 65_536
RECORD_BYTES = 600_000
"""Three seconds on the link, in which the broker says nothing."""


@asynccontextmanager
async def slow_uplink(broker: str) -> AsyncIterator[str]:
    """Yield the address of a way to a broker that is slow in one direction, and holds little on it."""
    host, _, port = broker.rpartition(":")
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(host, int(port))

        async def up() -> None:
            while data := await reader.read(4096):
                await asyncio.sleep(len(data) / BYTES_PER_SECOND)
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
    async with await asyncio.start_server(accept, sock=listening, limit=BUFFER_BYTES):
        try:
            yield ":".join(map(str, listening.getsockname()))
        finally:
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)


async def test_a_producer_gets_through_though_its_request_takes_longer_than_its_patience(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection, "KEEPALIVE_SECONDS", 1.0)
    for module in (connection, sender):
        monkeypatch.setattr(module, "KEEPALIVE_TIMEOUT_SECONDS", 0.25)
    async with Admin(address) as admin:
        await admin.create_topic(topic)
    async with slow_uplink(address) as slow, Producer(slow) as producer, asyncio.timeout(60):
        await (await producer.send(topic, os.urandom(RECORD_BYTES)))
    assert "reconnecting" in caplog.text, "it had patience enough from the start: nothing was shown"
