"""Records that a worker sends together with its acks, against a real broker."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from logbroker.client import Admin, Consumer, Record, Session, Worker, WorkerDelivery
from logbroker.client.sync import Worker as SyncWorker
from logbroker.client.worker.delivery_batch import HELD
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import (
    AlreadySettledError,
    InvalidRequestError,
    LeaseLostError,
    LogbrokerError,
    RecordTooLargeError,
    UnknownTopicError,
)
from logbroker.record.partitioner import partition_for_key
from tests.client.worker_helpers import create, describe, fill, wait_until


@pytest.fixture
async def out(address: str, topic: str) -> AsyncIterator[str]:
    """A topic for outputs."""
    name = f"{topic}-out"
    async with Admin(address) as admin:
        await admin.create_topic(name, 3)
        yield name
        with suppress(UnknownTopicError):
            await admin.delete_topic(name)


async def sent(address: str, topic: str) -> list[Record]:
    async with Consumer(address) as consumer:
        await consumer.assign([topic])
        return [record async for record in consumer.until_end()]


async def values(address: str, topic: str) -> list[bytes | None]:
    return [record.value for record in await sent(address, topic)]


async def first(worker: Worker, count: int) -> list[WorkerDelivery]:
    taken: list[WorkerDelivery] = []
    async with asyncio.timeout(20):
        async for delivery in worker:
            taken.append(delivery)
            if len(taken) == count:
                break
    return taken


async def test_an_ack_sends_the_outputs_and_nothing_else_does(address: str, topic: str, out: str) -> None:
    await create(address, topic, backoff_initial_seconds=60)
    await fill(address, topic, 3)
    async with Worker(address, topic) as worker:
        acked, nacked, released = await first(worker, 3)
        acked.send(out, b"a", b"key", headers=[("name", b"value")], partition=2, timestamp_ms=7, priority=9)
        acked.send(out, None)
        for delivery in (nacked, released):
            delivery.send(out, b"not this")
        nacked.nack()
        released.release()
        await acked.ack()
        with pytest.raises(AlreadySettledError):
            acked.send(out, b"too late")
        [record] = [record for record in await sent(address, out) if record.value is not None]
        assert (record.value, record.key, record.partition, record.timestamp_ms) == (b"a", b"key", 2, 7)
        assert record.headers[0] == ("name", b"value")
        assert len(await sent(address, out)) == 2


async def test_a_refused_output_nacks_its_delivery_and_no_other(address: str, topic: str, out: str) -> None:
    await create(address, topic, max_attempts=1)
    await fill(address, topic, 10)
    async with Worker(address, topic) as worker:
        deliveries = await first(worker, 10)
        for number, delivery in enumerate(deliveries):
            delivery.send("nowhere" if number == 4 else out, b"%d" % number)
            delivery.ack()
        with pytest.raises(UnknownTopicError):
            await deliveries[4]
        for number, delivery in enumerate(deliveries):
            if number != 4:
                await delivery
    assert sorted(await values(address, out)) == [b"%d" % number for number in range(10) if number != 4]  # type: ignore[type-var]
    described = await describe(address, topic)
    assert (described.counts.acked, described.counts.nacked, described.counts.blocked_lanes) == (9, 1, 1)


async def test_a_lost_delivery_holds_back_no_output_of_the_others(address: str, topic: str, out: str) -> None:
    await create(address, topic, lease_seconds=1.0)
    await fill(address, topic, 3)
    worker = Worker(address, topic, max_extension_seconds=0)
    lost, *others = await first(worker, 3)
    for delivery in others:
        delivery.extend(60)
    await wait_until(address, topic, lambda described: described.counts.leases_lost > 0)
    lost.batch.states[lost.index] = HELD  # The worker does not know it yet.
    for delivery in (lost, *others):
        delivery.send(out, delivery.value)
        delivery.ack()
    for delivery in others:
        await delivery
    with pytest.raises(LeaseLostError):
        await lost
    await worker.close()
    assert sorted(await values(address, out)) == sorted(each.value for each in others)  # type: ignore[type-var]


async def test_a_refused_output_of_a_session_nacks_its_record_and_keeps_order_and_state(
    address: str, topic: str, out: str
) -> None:
    await create(address, topic, backoff_initial_seconds=0)
    await fill(address, topic, 20, keys=1)
    worker = Worker(address, topic)
    async with asyncio.timeout(30):
        while (await describe(address, topic)).counts.acked < 20:
            with suppress(LeaseLostError):
                async with worker.session(b"k0", idle_seconds=0.3) as session:
                    async for delivery in session:
                        number = int(delivery.value or b"")
                        session.state += b"%d," % number
                        # Several messages would be in flight at once.
                        target = "nowhere" if number == 3 and delivery.attempt == 1 else out
                        delivery.send(target, b"%d " % number + bytes(300_000), partition=0)
                        delivery.ack()
    async with worker.session(b"k0") as session:
        assert session.state == b"".join(b"%d," % number for number in range(20))
    await worker.close()  # The loop has told of what was refused.
    numbers = [int((value or b"").split(b" ")[0]) for value in await values(address, out)]
    assert numbers == list(range(20))
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked) == (20, 1)


async def test_a_loss_that_a_session_has_raised_is_not_raised_again_at_the_end(
    address: str, topic: str, out: str
) -> None:
    """The program has opened the session again, as the documentation says."""
    await create(address, topic, backoff_initial_seconds=0.1)
    await fill(address, topic, 10, keys=1)
    losses = 0
    async with Worker(address, topic) as worker:
        while True:
            try:
                async with worker.session(b"k0", idle_seconds=0.5) as session:
                    async for delivery in session:
                        async with delivery:
                            delivery.send(out if losses else "nowhere", delivery.value)
                break
            except LeaseLostError:
                losses += 1
    assert losses == 1
    assert len(await values(address, out)) == 10


async def test_a_topic_that_is_made_anew_gets_each_key_where_it_belongs(address: str, topic: str, out: str) -> None:
    await create(address, topic)
    await fill(address, topic, 60, keys=60)

    async def send_on(deliveries: list[WorkerDelivery]) -> None:
        for delivery in deliveries:
            delivery.send(out, b"v", delivery.key)
            delivery.ack()
        await worker.flush()

    async with Worker(address, topic, prefetch=60) as worker, Admin(address) as admin:
        deliveries = await first(worker, 60)
        await send_on(deliveries[:10])
        await send_on(deliveries[10:20])  # The worker has looked the topic up meanwhile.
        await admin.delete_topic(out)
        await admin.create_topic(out, 8)
        await send_on(deliveries[20:])
    found = await sent(address, out)
    assert len(found) == 40
    assert all(record.partition == partition_for_key(record.key or b"", 8) for record in found)


async def test_an_ordering_key_chooses_the_partition(address: str, topic: str, out: str) -> None:
    """With each kind of `send`, whether the worker has looked the topic up or not, or before the topic has grown."""
    await create(address, topic)
    await fill(address, topic, 90, keys=90)
    ordering_keys = [b"o%d" % number for number in range(10)]
    seen: set[tuple[int, int]] = set()

    async def send_on(deliveries: list[WorkerDelivery]) -> None:
        for delivery, ordering_key in zip(deliveries, ordering_keys, strict=True):
            delivery.send(out, ordering_key, delivery.key, ordering_key=ordering_key)
            delivery.send(out, ordering_key, ordering_key=ordering_key, priority=9)
            delivery.ack()
        await worker.flush()

    async def check(partitions: int, count: int) -> None:
        new = [record for record in await sent(address, out) if (record.partition, record.offset) not in seen]
        seen.update((record.partition, record.offset) for record in new)
        assert len(new) == count
        assert all(record.partition == partition_for_key(record.value or b"", partitions) for record in new)

    def in_sessions() -> None:
        with SyncWorker(address, topic) as worker:
            for ordering_key in ordering_keys:
                with worker.session(wait_seconds=20) as session:
                    delivery = next(iter(session))
                    delivery.send(out, ordering_key, b"key", ordering_key=ordering_key)
                    session.send(out, ordering_key, b"key", ordering_key=ordering_key)
                    delivery.ack().result()

    async with Worker(address, topic, prefetch=60) as worker, Admin(address) as admin:
        deliveries = await first(worker, 60)
        for partitions in (3, 8, 16):
            if partitions > 3:
                await admin.alter_topic(out, partitions=partitions)
            await send_on(deliveries[:10])
            await send_on(deliveries[10:20])  # The worker has looked the topic up meanwhile.
            del deliveries[:20]
            await check(partitions, 40)
    await asyncio.to_thread(in_sessions)
    await check(16, 20)


@pytest.mark.prove
async def test_what_a_topic_does_not_take_for_a_while_waits_and_holds_up_no_other_ack(
    topic: str, tmp_path: Path
) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        async with Admin(broker.address) as admin:
            await admin.create_topic("bad", 1)
            await admin.create_topic("good", 1)
        await create(broker.address, topic, lease_seconds=1.0, max_attempts=1)
        await fill(broker.address, topic, 4)
        await fill(broker.address, "bad", 1)
        broker.stop()
        log = next((tmp_path / "bad-0").glob("*.log"))
        log.rename(tmp_path.parent / "away")
        broker.start()
        async with Worker(broker.address, topic, max_extension_seconds=0.1) as worker:
            to_bad, to_both, to_good, plain = await first(worker, 4)
            to_bad.send("bad", b"1").ack()
            to_both.send("bad", b"2").send("good", b"2").ack()
            await to_good.send("good", b"3").ack()
            await plain.ack()
            await asyncio.sleep(3)  # Longer than the lease.
            counts = (await describe(broker.address, topic)).counts
            assert (counts.in_flight, counts.leases_lost, counts.nacked) == (2, 0, 0)
            worker.stop()
            with suppress(LogbrokerError):
                await worker.close()
        assert await values(broker.address, "good") == [b"3"]


async def test_outputs_beyond_a_settlement_go_in_several(address: str, topic: str, out: str) -> None:
    await create(address, topic)
    await fill(address, topic, 10)
    async with Worker(address, topic) as worker:
        for delivery in await first(worker, 10):
            delivery.send(out, bytes(300_000))
            delivery.ack()
        await worker.flush()
    assert len(await sent(address, out)) == 10


async def test_a_broker_that_reads_little_at_once_gets_the_outputs_in_small_messages(topic: str) -> None:
    with EmbeddedBroker(max_request_bytes=100_000) as broker:
        async with Admin(broker.address) as admin:
            await admin.create_topic("out", 1)
        await create(broker.address, topic, backoff_initial_seconds=60)
        await fill(broker.address, topic, 20, keys=20)
        worker = Worker(broker.address, topic)
        deliveries = await first(worker, 20)
        for number, delivery in enumerate(deliveries):
            delivery.send("out", os.urandom(99_990 if number == 7 else 30_000)).ack()
        with pytest.raises(RecordTooLargeError, match="max_request_bytes"):
            await deliveries[7]
        for number, delivery in enumerate(deliveries):
            if number != 7:
                await delivery
        assert len(await values(broker.address, "out")) == 19
        counts = (await describe(broker.address, topic)).counts
        assert (counts.acked, counts.nacked, counts.leases_lost) == (19, 1, 0)
        with suppress(RecordTooLargeError):
            await worker.close()


async def test_what_no_settlement_takes_is_refused_at_once(address: str, topic: str, out: str) -> None:
    await create(address, topic)
    await fill(address, topic, 1)
    async with Worker(address, topic) as worker:
        [delivery] = await first(worker, 1)
        with pytest.raises(RecordTooLargeError, match="1,048,577 bytes"):
            delivery.send(out, bytes((1 << 20) + 1))
        with pytest.raises(TypeError, match="encode it"):
            delivery.send(out, "text")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequestError):
            delivery.send(out, b"v", priority=10)
        delivery.send(out, bytes((1 << 20) - 10))
        with pytest.raises(RecordTooLargeError):
            delivery.send(out, bytes(11))
        delivery.send(out, bytes(10))
        await delivery.ack()
    assert len(await sent(address, out)) == 2


async def test_a_session_sends_with_its_next_ack_and_state(address: str, topic: str, out: str) -> None:
    await create(address, topic, backoff_initial_seconds=0)
    await fill(address, topic, 40)

    async def work(session: Session, until: int) -> None:
        async for delivery in session:
            number = int(session.state or b"0")
            if number == 2 and delivery.attempt == 1:
                session.send(out, b"first try %d" % number)
                delivery.nack(delay_seconds=0)
                continue
            session.send(out, b"%d" % number, b"k1")
            delivery.send(out, b"%d'" % number, b"k1")
            session.send(out, b"%d''" % number, b"k1")
            session.state = b"%d" % (number + 1)
            delivery.ack()
            if number + 1 == until:
                break

    async def send_and_leave(worker: Worker, error: Exception | None = None) -> None:
        async with worker.session(b"k1") as session:
            session.state = b"never acked"
            session.send(out, b"never acked")
            await session.flush()
            if error is not None:
                raise error

    async with Worker(address, topic) as worker:
        async with worker.session(b"k1") as session:
            await work(session, 1)
        async with worker.session(b"k1") as session:
            await work(session, 4)
        with pytest.raises(InvalidRequestError, match="after the session's last ack"):
            await send_and_leave(worker)
        with pytest.raises(ZeroDivisionError):
            await send_and_leave(worker, ZeroDivisionError())
        async with worker.session(b"k1") as session:
            assert session.state == b"4"
    assert await values(address, out) == [b"%d" % number + end for number in range(4) for end in (b"", b"'", b"''")]


async def test_a_synchronous_worker_sends_too(address: str, topic: str, out: str) -> None:
    await create(address, topic)
    await fill(address, topic, 20)

    def work() -> None:
        with SyncWorker(address, topic) as worker:
            for number, delivery in enumerate(worker):
                with delivery:
                    delivery.send(out, delivery.value, delivery.key)
                if number == 9:
                    break
        with SyncWorker(address, topic) as worker, worker.session(b"k0", idle_seconds=0.2) as session:
            for delivery in session:
                with delivery:
                    session.send(out, b"session")
        with (
            SyncWorker(address, topic) as worker,
            pytest.raises(InvalidRequestError, match="after the session's last ack"),
            worker.session(b"k1", idle_seconds=0.2) as session,
        ):
            session.send(out, b"never acked")

    await asyncio.to_thread(work)
    found = await values(address, out)
    assert found.count(b"session") == 1
    assert len(found) == 11


@pytest.mark.prove
async def test_a_broker_that_is_killed_before_the_answer_sends_once(topic: str) -> None:
    with EmbeddedBroker() as broker:
        async with Admin(broker.address) as admin:
            await admin.create_topic("out", 1)
        await create(broker.address, topic, grace_seconds=2)
        await fill(broker.address, topic, 200)
        worker = Worker(broker.address, topic, prefetch=20)
        acked = 0

        async def work() -> None:
            nonlocal acked
            async for delivery in worker:
                with suppress(LogbrokerError):
                    delivery.send("out", delivery.value)
                    delivery.ack()
                acked += 1

        working = asyncio.create_task(work())
        async with asyncio.timeout(50):
            for count in (50, 100, 150):
                while acked < count:
                    await asyncio.sleep(0)
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
            while (await describe(broker.address, topic)).counts.open:
                await asyncio.sleep(0.05)
        worker.stop()
        await working
        with suppress(LogbrokerError):  # It tells of settlements that nobody knows of.
            await worker.close()
        found = await values(broker.address, "out")
        assert sorted(found) == sorted(b"%d" % number for number in range(200))  # type: ignore[type-var]


async def test_an_output_that_was_refused_is_no_error_of_the_stop(
    address: str, topic: str, out: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As an exception in the handler, it becomes a nack, and the log tells of it."""
    await create(address, topic, max_attempts=1)
    await fill(address, topic, 3)
    async with Worker(address, topic) as worker:

        def handle(delivery: WorkerDelivery) -> None:
            delivery.send("nowhere" if delivery.offset == 0 else out, b"value")

        running = asyncio.create_task(worker.run(handle))
        async with asyncio.timeout(30):
            while len(await sent(address, out)) < 2 or "became nacks" not in caplog.text:
                await asyncio.sleep(0.01)
        worker.stop()
        await running
    described = await describe(address, topic)
    assert (described.counts.acked, described.counts.nacked) == (2, 1)
