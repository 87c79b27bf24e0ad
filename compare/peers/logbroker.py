"""logbroker itself, by its Python client."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Final

import uvloop

from compare.load import Job, Load, Published, Stopwatch, Worked, WorkLog, key_of, paced
from compare.peers.peer import Peer
from compare.peers.server import HOST, ServerProcess, free_port
from compare.tally import Tally
from logbroker import __version__
from logbroker.client import Admin, Consumer, Producer
from logbroker.client.admin.queue_admin import QueueAdmin
from logbroker.client.admin.queue_descriptions import QueueSettings
from logbroker.client.worker.worker import Worker
from logbroker.errors import LogbrokerError
from logbroker.types import Durability, TopicPartition

PREFETCH: Final = 2000
_LOOK_SECONDS: Final = 0.01
_LIST_RECORDS: Final = 250
_POLL_RECORDS: Final = 1000
_POLL_SECONDS: Final = 0.02


class LogbrokerClient:
    """Producer, Consumer and Worker, on uvloop."""

    def __init__(self, address: str) -> None:
        self._address = address
        # One loop for the process: gRPC's poller outlives a loop that is closed.
        self._run = asyncio.Runner(loop_factory=uvloop.new_event_loop).run

    def create(self, topic: str, shards: int, durability: Durability) -> None:
        self._run(self._create(topic, shards, durability))

    async def _create(self, topic: str, shards: int, durability: Durability) -> None:
        async with Admin(self._address) as admin:
            await admin.create_topic(topic, shards, configs={"durability": durability.value, "retention.ms": "-1"})

    def publish(self, load: Load) -> Published:
        return self._run(self._publish(load))

    async def _publish(self, load: Load) -> Published:
        async with Producer(self._address) as producer:
            send, topic = producer.send, load.topic
            records, start = 0, time.perf_counter()
            for chunk in load.chunks():
                records += len(chunk)
                if load.keyed:
                    for value in chunk:
                        await send(topic, value, key_of(value))
                else:
                    for value in chunk:
                        await send(topic, value)
            await producer.flush()
            return Published(records, time.perf_counter() - start)

    def count(self, topic: str, shards: int) -> int:
        return self._run(self._count(topic, shards))

    async def _count(self, topic: str, shards: int) -> int:
        async with Admin(self._address) as admin:
            listed = await admin.list_offsets([TopicPartition(topic, number) for number in range(shards)], "latest")
        for each in listed:
            if isinstance(each, LogbrokerError):
                raise each
        return sum(each.offset for each in listed if not isinstance(each, LogbrokerError))

    def replay(self, topic: str, records: int) -> float:
        return self._run(self._replay(topic, records))

    async def _replay(self, topic: str, records: int) -> float:
        async with Consumer(self._address) as consumer:
            start, count = time.perf_counter(), 0
            await consumer.assign(topic, start="earliest")
            async for _ in consumer:
                count += 1
                if count == records:
                    break
            return time.perf_counter() - start

    def latencies(self, topic: str, records: int, per_second: float) -> list[float]:
        return self._run(self._latencies(topic, records, per_second))

    async def _latencies(self, topic: str, records: int, per_second: float) -> list[float]:
        watch = Stopwatch(records)
        async with Producer(self._address) as producer, Consumer(self._address) as consumer:
            await consumer.assign(topic, start="earliest")

            async def receive() -> None:
                async for record in consumer:
                    if watch.see(record.value or b""):
                        return

            receiving = asyncio.create_task(receive())
            async for number, sent in paced(records, per_second):
                await producer.send(topic, watch.value(number, sent))
            await receiving
        return watch.result()

    def prepare(self, job: Job) -> None:
        self._run(self._prepare(job))

    async def _prepare(self, job: Job) -> None:
        if job.kind == "group":
            return  # made by its first member
        async with QueueAdmin(self._address) as admin:
            ordering = "key" if job.kind == "ordered" else "none"
            await admin.create_queue(job.group, job.topic, QueueSettings(ordering=ordering))

    def work(self, job: Job, tally: Tally) -> Worked:
        return self._run(self._read(job, tally) if job.kind == "group" else self._work(job, tally))

    async def _work(self, job: Job, tally: Tally) -> Worked:
        seen = WorkLog(tally.handed)

        async def stop_when_done(worker: Worker) -> None:
            counted = 0
            while not tally.done:
                await asyncio.sleep(_LOOK_SECONDS)
                if (records := seen.records) > counted:
                    await worker.flush()
                    seen.last = time.monotonic()
                    tally.add(records - counted)
                    counted = records
            worker.stop()

        async with Worker(self._address, job.group, prefetch=PREFETCH) as worker:
            stopping = asyncio.create_task(stop_when_done(worker))
            async for deliveries in worker.batches(max_records=_LIST_RECORDS):
                for delivery in deliveries:
                    seen.see(delivery.value or b"")
                deliveries.ack()
            await stopping
        return seen.result()

    async def _read(self, job: Job, tally: Tally) -> Worked:
        seen = WorkLog(tally.handed)
        async with Consumer(self._address, group=job.group, auto_commit=False) as consumer:
            await consumer.subscribe(job.topic)
            while not tally.done:
                records = await consumer.poll(_POLL_RECORDS, _POLL_SECONDS)
                for record in records:
                    seen.see(record.value or b"")
                if records:
                    await consumer.commit()
                    seen.last = time.monotonic()
                    tally.add(len(records))
        return seen.result()


def _server(directory: Path, durability: Durability) -> ServerProcess:
    """Each topic has a durability of its own, so the server needs none."""
    address = f"{HOST}:{free_port()}"
    command = [sys.executable, "-m", "logbroker", "serve", "--data-dir", str(directory / "data"), "--listen", address]
    return ServerProcess(command, address=address, directory=directory)


PEER: Final = Peer(
    name="logbroker",
    title="logbroker",
    promises={
        Durability.WRITTEN: "durability=written: answered after write; acknowledgements of workers are always synced",
        Durability.SYNCED: "durability=synced (the default): answered after fdatasync, records and acknowledgements",
    },
    client_settings=f"Producer and Consumer with their defaults (idempotent, batches of 256 KiB), Worker with prefetch "
    f"{PREFETCH:,} and lists of up to {_LIST_RECORDS}",
    notes={
        "work": "a queue group with ordering=none; acknowledgements are answered when they are synced",
        "ordered": "a queue group with ordering=key over 8 partitions; the same",
        "group": "8 partitions, a commit for each poll, answered when it is synced",
    },
    version=lambda: __version__,
    server=_server,
    client=LogbrokerClient,
)
