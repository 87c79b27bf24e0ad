"""Queue groups whose records become dead letters, and what of them lies in topics."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from logbroker.queues.group import QueueGroup
from logbroker.queues.model.settings import OnExhausted
from logbroker.record.codec import LogRecord
from tests.queues.shell import Shell, hello, nack, take, until

LETTERS = "g.dead-letters"


async def group_of(opened: Shell, **settings: Any) -> QueueGroup:
    fields: dict[str, Any] = {"on_exhausted": OnExhausted.DEAD_LETTER, "max_attempts": 1, **settings}
    return await opened.group(backoff_initial_seconds=0.0, **fields)


async def fail_all(opened: Shell, group: QueueGroup, count: int) -> None:
    """Let so many records fail, all of which can be delivered at once."""
    sent = group.dead_lettering.sent
    link = await group.connect(hello("failing"))
    await nack(link, *[receipt for receipt, _ in await take(link, count)])
    await link.goodbye()
    await until(lambda: group.dead_lettering.sent == sent + count)


async def fail_each(opened: Shell, group: QueueGroup, keys: list[bytes], first: int = 0) -> None:
    """Append one record of each key, numbered from `first` on, and let it fail."""
    await opened.append(*[(key, b"%d" % number) for number, key in enumerate(keys, first)])
    await fail_all(opened, group, len(keys))


async def by_generation(opened: Shell, name: str) -> list[LogRecord]:
    """All records of a topic; those of a key in the order in which they were written."""
    topic = opened.engine.topic(name)
    stored = [await opened.stored(name, partition) for partition in range(topic.partitions)]
    found: list[LogRecord] = []
    for generation in topic.generations:
        for partition in range(generation.partitions):
            starts = generation.start_offsets
            start = starts[partition] if partition < len(starts) else 0
            end = topic.end_of(generation.generation, partition)
            found += [each for each in stored[partition] if start <= each.offset and (end is None or each.offset < end)]
    return found


async def values_by_key(opened: Shell, name: str = "t") -> dict[bytes | None, list[bytes | None]]:
    """The values of each key of a topic, in the order in which they were written."""
    values: defaultdict[bytes | None, list[bytes | None]] = defaultdict(list)
    for record in await by_generation(opened, name):
        values[record.key].append(record.value)
    return dict(values)
