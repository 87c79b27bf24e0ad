"""A client's memory for records is bounded in bytes, however much they expand to, and however many they are."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections import defaultdict
from typing import Any

import pytest

from logbroker.client import Admin, Consumer, Producer, Record, Worker, WorkerDelivery, sync
from logbroker.client.worker.in_flight import InFlight
from logbroker.client.worker.worker import Session
from logbroker.errors import InvalidRequestError
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.compression import Codec
from logbroker.v1 import queues_pb2
from tests.client.in_flight_by_hand import Worker as WorkerByHand
from tests.client.in_flight_by_hand import deliveries
from tests.client.worker_helpers import create, describe, wire

MIB = 1024 * 1024


async def fill(address: str, topic: str, sizes: list[int], **options: Any) -> None:
    """Create a topic of records that compress to next to nothing."""
    async with Admin(address) as admin, Producer(address, compression="zstd", batch_bytes=16 * MIB) as producer:
        await admin.create_topic(topic, 1)
        for size in sizes:
            await producer.send(topic, bytes(size))


def size_of(records: list[Record]) -> int:
    return sum(len(record.value or b"") for record in records)


# --- consumers -------------------------------------------------------------------------------------------------------


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("how", ["poll", "batches", "sync poll", "sync batches"])
async def test_lists_take_little_memory_whatever_their_batches_expand_to(address: str, topic: str, how: str) -> None:
    await fill(address, topic, [MIB] * 120)
    lists: list[tuple[int, int]] = []

    async def read() -> None:
        async with Consumer(address) as consumer:
            await consumer.assign(topic)
            if how == "batches":
                lists.extend([(len(each), size_of(each)) async for each in consumer.batches(until_end=True)])
            while how == "poll" and sum(count for count, _ in lists) < 120:
                records = await consumer.poll(timeout_seconds=25)
                lists.append((len(records), size_of(records)))

    def read_blocking() -> None:
        with sync.Consumer(address) as consumer:
            consumer.assign(topic)
            if how == "sync batches":
                lists.extend((len(each), size_of(each)) for each in consumer.batches(until_end=True))
            while how == "sync poll" and sum(count for count, _ in lists) < 120:
                records = consumer.poll(timeout_seconds=25)
                lists.append((len(records), size_of(records)))

    tracemalloc.start()
    try:
        await (asyncio.to_thread(read_blocking) if how.startswith("sync") else read())
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(count for count, _ in lists) == 120
    assert max(size for _, size in lists) <= 16 * MIB
    # The list, the list before it, the open batch and a copy of it.
    assert peak_bytes < 90 * MIB


@pytest.mark.parametrize("blocking", [False, True])
async def test_every_record_comes_once_and_in_order_within_any_bounds(address: str, topic: str, blocking: bool) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    await fill(address, topic, sizes := [chance.choice((0, 1, 100, 5_000, 300_000)) for _ in range(300)])
    steps = [
        (
            chance.choice(("poll", "loop", "batches", "poll in loop")),
            chance.randrange(1, 40),
            chance.choice((1, 400, 9_000)),
        )
        for _ in range(3000)
    ]
    seen: list[int] = []

    def note(records: list[Record], max_records: int, max_bytes: int) -> None:
        assert len(records) <= max_records
        assert size_of(records) <= max_bytes or len(records) == 1
        seen.extend(record.offset for record in records)

    async def read() -> None:
        async with Consumer(address) as consumer:
            await consumer.assign(topic)
            for how, count, max_bytes in steps:
                if len(seen) == len(sizes):
                    return
                if how == "poll":
                    note(await consumer.poll(count, 25, max_bytes=max_bytes), count, max_bytes)
                elif how == "batches":
                    async for records in consumer.batches(max_records=count, max_bytes=max_bytes):
                        note(records, count, max_bytes)
                        break
                else:
                    left = min(count, len(sizes) - len(seen))
                    async for record in consumer:
                        note([record], 1, 1)
                        left -= 1
                        if how == "poll in loop" and left:
                            records = await consumer.poll(left, 25, max_bytes=max_bytes)
                            note(records, left, max_bytes)
                            left -= len(records)
                        if not left:
                            break

    def read_blocking() -> None:
        with sync.Consumer(address) as consumer:
            consumer.assign(topic)
            for how, count, max_bytes in steps:
                if len(seen) == len(sizes):
                    return
                if how == "poll":
                    note(consumer.poll(count, 25, max_bytes=max_bytes), count, max_bytes)
                elif how == "batches":
                    for records in consumer.batches(max_records=count, max_bytes=max_bytes):
                        note(records, count, max_bytes)
                        break
                else:
                    left = min(count, len(sizes) - len(seen))
                    for record in consumer:
                        note([record], 1, 1)
                        left -= 1
                        if how == "poll in loop" and left:
                            records = consumer.poll(left, 25, max_bytes=max_bytes)
                            note(records, left, max_bytes)
                            left -= len(records)
                        if not left:
                            break

    await (asyncio.to_thread(read_blocking) if blocking else read())
    assert seen == list(range(len(sizes)))


async def test_a_bound_without_sense_is_refused(address: str, topic: str) -> None:
    await fill(address, topic, [1])
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        with pytest.raises(InvalidRequestError, match=r"max_records must be at least 1, .* give timeout_seconds=0"):
            await consumer.poll(0)
        with pytest.raises(InvalidRequestError, match="max_bytes must be between 1 and"):
            await consumer.poll(max_bytes=0)
        assert len(await consumer.poll(timeout_seconds=25)) == 1
    with pytest.raises(InvalidRequestError, match="prefetch_bytes"):
        Worker(address, "g", prefetch_bytes=0)


# --- workers ---------------------------------------------------------------------------------------------------------


class Unread:
    """How many bytes workers have received and not handed to the program, by session."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now: dict[int, int] = defaultdict(int)
        self.most: dict[int, int] = defaultdict(int)
        self.window_bytes = 0
        receive = InFlight.received

        def received(in_flight: InFlight[Any], message: queues_pb2.Deliveries, now: float) -> int:
            token = message.session_token
            self.now[token] += len(message.batches)
            self.most[token] = max(self.most[token], self.now[token])
            taken = receive(in_flight, message, now)
            self.window_bytes = in_flight.window.part_bytes
            return taken

        monkeypatch.setattr(InFlight, "received", received)


async def fill_random(address: str, group: str, count: int, size: int, key: bytes | None = None) -> None:
    async with Producer(address) as producer:
        for number in range(count):
            value = b"%d " % number + random.randbytes(size)
            await producer.send(group, value, key or b"k%d" % (number % 7))


@pytest.mark.parametrize("in_session", [False, True])
async def test_what_comes_ahead_of_a_worker_is_bounded(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch, in_session: bool
) -> None:
    count, size = 200, 300_000
    await create(address, topic, partitions=1, ordering="key" if in_session else "none")
    await fill_random(address, topic, count, size, b"one key" if in_session else None)
    unread = Unread(monkeypatch)
    taken: list[int] = []
    stalled: list[int] = []

    async def work(worker: Worker, source: Worker | Session) -> None:
        async for delivery in source:
            # Whole messages: one of them is given back when its last record is taken.
            unread.now[session_token] -= len(delivery.value or b"")
            if not stalled:
                # Whoever works slowly is sent ever more ahead.
                async with asyncio.timeout(11):
                    while 3 * unread.now[session_token] < unread.window_bytes:
                        await asyncio.sleep(0.001)
                if unread.window_bytes == 16 * MIB:
                    stalled.append(len(taken))
                    # As many questions and answers as the broker would need to send all the rest.
                    for _ in range(40):
                        await describe(address, topic)
            taken.append(int((delivery.value or b"").split(b" ")[0]))
            delivery.ack()
            if len(taken) == count:
                break

    session_token = 0
    async with Worker(address, topic, prefetch=count) as worker:
        if in_session:
            async with worker.session(b"one key", prefetch=count) as session:
                session_token = session.token
                await work(worker, session)
        else:
            await work(worker, worker)
    assert taken == list(range(count))
    assert stalled
    # Less than one message beyond the bound, of two MiB at most, and what frames the records.
    assert unread.most[session_token] < 16 * MIB + 2 * MIB + 10_000


@pytest.mark.parametrize("prefetch_bytes", [1, 10_000, 5 * MIB])
async def test_all_comes_in_order_whatever_the_bound(address: str, topic: str, prefetch_bytes: int) -> None:
    """Also a record that is larger than all that may come ahead, over breaks of the connection, and in sessions."""
    await create(address, topic, partitions=2)
    await fill_random(address, topic, 60, 30_000)
    done: list[tuple[bytes | None, int]] = []
    async with wire(address) as way, Worker(way.address, topic, prefetch_bytes=prefetch_bytes) as worker:

        async def handle(delivery: WorkerDelivery) -> None:
            await asyncio.sleep(0)
            assert delivery.value is not None
            done.append((delivery.key, int(delivery.value.split(b" ")[0])))
            if len(done) in (7, 20):
                way.cut()
            if len({number for _, number in done}) == 60:
                worker.stop()

        async with asyncio.timeout(50):
            await worker.run(handle, concurrency=3)
    for key in {key for key, _ in done}:
        first_times = list(dict.fromkeys(number for of, number in done if of == key))
        assert first_times == sorted(first_times)
    assert {number for _, number in done} == set(range(60))


async def test_what_nobody_takes_from_one_session_keeps_no_other_waiting(address: str, topic: str) -> None:
    await create(address, topic, partitions=1)
    for key in (b"a", b"b", b"c"):
        await fill_random(address, topic, 10, 50_000, key)
    async with Worker(address, topic, prefetch_bytes=20_000) as worker, asyncio.timeout(30):
        unread = worker.session(b"a", prefetch=10)
        async with unread, worker.session(b"b", prefetch=10) as other:
            numbers = []
            async for delivery in other:
                delivery.ack()
                numbers.append(int((delivery.value or b"").split(b" ")[0]))
                if len(numbers) == 10:
                    break
            assert numbers == list(range(10))
            async for delivery in worker:
                assert delivery.key == b"c"
                delivery.ack()
                break


async def test_records_of_a_delivery_are_decoded_as_they_are_taken() -> None:
    """A delivery of few compressed bytes is not all expanded for the sake of its first record."""
    worker = WorkerByHand()
    made: list[int] = []

    def make(*arguments: Any) -> WorkerDelivery:
        made.append(len(made))
        return WorkerDelivery(*arguments)

    worker.in_flight = InFlight(make, wake=lambda: None, max_extension_seconds=1000.0)
    worker.welcome()
    message = deliveries(1, range(200))
    message.batches = encode_batch([NewRecord(bytes(1000), b"k") for _ in range(200)], codec=Codec.ZSTD)
    worker.in_flight.received(message, 100.0)
    assert worker.in_flight.take(worker.in_flight.buffer, 100.0) is not None
    assert made == [0]
    assert [delivery.index for delivery in worker.take(199)] == list(range(1, 200))


async def test_what_is_given_back_unread_is_not_decoded() -> None:
    worker = WorkerByHand()
    message = deliveries(1, range(200))
    message.batches = b"no batch at all"
    worker.in_flight.received(message, 100.0)
    worker.receive(300, range(200, 210))
    worker.in_flight.give_back_unwanted(100.0, at_once=True)
    settle = worker.sent()
    assert list(zip(settle.releases.firsts, settle.releases.lasts, strict=True)) == [(1, 200), (300, 309)]
    assert not settle.nacks


async def test_credit_in_bytes_brings_no_records_beyond_the_prefetch(address: str, topic: str) -> None:
    """A message that grants bytes also gives the missing credit for records, and gives it once."""
    prefetch, count = 20, 400
    await create(address, topic, 1, ordering="none")
    async with Producer(address) as producer:
        for _ in range(count):
            await producer.send(topic, bytes(200))
    most = taken = 0
    async with Worker(address, topic, prefetch=prefetch, prefetch_bytes=2000) as worker:
        async for delivery in worker:
            delivery.ack()
            taken += 1
            if taken % 5 == 0:
                # Until the broker has the acks, it counts their deliveries, and the worker does not.
                await worker.flush()
                [described] = (await describe(address, topic)).workers
                most = max(most, described.in_flight + described.credit)
            if taken == count:
                break
    assert 0 < most <= prefetch
