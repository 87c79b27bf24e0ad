"""A consumer is used by one thread or task at a time, and what its callbacks do, or raise, harms nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from logbroker.client import Consumer, Record, TopicPartition, Worker, WorkerDelivery, sync
from logbroker.errors import BrokerUnavailableError, ConcurrentUseError, InvalidRequestError
from tests.client.group_helpers import committed, drain, fill
from tests.client.worker_helpers import create, wait_until
from tests.client.worker_helpers import fill as fill_queue


class CallbackError(Exception):
    pass


class Group:
    """A member with callbacks, asynchronous or not; the asynchronous test drives either."""

    def __init__(self, address: str, group: str, *, blocking: bool, **options: Any) -> None:
        self.blocking = blocking
        self.consumer: Any = (sync.Consumer if blocking else Consumer)(address, group=group, **options)

    async def do(self, method: str, *arguments: Any, **options: Any) -> Any:
        call = getattr(self.consumer, method)
        if self.blocking:
            return await asyncio.to_thread(call, *arguments, **options)
        outcome = call(*arguments, **options)
        return await outcome if asyncio.iscoroutine(outcome) else outcome

    def callback(self, *steps: Callable[[list[TopicPartition]], Any]) -> Callable[[list[TopicPartition]], Any]:
        """Return a callback that takes these steps."""
        if self.blocking:
            return lambda partitions: [step(partitions) for step in steps]

        async def call(partitions: list[TopicPartition]) -> None:
            for step in steps:
                outcome = step(partitions)
                if asyncio.iscoroutine(outcome):
                    await outcome

        return call

    async def finish(self) -> None:
        """Ask for more, where nothing is: so all that was given counts as finished."""
        assert await self.do("poll", timeout_seconds=0) == []

    async def poll_until(self, count: int) -> list[Record]:
        records: list[Record] = []
        async with asyncio.timeout(25):
            while len(records) < count:
                records += await self.do("poll", timeout_seconds=0.2)
        return records


def raising(partitions: list[TopicPartition]) -> None:
    raise CallbackError


both = pytest.mark.parametrize("blocking", [False, True])

# --- two at a time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", ["poll", "loop", "batches", "until_end"])
@pytest.mark.parametrize("first", ["poll", "loop", "batches"])
@pytest.mark.parametrize("group", [False, True])
async def test_a_second_task_that_asks_for_records_is_refused(
    address: str, topic: str, first: str, second: str, group: bool
) -> None:
    await fill(address, topic, 1, 1)

    async def ask(consumer: Consumer, how: str) -> None:
        if how == "poll":
            while True:
                await consumer.poll(timeout_seconds=60)
        source: Any = consumer if how == "loop" else getattr(consumer, how)()
        async for _ in source:
            pass

    async with Consumer(address, group=topic if group else None) as consumer:
        await (consumer.subscribe(topic) if group else consumer.assign(topic))
        assert len(await consumer.poll(timeout_seconds=25)) == 1
        waiting = asyncio.create_task(ask(consumer, first))
        while not consumer._core.fetcher.waiting:
            await asyncio.sleep(0)
        with pytest.raises(ConcurrentUseError, match="another thread or task"):
            await ask(consumer, second)
        # The first one knows nothing of that.
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert await consumer.poll(timeout_seconds=0) == []


REFUSED: dict[str, Callable[[sync.Consumer, TopicPartition], object]] = {
    "poll": lambda consumer, _: consumer.poll(),
    "loop": lambda consumer, _: next(iter(consumer)),
    "until_end": lambda consumer, _: list(consumer.until_end()),
    "batches": lambda consumer, _: next(iter(consumer.batches())),
    "seek": lambda consumer, partition: consumer.seek(partition, 0),
    "seek_to_time": lambda consumer, partition: consumer.seek_to_time(partition, 0),
    "seek_to_beginning": lambda consumer, _: consumer.seek_to_beginning(),
    "seek_to_end": lambda consumer, _: consumer.seek_to_end(),
    "pause": lambda consumer, _: consumer.pause(),
    "resume": lambda consumer, _: consumer.resume(),
    "position": lambda consumer, partition: consumer.position(partition),
    "commit": lambda consumer, _: consumer.commit(),
    "subscribe": lambda consumer, partition: consumer.subscribe(partition.topic),
    "assign": lambda consumer, partition: consumer.assign(partition),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_second_thread_is_refused(address: str, topic: str, what: str) -> None:
    await fill(address, topic, 1, 1)
    group = None if what == "assign" else topic
    with sync.Consumer(address, group=group) as consumer:
        await asyncio.to_thread(consumer.subscribe if group else consumer.assign, topic)
        assert len(await asyncio.to_thread(consumer.poll, timeout_seconds=25)) == 1
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                consumer.poll(timeout_seconds=60)
            except BrokerUnavailableError as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        while not consumer._core.fetcher.waiting:
            await asyncio.sleep(0.001)
        with pytest.raises(ConcurrentUseError, match="another thread or task"):
            await asyncio.to_thread(REFUSED[what], consumer, TopicPartition(topic, 0))
        if group:
            # What says by itself what it means may be said by any thread.
            await asyncio.to_thread(consumer.commit, {TopicPartition(topic, 0): 1})
        assert thread.is_alive()
        await asyncio.to_thread(consumer.close)
        await asyncio.to_thread(thread.join, 25)
        assert [type(error) for error in errors] == [BrokerUnavailableError]


@both
async def test_a_callback_that_asks_for_records_is_refused(address: str, topic: str, blocking: bool) -> None:
    await fill(address, topic, 1, 3)
    member = Group(address, topic, blocking=blocking)
    await member.do("subscribe", topic, on_assigned=member.callback(lambda _: member.consumer.poll()))
    with pytest.raises(ConcurrentUseError, match="callback"):
        await member.poll_until(1)
    await member.do("subscribe", topic, on_assigned=member.callback(lambda _: None))
    assert len(await member.poll_until(3)) == 3
    await member.do("close")


# --- what callbacks do, and raise ------------------------------------------------------------------------------------


@both
async def test_closing_in_on_assigned_closes(address: str, topic: str, blocking: bool) -> None:
    await fill(address, topic, 2, 4)
    told: list[str] = []
    member = Group(address, topic, blocking=blocking)
    await member.do(
        "subscribe",
        topic,
        on_assigned=member.callback(lambda _: member.consumer.close()),
        on_revoked=member.callback(lambda _: told.append("revoked")),
    )
    with pytest.raises(BrokerUnavailableError, match="closed"):
        await member.poll_until(1)
    assert told == ["revoked"]
    # It has said goodbye: another one has all at once.
    async with asyncio.timeout(20):
        async with Consumer(address, group=topic) as other:
            await other.subscribe(topic)
            assert len(await drain(other, 4)) == 4


@both
@pytest.mark.parametrize("in_close", [False, True])
async def test_closing_in_on_revoked_closes(address: str, topic: str, blocking: bool, in_close: bool) -> None:
    """Once, with what is finished committed."""
    await fill(address, topic, 2, 6)
    told: list[list[int]] = []
    member = Group(address, topic, blocking=blocking, auto_commit_interval_seconds=1000)
    await member.do(
        "subscribe",
        topic,
        on_revoked=member.callback(
            lambda partitions: told.append(sorted(number for _, number in partitions)),
            lambda _: member.consumer.close(),
        ),
    )
    await member.poll_until(6)
    if in_close:
        await member.finish()
        await member.do("close")
    else:
        async with Consumer(address, group=topic) as other:
            await other.subscribe(topic)
            with pytest.raises(BrokerUnavailableError, match="closed"):
                await member.poll_until(1)
    assert sorted(number for numbers in told for number in numbers) == [0, 1]
    assert await committed(address, topic) == {0: 3, 1: 3}


@both
async def test_an_on_revoked_that_raises_in_close_skips_nothing(address: str, topic: str, blocking: bool) -> None:
    await fill(address, topic, 1, 5)
    member = Group(address, topic, blocking=blocking, auto_commit_interval_seconds=1000, session_timeout_seconds=60)
    await member.do("subscribe", topic, on_revoked=member.callback(raising))
    await member.poll_until(5)
    await member.finish()
    with pytest.raises(CallbackError):
        await member.do("close")
    assert await committed(address, topic) == {0: 5}
    await member.do("close")
    # The goodbye was said: the partition is free at once.
    async with asyncio.timeout(20), Consumer(address, group=topic) as other:
        await other.subscribe(topic)
        while not other.assignment():
            assert await other.poll(timeout_seconds=0.1) == []


@both
async def test_an_on_assigned_that_raised_is_repeated_before_anything_is_delivered(
    address: str, topic: str, blocking: bool
) -> None:
    await fill(address, topic, 2, 10)
    told: list[list[int]] = []
    member = Group(address, topic, blocking=blocking)

    def fail_twice(partitions: list[TopicPartition]) -> None:
        told.append(sorted(number for _, number in partitions))
        if len(told) < 3:
            raise CallbackError

    def seek(partitions: list[TopicPartition]) -> Any:
        outcomes = [member.consumer.seek(partition, 3) for partition in partitions]

        async def all_of_them() -> None:
            await asyncio.gather(*outcomes)

        return None if member.blocking else all_of_them()

    await member.do("subscribe", topic, on_assigned=member.callback(fail_twice, seek))
    for _ in range(2):
        with pytest.raises(CallbackError):
            await member.poll_until(1)
    records = await member.poll_until(4)
    assert sorted((record.partition, record.offset) for record in records) == [(0, 3), (0, 4), (1, 3), (1, 4)]
    assert told == [[0, 1]] * 3
    await member.do("close")


@both
async def test_an_on_revoked_that_raised_is_repeated_before_the_partitions_go(
    address: str, topic: str, blocking: bool
) -> None:
    await fill(address, topic, 2, 4)
    told: list[int] = []
    member = Group(address, topic, blocking=blocking)

    def fail_once(partitions: list[TopicPartition]) -> None:
        told.append(len(partitions))
        if len(told) == 1:
            raise CallbackError

    await member.do("subscribe", topic, on_revoked=member.callback(fail_once))
    await member.poll_until(4)
    async with Consumer(address, group=topic) as other:
        await other.subscribe(topic)
        with pytest.raises(CallbackError):
            await member.poll_until(1)
        assert len(member.consumer.assignment()) == 2
        async with asyncio.timeout(25):
            while not other.assignment():
                await member.do("poll", timeout_seconds=0.05)
                await other.poll(timeout_seconds=0.05)
        assert told == [1, 1]
    await member.do("close")


@both
async def test_callbacks_may_commit_subscribe_pause_and_seek(address: str, topic: str, blocking: bool) -> None:
    await fill(address, topic, 1, 4)
    consumer_of: list[Any] = []

    def use(partitions: list[TopicPartition]) -> Any:
        consumer = consumer_of[0]
        consumer.pause(*partitions)
        outcomes = [consumer.seek(partitions[0], 2), consumer.commit(), consumer.subscribe(topic)]
        consumer.resume(*partitions)

        async def all_of_them() -> None:
            for outcome in outcomes:
                await outcome

        return None if blocking else all_of_them()

    member = Group(address, topic, blocking=blocking)
    consumer_of.append(member.consumer)
    await member.do("subscribe", topic, on_assigned=member.callback(use))
    assert [record.offset for record in await member.poll_until(2)] == [2, 3]
    await member.finish()
    await member.do("close")
    assert await committed(address, topic) == {0: 4}


# --- subscriptions that are refused ----------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("bad", [{"pattern": "(["}, {"pattern": "a" * 2000}, {"bands": ["no band!"]}])
async def test_a_subscription_that_is_refused_leaves_the_member_what_it_has(
    address: str, topic: str, blocking: bool, bad: dict[str, Any]
) -> None:
    await fill(address, topic, 1, 4)
    told: list[str] = []
    member = Group(address, topic, blocking=blocking)
    on_lost = member.callback(lambda _: told.append("lost"))
    with pytest.raises(InvalidRequestError):
        await member.do("subscribe", topic, **bad)  # The first one: it is no member.
    await member.do("subscribe", topic, on_lost=on_lost, on_revoked=on_lost)
    assert len(await member.poll_until(4)) == 4
    with pytest.raises(InvalidRequestError):
        await member.do("subscribe", topic, on_assigned=member.callback(raising), **bad)
    await fill(address, f"{topic}-more", 1, 3)
    await member.finish()
    assert told == []
    await member.do("subscribe", topic, f"{topic}-more")
    assert len(await member.poll_until(3)) == 3
    assert told == []
    await member.do("close")


# --- workers ---------------------------------------------------------------------------------------------------------


@both
async def test_a_handler_may_stop_and_close_its_worker(address: str, topic: str, blocking: bool) -> None:
    """The records in its hands go to others at once."""
    await create(address, topic, lease_seconds=600)
    await fill_queue(address, topic, 20)
    seen: list[bytes | None] = []
    if blocking:
        blocking_worker = sync.Worker(address, topic)

        def handle_blocking(delivery: sync.WorkerDelivery) -> None:
            seen.append(delivery.value)
            if len(seen) == 3:
                blocking_worker.close()

        await asyncio.to_thread(blocking_worker.run, handle_blocking, concurrency=2)
    else:
        worker = Worker(address, topic)

        async def handle(delivery: WorkerDelivery) -> None:
            seen.append(delivery.value)
            if len(seen) == 3:
                await worker.close()

        async with asyncio.timeout(25):
            await worker.run(handle, concurrency=2)
    assert len(seen) >= 3
    await wait_until(address, topic, lambda queue: queue.counts.in_flight == 0)
