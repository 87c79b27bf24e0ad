"""A group that goes on at a later place: blocked and parked records before it stay, or are dropped and counted."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from logbroker.queues.model.messages import Nack, Settlement
from logbroker.queues.model.settings import OnExhausted, Ordering
from logbroker.queues.model.starts import Rewound, StartAt
from logbroker.queues.retention.stalled_records import StalledRecords, Standing
from logbroker.queues.scan.scanner import Scanner
from tests.queues.retained import GroupRun, again, all_held
from tests.queues.shell import Shell, ack, hello, nack, shell, take, until
from tests.queues.test_standing import CONFIGS, append, scan_nothing

COUNT = 5
"""Records of each key."""


async def begin(opened: Shell, on_exhausted: OnExhausted, ordering: Ordering = Ordering.KEY) -> GroupRun:
    """The first record of key `bad` fails, and one without a key; then come others that are not handed out."""
    await opened.topic()
    group = await opened.group(max_attempts=1, on_exhausted=on_exhausted, ordering=ordering)
    run = GroupRun(opened, group, await group.connect(hello()), ())
    await opened.append((b"bad", b"0"), (None, b"alone"), (b"free", b"0"))
    for receipt, record in await take(run.link, 3):
        await (ack if record.key == b"free" else nack)(run.link, receipt)
    return run


async def more(run: GroupRun) -> None:
    for number in range(1, COUNT):
        await run.opened.append((b"bad", b"%d" % number), (b"free", b"%d" % number))


async def resumed(run: GroupRun) -> list[tuple[bytes | None, bytes | None]]:
    """Let all that stands go on, and work off what there is."""
    queue = run.group.queue
    await until(lambda: queue.admission.generation and queue.position(0) == run.facts().high_watermark)
    await run.resume()
    found = []
    while run.group.inspector.counts().open:
        [(receipt, record)] = await take(run.link, 1)
        found.append((record.key, record.value))
        await ack(run.link, receipt)
    return found


@pytest.mark.parametrize(
    ("scanned", "restarts"),
    [(True, False), (True, True), (False, True)],
    ids=["scanned", "scanned, then a restart", "not scanned, then a restart"],
)
@pytest.mark.parametrize("on_exhausted", [OnExhausted.BLOCK, OnExhausted.PARK])
async def test_what_stands_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_exhausted: OnExhausted, restarts: bool, scanned: bool
) -> None:
    async with shell(tmp_path, crash=True) as opened:
        run = await begin(opened, on_exhausted)
        group = run.group
        with monkeypatch.context() as patch:
            if not scanned:
                patch.setattr(Scanner, "_scan_some", scan_nothing)
            await more(run)
            if scanned:
                await all_held(run, COUNT + 1)
            end = run.facts().high_watermark
            planned = await group.operations.rewind(StartAt(latest=True), dry_run=True)
            assert planned == [Rewound(0, 0, end, COUNT + 1, COUNT - 1)]
            assert await group.operations.rewind(StartAt(latest=True)) == planned
        lane = (
            group.inspector.explain(group.inspector.lane(b"bad"), group.moment()) if not restarts and scanned else None
        )
        assert lane is None or lane.attempt == 2
        if not restarts:
            assert await resumed(run) in _orders(COUNT)
            assert group.queue.done.floor(0) == end
    if restarts:
        async with shell(tmp_path) as opened:
            run = await again(opened)
            await all_held(run, COUNT + 1)
            assert await resumed(run) in _orders(COUNT)


def _orders(count: int) -> Collection[list[tuple[bytes | None, bytes | None]]]:
    """All orders in which the records of a lane and one alone may come."""
    lane: list[tuple[bytes | None, bytes | None]] = [(b"bad", b"%d" % number) for number in range(count)]
    return [[*lane[:at], (None, b"alone"), *lane[at:]] for at in range(count + 1)]


@pytest.mark.parametrize("on_exhausted", [OnExhausted.BLOCK, OnExhausted.PARK])
async def test_what_stands_is_dropped_if_that_is_asked_for(tmp_path: Path, on_exhausted: OnExhausted) -> None:
    async with shell(tmp_path) as opened:
        run = await begin(opened, on_exhausted)
        await more(run)
        operations = run.group.operations
        assert await operations.rewind(StartAt(offset=4), drop_standing=True) == [Rewound(0, 0, 4, 3)]
        assert await resumed(run) == [
            (key, b"%d" % number)
            for number in range(1, COUNT)
            for key in (b"bad", b"free")
            if (key, number) > (b"bad", 1)
        ], "a lane whose first record is dropped goes on"
        assert run.group.queue.stalled.parked == {}


async def test_a_parked_lane_that_is_included_goes_on_with_all_its_records(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        run = await begin(opened, OnExhausted.PARK)
        await more(run)
        [rewound] = await run.group.operations.rewind(StartAt(latest=True), include_parked=True)
        assert rewound == Rewound(0, 0, run.facts().high_watermark, COUNT + 1, COUNT - 1)
        await until(lambda: run.group.queue.open_records == COUNT + 1)
        assert run.group.inspector.held() == []
        assert await resumed(run) in _orders(COUNT)


@pytest.mark.parametrize("ordering", [Ordering.NONE, Ordering.SINGLE])
async def test_other_orderings(tmp_path: Path, ordering: Ordering) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group(max_attempts=1, on_exhausted=OnExhausted.BLOCK, ordering=ordering)
        run = GroupRun(opened, group, await group.connect(hello()), ())
        await opened.append(*[(b"%d" % number, b"%d" % number) for number in range(3)])
        [(receipt, _)] = await take(run.link, 1)
        await nack(run.link, receipt)
        await until(lambda: group.inspector.held())
        stays = [(b"%d" % number, b"%d" % number) for number in range(3 if ordering is Ordering.SINGLE else 1)]
        assert await group.operations.rewind(StartAt(latest=True)) == [Rewound(0, 0, 3, len(stays), 3 - len(stays))]
        assert await resumed(run) == stays


async def test_a_lane_that_is_blocked_while_others_are_looked_up_stays_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path) as opened:
        run = await begin(opened, OnExhausted.BLOCK)
        await more(run)
        [(receipt, record)] = await take(run.link, 1)
        assert record.key == b"free"
        below = StalledRecords.below

        async def block(self: StalledRecords, partition: int, until: int, standing: Standing) -> object:
            monkeypatch.undo()
            found = await below(self, partition, until, standing)
            assert await run.link.settle(Settlement(nacks=[Nack(receipt, receipt)])) == []
            return found

        monkeypatch.setattr(StalledRecords, "below", block)
        [rewound] = await run.group.operations.rewind(StartAt(latest=True))
        assert isinstance(rewound, Rewound)
        assert rewound.standing_records == 2 * COUNT
        await all_held(run, 2 * COUNT)


async def test_what_was_let_go_is_held_again_after_a_rewind(tmp_path: Path) -> None:
    """A parked lane takes up what comes again before it: that is copied, too, before it goes."""
    async with shell(tmp_path) as opened:
        await opened.engine.create_topic("t", 1, CONFIGS)
        group = await opened.group(max_attempts=1, on_exhausted=OnExhausted.PARK)
        group.records.batches.cache.max_bytes = 0  # Else what was read shortly before is still served.
        run = GroupRun(opened, group, await group.connect(hello()), ())
        for number in range(3):
            await append(opened, [b"k", b"free"], number)
        await run.work(6)
        run.failing.add(b"k")
        for number in range(3, 40):
            await append(opened, [b"k", b"free"], number)
        await run.work(37)
        await run.look()
        assert group.hold.needed_from(0) > 20
        assert run.facts().log_start_offset == 0
        await group.operations.rewind(StartAt(offset=0))
        await all_held(run, 40)
        await run.retain()
        assert run.facts().log_start_offset > 20
        run.failing.clear()
        run.done.clear()
        await run.resume()
        while group.inspector.counts().open:
            await run.work_once()
        assert run.done[b"k"] == list(range(40))


async def test_the_log_says_in_words_what_a_rewind_did(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "logbroker.queues")
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group()
        await opened.append((b"a", b"a"), (b"a", b"b"))
        await group.scanner.catch_up(60)
        await group.operations.rewind(StartAt(latest=True))
        name = group.group_id
    assert f"queue group {name}: rewound by an operator: partition 0 from offset 0 to 2 (records skipped: 2)" in (
        entry.message for entry in caplog.records
    )
