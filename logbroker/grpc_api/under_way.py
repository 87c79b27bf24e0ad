"""Counts calls in flight that change something: a stopping broker waits for them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any


class UnderWay:
    """Counts calls from their beginning to their end."""

    def __init__(self) -> None:
        self._count = 0
        self._ended = asyncio.Event()
        self._ended.set()

    def counted(self, behaviour: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
        """Return a method of a service whose calls are counted."""

        @functools.wraps(behaviour)
        async def call(request: Any, context: Any) -> Any:
            self._count += 1
            self._ended.clear()
            try:
                return await behaviour(request, context)
            finally:
                self._count -= 1
                if not self._count:
                    self._ended.set()

        return call

    async def ended(self) -> None:
        """Wait until no counted call is in flight."""
        await self._ended.wait()
