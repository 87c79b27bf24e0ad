"""A child process of a benchmark of queue groups: a worker, or a probe that sends records and works on them.

    python -m logbroker.tools.bench.queues.queue_child worker BROKER GROUP PREFETCH [COUNT]
    python -m logbroker.tools.bench.queues.queue_child sender BROKER GROUP PREFETCH TOPIC
    python -m logbroker.tools.bench.queues.queue_child probe BROKER GROUP TOPIC KEYS RECORDS_PER_SECOND
    python -m logbroker.tools.bench.queues.queue_child urgent BROKER GROUP MILLISECONDS [BAND]

A worker acknowledges records until its standard input is closed, or until it has had COUNT records. Then it prints
{"records": COUNT, "first": SECONDS, "synced": SECONDS}: the times at which it got the first record and at which its
last acknowledgement was synced, on the monotonic clock. A sender does the same, and sends each record to TOPIC with its
acknowledgement.

A probe sends records and takes them. It prints {} when it has taken the records of one second. Then it prints, for
every line that it reads, {"records": COUNT, "p50": SECONDS, "p99": SECONDS}: the time from the send of a record to its
delivery, for the records since the last such line.

An urgent worker takes one record at a time, waits for MILLISECONDS, and acknowledges it. It prints {} after its first
record and at its end. For each record of the highest priority it prints {"seconds": SECONDS}: the time since the broker
appended the record, by its timestamp in whole milliseconds (LogAppendTime).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import sys
import time
from typing import Any, Final

import uvloop

from logbroker.client import Producer
from logbroker.client.worker.worker import Worker
from logbroker.record.message_headers import MAX_PRIORITY

_IDLE_SECONDS: Final = 0.02
_TICK_SECONDS: Final = 0.002


def _say(what: Any) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


async def _work(broker: str, group: str, prefetch: int, count: int | None, out: str = "") -> None:
    records = synced_records = 0
    first = synced_at = 0.0

    async def note_sync() -> None:
        nonlocal synced_records, synced_at
        count = records
        await worker.flush()
        synced_records, synced_at = count, time.monotonic()

    async def note_syncs() -> None:
        """Note the sync when no record has come for a while, because the parent process may close the input late."""
        seen = 0
        while True:
            await asyncio.sleep(_IDLE_SECONDS)
            if records == seen != synced_records:
                await note_sync()
            seen = records

    async with Worker(broker, group, prefetch=prefetch) as worker:
        asyncio.get_running_loop().add_reader(0, worker.stop)
        noting = asyncio.create_task(note_syncs())
        async for delivery in worker:
            if not records:
                first = time.monotonic()
            if out:
                delivery.send(out, delivery.value, delivery.key)
            delivery.ack()
            records += 1
            if records == count:
                break
        noting.cancel()
        if not records or synced_records < records:
            await note_sync()
        _say({"records": records, "first": first, "synced": synced_at})


async def _probe(broker: str, group: str, topic: str, keys: int, records_per_second: float) -> None:
    seconds: list[float] = []
    ended = asyncio.Event()

    def on_input() -> None:
        if not os.read(0, 1000):
            ended.set()
            return
        ranks = statistics.quantiles(seconds, n=100)
        _say({"records": len(seconds), "p50": ranks[49], "p99": ranks[98]})
        seconds.clear()

    async def send(producer: Producer) -> None:
        begun, sent = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - begun) * records_per_second)
            while sent < due:
                await producer.send(topic, b"%r" % time.monotonic(), key=b"healthy-%d" % (sent % keys))
                sent += 1
            await asyncio.sleep(_TICK_SECONDS)

    async def work(worker: Worker) -> None:
        warm = False
        async for delivery in worker:
            seconds.append(time.monotonic() - float(delivery.value or b""))
            delivery.ack()
            if not warm and len(seconds) >= records_per_second:
                warm = True
                seconds.clear()
                _say({})

    async with Producer(broker, linger_ms=0) as producer, Worker(broker, group, prefetch=1000) as worker:
        tasks = [asyncio.create_task(each) for each in (send(producer), work(worker), ended.wait())]
        asyncio.get_running_loop().add_reader(0, on_input)
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()


async def _urgent(broker: str, group: str, work_seconds: float, band: str | None) -> None:
    warm = False
    async with Worker(broker, group, prefetch=1, band=band) as worker:
        asyncio.get_running_loop().add_reader(0, worker.stop)
        async for delivery in worker:
            if delivery.priority == MAX_PRIORITY:
                _say({"seconds": time.time() - delivery.timestamp_ms / 1000})
            if work_seconds:
                await asyncio.sleep(work_seconds)
            delivery.ack()
            if not warm:
                warm = True
                _say({})
    _say({})


def main() -> None:
    """Run the task that the first argument names."""
    kind, broker, group, *rest = sys.argv[1:]
    with contextlib.suppress(KeyboardInterrupt):
        if kind == "worker":
            uvloop.run(_work(broker, group, int(rest[0]), int(rest[1]) if len(rest) > 1 else None))
        elif kind == "sender":
            uvloop.run(_work(broker, group, int(rest[0]), None, rest[1]))
        elif kind == "urgent":
            uvloop.run(_urgent(broker, group, float(rest[0]) / 1000, rest[1] if len(rest) > 1 else None))
        else:
            uvloop.run(_probe(broker, group, rest[0], int(rest[1]), float(rest[2])))


if __name__ == "__main__":
    main()
