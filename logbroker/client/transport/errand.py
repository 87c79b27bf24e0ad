"""Work that outlives the wait for it: a deadline ends the wait, and the next caller that asks for the same finds it
under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Generic, TypeVar

from logbroker.client.transport.connection import CLOSED
from logbroker.errors import BrokerUnavailableError

T = TypeVar("T")


class Errand(Generic[T]):
    """One piece of work at a time, whose outcome is never None."""

    def __init__(self) -> None:
        self._task: asyncio.Task[T] | None = None
        self._purpose: object = None
        self._closed = False

    async def outcome(
        self, purpose: object, work: Callable[[], Coroutine[Any, Any, T]], deadline: float | None
    ) -> T | None:
        """Return the outcome of the work, once, or None if the deadline (monotonic seconds) is over before.

        It is begun where none is under way for this very purpose; what was for another one is given up. Raises what the
        work raises, and BrokerUnavailableError where it is dropped meanwhile.
        """
        while True:
            if self._closed:
                raise BrokerUnavailableError(CLOSED)
            if self._task is None or self._purpose is not purpose:
                self.drop()
                self._task, self._purpose = asyncio.create_task(work()), purpose
            task = self._task
            done, _ = await asyncio.wait([task], timeout=None if deadline is None else max(0.0, deadline - monotonic()))
            if not done:
                return None
            is_dropped = self._task is not task
            if not is_dropped:
                self._task = self._purpose = None
            if not task.cancelled():
                return task.result()
            if is_dropped:
                raise BrokerUnavailableError(CLOSED)
            # Others have cancelled it, but not who waits here: once more.

    def close(self) -> None:
        """Give up the work under way, and begin no more."""
        self._closed = True
        self.drop()

    def drop(self) -> None:
        """Give up the work under way."""
        task, self._task, self._purpose = self._task, None, None
        if task is not None:
            # Nobody asks any more what came of it.
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
            task.cancel()
