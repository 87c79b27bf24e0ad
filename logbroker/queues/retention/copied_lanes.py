"""The lanes that have records among a group's copies still: what follows in them is copied too, until they caught up.

A lane that an operator lets go on stands no more, but it takes its time over what was copied. Were the rest of it to go
with the log meanwhile, the lane would go on over a hole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set

from logbroker.errors import CorruptBatchError, CorruptLogError
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import Ordering, QueueGroupSettings
from logbroker.queues.records.columns import lane_key_of
from logbroker.queues.retention.copies import Copies, CopyBatch
from logbroker.queues.state.completion import DoneRecords
from logbroker.record.codec import LogRecord


class CopiedLanes:
    """Knows of which lanes there are copies that are not done. What a broker before copied is read when first asked.

    Asked and told by one task.
    """

    def __init__(self, copies: Copies, done: DoneRecords) -> None:
        self._copies = copies
        self._done = done
        self._keyed_by: tuple[Ordering, str] | None = None
        """What the keys below depend on; None: they are not known."""
        self._lasts: dict[int, dict[bytes, int]] = {}
        """By partition and key, the id of the last record that was copied: those of a lane are done in order."""
        self._record_ids: dict[int, Set[int]] = {}
        """By partition, records that were copied of what the log still has; the copies may be forgotten since."""

    async def keys(self, settings: QueueGroupSettings, partitions: int) -> Set[bytes]:
        """Return the keys of these lanes. Raises what hinders reading the copies, but for damage."""
        keyed_by = settings.ordering, settings.key_header
        if settings.ordering is Ordering.NONE:
            return frozenset()
        if self._keyed_by != keyed_by:
            self._lasts = {}
            self._keyed_by = keyed_by  # A rewind meanwhile takes it away again.
            try:
                for partition in range(partitions):
                    for _, batch in self._copies.batches(partition, self._copies.floor(partition)):
                        await self.saw(partition, await self._read(partition, batch), settings)
            except BaseException:
                self._keyed_by = None
                raise
        self._lasts = await asyncio.to_thread(_not_done, self._lasts, self._done)
        return await asyncio.to_thread(set[bytes]().union, *self._lasts.values())

    async def saw(self, partition: int, records: Sequence[LogRecord], settings: QueueGroupSettings) -> None:
        """Take note of records that were copied, in the order of their offsets. They count also where these copies are
        forgotten again, which is on the safe side."""
        if settings.ordering is Ordering.NONE:
            return
        # By the million, or with long keys that are hashed.
        lasts = await asyncio.to_thread(_lasts_of, partition, records, settings)
        self._lasts.setdefault(partition, {}).update(lasts)

    def rewound(self) -> None:
        """What was done may have to be done again."""
        self._keyed_by = None

    async def record_ids(self, partition: int, offset: int) -> Set[int]:
        """The records from an offset on that are copied, or were when last asked, and not done. Raises as `keys`."""
        begin, done = record_id_of(partition, offset), self._done

        def left_of(record_ids: Iterable[int]) -> set[int]:
            return {record_id for record_id in record_ids if record_id >= begin and record_id not in done}

        left = await asyncio.to_thread(left_of, self._record_ids.get(partition, ()))
        for _, batch in self._copies.batches(partition, offset):
            records = await self._read(partition, batch)
            left |= await asyncio.to_thread(left_of, [record_id_of(partition, record.offset) for record in records])
        self._record_ids[partition] = left
        return left

    async def _read(self, partition: int, batch: CopyBatch) -> list[LogRecord]:
        """Return the records of a batch of copies; none where it is damaged, which the scan tells."""
        try:
            return await self._copies.read(partition, batch)
        except (CorruptLogError, CorruptBatchError):
            return []


def _lasts_of(partition: int, records: Sequence[LogRecord], settings: QueueGroupSettings) -> dict[bytes, int]:
    keys = ((lane_key_of(record, settings), record.offset) for record in records)
    return {key: record_id_of(partition, offset) for key, offset in keys if key is not None}


def _not_done(lasts: Mapping[int, Mapping[bytes, int]], done: DoneRecords) -> dict[int, dict[bytes, int]]:
    return {
        partition: {key: record_id for key, record_id in of_keys.items() if record_id not in done}
        for partition, of_keys in lasts.items()
    }
