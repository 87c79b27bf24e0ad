"""The measurements of `logbroker bench`: alternate rounds on a broker and on the bare server, the medians and their
ratio."""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from logbroker.client import Admin, Consumer, Producer, Record
from logbroker.config import BrokerConfig
from logbroker.embedded_broker import embedded
from logbroker.errors import DiskFullError
from logbroker.tools.bench.harness import load
from logbroker.tools.bench.harness.servers import baseline_server

MIB: Final = 1024 * 1024
TOPIC: Final = "bench"
PRODUCE: Final = "/logbroker.v1.Log/Produce"
BARE_APPEND: Final = "/bare.Log/Append"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a report."""

    name: str
    durability: str
    unit: str
    rounds: list[float]
    ceiling_rounds: list[float]
    """The results with which the row is compared: of the bare server or, in some benchmarks, of another row. Empty if
    there is no comparison."""
    lower_is_better: bool = False

    @property
    def value(self) -> float:
        return statistics.median(self.rounds)

    @property
    def ceiling(self) -> float | None:
        return statistics.median(self.ceiling_rounds) if self.ceiling_rounds else None

    @property
    def ratio(self) -> float | None:
        """How many times better the ceiling is; 1.0 means equally good. None: there is no comparison, or one of them is
        too short a time to be measured."""
        if self.ceiling is None:
            return None
        dividend, divisor = (self.value, self.ceiling) if self.lower_is_better else (self.ceiling, self.value)
        return dividend / divisor if divisor else None


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that all measurements share."""

    rounds: int
    seconds: float
    """The length of one round, if its length is fixed."""
    ceiling: bool
    directory: Path | None = None
    """The directory in which the servers keep their data, or None for the system's temporary directory. Its file system
    affects the results."""

    def check_room(self, size_bytes: int) -> None:
        """Raise DiskFullError unless the directory has room for so much data of a broker. Without room, the broker
        would refuse appends only after it has filled the disk, and producers would try again for long."""
        directory = self.directory or Path(tempfile.gettempdir())
        free_bytes = shutil.disk_usage(directory).free
        kept_bytes = BrokerConfig().min_free_disk_bytes
        if free_bytes < size_bytes + kept_bytes:
            raise DiskFullError(
                f"the benchmark writes about {size_bytes / 1e6:,.0f} MB, and a broker keeps {kept_bytes / 1e6:,.0f} MB"
                f" free, but {directory} has {free_bytes / 1e6:,.0f} MB free: write less, or choose another"
                " --directory"
            )


@contextmanager
def _servers(setup: Setup) -> Iterator[tuple[str, str | None]]:
    """Run a broker and, if wanted, the bare server. Yield their addresses."""
    with ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="logbroker-bench-", dir=setup.directory))
        )
        (directory / "bare").mkdir()
        address = stack.enter_context(embedded(directory / "broker")).address
        bare = stack.enter_context(baseline_server(directory / "bare")) if setup.ceiling else None
        yield address, bare


async def _rounds(
    setup: Setup,
    ours: Callable[[], Awaitable[float]],
    theirs: Callable[[], Awaitable[float]] | None,
) -> tuple[list[float], list[float]]:
    """Measure both in turn, so that a noisy minute hits both."""
    values: list[float] = []
    ceilings: list[float] = []
    for _ in range(setup.rounds):
        values.append(await ours())
        if theirs is not None:
            ceilings.append(await theirs())
    return values, ceilings


async def _fresh_topic(address: str, partitions: int, durability: str) -> None:
    """Create the topic anew. Each round begins with an empty topic, so that the disk does not fill."""
    async with Admin(address) as admin:
        if any(topic.name == TOPIC for topic in await admin.list_topics()):
            await admin.delete_topic(TOPIC)
        await admin.create_topic(
            TOPIC, partitions, configs={"durability": durability, "max.message.bytes": str(2 * MIB)}
        )


async def produce(setup: Setup, *, batch_bytes: int, producers: int, partitions: int, durability: str) -> Row:
    """Measure appends of opaque batches by unary calls, `producers` in flight, in MB/s."""
    batch = load.batch_of(batch_bytes)
    with _servers(setup) as (address, bare):
        requests = load.produce_requests(TOPIC, partitions, batch)

        async def ours() -> float:
            await _fresh_topic(address, partitions, durability)
            async with load.open_channel(address) as channel:
                rate = await load.append_load(
                    channel,
                    PRODUCE,
                    requests,
                    len(batch),
                    in_flight=producers,
                    seconds=setup.seconds,
                    check=load.check_produced,
                )
            return rate.megabytes_per_second

        async def theirs() -> float:
            assert bare is not None
            async with load.open_channel(bare) as channel:
                clear: Any = channel.unary_unary("/bare.Log/Clear")
                await clear(b"")
                rate = await load.append_load(
                    channel,
                    BARE_APPEND,
                    [batch],
                    len(batch),
                    in_flight=producers,
                    seconds=setup.seconds,
                    check=load.check_bare,
                )
            return rate.megabytes_per_second

        values, ceilings = await _rounds(setup, ours, theirs if bare else None)
    name = f"produce, batches of {batch_size_text(batch_bytes)}, {producers} in flight, {_partitions(partitions)}"
    return Row(name=name, durability=durability, unit="MB/s", rounds=values, ceiling_rounds=ceilings)


async def consume(setup: Setup, *, batch_bytes: int, response_bytes: int, partitions: int, total_bytes: int) -> Row:
    """Measure reads of opaque batches through one fetch stream, in responses of `response_bytes`, in MB/s."""
    batch = load.batch_of(batch_bytes)
    count = -(-total_bytes // len(batch))
    # The bare server reads as much at once as the broker can without cutting a batch.
    chunk_bytes = max(response_bytes // len(batch), 1) * len(batch)
    with _servers(setup) as (address, bare):
        await _fresh_topic(address, partitions, "written")
        produced = load.spread_requests(TOPIC, partitions, batch, count * len(batch))
        await load.fill(address, PRODUCE, produced, load.check_produced)
        if bare:
            await load.fill(bare, BARE_APPEND, itertools.repeat(batch, count), load.check_bare)

        async def ours() -> float:
            async with load.open_channel(address) as channel:
                rate = await load.fetch_stream_load(
                    channel, TOPIC, partitions, response_bytes=response_bytes, total_bytes=count * len(batch)
                )
            return rate.megabytes_per_second

        async def theirs() -> float:
            assert bare is not None
            async with load.open_channel(bare) as channel:
                rate = await load.bare_stream_load(channel, chunk_bytes=chunk_bytes, total_bytes=count * len(batch))
            return rate.megabytes_per_second

        values, ceilings = await _rounds(setup, ours, theirs if bare else None)
    sizes = f"batches of {batch_size_text(batch_bytes)}, responses of {batch_size_text(response_bytes)}"
    name = f"fetch, {sizes}, {_partitions(partitions)}"
    return Row(name=name, durability="-", unit="MB/s", rounds=values, ceiling_rounds=ceilings)


async def latency(setup: Setup, *, count: int, durability: str) -> Row:
    """Measure appends of one 100-byte record at a time by unary calls: the median in ms. The ceiling of `synced`
    includes one fdatasync."""
    batch = load.batch_of(1)
    with _servers(setup) as (address, bare):
        [request] = load.produce_requests(TOPIC, 1, batch)

        async def ours() -> float:
            await _fresh_topic(address, 1, durability)
            async with load.open_channel(address) as channel:
                found = await load.append_latencies(channel, PRODUCE, request, count=count, check=load.check_produced)
            return statistics.median(found) * 1e3

        async def theirs() -> float:
            assert bare is not None
            async with load.open_channel(bare) as channel:
                found = await load.append_latencies(channel, BARE_APPEND, batch, count=count, check=load.check_bare)
            sync_ms = _fdatasync_ms(setup.directory, len(batch), count) if durability == "synced" else 0.0
            return statistics.median(found) * 1e3 + sync_ms

        values, ceilings = await _rounds(setup, ours, theirs if bare else None)
    name = "produce one 100-byte record at a time, p50"
    return Row(
        name=name, durability=durability, unit="ms", rounds=values, ceiling_rounds=ceilings, lower_is_better=True
    )


async def produce_records(setup: Setup, *, records: int, value_bytes: int, partitions: int, durability: str) -> Row:
    """Measure how fast one Python producer sends keyed records, until all are acknowledged, in records/s."""
    with _servers(msgspec.structs.replace(setup, ceiling=False)) as (address, _):

        async def ours() -> float:
            await _fresh_topic(address, partitions, durability)
            return await _send_records(address, records, value_bytes)

        values, _ = await _rounds(setup, ours, None)
    name = f"Python Producer, {value_bytes}-byte values, 1,000 keys, {_partitions(partitions)}"
    return Row(name=name, durability=durability, unit="records/s", rounds=values, ceiling_rounds=[])


async def consume_records(setup: Setup, *, records: int, value_bytes: int, partitions: int) -> Row:
    """Measure how fast one Python consumer reads and decodes the records of `produce_records`, in records/s."""
    with _servers(msgspec.structs.replace(setup, ceiling=False)) as (address, _):
        await _fresh_topic(address, partitions, "written")
        await _send_records(address, records, value_bytes)

        values, _ = await _rounds(setup, lambda: _read_records(address, records), None)
    name = f"Python Consumer, {value_bytes}-byte values, {_partitions(partitions)}"
    return Row(name=name, durability="-", unit="records/s", rounds=values, ceiling_rounds=[])


async def consume_merged(setup: Setup, *, records: int, value_bytes: int, partitions: int) -> Row:
    """Measure how fast `Consumer.merged` reads and decodes the records of `produce_records`, all partitions as one
    stream in order. The ceiling is a loop over the consumer, which reads them side by side."""
    with _servers(msgspec.structs.replace(setup, ceiling=False)) as (address, _):
        await _fresh_topic(address, partitions, "written")
        await _send_records(address, records, value_bytes)

        async def ours() -> float:
            async with Consumer(address) as consumer:
                start = time.perf_counter()
                await _take(consumer.merged(TOPIC, until_end=True), records)
                return records / (time.perf_counter() - start)

        values, ceilings = await _rounds(setup, ours, lambda: _read_records(address, records))
    name = f"Python Consumer, merged, {value_bytes}-byte values, {_partitions(partitions)}"
    return Row(name=name, durability="-", unit="records/s", rounds=values, ceiling_rounds=ceilings)


async def _read_records(address: str, records: int) -> float:
    async with Consumer(address) as consumer:
        start = time.perf_counter()
        await consumer.assign(TOPIC, start="earliest")
        await _take(aiter(consumer), records)
        return records / (time.perf_counter() - start)


async def _take(found: AsyncIterator[Record], count: int) -> None:
    async for _ in found:
        count -= 1
        if not count:
            return


async def _send_records(address: str, records: int, value_bytes: int) -> float:
    keys = [b"key-%d" % number for number in range(1000)]
    value = os.urandom(value_bytes)
    async with Producer(address) as producer:
        start = time.perf_counter()
        send = producer.send
        for number in range(records):
            await send(TOPIC, value, keys[number % 1000])
        await producer.flush()
        return records / (time.perf_counter() - start)


def _fdatasync_ms(directory: Path | None, size_bytes: int, count: int) -> float:
    """Return the median time of an fdatasync after an append of `size_bytes`, without the append, in ms."""
    payload = os.urandom(size_bytes)
    found = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(count):
            file.write(payload)
            file.flush()
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            found.append(time.perf_counter() - start)
    return statistics.median(found) * 1e3


def batch_size_text(size_bytes: int) -> str:
    """Return a size without rounding it, in the largest unit that fits."""
    for unit_bytes, unit in ((MIB, "MiB"), (1024, "KiB")):
        if size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes} {unit}"
    return f"{size_bytes} B"


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"
