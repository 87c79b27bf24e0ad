"""How long a record is a worker's."""

from __future__ import annotations

import asyncio
import time

import pytest

from logbroker.client import QueueAdmin, QueueSettings, Worker
from logbroker.errors import (
    InvalidRequestError,
    LeaseLostError,
)
from tests.client.worker_helpers import create, describe, fill, take, wait_until
from tests.queues.shell import until


async def test_a_released_delivery_comes_again_and_no_attempt_is_counted(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 1)
    async with Worker(address, topic) as worker:
        (delivery,) = await take(worker, 1)
        delivery.release()
        (again,) = await take(worker, 1)
        assert (again.attempt, again.redelivered) == (1, True)


@pytest.mark.prove
async def test_leases_last_as_long_as_the_work(address: str, topic: str) -> None:
    await create(address, topic, lease_seconds=2)
    await fill(address, topic, 2, keys=1)
    async with Worker(address, topic, prefetch=1) as worker, Worker(address, topic) as rival:
        (delivery,) = await take(worker, 1)
        waiting = asyncio.create_task(take(rival, 1))
        await asyncio.sleep(4.2)
        assert not delivery.lost
        await delivery.ack()
        (next_one,) = await waiting
        assert (next_one.value, next_one.attempt) == (b"1", 1)


async def test_who_works_for_too_long_has_lost_the_record(address: str, topic: str) -> None:
    await create(address, topic, lease_seconds=1, backoff_initial_seconds=0)
    await fill(address, topic, 1)
    worker = Worker(address, topic, prefetch=1, max_extension_seconds=0)
    async with worker, Worker(address, topic) as rival:
        (delivery,) = await take(worker, 1)
        (again,) = await take(rival, 1)
        assert again.attempt == 2
        # It counts from when the delivery came, which is later than when the broker sent it.
        await until(lambda: delivery.lost)
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


@pytest.mark.prove
async def test_who_was_frozen_hands_out_nothing_of_what_it_had(address: str, topic: str) -> None:
    await create(address, topic, lease_seconds=1, backoff_initial_seconds=0)
    await fill(address, topic, 3, keys=3)
    async with Worker(address, topic, request_timeout_seconds=5) as worker:
        await take(worker, 1)
        time.sleep(1.5)  # the whole event loop stands still, as in a stopped process
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


@pytest.mark.prove
async def test_a_shorter_lease_is_prolonged_as_soon_as_it_is_known(address: str, topic: str) -> None:
    await create(address, topic, lease_seconds=30)
    await fill(address, topic, 1)
    async with Worker(address, topic) as worker, QueueAdmin(address) as admin:
        (delivery,) = await take(worker, 1)
        await admin.alter_queue(topic, QueueSettings(lease_seconds=2.5))
        await delivery.release()
        (again,) = await take(worker, 1)
        await asyncio.sleep(4)
        assert not again.lost
        await again.ack()


async def test_a_shorter_lease_of_the_group_takes_nothing_from_who_works(address: str, topic: str) -> None:
    """The worker hears of it with its next delivery only."""
    await create(address, topic, lease_seconds=2)
    await fill(address, topic, 1)
    async with Worker(address, topic, prefetch=1) as worker, QueueAdmin(address) as admin:
        (delivery,) = await take(worker, 1)
        await admin.alter_queue(topic, QueueSettings(lease_seconds=0.2))
        extended = delivery.batch.until
        for _ in range(2):
            await until(lambda extended=extended: delivery.batch.until > extended)  # type: ignore[misc]
            extended = delivery.batch.until
        await delivery.ack()
        assert (await admin.describe_queue(topic)).counts.leases_lost == 0


@pytest.mark.prove
@pytest.mark.parametrize("awaits", [False, True])
async def test_a_loop_whose_bodies_hold_up_the_event_loop_keeps_its_leases(
    address: str, topic: str, awaits: bool
) -> None:
    """Settlements and extensions go out between two of them, as long as one is shorter than the lease."""
    lease_seconds, records = 3.0, 4
    await create(address, topic, lease_seconds=lease_seconds, ordering="none")
    await fill(address, topic, records)
    attempts: list[int] = []
    async with Worker(address, topic) as worker:
        async for delivery in worker:
            attempts.append(delivery.attempt)
            time.sleep(0.4 * lease_seconds)  # This is what is tested.
            acked = delivery.ack()
            if awaits:
                await acked
            if len(attempts) == records:
                break
        await worker.flush()
    assert attempts == [1] * records
    assert (await describe(address, topic)).counts.leases_lost == 0
