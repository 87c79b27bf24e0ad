"""A scan over a log in memory, and the queue that it feeds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from logbroker.queues.machine.queue import Queue
from logbroker.queues.records.batch_cache import BatchCache
from logbroker.queues.records.fetch import Records
from logbroker.queues.scan.scanner import Scanner
from logbroker.record.codec import LogRecord
from logbroker.types import TopicId
from tests.queues.fake_log import FakeLog, unopened_queue
from tests.queues.groups import TOPIC_ID, at, record_ids

NOW = at(0)


class Scan:
    """A scan that runs, and the queue that it feeds."""

    def __init__(self, log: FakeLog, queue: Queue) -> None:
        self.log = log
        self.queue = queue
        self.records = Records(log.engine, TopicId(TOPIC_ID), BatchCache(1 << 25))
        self.scanner = Scanner(log.engine, queue, self.records, lambda: NOW, self._changed)
        self._event = asyncio.Event()

    def _changed(self) -> None:
        self._event.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(25):
            while not condition():
                self._event.clear()
                await self._event.wait()

    def position(self, partition: int) -> int:
        return self.queue.position(partition) if self.queue.done.is_open(partition) else 0

    async def all_scanned(self) -> None:
        await self.until(lambda: self.scanner.unscanned() == 0)

    async def values(self, worker_id: str = "w") -> list[bytes | None]:
        """Take all that is ready, and say what it is."""
        granted = self.queue.take(worker_id, 1_000_000, NOW)
        fetched = await self.records.fetch(record_ids(granted))
        return [record.value for record in fetched if isinstance(record, LogRecord)]


@asynccontextmanager
async def scanning(log: FakeLog, **settings: Any) -> AsyncIterator[Scan]:
    scan = Scan(log, unopened_queue(**settings))
    task = asyncio.create_task(scan.scanner.run())
    try:
        yield scan
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled() or task.exception() is None
    assert not log.watches


async def some_turns() -> None:
    """Let happen what would happen."""
    for _ in range(20):
        await asyncio.sleep(0)


def ready(scan: Scan) -> int:
    return scan.queue.lanes.ready_records
