"""With priorities nobody is served before all is scanned that was readable when the credit was given."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from logbroker.engine import Append, Read, ReadResult
from logbroker.errors import BrokerUnavailableError, LogbrokerError, NoFreeSessionError, PartitionOfflineError
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.settings import Priority
from logbroker.queues.scan.barriers import NO_BARRIER
from logbroker.queues.scan.scanner import Scanner
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.message_headers import PRIORITY
from tests.queues.fake_log import FakeLog
from tests.queues.groups import ack, nack
from tests.queues.scans import NOW, scanning, some_turns
from tests.queues.shell import Shell, hello, shell, take, until

# --- the scan's word -------------------------------------------------------------------------------------------------


async def test_a_barrier_covers_what_was_appended_a_moment_before_it() -> None:
    log = FakeLog(2)
    log.append_values(b"a")
    async with scanning(log, priority=Priority.STRICT) as scan:
        assert not scan.scanner.may_serve(NO_BARRIER), "served before anything was scanned"
        await scan.all_scanned()
        await scan.until(lambda: scan.scanner.may_serve(scan.scanner.barrier()))
        before = scan.scanner.barrier()
        log.append_values(b"b", partition=1)
        barrier = scan.scanner.barrier()
        assert scan.scanner.may_serve(before)
        assert not scan.scanner.may_serve(barrier)
        await scan.until(lambda: scan.scanner.may_serve(barrier))
        assert scan.position(1) == 1


async def test_barriers_are_reached_though_appends_never_stop() -> None:
    log = FakeLog(3)

    async def more() -> None:
        for partition in range(3):
            log.append_values(b"%d" % len(log.reads), partition=partition)

    log.before_read = more
    log.append_values(b"a")
    async with scanning(log, priority=Priority.STRICT) as scan:
        for _ in range(10):
            await scan.until(partial(scan.scanner.may_serve, scan.scanner.barrier()))
        log.before_read = None


async def test_what_cannot_be_read_holds_nobody_back() -> None:
    log = FakeLog(3)
    for partition in range(3):
        log.append_values(b"a", partition=partition)
    log.partitions[0].error = PartitionOfflineError("damaged")
    log.partitions[1].error = BrokerUnavailableError("no more descriptors")
    async with scanning(log, priority=Priority.STRICT) as scan:
        first = scan.scanner.barrier()
        await scan.until(lambda: scan.scanner.may_serve(first))
        assert scan.position(2) == 1
        log.append_values(b"b", partition=2)
        log.append_values(b"b", partition=1)
        second = scan.scanner.barrier()
        await scan.until(lambda: scan.scanner.may_serve(second))
        assert scan.position(2) == 2


async def test_a_generation_that_a_stopped_partition_holds_back_is_not_waited_for() -> None:
    log = FakeLog(2)
    log.append_values(b"a")
    log.append_values(b"a", partition=1)
    log.partitions[0].error = PartitionOfflineError("damaged")
    log.grow(3)
    async with scanning(log, priority=Priority.STRICT) as scan:
        await scan.until(lambda: scan.scanner.may_serve(scan.scanner.barrier()))
        assert scan.queue.admission.generation == 1


async def test_what_came_with_growth_is_waited_for() -> None:
    log = FakeLog()
    log.append_values(b"a")
    async with scanning(log, priority=Priority.STRICT) as scan:
        await scan.until(lambda: scan.scanner.may_serve(scan.scanner.barrier()))
        log.grow(2)
        log.append_values(b"b", partition=1)
        barrier = scan.scanner.barrier()
        assert not scan.scanner.may_serve(barrier)
        scan.scanner.wake()
        await scan.until(lambda: scan.scanner.may_serve(barrier))
        assert scan.position(1) == 1


async def test_a_rewind_is_followed_by_indexing() -> None:
    log = FakeLog()
    log.append_values(b"a", b"b", b"c")
    async with scanning(log, priority=Priority.STRICT) as scan:
        await scan.until(lambda: scan.scanner.may_serve(scan.scanner.barrier()))
        barrier = scan.scanner.barrier()
        scan.queue.rewind({0: 1}, NOW)
        assert not scan.scanner.may_serve(barrier)
        scan.scanner.wake()
        await scan.until(lambda: scan.scanner.may_serve(barrier))
        assert scan.position(0) == 3


async def test_a_scan_that_waits_for_room_lets_the_known_be_served() -> None:
    log = FakeLog()
    async with scanning(log, priority=Priority.STRICT, max_held_lanes=2) as scan:
        log.append_values(b"a", b"b", b"c")
        await scan.all_scanned()
        granted = scan.queue.take("w", 2, NOW)
        nack(scan.queue, granted, delay_seconds=100)
        log.append_values(b"d")
        assert scan.scanner.may_serve(scan.scanner.barrier())
        await some_turns()
        assert scan.position(0) == 3
        ack(scan.queue, scan.queue.take("w", 1, NOW))


async def test_who_waits_for_a_barrier_is_let_go_as_soon_as_the_scan_waits_for_room() -> None:
    log = FakeLog(2)
    log.append_values(b"a")
    async with scanning(log, priority=Priority.STRICT, max_held_lanes=1) as scan:
        await scan.all_scanned()
        granted = scan.queue.take("w", 1, NOW)
        reading, may_read = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            log.before_read = None
            reading.set()
            await may_read.wait()

        log.before_read = wait
        log.append_values(b"b", partition=1)
        barrier = scan.scanner.barrier()
        await reading.wait()
        waiting = asyncio.create_task(scan.scanner.reached(barrier, 600))
        await some_turns()
        assert not waiting.done()
        nack(scan.queue, granted, delay_seconds=100)
        may_read.set()
        async with asyncio.timeout(25):
            await waiting


# --- those who wait --------------------------------------------------------------------------------------------------


class HeldReads:
    """Reads of one partition that wait for a word."""

    def __init__(self, opened: Shell, partition: int) -> None:
        self.go = asyncio.Event()
        self.asked = asyncio.Event()
        read = opened.engine.read

        async def held(reads: list[Read]) -> list[ReadResult | LogbrokerError]:
            if any(wish.partition == partition for wish in reads):
                self.asked.set()
                await self.go.wait()
            return await read(reads)

        opened.engine.read = held  # type: ignore[method-assign, assignment]


async def strict_group(opened: Shell, **settings: Any) -> QueueGroup:
    group = await opened.group(priority=Priority.STRICT, **settings)
    await until(lambda: not group.scanner.is_indexing)
    return group


async def test_a_credit_waits_for_what_was_readable_when_it_was_given(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=2)
        group = await strict_group(opened)
        early, late = await group.connect(hello("early")), await group.connect(hello("late"))
        early.add_credit(1)
        first = asyncio.create_task(early.next_deliveries())
        await asyncio.sleep(0)
        await opened.append((b"a", b"a1"), (b"c", b"c1"), partition=0)
        held = HeldReads(opened, 1)
        urgent = encode_batch([NewRecord(b"urgent", b"b", [(PRIORITY, b"9")])])
        await opened.engine.append([Append(opened.engine.topic("t").id, 1, urgent)])
        late.add_credit(1)
        second = asyncio.create_task(late.next_deliveries())
        await held.asked.wait()
        delivered = await first
        assert delivered.partitions == [0], "who waited before the append is served with what is scanned"
        await asyncio.sleep(0.02)
        assert not second.done(), "served though the other partition was readable, and not scanned, when it asked"
        assert group.queue.lanes.ready_records
        held.go.set()
        assert (await second).partitions == [1], "a more urgent record that was readable was passed over"


async def test_each_credit_counts_by_its_own_barrier(tmp_path: Path) -> None:
    """A worker that gives credit again and again, while appends never stop, is served all the same."""
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=2)
        group = await strict_group(opened)
        link = await group.connect(hello())
        received = asyncio.create_task(take(link, 50, credit=False))
        number = 0
        while not received.done():
            link.add_credit(1)
            await opened.append((b"%d" % number, b"v"), partition=number % 2)
            number += 1
            assert number < 5000
        await received


async def test_receive_waits_for_the_scan_even_where_it_would_not_wait(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await strict_group(opened)
        for number in range(20):
            await opened.append((b"%d" % number, b"v"))
            [delivered] = await group.receive("w", 10, 0)
            assert delivered.count == 1


async def test_the_next_free_session_waits_for_the_scan_and_a_named_one_does_not(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await strict_group(opened)
        link = await group.connect(hello())
        held = HeldReads(opened, 0)
        await opened.append((b"a", b"a1"))
        assert (await link.open_session(b"named")).key == b"named"
        opening = asyncio.create_task(link.open_session(None))
        await held.asked.wait()
        await asyncio.sleep(0.02)
        assert not opening.done()
        held.go.set()
        assert (await opening).key == b"a"
        with pytest.raises(NoFreeSessionError):
            await link.open_session(None)


async def test_without_priorities_nobody_waits(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=2)
        group = await opened.group()
        link = await group.connect(hello())
        await opened.append((b"a", b"a1"), partition=0)
        await until(lambda: group.queue.lanes.ready_records)
        held = HeldReads(opened, 1)
        await opened.append((b"b", b"b1"), partition=1)
        await held.asked.wait()
        [(_, record)] = await take(link, 1)
        assert record.value == b"a1"
        assert not link.pull.early
        held.go.set()


async def test_planted_a_barrier_that_is_not_awaited_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scanner, "may_serve", lambda scanner, barrier: True)
    with pytest.raises(AssertionError, match="served though the other partition"):
        await test_a_credit_waits_for_what_was_readable_when_it_was_given(tmp_path)
