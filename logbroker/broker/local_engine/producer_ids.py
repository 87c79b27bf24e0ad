"""Producer ids, which are never handed out twice."""

from __future__ import annotations

import asyncio

from logbroker.broker.local_engine.numbers import Issued
from logbroker.errors import InvalidRequestError

BLOCK = 1000
"""Number of ids that are reserved at once. When the broker stops, the unused ids of the block are lost."""
MAX_EPOCH = 32_767


class ProducerIds:
    """Hands out ids from blocks that are reserved in advance, so that none repeats."""

    def __init__(self, issued: Issued) -> None:
        self._issued = issued
        self._lock = asyncio.Lock()
        self.next = self._reserved = issued.ends.producer_ids
        """Lowest id that is not handed out yet. Ids below it are never handed out again."""

    async def new(self) -> tuple[int, int]:
        """Return an id that was never returned before, with epoch 0."""
        async with self._lock:
            if self.next == self._reserved:
                end = self._reserved + BLOCK
                await self._issued.raise_to(producer_ids=end)
                self._reserved = end
            self.next += 1
            return self.next - 1, 0

    async def raised(self, producer_id: int, producer_epoch: int) -> tuple[int, int]:
        """Return the id with the next epoch, or a new id if its epochs have run out.

        An id belongs to the one client that got it, so the broker trusts the epoch that the client states (as in
        KIP-360).
        """
        if not 0 < producer_id < self.next or not 0 <= producer_epoch <= MAX_EPOCH:
            raise InvalidRequestError(
                f"producer id {producer_id} with epoch {producer_epoch} was not handed out here; ask for a new one"
            )
        if producer_epoch == MAX_EPOCH:
            return await self.new()
        return producer_id, producer_epoch + 1
