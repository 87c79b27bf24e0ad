"""Members that are fenced, frozen or cut off, and brokers that go away: nobody reads what is not theirs."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import grpc
import pytest

from logbroker.client import Admin, Consumer, Record, TopicPartition
from logbroker.client.consumer import group_reader
from logbroker.client.transport.connection import Connection
from logbroker.client.transport.offsets import list_offsets
from logbroker.embedded_broker import EmbeddedBroker, embedded
from tests.client.group_helpers import Events, add, committed, drain, fill, rest, settle, take
from tests.groups.members import GroupsApi, Member


def sleep_until_fenced(channel: grpc.Channel, group: str) -> None:
    """Let the whole event loop stand still, as in a stopped process, until the group has no members."""
    groups = GroupsApi(channel)
    while groups.describe(group).group.members:
        time.sleep(0.02)


async def test_who_does_not_ask_is_fenced_and_begins_again_at_what_is_committed(address: str, topic: str) -> None:
    await fill(address, topic, 1, 10)
    events = Events()
    consumer = Consumer(address, group=topic, auto_commit=False, max_poll_interval_seconds=0.5)
    async with consumer, Admin(address) as admin:
        await consumer.subscribe(topic, **events.listen("it"))
        await take(consumer, 4)
        async with asyncio.timeout(20):
            while (await admin.describe_group(topic)).info.members:
                await asyncio.sleep(0.02)
        assert [record.offset for record in await take(consumer, 3)] == [0, 1, 2]
        await consumer.commit()
        assert events.all == [("it", "assigned", [0]), ("it", "lost", [0]), ("it", "assigned", [0])]


async def test_who_was_frozen_delivers_nothing_more_of_what_it_had(address: str, topic: str) -> None:
    """Not even the next record of the open batch, which needs nothing of the loop: its ownership is over."""
    await fill(address, topic, 1, 20)
    events = Events()
    async with Consumer(address, group=topic, auto_commit=False, session_timeout_seconds=0.3) as consumer:
        await consumer.subscribe(topic, **events.listen("it"))
        offsets = []
        async for record in consumer:
            offsets.append(record.offset)
            if len(offsets) == 2:
                time.sleep(1.2)  # the whole event loop stands still, as in a stopped process
            if len(offsets) == 4:
                break
        assert offsets == [0, 1, 0, 1]
        assert [kind for _, kind, _ in events.all] == ["assigned", "lost", "assigned"]


async def test_who_was_frozen_is_not_told_of_what_it_got_and_lost_meanwhile(address: str, topic: str) -> None:
    """Both messages wait for it, the assignment first."""
    await fill(address, topic, 2, 20)
    events = Events()
    with grpc.insecure_channel(address) as channel:
        other = Member(channel, topic, "other", [topic], session_timeout_ms=30_000, rebalance_timeout_ms=30_000)
        other.joined()
        other.holds({topic: [0, 1]})
        async with Consumer(address, group=topic, auto_commit=False, session_timeout_seconds=1.0) as consumer:
            await consumer.subscribe(topic, **events.listen("it"))
            other.holds({topic: [0]})
            # Else it would ask where to begin, and hear of its fencing meanwhile.
            assert other.commit(topic, {0: 3}) == {}
            await take(consumer, 1)
            other.leave()
            sleep_until_fenced(channel, topic)
            await take(consumer, 1)
            assert events.all == [("it", "assigned", [1]), ("it", "lost", [1]), ("it", "assigned", [0, 1])]


async def test_nor_of_what_it_lost_while_it_asked_where_to_begin(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(address, topic, 2, 20)
    events = Events()
    slept: list[bool] = []
    with grpc.insecure_channel(address) as channel:

        async def list_slowly(connection: Connection, wishes: Any) -> Any:
            found = await list_offsets(connection, wishes)
            if not slept:
                sleep_until_fenced(channel, topic)
                slept.append(True)
            return found

        monkeypatch.setattr(group_reader, "list_offsets", list_slowly)
        async with Consumer(address, group=topic, auto_commit=False, session_timeout_seconds=1.0) as consumer:
            await consumer.subscribe(topic, **events.listen("it"))
            await take(consumer, 1)
            assert slept
            assert events.all == [("it", "assigned", [0, 1])]


async def test_what_was_to_go_is_not_read_on_before_the_program_knows_that_it_stays(address: str, topic: str) -> None:
    """The stream breaks while it lets go, and the member is back between two calls, before it hears more than that."""
    await fill(address, topic, 2, 0)
    events = Events()
    with grpc.insecure_channel(address) as channel:
        async with Consumer(address, group=topic, auto_commit=False) as consumer:
            await consumer.subscribe(topic, **events.listen("it"))
            await settle(consumer, partitions=2)
            assert consumer._core._group is not None
            membership = consumer._core._group.member.membership

            def revoked(partitions: list[TopicPartition]) -> None:
                events.all.append(("it", "revoked", [number for _, number in partitions]))
                membership.broken()

            await consumer.subscribe(topic, on_revoked=revoked)
            Member(channel, topic, "other", [topic], rebalance_timeout_ms=30_000).joined()
            while not events.all[1:]:
                await consumer.poll(timeout_seconds=0.1)
            await add(address, topic, 2, 2)
            membership.joining(time.monotonic())
            membership.joined(resumed=True, session_timeout_seconds=10.0)
            assert not consumer._core.ownership.lasts()
            assert len(await drain(consumer, 2)) == 2
            assert events.all == [("it", "assigned", [0, 1]), ("it", "revoked", [1]), ("it", "assigned", [1])]


@pytest.mark.prove
async def test_who_works_long_on_a_record_is_not_fenced_for_its_session(address: str, topic: str) -> None:
    await fill(address, topic, 1, 10)
    events = Events()
    async with Consumer(address, group=topic, session_timeout_seconds=0.3) as consumer:
        await consumer.subscribe(topic, **events.listen("it"))
        async for record in consumer:
            await asyncio.sleep(0.4)
            if record.offset == 3:
                break
    assert [kind for _, kind, _ in events.all] == ["assigned", "revoked"]
    assert await committed(address, topic) == {0: 3}


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("crash", [False, True])
async def test_a_restart_of_the_broker_moves_nothing(logbroker_broker: EmbeddedBroker, topic: str, crash: bool) -> None:
    address = logbroker_broker.address
    await fill(address, topic, 4, 400)
    events = Events()
    async with Consumer(address, group=topic) as first, Consumer(address, group=topic) as second:
        await first.subscribe(topic, **events.listen("first"))
        await second.subscribe(topic, **events.listen("second"))
        seen: list[Record] = []
        while not (first.assignment() and second.assignment()):
            for records in await asyncio.gather(
                *(c.poll(max_records=5, timeout_seconds=0.05) for c in (first, second))
            ):
                seen += records
        before = list(events.all)
        await asyncio.to_thread(logbroker_broker.kill if crash else logbroker_broker.stop)
        await asyncio.to_thread(logbroker_broker.start)
        seen += [record for part in await asyncio.gather(rest(first), rest(second)) for record in part]
        await asyncio.gather(first.commit(), second.commit())
        assert events.all == before
    assert sorted(int(record.value or b"") for record in seen) == list(range(400))


@pytest.mark.prove
async def test_without_grace_a_break_loses_everything(topic: str) -> None:
    with embedded(reconnect_grace_seconds=0.0) as broker:
        await fill(broker.address, topic, 2, 40)
        events = Events()
        async with Consumer(broker.address, group=topic, auto_commit=False) as consumer:
            await consumer.subscribe(topic, **events.listen("it"))
            assert len(await take(consumer, 3)) == 3
            await consumer.commit()
            await take(consumer, 3)
            await asyncio.to_thread(broker.restart)
            assert len(await drain(consumer, 37)) == 37
            assert [kind for _, kind, _ in events.all] == ["assigned", "lost", "assigned"]


async def test_nothing_is_delivered_while_the_broker_is_silent(logbroker_broker: EmbeddedBroker, topic: str) -> None:
    """Though records wait in the buffer: somebody else may own the partition by now."""
    address = logbroker_broker.address
    await fill(address, topic, 1, 100)
    async with Consumer(address, group=topic, session_timeout_seconds=0.5) as consumer:
        await consumer.subscribe(topic)
        records = consumer.__aiter__()
        first = await anext(records)
        os.kill(logbroker_broker.pid, signal.SIGSTOP)
        try:
            while consumer._core.ownership.lasts():
                await asyncio.sleep(0.01)
            following = asyncio.ensure_future(anext(records))
            done, _ = await asyncio.wait([following], timeout=0.3)
            assert not done
        finally:
            os.kill(logbroker_broker.pid, signal.SIGCONT)
        async with asyncio.timeout(20):
            second = await following
        # Its session was over, or not, by the broker's clock: then it begins at what is committed.
        assert (first.offset, second.offset) in ((0, 1), (0, 0))
