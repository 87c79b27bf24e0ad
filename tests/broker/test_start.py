"""A start after a kill: many partitions have a tail that no recovery point knows of, and are opened side by side."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from logbroker.broker.local_engine.topic_rows import PARTITIONS
from logbroker.engine import Append, Read, ReadResult
from logbroker.errors import PartitionOfflineError
from logbroker.record.codec import decode_batch, split_batches
from logbroker.storage.metadata.metadata_store import MetadataStore
from tests.broker.conftest import Opened, OpenEngine, batch

TOPICS = {"a": 5, "b": 3}
BATCHES = 3


def sent(topic: str, partition: int) -> list[bytes]:
    return [f"{topic}-{partition}:{number}".encode() for number in range(BATCHES)]


@pytest.fixture
async def killed(open_at: OpenEngine, tmp_path: Path) -> Path:
    """A data directory as a kill before the first checkpoint leaves it."""
    async with open_at() as opened:
        topics = [await opened.engine.create_topic(name, partitions, {}) for name, partitions in TOPICS.items()]
        rows = list(opened.state._store.scan(PARTITIONS))
        for topic in topics:
            for number in range(topic.partitions):
                batches = [batch(each) for each in sent(topic.name, number)]
                await opened.engine.append([Append(topic.id, number, each) for each in batches])
    store = MetadataStore.open(tmp_path / "data" / "meta", on_failure=print)
    store.submit([("broker", b"clean-stop", None), *((PARTITIONS, key, row) for key, row in rows)]).result(20)
    store.close()
    return tmp_path / "data"


async def values(opened: Opened, topic: str, partition: int) -> list[bytes | None]:
    [found] = await opened.engine.read([Read(opened.engine.topic(topic).id, partition, 0, 1 << 20)])
    assert isinstance(found, ReadResult), found
    return [record.value for _, one in split_batches(found.batches) for record in decode_batch(one)]


async def test_every_partition_gets_its_own_tail_and_damage_stays_with_one(open_at: OpenEngine, killed: Path) -> None:
    [log] = (killed / "a-2").glob("*.log")
    content = bytearray(log.read_bytes())
    content[70] ^= 1  # in the first batch; good ones follow, so no kill explains it
    log.write_bytes(content)
    async with open_at(sync_threads=3) as opened:
        for name, partitions in TOPICS.items():
            for number in range(partitions):
                if (name, number) == ("a", 2):
                    [refusal] = await opened.engine.read([Read(opened.engine.topic(name).id, number, 0, 1 << 20)])
                    assert isinstance(refusal, PartitionOfflineError)
                else:
                    assert await values(opened, name, number) == sent(name, number)


async def test_tails_are_synced_side_by_side(
    open_at: OpenEngine, killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fdatasync
    meeting = threading.Barrier(sum(TOPICS.values()))

    def fdatasync(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            meeting.wait(20)
        real(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fdatasync)
        async with open_at(sync_threads=8) as opened:
            assert await values(opened, "b", 2) == sent("b", 2)


async def test_a_partition_without_a_tail_needs_no_thread(
    open_at: OpenEngine, killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at():
        pass
    started: list[str] = []
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        started.append(thread.name)
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    async with open_at() as opened:
        assert await values(opened, "a", 4) == sent("a", 4)
    assert any("io" in name for name in started)
    assert not any("recovery" in name for name in started)
