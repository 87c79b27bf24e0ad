"""The broker's memory of idempotent producers: however many there are, whatever the clock does, over restarts."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from logbroker.broker.local_engine.topic_rows import partition_row_key
from logbroker.config import DAY_MS, MAX_INT64
from logbroker.engine import Append, Appended
from logbroker.errors import LogbrokerError, ProducerForgottenError, RecordTooLargeError, UnknownProducerIdError
from logbroker.storage import producer_state
from logbroker.storage.metadata.metadata_store import MetadataStore, Write
from logbroker.types import Durability, TopicId
from tests.broker.conftest import Opened, OpenEngine, batch

PARTITIONS = 4
WRITTEN = {"durability": Durability.WRITTEN.value}


def batch_of(producer_id: int, sequence: int = 0) -> bytes:
    return batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


async def append_all(opened: Opened, topic_id: TopicId, batches: Sequence[bytes], partitions: int = 1) -> None:
    """Append these batches to each of the partitions; none is a retry, none is refused."""
    appends = [Append(topic_id, partition, one) for one in batches for partition in range(partitions)]
    for result in await opened.engine.append(appends):
        assert isinstance(result, Appended), result
        assert not result.duplicate


async def is_retry(opened: Opened, topic_id: TopicId, one: bytes, partition: int = 0) -> bool:
    [result] = await opened.engine.append([Append(topic_id, partition, one)])
    assert isinstance(result, Appended), result
    return result.duplicate


class SeenWrites:
    """The bytes of all rows that are stored."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.size_bytes = 0
        submit = MetadataStore.submit

        def counting(store: MetadataStore, writes: Sequence[Write]) -> object:
            self.size_bytes += sum(len(key) + len(value or b"") for _, key, value in writes)
            return submit(store, writes)

        monkeypatch.setattr(MetadataStore, "submit", counting)


@pytest.mark.parametrize("days", [8, -8, 400])
async def test_a_jump_of_the_clock_stores_no_retry_twice(open_at: OpenEngine, days: int) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {"message.timestamp.type": "LogAppendTime"})
        await append_all(opened, topic.id, [batch_of(1)])
        opened.clock.ahead_ms = days * DAY_MS
        await append_all(opened, topic.id, [batch_of(2)])
        assert await is_retry(opened, topic.id, batch_of(1))
    async with open_at() as opened:
        opened.clock.ahead_ms = 2 * days * DAY_MS
        await append_all(opened, topic.id, [batch_of(3)])
        assert await is_retry(opened, topic.id, batch_of(1))


async def test_a_checkpoint_costs_what_changed(open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    many, seen = 2_000, SeenWrites(monkeypatch)
    async with open_at(checkpoint_seconds=3600) as opened:
        topic = await opened.engine.create_topic("t", PARTITIONS, WRITTEN)
        await append_all(opened, topic.id, [batch_of(number) for number in range(many)], PARTITIONS)
        await opened.engine._upkeep.checkpoint()
        assert seen.size_bytes > many * PARTITIONS
        seen.size_bytes = 0
        await append_all(opened, topic.id, [batch_of(many)], PARTITIONS)
        await opened.engine._upkeep.checkpoint()
        assert 0 < seen.size_bytes < 1_000 * PARTITIONS
    async with open_at() as opened:
        for number in (0, many - 1, many):
            assert await is_retry(opened, topic.id, batch_of(number), PARTITIONS - 1)


async def test_producers_are_bounded_over_all_partitions_and_the_latest_stay(open_at: OpenEngine) -> None:
    bound = 100
    async with open_at(max_producers=bound) as opened:
        quiet = await opened.engine.create_topic("quiet", 1, WRITTEN)
        await append_all(opened, quiet.id, [batch_of(1)])
        loud = await opened.engine.create_topic("loud", PARTITIONS, WRITTEN)
        for number in range(10, 10 + 2 * bound):
            await append_all(opened, loud.id, [batch_of(number)], PARTITIONS)
            assert sum(p.log.producer_count for p in opened.engine._partitions) <= bound
    for settings in ({"max_producers": bound}, {"max_producers": bound // 2}):
        async with open_at(**settings) as opened:
            assert sum(p.log.producer_count for p in opened.engine._partitions) <= settings["max_producers"]
            assert await is_retry(opened, quiet.id, batch_of(1)), "who crowds forgets, not who has few"
            for partition in range(PARTITIONS):
                assert await is_retry(opened, loud.id, batch_of(9 + 2 * bound), partition)
            [refused] = await opened.engine.append([Append(loud.id, 0, batch_of(10, 1))])
            assert isinstance(refused, ProducerForgottenError)


async def test_a_kill_between_checkpoints_forgets_nothing(open_at: OpenEngine, tmp_path: Path) -> None:
    async with open_at(checkpoint_seconds=3600) as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        await append_all(opened, topic.id, [batch_of(1), batch_of(2)])
        await opened.engine._upkeep.checkpoint()
        await append_all(opened, topic.id, [batch_of(2, 1), batch_of(3)])
        rows = stored_rows(opened)
    # As a kill would leave it: the rows of the checkpoint, and a longer log.
    store = open_store(tmp_path)
    for table in ("partitions", "producers"):
        store.submit([(table, key, None) for key, _ in store.scan(table, topic.id)]).result(20)
    store.submit([*rows, ("broker", b"clean-stop", None)]).result(20)
    store.close()
    for _ in range(2):
        async with open_at() as opened:
            for one in (batch_of(1), batch_of(2), batch_of(2, 1), batch_of(3)):
                assert await is_retry(opened, topic.id, one)


async def test_rows_of_an_older_broker_are_taken_over(open_at: OpenEngine, tmp_path: Path) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        await append_all(opened, topic.id, [batch_of(1), batch_of(1, 1), batch_of(2)])
    key, store = partition_row_key(topic.id, 0), open_store(tmp_path)
    row = msgspec.msgpack.decode(store.get("partitions", key) or b"")
    row["producers"] = [[1, 1_700_000_000_000, [[0, 0, 0, 0, 1], [0, 1, 1, 1, 2]]], [2, 0, [[0, 0, 0, 2, 3]]]]
    gone = [("producers", producer_key, None) for producer_key, _ in store.scan("producers", topic.id)]
    assert len(gone) == 2
    store.submit([*gone, ("partitions", key, msgspec.msgpack.encode(row))]).result(20)
    store.close()
    for _ in range(2):
        async with open_at() as opened:
            for one in (batch_of(1), batch_of(1, 1), batch_of(2)):
                assert await is_retry(opened, topic.id, one)
            rows = {key: value for _, key, value in stored_rows(opened)}
            assert len(rows) == 3
            assert "producers" not in msgspec.msgpack.decode(rows[key] or b"")


async def test_rows_above_a_recovery_point_that_was_lowered_do_not_count(open_at: OpenEngine, tmp_path: Path) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        await append_all(opened, topic.id, [batch_of(1), batch_of(2), batch_of(3)])
    key, store = partition_row_key(topic.id, 0), open_store(tmp_path)
    row = msgspec.msgpack.decode(store.get("partitions", key) or b"")
    log_path = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    size_bytes = log_path.stat().st_size // 3
    row["recovery_point"], row["segments"] = 1, [[0, size_bytes, row["segments"][0][2]]]
    store.submit([("partitions", key, msgspec.msgpack.encode(row))]).result(20)
    store.close()
    with log_path.open("r+b") as log:
        log.truncate(size_bytes)
    async with open_at() as opened:
        await append_all(opened, topic.id, [batch_of(4), batch_of(5), batch_of(6)])
    async with open_at() as opened:
        assert await is_retry(opened, topic.id, batch_of(1))
        assert not await is_retry(opened, topic.id, batch_of(2)), "its batch was cut off, and is sent again"


async def refused(opened: Opened, topic_id: TopicId, one: bytes, generation: int = 0) -> LogbrokerError:
    [result] = await opened.engine.append([Append(topic_id, 0, one, generation)])
    assert isinstance(result, LogbrokerError), result
    return result


async def test_what_may_be_a_retry_of_a_forgotten_producer_is_refused(
    open_at: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch, too: its producer looks like a new one. At once, over restarts, and over kills."""
    monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 3)
    ids = [10, 20, 30, 40, 50]
    async with open_at(checkpoint_seconds=3600) as opened:
        topic = await opened.engine.create_topic("t", 1, {"message.timestamp.type": "LogAppendTime"})
        await append_all(opened, topic.id, [batch_of(10)])
        await opened.engine._upkeep.checkpoint()
        shutil.copytree(tmp_path / "data", tmp_path / "stored")
        await append_all(opened, topic.id, [batch_of(10, 1)])
        await append_all(opened, topic.id, [batch_of(number) for number in ids[1:]])
        shutil.copytree(tmp_path / "data" / "t-0", tmp_path / "stored" / "t-0", dirs_exist_ok=True)
        await opened.engine.alter_topic(topic.id, partitions=2)
    for life in range(5):
        if life == 2:  # What a kill leaves: the producers are forgotten again in the recovery.
            shutil.rmtree(tmp_path / "data")
            (tmp_path / "stored").rename(tmp_path / "data")
        async with open_at() as opened:
            for forgotten in (batch_of(10), batch_of(10, 1), batch_of(10, 2), batch_of(20)):
                assert isinstance(await refused(opened, topic.id, forgotten), ProducerForgottenError)
                # Nor may its sender believe that it was not appended, and route it anew.
                assert isinstance(await refused(opened, topic.id, forgotten, generation=7), ProducerForgottenError)
            for number in ids[2:]:
                assert await is_retry(opened, topic.id, batch_of(number))
            assert opened.engine.partition_facts(topic.id, 0).log_end_offset == 6
    async with open_at() as opened:
        assert isinstance(await refused(opened, topic.id, batch_of(60, 1)), UnknownProducerIdError)
        await append_all(opened, topic.id, [batch_of(60)])


async def test_ids_that_were_not_handed_out_are_refused_and_their_owner_loses_nothing(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        known, _ = await opened.engine.init_producer_id()
        for producer_id in (known + 1, known + 1_500, MAX_INT64):
            for epoch in (0, 1):
                wrong = batch(b"wrong", producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
                assert isinstance(await refused(opened, topic.id, wrong), UnknownProducerIdError)
        for wrong_id in (1, known - 1):  # Nobody gets these any more.
            await append_all(opened, topic.id, [batch_of(wrong_id)])
        ids = [(await opened.engine.init_producer_id())[0] for _ in range(1_600)]
        assert not {1, known - 1} & set(ids)
        await append_all(opened, topic.id, [batch_of(producer_id) for producer_id in (known, *ids)])
        assert opened.engine.partition_facts(topic.id, 0).log_end_offset == 2 + 1 + len(ids)
    async with open_at() as opened:
        new_id, _ = await opened.engine.init_producer_id()
        await append_all(opened, topic.id, [batch_of(new_id)])


async def test_ids_begin_above_those_in_a_log_that_was_taken_over(open_at: OpenEngine, tmp_path: Path) -> None:
    """The other broker's clock was ahead; but an id that no broker hands out does not use up all others."""
    ahead = DAY_MS * 365 << 20
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        opened.engine._producer_ids.next = MAX_INT64  # As of that broker.
        foreign = opened.engine._producer_ids._reserved + ahead
        await append_all(opened, topic.id, [batch_of(foreign), batch_of(MAX_INT64 - 1)])
    store = open_store(tmp_path)
    rows = [(table, key, None) for table in ("partitions", "producers") for key, _ in store.scan(table, topic.id)]
    store.submit(rows).result(20)
    store.close()
    async with open_at() as opened:
        new_id, _ = await opened.engine.init_producer_id()
        assert new_id == foreign + 1
        await append_all(opened, topic.id, [batch_of(new_id)])


async def test_a_deleted_topic_leaves_no_rows(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", PARTITIONS, {})
        await append_all(opened, topic.id, [batch_of(1), batch_of(2)], PARTITIONS)
        await opened.engine._upkeep.checkpoint()
        assert len(stored_rows(opened)) == 3 * PARTITIONS
        await opened.engine.delete_topic(topic.id)
        assert stored_rows(opened) == []
        assert opened.engine._partitions.producer_count.value == 0


def stored_rows(opened: Opened) -> list[Write]:
    """The rows of partitions and of their producers."""
    store = opened.state._store
    return [
        (table, key, value)
        for table in ("partitions", "producers")
        for key, value in store.scan(table)
        if key != b"next-id"
    ]


def open_store(tmp_path: Path) -> MetadataStore:
    return MetadataStore.open(tmp_path / "data" / "meta", on_failure=print)


@pytest.mark.parametrize("may_repeat", [False, True])
async def test_a_forgotten_kafka_producer_is_told_why_its_batch_is_refused(
    open_at: OpenEngine, may_repeat: bool
) -> None:
    """It sends the batch again after PRODUCER_FORGOTTEN, and would be refused so until its time is over."""
    async with open_at(max_producers=1) as opened:
        topic = await opened.engine.create_topic("t", 1, {"max.message.bytes": "1000"})
        await append_all(opened, topic.id, [batch_of(1)])
        await append_all(opened, topic.id, [batch_of(2)])
        large = batch(b"x" * 2000, producer_id=1, producer_epoch=1, base_sequence=0)
        [refused] = await opened.engine.append([Append(topic.id, 0, large, may_repeat=may_repeat)])
        assert isinstance(refused, RecordTooLargeError if may_repeat else ProducerForgottenError)
        later = batch(b"x" * 2000, producer_id=1, producer_epoch=1, base_sequence=7)
        [refused] = await opened.engine.append([Append(topic.id, 0, later, may_repeat=may_repeat)])
        assert isinstance(refused, ProducerForgottenError)
