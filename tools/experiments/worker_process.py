"""A process that works on records: a worker of a queue group, or a member of a consumer group.

Its work takes a given time, in which the process sleeps and does nothing else, like a process that computes. It reports
the finished records, in lists, and the partitions that it holds. It ends when the parent closes the connection. The
module is loaded once and then forked (`crew`), so nothing here may touch gRPC before a process has begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection
from time import monotonic, sleep
from typing import Final

import msgspec

from logbroker.client.consumer.consumer import Consumer
from logbroker.client.worker.worker import Worker
from logbroker.tools.experiments.metrics import Finish
from logbroker.types import TopicPartition

REPORT_SECONDS: Final = 0.05
TURN_SECONDS: Final = 0.025
_STEPS: Final = 5
"""Number of event loop steps in a turn: a settlement is sent this many steps after the ack."""


class WorkerJob(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a worker process."""

    number: int
    """The number of the process, from 0 on."""
    broker: str
    group: str
    topic: str
    work_seconds: float
    """The time that the work on each record takes."""
    prefetch: int
    """Maximum number of unsettled records of a worker of a queue group. 0 means that the process is a member of a
    consumer group."""

    @property
    def is_member(self) -> bool:
        return self.prefetch == 0


class Holds(msgspec.Struct, frozen=True):
    """The partitions that a member holds, and the time since which it holds them, in monotonic seconds."""

    partitions: frozenset[int]
    since: float


class Failed(msgspec.Struct, frozen=True):
    """The report of a process that failed, with the reason."""

    reason: str


Report = list[Finish] | Holds | Failed
"""A report of a worker process. A list may be empty."""


def main(job: WorkerJob, connection: Connection[Report, None]) -> None:
    """Work until told to end."""
    # Failures are reported to the parent. The parent also handles Ctrl-C: it closes the connection.
    logging.getLogger("logbroker").addHandler(logging.NullHandler())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        try:
            asyncio.run(_run(job, connection))
        except Exception as error:
            connection.send(Failed(f"{type(error).__name__}: {error}"))


async def _run(job: WorkerJob, connection: Connection[Report, None]) -> None:
    reports = _Reports(connection)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(connection.fileno(), ended.set)
    work = _read(job, reports) if job.is_member else _work(job, reports)
    tasks = [asyncio.ensure_future(each) for each in (work, reports.often(), ended.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        asyncio.get_running_loop().remove_reader(connection.fileno())
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


class _Reports:
    """The finished records that are not reported yet. They are reported even if the work gives the event loop no
    turn."""

    def __init__(self, connection: Connection[Report, None]) -> None:
        self.tell: Final = connection.send
        self._finished: list[Finish] = []
        self._told = monotonic()

    def finished(self, finish: Finish) -> None:
        self._finished.append(finish)
        if finish.finished - self._told > REPORT_SECONDS:
            self._tell_finished()

    async def often(self) -> None:
        """Report at intervals, so that the last records are reported even if no more follow."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            if self._finished:
                self._tell_finished()

    def _tell_finished(self) -> None:
        self._told = monotonic()
        self.tell(self._finished)
        self._finished = []


class _Turns:
    """Gives the event loop its turns, in which it sends settlements and reads answers."""

    def __init__(self) -> None:
        self._last = monotonic()

    async def give(self, now: float) -> None:
        """Give the event loop a turn every 25 ms, so that short work is settled together. Call it after each record."""
        if now - self._last < TURN_SECONDS:
            return
        for _ in range(_STEPS):
            await asyncio.sleep(0)
        self._last = monotonic()


def _toil(seconds: float) -> tuple[float, float]:
    """Work for `seconds`. Return the times of the beginning and the end."""
    begun = monotonic()
    sleep(seconds)
    return begun, monotonic()


async def _work(job: WorkerJob, reports: _Reports) -> None:
    turns = _Turns()
    async with Worker(job.broker, job.group, prefetch=job.prefetch) as worker:
        async for delivery in worker:
            begun, ended = _toil(job.work_seconds)
            delivery.ack()
            reports.finished(Finish(delivery.partition, delivery.offset, begun, ended, job.number))
            await turns.give(ended)


async def _read(job: WorkerJob, reports: _Reports) -> None:
    held: set[int] = set()
    turns = _Turns()

    def assigned(partitions: Sequence[TopicPartition]) -> None:
        held.update(each.partition for each in partitions)
        reports.tell(Holds(frozenset(held), monotonic()))

    def released(partitions: Sequence[TopicPartition]) -> None:
        held.difference_update(each.partition for each in partitions)
        reports.tell(Holds(frozenset(held), monotonic()))

    async with Consumer(job.broker, group=job.group) as consumer:
        reports.tell(Holds(frozenset(), monotonic()))
        await consumer.subscribe(job.topic, on_assigned=assigned, on_revoked=released, on_lost=released)
        async for record in consumer:
            begun, ended = _toil(job.work_seconds)
            reports.finished(Finish(record.partition, record.offset, begun, ended, job.number))
            await turns.give(ended)
