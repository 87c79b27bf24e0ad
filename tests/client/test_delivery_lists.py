"""Deliveries that are taken at once, and settled together but for those that the program settles singly."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from logbroker import client
from logbroker.client import sync
from logbroker.client.worker.leased_record import WorkerDeliveries
from logbroker.errors import InvalidRequestError, LeaseLostError, UnknownGroupError
from tests.client.in_flight_by_hand import Worker, acks, releases
from tests.client.worker_helpers import create, describe, fill, wait_until


@pytest.fixture
def worker() -> Worker:
    return Worker()


# --- with a broker by hand -----------------------------------------------------------------------------------------


def test_one_word_settles_what_was_not_settled_singly(worker: Worker) -> None:
    worker.receive(50, range(6))
    worker.receive(90, range(10, 14))
    taken = WorkerDeliveries(worker.take(10))
    taken[2].nack(reason="no")
    taken[7].release()
    assert taken.ack() is taken
    settle = worker.sent()
    assert acks(settle) == [(50, 51), (53, 55), (90, 90), (92, 93)]
    assert [(nack.first_receipt, nack.last_receipt) for nack in settle.nacks] == [(52, 52)]
    assert releases(settle) == [(91, 91)]
    assert worker.in_flight.in_hand == 0
    worker.answer(settle)
    assert not [*worker.in_flight.held_records().offsets]
    taken.release()  # Nothing is left to be said.
    assert worker.sends_nothing()


def test_nacks_and_releases_are_said_of_all(worker: Worker) -> None:
    worker.receive(1, range(4))
    taken = worker.take(4)
    WorkerDeliveries(taken[:2]).nack(delay_seconds=1.5, reason="no")
    WorkerDeliveries(taken[2:]).release()
    settle = worker.sent()
    nacks = [(nack.first_receipt, nack.last_receipt, nack.reason, nack.delay_ms) for nack in settle.nacks]
    assert nacks == [(1, 2, "no", 1500)]
    assert releases(settle) == [(3, 4)]
    with pytest.raises(InvalidRequestError):
        WorkerDeliveries(taken).nack(delay_seconds=-1)


def test_an_empty_list_says_nothing(worker: Worker) -> None:
    none = WorkerDeliveries()
    assert none.ack().release() is none
    assert worker.sends_nothing()


def test_what_is_lost_keeps_no_other_from_being_settled(worker: Worker) -> None:
    worker.receive(1, range(3))
    taken = WorkerDeliveries(worker.take(3))
    taken[1].batch.lose(taken[1].index, LeaseLostError("gone"))
    with pytest.raises(LeaseLostError, match="gone"):
        taken.ack()
    assert acks(worker.sent()) == [(1, 1), (3, 3)]


async def test_a_wait_is_for_all_and_raises_the_first_refusal(worker: Worker) -> None:
    worker.receive(1, range(4))
    taken = WorkerDeliveries(worker.take(4))
    taken[0].ack()
    first = worker.sent()
    waiting = asyncio.ensure_future(_all_of(taken.ack()))
    worker.answer(first)
    await asyncio.sleep(0)
    assert not waiting.done()
    worker.answer(worker.sent(), [(3, 3, LeaseLostError("too late"))])
    with pytest.raises(LeaseLostError, match="too late"):
        await waiting


async def test_what_is_not_settled_cannot_be_waited_for(worker: Worker) -> None:
    worker.receive(1, range(2))
    taken = WorkerDeliveries(worker.take(2))
    taken[0].ack()
    with pytest.raises(InvalidRequestError, match="not settled yet"):
        await _all_of(taken)


async def _all_of(deliveries: WorkerDeliveries) -> None:
    await deliveries


# --- over sockets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocking", [False, True])
async def test_lists_are_synced_when_their_wait_ends(address: str, topic: str, blocking: bool) -> None:
    await create(address, topic, ordering="none", max_attempts=5, backoff_initial_seconds=0.1)
    await fill(address, topic, 1000)
    seen: set[int] = set()
    sizes: list[int] = []

    def take(deliveries: list[client.WorkerDelivery] | list[sync.WorkerDelivery]) -> None:
        sizes.append(len(deliveries))
        for delivery in deliveries:
            if delivery.offset % 50 == 7 and delivery.attempt == 1:
                delivery.nack()
            else:
                seen.add(int(delivery.value or b""))

    def work() -> None:
        with sync.Worker(address, topic, prefetch=500) as worker:
            for deliveries in worker.batches():
                take(deliveries)
                deliveries.ack().result(timeout=20)
                if len(seen) == 1000:
                    break

    async with asyncio.timeout(60):
        if blocking:
            await asyncio.to_thread(work)
        else:
            async with client.Worker(address, topic, prefetch=500) as worker:
                async for deliveries in worker.batches():
                    take(deliveries)
                    await deliveries.ack()
                    if len(seen) == 1000:
                        break
    counts = (await describe(address, topic)).counts
    assert counts.acked == 1000
    assert counts.nacked == sum(sizes) - 1000 > 0
    assert max(sizes) > 10


def test_the_wait_of_a_synchronous_list_is_checked(address: str, topic: str) -> None:
    asyncio.run(create(address, topic, ordering="none"))
    asyncio.run(fill(address, topic, 10))
    with sync.Worker(address, topic) as worker:
        deliveries = next(iter(worker.batches()))
        with pytest.raises(InvalidRequestError, match="not settled yet"):
            deliveries.result(0)
        deliveries.ack()
        deliveries.result(20)
        with pytest.raises(TypeError):
            deliveries.result("soon")  # type: ignore[arg-type]


async def test_lists_of_a_deleted_group_say_that_they_are_lost(address: str, topic: str) -> None:
    await create(address, topic, ordering="none")
    await fill(address, topic, 10)
    async with asyncio.timeout(60):
        worker = client.Worker(address, topic)
        deliveries = await anext(aiter(worker.batches()))
        await wait_until(address, topic, lambda queue: queue.counts.in_flight > 0)
        async with client.QueueAdmin(address) as admin:
            await admin.delete_queue(topic)
        with pytest.raises((LeaseLostError, UnknownGroupError)):
            await deliveries.ack()
        with contextlib.suppress(LeaseLostError, UnknownGroupError):
            await worker.close()
