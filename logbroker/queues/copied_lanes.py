"""The lanes that have records among a group's copies still: what follows in them is copied too, until they caught up.

A lane that an operator lets go on stands no more, but it takes its time over what was copied. Were the rest of it to go
with the log meanwhile, the lane would go on over a hole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set

from logbroker.errors import CorruptBatchError, CorruptLogError
from logbroker.queues.columns import lane_key_of
from logbroker.queues.copies import Copies, CopyBatch
from logbroker.queues.done import DoneRecords
from logbroker.queues.places import place_of
from logbroker.queues.settings import Ordering, QueueSettings
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
        """By partition and key, the place of the last record that was copied: those of a lane are done in order."""
        self._places: dict[int, list[int]] = {}
        """By partition, records that were copied of what the log still has; the copies may be forgotten since."""

    async def keys(self, settings: QueueSettings, partitions: int) -> Set[bytes]:
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
                        self.saw(partition, await self._read(partition, batch), settings)
            except BaseException:
                self._keyed_by = None
                raise
        lasts = self._lasts
        keys: set[bytes] = set()
        for partition in list(lasts):
            lasts[partition] = await asyncio.to_thread(_not_done, lasts[partition], self._done)
            keys.update(lasts[partition])
        return keys

    def saw(self, partition: int, records: Sequence[LogRecord], settings: QueueSettings) -> None:
        """Take note of records that were copied, in the order of their offsets. They count also where these copies are
        forgotten again, which is on the safe side."""
        if settings.ordering is Ordering.NONE:
            return
        lasts = self._lasts.setdefault(partition, {})
        for record in records:
            key = lane_key_of(record, settings)
            if key is not None:
                lasts[key] = place_of(partition, record.offset)

    def rewound(self) -> None:
        """What was done may have to be done again."""
        self._keyed_by = None

    async def places(self, partition: int, offset: int) -> Sequence[int]:
        """The records from an offset on that are copied, or were when last asked, and not done. Raises as `keys`."""
        begin = place_of(partition, offset)
        places = set(self._places.get(partition, ()))
        for _, batch in self._copies.batches(partition, offset):
            places.update(place_of(partition, record.offset) for record in await self._read(partition, batch))
        left = [place for place in places if place >= begin and place not in self._done]
        self._places[partition] = left
        return left

    async def _read(self, partition: int, batch: CopyBatch) -> list[LogRecord]:
        """Return the records of a batch of copies; none where it is damaged, which the scan tells."""
        try:
            return await self._copies.read(partition, batch)
        except (CorruptLogError, CorruptBatchError):
            return []


def _not_done(lasts: Mapping[bytes, int], done: DoneRecords) -> dict[bytes, int]:
    return {key: place for key, place in lasts.items() if place not in done}
