"""Threads that do the file work of what the event loop decided."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable

Job = Callable[[], None]


class IoPool:
    """Runs jobs on a few threads; their completions run on the loop.

    A thread hop is most of what a small synced append costs beside the sync. So the thread that went idle last takes
    the next job, since its stack is still in the cache, and completions that pile up while the loop is busy share one
    wake-up; an executor wakes the thread that slept longest, and pays a future and a wake-up for each job.
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
        """Run `completion` on the loop, after those given before by the same thread. May be called on any thread."""
        self._completions.append(completion)
        if not self._wake_up_due:
            self._wake_up_due = True
            self._loop.call_soon_threadsafe(self._run_completions)

    def close(self) -> None:
        """Let the threads finish what was submitted and end them; then run what they completed."""
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
        # Lower the flag first: what is appended from now on either is seen below or wakes the loop again.
        self._wake_up_due = False
        while self._completions:
            self._completions.popleft()()
