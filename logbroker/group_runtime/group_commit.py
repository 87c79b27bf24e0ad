"""The commits of one group: one transaction at a time. Changes that gather meanwhile go into the next one together.

So the commits of all members, or the settlements of all workers, share a sync. Many joins at once cost one assignment,
and a row that changes many times is written once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from logbroker.engine import StateEvent
from logbroker.errors import LogbrokerError
from logbroker.group_runtime.group_store import GroupStore

_log = logging.getLogger(__name__)

R = TypeVar("R")
T = TypeVar("T")


class GroupCommit(Generic[T]):
    """Stores the changes of a group, then puts them into effect."""

    def __init__(
        self,
        name: str,
        store: GroupStore,
        gather: Callable[[], tuple[Sequence[StateEvent], T]],
        on_synced: Callable[[T], None],
        on_failed: Callable[[LogbrokerError], None],
    ) -> None:
        """`gather` returns the events to store now, and a value that `on_synced` gets once they are stored. `on_failed`
        gets the error after which nothing more is stored."""
        self._name = name
        self._gather = gather
        self._store = store
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._loop = asyncio.get_running_loop()
        self._rows: list[StateEvent] = []
        self._waiters: list[tuple[asyncio.Future[Any], Any]] = []
        self._due = False
        self._running: asyncio.Task[None] | None = None
        self._error: LogbrokerError | None = None

    @property
    def is_running(self) -> bool:
        """Whether a transaction is running, or about to run."""
        return self._running is not None

    def request(self) -> None:
        """Start a transaction, because the group may have something to store."""
        self._due = True
        if self._running is None and self._error is None:
            self._running = self._loop.create_task(self._run(), name=f"commits of {self._name}")

    def synced(self, result: R, rows: Iterable[StateEvent] = ()) -> asyncio.Future[R]:
        """Return a future that completes with `result` when all changes up to now, and `rows`, are synced.

        If they cannot be stored, the future raises the error after which this group stores nothing more. After a
        StorageFailedError, the broker exits.
        """
        future: asyncio.Future[R] = self._loop.create_future()
        self._rows += rows
        self._waiters.append((future, result))
        self.request()
        if self._error is not None:
            self._refuse()
        return future

    async def settle(self) -> None:
        """Wait for the running transactions."""
        while self._running is not None:
            await asyncio.wait([self._running])

    def close(self, error: LogbrokerError) -> None:
        """Store nothing more. Current and later waiters get the error."""
        self._error = self._error or error
        self._refuse()

    async def _run(self) -> None:
        try:
            while self._due:
                self._due = False
                rows, self._rows = self._rows, []
                waiters, self._waiters = self._waiters, []
                try:
                    events, following = self._gather()
                    if events or rows:
                        await self._store.commit([*events, *rows])
                except Exception as error:
                    # Nothing more is stored, and all waiters get the error. If the store failed, the broker exits.
                    self._error = error.as_value() if isinstance(error, LogbrokerError) else self._broken(error)
                    self._waiters += waiters
                    self._refuse()
                    self._on_failed(self._error)
                    return
                self._on_synced(following)
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
                future.exception()  # The waiter may be gone.
