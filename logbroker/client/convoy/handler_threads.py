"""The threads in which an asynchronous convoy calls a handler that is not async."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from logbroker.client.runtime.handlers import call_plain

_Call = tuple[asyncio.Future[BaseException | None], Any]


class HandlerThreads:
    """Calls a function in threads, for the tasks of the event loop in which it was made.

    The number of threads is the highest number of calls at the same time so far. They are daemons, so that a handler
    that hangs does not keep the program alive, as a thread of a `ThreadPoolExecutor` would.
    """

    def __init__(self, what: str, function: Callable[[Any], object], name: str) -> None:
        self._what = what
        self._function = function
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._calls = SimpleQueue[_Call | None]()
        self._threads = 0
        self._busy = 0
        """Number of calls that have not ended."""

    async def call(self, argument: Any) -> None:
        """Call the function, and raise its error. If the task is cancelled, the function still runs to its end."""
        told: asyncio.Future[BaseException | None] = self._loop.create_future()
        if self._busy >= self._threads:
            self._start_thread()
        self._busy += 1
        self._calls.put((told, argument))
        # The error is the result of the future, not its exception: a future refuses a StopIteration, and complains of
        # an exception that nobody fetches, as happens after a cancellation.
        error = await told
        if error is not None:
            try:
                raise error
            finally:
                del error, told  # The traceback refers to this frame.

    def close(self) -> None:
        """Let each thread end when the calls before this are done."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
            return  # The system gives no more threads: the call waits for one of the others.
        self._threads += 1

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            told, argument = call
            error: BaseException | None = None
            try:
                if not told.done():  # Its task was cancelled before.
                    call_plain(self._what, self._function, argument)
            except BaseException as raised:
                error = raised
            del call, argument
            try:
                self._loop.call_soon_threadsafe(self._end, told, error)
            except RuntimeError:
                return  # The loop has ended.
            del told, error

    def _end(self, told: asyncio.Future[BaseException | None], error: BaseException | None) -> None:
        self._busy -= 1
        if not told.done():
            told.set_result(error)
