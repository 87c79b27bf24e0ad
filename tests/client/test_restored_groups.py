"""A broker that knows less of a group's commits than a live member does: an older metadata store was put in place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from logbroker.client import Admin, Consumer, TopicPartition
from logbroker.client.consumer import group_reader
from logbroker.client.consumer.fetcher import Assigned, Fetcher
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.tools.metadata_backup import Backup, back_up, read_backup
from logbroker.tools.metadata_restore import extracted, plan_restore, restore
from tests.client.group_helpers import Events, add, committed, drain, fill, take, wait_for_commit


def put_back(backup: Backup, data_dir: Path) -> None:
    with extracted(read_backup(Path(backup.path)), data_dir) as store:
        restore(plan_restore(backup, store, data_dir), store, data_dir)


class Restored:
    """A topic of two partitions, 10 records each, that one member has read and committed; at 5 a backup was made."""

    def __init__(self, broker: EmbeddedBroker, topic: str, directory: Path) -> None:
        self.broker, self.address, self.topic = broker, broker.address, topic
        self.directory = directory
        self.events = Events()

    async def read(self, consumer: Consumer, *, by_hand: bool) -> None:
        await fill(self.address, self.topic, 2, 10)
        await consumer.subscribe(self.topic, **self.events.listen("it"))
        backup = None
        for end in (5, 10):
            assert len(await drain(consumer, 10)) == 10
            if by_hand:
                await consumer.commit()
            else:
                await consumer.poll(timeout_seconds=0)
            await wait_for_commit(self.address, self.topic, {0: end, 1: end})
            if backup is None:
                backup, _ = await asyncio.to_thread(back_up, self.broker.data_dir, self.directory / "one.backup")
                await add(self.address, self.topic, 2, 10)
        await asyncio.to_thread(self.broker.stop)
        assert backup is not None
        put_back(backup, self.broker.data_dir)


@pytest.fixture
def restored(logbroker_broker: EmbeddedBroker, topic: str, tmp_path: Path) -> Restored:
    return Restored(logbroker_broker, topic, tmp_path)


@pytest.mark.prove
@pytest.mark.parametrize("by_hand", [False, True], ids=["auto", "by hand"])
async def test_the_group_goes_on_to_the_next_generation(restored: Restored, by_hand: bool) -> None:
    """The client repeats the commit that the group waits for, which the program made only once."""
    async with Consumer(restored.address, group=restored.topic, auto_commit=not by_hand) as consumer:
        await restored.read(consumer, by_hand=by_hand)
        await asyncio.to_thread(restored.broker.start)
        async with Admin(restored.address) as admin:
            await admin.alter_topic(restored.topic, partitions=3)
        await add(restored.address, restored.topic, 3, 9)
        assert sorted(record.offset for record in await drain(consumer, 9)) == [0, 1, 2, 10, 10, 11, 11, 12, 12]
        assert len(restored.events.all) == 2, "all was kept, and a partition came"


def by_hand(restored: Restored) -> Consumer:
    return Consumer(restored.address, group=restored.topic, auto_commit=False, auto_commit_interval_seconds=0.05)


@pytest.mark.prove
async def test_what_could_not_be_said_at_once_is_said_again(
    restored: Restored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that grows meanwhile answers that the member knows too little of it, and the place stays doubtful."""
    left = 3
    confirm = Fetcher.confirm

    async def confirm_later(self: Fetcher, partitions: Iterable[Assigned], *, retry: bool) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            await confirm(self, partitions, retry=retry)

    may_commit = group_reader._may_commit

    def doubtful(assigned: Assigned) -> bool:
        # The fetch stream may have been told first that the place is good.
        return left < 0 and may_commit(assigned)

    async with by_hand(restored) as consumer:
        await restored.read(consumer, by_hand=True)
        # The list in hand is finished.
        assert not await consumer.poll(timeout_seconds=0)
        monkeypatch.setattr(Fetcher, "confirm", confirm_later)
        monkeypatch.setattr(group_reader, "_may_commit", doubtful)
        await asyncio.to_thread(restored.broker.start)
        await wait_for_commit(restored.address, restored.topic, {0: 10, 1: 10})
        assert left < 0


async def test_what_is_in_hand_still_is_said_again_when_it_is_finished(
    restored: Restored, caplog: pytest.LogCaptureFixture
) -> None:
    """The program has committed the list that it was given last, and works on: it has not asked for the next one."""
    async with by_hand(restored) as consumer:
        await restored.read(consumer, by_hand=True)
        await asyncio.to_thread(restored.broker.start)
        async with asyncio.timeout(20):
            while "committing again" not in caplog.text:
                await asyncio.sleep(0.02)
        assert not await consumer.poll(timeout_seconds=0)
        await wait_for_commit(restored.address, restored.topic, {0: 10, 1: 10})
    assert caplog.text.count("committing again") == 1


@pytest.mark.prove
async def test_what_the_program_commits_meanwhile_stands(
    restored: Restored, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may go back, and say so: what it said before is void."""
    async with by_hand(restored) as consumer:
        await restored.read(consumer, by_hand=True)
        with monkeypatch.context() as patched:
            # Otherwise the member may have committed again before the program does.
            patched.setattr(group_reader, "_may_commit", lambda _: False)
            await asyncio.to_thread(restored.broker.start)
            async with asyncio.timeout(20):
                while "committing again" not in caplog.text:
                    await asyncio.sleep(0.02)
            await consumer.commit({TopicPartition(restored.topic, number): 7 for number in range(2)})
        assert consumer._core._group is not None
        assert not consumer._core._group._unsure
        assert not await consumer.poll(timeout_seconds=0)
        assert await committed(restored.address, restored.topic) == {0: 7, 1: 7}


@pytest.mark.prove
async def test_commit_says_it_again(restored: Restored) -> None:
    """Before the member has heard what the broker has, too: it must not pass over what it takes for committed."""
    async with Consumer(restored.address, group=restored.topic, auto_commit=False) as consumer:
        await restored.read(consumer, by_hand=True)
        at = TopicPartition(restored.topic, 0)

        async def say_it() -> None:
            while not consumer._core._group or not consumer._core._group._unsure:
                await asyncio.sleep(0)
            await consumer.commit({at: 10})

        said = asyncio.create_task(say_it())
        await asyncio.to_thread(restored.broker.start)
        await said
        assert (await committed(restored.address, restored.topic))[0] == 10


@pytest.mark.prove
async def test_what_the_program_went_back_behind_is_not_said_again(restored: Restored) -> None:
    """It has that in hand once more; the broker takes what it finishes from there."""
    async with Consumer(restored.address, group=restored.topic) as consumer:
        await restored.read(consumer, by_hand=False)
        await consumer.seek(TopicPartition(restored.topic, 0), 7)
        await asyncio.to_thread(restored.broker.start)
        await wait_for_commit(restored.address, restored.topic, {0: 7, 1: 10})
        assert [record.offset for record in await take(consumer, 2)] == [7, 8]
