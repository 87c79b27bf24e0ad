"""The cost of many topics, partitions and groups that nobody uses: counted, not timed."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from logbroker.broker.broker import Broker
from logbroker.engine import Append, Appended, Topic
from logbroker.errors import UnknownTopicError
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.settings import OnExhausted, QueueGroupSettings
from logbroker.queues.model.starts import StartAt
from logbroker.queues.scan.rests import LEAST_PAUSE_SECONDS, LOOK_SHARE, Rests
from logbroker.storage.files import RealFiles
from tests.broker.conftest import HeldSync, Opened, OpenEngine, batch, broker_on
from tests.calls import counted
from tests.homes import home_of
from tests.queues.shell import hello, take, until

FEW, MANY = 20, 140
REPEATS = 5
"""Measurements, of which the least counts: the loop may have something else to do."""


async def calls_of_a_change(path: Path, topics: int) -> int:
    """The calls of Python functions on the event loop by which a topic is made and deleted, beside so many others."""
    async with broker_on(path) as broker:
        for number in range(topics):
            await broker.engine.create_topic(f"t{number}", 1, {})
        counts = []
        for _ in range(REPEATS):
            with counted() as calls:
                topic = await broker.engine.create_topic("x", 1, {})
                await asyncio.sleep(0)
                await broker.engine.delete_topic(topic.id)
                await asyncio.sleep(0)
            counts.append(calls.count)
        return min(counts)


async def test_a_topic_is_made_and_deleted_at_the_same_cost_however_many_there_are(tmp_path: Path) -> None:
    few = await calls_of_a_change(tmp_path / "few", FEW)
    many = await calls_of_a_change(tmp_path / "many", MANY)
    # Each of the others took eight calls and more.
    assert many < few + 4 * (MANY - FEW), (few, many)


async def test_deletions_do_not_look_through_the_data_directory(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at() as opened:
        topics = [await opened.engine.create_topic(f"t{number}", 2, {}) for number in range(5)]
        looks: list[str] = []
        real = RealFiles.list_directories

        def noted(self: RealFiles, path: str) -> list[str]:
            looks.append(path)
            return real(self, path)

        monkeypatch.setattr(RealFiles, "list_directories", noted)
        for topic in topics:
            await opened.engine.delete_topic(topic.id)
        assert looks == []


async def test_the_partitions_of_a_topic_are_deleted_with_one_sync(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    syncs: Counter[str] = Counter()
    for name in ("fdatasync", "fsync"):
        real = getattr(os, name)

        def noted(fd: int, real: Callable[[int], None] = real) -> None:
            path = os.readlink(f"/proc/self/fd/{fd}")
            if "/meta" not in path:
                syncs[path] += 1
            real(fd)

        monkeypatch.setattr(os, name, noted)
    async with open_at(checkpoint_seconds=3600.0) as opened:
        topic = await opened.engine.create_topic("t", 50, {"durability": "written"})
        await opened.engine.append([Append(topic.id, number, batch(b"x")) for number in range(25)])
        syncs.clear()
        await opened.engine.delete_topic(topic.id)
        assert syncs == {str(tmp_path / "data"): 1}
        assert [each.name for each in (tmp_path / "data").iterdir() if each.name != "meta" and each.is_dir()] == []


@asynccontextmanager
async def deleted_meanwhile(opened: Opened, topic: Topic, held_sync: HeldSync) -> AsyncIterator[None]:
    """Delete a topic while a sync of its partitions is held up, and let that go on then; in the block it is gone."""
    assert await asyncio.to_thread(held_sync.entered.wait, 20)
    deletion = asyncio.ensure_future(opened.engine.delete_topic(topic.id))
    while topic in opened.engine.topics():
        await asyncio.sleep(0)
    held_sync.release.set()
    async with asyncio.timeout(20):
        await deletion
        yield


async def test_who_waits_for_an_append_is_answered_though_the_topic_is_deleted(
    open_at: OpenEngine, held_sync: HeldSync
) -> None:
    async with open_at(checkpoint_seconds=3600.0) as opened:
        topic = await opened.engine.create_topic("t", 2, {})
        held_sync.active = True
        appends = [
            asyncio.ensure_future(opened.engine.append([Append(topic.id, number % 2, batch(b"x"))]))
            for number in range(6)
        ]
        async with deleted_meanwhile(opened, topic, held_sync):
            for [outcome] in await asyncio.gather(*appends):
                assert isinstance(outcome, Appended), outcome
        assert opened.failures == []


async def test_a_recovery_point_under_way_is_waited_for_where_its_topic_is_deleted(
    open_at: OpenEngine, held_sync: HeldSync
) -> None:
    async with open_at(checkpoint_seconds=3600.0) as opened:
        topic = await opened.engine.create_topic("t", 2, {"durability": "written"})
        await opened.engine.append([Append(topic.id, number, batch(b"x")) for number in range(2)])
        held_sync.active = True
        checkpoint = asyncio.ensure_future(opened.engine._upkeep.checkpoint())
        async with deleted_meanwhile(opened, topic, held_sync):
            await checkpoint
        assert opened.failures == []


# --- queue groups that nobody uses -----------------------------------------------------------------------------------


async def idle_groups(broker: Broker, topic: Topic, count: int) -> None:
    for number in range(count):
        await home_of(broker).queues.create(f"g{number}", topic, QueueGroupSettings(), StartAt())


async def append(broker: Broker, topic: Topic, *values: bytes) -> None:
    [outcome] = await broker.engine.append([Append(topic.id, 0, batch(*values))])
    assert isinstance(outcome, Appended)


async def calls_of_an_append(path: Path, groups: int) -> int:
    async with broker_on(path) as broker:
        topic = await broker.engine.create_topic("t", 1, {})
        await idle_groups(broker, topic, groups)
        await append(broker, topic, b"first")
        for _ in range(20):
            await asyncio.sleep(0)
        with counted() as calls:
            for _ in range(10):
                await append(broker, topic, b"x")
        return calls.count


async def test_an_append_costs_next_to_nothing_for_each_group_that_nobody_uses(tmp_path: Path) -> None:
    few = await calls_of_an_append(tmp_path / "few", 10)
    many = await calls_of_an_append(tmp_path / "many", 60)
    # A group is noted for another look, and that is all; each took some 200 calls an append.
    assert many < few + 10 * 50 * 20, (few, many)


@pytest.mark.prove
async def test_a_group_is_created_at_the_same_cost_however_many_there_are(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        topic = await broker.engine.create_topic("t", 1, {})
        counts = []
        for many in (FEW, MANY):
            for number in range(len(home_of(broker).queues.ids()), many):
                await home_of(broker).queues.create(f"g{number}", topic, QueueGroupSettings(), StartAt())
            of_many = []
            for repeat in range(REPEATS):
                with counted() as calls:
                    await home_of(broker).queues.create(f"x{many}-{repeat}", topic, QueueGroupSettings(), StartAt())
                    await asyncio.sleep(0)
                of_many.append(calls.count)
            counts.append(min(of_many))
        # Each of the others took eight calls and more.
        assert counts[1] < counts[0] + 4 * (MANY - FEW), counts


async def test_what_gathers_while_a_group_rests_is_there_for_whoever_asks(tmp_path: Path) -> None:
    """For a worker, for somebody who looks and has no time to wait, and in the end by itself."""
    async with broker_on(tmp_path) as broker:
        topic = await broker.engine.create_topic("t", 1, {})
        await idle_groups(broker, topic, 4)
        groups = [home_of(broker).queues.group(f"g{number}") for number in range(4)]
        await until(lambda: all(group.scanner.unscanned() == 0 for group in groups))
        await append(broker, topic, b"a", b"b")
        await until(lambda: all(group.scanner.is_resting for group in groups))
        [delivered] = await groups[0].receive("w", 1, 0)
        assert delivered.count == 1
        link = await groups[1].connect(hello())
        assert [record.value for _, record in await take(link, 2)] == [b"a", b"b"]
        await groups[2].scanner.catch_up()
        assert groups[2].scanner.unscanned() == 0
        assert groups[2].queue.lanes.ready_records == 2
        await until(lambda: groups[3].scanner.unscanned() == 0)
        # A worker that is there is served at once, whoever rests beside it.
        looks = groups[3].scanner.looks
        for number in range(20):
            await append(broker, topic, b"%d" % number)
            await take(link, 1)
        assert groups[1].scanner.looks >= 20
        assert groups[3].scanner.looks - looks < 20


async def test_a_group_that_rests_follows_its_topic_and_its_settings_at_once(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        topic = await broker.engine.create_topic("t", 1, {})
        await idle_groups(broker, topic, 1)
        group = home_of(broker).queues.group("g0")
        await append(broker, topic, b"a")
        await until(lambda: group.scanner.is_resting)
        await broker.engine.alter_topic(topic.id, partitions=3)
        await until(lambda: group.queue.done.is_open(2))
        await broker.engine.delete_topic(topic.id)
        await until(lambda: not home_of(broker).queues.has("g0"))
        with pytest.raises(UnknownTopicError):
            broker.engine.topic("t")


async def test_only_groups_that_have_to_do_with_a_topic_are_told_that_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    real = QueueGroup.topics_changed

    def noted(self: QueueGroup) -> None:
        told.append(self.group_id)
        real(self)

    async with broker_on(tmp_path) as broker:
        topics = [await broker.engine.create_topic(f"t{number}", 1, {}) for number in range(3)]
        for number, topic in enumerate(topics):
            settings = QueueGroupSettings()
            if number == 2:
                settings = QueueGroupSettings(on_exhausted=OnExhausted.DEAD_LETTER, dead_letter_topic="letters")
            await home_of(broker).queues.create(f"g{number}", topic, settings, StartAt())
        await asyncio.sleep(0)
        monkeypatch.setattr(QueueGroup, "topics_changed", noted)
        for change, expected in (
            (broker.engine.create_topic("other", 1, {}), []),
            (broker.engine.alter_topic(topics[1].id, partitions=2), ["g1"]),
            (broker.engine.alter_topic(broker.engine.topic("letters").id, partitions=2), ["g2"]),
        ):
            await change
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert told == expected
            told.clear()


async def test_the_looks_of_groups_that_rest_take_a_small_share_of_the_time() -> None:
    """One at a time, and after a long one all wait the longer, but never for one that does not end."""
    rests = Rests()
    loop = asyncio.get_running_loop()
    turns = [rests.join() for _ in range(4)]
    assert await turns[0] is True
    given = loop.time()
    rests.looked(3 * LEAST_PAUSE_SECONDS * LOOK_SHARE)
    assert await turns[1] is True
    assert loop.time() - given >= 3 * LEAST_PAUSE_SECONDS * 0.99
    turns[2].cancel()
    # Nobody says that it has looked.
    async with asyncio.timeout(30):
        assert await turns[3] is True
