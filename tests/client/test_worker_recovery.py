"""Workers whose connection breaks or whose broker goes away: what they keep, lose and say again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from logbroker.client import Producer, Session, Worker, WorkerDelivery, sync
from logbroker.client.worker import worker_core
from logbroker.client.worker.held_session import HeldSession
from logbroker.client.worker.session_calls import SessionCalls
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import (
    BrokerUnavailableError,
    DiskFullError,
    InvalidRequestError,
    LeaseLostError,
    LogbrokerError,
    OverloadedError,
    RequestTimeoutError,
    StaleSessionError,
)
from tests.client.worker_helpers import Wire, create, describe, fill, in_order, numbers, take, wait_until, wire

Restart = Callable[[EmbeddedBroker], None]


def restart_cleanly(broker: EmbeddedBroker) -> None:
    broker.restart()


def kill_and_start(broker: EmbeddedBroker) -> None:
    broker.kill()
    broker.start()


async def test_a_broken_connection_costs_nothing_within_the_grace(address: str, topic: str) -> None:
    await create(address, topic, grace_seconds=10)
    await fill(address, topic, 20, keys=20)
    async with wire(address) as way, Worker(way.address, topic) as worker:
        taken = await take(worker, 5)
        taken[0].ack()
        way.cut()
        taken[1].ack()
        await asyncio.gather(taken[0], taken[1])
        await take(worker, 15)
        for delivery in taken[2:]:
            await delivery.ack()
        counts = (await describe(address, topic)).counts
        assert (counts.acked, counts.nacked, counts.leases_lost) == (5, 0, 0)


async def test_an_ack_whose_answer_was_lost_is_no_failure(address: str, topic: str) -> None:
    await create(address, topic, grace_seconds=10)
    await fill(address, topic, 5, keys=5)
    async with wire(address) as way, Worker(way.address, topic) as worker:
        taken = await take(worker, 5)
        way.stall_answers()
        for delivery in taken:
            delivery.ack()
        await wait_until(address, topic, lambda queue: queue.counts.acked == 5)
        assert not any(delivery.settlement.answered for delivery in taken if delivery.settlement is not None)
        way.cut()
        await worker.flush()
        for delivery in taken:
            await delivery


async def test_deliveries_that_were_on_their_way_come_again(address: str, topic: str) -> None:
    await create(address, topic, grace_seconds=10)
    async with wire(address) as way, Worker(way.address, topic) as worker:
        waiting = asyncio.create_task(take(worker, 20))
        await wait_until(address, topic, lambda queue: any(one.credit for one in queue.workers))
        way.stall_answers()
        await fill(address, topic, 20, keys=20)
        await wait_until(address, topic, lambda queue: queue.counts.in_flight == 20)
        way.cut()
        taken = await waiting
        assert sorted(numbers(taken)) == list(range(20))
        assert {delivery.attempt for delivery in taken} == {1}


async def test_who_is_away_for_longer_than_the_grace_has_lost_what_it_held(address: str, topic: str) -> None:
    await create(address, topic, grace_seconds=0.2, backoff_initial_seconds=0)
    await fill(address, topic, 3, keys=1)
    async with wire(address) as way, Worker(way.address, topic) as worker:
        (delivery,) = await take(worker, 1)
        way.take_down()
        await wait_until(address, topic, lambda queue: not queue.counts.in_flight)
        delivery.ack()
        way.bring_up()
        with pytest.raises(LeaseLostError):
            await delivery
        (again,) = await take(worker, 1)
        assert (again.value, again.attempt) == (b"0", 2)


async def test_what_a_handler_lost_is_logged_and_not_raised_at_the_end(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A service that worked on after a crash of the broker has not failed when somebody stops it."""
    await create(address, topic, grace_seconds=0.2, backoff_initial_seconds=0)
    await fill(address, topic, 1)
    async with wire(address) as way, Worker(way.address, topic) as worker:

        async def handle(delivery: WorkerDelivery) -> None:
            if delivery.attempt == 2:
                worker.stop()
                return
            way.take_down()
            await wait_until(address, topic, lambda queue: not queue.counts.in_flight)
            delivery.ack()
            way.bring_up()

        await worker.run(handle)
    assert "1 deliveries of topic" in caplog.text


@pytest.mark.prove
@pytest.mark.parametrize("restart", [restart_cleanly, kill_and_start])
async def test_work_goes_on_over_a_restart(logbroker_broker: EmbeddedBroker, topic: str, restart: Restart) -> None:
    """Records in hand stay in hand; answered ones never come again; each key keeps its order."""
    address = logbroker_broker.address
    await create(address, topic)
    await fill(address, topic, 2000)
    seen: list[int] = []
    answered: set[int] = set()
    in_doubt: set[int] = set()
    restarted = asyncio.Event()

    async def handle(delivery: WorkerDelivery) -> None:
        number = int(delivery.value or b"")
        assert number not in answered, "an answered ack was forgotten"
        seen.append(number)
        if number < 8:
            # These are in hand when the broker goes.
            await restarted.wait()
        try:
            await delivery.ack()
            answered.add(number)
        except LeaseLostError:
            in_doubt.add(number)
        if len(answered | in_doubt) == 2000:
            worker.stop()

    async with Worker(address, topic, prefetch=50) as worker:
        async with asyncio.timeout(40):
            running = asyncio.create_task(worker.run(handle, concurrency=20))
            while len(answered) < 100:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(restart, logbroker_broker)
            restarted.set()
            await running
    again = {number for number, times in Counter(seen).items() if times > 1}
    assert again <= in_doubt, "what was in hand came again"
    assert len(in_doubt) <= 20
    assert not in_doubt & set(range(8)), "what was worked on over the restart was lost"
    assert (await describe(address, topic)).counts.open <= len(in_doubt - again)
    first_seen = list(dict.fromkeys(seen))
    assert in_order(first_seen)


@pytest.mark.prove
async def test_a_worker_that_waits_goes_on_after_a_restart(logbroker_broker: EmbeddedBroker, topic: str) -> None:
    await create(logbroker_broker.address, topic)
    async with Worker(logbroker_broker.address, topic) as worker:
        waiting = asyncio.create_task(take(worker, 1))
        await wait_until(logbroker_broker.address, topic, lambda queue: bool(queue.workers))
        await asyncio.to_thread(logbroker_broker.restart)
        async with Producer(logbroker_broker.address) as producer:
            await producer.send_and_wait(topic, b"0", b"k0")
        assert numbers(await waiting) == [0]


@pytest.mark.prove
@pytest.mark.parametrize("in_threads", [False, True], ids=["async", "sync"])
async def test_one_that_waits_for_sessions_goes_on_after_a_restart(
    logbroker_broker: EmbeddedBroker, topic: str, in_threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the broker is away: it asks again and again meanwhile."""
    asked = refused = 0
    open_session = SessionCalls.open

    async def count(calls: SessionCalls[Any], key: bytes | None, prefetch: int, wait_ms: int) -> HeldSession[Any]:
        nonlocal asked, refused
        asked += 1
        try:
            return await open_session(calls, key, prefetch, wait_ms)
        except BrokerUnavailableError:
            refused += 1
            raise

    monkeypatch.setattr(SessionCalls, "open", count)
    address, seen = logbroker_broker.address, []
    await create(address, topic)

    def work_in_threads() -> None:
        with sync.Worker(address, topic) as worker:

            def handle(session: sync.Session) -> None:
                for delivery in session:
                    with delivery:
                        seen.append(delivery.value)
                    worker.stop()

            worker.sessions(handle, idle_seconds=5)

    async def work() -> None:
        async with Worker(address, topic) as worker:

            async def handle(session: Session) -> None:
                async for delivery in session:
                    async with delivery:
                        seen.append(delivery.value)
                    worker.stop()

            await worker.sessions(handle, idle_seconds=5)

    working = asyncio.create_task(asyncio.to_thread(work_in_threads) if in_threads else work())
    async with asyncio.timeout(30):
        while not asked:  # The broker knows the worker before that has heard so.
            await asyncio.sleep(0.01)
    await asyncio.to_thread(logbroker_broker.kill)
    async with asyncio.timeout(30):
        while refused < 15 and not working.done():
            await asyncio.sleep(0.01)
        assert not working.done(), working.exception()
        await asyncio.to_thread(logbroker_broker.start)
        async with Producer(address) as producer:
            await producer.send_and_wait(topic, b"0", b"k0")
        await working
    assert seen == [b"0"]


async def one_by_one(worker: Worker | sync.Worker, handle: Callable[[Any, Any], object], **options: Any) -> None:
    """Have `handle` called with each session of a worker of either kind, and its deliveries, in their blocks."""
    if isinstance(worker, sync.Worker):

        def take_in_thread(session: sync.Session) -> None:
            for delivery in session:
                with delivery:
                    handle(session, delivery)

        await asyncio.to_thread(worker.sessions, take_in_thread, **options)
    else:

        async def take_each(session: Session) -> None:
            async for delivery in session:
                async with delivery:
                    handle(session, delivery)

        await worker.sessions(take_each, **options)


both = pytest.mark.parametrize("kind", [Worker, sync.Worker], ids=["async", "sync"])


async def end(worker: Worker | sync.Worker) -> None:
    # What became of its last words is not what is asked here.
    with contextlib.suppress(LogbrokerError):
        await (asyncio.to_thread(worker.close) if isinstance(worker, sync.Worker) else worker.close())


@pytest.mark.prove
@both
async def test_a_broker_that_is_silent_is_waited_for_by_sessions(
    logbroker_broker: EmbeddedBroker, topic: str, kind: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection stands: questions are just not answered in time. So does one session, whose wait has no end."""
    monkeypatch.setattr(worker_core, "_LOOK_SECONDS", 0.05, raising=False)
    monkeypatch.setattr(worker_core, "_ASK_SECONDS", 0.05)
    late = 0
    open_session = SessionCalls.open

    async def count(calls: SessionCalls[Any], key: bytes | None, prefetch: int, wait_ms: int) -> HeldSession[Any]:
        nonlocal late
        try:
            return await open_session(calls, key, prefetch, wait_ms)
        except RequestTimeoutError:
            late += 1
            raise

    monkeypatch.setattr(SessionCalls, "open", count)
    address, seen = logbroker_broker.address, []
    await create(address, topic)

    def note(session: Any, delivery: Any) -> None:
        seen.append(delivery.value)
        worker.stop()

    # Long enough for a busy broker to let both in.
    worker, single = (kind(address, topic, request_timeout_seconds=1.5) for _ in range(2))
    async with asyncio.timeout(40):
        working = asyncio.create_task(one_by_one(worker, note, idle_seconds=0))
        one = single.session(b"k1")
        opening = asyncio.create_task(asyncio.to_thread(one.open) if kind is sync.Worker else one.open())
        await wait_until(address, topic, lambda queue: len(queue.workers) == 2)
        os.kill(logbroker_broker.pid, signal.SIGSTOP)
        try:
            while late < 4 and not working.done():
                await asyncio.sleep(0.01)
        finally:
            os.kill(logbroker_broker.pid, signal.SIGCONT)
        await fill(address, topic, 1)
        await working
        await opening
        await asyncio.gather(end(worker), end(single))
    assert seen == [b"0"]


@both
@pytest.mark.parametrize("error", [DiskFullError, OverloadedError, BrokerUnavailableError, LogbrokerError])
async def test_a_broker_that_has_no_room_is_waited_for_by_sessions(
    address: str, topic: str, kind: Callable[..., Any], error: type[LogbrokerError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_core, "_REFUSED_SECONDS", 0.01, raising=False)
    await create(address, topic)
    await fill(address, topic, 1)
    refused = 0
    open_session = SessionCalls.open

    async def refuse(calls: SessionCalls[Any], key: bytes | None, prefetch: int, wait_ms: int) -> HeldSession[Any]:
        nonlocal refused
        refused += 1
        if refused <= 3:
            raise error("not now")
        return await open_session(calls, key, prefetch, wait_ms)

    monkeypatch.setattr(SessionCalls, "open", refuse)
    seen = []

    def note(session: Any, delivery: Any) -> None:
        seen.append(delivery.value)
        worker.stop()

    worker = kind(address, topic)
    async with asyncio.timeout(40):
        await one_by_one(worker, note)
        await end(worker)
    assert (seen, refused) == ([b"0"], 4)


@both
async def test_sessions_that_can_never_be_are_said_to_be_so(address: str, topic: str, kind: Callable[..., Any]) -> None:
    await create(address, topic, ordering="none")
    worker = kind(address, topic)
    async with asyncio.timeout(40):
        with pytest.raises(InvalidRequestError, match="ordering none"):
            await one_by_one(worker, lambda session, delivery: None)
        await end(worker)


@pytest.mark.prove
@both
async def test_a_broker_that_is_away_at_the_end_of_a_session_does_not_end_the_others(
    logbroker_broker: EmbeddedBroker, topic: str, kind: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Records not answered by then come again."""
    address, attempts = logbroker_broker.address, []
    await create(address, topic, grace_seconds=0)
    await fill(address, topic, 1)
    killed = threading.Event()

    def kill_and_go_on(session: Any, delivery: Any) -> None:
        attempts.append(delivery.redelivered)
        if len(attempts) == 1:
            logbroker_broker.kill()
            killed.set()
        else:
            worker.stop()

    worker = kind(address, topic, request_timeout_seconds=0.3)
    async with asyncio.timeout(40):
        working = asyncio.create_task(one_by_one(worker, kill_and_go_on, idle_seconds=0.05))
        assert await asyncio.to_thread(killed.wait, 20)
        while "has not answered all" not in caplog.text:
            assert not working.done()
            await asyncio.sleep(0.01)
        await asyncio.to_thread(logbroker_broker.start)
        await working
        await end(worker)
    assert attempts == [False, True]


async def test_a_session_that_is_closed_while_the_broker_is_away_says_what_becomes_of_its_acks(
    address: str, topic: str
) -> None:
    await create(address, topic, grace_seconds=0.1)
    await fill(address, topic, 1)
    async with (
        asyncio.timeout(20),
        wire(address) as way,
        Worker(way.address, topic, request_timeout_seconds=0.3) as worker,
    ):
        session = await worker.session(b"k0").__aenter__()
        delivery = await anext(aiter(session))
        way.take_down()
        delivery.ack()
        with pytest.raises(RequestTimeoutError):
            await session.__aexit__(None, None, None)
        with pytest.raises(StaleSessionError, match="whose settlement the broker did not get comes again"):
            await delivery
    async with asyncio.timeout(20), Worker(address, topic) as worker, worker.session(b"k0") as session:
        assert (await anext(aiter(session))).value == b"0"


@pytest.mark.prove
async def test_many_breaks_lose_and_double_nothing(address: str, topic: str) -> None:
    """Each within the grace: not one record comes twice."""
    await create(address, topic, grace_seconds=30)
    await fill(address, topic, 1000)
    seen: list[int] = []

    async def break_now_and_then(way: Wire) -> None:
        while True:
            await asyncio.sleep(0.05)
            way.cut()

    async with wire(address) as way, Worker(way.address, topic, prefetch=20) as worker:
        breaking = asyncio.create_task(break_now_and_then(way))
        async with asyncio.timeout(40):
            async for delivery in worker:
                async with delivery:
                    seen.append(int(delivery.value or b""))
                    await asyncio.sleep(0.001)
                if len(seen) == 1000:
                    break
        breaking.cancel()
        await worker.flush()
    assert sorted(seen) == list(range(1000))
    assert in_order(seen)
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked, counts.leases_lost) == (1000, 0, 0)


async def test_a_broker_that_does_not_answer_is_waited_for_only_so_long(
    logbroker_broker: EmbeddedBroker, topic: str
) -> None:
    address = logbroker_broker.address
    await create(address, topic)
    await fill(address, topic, 2, keys=2)
    async with Worker(address, topic, request_timeout_seconds=0.5) as worker:
        first, second = await take(worker, 2)
        os.kill(logbroker_broker.pid, signal.SIGSTOP)
        try:
            first.ack()
            with pytest.raises(RequestTimeoutError):
                await worker.flush()
        finally:
            os.kill(logbroker_broker.pid, signal.SIGCONT)
        await first
        await second.ack()
    assert (await describe(address, topic)).counts.acked == 2


@pytest.mark.parametrize("restart", [restart_cleanly, kill_and_start])
async def test_a_restart_of_the_broker_costs_sessions_neither_a_lease_nor_an_attempt(
    restart: Restart, topic: str
) -> None:
    attempts: Counter[int] = Counter()
    is_over = asyncio.Event()
    waiting: set[bytes | None] = set()

    async def handle(session: Session) -> None:
        async for delivery in session:
            with contextlib.suppress(LogbrokerError):
                async with delivery:
                    attempts[delivery.attempt] += 1
                    waiting.add(session.key)
                    await is_over.wait()

    with EmbeddedBroker() as broker:
        await create(broker.address, topic, grace_seconds=8, lease_seconds=300)
        await fill(broker.address, topic, 200)
        async with Worker(broker.address, topic) as worker:
            running = asyncio.create_task(worker.sessions(handle, concurrency=8, idle_seconds=0.1))
            async with asyncio.timeout(30):
                while len(waiting) < 8:
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(restart, broker)
            is_over.set()
            await wait_until(broker.address, topic, lambda queue: not queue.counts.open)
            worker.stop()
            await running
        counts = (await describe(broker.address, topic)).counts
        assert (counts.leases_lost, counts.nacked, set(attempts)) == (0, 0, {1})
