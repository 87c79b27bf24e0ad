"""Pins of topics, and alterations of several topics at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from logbroker.broker.catalog import Catalog
from logbroker.broker.topic_pins import TopicPins
from logbroker.broker.topics import new_topic
from logbroker.config import BrokerConfig
from logbroker.types import TopicId

FIRST, SECOND = TopicId(b"1" * 16), TopicId(b"2" * 16)


def pins() -> TopicPins:
    catalog = Catalog()
    for topic_id in (FIRST, SECOND):
        catalog.put(new_topic(topic_id.decode(), topic_id, 1, {}, BrokerConfig().parsed_topic_defaults(), 0))
    return TopicPins(catalog)


async def test_who_pins_two_topics_and_who_alters_them_wait_for_each_other_without_a_deadlock() -> None:
    topics = pins()
    done: list[str] = []
    has_pinned = [asyncio.Event(), asyncio.Event()]

    async def send(number: int, order: Sequence[TopicId]) -> None:
        """Pin one topic after the other, as a request with items for both does."""
        await topics.pin(order[0])
        has_pinned[number].set()
        for event in has_pinned:
            await event.wait()
        for _ in range(3):
            await asyncio.sleep(0)  # The alterations begin.
        await topics.pin(order[1])
        for topic_id in order:
            topics.unpin(topic_id)
        done.append("sent")

    async def alter(topic_id: TopicId) -> None:
        for event in has_pinned:
            await event.wait()
        async with topics.alone(topic_id):
            await asyncio.sleep(0)
        done.append("altered")

    async with asyncio.timeout(10):
        await asyncio.gather(send(0, (FIRST, SECOND)), send(1, (SECOND, FIRST)), alter(FIRST), alter(SECOND))
    assert sorted(done) == ["altered", "altered", "sent", "sent"]


async def test_a_topic_is_altered_by_one_at_a_time_and_another_topic_meanwhile() -> None:
    topics = pins()
    first_may_end = asyncio.Event()
    done: list[str] = []

    async def alter(name: str, topic_id: TopicId, end: asyncio.Event | None = None) -> None:
        async with topics.alone(topic_id):
            if end is not None:
                await end.wait()
            done.append(name)

    async with asyncio.timeout(10):
        first = asyncio.create_task(alter("first", FIRST, first_may_end))
        await asyncio.sleep(0)
        await alter("second", SECOND)
        again = asyncio.create_task(alter("first again", FIRST))
        await asyncio.sleep(0)
        first_may_end.set()
        await asyncio.gather(first, again)
    assert done == ["second", "first", "first again"]
    # Nothing is left behind.
    await topics.pin(FIRST)
    topics.unpin(FIRST)
