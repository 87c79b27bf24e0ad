"""Pins of topics: who routes records by a topic's generation and configs keeps them from changing meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from logbroker.broker.catalog import Catalog
from logbroker.engine import Topic
from logbroker.types import TopicId


class TopicPins:
    """The pinned topics, and the alterations that wait for them."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._pins: dict[TopicId, int] = {}
        self._altering: dict[TopicId, asyncio.Event] = {}
        """Topics that are being altered; each event is set when the alteration is over."""
        self._unpinned = asyncio.Event()

    async def pin(self, topic_id: TopicId) -> Topic:
        """Pin a topic, so that it cannot be altered until `unpin`, and return it. Waits for an alteration under way."""
        # No deadlock: one topic is altered at a time, and its alteration does not wait for callers that wait here.
        while altering := self._altering.get(topic_id):
            await altering.wait()
        topic = self._catalog.by_id(topic_id)
        self._pins[topic_id] = self._pins.get(topic_id, 0) + 1
        return topic

    def unpin(self, topic_id: TopicId) -> None:
        left = self._pins[topic_id] - 1
        if left:
            self._pins[topic_id] = left
        else:
            del self._pins[topic_id]
            self._unpinned.set()

    @asynccontextmanager
    async def alone(self, topic_id: TopicId) -> AsyncIterator[None]:
        """Wait until the topic is not pinned, and keep it from being pinned until the block ends."""
        over = self._altering[topic_id] = asyncio.Event()
        try:
            while topic_id in self._pins:
                self._unpinned.clear()
                await self._unpinned.wait()
            yield
        finally:
            del self._altering[topic_id]
            over.set()
