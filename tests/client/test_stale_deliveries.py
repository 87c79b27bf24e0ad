"""Deliveries that lay unread while others did the work: the worker that reads them at last does not do it again."""

from __future__ import annotations

import asyncio
from threading import Thread
from time import monotonic, sleep

import pytest

from logbroker.client import QueueDescription, Worker, WorkerDelivery, sync
from tests.client.links import Link
from tests.client.worker_helpers import create, describe, drain, fill, take, wait_until


def waits_for_records(description: QueueDescription) -> bool:
    return bool(description.workers) and description.workers[0].credit > 0


@pytest.mark.prove
async def test_what_a_stalled_network_held_back_beyond_the_lease_is_not_worked_on(address: str, topic: str) -> None:
    await create(address, topic, lease_seconds=4, backoff_initial_seconds=0)
    async with Link().to(address) as link, Worker(link.address, topic) as stalled:
        taking = asyncio.create_task(take(stalled, 1))
        await wait_until(address, topic, waits_for_records)
        # The worker may lose its patience before the broker has sent the record. Its next connection then stalls, too.
        link.limit_bytes = link.pipes[0].bytes_back
        link.freeze(answers_only=True)
        await fill(address, topic, 2, keys=1)
        await wait_until(address, topic, lambda description: description.counts.in_flight == 1)
        async with Worker(address, topic) as rival:
            await drain(rival, 2)
        link.release()
        await fill(address, topic, 1, first=2)
        (delivery,) = await taking
        assert (delivery.value, delivery.attempt) == (b"2", 1)
        await delivery.ack()


@pytest.mark.prove
async def test_a_worker_whose_new_connections_stall_keeps_no_key_from_others(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It reconnects, is handed the record on a stream that stalls before it reads it, and reconnects again."""
    await create(address, topic, lease_seconds=3, backoff_initial_seconds=0)
    async with Link().to(address) as link, Worker(link.address, topic) as stalled:
        taking = asyncio.create_task(take(stalled, 1))
        await wait_until(address, topic, waits_for_records)
        # Enough for a connection and a welcome, not for a delivery.
        link.limit_bytes = link.pipes[0].bytes_back
        link.freeze(answers_only=True)
        async with asyncio.timeout(20):
            while "reconnecting" not in caplog.text:
                await asyncio.sleep(0.02)
        await fill(address, topic, 2, keys=1)
        async with Worker(address, topic) as rival:
            await drain(rival, 2)
        assert not taking.done()
        link.release()
        await fill(address, topic, 1, first=2)
        (delivery,) = await taking
        assert (delivery.value, delivery.attempt) == (b"2", 1)
        await delivery.ack()


@pytest.mark.prove
async def test_what_came_while_the_event_loop_was_blocked_beyond_the_lease_is_not_worked_on(
    address: str, topic: str
) -> None:
    await create(address, topic, lease_seconds=1, backoff_initial_seconds=0)

    def others() -> None:
        with sync.Producer(address) as producer, sync.QueueAdmin(address) as admin:
            for number in range(2):
                producer.send(topic, b"%d" % number, b"k0")
            producer.flush()
            deadline = monotonic() + 20
            while admin.describe_queue(topic).counts.in_flight != 1 and monotonic() < deadline:
                sleep(0.02)
        with sync.Worker(address, topic) as rival:
            for delivery in rival:
                with delivery:
                    done.append(delivery.value)
                if len(done) == 2:
                    break

    done: list[bytes | None] = []
    async with Worker(address, topic) as blocked:
        taking = asyncio.create_task(take(blocked, 1))
        await wait_until(address, topic, waits_for_records)
        thread = Thread(target=others)
        thread.start()
        thread.join(20)
        assert done == [b"0", b"1"]
        await fill(address, topic, 1, first=2)
        (delivery,) = await taking
        assert (delivery.value, delivery.attempt) == (b"2", 1)
        await delivery.ack()


@pytest.mark.prove
@pytest.mark.parametrize("kind", ["session", "loop", "run"])
async def test_a_program_that_never_waits_keeps_its_leases(address: str, topic: str, kind: str) -> None:
    """Many deliveries, of which each holds up the event loop, take longer than the lease."""
    records = 40
    await create(address, topic, lease_seconds=2, backoff_initial_seconds=0)
    await fill(address, topic, records, keys=1 if kind == "session" else records)
    worked: list[tuple[bytes | None, int]] = []

    def work(delivery: WorkerDelivery) -> None:
        sleep(0.15)
        worked.append((delivery.value, delivery.attempt))
        if len(worked) == records:
            worker.stop()

    async with asyncio.timeout(100), Worker(address, topic) as worker:
        if kind == "run":
            await worker.run(work)
        elif kind == "loop":
            async for delivery in worker:
                async with delivery:
                    work(delivery)
        else:
            async with worker.session(b"k0", prefetch=records) as session:
                async for delivery in session:
                    async with delivery:
                        work(delivery)
    assert sorted(worked, key=lambda pair: int(pair[0] or b"")) == [(b"%d" % n, 1) for n in range(records)]
    assert (await describe(address, topic)).counts.leases_lost == 0
