"""Exceptions of the program's own, whatever they are: they end nothing but what they are of, and stay what they are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from logbroker import client
from logbroker.client import sync
from logbroker.errors import DeserializationError, SerializationError
from logbroker.v1 import log_pb2
from tests.client.worker_helpers import create, fill, wait_until


class Unspeakable(Exception):  # noqa: N818 - it is none of ours
    """Says nothing: what its class says of it fails."""

    def __str__(self) -> str:
        raise IndexError("no second argument")

    __repr__ = __str__


def speak_not(*_: object, **__: object) -> Any:
    raise Unspeakable


def encode_badly(*_: object) -> None:
    "caf\u00e9".encode("ascii")


def exceed_a_field(*_: object) -> None:
    log_pb2.ProduceRequest(correlation_id=1 << 70)


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_handler_whose_exception_says_nothing_uses_up_its_attempts(
    address: str, topic: str, blocking: bool
) -> None:
    await create(address, topic, max_attempts=1, on_exhausted="park")
    await fill(address, topic, 10)
    seen: list[int] = []

    def handle(delivery: Any) -> None:
        seen.append(delivery.offset)
        if int(delivery.value) == 0:
            raise Unspeakable

    async def handle_async(delivery: Any) -> None:
        handle(delivery)

    async with asyncio.timeout(30):
        worker: Any = (sync.Worker if blocking else client.Worker)(address, topic)
        running = asyncio.create_task(asyncio.to_thread(worker.run, handle) if blocking else worker.run(handle_async))
        counts = (await wait_until(address, topic, lambda queue: queue.counts.acked == 9)).counts
        worker.stop()
        await running
        await (asyncio.to_thread(worker.close) if blocking else worker.close())
    assert (counts.nacked, counts.parked) == (1, 1)
    assert len(seen) == 10


async def test_a_log_that_raises_keeps_no_failure_from_being_nacked(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(address, topic, max_attempts=1, on_exhausted="park")
    await fill(address, topic, 1)
    monkeypatch.setattr(logging.getLogger("logbroker.client.worker.worker_core"), "error", speak_not)
    async with asyncio.timeout(30), client.Worker(address, topic) as worker:
        with pytest.raises(Unspeakable):
            await worker.run(speak_not)
        await worker.flush()
    await wait_until(address, topic, lambda queue: queue.counts.parked == 1)


async def test_a_block_whose_exception_says_nothing_nacks(address: str, topic: str) -> None:
    await create(address, topic, max_attempts=1, on_exhausted="park")
    await fill(address, topic, 1)
    async with asyncio.timeout(30), client.Worker(address, topic) as worker:
        delivery = await anext(aiter(worker))
        with pytest.raises(Unspeakable):
            async with delivery:
                raise Unspeakable
        await worker.flush()
    await wait_until(address, topic, lambda queue: queue.counts.parked == 1)


async def test_serializers_whose_exceptions_say_nothing_are_told(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 1)
    async with asyncio.timeout(30), client.Producer(address, value_serializer=speak_not) as producer:
        with pytest.raises(SerializationError, match=r"value_serializer failed .*__str__ raises IndexError"):
            await producer.send(topic, Unspeakable())
    async with asyncio.timeout(30), client.Consumer(address) as consumer:
        await consumer.assign(topic)
        [record] = await consumer.poll()
        with pytest.raises(DeserializationError, match=r"cannot be decoded: .*__str__ raises IndexError"):
            record.decode(speak_not)


def cancel(*_: object) -> Any:
    raise asyncio.CancelledError


async def test_a_serializer_that_lets_a_cancellation_out_has_failed(address: str, topic: str) -> None:
    await create(address, topic)
    await fill(address, topic, 1)
    async with asyncio.timeout(30), client.Producer(address, value_serializer=cancel) as producer:
        with pytest.raises(SerializationError):
            await producer.send(topic, 1)
    async with asyncio.timeout(30), client.Consumer(address) as consumer:
        await consumer.assign(topic)
        [record] = await consumer.poll()
        with pytest.raises(DeserializationError):
            record.decode(cancel)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize(
    ("fail", "kind"), [(encode_badly, UnicodeEncodeError), (exceed_a_field, ValueError)], ids=["text", "number"]
)
async def test_what_a_callback_raises_is_not_taken_for_a_wrong_argument(
    address: str,
    topic: str,
    fail: Callable[..., None],
    kind: type[Exception],
    blocking: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await create(address, topic)
    await fill(address, topic, 1)

    def has_logged() -> bool:
        return [logged.exc_info[0] for logged in caplog.records if logged.exc_info] == [kind]

    def consume_and_work() -> None:
        with sync.Consumer(address, group=f"readers-of-{topic}") as consumer:
            consumer.subscribe(topic, on_assigned=fail)
            with pytest.raises(kind) as raised:
                consumer.poll(timeout_seconds=20)
            assert raised.type is kind
        with sync.Worker(address, topic) as worker:

            def fail_once(session: sync.Session) -> None:
                worker.stop()
                fail()

            worker.sessions(fail_once)
            assert has_logged()

    async with asyncio.timeout(60):
        if blocking:
            await asyncio.to_thread(consume_and_work)
            return
        async with client.Consumer(address, group=f"readers-of-{topic}") as consumer:
            await consumer.subscribe(topic, on_assigned=fail)
            with pytest.raises(kind) as raised:
                await consumer.poll(timeout_seconds=20)
            assert raised.type is kind
        async with client.Worker(address, topic) as worker:

            async def fail_once(session: client.Session) -> None:
                worker.stop()
                fail()

            await worker.sessions(fail_once)
            assert has_logged()
