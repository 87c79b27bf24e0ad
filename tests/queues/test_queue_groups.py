"""The life of queue groups: created, altered, rewound and deleted; what a start finds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from logbroker.broker.broker import open_broker
from logbroker.broker.local_engine.lifetime import open_engine
from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.consumer_groups.offsets import TopicCommit
from logbroker.engine import StateEvent, TopicPlan
from logbroker.errors import (
    BrokerUnavailableError,
    FixedTopicError,
    GroupExistsError,
    InvalidGroupIdError,
    InvalidRequestError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
    WrongGroupTypeError,
)
from logbroker.group_runtime.group_store import GROUPS_SCOPE
from logbroker.queues.model.messages import Settlement
from logbroker.queues.model.settings import GROUP_TYPE, OnExhausted, Ordering, QueueGroupSettings
from logbroker.queues.model.starts import Rewound, StartAt
from tests.homes import home_of
from tests.queues.shell import ack, hello, nack, shell, take, until, values


async def test_creating_twice_is_once_and_other_settings_are_refused(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        topic, other = await opened.topic(), await opened.topic("other")
        settings = QueueGroupSettings(max_attempts=3)
        create = opened.groups.create
        both = await asyncio.gather(*(create("g", topic, settings, StartAt()) for _ in range(2)))
        assert both[0][0] is both[1][0]
        assert sorted(created for _, created in both) == [False, True]
        for wanted, of in ((QueueGroupSettings(), topic), (settings, other)):
            with pytest.raises(GroupExistsError):
                await create("g", of, wanted, StartAt())
        with pytest.raises(InvalidGroupIdError):
            await create("a b", topic, settings, StartAt())
        with pytest.raises(UnknownGroupError):
            opened.groups.group("h")
    async with shell(tmp_path) as opened:
        assert opened.groups.ids() == ["g"]
        _, created = await opened.groups.create("g", opened.engine.topic("t"), settings, StartAt())
        assert not created


async def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        topic = await opened.topic(partitions=2)
        for settings in (
            QueueGroupSettings(lease_seconds=0),
            QueueGroupSettings(lease_seconds=31_536_000),
            QueueGroupSettings(ordering=Ordering.SINGLE),
            QueueGroupSettings(on_exhausted=OnExhausted.DEAD_LETTER, dead_letter_topic="t"),
        ):
            with pytest.raises(InvalidRequestError):
                await opened.groups.create("g", topic, settings, StartAt())
        assert opened.groups.ids() == []
        assert not opened.groups.has("g")


async def test_a_group_is_of_one_type(tmp_path: Path) -> None:
    config = BrokerConfig(data_dir=str(tmp_path))
    async with open_broker(config, asyncio.get_running_loop().create_future()) as broker:
        topic = await broker.engine.create_topic("t", 1, {})
        await home_of(broker).queues.create("work", topic, QueueGroupSettings(), StartAt())
        commit = TopicCommit(topic.id, [0], [0], [], [])
        with pytest.raises(WrongGroupTypeError):
            await home_of(broker).groups.commit_offsets("work", [commit])
        await home_of(broker).groups.commit_offsets("readers", [commit])
        with pytest.raises(WrongGroupTypeError):
            await home_of(broker).queues.create("readers", topic, QueueGroupSettings(), StartAt())
        with pytest.raises(WrongGroupTypeError):
            home_of(broker).queues.group("readers")
        await home_of(broker).queues.delete("work")
        await home_of(broker).groups.commit_offsets("work", [commit])


async def test_a_deleted_group_ends_its_streams_and_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a"), (b"b", b"b"))
        group = await opened.group()
        link = await group.connect(hello())
        [(receipt, _), _] = await take(link, 2)
        await ack(link, receipt)
        link.add_credit(1)
        waiting = asyncio.create_task(link.next_deliveries())
        await asyncio.sleep(0)
        await opened.groups.delete("g")
        assert "queue group g is deleted" in [entry.message for entry in caplog.records]
        with pytest.raises(UnknownGroupError):
            await waiting
        assert isinstance(await link.ended(), UnknownGroupError)
        with pytest.raises(UnknownGroupError, match="if there is a new one of its name"):
            await group.receive("", 1, 0)
        with pytest.raises(UnknownGroupError):
            opened.groups.group("g")
        assert await opened.state.load("group:g") == {}
        assert await opened.state.load(GROUPS_SCOPE) == {}
        group = await opened.group()
        again = await group.connect(hello())
        assert [record.value for _, record in await take(again, 2)] == [b"a", b"b"]


async def test_the_log_tells_which_topic_is_deleted_and_how_many_groups_go_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with shell(tmp_path) as opened:
        topic = await opened.topic()
        await opened.group()
        await opened.groups.create("h", topic, QueueGroupSettings(), StartAt())
        await opened.engine.create_topic("bare", 1, {})
        assert not any("deleted" in entry.message for entry in caplog.records)
        for name in (topic.name, "bare"):
            await opened.engine.delete_topic(opened.engine.topic(name).id)
        told = [entry.message for entry in caplog.records if entry.message.startswith("topic ")]
        assert told == [
            f"topic {topic.name} is deleted; queue groups that go with it: 2",
            "topic bare is deleted; queue groups that go with it: 0",
        ]


async def test_a_group_ends_with_its_topic(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        topic = await opened.topic()
        group = await opened.group()
        link = await group.connect(hello())
        await opened.engine.delete_topic(topic.id)
        async with asyncio.timeout(25):
            assert isinstance(await link.ended(), UnknownTopicError)
        await until(lambda: not opened.groups.has("g"))
        assert await opened.state.load("group:g") == {}


async def test_a_group_whose_topic_went_while_the_broker_was_down_is_gone(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        topic = await opened.topic()
        await opened.group()
        opened.groups._on_topic_changed = lambda topic: None  # type: ignore[method-assign]
        opened.groups._frozen = True
        await opened.engine.delete_topic(topic.id)
    async with shell(tmp_path) as opened:
        assert opened.groups.ids() == []
        assert await opened.state.load(GROUPS_SCOPE) == {}


async def test_a_creation_that_a_crash_broke_off_is_none(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.state.commit(GROUPS_SCOPE, [StateEvent(b"g", b"\x81\xa4type\xa5queue")])
        assert GROUP_TYPE == "queue"
    async with shell(tmp_path) as opened:
        assert opened.groups.ids() == []
        assert await opened.state.load(GROUPS_SCOPE) == {}
        await opened.group()


async def test_settings_change_while_workers_stay(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"), (b"a", b"a2"), (b"b", b"b1"))
        group = await opened.group(ordering=Ordering.SINGLE)
        link = await group.connect(hello())
        [(receipt, _)] = await take(link, 1)
        link.add_credit(10)
        await opened.groups.alter("g", {"max_attempts": 7, "ordering": Ordering.KEY})
        assert group.queue.draining
        _, created = await opened.groups.create("g", opened.engine.topic("t"), group.queue.latest_settings, StartAt())
        assert not created
        await ack(link, receipt)
        async with asyncio.timeout(25):
            assert values(await link.next_deliveries()) == [b"a2", b"b1"]
        assert group.queue.settings.max_attempts == 7
        with pytest.raises(InvalidRequestError):
            await opened.groups.alter("g", {"lease_seconds": 0})
    async with shell(tmp_path) as opened:
        assert opened.groups.group("g").queue.settings.ordering is Ordering.KEY


async def test_a_topic_does_not_grow_under_a_group_with_one_lane(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        topic = await opened.topic()
        group = await opened.group(ordering=Ordering.SINGLE)
        for plan in (None, TopicPlan()):
            with pytest.raises(FixedTopicError, match=r"queue group g .* --ordering key"):
                await opened.engine.alter_topic(topic.id, partitions=2, set_configs={"retention.ms": "1"}, plan=plan)
        assert opened.engine.topic("t") == topic
        await opened.append((b"a", b"a"))
        link = await group.connect(hello())
        [(receipt, _)] = await take(link, 1)
        await opened.groups.alter("g", {"ordering": Ordering.KEY})
        with pytest.raises(FixedTopicError):  # A restart now would bring the ordering back.
            await opened.engine.alter_topic(topic.id, partitions=2)
        await ack(link, receipt)
        await until(lambda: group.settings.ordering is Ordering.KEY)
        assert (await opened.engine.alter_topic(topic.id, partitions=2)).partitions == 2
        with pytest.raises(InvalidRequestError, match="one partition"):
            await opened.groups.alter("g", {"ordering": Ordering.SINGLE})


@pytest.mark.parametrize("alters", [False, True], ids=["create", "alter"])
async def test_a_topic_does_not_grow_while_a_group_gets_one_lane(tmp_path: Path, alters: bool) -> None:
    """The growth begins at different steps of the other change, and the other way round."""
    async with shell(tmp_path) as opened:
        for steps in range(-8, 9):
            name = f"t{steps}"
            topic = await opened.topic(name)
            if alters:
                await opened.groups.create(name, topic, QueueGroupSettings(), StartAt())
                change: Coroutine[Any, Any, Any] = opened.groups.alter(name, {"ordering": Ordering.SINGLE})
            else:
                settings = QueueGroupSettings(ordering=Ordering.SINGLE)
                change = opened.groups.create(name, topic, settings, StartAt())
            both = [change, opened.engine.alter_topic(topic.id, partitions=2)]
            first = asyncio.create_task(both.pop(0 if steps > 0 else 1))
            for _ in range(abs(steps)):
                await asyncio.sleep(0)
            results = await asyncio.gather(first, *both, return_exceptions=True)
            errors = [result for result in results if isinstance(result, BaseException)]
            assert len(errors) == 1, (steps, results)
            assert isinstance(errors[0], FixedTopicError | InvalidRequestError), errors


async def test_the_other_settings_of_a_group_with_one_lane_change_where_its_topic_has_grown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Metadata that were restored from a backup may be from before the growth."""
    async with shell(tmp_path) as opened:
        topic = await opened.topic()
        group = await opened.group(ordering=Ordering.SINGLE)
    async with open_engine(BrokerConfig(data_dir=str(tmp_path / "data")), SystemClock(), print) as (engine, _):
        await engine.alter_topic(topic.id, partitions=2)
    async with shell(tmp_path) as opened:
        assert "topic t has 2 partitions" in caplog.text
        await opened.groups.alter("g", {"max_attempts": 7, "on_exhausted": OnExhausted.PARK})
        group = opened.groups.group("g")
        assert (group.settings.max_attempts, group.settings.ordering) == (7, Ordering.SINGLE)
        _, is_new = await opened.groups.create("g", opened.engine.topic("t"), group.settings, StartAt())
        assert not is_new
        await opened.groups.alter("g", {"ordering": Ordering.KEY})
        with pytest.raises(InvalidRequestError, match="one partition"):
            await opened.groups.alter("g", {"ordering": Ordering.SINGLE})


async def test_a_dead_letter_topic_is_made_when_the_settings_use_it(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=3)
        group = await opened.group(backoff_initial_seconds=0.0)
        await opened.groups.alter("g", {"on_exhausted": OnExhausted.DEAD_LETTER, "max_attempts": 1})
        letters = opened.engine.topic("g.dead-letters")
        assert letters.partitions == 3
        assert (letters.config.retention_ms, letters.config.retention_bytes) == (-1, -1)
        await opened.append((b"a", b"a1"))
        link = await group.connect(hello())
        [(receipt, _)] = await take(link, 1)
        await nack(link, receipt)
        await until(lambda: group.dead_lettering.sent == 1)
        await opened.groups.alter("g", {"on_exhausted": OnExhausted.BLOCK})
        assert group.queue.settings.dead_letter_topic == "g.dead-letters", "its letters stay in sight"
        await opened.engine.delete_topic(letters.id)
        await opened.groups.alter("g", {"max_attempts": 2})
        assert "g.dead-letters" not in [topic.name for topic in opened.engine.topics()]


async def test_a_group_begins_again_elsewhere(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append(*[(b"%d" % number, b"%d" % number) for number in range(5)])
        group = await opened.group()
        link = await group.connect(hello())
        taken = await take(link, 5)
        await ack(link, *[receipt for receipt, _ in taken[:4]])
        assert await group.operations.rewind(StartAt(offset=2), dry_run=True) == [Rewound(0, 4, 2)]
        assert group.queue.done.floor(0) == 4
        assert await group.operations.rewind(StartAt(offset=2)) == [Rewound(0, 4, 2)]
        again = await take(link, 3)
        assert [record.value for _, record in again] == [b"2", b"3", b"4"]
        [refusal] = [*await link.settle(_acks(taken[4][0]))]
        assert refusal.error.reason == "LEASE_LOST"
        await ack(link, *[receipt for receipt, _ in again])
        [unknown] = await group.operations.rewind(StartAt(), [7])
        assert isinstance(unknown, UnknownPartitionError)
        await group.operations.rewind(StartAt(latest=True))
        assert group.queue.done.floor(0) == 5


async def test_a_topic_that_grows_goes_on_in_order(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        topic = await opened.topic()
        group = await opened.group(ordering=Ordering.NONE)
        link = await group.connect(hello())
        await opened.append((None, b"old"))
        [(receipt, record)] = await take(link, 1)
        assert record.value == b"old"
        await opened.engine.alter_topic(topic.id, partitions=2)
        await opened.append((None, b"new"), partition=1)
        [(other, record)] = await take(link, 1)
        assert record.value == b"new"
        await ack(link, receipt, other)
        assert group.queue.done.floor(1) == 1


async def test_what_stops_answers_no_more(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a"))
        group = await opened.group()
        link = await group.connect(hello())
        [(receipt, _)] = await take(link, 1)
        waiting = asyncio.create_task(group.receive("", 1, 60))
        await asyncio.sleep(0)
        opened.groups.freeze()
        with pytest.raises(BrokerUnavailableError):
            await waiting
        with pytest.raises(BrokerUnavailableError):
            await group.connect(hello("late"))
        await ack(link, receipt)  # What was under way is still taken.
        link.disconnected()
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        assert not group.reserved, "nothing was in anybody's hands at the clean stop"
        await until(lambda: group.queue.done.floor(0) == 1)


def _acks(receipt: int) -> Settlement:
    return Settlement(acks=[(receipt, receipt)])
