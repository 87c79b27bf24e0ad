"""The dead-letter topic grows while letters are on their way: each arrives once, in the partition that its key has at
that moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from logbroker.broker.local_engine.lifetime import open_engine
from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.engine import Append
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.settings import Ordering
from logbroker.record.partitioner import partition_for_key
from tests.queues.redrives import LETTERS, fail_all, fail_each, group_of, values_by_key
from tests.queues.shell import Shell, hello, nack, shell, take, until

KEYS = [b"key-%d" % number for number in range(30)]
LARGE = random.Random(1).randbytes(3000)


async def begun(opened: Shell, **settings: Any) -> QueueGroup:
    await opened.topic()
    await opened.topic(LETTERS, partitions=3)
    return await group_of(opened, **settings)


async def grow(opened: Shell, partitions: int) -> None:
    await opened.engine.alter_topic(opened.engine.topic(LETTERS).id, partitions=partitions)


async def misplaced(opened: Shell) -> list[bytes | None]:
    """Keys of letters that are not in the partition of their key, in the generation in which they were appended."""
    topic = opened.engine.topic(LETTERS)
    found: list[bytes | None] = []
    for partition in range(topic.partitions):
        for record in await opened.stored(LETTERS, partition):
            generation = next(
                each
                for each in topic.generations
                if (end := topic.end_of(each.generation, partition)) is None or record.offset < end
            )
            assert record.key is not None
            if partition_for_key(record.key, generation.partitions) != partition:
                found.append(record.key)
    return found


async def test_letters_of_a_key_keep_their_order_while_the_topic_grows(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await begun(opened)
        keys = [b"key-%d" % number for number in range(200)]
        count = 3 * len(keys)
        await opened.append(*[(keys[number % len(keys)], b"%d" % number) for number in range(count)])

        async def fail() -> None:
            link = await group.connect(hello("failing"))
            for _ in range(count):
                [(receipt, _)] = await take(link, 1)
                await nack(link, receipt)
            await link.goodbye()

        failing = asyncio.create_task(fail())
        for partitions in range(4, 9):
            await until(lambda partitions=partitions: group.dead_lettering.sent > 100 * (partitions - 4))  # type: ignore[misc]
            await grow(opened, partitions)
        await failing
        await until(lambda: group.dead_lettering.sent == count)
        assert await misplaced(opened) == []
        sent = {key: [b"%d" % number for number in range(place, count, len(keys))] for place, key in enumerate(keys)}
        assert await values_by_key(opened, LETTERS) == sent
        assert (await group.redrive(None, 10_000)).records == count
        assert await values_by_key(opened) == {key: 2 * values for key, values in sent.items()}


async def test_letters_that_were_refused_before_the_growth_go_to_the_present_partition(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await begun(opened)
        topic_id = opened.engine.topic(LETTERS).id
        await opened.engine.alter_topic(topic_id, set_configs={"max.message.bytes": "1000"})
        await opened.append(*[(key, LARGE) for key in KEYS])
        link = await group.connect(hello("failing"))
        await nack(link, *[receipt for receipt, _ in await take(link, len(KEYS))])
        await link.goodbye()
        await until(lambda: len(group.queue.dead_letters.refusals) == len(KEYS))
        await grow(opened, 4)
        await opened.engine.alter_topic(topic_id, set_configs={"max.message.bytes": "100000"})
        await until(lambda: group.dead_lettering.sent == len(KEYS))
        await fail_each(opened, group, KEYS, 1)
        assert await misplaced(opened) == []
        assert await values_by_key(opened, LETTERS) == {
            key: [LARGE, b"%d" % number] for number, key in enumerate(KEYS, 1)
        }
        assert group.queue.open_records == 0


@pytest.mark.parametrize("appended", [False, True])
async def test_letters_that_may_be_there_since_before_a_crash_come_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, appended: bool
) -> None:
    """The broker is killed before or after letters are appended, and the topic grows before the group is back."""
    async with shell(tmp_path, crash=True) as opened:
        group = await begun(opened)
        await opened.append(*[(key, b"1") for key in KEYS])
        append = opened.engine.append
        hangs = asyncio.Event()

        async def hang(appends: Sequence[Append], *arguments: Any) -> Any:
            if appended:
                await append(appends, *arguments)
            hangs.set()
            await asyncio.Event().wait()

        link = await group.connect(hello("failing"))
        receipts = [receipt for receipt, _ in await take(link, len(KEYS))]
        monkeypatch.setattr(opened.engine, "append", hang)
        await nack(link, *receipts)
        async with asyncio.timeout(20):
            await hangs.wait()
        there = [len(await opened.stored(LETTERS, partition)) for partition in range(3)]
        assert sum(there) > 0 or not appended
    failures: list[Exception] = []
    config = BrokerConfig(data_dir=str(tmp_path / "data"))
    async with open_engine(config, SystemClock(), failures.append) as (engine, _):
        await engine.alter_topic(engine.topic(LETTERS).id, partitions=4)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        await fail_rest(opened, group)
        assert await misplaced(opened) == []
        assert await values_by_key(opened, LETTERS) == {key: [b"1"] for key in KEYS}


async def fail_rest(opened: Shell, group: QueueGroup) -> None:
    """Let the records fail that come again, as their failure was not stored."""
    link = await group.connect(hello("failing"))
    link.add_credit(len(KEYS))
    async with asyncio.timeout(20):
        while group.queue.done.floor(0) < len(KEYS):
            delivering = asyncio.create_task(link.next_deliveries())
            while not delivering.done() and group.queue.done.floor(0) < len(KEYS):
                await asyncio.wait([delivering], timeout=0.01)
            if delivering.done():
                delivered = delivering.result()
                await nack(link, *range(delivered.first_receipt, delivered.first_receipt + delivered.count))
            else:
                delivering.cancel()
    await link.goodbye()


async def test_letters_without_a_key_arrive_while_the_topic_grows(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await begun(opened, ordering=Ordering.NONE)
        for partitions in (4, 5):
            await opened.append(*[(None, b"%d" % number) for number in range(50)])
            failing = asyncio.create_task(fail_all(opened, group, 50))
            await grow(opened, partitions)
            await failing
        topic = opened.engine.topic(LETTERS)
        assert sum([len(await opened.stored(LETTERS, number)) for number in range(topic.partitions)]) == 100
