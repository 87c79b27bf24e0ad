"""Batches that queue groups keep, so that what is handed out soon is not read again: all groups share one bound.

The least recently used go first, whichever group they are of: so the groups that work have most of the room, and a
thousand that rest have none.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from typing import Final, NamedTuple

from logbroker.errors import LogbrokerError
from logbroker.record.stored_batch import StoredBatch

ENTRY_BYTES: Final = 512
"""What a batch takes in the cache beside its bytes, about."""


class Found(NamedTuple):
    """What holds the record ids from `start` to before `end`: a batch, or the reason why there is none."""

    start: int
    end: int
    batch: StoredBatch | LogbrokerError


class BatchCache:
    """The bound that all groups share."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._sizes: OrderedDict[tuple[GroupBatches, int], int] = OrderedDict()
        """The bytes that each batch counts for, by its group and first record id; the least recently used first."""

    def count(self, batches: GroupBatches, start: int, size_bytes: int) -> None:
        """Take note of what a batch takes now."""
        self.used_bytes += size_bytes - self._sizes.get((batches, start), 0)
        self._sizes[batches, start] = size_bytes

    def used(self, batches: GroupBatches, start: int) -> None:
        self._sizes.move_to_end((batches, start))

    def forget(self, batches: GroupBatches, start: int) -> None:
        self.used_bytes -= self._sizes.pop((batches, start))

    def evict(self) -> None:
        """Let go what is too much."""
        while self.used_bytes > self.max_bytes:
            batches, start = next(iter(self._sizes))
            batches.remove(start)


class GroupBatches:
    """The batches of one queue group in a cache."""

    def __init__(self, cache: BatchCache) -> None:
        self.cache = cache
        self._kept: dict[int, Found] = {}
        """By the record id of their base offset."""
        self._starts: list[int] = []
        """These record ids, sorted."""

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, record_id: int) -> Found | None:
        """Return what holds a record, which is a use of it."""
        index = bisect_right(self._starts, record_id) - 1
        if index < 0:
            return None
        found = self._kept[self._starts[index]]
        if record_id >= found.end:
            return None
        self.cache.used(self, found.start)
        return found

    def last_not_kept(self, record_id: int, stop: int) -> int:
        """The last of consecutive record ids, from one that is not kept to before `stop`, of which none is."""
        index = bisect_right(self._starts, record_id)
        return (min(stop, self._starts[index]) if index < len(self._starts) else stop) - 1

    def add(self, found: Found) -> None:
        """Keep a batch, for now; `evict` may let it go at once."""
        if found.start not in self._kept:
            self._kept[found.start] = found
            insort(self._starts, found.start)
            self.recount(found.start)

    def recount(self, start: int) -> None:
        """Count what a batch takes, which grows when it is decompressed or looked through."""
        found = self._kept.get(start)
        if found is not None:
            assert isinstance(found.batch, StoredBatch)
            self.cache.count(self, start, found.batch.size_bytes + ENTRY_BYTES)

    def remove(self, start: int) -> None:
        del self._kept[start]
        del self._starts[bisect_right(self._starts, start) - 1]
        self.cache.forget(self, start)

    def clear(self) -> None:
        for start in list(self._kept):
            self.remove(start)
