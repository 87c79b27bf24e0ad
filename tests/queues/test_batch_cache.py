"""The cache of all queue groups: one bound for as many as there are."""

from __future__ import annotations

from pathlib import Path

from logbroker.queues.records.batch_cache import BatchCache
from logbroker.queues.records.fetch import Records
from logbroker.record.codec import NewRecord
from logbroker.types import TopicId
from tests.queues.fake_log import FakeLog
from tests.queues.groups import TOPIC_ID
from tests.queues.shell import hello, shell, take

BATCH_BYTES = 10_000


async def test_many_groups_keep_no_more_than_one() -> None:
    cache = BatchCache(5 * BATCH_BYTES)
    log = FakeLog()
    for _ in range(4):
        log.append(NewRecord(bytes(9_000)))
    groups = [Records(log.engine, TopicId(TOPIC_ID), cache) for _ in range(10)]
    for group in groups:
        for record_id in range(4):
            await group.fetch([record_id])
            assert cache.used_bytes <= cache.max_bytes
    assert [len(group.batches) for group in groups] == [0] * 8 + [1, 4], "not those that were used last"

    await groups[-2].fetch([3])
    await groups[0].fetch([0])
    assert [len(group.batches) for group in groups] == [1] + [0] * 7 + [1, 3], "not the least recently used one"


async def test_a_group_that_ends_keeps_nothing(tmp_path: Path) -> None:
    async with shell(tmp_path) as broker:
        await broker.topic()
        group = await broker.group()
        await broker.append((b"k", b"v"))
        await take(await group.connect(hello()), 1)
        cache = group.records.batches.cache
        assert cache.used_bytes > 0
        await broker.groups.delete("g")
        assert cache.used_bytes == 0
