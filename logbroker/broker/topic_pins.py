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
        self._waiting = asyncio.Lock()
        """Held by the one alteration that waits for pins."""

    async def pin(self, topic_id: TopicId) -> Topic:
        """Pin a topic, so that it cannot be altered until `unpin`, and return it. Waits for an alteration under way."""
        # No deadlock: one alteration at a time waits for pins, and nothing in it waits for callers that wait here.
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
        """Wait until the topic is not pinned or altered by others, and keep it from both until the block ends."""
        # Whoever has pinned this topic may wait for one in `_altering`, which must not wait for pins itself then.
        async with self._waiting:
            while altering := self._altering.get(topic_id):
                await altering.wait()
            over = self._altering[topic_id] = asyncio.Event()
            try:
                while topic_id in self._pins:
                    self._unpinned.clear()
                    await self._unpinned.wait()
            except BaseException:
                self._end(topic_id, over)
                raise
        try:
            yield
        finally:
            self._end(topic_id, over)

    def _end(self, topic_id: TopicId, over: asyncio.Event) -> None:
        del self._altering[topic_id]
        over.set()
