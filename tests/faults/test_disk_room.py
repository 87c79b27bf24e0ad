"""Requests refused while the disk is nearly full: all that take room, wherever it is stored; none that make room."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from logbroker.broker.broker import Broker, open_broker
from logbroker.config import MIB, BrokerConfig
from logbroker.consumer_groups.coordinator import Coordinator
from logbroker.consumer_groups.membership import AssignedOffsets, CommitDone, MemberMessage
from logbroker.consumer_groups.messages import Join
from logbroker.consumer_groups.offsets import CommitOutcome, TopicCommit
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.engine import Append, Topic
from logbroker.errors import DiskFullError, LogbrokerError
from logbroker.pacing import Pace
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.messages import Nack, Settlement
from logbroker.queues.model.settings import QueueGroupSettings
from logbroker.queues.model.starts import StartAt
from tests.broker.conftest import batch
from tests.faults.fake_disk import FakeDisk
from tests.homes import home_of
from tests.queues.shell import hello, take, until

MARK = 8 * MIB
ROOMY = 100 * MIB
RECORDS = 40


class Inbox:
    """A member's end of its stream."""

    def __init__(self) -> None:
        self.messages: list[MemberMessage | None] = []

    def send(self, message: MemberMessage | None) -> None:
        self.messages.append(message)

    async def assigned(self) -> int:
        """Wait for an assignment, and return its epoch."""
        await until(lambda: any(isinstance(message, AssignedOffsets) for message in self.messages))
        return next(message.epoch for message in self.messages if isinstance(message, AssignedOffsets))

    async def committed(self) -> list[CommitOutcome]:
        await until(lambda: any(isinstance(message, CommitDone) for message in self.messages))
        [done] = [message for message in self.messages if isinstance(message, CommitDone)]
        self.messages.clear()
        return list(done.outcomes)


def refused(outcome: object) -> None:
    if isinstance(outcome, LogbrokerError):
        raise outcome


class Scene:
    """A broker with a topic, a consumer group with a member, one without, and a queue group with a worker."""

    def __init__(self, broker: Broker, disk: FakeDisk, topic: Topic, queue: QueueGroup) -> None:
        self.broker = broker
        self.disk = disk
        self.topic = topic
        self.queue = queue
        self.link: Any = None
        self.member: Any = None
        self.inbox = Inbox()
        self.receipts: list[int] = []
        self.names = 0
        self.offset = 0
        self.epoch = 0

    async def free(self, free_bytes: int) -> None:
        self.disk.free_bytes = free_bytes
        await self.disk.measured_again()

    def name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def commit_of(self) -> list[TopicCommit | LogbrokerError]:
        self.offset += 1
        return [TopicCommit(self.topic.id, [0], [self.offset], [], [])]

    # --- what takes room ---

    async def append(self) -> None:
        [outcome] = await self.broker.engine.append([Append(self.topic.id, 0, batch(b"x"))])
        refused(outcome)

    async def create_topic(self) -> None:
        await self.broker.engine.create_topic(self.name(), 1, {})

    async def add_partitions(self) -> None:
        topic = self.broker.engine.topic_by_id(self.topic.id)
        await self.broker.engine.alter_topic(topic.id, partitions=topic.partitions + 1)

    async def init_producer_id(self) -> None:
        await self.broker.engine.init_producer_id()

    async def create_queue(self) -> None:
        await home_of(self.broker).queues.create(self.name(), self.topic, QueueGroupSettings(), StartAt())

    async def begin_group_by_a_commit(self) -> None:
        await home_of(self.broker).groups.commit_offsets(self.name(), self.commit_of())

    async def begin_group_by_a_member(self) -> None:
        await self.join(self.name())

    # --- what works off what is there ---

    async def join(self, group_id: str = "one-more") -> Any:
        join = Join(member_id=self.name(), incarnation=1, subscription=Subscription(("t",)), session_timeout_ms=300_000)
        return await home_of(self.broker).groups.join(group_id, join, Inbox())

    async def commit_as_a_member(self) -> None:
        self.member.commit(1, self.epoch, self.commit_of())
        [outcome] = await self.inbox.committed()
        refused(outcome)

    async def commit_detached(self) -> None:
        await home_of(self.broker).groups.commit_offsets("alone", self.commit_of())

    async def ack(self) -> None:
        receipt = self.receipts[-1]
        assert await self.link.settle(Settlement(acks=[(receipt, receipt)])) == []
        self.receipts.pop()

    async def nack(self) -> None:
        receipt = self.receipts[-1]
        assert await self.link.settle(Settlement(nacks=[Nack(receipt, receipt, "broken", 1000.0)])) == []
        self.receipts.pop()

    async def receive(self) -> None:
        [delivered] = await self.queue.receive("other", 1, 10)
        self.queue.release("other", [(delivered.first_receipt, delivered.first_receipt)])

    async def decide(self) -> None:
        await self.queue.operations.decide_all("resume", Pace())

    async def alter_queue(self) -> None:
        attempts = self.queue.queue.latest_settings.max_attempts
        await home_of(self.broker).queues.alter("q", {"max_attempts": attempts + 1})


TAKES_ROOM: list[Callable[[Scene], Awaitable[None]]] = [
    Scene.append,
    Scene.create_topic,
    Scene.add_partitions,
    Scene.init_producer_id,
    Scene.create_queue,
    Scene.begin_group_by_a_commit,
    Scene.begin_group_by_a_member,
]
USES_RESERVE: list[Callable[[Scene], Awaitable[Any]]] = [
    Scene.join,
    Scene.commit_as_a_member,
    Scene.commit_detached,
    Scene.ack,
    Scene.nack,
    Scene.receive,
    Scene.decide,
    Scene.alter_queue,
]


@asynccontextmanager
async def scene_on(path: Path, disk: FakeDisk, min_free_disk_bytes: int = MARK) -> AsyncIterator[Scene]:
    config = BrokerConfig(data_dir=str(path / "data"), min_free_disk_bytes=min_free_disk_bytes, checkpoint_seconds=0.01)
    failure = asyncio.get_running_loop().create_future()
    async with open_broker(config, failure) as broker:
        topic = await broker.engine.create_topic("t", 1, {})
        queue, _ = await home_of(broker).queues.create("q", topic, QueueGroupSettings(lease_seconds=600.0), StartAt())
        scene = Scene(broker, disk, topic, queue)
        await broker.engine.append([Append(topic.id, 0, batch(*(b"%d" % number for number in range(RECORDS))))])
        scene.link = await queue.connect(hello())
        scene.receipts = [receipt for receipt, _ in await take(scene.link, RECORDS - 10)]
        await scene.join("one-more")
        await scene.commit_detached()
        join = Join(member_id="m", incarnation=1, subscription=Subscription(("t",)), session_timeout_ms=300_000)
        scene.member = await home_of(broker).groups.join("members", join, scene.inbox)
        scene.epoch = await scene.inbox.assigned()
        scene.member.taken(scene.epoch)
        await home_of(broker).groups.group("members").settle()
        yield scene
        disk.free_bytes = ROOMY
        assert not failure.done()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FakeDisk:
    fake = FakeDisk(free_bytes=ROOMY)
    monkeypatch.setattr(os, "statvfs", fake.statvfs)
    return fake


async def test_what_takes_room_is_refused_at_the_mark_and_what_works_off_what_is_there_goes_on(
    tmp_path: Path, disk: FakeDisk
) -> None:
    async with scene_on(tmp_path, disk) as scene:
        await scene.free(MARK - 1)
        for request in TAKES_ROOM:
            with pytest.raises(DiskFullError, match="min_free_disk_bytes"):
                await request(scene)
        for request in USES_RESERVE:
            await request(scene)
        await scene.free(ROOMY)
        for request in (*TAKES_ROOM, *USES_RESERVE):
            await request(scene)


@pytest.mark.parametrize("mark", [MARK, 0], ids=["half of the mark", "no mark"])
async def test_when_the_reserve_is_used_up_only_what_makes_room_goes_on(
    tmp_path: Path, disk: FakeDisk, mark: int
) -> None:
    async with scene_on(tmp_path, disk, mark) as scene:
        broker, engine = scene.broker, scene.broker.engine
        other = await engine.create_topic("other", 1, {})
        await engine.append([Append(other.id, 0, batch(b"x"))])
        held = len(scene.receipts)
        await scene.free(mark // 2)
        for request in (*TAKES_ROOM, *USES_RESERVE):
            with pytest.raises(DiskFullError, match="delete topics or groups"):
                await request(scene)
        # Nothing is handed out that could not be settled, and what is out is neither lost nor counted as failed.
        scene.link.add_credit(1)
        waiting = asyncio.ensure_future(scene.link.next_deliveries())
        leaver = home_of(broker).groups.group("one-more")
        assert isinstance(leaver, Coordinator)
        for membership in list(leaver._links.values()):
            membership.leave()
        await leaver.settle()
        await home_of(broker).groups.delete("one-more")
        await engine.alter_topic(scene.topic.id, set_configs={"retention.ms": "1000"})
        await engine.delete_topic(other.id)
        assert home_of(broker).groups.ids() == ["alone", "members"]
        assert not waiting.done()
        await scene.free(ROOMY)
        async with asyncio.timeout(20):
            delivered = await waiting
        assert delivered.count == 1
        assert len(scene.receipts) == held
        while scene.receipts:
            await scene.ack()
        for request in (*TAKES_ROOM, Scene.join, Scene.commit_as_a_member, Scene.commit_detached):
            await request(scene)


async def test_what_follows_from_the_time_is_stored_though_all_is_refused(tmp_path: Path, disk: FakeDisk) -> None:
    """Leases that end, members that are fenced, and recovery points: none of them ends the broker."""
    async with scene_on(tmp_path, disk) as scene:
        await scene.free(0)
        queue = scene.queue.queue
        scene.queue.disconnected(scene.link)
        before = queue.deliveries.worker(scene.link.worker_id).in_flight
        assert before
        await scene.queue._commits.settle()
        scene.member.disconnected()
        await home_of(scene.broker).groups.group("members").settle()
        await scene.broker.engine._upkeep.checkpoint()  # type: ignore[attr-defined]
        await home_of(scene.broker).queues.delete("q")
        assert home_of(scene.broker).queues.ids() == []
