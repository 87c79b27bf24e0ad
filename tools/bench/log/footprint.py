"""Costs of a broker apart from throughput: start time, memory, and fetches at any offset of a large partition."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from logbroker.client import Admin
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.errors import from_status
from logbroker.tools.bench.harness import load
from logbroker.tools.bench.harness.measure import TOPIC, Row, Setup, batch_size_text
from logbroker.v1.log_pb2 import FetchItem, FetchRequest, FetchResponse, ProduceItem, ProduceRequest

FETCH_BYTES = 64 * 1024
BATCH_BYTES = 64 * 1024
BATCHES_PER_REQUEST = 16


async def startup(setup: Setup, *, partitions: int) -> list[Row]:
    """Measure the seconds from exec to `ready` and the memory at `ready`, of an empty broker and of a broker with
    `partitions`."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="logbroker-bench-", dir=setup.directory) as directory:
        rows += _starts(setup, Path(directory, "empty"), "empty data directory")
        full = Path(directory, "full")
        with embedded(full) as broker:
            async with Admin(broker.address) as admin:
                await admin.create_topic(TOPIC, partitions)
            await _touch(broker.address, partitions)
        rows += _starts(setup, full, f"{partitions:,} partitions, after a clean stop")
        rows += _starts(setup, full, f"{partitions:,} partitions, after a kill", kill=True)
    return rows


async def seek(setup: Setup, *, gigabytes: float, count: int) -> list[Row]:
    """Measure the median time of a 64 KiB fetch at random offsets of one partition, and near its end, in ms."""
    batch = load.batch_of(BATCH_BYTES)
    requests = int(gigabytes * 1e9 / len(batch) / BATCHES_PER_REQUEST) + 1
    setup.check_room(int(gigabytes * 1e9))
    with (
        tempfile.TemporaryDirectory(prefix="logbroker-bench-", dir=setup.directory) as directory,
        embedded(Path(directory, "broker")) as broker,
    ):
        async with Admin(broker.address) as admin:
            await admin.create_topic(TOPIC, 1, configs={"durability": "written"})
        async with load.open_channel(broker.address) as channel:
            item = ProduceItem(topic=TOPIC, partition=0, batch=batch)
            request = ProduceRequest(items=[item] * BATCHES_PER_REQUEST).SerializeToString()
            produce: Any = channel.unary_unary("/logbroker.v1.Log/Produce")
            for _ in range(requests):
                load.check_produced(await produce(request))
            fetch: Any = channel.unary_unary("/logbroker.v1.Log/Fetch", response_deserializer=FetchResponse.FromString)
            end = (await _timed_fetch(fetch, 0))[1]

            async def median_ms(offset: Callable[[], int]) -> float:
                return statistics.median([(await _timed_fetch(fetch, offset()))[0] for _ in range(count)]) * 1e3

            at_random, at_end = [], []
            for _ in range(setup.rounds):
                at_random.append(await median_ms(lambda: random.randrange(end)))
                at_end.append(await median_ms(lambda: end - random.randrange(1, 1000)))
    name = f"fetch of 64 KiB from a partition of {gigabytes:g} GB"
    return [
        Row(name=f"{name}, near its end", durability="-", unit="ms", rounds=at_end, ceiling_rounds=[]),
        Row(name=f"{name}, at random offsets", durability="-", unit="ms", rounds=at_random, ceiling_rounds=[]),
    ]


async def stall(setup: Setup, *, batch_bytes: int) -> list[Row]:
    """Measure how long `written` appends hold up the event loop: the time of calls that need no disk, while batches are
    appended."""
    batch = load.batch_of(batch_bytes)
    longest, p99, rates = [], [], []
    with (
        tempfile.TemporaryDirectory(prefix="logbroker-bench-", dir=setup.directory) as directory,
        embedded(Path(directory, "broker")) as broker,
    ):
        for number in range(setup.rounds):
            topic = f"{TOPIC}-{number}"
            async with Admin(broker.address) as admin:
                await admin.create_topic(topic, 1, configs={"durability": "written", "max.message.bytes": "2097152"})
            async with load.open_channel(broker.address) as channel, load.open_channel(broker.address) as other:
                appending = asyncio.create_task(
                    load.append_load(
                        channel,
                        "/logbroker.v1.Log/Produce",
                        load.produce_requests(topic, 1, batch),
                        len(batch),
                        in_flight=8,
                        seconds=setup.seconds,
                        check=load.check_produced,
                    )
                )
                describe: Any = other.unary_unary("/logbroker.v1.Admin/DescribeBroker")
                waits = []
                while not appending.done():
                    start = time.perf_counter()
                    await describe(b"")
                    waits.append((time.perf_counter() - start) * 1e3)
                rates.append((await appending).megabytes_per_second)
            waits.sort()
            p99.append(waits[len(waits) * 99 // 100])
            longest.append(waits[-1])
    name = f"beside 8 written appends of {batch_size_text(batch_bytes)} in flight"
    return [
        Row(name=f"a call without disk {name}, p99", durability="-", unit="ms", rounds=p99, ceiling_rounds=[]),
        Row(name=f"a call without disk {name}, longest", durability="-", unit="ms", rounds=longest, ceiling_rounds=[]),
        Row(name="the appends meanwhile", durability="written", unit="MB/s", rounds=rates, ceiling_rounds=[]),
    ]


async def _timed_fetch(fetch: Any, offset: int) -> tuple[float, int]:
    """Fetch once. Return the seconds that it took, and the high watermark."""
    request = FetchRequest(items=[FetchItem(topic=TOPIC, offset=offset)], max_bytes=FETCH_BYTES).SerializeToString()
    start = time.perf_counter()
    response = await fetch(request)
    seconds = time.perf_counter() - start
    [result] = response.results
    if result.status.code:
        raise from_status(result.status.code, result.status.reason, result.status.message)
    return seconds, result.high_watermark


async def _touch(address: str, partitions: int) -> None:
    """Append one small batch to every partition."""
    batch = load.batch_of(1)
    items = [ProduceItem(topic=TOPIC, partition=number, batch=batch) for number in range(partitions)]
    async with load.open_channel(address) as channel:
        produce: Any = channel.unary_unary("/logbroker.v1.Log/Produce")
        load.check_produced(await produce(ProduceRequest(items=items).SerializeToString()))


def _starts(setup: Setup, data_dir: Path, what: str, *, kill: bool = False) -> list[Row]:
    seconds, resident = [], []
    for _ in range(setup.rounds):
        broker = EmbeddedBroker(data_dir)
        start = time.perf_counter()
        with broker:
            seconds.append(time.perf_counter() - start)
            resident.append(_resident_mib(broker.pid))
            if kill:
                broker.kill()
    return [
        Row(name=f"exec to ready, {what}", durability="-", unit="s", rounds=seconds, ceiling_rounds=[]),
        Row(name=f"resident when ready, {what}", durability="-", unit="MiB", rounds=resident, ceiling_rounds=[]),
    ]


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
