"""The worker processes of one group. They are forked from a process that has loaded all modules. The crew starts them,
receives their reports, and ends them."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Callable, Coroutine, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from time import monotonic
from types import TracebackType
from typing import Any, Final, TypeVar

from logbroker.client.admin.queue_admin import QueueAdmin
from logbroker.errors import LogbrokerError, RequestTimeoutError
from logbroker.tools.experiments import worker_process
from logbroker.tools.experiments.metrics import Finish
from logbroker.tools.experiments.worker_process import Failed, Holds, WorkerJob

T = TypeVar("T")

READY_SECONDS: Final = 60.0
"""Maximum time until workers are connected, and until members hold their partitions."""
_LOOK_SECONDS: Final = 0.02
_END_SECONDS: Final = 10.0


class Crew:
    """The worker processes of one group. Use it with `async with`, in one event loop; leaving it ends them."""

    def __init__(self, on_finished: Callable[[list[Finish]], None]) -> None:
        """`on_finished` is called in the event loop with the records that a worker reports as finished."""
        self._on_finished = on_finished
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([worker_process.__name__])
        self._workers: list[tuple[Any, Connection[None, Any]]] = []
        self._holds: list[Holds | None] = []
        """The last report of each worker, or None before the first one."""
        self._joined: dict[int, float] = {}
        self._changed = asyncio.Event()
        self._failure: str | None = None

    def hire(self, jobs: Sequence[WorkerJob]) -> None:
        """Start a process for each job. The jobs must be numbered from 0, in the order of their start."""
        _start_fork_server()
        for job in jobs:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=worker_process.main, args=(job, theirs), daemon=True)
            process.start()
            theirs.close()
            self._workers.append((process, ours))
            self._holds.append(None)
            asyncio.get_running_loop().add_reader(ours.fileno(), self._hear, job.number)

    def check(self) -> None:
        """Raise LogbrokerError if a process has failed."""
        if self._failure is not None:
            raise LogbrokerError(f"a worker process ended: {self._failure}")

    async def connected(self, admin: QueueAdmin, group: str) -> None:
        """Wait until all processes are connected to the queue group and wait for records."""
        await _in_time(self._connected(admin, group))

    async def _connected(self, admin: QueueAdmin, group: str) -> None:
        while True:
            workers = (await admin.describe_queue(group)).workers
            if sum(worker.connected and worker.credit > 0 for worker in workers) == len(self._workers):
                return
            self.check()
            await asyncio.sleep(_LOOK_SECONDS)

    async def balanced(self, partitions: int) -> float:
        """Wait until the members hold all partitions, and their numbers of partitions differ by at most 1. Return the
        time since which this holds, on the monotonic clock."""
        return await _in_time(self._balanced(partitions))

    async def _balanced(self, partitions: int) -> float:
        while True:
            self._changed.clear()
            told = [holds for holds in self._holds if holds is not None]
            counts = [len(holds.partitions) for holds in told]
            if len(told) == len(self._holds) and sum(counts) == partitions and max(counts) - min(counts) <= 1:
                return max(holds.since for holds in told)
            self.check()
            await self._changed.wait()

    def partitions_of(self, number: int) -> frozenset[int]:
        """Return the partitions that a member holds."""
        holds = self._holds[number]
        return frozenset() if holds is None else holds.partitions

    def joined_at(self, number: int) -> float:
        """Return when a member asked to join, on the monotonic clock."""
        return self._joined[number]

    def _hear(self, number: int) -> None:
        connection = self._workers[number][1]
        try:
            report = connection.recv()
        except (EOFError, ConnectionResetError):
            asyncio.get_running_loop().remove_reader(connection.fileno())
            self._failure = self._failure or "without a word"
            self._changed.set()
            return
        if isinstance(report, list):
            self._on_finished(report)
            return
        if isinstance(report, Holds):
            self._holds[number] = report
            self._joined.setdefault(number, report.since)
        elif isinstance(report, Failed):
            self._failure = report.reason
        self._changed.set()

    async def __aenter__(self) -> Crew:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for _process, connection in self._workers:
            asyncio.get_running_loop().remove_reader(connection.fileno())
        # After an error or an interrupt, do not wait until the workers have left: the broker may have ended before.
        await asyncio.to_thread(self._end, _END_SECONDS if error is None else 0.0)

    def _end(self, patience_seconds: float) -> None:
        for _process, connection in self._workers:
            connection.close()
        deadline = monotonic() + patience_seconds
        for process, _connection in self._workers:
            process.join(max(0.0, deadline - monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def _start_fork_server() -> None:
    """Start the process from which worker processes are forked, unless it runs already.

    Ctrl-C reaches this process, too, and would end it with a traceback while it loads modules. Therefore SIGINT is
    blocked in it.
    """
    resource_tracker.ensure_running()  # First, because it unblocks SIGINT.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


async def _in_time(waiting: Coroutine[Any, Any, T]) -> T:
    try:
        async with asyncio.timeout(READY_SECONDS):
            return await waiting
    except TimeoutError:
        raise RequestTimeoutError(
            f"the workers were not ready within {READY_SECONDS:.0f} s: is the machine too busy? Ask for fewer workers"
        ) from None
