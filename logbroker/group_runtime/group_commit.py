"""The commits of one queue group: one transaction at a time, and what gathers meanwhile goes as one into the next.

So the settlements of all workers share a sync, and a page of what is done is written once for all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from logbroker.engine import StateEvent
from logbroker.errors import LogbrokerError
from logbroker.group_runtime.group_store import GroupStore
from logbroker.queues.messages import Outputs
from logbroker.queues.queue import Queue

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Flush:
    """Stores what a queue owes, then lets it take effect."""

    def __init__(
        self,
        name: str,
        queue: Queue,
        store: GroupStore,
        on_synced: Callable[[Outputs], None],
        on_failed: Callable[[LogbrokerError], None],
    ) -> None:
        """`on_synced` is given outputs whose events are stored, `on_failed` why nothing more is."""
        self._name = name
        self._queue = queue
        self._store = store
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._loop = asyncio.get_running_loop()
        self._rows: list[StateEvent] = []
        self._waiters: list[tuple[asyncio.Future[Any], Any]] = []
        self._due = False
        self._running: asyncio.Task[None] | None = None
        self._error: LogbrokerError | None = None

    def request(self) -> None:
        """The queue may owe something."""
        self._due = True
        if self._running is None and self._error is None:
            self._running = self._loop.create_task(self._run(), name=f"flush of {self._name}")

    def synced(self, result: T, rows: Iterable[StateEvent] = ()) -> asyncio.Future[T]:
        """Return a future that has the result when all that happened up to now is synced, with some rows beside it.

        It raises StorageFailedError: the broker ends then.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self._rows += rows
        self._waiters.append((future, result))
        self.request()
        if self._error is not None:
            self._refuse()
        return future

    async def settle(self) -> None:
        """Wait for what is under way."""
        while self._running is not None:
            await asyncio.wait([self._running])

    def close(self, error: LogbrokerError) -> None:
        """Store nothing more: whoever waits, or comes, is told of the error."""
        self._error = self._error or error
        self._refuse()

    async def _run(self) -> None:
        try:
            while self._due:
                self._due = False
                rows, self._rows = self._rows, []
                waiters, self._waiters = self._waiters, []
                try:
                    outputs = self._queue.take_outputs()
                    if outputs.events or rows:
                        await self._store.commit([*outputs.events, *rows])
                except Exception as error:
                    # Nothing more is stored, and nobody is told that anything was. By a failure of the store the broker
                    # ends.
                    self._error = error.as_value() if isinstance(error, LogbrokerError) else self._broken(error)
                    self._waiters += waiters
                    self._refuse()
                    self._on_failed(self._error)
                    return
                self._on_synced(outputs)
                for future, result in waiters:
                    if not future.done():
                        future.set_result(result)
        finally:
            self._running = None

    def _broken(self, error: Exception) -> LogbrokerError:
        _log.error("the %s cannot go on", self._name, exc_info=error)
        return LogbrokerError(f"the {self._name} cannot go on until the next start of the broker: {error}")

    def _refuse(self) -> None:
        assert self._error is not None
        waiters, self._waiters = self._waiters, []
        for future, _ in waiters:
            if not future.done():
                future.set_exception(self._error.anew())
                future.exception()  # Who waited may be gone.
