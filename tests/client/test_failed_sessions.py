"""Handlers of `Worker.sessions` that raise: `sessions` goes on, as `run` does, and a record counts the attempt."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from logbroker.client import Admin, Consumer, QueueAdmin, Worker, sync
from logbroker.client.worker.session_calls import SessionCalls
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import LeaseLostError, RecordTooLargeError, StaleSessionError, UnknownGroupError
from tests.client.worker_helpers import create, describe, fill, wait_until

both = pytest.mark.parametrize("kind", [Worker, sync.Worker], ids=["async", "sync"])
Step = Callable[..., object]


def nothing(*_: object) -> None:
    pass


def ack(session: Any, delivery: Any) -> None:
    delivery.ack()


async def work(
    worker: Any, *, before: Step = nothing, block: Step | None = None, bare: Step = ack, after: Step = nothing
) -> None:
    """Have a handler called with each session of a worker of either kind, and close the worker. The handler calls
    `before`, for each delivery `block` in the delivery's block or else `bare`, and `after`."""

    def handle(session: sync.Session) -> None:
        before(session)
        for delivery in session:
            if block is None:
                bare(session, delivery)
            else:
                with delivery:
                    block(session, delivery)
        after(session)

    async def handle_async(session: Any) -> None:
        before(session)
        async for delivery in session:
            if block is None:
                bare(session, delivery)
            else:
                async with delivery:
                    block(session, delivery)
        after(session)

    async with asyncio.timeout(30):
        if isinstance(worker, sync.Worker):
            try:
                await asyncio.to_thread(worker.sessions, handle, idle_seconds=0)
            finally:
                await asyncio.to_thread(worker.close)
        else:
            async with worker:
                await worker.sessions(handle_async, idle_seconds=0)


async def reasons(address: str, group: str, key: bytes) -> list[str]:
    async with QueueAdmin(address) as admin:
        return [*(await admin.explain_lane(group, key)).reasons]


@both
async def test_a_record_that_fails_in_its_block_is_nacked_once_and_the_others_go_on(
    address: str, topic: str, kind: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    await create(address, topic, backoff_initial_seconds=0.01, max_attempts=5)
    await fill(address, topic, 30, keys=3)
    worker = kind(address, topic)
    done: defaultdict[bytes, list[int]] = defaultdict(list)
    attempts = []

    def step(session: Any, delivery: Any) -> None:
        if delivery.value == b"12":
            attempts.append(delivery.attempt)
            if delivery.attempt < 3:
                raise ValueError("no good")
        done[session.key].append(int(delivery.value))
        if sum(map(len, done.values())) == 30:
            worker.stop()

    await work(worker, block=step)
    assert attempts == [1, 2, 3]
    assert done == {b"k%d" % key: list(range(key, 30, 3)) for key in range(3)}
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked) == (30, 2)
    failures = [logged for logged in caplog.records if logged.levelno == logging.ERROR]
    assert len(failures) == 2
    for attempt, logged in enumerate(failures, 1):
        assert f"session of key 'k0' failed in attempt {attempt} of {topic}-" in logged.getMessage()
        assert logged.getMessage().endswith(": ValueError: no good")
        assert logged.exc_info is not None
        assert isinstance(logged.exc_info[1], ValueError)


@both
@pytest.mark.parametrize("taken", [1, 2])
async def test_the_first_unsettled_delivery_is_nacked_with_the_error(
    address: str, topic: str, kind: Callable[..., Any], taken: int
) -> None:
    """The backoff holds the key: the next session finds the record with its attempt counted."""
    await create(address, topic, backoff_initial_seconds=0.01)
    await fill(address, topic, 4, keys=1)
    worker = kind(address, topic)
    seen = []

    def step(session: Any, delivery: Any) -> None:
        seen.append((int(delivery.value), delivery.attempt))
        if delivery.value == b"0" or delivery.attempt > 1:
            delivery.ack()
        elif len(seen) == 1 + taken:
            raise ValueError("no good")
        if delivery.attempt > 1:
            worker.stop()

    await work(worker, bare=step)
    assert seen == [(0, 1), *((number, 1) for number in range(1, taken + 1)), (1, 2)]
    assert (await describe(address, topic)).counts.nacked == 1


@both
async def test_a_handler_that_always_fails_before_its_first_record_uses_up_the_attempts(
    address: str, topic: str, kind: Callable[..., Any]
) -> None:
    """And `explain` says why; the other keys are served."""
    await create(address, topic, backoff_initial_seconds=0.01, max_attempts=3)
    async with Worker(address, topic) as worker, worker.session(b"k0") as session:
        session.state = b"no JSON"
    await fill(address, topic, 12, keys=3)
    worker = kind(address, topic)
    opened: list[bytes] = []

    def parse_state(session: Any) -> None:
        opened.append(session.key)
        json.loads(session.state or b"{}")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work(worker, before=parse_state))
        await wait_until(address, topic, lambda queue: queue.counts.acked == 8 and queue.counts.blocked_lanes == 1)
        worker.stop()
    assert opened.count(b"k0") == 3
    assert (await describe(address, topic)).counts.nacked == 3
    why = await reasons(address, topic, b"k0")
    assert len(why) == 3
    assert all(reason.startswith("JSONDecodeError") for reason in why)


@both
async def test_a_failure_in_a_session_without_records_is_only_logged(
    address: str,
    topic: str,
    kind: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await create(address, topic)
    await fill(address, topic, 1)
    open_session = SessionCalls.open
    opened: list[bytes] = []

    async def open_an_empty_one_first(calls: Any, key: bytes | None, prefetch: int, wait_ms: int) -> Any:
        return await open_session(calls, key if opened else b"none", prefetch, wait_ms)

    monkeypatch.setattr(SessionCalls, "open", open_an_empty_one_first)
    worker = kind(address, topic)

    def fail_first(session: Any) -> None:
        opened.append(session.key)
        if len(opened) == 1:
            raise ValueError("no good")
        worker.stop()

    await work(worker, before=fail_first)
    assert opened == [b"none", b"k0"]
    assert "the handler of the session of key 'none' failed: ValueError: no good" in caplog.text
    assert (await describe(address, topic)).counts.nacked == 0


@both
@pytest.mark.parametrize("is_settled", [False, True], ids=["in hand", "settled"])
async def test_a_failure_drops_the_state_and_the_outputs_that_no_ack_has_stored(
    address: str, topic: str, kind: Callable[..., Any], is_settled: bool
) -> None:
    """Nothing is nacked if all that the handler took is settled."""
    await create(address, topic, backoff_initial_seconds=0.01)
    async with Admin(address) as admin:
        await admin.create_topic(f"{topic}-out")
    await fill(address, topic, 2, keys=1)
    worker = kind(address, topic)
    states = []

    def step(session: Any, delivery: Any) -> None:
        states.append(session.state)
        if delivery.value == b"0":
            session.state = b"stored"
            session.send(f"{topic}-out", b"sent")
            delivery.ack()
        if len(states) == 1 + (not is_settled):
            session.state = b"dropped"
            session.send(f"{topic}-out", b"dropped")
            raise ValueError("no good")
        if delivery.value == b"1":
            delivery.ack()
            worker.stop()

    await work(worker, bare=step)
    assert states == [b"", b"stored", b"stored"][: 3 - is_settled]
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked) == (2, 1 - is_settled)
    async with Consumer(address) as consumer:
        await consumer.assign([f"{topic}-out"])
        assert [record.value async for record in consumer.until_end()] == [b"sent"]


@both
async def test_outputs_behind_the_last_ack_are_a_failure_too(
    address: str, topic: str, kind: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    await create(address, topic)
    await fill(address, topic, 2, keys=2)
    worker = kind(address, topic)
    ended: list[bytes] = []

    def send_too_late(session: Any) -> None:
        ended.append(session.key)
        if len(ended) == 2:
            worker.stop()
        session.send(f"{topic}-out", b"too late")

    await work(worker, after=send_too_late)
    assert {*ended} == {b"k0", b"k1"}
    assert caplog.text.count(": InvalidRequestError: records were sent after the session's last ack") == 2
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked) == (2, 0)


@both
async def test_refused_outputs_of_a_last_record_do_not_end_the_sessions(
    address: str, topic: str, kind: Callable[..., Any]
) -> None:
    await create(address, topic, backoff_initial_seconds=0.01)
    await fill(address, topic, 1)
    worker = kind(address, topic)
    attempts = []

    def step(session: Any, delivery: Any) -> None:
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            delivery.send(f"no-{topic}", b"1")
        else:
            worker.stop()

    await work(worker, block=step)
    assert attempts == [1, 2]


@both
async def test_a_lost_delivery_that_the_handler_raises_is_logged_in_one_line(
    address: str, topic: str, kind: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A nack takes back the later deliveries: to ack one of them raises LeaseLostError."""
    await create(address, topic, backoff_initial_seconds=0.01)
    await fill(address, topic, 2, keys=1)
    worker = kind(address, topic)
    taken: list[Any] = []

    def step(session: Any, delivery: Any) -> None:
        taken.append(delivery)
        if len(taken) == 2:
            taken[0].nack(reason="mine")
            with pytest.raises(LeaseLostError):
                taken[1].ack()
            taken[1].ack()
        elif len(taken) > 2:
            delivery.ack()
            if len(taken) == 4:
                worker.stop()

    await work(worker, bare=step)
    assert [(delivery.value, delivery.attempt) for delivery in taken] == [(b"0", 1), (b"1", 1), (b"0", 2), (b"1", 1)]
    assert caplog.text.count("the session of key") == 1
    assert not [logged for logged in caplog.records if logged.exc_info]


@both
async def test_a_failure_in_a_session_that_is_lost_nacks_nothing(
    address: str, topic: str, kind: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    await create(address, topic, lease_seconds=0.5, backoff_initial_seconds=0.01)
    await fill(address, topic, 1)
    worker = kind(address, topic)
    attempts = []

    def step(session: Any, delivery: Any) -> None:
        attempts.append(delivery.attempt)
        if len(attempts) == 1:
            lost = StaleSessionError("another worker has it")
            worker._core.in_flight.sessions.lost(session.token, session.key, lost)
            raise ValueError("no good")
        delivery.ack()
        worker.stop()

    await work(worker, bare=step)
    assert attempts == [1, 2]
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked, counts.leases_lost) == (1, 0, 1)
    assert "ValueError: no good" in caplog.text
    assert "the session of key 'k0': another worker has it" in caplog.text


@pytest.mark.prove
@both
async def test_a_state_that_the_broker_cannot_read_ends_the_sessions(topic: str, kind: Callable[..., Any]) -> None:
    """Each further session would end in the same way at once, and no attempt would be counted."""
    with EmbeddedBroker(max_request_bytes=100_000) as broker:
        await create(broker.address, topic)
        await fill(broker.address, topic, 1)

        def step(session: Any, delivery: Any) -> None:
            session.state = bytes(100_000)

        with pytest.raises(RecordTooLargeError, match="max_request_bytes"):
            await work(kind(broker.address, topic), block=step)


class EndsItAllError(BaseException):
    pass


@both
async def test_what_is_no_exception_ends_the_sessions_and_counts_no_attempt(
    address: str, topic: str, kind: Callable[..., Any]
) -> None:
    await create(address, topic)
    await fill(address, topic, 3, keys=1)

    def step(session: Any, delivery: Any) -> None:
        raise EndsItAllError

    with pytest.raises(EndsItAllError):
        await work(kind(address, topic), bare=step)
    counts = (await describe(address, topic)).counts
    assert (counts.acked, counts.nacked, counts.in_flight) == (0, 0, 0)


async def test_a_handler_that_is_not_async_is_refused_at_its_first_session(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 1)
    async with Worker(address, topic) as worker, asyncio.timeout(30):
        with pytest.raises(TypeError, match="must be an async function"):
            await worker.sessions(nothing)  # type: ignore[arg-type]
    assert (await describe(address, topic)).counts.nacked == 0


@both
async def test_the_end_of_the_worker_is_no_failure_of_a_handler(
    address: str, topic: str, kind: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    await create(address, topic)
    await fill(address, topic, 1)
    worker = kind(address, topic)

    async def handle_async(session: Any) -> None:
        async for delivery in session:
            await delivery.ack()

    def handle(session: Any) -> None:
        for delivery in session:
            delivery.ack().result(20)

    async with asyncio.timeout(30), QueueAdmin(address) as admin:
        working = asyncio.ensure_future(
            asyncio.to_thread(worker.sessions, handle, idle_seconds=1000)
            if isinstance(worker, sync.Worker)
            else worker.sessions(handle_async, idle_seconds=1000)
        )
        await wait_until(address, topic, lambda queue: queue.counts.acked == 1)
        await admin.delete_queue(topic)
        with pytest.raises(UnknownGroupError):
            await working
        await (asyncio.to_thread(worker.close) if isinstance(worker, sync.Worker) else worker.close())
    assert not [logged for logged in caplog.records if logged.exc_info]
