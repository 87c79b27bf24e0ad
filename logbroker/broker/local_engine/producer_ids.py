"""Producer ids that are never handed out twice."""

from __future__ import annotations

import asyncio

from logbroker.errors import InvalidRequestError
from logbroker.storage.metadata_store import MetadataStore
from logbroker.storage.partition_checkpoint import PRODUCERS

NEXT_ID_KEY = b"next-id"
BLOCK = 1000
"""Ids reserved by one synced commit; those left over at a stop are skipped."""
MAX_EPOCH = 32_767


class ProducerIds:
    """Hands out ids from blocks reserved in the metadata store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._lock = asyncio.Lock()
        row = store.get(PRODUCERS, NEXT_ID_KEY)
        self._next = self._reserved = int.from_bytes(row, "big") if row else 1

    async def new(self) -> tuple[int, int]:
        """Return an id that was never returned before, with epoch 0."""
        async with self._lock:
            if self._next == self._reserved:
                end = self._reserved + BLOCK
                row = (PRODUCERS, NEXT_ID_KEY, end.to_bytes(8, "big"))
                await asyncio.wrap_future(self._store.submit([row]))
                self._reserved = end
            self._next += 1
            return self._next - 1, 0

    async def raised(self, producer_id: int, producer_epoch: int) -> tuple[int, int]:
        """Return the id with the next epoch, or a new id where epochs have run out.

        An id belongs to the one client that got it, so the client's word for its epoch is enough (as in KIP-360).
        """
        if not 0 < producer_id < self._next or not 0 <= producer_epoch <= MAX_EPOCH:
            raise InvalidRequestError(
                f"producer id {producer_id} with epoch {producer_epoch} was not handed out here; ask for a new one"
            )
        if producer_epoch == MAX_EPOCH:
            return await self.new()
        return producer_id, producer_epoch + 1
