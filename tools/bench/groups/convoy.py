"""The performance of convoys: records per second when each record takes some time, compared with a loop that handles
one record at a time; and the CPU time per record with handlers that do nothing."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from logbroker.client import Admin, Consumer, Convoy, Producer, Record
from logbroker.client import sync as blocking
from logbroker.embedded_broker import embedded
from logbroker.errors import LogbrokerError
from logbroker.tools.bench.harness.measure import TOPIC, Row, Setup

PARTITIONS: Final = 8
VALUE: Final = b"." * 100


@asynccontextmanager
async def _filled(setup: Setup, records: int, keys: int) -> AsyncIterator[str]:
    """Run a broker with `records` records of `keys` keys. Yield its address."""
    with (
        tempfile.TemporaryDirectory(prefix="logbroker-bench-", dir=setup.directory) as directory,
        embedded(Path(directory, "broker")) as broker,
    ):
        async with Admin(broker.address) as admin:
            await admin.create_topic(TOPIC, PARTITIONS)
        async with Producer(broker.address) as producer:
            for number in range(records):
                await producer.send(TOPIC, VALUE, key=b"key-%d" % (number % keys))
            await producer.flush()
        yield broker.address


class _Count:
    """Counts records, checks the order of each key, and says when the first began and the last ended."""

    def __init__(self, records: int) -> None:
        self.left = records
        self.begun_at = 0.0
        self.ended_at = 0.0
        self._offsets: dict[bytes | None, int] = {}
        self._running: set[bytes | None] = set()

    def begin(self, record: Record) -> None:
        if not self.begun_at:
            self.begun_at = time.perf_counter()
        if record.key in self._running or record.offset <= self._offsets.get(record.key, -1):
            raise LogbrokerError(f"offset {record.offset} of key {record.key!r} is out of order")
        self._running.add(record.key)
        self._offsets[record.key] = record.offset

    def end(self, record: Record) -> bool:
        """Note the end of a record. Return whether it was the last one."""
        self._running.discard(record.key)
        self.left -= 1
        self.ended_at = time.perf_counter()
        return not self.left

    @property
    def seconds(self) -> float:
        return self.ended_at - self.begun_at


async def work(setup: Setup, *, keys: int, handlers: int, records: int, work_ms: float) -> list[Row]:
    """Measure records per second, each with `work_ms` of waiting: by a convoy, and by a loop that waits for each record
    in turn. Both check the order of each key. The ratio compares the convoy with the loop."""
    at_once: list[float] = []
    in_turn: list[float] = []
    alone = max(20, records // handlers)
    async with _filled(setup, records, keys) as address:
        for number in range(setup.rounds):
            at_once.append(records / await _convoy(address, f"convoy-{number}", records, handlers, work_ms))
            in_turn.append(alone / await _loop(address, f"loop-{number}", alone, work_ms))
    what = f"{work_ms:g} ms of work"
    return [
        Row(
            name=f"a convoy, {keys:,} keys, {handlers} handlers at once, {what}",
            durability="synced",
            unit="records/s",
            rounds=at_once,
            ceiling_rounds=[],
        ),
        Row(
            name=f"one record at a time, {what}",
            durability="synced",
            unit="records/s",
            rounds=in_turn,
            ceiling_rounds=at_once,
        ),
    ]


async def _convoy(address: str, group: str, records: int, handlers: int, work_ms: float) -> float:
    count = _Count(records)
    async with Consumer(address, group=group) as consumer:
        await consumer.subscribe(TOPIC)
        convoy = Convoy(consumer, concurrency=handlers)

        async def handle(record: Record) -> None:
            count.begin(record)
            await asyncio.sleep(work_ms / 1000)
            if count.end(record):
                convoy.stop()

        await convoy.run(handle)
    return count.seconds


async def _loop(address: str, group: str, records: int, work_ms: float) -> float:
    count = _Count(records)
    async with Consumer(address, group=group) as consumer:
        await consumer.subscribe(TOPIC)
        async for record in consumer:
            count.begin(record)
            await asyncio.sleep(work_ms / 1000)
            if count.end(record):
                break
    return count.seconds


async def overhead(setup: Setup, *, keys: int, handlers: int, records: int) -> list[Row]:
    """Measure the CPU time of the program per record, with handlers that do nothing: in a loop over the consumer, in an
    asynchronous convoy and in threads. The ratio compares with the loop."""
    rounds: dict[str, list[float]] = {"loop": [], "convoy": [], "threads": []}
    async with _filled(setup, records, keys) as address:
        for number in range(setup.rounds):
            for name, run in (("loop", _read), ("convoy", _pass_through), ("threads", _pass_to_threads)):
                before = time.process_time()
                await run(address, f"{name}-{number}", records, handlers)
                rounds[name].append((time.process_time() - before) / records * 1e6)
    names = {
        "loop": "CPU of a record in a loop over a consumer",
        "convoy": f"CPU of a record in a convoy, {keys:,} keys, {handlers} handlers that do nothing",
        "threads": f"CPU of a record in a synchronous convoy, {keys:,} keys, {handlers} threads that do nothing",
    }
    return [
        Row(
            name=names[name],
            durability="synced",
            unit="us",
            rounds=rounds[name],
            ceiling_rounds=[] if name == "loop" else rounds["loop"],
            lower_is_better=True,
        )
        for name in rounds
    ]


async def _read(address: str, group: str, records: int, handlers: int) -> None:
    async with Consumer(address, group=group) as consumer:
        await consumer.subscribe(TOPIC)
        async for _ in consumer:
            records -= 1
            if not records:
                return


async def _pass_through(address: str, group: str, records: int, handlers: int) -> None:
    left = records
    async with Consumer(address, group=group) as consumer:
        await consumer.subscribe(TOPIC)
        convoy = Convoy(consumer, concurrency=handlers)

        async def handle(record: Record) -> None:
            nonlocal left
            left -= 1
            if not left:
                convoy.stop()

        await convoy.run(handle)


async def _pass_to_threads(address: str, group: str, records: int, handlers: int) -> None:
    await asyncio.to_thread(_run_threads, address, group, records, handlers)


def _run_threads(address: str, group: str, records: int, handlers: int) -> None:
    done: list[Any] = []
    with blocking.Consumer(address, group=group) as consumer:
        consumer.subscribe(TOPIC)
        convoy = blocking.Convoy(consumer, concurrency=handlers)

        def handle(record: Record) -> None:
            done.append(None)
            if len(done) == records:
                convoy.stop()

        convoy.run(handle)
