"""Work that goes on when its caller stops waiting. If the deadline of a caller ends the wait, the next caller that asks
for the same work waits for the same task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Generic, TypeVar

from logbroker.client.transport.connection import CLOSED
from logbroker.errors import BrokerUnavailableError

T = TypeVar("T")


class Errand(Generic[T]):
    """One piece of work at a time. Its outcome is never None."""

    def __init__(self) -> None:
        self._task: asyncio.Task[T] | None = None
        self._purpose: object = None
        self._closed = False

    async def outcome(
        self, purpose: object, work: Callable[[], Coroutine[Any, Any, T]], deadline: float | None
    ) -> T | None:
        """Return the outcome of the work, or None if the deadline (monotonic seconds) is over first.

        An outcome is returned once. If work for the same purpose is under way, wait for it; otherwise give up any other
        work and begin this work. Raises the errors of the work, and BrokerUnavailableError if the work is dropped
        during the wait.
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
            # Other code has cancelled the work, and this caller still waits for it: begin it again.

    def close(self) -> None:
        """Give up the work under way, and begin no new work."""
        self._closed = True
        self.drop()

    def drop(self) -> None:
        """Give up the work under way."""
        task, self._task, self._purpose = self._task, None, None
        if task is not None:
            # Nobody asks for the outcome.
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
            task.cancel()
