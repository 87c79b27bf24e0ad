"""Handlers of workers that end in ways of their own: cancelled inside, never awaited, without patience."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

from logbroker.client import Session, Worker, WorkerDelivery, sync
from logbroker.errors import InvalidRequestError
from tests.client.worker_helpers import create, describe, fill


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

    async with Worker(address, topic) as worker:
        running = asyncio.create_task(worker.run(handle))
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked, counts.in_flight) == (0, 0, 0)


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_sessions_raise_what_a_handler_let_out(address: str, topic: str, concurrency: int) -> None:
    """In words that do not look as if the caller was cancelled, which a task group passes over."""
    await create(address, topic)
    await fill(address, topic, 20)

    async def handle(session: Session) -> None:
        await let_out_a_cancellation()

    async with Worker(address, topic) as worker, asyncio.timeout(30):
        with pytest.raises(RuntimeError, match="CancelledError"):
            await worker.sessions(handle, concurrency=concurrency)


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
        with sync.Worker(address, topic) as worker, pytest.raises(InvalidRequestError, match="async"):
            worker.sessions(lambda session: handler(session))

    async with asyncio.timeout(30):
        await asyncio.to_thread(work)
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked) == (0, 1)
