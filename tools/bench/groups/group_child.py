"""A child process of a benchmark of groups: a member that reads through the Python client, or a sender.

    python -m logbroker.tools.bench.groups.group_child member BROKER GROUP TOPIC SESSION_SECONDS
    python -m logbroker.tools.bench.groups.group_child sender BROKER TOPIC PARTITIONS RECORDS_PER_SECOND

A member prints the number of its partitions whenever the number changes. For every byte that it reads, it prints
{"longest": SECONDS}: the longest wait for the next record of a partition since the last such line. A wait counts only
if the member held the partition all the time. Both end cleanly when their standard input is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import uvloop

from logbroker.client import Consumer, Producer
from logbroker.types import TopicPartition

_TICK_SECONDS: Final = 0.01


def _say(what: Any) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


async def _member(broker: str, group: str, topic: str, session_seconds: float) -> None:
    last: dict[TopicPartition, float] = {}
    longest = 0.0

    def report() -> None:
        nonlocal longest
        _say({"longest": longest})
        longest = 0.0

    async with Consumer(broker, group=group, session_timeout_seconds=session_seconds) as consumer:

        def assigned(partitions: list[TopicPartition]) -> None:
            last.update(dict.fromkeys(partitions, math.inf))
            _say(len(last))

        def released(partitions: list[TopicPartition]) -> None:
            for partition in partitions:
                del last[partition]
            _say(len(last))

        async def read() -> None:
            nonlocal longest
            async for records in consumer.batches():
                now = time.monotonic()
                partition = TopicPartition(records[0].topic, records[0].partition)
                longest = max(longest, now - last[partition])
                last[partition] = now

        await consumer.subscribe(topic, on_assigned=assigned, on_revoked=released, on_lost=released)
        await _until_told(read(), report)


async def _sender(broker: str, topic: str, partitions: int, records_per_second: float) -> None:
    """Send evenly: a few records every 10 ms, to one partition after the other."""
    count = 0
    async with Producer(broker) as producer:

        async def send() -> None:
            nonlocal count
            start = time.monotonic()
            while True:
                due = int((time.monotonic() - start) * records_per_second)
                while count < due:
                    await producer.send(topic, b"%d" % count, partition=count % partitions)
                    count += 1
                await asyncio.sleep(_TICK_SECONDS)

        await _until_told(send(), lambda: None)


async def _until_told(work: Awaitable[None], report: Callable[[], None]) -> None:
    told = asyncio.Event()

    def on_input() -> None:
        if os.read(0, 1):
            report()
        else:
            asyncio.get_running_loop().remove_reader(0)
            told.set()

    asyncio.get_running_loop().add_reader(0, on_input)
    working = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(told.wait())
    await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working


def main() -> None:
    role, broker, *rest = sys.argv[1:]
    if role == "member":
        uvloop.run(_member(broker, rest[0], rest[1], float(rest[2])))
    else:
        uvloop.run(_sender(broker, rest[0], int(rest[1]), float(rest[2])))


if __name__ == "__main__":
    main()
