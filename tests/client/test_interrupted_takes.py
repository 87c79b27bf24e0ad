"""Ctrl-C in the middle of what a synchronous client takes and waits for: a program that goes on loses nothing by it."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from logbroker.client import lot, sync, sync_loop
from tests.client.worker_helpers import create, describe, fill

RECORDS = 20
INTERRUPTED_AT = 3


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
    records = lot.Lot.records
    interrupts = 0

    def interrupted(self: lot.Lot, make: Any) -> Iterator[Any]:
        found = records(self, make)
        return interrupt(found) if not interrupts else found

    monkeypatch.setattr(lot.Lot, "records", interrupted)
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


async def prepare(address: str, topic: str, keys: int) -> None:
    await create(address, topic, 1)
    await fill(address, topic, RECORDS, keys=keys)


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
