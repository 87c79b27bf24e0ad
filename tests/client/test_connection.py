"""How the client connects: also to a broker that takes its time."""

from __future__ import annotations

import asyncio

from logbroker.client import Admin

CONNECT_SECONDS = 0.4


async def test_a_connection_that_takes_its_time_is_waited_for(address: str, topic: str) -> None:
    """As over a long way, or to a busy machine: a call that is not repeated must not fail by it."""
    host, _, port = address.rpartition(":")

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
            await writer.wait_closed()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(CONNECT_SECONDS)
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pass_on(reader, there_writer), pass_on(there_reader, writer), return_exceptions=True)
        ended.set()

    ended = asyncio.Event()
    async with await asyncio.start_server(connect, "127.0.0.1", 0) as far_away:
        there = ":".join(map(str, far_away.sockets[0].getsockname()))
        async with Admin(there) as admin:
            assert (await admin.create_topic(topic, 1)).name == topic
        await ended.wait()
