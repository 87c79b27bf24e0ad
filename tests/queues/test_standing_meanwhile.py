"""Lanes that come to stand while retention takes their records, and those that stand by what lies far away."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import pytest

from logbroker.queues.model.messages import Nack, Settlement
from logbroker.queues.model.starts import StartAt
from logbroker.queues.operations import LaneName
from logbroker.queues.retention.copies import Copies
from logbroker.queues.retention.stalled_records import StalledRecords, Standing
from logbroker.queues.scan.scanner import Scanner
from logbroker.record.codec import LogRecord
from logbroker.record.message_headers import NOT_BEFORE
from tests.queues.retained import GroupRun, again
from tests.queues.shell import Shell, hello, shell, take, until
from tests.queues.test_standing import CONFIGS, HOUR_MS, append, scan_nothing

COUNT = 24
KEYS = [b"early", *(b"late%d" % number for number in range(6)), b"free"]


async def begin(opened: Shell, **settings: Any) -> tuple[GroupRun, dict[bytes | None, int]]:
    """The first record of `early` is blocked, those of the other keys are in flight; return their receipts."""
    await opened.engine.create_topic("t", 2, CONFIGS)
    group = await opened.group("t", None, **{"max_attempts": 1, **settings})
    group.records.batches.cache.max_bytes = 0  # Else what was read shortly before is still served.
    run = GroupRun(opened, group, await group.connect(hello()), ())
    await append(opened, KEYS, 0)
    receipts = {record.key: receipt for receipt, record in await take(run.link, len(KEYS))}
    await fail(run, receipts.pop(b"early"))
    for number in range(1, COUNT):
        await append(opened, KEYS, number)
    await until(lambda: group.queue.position(0) == run.facts().high_watermark)
    return run, receipts


async def fail(run: GroupRun, receipt: int) -> None:
    assert await run.link.settle(Settlement(nacks=[Nack(receipt, receipt)])) == []


async def kept(path: Path, keys: Iterable[bytes]) -> None:
    """In another run, all records of these keys come, in order."""
    async with shell(path) as opened:
        run = await again(opened)
        queue = run.group.queue
        await until(lambda: queue.admission.generation and queue.position(0) == run.facts().high_watermark)
        await run.resume()
        while run.group.inspector.counts().open:
            await run.work_once()
        for key in keys:
            assert run.done[key] == list(range(COUNT)), key


def before_each(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Do something before each batch of copies is made."""
    add = Copies.add

    async def late(self: Copies, partition: int, records: list[LogRecord], instead_of: Iterable[int] = ()) -> None:
        await act()
        await add(self, partition, records, instead_of)

    monkeypatch.setattr(Copies, "add", late)


@pytest.mark.parametrize("lanes", [1, 2, 6])
async def test_what_comes_to_stand_while_others_are_copied_is_copied_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int
) -> None:
    """Also where that happens again and again."""
    async with shell(tmp_path, crash=True) as opened:
        run, receipts = await begin(opened)
        late = [b"late%d" % number for number in range(lanes)]
        to_fail = list(late)
        tries = 0

        async def fail_one() -> None:
            nonlocal tries
            tries += 1
            if to_fail:
                await fail(run, receipts[to_fail.pop()])

        before_each(monkeypatch, fail_one)
        await run.retain()
        assert run.facts().log_start_offset > len(KEYS)
        assert not to_fail
        assert tries < 2 * lanes + 8
    monkeypatch.undo()
    await kept(tmp_path, [b"early", *late])


async def test_what_fails_elsewhere_all_the_time_has_nothing_else_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path) as opened:
        run, receipts = await begin(opened)
        for receipt in receipts.values():
            assert await run.link.settle(Settlement(releases=[(receipt, receipt)])) == []
        elsewhere = [b"elsewhere%d" % number for number in range(40)]
        await append(opened, elsewhere, 0, partition=1)
        to_fail: list[int] = []
        while len(to_fail) < len(elsewhere):
            [(receipt, record)] = await take(run.link, 1)
            if record.key in elsewhere:
                to_fail.append(receipt)

        async def fail_one() -> None:
            await fail(run, to_fail.pop())

        before_each(monkeypatch, fail_one)
        await run.retain()
        assert run.facts().log_start_offset > len(KEYS)
        copies = run.group.hold.copies
        kept = [record for last, batch in copies.batches(0) for record in await copies.read(0, last, batch)]
        assert {record.key for record in kept} == {b"early"}


async def test_what_comes_to_stand_while_nothing_does_is_copied_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path, crash=True) as opened:
        run, receipts = await begin(opened)
        await run.resume()
        [(receipt, record)] = await take(run.link, 1)
        assert record.key == b"early"
        assert await run.link.settle(Settlement(acks=[(receipt, receipt)])) == []
        standing = StalledRecords.standing

        async def then_fail(self: StalledRecords, *arguments: int) -> Standing:
            found = await standing(self, *arguments)
            if b"late0" in receipts:
                assert not found
                await fail(run, receipts.pop(b"late0"))
            return found

        monkeypatch.setattr(StalledRecords, "standing", then_fail)
        await run.retain()
        assert run.facts().log_start_offset > len(KEYS)
    monkeypatch.undo()
    await kept(tmp_path, [b"late0"])


@pytest.mark.parametrize("what", ["rewind", "alter"])
async def test_what_is_found_before_the_index_is_made_anew_counts_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async with shell(tmp_path, crash=True) as opened:
        run, receipts = await begin(opened)
        for receipt in receipts.values():
            assert await run.link.settle(Settlement(releases=[(receipt, receipt)])) == []
        group = run.group
        acts = 0

        async def act() -> None:
            nonlocal acts
            acts += 1
            if acts > 1:
                return
            if what == "rewind":
                await group.operations.rewind(StartAt(offset=0), [1])
            else:
                await opened.groups.alter("g", {"key_header": "other"})

        before_each(monkeypatch, act)
        await run.look()
        assert acts == 1
        assert group.hold.needed_from(0) == 0, "let go by what held before"
        assert run.copied() == []
        await until(lambda: group.queue.admission.generation)
        await run.retain()
        assert run.facts().log_start_offset > len(KEYS)
        if what == "alter":
            assert run.copied() == [0], "it has no lane any more"
    monkeypatch.undo()
    if what == "rewind":
        await kept(tmp_path, [b"early"])


async def test_a_lane_that_waits_for_a_time_in_another_partition_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Growth moved its key; nothing is scanned since the start."""
    async with shell(tmp_path) as opened:
        await opened.engine.create_topic("t", 1, CONFIGS)
        await opened.group("t", None)
        await append(opened, [b"k"], 0, [(NOT_BEFORE, b"%d" % (int(time.time() * 1000) + HOUR_MS))])
        await opened.engine.alter_topic(opened.engine.topic("t").id, partitions=2)
        for number in range(1, COUNT):
            await append(opened, [b"k", b"free", b"free", b"free"], number, partition=1)
    monkeypatch.setattr(Scanner, "_scan_some", scan_nothing)
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await until(lambda: run.group.queue.done.is_open(1))
        await run.retain()
        assert run.facts(partition=1).log_start_offset > 20
    monkeypatch.undo()
    async with shell(tmp_path) as opened:
        run = await again(opened)
        queue = run.group.queue
        await until(
            lambda: queue.admission.generation == 2 and queue.position(1) == run.facts(partition=1).high_watermark
        )
        await run.group.operations.resume(LaneName(key=b"k"))
        while run.group.inspector.counts().open:
            await run.work_once()
        assert run.done[b"k"] == list(range(COUNT))


async def test_a_lane_that_waits_for_a_time_in_what_was_copied_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first record is copied, the others come later; nothing is scanned since the start."""
    async with shell(tmp_path) as opened:
        await opened.engine.create_topic("t", 1, CONFIGS)
        await opened.group("t", None)
        await append(opened, [b"k"], 0, [(NOT_BEFORE, b"%d" % (int(time.time() * 1000) + HOUR_MS))])
        for _ in range(20):
            await append(opened, [b"free"] * 4, 0)
        await GroupRun(opened, run_group := opened.groups.group("g"), await run_group.connect(hello()), ()).retain()
        assert opened.engine.partition_facts(opened.engine.topic("t").id, 0).log_start_offset > 20
    monkeypatch.setattr(Scanner, "_scan_some", scan_nothing)
    async with shell(tmp_path) as opened:
        run = await again(opened)
        for start in (1, COUNT // 2):
            for number in range(start, start + COUNT // 2 - (start == 1) + (start > 1) * (COUNT % 2)):
                await append(opened, [b"k", b"free", b"free", b"free"], number)
            await run.retain()
        assert run.facts().log_start_offset > 100
    monkeypatch.undo()
    async with shell(tmp_path) as opened:
        run = await again(opened)
        queue = run.group.queue
        await until(lambda: queue.admission.generation and queue.position(0) == run.facts().high_watermark)
        await run.group.operations.resume(LaneName(key=b"k"))
        while run.group.inspector.counts().open:
            await run.work_once()
        assert run.done[b"k"] == list(range(COUNT))


class Other:
    """Somebody else who holds what lies from an offset on."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def needed_from(self, partition: int) -> int:
        return self._offset

    def let_go(self, partition: int, offset: int) -> None:
        """Never."""

    def removed(self, partition: int) -> None:
        """Nothing to note."""


async def test_copies_that_reach_over_the_start_of_the_log_hide_nothing(tmp_path: Path) -> None:
    """The log lost a part of what was let go, and the broker ended; of what it still has, more stands by then."""
    async with shell(tmp_path, crash=True) as opened:
        run, _ = await begin(opened)
        opened.engine.hold(opened.engine.topic("t").id, Other(6 * len(KEYS)))
        await run.retain()
        start = run.facts().log_start_offset
        assert 0 < start < run.group.hold.needed_from(0)
        [first, last] = run.copied()
        assert first == 0
        assert last > start
    async with shell(tmp_path, crash=True) as opened:
        run = await again(opened)
        group = run.group
        group.records.batches.cache.max_bytes = 0
        run.failing.add(b"late0")
        while [lane.key for lane in group.inspector.held()] != [b"early", b"late0"]:
            await run.work_once()
        failed = -(-start // len(KEYS))
        await run.retain()
        assert run.facts().log_start_offset > last
        assert run.copied() == sorted(run.copied())
    async with shell(tmp_path) as opened:
        run = await again(opened)
        queue = run.group.queue
        await until(lambda: queue.admission.generation and queue.position(0) == run.facts().high_watermark)
        await run.resume()
        while run.group.inspector.counts().open:
            await run.work_once()
        assert run.done[b"early"] == list(range(COUNT))
        assert run.done[b"late0"] == list(range(failed, COUNT))
