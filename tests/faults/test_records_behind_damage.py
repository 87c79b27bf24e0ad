"""A queue group with work in and behind damage that somebody has found.

Records in the damaged part of a segment cannot be read: they wait, with all later records of their keys, and no attempt
is counted; the operator is told why. All other records are handed out. With the right file, the waiting ones are, too,
as if nothing had been.
"""

from __future__ import annotations

import itertools
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from logbroker.client.sync import (
    Consumer,
    LaneDescription,
    Producer,
    QueueAdmin,
    QueueSettings,
    Worker,
    WorkerDelivery,
)
from logbroker.errors import CorruptLogError
from logbroker.types import TopicPartition
from tests.cli.queues import Queue
from tests.faults.serving import TOPIC, Served, in_directory
from tests.waiting import until

GROUP = "workers"
LETTERS = f"{GROUP}.dead-letters"
KEYS = [b"%d" % number for number in range(6)]
LATE = b"late"
"""Key of the last records, which lie behind the damage."""
OLD = 60
NEW = 60
LATEST = 3
MAX_ATTEMPTS = 2


def _produce(address: str, numbers: range) -> None:
    with Producer(address) as producer:
        for number in numbers:
            # One by one: each is a batch of its own, so the records fill several segments.
            producer.send_and_wait(TOPIC, b"%06d" % number + bytes(100), _key_of(number))


def _key_of(number: int) -> bytes:
    return LATE if number >= OLD + NEW - LATEST else KEYS[number % len(KEYS)]


def _find_damage(address: str) -> None:
    with Consumer(address) as consumer:
        consumer.assign(TOPIC)
        with pytest.raises(CorruptLogError):
            list(consumer.until_end())


def _have_looked_often(lanes: list[LaneDescription]) -> bool:
    """Whether the lanes were tried more often than a record may fail: each pause is longer than the one before."""
    return len(lanes) == len(KEYS) and any(lane.attempt > 1 or (lane.due_in_ms or 0) > 2_000 for lane in lanes)


@pytest.mark.prove
@pytest.mark.parametrize("on_exhausted", ["block", "dead-letter"])
@pytest.mark.parametrize("ordering", ["key", "none"])
def test_only_records_in_damage_and_behind_them_wait_and_fail_no_attempt(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], ordering: str, on_exhausted: str
) -> None:
    data_dir = in_directory(tmp_path)
    settings = QueueSettings(
        ordering=ordering,
        on_exhausted=on_exhausted,
        max_attempts=MAX_ATTEMPTS,
        backoff_initial_seconds=0,
        backoff_cap_seconds=0,
    )
    with Served(data_dir) as served:
        served.create_topic(segment_bytes="4096")
        with QueueAdmin(served.address) as queues, Worker(served.address, GROUP) as worker:
            queues.create_queue(GROUP, TOPIC, settings)
            _produce(served.address, range(OLD))
            for delivery in itertools.islice(worker, OLD):
                delivery.ack()
            worker.flush()
        _produce(served.address, range(OLD, OLD + NEW))
    logs = sorted((data_dir / f"{TOPIC}-0").glob("*.log"))
    damaged, behind = next(pair for pair in itertools.pairwise(logs) if int(pair[0].stem) > OLD)
    lost = range(int(damaged.stem), int(behind.stem))
    assert len(KEYS) < len(lost) < OLD + NEW - LATEST - lost.start
    readable = [
        offset
        for offset in range(OLD, OLD + NEW)
        if offset < lost.start or (offset >= lost.stop and (ordering == "none" or _key_of(offset) == LATE))
    ]
    sound = damaged.read_bytes()
    pattern = re.escape(str(damaged))
    # Without a cache, each record that is handed out is read from the log.
    with Served(data_dir, queue_cache_bytes=0) as served, QueueAdmin(served.address) as queues:
        assert queues.describe_queue(GROUP).counts.unscanned == 0, "the scan is through before the damage"
        damaged.write_bytes(sound[:50] + bytes([sound[50] ^ 1]) + sound[51:])
        _find_damage(served.address)
        with Consumer(served.address) as consumer:
            consumer.assign(TOPIC)
            consumer.seek(TopicPartition(TOPIC, 0), lost.stop)
            assert [record.offset for record in consumer.until_end()] == list(range(lost.stop, OLD + NEW))

        def standing() -> list[LaneDescription]:
            return queues.list_lanes(GROUP, order="waiting").lanes + queues.list_lanes(GROUP, order="held").lanes

        with Worker(served.address, GROUP) as worker, ThreadPoolExecutor() as threads:
            handed: list[WorkerDelivery] = []
            working = threads.submit(worker.run, handed.append)
            try:
                until(lambda: len(handed) == len(readable) and _have_looked_often(standing()[: len(KEYS)]))
            finally:
                worker.stop()
            working.result()
            assert sorted(delivery.offset for delivery in handed) == readable
            assert {(delivery.attempt, delivery.redelivered) for delivery in handed} == {(1, False)}
        for lane in standing():
            assert (lane.state, lane.attempt, lane.reasons) == ("waiting", 1, ())
            assert re.search(pattern, lane.obstacle)
        described = queues.describe_queue(GROUP)
        assert described.counts.nacked == 0
        assert re.search(pattern, str(described.partitions[0].error))
        queue = Queue(served.address, capfd)
        assert re.search(pattern, queue("work", GROUP, "--exec", "true", "--until-end", exit_code=1))
        if ordering == "key":
            shown = queue("explain", GROUP, KEYS[0].decode())
            assert "cannot be read" in shown
            assert str(damaged) in shown.replace("\n", "")
    damaged.write_bytes(sound)
    with Served(data_dir) as served, Worker(served.address, GROUP) as worker:
        found: list[int] = []
        for delivery in itertools.islice(worker, NEW - len(readable)):
            assert (delivery.attempt, delivery.redelivered) == (1, False)
            found.append(delivery.offset)
            delivery.ack()
        worker.flush()
        assert sorted([*readable, *found]) == list(range(OLD, OLD + NEW))
        by_key = [[offset for offset in found if _key_of(offset) == key] for key in KEYS]
        assert ordering == "none" or all(offsets == sorted(offsets) for offsets in by_key)
        if on_exhausted == "dead-letter":
            with Consumer(served.address) as consumer:
                consumer.assign(LETTERS)
                assert list(consumer.until_end()) == []


@pytest.mark.prove
def test_groups_go_on_behind_damage_in_the_newest_segment(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data_dir = in_directory(tmp_path)
    with Served(data_dir) as served:
        served.create_topic()
        with QueueAdmin(served.address) as queues:
            queues.create_queue(GROUP, TOPIC, QueueSettings(max_attempts=1, on_exhausted="park"))
        _produce(served.address, range(20))
        with Worker(served.address, GROUP, prefetch=1) as worker:
            next(iter(worker)).nack(reason="cannot")
            worker.flush()
        with Consumer(served.address, group="readers") as consumer:
            consumer.subscribe(TOPIC)
            assert len(list(consumer.until_end())) == 20
        [log] = (data_dir / f"{TOPIC}-0").glob("*.log")
        sound = log.read_bytes()
        with log.open("r+b") as file:
            file.seek(sound.index(b"000010"))
            file.write(b"x")
        _find_damage(served.address)
        _produce(served.address, range(20, 30))
        with Consumer(served.address, group="readers") as consumer:
            consumer.subscribe(TOPIC)
            assert [record.offset for record in consumer.until_end()] == list(range(20, 30))
        queue = Queue(served.address, capfd)
        rewind = ("rewind", GROUP, "--to", "20", "--partition", "0")
        assert "10 skipped records cannot be read" in " ".join(queue(*rewind, "--dry-run").split())
        [rewound] = json.loads(queue(*rewind, "--yes", "--json"))
        assert (rewound["standing_records"], rewound["skipped_records"], rewound["unreadable_records"]) == (2, 18, 10)
        # The parked key has two records before the damage, and one behind it.
        queue("work", GROUP, "--exec", "true", "--until-end")
        assert json.loads(queue("describe", GROUP, "--json"))["counts"]["waiting"] == 3
    log.write_bytes(sound)
