"""Consumers of a group against a real broker: who reads what, what is committed, and what the callbacks are told."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TypedDict

import pytest

from logbroker.client import Admin, Consumer, Producer, Record, TopicPartition
from logbroker.client.consumer_core import ConsumerCore
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.errors import (
    AssignorMismatchError,
    BrokerUnavailableError,
    GroupNotEmptyError,
    InstanceIdInUseError,
    InvalidGroupIdError,
    InvalidRequestError,
    LogbrokerError,
    NotOwnerError,
    OffsetGoesBackError,
    UnknownGroupError,
)


async def fill(address: str, topic: str, partitions: int, records: int) -> None:
    """Create a topic of records with the values 0, 1, ..., spread evenly."""
    async with Admin(address) as admin:
        await admin.create_topic(topic, partitions)
    await add(address, topic, partitions, records)


async def add(address: str, topic: str, partitions: int, records: int) -> None:
    async with Producer(address, batch_bytes=500) as producer:
        for number in range(records):
            await producer.send(topic, b"%d" % number, partition=number % partitions)


class Listeners(TypedDict):
    on_assigned: Callable[[list[TopicPartition]], None]
    on_revoked: Callable[[list[TopicPartition]], None]
    on_lost: Callable[[list[TopicPartition]], None]


class Events:
    """What the callbacks of several members were told, in order."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str, list[int]]] = []

    def listen(self, name: str) -> Listeners:
        def noting(kind: str) -> Callable[[list[TopicPartition]], None]:
            return lambda partitions: self.all.append((name, kind, sorted(number for _, number in partitions)))

        return {"on_assigned": noting("assigned"), "on_revoked": noting("revoked"), "on_lost": noting("lost")}


def numbers(consumer: ConsumerCore) -> list[int]:
    return sorted(number for _, number in consumer.assignment())


async def settle(*consumers: Consumer, partitions: int) -> None:
    """Let all ask for records until together they hold so many partitions, and none is asked to change."""
    async with asyncio.timeout(20):
        while True:
            for records in await asyncio.gather(*(consumer.poll(timeout_seconds=0.02) for consumer in consumers)):
                assert not records, "settle before there are records"
            sizes = [len(consumer.assignment()) for consumer in consumers]
            if sum(sizes) == partitions and max(sizes) - min(sizes) <= 1:
                return


async def take(consumer: Consumer, count: int) -> list[Record]:
    """Take so many records in a loop; the last one is in hand."""
    records: list[Record] = []
    async with asyncio.timeout(20):
        async for record in consumer:
            records.append(record)
            if len(records) == count:
                break
    return records


async def drain(consumer: Consumer, count: int) -> list[Record]:
    """Take so many records by lists."""
    records: list[Record] = []
    async with asyncio.timeout(20):
        while len(records) < count:
            records += await consumer.poll(timeout_seconds=0.2)
    return records


async def committed(address: str, group: str) -> dict[int, int]:
    async with Admin(address) as admin:
        found = await admin.fetch_offsets(group)
    return {partition: offset.offset for (_, partition), offset in found.items()}


async def wait_for_commit(address: str, group: str, expected: dict[int, int]) -> None:
    async with asyncio.timeout(20):
        while await committed(address, group) != expected:
            await asyncio.sleep(0.02)


async def test_members_share_the_partitions_and_no_record_is_read_twice(address: str, topic: str) -> None:
    await fill(address, topic, 6, 0)
    events = Events()
    async with AsyncExitStack() as stack:
        members = [await stack.enter_async_context(Consumer(address, group=topic)) for _ in range(3)]
        for name, member in zip("abc", members, strict=True):
            await member.subscribe(topic, **events.listen(name))
        await settle(*members, partitions=6)
        assert sorted(number for member in members for number in numbers(member)) == list(range(6))
        await add(address, topic, 6, 3000)
        seen = [record for records in await asyncio.gather(*(drain(m, 1000) for m in members)) for record in records]
        assert len({(record.partition, record.offset) for record in seen}) == 3000
        held = numbers(members[2])
        await members[2].commit()
        await members[2].close()
        assert events.all[-1] == ("c", "revoked", held)
        await settle(*members[:2], partitions=6)
        await add(address, topic, 6, 600)
        later = [
            record for records in await asyncio.gather(*(drain(m, 300) for m in members[:2])) for record in records
        ]
        assert len(later) == 600
        assert {(r.partition, r.offset) for r in later}.isdisjoint({(r.partition, r.offset) for r in seen})


async def test_a_partition_goes_on_where_its_last_owner_was(address: str, topic: str) -> None:
    await fill(address, topic, 2, 200)
    events = Events()
    async with Consumer(address, group=topic) as first, Consumer(address, group=topic) as second:
        await first.subscribe(topic, **events.listen("first"))
        seen = await drain(first, 50)
        await second.subscribe(topic, **events.listen("second"))
        async with asyncio.timeout(20):
            while not second.assignment():
                mine, theirs = await asyncio.gather(
                    first.poll(max_records=3, timeout_seconds=0.05), second.poll(max_records=3, timeout_seconds=0.05)
                )
                seen += [*mine, *theirs]
        kinds = [(name, kind) for name, kind, _ in events.all]
        assert kinds == [("first", "assigned"), ("first", "revoked"), ("second", "assigned")]
        seen += [record for part in await asyncio.gather(_rest(first), _rest(second)) for record in part]
    assert sorted(int(record.value or b"") for record in seen) == list(range(200))


async def _rest(consumer: Consumer) -> list[Record]:
    return [record async for record in consumer.until_end()]


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
        records = await consumer.poll(max_records=4, timeout_seconds=10)
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


async def test_a_paused_partition_is_kept_and_not_delivered(address: str, topic: str) -> None:
    await fill(address, topic, 2, 100)
    zero = TopicPartition(topic, 0)
    async with Consumer(address, group=topic) as consumer, Consumer(address, group=topic) as other:
        await consumer.subscribe(topic, on_assigned=lambda partitions: consumer.pause(zero))
        seen = await drain(consumer, 50)
        assert {record.partition for record in seen} == {1}
        await other.subscribe(topic)
        async with asyncio.timeout(20):
            while not other.assignment():
                assert not await consumer.poll(timeout_seconds=0.02)
                await other.poll(timeout_seconds=0.02)
        assert numbers(consumer) == [0]
        consumer.resume(zero)
        assert {record.partition for record in await drain(consumer, 50)} == {0}


async def test_revoked_is_called_before_the_partition_is_given_away(address: str, topic: str) -> None:
    """And may take its time, and commit."""
    await fill(address, topic, 2, 100)
    events = Events()
    async with (
        Consumer(address, group=topic, auto_commit=False) as first,
        Consumer(address, group=topic, auto_commit=False) as second,
    ):

        async def revoked(partitions: list[TopicPartition]) -> None:
            events.all.append(("first", "revoked", []))
            assert await second.poll(timeout_seconds=0.2) == []
            await first.commit()
            events.all.append(("first", "committed", []))

        await first.subscribe(topic, on_revoked=revoked)
        await drain(first, 100)
        await second.subscribe(topic, **events.listen("second"))
        async with asyncio.timeout(20):
            while not second.assignment():
                await first.poll(timeout_seconds=0.02)
                assert not await second.poll(timeout_seconds=0.02)
        assert [event[:2] for event in events.all][:3] == [
            ("first", "revoked"),
            ("first", "committed"),
            ("second", "assigned"),
        ]
        assert second.position(second.assignment()[0]) == 50


async def test_an_error_of_a_callback_comes_out_and_nothing_is_given_away(address: str, topic: str) -> None:
    await fill(address, topic, 2, 0)
    calls = 0

    def revoked(partitions: list[TopicPartition]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyError("of the program")

    async with Consumer(address, group=topic) as first, Consumer(address, group=topic) as second:
        await first.subscribe(topic, on_revoked=revoked)
        await settle(first, partitions=2)
        await second.subscribe(topic)
        with pytest.raises(KeyError):
            await first.poll(timeout_seconds=10)
        assert numbers(first) == [0, 1]
        await settle(first, second, partitions=2)
        assert calls == 2


async def test_new_partitions_and_topics_are_assigned(address: str, topic: str) -> None:
    await fill(address, f"{topic}-a", 1, 3)
    async with Consumer(address, group=topic) as consumer, Admin(address) as admin:
        await consumer.subscribe(pattern=f"{topic}-.*")
        assert len(await drain(consumer, 3)) == 3
        await fill(address, f"{topic}-b", 2, 4)
        assert {record.topic for record in await drain(consumer, 4)} == {f"{topic}-b"}
        await admin.alter_topic(f"{topic}-a", partitions=3)
        await settle(consumer, partitions=5)
        await consumer.subscribe(f"{topic}-a")
        await settle(consumer, partitions=3)
        await admin.delete_topic(f"{topic}-a")
        await settle(consumer, partitions=0)
        await fill(address, f"{topic}-a", 1, 2)
        assert len(await drain(consumer, 2)) == 2


async def test_a_topic_that_is_created_again_begins_anew(address: str, topic: str) -> None:
    await fill(address, topic, 1, 5)
    events = Events()
    async with Consumer(address, group=topic) as consumer, Admin(address) as admin:
        await consumer.subscribe(topic, **events.listen("it"))
        assert len(await drain(consumer, 5)) == 5
        await admin.delete_topic(topic)
        await fill(address, topic, 1, 3)
        assert [record.offset for record in await drain(consumer, 3)] == [0, 1, 2]
        assert [kind for _, kind, _ in events.all] == ["assigned", "revoked", "assigned"]


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
        seen += [record for part in await asyncio.gather(_rest(first), _rest(second)) for record in part]
        await asyncio.gather(first.commit(), second.commit())
        assert events.all == before
    assert sorted(int(record.value or b"") for record in seen) == list(range(400))


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
            while consumer.permit.open():
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


async def test_a_static_member_keeps_its_place_over_a_restart(address: str, topic: str) -> None:
    await fill(address, topic, 4, 0)
    events = Events()
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(Consumer(address, group=topic))
        await other.subscribe(topic, **events.listen("other"))
        static = Consumer(address, group=topic, instance_id="one")
        await static.subscribe(topic)
        await settle(other, static, partitions=4)
        held, before = numbers(static), list(events.all)
        async with Consumer(address, group=topic, instance_id="one") as twin:
            with pytest.raises(InstanceIdInUseError):
                await twin.subscribe(topic)
        await static.close()
        again = await stack.enter_async_context(Consumer(address, group=topic, instance_id="one"))
        await again.subscribe(topic)
        await settle(other, again, partitions=4)
        assert numbers(again) == held
        assert events.all == before


async def test_what_cannot_be_asked_for_is_refused(address: str, topic: str, unused_tcp_port: int) -> None:
    await fill(address, topic, 1, 0)
    async with Consumer(address) as consumer:
        with pytest.raises(InvalidRequestError, match="group"):
            await consumer.subscribe(topic)
        with pytest.raises(InvalidRequestError, match="subscribe"):
            await consumer.commit()
    async with Consumer(address, group=topic) as consumer:
        with pytest.raises(InvalidRequestError, match="subscribe"):
            await consumer.assign(topic)
        with pytest.raises(InvalidRequestError, match="topic"):
            await consumer.subscribe()
        with pytest.raises(InvalidRequestError):
            await consumer.subscribe(pattern="(")
        await consumer.subscribe(topic)
        async with Consumer(address, group=topic, assignor="range") as other:
            with pytest.raises(AssignorMismatchError):
                await other.subscribe(topic)
    for group in ("", "a b", "x" * 300):
        async with Consumer(address, group=group) as consumer:
            with pytest.raises(InvalidGroupIdError):
                await consumer.subscribe(topic)
    with pytest.raises(InvalidRequestError, match="start"):
        Consumer(address, group=topic, start=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="session_timeout_seconds"):
        Consumer(address, group=topic, session_timeout_seconds=-1)
    async with Consumer(f"127.0.0.1:{unused_tcp_port}", group=topic, request_timeout_seconds=0.2) as consumer:
        with pytest.raises(BrokerUnavailableError):
            await consumer.subscribe(topic)


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
