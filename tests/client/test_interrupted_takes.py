"""Ctrl-C in the middle of what a synchronous client takes and waits for: a program that goes on loses nothing by it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from logbroker.client import sync
from logbroker.client.runtime import sync_loop
from logbroker.client.worker import delivery_batch as batch
from logbroker.types import TopicPartition
from tests.client.worker_helpers import create, describe, fill

RECORDS = 20
INTERRUPTED_AT = 3
MANY = 5_000


def ends_with_it(records: Iterator[Any]) -> Iterator[Any]:
    """As a decoder does that is interrupted."""
    for number, record in enumerate(records):
        if number == INTERRUPTED_AT:
            raise KeyboardInterrupt
        yield record


class GoesOn:
    """As where a record is decoded, and not handed on yet."""

    def __init__(self, records: Iterator[Any]) -> None:
        self._records = enumerate(records)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        number, record = next(self._records)
        if number == INTERRUPTED_AT:
            raise KeyboardInterrupt
        return record


@pytest.mark.parametrize("interrupt", [ends_with_it, GoesOn])
@pytest.mark.parametrize("in_session", [False, True])
def test_what_an_interrupt_takes_comes_again_uncounted(
    address: str,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    interrupt: Callable[[Iterator[Any]], Iterator[Any]],
    in_session: bool,
) -> None:
    keys = 1 if in_session else RECORDS
    asyncio.run(prepare(address, topic, keys))
    records = batch.DeliveryBatch.records
    interrupts = 0

    def interrupted(self: batch.DeliveryBatch[Any], make: Any) -> Iterator[Any]:
        found = records(self, make)
        return interrupt(found) if not interrupts else found

    monkeypatch.setattr(batch.DeliveryBatch, "records", interrupted)
    seen: list[int] = []

    def take(deliveries: Any) -> None:
        nonlocal interrupts
        while len(seen) < RECORDS:
            try:
                for delivery in deliveries:
                    assert delivery.attempt == 1
                    seen.append(delivery.offset)
                    delivery.ack()
                    if len(seen) == RECORDS:
                        break
            except KeyboardInterrupt:
                interrupts += 1

    with sync.Worker(address, topic, prefetch=RECORDS) as worker:
        if in_session:
            with worker.session(b"k0", prefetch=RECORDS, idle_seconds=None) as session:
                take(session)
        else:
            take(worker)
    assert interrupts == 1
    assert (seen if in_session else sorted(seen)) == list(range(RECORDS))
    counts = asyncio.run(describe(address, topic)).counts
    assert (counts.acked, counts.nacked, counts.leases_lost) == (RECORDS, 0, 0)


async def prepare(address: str, topic: str, keys: int, records: int = RECORDS) -> None:
    await create(address, topic, 1)
    await fill(address, topic, records, keys=keys)


class RungError(Exception):
    """Raised by a program's handler of SIGALRM."""


@contextlib.contextmanager
def alarms(may_ring: Callable[[], bool]) -> Iterator[None]:
    """Raise RungError at a time of its own again and again, while it may. One that comes in a finalizer is lost."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  # Shown where it fails.
    chance = random.Random(seed)
    is_over = False

    def ring(number: int, frame: FrameType | None) -> None:
        if is_over:
            return  # It had come before the timer was stopped, and must not start it again.
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0003, 0.001))
        if may_ring():
            raise RungError

    before, hook = signal.signal(signal.SIGALRM, ring), sys.unraisablehook
    sys.unraisablehook = lambda _: None
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    try:
        yield
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook


@pytest.mark.parametrize("way", ["session", "loop", "batches"])
def test_what_a_signal_handler_raises_anywhere_leaves_no_record_out(address: str, topic: str, way: str) -> None:
    """Real signals, at any point of the client's code: a record that it had taken, and that did not reach the program,
    was left out, and in a session the next one was handed out."""
    asyncio.run(prepare(address, topic, 1 if way == "session" else MANY, MANY))
    seen: list[int] = []
    in_client = False

    def take(iterate: Callable[[], Iterator[Any]]) -> int:
        nonlocal in_client
        interrupts = 0
        while len(seen) < MANY:
            try:
                in_client = True
                for taken in iterate():
                    in_client = False
                    for delivery in taken if isinstance(taken, list) else [taken]:
                        assert delivery.attempt == 1
                        seen.append(delivery.offset)
                        delivery.ack()
                    if len(seen) == MANY:
                        break
                    in_client = True
            except RungError:
                in_client = False
                interrupts += 1
        return interrupts

    with alarms(lambda: in_client), sync.Worker(address, topic, prefetch=500) as worker:
        if way == "session":
            with worker.session(b"k0", prefetch=500, idle_seconds=None) as session:
                interrupts = take(lambda: iter(session))
        else:
            interrupts = take(lambda: iter(worker) if way == "loop" else worker.batches(max_records=7))
    assert interrupts
    assert (seen if way == "session" else sorted(seen)) == list(range(MANY))
    counts = asyncio.run(describe(address, topic)).counts
    assert (counts.acked, counts.nacked, counts.leases_lost) == (MANY, 0, 0)


def test_what_a_signal_handler_raises_anywhere_in_sends_costs_no_other_record(address: str, topic: str) -> None:
    """A batch that it left half opened, half closed or with a record that is not counted was never sent, or refused."""
    asyncio.run(create(address, topic, 4))
    in_client = False
    deliveries: list[Any] = []
    interrupts = 0

    with alarms(lambda: in_client), sync.Producer(address, batch_bytes=500) as producer:
        for number in range(MANY):
            key = b"%d" % number
            try:
                in_client = True
                # One in four finds that its value is not bytes, and is converted.
                delivery = producer.send(topic, key if number % 4 else bytearray(key), key)
                in_client = False
                deliveries.append((number, delivery))
            except RungError:
                in_client = False
                interrupts += 1
        producer.flush()
        assert interrupts
        for _, delivery in deliveries:
            delivery.result(0)
        assert not producer._accumulator.unfinished
        assert producer._accumulator.buffered_bytes == 0
    with sync.Consumer(address) as consumer:
        consumer.assign(topic)
        stored = [int(record.value or b"") for record in consumer.until_end()]
    assert len(stored) == len(set(stored))
    assert {number for number, _ in deliveries} <= set(stored)


def test_what_a_signal_handler_raises_anywhere_in_polls_leaves_the_consumer_free(address: str, topic: str) -> None:
    asyncio.run(prepare(address, topic, 1, MANY))
    in_client = False
    interrupts = seen = 0

    def poll(timeout_seconds: float) -> int:
        nonlocal in_client, interrupts
        try:
            in_client = True
            found = consumer.poll(10, timeout_seconds=timeout_seconds)
            in_client = False
        except RungError:
            in_client = False
            interrupts += 1
            return 0
        return len(found)

    with alarms(lambda: in_client), sync.Consumer(address) as consumer:
        consumer.assign(topic)
        until = time.monotonic() + 120
        while interrupts < 300 or seen < MANY // 2:
            assert time.monotonic() < until, (interrupts, seen)
            if not (found := poll(0.5)):
                consumer.seek(TopicPartition(topic, 0), 0)
            seen += found


async def answer() -> str:
    return "answer"


def test_a_wait_that_is_interrupted_in_the_standard_library_leaves_the_loop_going(address: str, topic: str) -> None:
    """At each line of `threading` that a wait for an outcome runs: a condition that is left taken, or a thread that
    counts as ended, would end all clients of the process."""
    asyncio.run(prepare(address, topic, 1))
    shared = sync_loop.shared_loop()
    point = 0
    with sync.Producer(address) as producer:
        while True:
            delivery = producer.send(topic, b"")
            if not interrupted_at(point, lambda: delivery.result(20)):  # noqa: B023
                break
            point += 1
            assert answered() == "answer", f"the loop stands still after an interrupt at point {point}"
            assert sync_loop.shared_loop() is shared
            delivery.result(20)


def interrupted_at(point: int, wait: Callable[[], Any]) -> bool:
    """Raise KeyboardInterrupt at a line of `threading`, and return whether it came to that."""
    left = point

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != threading.__file__:
            return trace
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        wait()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def answered() -> str:
    """Whether the shared loop does what it is given; asked in a thread that may be left waiting."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(sync_loop.run(answer())), daemon=True)
    thread.start()
    thread.join(20)
    return "".join(found)


def test_a_session_that_an_interrupt_met_when_it_was_open_is_free(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody had it, and its lock was renewed for as long as the worker was open."""
    asyncio.run(prepare(address, topic, 1))
    with sync.Worker(address, topic) as worker, sync.Worker(address, topic) as other:
        with monkeypatch.context() as patched:
            outcome = sync_loop._Call.outcome

            def interrupted(self: Any) -> Any:
                found = outcome(self)
                if session._held is not None:
                    raise KeyboardInterrupt
                return found

            session = worker.session(b"k0")
            patched.setattr(sync_loop._Call, "outcome", interrupted)
            with pytest.raises(KeyboardInterrupt), session:
                raise AssertionError("it was interrupted")
        with other.session(b"k0", wait_seconds=20) as another:
            assert next(iter(another)).offset == 0
