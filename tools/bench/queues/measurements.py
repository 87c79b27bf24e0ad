"""The performance of queue groups: deliveries per second, the cost of waiting records, the effect of a blocked key on
other keys, and the time until the first delivery after a restart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from logbroker.client import Producer
from logbroker.client.admin.queue_admin import QueueAdmin
from logbroker.client.admin.queue_descriptions import QueueSettings
from logbroker.client.worker.worker import Worker
from logbroker.errors import LogbrokerError
from logbroker.tools.bench.harness.measure import TOPIC, Row, Setup
from logbroker.tools.bench.queues.queue_brokers import (
    PREFETCH,
    VALUE,
    cpu_seconds,
    create_topic,
    resident_megabytes,
    running_broker,
    start_child,
    until,
    work_off,
)

PARTITIONS: Final = 8
MIN_RESTART_KEYS: Final = 1_000
HOT_KEY: Final = b"hot"
OUT: Final = "out"


async def _fill(address: str, topic: str, records: int, keys: int) -> None:
    async with Producer(address) as producer:
        for number in range(records):
            await producer.send(topic, VALUE, key=b"key-%d" % (number % keys))
        await producer.flush()


# --- records a second ------------------------------------------------------------------------------------------------


async def drain(setup: Setup, *, ordering: str, keys: int, records: int, workers: int) -> Row:
    """Measure the records per second that worker processes take and acknowledge, from the first delivery to the last
    sync."""
    rounds = []
    with running_broker(setup, records) as broker:
        address = broker.address
        await create_topic(address, TOPIC, PARTITIONS)
        await _fill(address, TOPIC, records, keys)
        async with QueueAdmin(address) as admin:
            for number in range(setup.rounds):
                group = f"drain-{number}"
                await admin.create_queue(group, TOPIC, QueueSettings(ordering=ordering))
                seconds = await work_off(admin, address, group, workers=workers, records=records)
                rounds.append(records / seconds)
                await admin.delete_queue(group)
    what = f"{keys:,} keys" if ordering == "key" else "no order"
    return Row(
        name=f"{workers} workers take and ack {records:,} records, {what}",
        durability="synced",
        unit="records/s",
        rounds=rounds,
        ceiling_rounds=[],
    )


async def pipeline(setup: Setup, *, ordering: str, keys: int, records: int, workers: int) -> list[Row]:
    """Measure the records per second that worker processes take, send to another topic, and acknowledge, in one step.
    The ratio compares this with acknowledging alone. The two are measured in turn, on the same broker."""
    alone: list[float] = []
    sent: list[float] = []
    with running_broker(setup, records * (1 + setup.rounds)) as broker:
        address = broker.address
        for topic in (TOPIC, OUT):
            await create_topic(address, topic, PARTITIONS)
        await _fill(address, TOPIC, records, keys)
        async with QueueAdmin(address) as admin:
            for number in range(setup.rounds):
                for rounds, out in ((alone, ""), (sent, OUT)):
                    group = f"pipeline-{number}"
                    await admin.create_queue(group, TOPIC, QueueSettings(ordering=ordering))
                    seconds = await work_off(admin, address, group, workers=workers, records=records, out=out)
                    rounds.append(records / seconds)
                    await admin.delete_queue(group)
    return [
        Row(
            name=f"{workers} workers take{what} and ack {records:,} records, {keys:,} keys",
            durability="synced",
            unit="records/s",
            rounds=rounds,
            ceiling_rounds=ceiling_rounds,
        )
        for what, rounds, ceiling_rounds in (("", alone, []), (", send on", sent, alone))
    ]


# --- waiting records -------------------------------------------------------------------------------------------------


async def backlog(setup: Setup, *, sizes: Sequence[int], keys: int, deliveries: int) -> list[Row]:
    """Measure the CPU time of the broker per delivery, while `sizes` records wait. The ratio compares with the result
    for the first of the `sizes`."""
    rounds: dict[int, list[float]] = {size: [] for size in sizes}
    with running_broker(setup, sum(sizes) + deliveries * setup.rounds * len(sizes)) as broker:
        address = broker.address
        async with QueueAdmin(address) as admin:
            for size in sizes:
                group = topic = f"waiting-{size}"
                await create_topic(address, topic, PARTITIONS)
                await _fill(address, topic, size + deliveries * setup.rounds, keys)
                await admin.create_queue(group, topic)
                await until(admin, group, lambda queue: not queue.counts.unscanned)
            for _ in range(setup.rounds):
                for size in sizes:
                    before = cpu_seconds(broker.pid)
                    with start_child("worker", address, f"waiting-{size}", 100, deliveries) as child:
                        await asyncio.to_thread(child.result)
                    rounds[size].append((cpu_seconds(broker.pid) - before) / deliveries * 1e6)
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


# --- a blocked key ---------------------------------------------------------------------------------------------------


async def blocked(setup: Setup, *, waiting: int, keys: int, records_per_second: int) -> list[Row]:
    """Measure the time from the send to the delivery of records of healthy keys: on a broker with a blocked key that
    has `waiting` records, and on one without. The brokers take turns, for `setup.seconds` each."""
    figures: dict[str, list[float]] = {"p99, alone": [], "p99, blocked": [], "p50, alone": [], "p50, blocked": []}
    with running_broker(setup, waiting) as beside, running_broker(setup) as alone:
        for broker in (alone, beside):
            await create_topic(broker.address, TOPIC, PARTITIONS)
            async with QueueAdmin(broker.address) as admin:
                if broker is beside:
                    await _fill_one_key(broker.address, waiting)
                await admin.create_queue("work", TOPIC, QueueSettings(max_attempts=1, on_exhausted="block"))
                if broker is beside:
                    await _block(broker.address)
                    await until(admin, "work", lambda queue: not queue.counts.unscanned)
        arguments = (TOPIC, keys, records_per_second)
        for _ in range(setup.rounds):
            for name, broker in (("alone", alone), ("blocked", beside)):
                with start_child("probe", broker.address, "work", *arguments) as probe:
                    await asyncio.to_thread(probe.result)
                    await asyncio.sleep(setup.seconds / setup.rounds)
                    said = await asyncio.to_thread(probe.ask)
                figures[f"p99, {name}"].append(said["p99"] * 1e3)
                figures[f"p50, {name}"].append(said["p50"] * 1e3)
        megabytes = [resident_megabytes(broker.pid) for broker in (alone, beside)]
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
    """Kill the broker, start it again, and measure the time from this start to the first delivery. Before the kill,
    `acked` records are acknowledged out of order. None of these records may be delivered again.

    `records` more than are acknowledged in all rounds wait. There are at least MIN_RESTART_KEYS keys, because the first
    key of each partition stands while records are acknowledged.
    """
    seconds, ready = [], []
    filled = records + acked * (1 + setup.rounds)
    with running_broker(setup, filled) as broker:
        await create_topic(broker.address, TOPIC, PARTITIONS)
        await _fill(broker.address, TOPIC, filled, max(keys, MIN_RESTART_KEYS))
        done: set[tuple[int, int]] = set()
        async with QueueAdmin(broker.address) as admin:
            # Without a grace, because no worker comes back.
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
    """Acknowledge `count` records, except the first one of each partition, so that no floor moves."""
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
    """Return the time of the first delivery. Take `count` records, and check that no record is delivered that was done
    before."""
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
