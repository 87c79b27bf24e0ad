"""Admission into the queue: records that the scan reads, and blocks of an earlier scan from the index cache."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from logbroker.errors import LogbrokerError
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.record_id import Moment
from logbroker.queues.model.settings import OnUndecodable, Ordering
from logbroker.queues.records.batch_cache import ENTRY_BYTES
from logbroker.queues.records.columns import Columns, Undecodable
from logbroker.queues.records.decoder import in_decoder
from logbroker.queues.records.fetch import Records
from logbroker.queues.scan.index_cache.cache import IndexCache
from logbroker.queues.scan.poison_batch import admit_undecodable

_log = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.005
"""Time after which the admission of blocks yields to other tasks. Most blocks take microseconds. A block that must be
read, for instance because it has gaps or records with stored state, takes milliseconds."""


class Admitter:
    """Admits records into one queue, in the generation of the topic that the queue is in."""

    def __init__(
        self, queue: Queue, records: Records, index_cache: IndexCache | None, moment: Callable[[], Moment]
    ) -> None:
        self._begun = self._turn_begun = monotonic()
        self._is_made = False
        self._blocks = 0
        """Blocks that were taken from the index cache since the index was begun."""
        self._queue = queue
        self._records = records
        self._index_cache = index_cache
        self._moment = moment

    def admit(self, partition: int, columns: Columns) -> None:
        """Admit columns of records that were read."""
        queue, records = self._queue, self._records
        position, ready_before = queue.position(partition), queue.lanes.ready_records
        self._admit(partition, columns, columns.batches[0].header.max_timestamp_ms if columns.batches else -1)
        if self._index_cache is not None:
            self._index_cache.gather(partition, queue.admission.generation, position, columns)
        # Records that are ready at once are handed out soon, unless many are ready before them.
        ready = queue.lanes.ready_records
        size_bytes = sum(len(batch.raw) + ENTRY_BYTES for batch in columns.batches)
        if ready > ready_before and ready * size_bytes <= len(columns.offsets) * records.batches.cache.max_bytes // 2:
            for batch in columns.batches:
                records.keep(partition, batch)

    def admit_undecodable(self, partition: int, found: Undecodable) -> LogbrokerError | None:
        """Admit a batch as a dead letter; return its error, or None if it was admitted before. Raises the error if the
        settings demand that the partition stops instead."""
        header = found.batch.header
        if self._queue.settings.on_undecodable is OnUndecodable.STOP:
            raise found.error.anew()
        if header.next_offset <= self._queue.position(partition):
            return None
        admit_undecodable(self._queue, partition, self._queue.admission.generation, header, found.error, self._moment())
        return found.error

    # --- blocks of an earlier scan -----------------------------------------------------------------------------------

    async def load(self) -> None:
        """Load the blocks of an earlier scan. Call it before the index is begun for the first time."""
        if self._index_cache is not None:
            await self._index_cache.load()

    def begin_index(self) -> None:
        """Note that the index is empty, and all records will be admitted again."""
        self._begun = monotonic()
        self._is_made = False
        self._blocks = 0
        if self._index_cache is not None:
            self._index_cache.begin_index()

    def index_is_made(self, partitions: int) -> None:
        """Log that the index is complete: everything that was readable when it was begun is admitted."""
        if not self._is_made and self._index_cache is not None and self._queue.settings.has_priorities:
            name, took_ms = self._index_cache.group_id, 1000 * (monotonic() - self._begun)
            text = "queue group %s: index of %d partitions rebuilt in %.1f ms, with %d blocks that were kept"
            _log.info(text, name, partitions, took_ms, self._blocks)
        self._is_made = True

    async def take_up(self, partition: int) -> bool:
        """Admit the blocks of a partition that follow its position; return whether the blocks reach the end of the
        partition."""
        queue = self._queue
        generation = queue.admission.generation
        while queue.admission.generation == generation:
            if monotonic() - self._turn_begun > TURN_SECONDS:
                await asyncio.sleep(0)
                self._turn_begun = monotonic()
                continue
            position = queue.position(partition)
            block = (
                self._index_cache.block_at(partition, generation, position) if self._index_cache is not None else None
            )
            if block is None or not queue.wants_more:
                break
            if queue.settings.ordering is Ordering.NONE:
                if not queue.admit_block(partition, generation, block, self._moment()):
                    break
            else:
                keying = queue.splitting.scan_keying
                columns = await in_decoder(block.load)
                if columns is None or keying is not queue.splitting.scan_keying:
                    break
                if (generation, position) != (queue.admission.generation, queue.position(partition)):
                    break
                self._admit(partition, columns, columns.times[0] if columns.times else -1)
            self._blocks += 1
            if block.is_last:
                return True
        return False

    def _admit(self, partition: int, columns: Columns, timestamp_ms: int) -> None:
        self._queue.admit(
            partition,
            self._queue.admission.generation,
            columns.offsets,
            columns.next_offset,
            columns.keys,
            columns.not_before,
            self._moment(),
            timestamp_ms,
            columns.priorities,
            columns.times,
        )
