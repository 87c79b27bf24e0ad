"""A data directory is moved to a real Kafka cluster: its groups go on there where they have stopped."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest

from compare.peers.kafka_cluster import KafkaCluster, class_path
from logbroker.broker.cluster_engine.engine import ClusterEngine
from logbroker.client import Admin, Consumer, Producer, QueueAdmin, QueueSettings, Worker
from logbroker.client.admin.admin import TopicGeneration
from logbroker.client.admin.queue_descriptions import LaneDescription
from logbroker.engine import Append, Appended
from logbroker.errors import BrokerUnavailableError, LogbrokerError, StorageFailedError
from logbroker.tools.move.move import move, plan_move
from logbroker.tools.move.source import open_source
from logbroker.types import INTERNAL_PREFIX, TopicPartition
from tests.crash.broker_process import BrokerProcess

pytestmark = [pytest.mark.prove, pytest.mark.usefixtures("quiet_clients")]

SECONDS: Final = 60.0
KEYS: Final = [b"key %d" % number for number in range(10)]
Sent = dict[bytes | None, list[bytes | None]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    _, missing = class_path()
    if missing:
        pytest.skip(f"Kafka cannot be run: {missing}")
    cluster = KafkaCluster(tmp_path_factory.mktemp("kafka"), 3)
    try:
        asyncio.run(cluster.start())
        yield cluster
    finally:
        cluster.end()


class Story:
    """The life of a local broker up to its stop, and its end on a cluster."""

    def __init__(self) -> None:
        self.orders: Sent = defaultdict(list)
        self.jobs: Sent = defaultdict(list)
        self.read: Sent = defaultdict(list)
        """Records that the consumer group has read and committed."""
        self.acked: dict[str, Sent] = defaultdict(lambda: defaultdict(list))
        self.lanes: dict[tuple[str, bytes], LaneDescription] = {}
        self.next_receipt = 0
        self.generations: tuple[TopicGeneration, ...] = ()
        self.configs: dict[str, dict[str, str]] = {}
        """The configs that each topic sets itself."""

    async def tell(self, address: str) -> None:
        """Fill a broker, and stop in the middle of everything."""
        async with (
            asyncio.timeout(SECONDS),
            Admin(address) as admin,
            QueueAdmin(address) as queues,
            Producer(address) as producer,
        ):
            await admin.create_topic("orders", 2)
            await admin.create_topic("stamped", 1, configs={"message.timestamp.type": "LogAppendTime"})
            await admin.create_topic("jobs", configs={"priority.bands": "hot=7-9:1,cold=0-6:2"})
            await admin.create_topic("empty", 1)
            for number in range(300):
                await producer.send("orders", b"gone %d" % number, partition=number % 2)
            await producer.flush()
            await admin.delete_records({TopicPartition("orders", 0): 100, TopicPartition("orders", 1): None})
            await admin.commit_offsets("readers", {TopicPartition("orders", 0): 150, TopicPartition("orders", 1): 150})
            for number in range(200):
                if number == 100:
                    await producer.flush()
                    await admin.alter_topic("orders", partitions=4)
                await self._send(producer, "orders", self.orders, number)
            for number in range(60):
                await self._send(producer, "jobs", self.jobs, number, priority=number % 10)
                await producer.send("stamped", b"%d" % number, timestamp_ms=1000)
            for value in (b"dead 0", b"dead 1"):
                await producer.send("jobs", value, b"dead", priority=3)
            for value in (b"late 0", b"late 1"):
                await producer.send("jobs", value, b"late", priority=3)
            await producer.flush()
            work = QueueSettings(on_exhausted="dead-letter", max_attempts=2, backoff_initial_seconds=0.01)
            await queues.create_queue("work", "jobs", work)
            await queues.create_queue("parker", "orders", QueueSettings(on_exhausted="park", max_attempts=1))
            await self._read(address)
            await self._work(address, queues)
            await self._park(address)
            await self._keep(address, admin, queues)
            self.generations = (await admin.describe_topic("orders")).generations
            self.configs = await _own_configs(admin)
            for group, key in (
                ("work", b"late"),
                ("work", b"dead"),
                ("parker", b"key 3"),
                ("parker", b"key 7"),
                ("keeper", b"stuck"),
            ):
                self.lanes[group, key] = await queues.explain_lane(group, key)

    async def _send(self, producer: Producer, topic: str, sent: Sent, number: int, **more: Any) -> None:
        key, value = KEYS[number % len(KEYS)], b"%d" % number
        await producer.send(topic, value, key, **more)
        sent[key].append(value)

    async def _read(self, address: str) -> None:
        async with Consumer(address, group="readers", auto_commit=False) as consumer:
            await consumer.subscribe("orders")
            while sum(map(len, self.read.values())) < 60:
                records = await consumer.poll(timeout_seconds=1.0)
                for record in records:
                    self.read[record.key].append(record.value)
                await consumer.commit()

    async def _work(self, address: str, queues: QueueAdmin) -> None:
        acked = self.acked["work"]
        async with Worker(address, "work", prefetch=4) as worker:
            async for delivery in worker:
                if delivery.key == b"late":
                    await delivery.nack(delay_seconds=3600, reason="too early")
                elif delivery.value == b"dead 0":
                    await delivery.nack(reason="never works")
                else:
                    await delivery.ack()
                    acked[delivery.key].append(delivery.value)
                is_late = (await queues.explain_lane("work", b"late")).attempt == 2
                is_dead = bool((await queues.list_letters("work")).letters)
                if is_late and is_dead and sum(map(len, acked.values())) >= 20:
                    return

    async def _park(self, address: str) -> None:
        acked = self.acked["parker"]
        async with Worker(address, "parker", prefetch=4) as worker:
            async for delivery in worker:
                if delivery.key == b"key 3":
                    await delivery.nack(reason="broken")
                elif delivery.key in KEYS:
                    await delivery.ack()
                    acked[delivery.key].append(delivery.value)
                else:
                    await delivery.ack()
                if sum(map(len, acked.values())) >= 40 and b"key 3" not in acked:
                    break
        async with Worker(address, "parker") as worker, worker.session(b"key 5", prefetch=1) as session:
            session.state = b"notes"
            async for delivery in session:
                await delivery.ack()
                acked[delivery.key].append(delivery.value)
                break

    async def _keep(self, address: str, admin: Admin, queues: QueueAdmin) -> None:
        """Park a lane, and delete its records from the log, so that the group has the only copies."""
        await admin.create_topic("kept", 1)
        async with Producer(address) as producer:
            for number in range(5):
                await producer.send("kept", b"%d" % number, b"stuck")
            await producer.flush()
            await queues.create_queue("keeper", "kept", QueueSettings(on_exhausted="park", max_attempts=1))
            async with Worker(address, "keeper") as worker:
                delivery = await anext(aiter(worker))
                await delivery.nack()
            assert (await admin.delete_records({TopicPartition("kept", 0): None})) == {TopicPartition("kept", 0): 5}

    # --- on the cluster ----------------------------------------------------------------------------------------------

    async def check(self, address: str) -> None:
        """Compare what a gateway has with what was left."""
        async with asyncio.timeout(SECONDS), Admin(address) as admin, QueueAdmin(address) as queues:
            assert self.generations == (await admin.describe_topic("orders")).generations
            assert await _own_configs(admin) == self.configs
            starts = await admin.list_offsets([TopicPartition("orders", number) for number in range(4)], "earliest")
            assert [getattr(each, "offset", each) for each in starts] == [100, 150, 0, 0]
            for (group, key), before in self.lanes.items():
                after = await queues.explain_lane(group, key)
                assert _told(after) == _told(before)
                if before.due_in_ms is not None:
                    assert after.due_in_ms is not None
                    assert before.due_in_ms - 300_000 < after.due_in_ms <= before.due_in_ms
            letters = (await queues.list_letters("work")).letters
            assert [letter.value for letter in letters] == [b"dead 0"]
            await self._check_reader(address)
            await self._check_worker(address, "work", self.jobs, {b"late"})
            async with Worker(address, "parker") as worker, worker.session(b"key 5") as session:
                assert session.state == b"notes"
                assert session.token >= self.next_receipt
            await self._check_worker(address, "parker", self.orders, {b"key 3"})
            await queues.resume_lane("keeper", b"stuck")
            kept: Sent = {b"stuck": [b"%d" % number for number in range(5)]}
            await self._check_worker(address, "keeper", kept, set())
            assert (await queues.redrive("work")).records == 1

    async def _check_reader(self, address: str) -> None:
        count = sum(map(len, self.orders.values()))
        async with Consumer(address, group="readers") as consumer:
            await consumer.subscribe("orders")
            while sum(map(len, self.read.values())) < count:
                for record in await consumer.poll(timeout_seconds=1.0):
                    self.read[record.key].append(record.value)
        assert self.read == self.orders

    async def _check_worker(self, address: str, group: str, sent: Sent, held: set[bytes]) -> None:
        acked = self.acked[group]
        expected = {key: values for key, values in sent.items() if key not in held}
        async with Worker(address, group) as worker:
            while sum(len(acked[key]) for key in expected) < sum(map(len, expected.values())):
                delivery = await anext(aiter(worker))
                await delivery.ack()
                acked[delivery.key].append(delivery.value)
        assert {key: acked[key] for key in expected} == expected
        assert not held & {key for key in acked if key is not None}


async def _own_configs(admin: Admin) -> dict[str, dict[str, str]]:
    """Return the configs that each topic of users sets itself."""
    names = [topic.name for topic in await admin.list_topics()]
    return {
        name: {each.name: each.value for each in (await admin.describe_topic(name)).configs if not each.is_default}
        for name in names
        if not name.startswith(INTERNAL_PREFIX)
    }


def _told(lane: LaneDescription) -> dict[str, Any]:
    """Return what stays the same from one broker to the next."""
    fields = ("state", "partition", "offset", "waiting", "attempt", "reasons", "first_failure_ms", "level")
    return {name: getattr(lane, name) for name in fields}


async def logbroker(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "logbroker", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await asyncio.wait_for(process.communicate(), 3 * SECONDS)
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


async def ends_before_it_is_killed(after_seconds: float, arguments: Sequence[str]) -> bool:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "logbroker", *arguments, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        assert await asyncio.wait_for(process.wait(), after_seconds) == 0
    except TimeoutError:
        process.kill()
        await process.wait()
        return False
    return True


async def check_story(addresses: str, directory: Path, kills: Sequence[float] = ()) -> None:
    """Tell the story, move the directory, and check the end of the story. The command is killed after so many seconds
    each."""
    local = BrokerProcess(directory, seed=0)
    story = Story()
    try:
        await local.spawn()
        await local.wait_ready()
        await story.tell(local.address)
        await local.stop()
    finally:
        await local.end()
    with open_source(local.data_dir) as source:
        story.next_receipt = source.next_receipt
    arguments = ("move", "--data-dir", str(local.data_dir), "--cluster", addresses)
    code, output, errors = await logbroker(*arguments, "--dry-run")
    assert (code, output.splitlines()[-1:], errors) == (0, ["all of this can be moved"], "")
    for seconds in kills:
        if await ends_before_it_is_killed(seconds, arguments):
            break
    else:
        code, output, errors = await logbroker(*arguments, "--json")
        assert code == 0, errors
        assert json.loads(output)["moved"]
    gateway = BrokerProcess(directory, seed=0, settings=f'cluster = "{addresses}"\n')
    try:
        await gateway.spawn()
        await gateway.wait_ready()
        await story.check(gateway.address)
        await gateway.stop()
    finally:
        await gateway.end()


async def test_a_moved_directory_goes_on_where_it_stopped(cluster: KafkaCluster, tmp_path: Path) -> None:
    await cluster.wipe()
    await check_story(cluster.addresses, tmp_path)


async def test_a_move_that_is_killed_goes_on(cluster: KafkaCluster, tmp_path: Path) -> None:
    await cluster.wipe()
    await check_story(cluster.addresses, tmp_path, [random.uniform(2.5, 7.0) for _ in range(4)])


async def test_a_cluster_that_is_in_use_is_refused(cluster: KafkaCluster, tmp_path: Path) -> None:
    await cluster.wipe()
    local = BrokerProcess(tmp_path, seed=0)
    arguments = ("move", "--data-dir", str(local.data_dir), "--cluster", cluster.addresses)
    (tmp_path / "gateway").mkdir()
    gateway = BrokerProcess(tmp_path / "gateway", seed=0, settings=f'cluster = "{cluster.addresses}"\n')
    try:
        for broker, topic in ((local, "mine"), (gateway, "theirs")):
            await broker.spawn()
            await broker.wait_ready()
            async with Admin(broker.address) as admin, QueueAdmin(broker.address) as queues:
                await admin.create_topic(topic, 1)
                await queues.create_queue("group", topic)
        await local.stop()
        code, _, errors = await logbroker(*arguments)
        assert code == 1
        assert f"gateways serve the cluster ({gateway.address})" in errors
        async with Admin(gateway.address) as admin:
            assert [topic.name for topic in await admin.list_topics()] == ["theirs"]
            await admin.create_topic("mine", 1)
        await gateway.stop()
        code, _, errors = await logbroker(*arguments)
        assert code == 1
        assert "the cluster has a topic mine already" in errors
        await gateway.spawn()
        await gateway.wait_ready()
        async with Admin(gateway.address) as admin:
            await admin.delete_topic("mine")
        await gateway.stop()
        code, _, errors = await logbroker(*arguments)
        assert code == 1
        assert "the cluster has a group group already" in errors
    finally:
        await local.end()
        await gateway.end()


async def test_a_record_of_somebody_else_is_noticed(
    cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.wipe()
    local = BrokerProcess(tmp_path, seed=0)
    try:
        await local.spawn()
        await local.wait_ready()
        async with Admin(local.address) as admin, Producer(local.address) as producer:
            await admin.create_topic("log", 1)
            await producer.send_and_wait("log", b"ours")
        await local.stop()
    finally:
        await local.end()

    async def fail(engine: ClusterEngine, appends: Sequence[Append]) -> list[Appended | LogbrokerError]:
        return [BrokerUnavailableError("the end of the first attempt")]

    with open_source(local.data_dir) as source:
        plan_move(source, lambda _: None)
        with monkeypatch.context() as patch:
            patch.setattr(ClusterEngine, "append", fail)
            with pytest.raises(StorageFailedError, match="the end of the first attempt"):
                await move(source, cluster.addresses, lambda _: None)
        kafka = confluent_kafka.Producer({"bootstrap.servers": cluster.addresses})
        kafka.produce("log", b"another")
        assert not await asyncio.to_thread(kafka.flush, SECONDS)
        del kafka
        # It has the offset of the record that was to come.
        with pytest.raises(StorageFailedError, match="the batch at offset 0 is another one"):
            await move(source, cluster.addresses, lambda _: None)
