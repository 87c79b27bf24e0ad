"""A bound on bytes that are on their way to readers."""

from __future__ import annotations

import asyncio
from collections import deque


class ByteBudget:
    """Bytes that may be held at once. Those who wait for some get them in the order in which they came."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._free_bytes = total_bytes
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size_bytes: int) -> int:
        """Wait until so much is free and take it; more than all there is counts as all. Returns what was taken."""
        size_bytes = min(size_bytes, self._total_bytes)
        if not self._queue and size_bytes <= self._free_bytes:
            self._free_bytes -= size_bytes
            return size_bytes
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(size_bytes)
            else:
                self._queue.remove((size_bytes, turn))
                self._serve_queue()
            raise
        return size_bytes

    def give_back(self, size_bytes: int) -> None:
        self._free_bytes += size_bytes
        self._serve_queue()

    def _serve_queue(self) -> None:
        while self._queue and self._queue[0][0] <= self._free_bytes:
            size_bytes, turn = self._queue.popleft()
            if turn.cancelled():
                continue
            self._free_bytes -= size_bytes
            turn.set_result(None)
