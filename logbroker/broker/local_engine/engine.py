"""The log engine: appends, reads and lookups over the partitions of this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from logbroker.broker.catalog import Catalog
from logbroker.broker.local_engine.disk_space import FILES_OF_SEGMENT
from logbroker.broker.local_engine.failure import StorageFailure
from logbroker.broker.local_engine.helpers import Helpers
from logbroker.broker.local_engine.partition import Partition, Pending
from logbroker.broker.local_engine.partition_table import PartitionTable
from logbroker.broker.local_engine.producer_ids import ProducerIds
from logbroker.broker.local_engine.record_deletion import RecordDeletion
from logbroker.broker.local_engine.topic_changes import TopicChanges
from logbroker.broker.local_engine.upkeep import Upkeep
from logbroker.broker.local_engine.watch import LocalWatch
from logbroker.clock import Clock
from logbroker.config import BrokerConfig
from logbroker.engine import (
    UP_TO_HIGH_WATERMARK,
    Append,
    Appended,
    DiskUse,
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
    DiskFullError,
    InvalidTimestampError,
    LogbrokerError,
    OffsetOutOfRangeError,
    OverloadedError,
    RecordTooLargeError,
    StaleGenerationError,
    StorageFailedError,
    UnknownProducerIdError,
)
from logbroker.record.header import BatchHeader, check_new_batch
from logbroker.storage.partition_checkpoint import boot_id
from logbroker.storage.partition_log import Staged
from logbroker.types import INTERNAL_PREFIX, Durability, TimestampType, TopicId

_log = logging.getLogger(__name__)


class LocalEngine:
    """The `logbroker.engine.LogEngine` of this process. Everything runs on one event loop, except the file work.

    Made by `logbroker.broker.local_engine.lifetime.open_engine`, which also closes the parts that it passes in.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        catalog: Catalog,
        partitions: PartitionTable,
        changes: TopicChanges,
        producer_ids: ProducerIds,
        upkeep: Upkeep,
        deletion: RecordDeletion,
        helpers: Helpers,
        failure: StorageFailure,
    ) -> None:
        self._clock = clock
        self._catalog = catalog
        self.topic_by_id: Callable[[TopicId], Topic] = self._catalog.by_id
        self._partitions = partitions
        self._changes = changes
        self._producer_ids = producer_ids
        self._upkeep = upkeep
        self._deletion = deletion
        self._helpers = helpers
        self._indexing: dict[Partition, asyncio.Future[None]] = {}
        """Partitions whose active segment has lost its index. A thread is making it anew, or has failed to."""
        self._failure = failure
        self._max_bytes_in_flight = config.max_produce_bytes_in_flight
        self._bytes_in_flight = 0

    # --- topics ---

    @property
    def boot_id(self) -> str:
        return boot_id()

    def topics(self) -> Sequence[Topic]:
        return self._catalog.all()

    def topic(self, name: str) -> Topic:
        return self._catalog.by_name(name)

    def on_topics_changed(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        self._catalog.listeners.append(listener)
        return lambda: self._catalog.listeners.remove(listener)

    def on_growth(self, check: Callable[[Topic], None]) -> Callable[[], None]:
        self._changes.growth_checks.append(check)
        return lambda: self._changes.growth_checks.remove(check)

    async def create_topic(
        self, name: str, partitions: int | None, overrides: Mapping[str, str], *, plan: TopicPlan | None = None
    ) -> Topic:
        use = DiskUse.USES_RESERVE if name.startswith(INTERNAL_PREFIX) else DiskUse.TAKES_ROOM
        self._upkeep.disk.check(0, use)
        return await self._changes.create(name, partitions, overrides, plan=plan, use=use)

    async def delete_topic(self, topic_id: TopicId) -> Topic:
        return await self._changes.delete(topic_id)

    async def alter_topic(
        self,
        topic_id: TopicId,
        *,
        partitions: int | None = None,
        set_configs: Mapping[str, str] | None = None,
        unset_configs: Sequence[str] = (),
        plan: TopicPlan | None = None,
    ) -> Topic:
        if partitions is not None:
            self._upkeep.disk.check()
        return await self._changes.alter(topic_id, partitions, set_configs or {}, unset_configs, plan=plan)

    async def pin(self, topic_id: TopicId) -> Topic:
        return await self._changes.pins.pin(topic_id)

    def unpin(self, topic_id: TopicId) -> None:
        self._changes.pins.unpin(topic_id)

    is_sole_writer = True
    partitions_per_read = 1
    waits_for_holders = True
    durability = ""

    async def learn_ends(self, topic_id: TopicId, partitions: Sequence[int]) -> Mapping[int, LogbrokerError]:
        return {}  # The facts are always up to date.

    def partition_facts(self, topic_id: TopicId, partition: int) -> PartitionFacts:
        log = self._partitions.get(topic_id, partition).log
        return PartitionFacts(
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            log_end_offset=log.log_end_offset,
            leader_epoch=log.leader_epoch,
            size_bytes=log.size_bytes,
            segments=log.segment_count,
            damage=log.damage,
            cut_bytes=log.cut_bytes,
            cut_offset=log.cut_offset,
        )

    def producers(self, topic_id: TopicId, partition: int) -> list[ProducerFacts]:
        return self._partitions.get(topic_id, partition).log.producers()

    def end_of_epoch(self, topic_id: TopicId, partition: int, leader_epoch: int) -> tuple[int, int] | None:
        return self._partitions.get(topic_id, partition).log.end_of_epoch(leader_epoch)

    async def delete_records(self, topic_id: TopicId, partition: int, before_offset: int) -> int:
        found = self._partitions.get(topic_id, partition)
        log = found.log
        offset = log.high_watermark if before_offset == UP_TO_HIGH_WATERMARK else before_offset
        if not 0 <= offset <= log.high_watermark:
            raise OffsetOutOfRangeError(
                f"records of {found.name} cannot be deleted below offset {offset}: give an offset from 0 to"
                f" {log.high_watermark}, the high watermark"
            )
        await self._deletion.delete_below(found, offset)
        self._partitions.get(topic_id, partition)  # The topic may have been deleted meanwhile.
        return log.log_start_offset

    # --- appends ---

    async def append(
        self, appends: Sequence[Append], durability: Durability | None = None
    ) -> list[Appended | LogbrokerError]:
        if self._upkeep.must_wait and appends:
            waiting_bytes = sum(len(item.batch) for item in appends)
            try:
                self._check_room(0, waiting_bytes, appends[0].use)
            except (DiskFullError, OverloadedError) as error:
                return [error.as_value()] * len(appends)
            self._bytes_in_flight += waiting_bytes
            try:
                await self._upkeep.wait_turn()
            finally:
                self._release(waiting_bytes)
        failed = self._failure.error
        if failed is not None:
            return [failed] * len(appends)
        # No await from here to the writing: the order of the calls is the order of the offsets.
        now_ms = self._clock.wall_ms()
        touched: list[Partition] = []
        results: list[Appended | LogbrokerError] = []
        accepted_bytes = batches = 0
        for item in appends:
            size_bytes = len(item.batch)
            room_bytes = size_bytes if item.room_bytes < 0 else item.room_bytes
            if not item.room_bytes and isinstance(results[-1], LogbrokerError):
                results.append(results[-1])
                continue
            try:
                if item.room_bytes:
                    self._check_room(accepted_bytes, room_bytes, item.use)
                partition = self._partitions.get(item.topic_id, item.partition)
                found = self._append_one(item, partition, now_ms)
            except StorageFailedError as error:
                results.append(self._failure.report(error))
                continue
            except LogbrokerError as error:
                results.append(error.as_value())
                continue
            log = partition.log
            results.append(
                Appended(
                    found.base_offset, found.log_append_time_ms, log.log_start_offset, log.leader_epoch, found.duplicate
                )
            )
            accepted_bytes += size_bytes
            batches += 1
            if not touched or touched[-1] is not partition:
                touched.append(partition)
        self._upkeep.appended(touched, accepted_bytes, batches)
        late = [partition for partition in touched if not partition.commit(durability)]
        if late:
            # The bytes count as in flight until they are written, even if the caller is cancelled.
            self._bytes_in_flight += accepted_bytes
            pending = Pending(lambda: self._release(accepted_bytes))
            for partition in late:
                partition.expect(durability, pending)
            await pending.wait()
        # After a failure nothing is acknowledged, even if this call's own partitions succeeded.
        failed = self._failure.error
        return results if failed is None else [failed if isinstance(each, Appended) else each for each in results]

    def _check_room(self, accepted_bytes: int, size_bytes: int, use: DiskUse) -> None:
        waiting_bytes = self._bytes_in_flight + accepted_bytes
        self._upkeep.disk.check(waiting_bytes + size_bytes, use, FILES_OF_SEGMENT)  # It may begin a segment.
        if waiting_bytes and waiting_bytes + size_bytes > self._max_bytes_in_flight:
            raise OverloadedError(
                f"{waiting_bytes} bytes wait to be written; the limit is {self._max_bytes_in_flight}"
                " (max_produce_bytes_in_flight); try again shortly"
            )

    def _release(self, size_bytes: int) -> None:
        self._bytes_in_flight -= size_bytes

    def _append_one(self, item: Append, partition: Partition, now_ms: int) -> Staged:
        log = partition.log
        batch, config = item.batch, log.config
        header = check_new_batch(batch)
        if header.producer_id >= self._producer_ids.next:
            # Otherwise the first batches of the id's future owner would be taken for repeats of this one.
            raise UnknownProducerIdError(
                f"producer id {header.producer_id} was not handed out here; ask InitProducerId for one, and begin at "
                "sequence 0"
            )
        latest_ms = now_ms + config.message_timestamp_after_max_ms
        refusal: LogbrokerError
        if item.generation and (stale := self._stale(item)):
            refusal = stale
        elif len(batch) > config.max_message_bytes:
            refusal = RecordTooLargeError(
                f"the {'record makes a' if header.record_count == 1 else 'records make a'} batch of {len(batch)} bytes;"
                f" the topic takes {config.max_message_bytes} (max.message.bytes)"
            ).with_bound(config.max_message_bytes)
        elif header.max_timestamp_ms > latest_ms and config.message_timestamp_type is TimestampType.CREATE_TIME:
            refusal = InvalidTimestampError(
                f"a record is stamped {header.max_timestamp_ms - now_ms} ms ahead of the broker; the topic takes"
                f" {config.message_timestamp_after_max_ms} (message.timestamp.after.max.ms)"
            ).with_bound(latest_ms)
        else:
            return self._stage(partition, batch, header, now_ms, may_repeat=item.may_repeat)
        # A batch that was appended before stays a repeat, even if it would be refused now because the topic or the
        # clock has changed. If the log does not know whether it was appended, `is_retry` raises
        # ProducerForgottenError. The refusal would be wrong then: it would invite the sender to send the records again.
        if log.is_retry(header, may_repeat=item.may_repeat):
            return self._stage(partition, batch, header, now_ms)
        if isinstance(refusal, StaleGenerationError):
            item.close_fence(self._changes.generation(item.topic_id))
        raise refusal

    def _stage(
        self,
        partition: Partition,
        batch: bytes | memoryview,
        header: BatchHeader,
        now_ms: int,
        *,
        may_repeat: bool = False,
    ) -> Staged:
        try:
            return partition.log.stage(batch, header, now_ms, may_repeat=may_repeat)
        except BlockingIOError:
            raise self._no_index(partition) from None

    def _no_index(self, partition: Partition) -> LogbrokerError:
        """Let a thread make the index of a partition's active segment. Return the error for appends until it is
        made."""
        made = self._indexing.get(partition)
        if made is None:
            made = asyncio.ensure_future(self._helpers.read(partition.log.load_active))
            self._indexing[partition] = made
            made.add_done_callback(lambda made: self._index_made(partition, made))
        elif made.done() and isinstance(error := made.exception(), LogbrokerError):
            del self._indexing[partition]
            return error
        return OverloadedError(
            f"the index of {partition.name} was lost, and is made anew from the log before the next append; try again"
            " shortly"
        )

    def _index_made(self, partition: Partition, made: asyncio.Future[None]) -> None:
        error = None if made.cancelled() else made.exception()
        if not isinstance(error, LogbrokerError) or partition.closed:
            self._indexing.pop(partition, None)
            if isinstance(error, Exception) and not partition.closed:
                _log.error("the index of %s cannot be made, and is tried again: %r", partition.name, error)
        # A LogbrokerError stays in `_indexing`: the next append reports it.

    def _stale(self, item: Append) -> StaleGenerationError | None:
        current = self._changes.generation(item.topic_id)
        if item.generation != current:
            return StaleGenerationError(
                f"records were routed by generation {item.generation} of the topic, which is at {current};"
                " describe the topic and route them again"
            )
        if item.fence is not None and not item.fence.lets_through(item.topic_id, item.known_generation):
            return StaleGenerationError(
                "earlier records of the same stream or request were refused, because they were routed by an old "
                "generation of the topic; describe the topic, send the earlier records again, then these"
            )
        return None

    async def init_producer_id(self, producer_id: int = -1, producer_epoch: int = -1) -> tuple[int, int]:
        self._upkeep.disk.check()
        if producer_id == -1:
            return await self._producer_ids.new()
        return await self._producer_ids.raised(producer_id, producer_epoch)

    # --- reads ---

    async def read(self, reads: Sequence[Read]) -> list[ReadResult | LogbrokerError]:
        results: list[ReadResult | LogbrokerError] = []
        cold: list[int] = []
        for index, wish in enumerate(reads):
            try:
                results.append(self._read_one(wish, nowait=True))
            except LogbrokerError as error:
                results.append(error.as_value())
            except BlockingIOError:
                cold.append(index)
                results.append(_PLACEHOLDER)
        if cold:
            # Not in the page cache: the disk must not block the event loop.
            found = await asyncio.gather(
                *(self._helpers.read(partial(self._read_cold, reads[index])) for index in cold)
            )
            for index, result in zip(cold, found, strict=True):
                results[index] = result
        return results

    def _read_one(self, wish: Read, *, nowait: bool) -> ReadResult:
        log = self._partitions.get(wish.topic_id, wish.partition).log
        if wish.last_leader_epoch >= 0:
            log.check_leader_epoch(wish.last_leader_epoch, wish.offset)
        high_watermark = log.high_watermark
        chunk = log.read(wish.offset, wish.max_bytes, nowait=nowait, check_crc=wish.check_crc)
        return ReadResult(
            chunk.batches, chunk.next_offset, high_watermark, log.log_start_offset, log.leader_epoch, log.gaps_below
        )

    def _read_cold(self, wish: Read) -> ReadResult | LogbrokerError:
        try:
            return self._read_one(wish, nowait=False)
        except LogbrokerError as error:
            return error.as_value()

    def hold(self, topic_id: TopicId, holder: Holder) -> None:
        self._upkeep.hold(topic_id, holder)

    def release(self, topic_id: TopicId, holder: Holder) -> None:
        self._upkeep.release(topic_id, holder)

    def start_retention(self) -> None:
        """Apply retention from now on. After a start of the broker, call it only when every `Holder` is registered
        (`hold`)."""
        self._upkeep.start_retention()

    def stop_retention(self) -> None:
        """Remove no records any more. Call it before holders are released because the broker stops."""
        self._upkeep.stop_retention()

    def watch(self, wake: Callable[[], None]) -> Watch:
        return LocalWatch(self._partitions, wake)

    async def offset_for_time(self, topic_id: TopicId, partition: int, timestamp_ms: int) -> FoundOffset:
        log = self._partitions.get(topic_id, partition).log
        return await self._helpers.look_up(partial(log.offset_for_time, timestamp_ms))

    async def offset_for_latest_time(self, topic_id: TopicId, partition: int) -> FoundOffset:
        return await self._helpers.look_up(self._partitions.get(topic_id, partition).log.offset_for_latest_time)


_PLACEHOLDER = ReadResult(b"", 0, 0, 0, 0)
