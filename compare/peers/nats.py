"""NATS JetStream, by nats-py."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from pathlib import Path
from typing import Any, Final

import uvloop

from compare.load import (
    IDLE_SECONDS,
    Job,
    Load,
    Published,
    Stopwatch,
    Worked,
    WorkLog,
    paced,
    shard_names,
    shard_of,
)
from compare.peers.peer import Peer
from compare.peers.server import HOST, ServerProcess, free_port
from compare.tally import Tally
from logbroker.errors import LogbrokerError
from logbroker.types import Durability

IN_FLIGHT: Final = 4000
FETCH_COUNT: Final = 500
_FETCH_SECONDS: Final = 0.05
_NO_LIMIT: Final = -1


class NatsClient:
    """Plain publishes with an inbox for the acknowledgements, push and pull subscriptions, on uvloop.

    A shard is a subject of the stream.
    """

    def __init__(self, address: str) -> None:
        # Only the processes that use a client library import it.
        import nats
        import nats.js.api

        self._address = address
        self._nats = nats

    async def _connect(self) -> Any:
        async def ignore(_error: Exception) -> None:
            """Ignore the error: every call that matters raises its own."""

        return await self._nats.connect(
            f"nats://{self._address}", allow_reconnect=False, error_cb=ignore, pending_size=16 * 2**20
        )

    def create(self, topic: str, shards: int, durability: Durability) -> None:
        uvloop.run(self._create(topic, shards))

    async def _create(self, topic: str, shards: int) -> None:
        async with await self._connect() as connection:
            await connection.jetstream(timeout=30).add_stream(name=topic, subjects=shard_names(topic, shards))

    def publish(self, load: Load) -> Published:
        return uvloop.run(self._publish(load))

    async def _publish(self, load: Load) -> Published:
        names = shard_names(load.topic, load.shards)
        records = acknowledged = 0
        moved = asyncio.Event()
        refused: list[bytes] = []

        async def on_answer(message: Any) -> None:
            nonlocal acknowledged
            acknowledged += 1
            if b'"error"' in message.data or not message.data:
                refused.append(message.data)
            if acknowledged == records or not acknowledged % 256:
                moved.set()

        async with await self._connect() as connection:
            inbox = connection.new_inbox()
            await connection.subscribe(inbox, cb=on_answer, pending_bytes_limit=_NO_LIMIT)
            # So much as a few hundred small records at once, or a few large ones.
            in_flight = max(16, min(IN_FLIGHT, 8 * 2**20 // max(1, load.value_bytes)))
            publish, start = connection.publish, time.perf_counter()
            for chunk in load.chunks():
                for value in chunk:
                    await publish(names[shard_of(value, load.shards)] if load.keyed else load.topic, value, reply=inbox)
                    records += 1
                    while records - acknowledged >= in_flight:
                        moved.clear()
                        await asyncio.wait_for(moved.wait(), IDLE_SECONDS)
            while acknowledged < records:
                moved.clear()
                await asyncio.wait_for(moved.wait(), IDLE_SECONDS)
            seconds = time.perf_counter() - start
        if refused:
            raise LogbrokerError(f"JetStream refused {len(refused):,} records: {refused[0]!r}")
        return Published(records, seconds)

    def count(self, topic: str, shards: int) -> int:
        return uvloop.run(self._count(topic))

    async def _count(self, topic: str) -> int:
        async with await self._connect() as connection:
            return int((await connection.jetstream(timeout=1).stream_info(topic)).state.messages)

    def replay(self, topic: str, records: int) -> float:
        return uvloop.run(self._replay(topic, records))

    async def _replay(self, topic: str, records: int) -> float:
        count, done = 0, asyncio.Event()

        async def on_message(_: Any) -> None:
            nonlocal count
            count += 1
            if count == records:
                done.set()

        async with await self._connect() as connection:
            start = time.perf_counter()
            await connection.jetstream().subscribe(
                topic, ordered_consumer=True, cb=on_message, pending_msgs_limit=_NO_LIMIT, pending_bytes_limit=_NO_LIMIT
            )
            await asyncio.wait_for(done.wait(), 10 * IDLE_SECONDS)
            return time.perf_counter() - start

    def latencies(self, topic: str, records: int, per_second: float) -> list[float]:
        return uvloop.run(self._latencies(topic, records, per_second))

    async def _latencies(self, topic: str, records: int, per_second: float) -> list[float]:
        watch, done = Stopwatch(records), asyncio.Event()

        async def on_message(message: Any) -> None:
            if watch.see(message.data):
                done.set()

        async with await self._connect() as connection:
            await connection.jetstream().subscribe(topic, ordered_consumer=True, cb=on_message)
            inbox = connection.new_inbox()
            await connection.subscribe(inbox, cb=_ignore)
            async for number, sent in paced(records, per_second):
                await connection.publish(topic, watch.value(number, sent), reply=inbox)
            await asyncio.wait_for(done.wait(), IDLE_SECONDS)
        return watch.result()

    def prepare(self, job: Job) -> None:
        uvloop.run(self._prepare(job))

    async def _prepare(self, job: Job) -> None:
        api = self._nats.js.api
        async with await self._connect() as connection:
            for name in shard_names(job.topic, job.shards):
                config = api.ConsumerConfig(
                    durable_name=f"{name}-workers",
                    ack_policy=api.AckPolicy.EXPLICIT,
                    filter_subject=name,
                    max_ack_pending=8 * FETCH_COUNT,
                )
                await connection.jetstream().add_consumer(job.topic, config)

    def work(self, job: Job, tally: Tally) -> Worked:
        return uvloop.run(self._work(job, tally))

    async def _work(self, job: Job, tally: Tally) -> Worked:
        seen = WorkLog(tally.handed)
        names = shard_names(job.topic, job.shards)
        if job.kind == "ordered":
            names = [names[shard] for shard in job.own_shards]
        async with await self._connect() as connection:

            async def work_off(name: str) -> None:
                subscription = await connection.jetstream().pull_subscribe_bind(f"{name}-workers", stream=job.topic)
                while not tally.done:
                    try:
                        messages = await subscription.fetch(FETCH_COUNT, timeout=_FETCH_SECONDS)
                    except TimeoutError:
                        continue
                    for message in messages:
                        seen.see(message.data)
                        await message.ack()
                    await connection.flush()
                    seen.last = time.monotonic()
                    tally.add(len(messages))

            await asyncio.gather(*(work_off(name) for name in names))
        return seen.result()


async def _ignore(_message: Any) -> None:
    """The acknowledgement of a record whose receipt is what counts."""


def _version() -> str:
    said = subprocess.run(["nats-server", "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[-1].removeprefix("v")


def _refuses(durability: Durability) -> str | None:
    """Since 2.10 a server can sync each record."""
    version = [int(number) for number in re.findall(r"\d+", _version())[:2]]
    if durability is Durability.SYNCED and version < [2, 10]:
        return f"nats-server {_version()} cannot sync each record: 2.10 and later can"
    return None


def _server(directory: Path, durability: Durability) -> ServerProcess:
    address = f"{HOST}:{free_port()}"
    lines = [f'listen: "{address}"', "jetstream {", f'store_dir: "{directory}"']
    if durability is Durability.SYNCED:
        lines.append("sync_interval: always")
    config_path = directory / "nats.conf"
    config_path.write_text("\n".join([*lines, "}", ""]), encoding="utf-8")
    return ServerProcess(["nats-server", "-c", str(config_path)], address=address, directory=directory)


PEER: Final = Peer(
    name="nats",
    title="NATS JetStream",
    promises={
        Durability.WRITTEN: "the default: answered after write, synced every two minutes",
        Durability.SYNCED: "sync_interval: always, which needs nats-server 2.10",
    },
    client_settings=f"one publish a record with up to {IN_FLIGHT:,} unanswered; a push subscription with "
    f"ordered_consumer; workers fetch {FETCH_COUNT}",
    notes={
        "work": "a pull consumer with explicit acknowledgement; acknowledgements are not answered",
        "ordered": "8 subjects by key, each with a consumer that the program appoints to one worker; nobody takes over "
        "where it dies",
    },
    cannot={"group": "a stream has no partitions"},
    binaries=("nats-server",),
    modules=("nats",),
    install="make peers; apt-get install nats-server",
    version=_version,
    refuses=_refuses,
    server=_server,
    client=NatsClient,
)
