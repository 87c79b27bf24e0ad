"""Workers of queue groups against a real broker."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from logbroker.client import Admin, Consumer, Producer, QueueAdmin, Worker, WorkerDelivery
from logbroker.errors import (
    BrokerUnavailableError,
    InvalidRequestError,
    LeaseLostError,
    UnknownGroupError,
    UnknownTopicError,
    WorkerIdInUseError,
    WrongGroupTypeError,
)
from tests.client.worker_helpers import create, describe, fill, in_order, wait_until


async def take(worker: Worker, count: int) -> list[WorkerDelivery]:
    """Take so many, unsettled."""
    taken: list[WorkerDelivery] = []
    async with asyncio.timeout(20):
        async for delivery in worker:
            taken.append(delivery)
            if len(taken) == count:
                break
    return taken


async def drain(worker: Worker, count: int) -> list[WorkerDelivery]:
    """Take and ack so many."""
    taken: list[WorkerDelivery] = []
    async with asyncio.timeout(20):
        async for delivery in worker:
            async with delivery:
                taken.append(delivery)
            if len(taken) == count:
                break
    await worker.flush()
    return taken


def numbers(deliveries: list[WorkerDelivery]) -> list[int]:
    return [int(delivery.value or b"") for delivery in deliveries]


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
        assert 0.25 < time.monotonic() - began < 5
        assert (again.attempt, again.redelivered) == (2, True)
        for delay_seconds in (-1.0, float("nan"), float("inf"), 1e300):
            with pytest.raises(InvalidRequestError):
                again.nack(delay_seconds=delay_seconds)
        with pytest.raises(InvalidRequestError):
            await again.nack(delay_seconds=86_400 * 36_500)


async def test_a_released_delivery_comes_again_and_no_attempt_is_counted(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 1)
    async with Worker(address, topic) as worker:
        (delivery,) = await take(worker, 1)
        delivery.release()
        (again,) = await take(worker, 1)
        assert (again.attempt, again.redelivered) == (1, True)


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


async def test_leaving_gives_everything_back_at_once(address: str, topic: str) -> None:
    await create(address, topic, grace_seconds=60)
    await fill(address, topic, 20, keys=20)
    async with Worker(address, topic) as worker:
        taken = await take(worker, 5)
        taken[0].ack()
    assert (await describe(address, topic)).counts.in_flight == 0
    async with Worker(address, topic) as other:
        deliveries = await drain(other, 19)
    assert taken[0].offset not in [d.offset for d in deliveries if d.partition == taken[0].partition]
    assert {delivery.attempt for delivery in deliveries} == {1}
    with pytest.raises(BrokerUnavailableError):
        taken[1].ack()
    with pytest.raises(BrokerUnavailableError, match="closed"):
        await take(worker, 1)


async def test_no_more_is_in_hand_than_was_asked_for(address: str, topic: str) -> None:
    await create(address, topic, ordering="none")
    await fill(address, topic, 200)
    async with Worker(address, topic, prefetch=8) as worker:
        taken = await take(worker, 8)
        assert (await describe(address, topic)).counts.in_flight == 8
        for delivery in taken[:3]:
            await delivery.ack()
        taken = [*taken[3:], *await take(worker, 3)]
        await worker.flush()
        counts = (await describe(address, topic)).counts
        assert (counts.in_flight, counts.acked) == (8, 3)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await take(worker, 1)


async def test_leases_last_as_long_as_the_work(address: str, topic: str) -> None:
    await create(address, topic, lease_seconds=0.3)
    await fill(address, topic, 2, keys=1)
    async with Worker(address, topic, prefetch=1) as worker, Worker(address, topic) as rival:
        (delivery,) = await take(worker, 1)
        waiting = asyncio.create_task(take(rival, 1))
        await asyncio.sleep(1.2)
        assert not delivery.lost
        await delivery.ack()
        (next_one,) = await waiting
        assert (next_one.value, next_one.attempt) == (b"1", 1)


async def test_who_works_for_too_long_has_lost_the_record(address: str, topic: str) -> None:
    await create(address, topic, lease_seconds=0.3, backoff_initial_seconds=0)
    await fill(address, topic, 1)
    worker = Worker(address, topic, prefetch=1, max_extension_seconds=0)
    async with worker, Worker(address, topic) as rival:
        (delivery,) = await take(worker, 1)
        (again,) = await take(rival, 1)
        assert again.attempt == 2
        assert delivery.lost
        with pytest.raises(LeaseLostError):
            await delivery.ack()
        await again.ack()
    async with QueueAdmin(address) as admin:
        assert (await admin.describe_queue(topic)).counts.leases_lost == 1


async def test_a_lease_can_be_asked_for(address: str, topic: str) -> None:
    await create(address, topic, lease_seconds=0.5)
    await fill(address, topic, 1)
    async with Worker(address, topic, max_extension_seconds=0) as worker:
        (delivery,) = await take(worker, 1)
        delivery.extend(30)
        await asyncio.sleep(1)
        await delivery.ack()
        for seconds in (0.0, -1.0, float("nan"), 1e300):
            with pytest.raises(InvalidRequestError):
                delivery.extend(seconds)


async def test_who_was_frozen_hands_out_nothing_of_what_it_had(address: str, topic: str) -> None:
    await create(address, topic, lease_seconds=0.4, backoff_initial_seconds=0)
    await fill(address, topic, 3, keys=3)
    async with Worker(address, topic, request_timeout_seconds=5) as worker:
        await take(worker, 1)
        time.sleep(1)  # the whole event loop stands still, as in a stopped process
        assert {delivery.attempt for delivery in await take(worker, 3)} == {2}


async def test_a_refusal_that_nobody_awaited_is_raised_by_flush(address: str, topic: str) -> None:
    await create(address, topic, lease_seconds=0.3)
    await fill(address, topic, 1)
    async with Worker(address, topic, max_extension_seconds=0) as worker:
        (delivery,) = await take(worker, 1)
        await wait_until(address, topic, lambda queue: queue.counts.leases_lost == 1)
        delivery.ack()
        with pytest.raises(LeaseLostError):
            await worker.flush()
        await worker.flush()


async def test_a_group_that_is_not_there_is_said_to_be_so(address: str, topic: str) -> None:
    with pytest.raises(UnknownGroupError):
        await take(Worker(address, topic), 1)
    async with Admin(address) as admin, Consumer(address, group=topic) as consumer:
        await admin.create_topic(topic)
        await consumer.subscribe(topic)
        with pytest.raises(WrongGroupTypeError):
            await take(Worker(address, topic), 1)


async def test_an_unreachable_broker_is_said_to_be_so(unused_tcp_port: int) -> None:
    worker = Worker(f"127.0.0.1:{unused_tcp_port}", "g", request_timeout_seconds=0.3)
    with pytest.raises(BrokerUnavailableError, match="is it running"):
        await take(worker, 1)
    await worker.close()


async def test_two_workers_of_one_id_cannot_be(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 1)
    async with Worker(address, topic, worker_id="me") as worker:
        await take(worker, 1)
        with pytest.raises(WorkerIdInUseError):
            await take(Worker(address, topic, worker_id="me"), 1)


@pytest.mark.parametrize("concurrency", [0, 3])
async def test_a_group_that_is_deleted_ends_its_workers(address: str, topic: str, concurrency: int) -> None:
    """Whether they loop or run handlers; and who asks again is told again."""
    await create(address, topic)

    async def handle(delivery: WorkerDelivery) -> None:
        raise AssertionError("there is nothing to work on")

    async with Worker(address, topic) as worker, QueueAdmin(address) as admin:
        working = asyncio.create_task(worker.run(handle, concurrency=3) if concurrency else take(worker, 1))
        await wait_until(address, topic, lambda queue: bool(queue.workers))
        await admin.delete_queue(topic)
        with pytest.raises(UnknownGroupError):
            await working
        with pytest.raises(UnknownGroupError):
            await take(worker, 1)


async def test_a_topic_that_is_deleted_ends_its_workers(address: str, topic: str) -> None:
    await create(address, topic)
    async with Worker(address, topic) as worker, Admin(address) as admin:
        working = asyncio.create_task(take(worker, 1))
        await wait_until(address, topic, lambda queue: bool(queue.workers))
        await admin.delete_topic(topic)
        with pytest.raises(UnknownTopicError):
            await working


async def test_keys_of_any_size(address: str, topic: str) -> None:
    await create(address, topic)
    keys = [b"", b"\x00" * (1024 * 1000), None, b"\xff\xfe"]
    async with Producer(address) as producer, QueueAdmin(address) as admin, Worker(address, topic) as worker:
        for key in keys:
            await producer.send_and_wait(topic, b"1", key)
        deliveries = await take(worker, 4)
        assert Counter(delivery.key for delivery in deliveries) == Counter(keys)
        for key in (b"", b"\x00" * (1024 * 1000)):
            assert (await admin.explain_lane(topic, key)).state == "in flight"
        for delivery in deliveries:
            await delivery.ack()


@pytest.mark.parametrize(
    "options",
    [{"prefetch": 0}, {"prefetch": -1}, {"prefetch": 1 << 31}, {"max_extension_seconds": -1.0}],
)
def test_settings_without_sense_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidRequestError):
        Worker("127.0.0.1:1", "g", **options)  # type: ignore[arg-type]
