"""A poll in a group returns when its time is over, whatever the network does, and goes on where it was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from logbroker.client import Consumer, sync
from logbroker.client.consumer import group_reader
from logbroker.client.transport.connection import Connection
from logbroker.client.transport.offsets import list_offsets
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import BrokerUnavailableError, OverloadedError, RequestTimeoutError
from tests.client.group_helpers import Events, committed, drain, fill, numbers, take

OVER_SECONDS = 5.0
"""Where a poll of a few milliseconds takes longer, it waits for something else than its deadline: that never comes."""


async def poll_once(consumer: Consumer) -> None:
    assert await asyncio.wait_for(consumer.poll(timeout_seconds=0.05), OVER_SECONDS) == []


@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_while_it_is_asked_where_to_begin(
    address: str, topic: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question is asked once, however many polls it takes, and for as long as the broker is not there."""
    await fill(address, topic, 2, 20)
    answered = asyncio.Event()
    asked: list[int] = []

    async def list_slowly(connection: Connection, wishes: Any) -> Any:
        asked.append(len(wishes))
        if len(asked) <= 3:
            raise [RequestTimeoutError, BrokerUnavailableError, OverloadedError][len(asked) - 1]("not now")
        await answered.wait()
        return await list_offsets(connection, wishes)

    monkeypatch.setattr(group_reader, "list_offsets", list_slowly)
    events = Events()
    async with Consumer(address, group=topic, start=start) as consumer:
        await consumer.subscribe(topic, **events.listen("it"))
        async with asyncio.timeout(20):
            while len(asked) < 4:
                await poll_once(consumer)
        for _ in range(3):
            await poll_once(consumer)
        assert events.all == []
        answered.set()
        if start == "earliest":
            assert len(await drain(consumer, 20)) == 20
        else:
            while not numbers(consumer):
                await poll_once(consumer)
            assert await committed(address, topic) == {0: 10, 1: 10}
        assert asked == [2] * 4
        assert events.all == [("it", "assigned", [0, 1])]


async def test_while_what_goes_is_committed(address: str, topic: str) -> None:
    """And the partition goes when its commit is done, once."""
    await fill(address, topic, 2, 20)
    events = Events()
    async with Consumer(address, group=topic, auto_commit_interval_seconds=60.0) as first:
        await first.subscribe(topic, **events.listen("first"))
        await drain(first, 20)
        assert first._core._group is not None
        member = first._core._group.member
        answered = asyncio.Event()
        commit_once = member._commit_once
        commits: list[Any] = []

        async def commit_slowly(offsets: Any, deadline: float | None, texts: Any) -> Any:
            commits.append(offsets)
            await answered.wait()
            return await commit_once(offsets, deadline, texts)

        member._commit_once = commit_slowly  # type: ignore[method-assign]
        async with Consumer(address, group=topic) as second:
            await second.subscribe(topic, **events.listen("second"))
            async with asyncio.timeout(20):
                while not commits:
                    await poll_once(first)
            for _ in range(3):
                await poll_once(first)
            assert ("second", "assigned", [1]) not in events.all
            answered.set()
            async with asyncio.timeout(20):
                while numbers(second) != [1]:
                    await poll_once(first)
                    await poll_once(second)
            assert len(commits) == 1
            assert (await committed(address, topic))[1] == 10
            assert [kind for name, kind, _ in events.all if name == "first"] == ["assigned", "revoked"]


@pytest.mark.prove
async def test_while_the_broker_is_away(logbroker_broker: EmbeddedBroker, topic: str) -> None:
    """No error comes out of it, neither at once nor after the time for a request."""
    address = logbroker_broker.address
    await fill(address, topic, 2, 20)
    async with Consumer(address, group=topic, request_timeout_seconds=0.2) as consumer:
        await consumer.subscribe(topic)
        await asyncio.to_thread(logbroker_broker.kill)
        for _ in range(10):
            await poll_once(consumer)
        reading = asyncio.ensure_future(take(consumer, 20))
        await asyncio.to_thread(logbroker_broker.start)
        assert len(await reading) == 20


def test_a_synchronous_poll_as_well(address: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(fill(address, topic, 1, 10))
    asked: list[bool] = []

    async def never(connection: Connection, wishes: Any) -> Any:
        asked.append(True)
        await asyncio.Event().wait()

    monkeypatch.setattr(group_reader, "list_offsets", never)
    consumer = sync.Consumer(address, group=topic)
    try:
        consumer.subscribe(topic)
        while not asked:
            assert consumer.poll(timeout_seconds=0.05) == []
        assert consumer.poll(timeout_seconds=0.05) == []
        assert consumer.assignment() == []
    finally:
        consumer.close()
    with pytest.raises(BrokerUnavailableError):
        consumer.poll(timeout_seconds=0.05)


async def test_who_waits_hears_of_the_close(address: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(address, topic, 1, 10)
    asked = asyncio.Event()

    async def never(connection: Connection, wishes: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(group_reader, "list_offsets", never)
    consumer = Consumer(address, group=topic)
    await consumer.subscribe(topic)
    waiting = asyncio.ensure_future(consumer.poll(timeout_seconds=60))
    await asked.wait()
    await consumer.close()
    with pytest.raises(BrokerUnavailableError, match="closed"):
        await asyncio.wait_for(waiting, OVER_SECONDS)
