"""Retention waits for those who still need records, and asks them to let go beyond `retention.hold.bytes`."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from logbroker.broker.broker import open_broker
from logbroker.broker.local_engine import upkeep as upkeep_module
from logbroker.broker.local_engine.partition import Partition
from logbroker.config import BrokerConfig
from logbroker.engine import Append, Topic
from logbroker.queues.model.settings import QueueGroupSettings
from logbroker.queues.model.starts import StartAt
from logbroker.queues.registry import QueueGroupRegistry
from logbroker.storage.partition_checkpoint import PartitionCheckpoint
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.segment import Segment
from tests.broker.conftest import Opened, OpenEngine, batch
from tests.homes import home_of

CONFIGS = {"segment.bytes": "1000", "retention.bytes": "3000", "retention.hold.bytes": "4000"}


class Reader:
    """A holder that lets go only when it is told to."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.asked: list[tuple[int, int]] = []

    def needed_from(self, partition: int) -> int:
        return self.offset

    def let_go(self, partition: int, offset: int) -> None:
        self.asked.append((partition, offset))

    def removed(self, partition: int) -> None:
        """Nothing to note."""


async def filled_topic(opened: Opened, records: int = 60) -> Topic:
    topic = await opened.engine.create_topic("t", 1, CONFIGS)
    for number in range(records):
        await opened.append(topic.id, b"%0200d" % number)
    return topic


async def test_what_is_needed_stays(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        topic = await filled_topic(opened, records=20)
        reader = Reader(7)
        opened.engine.hold(topic.id, reader)
        await opened.engine._upkeep.apply_retention()
        assert opened.engine.partition_facts(topic.id, 0).log_start_offset == 6  # three records a segment
        assert reader.asked == []
        opened.engine.release(topic.id, reader)
        await opened.engine._upkeep.apply_retention()
        assert opened.engine.partition_facts(topic.id, 0).size_bytes < 4000


async def test_beyond_the_bound_holders_are_asked_and_waited_for(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        topic = await filled_topic(opened)
        needy, content = Reader(2), Reader(100)
        opened.engine.hold(topic.id, needy)
        opened.engine.hold(topic.id, content)
        for _ in range(2):
            await opened.engine._upkeep.apply_retention()
            assert opened.engine.partition_facts(topic.id, 0).log_start_offset == 0, "an undone record is gone"
        [first, second] = needy.asked
        assert first == second
        assert content.asked == []
        needy.offset = first[1]
        await opened.engine._upkeep.apply_retention()
        facts = opened.engine.partition_facts(topic.id, 0)
        assert facts.log_start_offset == first[1]
        assert facts.size_bytes < 3000 + 4000 + 2 * 1000
        assert len(needy.asked) == 2


async def test_each_topic_has_its_own_holders(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        held = await filled_topic(opened)
        free = await opened.engine.create_topic("free", 1, CONFIGS)
        for number in range(30):
            await opened.engine.append([Append(free.id, 0, batch(b"%0200d" % number))])
        reader = Reader()
        opened.engine.hold(held.id, reader)
        await opened.engine._upkeep.apply_retention()
        assert opened.engine.partition_facts(held.id, 0).log_start_offset == 0
        assert opened.engine.partition_facts(free.id, 0).log_start_offset > 0


async def test_retention_begins_when_it_is_told_to(open_at: OpenEngine) -> None:
    async with open_at(retention_check_seconds=0.01, checkpoint_seconds=0.01) as opened:
        topic = await filled_topic(opened)
        await asyncio.sleep(0.2)
        assert opened.engine.partition_facts(topic.id, 0).log_start_offset == 0
        opened.engine.start_retention()
        async with asyncio.timeout(25):
            while not opened.engine.partition_facts(topic.id, 0).log_start_offset:
                await asyncio.sleep(0.01)


async def test_retention_does_not_wait_for_checkpoints(open_at: OpenEngine) -> None:
    async with open_at(retention_check_seconds=0.01, checkpoint_seconds=3600) as opened:
        opened.engine.start_retention()
        topic = await filled_topic(opened)
        for _ in range(3):
            before = opened.engine.partition_facts(topic.id, 0)
            for number in range(60):
                await opened.append(topic.id, b"%0200d" % number)
            async with asyncio.timeout(25):
                while opened.engine.partition_facts(topic.id, 0).log_start_offset < before.log_end_offset:
                    await asyncio.sleep(0.01)


async def test_checkpoints_do_not_wait_for_retention(open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends wait for checkpoints, and it may take long to remove files."""
    removes, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    real = PartitionLog.remove_files

    def remove_slowly(log: PartitionLog, segments: list[Segment]) -> None:
        loop.call_soon_threadsafe(removes.set)
        go_on.wait(25)
        real(log, segments)

    monkeypatch.setattr(PartitionLog, "remove_files", remove_slowly)
    async with open_at(retention_check_seconds=0.01, checkpoint_seconds=3600) as opened:
        topic = await filled_topic(opened)
        opened.engine.start_retention()
        try:
            async with asyncio.timeout(25):
                await removes.wait()
                end = await opened.append(topic.id, b"next") + 1
                monkeypatch.setattr(upkeep_module, "MAX_LAG_BATCHES", 1)
                # The limit is reached, so this append waits for a checkpoint.
                assert await opened.append(topic.id, b"last") == end
            assert not go_on.is_set()
        finally:
            go_on.set()


async def test_at_a_start_nothing_goes_before_queue_groups_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BrokerConfig(data_dir=str(tmp_path), retention_check_seconds=0.01, checkpoint_seconds=0.01)
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with open_broker(config, failure) as broker:
        topic = await broker.engine.create_topic("t", 1, {"segment.bytes": "1000", "retention.bytes": "-1"})
        for number in range(30):
            await broker.engine.append([Append(topic.id, 0, batch(b"%0200d" % number))])
        await home_of(broker).queues.create("g", topic, QueueGroupSettings(), StartAt())
        await broker.engine.alter_topic(topic.id, set_configs={"retention.bytes": "1000"})
    real = QueueGroupRegistry.load

    async def load_late(groups: QueueGroupRegistry) -> None:
        await asyncio.sleep(0.2)
        await real(groups)

    monkeypatch.setattr(QueueGroupRegistry, "load", load_late)
    async with open_broker(config, failure) as broker:
        await asyncio.sleep(0.2)
        assert broker.engine.partition_facts(topic.id, 0).log_start_offset == 0
        await home_of(broker).queues.delete("g")
        async with asyncio.timeout(25):
            while not broker.engine.partition_facts(topic.id, 0).log_start_offset:
                await asyncio.sleep(0.01)


async def test_who_comes_while_retention_syncs_is_waited_for(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at() as opened:
        topic = await filled_topic(opened)
        checkpoint, begun, go_on = Partition.checkpoint, asyncio.Event(), asyncio.Event()

        async def slow(partition: Partition) -> PartitionCheckpoint:
            begun.set()
            await go_on.wait()
            return await checkpoint(partition)

        with monkeypatch.context() as patch:
            patch.setattr(Partition, "checkpoint", slow)
            retention = asyncio.create_task(opened.engine._upkeep.apply_retention())
            await begun.wait()
            opened.engine.hold(topic.id, Reader(4))
            go_on.set()
            await retention
        assert opened.engine.partition_facts(topic.id, 0).log_start_offset == 3
