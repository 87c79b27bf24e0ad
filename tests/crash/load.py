"""Writers and readers while the broker is killed again and again. All in one event loop, all noted in one history.

Four senders, each different: many small batches; compressed ones that linger, some of them refused; one that asks for
less durability than the topics have, by partition; one whose client dies with the broker. A repeater sends every batch
twice at once. Two readers: one goes on and on, one begins anew at earlier offsets. What they do is chosen by seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter, deque
from contextlib import suppress
from typing import Any, Final

from logbroker.client import Consumer, Producer
from logbroker.client.producer.delivery import Delivery
from logbroker.client.transport.connection import Connection
from logbroker.client.transport.metadata import find_topic
from logbroker.client.transport.status import error_of_item
from logbroker.errors import (
    BrokerUnavailableError,
    InvalidTimestampError,
    LogbrokerError,
    NoCommittedOffsetError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
    UnknownTopicError,
)
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.types import Durability, TopicPartition
from logbroker.v1 import log_pb2
from tests.crash.checker import Event, Log, LogRecordId, Outcome, Poll, Seek, Send

RETAINED: Final = "retained"
TOPICS: Final[dict[str, tuple[int, dict[str, str]]]] = {
    "synced": (3, {"segment.bytes": "16384", "index.interval.bytes": "400"}),
    "written": (3, {"segment.bytes": "8192", "index.interval.bytes": "400", "durability": "written"}),
    RETAINED: (2, {"segment.bytes": "6000", "retention.bytes": "60000", "index.interval.bytes": "400"}),
    "growing": (1, {"segment.bytes": "16384"}),
}
"""Name -> partitions at first, and configs."""

_KEYS: Final = [b"key-%d" % number for number in range(40)]
_TOLD_UNKNOWN: Final = (RequestTimeoutError, BrokerUnavailableError, UnknownTopicError)


class History:
    """All that was done, in order, and what went wrong beside it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.acked: deque[Send] = deque()
        """Since somebody took them away last."""
        self.troubles: list[str] = []
        """Troubles that no crash explains."""
        self.figures: Counter[str] = Counter()
        self.progress = asyncio.Event()
        """Set by every acknowledgement."""

    def send(self, process: str, value: bytes, order: bytes = b"") -> Send:
        send = Send(process, value, order)
        self.events.append(send)
        return send

    def told(self, send: Send, log: Log, offset: int) -> None:
        """Note an acknowledgement; the second one of the same send must say the same."""
        if send.outcome is Outcome.OK and (send.log, send.offset) != (log, offset):
            self.troubles.append(f"{send.value[:40]!r} was acknowledged at {send.log}:{send.offset} and {log}:{offset}")
        send.outcome, send.log, send.offset = Outcome.OK, log, offset
        self.acked.append(send)
        self.progress.set()


class Sender:
    """Deliveries of one process whose outcome is not known yet."""

    def __init__(self, history: History, process: str, incarnation: str = "") -> None:
        self._history = history
        self._process = process
        self._incarnation = incarnation
        self._pending: deque[tuple[Send, Delivery]] = deque()
        self._number = 0

    def next_value(self, rng: random.Random) -> bytes:
        self._number += 1
        size = rng.choice((0, 10, 40, 100)) if rng.random() < 0.98 else rng.randint(1000, 6000)
        return b"%s/%d %s" % (self._process.encode(), self._number, b"." * size)

    async def send(self, producer: Producer, topic: str, value: bytes, **fields: Any) -> None:
        # Where a topic grows while records wait, only those of one key keep their order.
        order = fields.get("key", b"") if topic == "growing" else b""
        send = self._history.send(self._process, value, order)
        try:
            delivery = await producer.send(topic, value, **fields)
        except LogbrokerError as error:
            # Nothing was handed over.
            send.outcome = Outcome.FAILED
            if not isinstance(error, _TOLD_UNKNOWN):
                raise
            return
        self._pending.append((send, delivery))

    def collect(self) -> None:
        """Note the outcomes that there are by now."""
        still: deque[tuple[Send, Delivery]] = deque()
        for send, delivery in self._pending:
            if delivery.done():
                self._note(send, delivery)
            else:
                still.append((send, delivery))
        self._pending = still

    def _note(self, send: Send, delivery: Delivery) -> None:
        history = self._history
        try:
            metadata = delivery.result()
        except LogbrokerError as error:
            never_sent = isinstance(error, RequestTimeoutError) and not delivery.batch.was_uncertain
            if never_sent or isinstance(error, InvalidTimestampError):
                send.outcome = Outcome.FAILED
            elif not isinstance(error, _TOLD_UNKNOWN):
                history.troubles.append(f"{send.value[:40]!r} was refused: {error.reason}: {error}")
            history.figures[f"sends {send.outcome.value}"] += 1
        else:
            history.told(send, Log(metadata.topic, metadata.partition, self._incarnation), metadata.offset)
            history.figures["sends ok"] += 1


class Load:
    """All who send and read the lasting topics. `volatile`: written is not enough, so nobody relies on it."""

    def __init__(self, address: str, history: History, *, seed: int, volatile: bool) -> None:
        self._address = address
        self._history = history
        self._seed = seed
        self._volatile = volatile
        self._topics = [name for name in TOPICS if not (volatile and name == "written")]
        self._senders: list[Sender] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._mortal_life: asyncio.Task[None] | None = None

    def start(self) -> None:
        workers = [
            self._send("small", batch_bytes=700),
            self._send("packed", compression="lz4", linger_ms=4, batch_bytes=4000, delivery_timeout_seconds=1.2),
            self._send("chosen", durability=None if self._volatile else Durability.WRITTEN, batch_bytes=2000),
            self._mortal("mortal"),
            self._repeat("repeater"),
            self._read_on("reader"),
            self._read_again("rereader"),
            self._collect_for_ever(),
        ]
        self._tasks = [asyncio.create_task(worker) for worker in workers]

    def broker_died(self) -> None:
        """Some clients die with it."""
        if self._mortal_life is not None:
            self._mortal_life.cancel()

    async def stop(self) -> None:
        """Let everybody finish what was begun, with a broker that runs. Raises what any of them failed with."""
        self._stopping = True
        async with asyncio.timeout(30):
            await asyncio.gather(*self._tasks)
        self.collect()

    async def cancel(self) -> None:
        tasks = [*self._tasks, *([self._mortal_life] if self._mortal_life else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def check_alive(self) -> None:
        """Raise what ended one of them."""
        for task in self._tasks:
            if task.done():
                task.result()

    def collect(self) -> None:
        for sender in self._senders:
            sender.collect()

    async def _collect_for_ever(self) -> None:
        while not self._stopping:
            await asyncio.sleep(0.02)
            self.collect()

    def _sender(self, process: str) -> tuple[Sender, random.Random]:
        sender = Sender(self._history, process)
        self._senders.append(sender)
        return sender, random.Random(f"{self._seed} {process}")

    # --- senders ----------------------------------------------------------------------------------------------------

    async def _send(self, process: str, **settings: Any) -> None:
        sender, rng = self._sender(process)
        settings = {"max_buffered_bytes": 60_000, **settings}
        async with Producer(self._address, **settings) as producer:
            while not self._stopping:
                topic = rng.choice(self._topics)
                for _ in range(rng.randint(1, 30)):
                    fields: dict[str, Any] = {"key": rng.choice(_KEYS)}
                    if process == "chosen":
                        fields["partition"] = rng.randrange(TOPICS[topic][0])
                    if process == "packed" and rng.random() < 0.002:
                        fields["timestamp_ms"] = int(time.time() * 1000) + 7_200_000  # is refused
                    await sender.send(producer, topic, sender.next_value(rng), **fields)
                await asyncio.sleep(rng.uniform(0, 0.025))
            try:
                await producer.flush()
            except LogbrokerError as error:
                if not isinstance(error, InvalidTimestampError | RequestTimeoutError):
                    raise
            self.collect()

    async def _mortal(self, process: str) -> None:
        """Waits for each answer, and goes with the broker: what was on its way then nobody knows."""
        life = 0
        while not self._stopping:
            life += 1
            sender, rng = self._sender(f"{process}{life}")
            self._mortal_life = asyncio.create_task(self._live(sender, rng))
            await asyncio.wait([self._mortal_life])
            if not self._mortal_life.cancelled():
                self._mortal_life.result()
            sender.collect()
            self._senders.remove(sender)

    async def _live(self, sender: Sender, rng: random.Random) -> None:
        async with Producer(self._address) as producer:
            while not self._stopping:
                await sender.send(producer, rng.choice(self._topics), sender.next_value(rng))
                await producer.flush()

    async def _repeat(self, process: str) -> None:
        """Sends each batch by two calls at once; whichever is answered first counts, and both must say the same."""
        rng = random.Random(f"{self._seed} {process}")
        connection = Connection(self._address, request_timeout_seconds=20)
        topic = await find_topic(connection, "synced")
        identity = await connection.unary("InitProducerId", log_pb2.InitProducerIdRequest())
        sequences: Counter[int] = Counter()
        number = 0
        while not self._stopping:
            partition = rng.randrange(topic.partitions)
            values = [b"%s/%d " % (process.encode(), number + index) for index in range(rng.randint(1, 3))]
            number += len(values)
            batch = encode_batch(
                [NewRecord(value) for value in values],
                producer_id=identity.producer_id,
                base_sequence=sequences[partition],
                producer_epoch=identity.producer_epoch,
            )
            item = log_pb2.ProduceItem(topic_id=topic.id, partition=partition, batch=batch)
            sequences[partition] += len(values)
            sends = [self._history.send(process, value) for value in values]
            await asyncio.gather(*(self._call(connection, item, sends) for _ in range(2)))
            await asyncio.sleep(rng.uniform(0, 0.01))
        await connection.close()

    async def _call(self, connection: Connection, item: log_pb2.ProduceItem, sends: list[Send]) -> None:
        request = log_pb2.ProduceRequest(items=[item])
        response = await connection.unary("Produce", request)
        (result,) = response.results
        error = error_of_item(result.status)
        if error is not None:
            self._history.troubles.append(f"{sends[0].value!r} was refused: {error.reason}: {error}")
            return
        for index, send in enumerate(sends):
            self._history.told(send, Log("synced", item.partition), result.base_offset + index)
        self._history.figures["repeats answered"] += result.duplicate

    # --- readers ----------------------------------------------------------------------------------------------------

    async def _read_on(self, process: str) -> None:
        """Reads all partitions that there are at first, through every restart."""
        async with Consumer(self._address, on_out_of_range="earliest", buffer_bytes=100_000) as consumer:
            await consumer.assign(self._topics)
            for partition in consumer.assignment():
                self._history.events.append(Seek(process, Log(*partition), 0))
            while not self._stopping:
                await self._poll(process, consumer)

    async def _read_again(self, process: str) -> None:
        """Begins again and again, a little before where it was; also with partitions that are new."""
        rng = random.Random(f"{self._seed} {process}")
        positions: dict[TopicPartition, int] = {}
        while not self._stopping:
            async with Consumer(
                self._address, on_out_of_range="earliest", buffer_bytes=100_000, request_timeout_seconds=20
            ) as consumer:
                await consumer.assign(self._topics)
                for partition in consumer.assignment():
                    start = max(0, positions.get(partition, 0) - rng.randint(0, 200))
                    await consumer.seek(partition, start)
                    self._history.events.append(Seek(process, Log(*partition), start))
                until = time.monotonic() + rng.uniform(0.1, 1.2)
                while time.monotonic() < until and not self._stopping:
                    await self._poll(process, consumer)
                for partition in consumer.assignment():
                    with contextlib.suppress(NoCommittedOffsetError):  # One that was added a moment ago.
                        positions[partition] = consumer.position(partition)

    async def _poll(self, process: str, consumer: Consumer) -> None:
        try:
            records = await consumer.poll(timeout_seconds=0.1)
        except LogbrokerError as error:
            self._history.troubles.append(f"{process}: {error.reason}: {error}")
            self._stopping = True
            return
        if records:
            found = [(LogRecordId(Log(each.topic, each.partition), each.offset), each.value or b"") for each in records]
            self._history.events.append(Poll(process, found))
            self._history.figures["records polled"] += len(found)


async def read_all(address: str, topics: list[tuple[str, str]]) -> dict[Log, list[tuple[int, bytes]]]:
    """Everything that a new reader gets of these topics (name, incarnation); empty partitions included."""
    while True:
        with suppress(
            OffsetOutOfRangeError
        ):  # Retention is still at work, but nobody sends any more: it comes to an end.
            return await _read_all(address, topics)


async def _read_all(address: str, topics: list[tuple[str, str]]) -> dict[Log, list[tuple[int, bytes]]]:
    found: dict[Log, list[tuple[int, bytes]]] = {}
    incarnations = dict(topics)
    async with Consumer(address) as consumer:
        await consumer.assign(list(incarnations))
        for topic, partition in consumer.assignment():
            found[Log(topic, partition, incarnations[topic])] = []
        async for record in consumer.until_end():
            log = Log(record.topic, record.partition, incarnations[record.topic])
            found[log].append((record.offset, record.value or b""))
    return found
