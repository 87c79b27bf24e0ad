"""A member of a group in a process of its own: any of the three libraries, and one of them with the consumer protocol.
It writes down each record that it handles, and then commits; a line of an order ends it, with a goodbye to the group.

    R time partition offset value      a record was handled
    A time partition,partition,...     it was assigned these partitions; kafka-python and aiokafka give all that it has
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

SESSION_MS: Final = 5_000
HEARTBEAT_MS: Final = 200
REBALANCE_MS: Final = 10_000
BATCH: Final = 20
CONSUMER_PROTOCOL: Final = "confluent-kafka, group.protocol=consumer"


class Notes:
    """The file to which a member writes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def handled(self, partition: int, offset: int, value: bytes) -> None:
        self._file.write(f"R {time.monotonic_ns()} {partition} {offset} {value.decode()}\n")

    def assigned(self, partitions: Iterable[int]) -> None:
        self._file.write(f"A {time.monotonic_ns()} {','.join(map(str, sorted(partitions)))}\n")


def run(
    library: str,
    address: str,
    topic: str,
    group: str,
    path: Path,
    orders: Connection,
    instance_id: str,
    assignor: str,
    session_ms: int,
) -> None:
    """Be a member until an order comes."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    members: dict[str, Callable[..., None]] = {
        "confluent-kafka": _confluent,
        CONSUMER_PROTOCOL: partial(_confluent, has_consumer_protocol=True),
        "kafka-python": _python,
        "aiokafka": _aiokafka,
    }
    member = members[library]
    member(address, topic, group, Notes(path), orders.poll, instance_id, assignor, session_ms)
    sys.exit(0)


def _confluent(
    address: str,
    topic: str,
    group: str,
    notes: Notes,
    ends: Callable[[], bool],
    instance_id: str,
    assignor: str,
    session_ms: int,
    *,
    has_consumer_protocol: bool = False,
) -> None:
    import confluent_kafka

    poll_ms = max(REBALANCE_MS, session_ms)  # It refuses less.
    times = {"session.timeout.ms": session_ms, "heartbeat.interval.ms": HEARTBEAT_MS}
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
        "max.poll.interval.ms": poll_ms, **({"group.protocol": "consumer"} if has_consumer_protocol else times),
        "reconnect.backoff.max.ms": 200, "fetch.wait.max.ms": 50, "topic.metadata.refresh.interval.ms": 1000,
        **({"group.instance.id": instance_id} if instance_id else {}),
        **({"partition.assignment.strategy": assignor} if assignor else {}),
    })  # fmt: skip
    consumer.subscribe([topic], on_assign=lambda _, given: notes.assigned(each.partition for each in given))
    while not ends():
        messages = [each for each in consumer.consume(BATCH, 0.05) if each.error() is None]
        for each in messages:
            notes.handled(each.partition(), each.offset(), each.value())
        if messages:
            with suppress(confluent_kafka.KafkaException):  # Fenced, or the broker is away: it is delivered again.
                consumer.commit(asynchronous=False)
    consumer.close()


def _python(
    address: str,
    topic: str,
    group: str,
    notes: Notes,
    ends: Callable[[], bool],
    instance_id: str,
    assignor: str,
    session_ms: int,
) -> None:
    import kafka
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.errors import KafkaError

    poll_ms = max(REBALANCE_MS, session_ms)
    more: dict[str, Any] = {"group_instance_id": instance_id} if instance_id else {}
    if assignor == "cooperative-sticky":
        more["partition_assignment_strategy"] = [CooperativeStickyAssignor]
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=session_ms, heartbeat_interval_ms=HEARTBEAT_MS, max_poll_interval_ms=poll_ms,
        max_poll_records=BATCH, reconnect_backoff_max_ms=200, fetch_max_wait_ms=50, **more,
    )  # fmt: skip

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            notes.assigned(each.partition for each in assigned)

    consumer.subscribe([topic], listener=Listener())
    while not ends():
        found = [each for batch in consumer.poll(50).values() for each in batch]
        for each in found:
            notes.handled(each.partition, each.offset, each.value)
        if found:
            with suppress(KafkaError):
                consumer.commit()
    consumer.close()


def _aiokafka(
    address: str,
    topic: str,
    group: str,
    notes: Notes,
    ends: Callable[[], bool],
    instance_id: str,
    assignor: str,
    session_ms: int,
) -> None:
    import aiokafka
    from aiokafka.errors import KafkaError

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        async def on_partitions_assigned(self, assigned: Any) -> None:
            notes.assigned(each.partition for each in assigned)

    async def consume() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
            session_timeout_ms=session_ms, heartbeat_interval_ms=HEARTBEAT_MS, rebalance_timeout_ms=REBALANCE_MS,
            fetch_max_wait_ms=50, group_instance_id=instance_id or None,
        )  # fmt: skip
        await consumer.start()
        consumer.subscribe([topic], listener=Listener())
        while not ends():
            batches = await consumer.getmany(timeout_ms=50, max_records=BATCH)
            for each in [each for batch in batches.values() for each in batch]:
                notes.handled(each.partition, each.offset, each.value)
            if batches:
                with suppress(KafkaError):
                    await consumer.commit()
        await consumer.stop()

    asyncio.run(consume())
