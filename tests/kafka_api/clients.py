"""Three client libraries behind one face: produce, and read by assignment."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import aiokafka
import confluent_kafka

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # It reads its schemas in an old way.
    import kafka

from tests.nursery import processes

SECONDS: Final = 60.0
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
Keyed = tuple[bytes | None, bytes]
"""Key and value."""


@dataclass(frozen=True)
class Found:
    """A record as a client has read it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes


@dataclass(frozen=True)
class Client:
    """One library. `produce` sends records with keys, and waits for their answers; `read` reads from the offset that
    the position names, until there is a number of records."""

    name: str
    produce: Callable[..., None]
    """Takes address, topic, records, codec, acks and whether to be idempotent."""
    read: Callable[[str, str, int, int | str, int], list[Found]]
    """Takes address, topic, number of partitions, "earliest", "latest" or a time in ms, and the number of records."""

    codecs: Sequence[str] = CODECS

    def __repr__(self) -> str:
        return self.name


def _until(read_some: Callable[[], Iterable[Found]], count: int) -> list[Found]:
    found: list[Found] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        found += read_some()
    return found


# --- confluent-kafka ---


def _confluent_produce(
    address: str, topic: str, records: Sequence[Keyed], *, codec: str = "none", acks: int = -1, idempotent: bool = False
) -> None:
    errors: list[Any] = []
    producer = confluent_kafka.Producer({
        "bootstrap.servers": address, "compression.type": codec, "acks": acks, "linger.ms": 5,
        "enable.idempotence": idempotent, "partitioner": "murmur2_random",
    })  # fmt: skip
    for key, value in records:
        producer.produce(topic, value, key, on_delivery=lambda error, _: errors.append(error) if error else None)
        producer.poll(0)
    assert producer.flush(SECONDS) == 0
    assert not errors


def _confluent_read(address: str, topic: str, partitions: int, position: int | str, count: int) -> list[Found]:
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 100,
    })  # fmt: skip
    start = {"earliest": confluent_kafka.OFFSET_BEGINNING, "latest": confluent_kafka.OFFSET_END}
    places = [confluent_kafka.TopicPartition(topic, number) for number in range(partitions)]
    for place in places:
        place.offset = start[position] if isinstance(position, str) else position
    if isinstance(position, int):
        places = consumer.offsets_for_times(places, timeout=SECONDS)
    consumer.assign(places)

    def some() -> Iterable[Found]:
        for message in consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            yield Found(message.partition(), message.offset(), message.key(), message.value())

    try:
        return _until(some, count)
    finally:
        consumer.close()


# --- kafka-python ---


def apart(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function in a process of its own: kafka-python never closes the sockets of its failed connections, and
    Python would complain of them in the middle of another test."""
    with ProcessPoolExecutor(1, mp_context=processes) as process:
        return process.submit(function, *args, **kwargs).result()


def _python_produce(
    address: str, topic: str, records: Sequence[Keyed], *, codec: str = "none", acks: int = -1, idempotent: bool = False
) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=address,
        compression_type=None if codec == "none" else codec,
        acks="all" if acks == -1 else acks,
        enable_idempotence=idempotent,
        linger_ms=5,
    )
    try:
        for sent in [producer.send(topic, value, key) for key, value in records]:
            sent.get(SECONDS)
    finally:
        producer.close(SECONDS)


def _python_read(address: str, topic: str, partitions: int, position: int | str, count: int) -> list[Found]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, group_id=None)
    places = [kafka.TopicPartition(topic, number) for number in range(partitions)]
    consumer.assign(places)
    if position == "earliest":
        consumer.seek_to_beginning(*places)
    elif position == "latest":
        consumer.seek_to_end(*places)
    else:
        ends = consumer.end_offsets(places)
        for place, found in consumer.offsets_for_times(dict.fromkeys(places, position)).items():
            consumer.seek(place, found.offset if found else ends[place])

    def some() -> Iterable[Found]:
        for batch in consumer.poll(200).values():
            for each in batch:
                yield Found(each.partition, each.offset, each.key, each.value)

    try:
        return _until(some, count)
    finally:
        consumer.close()


# --- aiokafka ---


def _aio_produce(
    address: str, topic: str, records: Sequence[Keyed], *, codec: str = "none", acks: int = -1, idempotent: bool = False
) -> None:
    async def run() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=address,
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == -1 else acks,
            enable_idempotence=idempotent,
            linger_ms=5,
        ) as producer:
            sent = [await producer.send(topic, value, key) for key, value in records]
            await asyncio.wait_for(asyncio.gather(*sent), SECONDS)

    asyncio.run(run())


def _aio_read(address: str, topic: str, partitions: int, position: int | str, count: int) -> list[Found]:
    async def run() -> list[Found]:
        async with aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address, enable_auto_commit=False, group_id=None
        ) as consumer:
            places = [aiokafka.TopicPartition(topic, number) for number in range(partitions)]
            consumer.assign(places)
            if position == "earliest":
                await consumer.seek_to_beginning(*places)
            elif position == "latest":
                await consumer.seek_to_end(*places)
            else:
                ends = await consumer.end_offsets(places)
                for place, at in (await consumer.offsets_for_times(dict.fromkeys(places, position))).items():
                    consumer.seek(place, at.offset if at else ends[place])
            found: list[Found] = []
            async with asyncio.timeout(SECONDS):
                while len(found) < count:
                    for batch in (await consumer.getmany(timeout_ms=200)).values():
                        found += [Found(each.partition, each.offset, each.key, each.value) for each in batch]
            return found

    return asyncio.run(run())


CLIENTS: Final = (
    Client("confluent-kafka", _confluent_produce, _confluent_read),
    # It needs further packages for the others.
    Client("kafka-python", partial(apart, _python_produce), partial(apart, _python_read), ("none", "gzip")),
    Client("aiokafka", _aio_produce, _aio_read),
)
