"""Engines on temporary directories, within the test's own event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from logbroker.broker.broker import Broker, open_broker
from logbroker.broker.local_engine.engine import LocalEngine
from logbroker.broker.local_engine.lifetime import open_engine
from logbroker.broker.local_engine.state_store import LocalStateStore
from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.engine import Append, Appended
from logbroker.errors import LogbrokerError
from logbroker.queues.scan.index_cache.files import DIRECTORY
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.types import Durability, TopicId


class TestClock(SystemClock):
    """The machine's clock, with a wall that tests can move."""

    __test__ = False

    def __init__(self) -> None:
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


class Opened:
    """An engine, its state store, and what it reported."""

    def __init__(
        self, engine: LocalEngine, state: LocalStateStore, clock: TestClock, failures: list[Exception]
    ) -> None:
        self.engine = engine
        self.state = state
        self.clock = clock
        self.failures = failures

    async def append(
        self, topic_id: TopicId, *values: bytes, durability: Durability | None = None, **fields: Any
    ) -> int:
        """Append one batch to partition 0; returns its base offset, raises its error."""
        [outcome] = await self.engine.append([Append(topic_id, 0, batch(*values, **fields))], durability)
        if isinstance(outcome, LogbrokerError):
            raise outcome
        assert isinstance(outcome, Appended)
        return outcome.base_offset


@asynccontextmanager
async def broker_on(path: Path) -> AsyncIterator[Broker]:
    """A whole broker, without its listeners."""
    failure = asyncio.get_running_loop().create_future()
    config = BrokerConfig(data_dir=str(path / "data"), checkpoint_seconds=3600.0)
    async with open_broker(config, failure) as broker:
        yield broker
        assert not failure.done()


OpenEngine = Callable[..., AbstractAsyncContextManager[Opened]]


@pytest.fixture
def open_at(tmp_path: Path) -> OpenEngine:
    """Opens an engine on the test's directory; settings are those of BrokerConfig."""

    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[Opened]:
        clock = TestClock()
        failures: list[Exception] = []
        config = BrokerConfig(data_dir=str(tmp_path / "data"), **settings)
        async with open_engine(config, clock, failures.append, {DIRECTORY}) as (engine, state):
            yield Opened(engine, state, clock, failures)

    return opened


class HeldSync:
    """fdatasync of log files waits until it is released; `fail` makes it raise instead."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()
        self.error: OSError | None = None
        self.active = False


@pytest.fixture
def held_sync(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldSync]:
    held = HeldSync()
    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        if held.active and os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            held.entered.set()
            assert held.release.wait(20)
            if held.error is not None:
                raise held.error
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    yield held
    held.release.set()


def batch(*values: bytes, **fields: Any) -> bytes:
    return encode_batch([NewRecord(value=value) for value in values], **fields)
