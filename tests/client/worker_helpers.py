"""Helpers shared by the tests of workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from logbroker.client import (
    Admin,
    Producer,
    QueueAdmin,
    QueueDescription,
    QueueSettings,
    Worker,
    WorkerDelivery,
)


async def create(address: str, group: str, partitions: int = 2, **settings: Any) -> None:
    """Create a topic, and a queue group of the same name on it."""
    async with Admin(address) as admin, QueueAdmin(address) as queues:
        await admin.create_topic(group, partitions)
        await queues.create_queue(group, group, QueueSettings(**settings))


async def fill(address: str, topic: str, records: int, keys: int = 10, first: int = 0, **options: Any) -> None:
    """Send records with the values 0, 1, ..., whose keys take turns."""
    async with Producer(address, **options) as producer:
        for number in range(first, first + records):
            await producer.send(topic, b"%d" % number, b"k%d" % (number % keys))


async def describe(address: str, group: str) -> QueueDescription:
    async with QueueAdmin(address) as queues:
        return await queues.describe_queue(group)


async def wait_until(address: str, group: str, holds: Callable[[QueueDescription], bool]) -> QueueDescription:
    """Wait for a queue group to come to where the test wants it."""
    async with asyncio.timeout(20):
        while not holds(description := await describe(address, group)):
            await asyncio.sleep(0.02)
    return description


def in_order(numbers: list[int], keys: int = 10) -> bool:
    """Whether the numbers of each key came in their order."""
    return all(
        numbers_of == sorted(numbers_of) for numbers_of in ([n for n in numbers if n % keys == k] for k in range(keys))
    )


async def take(worker: Worker, count: int) -> list[WorkerDelivery]:
    """Take so many, unsettled."""
    taken: list[WorkerDelivery] = []
    async with asyncio.timeout(20):
        async for delivery in worker:
            taken.append(delivery)
            if len(taken) == count:
                break
    return taken


async def drain(worker: Worker, count: int) -> list[WorkerDelivery]:
    """Take and ack so many."""
    taken: list[WorkerDelivery] = []
    async with asyncio.timeout(20):
        async for delivery in worker:
            async with delivery:
                taken.append(delivery)
            if len(taken) == count:
                break
    await worker.flush()
    return taken


def numbers(deliveries: list[WorkerDelivery]) -> list[int]:
    return [int(delivery.value or b"") for delivery in deliveries]


class Wire:
    """A way to a broker that can be cut."""

    def __init__(self) -> None:
        self.address = ""
        self._pipes: list[asyncio.StreamWriter] = []
        self._down = False
        self._stalled = asyncio.Event()
        self._stalled.set()

    def cut(self) -> None:
        """Break all connections; new ones come through."""
        pipes, self._pipes = self._pipes, []
        for pipe in pipes:
            pipe.transport.abort()
        self._stalled.set()

    def take_down(self) -> None:
        """Break all connections, and let none through until `bring_up`."""
        self._down = True
        self.cut()

    def bring_up(self) -> None:
        self._down = False

    def stall_answers(self) -> None:
        """Let nothing come back until the wire is cut."""
        self._stalled.clear()

    def _lets_through(self) -> bool:
        return not self._down

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, broker: str) -> None:
        pipes = [writer]
        try:
            if not self._lets_through():
                return
            host, _, port = broker.rpartition(":")
            back_reader, back_writer = await asyncio.open_connection(host, int(port))
            pipes.append(back_writer)
            self._pipes += pipes
            if not self._lets_through():
                return
            await asyncio.gather(_pump(reader, back_writer), self._pump_back(back_reader, writer))
        except OSError:
            pass  # It was cut.
        finally:
            for pipe in pipes:
                pipe.transport.abort()

    async def _pump_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._stalled.wait()
            writer.write(data)
            await writer.drain()
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def wire(broker: str) -> AsyncIterator[Wire]:
    """Yield a way to the broker that can be cut."""
    made = Wire()
    serving: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(made.serve(reader, writer, broker)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    made.address = f"{host}:{port}"
    try:
        yield made
    finally:
        server.close()
        made.take_down()
        await asyncio.gather(*serving)
        await server.wait_closed()
