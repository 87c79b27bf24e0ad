"""Threads for the file work that the event loop decides on."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable

Job = Callable[[], None]


class IoPool:
    """Runs jobs on a few threads, and their completions on the event loop.

    Apart from the sync, a thread hop is most of the cost of a small synced append. So the thread that became idle last
    takes the next job, because its stack is still in the cache, and completions that pile up while the loop is busy
    share one wake-up. An executor would wake the thread that slept longest, and pay for a future and a wake-up for each
    job.
    """

    def __init__(self, threads: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._idle: list[queue.SimpleQueue[Job | None]] = []
        self._backlog: deque[Job | None] = deque()
        self._completions: deque[Job] = deque()
        self._wake_up_due = False
        self._threads = [
            threading.Thread(target=self._work, name=f"logbroker-io-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        """Run `job` on a thread. It must not raise; it reports through `complete`."""
        self._give(job)

    def complete(self, completion: Job) -> None:
        """Run `completion` on the event loop, after earlier ones of the same thread. May be called on any thread."""
        self._completions.append(completion)
        if not self._wake_up_due:
            self._wake_up_due = True
            self._loop.call_soon_threadsafe(self._run_completions)

    def close(self) -> None:
        """Let the threads finish the submitted jobs and end; then run the completions of these jobs."""
        for _ in self._threads:
            self._give(None)
        for thread in self._threads:
            thread.join()
        self._run_completions()

    def _give(self, job: Job | None) -> None:
        with self._lock:
            if not self._idle:
                self._backlog.append(job)
                return
            inbox = self._idle.pop()
        inbox.put(job)

    def _work(self) -> None:
        inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        while (job := self._next(inbox)) is not None:
            job()

    def _next(self, inbox: queue.SimpleQueue[Job | None]) -> Job | None:
        with self._lock:
            if self._backlog:
                return self._backlog.popleft()
            self._idle.append(inbox)
        return inbox.get()

    def _run_completions(self) -> None:
        # Lower the flag first: a completion appended from now on is either seen below or wakes the loop again.
        self._wake_up_due = False
        while self._completions:
            self._completions.popleft()()
