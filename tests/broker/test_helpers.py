"""Pools of threads: what comes in crowds, or is slow, keeps nothing else waiting."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from logbroker.broker.local_engine.helpers import (
    CHANGE_THREADS,
    LOOKUP_THREADS,
    READ_THREADS,
    REMOVAL_THREADS,
    Helpers,
)
from logbroker.broker.local_engine.lifetime import open_engine
from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.engine import Append, FoundOffset
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.storage.partition_log import PartitionLog

CALLERS = 40


async def test_topics_change_while_a_crowd_looks_up_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released, entered = threading.Event(), threading.Event()

    def stuck(self: PartitionLog, timestamp_ms: int) -> FoundOffset:
        entered.set()
        assert released.wait(60)
        return FoundOffset(-1, -1, -1)

    monkeypatch.setattr(PartitionLog, "offset_for_time", stuck)
    config = BrokerConfig(data_dir=str(tmp_path / "data"))
    async with open_engine(config, SystemClock(), lambda error: None) as (engine, state):
        topic = await engine.create_topic("t", 1, {})
        lookups = [asyncio.create_task(engine.offset_for_time(topic.id, 0, 0)) for _ in range(CALLERS)]
        try:
            # Nothing of this needs a thread that a lookup has.
            async with asyncio.timeout(30):
                while not entered.is_set():
                    await asyncio.sleep(0)
                other = await engine.create_topic("other", 3, {})
                await engine.alter_topic(other.id, partitions=5)
                batch = encode_batch([NewRecord(value=b"v")])
                [appended] = await engine.append([Append(other.id, 4, batch)])
                assert not isinstance(appended, Exception)
                await state.load("group")
                await engine.delete_topic(other.id)
                assert await asyncio.to_thread(lambda: True)
        finally:
            released.set()
            await asyncio.gather(*lookups)


async def test_no_call_needs_a_thread_that_does_not_run_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    helpers = Helpers()
    try:

        def refuse(self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        for run, threads in (
            (helpers.look_up, LOOKUP_THREADS),
            (helpers.read, READ_THREADS),
            (helpers.change, CHANGE_THREADS),
            (helpers.remove, REMOVAL_THREADS),
        ):
            all_run = threading.Barrier(threads, timeout=30)
            await asyncio.gather(*(run(all_run.wait) for _ in range(threads)))
    finally:
        helpers.close()
