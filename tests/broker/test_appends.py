"""The meaning of an acknowledgement: order, durability, duplicates, bounds, and the end after a storage failure."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from logbroker.broker.local_engine import upkeep
from logbroker.engine import Append, Appended, Read, ReadResult
from logbroker.errors import (
    BrokerUnavailableError,
    CorruptBatchError,
    OverloadedError,
    StaleGenerationError,
    StorageFailedError,
    UnknownPartitionError,
)
from logbroker.types import Durability, PartitionKey, TopicId
from tests.broker.conftest import HeldSync, Opened, OpenEngine, batch


async def entered(held: HeldSync) -> None:
    assert await asyncio.to_thread(held.entered.wait, 10)


def high_watermark(opened: Opened, topic_id: TopicId) -> int:
    return opened.engine.partition_facts(topic_id, 0).high_watermark


async def test_offsets_follow_the_order_of_the_calls(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        calls = [asyncio.create_task(opened.append(topic.id, b"%d" % number)) for number in range(200)]
        assert await asyncio.gather(*calls) == list(range(200))


async def test_nothing_is_acknowledged_or_read_before_its_sync(open_at: OpenEngine, held_sync: HeldSync) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        held_sync.active = True
        first = asyncio.create_task(opened.append(topic.id, b"a"))
        await entered(held_sync)
        second = asyncio.create_task(opened.append(topic.id, b"b"))
        await asyncio.sleep(0)
        assert not first.done()
        assert high_watermark(opened, topic.id) == 0
        [result] = await opened.engine.read([Read(topic.id, 0, 0, 1000)])
        assert isinstance(result, ReadResult)
        assert result.batches == b""
        held_sync.release.set()
        assert [await first, await second] == [0, 1]
        assert high_watermark(opened, topic.id) == 2


async def test_a_request_for_less_is_only_answered_earlier(open_at: OpenEngine, held_sync: HeldSync) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        held_sync.active = True
        assert await opened.append(topic.id, b"a", durability=Durability.WRITTEN) == 0
        assert not held_sync.release.is_set()
        assert high_watermark(opened, topic.id) == 0, "readers see what the topic promises, not less"
        held_sync.release.set()
        assert await opened.append(topic.id, b"b") == 1
        assert high_watermark(opened, topic.id) == 2


async def test_a_request_for_more_waits_for_a_sync(open_at: OpenEngine, held_sync: HeldSync) -> None:
    async with open_at(checkpoint_seconds=3600) as opened:
        topic = await opened.engine.create_topic("t", 1, {"durability": "written"})
        held_sync.active = True
        assert await opened.append(topic.id, b"a") == 0
        assert high_watermark(opened, topic.id) == 1
        synced = asyncio.create_task(opened.append(topic.id, b"b", durability=Durability.SYNCED))
        await entered(held_sync)
        assert not synced.done()
        held_sync.release.set()
        assert await synced == 1


async def test_a_retry_waits_for_the_originals_sync(open_at: OpenEngine, held_sync: HeldSync) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        sent = batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0)
        held_sync.active = True
        original = asyncio.create_task(opened.engine.append([Append(topic.id, 0, sent)]))
        await entered(held_sync)
        retry = asyncio.create_task(opened.engine.append([Append(topic.id, 0, sent)]))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not retry.done()
        held_sync.release.set()
        [[first], [second]] = await asyncio.gather(original, retry)
        assert isinstance(first, Appended)
        assert isinstance(second, Appended)
        assert (first.base_offset, first.duplicate) == (0, False)
        assert (second.base_offset, second.duplicate) == (0, True)


async def test_appends_that_arrive_during_a_sync_share_the_next(open_at: OpenEngine, held_sync: HeldSync) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        held_sync.active = True
        calls = [asyncio.create_task(opened.append(topic.id, b"first"))]
        await entered(held_sync)
        calls += [asyncio.create_task(opened.append(topic.id, b"x")) for _ in range(50)]
        await asyncio.sleep(0)
        held_sync.entered.clear()
        held_sync.release.set()
        await asyncio.gather(*calls)
        assert opened.engine.partition_facts(topic.id, 0).log_end_offset == 51


async def test_a_failed_sync_is_the_end(open_at: OpenEngine, held_sync: HeldSync) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        other = await opened.engine.create_topic("other", 1, {})
        held_sync.active = True
        held_sync.error = OSError(errno.EIO, "Input/output error")
        first = asyncio.create_task(opened.append(topic.id, b"a"))
        await entered(held_sync)
        second = asyncio.create_task(opened.append(topic.id, b"b"))
        await asyncio.sleep(0)
        held_sync.release.set()
        for call in (first, second):
            with pytest.raises(StorageFailedError):
                await call
        assert len(opened.failures) == 1
        assert high_watermark(opened, topic.id) == 0
        held_sync.error = None
        for topic_id in (topic.id, other.id):
            with pytest.raises((StorageFailedError, BrokerUnavailableError)):
                await opened.append(topic_id, b"c")
        assert opened.engine.partition_facts(other.id, 0).log_end_offset == 0


async def test_bytes_in_flight_are_bounded(open_at: OpenEngine, held_sync: HeldSync) -> None:
    async with open_at(max_produce_bytes_in_flight=1000) as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        held_sync.active = True
        first = asyncio.create_task(opened.append(topic.id, bytes(800)))
        await entered(held_sync)
        with pytest.raises(OverloadedError, match="max_produce_bytes_in_flight"):
            await opened.append(topic.id, bytes(800))
        held_sync.release.set()
        assert await first == 0
        assert await opened.append(topic.id, bytes(800)) == 1, "what was refused took no offset"


async def test_bytes_of_one_call_are_bounded_together(open_at: OpenEngine) -> None:
    async with open_at(max_produce_bytes_in_flight=1000) as opened:
        topic = await opened.engine.create_topic("t", 1, {"durability": "written"})
        first, second = await opened.engine.append([Append(topic.id, 0, batch(bytes(800)))] * 2)
        assert isinstance(first, Appended)
        assert isinstance(second, OverloadedError)


async def test_appends_that_belong_together_are_refused_together(open_at: OpenEngine, held_sync: HeldSync) -> None:
    async with open_at(max_produce_bytes_in_flight=1000) as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        held_sync.active = True
        waiting = asyncio.create_task(opened.append(topic.id, bytes(500)))
        await entered(held_sync)
        parts = [batch(bytes(300)), batch(b"small"), batch(b"too")]
        room_bytes = [sum(map(len, parts)), 0, 0]
        together = [Append(topic.id, 0, part, room_bytes=room) for part, room in zip(parts, room_bytes, strict=True)]
        outcomes = await opened.engine.append(together)
        assert [type(outcome) for outcome in outcomes] == [OverloadedError] * 3
        held_sync.release.set()
        await waiting
        again = await opened.engine.append(together)
        assert [outcome.base_offset for outcome in again if isinstance(outcome, Appended)] == [1, 2, 3]


async def test_an_empty_batch_is_refused_for_itself(open_at: OpenEngine) -> None:
    """It takes no room, as those do that belong to the one before; it belongs to none."""
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        empty, good, elsewhere = (Append(topic.id, *item) for item in ((0, b""), (0, batch(b"x")), (9, batch(b"x"))))
        outcomes = await opened.engine.append([empty, good, elsewhere, empty, good])
        expected = [CorruptBatchError, Appended, UnknownPartitionError, CorruptBatchError, Appended]
        assert [type(outcome) for outcome in outcomes] == expected


async def test_bytes_that_are_written_count_no_more(open_at: OpenEngine) -> None:
    async with open_at(max_produce_bytes_in_flight=1000) as opened:
        topic = await opened.engine.create_topic("t", 1, {"durability": "written"})
        for offset, durability in enumerate((Durability.WRITTEN, Durability.SYNCED) * 2):
            assert await opened.append(topic.id, bytes(800), durability=durability) == offset


async def test_the_recovery_points_never_lag_too_far(open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "MAX_LAG_BATCHES", 10)
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {"durability": "written"})
        calls = [asyncio.create_task(opened.append(topic.id, b"%d" % number)) for number in range(100)]
        async with asyncio.timeout(20):
            assert await asyncio.gather(*calls) == list(range(100)), "those who waited kept their order"


@pytest.mark.parametrize(("value_bytes", "batches"), [(16 * 1024, 10), (1, 40)])
async def test_recovery_points_are_asked_for_early_where_the_sync_is_worth_it(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch, value_bytes: int, batches: int
) -> None:
    monkeypatch.setattr(upkeep, "MAX_LAG_BATCHES", 80)
    async with open_at(checkpoint_seconds=3600) as opened:
        topic = await opened.engine.create_topic("t", 1, {"durability": "written"})
        asked = opened.engine._upkeep._due
        for _ in range(batches):
            assert not asked.is_set()
            await opened.append(topic.id, bytes(value_bytes))
        assert asked.is_set()


async def test_growth_waits_for_what_it_records_and_fences(open_at: OpenEngine, held_sync: HeldSync) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 2, {})
        held_sync.active = True
        before = asyncio.create_task(opened.engine.append([Append(topic.id, 0, batch(b"a"), 1)]))
        await entered(held_sync)
        growth = asyncio.create_task(opened.engine.alter_topic(topic.id, partitions=3))
        while opened.engine._changes.generation(topic.id) == 1:
            await asyncio.sleep(0)
        [during] = await opened.engine.append([Append(topic.id, 1, batch(b"b"), 1)])
        assert isinstance(during, StaleGenerationError)
        assert not growth.done(), "the end offsets that it records are not on disk yet"
        held_sync.release.set()
        grown = await growth
        await before
        assert grown.generations[1].start_offsets == (1, 0)


async def test_a_watch_tells_what_moved(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 3, {})
        wake = asyncio.Event()
        watch = opened.engine.watch(wake.set)
        for number in range(3):
            watch.add(PartitionKey(topic.id, number))
        await opened.engine.append([Append(topic.id, number, batch(b"x")) for number in (0, 2)])
        moved: set[PartitionKey] = set()
        async with asyncio.timeout(25):
            while len(moved) < 2:
                await wake.wait()
                wake.clear()
                moved |= watch.moved()
        assert moved == {PartitionKey(topic.id, 0), PartitionKey(topic.id, 2)}
        await opened.engine.append([Append(topic.id, 0, batch(b"x"))])
        watch.remove(PartitionKey(topic.id, 0))
        await opened.engine.append([Append(topic.id, 0, batch(b"x")), Append(topic.id, 1, batch(b"x"))])
        async with asyncio.timeout(25):
            await wake.wait()
        assert watch.moved() == {PartitionKey(topic.id, 1)}
        assert not watch.moved()
        watch.close()


async def test_a_checkpoint_does_not_hold_up_written_appends(open_at: OpenEngine, held_sync: HeldSync) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {"durability": "written"})
        assert await opened.append(topic.id, b"a") == 0
        held_sync.active = True
        checkpoint = asyncio.create_task(opened.engine._upkeep.checkpoint())
        await entered(held_sync)
        assert await opened.append(topic.id, b"b") == 1
        assert high_watermark(opened, topic.id) == 2
        synced = asyncio.create_task(opened.append(topic.id, b"c", durability=Durability.SYNCED))
        await asyncio.sleep(0)
        assert await opened.append(topic.id, b"d") == 3
        assert not synced.done(), "what began before it was appended does not cover it"
        held_sync.release.set()
        await checkpoint
        assert await synced == 2


async def test_bytes_of_callers_that_went_away_count_until_they_are_written(
    open_at: OpenEngine, held_sync: HeldSync
) -> None:
    async with open_at(max_produce_bytes_in_flight=1000) as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        held_sync.active = True
        gone = asyncio.create_task(opened.append(topic.id, bytes(800)))
        await entered(held_sync)
        gone.cancel()
        await asyncio.wait([gone])
        with pytest.raises(OverloadedError):
            await opened.append(topic.id, bytes(800))
        held_sync.release.set()
        assert await opened.append(topic.id, b"x") == 1
        assert opened.engine._bytes_in_flight == 0


async def test_bytes_that_wait_for_the_recovery_points_are_bounded(
    open_at: OpenEngine, held_sync: HeldSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MAX_LAG_BYTES", 1)
    async with open_at(max_produce_bytes_in_flight=1000) as opened:
        topic = await opened.engine.create_topic("t", 1, {"durability": "written"})
        held_sync.active = True
        assert await opened.append(topic.id, b"x") == 0
        await entered(held_sync)
        waiting = asyncio.create_task(opened.append(topic.id, bytes(800)))
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await opened.append(topic.id, bytes(800))
        held_sync.release.set()
        assert await waiting == 1


async def test_a_failure_leaves_nobody_waiting(open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 2, {"durability": "written"})
        monkeypatch.setattr(os, "pwritev", refuse)
        async with asyncio.timeout(25):
            outcomes = await opened.engine.append([Append(topic.id, number, batch(b"x")) for number in (0, 1)])
        assert [type(outcome) for outcome in outcomes] == [StorageFailedError, StorageFailedError]


async def test_a_failure_elsewhere_leaves_nobody_waiting(
    open_at: OpenEngine, held_sync: HeldSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        held_sync.active = True
        first = asyncio.create_task(opened.append(topic.id, b"a"))
        await entered(held_sync)
        second = asyncio.create_task(opened.append(topic.id, b"b"))
        await asyncio.sleep(0)
        opened.engine._failure.report(StorageFailedError("the metadata store failed"))
        held_sync.release.set()
        async with asyncio.timeout(25):
            for call in (first, second):
                with pytest.raises(StorageFailedError):
                    await call
