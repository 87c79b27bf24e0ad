"""Producers and workers of queue groups with priorities, each in a process of its own, that write down what they do.

They are told what to do by lines: `leave`, stop after what is in hand, say goodbye, and end; `heal`, nothing fails from
now on. They end at once when whoever holds the other end of their orders is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import time
from collections.abc import Coroutine
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec

from logbroker.client import Producer
from logbroker.client.producer.delivery import Delivery as SentDelivery
from logbroker.client.transport.connection import Connection
from logbroker.client.worker.leased_record import WorkerDelivery
from logbroker.client.worker.worker import Worker
from logbroker.errors import BrokerUnavailableError, LeaseLostError, LogbrokerError
from logbroker.record.bands import DEFAULT_BANDS
from logbroker.record.message_headers import MAX_PRIORITY, MIN_PRIORITY
from logbroker.v1 import queues_pb2 as pb
from tests.history import HistoryFile
from tests.priority.priority_history import Appended, Kept, ReceiveBegun, Sent
from tests.queue_storm.queue_history import Delivery, How, RecordId, SettleBegun, SettleEnded, Taken
from tests.queue_storm.worker_process import receipt_of

_MOST_AT_ONCE: Final = 50
_KEYED: Final = 0.8
"""The share of records that have a key."""
_SPREAD_SECONDS: Final = 60
_TICK_MS: Final = 500
"""Timestamps lie this far apart, so that many are equal."""
_WAIT_MS: Final = 200
_AWAY_SECONDS: Final = 0.05


class ProducerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Start parameters of a producer process."""

    name: str
    broker: str
    topic: str
    history_path: str
    partitions: int
    records: int
    keys: int
    seconds: float
    """Over which it sends them."""


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Start parameters of a worker process."""

    name: str
    broker: str
    group: str
    history_path: str
    is_stream: bool
    band: str
    handle_seconds: float
    lease_seconds: float
    nacks: float
    releases: float
    late: float


class _Process:
    def __init__(self, name: str, history_path: str, orders: Pipe) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for whoever started it
        logging.basicConfig(filename=f"{history_path}.log", level=logging.INFO, force=True)
        self.file = HistoryFile(Path(history_path), name)
        self.rng = random.Random(name)
        self.leaving = False
        self.healed = False
        self._orders = orders

    def listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._orders.fileno(), self._on_order)

    def _on_order(self) -> None:
        received = os.read(self._orders.fileno(), 1000)
        if not received:
            os._exit(1)
        for order in received.split():
            if order == b"heal":
                self.healed = True
            else:
                self.leaving = True
                self.stop()

    def stop(self) -> None:
        """End soon."""


def run_producer(spec: ProducerSpec, orders: Pipe) -> None:
    """Send all records; what a process of multiprocessing runs."""
    asyncio.run(_Producer(spec, orders).run())


class _Producer(_Process):
    def __init__(self, spec: ProducerSpec, orders: Pipe) -> None:
        super().__init__(spec.name, spec.history_path, orders)
        self._spec = spec

    async def run(self) -> None:
        self.listen()
        begun, sent = monotonic(), 0
        records, seconds = self._spec.records, self._spec.seconds
        async with Producer(self._spec.broker, delivery_timeout_seconds=120, request_timeout_seconds=60) as producer:
            while sent < records:
                due = min(records, int(records * (monotonic() - begun) / seconds)) if seconds else records
                count = min(due - sent, self.rng.randint(1, _MOST_AT_ONCE))
                if count:
                    await self._send(producer, count)
                    sent += count
                await asyncio.sleep(0.001)

    async def _send(self, producer: Producer, count: int) -> None:
        """Send some at once, and wait for the answer to all."""
        rng, spec = self.rng, self._spec
        begun_at = monotonic()
        now_ms = int(time.time() * 1000)
        answers: list[Coroutine[Any, Any, None]] = []
        for _ in range(count):
            key = f"k{rng.randrange(spec.keys)}" if rng.random() < _KEYED else ""
            priority = rng.randint(MIN_PRIORITY, MAX_PRIORITY)
            timestamp_ms = (now_ms - rng.randrange(_SPREAD_SECONDS * 1000)) // _TICK_MS * _TICK_MS
            delivery = await producer.send(
                spec.topic,
                b"",
                key=key.encode() or None,
                priority=priority,
                partition=None if key else rng.randrange(spec.partitions),
                timestamp_ms=timestamp_ms,
            )
            answers.append(self._answer(delivery, begun_at, key, priority, timestamp_ms))
        await asyncio.gather(*answers)

    async def _answer(self, sent: SentDelivery, begun_at: float, key: str, priority: int, timestamp_ms: int) -> None:
        metadata = await sent
        record_id = RecordId(metadata.partition, metadata.offset)
        self.file.write(Appended, begun_at=begun_at, records=[Sent(record_id, key, priority, timestamp_ms)])


def run_worker(spec: WorkerSpec, orders: Pipe) -> None:
    """Be the worker; what a process of multiprocessing runs."""
    asyncio.run((_StreamWorker if spec.is_stream else _Caller)(spec, orders).run())


class _Worker(_Process):
    def __init__(self, spec: WorkerSpec, orders: Pipe) -> None:
        super().__init__(spec.name, spec.history_path, orders)
        self.spec = spec
        self._number = 0
        band = next((each for each in DEFAULT_BANDS if each.name == spec.band), None)
        self._priorities = (band.lowest_priority, band.highest_priority) if band else (MIN_PRIORITY, MAX_PRIORITY)

    def note_receive(self) -> None:
        lowest, highest = self._priorities
        self.file.write(ReceiveBegun, lowest_priority=lowest, highest_priority=highest)

    async def draw(self) -> tuple[How, float]:
        """Take some time over a record; return what becomes of it, and a delay."""
        rng, spec = self.rng, self.spec
        await asyncio.sleep(rng.expovariate(1 / spec.handle_seconds))
        drawn = 1.0 if self.healed else rng.random()
        if drawn < spec.nacks:
            return How.NACK, round(rng.uniform(0, 0.3), 3)
        if drawn < spec.nacks + spec.releases:
            return How.RELEASE, 0.0
        if drawn < spec.nacks + spec.releases + spec.late:
            await asyncio.sleep(spec.lease_seconds * rng.uniform(1, 1.3))
        return How.ACK, 0.0

    def note_settlement(self, how: How, receipt: int, delay_seconds: float) -> int:
        self._number += 1
        self.file.write(SettleBegun, number=self._number, how=how, receipts=[receipt], delay_seconds=delay_seconds)
        return self._number

    def note_answer(self, number: int, receipt: int, *, answered: bool, reason: str) -> None:
        self.file.write(SettleEnded, number=number, answered=answered, refused={receipt: reason} if reason else {})


class _Caller(_Worker):
    """Asks for one record after the other: when a receive begins, it knows exactly."""

    async def run(self) -> None:
        self.listen()
        connection = Connection(self.spec.broker, request_timeout_seconds=30)
        while not self.leaving:
            self.note_receive()
            request = pb.ReceiveRequest(
                group_id=self.spec.group,
                worker_id=self.spec.name,
                max_wait_ms=_WAIT_MS,
                plain_records=True,
                band=self.spec.band,
            )
            try:
                response = await connection.unary("Receive", request, retry=False)
            except BrokerUnavailableError:
                await asyncio.sleep(_AWAY_SECONDS)
                continue
            taken = [_delivery_of(message) for message in response.deliveries]
            self.file.write(Taken, deliveries=taken)
            for delivery in taken:
                await self._settle(connection, delivery.receipt, *await self.draw())
        await connection.close()

    async def _settle(self, connection: Connection, receipt: int, how: How, delay_seconds: float) -> None:
        settle = pb.Settle()
        if how is How.NACK:
            settle.nacks.add(first_receipt=receipt, last_receipt=receipt, delay_ms=round(delay_seconds * 1000))
        else:
            receipts = settle.acks if how is How.ACK else settle.releases
            receipts.firsts.append(receipt)
            receipts.lasts.append(receipt)
        number = self.note_settlement(how, receipt, delay_seconds)
        request = pb.SettleRequest(group_id=self.spec.group, worker_id=self.spec.name, settle=settle)
        answered, reason = False, ""
        try:
            response = await connection.unary("Settle", request, retry=False)
            answered = True
            reason = "".join(failure.status.reason for failure in response.answer.failures)
        except BrokerUnavailableError:
            pass
        self.note_answer(number, receipt, answered=answered, reason=reason)


class _StreamWorker(_Worker):
    """A worker of the Python client. It gives credit for the next record when it likes to, but not before it has the
    last one in hand."""

    def __init__(self, spec: WorkerSpec, orders: Pipe) -> None:
        super().__init__(spec, orders)
        self._worker: Worker | None = None

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()

    async def run(self) -> None:
        self.listen()
        spec = self.spec
        band: dict[str, Any] = {"band": spec.band} if spec.band else {}
        while not self.leaving:
            self.note_receive()
            try:
                async with Worker(spec.broker, spec.group, prefetch=1, max_extension_seconds=0, **band) as self._worker:
                    async for delivery in self._worker:
                        await self._handle(delivery)
            except (BrokerUnavailableError, LeaseLostError) as error:
                # The broker was away for longer than a request may take, or refused what nobody waited for.
                logging.info("go on after: %s", error)

    async def _handle(self, delivery: WorkerDelivery) -> None:
        noted = receipt_of(delivery)
        self.file.write(Taken, deliveries=[_delivery(delivery, redelivered=delivery.redelivered)])
        self.note_receive()
        how, delay_seconds = await self.draw()
        receipt = receipt_of(delivery)
        if receipt != noted:
            self.file.write(Kept, delivery=_delivery(delivery, redelivered=True))
        number = self.note_settlement(how, receipt, delay_seconds)
        answered, reason = False, ""
        try:
            if how is How.ACK:
                await delivery.ack()
            elif how is How.NACK:
                await delivery.nack(delay_seconds=delay_seconds)
            else:
                await delivery.release()
            answered = True
        except LogbrokerError as error:
            # Where a stream broke before the answer, nobody knows.
            answered = not delivery.in_doubt
            reason = error.reason if answered else ""
        self.note_answer(number, receipt, answered=answered, reason=reason)


def _delivery(delivery: WorkerDelivery, *, redelivered: bool) -> Delivery:
    return Delivery(
        receipt_of(delivery),
        RecordId(delivery.partition, delivery.offset),
        (delivery.key or b"").decode(),
        delivery.attempt,
        redelivered,
    )


def _delivery_of(message: pb.Deliveries) -> Delivery:
    """The one record of a message."""
    return Delivery(
        message.first_receipt,
        RecordId(message.partitions[0], message.offsets[0]),
        message.records[0].key.decode(),
        message.attempts[0] if message.attempts else 1,
        bool(message.redelivered and message.redelivered[0]),
    )
