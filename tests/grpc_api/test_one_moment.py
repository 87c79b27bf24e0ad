"""An answer that is made in turns does not contradict itself: what it says is of one moment, whatever happens between
two turns."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logbroker import pacing
from logbroker.consumer_groups.offsets import TopicCommit
from logbroker.engine import Append, Appended
from logbroker.grpc_api.queues.admin_messages import described_queue
from logbroker.pacing import Pace
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.messages import Nack, Settlement
from logbroker.queues.model.settings import OnExhausted, QueueGroupSettings
from logbroker.queues.model.starts import StartAt
from logbroker.queues.model.worker_messages import Hello
from logbroker.queues.operations import LaneName
from logbroker.queues.scan.scanner import BARRIER_SECONDS
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.v1 import groups_pb2
from tests.grpc_api.turns import Served, served
from tests.homes import home_of
from tests.queues.shell import until

PARTITIONS = 8
GROUPS_SERVICE = groups_pb2.DESCRIPTOR.services_by_name["Groups"]


@pytest.fixture
def between_turns(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Let something happen whenever work gives way, which it does after each step."""
    give_way = Pace.give_way

    def happens(what: Callable[[], object]) -> None:
        async def meddled(pace: Pace) -> None:
            what()
            await give_way(pace)

        monkeypatch.setattr(pacing, "FIRST_STEPS", 1)
        monkeypatch.setattr(pacing, "TURN_STEPS", 1)
        monkeypatch.setattr(Pace, "give_way", meddled)

    return happens


async def queue_group(broker: Served) -> QueueGroup:
    engine = broker.broker.engine
    topic = await engine.create_topic("t", PARTITIONS, {})
    for partition in range(PARTITIONS):
        batch = encode_batch([NewRecord(b"", b"%d-%d" % (partition, number)) for number in range(30)])
        [appended] = await engine.append([Append(topic.id, partition, batch)])
        assert isinstance(appended, Appended)
    settings = QueueGroupSettings(max_attempts=1, on_exhausted=OnExhausted.PARK)
    group, _ = await home_of(broker.broker).queues.create("g", topic, settings, StartAt())
    await until(lambda: group.queue.open_records == 30 * PARTITIONS)
    return group


def meddle(group: QueueGroup, chance: random.Random) -> None:
    """One worker takes and settles, others have their lanes resumed and parked."""
    queue = group.queue
    worker = chance.choice(["v", "w"])
    held = [receipt for receipt, _ in queue.deliveries.held_by(worker)]
    chance.shuffle(held)
    first, second = held[:2], held[2:4]
    acks = [(receipt, receipt) for receipt in first if chance.random() < 0.2]
    group.settle(worker, Settlement(acks=acks, nacks=[Nack(receipt, receipt, "") for receipt in second]))
    queue.take(worker, chance.randrange(6), group.moment())
    for lane in group.inspector.held():
        if chance.random() < 0.3:
            group.operations.resume(LaneName(lane.key, lane.head))


async def test_what_is_described_of_a_queue_group(
    tmp_path: Path, between_turns: Callable[[Callable[[], object]], None]
) -> None:
    seed = random.randrange(1 << 32)
    logging.getLogger(__name__).warning("seed %d", seed)
    chance = random.Random(seed)
    async with served(tmp_path) as broker:
        group = await queue_group(broker)
        for worker in ("v", "w"):
            await group.connect(Hello(worker_id=worker, incarnation=1))
        between_turns(lambda: meddle(group, chance))
        for _ in range(10):
            meddle(group, chance)
            queue = group.queue
            described = await described_queue(broker.broker.engine, group, Pace(), BARRIER_SECONDS)
            counts = described.counts
            assert counts.in_flight == sum(worker.in_flight for worker in described.workers)
            assert counts.unscanned == sum(each.end - each.scanned for each in described.partitions)
            assert counts.acked + counts.open == sum(each.scanned for each in described.partitions)
            assert counts.open == counts.ready + counts.in_flight + counts.parked, "no lane has a second record"
            assert counts.held_lanes == counts.blocked_lanes + counts.parked_lanes
            assert counts.lanes == counts.open
            assert queue.settings.max_attempts == 1


async def test_what_is_committed_in_a_topic(
    tmp_path: Path, between_turns: Callable[[Callable[[], object]], None]
) -> None:
    """Each commit is of all partitions at once."""
    async with served(tmp_path) as broker:
        engine, groups = broker.broker.engine, home_of(broker.broker).groups
        topic = await engine.create_topic("t", PARTITIONS, {"retention.ms": "-1"})
        for partition in range(PARTITIONS):
            batch = encode_batch([NewRecord(b"")] * 100)
            [appended] = await engine.append([Append(topic.id, partition, batch)])
            assert isinstance(appended, Appended)
        numbers = list(range(PARTITIONS))

        async def commit(offset: int) -> None:
            await groups.commit_offsets("g", [TopicCommit(topic.id, numbers, [offset] * PARTITIONS, [], [])])

        await commit(0)
        offsets = groups.group("g").offsets
        committed: list[Any] = [dict(offsets.of_topic(topic.id))]
        for offset in range(1, 5):
            await commit(offset)
            committed.append(dict(offsets.of_topic(topic.id)))
        chance = random.Random(1)

        def another() -> None:
            offsets.of_topic(topic.id).update(chance.choice(committed))  # type: ignore[attr-defined]

        between_turns(another)
        method = GROUPS_SERVICE.methods_by_name["FetchOffsets"]
        for topics in ([], [groups_pb2.TopicPartitions(topic="t")]):
            for _ in range(5):
                request = groups_pb2.FetchOffsetsRequest(group_id="g", topics=topics)
                caller = await broker.call(method, [request])
                [found] = groups_pb2.FetchOffsetsResponse.FromString(caller.answers[0]).topics
                assert len(found.offsets) == PARTITIONS
                assert len(set(found.offsets)) == 1, "half of one commit, and half of another"
