"""Records that cannot be read when they are to be handed out wait, count no attempt, and are handed out later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from logbroker.engine import Read, ReadResult
from logbroker.errors import CorruptLogError, LogbrokerError, OverloadedError, PartitionOfflineError
from logbroker.pacing import Pace
from logbroker.queues.delivery.worker_stream import WorkerLink
from logbroker.queues.description import describe_group
from logbroker.queues.group import QueueGroup
from logbroker.queues.lanes import explain_lanes
from logbroker.queues.model.settings import OnExhausted, Ordering, Priority
from logbroker.queues.operations import LaneName
from logbroker.queues.records import read_failures
from logbroker.queues.scan import scanner
from tests.queues.shell import Shell, ack, hello, records, shell, until, values

COUNT = 12
KEYS = 3
LOOKS = 20
"""More looks than a record may fail."""
WAYS: dict[str, dict[str, Any]] = {
    "keys": {"ordering": Ordering.KEY},
    "no order": {"ordering": Ordering.NONE},
    "priorities": {"ordering": Ordering.NONE, "priority": Priority.STRICT},
    "keys with priorities": {"ordering": Ordering.KEY, "priority": Priority.STRICT},
}


class Reads:
    """The answer to reads of partition 0: an error while there is one."""

    def __init__(self, opened: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: LogbrokerError | None = None
        self.refused = 0
        self._read = opened.engine.read
        monkeypatch.setattr(opened.engine, "read", self.read)

    async def read(self, reads: Sequence[Read]) -> list[ReadResult | LogbrokerError]:
        results = await self._read(reads)
        for index, wish in enumerate(reads):
            if self.error is not None and wish.partition == 0:
                results[index] = self.error
                self.refused += 1
        return results


@asynccontextmanager
async def unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> AsyncIterator[tuple[Shell, QueueGroup, Reads, WorkerLink]]:
    """A group that has scanned everything and keeps nothing of it in memory."""
    monkeypatch.setattr(read_failures, "FIRST_PAUSE_SECONDS", 0.002)
    monkeypatch.setattr(read_failures, "LONGEST_PAUSE_SECONDS", 0.02)
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=2)
        group = await opened.group(max_attempts=2, on_exhausted=OnExhausted.BLOCK, **settings)
        group.records.batches.cache.max_bytes = 0
        for partition in range(2):
            for number in range(COUNT):
                key = b"%d" % (KEYS * partition + number % KEYS)
                await opened.append((key, b"%d" % number), partition=partition)
        link = await group.connect(hello())
        await group.scanner.catch_up(60)
        yield opened, group, Reads(opened, monkeypatch), link


async def work(link: WorkerLink, count: int, credit: int = COUNT) -> list[tuple[bytes | None, int]]:
    """Ack so many records; return their keys and offsets. None of them was handed out before."""
    worked: list[tuple[bytes | None, int]] = []
    if credit:
        link.add_credit(credit)
    while len(worked) < count:
        delivered = await link.next_deliveries()
        assert set(delivered.attempts) <= {1}
        assert not any(delivered.redelivered)
        worked += [(record.key, int(record.value or b"")) for record in records(delivered)]
        await ack(link, *range(delivered.first_receipt, delivered.first_receipt + delivered.count))
        if delivered.session is None:
            link.add_credit(delivered.count)
    assert len(worked) == count
    return worked


def is_in_order(worked: list[tuple[bytes | None, int]]) -> bool:
    return all(
        [number for key, number in worked if key == wanted] == sorted(number for key, number in worked if key == wanted)
        for wanted in {key for key, _ in worked}
    )


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "error", [CorruptLogError("damaged"), PartitionOfflineError("broken"), OverloadedError("late")]
)
async def test_records_that_cannot_be_read_wait_until_they_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, error: LogbrokerError
) -> None:
    async with unreadable(tmp_path, monkeypatch, **WAYS[way]) as (opened, group, reads, link):
        reads.error = error
        worked = await work(link, COUNT)
        assert sorted(number for _, number in worked) == list(range(COUNT)), "the other partition goes on"
        working = asyncio.create_task(work(link, COUNT, 0))
        await until(lambda: reads.refused > LOOKS)
        described = await describe_group(opened.engine, group, Pace(), 0)
        assert (described.counts.blocked_lanes, described.tally.nacked) == (0, 0)
        assert [str(partition.error) for partition in described.partitions] == [str(error), "None"]
        reads.error = None
        worked = await working
        assert way in {"no order", "priorities"} or is_in_order(worked)
        await until(lambda: [group.queue.done.floor(partition) for partition in range(2)] == [COUNT, COUNT])
        described = await describe_group(opened.engine, group, Pace(), 0)
        assert described.partitions[0].error is None


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("way", WAYS)
async def test_a_partition_whose_scan_cannot_read_is_served_again_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scanner, "FIRST_PAUSE_SECONDS", 0.002)
    monkeypatch.setattr(scanner, "LONGEST_PAUSE_SECONDS", 0.02)
    async with unreadable(tmp_path, monkeypatch, **WAYS[way]) as (opened, group, reads, link):
        await work(link, 2 * COUNT)
        for _ in range(2):
            caplog.clear()
            reads.error, reads.refused = CorruptLogError("00000000000000000000.log: cannot be read"), 0
            for partition in range(2):
                for number in range(COUNT):
                    key = b"%d" % (KEYS * partition + number % KEYS)
                    await opened.append((key, b"%d" % number), partition=partition)
            worked = await work(link, COUNT)
            assert sorted(number for _, number in worked) == list(range(COUNT)), "the other partition goes on"
            await until(lambda: reads.refused > LOOKS)
            described = await describe_group(opened.engine, group, Pace(), 0)
            assert [str(partition.error) for partition in described.partitions] == [str(reads.error), "None"]
            assert sum("until it can be read" in record.message for record in caplog.records) == 1, "it is told once"
            assert not await group.scanner.catch_up(0)
            reads.error = None
            worked = await work(link, COUNT)
            assert way in {"no order", "priorities"} or is_in_order(worked)
            assert sorted(number for _, number in worked) == list(range(COUNT))
            described = await describe_group(opened.engine, group, Pace(), 0)
            assert described.partitions[0].error is None
            assert await group.scanner.catch_up(60)


async def test_a_partition_that_cannot_be_read_holds_back_a_generation_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "FIRST_PAUSE_SECONDS", 0.002)
    monkeypatch.setattr(scanner, "LONGEST_PAUSE_SECONDS", 0.02)
    async with unreadable(tmp_path, monkeypatch, ordering=Ordering.KEY) as (opened, group, reads, link):
        await work(link, 2 * COUNT)
        reads.error = CorruptLogError("00000000000000000000.log: cannot be read")
        await opened.append((b"0", b"before"), partition=0)
        await until(lambda: 0 in group.scanner.stopped)
        await opened.engine.alter_topic(opened.engine.topic("t").id, partitions=4)
        await opened.append((b"0", b"after"), partition=3)
        link.add_credit(2)
        await until(lambda: reads.refused > LOOKS)
        reads.error = None
        values: list[bytes | None] = []
        while len(values) < 2:
            delivered = await link.next_deliveries()
            values += [record.value for record in records(delivered)]
            await ack(link, delivered.first_receipt)
        assert values == [b"before", b"after"]


async def test_a_session_waits_until_its_records_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with unreadable(tmp_path, monkeypatch, ordering=Ordering.KEY) as (_, group, reads, link):
        reads.error = CorruptLogError("damaged")
        await link.open_session(b"0", prefetch=3)
        working = asyncio.create_task(work(link, COUNT // KEYS, 0))
        await until(lambda: reads.refused > LOOKS)
        [lane] = await explain_lanes(group, [b"0"], Pace(), is_all_scanned=True)
        assert lane.told is not None
        assert (lane.told.facts.obstacle, lane.told.facts.attempt) == ("damaged", 1)
        reads.error = None
        assert await working == [(b"0", number) for number in range(0, COUNT, KEYS)]


async def test_an_operator_moves_a_lane_that_waits_for_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with unreadable(tmp_path, monkeypatch, ordering=Ordering.KEY) as (_, group, reads, link):
        reads.error = CorruptLogError("damaged")
        monkeypatch.setattr(read_failures, "FIRST_PAUSE_SECONDS", 1000.0)
        working = asyncio.create_task(work(link, COUNT))
        await until(lambda: len(group.queue.stalled.delays) == KEYS)
        [lane] = await explain_lanes(group, [b"0"], Pace(), is_all_scanned=True)
        assert lane.state == "waiting"
        for key in range(KEYS):
            await group.operations.drop(LaneName(key=b"%d" % key), Pace())
        assert not group.queue.stalled.read_failures.by_partition
        await working
        assert [group.queue.done.floor(partition) for partition in range(2)] == [COUNT, COUNT]


@pytest.mark.parametrize("way", WAYS)
async def test_records_behind_a_damaged_segment_are_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Records of one read span, in and behind the damage, do not share its error; keys keep their order."""
    monkeypatch.setattr(read_failures, "FIRST_PAUSE_SECONDS", 0.002)
    monkeypatch.setattr(read_failures, "LONGEST_PAUSE_SECONDS", 0.02)
    async with shell(tmp_path) as opened:
        await opened.engine.create_topic("t", 1, {"segment.bytes": "400"})
        group = await opened.group(max_attempts=2, on_exhausted=OnExhausted.BLOCK, **WAYS[way])
        group.records.batches.cache.max_bytes = 0
        keys = [b"a", b"b", b"a", b"b", b"a", b"c", b"c", b"b", b"a"]
        for number, key in enumerate(keys):
            await opened.append((key, b"%d" % number + bytes(100)))
        logs = sorted((tmp_path / "data").glob("t-0/*.log"))
        assert [int(log.stem) for log in logs] == [0, 2, 4, 6, 8]
        link = await group.connect(hello())
        await group.scanner.catch_up(60)
        sound = logs[1].read_bytes()
        logs[1].write_bytes(b"\1" + sound[1:])
        has_order = WAYS[way]["ordering"] is Ordering.KEY
        readable = [0, 1, 5, 6] if has_order else [0, 1, 4, 5, 6, 7, 8]
        link.add_credit(len(keys))
        worked: list[int] = []
        while len(worked) < len(readable):
            async with asyncio.timeout(20):
                delivered = await link.next_deliveries()
            worked += [int((record.value or b"").rstrip(b"\0")) for record in records(delivered)]
            await ack(link, *range(delivered.first_receipt, delivered.first_receipt + delivered.count))
        assert sorted(worked) == readable
        described = await describe_group(opened.engine, group, Pace(), 0)
        assert str(logs[1]) in str(described.partitions[0].error)
        assert (described.counts.blocked_lanes, described.tally.nacked) == (0, 0)


async def test_a_damaged_batch_is_no_failure_of_its_records(tmp_path: Path) -> None:
    """The CRC shows the damage, after the scan has passed over it: the record waits, and the error names the file."""
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group(max_attempts=1, on_exhausted=OnExhausted.BLOCK)
        group.records.batches.cache.max_bytes = 0
        await opened.append((b"a", b"first"))
        await opened.append((b"b", b"second"))
        link = await group.connect(hello())
        await group.scanner.catch_up(60)
        [log] = (tmp_path / "data").glob("t-0/*.log")
        log.write_bytes(log.read_bytes().replace(b"second", b"sECOND"))
        link.add_credit(2)
        assert values(await link.next_deliveries()) == [b"first"]
        pending = asyncio.create_task(link.next_deliveries())
        await until(lambda: len(group.queue.stalled.delays) == 1)
        [lane] = await explain_lanes(group, [b"b"], Pace(), is_all_scanned=True)
        assert lane.told is not None
        assert (lane.state, lane.told.facts.attempt) == ("waiting", 1)
        assert str(log) in lane.told.facts.obstacle
        pending.cancel()
