"""Apache Kafka, by aiokafka."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import uvloop

from compare.load import Job, Load, Published, Stopwatch, Worked, WorkLog, key_of, paced
from compare.peers import kafka_server
from compare.peers.peer import Peer
from compare.tally import Tally
from logbroker.types import Durability

READ_COUNT: Final = 10_000
_BATCH_BYTES: Final = 1_000_000
_POLL_MS: Final = 20


class AiokafkaClient:
    """AIOKafkaProducer and AIOKafkaConsumer, on uvloop."""

    def __init__(self, address: str, replicas: int = 1) -> None:
        # Only the processes that use a client library import it.
        import aiokafka
        import aiokafka.admin

        self._kafka = aiokafka
        self._address = address
        self._replicas = replicas

    def _producer(self, linger_ms: int) -> Any:
        return self._kafka.AIOKafkaProducer(
            bootstrap_servers=self._address,
            acks="all",
            enable_idempotence=True,
            linger_ms=linger_ms,
            max_batch_size=_BATCH_BYTES,
            max_request_size=2 * _BATCH_BYTES,
        )

    def _consumer(self, *topics: str, group: str | None = None) -> Any:
        return self._kafka.AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self._address,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=4 * _BATCH_BYTES,
        )

    def create(self, topic: str, shards: int, durability: Durability) -> None:
        uvloop.run(self._create(topic, shards))

    async def _create(self, topic: str, shards: int) -> None:
        admin = self._kafka.admin.AIOKafkaAdminClient(bootstrap_servers=self._address)
        await admin.start()
        try:
            await admin.create_topics([self._kafka.admin.NewTopic(topic, shards, self._replicas)], timeout_ms=30_000)
        finally:
            await admin.close()

    def publish(self, load: Load) -> Published:
        return uvloop.run(self._publish(load))

    async def _publish(self, load: Load) -> Published:
        async with self._producer(linger_ms=5) as producer:
            await producer.partitions_for(load.topic)
            send, topic = producer.send, load.topic
            sent: asyncio.Future[Any] | None = None
            records, start = 0, time.perf_counter()
            for chunk in load.chunks():
                for value in chunk:
                    sent = await send(topic, value, key_of(value) if load.keyed else None)
                records += len(chunk)
            await producer.flush()
            if sent is not None:
                await sent  # raises where it was refused
            return Published(records, time.perf_counter() - start)

    def count(self, topic: str, shards: int) -> int:
        return uvloop.run(self._count(topic, shards))

    async def _count(self, topic: str, shards: int) -> int:
        async with self._consumer() as consumer:
            partitions = [self._kafka.TopicPartition(topic, number) for number in range(shards)]
            ends = await consumer.end_offsets(partitions)
        return int(sum(ends.values()))

    def replay(self, topic: str, records: int) -> float:
        return uvloop.run(self._replay(topic, records))

    async def _replay(self, topic: str, records: int) -> float:
        async with self._consumer() as consumer:
            partition = self._kafka.TopicPartition(topic, 0)
            start, count = time.perf_counter(), 0
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            while count < records:
                for found in (await consumer.getmany(timeout_ms=1000, max_records=READ_COUNT)).values():
                    for _ in found:
                        count += 1
            return time.perf_counter() - start

    def latencies(self, topic: str, records: int, per_second: float) -> list[float]:
        return uvloop.run(self._latencies(topic, records, per_second))

    async def _latencies(self, topic: str, records: int, per_second: float) -> list[float]:
        watch = Stopwatch(records)
        async with self._producer(linger_ms=0) as producer, self._consumer(topic) as consumer:

            async def receive() -> None:
                async for record in consumer:
                    if watch.see(record.value):
                        return

            receiving = asyncio.create_task(receive())
            async for number, sent in paced(records, per_second):
                await producer.send(topic, watch.value(number, sent))
            await producer.flush()
            await receiving
        return watch.result()

    def prepare(self, job: Job) -> None:
        """A consumer group is made by its first member."""

    def work(self, job: Job, tally: Tally) -> Worked:
        return uvloop.run(self._work(job, tally))

    async def _work(self, job: Job, tally: Tally) -> Worked:
        seen = WorkLog(tally.handed)
        async with self._consumer(job.topic, group=job.group) as consumer:
            while not tally.done:
                found = await consumer.getmany(timeout_ms=_POLL_MS, max_records=1000)
                for records in found.values():
                    for record in records:
                        seen.see(record.value)
                if found:
                    await consumer.commit({partition: records[-1].offset + 1 for partition, records in found.items()})
                    seen.last = time.monotonic()
                    tally.add(sum(map(len, found.values())))
        return seen.result()


PEER: Final = Peer(
    name="kafka-aiokafka",
    title="Kafka, aiokafka",
    promises=kafka_server.PROMISES,
    client_settings="acks=all, enable_idempotence, linger_ms=5 (0 for latency), max_batch_size=1000000; "
    f"getmany({READ_COUNT:,})",
    notes={
        "group": "8 partitions, a commit for each getmany",
        "start": "the directory is formatted before",
        "memory": kafka_server.MEMORY_NOTE,
    },
    cannot={"work": "aiokafka has no share groups", "ordered": "a consumer group has no single acknowledgements"},
    binaries=("java",),
    modules=("aiokafka",),
    install=kafka_server.INSTALL,
    lacks=kafka_server.lacking_jars,
    version=kafka_server.version,
    server=kafka_server.server,
    client=AiokafkaClient,
)
