"""Cache of batches for queue groups, so that records that are handed out soon are not read again. All groups share one
bound.

When the cache is full, the least recently used batches of all groups are evicted first. So batches of busy groups
replace those of idle groups.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from typing import Final, NamedTuple

from logbroker.errors import LogbrokerError
from logbroker.record.stored_batch import StoredBatch

ENTRY_BYTES: Final = 512
"""Approximate size of a cache entry without the bytes of its batch."""


class Found(NamedTuple):
    """The batch with the record ids from `start` to before `end`, or the error that takes its place."""

    start: int
    end: int
    batch: StoredBatch | LogbrokerError


class BatchCache:
    """The bound of the cache, which all groups share, and the order in which batches were used."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._sizes: OrderedDict[tuple[GroupBatches, int], int] = OrderedDict()
        """Charged bytes of each batch, by its group and first record id; the least recently used first."""

    def count(self, batches: GroupBatches, start: int, size_bytes: int) -> None:
        """Update the charged bytes of a batch."""
        self.used_bytes += size_bytes - self._sizes.get((batches, start), 0)
        self._sizes[batches, start] = size_bytes

    def used(self, batches: GroupBatches, start: int) -> None:
        self._sizes.move_to_end((batches, start))

    def forget(self, batches: GroupBatches, start: int) -> None:
        self.used_bytes -= self._sizes.pop((batches, start))

    def evict(self) -> None:
        """Evict batches beyond the bound."""
        while self.used_bytes > self.max_bytes:
            batches, start = next(iter(self._sizes))
            batches.remove(start)


class GroupBatches:
    """The batches of one queue group in a cache."""

    def __init__(self, cache: BatchCache) -> None:
        self.cache = cache
        self._kept: dict[int, Found] = {}
        """Batches by the record id of their base offset."""
        self._starts: list[int] = []
        """Keys of `_kept`, sorted."""

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, record_id: int) -> Found | None:
        """Return the batch with a record. This counts as a use of the batch."""
        index = bisect_right(self._starts, record_id) - 1
        if index < 0:
            return None
        found = self._kept[self._starts[index]]
        if record_id >= found.end:
            return None
        self.cache.used(self, found.start)
        return found

    def last_not_kept(self, record_id: int, stop: int) -> int:
        """Return the last record id before the next kept batch and before `stop`. `record_id` itself must not be in a
        kept batch."""
        index = bisect_right(self._starts, record_id)
        return (min(stop, self._starts[index]) if index < len(self._starts) else stop) - 1

    def add(self, found: Found) -> None:
        """Keep a batch; the next `evict` may already drop it."""
        if found.start not in self._kept:
            self._kept[found.start] = found
            insort(self._starts, found.start)
            self.recount(found.start)

    def recount(self, start: int) -> None:
        """Update the charged bytes of a batch, which grows when it is decompressed or searched."""
        found = self._kept.get(start)
        if found is not None:
            assert isinstance(found.batch, StoredBatch)
            self.cache.count(self, start, found.batch.size_bytes + ENTRY_BYTES)

    def remove(self, start: int) -> None:
        del self._kept[start]
        del self._starts[bisect_right(self._starts, start) - 1]
        self.cache.forget(self, start)

    def remove_between(self, first: int, stop: int) -> None:
        """Drop the batches that begin at record ids from `first` to before `stop`."""
        for start in self._starts[bisect_left(self._starts, first) : bisect_left(self._starts, stop)]:
            self.remove(start)

    def clear(self) -> None:
        for start in list(self._kept):
            self.remove(start)

    def close(self) -> None:
        """Drop all batches, and leave the cache that the groups share."""
        self.clear()
        self.cache = BatchCache(0)
