"""The lanes experiment: the same records drained side by side without order, one by one, in order per key, and with a
hot key that is split."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from time import monotonic
from typing import Final

from logbroker.client.admin.admin import Admin
from logbroker.client.admin.queue_admin import QueueAdmin
from logbroker.client.admin.queue_descriptions import QueueSettings
from logbroker.client.producer.producer import Producer
from logbroker.errors import InvalidRequestError
from logbroker.tools.experiments.crew import Crew
from logbroker.tools.experiments.lane_strip import Strip, StripPlan
from logbroker.tools.experiments.worker_process import WorkerJob

FEW_KEYS: Final = 4
MANY_KEYS: Final = 100
HOT_KEYS: Final = 80
"""In the strips with a hot key, the records of this many of the 100 keys are sent with one key, the hot key. Their own
keys become the second keys of the hot key."""
HOT_KEY: Final = 2
"""The hot key. Its colour is not like red, which means disorder."""
SPLIT_INTO: Final = 8
SECOND_KEY_HEADER: Final = "aircraft"
STRIPS: Final = 6
"""Number of strips."""
PREFETCH: Final = 16
"""Maximum number of unsettled records of a worker. With this number, 8 workers could have all 100 keys at once."""
LOOK_SECONDS: Final = 0.1

Row = tuple[bytes, bytes]
"""The key of a record, and its value."""


def strip_plans(rows: Sequence[Row], workers: int) -> list[StripPlan]:
    """Return the plans of the six strips, one queue group each (see `lane_strip`). The keys of the rows are hashed to
    4 or to 100 keys, in the same way on every computer. In the last two strips, the records of 80 of the 100 keys have
    the same key, the hot key. The last strip splits the lane of this key."""
    few = [zlib.crc32(subject) % FEW_KEYS for subject, _ in rows]
    many = [zlib.crc32(subject) % MANY_KEYS for subject, _ in rows]
    hot = [HOT_KEY if key < HOT_KEYS else key for key in many]
    return [
        StripPlan(name="none", ordering="none", workers=workers, keys=many, key_count=MANY_KEYS),
        StripPlan(name="single", ordering="single", workers=workers, keys=many, key_count=MANY_KEYS),
        StripPlan(name=f"key of {FEW_KEYS}", ordering="key", workers=workers, keys=few, key_count=FEW_KEYS),
        StripPlan(name=f"key of {MANY_KEYS}", ordering="key", workers=workers, keys=many, key_count=MANY_KEYS),
        StripPlan(name="hot key", ordering="key", workers=workers, keys=hot, key_count=MANY_KEYS),
        StripPlan(
            name=f"split into {SPLIT_INTO}",
            ordering="key",
            workers=workers,
            keys=many,
            key_count=MANY_KEYS,
            sent_keys=hot,
            split_into=SPLIT_INTO,
        ),
    ]


async def drain(
    broker: str,
    rows: Sequence[Row],
    *,
    workers: int,
    work_seconds: float,
    look: Callable[[list[Strip]], None],
) -> list[Strip]:
    """On a broker ("HOST:PORT"), make a topic and a queue group for each strip, send the rows to all topics, and drain
    all of them at the same time. Return the drained strips.

    Each topic has one partition, so that partitions do not make work parallel. All workers are connected before the
    first record is sent. `look` is called ten times a second, and when all records are done. Raises InvalidRequestError
    without rows, and LogbrokerError if a worker fails.
    """
    if not rows:
        raise InvalidRequestError("there are no records to drain: give at least one")
    strips = [Strip(plan) for plan in strip_plans(rows, workers)]
    names = [f"strip-{number}" for number in range(len(strips))]
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(broker))
        queues = await stack.enter_async_context(QueueAdmin(broker))
        crews = []
        for name, strip in zip(names, strips, strict=True):
            await admin.create_topic(name, 1)
            await queues.create_queue(name, name, QueueSettings(ordering=strip.plan.ordering))
            if strip.plan.split_into:
                await queues.split_lane(
                    name, b"%d" % HOT_KEY, by=f"header:{SECOND_KEY_HEADER}", into=strip.plan.split_into
                )
            crew = await stack.enter_async_context(Crew(strip.add))
            crew.hire(
                [
                    WorkerJob(
                        number=number,
                        broker=broker,
                        group=name,
                        topic=name,
                        work_seconds=work_seconds,
                        prefetch=PREFETCH,
                    )
                    for number in range(workers)
                ]
            )
            crews.append(crew)
        for name, crew in zip(names, crews, strict=True):
            await crew.connected(queues, name)
        await _send(broker, names, strips, rows)
        while not all(strip.is_done for strip in strips):
            await asyncio.sleep(LOOK_SECONDS)
            for strip in strips:
                strip.look(monotonic())
            look(strips)
            for crew in crews:
                crew.check()
    return strips


async def _send(broker: str, names: Sequence[str], strips: Sequence[Strip], rows: Sequence[Row]) -> None:
    """Send all records to all strips, record by record, so that no strip begins earlier than the others. The header
    holds the second key. Only the strip with a split key needs it; the records of the other strips have it, too, so
    that the work is the same."""
    async with Producer(broker) as producer:
        begun = monotonic()
        for strip in strips:
            strip.begun = begun
        for position, (subject, value) in enumerate(rows):
            headers = ((SECOND_KEY_HEADER, b"%d" % (zlib.crc32(subject) % MANY_KEYS)),)
            for name, strip in zip(names, strips, strict=True):
                await producer.send(name, value, b"%d" % strip.plan.record_keys[position], headers=headers)
        await producer.flush()
