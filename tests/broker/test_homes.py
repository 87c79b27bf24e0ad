"""Homes: they leave nothing behind when they close, share the limits of their process, and keep to what is theirs."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from logbroker.broker.homes import Home, Shared, open_home
from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.consumer_groups.classic.errors import GroupFullError
from logbroker.consumer_groups.classic.messages import ClassicJoin
from logbroker.consumer_groups.groups import Groups
from logbroker.consumer_groups.membership import Ended, MemberMessage
from logbroker.consumer_groups.messages import Join
from logbroker.consumer_groups.offsets import TopicCommit
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.engine import StateEvent, StateStore, Topic
from logbroker.errors import (
    FixedTopicError,
    LogbrokerError,
    OffsetsFullError,
    OverloadedError,
    StaleOwnerError,
    UnknownTopicError,
)
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.settings import OnExhausted, Ordering, Priority, QueueGroupSettings
from logbroker.queues.model.starts import StartAt
from logbroker.queues.model.worker_messages import Hello
from logbroker.queues.state.rows import HEADER_ROW
from logbroker.types import INTERNAL_PREFIX
from tests.broker.conftest import Opened, OpenEngine

OWNER = "127.0.0.1:9999"
MOVED = StaleOwnerError("another gateway serves this group now").owned_by(OWNER)
EARLIEST = StartAt()


class PartOfStore:
    """The part of a state store that has the state of one home."""

    def __init__(self, store: StateStore, name: str) -> None:
        self._store = store
        self._name = name
        self.numbers = store.numbers
        self.check_room = store.check_room

    async def load(self, scope: str) -> dict[bytes, bytes]:
        return await self._store.load(f"{self._name}/{scope}")

    async def commit(self, scope: str, events: list[StateEvent]) -> None:
        await self._store.commit(f"{self._name}/{scope}", events)


class Inbox:
    """The end of a member's stream."""

    def __init__(self) -> None:
        self.messages: list[MemberMessage] = []

    def send(self, message: MemberMessage) -> None:
        self.messages.append(message)


class Process:
    """Homes over one engine. A group id belongs to the home that its first letter names."""

    def __init__(self, opened: Opened, directory: Path, **settings: object) -> None:
        self.opened = opened
        self.engine = opened.engine
        self._directory = directory
        self._config = BrokerConfig(data_dir=str(directory), **settings)  # type: ignore[arg-type]
        self.shared = Shared(self._config)

    def open(self, name: str) -> AbstractAsyncContextManager[Home]:
        store: StateStore = PartOfStore(self.opened.state, name)  # type: ignore[assignment]
        return open_home(
            self._config,
            SystemClock(),
            self.engine,
            store,
            self._directory,
            self.shared,
            lambda group_id: group_id.startswith(name),
        )


@asynccontextmanager
async def process(open_at: OpenEngine, directory: Path, **settings: object) -> AsyncIterator[Process]:
    (directory / "indexes").mkdir()
    async with open_at() as opened:
        yield Process(opened, directory / "indexes", **settings)


def commit_of(topic: Topic, metadata: str = "") -> TopicCommit:
    return TopicCommit(topic.id, [0], [0], [-1], [metadata])


def classic_join(member_id: str) -> ClassicJoin:
    return ClassicJoin(
        member_id="",
        new_member_id=member_id,
        instance_id="",
        client_id="client",
        client_host="host",
        protocol_type="consumer",
        protocols=(("range", bytes(1000)),),
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        requires_known_id=False,
        may_skip_assignment=False,
    )


def join_of(member_id: str) -> Join:
    return Join(member_id=member_id, incarnation=1, subscription=Subscription(("t",)))


async def settled() -> None:
    """Let everything run that is ready."""
    for _ in range(20):
        await asyncio.sleep(0)


async def use(home: Home, topic: Topic, turn: int) -> None:
    """Use a home in every way that takes something of the engine or of a limit."""
    await home.groups.commit_offsets("a-commits", [commit_of(topic, "x" * 100)])
    await home.groups.join(
        "a-members", Join(member_id=f"m{turn}", incarnation=1, subscription=Subscription((topic.name,))), Inbox()
    )
    joining = asyncio.ensure_future(home.groups.join_classic("a-classic", classic_join(f"c{turn}")))
    joining.add_done_callback(lambda _: joining.cancelled() or joining.exception())
    group = home.queues.group("a-queue")
    link = await group.connect(Hello(worker_id="w", incarnation=turn + 1))
    group.credited(link, 1)
    assert await group.receive("r", 1, 20.0)
    await home.groups.group("a-members").settle()
    if turn % 2:
        home.move(MOVED)
    else:
        joining.cancel()


def listeners(opened: Opened) -> int:
    engine = opened.engine
    return len(engine._catalog.listeners) + len(engine._changes.growth_checks)


def groups_in_memory() -> list[object]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Groups | QueueGroup)]


@pytest.mark.parametrize("turns", [8, pytest.param(100, marks=pytest.mark.prove)])
async def test_a_home_that_is_opened_and_closed_leaves_nothing_behind(
    open_at: OpenEngine, tmp_path: Path, turns: int
) -> None:
    async with process(open_at, tmp_path) as here:
        opened, shared = here.opened, here.shared
        topic = await here.engine.create_topic("t", 1, {})
        for _ in range(300):
            await opened.append(topic.id, b"value")
        async with here.open("a") as home:
            settings = QueueGroupSettings(grace_seconds=0.0, lease_seconds=3600.0, priority=Priority.STRICT)
            await home.queues.create("a-queue", topic, settings, EARLIEST)
        tasks, objects = asyncio.all_tasks(), 0
        of_other_tests = groups_in_memory()
        for turn in range(turns):
            async with here.open("a") as home:
                await use(home, topic, turn)
            del home
            assert listeners(opened) == 0
            assert here.engine._upkeep._holders == {}
            assert shared.queues.cache.used_bytes == 0
            assert shared.groups.offsets.used_bytes == shared.groups.members.used_bytes == 0
            assert not shared.groups.instances
            assert not shared.queues.registries
            if turn in (turns // 2, turns - 1):
                await settled()
                gc.collect()
                assert asyncio.all_tasks() == tasks
                assert not [each for each in groups_in_memory() if not any(each is other for other in of_other_tests)]
                now = len(gc.get_objects())
                assert not objects or now < objects + 2000, "objects were left behind"
                objects = now


async def test_streams_of_a_home_that_moves_end_with_the_address_of_the_owner(
    open_at: OpenEngine, tmp_path: Path
) -> None:
    async with process(open_at, tmp_path) as here:
        topic = await here.engine.create_topic("t", 1, {})
        inbox = Inbox()
        async with here.open("a") as home:
            await home.groups.join("a-members", join_of("m"), inbox)
            group, _ = await home.queues.create("a-queue", topic, QueueGroupSettings(), EARLIEST)
            link = await group.connect(Hello(worker_id="w", incarnation=1))
            waiting = asyncio.ensure_future(group.receive("r", 1, 60.0))
            joining = asyncio.ensure_future(home.groups.join_classic("a-classic", classic_join("c")))
            await settled()
            home.move(MOVED)
        async with asyncio.timeout(20):
            ended = await link.ended()
            assert isinstance(ended, StaleOwnerError)
            assert ended.owner == OWNER
            for call in (waiting, joining):
                with pytest.raises(StaleOwnerError) as refusal:
                    await call
                assert refusal.value.owner == OWNER
        last = inbox.messages[-1]
        assert isinstance(last, Ended)
        assert isinstance(last.error, StaleOwnerError)
        assert last.error.owner == OWNER
        calls: tuple[Callable[[], object], ...] = (
            lambda: home.groups.group("a-members"),
            lambda: home.groups.classic_group("a-classic"),
            lambda: home.queues.group("a-queue"),
        )
        for each in calls:
            with pytest.raises(StaleOwnerError):
                each()
        with pytest.raises(StaleOwnerError):
            await home.groups.commit_offsets("a-new", [commit_of(topic)])
        with pytest.raises(StaleOwnerError):
            await home.queues.delete("a-queue")


async def test_the_limits_of_a_process_hold_over_all_its_homes(open_at: OpenEngine, tmp_path: Path) -> None:
    limits = {"max_groups": 2, "max_queue_groups": 2, "max_offsets_bytes": 2000, "max_group_offsets_bytes": 2000}
    async with process(open_at, tmp_path, **limits) as here:
        topic = await here.engine.create_topic("t", 1, {})
        async with here.open("b") as second:
            async with here.open("a") as first:
                for home, name in ((first, "a"), (second, "b")):
                    await home.groups.commit_offsets(f"{name}-1", [commit_of(topic)])
                    await home.queues.create(f"{name}-queue", topic, QueueGroupSettings(), EARLIEST)
                with pytest.raises(OverloadedError):
                    await second.groups.commit_offsets("b-2", [commit_of(topic)])
                with pytest.raises(OverloadedError):
                    await second.queues.create("b-other", topic, QueueGroupSettings(), EARLIEST)
                assert await first.groups.commit_offsets("a-1", [commit_of(topic, "x" * 1500)]) == [[]]
                [[(_, refusal)]] = await second.groups.commit_offsets("b-1", [commit_of(topic, "x" * 1500)])  # type: ignore[misc]
                assert isinstance(refusal, OffsetsFullError)
                here.shared.groups.members.max_bytes = 1500
                joining = asyncio.ensure_future(first.groups.join_classic("a-1", classic_join("c")))
                await settled()
                with pytest.raises(GroupFullError):
                    await second.groups.join_classic("b-1", classic_join("c"))
                first.move(MOVED)
                joining.cancel()
            assert await second.groups.commit_offsets("b-2", [commit_of(topic, "x" * 1500)]) == [[]]
            await second.queues.create("b-other", topic, QueueGroupSettings(), EARLIEST)


async def test_a_home_removes_only_what_its_own_groups_have_left(open_at: OpenEngine, tmp_path: Path) -> None:
    async with process(open_at, tmp_path) as here:
        directory = tmp_path / "indexes" / "queue-index"
        for name in ("a-gone", "b-gone"):
            await here.engine.create_topic(INTERNAL_PREFIX + name, 1, {})
            (directory / f"{name}.index").mkdir(parents=True)
        async with here.open("a"):
            with pytest.raises(UnknownTopicError):
                here.engine.topic(INTERNAL_PREFIX + "a-gone")
            here.engine.topic(INTERNAL_PREFIX + "b-gone")
            assert [path.name for path in directory.iterdir()] == ["b-gone.index"]


async def test_queue_groups_of_several_homes_share_topics(open_at: OpenEngine, tmp_path: Path) -> None:
    async with process(open_at, tmp_path) as here:
        topic = await here.engine.create_topic("t", 1, {})
        async with here.open("a") as first, here.open("b") as second:
            letters: dict[str, Any] = {"dead_letter_topic": "letters", "on_exhausted": OnExhausted.DEAD_LETTER}
            settings = QueueGroupSettings(**letters)
            made, _ = await first.queues.create("a-queue", topic, settings, EARLIEST)
            single = QueueGroupSettings(**letters, ordering=Ordering.SINGLE)
            other, _ = await second.queues.create("b-queue", topic, single, EARLIEST)
            small = await here.engine.create_topic("small", 1, {"max.message.bytes": "1000"})
            third, _ = await second.queues.create("b-third", small, QueueGroupSettings(**letters), EARLIEST)
            assert third.dead_lettering.room == other.dead_lettering.room == made.dead_lettering.room is not None
            assert made.dead_lettering.topic.takes_letters("letters", "x")
            with pytest.raises(FixedTopicError):
                await here.engine.alter_topic(topic.id, partitions=2)
            second.move(MOVED)
            await here.engine.alter_topic(topic.id, set_configs={"max.message.bytes": "2000000"})
            async with asyncio.timeout(20):
                while here.engine.topic("letters").config.max_message_bytes < 2_000_000:
                    await asyncio.sleep(0.01)
        async with here.open("a"):
            await here.engine.alter_topic(topic.id, partitions=2)  # The other home is not here.


@pytest.mark.parametrize("broken", ["a-2", "a-4"])
async def test_a_home_that_cannot_be_loaded_leaves_nothing_behind(
    open_at: OpenEngine, tmp_path: Path, broken: str
) -> None:
    async with process(open_at, tmp_path) as here:
        topic = await here.engine.create_topic("t", 1, {})
        async with here.open("a") as home:
            for name in ("a-1", "a-2"):
                await home.groups.commit_offsets(name, [commit_of(topic)])
            await home.queues.create("a-3", topic, QueueGroupSettings(), EARLIEST)
            await home.queues.create("a-4", topic, QueueGroupSettings(), EARLIEST)
        rows = await here.opened.state.load(f"a/group:{broken}")
        events = [StateEvent(key, b"\xc1") for key in rows if broken == "a-2" or key != HEADER_ROW]
        await here.opened.state.commit(f"a/group:{broken}", events)
        for _ in range(2):
            with pytest.raises(LogbrokerError, match=broken):
                async with here.open("a"):
                    pass
            assert listeners(here.opened) == here.shared.groups.offsets.used_bytes == 0
            assert here.engine._upkeep._holders == {}
            assert not here.shared.groups.instances
            assert not here.shared.queues.registries
