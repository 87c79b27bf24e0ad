"""One queue group over a store that refuses, and with a temporary file that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from logbroker.errors import BrokerUnavailableError, LogbrokerError, StorageFailedError
from logbroker.queues.delivery.worker_stream import WorkerLink
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.lane import CHUNK_RECORDS
from logbroker.queues.model.messages import Outputs, Settlement
from logbroker.queues.scan.spill import SpillFile
from tests.queues.shell import ack, hello, shell, take, until


@asynccontextmanager
async def worked_on(path: Path) -> AsyncIterator[tuple[QueueGroup, WorkerLink, int]]:
    """A group with two records, a worker that has one of them, and its receipt."""
    async with shell(path, crash=True) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"), (b"b", b"b1"))
        group = await opened.group()
        link = await group.connect(hello())
        [(receipt, _)] = await take(link, 1)
        yield group, link, receipt


async def test_what_cannot_be_stored_is_answered_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that never comes would keep its caller for ever."""
    async with worked_on(tmp_path) as (group, link, receipt):

        def broken() -> Outputs:
            raise ZeroDivisionError("planted")

        monkeypatch.setattr(group.queue, "take_outputs", broken)
        with pytest.raises(LogbrokerError, match="cannot go on until the next start of the broker: planted"):
            async with asyncio.timeout(25):
                await link.settle(Settlement(acks=[(receipt, receipt)]))
        with pytest.raises(LogbrokerError, match="planted"):
            await link.settle(Settlement(acks=[(receipt, receipt)]))
        assert group.state() == "failed"
        with pytest.raises(LogbrokerError, match="planted"):
            async with asyncio.timeout(25):
                await take(link, 1)
        with pytest.raises(LogbrokerError, match="planted"):
            await group.connect(hello("another"))


async def test_workers_come_back_to_the_next_broker_when_its_storage_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with worked_on(tmp_path) as (group, link, receipt):

        async def commit(_: object) -> None:
            raise StorageFailedError("planted")

        monkeypatch.setattr(group._commits._store, "commit", commit)
        with pytest.raises(StorageFailedError):
            async with asyncio.timeout(25):
                await link.settle(Settlement(acks=[(receipt, receipt)]))
        with pytest.raises(BrokerUnavailableError) as ended:
            async with asyncio.timeout(25):
                await take(link, 1)
        assert ended.value.retriable


async def test_a_group_whose_scan_breaks_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group()
        assert group.state() == "serving"

        def broken(*_: object) -> None:
            raise ZeroDivisionError("planted")

        monkeypatch.setattr(group.queue, "admit", broken)
        await opened.append((b"a", b"a1"))
        await until(lambda: group.state() == "failed")
        assert "queue group g cannot go on" in caplog.text
        with pytest.raises(LogbrokerError, match="cannot go on until the next start: planted"):
            await group.connect(hello())


async def test_a_group_whose_temporary_file_cannot_be_read_scans_anew_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logbroker.queues.machine.successors.CHUNKS_IN_MEMORY", 1)
    count = 4 * CHUNK_RECORDS
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append(*[(b"k", b"%d" % number) for number in range(count)])
        group = await opened.group()
        queue = group.queue
        await until(lambda: queue.position(0) == count)
        for _ in range(CHUNK_RECORDS):
            [granted] = queue.take("before", 1, group.moment())
            acks = [(granted.first_receipt, granted.first_receipt)]
            assert queue.settle("before", Settlement(acks=acks), group.moment()) == []
        monkeypatch.setattr(SpillFile, "take", lambda spill, number: None)
        link = await group.connect(hello())
        for number in range(CHUNK_RECORDS, CHUNK_RECORDS + 3):
            [(receipt, record)] = await take(link, 1)
            assert record.value == b"%d" % number
            await ack(link, receipt)
        assert queue.open_records == count - CHUNK_RECORDS - 3


async def test_a_deleted_group_gives_up_its_temporary_file_at_once(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append(*[(b"k", b"") for _ in range(20 * CHUNK_RECORDS)])
        group = await opened.group()
        await until(lambda: group.queue.position(0) == 20 * CHUNK_RECORDS)
        spill = group.queue.lanes.successors._store
        assert isinstance(spill, SpillFile)
        assert spill._file is not None
        await opened.groups.delete("g")
        assert spill._file is None
