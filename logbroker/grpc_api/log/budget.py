"""A bound on the bytes that are on their way to readers.

What has been given to gRPC cannot be taken back: a client that stops reading holds its response until it goes on or its
connection ends. So the bound works beforehand: no response may take more than a 32nd of what is still free. Readers
that stall make the responses of all smaller, never stop them, and their number does not change the bound.
"""

from __future__ import annotations

import asyncio
from typing import Final

from logbroker.errors import OverloadedError

MIN_RESPONSE_BYTES: Final = 16 * 1024
"""A response may always be as large as this, whatever is free."""
FREE_SHARE: Final = 32


class ReadBudget:
    """Counts the bytes of responses from the moment they are read until gRPC has passed them on."""

    def __init__(self, total_bytes: int, wait_seconds: float) -> None:
        self._wait_seconds = wait_seconds
        self._free_bytes = total_bytes
        """Below zero by what was too large to be cut: one batch at most, and the smallest responses."""
        self._freed = asyncio.Event()
        self.decoder = asyncio.Semaphore(1)
        """Held while batches are decoded: they may expand to MAX_EXPANDED_BYTES, so one request does at a time."""

    def allowance(self, wanted_bytes: int) -> int:
        """How much of the wanted bytes may be read now."""
        return min(wanted_bytes, max(self._free_bytes // FREE_SHARE, MIN_RESPONSE_BYTES))

    def fits(self, size_bytes: int) -> bool:
        """Whether what was read may be held: a batch above the allowance needs some free memory."""
        return size_bytes <= MIN_RESPONSE_BYTES or self._free_bytes > 0

    async def acquire_decoder(self, held_bytes: int) -> None:
        """Wait for the decoder and, as no bound of what comes of it is known, until something is free beside what the
        caller holds itself. Raises OverloadedError."""
        await self.decoder.acquire()
        while self._free_bytes + held_bytes <= 0:
            self.decoder.release()
            await self.wait(held_bytes)
            await self.decoder.acquire()

    def hold(self, size_bytes: int) -> None:
        self._free_bytes -= size_bytes

    def release(self, size_bytes: int) -> None:
        was_used_up = self._free_bytes <= 0
        self._free_bytes += size_bytes
        if was_used_up:
            self._freed.set()
            self._freed = asyncio.Event()

    async def wait(self, held_bytes: int = 0) -> None:
        """Wait until something is free beside what the caller holds itself; raises OverloadedError when that takes too
        long."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                while self._free_bytes + held_bytes <= 0:
                    await self._freed.wait()
        except TimeoutError:
            raise OverloadedError(
                "the broker's memory for readers (max_fetch_bytes_in_flight) is held by clients that do not read;"
                " try again later, or fetch smaller batches"
            ) from None
