"""Queue groups over a real engine on a temporary directory, within the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from logbroker.broker.local_engine.engine import LocalEngine
from logbroker.broker.local_engine.lifetime import open_engine
from logbroker.broker.local_engine.state_store import LocalStateStore
from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.engine import Append, Appended, Read, ReadResult, StateEvent, Topic
from logbroker.errors import BrokerUnavailableError
from logbroker.queues.delivery.worker_stream import WorkerLink
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.messages import Delivered, Nack, Settlement
from logbroker.queues.model.settings import QueueGroupSettings
from logbroker.queues.model.starts import StartAt
from logbroker.queues.model.worker_messages import Hello
from logbroker.queues.registry import QueueGroupRegistry
from logbroker.record.codec import LogRecord, NewRecord, decode_batch, encode_batch, split_batches

DEADLINE_SECONDS = 25.0


class Shell:
    """An engine, and the queue groups over it."""

    def __init__(self, engine: LocalEngine, state: LocalStateStore, groups: QueueGroupRegistry) -> None:
        self.engine = engine
        self.state = state
        self.groups = groups

    async def topic(self, name: str = "t", partitions: int | None = 1, **overrides: str) -> Topic:
        return await self.engine.create_topic(name, partitions, overrides)

    async def group(self, topic: str = "t", start: StartAt | None = None, **settings: Any) -> QueueGroup:
        settings = {"grace_seconds": 0.2, "backoff_jitter": 0.0, **settings}
        group, _ = await self.groups.create(
            "g", self.engine.topic(topic), QueueGroupSettings(**settings), start or StartAt()
        )
        return group

    async def append(self, *records: tuple[bytes | None, bytes], topic: str = "t", partition: int = 0) -> int:
        """Append keys and values as one batch; return its base offset."""
        batch = encode_batch([NewRecord(value=value, key=key) for key, value in records])
        [result] = await self.engine.append([Append(self.engine.topic(topic).id, partition, batch)])
        assert isinstance(result, Appended), result
        return result.base_offset

    async def append_records(self, records: Sequence[tuple[Any, ...]], topic: str = "t", partition: int = 0) -> None:
        """Append keys, values, headers and, if given, timestamps as one batch."""
        batch = encode_batch([NewRecord(value, key, headers, *stamp) for key, value, headers, *stamp in records])
        [result] = await self.engine.append([Append(self.engine.topic(topic).id, partition, batch)])
        assert isinstance(result, Appended), result

    @contextmanager
    def commits_held(self) -> Iterator[asyncio.Event]:
        """Let no commit of groups begin before the event is set."""
        release = asyncio.Event()
        commit = self.state.commit

        async def held(scope: str, events: Sequence[StateEvent]) -> None:
            await release.wait()
            await commit(scope, events)

        self.state.commit = held  # type: ignore[method-assign]
        try:
            yield release
        finally:
            release.set()
            self.state.commit = commit  # type: ignore[method-assign]

    async def stored(self, topic: str, partition: int = 0) -> list[LogRecord]:
        """All records of a partition."""
        [result] = await self.engine.read([Read(self.engine.topic(topic).id, partition, 0, 1 << 24)])
        assert isinstance(result, ReadResult), result
        return [record for _, batch in split_batches(result.batches) for record in decode_batch(batch)]


@asynccontextmanager
async def shell(path: Path, *, crash: bool = False) -> AsyncIterator[Shell]:
    """One run of a broker; `crash`: at its end, nothing is said to be the end."""
    config = BrokerConfig(data_dir=str(path / "data"))
    failures: list[Exception] = []
    async with open_engine(config, SystemClock(), failures.append) as (engine, state):
        groups = QueueGroupRegistry(config, SystemClock(), engine, state, path / "data")
        await groups.load()
        try:
            yield Shell(engine, state, groups)
        finally:
            if crash:
                for group_id in groups.ids():
                    await groups.group(group_id).end(BrokerUnavailableError("the broker is killed"))
            else:
                await groups.stop()
    assert not failures


def hello(worker_id: str = "w", incarnation: int = 1, **fields: Any) -> Hello:
    return Hello(worker_id=worker_id, incarnation=incarnation, **fields)


def records(delivered: Delivered) -> list[LogRecord]:
    found = [record for _, batch in split_batches(delivered.batches) for record in decode_batch(batch)]
    if len(delivered.offsets) < delivered.count:
        found = [record for record in found if record.offset >= delivered.offsets[0]][: delivered.count]
    assert len(found) == delivered.count
    return found


def values(delivered: Delivered) -> list[bytes | None]:
    return [record.value for record in records(delivered)]


async def take(link: WorkerLink, count: int, *, credit: bool = True) -> list[tuple[int, LogRecord]]:
    """Give credit for records, and wait for so many; return receipts and records."""
    if credit:
        link.add_credit(count)
    taken: list[tuple[int, LogRecord]] = []
    async with asyncio.timeout(DEADLINE_SECONDS):
        while len(taken) < count:
            delivered = await link.next_deliveries()
            taken += enumerate(records(delivered), delivered.first_receipt)
    return taken


async def ack(link: WorkerLink, *receipts: int) -> None:
    assert await link.settle(Settlement(acks=[(receipt, receipt) for receipt in receipts])) == []


async def nack(link: WorkerLink, *receipts: int, reason: str = "broken", delay_seconds: float | None = None) -> None:
    nacks = [Nack(receipt, receipt, reason, delay_seconds) for receipt in receipts]
    refused = await link.settle(Settlement(nacks=nacks))
    assert not refused, refused


async def until(condition: Callable[[], object]) -> None:
    """Wait until something has come true."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():
            await asyncio.sleep(0.001)
