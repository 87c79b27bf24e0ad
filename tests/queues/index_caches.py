"""Queue groups with priorities over runs of a broker, and what they keep of their index."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logbroker.engine import Append, Appended, Read, ReadResult
from logbroker.errors import LogbrokerError
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.settings import Ordering, Priority
from logbroker.queues.scan.index_cache import cache as cache_module
from logbroker.queues.scan.index_cache.files import DIRECTORY
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.message_headers import PRIORITY
from tests.queues.shell import Shell, ack, hello, records, shell, take, until

PARTITIONS = 3
ORDERINGS = [Ordering.NONE, Ordering.KEY]


class Reads:
    """Partitions that were read, and the offsets at which the reads began."""

    def __init__(self, opened: Shell) -> None:
        self.offsets: list[tuple[int, int]] = []
        read = opened.engine.read

        async def noted(reads: list[Read]) -> list[ReadResult | LogbrokerError]:
            self.offsets += [(wish.partition, wish.offset) for wish in reads]
            return await read(reads)

        opened.engine.read = noted  # type: ignore[method-assign, assignment]


async def fill(opened: Shell, draw: random.Random, batches: int = 16) -> None:
    """Append records of all priorities, some keys and mixed timestamps."""
    topic = opened.engine.topic("t")
    for number in range(batches):
        partition = draw.randrange(PARTITIONS)
        batch = [
            NewRecord(
                b"%d-%d" % (number, index),
                draw.choice((None, b"k%d-%d" % (partition, draw.randrange(5)))),
                [(PRIORITY, b"%d" % draw.randrange(10))],
                timestamp_ms=draw.randrange(1_000_000),
            )
            for index in range(draw.randrange(1, 10))
        ]
        [result] = await opened.engine.append([Append(topic.id, partition, encode_batch(batch))])
        assert isinstance(result, Appended)


async def group_of(opened: Shell, ordering: Ordering, **settings: Any) -> QueueGroup:
    group = await opened.group(ordering=ordering, priority=Priority.STRICT, **settings)
    await until(lambda: not group.scanner.is_indexing)
    return group


async def all_values(group: QueueGroup) -> list[bytes | None]:
    """Take all there is, with an ordering one after the other, and acknowledge it; return it in its order."""
    await until(lambda: group.scanner.unscanned() == 0 and not group.scanner.is_indexing)
    link = await group.connect(hello(f"reader-{random.random()}"))
    values: list[bytes | None] = []
    while group.queue.open_records:
        link.add_credit(100 if group.queue.settings.ordering is Ordering.NONE else 1)
        async with asyncio.timeout(25):
            delivered = await link.next_deliveries()
        values += [record.value for record in records(delivered)]
        await ack(link, *range(delivered.first_receipt, delivered.first_receipt + delivered.count))
    await link.goodbye()
    return values


def files(path: Path) -> list[Path]:
    return sorted((path / "data" / DIRECTORY).rglob("*.*"))


async def order_without_index_cache(path: Path, ordering: Ordering, seed: int, acked: int) -> list[bytes | None]:
    """The order in which the records of a seed come from a group that never had a restart."""
    async with shell(path) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, ordering)
        draw = random.Random(seed)
        await fill(opened, draw)
        await until(lambda: group.scanner.unscanned() == 0 and not group.scanner.is_indexing)
        link = await group.connect(hello())
        for _ in range(acked):
            [(receipt, _)] = await take(link, 1)
            await ack(link, receipt)
        await link.goodbye()
        return await all_values(group)


@contextmanager
def small_blocks(monkeypatch: pytest.MonkeyPatch, count: int) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(cache_module, "BLOCK_RECORDS", count)
        yield
