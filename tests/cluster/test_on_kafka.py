"""A gateway on a real Kafka cluster of three nodes: the log, the state of groups, and who may write it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final
from unittest.mock import Mock

import confluent_kafka
import confluent_kafka.admin
import pytest

from compare.peers.kafka_cluster import KafkaCluster, class_path
from logbroker.broker.cluster_engine.connection import requests
from logbroker.broker.cluster_engine.connection.link import ClusterLink
from logbroker.broker.cluster_engine.lifetime import open_cluster_engine
from logbroker.broker.cluster_engine.log import offsets
from logbroker.broker.cluster_engine.log.remote_partition import RemotePartition
from logbroker.broker.cluster_engine.state.state_partition import StatePartition
from logbroker.broker.cluster_engine.state.state_rows import records_of
from logbroker.broker.cluster_engine.state.state_store import STATE_PARTITIONS, STATE_TOPIC, HomeStore, open_state_topic
from logbroker.broker.homes import Home
from logbroker.client import Admin, Consumer, Producer, QueueAdmin, QueueSettings, Worker
from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.engine import LogEngine, StateEvent, StateStore
from logbroker.errors import (
    BrokerUnavailableError,
    InvalidConfigError,
    InvalidPartitionsError,
    LogbrokerError,
    NotReplicatedError,
    StaleGenerationError,
    StaleOwnerError,
    UnknownTopicError,
)
from logbroker.record.codec import NewRecord, split_batches, with_producer
from logbroker.v1 import log_pb2
from tests.cluster import cluster_storm
from tests.crash.broker_process import BrokerProcess
from tests.crash.torture import drawn_seed
from tests.grpc_api.api import Api, batch_of
from tests.queue_storm.weather import Weather

pytestmark = [pytest.mark.prove, pytest.mark.usefixtures("quiet_clients")]

SECONDS = 60.0


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


@pytest.fixture
async def link(cluster: KafkaCluster) -> AsyncIterator[ClusterLink]:
    await cluster.wipe()
    link = ClusterLink(cluster.addresses)
    await link.open()
    yield link
    await link.close()


def gateway(cluster: KafkaCluster, directory: Path) -> BrokerProcess:
    directory.mkdir(exist_ok=True)
    return BrokerProcess(directory, seed=0, settings=f'cluster = "{cluster.addresses}"\n')


@pytest.fixture
async def served(cluster: KafkaCluster, tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """A gateway on an empty cluster."""
    await cluster.wipe()
    gateway_ = gateway(cluster, tmp_path / "gateway")
    await gateway_.spawn()
    await gateway_.wait_ready()
    yield gateway_
    await gateway_.end()


# --- the state --------------------------------------------------------------------------------------------------------


async def open_state(link: ClusterLink, lost: list[LogbrokerError]) -> HomeStore:
    await open_state_topic(link)
    partition = StatePartition(link, STATE_TOPIC, 1, "gateway", lost.append)
    await partition.open()
    return await HomeStore.open(partition)


async def take_over(link: ClusterLink) -> None:
    """The next owner reads what was committed, and the one before commits no more."""
    lost: list[LogbrokerError] = []
    first = await open_state(link, lost)
    await asyncio.gather(
        *(
            first.commit(f"scope {number % 7}", [StateEvent(b"key %d" % (number % 11), b"%d" % number)])
            for number in range(500)
        )
    )
    await first.commit("scope 0", [StateEvent(b"key 0", None), StateEvent(b"big", b"x" * 2_000_000)])
    # More than is read at once.
    for number in range(6):
        await first.commit("scope 1", [StateEvent(b"big %d" % number, os.urandom(2_000_000))])
    before = {f"scope {number}": await first.load(f"scope {number}") for number in range(7)}
    second = await open_state(link, lost)
    assert {scope: await second.load(scope) for scope in before} == before
    assert not lost
    for _ in range(2):
        with pytest.raises(StaleOwnerError, match="another gateway has taken over"):
            await first.commit("scope 0", [StateEvent(b"stale", b"")])
    assert [type(error) for error in lost] == [StaleOwnerError]
    await second.commit("scope 0", [StateEvent(b"key 0", b"new")])
    third = await open_state(link, lost)
    assert await third.load("scope 0") == before["scope 0"] | {b"key 0": b"new"}
    assert len(lost) == 1


async def race(link: ClusterLink) -> None:
    """Two owners take a partition from each other again and again: each commit that was answered is there, and an owner
    finds its own last one."""
    await open_state_topic(link)
    answered: dict[bytes, int] = {}

    async def own(name: bytes) -> None:
        for _ in range(6):
            partition = StatePartition(link, STATE_TOPIC, 0, "gateway", lambda _: None)
            try:
                await partition.open()
                assert int(partition.rows.of("race").get(name, b"0")) >= answered.get(name, 0)
                for _ in range(20):
                    value = answered.get(name, 0) + 1
                    await partition.commit(records_of("race", [StateEvent(name, b"%d" % value)]))
                    answered[name] = value
            except StaleOwnerError:
                continue

    await asyncio.gather(own(b"a"), own(b"b"))
    last = StatePartition(link, STATE_TOPIC, 0, "gateway", lambda _: None)
    await last.open()
    rows = last.rows.of("race")
    assert answered
    # A commit that was under way when the other one claimed may be there, too.
    assert all(int(rows[name]) in (value, value + 1) for name, value in answered.items())


async def test_the_next_owner_reads_what_was_committed_and_the_last_one_commits_no_more(link: ClusterLink) -> None:
    await take_over(link)


async def test_every_commit_that_was_answered_is_there_when_two_owners_race(link: ClusterLink) -> None:
    await race(link)


async def _no_claim(partition: StatePartition) -> None:
    partition._producer_id, partition._epoch = await partition._link.persist(partition._new_epoch, seconds=SECONDS)
    link, name = partition._link, partition._topic
    found = await requests.read(link, name, partition.number, 0, 1)
    await partition._load(found.high_watermark - 1)


async def _load_short_of_the_claim(partition: StatePartition, claim: int) -> None:
    """Read one batch and no more."""
    found = await partition._read(0)
    for header, batch in split_batches(bytes(found.records or b"")):
        partition.rows.replay(header, batch)
        break


async def _answer_before_the_commit(partition: StatePartition, records: Sequence[NewRecord]) -> None:
    if partition.lost is not None:
        raise partition.lost.anew()
    asyncio.get_running_loop().create_task(_commit(partition, records)).add_done_callback(lambda done: done.exception())


_commit = StatePartition.commit

PLANTS: Final[dict[str, tuple[str, Any]]] = {
    "no claim": ("open", _no_claim),
    "loaded short of the claim": ("_load", _load_short_of_the_claim),
    "an answer before the commit": ("commit", _answer_before_the_commit),
}


@pytest.mark.parametrize("plant", PLANTS)
async def test_a_planted_bug_is_found(link: ClusterLink, plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StatePartition, *PLANTS[plant])
    with pytest.raises((AssertionError, pytest.fail.Exception, KeyError)):
        await take_over(link)


# --- the log ----------------------------------------------------------------------------------------------------------


async def read_all(address: str, topic: str, count: int) -> dict[bytes | None, list[bytes | None]]:
    """Return values by key, in the order of their partitions, as soon as there are so many."""
    found: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    async with asyncio.timeout(SECONDS), Consumer(address, group="readers", auto_offset_reset="earliest") as consumer:
        await consumer.subscribe(topic)
        while sum(map(len, found.values())) < count:
            for record in await consumer.poll(timeout_seconds=1.0):
                found[record.key].append(record.value)
    return found


async def test_records_of_every_size_stay_in_order_through_growth(served: BrokerProcess) -> None:
    sent: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    async with Admin(served.address) as admin, Producer(served.address) as producer:
        await admin.create_topic("log", 2, configs={"max.message.bytes": "4000000"})
        for number in range(3000):
            if number == 1500:
                await admin.alter_topic("log", partitions=5)
            key = b"key %d" % (number % 50)
            value = b"%d %s" % (number, b"x" * (3_000_000 if number % 1000 == 7 else number % 300))
            await producer.send("log", value, key)
            sent[key].append(value)
        await producer.flush()
        topic = await admin.describe_topic("log")
        assert len(topic.partitions) == 5
    assert await read_all(served.address, "log", 3000) == sent


async def test_transactions_of_kafka_clients_are_read_once_they_are_committed(
    cluster: KafkaCluster, served: BrokerProcess
) -> None:
    async with Admin(served.address) as admin:
        await admin.create_topic("log", 1)

    def write() -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.addresses, "transactional.id": "writer"})
        producer.init_transactions()
        for number in range(20):
            producer.begin_transaction()
            producer.produce("log", b"%d" % number, partition=0)
            producer.flush()
            if number % 3:
                producer.commit_transaction()
            else:
                producer.abort_transaction()

    await asyncio.to_thread(write)
    expected = [b"%d" % number for number in range(20) if number % 3]
    assert (await read_all(served.address, "log", len(expected)))[None] == expected


async def test_an_open_transaction_holds_up_its_own_partition_alone(
    cluster: KafkaCluster, served: BrokerProcess
) -> None:
    async with Admin(served.address) as admin, QueueAdmin(served.address) as queues:
        await admin.create_topic("log", 3)
        await queues.create_queue("work", "log")
    kafka = confluent_kafka.Producer({"bootstrap.servers": cluster.addresses, "transactional.id": "writer"})

    def begin() -> None:
        kafka.init_transactions()
        kafka.begin_transaction()
        kafka.produce("log", b"open", partition=0)
        kafka.flush()

    await asyncio.to_thread(begin)
    worked: list[bytes | None] = []
    async with asyncio.timeout(SECONDS), Worker(served.address, "work") as worker:

        async def send() -> None:
            async with Producer(served.address) as producer:
                for number in range(60):
                    await producer.send("log", b"%d" % number, partition=number % 3)
                await producer.flush()

        async def work(count: int) -> None:
            async for delivery in worker:
                worked.append(delivery.value)
                await delivery.ack()
                if len(worked) == count:
                    return

        await send()
        begun = monotonic()
        await work(40)
        assert monotonic() - begun < 10
        assert set(worked) == {b"%d" % number for number in range(60) if number % 3}
        await asyncio.to_thread(kafka.commit_transaction)
        await work(61)
    assert Counter(worked) == Counter([b"open", *(b"%d" % number for number in range(60))])


async def grown(admin: Admin, topic: str, partitions: int) -> None:
    """Let a topic grow, however often nobody knows whether it has: the node that was asked may be the frozen one."""
    while (await admin.describe_topic(topic)).info.partitions < partitions:
        with contextlib.suppress(BrokerUnavailableError, InvalidPartitionsError):
            await admin.alter_topic(topic, partitions=partitions)


async def has_partitions(admin: Admin, topic: str, partitions: int) -> None:
    """Return as soon as a topic has so many partitions; 0: it does not exist."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                if len((await admin.describe_topic(topic)).partitions) == partitions:
                    return
            except UnknownTopicError:
                if not partitions:
                    return
            await asyncio.sleep(0.05)


async def test_topics_that_others_make_grow_and_delete_are_noticed(
    cluster: KafkaCluster, served: BrokerProcess
) -> None:
    kafka = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.addresses})

    def wait(futures: dict[str, Any]) -> None:
        for future in futures.values():
            future.result(SECONDS)

    async with Admin(served.address) as admin:
        await asyncio.to_thread(wait, kafka.create_topics([confluent_kafka.admin.NewTopic("theirs", 2, 3)]))
        await has_partitions(admin, "theirs", 2)
        sent: dict[bytes | None, list[bytes | None]] = defaultdict(list)

        async def send() -> None:
            async with Producer(served.address, linger_ms=0) as producer:
                for number in itertools.count():
                    if is_over:
                        return
                    key, value = b"key %d" % (number % 20), b"%d" % number
                    await producer.send("theirs", value, key)
                    sent[key].append(value)
                    await asyncio.sleep(0)

        is_over = False
        sending = asyncio.create_task(send())
        for partitions in (4, 7):
            growth = confluent_kafka.admin.NewPartitions("theirs", partitions)
            await asyncio.to_thread(wait, kafka.create_partitions([growth]))
            await has_partitions(admin, "theirs", partitions)
        is_over = True
        await sending
        # The order of each key is that of the sends, over both growths.
        assert await read_all(served.address, "theirs", sum(map(len, sent.values()))) == sent
        await asyncio.to_thread(wait, kafka.delete_topics(["theirs"]))
        await has_partitions(admin, "theirs", 0)
        names = [topic.name for topic in await admin.list_topics()]
        assert not [name for name in names if name.startswith("__")]


async def test_a_topic_of_others_that_one_replica_acknowledges_is_refused(
    cluster: KafkaCluster, served: BrokerProcess, tmp_path: Path
) -> None:
    """Until its config is changed, or unless a setting allows it. One without replicas is taken as it is."""
    kafka = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.addresses})
    unsafe = {"min.insync.replicas": "1"}
    topics = [
        confluent_kafka.admin.NewTopic("unsafe", 1, 3, config=unsafe),
        confluent_kafka.admin.NewTopic("alone", 1, 1, config=unsafe),
    ]

    def wait(futures: dict[Any, Any]) -> None:
        for future in futures.values():
            future.result(SECONDS)

    await asyncio.to_thread(wait, kafka.create_topics(topics))
    async with Admin(served.address) as admin, Producer(served.address) as producer:
        for topic in ("unsafe", "alone"):
            await has_partitions(admin, topic, 1)
        with pytest.raises(NotReplicatedError, match=r"set min\.insync\.replicas=2"):
            await producer.send_and_wait("unsafe", b"refused")
        await producer.send_and_wait("alone", b"kept")
        directory = tmp_path / "allowing"
        directory.mkdir()
        settings = f'cluster = "{cluster.addresses}"\nallow_single_replica_acks = true\n'
        allowing = BrokerProcess(directory, seed=0, settings=settings)
        try:
            await allowing.spawn()
            await allowing.wait_ready()
            async with Producer(allowing.address) as other:
                await other.send_and_wait("unsafe", b"allowed")
        finally:
            await allowing.end()
        resource = confluent_kafka.admin.ConfigResource(
            confluent_kafka.admin.ResourceType.TOPIC,
            "unsafe",
            incremental_configs=[
                confluent_kafka.admin.ConfigEntry(
                    "min.insync.replicas",
                    "2",
                    incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET,
                )
            ],
        )
        await asyncio.to_thread(wait, kafka.incremental_alter_configs([resource]))
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    await producer.send_and_wait("unsafe", b"safe")
                    break
                except NotReplicatedError:
                    await asyncio.sleep(0.1)
    assert await read_all(served.address, "unsafe", 2) == {None: [b"allowed", b"safe"]}


async def test_the_next_gateway_finds_what_a_topic_is_made_of(
    cluster: KafkaCluster, served: BrokerProcess, tmp_path: Path
) -> None:
    bands = {"priority.bands": "hot=7-9:1,cold=0-6:2", "priority.routing": "priority", "retention.ms": "-1"}
    async with Admin(served.address) as admin:
        await admin.create_topic("bands", configs=bands)
        await admin.create_topic("log", 1)
        await admin.alter_topic("log", partitions=3)
        await admin.alter_topic("log", set_configs={"retention.ms": "1000000", "durability": "written"})
        before = [await admin.describe_topic(name) for name in ("bands", "log")]
        assert {each.value for topic in before for each in topic.configs if each.name == "durability"} == {"replicated"}
        with pytest.raises(InvalidConfigError, match=r"segment\.bytes"):
            await admin.create_topic("refused", configs={"segment.bytes": "300"})
    await served.kill()
    second = gateway(cluster, tmp_path / "second")
    try:
        await second.spawn()
        await second.wait_ready()
        async with Admin(second.address) as admin:
            after = [await admin.describe_topic(name) for name in ("bands", "log")]
            assert [each.configs for each in after] == [each.configs for each in before]
            assert [each.generations for each in after] == [each.generations for each in before]
            await admin.create_topic("refused")
    finally:
        await second.end()


async def test_nothing_acknowledged_is_lost_when_a_node_dies(cluster: KafkaCluster, served: BrokerProcess) -> None:
    acknowledged: list[bytes] = []
    async with Admin(served.address) as admin:
        await admin.create_topic("log", 6)
    async with QueueAdmin(served.address) as queues:
        await queues.create_queue("work", "log")
    is_over = False

    async def send() -> None:
        async with Producer(served.address, delivery_timeout_seconds=SECONDS) as producer:
            number = 0
            while not is_over:
                value = b"%d" % number
                await (await producer.send("log", value, b"key %d" % (number % 20)))
                acknowledged.append(value)
                number += 1

    async def until(count: int) -> None:
        async with asyncio.timeout(SECONDS):
            while len(acknowledged) < count:
                await asyncio.sleep(0.02)

    sending = asyncio.create_task(send())
    await until(50)
    await asyncio.to_thread(cluster.kill, 0)
    try:
        await until(len(acknowledged) + 50)
    finally:
        await cluster.start_again(0)
    await until(len(acknowledged) + 50)
    is_over = True
    await sending
    read = await read_all(served.address, "log", len(acknowledged))
    assert Counter(value for values in read.values() for value in values) == Counter(acknowledged)
    worked: list[bytes | None] = []
    async with asyncio.timeout(SECONDS), Worker(served.address, "work") as worker:
        async for delivery in worker:
            worked.append(delivery.value)
            delivery.ack()
            if len(worked) == len(acknowledged):
                break
    assert Counter(worked) == Counter(acknowledged)


# --- takeovers --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def both(cluster: KafkaCluster, served: BrokerProcess, tmp_path: Path) -> AsyncIterator[list[BrokerProcess]]:
    """Two gateways that share the groups."""
    second = gateway(cluster, tmp_path / "second")
    await second.spawn()
    await second.wait_ready()
    yield [served, second]
    await second.end()


GROUPS: Final = [f"work-{number}" for number in range(12)]
"""So many that each gateway has some, whatever their ids are."""


async def test_gateways_share_the_groups_and_answer_for_each_other(both: list[BrokerProcess]) -> None:
    first, second = (each.address for each in both)
    async with Admin(first) as admin, QueueAdmin(second) as queues:
        await admin.create_topic("log", 4)
        for group in GROUPS:
            await queues.create_queue(group, "log")
        async with Producer(second) as producer:
            for number in range(40):
                await producer.send("log", b"%d" % number, b"key %d" % (number % 7))
    for number, group in enumerate(GROUPS):
        worked: list[bytes | None] = []
        async with asyncio.timeout(SECONDS), Worker((first, second)[number % 2], group) as worker:
            async for delivery in worker:
                worked.append(delivery.value)
                delivery.ack()
                if len(worked) == 40:
                    break
        assert len(set(worked)) == 40
    for address in (first, second):
        async with QueueAdmin(address) as queues:
            assert [each.id for each in await queues.list_queues()] == sorted(GROUPS)
            for group in GROUPS:
                assert (await queues.describe_queue(group)).counts.acked == 40


async def send_until(
    is_over: asyncio.Event, address: str, topic: str, sent: dict[bytes | None, list[bytes | None]]
) -> None:
    """Send one record after the other, and note them by key."""
    async with Producer(address, linger_ms=0) as producer:
        for number in itertools.count():
            if is_over.is_set():
                return
            key, value = b"key %d" % (number % 20), b"%d" % number
            await producer.send(topic, value, key)
            sent[key].append(value)
            await asyncio.sleep(0.001)


async def test_what_one_gateway_does_to_topics_holds_for_both(both: list[BrokerProcess]) -> None:
    """The order of each key, too, of records that are sent through one gateway while the topic grows through the
    other."""
    for place, (here, there) in enumerate(((both[0], both[1]), (both[1], both[0]))):
        topic = f"log-{place}"
        sent: dict[bytes | None, list[bytes | None]] = defaultdict(list)
        async with Admin(here.address, request_timeout_seconds=30) as admin, Admin(there.address) as other:
            await admin.create_topic(topic, 2)
            await has_partitions(other, topic, 2)
            is_over = asyncio.Event()
            sending = asyncio.create_task(send_until(is_over, there.address, topic, sent))
            for partitions in (5, 9):
                assert (await admin.alter_topic(topic, partitions=partitions)).partitions == partitions
            await admin.alter_topic(topic, set_configs={"retention.ms": "1234567", "retention.hold.bytes": "99"})
            is_over.set()
            await sending
            await has_partitions(other, topic, 9)
            assert await read_all(there.address, topic, sum(map(len, sent.values()))) == sent
            await other.delete_topic(topic)
            await has_partitions(admin, topic, 0)


async def test_topics_grow_beside_each_other_and_other_changes_need_not_wait(both: list[BrokerProcess]) -> None:
    """Each growth waits for seconds, and a client for ten by default."""
    topics = [f"log-{number}" for number in range(6)]
    async with AsyncExitStack() as stack:
        admins = [await stack.enter_async_context(Admin(each.address)) for each in both]
        for topic in topics:
            await admins[0].create_topic(topic, 1)

        async def create_and_delete() -> None:
            await admins[1].create_topic("another", 1)
            await admins[1].delete_topic("another")

        growths = [admins[number % 2].alter_topic(topic, partitions=2) for number, topic in enumerate(topics)]
        await asyncio.gather(*growths, create_and_delete())
        for topic in topics:
            assert (await admins[0].describe_topic(topic)).info.partitions == 2


async def test_what_one_gateway_has_stored_the_others_know_at_once(both: list[BrokerProcess]) -> None:
    """The ends of logs and committed offsets, also after the groups have moved."""
    first, second = both
    late: dict[str, int] = {}
    async with Admin(first.address) as admin, QueueAdmin(second.address) as queues:
        await admin.create_topic("log", 1)
        for number, group in enumerate(GROUPS, 1):
            async with Producer(first.address) as producer:
                await producer.send("log", b"%d" % number)
            reads_at = first
            if number % 3 == 1:
                reads_at = second
                await queues.create_queue(f"late-{group}", "log", start="latest")
                late[f"late-{group}"] = 4 * number - 3
            async with Consumer(reads_at.address, group=group, auto_offset_reset="earliest") as consumer:
                await consumer.subscribe("log")
                read = [record.value async for record in consumer.until_end()]
                assert len(read) == 4 * number - 3
                # The owner of the group may not read the topic.
                for _ in range(3):
                    async with Producer(first.address) as producer:
                        await producer.send("log", b"one more")
                    assert [record.value async for record in consumer.until_end()] == [b"one more"]
                    await consumer.commit()
    await first.stop()
    async with QueueAdmin(second.address) as queues, Admin(second.address) as admin:
        for group, number in late.items():
            [partition] = (await queues.describe_queue(group)).partitions
            assert partition.floor == number
        for number, group in enumerate(GROUPS, 1):
            [lag] = await admin.group_lag(group)
            assert lag.committed is not None
            assert lag.committed.offset == 4 * number


async def test_a_batch_that_was_appended_before_its_topic_grew_is_still_a_repeat(both: list[BrokerProcess]) -> None:
    """Through whichever gateway: the first one may have died before it could answer."""
    first, second = (Api(each.address) for each in both)
    async with Admin(both[0].address) as admin:
        await admin.create_topic("log", 1)
        identity = first.log.InitProducerId(log_pb2.InitProducerIdRequest())
        batches = [
            with_producer(batch_of(b"%d" % number), identity.producer_id, identity.producer_epoch, number)
            for number in range(8)
        ]
        sent = [first.produce("log", batch, generation=1) for batch in batches[:7]]
        await admin.alter_topic("log", partitions=2)
        # A leader remembers five.
        for number, api in itertools.product(range(2, 7), (first, second)):
            again = api.produce("log", batches[number], generation=1)
            assert (again.status.code, again.base_offset, again.duplicate) == (0, sent[number].base_offset, True)
        for api in (first, second):
            assert api.produce("log", batches[7], generation=1).status.reason == StaleGenerationError.reason
    assert await read_all(both[0].address, "log", 7) == {None: [b"%d" % number for number in range(7)]}


async def test_a_generation_begins_above_all_that_is_acknowledged_later(
    cluster: KafkaCluster, both: list[BrokerProcess]
) -> None:
    """A replica that does not answer holds up a record that another gateway has sent before the growth."""
    first, second = both
    api = Api(first.address)
    link = ClusterLink(cluster.addresses)
    await link.open()
    async with Admin(second.address, request_timeout_seconds=60) as admin:
        topic = await admin.create_topic("log", 1)
        await link.refresh()
        partition = RemotePartition(link, lambda: None, "log", topic.id, 0)
        follower = next(node for node in sorted(link.nodes) if node != partition.leader)
        with cluster.frozen(follower - 1):
            sending = asyncio.create_task(asyncio.to_thread(api.produce, "log", batch_of(b"late"), generation=1))
            async with asyncio.timeout(SECONDS):
                while not (await offsets.list_offsets(link, {partition: -1}, replica_id=-2))[partition].offset:
                    await asyncio.sleep(0.02)
            await grown(admin, "log", 2)
            assert (await sending).base_offset == 0
        assert (await admin.describe_topic("log")).generations[-1].start_offsets == (1,)
    await link.close()


async def test_who_takes_a_home_over_asks_where_the_logs_end(
    cluster: KafkaCluster, served: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State about records beyond the known ends would be dropped as lost."""
    monkeypatch.setattr(offsets, "SWEEP_SECONDS", 3600.0)
    ends: list[int] = []

    @asynccontextmanager
    async def open_home(engine: LogEngine, store: StateStore, is_at_home: Callable[[str], bool]) -> AsyncIterator[Home]:
        ends.append(engine.partition_facts(engine.topic("log").id, 0).high_watermark)
        yield Mock(spec=Home)

    async with Admin(served.address) as admin:
        await admin.create_topic("log", 1)
    config = BrokerConfig(cluster=cluster.addresses)
    async with open_cluster_engine(config, SystemClock(), open_home) as (_, homes):
        await homes.join("127.0.0.1:1")
        shared_out = len(ends)
        async with Producer(served.address) as producer:
            for number in range(20):
                await producer.send("log", b"%d" % number)
        await served.stop()
        async with asyncio.timeout(SECONDS):
            while len(homes.all()) < STATE_PARTITIONS:
                await asyncio.sleep(0.02)
    assert set(ends[shared_out:]) == {20}


async def test_another_gateway_goes_on_when_one_is_frozen(both: list[BrokerProcess]) -> None:
    """And the frozen one has nothing to say any more when it wakes up."""
    first, second = both
    async with Admin(first.address) as admin, Producer(first.address) as producer, QueueAdmin(first.address) as queues:
        await admin.create_topic("log", 1)
        for group in GROUPS:
            await queues.create_queue(group, "log", QueueSettings(grace_seconds=1.0))
        for number in range(10):
            await producer.send("log", b"%d" % number, b"key")
    os.kill(first.pid, signal.SIGSTOP)
    try:
        for group in GROUPS:
            worked: list[bytes | None] = []
            async with asyncio.timeout(SECONDS), Worker(second.address, group, prefetch=1) as worker:
                async for delivery in worker:
                    await delivery.ack()
                    worked.append(delivery.value)
                    if len(worked) == 10:
                        break
            assert worked == [b"%d" % number for number in range(10)]
    finally:
        os.kill(first.pid, signal.SIGCONT)
    # It answers for its groups again, or asks the other one, and knows what that one has done.
    async with asyncio.timeout(SECONDS), QueueAdmin(first.address) as queues:
        for group in GROUPS:
            while (await queues.describe_queue(group)).partitions[0].floor != 10:
                await asyncio.sleep(0.02)
    await first.stop()


@pytest.mark.parametrize("gateways", [1, 2])
def test_a_queue_group_keeps_its_promises_through_a_storm(cluster: KafkaCluster, tmp_path: Path, gateways: int) -> None:
    asyncio.run(cluster.wipe())
    chances = {"kill": 4.0, "freeze": 2.0, "broker": 2.0, "gateway sleeps": 1.0, "node": 1.0}
    with drawn_seed("cluster-storm", "STORM_SEED") as seed:
        weather = Weather(records=6_000, events=10, chances=chances)
        figures = cluster_storm.run(tmp_path, seed, weather, cluster, gateways)
    assert figures["records sent"] == weather.records
