"""The costs of priorities in a queue group: the merge of many partitions, and the index after a restart."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import time
from collections.abc import Sequence
from typing import Final

from logbroker.client import Producer
from logbroker.client.admin.queue_admin import QueueAdmin
from logbroker.client.admin.queue_descriptions import QueueSettings
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import LogbrokerError
from logbroker.queues.registry import INDEX_DIRECTORY
from logbroker.record.message_headers import MAX_PRIORITY, MIN_PRIORITY
from logbroker.tools.bench.harness.measure import TOPIC, Row, Setup
from logbroker.tools.bench.queues.queue_brokers import (
    VALUE,
    cpu_seconds,
    create_topic,
    running_broker,
    until,
    work_off,
)
from logbroker.types import Durability

_SEED: Final = 1
_REBUILT: Final = re.compile(rb"index of \d+ partitions rebuilt in ([\d.]+) ms")
_INDEX_SECONDS: Final = 300.0
"""How long a restarted broker may take to build its index."""
_LOOK_SECONDS: Final = 0.02


async def fill(address: str, topic: str, records: int, partitions: int, *, keys: int = 0, lowest_only: bool) -> None:
    """Send records of mixed priorities, or only of the lowest one. They go to all partitions in turn, or are routed if
    there are `keys` or no `partitions`."""
    rng = random.Random(_SEED)
    async with Producer(address, durability=Durability.WRITTEN) as producer:
        for number in range(records):
            await producer.send(
                topic,
                VALUE,
                key=b"key-%d" % (number % keys) if keys else None,
                partition=None if keys or not partitions else number % partitions,
                priority=MIN_PRIORITY if lowest_only else rng.randint(MIN_PRIORITY, MAX_PRIORITY),
            )
        await producer.flush()


# --- the merge -------------------------------------------------------------------------------------------------------


async def merge(
    setup: Setup, *, counts: Sequence[int], records: int, workers: int, ordering: str, keys: int
) -> list[Row]:
    """Measure the records per second that worker processes take and acknowledge once all records are scanned, and the
    CPU time of the broker per record. The ratio compares with the result for the first number of partitions. The last
    rows are without priority."""
    plans = [(count, "strict") for count in counts] + [(counts[-1], "none")]
    speeds: list[list[float]] = [[] for _ in plans]
    costs: list[list[float]] = [[] for _ in plans]
    with running_broker(setup, records * len(counts)) as broker:
        address = broker.address
        for count in counts:
            await create_topic(address, f"merge-{count}", count)
            in_keys = keys if ordering == "key" else 0
            await fill(address, f"merge-{count}", records, count, keys=in_keys, lowest_only=False)
        async with QueueAdmin(address) as admin:
            for number in range(setup.rounds):
                for plan, (count, priority) in enumerate(plans):
                    group = f"merge-{count}-{priority}-{number}"
                    settings = QueueSettings(ordering=ordering, priority=priority, max_ready_records=records)
                    await admin.create_queue(group, f"merge-{count}", settings)
                    await until(admin, group, lambda queue: not queue.counts.unscanned)
                    before = cpu_seconds(broker.pid)
                    seconds = await work_off(admin, address, group, workers=workers, records=records)
                    speeds[plan].append(records / seconds)
                    costs[plan].append((cpu_seconds(broker.pid) - before) / records * 1e6)
                    await admin.delete_queue(group)
    what = "by key" if ordering == "key" else "no order"
    rows: list[Row] = []
    for plan, (count, priority) in enumerate(plans):
        partitions_text = "1 partition" if count == 1 else f"{count:,} partitions"
        name = f"{partitions_text}, {what}, " + ("ten priorities" if priority == "strict" else "without priority")
        rows.append(
            Row(
                name=f"{name}: {workers} workers take and ack {records:,} records",
                durability="synced",
                unit="records/s",
                rounds=speeds[plan],
                ceiling_rounds=speeds[0] if plan else [],
            )
        )
        rows.append(
            Row(
                name=f"{name}: broker CPU for a delivery and its ack",
                durability="synced",
                unit="us",
                rounds=costs[plan],
                ceiling_rounds=costs[0] if plan else [],
                lower_is_better=True,
            )
        )
    return rows


# --- a restart -------------------------------------------------------------------------------------------------------


async def rebuild(setup: Setup, *, partitions: int, waiting: int) -> list[Row]:
    """Measure how long a group without order needs to build its index after a clean stop, with its index files. Without
    these files, measure how many records per second it scans."""
    kept, scanned = [], []
    with running_broker(setup, waiting) as broker:
        await create_topic(broker.address, TOPIC, partitions)
        await fill(broker.address, TOPIC, waiting, partitions, lowest_only=False)
        async with QueueAdmin(broker.address) as admin:
            await admin.create_queue("work", TOPIC, QueueSettings(ordering="none", priority="strict"))
            await _indexed(admin)
            for _ in range(setup.rounds):
                kept.append(await _restarted_ms(broker, admin))
                scanned.append(waiting / await _restarted_ms(broker, admin, forget=True) * 1e3)
    name = f"{waiting:,} records wait in {partitions:,} partitions, after a restart"
    return [
        Row(
            name=f"{name}: building the index from its files",
            durability="-",
            unit="ms",
            rounds=kept,
            ceiling_rounds=[],
        ),
        Row(
            name=f"{name}: records scanned without the index files",
            durability="-",
            unit="records/s",
            rounds=scanned,
            ceiling_rounds=[],
        ),
    ]


async def _restarted_ms(broker: EmbeddedBroker, admin: QueueAdmin, *, forget: bool = False) -> float:
    """Stop the broker and start it again. Return the time that the broker reports for building the index, in ms."""
    broker.stop()
    if forget:
        shutil.rmtree(broker.data_dir / INDEX_DIRECTORY)
    before = broker.log_path.stat().st_size
    broker.start()
    # Read the broker's log, because requests to the broker would delay the index.
    deadline = time.monotonic() + _INDEX_SECONDS
    while time.monotonic() < deadline:
        with broker.log_path.open("rb") as log:
            log.seek(before)
            if found := _REBUILT.search(log.read()):
                await _indexed(admin)
                return float(found[1])
        await asyncio.sleep(_LOOK_SECONDS)
    raise LogbrokerError(f"the broker did not say within {_INDEX_SECONDS:g} s how long the index took")


async def _indexed(admin: QueueAdmin) -> None:
    await until(admin, "work", lambda queue: queue.state != "indexing" and not queue.counts.unscanned)
