"""Threads for blocking work other than writes. Each kind of work has its own pool, so that it does not delay other
kinds.

lookups   offsets by time: they read and decode, and any number of callers may ask for them
reads     records that are not in the page cache, and indexes that are made anew
changes   directories and files of new and opened topics, segments that retention removes, checkpoints,
          rows of groups: a few at a time, and callers wait for them
removals  files of deleted topics: may take long, and only the deleting caller waits
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

LOOKUP_THREADS: Final = 2
READ_THREADS: Final = 8
CHANGE_THREADS: Final = 2
REMOVAL_THREADS: Final = 1
HELPER_THREADS: Final = LOOKUP_THREADS + READ_THREADS + CHANGE_THREADS + REMOVAL_THREADS


class Helpers:
    """The pools of one engine. Work that runs in a thread goes on if its caller is cancelled; work that has not begun
    is dropped."""

    def __init__(self) -> None:
        self._lookups = _started_pool(LOOKUP_THREADS, "logbroker-lookup")
        self._reads = _started_pool(READ_THREADS, "logbroker-read")
        self._changes = _started_pool(CHANGE_THREADS, "logbroker-change")
        self._removals = _started_pool(REMOVAL_THREADS, "logbroker-removal")

    async def look_up(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._lookups, work)

    async def read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reads, work)

    async def change(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._changes, work)

    async def remove(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._removals, work)

    def close(self) -> None:
        """End the threads once the running work is done."""
        for pool in (self._lookups, self._reads, self._changes, self._removals):
            pool.shutdown(cancel_futures=True)


def _started_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return a pool whose threads run already. An executor starts them one by one when they are needed, and by then the
    system may have no thread left."""
    pool = ThreadPoolExecutor(threads, name)
    all_run = threading.Barrier(threads + 1)
    try:
        for _ in range(threads):
            pool.submit(all_run.wait)
        all_run.wait()
    except BaseException:
        all_run.abort()
        raise
    return pool
