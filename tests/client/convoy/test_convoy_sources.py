"""A convoy over workers and over iterators of the program."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from logbroker.client import Admin, Consumer, Convoy, ConvoySource, QueueAdmin, QueueSettings, Worker, WorkerDelivery
from logbroker.errors import InvalidRequestError
from tests.client.convoy.convoy_helpers import DEADLINE_SECONDS, create, until

Item = tuple[Any, Any, Callable[[], object], Callable[[Exception | None], object]]


class Source:
    """Items that are in memory, and what became of each."""

    def __init__(self, *keys: str | None, ends: bool = True) -> None:
        self.queue = asyncio.Queue[tuple[int, str | None]]()
        self.settled: dict[int, str] = {}
        self.given = 0
        self.ends = ends
        for number, key in enumerate(keys):
            self.queue.put_nowait((number, key))

    async def __aiter__(self) -> AsyncIterator[Item]:
        while not (self.ends and self.queue.empty()):
            number, key = await self.queue.get()
            self.given += 1
            yield key, number, lambda number=number: self.settle(number, "acked"), self.nacking(number)  # type: ignore[misc]

    def nacking(self, number: int) -> Callable[[Exception | None], Awaitable[None]]:
        async def nack(error: Exception | None) -> None:
            await asyncio.sleep(0)
            self.settle(number, f"nacked: {error}")

        return nack

    def settle(self, number: int, how: str) -> None:
        assert number not in self.settled
        self.settled[number] = how


async def test_a_source_is_worked_off_to_its_end(address: str) -> None:
    source = Source(*(f"key {number % 7}" for number in range(100)))
    running: list[int] = []
    order: dict[int, list[int]] = {}

    async def handle(number: int) -> None:
        assert all(other % 7 != number % 7 for other in running)
        running.append(number)
        await asyncio.sleep(0.001)
        running.remove(number)
        order.setdefault(number % 7, []).append(number)

    assert isinstance(source, ConvoySource)
    async with asyncio.timeout(DEADLINE_SECONDS):
        await Convoy(source, concurrency=5).run(handle)
    assert source.settled == dict.fromkeys(range(100), "acked")
    assert all(numbers == sorted(numbers) for numbers in order.values())


async def test_what_is_not_done_at_a_stop_is_nacked() -> None:
    source = Source("a", "a", "b", "c", ends=False)
    release = asyncio.Event()

    async def handle(number: int) -> None:
        if number == 0:
            await release.wait()
        if number == 2:
            raise ValueError("never")

    convoy = Convoy(source, max_attempts=1)
    task = asyncio.create_task(convoy.run(handle))
    await until(lambda: 3 in source.settled and bool(convoy.blocked()))
    convoy.stop()
    release.set()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await task
    assert source.settled == {0: "acked", 1: "nacked: None", 2: "nacked: never", 3: "acked"}
    # Nothing is taken from the source after the stop.
    source.queue.put_nowait((4, "d"))
    await asyncio.sleep(0)
    assert source.given == 4


async def test_the_source_is_asked_for_no_more_than_has_room() -> None:
    source = Source(*["a"] * 50)
    release = asyncio.Event()

    async def handle(number: int) -> None:
        await release.wait()

    convoy = Convoy(source, max_records=8)
    task = asyncio.create_task(convoy.run(handle))
    await until(lambda: convoy.counts().waiting >= 6)
    assert convoy.counts().waiting <= 7
    assert source.given <= 9
    release.set()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await task
    assert source.settled == dict.fromkeys(range(50), "acked")


async def test_handlers_that_never_wait_leave_the_event_loop_its_turns() -> None:
    source = Source(*(f"key {number}" for number in range(500)))
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    async def handle(number: int) -> None:
        time.sleep(0.001)

    ticking = asyncio.create_task(tick())
    async with asyncio.timeout(DEADLINE_SECONDS):
        await Convoy(source, concurrency=100).run(handle)
    ticking.cancel()
    # They take half a second together.
    assert turns > 15


async def test_a_stop_may_come_from_another_thread() -> None:
    source = Source(ends=False)
    convoy = Convoy(source)
    task = asyncio.create_task(convoy.run(print))
    await until(lambda: convoy._core.has_begun)
    await asyncio.to_thread(convoy.stop)
    async with asyncio.timeout(DEADLINE_SECONDS):
        await task


async def test_an_error_of_the_source_ends_the_convoy_after_what_runs() -> None:
    done: list[int] = []

    async def source() -> AsyncIterator[Item]:
        yield "a", 1, lambda: done.append(1), lambda error: None
        raise ConnectionError("the source is away")

    async def handle(number: int) -> None:
        await asyncio.sleep(0.05)

    with pytest.raises(ConnectionError, match="the source is away"):
        async with asyncio.timeout(DEADLINE_SECONDS):
            await Convoy(source()).run(handle)
    assert done == [1]


@pytest.mark.parametrize("item", [("key", 1), 5, (["unhashable"], 1, print, print)])
async def test_items_of_another_form_get_one_clear_error(item: Any) -> None:
    async def source() -> AsyncIterator[Any]:
        yield item

    with pytest.raises(InvalidRequestError, match="a source of a convoy yields tuples"):
        async with asyncio.timeout(DEADLINE_SECONDS):
            await Convoy(source()).run(lambda item: None)


def test_settings_that_need_a_broker_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="leave out key"):
        Convoy(Source(), key=str)
    with pytest.raises(InvalidRequestError, match="give a function as dead_letter"):
        Convoy(Source(), on_exhausted="dead-letter", dead_letter="letters")


# --- workers ---------------------------------------------------------------------------------------------------------


async def queue(address: str, topic: str, keys: list[bytes | None]) -> None:
    """Create a topic with records, and a queue group without order of the same name."""
    await create(address, topic, 1, keys)
    async with QueueAdmin(address) as admin:
        await admin.create_queue(topic, topic, QueueSettings(ordering="none"), start="earliest")


async def test_a_worker_of_a_group_without_order_keeps_the_order_of_each_key(address: str, topic: str) -> None:
    await queue(address, topic, [b"key %d" % (number % 10) for number in range(200)])
    values: dict[bytes, list[int]] = {}
    failed = set[int]()

    async def handle(delivery: WorkerDelivery) -> None:
        assert delivery.key is not None
        assert delivery.value is not None
        number = int(delivery.value)
        await asyncio.sleep(0.001)
        if number % 50 == 3 and number not in failed:
            failed.add(number)
            raise ValueError("not yet")
        values.setdefault(delivery.key, []).append(number)

    async with Worker(address, topic) as worker:
        convoy = Convoy(worker, concurrency=10, backoff_initial_seconds=0.02)
        task = asyncio.create_task(convoy.run(handle))
        await until(lambda: convoy.counts().done == 200)
        convoy.stop()
        await task
        await worker.flush()
    assert len(failed) == 4
    assert all(numbers == sorted(numbers) for numbers in values.values())
    async with QueueAdmin(address) as admin:
        counts = (await admin.describe_queue(topic)).counts
    assert (counts.ready, counts.in_flight) == (0, 0)


async def test_a_worker_acks_a_record_whose_dead_letter_is_stored(address: str, topic: str) -> None:
    await queue(address, topic, [b"a", b"b"])
    letters = f"{topic}-letters"
    async with Admin(address) as admin:
        await admin.create_topic(letters, 1)

    async def handle(delivery: WorkerDelivery) -> None:
        if delivery.key == b"a":
            raise ValueError("never")

    async with Worker(address, topic) as worker:
        convoy = Convoy(worker, max_attempts=1, on_exhausted="dead-letter", dead_letter=letters)
        task = asyncio.create_task(convoy.run(handle))
        await until(lambda: convoy.counts().done == 2)
        convoy.stop()
        await task
    async with Consumer(address) as consumer:
        await consumer.assign(letters)
        [letter] = [record async for record in consumer.until_end()]
    assert (letter.key, letter.header("logbroker-reason")) == (b"a", b"ValueError: never")


async def test_the_outputs_of_the_attempt_that_succeeds_go_with_the_ack(address: str, topic: str) -> None:
    await queue(address, topic, [b"a", b"b", b"a"])
    results, letters = f"{topic}-results", f"{topic}-letters"
    async with Admin(address) as admin:
        await admin.create_topic(results, 1)
        await admin.create_topic(letters, 1)
    attempts = dict[bytes | None, int]()

    async def handle(delivery: WorkerDelivery) -> None:
        attempts[delivery.value] = attempts.get(delivery.value, 0) + 1
        delivery.send(results, b"%s of attempt %d" % (delivery.value or b"", attempts[delivery.value]))
        if delivery.key == b"b" or attempts[delivery.value] < 2:
            raise ValueError("not yet")

    async with Worker(address, topic) as worker:
        convoy = Convoy(
            worker, max_attempts=3, backoff_initial_seconds=0.01, on_exhausted="dead-letter", dead_letter=letters
        )
        task = asyncio.create_task(convoy.run(handle))
        await until(lambda: convoy.counts().done == 3)
        convoy.stop()
        await task
    async with Consumer(address) as consumer:
        await consumer.assign(results)
        sent = [record.text() async for record in consumer.until_end()]
        assert sorted(sent) == ["0 of attempt 2", "2 of attempt 2"]
        await consumer.assign(letters)
        assert [record.value async for record in consumer.until_end()] == [b"1"]


async def test_the_outputs_of_a_key_keep_its_order_whatever_else_its_records_send(address: str, topic: str) -> None:
    """Acks with outputs for other sets of topics do not wait for each other."""
    await queue(address, topic, [b"%d" % (number % 5) for number in range(200)])
    results, others = f"{topic}-results", f"{topic}-others"
    async with Admin(address) as admin:
        await admin.create_topic(results, 1)
        await admin.create_topic(others, 1)

    async def handle(delivery: WorkerDelivery) -> None:
        number = int(delivery.value or b"")
        delivery.send(results, delivery.value, delivery.key)
        if number // 5 % 2:
            delivery.send(others, delivery.value, delivery.key)
        if number % 3 == 0:
            delivery.ack()

    async with Worker(address, topic) as worker:
        convoy = Convoy(worker, concurrency=10)
        task = asyncio.create_task(convoy.run(handle))
        await until(lambda: convoy.counts().done == 200)
        convoy.stop()
        await task
    async with Consumer(address) as consumer:
        await consumer.assign(results)
        sent = dict[bytes | None, list[int]]()
        async for record in consumer.until_end():
            sent.setdefault(record.key, []).append(int(record.text()))
    assert sum(map(len, sent.values())) == 200
    assert all(numbers == sorted(numbers) for numbers in sent.values()), sent


async def test_a_record_whose_outputs_are_refused_is_not_done(address: str, topic: str) -> None:
    """The worker nacks it, and it is delivered again."""
    await queue(address, topic, [b"a", b"a", b"b"])
    handled: list[tuple[bytes | None, int]] = []

    async def handle(delivery: WorkerDelivery) -> None:
        handled.append((delivery.value, delivery.attempt))
        if delivery.value == b"0" and delivery.attempt < 3:
            delivery.send(f"{topic}-nowhere", b"x")

    async with Worker(address, topic) as worker:
        convoy = Convoy(worker)
        task = asyncio.create_task(convoy.run(handle))
        await until(lambda: (b"0", 2) in handled and convoy.counts().running == 0)
        assert convoy.counts().done == 2
        await until(lambda: convoy.counts().done == 3)
        convoy.stop()
        await task
    assert sorted(handled) == [(b"0", 1), (b"0", 2), (b"0", 3), (b"1", 1), (b"2", 1)]


async def test_a_delivery_that_was_lost_is_no_error_of_the_worker_at_the_end(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As with `Worker.run`: the loss was logged, and the record has come again."""
    await queue(address, topic, [b"a"])
    handled = 0

    async def handle(delivery: WorkerDelivery) -> None:
        nonlocal handled
        handled += 1
        if handled == 1:
            async with QueueAdmin(address) as admin:
                await admin.rewind(topic, "earliest")

    async with Worker(address, topic) as worker:
        convoy = Convoy(worker)
        task = asyncio.create_task(convoy.run(handle))
        await until(lambda: handled == 2)
        convoy.stop()
        await task
    assert "1 deliveries of topic" in caplog.text


@pytest.mark.parametrize("how", ["ack", "nack", "release"])
async def test_a_failure_after_the_handler_has_settled_changes_nothing(
    how: str, address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As with `Worker.run`: the failure is logged."""
    await queue(address, topic, [b"a", b"a"])
    handled: list[tuple[bytes | None, bool]] = []

    async def handle(delivery: WorkerDelivery) -> None:
        handled.append((delivery.value, delivery.settled))
        if len(handled) == 1:
            getattr(delivery, how)()
            raise ValueError("afterwards")

    async with Worker(address, topic) as worker:
        convoy = Convoy(worker, max_attempts=2, backoff_initial_seconds=0.01)
        task = asyncio.create_task(convoy.run(handle))
        await until(lambda: convoy.counts().done == (2 if how == "ack" else 3))
        assert convoy.blocked() == []
        convoy.stop()
        await task
    assert sorted(handled) == sorted([(b"0", False)] * (1 if how == "ack" else 2) + [(b"1", False)])
    assert "ValueError: afterwards" in caplog.text


async def test_what_a_worker_has_not_done_at_a_stop_is_delivered_again(address: str, topic: str) -> None:
    await queue(address, topic, [b"a", b"a", b"b"])
    release = asyncio.Event()
    seen: list[bytes | None] = []

    async def handle(delivery: WorkerDelivery) -> None:
        if delivery.key == b"a":
            await release.wait()
        seen.append(delivery.value)

    async with Worker(address, topic) as worker:
        convoy = Convoy(worker)
        task = asyncio.create_task(convoy.run(handle))
        await until(lambda: seen == [b"2"] and convoy.counts().waiting == 1)
        convoy.stop()
        release.set()
        await task
    assert seen == [b"2", b"0"]
    async with Worker(address, topic) as worker:
        async for delivery in worker:
            assert (delivery.value, delivery.attempt) == (b"1", 1)
            delivery.ack()
            break
