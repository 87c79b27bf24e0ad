"""The lanes that have copies: their later records are copied too, until all copies of the lane are done.

Before records of stalled lanes are deleted, by retention or on request, a queue group copies these records to an
internal topic (`copies`). A lane that an operator resumed is no longer stalled, but its workers need time for the
copied records. If later records of the lane were deleted in this time without a copy, the lane would skip them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set

from logbroker.errors import CorruptBatchError, CorruptLogError
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import Ordering, QueueGroupSettings
from logbroker.queues.model.splits import Keying
from logbroker.queues.records.columns import lane_key_of
from logbroker.queues.retention.copies import Copies, CopyBatch
from logbroker.queues.state.completion import DoneRecords
from logbroker.record.codec import LogRecord


class CopiedLanes:
    """Tracks the lanes with copies that are not done. Copies that an earlier run of the broker made are read at the
    first call.

    Used by one task.
    """

    def __init__(self, copies: Copies, done: DoneRecords) -> None:
        self._copies = copies
        self._done = done
        self._keyed_by: Keying | None = None
        """Keying that the keys below were read with; None: the keys are not known."""
        self._lasts: dict[int, dict[bytes, int]] = {}
        """Id of the last copied record, by partition and key. Records of a lane are done in order: when this one is
        done, all earlier ones are."""
        self._record_ids: dict[int, Set[int]] = {}
        """Result of the last call of `record_ids`, by partition. Some of these copies may have been removed since."""

    async def keys(self, settings: QueueGroupSettings, keying: Keying, partitions: int) -> Set[bytes]:
        """Return the keys of the lanes with copies that are not done. Damaged copies are skipped. Raises any other
        error that prevents reading the copies."""
        if settings.ordering is Ordering.NONE:
            return frozenset()
        if self._keyed_by is not keying:
            self._lasts = {}
            self._keyed_by = keying  # Set before the reads: a rewind during them resets it.
            try:
                for partition in range(partitions):
                    for last, batch in self._copies.batches(partition, self._copies.floor(partition)):
                        await self.saw(partition, await self._read(partition, last, batch), settings, keying)
            except BaseException:
                self._keyed_by = None
                raise
        self._lasts = await asyncio.to_thread(_not_done, self._lasts, self._done)
        return await asyncio.to_thread(set[bytes]().union, *self._lasts.values())

    async def saw(
        self, partition: int, records: Sequence[LogRecord], settings: QueueGroupSettings, keying: Keying
    ) -> None:
        """Note copied records, in the order of their offsets. They stay noted even if their copies are removed later.
        Then more is copied than needed, which does no harm."""
        if settings.ordering is Ordering.NONE:
            return
        # There may be millions of records, or long keys to hash.
        lasts = await asyncio.to_thread(_lasts_of, partition, records, settings, keying)
        self._lasts.setdefault(partition, {}).update(lasts)

    def rewound(self) -> None:
        """Forget the known keys after a rewind: records that were done may be due again."""
        self._keyed_by = None

    async def record_ids(self, partition: int, offset: int) -> Set[int]:
        """Return the ids of the records at or after `offset` that are not done and are copied now, or were copied at
        the last call. Raises the errors of `keys`."""
        begin, done = record_id_of(partition, offset), self._done

        def left_of(record_ids: Iterable[int]) -> set[int]:
            return {record_id for record_id in record_ids if record_id >= begin and record_id not in done}

        left = await asyncio.to_thread(left_of, self._record_ids.get(partition, ()))
        for last, batch in self._copies.batches(partition, offset):
            records = await self._read(partition, last, batch)
            left |= await asyncio.to_thread(left_of, [record_id_of(partition, record.offset) for record in records])
        self._record_ids[partition] = left
        return left

    async def _read(self, partition: int, last: int, batch: CopyBatch) -> list[LogRecord]:
        """Return the records of a batch of copies. Return none if the batch is damaged; the scan reports the damage."""
        try:
            return await self._copies.read(partition, last, batch)
        except (CorruptLogError, CorruptBatchError):
            return []


def _lasts_of(
    partition: int, records: Sequence[LogRecord], settings: QueueGroupSettings, keying: Keying
) -> dict[bytes, int]:
    keys = ((lane_key_of(record, settings, keying, partition), record.offset) for record in records)
    return {key: record_id_of(partition, offset) for key, offset in keys if key is not None}


def _not_done(lasts: Mapping[int, Mapping[bytes, int]], done: DoneRecords) -> dict[int, dict[bytes, int]]:
    return {
        partition: {key: record_id for key, record_id in of_keys.items() if record_id not in done}
        for partition, of_keys in lasts.items()
    }
