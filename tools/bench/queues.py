"""What queue groups deliver: records a second, what waiting records cost, whom a blocked key disturbs, and how soon the
first delivery comes after a restart."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from logbroker.client import Admin, Producer
from logbroker.client.queue_admin import QueueAdmin
from logbroker.client.queue_descriptions import QueueDescription, QueueSettings
from logbroker.client.worker import Worker
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.errors import LogbrokerError
from logbroker.tools.bench.measure import TOPIC, Row, Setup

PARTITIONS: Final = 8
VALUE: Final = b"." * 100
PREFETCH: Final = 2000
HOT_KEY: Final = b"hot"
_LOOK_SECONDS: Final = 0.02


@contextmanager
def _broker(setup: Setup) -> Iterator[EmbeddedBroker]:
    with (
        tempfile.TemporaryDirectory(prefix="logbroker-bench-", dir=setup.directory) as directory,
        embedded(Path(directory, "broker")) as broker,
    ):
        yield broker


async def _create_topic(address: str, name: str, partitions: int = PARTITIONS) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(name, partitions, configs={"retention.ms": "-1"})


async def _fill(address: str, topic: str, records: int, keys: int) -> None:
    async with Producer(address) as producer:
        for number in range(records):
            await producer.send(topic, VALUE, key=b"key-%d" % (number % keys))
        await producer.flush()


async def _until(admin: QueueAdmin, group: str, reached: Callable[[QueueDescription], bool]) -> None:
    while True:
        if reached(await admin.describe_queue(group)):
            return
        await asyncio.sleep(_LOOK_SECONDS)


# --- records a second ------------------------------------------------------------------------------------------------


async def drain(setup: Setup, *, ordering: str, keys: int, records: int, workers: int) -> Row:
    """Records a second that worker processes take and acknowledge, from the first delivery to the last sync."""
    rounds = []
    with _broker(setup) as broker:
        address = broker.address
        await _create_topic(address, TOPIC)
        await _fill(address, TOPIC, records, keys)
        async with QueueAdmin(address) as admin:
            for number in range(setup.rounds):
                group = f"drain-{number}"
                await admin.create_queue(group, TOPIC, QueueSettings(ordering=ordering))
                with ExitStack() as stack:
                    children = [stack.enter_context(_child("worker", address, group, PREFETCH)) for _ in range(workers)]
                    await _until(admin, group, lambda queue: not (queue.counts.open or queue.counts.unscanned))
                    said = [await asyncio.to_thread(child.end) for child in children]
                delivered = sum(each["records"] for each in said)
                if delivered != records:
                    raise LogbrokerError(f"{delivered} deliveries of {records} records: a lease ended, or one was lost")
                begun = min(each["first"] for each in said if each["records"])
                rounds.append(records / (max(each["synced"] for each in said) - begun))
                await admin.delete_queue(group)
    what = f"{keys:,} keys" if ordering == "key" else "no order"
    return Row(
        name=f"{workers} workers take and ack {records:,} records, {what}",
        durability="synced",
        unit="records/s",
        rounds=rounds,
        ceiling_rounds=[],
    )


# --- what waits ------------------------------------------------------------------------------------------------------


async def backlog(setup: Setup, *, sizes: Sequence[int], keys: int, deliveries: int) -> list[Row]:
    """CPU time of the broker for a delivery, while so many records wait; the ratio is to the smallest backlog."""
    rounds: dict[int, list[float]] = {size: [] for size in sizes}
    with _broker(setup) as broker:
        address = broker.address
        async with QueueAdmin(address) as admin:
            for size in sizes:
                group = topic = f"waiting-{size}"
                await _create_topic(address, topic)
                await _fill(address, topic, size + deliveries * setup.rounds, keys)
                await admin.create_queue(group, topic)
                await _until(admin, group, lambda queue: not queue.counts.unscanned)
            for _ in range(setup.rounds):
                for size in sizes:
                    before = _cpu_seconds(broker.pid)
                    with _child("worker", address, f"waiting-{size}", 100, deliveries) as child:
                        await asyncio.to_thread(child.result)
                    rounds[size].append((_cpu_seconds(broker.pid) - before) / deliveries * 1e6)
    return [
        Row(
            name=f"broker CPU for a delivery and its ack, {size:,} records wait",
            durability="synced",
            unit="us",
            rounds=rounds[size],
            ceiling_rounds=rounds[sizes[0]] if size != sizes[0] else [],
            lower_is_better=True,
        )
        for size in sizes
    ]


# --- one key that stands ---------------------------------------------------------------------------------------------


async def blocked(setup: Setup, *, waiting: int, keys: int, records_per_second: int) -> list[Row]:
    """From the send to the delivery of records of healthy keys, beside a blocked key with so many records, and without;
    the two brokers in turn, for `setup.seconds` each."""
    figures: dict[str, list[float]] = {"p99, alone": [], "p99, blocked": [], "p50, alone": [], "p50, blocked": []}
    with _broker(setup) as alone, _broker(setup) as beside:
        for broker in (alone, beside):
            await _create_topic(broker.address, TOPIC)
            async with QueueAdmin(broker.address) as admin:
                if broker is beside:
                    await _fill_one_key(broker.address, waiting)
                await admin.create_queue("work", TOPIC, QueueSettings(max_attempts=1, on_exhausted="block"))
                if broker is beside:
                    await _block(broker.address)
                    await _until(admin, "work", lambda queue: not queue.counts.unscanned)
        arguments = (TOPIC, keys, records_per_second)
        for _ in range(setup.rounds):
            for name, broker in (("alone", alone), ("blocked", beside)):
                with _child("probe", broker.address, "work", *arguments) as probe:
                    await asyncio.to_thread(probe.result)
                    await asyncio.sleep(setup.seconds / setup.rounds)
                    said = await asyncio.to_thread(probe.ask)
                figures[f"p99, {name}"].append(said["p99"] * 1e3)
                figures[f"p50, {name}"].append(said["p50"] * 1e3)
        megabytes = [_resident_megabytes(broker.pid) for broker in (alone, beside)]
    rows = [
        Row(
            name=f"{records_per_second:,} records/s of {keys:,} keys, send to delivery: {rank}, {what}",
            durability="synced",
            unit="ms",
            rounds=figures[f"{rank}, {name}"],
            ceiling_rounds=figures[f"{rank}, alone"] if name == "blocked" else [],
            lower_is_better=True,
        )
        for rank in ("p50", "p99")
        for name, what in (("alone", "alone"), ("blocked", f"beside a blocked key with {waiting:,} records"))
    ]
    for size, what in zip(megabytes, ("alone", f"with {waiting:,} records of a blocked key"), strict=True):
        rows.append(Row(name=f"resident memory, {what}", durability="-", unit="MB", rounds=[size], ceiling_rounds=[]))
    return rows


async def _fill_one_key(address: str, records: int) -> None:
    async with Producer(address) as producer:
        for _ in range(records):
            await producer.send(TOPIC, VALUE, key=HOT_KEY)
        await producer.flush()


async def _block(address: str) -> None:
    async with Worker(address, "work", prefetch=1) as worker:
        async for delivery in worker:
            await delivery.nack(reason="to block its lane")
            break


# --- a restart -------------------------------------------------------------------------------------------------------


async def restart(setup: Setup, *, records: int, keys: int, acked: int) -> list[Row]:
    """From the exec of a broker that was killed to the first delivery, with so many records acknowledged out of order.
    None of these may be delivered again."""
    seconds, ready = [], []
    with _broker(setup) as broker:
        await _create_topic(broker.address, TOPIC)
        await _fill(broker.address, TOPIC, records, keys)
        done: set[tuple[int, int]] = set()
        async with QueueAdmin(broker.address) as admin:
            # Without a grace, as nobody comes back.
            await admin.create_queue("work", TOPIC, QueueSettings(grace_seconds=0.0))
        await _ack_out_of_order(broker.address, acked, done)
        for _ in range(setup.rounds):
            broker.kill()
            begun = time.monotonic()
            broker.start()
            ready.append(time.monotonic() - begun)
            seconds.append(await _first_delivery(broker.address, done, acked) - begun)
    name = f"{records:,} records wait, {acked:,} acked out of order: from exec after a kill"
    return [
        Row(name=f"{name} to ready", durability="synced", unit="s", rounds=ready, ceiling_rounds=[]),
        Row(name=f"{name} to the first delivery", durability="synced", unit="s", rounds=seconds, ceiling_rounds=[]),
    ]


async def _ack_out_of_order(address: str, count: int, done: set[tuple[int, int]]) -> None:
    """The first record of each partition stays in hand, so that no floor moves."""
    kept: set[int] = set()
    async with Worker(address, "work", prefetch=PREFETCH) as worker:
        async for delivery in worker:
            if delivery.partition not in kept:
                kept.add(delivery.partition)
                continue
            delivery.ack()
            done.add((delivery.partition, delivery.offset))
            if len(done) == count:
                break
        await worker.flush()


async def _first_delivery(address: str, done: set[tuple[int, int]], count: int) -> float:
    """Return when it came; take as many more as were done, and see that none of those is among them."""
    first = 0.0
    taken = 0
    async with Worker(address, "work", prefetch=PREFETCH) as worker:
        async for delivery in worker:
            first = first or time.monotonic()
            if (delivery.partition, delivery.offset) in done:
                raise LogbrokerError(f"record {delivery.partition}:{delivery.offset} was done, and came again")
            delivery.release() if taken % 2 else delivery.ack()
            if not taken % 2:
                done.add((delivery.partition, delivery.offset))
            taken += 1
            if taken == count:
                break
        await worker.flush()
    return first


# --- processes -------------------------------------------------------------------------------------------------------


class _Child:
    """A process of `queue_child`."""

    def __init__(self, *arguments: str | float) -> None:
        command = [sys.executable, "-m", "logbroker.tools.bench.queue_child", *map(str, arguments)]
        # Not asyncio's, which forks under uvloop, and gRPC does not like to be forked.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self) -> dict[str, Any]:
        """Return what it says to a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return self.result()

    def result(self) -> dict[str, Any]:
        """Return what it says next."""
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    def end(self) -> dict[str, Any]:
        """Let it end cleanly; return what it says at last."""
        said, _ = self.process.communicate()
        last: dict[str, Any] = json.loads(said)
        return last


@contextmanager
def _child(*arguments: str | float) -> Iterator[_Child]:
    child = _Child(*arguments)
    with child.process:  # closes the pipes and waits
        try:
            yield child
        finally:
            child.process.kill()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1000
