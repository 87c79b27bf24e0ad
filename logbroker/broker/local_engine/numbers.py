"""Numbers that are never given out twice: receipts and fencing tokens of queue groups, and producer ids.

The end of the numbers given out is kept in two places: in the metadata store, and in a file beside it
(`storage.metadata.issued_numbers`), which is not reset when a backup is restored. A start uses the higher one of the
two. Both are synced before a number below a new end is given out. At each start, all numbers also begin above a number
made from the wall clock. So if the clock is right, numbers do not repeat even if the file is lost, or the whole data
directory is restored from a copy. Producer ids also begin above all ids that any partition remembers: another broker
may have given them out, if its log was taken over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from logbroker.broker.local_engine.failure import StorageFailure
from logbroker.clock import Clock
from logbroker.config import MAX_INT64
from logbroker.errors import OverloadedError, StorageFailedError, unreadable_row
from logbroker.storage.metadata.issued_numbers import IssuedNumbers
from logbroker.storage.metadata.metadata_store import MetadataStore
from logbroker.storage.partition_checkpoint import BROKER, PRODUCERS

NEXT_ID_KEY: Final = b"next-id"
NEXT_RECEIPT_KEY: Final = b"next-receipt"
RECEIPTS_PER_MS_BITS: Final = 12
"""Bits for the numbers of one millisecond. No broker gives out 4096 receipts in a millisecond. Today's numbers fit into
the 53 bits that a double holds exactly."""
PRODUCER_IDS_PER_MS_BITS: Final = 20
_NUMBER_BYTES: Final = 8
MAX_FROM_CLOCK: Final = 1 << 62
"""Highest start from the clock, so that a clock that was once far ahead does not use up all numbers."""


def number_of_time(wall_ms: int, per_ms_bits: int) -> int:
    """Return a number above all numbers that are given out before a time."""
    return min(max(wall_ms, 0) << per_ms_bits, MAX_FROM_CLOCK)


class Issued:
    """The ends of the numbers that may be given out, stored in both places before any number below them is given
    out."""

    def __init__(
        self,
        store: MetadataStore,
        found: IssuedNumbers | None,
        write: Callable[[IssuedNumbers], None],
        clock: Clock,
        failure: StorageFailure,
        remembered_producer_ids: int,
    ) -> None:
        """`found` is the content of the file, None if there is no file; `write` replaces the file, and blocks.

        `remembered_producer_ids` is above all producer ids that partitions know.
        """
        self._store = store
        self._write = write
        self._failure = failure
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()
        now_ms = clock.wall_ms()
        known = found or IssuedNumbers()
        self.ends = IssuedNumbers(
            max(
                known.receipts,
                _stored(store, BROKER, NEXT_RECEIPT_KEY),
                number_of_time(now_ms, RECEIPTS_PER_MS_BITS),
                1,
            ),
            max(
                known.producer_ids,
                _stored(store, PRODUCERS, NEXT_ID_KEY),
                remembered_producer_ids,
                number_of_time(now_ms, PRODUCER_IDS_PER_MS_BITS),
                1,
            ),
        )

    async def raise_to(self, *, receipts: int = 0, producer_ids: int = 0) -> None:
        """Raise the ends, and return when they are durable. All numbers below them may then be given out.

        Raises StorageFailedError, OverloadedError, DiskFullError or TooManyOpenFilesError.
        """
        # The task runs to its end even if the caller is cancelled. Otherwise its thread could still write a lower end
        # after a later call has written a higher one.
        task = asyncio.create_task(self._raise_to(receipts, producer_ids))
        self._running.add(task)
        task.add_done_callback(self._ended)
        await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # The caller may be gone.

    async def close(self) -> None:
        """Wait for the changes under way."""
        while self._running:
            await asyncio.wait(self._running)

    async def _raise_to(self, receipts: int, producer_ids: int) -> None:
        async with self._lock:
            ends = IssuedNumbers(max(self.ends.receipts, receipts), max(self.ends.producer_ids, producer_ids))
            if max(ends.receipts, ends.producer_ids) > MAX_INT64:
                raise OverloadedError("all numbers of 63 bits are given out: start with a new data directory")
            if ends == self.ends:
                return
            rows = [
                (BROKER, NEXT_RECEIPT_KEY, ends.receipts.to_bytes(8, "big")),
                (PRODUCERS, NEXT_ID_KEY, ends.producer_ids.to_bytes(8, "big")),
            ]
            try:
                await asyncio.to_thread(self._write, ends)
                await asyncio.wrap_future(self._store.submit(rows))
            except StorageFailedError as error:
                raise self._failure.report(error) from error
            self.ends = ends


class ReceiptNumbers:
    """The `logbroker.engine.Numbers` of this engine."""

    def __init__(self, issued: Issued) -> None:
        self._issued = issued
        self.first = issued.ends.receipts
        self.reserved = self.first
        """End of the reserved receipts; equal to `first` as long as none are reserved in this run."""

    async def reserve(self, end: int) -> None:
        if end > self.reserved:
            await self._issued.raise_to(receipts=end)
            self.reserved = max(self.reserved, end)


def _stored(store: MetadataStore, table: str, key: bytes) -> int:
    row = store.get(table, key)
    if row and (len(row) != _NUMBER_BYTES or row[0] & 0x80):
        raise unreadable_row(table, key, "it is no number of 63 bits")
    return int.from_bytes(row, "big") if row else 0
