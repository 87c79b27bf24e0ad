"""Creating, altering and deleting topics: one change at a time, each durable before it is seen."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from logbroker.broker.local_engine.catalog import PARTITIONS, TOPICS, Catalog, encode_topic, partition_row_key
from logbroker.broker.local_engine.partition_table import PartitionTable
from logbroker.broker.topics import (
    check_growth,
    check_partition_count,
    check_topic_name,
    grown,
    new_topic,
    with_configs,
)
from logbroker.clock import Clock
from logbroker.config import BrokerConfig
from logbroker.engine import Topic
from logbroker.errors import InvalidRequestError, TopicExistsError
from logbroker.storage.metadata_store import MetadataStore
from logbroker.types import TopicId, new_topic_id


class TopicChanges:
    """The commit of the topic's row is the moment of a change: before it nothing is seen, after it nothing is lost."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        store: MetadataStore,
        catalog: Catalog,
        partitions: PartitionTable,
    ) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._catalog = catalog
        self._partitions = partitions
        self._topic_defaults = config.parsed_topic_defaults()
        self._lock = asyncio.Lock()
        self._growing: set[TopicId] = set()

    def generation(self, topic_id: TopicId) -> int:
        """The generation that keyed appends must carry now; the next one from the moment growth begins."""
        generation = self._catalog.by_id(topic_id).generation
        return generation + 1 if topic_id in self._growing else generation

    async def create(
        self, name: str, partitions: int | None, overrides: Mapping[str, str], *, validate_only: bool
    ) -> Topic:
        async with self._lock:
            check_topic_name(name)
            if self._catalog.has(name):
                raise TopicExistsError(f"topic {name!r} exists already")
            count = self._config.default_partitions if partitions is None else partitions
            check_partition_count(count, self._catalog.partition_count, self._config)
            topic = new_topic(name, new_topic_id(), count, overrides, self._topic_defaults, self._clock.wall_ms())
            if validate_only:
                return topic
            await asyncio.to_thread(self._partitions.make_directories, topic)
            await self._commit((TOPICS, topic.id, encode_topic(topic)))
            await self._show(topic)
            return topic

    async def alter(
        self,
        topic_id: TopicId,
        partitions: int | None,
        set_configs: Mapping[str, str],
        unset_configs: Sequence[str],
        *,
        validate_only: bool,
    ) -> Topic:
        async with self._lock:
            old = self._catalog.by_id(topic_id)
            if partitions is None and not set_configs and not unset_configs:
                raise InvalidRequestError("nothing to alter: give partitions, configs to set or configs to unset")
            topic = with_configs(old, set_configs, unset_configs, self._topic_defaults)
            if partitions is not None:
                check_growth(old, partitions)
                check_partition_count(partitions, self._catalog.partition_count - old.partitions, self._config)
            if validate_only:
                return topic
            if partitions is None:
                await self._commit((TOPICS, topic.id, encode_topic(topic)))
                await self._show(topic)
                return topic
            return await self._grow(topic, partitions)

    async def delete(self, topic_id: TopicId) -> Topic:
        async with self._lock:
            topic = self._catalog.by_id(topic_id)
            await self._commit((TOPICS, topic_id, encode_topic(topic, deleted=True)))
            self._catalog.remove(topic_id)
            partitions = self._partitions.take(topic_id)
            await asyncio.gather(*(partition.settle() for partition in partitions))
            for partition in partitions:
                partition.close()
            await self.finish_deletion(topic)
        await asyncio.to_thread(self._partitions.remove_set_aside)
        return topic

    async def finish_deletion(self, topic: Topic) -> None:
        """Free the name of a topic whose row says that it is deleted, and forget it. Also at start, after a crash."""
        await asyncio.to_thread(self._partitions.set_aside, topic)
        rows = [(PARTITIONS, partition_row_key(topic.id, number), None) for number in range(topic.partitions)]
        await self._commit((TOPICS, topic.id, None), *rows)

    async def _grow(self, topic: Topic, partitions: int) -> Topic:
        self._growing.add(topic.id)
        try:
            # From here on keyed appends of the old generation are refused, so these ends hold for every key.
            old = self._partitions.of_topic(topic.id)
            end_offsets = [partition.log.log_end_offset for partition in old]
            # They must be on disk before a row speaks of them.
            await asyncio.gather(*(partition.settle() for partition in old))
            topic = grown(topic, partitions, end_offsets)
            await asyncio.to_thread(self._partitions.make_directories, topic, len(old))
            await self._commit((TOPICS, topic.id, encode_topic(topic)))
        finally:
            self._growing.discard(topic.id)
        await self._show(topic)
        return topic

    async def _show(self, topic: Topic) -> None:
        for partition in self._partitions.of_topic(topic.id):
            partition.log.config = topic.config
        await asyncio.to_thread(self._partitions.open, topic)
        self._catalog.put(topic)

    async def _commit(self, *writes: tuple[str, bytes, bytes | None]) -> None:
        await asyncio.wrap_future(self._store.submit(writes))
