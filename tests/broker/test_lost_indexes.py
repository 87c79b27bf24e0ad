"""An index of an active segment that is gone is made anew in a thread: one partition waits for it, and no other."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from logbroker.engine import Append, Appended, Read, ReadResult
from logbroker.errors import BrokerUnavailableError, CorruptLogError, LogbrokerError, OverloadedError
from logbroker.storage.segment import Segment
from logbroker.types import TopicId
from tests.broker.conftest import Opened, OpenEngine, batch
from tests.waiting import until

BATCHES = 5_000
"""More than what is indexed in passing."""


@pytest.fixture
async def topic_ids(open_at: OpenEngine, tmp_path: Path) -> list[TopicId]:
    """A topic whose segment has lost its indexes, and another one."""
    async with open_at() as opened:
        topics = [await opened.engine.create_topic(name, 1, {"durability": "written"}) for name in ("lost", "other")]
        appends = [Append(topics[0].id, 0, batch(b"%d" % number)) for number in range(BATCHES)]
        assert all(isinstance(each, Appended) for each in await opened.engine.append(appends))
    for path in (tmp_path / "data" / "lost-0").glob("*index"):
        path.unlink()
    return [topic.id for topic in topics]


@pytest.fixture
def threads_of_rebuilds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    threads: list[int] = []
    rebuild = Segment._rebuild

    def noted(self: Segment) -> None:
        threads.append(threading.get_ident())
        rebuild(self)

    monkeypatch.setattr(Segment, "_rebuild", noted)
    return threads


async def outcome(opened: Opened, topic_id: TopicId) -> Appended | LogbrokerError:
    [found] = await opened.engine.append([Append(topic_id, 0, batch(b"new"))])
    return found


async def appended(opened: Opened, topic_id: TopicId) -> Appended:
    async with asyncio.timeout(30):
        while isinstance(found := await outcome(opened, topic_id), OverloadedError):
            await asyncio.sleep(0.01)
    assert isinstance(found, Appended), found
    return found


async def test_it_is_made_in_a_thread_and_holds_up_no_other_partition(
    open_at: OpenEngine, topic_ids: list[TopicId], threads_of_rebuilds: list[int]
) -> None:
    lost, other = topic_ids
    async with open_at() as opened:
        appends = [Append(topic_id, 0, batch(b"new")) for topic_id in (lost, other, lost)]
        first, second, third = await opened.engine.append(appends)
        assert isinstance(second, Appended)
        for refused in (first, third):
            assert isinstance(refused, OverloadedError)
            assert "index of lost-0 was lost" in refused.message
        assert (await appended(opened, lost)).base_offset == BATCHES
        assert len(threads_of_rebuilds) == 1
        assert threads_of_rebuilds[0] != threading.get_ident()
        for offset in (0, BATCHES // 2, BATCHES):
            [found] = await opened.engine.read([Read(lost, 0, offset, 1)])
            assert isinstance(found, ReadResult)
            assert found.batches


async def test_an_append_waits_for_no_reader_that_makes_it(open_at: OpenEngine, topic_ids: list[TopicId]) -> None:
    lost, _ = topic_ids
    async with open_at() as opened:
        [segment] = opened.engine._partitions.get(lost, 0).log._view.segments
        with segment._lock:
            assert isinstance(await outcome(opened, lost), OverloadedError)
        assert (await appended(opened, lost)).base_offset == BATCHES


async def test_why_it_cannot_be_made_is_told_and_it_is_tried_again(
    open_at: OpenEngine, topic_ids: list[TopicId], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, other = topic_ids

    def failing(_: Segment) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async with open_at() as opened:
        with monkeypatch.context() as patched:
            patched.setattr(Segment, "_rebuild", failing)
            for _ in range(2):
                async with asyncio.timeout(30):
                    while isinstance(found := await outcome(opened, lost), OverloadedError):
                        await asyncio.sleep(0.01)
                assert isinstance(found, CorruptLogError)
                assert "lost-0/00000000000000000000.log: Input/output error" in found.message
                assert isinstance(await outcome(opened, other), Appended)
        assert (await appended(opened, lost)).base_offset == BATCHES
        assert opened.failures == []


async def test_whatever_else_fails_is_logged_and_tried_again(
    open_at: OpenEngine, topic_ids: list[TopicId], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lost, _ = topic_ids
    rebuild = Segment._rebuild

    def failing(self: Segment) -> None:
        if len(caplog.records) < 2:
            raise MemoryError
        rebuild(self)

    async with open_at() as opened:
        monkeypatch.setattr(Segment, "_rebuild", failing)
        assert (await appended(opened, lost)).base_offset == BATCHES
        assert [record.getMessage() for record in caplog.records] == [
            "the index of lost-0 cannot be made, and is tried again: MemoryError()"
        ] * 2


async def test_a_short_one_is_made_at_once(open_at: OpenEngine, tmp_path: Path, threads_of_rebuilds: list[int]) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("short", 1, {"durability": "written"})
        for number in range(10):
            await opened.append(topic.id, b"%d" % number)
    for path in (tmp_path / "data" / "short-0").glob("*index"):
        path.unlink()
    async with open_at() as opened:
        assert await opened.append(topic.id, b"new") == 10
        assert threads_of_rebuilds == [threading.get_ident()]


async def test_a_stop_does_not_wait_until_it_is_made(
    open_at: OpenEngine, topic_ids: list[TopicId], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, _ = topic_ids
    begun, given_up = threading.Event(), threading.Event()
    until_shut = Segment._until_shut

    def held(self: Segment, headers: Any) -> Any:
        begun.set()
        until(lambda: self._handles.is_shut)
        try:
            yield from until_shut(self, headers)
        except BrokerUnavailableError:
            given_up.set()
            raise

    with monkeypatch.context() as patched:
        patched.setattr(Segment, "_until_shut", held)
        async with open_at() as opened:
            assert isinstance(await outcome(opened, lost), OverloadedError)
            assert await asyncio.to_thread(begun.wait, 30)
        assert given_up.is_set()
    async with open_at() as opened:
        assert (await appended(opened, lost)).base_offset == BATCHES
