"""A limit on the bytes in flight to readers.

Bytes that a connection has taken cannot be taken back: if a client stops reading, its response stays in memory until
the client goes on or its connection ends. So the limit works in advance: a response stays within a 32nd of the free
bytes. Only a response of up to MIN_RESPONSE_BYTES, or a single larger batch, may exceed that. Stalled readers make all
responses smaller. Responses of up to MIN_RESPONSE_BYTES are always sent; a larger batch waits until some bytes are
free.
"""

from __future__ import annotations

import asyncio
from typing import Final

from logbroker.errors import OverloadedError

MIN_RESPONSE_BYTES: Final = 16 * 1024
"""Size that a response may always have, even if no bytes are free."""
FREE_SHARE: Final = 32


class ReadBudget:
    """Counts the bytes of responses, from their read until they are passed on."""

    def __init__(self, total_bytes: int, wait_seconds: float) -> None:
        self._wait_seconds = wait_seconds
        # At least 1, so that with a limit of 0 bytes a response above MIN_RESPONSE_BYTES still fits when nothing else
        # is in flight.
        self._free_bytes = max(total_bytes, 1)
        """Free bytes. May be negative: a batch larger than the free bytes cannot be cut, and responses of up to
        MIN_RESPONSE_BYTES are always allowed."""
        self._freed = asyncio.Event()
        self.decoder = asyncio.Semaphore(1)
        """Held while batches are decoded. One request decodes at a time, because a batch may expand to
        MAX_EXPANDED_BYTES."""

    def allowance(self, wanted_bytes: int) -> int:
        """Return how many bytes may be read now, at most `wanted_bytes`."""
        return min(wanted_bytes, max(self._free_bytes // FREE_SHARE, MIN_RESPONSE_BYTES))

    def fits(self, size_bytes: int) -> bool:
        """Return whether the bytes of a read may be kept: a batch above the allowance needs some free memory."""
        return size_bytes <= MIN_RESPONSE_BYTES or self._free_bytes > 0

    async def acquire_decoder(self, held_bytes: int) -> None:
        """Wait until no other request decodes and some bytes are free, not counting the caller's own `held_bytes` as
        used. Any number of free bytes will do, because the decoded size is not known in advance. Raises
        OverloadedError."""
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
        """Wait until some bytes are free, not counting the caller's own `held_bytes` as used. Raises OverloadedError
        after `wait_seconds`."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                while self._free_bytes + held_bytes <= 0:
                    await self._freed.wait()
        except TimeoutError:
            raise OverloadedError(
                "the broker's memory for readers (max_fetch_bytes_in_flight) is held by clients that do not read;"
                " try again later, or fetch smaller batches"
            ) from None
