"""RabbitMQ streams, by rstream."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any, Final

import uvloop

from compare.load import IDLE_SECONDS, Load, Published, Stopwatch, paced
from compare.peers import rabbitmq_server
from compare.peers.peer import Client, Peer
from compare.peers.rabbitmq_server import RabbitServer
from logbroker.errors import LogbrokerError
from logbroker.types import Durability

IN_FLIGHT: Final = 20_000
CREDIT: Final = 50
_ACCOUNT: Final = {"username": "guest", "password": "guest"}
_LAST_SECONDS: Final = 2.0


class RstreamClient(Client):
    """Producer.send_batch and Consumer with a callback, on uvloop."""

    def __init__(self, address: str) -> None:
        # Only the processes that use a client library import it.
        import rstream

        host, _, port = address.rpartition(":")
        self._rstream = rstream
        self._settings = {"host": host, "port": int(port), **_ACCOUNT}

    def create(self, topic: str, shards: int, durability: Durability) -> None:
        uvloop.run(self._create(topic))

    async def _create(self, topic: str) -> None:
        async with self._rstream.Producer(**self._settings) as producer:
            await producer.create_stream(topic)

    def publish(self, load: Load) -> Published:
        return uvloop.run(self._publish(load))

    async def _publish(self, load: Load) -> Published:
        records = confirmed = 0
        moved = asyncio.Event()
        refused: list[Any] = []

        def on_confirm(status: Any) -> None:
            nonlocal confirmed
            confirmed += 1
            if not status.is_confirmed:
                refused.append(status)
            if confirmed == records or not confirmed % 1024:
                moved.set()

        async with self._rstream.Producer(**self._settings) as producer:
            in_flight = max(16, min(IN_FLIGHT, 8 * 2**20 // max(1, load.value_bytes)))
            start = time.perf_counter()
            for chunk in load.chunks():
                records += len(chunk)
                await producer.send_batch(load.topic, chunk, on_publish_confirm=on_confirm)
                while records - confirmed >= in_flight:
                    moved.clear()
                    await asyncio.wait_for(moved.wait(), IDLE_SECONDS)
            while confirmed < records:
                moved.clear()
                await asyncio.wait_for(moved.wait(), IDLE_SECONDS)
            seconds = time.perf_counter() - start
        if refused:
            raise LogbrokerError(f"RabbitMQ refused {len(refused):,} records: {refused[0]}")
        return Published(records, seconds)

    async def _subscribe(self, stack: AsyncExitStack, topic: str, start: Any, on_message: Any) -> None:
        consumer = await stack.enter_async_context(self._rstream.Consumer(**self._settings))
        await consumer.subscribe(
            topic,
            on_message,
            decoder=_undecoded,
            offset_specification=self._rstream.ConsumerOffsetSpecification(start),
            initial_credit=CREDIT,
        )

    def count(self, topic: str, shards: int) -> int:
        return uvloop.run(self._count(topic))

    async def _count(self, topic: str) -> int:
        """One more than the last offset: what the last chunk tells when it is read."""
        last, quiet = -1, asyncio.Event()

        def on_message(_: Any, context: Any) -> None:
            nonlocal last
            last = context.offset
            quiet.set()

        async with AsyncExitStack() as stack:
            await self._subscribe(stack, topic, self._rstream.OffsetType.LAST, on_message)
            await asyncio.wait_for(quiet.wait(), _LAST_SECONDS)
            before = -2
            while last != before:
                before = last
                await asyncio.sleep(0.005)
        return last + 1

    def replay(self, topic: str, records: int) -> float:
        return uvloop.run(self._replay(topic, records))

    async def _replay(self, topic: str, records: int) -> float:
        count, done = 0, asyncio.Event()

        def on_message(_value: bytes, _context: Any) -> None:
            nonlocal count
            count += 1
            if count == records:
                done.set()

        async with AsyncExitStack() as stack:
            start = time.perf_counter()
            await self._subscribe(stack, topic, self._rstream.OffsetType.FIRST, on_message)
            await asyncio.wait_for(done.wait(), 10 * IDLE_SECONDS)
            return time.perf_counter() - start

    def latencies(self, topic: str, records: int, per_second: float) -> list[float]:
        return uvloop.run(self._latencies(topic, records, per_second))

    async def _latencies(self, topic: str, records: int, per_second: float) -> list[float]:
        watch, done = Stopwatch(records), asyncio.Event()

        def on_message(value: bytes, _context: Any) -> None:
            if watch.see(value):
                done.set()

        async with AsyncExitStack() as stack:
            await self._subscribe(stack, topic, self._rstream.OffsetType.FIRST, on_message)
            producer = await stack.enter_async_context(self._rstream.Producer(**self._settings))
            async for number, sent in paced(records, per_second):
                await producer.send_batch(topic, [watch.value(number, sent)])
            await asyncio.wait_for(done.wait(), IDLE_SECONDS)
        return watch.result()


def _undecoded(value: bytes) -> bytes:
    return value


_NO_ACKS: Final = "a stream has no single acknowledgements: see the quorum queue"

PEER: Final = Peer(
    name="rabbitmq-streams",
    title="RabbitMQ streams",
    promises={Durability.WRITTEN: "the only way: confirmed after write, never synced"},
    client_settings=f"send_batch of 1,000 with up to {IN_FLIGHT:,} unconfirmed, values not wrapped in AMQP, no "
    f"sub-entries; "
    f"initial_credit={CREDIT}",
    cannot={"work": _NO_ACKS, "ordered": _NO_ACKS, "group": "not measured: a super stream is several"},
    modules=("rstream",),
    install=rabbitmq_server.INSTALL,
    lacks=rabbitmq_server.lacks,
    version=rabbitmq_server.version,
    server=lambda directory, _: RabbitServer(directory, streams=True),
    client=RstreamClient,
)
