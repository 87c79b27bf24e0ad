"""A symbolic link in the place of a partition's directory: never followed, never left behind without a word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logbroker.engine import Read, ReadResult
from logbroker.errors import CorruptLogError, PartitionOfflineError, UnknownTopicError
from tests.broker.conftest import OpenEngine


async def linked(open_at: OpenEngine, tmp_path: Path) -> Path:
    """Leave a topic `bad` whose partition 1 was moved to another disk; return where it is."""
    async with open_at() as opened:
        for name in ("good", "bad"):
            topic = await opened.engine.create_topic(name, 2, {})
            await opened.append(topic.id, name.encode())
    path, elsewhere = tmp_path / "data" / "bad-1", tmp_path / "elsewhere"
    path.rename(elsewhere)
    (elsewhere / "somebody-else's").write_bytes(b"precious")
    path.symlink_to(elsewhere)
    return elsewhere


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


async def test_the_partition_is_offline_and_all_others_serve(open_at: OpenEngine, tmp_path: Path) -> None:
    elsewhere = await linked(open_at, tmp_path)
    before = content(elsewhere)
    async with open_at() as opened:
        topic_id = opened.engine.topic("bad").id
        [refusal] = await opened.engine.read([Read(topic_id, 1, 0, 1000)])
        assert isinstance(refusal, PartitionOfflineError)
        assert "symbolic link" in refusal.message
        assert "mount" in refusal.message
        assert str(tmp_path / "data" / "bad-1") in refusal.message
        [found] = await opened.engine.read([Read(topic_id, 0, 0, 1000)])
        assert isinstance(found, ReadResult)
        assert opened.failures == []
    assert content(elsewhere) == before
    path = tmp_path / "data" / "bad-1"
    path.unlink()
    elsewhere.rename(path)
    async with open_at() as opened:
        [found] = await opened.engine.read([Read(opened.engine.topic("bad").id, 1, 0, 1000)])
        assert isinstance(found, ReadResult)


@pytest.mark.parametrize("when", ["before the start", "while it runs"])
async def test_a_deletion_takes_the_link_alone_and_says_so(
    open_at: OpenEngine, tmp_path: Path, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    path, elsewhere = tmp_path / "data" / "bad-1", tmp_path / "elsewhere"
    if when == "while it runs":
        async with open_at() as opened:
            for name in ("good", "bad"):
                await opened.append((await opened.engine.create_topic(name, 2, {})).id, name.encode())
            path.rename(elsewhere)
            path.symlink_to(elsewhere)
            before = content(elsewhere)
            await opened.engine.delete_topic(opened.engine.topic("bad").id)
            assert opened.failures == []
    else:
        await linked(open_at, tmp_path)
        before = content(elsewhere)
        async with open_at() as opened:
            await opened.engine.delete_topic(opened.engine.topic("bad").id)
            assert opened.failures == []
    assert content(elsewhere).items() >= before.items()
    assert not os.path.lexists(path)
    assert [name for name in os.listdir(tmp_path / "data") if name.startswith("bad-") or "delete" in name] == []
    [line] = [record.getMessage() for record in caplog.records if "symbolic link" in record.getMessage()][-1:]
    assert str(elsewhere) in line
    assert "remove them yourself" in line
    async with open_at() as opened:
        with pytest.raises(UnknownTopicError):
            opened.engine.topic("bad")
        topic = await opened.engine.create_topic("bad", 2, {})
        assert await opened.append(topic.id, b"new") == 0


async def test_a_new_topic_is_not_made_behind_a_link(open_at: OpenEngine, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with open_at() as opened:
        (tmp_path / "data" / "new-0").symlink_to(elsewhere)
        with pytest.raises(CorruptLogError, match="symbolic link"):
            await opened.engine.create_topic("new", 1, {})
        assert list(elsewhere.iterdir()) == []
        assert opened.failures == []


async def test_a_data_directory_may_be_a_link(open_at: OpenEngine, tmp_path: Path) -> None:
    (tmp_path / "other disk").mkdir()
    (tmp_path / "data").symlink_to("other disk")
    for number in range(2):
        async with open_at() as opened:
            topic = opened.engine.topic("t") if number else await opened.engine.create_topic("t", 1, {})
            assert await opened.append(topic.id, b"a") == number
