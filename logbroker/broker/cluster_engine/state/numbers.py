"""Numbers that are never given out twice: receipts and fencing tokens of queue groups.

The end of the numbers given out is a row of the state. Only the owner of its partition writes it, so an owner that was
replaced reserves no number any more.
"""

from __future__ import annotations

import asyncio
from typing import Final

from logbroker.config import MAX_INT64
from logbroker.engine import StateEvent, StateStore
from logbroker.errors import OverloadedError

_SCOPE: Final = "numbers"
_KEY: Final = b"next-receipt"
_NUMBER_BYTES: Final = 8


class ClusterNumbers:
    """The `logbroker.engine.Numbers` of this engine."""

    def __init__(self, state: StateStore, reserved: int) -> None:
        self._state = state
        self._lock = asyncio.Lock()
        self.reserved = reserved

    @classmethod
    async def open(cls, state: StateStore) -> ClusterNumbers:
        """Read the end of the numbers of all earlier owners."""
        row = (await state.load(_SCOPE)).get(_KEY)
        return cls(state, int.from_bytes(row, "big") if row else 1)

    async def reserve(self, end: int) -> None:
        async with self._lock:
            if end <= self.reserved:
                return
            if end > MAX_INT64:
                raise OverloadedError("all numbers of 63 bits are given out")
            await self._state.commit(_SCOPE, [StateEvent(_KEY, end.to_bytes(_NUMBER_BYTES, "big"))])
            self.reserved = end
