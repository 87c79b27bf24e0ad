"""The delay until a worker gets a record that is more urgent than all waiting records of a queue group."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import msgspec

from logbroker.client import Producer
from logbroker.client.admin.queue_admin import QueueAdmin
from logbroker.client.admin.queue_descriptions import QueueSettings
from logbroker.errors import LogbrokerError
from logbroker.record.message_headers import MAX_PRIORITY
from logbroker.tools.bench.harness.measure import TOPIC, Row, Setup
from logbroker.tools.bench.queues.priority import fill
from logbroker.tools.bench.queues.queue_brokers import (
    VALUE,
    Child,
    cpu_seconds,
    create_topic,
    running_broker,
    start_child,
    until,
)

_GAP_SECONDS: Final = 0.005
_LOOK_SECONDS: Final = 1.0
_NONE_WAITS: Final = "none of the records waits any more; let more of them wait (--waiting)"
_LATEST_SECONDS: Final = 30.0
"""How long to wait for urgent records before the measurement fails."""
_PARTITIONS: Final = 8
_BANDS: Final = "hot=5-9:4,cold=0-4:4"
_ROUTED: Final = 0
_WARM_UP_PRIORITY: Final = MAX_PRIORITY - 1
"""The priority of the warm-up record for the free worker. This record is not counted."""


class _Plan(msgspec.Struct):
    """One run: the workers, and what was measured."""

    name: str
    work_ms: float
    has_free_worker: bool
    """Whether one more worker serves the hot band and waits. The busy workers then serve the cold band only."""
    ranks: dict[int, list[float]]
    """The times of the rounds (ms), by percentile."""
    costs: list[float]
    """The CPU time of the broker per delivery (us) in each round."""


async def urgent(setup: Setup, *, waiting: int, workers: int, works_ms: Sequence[float], count: int) -> list[Row]:
    """Measure the time from the append to the delivery of a record of the highest priority, while `waiting` records of
    the lowest priority wait and `workers` spend some time on each record. This is measured with and without one more
    worker that is free.

    Each round sends `count` such records, one at a time. The broker's timestamp is in whole milliseconds, so a result
    may be up to 1 ms too high. The last rows are the broker's CPU time per delivery, with the acks and the urgent
    sends.
    """
    plans = [
        _Plan(f"{workers} workers that spend {work_ms:g} ms on each record{beside}", work_ms, bool(beside), {}, [])
        for work_ms in works_ms
        for beside in (", and one that is free", "")
    ]
    with running_broker(setup) as broker:
        address = broker.address
        configs = {"message.timestamp.type": "LogAppendTime", "priority.bands": _BANDS}
        await create_topic(address, TOPIC, _PARTITIONS, configs)
        await fill(address, TOPIC, waiting, _ROUTED, lowest_only=True)
        async with QueueAdmin(address) as admin, Producer(address) as producer:
            settings = QueueSettings(ordering="none", priority="strict", lease_seconds=3600)
            await admin.create_queue("work", TOPIC, settings)
            await until(admin, "work", lambda queue: not queue.counts.unscanned)
            for _ in range(setup.rounds):
                for plan in plans:
                    seconds = await _round(plan, admin, producer, broker.pid, address, workers, count)
                    percentiles = statistics.quantiles(seconds, n=100)
                    for rank in (50, 99):
                        plan.ranks.setdefault(rank, []).append(percentiles[rank - 1] * 1e3)
    behind = f"priority 9 behind {waiting:,} of priority 0"

    def row(name: str, unit: str, rounds: list[float]) -> Row:
        return Row(name=f"{behind}, {name}", durability="synced", unit=unit, rounds=rounds, ceiling_rounds=[])

    rows = [
        row(f"{plan.name}: append to delivery, p{rank}", "ms", rounds)
        for plan in plans
        for rank, rounds in plan.ranks.items()
    ]
    return rows + [row(f"{plan.name}: broker CPU for a delivery and its ack", "us", plan.costs) for plan in plans]


async def _round(
    plan: _Plan, admin: QueueAdmin, producer: Producer, broker_pid: int, address: str, workers: int, count: int
) -> list[float]:
    """Note the CPU time of the broker per delivery, and return the delays of the urgent records (s)."""
    children: list[Child] = []
    with ExitStack() as stack:

        def worker(work_ms: float, *band: str) -> None:
            children.append(stack.enter_context(start_child("urgent", address, "work", work_ms, *band)))

        if plan.has_free_worker:
            worker(0, "hot")
            await producer.send_and_wait(TOPIC, VALUE, priority=_WARM_UP_PRIORITY)
        for _ in range(workers):
            worker(plan.work_ms, *(["cold"] if plan.has_free_worker else []))
        await _all_begun(children, admin)
        cpu, delivered = cpu_seconds(broker_pid), (await admin.describe_queue("work")).counts.delivered
        seconds: list[float] = []
        with _following(children, seconds, count) as all_delivered:
            for _ in range(count):
                await producer.send_and_wait(TOPIC, VALUE, priority=MAX_PRIORITY)
                await asyncio.sleep(_GAP_SECONDS)
            with suppress(TimeoutError):
                await asyncio.wait_for(all_delivered.wait(), _LATEST_SECONDS)
        if len(seconds) != count:
            raise LogbrokerError(f"{len(seconds)} of {count} urgent records were delivered")
        counts = (await admin.describe_queue("work")).counts
        if not counts.ready:
            raise LogbrokerError(_NONE_WAITS)
        plan.costs.append((cpu_seconds(broker_pid) - cpu) / (counts.delivered - delivered) * 1e6)
        for child in children:
            await asyncio.to_thread(child.end)
        return seconds


async def _all_begun(children: Sequence[Child], admin: QueueAdmin) -> None:
    """Wait for the first record of each worker. Raises LogbrokerError if the others have taken all records."""
    begun = asyncio.gather(*(asyncio.to_thread(child.result) for child in children))
    while not (await asyncio.wait([begun], timeout=_LOOK_SECONDS))[0]:
        if not (await admin.describe_queue("work")).counts.open:
            begun.cancel()
            raise LogbrokerError(_NONE_WAITS)
    await begun


@contextmanager
def _following(children: Sequence[Child], seconds: list[float], count: int) -> Iterator[asyncio.Event]:
    """Collect the delays that workers report for urgent records (s). The event is set after `count` of them."""
    loop, all_delivered = asyncio.get_running_loop(), asyncio.Event()

    def read(fd: int) -> None:
        # Each line is written by one write.
        seconds.extend(json.loads(line)["seconds"] for line in os.read(fd, 1 << 16).splitlines())
        if len(seconds) >= count:
            all_delivered.set()

    fds = [child.process.stdout.fileno() for child in children if child.process.stdout is not None]
    for fd in fds:
        loop.add_reader(fd, read, fd)
    try:
        yield all_delivered
    finally:
        for fd in fds:
            loop.remove_reader(fd)
