"""Creation, alteration and deletion of topics: one change at a time, each durable before it is visible."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from logbroker.broker.catalog import Catalog
from logbroker.broker.local_engine.disk_space import FILES_OF_PARTITION, DiskSpace
from logbroker.broker.local_engine.failure import StorageFailure
from logbroker.broker.local_engine.helpers import Helpers
from logbroker.broker.local_engine.partition import Partition
from logbroker.broker.local_engine.partition_table import PartitionTable
from logbroker.broker.local_engine.topic_rows import PARTITIONS, TOPICS, encode_topic, partition_row_key
from logbroker.broker.topic_pins import TopicPins
from logbroker.broker.topics import (
    check_growth,
    check_partition_count,
    check_topic_name,
    grown,
    new_topic,
    partition_count,
    with_configs,
)
from logbroker.clock import Clock
from logbroker.config import BrokerConfig, topic_config
from logbroker.engine import DiskUse, Topic, TopicPlan
from logbroker.errors import (
    InvalidRequestError,
    LogbrokerError,
    StorageFailedError,
    TooManyOpenFilesError,
    TopicExistsError,
)
from logbroker.pacing import Pace
from logbroker.storage.metadata.metadata_store import MetadataStore
from logbroker.storage.partition_checkpoint import PRODUCERS
from logbroker.types import TopicId, new_topic_id

SETTLED_AT_ONCE: Final = 128
"""Number of partitions of a grown or deleted topic for which `Partition.settle` runs at a time."""
CLOSE_STEPS: Final = 10
"""Steps of a `Pace` that closing a partition takes."""

P = ParamSpec("P")
_Result = TypeVar("_Result")


def _to_the_end(
    change: Callable[Concatenate[TopicChanges, P], Coroutine[Any, Any, Topic]],
) -> Callable[Concatenate[TopicChanges, P], Coroutine[Any, Any, Topic]]:
    """Decorate a change: it waits for the previous one and, once begun, finishes even if its caller is cancelled.

    Half a change is dangerous: if a row says "deleted" while the topic still takes appends, the next start loses them.
    """

    @functools.wraps(change)
    async def carry_out(self: TopicChanges, /, *arguments: P.args, **fields: P.kwargs) -> Topic:
        await self._lock.acquire()
        task = asyncio.create_task(self._outcome(change(self, *arguments, **fields)))
        task.add_done_callback(lambda _: self._lock.release())
        self._running = task  # the event loop holds tasks weakly
        outcome = await asyncio.shield(task)
        if isinstance(outcome, LogbrokerError):
            raise outcome.anew()
        return outcome

    return carry_out


async def _settle(partitions: Sequence[Partition]) -> None:
    """Write and sync everything staged, some partitions at a time."""
    for start in range(0, len(partitions), SETTLED_AT_ONCE):
        await asyncio.gather(*(partition.settle() for partition in partitions[start : start + SETTLED_AT_ONCE]))


class TopicChanges:
    """Carries out changes of topics. A change takes effect when the topic's row is committed: before the commit nothing
    is visible, after it nothing is lost."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        store: MetadataStore,
        catalog: Catalog,
        partitions: PartitionTable,
        helpers: Helpers,
        failure: StorageFailure,
        disk: DiskSpace,
    ) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._catalog = catalog
        self._partitions = partitions
        self._helpers = helpers
        self._failure = failure
        self._disk = disk
        self._topic_defaults = config.parsed_topic_defaults()
        self._lock = asyncio.Lock()
        self._running: asyncio.Task[Topic | LogbrokerError] | None = None
        self._growing: set[TopicId] = set()
        self.pins = TopicPins(catalog)
        self._half_deleted: list[Topic] = []
        self.growth_checks: list[Callable[[Topic], None]] = []
        """See `LogEngine.on_growth`."""

    def generation(self, topic_id: TopicId) -> int:
        """Return the generation that keyed appends must carry now. While the topic grows, this is already the next
        generation."""
        generation = self._catalog.by_id(topic_id).generation
        return generation + 1 if topic_id in self._growing else generation

    @_to_the_end
    async def create(
        self,
        name: str,
        partitions: int | None,
        overrides: Mapping[str, str],
        *,
        plan: TopicPlan | None,
        use: DiskUse = DiskUse.TAKES_ROOM,
    ) -> Topic:
        check_topic_name(name)
        if self._catalog.has(name) or (plan is not None and name in plan.names):
            raise TopicExistsError(f"topic {name!r} exists already")
        config = topic_config(overrides, self._topic_defaults)
        count = partition_count(partitions, config, self._config.default_partitions)
        planned = 0 if plan is None else plan.partitions
        check_partition_count(count, self._catalog.partition_count + planned, self._config)
        self._disk.check(0, use, FILES_OF_PARTITION * count)
        topic = new_topic(name, new_topic_id(), count, overrides, config, self._clock.wall_ms())
        if plan is not None:
            plan.names.add(name)
            plan.partitions += count
        else:
            await self._finish_deletions()
            await self._add_partitions(topic, first=0)
        return topic

    @_to_the_end
    async def alter(
        self,
        topic_id: TopicId,
        partitions: int | None,
        set_configs: Mapping[str, str],
        unset_configs: Sequence[str],
        *,
        plan: TopicPlan | None,
    ) -> Topic:
        old = self._catalog.by_id(topic_id)
        if partitions is None and not set_configs and not unset_configs:
            raise InvalidRequestError("nothing to alter: give partitions, configs to set or configs to unset")
        topic = with_configs(old, set_configs, unset_configs, self._topic_defaults)
        if partitions is not None:
            check_growth(old, partitions)
            self._ask_for_growth(old)
            planned = 0 if plan is None else plan.partitions
            check_partition_count(partitions, self._catalog.partition_count + planned - old.partitions, self._config)
            self._disk.check(files=FILES_OF_PARTITION * (partitions - old.partitions))
        if plan is not None:
            plan.partitions += 0 if partitions is None else partitions - old.partitions
            return topic
        async with self.pins.alone(topic_id):
            if partitions is not None:
                self._ask_for_growth(old)  # Once more: it was perhaps pinned for a change after which it must not grow.
                topic = await self._grow(topic, partitions)
            else:
                await self._commit((TOPICS, topic.id, encode_topic(topic)))
                self._catalog.put(topic)
            for partition in self._partitions.of_topic(topic.id):
                partition.log.config = topic.config
        return topic

    async def delete(self, topic_id: TopicId) -> Topic:
        topic = await self._delete(topic_id)
        await self._fatal_where_storage_fails(self._helpers.remove(self._partitions.remove_set_aside))
        return topic

    async def close(self) -> None:
        """Wait for the change under way, and let no other begin."""
        await self._lock.acquire()

    @_to_the_end
    async def _delete(self, topic_id: TopicId) -> Topic:
        topic = self._catalog.by_id(topic_id)
        await self._commit((TOPICS, topic_id, encode_topic(topic, deleted=True)))
        self._catalog.remove(topic_id)
        partitions = self._partitions.take(topic_id)
        # Waiting appends are answered. Everything else is dropped unsynced: a sync of each partition would take longer
        # than the deletion.
        await _settle([partition for partition in partitions if partition.is_busy])
        pace = Pace()
        for partition in partitions:
            async with partition.removing:
                while partition.is_busy:  # A recovery point was requested meanwhile.
                    await partition.settle()
                partition.close(to_be_removed=True)  # This writes nothing, because the disk may be full.
            await pace.step(CLOSE_STEPS)
        self._half_deleted.append(topic)
        await self._finish_deletions()
        return topic

    async def _finish_deletions(self) -> None:
        """Finish deletions. This must come before a new topic is made: the row of a deleted topic says to remove all
        files of its name, and would also remove the files of a new topic of that name."""
        while self._half_deleted:
            try:
                await self.finish_deletion(self._half_deleted[-1])
            except TooManyOpenFilesError as error:
                raise TooManyOpenFilesError(f"the files of a deleted topic are not gone yet: {error}") from error
            self._half_deleted.pop()

    async def _outcome(self, change: Awaitable[Topic]) -> Topic | LogbrokerError:
        """Return the outcome of a change; return an error instead of raising it. If the task raised, the task and the
        frame that waits for it would refer to each other until the garbage collector runs."""
        try:
            return await self._fatal_where_storage_fails(change)
        except LogbrokerError as error:
            return error.as_value()

    async def _fatal_where_storage_fails(self, change: Awaitable[_Result]) -> _Result:
        try:
            return await change
        except StorageFailedError as error:
            raise self._failure.report(error) from error

    async def finish_deletion(self, topic: Topic) -> None:
        """Free the name of a topic whose row says that it is deleted, and forget the topic. Also called at start, after
        a crash."""
        await self._helpers.change(partial(self._partitions.set_aside, topic))
        rows = [(PARTITIONS, partition_row_key(topic.id, number), None) for number in range(topic.partitions)]
        producers = await self._helpers.change(partial(self._store.scan, PRODUCERS, topic.id))
        rows += [(PRODUCERS, key, None) for key, _ in producers]
        await self._commit((TOPICS, topic.id, None), *rows)

    def _ask_for_growth(self, topic: Topic) -> None:
        for check in self.growth_checks:
            check(topic)

    async def _grow(self, topic: Topic, partitions: int) -> Topic:
        old = [self._partitions.get(topic.id, number) for number in range(topic.partitions)]
        self._growing.add(topic.id)
        try:
            # Keyed appends of the old generation are refused from here on: all its keyed records are below these ends.
            end_offsets = [partition.log.log_end_offset for partition in old]
            # The records before these ends must be on disk before a row mentions the ends.
            await _settle(old)
            topic = grown(topic, partitions, end_offsets)
            await self._add_partitions(topic, first=len(old))
            for partition in old:
                # Wake readers, which read by generation: the old generation has ended, although its partitions may get
                # no new record.
                partition.notify_listeners()
        finally:
            self._growing.discard(topic.id)
        return topic

    async def _add_partitions(self, topic: Topic, *, first: int) -> None:
        """Make partitions from number `first` on, then commit the topic and make it visible: steps that may fail come
        first."""
        self._disk.take(0, FILES_OF_PARTITION * (topic.partitions - first))
        await self._helpers.change(partial(self._partitions.make_directories, topic, first))
        opened, recovery_points = await self._helpers.change(partial(self._partitions.open, topic, first))
        await self._commit((TOPICS, topic.id, encode_topic(topic)), *recovery_points)
        self._partitions.put(topic.id, opened)
        self._catalog.put(topic)

    async def _commit(self, *writes: tuple[str, bytes, bytes | None]) -> None:
        await asyncio.wrap_future(self._store.submit(writes))
