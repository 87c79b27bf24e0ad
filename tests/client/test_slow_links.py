"""Members behind links that are slow, or long: what they hold does not hang on how fast records come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from logbroker.client import Consumer, Producer, TopicPartition
from logbroker.embedded_broker import embedded
from tests.client.group_helpers import Events, fill, numbers

RECORD_BYTES = 20_000
RECORDS = 100
HELD_BACK_BEHIND_BYTES = 300_000


class Pipe:
    """One connection through a `Link`: what came back on it, and whether it may."""

    def __init__(self) -> None:
        self.bytes_back = 0
        self.goes_on = asyncio.Event()
        self.goes_on.set()


class Link:
    """A way to a broker. Each connection stands still once `limit_bytes` have come back on it; answers take
    `delay_seconds`."""

    def __init__(self, *, limit_bytes: int | None = None, delay_seconds: float = 0.0) -> None:
        self.address = ""
        self.pipes: list[Pipe] = []
        self.limit_bytes = limit_bytes
        self._delay_seconds = delay_seconds

    @property
    def full(self) -> list[Pipe]:
        return [pipe for pipe in self.pipes if not pipe.goes_on.is_set()]

    def release(self) -> None:
        self.limit_bytes = None
        for pipe in self.pipes:
            pipe.goes_on.set()

    @asynccontextmanager
    async def to(self, broker: str) -> AsyncIterator[Link]:
        host, _, port = broker.rpartition(":")

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there_reader, there_writer = await asyncio.open_connection(host, int(port))
            self.pipes.append(pipe := Pipe())
            try:
                await asyncio.gather(_forth(reader, there_writer), self._back(there_reader, writer, pipe))
            except (OSError, asyncio.CancelledError):
                pass  # One of them is gone, or the test is over.
            finally:
                for end in (writer, there_writer):
                    end.transport.abort()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            self.address = ":".join(map(str, server.sockets[0].getsockname()))
            try:
                yield self
            finally:
                self.release()

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pipe: Pipe) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(16_384):
            pipe.bytes_back += len(data)
            if self.limit_bytes is not None and pipe.bytes_back >= self.limit_bytes:
                pipe.goes_on.clear()
                await pipe.goes_on.wait()
            if self._delay_seconds:
                loop.call_later(self._delay_seconds, writer.write, data)
            else:
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


async def _forth(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(16_384):
        writer.write(data)
        await writer.drain()
    writer.transport.abort()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


async def large_records(address: str, topic: str) -> None:
    await fill(address, topic, 1, 0)
    async with Producer(address) as producer:
        for _ in range(RECORDS):
            await producer.send(topic, b"x" * RECORD_BYTES)


async def test_no_heartbeat_waits_behind_records(address: str, topic: str) -> None:
    """Nor does any other question: the records that are on their way fill what lies between for many sessions."""
    await large_records(address, topic)
    events = Events()
    async with (
        Link(limit_bytes=HELD_BACK_BEHIND_BYTES).to(address) as link,
        Consumer(link.address, group=topic, session_timeout_seconds=1.0) as consumer,
    ):
        await consumer.subscribe(topic, **events.listen("it"))
        await until_assigned(consumer)
        await until(lambda: link.full)
        for _ in range(8):
            before = consumer.permit.until
            await until(lambda before=before: consumer.permit.until > before)  # type: ignore[misc]
        assert await consumer.end_offsets() == {TopicPartition(topic, 0): RECORDS}
        assert link.full
        link.release()
        async with asyncio.timeout(20):
            found = [record.offset async for record in consumer.until_end()]
        assert found == list(range(RECORDS))
        assert [kind for _, kind, _ in events.all] == ["assigned"]


async def until_assigned(consumer: Consumer) -> None:
    async with asyncio.timeout(20):
        while not numbers(consumer):
            assert not await consumer.poll(timeout_seconds=0.01)


async def test_who_can_never_deliver_in_time_says_why(topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """Every answer comes, and each is too late to permit anything."""
    with embedded(reconnect_grace_seconds=0.3) as broker:
        await fill(broker.address, topic, 1, 10)
        async with (
            Link(delay_seconds=0.4).to(broker.address) as link,
            Consumer(link.address, group=topic) as consumer,
        ):
            await consumer.subscribe(topic)
            await until(lambda: "reconnect_grace_seconds" in caplog.text)
            (said,) = [record for record in caplog.records if "reconnect_grace_seconds" in record.getMessage()]
            assert said.levelno == logging.WARNING
            assert "permits to deliver records for 0.3 s" in said.getMessage()
