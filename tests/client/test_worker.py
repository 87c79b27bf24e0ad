"""Workers of queue groups against a real broker."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from logbroker.client import Consumer, QueueAdmin, Worker, WorkerDelivery
from logbroker.errors import (
    InvalidRequestError,
)
from tests.client.worker_helpers import create, describe, drain, fill, in_order, numbers, take, wait_until


async def test_every_record_comes_once_and_in_the_order_of_its_key(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 1000)
    taken: list[WorkerDelivery] = []
    workers = [Worker(address, topic, prefetch=prefetch) for prefetch in (100, 7)]

    async def work(worker: Worker) -> None:
        async with worker:
            async for delivery in worker:
                async with delivery:
                    taken.append(delivery)
                    await asyncio.sleep(0)
                if len(taken) == 1000:
                    for other in workers:
                        other.stop()

    async with asyncio.timeout(20):
        await asyncio.gather(*map(work, workers))
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.open, counts.in_flight) == (1000, 0, 0)
    assert sorted(numbers(taken)) == list(range(1000))
    one = taken[0]
    assert (one.topic, one.attempt, one.redelivered, one.headers) == (topic, 1, False, ())
    assert abs(one.timestamp_ms - time.time() * 1000) < 60_000


async def test_one_worker_sees_each_key_in_order(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 500)
    async with Worker(address, topic) as worker:
        assert in_order(numbers(await drain(worker, 500)))


@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_without_order_runs_of_batches_come_as_they_lie_in_the_log(
    address: str, topic: str, compression: str
) -> None:
    await create(address, topic, ordering="none")
    await fill(address, topic, 3000, compression=compression)
    async with Worker(address, topic, prefetch=700) as worker:
        deliveries = await drain(worker, 3000)
    assert sorted(numbers(deliveries)) == list(range(3000))
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        stored = {(record.partition, record.offset): record async for record in consumer.until_end()}
    for delivery in deliveries:
        record = stored[delivery.partition, delivery.offset]
        assert (delivery.key, delivery.value, delivery.timestamp_ms) == (record.key, record.value, record.timestamp_ms)


async def test_an_exception_nacks_with_its_text_and_the_key_waits(address: str, topic: str) -> None:
    await create(address, topic, max_attempts=2, backoff_initial_seconds=0.1)
    await fill(address, topic, 20, keys=2)
    seen: list[tuple[int, int, bool]] = []
    async with Worker(address, topic) as worker, QueueAdmin(address) as admin:
        while len(seen) < 12:
            try:
                async for delivery in worker:
                    async with delivery:
                        seen.append((int(delivery.value or b""), delivery.attempt, delivery.redelivered))
                        if delivery.value == b"0":
                            raise ValueError("no\ngood")
                    if len(seen) == 12:
                        break
            except ValueError:
                assert seen[-1][0] == 0
        await worker.flush()
        assert seen.count((0, 1, False)) == 1
        assert seen.count((0, 2, True)) == 1
        assert sorted(number for number, _, _ in seen if number) == list(range(1, 20, 2))
        lane = await admin.explain_lane(topic, b"k0")
        assert (lane.state, lane.waiting, lane.reasons) == ("blocked", 10, ("ValueError: no good",) * 2)
        await admin.resume_lane(topic, b"k0")
        assert numbers(await drain(worker, 10)) == list(range(0, 20, 2))


async def test_a_nack_asks_for_its_own_delay(address: str, topic: str) -> None:
    await create(address, topic, backoff_initial_seconds=60)
    await fill(address, topic, 1)
    async with Worker(address, topic) as worker:
        (delivery,) = await take(worker, 1)
        began = time.monotonic()
        await delivery.nack(delay_seconds=0.3, reason="later")
        (again,) = await take(worker, 1)
        assert time.monotonic() - began > 0.25, "take() ends long before the minute of the settings"
        assert (again.attempt, again.redelivered) == (2, True)
        for delay_seconds in (-1.0, float("nan"), float("inf"), 1e300):
            with pytest.raises(InvalidRequestError):
                again.nack(delay_seconds=delay_seconds)
        with pytest.raises(InvalidRequestError):
            await again.nack(delay_seconds=86_400 * 36_500)


async def test_run_works_on_many_keys_at_once_and_on_one_record_of_each(address: str, topic: str) -> None:
    await create(address, topic, backoff_initial_seconds=0.01)
    await fill(address, topic, 200)
    running: Counter[bytes | None] = Counter()
    most = 0
    done = []

    async def handle(delivery: WorkerDelivery) -> None:
        nonlocal most
        running[delivery.key] += 1
        assert running[delivery.key] == 1, "two of one key at once"
        most = max(most, running.total())
        try:
            await asyncio.sleep(0.002)
            if delivery.value == b"17" and delivery.attempt < 3:
                raise ValueError("not yet")
        finally:
            running[delivery.key] -= 1
        done.append(int(delivery.value or b""))
        if len(done) == 200:
            worker.stop()

    async with Worker(address, topic) as worker:
        async with asyncio.timeout(20):
            await worker.run(handle, concurrency=5)
    assert most == 5
    assert sorted(done) == list(range(200))
    assert in_order(done)
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked) == (200, 2)


async def test_run_lets_handlers_settle_and_goes_on_after_a_loss(address: str, topic: str) -> None:
    """A plain function is a handler, too."""
    await create(address, topic)
    await fill(address, topic, 3, keys=3)
    attempts = []

    def handle(delivery: WorkerDelivery) -> None:
        attempts.append((int(delivery.value or b""), delivery.attempt))
        if delivery.attempt == 1:
            delivery.nack(delay_seconds=0)
        if len(attempts) == 6:
            worker.stop()

    async with Worker(address, topic) as worker:
        async with asyncio.timeout(20):
            await worker.run(handle, concurrency=2)
    assert sorted(attempts) == [(number, attempt) for number in range(3) for attempt in (1, 2)]


@pytest.mark.prove
async def test_a_cancelled_run_gives_back_what_it_works_on(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 20)
    begun = asyncio.Event()

    async def handle(delivery: WorkerDelivery) -> None:
        begun.set()
        await asyncio.sleep(60)

    async with Worker(address, topic) as worker:
        running = asyncio.create_task(worker.run(handle, concurrency=3))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await wait_until(address, topic, lambda queue: not queue.counts.in_flight)
        assert {delivery.attempt for delivery in await drain(worker, 20)} == {1}


async def test_a_handler_may_settle_in_another_thread(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 50)

    async def handle(delivery: WorkerDelivery) -> None:
        await asyncio.to_thread(delivery.ack)
        await delivery
        done.append(delivery)
        if len(done) == 50:
            worker.stop()

    done: list[WorkerDelivery] = []
    async with Worker(address, topic) as worker:
        async with asyncio.timeout(20):
            await worker.run(handle, concurrency=5)
    assert in_order(numbers(done))
