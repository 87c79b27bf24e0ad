"""Commits of a group, by its members and by an administrator."""

from __future__ import annotations

import asyncio

import pytest

from logbroker.client import Admin, Consumer, Record, TopicPartition
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import (
    BrokerUnavailableError,
    GroupNotEmptyError,
    InstanceIdInUseError,
    LogbrokerError,
    NotOwnerError,
    OffsetGoesBackError,
    UnknownGroupError,
    UnknownMemberError,
    UnknownTopicError,
)
from tests.client.group_helpers import add, committed, drain, fill, settle, take, wait_for_commit


async def test_a_record_in_hand_is_not_committed(address: str, topic: str) -> None:
    await fill(address, topic, 1, 20)
    async with Consumer(address, group=topic, auto_commit_interval_seconds=0.01) as consumer:
        await consumer.subscribe(topic)
        async for record in consumer:
            # In the background too, all before it are committed and this one is not.
            await wait_for_commit(address, topic, {0: record.offset})
            if record.offset == 7:
                break
    assert await committed(address, topic) == {0: 7}
    async with Consumer(address, group=topic) as consumer:
        await consumer.subscribe(topic)
        assert [record.offset for record in await take(consumer, 3)] == [7, 8, 9]
        await consumer.commit()
        assert await consumer.committed() == {TopicPartition(topic, 0): 10}
        records = await consumer.poll(max_records=4, timeout_seconds=25)
        assert [record.offset for record in records] == [10, 11, 12, 13]
        consumer.pause()
    assert await committed(address, topic) == {0: 10}
    async with Consumer(address, group=topic) as consumer:
        await consumer.subscribe(topic)
        assert [record.offset async for record in consumer.until_end()] == list(range(10, 20))
    assert await committed(address, topic) == {0: 20}


async def test_without_auto_commit_the_program_says_what_is_done(address: str, topic: str) -> None:
    await fill(address, topic, 2, 40)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(address, group=topic, auto_commit=False, auto_commit_interval_seconds=0.01) as consumer:
        await consumer.subscribe(topic)
        await drain(consumer, 40)
        assert await consumer.committed() == {zero: None, one: None}
        await consumer.commit({zero: 5})
        await consumer.commit({zero: 9, one: 3})
        await consumer.commit({zero: 9})
        with pytest.raises(OffsetGoesBackError):
            await consumer.commit({zero: 8})
        with pytest.raises(NotOwnerError):
            await consumer.commit({TopicPartition(topic, 7): 0})
        with pytest.raises(LogbrokerError, match="1000"):
            await consumer.commit({zero: 1000})
        assert await consumer.committed() == {zero: 9, one: 3}
    assert await committed(address, topic) == {0: 9, 1: 3}


async def test_seeking_back_commits_nothing_again(address: str, topic: str) -> None:
    await fill(address, topic, 1, 10)
    async with Consumer(address, group=topic, auto_commit_interval_seconds=0.01) as consumer:
        await consumer.subscribe(topic)
        await drain(consumer, 10)
        await consumer.commit()
        await consumer.seek(TopicPartition(topic, 0), 2)
        assert [record.offset for record in await drain(consumer, 8)] == list(range(2, 10))
        await consumer.commit()
    assert await committed(address, topic) == {0: 10}


@pytest.mark.prove
async def test_a_commit_waits_for_the_broker_to_come_back(logbroker_broker: EmbeddedBroker, topic: str) -> None:
    address = logbroker_broker.address
    await fill(address, topic, 1, 10)
    async with Consumer(address, group=topic, auto_commit=False) as consumer:
        await consumer.subscribe(topic)
        await take(consumer, 5)
        await asyncio.to_thread(logbroker_broker.kill)
        commit = asyncio.ensure_future(consumer.commit())
        await asyncio.sleep(0)
        assert not commit.done()
        await asyncio.to_thread(logbroker_broker.start)
        await commit
        assert await committed(address, topic) == {0: 5}


async def test_latest_skips_nothing_once_it_has_begun(address: str, topic: str) -> None:
    await fill(address, topic, 1, 10)
    async with Consumer(address, group=topic, start="latest") as consumer:
        await consumer.subscribe(topic)
        await settle(consumer, partitions=1)
        assert await consumer.committed() == {TopicPartition(topic, 0): 10}
        await add(address, topic, 1, 5)
        assert [record.offset for record in await take(consumer, 1)] == [10]
    async with Consumer(address, group=topic, start="latest") as consumer:
        await consumer.subscribe(topic)
        assert [record.offset async for record in consumer.until_end()] == [10, 11, 12, 13, 14]


async def test_groups_are_listed_described_reset_and_deleted(address: str, topic: str) -> None:
    await fill(address, topic, 2, 20)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Admin(address) as admin:
        with pytest.raises(UnknownGroupError):
            await admin.describe_group(topic)
        assert await admin.commit_offsets(topic, {zero: 4}) == {zero: None}
        outcomes = await admin.commit_offsets(topic, {zero: 2, one: 1000})
        assert outcomes[zero] is None
        assert isinstance(outcomes[one], LogbrokerError)
        async with Consumer(address, group=topic, auto_commit=False) as consumer:
            await consumer.subscribe(topic)
            assert min(record.offset for record in await drain(consumer, 18) if record.partition == 0) == 2
            described = await admin.describe_group(topic)
            assert (described.info.id, described.info.members, described.assignor) == (topic, 1, "sticky")
            (member,) = described.members
            assert set(member.owned) == set(member.target) == {zero, one}
            assert member.topics == (topic,)
            lags = {lag.partition: lag for lag in await admin.group_lag(topic)}
            assert (lags[zero].records, lags[one].records) == (8, None)
            assert (lags[zero].owner, lags[one].owner) == (member.id, member.id)
            assert lags[zero].oldest_unread_ms is not None
            for refused in (admin.commit_offsets(topic, {zero: 0}), admin.delete_group(topic)):
                with pytest.raises(GroupNotEmptyError):
                    await refused
        assert topic in [info.id for info in await admin.list_groups()]
        assert set(await admin.fetch_offsets(topic)) == {zero}
        assert await admin.fetch_offsets(topic, [one]) == {}
        await admin.delete_group(topic)
        assert topic not in [info.id for info in await admin.list_groups()]
        with pytest.raises(UnknownGroupError):
            await admin.delete_group(topic)


async def test_a_commit_of_what_was_lost_is_refused_also_where_nothing_is_held(address: str, topic: str) -> None:
    """Its place is another's by now: what it was given stays uncommitted, and it is told so, not nothing."""
    await fill(address, topic, 1, 10)
    options = {"group": topic, "instance_id": "one"}
    first = Consumer(address, **options, auto_commit=False, max_poll_interval_seconds=0.5)  # type: ignore[arg-type]
    async with first, Consumer(address, **options) as second, Admin(address) as admin:  # type: ignore[arg-type]
        await first.subscribe(topic)
        await take(first, 4)
        async with asyncio.timeout(20):
            while (await admin.describe_group(topic)).info.members:
                await asyncio.sleep(0.02)
        await second.subscribe(topic)
        with pytest.raises(InstanceIdInUseError):
            await drain(first, 1)
        assert first.assignment() == []
        for _ in range(2):
            with pytest.raises(UnknownMemberError):
                await first.commit()
        await second.close()
        assert await committed(address, topic) == {}
        await take(first, 2)
        await first.commit()
        assert await committed(address, topic) == {0: 2}


async def test_a_commit_that_a_close_overtakes_says_so(address: str, topic: str) -> None:
    await fill(address, topic, 1, 10)
    consumer = Consumer(address, group=topic, auto_commit=False, request_timeout_seconds=5.0)
    await consumer.subscribe(topic)
    await take(consumer, 4)
    assert consumer._core._group is not None
    member = consumer._core._group.member
    send = member._send
    member._send = lambda **request: None if "commit" in request else send(**request)  # type: ignore[method-assign]
    on_its_way = asyncio.create_task(consumer.commit())
    while not member._commits:
        await asyncio.sleep(0)
    await consumer.close()
    with pytest.raises(BrokerUnavailableError, match="closed"):
        await on_its_way
    with pytest.raises(BrokerUnavailableError, match="closed"):
        await consumer.commit({TopicPartition(topic, 0): 4})


async def test_a_record_of_a_deleted_topic_is_not_committed_in_the_new_one(address: str, topic: str) -> None:
    await fill(address, topic, 1, 50)
    async with (
        Admin(address) as admin,
        Consumer(address, group=topic, auto_commit=False) as consumer,
        Consumer(address) as reader,
    ):
        await consumer.subscribe(topic)
        old = await drain(consumer, 50)
        await admin.delete_topic(topic)
        with pytest.raises(UnknownTopicError):
            await consumer.commit(old[-1])
        await fill(address, topic, 1, 100)
        new = await consumer.poll(max_records=10, timeout_seconds=25)
        while not new:
            new = await consumer.poll(max_records=10, timeout_seconds=25)
        assert old[0].topic_id != new[0].topic_id != b""
        for records in (old[-1], old[0], old, [*new, *old], [*old, *new]):
            with pytest.raises(UnknownTopicError, match="another one"):
                await consumer.commit(records)
        assert await committed(address, topic) == {}
        await consumer.commit(new)
        assert await committed(address, topic) == {0: new[-1].offset + 1}
        # The records of any reader, and records that a program has made itself, are taken as before.
        await reader.assign(topic)
        await consumer.commit((await drain(reader, 30))[29])
        await consumer.commit(Record(topic, 0, 39, 0, None, None, ()))
        assert await committed(address, topic) == {0: 40}
