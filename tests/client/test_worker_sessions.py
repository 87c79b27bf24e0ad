"""Sessions of queue groups against a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from logbroker.client import QueueAdmin, QueueDescription, Session, Worker, WorkerDelivery, sync
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import (
    BrokerUnavailableError,
    InvalidRequestError,
    LeaseLostError,
    NoFreeSessionError,
    SessionHeldError,
    StaleSessionError,
    StateTooLargeError,
)
from logbroker.grpc_api.queues.worker_sessions import MAX_OPENINGS
from logbroker.v1 import queues_pb2
from tests.client.worker_helpers import create, describe, fill, wait_until, wire


async def read(session: Session, count: int) -> list[int]:
    """Ack so many records of a session."""
    values: list[int] = []
    async with asyncio.timeout(20):
        async for delivery in session:
            async with delivery:
                values.append(int(delivery.value or b""))
            if len(values) == count:
                break
    return values


async def test_a_session_has_the_records_of_its_key_in_order_and_keeps_a_state(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 100)
    async with Worker(address, topic) as worker:
        async with worker.session(b"k3") as session:
            assert (session.key, session.state, session.lost) == (b"k3", b"", False)
            values = []
            async for delivery in session:
                async with delivery:
                    values.append(int(delivery.value or b""))
                    session.state = b"%d" % len(values)
                if len(values) == 5:
                    break
            first_token = session.token
        async with worker.session(b"k3", idle_seconds=0.2) as session:
            assert session.token > first_token
            assert session.state == b"5"
            assert values + [int(delivery.ack().value or b"") async for delivery in session] == list(range(3, 100, 10))
            with pytest.raises(StateTooLargeError):
                session.state = b"x" * (256 * 1024 + 1)
            session.state = b""
        async with worker.session(b"k3") as session:
            assert session.state == b""
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.sessions) == (10, 0)


async def test_a_state_that_was_set_and_then_failed_is_not_kept(address: str, topic: str) -> None:
    await create(address, topic, backoff_initial_seconds=0)
    await fill(address, topic, 1)
    async with Worker(address, topic) as worker:

        async def fail() -> None:
            async with worker.session(b"k0") as session:
                async for delivery in session:
                    async with delivery:
                        session.state = b"half done"
                        raise ValueError("no good")

        with pytest.raises(ValueError, match="no good"):
            await fail()
        async with worker.session(b"k0") as session:
            assert session.state == b""
            async for delivery in session:
                assert delivery.attempt == 2
                await delivery.ack()
                break
            session.state = b"without an ack"
            await session.flush()
            session.state = b"at the end"
        async with worker.session(b"k0") as session:
            assert session.state == b"at the end"


@pytest.mark.parametrize("how", ["nack", "release", "caught", "left", "flush"])
async def test_a_state_is_stored_once_with_the_ack_of_its_delivery(address: str, topic: str, how: str) -> None:
    """A record is counted once, however often it is delivered before its ack."""
    await create(address, topic, backoff_initial_seconds=0)
    await fill(address, topic, 1)

    async def count(session: Session, delivery: WorkerDelivery) -> None:
        session.state = b"%d" % (int(session.state) + 1)
        if how in ("nack", "release"):
            (delivery.nack if how == "nack" else delivery.release)()
        elif how == "caught":
            with contextlib.suppress(ValueError):
                async with delivery:
                    session.state = b"%d" % (int(session.state) + 1)
                    raise ValueError("no good")
        elif how == "flush":
            await session.flush()

    async with Worker(address, topic) as worker:
        async with worker.session(b"k0", wait_seconds=10) as session:
            session.state = b"40"
            async for delivery in session:
                await count(session, delivery)
                break
            assert session.state == (b"41" if how in ("left", "flush") else b"40")
        async with worker.session(b"k0", wait_seconds=10) as session:
            assert session.state == b"40"
            async for delivery in session:
                session.state = b"41"
                await delivery.ack()
                break
        async with worker.session(b"k0", wait_seconds=10) as session:
            assert session.state == b"41"


async def test_a_state_belongs_to_the_last_delivery_that_is_not_settled(address: str, topic: str) -> None:
    await create(address, topic, backoff_initial_seconds=0)
    await fill(address, topic, 2, keys=1)
    async with Worker(address, topic) as worker:
        async with worker.session(b"k0", wait_seconds=10) as session:
            deliveries = session.__aiter__()
            first, second = await anext(deliveries), await anext(deliveries)
            second.release()
            session.state = b"of the first"
            first.release()
            assert session.state == b""
        async with worker.session(b"k0", wait_seconds=10) as session:
            assert session.state == b""


async def test_one_worker_has_a_session_and_the_other_waits(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 10, keys=1)
    async with Worker(address, topic) as worker, Worker(address, topic) as other:
        async with worker.session(b"k0") as session:
            with pytest.raises(SessionHeldError):
                async with other.session(b"k0", wait_seconds=0.1):
                    pass
            with pytest.raises(NoFreeSessionError):
                async with other.session(wait_seconds=0):
                    pass
            waiting = asyncio.create_task(other.session(b"k0").__aenter__())
            assert await read(session, 3) == [0, 1, 2]
        async with asyncio.timeout(20), await waiting as taken_over:
            assert taken_over.token > session.token
            assert await read(taken_over, 7) == list(range(3, 10))


async def test_a_worker_goes_through_free_sessions_several_at_a_time(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 200)
    seen: dict[bytes, list[int]] = {}
    open_now: set[bytes] = set()
    most = 0

    async def handle(session: Session) -> None:
        nonlocal most
        assert session.key not in open_now
        open_now.add(session.key)
        most = max(most, len(open_now))
        async for delivery in session:
            async with delivery:
                seen.setdefault(session.key, []).append(int(delivery.value or b""))
        open_now.remove(session.key)
        if sum(map(len, seen.values())) == 200:
            worker.stop()

    async with Worker(address, topic) as worker:
        async with asyncio.timeout(30):
            await worker.sessions(handle, concurrency=3, idle_seconds=0.1)
    assert seen == {b"k%d" % key: list(range(key, 200, 10)) for key in range(10)}
    assert 1 < most <= 3


async def test_a_nack_brings_that_record_again_and_then_those_behind_it(address: str, topic: str) -> None:
    await create(address, topic, on_exhausted="dead-letter", max_attempts=3, backoff_initial_seconds=0.01)
    await fill(address, topic, 30, keys=1)
    order = []
    async with Worker(address, topic) as worker, worker.session(b"k0", prefetch=8) as session:
        async with asyncio.timeout(20):
            async for delivery in session:
                number = int(delivery.value or b"")
                order.append((number, delivery.attempt))
                if number in (4, 20):
                    delivery.nack(reason="no", delay_seconds=0 if number == 4 else None)
                else:
                    delivery.ack()
                if number == 29:
                    break
    expected = [(number, attempt) for number in range(30) for attempt in ((1, 2, 3) if number in (4, 20) else (1,))]
    assert order == expected


@pytest.mark.prove
async def test_a_lock_lasts_as_long_as_its_holder(address: str, topic: str) -> None:
    await create(address, topic, lease_seconds=1)
    await fill(address, topic, 2, keys=1)
    async with Worker(address, topic) as worker, Worker(address, topic) as other, worker.session(b"k0") as session:
        await asyncio.sleep(2.2)
        assert not session.lost
        with pytest.raises(SessionHeldError):
            async with other.session(b"k0", wait_seconds=0):
                pass
        assert await read(session, 2) == [0, 1]


@pytest.mark.prove
async def test_a_holder_that_was_frozen_is_refused_whatever_it_says(address: str, topic: str) -> None:
    await create(address, topic, lease_seconds=1, backoff_initial_seconds=0)
    await fill(address, topic, 5, keys=1)
    async with Worker(address, topic) as worker, Worker(address, topic) as other:
        session = worker.session(b"k0")
        await session.open()
        reading = aiter(session)
        delivery = await anext(reading)
        await anext(reading)
        time.sleep(1.5)  # the whole event loop stands still, as in a stopped process
        async with asyncio.timeout(20), other.session(b"k0") as taken_over:
            assert taken_over.token > session.token
            with pytest.raises((StaleSessionError, LeaseLostError)):
                await delivery.ack()
            assert await read(taken_over, 5) == [0, 1, 2, 3, 4]
        assert session.lost
        with pytest.raises(StaleSessionError):
            session.state = b"late"
        with pytest.raises(StaleSessionError):
            await anext(reading)
        with pytest.raises(StaleSessionError):
            await session.__aexit__(None, None, None)


async def test_a_broken_connection_costs_a_session_nothing_within_the_grace(address: str, topic: str) -> None:
    await create(address, topic, grace_seconds=10)
    await fill(address, topic, 50, keys=1)
    async with wire(address) as way, Worker(way.address, topic) as worker, worker.session(b"k0") as session:
        assert await read(session, 10) == list(range(10))
        way.cut()
        session.state = b"kept"
        assert await read(session, 20) == list(range(10, 30))
        way.stall_answers()
        reading = asyncio.create_task(read(session, 20))
        await asyncio.sleep(0.1)
        way.cut()
        assert await reading == list(range(30, 50))
        await session.flush()
    assert (await describe(address, topic)).counts.acked == 50


async def test_a_session_whose_opening_was_never_heard_of_is_free_again(address: str, topic: str) -> None:
    await create(address, topic, lease_seconds=60, grace_seconds=30)
    await fill(address, topic, 3, keys=1)
    async with wire(address) as way, Worker(way.address, topic) as worker:
        async with worker.session(b"another"):
            pass  # It is connected now.
        session = worker.session(b"k0")
        way.stall_answers()
        opening = asyncio.create_task(session.open())
        await wait_until(address, topic, lambda queue: queue.counts.sessions == 1)
        way.cut()
        async with asyncio.timeout(20):
            await opening
        assert await read(session, 3) == [0, 1, 2]


async def test_a_session_outlives_a_broker_that_was_killed(logbroker_broker: EmbeddedBroker, topic: str) -> None:
    address = logbroker_broker.address
    await create(address, topic, grace_seconds=10)
    await fill(address, topic, 50, keys=1)
    async with Worker(address, topic) as worker, worker.session(b"k0") as session:
        session.state = b"seen 10"
        values = await read(session, 10)
        await session.flush()
        await asyncio.to_thread(logbroker_broker.kill)
        await asyncio.to_thread(logbroker_broker.start)
        while len(set(values)) < 50:
            try:
                values += await read(session, 50 - len(set(values)))
            except LeaseLostError:
                continue
        assert list(dict.fromkeys(values)) == list(range(50))
        assert values[:10] == list(range(10))
        assert values.count(5) == 1
        assert session.state == b"seen 10"


@pytest.mark.prove
async def test_what_a_session_counts_is_counted_once_though_the_broker_is_killed(
    logbroker_broker: EmbeddedBroker, topic: str
) -> None:
    address = logbroker_broker.address
    await create(address, topic)
    await fill(address, topic, 200, keys=1)

    async def count(worker: Worker) -> None:
        """Until all are counted; nobody waits for what is settled."""
        while True:
            with contextlib.suppress(LeaseLostError, StaleSessionError):
                async with worker.session(b"k0") as session:
                    if int(session.state or b"0") >= 200:
                        return
                    async for delivery in session:
                        async with delivery:
                            session.state = b"%d" % (int(session.state or b"0") + 1)
                        await asyncio.sleep(0.002)
                        if int(session.state) >= 200:
                            break

    async with Worker(address, topic) as worker:
        counting = asyncio.create_task(count(worker))
        for left in (180, 90):

            def counted(queue: QueueDescription, left: int = left) -> bool:
                return queue.counts.open + queue.counts.unscanned <= left

            await wait_until(address, topic, counted)
            await asyncio.to_thread(logbroker_broker.kill)
            await asyncio.to_thread(logbroker_broker.start)
        async with asyncio.timeout(30):
            await counting
        with contextlib.suppress(LeaseLostError):
            await worker.flush()  # It tells of the acks that were lost.
    assert (await describe(address, topic)).counts.open == 0


async def test_who_leaves_frees_its_sessions_at_once(address: str, topic: str) -> None:
    await create(address, topic, grace_seconds=60)
    await fill(address, topic, 3, keys=1)
    async with Worker(address, topic) as worker:
        session = worker.session(b"k0")
        await session.open()
        await anext(aiter(session))
    async with Worker(address, topic) as other, other.session(b"k0", wait_seconds=5) as again:
        async for delivery in again:
            assert (delivery.value, delivery.attempt) == (b"0", 1)
            break
    with pytest.raises(BrokerUnavailableError, match="closed"):
        session.state = b"late"


async def test_a_session_is_used_when_it_is_open_and_where_there_are_keys(address: str, topic: str) -> None:
    await create(address, topic, ordering="none")
    async with Worker(address, topic) as worker:
        session = worker.session(b"k0")
        with pytest.raises(InvalidRequestError, match="async with"):
            _ = session.state
        with pytest.raises(InvalidRequestError):
            async with session:
                pass


async def test_a_wait_for_a_session_that_is_given_up_takes_none(address: str, topic: str) -> None:
    await create(address, topic, lease_seconds=60)
    async with Worker(address, topic) as worker, Worker(address, topic) as other, QueueAdmin(address) as admin:
        waiting = asyncio.create_task(worker.session().open())
        await wait_until(address, topic, lambda queue: bool(queue.workers))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await fill(address, topic, 1)
        async with asyncio.timeout(20), other.session(b"k0") as session:
            assert await read(session, 1) == [0]
        assert (await admin.describe_queue(topic)).counts.sessions == 0


@pytest.mark.prove
async def test_the_broker_forgets_a_wait_for_a_session_that_is_given_up(address: str, topic: str) -> None:
    await create(address, topic, lease_seconds=60)
    await fill(address, topic, 1)
    async with Worker(address, topic) as worker, Worker(address, topic) as holder, holder.session(b"k0"):
        for _ in range(2):
            waiting = [asyncio.create_task(worker.session(b"k0").open()) for _ in range(MAX_OPENINGS - 1)]
            # The answer shows that the broker has got the requests before it.
            with pytest.raises(SessionHeldError):
                await worker.session(b"k0", wait_seconds=0).open()
            for each in waiting:
                each.cancel()
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}


async def test_a_session_that_is_given_up_in_the_round_of_its_answer_is_free_again(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(address, topic, lease_seconds=60)
    await fill(address, topic, 1)
    async with Worker(address, topic) as worker, Worker(address, topic) as other:
        opening = asyncio.create_task(worker.session(b"k0").open())
        calls = worker._core.link.sessions
        answered = calls.answered

        def give_up(answer: queues_pb2.SessionAnswer) -> None:
            answered(answer)
            opening.cancel()

        monkeypatch.setattr(calls, "answered", give_up)
        with pytest.raises(asyncio.CancelledError):
            await opening
        monkeypatch.undo()
        async with asyncio.timeout(20), other.session(b"k0") as session:
            assert await read(session, 1) == [0]


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("turns", range(4))
async def test_one_that_is_given_up_in_the_round_of_its_refusal_is_given_up(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """The refusal stood for the cancellation, and `sessions` asked again, for ever."""
    await create(address, topic)
    loop = asyncio.get_running_loop()

    async def nothing(session: Session) -> None:
        raise AssertionError("there are no records")

    async with Worker(address, topic) as worker:
        calls = worker._core.link.sessions
        answered = calls.answered
        running = asyncio.create_task(worker.sessions(nothing))

        def answered_late(answer: queues_pb2.SessionAnswer, turns: int) -> None:
            if turns:
                loop.call_soon(answered_late, answer, turns - 1)
            else:
                answered(answer)

        def give_up(answer: queues_pb2.SessionAnswer) -> None:
            if answer.status.code and running.cancel():
                monkeypatch.undo()
                answered_late(answer, turns)
            else:
                answered(answer)

        monkeypatch.setattr(calls, "answered", give_up)
        done, _ = await asyncio.wait([running], timeout=20)
        worker.stop()
        assert done
        assert running.cancelled()


@pytest.mark.parametrize("of_body", [False, True])
def test_a_session_is_given_back_even_if_a_signal_interrupts_its_end(
    address: str, topic: str, of_body: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this, the worker would renew its lock for ever."""
    asyncio.run(create(address, topic))
    asyncio.run(fill(address, topic, 1))

    class SignalError(Exception):
        pass

    def interrupted(coroutine: Coroutine[Any, Any, Any]) -> None:
        coroutine.close()  # As `run` does with a coroutine that it has not started yet.
        monkeypatch.undo()
        raise SignalError

    def end(session: sync.Session) -> None:
        with session:
            monkeypatch.setattr("logbroker.client.blocking.worker.run", interrupted)
            if of_body:
                raise ValueError("of the body")

    with sync.Worker(address, topic) as worker:
        session = worker.session(b"k0")
        with pytest.raises(ValueError if of_body else SignalError):
            end(session)
        assert session.lost
        with worker.session(b"k0", wait_seconds=10) as again:
            assert not again.lost


async def test_the_loss_of_a_session_whose_state_is_being_stored_is_told_once(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settlement has no delivery that could tell of the session."""
    await create(address, topic)
    await fill(address, topic, 1, keys=1)
    async with Worker(address, topic) as worker:
        core, session = worker._core, worker.session(b"k0")

        async def lost_meanwhile(_settlements: object) -> None:
            core.in_flight.sessions.lost(session.token, session.key, StaleSessionError("another has it"))

        await session.open()
        async for delivery in session:
            await delivery.ack()
            break
        session.state = b"changed"
        monkeypatch.setattr(core.link, "answered", lost_meanwhile)
        with pytest.raises(StaleSessionError, match="another has it"):
            await session.__aexit__(None, None, None)
        monkeypatch.undo()
        await worker.flush()
