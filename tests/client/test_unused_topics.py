"""Topics that a client sends to no more: it forgets them, and nothing is lost, doubled or put out of order by that."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

import pytest

from logbroker.client import Admin, Producer, sync
from logbroker.client.producer import accumulator as accumulator_module
from logbroker.client.producer import sender as sender_module
from logbroker.client.producer.accumulator import Accumulator
from logbroker.client.producer.delivery import Delivery
from logbroker.client.producer.partition_queue import ProducerIdentity
from logbroker.client.producer.producer import new_accumulator
from logbroker.client.producer.topic_route import TopicRoute
from logbroker.client.transport.connection import Connection
from logbroker.client.transport.metadata import UNUSED_SECONDS, TopicInfo, find_topic
from logbroker.client.worker.sent_records import OutputRoutes, sent_record
from logbroker.errors import BrokerUnavailableError
from logbroker.types import TopicId
from tests.client.reading import numbers_over_growth

ME: Final = ProducerIdentity(7, 0)
MIB: Final = 1024 * 1024


def info(name: str) -> TopicInfo:
    return TopicInfo(name, TopicId(bytes(16)), 2, 1)


def new() -> Accumulator[Delivery]:
    return new_accumulator(
        Delivery,
        compression="none",
        batch_bytes=10_000,
        linger_ms=0,
        max_buffered_bytes=MIB,
        delivery_timeout_seconds=1e6,
        wake=lambda: None,
    )


def add(accumulator: Accumulator[Delivery], name: str, now: float) -> TopicRoute:
    """Look a topic up, as a producer does at the first record."""
    accumulator.forget_unused(now)
    route = accumulator.routes[name] = TopicRoute(info(name), None, now)
    return route


def test_a_producer_that_sends_to_ever_new_topics_keeps_those_of_some_minutes() -> None:
    accumulator, most = new(), 0
    for second in range(int(10 * UNUSED_SECONDS)):
        add(accumulator, f"t-{second}", float(second))
        most = max(most, len(accumulator.routes))
    assert UNUSED_SECONDS <= most <= 2 * UNUSED_SECONDS + 1


def test_a_route_with_batches_is_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    accumulator = new()
    now = 1.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    route = add(accumulator, "t", now)

    def is_kept() -> bool:
        nonlocal now
        now += 2 * UNUSED_SECONDS
        accumulator.forget_unused(now)
        return "t" in accumulator.routes

    accumulator.append(route, b"", b"k", (), None, None)
    assert is_kept(), "while a batch is open"
    accumulator.close_open_batches()
    assert is_kept(), "while a batch waits"
    [(_, queue, batch)] = accumulator.take(now, ME, MIB)
    assert is_kept(), "while a batch is in flight"
    queue.lost(BrokerUnavailableError("gone"))
    assert is_kept(), "while a batch is to be sent again"
    [(_, queue, batch)] = accumulator.take(now, ME, MIB)
    assert queue.answered(batch, None, now)
    accumulator.finish(batch, base_offset=0)
    route.stale = True
    assert is_kept(), "while the topic's growth is to be looked up"
    route.refreshed()
    route.when_fresh.append(lambda: None)
    assert is_kept(), "while a call waits for the growth"
    route.refreshed()
    accumulator.append(route, b"", b"k", (), None, None)
    [(_, queue, batch)] = accumulator.take(now, ME, MIB)
    assert queue.answered(batch, None, now)
    accumulator.finish(batch, base_offset=1)
    now -= 2 * UNUSED_SECONDS - 1
    assert is_kept(), "while the last use is not long ago"
    assert not is_kept()


async def use(function: Callable[..., Any], *arguments: Any) -> Any:
    outcome = function(*arguments)
    return await outcome if inspect.isawaitable(outcome) else outcome


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("kind", [Producer, sync.Producer])
async def test_a_producer_that_forgets_routes_keeps_order_and_doubles_nothing(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """Each new topic forgets every route that has no batches. One topic is written all the time, and all grow."""
    monkeypatch.setattr(accumulator_module, "UNUSED_SECONDS", 0)
    lookups = 0

    def counted(find: Callable[[Connection, str], Awaitable[TopicInfo]]) -> Callable[[Connection, str], Any]:
        async def find_and_count(connection: Connection, name: str) -> TopicInfo:
            nonlocal lookups
            lookups += 1
            return await find(connection, name)

        return find_and_count

    monkeypatch.setattr(sender_module, "find_topic", counted(find_topic))
    chance = Random(7)
    names, others = [f"{topic}-{number}" for number in range(5)], [f"{topic}-new-{number}" for number in range(20)]
    sent: dict[str, dict[bytes, list[int]]] = {name: defaultdict(list) for name in names}
    last: dict[str, Any] = {}
    async with Admin(address) as admin:
        for name in names + others:
            await admin.create_topic(name, 2)
        producer = kind(address, batch_bytes=300)
        try:
            for number in range(1000):
                if number == 500:
                    for name in names:
                        await admin.alter_topic(name, partitions=5)
                # The others are quiet before each new topic.
                name = names[0] if number % 2 or number % 50 > 35 else chance.choice(names)
                key = b"key-%d" % chance.randrange(8)
                sent[name][key].append(number)
                last[name] = await use(producer.send, name, b"%d" % number, key)
                if number % 50 == 35:
                    for delivery in last.values():
                        await use(delivery.result, 30) if kind is sync.Producer else await delivery
                    last.clear()
                if number % 50 == 49:
                    await use(producer.send, others[number // 50], b"")
        finally:
            await use(producer.close)
    assert lookups > 3 * len(names) + len(others)
    for name in names:
        assert await numbers_over_growth(address, name) == sent[name]


def output(topic: str) -> Any:
    return sent_record(topic, b"v", b"k", None, (), None, None, None, None)


def test_a_worker_that_sends_to_ever_new_topics_keeps_those_of_some_minutes() -> None:
    routes, seen = OutputRoutes(), 0
    names = [f"t-{second}" for second in range(int(4 * UNUSED_SECONDS))]
    for second, name in enumerate(names):
        # One topic is used all the time. It is looked up again now and then, and never missing in between.
        _, is_routed = routes.pack([output("always")])
        assert is_routed or not second
        routes.pack([output(name)])
        for due in routes.due(float(second)):
            seen += due == "always"
            routes.found(due, info(due))
    assert 1 < seen < len(names)
    known = [name for name in names if routes.pack([output(name)])[1]]
    assert known == names[-int(UNUSED_SECONDS) :]
