"""Consumers of a group against a real broker: who reads what, and what the callbacks are told."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from logbroker.client import Admin, Consumer, TopicPartition
from logbroker.client.consumer.group_reader import GroupReader
from logbroker.client.consumer.membership import MembershipState
from logbroker.client.sync import Admin as SyncAdmin
from logbroker.errors import (
    AssignorMismatchError,
    BrokerUnavailableError,
    InstanceIdInUseError,
    InvalidGroupIdError,
    InvalidRequestError,
)
from tests.client.group_helpers import Events, add, drain, fill, numbers, rest, settle
from tests.client.worker_helpers import wire
from tests.waiting import until


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


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_member_is_told_of_no_assignment_that_it_has_lost(
    goes_on: bool, address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its event loop stands still between the assignment and the call of `on_assigned`, beyond its session."""
    await fill(address, topic, 2, 10)
    begin_to_read, frozen = GroupReader._begin_to_read, False

    async def slow(self: GroupReader, *arguments: Any) -> None:
        nonlocal frozen
        await begin_to_read(self, *arguments)
        if not frozen:
            frozen = True
            with SyncAdmin(address) as admin:
                until(lambda: not admin.describe_group(topic).members)

    monkeypatch.setattr(GroupReader, "_begin_to_read", slow)
    events = Events()
    async with Consumer(address, group=topic, session_timeout_seconds=1) as consumer:
        await consumer.subscribe(topic, **events.listen("it"))
        if goes_on:
            assert len(await drain(consumer, 10)) == 10
        while not frozen:
            assert await consumer.poll(timeout_seconds=0.1) == []
    assert [kind for _, kind, _ in events.all] == (["assigned", "revoked"] if goes_on else [])


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
        seen += [record for part in await asyncio.gather(rest(first), rest(second)) for record in part]
    assert sorted(int(record.value or b"") for record in seen) == list(range(200))


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
        Consumer(address, group=topic, auto_commit=False) as second,
        Consumer(address, group=topic, auto_commit=False) as first,
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


@pytest.mark.parametrize("change", ["revoked", "lost"])
async def test_assigned_is_told_first_whatever_the_group_wants_at_that_moment(
    address: str, topic: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(address, topic, 2, 0)
    events, begin = Events(), GroupReader._begin_to_read
    joining: list[asyncio.Task[None]] = []

    async def begin_late(reader: GroupReader, *arguments: Any) -> None:
        await begin(reader, *arguments)
        if joining:
            return
        joining.append(asyncio.create_task(second.subscribe(topic, **events.listen("b"))))
        membership = reader.member.membership
        if change == "lost":
            membership.lost = True
        while change == "revoked" and membership.outstanding is None:
            await asyncio.sleep(0.01)

    monkeypatch.setattr(GroupReader, "_begin_to_read", begin_late)
    async with Consumer(address, group=topic) as first, Consumer(address, group=topic) as second:
        await first.subscribe(topic, **events.listen("a"))
        async with asyncio.timeout(20):
            while len([name for name, _, _ in events.all if name == "a"]) < 2:
                await first.poll(timeout_seconds=0.05)
            await joining[0]
    of_first = [(kind, partitions) for name, kind, partitions in events.all if name == "a"]
    assert of_first[0] == ("assigned", [0, 1])
    assert of_first[1][0] == change


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
            await first.poll(timeout_seconds=25)
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
    with pytest.raises(TypeError, match="start"):
        Consumer(address, group=topic, start=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="session_timeout_seconds"):
        Consumer(address, group=topic, session_timeout_seconds=-1)
    async with Consumer(f"127.0.0.1:{unused_tcp_port}", group=topic, request_timeout_seconds=0.2) as consumer:
        with pytest.raises(BrokerUnavailableError):
            await consumer.subscribe(topic)


async def test_a_subscription_that_changes_while_the_member_comes_back_counts(address: str, topic: str) -> None:
    await fill(address, topic, 1, 0)
    await fill(address, f"{topic}-other", 1, 0)
    async with wire(address) as way, Consumer(way.address, group=topic) as consumer:
        await consumer.subscribe(topic)
        await settle(consumer, partitions=1)
        way.cut()
        async with asyncio.timeout(20):
            while consumer._core._in_group().member.membership.state is not MembershipState.JOINING:
                await asyncio.sleep(0)
            await consumer.subscribe(f"{topic}-other")
            while consumer.assignment() != [TopicPartition(f"{topic}-other", 0)]:
                await consumer.poll(timeout_seconds=0.05)


async def test_a_subscription_that_cannot_be_is_refused_and_changes_nothing(address: str, topic: str) -> None:
    await fill(address, topic, 1, 3)
    async with Consumer(address, group=topic, auto_commit=False) as consumer:
        await consumer.subscribe(topic)
        await drain(consumer, 3)
        await consumer.commit()
        with pytest.raises(InvalidRequestError):
            await consumer.subscribe(pattern="(")
        await add(address, topic, 1, 2)
        assert [record.offset for record in await drain(consumer, 2)] == [3, 4]
