"""Work that a client does by itself in its event loop until the client ends it.

Other code may cancel the tasks of a client. `asyncio.run` cancels every task of its loop when it ends, and some
programs do the same to shut down. An exception that a signal handler raises, such as the SystemExit of `sys.exit` at
SIGTERM, ends the running task, and then `asyncio.run` cancels the rest. But the program still needs the client at that
moment: the cancellation makes the program leave its `finally` and `async with` blocks, which flush, commit and leave
groups, and so wait for answers of the broker. The background work therefore goes on in a new task, which is not
cancelled. The streams were cancelled together with the tasks that read them, so the new task connects again, as after a
broken connection.

If the program leaves its client open, the new task would outlive `asyncio.run`. As its last step `asyncio.run` closes
the asynchronous generators of the loop, so the client keeps such a generator open, and its closing ends the work.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from logbroker.client.runtime.tasks import end_tasks
from logbroker.client.transport.connection import Connection, backoff_seconds
from logbroker.errors import BrokerUnavailableError, LogbrokerError

_log = logging.getLogger(__name__)

CANCELLED: Final = "the tasks of this client were cancelled, as happens when its event loop ends"
_AGAIN_SECONDS: Final = 0.005
"""The pause before the work begins again. A loop that is about to end does so during this pause."""
_MAX_IN_A_ROW: Final = 8
"""Maximum number of times in a row that other code may end the work soon after it began. Then the work is given up.
Otherwise code that cancels tasks until none are left would never end."""
_IN_A_ROW_SECONDS: Final = 1.0


class Background:
    """One piece of work, done by one task after another. Belongs to one event loop."""

    def __init__(
        self,
        what: str,
        connection: Connection,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        on_break: Callable[[LogbrokerError, bool], None] = lambda error, cancelled: None,
        on_over: Callable[[], None] = lambda: None,
    ) -> None:
        """`what` names the work in the log, `connection` is the client's.

        `on_break` restores a consistent state before the work begins again. Its second argument is False if the work
        failed by a fault of this client, and True if other code ended its task. Either can happen at any point of the
        work. `on_over` is called if the work does not begin again although the client has not ended it, so that nobody
        waits for it for ever.
        """
        self._what = what
        self._connection = connection
        self._work = work
        self._on_break = on_break
        self._on_over = on_over
        self._task: asyncio.Task[None] | None = None
        self._begun_at = 0.0
        self._in_a_row = 0
        self._is_over = False
        self._finished = asyncio.Event()
        self._loop_end: AsyncGenerator[None, None] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the work was ever started."""
        return self._task is not None

    @property
    def is_running(self) -> bool:
        """Whether the work is under way, or about to begin again."""
        return self._task is not None and not self._finished.is_set()

    def start(self) -> None:
        """Begin the work, or begin it again after it has returned."""
        self._finished.clear()
        self._begin(0.0)

    async def wait(self, timeout_seconds: float) -> None:
        """Wait until the work has returned or was given up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._finished.wait()

    def cancel(self) -> None:
        """Ask the work to end."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
        self._finished.set()

    async def end(self) -> None:
        """End the work, and wait for its end."""
        await end_works(self)

    def _begin(self, after_seconds: float) -> None:
        self._begun_at = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._do(after_seconds))
        self._task.add_done_callback(self._ended)

    async def _do(self, after_seconds: float) -> None:
        if after_seconds:
            await asyncio.sleep(after_seconds)
        for attempt in itertools.count():
            try:
                await self._work()
                # No await may come before this. The last step of the work may have woken a caller that checks it or
                # starts it again.
                self._finished.set()
                return
            except Exception as error:
                _log.exception("%s failed and is started again", self._what)
                self._on_break(BrokerUnavailableError(f"{self._what} failed: {error!r}"), False)
            await asyncio.sleep(backoff_seconds(attempt))

    def _ended(self, task: asyncio.Task[None]) -> None:
        # Fetch the exception in any case, so that asyncio does not log it. This hides nothing: the loop itself raises a
        # SystemExit or KeyboardInterrupt of the task, too.
        has_returned = not task.cancelled() and task.exception() is None
        if self._is_over or has_returned:
            return
        _log.debug("other code has ended the task of %s", self._what)
        self._on_break(BrokerUnavailableError(CANCELLED), True)
        lived_seconds = asyncio.get_running_loop().time() - self._begun_at
        self._in_a_row = self._in_a_row + 1 if lived_seconds < _IN_A_ROW_SECONDS else 1
        if self._in_a_row > _MAX_IN_A_ROW or self._connection.is_dropped:
            self._give_up()
            return
        self._begin(_AGAIN_SECONDS)
        if self._loop_end is None:
            self._loop_end = self._until_the_loop_ends()
            # The first step registers the generator with the loop.
            with suppress(StopIteration):
                self._loop_end.__anext__().send(None)

    def _give_up(self) -> None:
        self._is_over = True
        self._finished.set()
        self._on_over()

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if not self._is_over:
                self._give_up()
                assert self._task is not None
                await end_tasks(self._task)


async def end_works(*works: Background) -> None:
    """End several works and wait for their end. They end even if this call is cancelled."""
    for work in works:
        work.cancel()
    try:
        await end_tasks(*(work._task for work in works if work._task is not None))
    finally:
        for work in works:
            if work._loop_end is not None:
                # The generator waits for nothing, because the work is over. RuntimeError: the loop is closing it at
                # this moment.
                with suppress(RuntimeError):
                    await work._loop_end.aclose()
