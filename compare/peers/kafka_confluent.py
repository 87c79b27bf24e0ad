"""Apache Kafka, by confluent-kafka (librdkafka)."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any, Final

from compare.load import Job, Load, Published, Stopwatch, Worked, WorkLog, key_of, pace
from compare.peers import kafka_server
from compare.peers.peer import Peer
from compare.tally import Tally
from logbroker.errors import LogbrokerError
from logbroker.types import Durability

CONSUME_COUNT: Final = 10_000
QUEUE_BACKOFF_MS: Final = 10
_POLL_SECONDS: Final = 0.02


class ConfluentClient:
    """Producer.produce_batch and Consumer.consume; share groups for single acknowledgements."""

    def __init__(self, address: str) -> None:
        # Only the processes that use a client library import it.
        import confluent_kafka
        import confluent_kafka.admin

        self._kafka = confluent_kafka
        self._common = {"bootstrap.servers": address, "reconnect.backoff.ms": 10, "log_level": 0}

    def _admin(self) -> Any:
        return self._kafka.admin.AdminClient(self._common)

    def _producer(self, linger_ms: int) -> Any:
        return self._kafka.Producer(
            {
                **self._common,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": linger_ms,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 262_144,
                "delivery.report.only.error": True,
            }
        )

    def _consumer(self, group: str, **settings: Any) -> Any:
        return self._kafka.Consumer(
            {
                **self._common,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )

    def create(self, topic: str, shards: int, durability: Durability) -> None:
        admin = self._admin()  # held until it has answered: it ends with its last reference
        [created] = admin.create_topics([self._kafka.admin.NewTopic(topic, shards, 1)]).values()
        created.result(30)

    def publish(self, load: Load) -> Published:
        producer = self._producer(linger_ms=5)
        producer.list_topics(load.topic, timeout=30)
        failed: list[Any] = []

        def on_delivery(error: Any, _message: Any) -> None:
            if error is not None:
                failed.append(error)

        records, start = 0, time.perf_counter()
        for chunk in load.chunks():
            messages = (
                [{"value": value, "key": key_of(value)} for value in chunk]
                if load.keyed
                else ([{"value": value} for value in chunk])
            )
            while messages:
                if producer.produce_batch(load.topic, messages, on_delivery=on_delivery) < len(messages):
                    messages = [message for message in messages if message.pop("_error", None) is not None]
                    producer.poll(0.01)
                else:
                    messages = []
            producer.poll(0)
            records += len(chunk)
        if producer.flush(120) or failed:
            raise LogbrokerError(f"Kafka did not acknowledge all records: {failed[:1]}")
        return Published(records, time.perf_counter() - start)

    def count(self, topic: str, shards: int) -> int:
        consumer = self._consumer("counting")
        try:
            ends = [
                consumer.get_watermark_offsets(self._kafka.TopicPartition(topic, number), timeout=1)[1]
                for number in range(shards)
            ]
        finally:
            consumer.close()
        return sum(ends)

    def replay(self, topic: str, records: int) -> float:
        # By default a reader that has 100,000 records in hand fetches nothing for a second.
        consumer = self._consumer(
            "replay", **{"queued.max.messages.kbytes": 262_144, "fetch.queue.backoff.ms": QUEUE_BACKOFF_MS}
        )
        consumer.list_topics(topic, timeout=30)  # connects: librdkafka takes half a second else
        start, count = time.perf_counter(), 0
        consumer.assign([self._kafka.TopicPartition(topic, 0, self._kafka.OFFSET_BEGINNING)])
        while count < records:
            for message in consumer.consume(CONSUME_COUNT, timeout=1.0):
                if message.error() is None and message.value() is not None:
                    count += 1
        seconds = time.perf_counter() - start
        consumer.close()
        return seconds

    def latencies(self, topic: str, records: int, per_second: float) -> list[float]:
        watch = Stopwatch(records)
        consumer, producer = self._consumer("latency"), self._producer(linger_ms=0)
        for each in (consumer, producer):
            each.list_topics(topic, timeout=30)
        consumer.assign([self._kafka.TopicPartition(topic, 0, self._kafka.OFFSET_BEGINNING)])

        def receive() -> None:
            while True:
                message = consumer.poll(1.0)
                if message is not None and message.error() is None and watch.see(message.value()):
                    return

        receiving = threading.Thread(target=receive, daemon=True)
        receiving.start()
        for due in pace(records, per_second):
            for number, sent in due:
                producer.produce(topic, watch.value(number, sent))
            producer.poll(0)
        producer.flush(60)
        receiving.join(60)
        consumer.close()
        return watch.result()

    def prepare(self, job: Job) -> None:
        if job.kind == "group":
            return  # made by its first member
        words = self._kafka.admin
        entry = words.ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=words.AlterConfigOpType.SET
        )
        resource = words.ConfigResource(words.ConfigResource.Type.GROUP, job.group, incremental_configs=[entry])
        admin = self._admin()
        [altered] = admin.incremental_alter_configs([resource]).values()
        altered.result(30)

    def work(self, job: Job, tally: Tally) -> Worked:
        return self._read(job, tally) if job.kind == "group" else self._work(job, tally)

    def _work(self, job: Job, tally: Tally) -> Worked:
        seen = WorkLog(tally.handed)
        settings = {**self._common, "group.id": job.group, "share.acknowledgement.mode": "explicit"}
        with self._kafka.ShareConsumer(settings) as consumer:
            consumer.subscribe([job.topic])
            while not tally.done:
                messages = [each for each in consumer.poll(_POLL_SECONDS) if each.error() is None]
                for message in messages:
                    seen.see(message.value())
                    consumer.acknowledge(message)
                if messages:
                    consumer.commit_sync()
                    seen.last = time.monotonic()
                    tally.add(len(messages))
        return seen.result()

    def _read(self, job: Job, tally: Tally) -> Worked:
        seen = WorkLog(tally.handed)
        consumer = self._consumer(job.group)
        consumer.subscribe([job.topic])
        while not tally.done:
            messages = [each for each in consumer.consume(1000, timeout=_POLL_SECONDS) if each.error() is None]
            for message in messages:
                seen.see(message.value())
            if messages:
                last = {message.partition(): message.offset() for message in messages}
                ends = itertools.starmap(
                    self._kafka.TopicPartition, ((job.topic, at, offset + 1) for at, offset in last.items())
                )
                consumer.commit(offsets=list(ends), asynchronous=False)
                seen.last = time.monotonic()
                tally.add(len(messages))
        consumer.close()
        return seen.result()


PEER: Final = Peer(
    name="kafka-confluent",
    title="Kafka, confluent-kafka",
    promises=kafka_server.PROMISES,
    client_settings="produce_batch, acks=all, enable.idempotence, linger.ms=5 (0 for latency), batch.size=1000000; "
    f"consume({CONSUME_COUNT:,}), fetch.queue.backoff.ms={QUEUE_BACKOFF_MS} for replay",
    notes={
        "work": "a share group with explicit acknowledgement, commit_sync for each poll",
        "group": "8 partitions, a synchronous commit for each poll",
        "start": "the directory is formatted before",
        "memory": kafka_server.MEMORY_NOTE,
    },
    cannot={"ordered": "a share group keeps no order, a consumer group has no single acknowledgements"},
    binaries=("java",),
    modules=("confluent_kafka",),
    install=kafka_server.INSTALL,
    lacks=kafka_server.lacking_jars,
    version=kafka_server.version,
    server=kafka_server.server,
    client=ConfluentClient,
)
