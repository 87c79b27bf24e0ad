"""Upkeep of the engine in the background: recovery points and retention, each at times of its own."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from logbroker.broker.local_engine.disk_space import DiskSpace
from logbroker.broker.local_engine.helpers import Helpers
from logbroker.broker.local_engine.partition import Partition
from logbroker.broker.local_engine.partition_table import PartitionTable
from logbroker.broker.local_engine.topic_rows import partition_row_key
from logbroker.clock import Clock
from logbroker.config import MAX_INT64, MIB, BrokerConfig
from logbroker.engine import Holder
from logbroker.errors import CorruptLogError, DiskFullError, OverloadedError, TooManyOpenFilesError
from logbroker.storage.metadata.metadata_store import MetadataStore, Write
from logbroker.storage.partition_checkpoint import PartitionCheckpoint, encode_checkpoint
from logbroker.storage.segment import Segment
from logbroker.types import TopicId

_log = logging.getLogger(__name__)

MAX_LAG_BYTES: Final = 256 * MIB
MAX_LAG_BATCHES: Final = 200_000
"""Maximum number of batches after the recovery points, in all partitions together: a restart has to scan them."""
_ASK_SHARE: Final = 1 / 8
"""Share of MAX_LAG_BYTES or MAX_LAG_BATCHES at which recovery points are requested."""
_ASK_BYTES_OF_PARTITION: Final = 128 * 1024
"""At `_ASK_SHARE`, recovery points are requested only if the changed partitions got at least this many bytes each, on
average: each recovery point costs a sync."""
_FIRST_APPEND_BYTES: Final = 16 * 1024
"""Bytes that the files of a partition take on disk besides its records, counted at its first change after each
checkpoint."""


class Upkeep:
    """Stores recovery points every few seconds, or sooner after many appends, and applies retention.

    While MAX_LAG_BYTES or MAX_LAG_BATCHES is reached, appends wait in order.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        store: MetadataStore,
        partitions: PartitionTable,
        helpers: Helpers,
        disk: DiskSpace,
        check_in_place: Callable[[], None],
    ) -> None:
        """`check_in_place` raises StorageFailedError if the path of the data directory now leads to another
        directory."""
        self._config = config
        self._clock = clock
        self._store = store
        self._partitions = partitions
        self.disk = disk
        self._helpers = helpers
        self._check_in_place = check_in_place
        self._changed: set[Partition] = set()
        self._lag_bytes = 0
        self._lag_batches = 0
        self._due = asyncio.Event()
        self._queue: deque[asyncio.Future[None]] = deque()
        self._storing = asyncio.Lock()
        """Held from the making of checkpoints until they are stored, so that none replaces a newer one."""
        self._retention_begins = asyncio.Event()
        self._has_stopped = False
        """Whether records may be removed no more."""
        self._holders: dict[TopicId, list[Holder]] = {}

    def start_retention(self) -> None:
        """Apply retention from now on; all holders must be registered (`hold`)."""
        self._retention_begins.set()

    def stop_retention(self) -> None:
        """Remove no records any more: holders are released from now on, and still need theirs after the next start."""
        self._has_stopped = True

    def hold(self, topic_id: TopicId, holder: Holder) -> None:
        self._holders.setdefault(topic_id, []).append(holder)

    def release(self, topic_id: TopicId, holder: Holder) -> None:
        holders = self._holders[topic_id]
        holders.remove(holder)
        if not holders:
            del self._holders[topic_id]

    @property
    def must_wait(self) -> bool:
        """Whether an append must `wait_turn` first: a limit is reached, or other appends already wait."""
        return bool(self._queue) or self._lag_bytes >= MAX_LAG_BYTES or self._lag_batches >= MAX_LAG_BATCHES

    async def wait_turn(self) -> None:
        """Wait until the lag of the recovery points is below its limits. Waiting appends go on in the order in which
        they came."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        self._due.set()
        try:
            await turn
        finally:
            self._queue.remove(turn)
            self._release_next()

    def appended(self, partitions: Sequence[Partition], size_bytes: int, batches: int) -> None:
        """Count appended bytes and batches. Requests recovery points early: the less they lag, the shorter is a
        restart."""
        known = len(self._changed)
        self._changed.update(partitions)
        self._lag_bytes += size_bytes
        self._lag_batches += batches
        begun = len(self._changed) - known
        self.disk.take(size_bytes + _FIRST_APPEND_BYTES * begun)
        self._partitions.limit_producers(self._config.max_producers)
        lag = max(self._lag_bytes / MAX_LAG_BYTES, self._lag_batches / MAX_LAG_BATCHES)
        if lag >= 0.5 or (lag >= _ASK_SHARE and self._lag_bytes >= len(self._changed) * _ASK_BYTES_OF_PARTITION):
            self._due.set()

    async def run_checkpoints(self) -> None:
        """Store recovery points until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._config.checkpoint_seconds):
                    await self._due.wait()
            except TimeoutError:
                pass
            self._check_in_place()
            self.disk.measure()
            try:
                await self.checkpoint()
            except OverloadedError as error:
                _log.warning("recovery points have to wait: %s", error)

    async def run_retention(self) -> None:
        """Apply retention until cancelled. Checkpoints go on meanwhile, because appends wait for them, and it may take
        long to remove files."""
        await self._retention_begins.wait()
        while True:
            await asyncio.sleep(self._config.retention_check_seconds)
            self._check_in_place()
            try:
                await self.apply_retention()
            except OverloadedError as error:
                _log.warning("retention has to wait: %s", error)

    async def checkpoint(self) -> None:
        """Sync the changed partitions, and store their recovery points in one transaction."""
        self._due.clear()
        partitions, self._changed = self._changed, set()
        lag_bytes, lag_batches = self._lag_bytes, self._lag_batches
        try:
            await self._store_recovery_points(partitions)
        except BaseException:
            # A stop cancels this call. The last checkpoint of the stop must cover these partitions, too.
            self._changed |= partitions
            raise
        self._lag_bytes -= lag_bytes
        self._lag_batches -= lag_batches
        self._release_next()

    async def _store_recovery_points(self, partitions: set[Partition]) -> None:
        async with self._storing:
            await self._store_checkpoints([partition for partition in partitions if not partition.closed])

    async def _store_checkpoints(self, live: Sequence[Partition]) -> None:
        checkpoints = await asyncio.gather(*(partition.checkpoint() for partition in live))
        keys = [partition_row_key(*partition.key) for partition in live]
        # Each batch may be from a different producer: that is too many rows to encode on the event loop.
        encoded = await self._helpers.change(lambda: list(map(encode_checkpoint, keys, checkpoints)))
        writes: list[Write] = []
        for partition, rows in zip(live, encoded, strict=True):
            if not partition.closed:
                writes += rows
        if writes:
            await asyncio.wrap_future(self._store.submit(writes))
        for partition, checkpoint in zip(live, checkpoints, strict=True):
            partition.log.stored(checkpoint)

    async def apply_retention(self) -> None:
        """Remove expired segments. The new log start offset is durable before a file is removed."""
        now_ms = self._clock.wall_ms()
        for partition in self._partitions:
            start_offset = self._start_wanted(partition, now_ms)
            if start_offset == partition.log.log_start_offset:
                continue
            async with partition.removing:
                if not partition.closed:
                    await self._remove_below(partition, start_offset)

    def _start_wanted(self, partition: Partition, now_ms: int) -> int:
        """Return the offset at which the log of a partition may begin. Ask holders that need expired records to release
        them."""
        start_offset, wanted_offset = partition.log.expired_segments(now_ms, self.needed_from(partition))
        self.ask(partition, wanted_offset)
        return start_offset

    def needed_from(self, partition: Partition) -> int:
        """Return the first offset that a holder needs."""
        if self._has_stopped:
            return 0
        topic_id, number = partition.key
        return min((holder.needed_from(number) for holder in self._holders.get(topic_id, ())), default=MAX_INT64)

    def ask(self, partition: Partition, offset: int) -> list[Awaitable[None]]:
        """Ask the holders that need records below an offset to release them. Return the releases that were begun."""
        topic_id, number = partition.key
        needy = [holder for holder in self._holders.get(topic_id, ()) if holder.needed_from(number) < offset]
        attempts = [holder.let_go(number, offset) for holder in needy]
        return [attempt for attempt in attempts if attempt is not None]

    async def _remove_below(self, partition: Partition, start_offset: int) -> None:
        log = partition.log
        async with self._storing:
            checkpoint: PartitionCheckpoint | None = await partition.checkpoint()
            # A group that began or was rewound meanwhile needs these records.
            start_offset = min(start_offset, self._start_wanted(partition, self._clock.wall_ms()))
            if start_offset == log.log_start_offset:
                return
            if start_offset == log.log_end_offset:
                # All records expire, so the log goes on in an empty segment.
                checkpoint = await self._in_new_segment(partition)
            if checkpoint is None:
                return
            taken = await self._raise_start(partition, start_offset, checkpoint)
        await self._remove_files(partition, taken)
        _log.info("retention: %s now starts at offset %d", partition.name, start_offset)

    async def delete_below(self, partition: Partition, offset: int) -> None:
        """Raise the log start durably to an offset, or to the first one that a holder needs if that is lower. The log
        must be readable up to `offset`. If the new log start lies within a segment, the file of the segment stays."""
        log = partition.log
        async with partition.removing:
            if partition.closed:
                return
            async with self._storing:
                checkpoint = await partition.checkpoint()
                offset = min(offset, self.needed_from(partition))
                if offset <= log.log_start_offset:
                    return
                if offset == log.log_end_offset:
                    # Without a new segment, the records are deleted as well; only their file stays.
                    checkpoint = await self._in_new_segment(partition) or checkpoint
                taken = await self._raise_start(partition, offset, checkpoint)
            await self._remove_files(partition, taken)
        _log.info("records were deleted: %s now starts at offset %d", partition.name, offset)

    async def _in_new_segment(self, partition: Partition) -> PartitionCheckpoint | None:
        """Begin an empty segment, and return a checkpoint of the log; None: no segment can be begun now. All records of
        the log must be synced."""
        log = partition.log
        try:
            log.begin_segment(self._clock.wall_ms())
            checkpoint = log.checkpoint()
            await self._helpers.change(log.sync_directory)
        except (CorruptLogError, DiskFullError, TooManyOpenFilesError) as error:
            _log.warning("the files of %s stay for now: %s", partition.name, error)
            return None
        return checkpoint

    async def _raise_start(
        self, partition: Partition, start_offset: int, checkpoint: PartitionCheckpoint
    ) -> list[Segment]:
        """Raise the log start to an offset durably. Return the segments whose files can be removed now."""
        checkpoint.log_start_offset = start_offset
        writes = encode_checkpoint(partition_row_key(*partition.key), checkpoint)
        await asyncio.wrap_future(self._store.submit(writes))
        partition.log.stored(checkpoint)
        taken = partition.log.advance_log_start(start_offset)
        topic_id, number = partition.key
        for holder in self._holders.get(topic_id, ()):
            holder.removed(number)
        return taken

    async def _remove_files(self, partition: Partition, taken: list[Segment]) -> None:
        # This removal does not queue behind the files of deleted topics (`Helpers.remove`), because checkpoints wait
        # for it, and appends wait for checkpoints.
        await self._helpers.change(lambda: partition.log.remove_files(taken))

    def _release_next(self) -> None:
        if self._queue and self._lag_bytes < MAX_LAG_BYTES and self._lag_batches < MAX_LAG_BATCHES:
            turn = self._queue[0]
            if not turn.done():
                turn.set_result(None)
