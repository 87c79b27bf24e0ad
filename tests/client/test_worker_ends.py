"""How workers begin and end, and what they may ask for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from logbroker.client import Admin, Consumer, Producer, QueueAdmin, Session, Worker, WorkerDelivery
from logbroker.errors import (
    BrokerUnavailableError,
    InvalidRequestError,
    UnknownGroupError,
    UnknownTopicError,
    WorkerIdInUseError,
    WrongGroupTypeError,
)
from tests.client.worker_helpers import create, describe, drain, fill, take, wait_until


async def test_leaving_gives_everything_back_at_once(address: str, topic: str) -> None:
    await create(address, topic, grace_seconds=60)
    await fill(address, topic, 20, keys=20)
    async with Worker(address, topic) as worker:
        taken = await take(worker, 5)
        taken[0].ack()
    await wait_until(address, topic, lambda queue: not queue.counts.in_flight)
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


async def test_a_group_that_is_not_there_is_said_to_be_so(address: str, topic: str) -> None:
    async with Worker(address, topic) as worker:
        with pytest.raises(UnknownGroupError):
            await take(worker, 1)
    async with Admin(address) as admin, Consumer(address, group=topic) as consumer:
        await admin.create_topic(topic)
        await consumer.subscribe(topic)
        async with Worker(address, topic) as worker:
            with pytest.raises(WrongGroupTypeError):
                await take(worker, 1)


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
        async with Worker(address, topic, worker_id="me") as other:
            with pytest.raises(WorkerIdInUseError):
                await take(other, 1)


async def test_a_stop_counts_that_came_before(unused_tcp_port: int) -> None:
    """Where no broker is, too."""
    begun: list[object] = []

    async def handle(work: object) -> None:
        begun.append(work)

    async with Worker(f"127.0.0.1:{unused_tcp_port}", "g", request_timeout_seconds=0.3) as worker:
        worker.stop()
        for _ in range(2):
            await worker.run(handle, concurrency=2)
            await worker.sessions(handle, concurrency=2)
            begun += [delivery async for delivery in worker]
            begun += [deliveries async for deliveries in worker.batches()]
    assert not begun


async def test_a_stopped_worker_still_opens_sessions_whose_loops_end_at_once(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 10)
    async with Worker(address, topic) as worker:
        worker.stop()
        async with worker.session(b"k3") as session:
            assert [delivery async for delivery in session] == []
            session.state = b"kept"
        async with worker.session(b"k3") as session:
            assert session.state == b"kept"


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


STARTS: dict[str, Callable[[Worker], Any]] = {
    "run": lambda worker: worker.run(lambda delivery: None),
    "sessions": lambda worker: worker.sessions(keep),
    "loop": lambda worker: take_all(worker),
    "batches": lambda worker: take_all(worker.batches()),
}


async def keep(session: Session) -> None:
    """A handler that leaves the records of its session to others."""


async def take_all(deliveries: Any) -> list[Any]:
    return [each async for each in deliveries]


@pytest.mark.parametrize("how", STARTS)
async def test_a_stop_ends_the_wait_for_the_first_connection(unused_tcp_port: int, how: str) -> None:
    async with Worker(f"127.0.0.1:{unused_tcp_port}", "g", request_timeout_seconds=600) as worker:
        running = asyncio.ensure_future(STARTS[how](worker))
        while not worker._core.link.begun:
            await asyncio.sleep(0)
        # As a signal handler, or another thread.
        await asyncio.to_thread(worker.stop)
        async with asyncio.timeout(25):
            assert await running in (None, [])


@pytest.mark.parametrize("outer", ["run", "sessions"])
@pytest.mark.parametrize("inner", ["run", "sessions"])
@pytest.mark.parametrize("way", [lambda call: call, asyncio.ensure_future, asyncio.gather])
async def test_run_in_a_handler_of_the_same_worker_is_refused(
    address: str, topic: str, outer: str, inner: str, way: Callable[[Any], Any]
) -> None:
    """Also in a task that the handler makes."""
    await create(address, topic)
    await fill(address, topic, 3, keys=1)
    refusals = []
    later: list[asyncio.Task[None]] = []
    async with Worker(address, topic) as worker:

        async def ended() -> None:
            await running

        async def handle(delivery: WorkerDelivery) -> None:
            with pytest.raises(InvalidRequestError, match="in a handler") as refusal:
                await way(getattr(worker, inner)(handle))
            refusals.append(refusal)
            if len(refusals) == 3:
                later.append(asyncio.create_task(go_on()))
                worker.stop()

        async def handle_session(session: Session) -> None:
            async for delivery in session:
                async with delivery:
                    await handle(delivery)

        async def go_on() -> None:
            await ended()
            await worker.run(handle)  # The handlers have returned.

        async with asyncio.timeout(25):
            running = asyncio.ensure_future(worker.run(handle) if outer == "run" else worker.sessions(handle_session))
            await running
            await worker.run(handle)  # Beside a handler, it is not.
            await asyncio.gather(*later)
    assert len(refusals) == 3
    assert (await describe(address, topic)).counts.acked == 3
