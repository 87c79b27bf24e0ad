"""Names used again: topics and groups of both kinds that are deleted and made anew, side by side and over restarts.

What was acknowledged as existing exists in the end, with what belongs to it; what was deleted does not, and nothing is
inherited by a namesake.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from logbroker.broker.broker import Broker, open_broker
from logbroker.config import BrokerConfig
from logbroker.consumer_groups import groups as consumer_groups
from logbroker.consumer_groups.offsets import TopicCommit
from logbroker.engine import Append, Appended, Topic
from logbroker.errors import GroupExistsError, LogbrokerError, UnknownGroupError, UnknownTopicError
from logbroker.queues.model.messages import Settlement
from logbroker.queues.model.record_id import offset_of
from logbroker.queues.model.settings import QueueGroupSettings
from logbroker.queues.model.starts import StartAt
from logbroker.queues.model.worker_messages import Hello
from logbroker.record.codec import NewRecord, decode_batch, encode_batch, split_batches
from logbroker.types import TopicId
from tests.fast_directory import fast_directory
from tests.homes import home_of

RECORDS = 5
SETTINGS = QueueGroupSettings(grace_seconds=0.0)


class Expected(msgspec.Struct):
    """The last acknowledged state of a group."""

    topic_id: TopicId
    acked: set[int] = msgspec.field(default_factory=set)
    """Offsets that are done, of a queue group."""
    committed: tuple[int, str] = (-1, "")
    """Offset and metadata, of a consumer group."""


class World:
    """A broker, and what it has acknowledged. Each name is changed by one task only."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path = path
        self.chance = chance
        self.topics: dict[str, Topic] = {}
        self.queues: dict[str, Expected] = {}
        self.groups: dict[str, Expected] = {}
        self.count = 0
        self.broker: Broker

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        config = BrokerConfig(data_dir=str(self.path / "data"))
        async with open_broker(config, asyncio.get_running_loop().create_future()) as self.broker:
            yield

    # --- changes ---

    async def change_topic(self, name: str) -> None:
        """Delete a topic, and make it anew; sometimes not at once."""
        old = self.topics.pop(name, None)
        if old is not None:
            await self.broker.engine.delete_topic(old.id)
            if self.chance.random() < 0.3:
                return
        topic = await self.broker.engine.create_topic(name, 1, {})
        records = [NewRecord(value=topic.id, key=b"%d" % number) for number in range(RECORDS)]
        [result] = await self.broker.engine.append([Append(topic.id, 0, encode_batch(records))])
        assert isinstance(result, Appended)
        self.topics[name] = topic

    async def make_other(self, name: str) -> None:
        """A topic that no group is of: that it comes and goes is told to all."""
        topic = await self.broker.engine.create_topic(name, 1, {})
        await self.broker.engine.delete_topic(topic.id)

    async def change_queue(self, name: str) -> None:
        queues = home_of(self.broker).queues
        if name in self.queues and self.chance.random() < 0.2:
            del self.queues[name]
            with suppress(UnknownGroupError):  # It went with its topic.
                await queues.delete(name)
        topic = self.some_topic()
        before = self.queues.get(name)
        if topic is None or (before is not None and before.topic_id in self.live()):
            return
        self.queues.pop(name, None)
        try:
            _, created = await queues.create(name, topic, SETTINGS, StartAt())
        except UnknownTopicError:
            return  # Deleted meanwhile.
        except GroupExistsError:
            assert before is not None
            return  # The topic of the one before is being deleted.
        assert created, f"{name} was there, though it was deleted, or its topic"
        self.queues[name] = Expected(topic.id)

    async def work(self, name: str) -> None:
        """Take a record of a queue group, and finish it."""
        expected = self.queues.get(name)
        if expected is None or len(expected.acked) == RECORDS:
            return
        try:
            group = home_of(self.broker).queues.group(name)
            self.count += 1
            link = await group.connect(Hello(worker_id="w", incarnation=self.count))
            link.add_credit(1)
            async with asyncio.timeout(25):
                delivered = await link.next_deliveries()
            [(_, batch)] = split_batches(delivered.batches)
            for record in decode_batch(batch):
                assert record.value == expected.topic_id, "a record of another topic of this name"
            receipt = delivered.first_receipt
            [record_id] = [record_id for held, record_id in group.queue.deliveries.held_by("w") if held == receipt]
            assert offset_of(record_id) not in expected.acked, "done before"
            assert await link.settle(Settlement(acks=[(receipt, receipt)])) == []
            expected.acked.add(offset_of(record_id))
            await link.goodbye()
        except LogbrokerError:
            assert expected.topic_id not in self.live(), f"{name} is gone, and its topic is there"

    async def change_group(self, name: str) -> None:
        groups = home_of(self.broker).groups
        if name in self.groups and self.chance.random() < 0.4:
            del self.groups[name]
            await groups.delete(name)
            with pytest.raises(UnknownGroupError):
                groups.group(name)
        topic = self.some_topic()
        if topic is None:
            return
        self.count += 1
        offset, text = self.chance.randrange(RECORDS + 1), f"commit {self.count}"
        [outcome] = await groups.commit_offsets(name, [TopicCommit(topic.id, [0], [offset], [], [text])])
        if outcome == []:
            self.groups[name] = Expected(topic.id, committed=(offset, text))
        else:
            assert topic.id not in self.live(), outcome
            self.groups.pop(name, None)
            await groups.delete(name)

    def some_topic(self) -> Topic | None:
        return self.chance.choice([*self.topics.values(), None])

    def live(self) -> set[TopicId]:
        """Return the topics that certainly exist: one leaves before it is deleted, and joins after it is created."""
        return {topic.id for topic in self.topics.values()}

    async def storm(self, steps: int) -> None:
        """All at once, until the topics have changed so many times."""
        changing = 2

        async def topic_changes(name: str) -> None:
            nonlocal changing
            for _ in range(steps):
                await self.change_topic(name)
                await self.pause(30)
            changing -= 1

        async def others(name: str) -> None:
            while changing:
                await self.make_other(name)

        async def queue_changes(name: str) -> None:
            while changing:
                await (self.change_queue(name) if self.chance.random() < 0.6 else self.work(name))
                await self.pause(4)

        async def group_changes(name: str) -> None:
            while changing:
                await self.change_group(name)
                await self.pause(4)

        kinds = ((topic_changes, "t", changing), (others, "o", 2), (queue_changes, "q", 20), (group_changes, "c", 3))
        async with asyncio.TaskGroup() as tasks:
            for changes, prefix, count in kinds:
                for number in range(count):
                    tasks.create_task(changes(f"{prefix}{number}"))

    async def pause(self, most: int) -> None:
        for _ in range(self.chance.randrange(most)):
            await asyncio.sleep(0)

    # --- the end ---

    async def settle(self) -> None:
        """Let all end that goes with its topic: changes are made one after the other."""
        for _ in range(3):
            for _ in range(20):
                await asyncio.sleep(0)
            with pytest.raises(UnknownGroupError):
                await home_of(self.broker).queues.delete("nobody")

    async def check(self) -> None:
        await self.settle()
        broker, live = self.broker, self.live()
        assert {topic.id for topic in broker.engine.topics()} == live
        queues = {name: expected for name, expected in self.queues.items() if expected.topic_id in live}
        assert home_of(broker).queues.ids() == sorted(queues), "acknowledged groups are gone, or deleted ones are there"
        for name, expected in queues.items():
            queue = home_of(broker).queues.group(name).queue
            assert queue.topic_id == expected.topic_id
            assert {offset for offset in range(RECORDS) if offset in queue.done} == expected.acked
        assert home_of(broker).groups.ids() == sorted(self.groups)
        for name, expected in self.groups.items():
            table = home_of(broker).groups.group(name).offsets
            found = table.get(expected.topic_id, 0)
            if expected.topic_id in live:
                assert found is not None, "an acknowledged commit is gone"
                assert (found.offset, found.metadata) == expected.committed
            assert table.topic_ids() <= live, "a deleted topic's offsets are there"


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("turn", range(3))
async def test_what_was_acknowledged_exists_and_nothing_else(turn: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  # Shown where it fails.
    with fast_directory() as path:
        world = World(path, random.Random(seed))
        for life in range(3):
            async with world.opened():
                await world.check()
                await world.storm(8)
                await world.check()
                if life == 1:  # What a kill leaves, as all is quiet.
                    shutil.copytree(path / "data", path / "killed")
            if life == 1:
                shutil.rmtree(path / "data")
                (path / "killed").rename(path / "data")
        async with world.opened():
            await world.check()


async def test_groups_that_were_made_anew_do_not_end_with_the_topic_of_those_before() -> None:
    """While groups end with their topic, one after the other, other topics are made: each tells of the loss again."""
    names = [f"g{number}" for number in range(20)]
    with fast_directory() as path:
        world = World(path, random.Random(1))
        async with world.opened():
            engine, queues = world.broker.engine, home_of(world.broker).queues

            async def make_all() -> Topic:
                topic = await engine.create_topic("t", 1, {})
                made = await asyncio.gather(*(queues.create(name, topic, SETTINGS, StartAt()) for name in names))
                assert all(created for _, created in made)
                return topic

            async def make_others(turn: int) -> None:
                for number in range(10):
                    await engine.create_topic(f"other-{turn}-{number}", 1, {})

            topic = await make_all()
            for turn in range(3):
                await engine.delete_topic(topic.id)
                topic, _ = await asyncio.gather(make_all(), make_others(turn))
                await world.settle()
                assert queues.ids() == sorted(names), "acknowledged groups are gone"
                assert {queues.group(name).queue.topic_id for name in names} == {topic.id}


async def test_a_group_that_was_made_anew_does_not_expire_for_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups that nobody uses are deleted one after the other; the list of them was made before the first."""
    monkeypatch.setattr(consumer_groups, "EXPIRY_CHECK_SECONDS", 0.01)
    world = World(tmp_path, random.Random(1))
    async with world.opened():
        topic = await world.broker.engine.create_topic("t", 1, {})
        groups = home_of(world.broker).groups
        commit = TopicCommit(topic.id, [0], [0], [], [])
        for name in ("a", "b"):
            await groups.commit_offsets(name, [commit])
        old = {name: groups.group(name) for name in ("a", "b")}
        for group in old.values():
            monkeypatch.setattr(group, "is_expired", lambda retention_ms: True)
        forget, begun, go_on = old["a"].store.delete, asyncio.Event(), asyncio.Event()

        async def held_up(events: object) -> None:
            begun.set()
            await go_on.wait()
            await forget(events)  # type: ignore[arg-type]

        monkeypatch.setattr(old["a"].store, "delete", held_up)
        async with asyncio.timeout(25):
            await begun.wait()
            await groups.delete("b")
            await groups.commit_offsets("b", [commit])
            go_on.set()
            while "a" in groups.ids():
                await asyncio.sleep(0)
        expired_checks = 0
        again = groups.group("b")

        def not_expired(retention_ms: int) -> bool:
            nonlocal expired_checks
            expired_checks += 1
            return False

        monkeypatch.setattr(again, "is_expired", not_expired)
        async with asyncio.timeout(25):
            while not expired_checks:
                await asyncio.sleep(0.001)
                assert groups.ids() == ["b"], "it went for the one before"
        assert again.offsets.get(topic.id, 0) is not None
