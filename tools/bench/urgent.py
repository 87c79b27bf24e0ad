"""How soon a record comes to a worker that is more urgent than all that wait in a queue group."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any, Final

from logbroker.client import Producer
from logbroker.client.queue_admin import QueueAdmin
from logbroker.client.queue_descriptions import QueueSettings
from logbroker.errors import LogbrokerError
from logbroker.record.message_headers import MAX_PRIORITY
from logbroker.tools.bench.measure import TOPIC, Row, Setup
from logbroker.tools.bench.priority import fill
from logbroker.tools.bench.queue_brokers import cpu_seconds, create_topic, running_broker, start_child, until

_GAP_SECONDS: Final = 0.005
_PARTITIONS: Final = 8

Said = dict[str, Any]
"""What a worker process says at its end: see `queue_child`."""


async def urgent(setup: Setup, *, waiting: int, workers: int, works_ms: Sequence[float], count: int) -> list[Row]:
    """How soon a record of the highest priority is delivered, while so many of the lowest wait and worker processes
    take one after the other and spend some time on each; `count` of them a round, one at a time.

    From the call that sends it; from the append, by the broker's stamp in whole milliseconds, so up to one too much;
    and from when it was appended and the worker that got it was free: who is free earlier, after it can be read, gets
    it. The last row is what each delivery costs the broker, with its ack and the sends of the urgent ones.
    """
    names = [
        f"priority 9 behind {waiting:,} of priority 0, {workers} workers that spend {work_ms:g} ms on each record"
        for work_ms in works_ms
    ]
    ranks: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {name: [] for name in names}
    with running_broker(setup) as broker:
        address = broker.address
        await create_topic(address, TOPIC, _PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
        await fill(address, TOPIC, waiting, _PARTITIONS, lowest_only=True)
        async with QueueAdmin(address) as admin, Producer(address) as producer:
            settings = QueueSettings(ordering="none", priority="strict", lease_seconds=3600)
            await admin.create_queue("work", TOPIC, settings)
            await until(admin, "work", lambda queue: not queue.counts.unscanned)
            for _ in range(setup.rounds):
                for name, work_ms in zip(names, works_ms, strict=True):
                    cost, said = await _round(admin, producer, broker.pid, address, workers, work_ms, count)
                    costs[name].append(cost)
                    for begin, seconds in _waits(said).items():
                        if len(seconds) != count:
                            raise LogbrokerError(f"{len(seconds)} of {count} urgent records were delivered")
                        percentiles = statistics.quantiles(seconds, n=100)
                        for rank in (50, 99):
                            row = f"{name}: {begin} to delivery, p{rank}"
                            ranks.setdefault(row, []).append(percentiles[rank - 1] * 1e3)
    rows = [
        Row(name=name, durability="synced", unit="ms", rounds=rounds, ceiling_rounds=[])
        for name, rounds in ranks.items()
    ]
    for name, rounds in costs.items():
        what = f"{name}: broker CPU for a delivery and its ack"
        rows.append(
            Row(name=what, durability="synced", unit="us", rounds=rounds, ceiling_rounds=[], lower_is_better=True)
        )
    return rows


async def _round(
    admin: QueueAdmin, producer: Producer, broker_pid: int, address: str, workers: int, work_ms: float, count: int
) -> tuple[float, list[Said]]:
    """Return the broker's CPU time for a delivery (us), and what the workers said."""
    with ExitStack() as stack:
        children = [stack.enter_context(start_child("urgent", address, "work", work_ms)) for _ in range(workers)]
        for child in children:
            await asyncio.to_thread(child.result)
        cpu, delivered = cpu_seconds(broker_pid), (await admin.describe_queue("work")).counts.delivered
        for number in range(count):
            value = b"%r" % time.monotonic()
            await producer.send_and_wait(TOPIC, value, partition=number % _PARTITIONS, priority=MAX_PRIORITY)
            await asyncio.sleep(_GAP_SECONDS)
        delivered = (await admin.describe_queue("work")).counts.delivered - delivered
        cost = (cpu_seconds(broker_pid) - cpu) / delivered * 1e6
        return cost, [await asyncio.to_thread(child.end) for child in children]


def _waits(said: Sequence[Said]) -> dict[str, list[float]]:
    """How long the urgent records took (s), by what it is counted from."""
    waits: dict[str, list[float]] = {"send": [], "append": [], "append and a free worker": []}
    for sent, appended, free, received in chain.from_iterable(worker["urgent"] for worker in said):
        for begin, at in zip(waits, (sent, appended, max(appended, free)), strict=True):
            waits[begin].append(received - at)
    return waits
