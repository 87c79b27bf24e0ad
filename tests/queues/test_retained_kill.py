"""A broker that is killed while retention takes what stands in a queue group: a process of its own, and SIGKILL."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from logbroker.broker.local_engine.engine import LocalEngine
from logbroker.broker.local_engine.topic_changes import TopicChanges
from logbroker.broker.local_engine.upkeep import Upkeep
from logbroker.queues.retention import holder as retention_hold
from logbroker.queues.retention.copies import Copies
from logbroker.storage.partition_log import PartitionLog
from tests.nursery import processes
from tests.queues.kills import killed_in
from tests.queues.retained import COPIES, again, begin
from tests.queues.shell import shell, until

COUNT = 50
KEYS = [b"blocked", *[b"free"] * 4, b"also blocked"]


MOMENTS = {
    "the internal topic is made, and nothing says so": killed_in(TopicChanges, "create", call=2, after=True),
    "a batch is copied, and has no row": killed_in(LocalEngine, "append", call=COUNT + 2, after=True),
    "a batch is copied": killed_in(Copies, "add", call=2, after=True),
    "all is copied": killed_in(Upkeep, "_remove_below", call=1, after=False),
    "the log has a new start, and the files of before": killed_in(PartitionLog, "remove_files", call=1, after=False),
    "all is let go": killed_in(Upkeep, "_remove_below", call=1, after=True),
}


def run_that_ends(path: Path, moment: str) -> None:
    """Runs in a process of its own."""
    retention_hold.BATCH_BYTES = 3_000  # type: ignore[misc]
    MOMENTS[moment]()

    async def live() -> None:
        async with shell(path) as opened:
            run = await begin(opened, [b"blocked", b"also blocked"])
            await run.write(KEYS, range(COUNT))
            await run.work(4 * COUNT)
            for _ in range(3):
                await run.look()

    asyncio.run(live())


@pytest.mark.prove
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path, moment: str) -> None:
    process = processes.Process(target=run_that_ends, args=(tmp_path, moment))
    process.start()
    await asyncio.to_thread(process.join, 60)
    assert process.exitcode == -signal.SIGKILL
    for turn in (1, 2):
        async with shell(tmp_path, crash=True) as opened:
            run = await again(opened, [b"blocked", b"also blocked"])
            await run.write(KEYS, range(COUNT * turn, COUNT * (turn + 1)))
            await run.work(4 * COUNT)
            await run.retain()
            assert run.facts().log_start_offset > len(KEYS) * COUNT * (turn - 0.5)
            assert run.copied() == sorted(set(run.copied()))
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await until(lambda: sum(map(len, run.group.inspector.held())) == 2 * 3 * COUNT)
        await run.resume()
        await run.work(2 * 3 * COUNT)
        assert run.done == {b"blocked": list(range(3 * COUNT)), b"also blocked": list(range(3 * COUNT))}
        assert {topic.name for topic in opened.engine.topics()} == {"t", COPIES}
