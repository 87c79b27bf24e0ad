"""Handlers of workers that end in ways of their own: cancelled inside, never awaited, without patience."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from logbroker.client import Admin, Consumer, Producer, Session, Worker, WorkerDelivery, sync
from logbroker.errors import InvalidRequestError, SerializationError
from tests.client.worker_helpers import create, describe, fill


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    """An error whose attributes cannot be set."""

    code: int = 3


LEAVES = [StopIteration, StopAsyncIteration, FrozenError]
"""Errors that once were taken for something else on their way, or were replaced by another."""


def kept(error: type[Exception]) -> type[Exception]:
    """Return the class of the error that the program gets."""
    return error if error is FrozenError else RuntimeError


async def let_out_a_cancellation() -> None:
    inner = asyncio.ensure_future(asyncio.Event().wait())
    inner.cancel()
    await inner


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_cancellation_that_a_handler_lets_out_is_its_failure(
    address: str, topic: str, concurrency: int
) -> None:
    """The record is nacked, and the next one is taken: nobody has cancelled the worker."""
    await create(address, topic, backoff_initial_seconds=0.01, max_attempts=3)
    await fill(address, topic, 20)
    calls = done = 0

    async def handle(delivery: WorkerDelivery) -> None:
        nonlocal calls, done
        calls += 1
        if delivery.attempt == 1:
            await let_out_a_cancellation()
        done += 1
        if done == 20:
            worker.stop()

    async with Worker(address, topic) as worker:
        async with asyncio.timeout(30):
            await worker.run(handle, concurrency=concurrency)
        await worker.flush()
    assert (calls, done) == (40, 20)
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked) == (20, 20)


async def test_one_that_is_cancelled_still_ends_and_gives_back(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 5)
    began = asyncio.Event()

    async def handle(delivery: WorkerDelivery) -> None:
        began.set()
        await asyncio.Event().wait()

    async def run(worker: Worker) -> asyncio.CancelledError:
        with pytest.raises(asyncio.CancelledError) as caught:
            await worker.run(handle)
        return caught.value

    async with Worker(address, topic) as worker:
        running = asyncio.create_task(run(worker))
        await began.wait()
        for _ in range(2):  # anyio cancels at each turn, and knows what comes out by its message.
            running.cancel("this very scope")
            await asyncio.sleep(0)
        assert (await running).args == ("this very scope",)
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked, counts.in_flight) == (0, 0, 0)


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_cancellation_that_a_handler_of_sessions_lets_out_is_its_failure(
    address: str, topic: str, concurrency: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The record is nacked, and the next session follows: nobody has cancelled the worker."""
    await create(address, topic, backoff_initial_seconds=0.01)
    await fill(address, topic, 20)
    calls = done = 0

    async def handle(session: Session) -> None:
        nonlocal calls, done
        calls += 1
        if calls == 1:
            await let_out_a_cancellation()
        async for delivery in session:
            async with delivery:
                done += 1
            if done == 20:
                worker.stop()

    async with Worker(address, topic) as worker, asyncio.timeout(30):
        await worker.sessions(handle, concurrency=concurrency, idle_seconds=0)
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked) == (20, 1)
    assert "RuntimeError: the handler let a CancelledError out" in caplog.text


@pytest.mark.parametrize("in_threads", [False, True], ids=["async", "sync"])
async def test_a_session_without_patience_hands_out_what_it_was_opened_for(
    address: str, topic: str, in_threads: bool
) -> None:
    """Its first record is on the way when it is opened: one that ended before it came would be opened for ever."""
    await create(address, topic)
    await fill(address, topic, 20, keys=4)
    seen: list[int] = []
    sessions = 0

    def taken(worker: Worker | sync.Worker, value: bytes | None) -> None:
        seen.append(int(value or b""))
        if len(seen) == 20:
            worker.stop()

    def work_in_threads() -> None:
        with sync.Worker(address, topic) as worker:

            def handle(session: sync.Session) -> None:
                nonlocal sessions
                sessions += 1
                for delivery in session:
                    with delivery:
                        taken(worker, delivery.value)

            worker.sessions(handle, idle_seconds=0)

    async def work() -> None:
        async with Worker(address, topic) as worker:

            async def handle(session: Session) -> None:
                nonlocal sessions
                sessions += 1
                async for delivery in session:
                    async with delivery:
                        taken(worker, delivery.value)

            await worker.sessions(handle, idle_seconds=0)

    async with asyncio.timeout(30):
        await (asyncio.to_thread(work_in_threads) if in_threads else work())
    assert sorted(seen) == list(range(20))
    assert sessions <= 20


@pytest.mark.parametrize("in_threads", [False, True], ids=["async", "sync"])
async def test_one_session_without_patience_hands_out_what_is_there_too(
    address: str, topic: str, in_threads: bool
) -> None:
    await create(address, topic)
    await fill(address, topic, 3, keys=1)
    counts: list[int] = []

    def work_in_threads() -> None:
        with sync.Worker(address, topic) as worker:
            for key in (b"k0", b"none"):
                with worker.session(key, prefetch=3, idle_seconds=0) as session:
                    counts.append(len([delivery.ack() for delivery in session]))

    async def work() -> None:
        async with Worker(address, topic) as worker:
            for key in (b"k0", b"none"):
                async with worker.session(key, prefetch=3, idle_seconds=0) as session:
                    counts.append(len([delivery.ack() async for delivery in session]))

    async with asyncio.timeout(30):
        await (asyncio.to_thread(work_in_threads) if in_threads else work())
    # How many come in one message is the broker's business.
    assert counts[0] >= 1
    assert counts[1] == 0


@pytest.mark.parametrize("idle_seconds", [-1, float("inf")])
async def test_a_patience_without_sense_is_refused(address: str, idle_seconds: float) -> None:
    for worker in (Worker(address, "none"), sync.Worker(address, "none")):
        with pytest.raises(InvalidRequestError, match="idle_seconds"):
            worker.session(idle_seconds=idle_seconds)
    with pytest.raises(InvalidRequestError, match="idle_seconds"):
        await Worker(address, "none").sessions(nothing, idle_seconds=idle_seconds)
    with pytest.raises(InvalidRequestError, match="idle_seconds"):
        await asyncio.to_thread(sync.Worker(address, "none").sessions, print, idle_seconds=idle_seconds)


async def nothing(delivery: Any) -> None:
    raise AssertionError


class Callee:
    async def __call__(self, delivery: Any) -> None:
        raise AssertionError


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("handler", [nothing, functools.partial(nothing)], ids=["function", "partial"])
async def test_a_worker_of_threads_refuses_an_async_handler(
    address: str, topic: str, handler: Callable[[Any], Any]
) -> None:
    await create(address, topic)
    await fill(address, topic, 3)

    def work() -> None:
        with sync.Worker(address, topic) as worker:
            with pytest.raises(InvalidRequestError, match="async"):
                worker.run(handler)
            with pytest.raises(InvalidRequestError, match="async"):
                worker.sessions(handler)

    await asyncio.to_thread(work)
    assert not (await describe(address, topic)).counts.acked


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("handler", [Callee(), lambda delivery: nothing(delivery)], ids=["object", "lambda"])
async def test_what_would_have_to_be_awaited_is_not_acked(
    address: str, topic: str, handler: Callable[[Any], Any]
) -> None:
    """Nothing was done with the record yet."""
    await create(address, topic)
    await fill(address, topic, 8, keys=8)

    def work() -> None:
        with sync.Worker(address, topic) as worker:

            def handle(delivery: sync.WorkerDelivery) -> object:
                worker.stop()
                return handler(delivery)

            worker.run(handle)
            worker.flush()
        sessions = 0
        with sync.Worker(address, topic) as worker:

            def handle_session(session: sync.Session) -> object:
                nonlocal sessions
                sessions += 1
                if sessions == 1:
                    return handler(session)
                worker.stop()
                return None

            worker.sessions(handle_session)

    async with asyncio.timeout(30):
        await asyncio.to_thread(work)
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked) == (0, 2)


# --- what handlers do to the task that calls them --------------------------------------------------------------------


async def test_a_cancellation_that_comes_late_ends_no_slot(address: str, topic: str) -> None:
    """A handler's own deadline may cancel the task that it ran in when that is at another record, or waits for one."""
    await create(address, topic, backoff_initial_seconds=0.01)
    await fill(address, topic, 3, keys=3)
    slots: set[asyncio.Task[Any] | None] = set()
    values: list[bytes | None] = []

    async def handle(delivery: WorkerDelivery) -> None:
        slots.add(asyncio.current_task())
        values.append(delivery.value)

    async with Worker(address, topic) as worker, asyncio.timeout(30):
        running = asyncio.create_task(worker.run(handle))
        while len(values) < 3:
            await asyncio.sleep(0.01)
        for count in (3, 4):
            # It waits for a record.
            for slot in slots:
                assert slot is not None
                slot.cancel()
            await fill(address, topic, 1, first=count)
            while len(values) <= count:
                assert not running.done()
                await asyncio.sleep(0.01)
        worker.stop()
        await running
    assert {*values} == {b"%d" % number for number in range(5)}


async def test_a_cancellation_by_one_handler_fails_no_other(address: str, topic: str) -> None:
    """The next record is at hand: its handler would be the first to hear of it."""
    await create(address, topic)
    await fill(address, topic, 5, keys=5)
    values: list[bytes | None] = []

    async def handle(delivery: WorkerDelivery) -> None:
        values.append(delivery.value)
        if len(values) == 5:
            worker.stop()
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        task.cancel()

    async with Worker(address, topic, prefetch=5) as worker, asyncio.timeout(30):
        await worker.run(handle)
    assert len(values) == len(set(values)) == 5
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked) == (5, 0)


async def test_a_cancellation_by_a_handler_of_a_session_fails_nothing(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 3, keys=3)
    keys: list[bytes] = []

    async def handle(session: Session) -> None:
        async for delivery in session:
            delivery.ack()
            break
        keys.append(session.key)
        if len(keys) == 3:
            worker.stop()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async with Worker(address, topic) as worker, asyncio.timeout(30):
        await worker.sessions(handle)
    assert len(set(keys)) == 3
    assert (await describe(address, topic)).counts.acked == 3


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_a_run_that_is_cancelled_ends_though_its_handlers_pass_over_that(
    address: str, topic: str, concurrency: int
) -> None:
    await create(address, topic)
    await fill(address, topic, 20, keys=20)
    began = asyncio.Event()
    calls = 0

    async def handle(delivery: WorkerDelivery) -> None:
        nonlocal calls
        calls += 1
        if calls == concurrency:
            began.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async with Worker(address, topic) as worker, asyncio.timeout(30):
        running = asyncio.create_task(worker.run(handle, concurrency=concurrency))
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert calls == concurrency
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked, counts.in_flight) == (concurrency, 0, 0)


async def test_who_cancels_all_tasks_ends_a_run_and_fails_nothing(address: str, topic: str) -> None:
    """As the end of `asyncio.run` does, in whichever order: no record is to count an attempt for that."""
    await create(address, topic)
    await fill(address, topic, 4, keys=4)
    began = asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    async def handle(delivery: WorkerDelivery) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        if len(tasks) == 2:
            began.set()
        await asyncio.Event().wait()

    async with Worker(address, topic) as worker, asyncio.timeout(30):
        running = asyncio.create_task(worker.run(handle, concurrency=2))
        await began.wait()
        for task in (*tasks, running):
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked, counts.in_flight) == (0, 0, 0)


async def test_a_block_of_a_delivery_counts_a_cancellation_of_something_else_as_a_failure(
    address: str, topic: str
) -> None:
    """Given back, it would come again at once, and for ever."""
    await create(address, topic, backoff_initial_seconds=0)
    await fill(address, topic, 1)
    attempts = []
    async with Worker(address, topic) as worker, asyncio.timeout(30):
        async for delivery in worker:
            attempts.append(delivery.attempt)
            if len(attempts) == 3:
                break
            with pytest.raises(asyncio.CancelledError):
                async with delivery:
                    await let_out_a_cancellation()
    assert attempts == [1, 2, 3]


class EndsItAllError(BaseException):
    pass


@pytest.mark.parametrize("raised", [GeneratorExit, EndsItAllError])
@pytest.mark.parametrize("in_threads", [False, True], ids=["async", "sync"])
async def test_what_is_no_failure_ends_a_run_aloud_and_gives_its_record_back(
    address: str, topic: str, in_threads: bool, raised: type[BaseException]
) -> None:
    await create(address, topic)
    await fill(address, topic, 3)

    def handle(delivery: Any) -> None:
        raise raised

    async with asyncio.timeout(30):
        if in_threads:
            with sync.Worker(address, topic) as blocking, pytest.raises(raised):
                await asyncio.to_thread(blocking.run, handle)
            with sync.Worker(address, topic) as blocking:
                assert (await asyncio.to_thread(next, iter(blocking))).attempt == 1
        else:
            async with Worker(address, topic) as worker:
                with pytest.raises(raised):
                    await worker.run(handle)
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked) == (0, 0)


async def test_a_handler_in_a_thread_may_let_a_cancellation_out_too(address: str, topic: str) -> None:
    """The cancellation of a coroutine that the handler runs is a failure, in `run` and in a block of the delivery."""
    await create(address, topic, backoff_initial_seconds=0)
    await fill(address, topic, 1)
    attempts = []

    def handle(delivery: sync.WorkerDelivery) -> None:
        attempts.append(delivery.attempt)
        if len(attempts) == 1:
            asyncio.run(let_out_a_cancellation())
        elif len(attempts) == 2:
            with delivery:
                asyncio.run(let_out_a_cancellation())
        else:
            worker.stop()

    with sync.Worker(address, topic) as worker:
        async with asyncio.timeout(30):
            await asyncio.to_thread(worker.run, handle)
    assert attempts == [1, 2, 3]


@pytest.mark.parametrize("error", LEAVES)
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("in_threads", [False, True], ids=["async", "sync"])
async def test_an_error_that_would_end_an_iteration_is_the_failure_of_its_handler(
    address: str, topic: str, in_threads: bool, is_async: bool, error: type[Exception]
) -> None:
    await create(address, topic, backoff_initial_seconds=0.01)
    await fill(address, topic, 3)
    attempts = []

    def handle(delivery: Any) -> None:
        attempts.append(delivery.attempt)
        if len(attempts) == 4:
            worker.stop()
        if delivery.attempt == 1 and delivery.value == b"0":
            raise error

    async def handle_async(delivery: WorkerDelivery) -> None:
        handle(delivery)

    worker: Any = (sync.Worker if in_threads else Worker)(address, topic)
    async with asyncio.timeout(30):
        if in_threads:
            await asyncio.to_thread(worker.run, handle)
            await asyncio.to_thread(worker.close)
        else:
            await worker.run(handle_async if is_async else handle)
            await worker.close()
    assert sorted(attempts) == [1, 1, 1, 2]
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked) == (3, 1)


@pytest.mark.parametrize("error", LEAVES)
@pytest.mark.parametrize("in_threads", [False, True], ids=["async", "sync"])
async def test_an_error_that_would_end_an_iteration_is_the_failure_of_its_handler_of_sessions(
    address: str, topic: str, in_threads: bool, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    await create(address, topic, backoff_initial_seconds=0.01)
    await fill(address, topic, 1)
    calls = 0

    def handle(session: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise error
        worker.stop()

    async def handle_async(session: Session) -> None:
        handle(session)

    worker: Any = (sync.Worker if in_threads else Worker)(address, topic)
    async with asyncio.timeout(30):
        await (asyncio.to_thread(worker.sessions, handle) if in_threads else worker.sessions(handle_async))
        await (asyncio.to_thread(worker.close) if in_threads else worker.close())
    assert (await describe(address, topic)).counts.nacked == 1
    [failure] = [logged.exc_info[1] for logged in caplog.records if logged.exc_info]
    assert isinstance(failure, kept(error))
    assert error.__name__ in repr(failure)


@pytest.mark.parametrize("error", LEAVES)
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("in_threads", [False, True], ids=["async", "sync"])
async def test_an_error_of_a_rebalance_callback_arrives_as_it_is_or_as_another(
    address: str, topic: str, in_threads: bool, is_async: bool, error: type[Exception]
) -> None:
    """In `poll`, in a loop, and when the consumer is closed."""
    async with Admin(address) as admin:
        await admin.create_topic(topic, 1)
    await fill(address, topic, 4)

    def fail(partitions: Any) -> None:
        raise error

    async def fail_async(partitions: Any) -> None:
        raise error

    def read(consumer: sync.Consumer, fails: Callable[[Any], Any]) -> None:
        consumer.subscribe(topic, on_assigned=fails, on_revoked=fails)
        with pytest.raises(kept(error)):
            consumer.poll(timeout_seconds=20)
        with pytest.raises(kept(error)):
            next(iter(consumer))
        with pytest.raises(kept(error)):
            for _ in consumer.batches():
                pass
        with pytest.raises(kept(error)):
            consumer.close()

    if in_threads:
        await asyncio.to_thread(read, sync.Consumer(address, group=f"{topic}-group"), fail)
        return
    async with asyncio.timeout(30):
        other, fails = Consumer(address, group=f"{topic}-group"), fail_async if is_async else fail
        await other.subscribe(topic, on_assigned=fails, on_revoked=fails)
        with pytest.raises(kept(error)):
            await other.poll(timeout_seconds=20)
        with pytest.raises(kept(error)):
            async for _ in other:
                pass
        with pytest.raises(kept(error)):
            async for _ in other.batches():
                pass
        with pytest.raises(kept(error)):
            await other.close()


# --- functions that do nothing when they are called -------------------------------------------------------------------


def generates(argument: Any) -> Any:
    yield argument


async def generates_late(argument: Any) -> Any:
    yield argument


class GeneratorCallee:
    def __call__(self, argument: Any) -> Any:
        yield argument


IDLE = [nothing, functools.partial(nothing), Callee(), generates, generates_late, GeneratorCallee()]
IDLE_NAMES = ["async", "partial", "object", "generator", "async generator", "generator object"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("function", IDLE, ids=IDLE_NAMES)
async def test_functions_that_do_nothing_when_called_are_refused_wherever_they_are_called(
    address: str, topic: str, function: Callable[[Any], Any]
) -> None:
    await create(address, topic)
    await fill(address, topic, 1)
    is_async = IDLE.index(function) < 3
    with sync.Worker(address, topic) as worker, sync.Consumer(address, group=f"{topic}-c") as consumer:
        calls: list[Callable[[], Any]] = [
            lambda: worker.run(function),
            lambda: worker.sessions(function),
            lambda: consumer.subscribe(topic, on_assigned=function),
            lambda: consumer.subscribe(topic, on_revoked=function),
            lambda: consumer.subscribe(topic, on_lost=function),
        ]
        for call in calls:
            with pytest.raises(InvalidRequestError, match="function"):
                await asyncio.to_thread(call)
        assert not consumer._core.subscribed
    with sync.Producer(address) as producer:
        delivery = await asyncio.to_thread(producer.send, topic, b"1")
        with pytest.raises(InvalidRequestError, match="function"):
            delivery.add_done_callback(function)
    if is_async:
        with pytest.raises(InvalidRequestError, match="function"):
            sync.Producer(address, value_serializer=function)
    else:
        async with Worker(address, topic) as other:
            for handle in (other.run, other.sessions):
                with pytest.raises(InvalidRequestError, match="function"):
                    await handle(function)
        async with Consumer(address, group=f"{topic}-c") as other_consumer:
            with pytest.raises(InvalidRequestError, match="function"):
                await other_consumer.subscribe(topic, on_assigned=function)
    assert not (await describe(address, topic)).counts.acked


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("function", IDLE, ids=IDLE_NAMES)
async def test_what_an_async_handler_returns_and_did_not_begin_is_not_acked(
    address: str, topic: str, function: Callable[[Any], Any]
) -> None:
    await create(address, topic)
    await fill(address, topic, 1)

    async def handle(delivery: WorkerDelivery) -> object:
        worker.stop()
        return function(delivery)

    async with Worker(address, topic) as worker, asyncio.timeout(30):
        await worker.run(handle)
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked) == (0, 1)


async def test_an_async_handler_may_return_what_it_settled(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 1)

    async def handle(delivery: WorkerDelivery) -> object:
        worker.stop()
        return delivery.ack()

    async with Worker(address, topic) as worker, asyncio.timeout(30):
        await worker.run(handle)
    assert (await describe(address, topic)).counts.acked == 1


# --- callbacks --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("how", ["cancelled", "not begun"])
@pytest.mark.parametrize("in_threads", [False, True], ids=["async", "sync"])
async def test_a_callback_of_a_member_that_ends_oddly_has_failed(
    address: str, topic: str, in_threads: bool, how: str
) -> None:
    """It raises an error that looks like no cancellation, is called again, and skips no commit at the end."""
    async with Admin(address) as admin:
        await admin.create_topic(topic, 1)
    await fill(address, topic, 4)
    told: list[str] = []
    expected = RuntimeError if how == "cancelled" else InvalidRequestError

    async def unbegun() -> object:
        return nothing(None)

    def callback(name: str, failures: int) -> Callable[[Any], Any]:
        def call(partitions: Any) -> Any:
            told.append(name)
            if told.count(name) > failures:
                return None
            if how == "cancelled":
                return asyncio.run(let_out_a_cancellation()) if in_threads else let_out_a_cancellation()
            return nothing(None) if in_threads else unbegun()

        return call

    consumer: Any = (sync.Consumer if in_threads else Consumer)(address, group=f"{topic}-group")

    async def do(method: str, *arguments: Any, **options: Any) -> Any:
        call = getattr(consumer, method)
        return await (asyncio.to_thread(call, *arguments, **options) if in_threads else call(*arguments, **options))

    records: list[Any] = []

    async def poll(count: int) -> None:
        while len(records) < count:
            records.extend(await do("poll", timeout_seconds=5))

    async with asyncio.timeout(30):
        await do("subscribe", topic, on_assigned=callback("assigned", 2), on_revoked=callback("revoked", 1))
        for _ in range(2):
            with pytest.raises(expected):
                await poll(1)
        await poll(4)
        assert await do("poll", timeout_seconds=0) == []
        with pytest.raises(expected):
            await do("close")
    assert told == ["assigned"] * 3 + ["revoked"]
    async with Admin(address) as admin:
        offsets = await admin.fetch_offsets(f"{topic}-group")
    assert [committed.offset for committed in offsets.values()] == [4]


async def test_a_cancelled_poll_whose_callback_runs_is_cancelled(address: str, topic: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, 1)
    began = asyncio.Event()

    async def wait(partitions: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(30), Consumer(address, group=f"{topic}-group") as consumer:
        await consumer.subscribe(topic, on_assigned=wait)
        polling = asyncio.create_task(consumer.poll(timeout_seconds=30))
        await began.wait()
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("in_threads", [False, True], ids=["async", "sync"])
async def test_a_callback_of_a_delivery_that_ends_oddly_is_logged(
    address: str, topic: str, in_threads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, 1)
    called = [threading.Event() for _ in range(3)]

    def let_out(delivery: Any) -> None:
        called[0].set()
        raise asyncio.CancelledError

    def not_begun(delivery: Any) -> object:
        called[1].set()
        return nothing(delivery)

    producer: Any = (sync.Producer if in_threads else Producer)(address, linger_ms=20)
    sending = producer.send
    delivery = await (asyncio.to_thread(sending, topic, b"1") if in_threads else sending(topic, b"1"))
    for callback in (let_out, not_begun, lambda _: called[2].set()):
        delivery.add_done_callback(callback)
    for event in called:
        assert await asyncio.to_thread(event.wait, 20)
    # It is done: they are called at once.
    for callback in (let_out, not_begun):
        delivery.add_done_callback(callback)
    await (asyncio.to_thread(producer.close) if in_threads else producer.close())
    assert [record.message for record in caplog.records].count("a callback of a delivery failed") == 4


@pytest.mark.filterwarnings("error")
async def test_a_serializer_that_makes_a_coroutine_is_told_so(address: str) -> None:
    serializer: Any = lambda value: nothing(value)  # noqa: E731
    async with Producer(address, value_serializer=serializer) as producer:
        with pytest.raises(SerializationError, match="returned coroutine"):
            await producer.send("none", b"1")
