"""A broker that stops: its groups take no news of topics any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.consumer_groups.groups import Groups
from logbroker.consumer_groups.membership import MemberMessage
from logbroker.consumer_groups.messages import Join
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.engine import DiskUse, LogEngine, Numbers, StateEvent, Topic
from logbroker.types import TopicId


class CountingStore:
    """A state store that counts the transactions."""

    numbers: Numbers

    def __init__(self) -> None:
        self.commits = 0

    async def load(self, scope: str) -> dict[bytes, bytes]:
        return {}

    def check_room(self, use: DiskUse = DiskUse.USES_RESERVE) -> None:
        pass

    async def commit(self, scope: str, events: Sequence[StateEvent]) -> None:
        self.commits += 1


class GrowingTopic:
    """As much of a log engine as groups ask for: one topic that grows."""

    def __init__(self) -> None:
        self.partitions = 1
        self.listeners: list[Callable[[Topic], None]] = []

    def topics(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="t", id=TopicId(b"t" * 16), partitions=self.partitions, routing_bands=())]

    def topic(self, name: str) -> SimpleNamespace:
        return self.topics()[0]

    topic_by_id = topic

    def on_topics_changed(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def grow(self) -> None:
        self.partitions += 1
        for listener in self.listeners:
            listener(cast(Topic, self.topics()[0]))


class Inbox:
    """A member's end of its stream."""

    def send(self, message: MemberMessage) -> None:
        pass


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_topic_that_grows_while_the_broker_stops_begins_no_transaction() -> None:
    store, engine = CountingStore(), GrowingTopic()
    groups = Groups(BrokerConfig(), SystemClock(), cast(LogEngine, engine), store)
    await groups.load()
    member = Join(member_id="one", incarnation=1, subscription=Subscription(("t",)))
    link = await groups.join("g", member, Inbox())
    await groups.settle()
    link.taken(1)
    await groups.settle()
    before = store.commits
    engine.grow()  # Its news are on their way.
    groups.freeze()
    await turns()
    engine.grow()
    await turns()
    await groups.settle()
    assert store.commits == before
