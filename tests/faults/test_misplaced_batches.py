"""A broker on files of which a bit that no CRC covers is another, or two segments have changed places.

Every reader gets what lies before the damage, then CORRUPT_LOG with file and byte: consumer groups commit nothing
behind it, queue groups hand out and finish nothing behind it. With the right files all goes on there.
"""

from __future__ import annotations

import itertools
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from logbroker.client.sync import Admin, Consumer, Producer, QueueAdmin, QueueSettings, Worker
from logbroker.errors import CorruptLogError
from logbroker.record.codec import decode_batch, split_batches
from logbroker.record.header import parse_header
from logbroker.storage.metadata.metadata_store import MetadataStore
from logbroker.types import TopicPartition
from tests.cli.command import failure_of
from tests.faults.serving import TOPIC, Served, in_directory
from tests.tools.segment_files import kafka_partition

BATCHES = 60
RECORDS = 5
"""Records per batch."""
TOTAL = BATCHES * RECORDS
DEADLINE_SECONDS = 60
ZERO = TopicPartition(TOPIC, 0)


def _offsets_of(path: Path) -> list[tuple[int, int]]:
    """Position and base offset of each batch of a segment."""
    found, position = [], 0
    for header, batch in split_batches(path.read_bytes()):
        found.append((position, header.base_offset))
        position += len(batch)
    return found


Damage = tuple[Path, int, int]
"""File, byte, and the first offset that cannot be read."""


def _flip(path: Path, batch: int, bit: int) -> Damage:
    position, offset = _offsets_of(path)[batch]
    content = bytearray(path.read_bytes())
    content[position + bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return path, position, offset


def _flip_in_a_sealed_segment(logs: list[Path]) -> Damage:
    return _flip(logs[2], 1, 55)


def _flip_backwards(logs: list[Path]) -> Damage:
    return _flip(logs[-2], 2, 62)


def _flip_in_the_active_segment(logs: list[Path]) -> Damage:
    return _flip(logs[-1], 1, 30)


def _swap_segments(logs: list[Path]) -> Damage:
    one, other = next((a, b) for a, b in itertools.combinations(logs[1:-1], 2) if a.stat().st_size == b.stat().st_size)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    return one, 0, int(one.stem)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory with all records in one partition, whose broker has stopped cleanly."""
    data_dir = in_directory(tmp_path)
    with Served(data_dir) as served:
        served.create_topic(segment_bytes="4096")
        for batch in range(BATCHES):
            served.produce(*(b"%06d" % (batch * RECORDS + number) + bytes(60) for number in range(RECORDS)))
    return data_dir


@pytest.mark.prove
@pytest.mark.parametrize(
    "damage", [_flip_in_a_sealed_segment, _flip_backwards, _flip_in_the_active_segment, _swap_segments]
)
def test_no_reader_passes_over_records(data_dir: Path, tmp_path: Path, damage: Callable[[list[Path]], Damage]) -> None:
    partition_dir = data_dir / f"{TOPIC}-0"
    shutil.copytree(partition_dir, tmp_path / "kept")
    path, position, readable = damage(sorted(partition_dir.glob("*.log")))
    stamp = parse_header((tmp_path / "kept" / path.name).read_bytes(), position).max_timestamp_ms
    pattern = rf"{re.escape(str(path))}: .*byte {position}\b"
    expected = list(range(readable))
    with Served(data_dir) as served:
        address = served.address
        assert _fetched(served, pattern, plain_records=False) == expected
        assert _fetched(served, pattern, plain_records=True) == expected
        assert _consumed(address, pattern) == expected
        assert _consumed_in_group(address, pattern) == expected
        assert _worked_off(address, readable, pattern) == expected
        with Admin(address) as admin, Consumer(address) as consumer:
            (partition,) = admin.describe_topic(TOPIC).partitions
            assert isinstance(partition.error, CorruptLogError)
            assert re.search(pattern, str(partition.error))
            assert partition.log_end_offset == TOTAL
            consumer.assign(TOPIC)
            with suppress(CorruptLogError):
                consumer.seek_to_time(ZERO, stamp)
                assert consumer.position(ZERO) <= readable
    shutil.copytree(tmp_path / "kept", partition_dir, dirs_exist_ok=True)
    with Served(data_dir) as served:
        address = served.address
        assert _consumed_in_group(address, None) == list(range(readable, TOTAL))
        assert _worked_off(address, TOTAL - readable, None) == list(range(readable, TOTAL))
        with Admin(address) as admin:
            assert admin.describe_topic(TOPIC).partitions[0].error is None


Reader = Callable[[Served, int, str], list[int]]

READERS: dict[str, Reader] = {
    "plain records": lambda served, _, pattern: _fetched(served, pattern, plain_records=True),
    "consumer": lambda served, _, pattern: _consumed(served.address, pattern),
    "consumer group": lambda served, _, pattern: _consumed_in_group(served.address, pattern),
    "queue group": lambda served, readable, pattern: _worked_off(served.address, readable, pattern),
}


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("reader", READERS)
def test_whoever_decodes_tells_all_readers_of_damage_that_the_crc_shows(data_dir: Path, reader: str) -> None:
    """Whichever is the first to find a damaged record: it gets file and byte, and so do all others from then on."""
    logs = sorted((data_dir / f"{TOPIC}-0").glob("*.log"))
    sound = logs[-1].read_bytes()
    path, position, readable = _flip(logs[-1], -2, 8 * 100 + 3)
    pattern = rf"{re.escape(str(path))}: .*byte {position}\b"
    with Served(data_dir) as served:
        # As it lies there: who fetches batches checks them.
        assert len(_batches_of(served)) == BATCHES
        assert READERS[reader](served, readable, pattern) == list(range(readable))
        with Admin(served.address) as admin:
            (partition,) = admin.describe_topic(TOPIC).partitions
            assert re.search(pattern, str(partition.error))
        assert _fetched(served, pattern, plain_records=False) == list(range(readable))
        assert _consumed(served.address, pattern) == list(range(readable))
    shown = failure_of("segment", "verify", data_dir)
    assert f"{path.name} at byte {position}: " in shown
    path.write_bytes(sound)


def _batches_of(served: Served) -> list[int]:
    found: list[int] = []
    offset = 0
    while offset < TOTAL:
        result = served.api.fetch(TOPIC, 0, offset, max_bytes=2000)
        assert not result.status.code
        found += (header.base_offset for header, _ in split_batches(result.batches))
        offset = result.next_offset
    return found


def _fetched(served: Served, pattern: str, **fields: Any) -> list[int]:
    found: list[int] = []
    offset = 0
    while True:
        result = served.api.fetch(TOPIC, 0, offset, max_bytes=2000, **fields)
        if result.status.code:
            assert result.status.reason == "CORRUPT_LOG"
            assert re.search(pattern, result.status.message)
            return found
        found += (record.offset for record in result.records)
        for _, batch in split_batches(result.batches):
            found += (record.offset for record in decode_batch(batch))
        assert result.next_offset > offset
        offset = result.next_offset


def _consumed(address: str, pattern: str) -> list[int]:
    with Consumer(address) as consumer:
        consumer.assign(TOPIC)
        return _polled(consumer, pattern)


def _polled(consumer: Consumer, pattern: str | None) -> list[int]:
    found: list[int] = []
    ended = ""
    end = time.monotonic() + DEADLINE_SECONDS
    try:
        while time.monotonic() < end and (not found or found[-1] < TOTAL - 1):
            found += (record.offset for record in consumer.poll(timeout_seconds=0.2))
    except CorruptLogError as error:
        ended = str(error)
    assert re.search(pattern or "^$", ended), f"{ended!r} after {len(found)} records, up to {found[-1:]}"
    return found


def _consumed_in_group(address: str, pattern: str | None) -> list[int]:
    with Consumer(address, group="readers", auto_commit=False) as consumer:
        consumer.subscribe(TOPIC)
        found = _polled(consumer, pattern)
        consumer.commit()
        assert consumer.committed([ZERO]) == {ZERO: found[-1] + 1}
        return found


def _worked_off(address: str, count: int, pattern: str | None) -> list[int]:
    found: list[int] = []
    with QueueAdmin(address) as queues, Worker(address, "workers") as worker:
        queues.create_queue("workers", TOPIC, QueueSettings(ordering="none"))
        while count and len(found) < count:
            delivery = next(iter(worker))
            with delivery:
                found.append(delivery.offset)
        worker.flush()
        end = time.monotonic() + DEADLINE_SECONDS
        while pattern is not None and time.monotonic() < end:
            description = queues.describe_queue("workers")
            (partition,) = description.partitions
            if partition.error is not None:
                assert isinstance(partition.error, CorruptLogError)
                assert re.search(pattern, str(partition.error))
                break
            time.sleep(0.01)
        else:
            assert pattern is None, "the queue group says nothing of the damage"
        counts = queues.describe_queue("workers").counts
        assert (counts.acked, counts.open) == (len(found), 0)
    return sorted(found)


@pytest.mark.prove
def test_a_redrive_passes_over_no_letters(tmp_path: Path) -> None:
    data_dir = in_directory(tmp_path)
    letters = 40
    settings = QueueSettings(ordering="none", on_exhausted="dead-letter", max_attempts=1, max_in_flight=4)
    with Served(data_dir) as served:
        served.create_topic()
        address = served.address
        with QueueAdmin(address) as queues, Producer(address) as producer, Worker(address, "workers") as worker:
            queues.create_queue("workers", TOPIC, settings)
            for number in range(letters):
                producer.send(TOPIC, b"%d" % number)
            producer.flush()
            for _ in range(letters):
                next(iter(worker)).nack(reason="no")
            worker.flush()
            end = time.monotonic() + DEADLINE_SECONDS
            while queues.describe_queue("workers").counts.open:
                assert time.monotonic() < end
                time.sleep(0.01)
    (log,) = data_dir.glob("workers.dead-letters-0/*.log")
    sound = log.read_bytes()
    batches = len(_offsets_of(log))
    assert batches > 2
    path, position, _ = _flip(log, batches // 2, 50)
    with Served(data_dir) as served, QueueAdmin(served.address) as queues:
        while (redriven := queues.redrive("workers")).records:
            pass
        assert re.search(rf"{path.name}: .*byte {position}\b", redriven.why_held)
    log.write_bytes(sound)
    with Served(data_dir) as served, QueueAdmin(served.address) as queues:
        while queues.redrive("workers").records:
            pass
        assert len(served.values()) == 2 * letters


@pytest.mark.prove
def test_a_directory_of_kafka_is_consumed_with_its_gaps(tmp_path: Path) -> None:
    """Compacted, with control batches: as a broker takes it over that has the topic, and nothing of its partition."""
    data_dir = in_directory(tmp_path)
    with Served(data_dir) as served:
        served.create_topic()
    partition_dir = data_dir / f"{TOPIC}-0"
    shutil.rmtree(partition_dir)
    kafka_partition(partition_dir)
    (partition_dir / "partition.metadata").unlink()
    store = MetadataStore.open(data_dir / "meta", on_failure=lambda _failure: None)
    store.submit([("partitions", key, None) for key, _ in store.scan("partitions")]).result(20)
    store.close()
    ours: list[int] = []
    for start in range(3):
        with Served(data_dir) as served, Consumer(served.address) as consumer, Producer(served.address) as producer:
            ours.append(producer.send_and_wait(TOPIC, b"%d" % start).offset)
            consumer.assign(TOPIC)
            found = [record.offset for record in consumer.until_end()]
            assert found == [3, 4, 40, 100, *ours]
            worked_off = 4 + len(ours) if start == 0 else 1
            assert _worked_off(served.address, worked_off, None) == found[-worked_off:]
            with Admin(served.address) as admin:
                assert admin.describe_topic(TOPIC).partitions[0].error is None
