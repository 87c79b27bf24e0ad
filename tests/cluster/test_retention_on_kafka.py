"""Records that the cluster deletes while a queue group needs them, on a real Kafka that deletes them within seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import confluent_kafka.admin
import pytest

from compare.peers.kafka_cluster import KafkaCluster, class_path
from logbroker.client import Admin, Producer, QueueAdmin, QueueSettings, Worker
from logbroker.errors import LogbrokerError, UnknownTopicError
from logbroker.types import TopicPartition
from tests.cluster import planted_gateway
from tests.crash.broker_process import BrokerProcess

pytestmark = [pytest.mark.prove, pytest.mark.usefixtures("quiet_clients")]

SECONDS: Final = 60.0
COPIES: Final = "__queue.work"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    _, missing = class_path()
    if missing:
        pytest.skip(f"Kafka cannot be run: {missing}")
    checks = {"log.retention.check.interval.ms": 300, "log.initial.task.delay.ms": 300}
    cluster = KafkaCluster(tmp_path_factory.mktemp("kafka"), 1, more_settings=checks)
    try:
        asyncio.run(cluster.start())
        yield cluster
    finally:
        cluster.end()


@asynccontextmanager
async def gateway(cluster: KafkaCluster, directory: Path, plant: str = "") -> AsyncIterator[BrokerProcess]:
    directory.mkdir()
    started = BrokerProcess(
        directory,
        seed=0,
        child_module="tests.cluster.planted_gateway",
        child_options=[plant] if plant else [],
        settings=f'cluster = "{cluster.addresses}"\n',
    )
    await started.spawn()
    await started.wait_ready()
    try:
        yield started
    finally:
        await started.end()


async def offsets(admin: Admin, topic: str) -> tuple[int, int]:
    """Return the log start offset and the high watermark of partition 0; 0, 0: there is no such topic."""
    try:
        [partition] = (await admin.describe_topic(topic)).partitions
    except UnknownTopicError:
        return 0, 0
    return partition.log_start_offset, partition.high_watermark


async def until(admin: Admin, topic: str, is_so: Callable[[int, int], bool]) -> None:
    """Return as soon as the log start offset and the high watermark of a topic are so."""
    async with asyncio.timeout(SECONDS):
        while not is_so(*await offsets(admin, topic)):
            await asyncio.sleep(0.05)


async def work(address: str, count: int, failing: frozenset[bytes] = frozenset()) -> list[tuple[Any, Any]]:
    """Acknowledge or fail so many records, and return their keys and values."""
    worked: list[tuple[Any, Any]] = []
    async with asyncio.timeout(SECONDS), Worker(address, "work") as worker:
        async for delivery in worker:
            worked.append((delivery.key, delivery.value))
            if delivery.key in failing:
                delivery.nack()
            else:
                delivery.ack()
            if len(worked) == count:
                break
    return worked


def kafka_admin(cluster: KafkaCluster) -> confluent_kafka.admin.AdminClient:
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.addresses})


def configs_of(cluster: KafkaCluster, topic: str) -> dict[str, str]:
    resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ResourceType.TOPIC, topic)
    admin = kafka_admin(cluster)
    [future] = admin.describe_configs([resource]).values()
    return {name: entry.value for name, entry in future.result(SECONDS).items()}


async def parked_records_outlive_their_segments(cluster: KafkaCluster, directory: Path, plant: str = "") -> None:
    """Also with the next gateway, those too that came while their key was parked. Then the copies go."""
    await cluster.wipe()
    async with (
        gateway(cluster, directory / "first", plant) as served,
        Admin(served.address) as admin,
        QueueAdmin(served.address) as queues,
    ):
        await admin.create_topic("log", 1, configs={"retention.ms": "8000", "segment.ms": "500"})
        await queues.create_queue("work", "log", QueueSettings(max_attempts=1, on_exhausted="park"))
        async with Producer(served.address) as producer:
            for number in range(20):
                await producer.send("log", b"%d" % number, b"bad" if number % 4 == 0 else b"good")
            await producer.flush()
            assert len(await work(served.address, 16, frozenset({b"bad"}))) == 16
            for number in range(20, 24):
                await producer.send("log", b"%d" % number, b"bad")
        await until(admin, "log", lambda start, end: start == 24)
        assert (await queues.describe_queue("work")).counts.expired == 0
        kept = await asyncio.to_thread(configs_of, cluster, COPIES)
        assert (kept["cleanup.policy"], kept["retention.ms"], kept["retention.bytes"]) == ("delete", "-1", "-1")
        await served.kill()
    async with (
        gateway(cluster, directory / "second", plant) as served,
        Admin(served.address) as admin,
        QueueAdmin(served.address) as queues,
    ):
        assert (await queues.decide_all("work", "resume")).lanes == 1
        worked = await work(served.address, 9)
        assert worked == [(b"bad", b"%d" % number) for number in (*range(0, 20, 4), *range(20, 24))]
        assert (await queues.describe_queue("work")).counts.expired == 0
        await until(admin, COPIES, lambda start, end: start == end)


async def records_that_fail_after_their_release_are_copied(
    cluster: KafkaCluster, directory: Path, plant: str = ""
) -> None:
    """The cluster keeps old records as long as their segment has newer ones."""
    await cluster.wipe()
    async with (
        gateway(cluster, directory / "first", plant) as served,
        Admin(served.address) as admin,
        QueueAdmin(served.address) as queues,
    ):
        await admin.create_topic("log", 1, configs={"retention.ms": "60000"})
        await queues.create_queue("work", "log", QueueSettings(max_attempts=1, on_exhausted="park"))
        now_ms = int(time.time() * 1000)
        old_ms, new_ms = now_ms - 50_000, now_ms + 600_000
        async with Producer(served.address) as producer:
            for key, stamp_ms in ((b"early", old_ms), (b"late", old_ms), (b"late", old_ms), (b"new", new_ms)):
                await producer.send("log", b"value", key, timestamp_ms=stamp_ms)
        assert len(await work(served.address, 1, frozenset({b"early"}))) == 1
        await until(admin, COPIES, lambda start, end: end == 1)
        assert await work(served.address, 2, frozenset({b"late"}))
        await until(admin, COPIES, lambda start, end: end == 3)

        def delete() -> None:
            kafka = kafka_admin(cluster)
            [future] = kafka.delete_records([confluent_kafka.TopicPartition("log", 0, 3)]).values()
            future.result(SECONDS)

        await asyncio.to_thread(delete)
        await queues.decide_all("work", "resume")
        worked = await work(served.address, 3)
        assert sorted(worked) == [(b"early", b"value"), (b"late", b"value"), (b"late", b"value")]


async def test_parked_records_are_delivered_after_the_cluster_has_deleted_them(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    await parked_records_outlive_their_segments(cluster, tmp_path)


async def test_records_that_fail_after_their_release_are_copied_too(cluster: KafkaCluster, tmp_path: Path) -> None:
    await records_that_fail_after_their_release_are_copied(cluster, tmp_path)


async def test_parked_records_are_copied_before_a_gateway_deletes_them_on_request(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    await cluster.wipe()
    async with (
        gateway(cluster, tmp_path / "gateway") as served,
        Admin(served.address) as admin,
        QueueAdmin(served.address) as queues,
        Producer(served.address) as producer,
    ):
        await admin.create_topic("log", 1)
        await queues.create_queue("work", "log", QueueSettings(max_attempts=1, on_exhausted="park"))
        for number in range(3):
            await producer.send("log", b"%d" % number, b"bad")
        await producer.flush()
        await work(served.address, 1, frozenset({b"bad"}))
        assert await admin.delete_records({TopicPartition("log", 0): 3}) == {TopicPartition("log", 0): 3}
        await queues.decide_all("work", "resume")
        assert await work(served.address, 3) == [(b"bad", b"%d" % number) for number in range(3)]


@pytest.mark.parametrize(
    ("plant", "story"),
    [
        (planted_gateway.nothing_is_watched, parked_records_outlive_their_segments),
        (planted_gateway.the_cluster_deletes_copies, parked_records_outlive_their_segments),
        (planted_gateway.what_fails_later_has_no_copy, records_that_fail_after_their_release_are_copied),
    ],
)
async def test_a_planted_bug_of_retention_is_found(
    cluster: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[], None],
    story: Callable[[KafkaCluster, Path, str], Coroutine[None, None, None]],
) -> None:
    monkeypatch.setattr("tests.cluster.test_retention_on_kafka.SECONDS", 15.0)
    with pytest.raises((AssertionError, TimeoutError, LogbrokerError, confluent_kafka.KafkaException)):
        await story(cluster, tmp_path, plant.__name__)
