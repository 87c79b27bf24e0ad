"""Retention beside queue groups: a lane that stands keeps its records, and the disk does not fill."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from logbroker.broker.local_engine.engine import LocalEngine
from logbroker.clock import SystemClock
from logbroker.engine import Append, Appended
from logbroker.errors import DiskFullError, UnknownTopicError
from logbroker.grpc_api.queues.admin_messages import described_queue
from logbroker.pacing import Pace
from logbroker.queues.dead_letters.sender import DeadLetterSender
from logbroker.queues.machine.inspect import AlarmKind
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import OnExhausted, OnUndecodable, Ordering
from logbroker.queues.retention import holder as retention_hold
from logbroker.queues.scan.scanner import BARRIER_SECONDS, Scanner
from logbroker.record.header import HEADER_BYTES
from tests.queues.fake_log import undecodable_batch
from tests.queues.retained import (
    COPIES,
    HOLD_BYTES,
    KEPT_BYTES,
    KEYS,
    SEGMENT_BYTES,
    GroupRun,
    again,
    all_held,
    begin,
)
from tests.queues.shell import shell, until

MOST_BYTES = KEPT_BYTES + HOLD_BYTES + 3 * SEGMENT_BYTES


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    quiet = "logbroker.queues.alarms"
    return [record.getMessage() for record in caplog.records if record.name != quiet]


async def removed(run: GroupRun) -> int:
    """How many records the group is described to have lost, before a worker finds out."""
    described = await described_queue(run.opened.engine, run.group, Pace(), BARRIER_SECONDS)
    return described.counts.removed


@pytest.mark.prove
@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("on_exhausted", [OnExhausted.BLOCK, OnExhausted.PARK])
async def test_lanes_that_stand_neither_fill_the_disk_nor_lose_a_record(
    tmp_path: Path, on_exhausted: OnExhausted, crash: bool
) -> None:
    count = 150  # Ten times what is held.
    async with shell(tmp_path, crash=crash) as opened:
        run = await begin(opened, [b"blocked", b"other"], on_exhausted=on_exhausted)
        for start in range(0, count, 30):
            await run.write(KEYS, range(start, start + 30))
            await run.work(6 * 30)
            await run.retain()
            assert run.facts().size_bytes < MOST_BYTES
        assert sum(path.stat().st_size for path in (tmp_path / "data" / "t-0").glob("*.log")) < MOST_BYTES
        assert run.facts().log_start_offset > 8 * 100
        assert run.group.queue.tally.expired == 0
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await all_held(run, 2 * count)
        await run.resume()
        await run.work(2 * count)
        assert run.done == {b"blocked": list(range(count)), b"other": list(range(count))}
        await run.retain()
        assert run.group.queue.done.floor(0) == 8 * count
        assert run.facts().size_bytes < KEPT_BYTES + 3 * SEGMENT_BYTES


@pytest.mark.parametrize("crash", [False, True])
async def test_a_log_that_expires_to_its_end_leaves_what_stands_in_copies(tmp_path: Path, crash: bool) -> None:
    """Expiry by age takes the active segment as well, whose records are held like all others."""
    count = 30
    by_age = {"retention.ms": "1", "retention.bytes": "-1", "retention.hold.bytes": "-1"}
    async with shell(tmp_path, crash=crash) as opened:
        run = await begin(opened, [b"blocked"])
        topic_id = opened.engine.topic("t").id
        await run.write(KEYS, range(count))
        await run.work(7 * count)
        appended_ms = SystemClock().wall_ms()
        await until(lambda: SystemClock().wall_ms() > appended_ms + 2)
        await opened.engine.alter_topic(topic_id, set_configs=by_age)
        await run.retain()
        assert run.facts().log_start_offset == 0, "what is held must stay"
        await opened.engine.alter_topic(topic_id, set_configs={"retention.hold.bytes": "0"})
        for _ in range(3):
            await run.retain()
        facts = run.facts()
        assert facts.log_start_offset == facts.log_end_offset == len(KEYS) * count
        assert (facts.size_bytes, facts.segments) == (0, 1)
        assert run.group.queue.tally.expired == 0
        assert await removed(run) == 0
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await all_held(run, count)
        assert await removed(run) == 0
        await run.write([b"blocked"], [count])
        await run.resume()
        await run.work(count + 1)
        assert run.done == {b"blocked": list(range(count + 1))}
        assert run.group.queue.done.floor(0) == run.facts().high_watermark == len(KEYS) * count + 1


async def test_nothing_is_copied_below_the_bound(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write(KEYS, range(10))
        await run.work(70)
        await run.retain()
        assert run.facts().log_start_offset == 0
        with pytest.raises(UnknownTopicError):
            opened.engine.topic(COPIES)


async def test_what_retention_took_is_told_as_expired_and_not_served_from_memory(tmp_path: Path) -> None:
    count = 60
    async with shell(tmp_path) as opened:
        run = await begin(opened, [], ordering=Ordering.NONE)
        await run.write([b"waits", b"waits too"], range(count))
        await until(lambda: run.group.queue.position(0) == 2 * count)
        await run.retain()
        start = run.facts().log_start_offset
        assert start > 0
        await run.work(2 * count - start)
        await until(lambda: run.group.queue.done.floor(0) == 2 * count)
        described = await described_queue(opened.engine, run.group, Pace(), BARRIER_SECONDS)
        assert (described.counts.expired, described.counts.acked) == (start, 2 * count - start)


async def test_what_was_never_scanned_is_told_as_expired(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        run = await begin(opened, [], max_ready_records=1)
        await run.write([b"one", b"two"], range(100))
        await run.retain()
        position, start = run.group.queue.position(0), run.facts().log_start_offset
        assert position < start
        assert (await removed(run), run.group.queue.tally.expired) == (start, 0)
        run.group.records.batches.clear()
        await run.work(1)
        while run.group.queue.done.floor(0) < 200:
            await run.work_once()
        described = await described_queue(opened.engine, run.group, Pace(), BARRIER_SECONDS)
        handed_out = sum(map(len, run.done.values()))
        assert described.counts.expired + handed_out == 200
        assert await removed(run) == 0
        assert described.counts.acked == handed_out


async def test_what_retention_removed_is_told_before_a_worker_finds_out(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write(KEYS, range(60))
        await run.work(200)
        assert await removed(run) == 0
        await run.retain()
        done, start = run.group.queue.done, run.facts().log_start_offset
        lost = [offset for offset in range(start) if offset % len(KEYS) and record_id_of(0, offset) not in done]
        assert len(lost) > 20
        assert len(run.copied()) > 0
        assert await removed(run) == len(lost)


async def test_what_no_lane_holds_goes_as_from_any_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    count = 80
    async with shell(tmp_path) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write([b"blocked"], [0])
        assert await run.work_once() == 0
        run.group.records.batches.cache.max_bytes = 0  # Else what was read shortly before is still served.
        await run.write([b"blocked", b"waits", b"waits too"], range(1, count))
        await until(lambda: run.group.queue.position(0) == run.facts().high_watermark)
        with caplog.at_level(logging.WARNING):
            await run.retain()
        start = run.facts().log_start_offset
        gone = start // 3
        assert run.group.queue.tally.expired == 0, "what waits is not lost before its turn comes"
        [line] = said(caplog)
        assert f"below offset {start}" in line
        assert f"{2 * gone} other records" in line
        await run.work(2 * (count - 1 - gone))
        assert run.group.queue.tally.expired == 2 * gone
        left = list(range(gone + 1, count))
        assert run.done == {b"waits": left, b"waits too": left}
        run.failing.clear()
        await run.resume()
        await run.work(count)
        assert run.done[b"blocked"] == list(range(count))
        assert run.group.queue.done.floor(0) == run.facts().high_watermark
        assert len(said(caplog)) == 1, "one line each time, not one for each record"


async def test_a_successor_that_the_scan_has_not_met_is_kept_too(tmp_path: Path) -> None:
    count = 60
    async with shell(tmp_path) as opened:
        run = await begin(opened, [b"blocked"], max_ready_records=1)
        await run.write([b"blocked"], [0])
        assert await run.work_once() == 0
        await run.write([b"blocked", *(b"x%d" % number for number in range(5))], range(1, count))
        await run.retain()
        assert run.facts().log_start_offset > run.group.queue.position(0), "the scan has met all, and shows nothing"
        run.failing.clear()
        await run.resume()
        while len(run.done.get(b"blocked", ())) < count:
            await run.work_once()
        assert run.done[b"blocked"] == list(range(count))


async def test_retention_that_comes_before_the_scan_finds_what_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 60
    async with shell(tmp_path, crash=True) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write(KEYS, range(count))
        await run.work(7 * count)
    with monkeypatch.context() as patch:
        patch.setattr(Scanner, "_scan_some", scan_nothing)
        async with shell(tmp_path) as opened:
            run = await again(opened)
            await run.retain()
            assert run.facts().log_start_offset > 0
            assert run.group.queue.position(0) == 0
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await all_held(run, count)
        await run.resume()
        await run.work(count)
        assert run.done == {b"blocked": list(range(count))}


async def scan_nothing(scanner: Scanner, partition: int) -> None:
    pass


async def test_retention_waits_where_copies_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with shell(tmp_path) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write(KEYS, range(40))
        await run.work(7 * 40)
        disk = opened.engine._upkeep.disk
        with monkeypatch.context() as patch:
            patch.setattr(type(disk), "check", lambda *_: raise_(DiskFullError("the disk is full")))
            for _ in range(3):
                await run.look()
        assert run.facts().log_start_offset == 0
        [line] = said(caplog)
        assert "has to wait" in line
        assert "the disk is full" in line
        await run.retain()
        assert run.facts().log_start_offset > 0
        assert run.copied()[0] == 0


async def test_what_came_to_stand_after_an_attempt_that_was_cut_short_is_copied_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 100
    monkeypatch.setattr(retention_hold, "BATCH_BYTES", 2000)
    async with shell(tmp_path) as opened:
        run = await begin(opened, [b"early"])
        await run.write([b"early"], [0])
        assert await run.work_once() == 0
        await run.write([b"early", b"late"], range(1, count))
        add, added = run.group.hold.copies.add, 0

        async def add_one(*args: Any) -> None:
            nonlocal added
            added += 1
            if added == 2:
                raise DiskFullError("the disk is full")
            await add(*args)

        with monkeypatch.context() as patch:
            patch.setattr(run.group.hold.copies, "add", add_one)
            await run.look()
        assert len(run.copied()) == 2
        assert run.facts().log_start_offset == 0
        run.failing.add(b"late")
        assert await run.work_once() == 0
        await run.retain()
        assert run.facts().log_start_offset > 2
        assert run.group.queue.tally.expired == 0
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await all_held(run, 2 * count - 1)
        await run.resume()
        await run.work(2 * count - 1)
        assert run.done == {b"early": list(range(count)), b"late": list(range(1, count))}


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("ordering", [Ordering.KEY, Ordering.SINGLE, Ordering.NONE])
@pytest.mark.parametrize("began_again", [False, True])
async def test_copies_that_were_made_outlive_an_attempt_that_was_cut_short_where_nothing_stands_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, began_again: bool, ordering: Ordering
) -> None:
    count = 300
    monkeypatch.setattr(retention_hold, "BATCH_BYTES", 2000)
    async with shell(tmp_path) as opened:
        run = await begin(opened, [b"key"], ordering=ordering)
        await run.write([b"key"], range(count))
        assert await run.work_once() == 0
        with monkeypatch.context() as patch:
            fail_at(patch, run, 4)
            await run.look()
        copied = run.copied()[-1] + 1
        assert copied > 10
        assert run.facts().log_start_offset == 0
        if not began_again:
            await run.resume()
            with monkeypatch.context() as patch:
                fail_at(patch, run, 2)
                await run.look()
            await run.retain()
            assert run.facts().log_start_offset > copied
            run.failing.clear()
            await work_off(run, range(copied), ordering)
    if began_again:
        async with shell(tmp_path) as opened:
            run = await again(opened)
            await all_held(run, 100 if ordering is Ordering.NONE else count)
            await run.resume()
            await run.retain()
            assert run.facts().log_start_offset > copied
            await work_off(run, range(copied), ordering)


async def work_off(run: GroupRun, numbers: range, ordering: Ordering) -> None:
    """Work until these are done, the first ones of their lane."""
    while not set(numbers) <= set(run.done.get(b"key", ())):
        await run.work_once()
    if ordering is not Ordering.NONE:
        assert run.done[b"key"][: len(numbers)] == list(numbers)


@pytest.mark.prove
@pytest.mark.parametrize("began_again", [False, True])
async def test_a_lane_that_goes_on_loses_nothing_until_it_is_through_with_its_copies(
    tmp_path: Path, began_again: bool
) -> None:
    count = 150
    async with shell(tmp_path, crash=True) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write(KEYS, range(count))
        await run.work((len(KEYS) - 1) * count)
        await run.retain()
        copies = len(run.copied())
        assert copies
        if not began_again:
            await drain_beside_retention(run, count)
    if began_again:
        async with shell(tmp_path) as opened:
            run = await again(opened)
            await all_held(run, count)
            await drain_beside_retention(run, count)


async def drain_beside_retention(run: GroupRun, count: int) -> None:
    """Let the lane go on, one record after the other; what comes meanwhile pushes the log's start on."""
    run.failing.clear()
    run.done.clear()
    await run.resume()
    written = count
    while len(run.done.get(b"blocked", ())) < count:
        await run.write([b"blocked", *KEYS], [written])
        written += 1
        await run.look()
        before = len(run.done.get(b"blocked", ()))
        while len(run.done.get(b"blocked", ())) == before:
            await run.work_once()
    assert run.group.queue.tally.expired == 0
    assert run.done[b"blocked"][:count] == list(range(count))
    assert run.facts().log_start_offset > count * len(KEYS)


def fail_at(patch: pytest.MonkeyPatch, run: GroupRun, number: int) -> None:
    """The disk is full when copies are made for this time."""
    add, added = run.group.hold.copies.add, 0

    async def add_some(*args: Any) -> None:
        nonlocal added
        added += 1
        if added == number:
            raise DiskFullError("the disk is full")
        await add(*args)

    patch.setattr(run.group.hold.copies, "add", add_some)


async def test_a_batch_that_is_to_be_a_dead_letter_as_it_is_stays_until_it_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with shell(tmp_path) as opened:
        run = await begin(opened, [], on_undecodable=OnUndecodable.DEAD_LETTER, dead_letter_topic="dead")
        bad = undecodable_batch(b"x", b"y")
        with monkeypatch.context() as patch:
            patch.setattr(DeadLetterSender, "send", lambda self, letters: None)
            [appended] = await opened.engine.append([Append(opened.engine.topic("t").id, 0, bad)])
            assert isinstance(appended, Appended)
            await run.write(KEYS, range(20))
            await run.work(8 * 20)
            assert not run.group.queue.done.floor(0)
            await run.retain()
        assert run.facts().log_start_offset == 0
        [line] = [line for line in said(caplog) if "has to wait" in line]
        assert "cannot be decoded" in line
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await until(lambda: run.group.queue.done.floor(0) == run.facts().high_watermark)
        [letter] = await opened.stored("dead")
        assert letter.value is not None
        assert letter.value[HEADER_BYTES:] == bad[HEADER_BYTES:]
        await run.retain()
        assert run.facts().log_start_offset > 2


@pytest.mark.parametrize("place", [b"7" * 150, b"blocked"], ids=["value", "key"])
async def test_retention_waits_at_damage_that_nobody_has_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: bytes
) -> None:
    """The damaged batch may have records of lanes that stand, even if no key in it says so any more."""
    async with shell(tmp_path) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write(KEYS, range(4))
        await opened.append((b"blocked", b"7" * 300), (b"done", b"7"))
        await run.write(KEYS, range(4, 40))
        await run.work(7 * 40 + 1)
        [log] = [log for log in (tmp_path / "data").glob("t-0/*.log") if b"7" * 300 in log.read_bytes()]
        sound = log.read_bytes()
        at = sound.index(place, sound.index(b"7" * 300) - 20)
        with log.open("r+b") as file:
            file.seek(at)
            file.write(b"!")
        await run.retain()
        assert log.exists()
        [line] = [line for line in said(caplog) if "has to wait" in line]
        assert str(log) in line
        # A lane that goes on still needs what could not be copied.
        await run.resume()
        await run.retain()
        assert run.facts().log_start_offset == 0


def raise_(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("ordering", [Ordering.NONE, Ordering.KEY])
async def test_records_without_a_key_are_kept_one_by_one(tmp_path: Path, ordering: Ordering) -> None:
    async with shell(tmp_path, crash=True) as opened:
        run = await begin(opened, [b"bad"] if ordering is Ordering.NONE else [None], ordering=ordering)
        if ordering is Ordering.NONE:
            await run.write([b"bad", *[b"good"] * 4], range(2))
            await run.work(8)
            await run.write([b"good"], range(2, 200))
            await run.work(198)
        else:
            await run.write([None, b"good"], range(2))
            await run.work(2)
            await run.write([b"good"], range(2, 200))
            await run.work(198)
        await run.retain()
        assert run.facts().log_start_offset > 10
        assert len(run.copied()) == 2
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await all_held(run, 2)
        await run.resume()
        await run.work(2)
        assert list(run.done.values()) == [[0, 1]]


async def test_a_single_lane_that_stands_is_copied_as_a_whole(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        run = await begin(opened, [b"bad"], ordering=Ordering.SINGLE)
        await run.write([b"bad", b"good"], range(100))
        assert await run.work_once() == 0
        await run.retain()
        assert run.facts().log_start_offset > 0
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await all_held(run, 200)
        await run.resume()
        await run.work(200)
        assert run.done == {b"bad": list(range(100)), b"good": list(range(100))}


async def test_a_key_that_growth_moved_keeps_its_order(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        run = await begin(opened, [b"blocked"])
        topic = opened.engine.topic("t")
        await run.write([b"blocked", b"free"], range(60))
        await run.work(60)
        await opened.engine.alter_topic(topic.id, partitions=2)
        await run.write([b"free"], range(60, 120), partition=0)
        await run.write([b"blocked"], range(60, 160), partition=1)
        await run.work(60)
        await until(lambda: run.group.queue.position(1) == 100)
        await run.retain()
        assert run.facts(partition=0).log_start_offset > 0
        assert run.facts(partition=1).log_start_offset > 0
        assert opened.engine.topic(COPIES).partitions == 2
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await all_held(run, 160)
        await run.resume()
        await run.work(160)
        assert run.done == {b"blocked": list(range(160))}


async def test_what_is_held_stays_until_the_engine_stops(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write(KEYS, range(60))
        await run.work(7 * 60)
        await run.group.hold.stop()
        await run.retain()
        assert run.facts().log_start_offset == 0
        assert run.copied() == []


async def test_other_groups_and_deleted_ones_hold_nothing(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        run = await begin(opened, [b"blocked"])
        await run.write(KEYS, range(60))
        await run.work(7 * 60)
        await opened.groups.delete("g")
        await opened.engine._upkeep.apply_retention()
        assert run.facts().size_bytes < KEPT_BYTES + 2 * SEGMENT_BYTES


async def test_keys_of_any_length_are_found_in_what_goes(tmp_path: Path) -> None:
    keys = [b"", b"k", b"x" * 256, b"y" * 257, b"y" * 64, *(b"z%d" % number for number in range(8))]
    async with shell(tmp_path, crash=True) as opened:
        run = await begin(opened, keys[:5])
        await run.write([*keys, b"free"], range(20))
        await run.work(20 * 9)
        await run.retain()
        start = run.facts().log_start_offset
        assert start > 0
        run.failing.update(keys)  # More than are looked for one by one.
        await run.write([*keys, b"free"], range(20, 40))
        await run.work(20)
        await run.retain()
        assert run.facts().log_start_offset > 14 * 20
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await all_held(run, 40 * 5 + 20 * 8)
        await run.resume()
        await run.work(40 * 5 + 20 * 8)
        assert run.done == {key: list(range(0 if key in keys[:5] else 20, 40)) for key in keys}


async def test_a_record_that_fails_after_its_release_is_held_again_in_a_log_that_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an alarm tells of those that are neither done nor copied, until they are."""
    monkeypatch.setattr(LocalEngine, "waits_for_holders", False)
    async with shell(tmp_path) as opened:
        run = await begin(opened, [b"early"])
        await run.write([b"early", b"late"], range(100))
        await run.look()
        released = run.group.hold.needed_from(0)
        assert released > 20
        [alarm] = [each for each in await run.group.alarms.check() if each.kind is AlarmKind.RETENTION]
        assert "are deleted at any time" in alarm.message
        assert not run.copied()
        assert await run.work_once() == 1
        assert run.group.hold.needed_from(0) == 0
        await run.look()
        assert run.copied()[0] == 0
        assert run.copied()[-1] == released - 2
        assert run.group.hold.needed_from(0) == released
        await run.work(99)
        assert not [each for each in await run.group.alarms.check() if each.kind is AlarmKind.RETENTION]


async def test_records_of_a_key_that_has_moved_are_held_again_with_it_in_a_log_that_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalEngine, "waits_for_holders", False)
    async with shell(tmp_path) as opened:
        run = await begin(opened, [b"moved"])
        await run.write([b"moved", b"free"], range(60))
        await opened.engine.alter_topic(opened.engine.topic("t").id, partitions=2)
        await run.write([b"free"], range(60, 62), partition=1)
        await run.write([b"moved"], range(62, 200), partition=1)
        await run.look()
        assert run.group.hold.needed_from(0) > 0
        released = run.group.hold.needed_from(1)
        assert released > 10
        assert await run.work_once() == 1
        assert run.group.hold.needed_from(0) == 0
        assert run.group.hold.needed_from(1) == 0
        await run.look()
        assert run.copied(1) == [2, released - 1]
