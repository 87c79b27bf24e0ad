"""Records that are deleted on request beside a queue group: what stands is copied first, the rest is lost as for any
reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logbroker.errors import DiskFullError, RecordsNeededError
from logbroker.grpc_api.queues.admin_messages import described_queue
from logbroker.pacing import Pace
from logbroker.queues.model.settings import Ordering, Priority
from logbroker.queues.records import columns
from logbroker.queues.retention.copies import Copies
from logbroker.queues.scan.scanner import BARRIER_SECONDS
from tests.queues.retained import COPIES, KEYS, GroupRun, again, all_held, begin
from tests.queues.shell import hello, shell, until

COUNT = 20
END = len(KEYS) * COUNT


@pytest.mark.parametrize("crash", [False, True])
async def test_lanes_that_stand_keep_their_records(tmp_path: Path, crash: bool) -> None:
    async with shell(tmp_path, crash=crash) as opened:
        run = await begin(opened, [b"blocked"])
        topic_id = opened.engine.topic("t").id
        await run.write(KEYS, range(COUNT))
        await run.work(7 * COUNT)
        assert await opened.engine.delete_records(topic_id, 0, -1) == END
        facts = run.facts()
        assert (facts.log_start_offset, facts.high_watermark, facts.size_bytes) == (END, END, 0)
        assert run.group.queue.tally.expired == 0
    async with shell(tmp_path) as opened:
        run = await again(opened)
        assert run.facts().log_start_offset == END
        await all_held(run, COUNT)
        await run.write([b"blocked"], [COUNT])
        await run.resume()
        await run.work(COUNT + 1)
        assert run.done == {b"blocked": list(range(COUNT + 1))}


@pytest.mark.parametrize("first", [0, END // 2])
async def test_many_batches_after_copies_are_all_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """The first read after the copies brings so many batches that they are admitted in several pieces."""
    monkeypatch.setattr(columns, "MAX_BATCHES", 2)
    async with shell(tmp_path) as opened:
        await opened.engine.create_topic("t", 1, {})
        group = await opened.group("t", None, max_attempts=1)
        run = GroupRun(opened, group, await group.connect(hello()), [b"blocked"])
        await run.write(KEYS, range(COUNT))
        await run.work(7 * COUNT)
        before = first or END
        assert await opened.engine.delete_records(opened.engine.topic("t").id, 0, before) == before
        await run.write([b"k0"], range(COUNT, 2 * COUNT))
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await run.work(COUNT)
        assert run.done == {b"k0": list(range(COUNT, 2 * COUNT))}
        assert await run.group.scanner.catch_up()


@pytest.mark.parametrize("beyond", [0, 3], ids=["between batches", "in a batch"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"ordering": Ordering.NONE}, {"ordering": Ordering.NONE, "priority": Priority.STRICT}],
    ids=["keys", "no order", "priorities"],
)
async def test_records_that_wait_are_deleted_and_the_group_goes_on(
    tmp_path: Path, settings: dict[str, Any], beyond: int
) -> None:
    """Nothing of them is handed out any more, although the broker still has them in memory."""
    async with shell(tmp_path) as opened:
        run = await begin(opened, [], **settings)
        topic_id = opened.engine.topic("t").id
        await run.write(KEYS, range(COUNT))
        await until(lambda: run.group.queue.position(0) == END)
        before = END // 2 + beyond
        assert await opened.engine.delete_records(topic_id, 0, before) == before
        await run.write([b"k0"], [COUNT])
        while run.group.queue.done.floor(0) < END + 1:
            await run.work_once()
        kept: dict[bytes | None, list[int]] = {}
        for offset in range(before, END):
            kept.setdefault(KEYS[offset % len(KEYS)], []).append(offset // len(KEYS))
        kept.setdefault(b"k0", []).append(COUNT)
        assert run.done == kept
        assert run.group.queue.tally.expired == before
        await until(lambda: run.group.inspector.counts().open == 0)


async def test_a_group_that_cannot_copy_keeps_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object, **__: object) -> None:
        raise DiskFullError("no room for copies")

    async with shell(tmp_path) as opened:
        run = await begin(opened, [b"blocked"])
        topic_id = opened.engine.topic("t").id
        await run.write(KEYS, range(COUNT))
        await run.work(7 * COUNT)
        with monkeypatch.context() as patch:
            patch.setattr(Copies, "add", full)
            with pytest.raises(RecordsNeededError):
                await opened.engine.delete_records(topic_id, 0, -1)
        assert run.facts().log_start_offset == 0
        assert await opened.engine.delete_records(topic_id, 0, -1) == END
        assert run.facts(COPIES).high_watermark > 0
        await all_held(run, COUNT)


@pytest.mark.parametrize(
    ("by_retention", "settings"),
    [
        (False, {"ordering": Ordering.KEY}),
        (True, {"ordering": Ordering.NONE}),
        (True, {"ordering": Ordering.KEY, "priority": Priority.STRICT}),
        (False, {"ordering": Ordering.NONE, "priority": Priority.STRICT}),
        (False, {"ordering": Ordering.KEY, "max_ready_records": 1}),  # The scan pauses.
    ],
)
async def test_a_group_without_workers_counts_removed_records_as_done(
    tmp_path: Path, by_retention: bool, settings: dict[str, Any]
) -> None:
    async with shell(tmp_path) as opened:
        run = await begin(opened, [], **settings)
        await run.write(KEYS, range(COUNT))
        run.link.add_credit(1)
        await run.link.next_deliveries()
        if by_retention:
            await run.retain()
        else:
            await opened.engine.delete_records(opened.engine.topic("t").id, 0, END // 2)
        start = run.facts().log_start_offset
        assert 0 < start < END
        await run.group.goodbye(run.link)
        described = await described_queue(opened.engine, run.group, Pace(), BARRIER_SECONDS)
        counts = described.counts
        assert (counts.open + counts.unscanned, counts.removed, counts.expired) == (END - start, 0, start)
        assert [each.done for each in described.partitions] == [start]
