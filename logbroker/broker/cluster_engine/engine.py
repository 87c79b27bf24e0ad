"""The log engine over a cluster: the same calls as the local engine's, answered by the nodes that lead the partitions.

Everything that is synchronous in `logbroker.engine.LogEngine` is answered from what the gateway heard last: topics are
read anew every few seconds and at each change that goes through this gateway, offsets with every answer, and by a
sweep over all partitions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Final

from logbroker.broker.catalog import Catalog
from logbroker.broker.cluster_engine.connection.link import ClusterLink, check
from logbroker.broker.cluster_engine.log.offsets import LATEST_TIME, delete_records
from logbroker.broker.cluster_engine.log.reading import BatchReader, ClusterWatch, Follower
from logbroker.broker.cluster_engine.log.remote_partition import RemotePartition
from logbroker.broker.cluster_engine.log.retention import ClusterRetention
from logbroker.broker.cluster_engine.topics.cluster_topics import ClusterTopics
from logbroker.clock import Clock
from logbroker.config import BrokerConfig
from logbroker.engine import (
    UP_TO_HIGH_WATERMARK,
    Append,
    Appended,
    FoundOffset,
    Holder,
    PartitionFacts,
    ProducerFacts,
    Read,
    ReadResult,
    Topic,
    TopicPlan,
    Watch,
)
from logbroker.errors import (
    BrokerUnavailableError,
    InvalidTimestampError,
    LogbrokerError,
    OffsetOutOfRangeError,
    OverloadedError,
    RecordTooLargeError,
    StaleGenerationError,
)
from logbroker.kafka_wire.apis import INIT_PRODUCER_ID
from logbroker.kafka_wire.messages.init_producer_id import InitProducerIdRequest
from logbroker.record.header import NO_PRODUCER_ID, BatchHeader, check_new_batch
from logbroker.types import Durability, TimestampType, TopicId

INIT_SECONDS: Final = 15.0
LEARN_SECONDS: Final = 8.0
"""The time for which a question for the end of a partition waits for its leader. Clients wait for 10 s."""


class ClusterEngine:
    """The `logbroker.engine.LogEngine` of a gateway. Made by `logbroker.broker.cluster_engine.lifetime`."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        link: ClusterLink,
        catalog: Catalog,
        topics: ClusterTopics,
    ) -> None:
        self._clock = clock
        self._link = link
        self._catalog = catalog
        self._topics = topics
        self._offsets = topics.offsets
        self._reader = BatchReader(link)
        self._follower = Follower(link, topics.partitions)
        self.retention = ClusterRetention(clock, link, topics.offsets, catalog, topics.of_topic)
        topics.on_refreshed = self._follower.follow  # Partitions may have moved to nodes that are not followed yet.
        self._max_bytes_in_flight = config.max_produce_bytes_in_flight
        self._bytes_in_flight = 0
        self.topic_by_id: Callable[[TopicId], Topic] = catalog.by_id

    # --- topics ------------------------------------------------------------------------------------------------------

    @property
    def boot_id(self) -> str:
        return ""  # Nothing here depends on what this machine has synced.

    def topics(self) -> Sequence[Topic]:
        return self._catalog.all()

    def topic(self, name: str) -> Topic:
        return self._catalog.by_name(name)

    def on_topics_changed(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        self._catalog.listeners.append(listener)
        return lambda: self._catalog.listeners.remove(listener)

    def on_growth(self, check: Callable[[Topic], None]) -> Callable[[], None]:
        self._topics.growth_checks.append(check)
        return lambda: self._topics.growth_checks.remove(check)

    async def create_topic(
        self, name: str, partitions: int | None, overrides: Mapping[str, str], *, plan: TopicPlan | None = None
    ) -> Topic:
        return await self._topics.create(name, partitions, overrides, plan)

    async def delete_topic(self, topic_id: TopicId) -> Topic:
        return await self._topics.delete(topic_id)

    async def alter_topic(
        self,
        topic_id: TopicId,
        *,
        partitions: int | None = None,
        set_configs: Mapping[str, str] | None = None,
        unset_configs: Sequence[str] = (),
        plan: TopicPlan | None = None,
    ) -> Topic:
        return await self._topics.alter(topic_id, partitions, set_configs or {}, unset_configs, plan)

    async def pin(self, topic_id: TopicId) -> Topic:
        return await self._topics.pins.pin(topic_id)

    def unpin(self, topic_id: TopicId) -> None:
        self._topics.pins.unpin(topic_id)

    is_sole_writer = False
    partitions_per_read = 100
    waits_for_holders = False
    durability = "replicated"

    async def learn_ends(self, topic_id: TopicId, partitions: Sequence[int]) -> Mapping[int, LogbrokerError]:
        found = []
        for number in partitions:
            with contextlib.suppress(LogbrokerError):
                found.append(self._topics.partition(topic_id, number))
        begun_at = monotonic()
        await self._offsets.learn(found, seconds=LEARN_SECONDS)
        return {
            each.key.partition: BrokerUnavailableError(
                f"{each.name} has no leader now that says where it ends; try again shortly"
            )
            for each in found
            if each.is_known and each.fresh_at < begun_at
        }

    def partition_facts(self, topic_id: TopicId, partition: int) -> PartitionFacts:
        return self._topics.partition(topic_id, partition).facts()

    def producers(self, topic_id: TopicId, partition: int) -> list[ProducerFacts]:
        self._topics.partition(topic_id, partition)
        return []

    def end_of_epoch(self, topic_id: TopicId, partition: int, leader_epoch: int) -> tuple[int, int] | None:
        found = self._topics.partition(topic_id, partition)
        return (found.leader_epoch, found.high_watermark) if leader_epoch >= found.leader_epoch else None

    async def delete_records(self, topic_id: TopicId, partition: int, before_offset: int) -> int:
        found = self._topics.partition(topic_id, partition)
        offset = found.high_watermark if before_offset == UP_TO_HIGH_WATERMARK else before_offset
        if not 0 <= offset <= found.high_watermark:
            raise OffsetOutOfRangeError(
                f"records of {found.name} cannot be deleted below offset {offset}: give an offset from 0 to"
                f" {found.high_watermark}, the high watermark"
            )
        await self.retention.release_below(found, offset)
        start = await delete_records(self._link, found, offset)
        found.heard(start, -1)
        return start

    # --- appends -----------------------------------------------------------------------------------------------------

    async def append(
        self, appends: Sequence[Append], durability: Durability | None = None
    ) -> list[Appended | LogbrokerError]:
        # No await from here to the last append: the order of the calls is the order of the offsets.
        now_ms = self._clock.wall_ms()
        outcomes: list[asyncio.Future[Appended] | LogbrokerError] = []
        accepted_bytes = 0
        for item in appends:
            if not item.room_bytes and outcomes and isinstance(outcomes[-1], LogbrokerError):
                outcomes.append(outcomes[-1])
                continue
            try:
                if item.room_bytes:
                    self._check_room(accepted_bytes, len(item.batch) if item.room_bytes < 0 else item.room_bytes)
                outcomes.append(self._append_one(item, now_ms))
                accepted_bytes += len(item.batch)
            except LogbrokerError as error:
                outcomes.append(error.as_value())
        waiting = [each for each in outcomes if not isinstance(each, LogbrokerError)]
        if waiting:
            self._bytes_in_flight += accepted_bytes
            everything = asyncio.gather(*waiting, return_exceptions=True)
            # The bytes count as in flight until they are answered, even if the caller is cancelled.
            everything.add_done_callback(lambda _: self._release(accepted_bytes))
            await asyncio.shield(everything)
        return [each if isinstance(each, LogbrokerError) else _outcome(each) for each in outcomes]

    def _check_room(self, accepted_bytes: int, size_bytes: int) -> None:
        waiting_bytes = self._bytes_in_flight + accepted_bytes
        if waiting_bytes and waiting_bytes + size_bytes > self._max_bytes_in_flight:
            raise OverloadedError(
                f"{waiting_bytes} bytes wait to be written; the limit is {self._max_bytes_in_flight}"
                " (max_produce_bytes_in_flight); try again shortly"
            )

    def _release(self, size_bytes: int) -> None:
        self._bytes_in_flight -= size_bytes

    def _append_one(self, item: Append, now_ms: int) -> asyncio.Future[Appended]:
        partition = self._topics.partition(item.topic_id, item.partition)
        header = check_new_batch(item.batch)
        try:
            self._check(item, header, now_ms)
        except LogbrokerError as refusal:
            if header.producer_id == NO_PRODUCER_ID:
                raise
            # A batch that was appended before stays a repeat, even if it would be refused now.
            return partition.repeat(item.batch, header, refusal.as_value())
        return partition.append(item.batch, header, partial(self._check_generation, item) if item.generation else None)

    def _check(self, item: Append, header: BatchHeader, now_ms: int) -> None:
        """Raise the error for a batch that the topic does not take now."""
        config = self._catalog.by_id(item.topic_id).config
        if item.generation:
            self._check_generation(item)
            self._check_fence(item)
        self._topics.check_replicas(item.topic_id, item.partition)
        if len(item.batch) > config.max_message_bytes:
            raise RecordTooLargeError(
                f"the {'record makes a' if header.record_count == 1 else 'records make a'} batch of"
                f" {len(item.batch)} bytes; the topic takes {config.max_message_bytes} (max.message.bytes)"
            ).with_bound(config.max_message_bytes)
        latest_ms = now_ms + config.message_timestamp_after_max_ms
        if header.max_timestamp_ms > latest_ms and config.message_timestamp_type is TimestampType.CREATE_TIME:
            raise InvalidTimestampError(
                f"a record is stamped {header.max_timestamp_ms - now_ms} ms ahead of the gateway; the topic takes"
                f" {config.message_timestamp_after_max_ms} (message.timestamp.after.max.ms)"
            ).with_bound(latest_ms)

    def _check_generation(self, item: Append) -> None:
        """Raise StaleGenerationError if a batch was routed by another generation than the topic's."""
        current = self._topics.generation(item.topic_id)
        if item.generation == current:
            return
        item.close_fence(current)
        raise StaleGenerationError(
            f"records were routed by generation {item.generation} of the topic, which is at {current};"
            " describe the topic and route them again"
        )

    def _check_fence(self, item: Append) -> None:
        """Raise StaleGenerationError if an earlier batch of the same origin was refused, and this one came without
        knowing that."""
        if item.fence is not None and not item.fence.lets_through(item.topic_id, item.known_generation):
            item.close_fence(item.generation)
            raise StaleGenerationError(
                "earlier records of the same stream or request were refused, because they were routed by an old "
                "generation of the topic; describe the topic, send the earlier records again, then these"
            )

    async def init_producer_id(self, producer_id: int = -1, producer_epoch: int = -1) -> tuple[int, int]:
        async def attempt() -> tuple[int, int]:
            answer = await self._link.ask_any(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None))
            check(answer.error_code, "InitProducerId")
            return answer.producer_id, answer.producer_epoch

        return await self._link.persist(attempt, seconds=INIT_SECONDS)

    # --- reads -------------------------------------------------------------------------------------------------------

    async def read(self, reads: Sequence[Read]) -> list[ReadResult | LogbrokerError]:
        wishes: list[tuple[RemotePartition, Read]] = []
        results: list[ReadResult | LogbrokerError | None] = []
        for wish in reads:
            try:
                partition = self._topics.partition(wish.topic_id, wish.partition)
                if partition.log_start_offset <= wish.offset == partition.high_watermark:
                    results.append(_nothing(partition))
                    continue
                wishes.append((partition, wish))
                results.append(None)
            except LogbrokerError as error:
                results.append(error.as_value())
        found = iter(await self._reader.read(wishes) if wishes else ())
        return [next(found) if each is None else each for each in results]

    def watch(self, wake: Callable[[], None]) -> Watch:
        return ClusterWatch(lambda key: self._topics.partition(*key), wake, self._follower.follow)

    def hold(self, topic_id: TopicId, holder: Holder) -> None:
        self.retention.hold(topic_id, holder)

    def release(self, topic_id: TopicId, holder: Holder) -> None:
        self.retention.release(topic_id, holder)

    def start_retention(self) -> None:
        """Retention is the cluster's, and never stops."""

    def stop_retention(self) -> None:
        """Retention is the cluster's, and never stops."""

    async def offset_for_time(self, topic_id: TopicId, partition: int, timestamp_ms: int) -> FoundOffset:
        return await self._offsets.find(self._topics.partition(topic_id, partition), max(timestamp_ms, 0))

    async def offset_for_latest_time(self, topic_id: TopicId, partition: int) -> FoundOffset:
        return await self._offsets.find(self._topics.partition(topic_id, partition), LATEST_TIME)

    async def close(self) -> None:
        await self._follower.close()


def _nothing(partition: RemotePartition) -> ReadResult:
    """Return the result of a read at the high watermark."""
    end = partition.high_watermark
    return ReadResult(b"", end, end, partition.log_start_offset, partition.leader_epoch)


def _outcome(done: asyncio.Future[Appended]) -> Appended | LogbrokerError:
    error = done.exception()
    if error is None:
        return done.result()
    if isinstance(error, LogbrokerError):
        return error.as_value()
    raise error
