"""Functions of the program that fail in all kinds of ways, in both kinds of convoy: the failure stays that of its
record, and is heard of."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from logbroker.client import Admin, Consumer, Convoy, QueueAdmin, QueueSettings, Worker, sync
from logbroker.client.convoy import convoy_core
from logbroker.client.convoy.handler_threads import HandlerThreads
from logbroker.client.runtime.sync_loop import shared_loop
from logbroker.errors import LogbrokerError
from tests.client.convoy.convoy_helpers import DEADLINE_SECONDS, create, send, until

ASYNC, THREADS, SYNC = "async", "threads of the async twin", "sync"
KINDS = [ASYNC, THREADS, SYNC]
TWINS = [ASYNC, SYNC]
LONG_SECONDS = 300.0
"""No test may wait for as long as this."""


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    """An error whose attributes cannot be set."""

    code: int = 3


class TextlessError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


ODD = [ValueError, StopIteration, StopAsyncIteration, FrozenError, TextlessError, asyncio.CancelledError]
"""All are failures, as a ValueError is."""
TRANSLATED = [StopIteration, StopAsyncIteration, asyncio.CancelledError]
"""Those that would mean something else to the caller."""


class Items:
    """Items 0, 1, 2, ... in memory, with a key each, and what became of them."""

    def __init__(self, count: int = 4, *, key: Callable[[int], Any] = str, **errors: Any) -> None:
        """`errors`: what `ack`, `nack` or the source raises for the item 1."""
        self.count = count
        self.key = key
        self.errors = errors
        self.told: list[tuple[str, int]] = []
        self.ends = True

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.count):
            if number == 1:
                self._fail("source")
            yield self._item(number)
        while not self.ends:
            yield None

    async def __aiter__(self) -> AsyncIterator[Any]:
        for number in range(self.count):
            if number == 1:
                self._fail("source")
            yield self._item(number)
        if not self.ends:
            await asyncio.Event().wait()

    def _item(self, number: int) -> Any:
        return self.key(number), number, lambda: self._tell("ack", number), lambda error: self._tell("nack", number)

    def _tell(self, what: str, number: int) -> None:
        self.told.append((what, number))
        if number == 1:
            self._fail(what)

    def _fail(self, what: str) -> None:
        if what in self.errors:
            raise self.errors[what]


class Twin:
    """A convoy of one kind that runs, and the end of its `run`."""

    def __init__(self, kind: str, source: Any, handler: Callable[[Any], object], **settings: Any) -> None:
        settings = {"concurrency": 3, "backoff_initial_seconds": 0.01, "drain_seconds": LONG_SECONDS} | settings
        self.outcome: list[BaseException | None] = []
        if kind == SYNC:
            self.convoy: Any = sync.Convoy(source, **settings)
            threading.Thread(target=self._run, args=(handler,), daemon=True).start()
            return

        async def handle(item: Any) -> None:
            outcome = handler(item)
            if inspect.isawaitable(outcome):
                await outcome

        self.convoy = Convoy(source, **settings)
        self.task = asyncio.create_task(self.convoy.run(handle if kind == ASYNC else handler))
        self.task.add_done_callback(self._ended)

    def _run(self, handler: Callable[[Any], object]) -> None:
        try:
            self.convoy.run(handler)
        except BaseException as error:
            self.outcome.append(error)
        else:
            self.outcome.append(None)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.outcome.append(asyncio.CancelledError() if task.cancelled() else task.exception())

    async def ended(self) -> BaseException | None:
        """Wait for the end of `run`, and return its error."""
        await until(lambda: bool(self.outcome))
        return self.outcome[0]

    async def stopped(self) -> BaseException | None:
        """Stop the convoy, and wait for its end."""
        self.convoy.stop()
        return await self.ended()

    async def skip(self, *arguments: Any) -> int:
        skipped = self.convoy.skip(*arguments)
        count: int = await skipped if asyncio.iscoroutine(skipped) else skipped
        return count


def raises(error: Any, wrong: Any = 1) -> Callable[..., None]:
    """Return a function that raises an error for one item."""

    def handle(item: Any, *_: Any) -> None:
        if item == wrong:
            raise error

    return handle


@pytest.mark.parametrize("error", ODD)
@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_of_a_handler_is_a_failed_attempt(kind: str, error: Any) -> None:
    items = Items()
    twin = Twin(kind, items, raises(error), max_attempts=2, on_exhausted="skip")
    assert await twin.ended() is None
    counts = twin.convoy.counts()
    assert (counts.done, counts.failures, counts.skipped, counts.running) == (4, 2, 1, 0)
    assert sorted(items.told) == [("ack", number) for number in range(4)]


@pytest.mark.parametrize("error", ODD)
@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_of_a_function_for_dead_letters_lets_the_key_stand(kind: str, error: Any) -> None:
    function = raises(error)

    async def is_async(item: Any, failure: Exception) -> None:
        function(item, failure)

    twin = Twin(
        kind,
        Items(),
        raises(ValueError("no such customer")),
        max_attempts=1,
        on_exhausted="dead-letter",
        dead_letter=is_async if kind == ASYNC else function,
    )
    await until(lambda: bool(twin.convoy.blocked()) and twin.convoy.counts().done == 3)
    [blocked] = twin.convoy.blocked()
    assert (blocked.key, blocked.attempts) == ("1", 1)
    assert error.__name__ in blocked.reason
    assert twin.convoy.counts().running == 0
    assert await twin.stopped() is None


@pytest.mark.parametrize("error", ODD)
@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_of_ack_is_logged_and_harms_no_other_item(
    kind: str, error: Any, caplog: pytest.LogCaptureFixture
) -> None:
    items = Items(ack=error)
    twin = Twin(kind, items, lambda item: None)
    assert await twin.ended() is None
    assert sorted(items.told) == [("ack", number) for number in range(4)]
    assert caplog.text.count("is not settled") == 1


@pytest.mark.parametrize("error", [*ODD, GeneratorExit])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_of_nack_keeps_no_other_item_from_being_given_back(kind: str, error: Any) -> None:
    items = Items(nack=error)
    items.ends = False

    def handle(item: int) -> None:
        raise ValueError("never")

    twin = Twin(kind, items, handle, max_attempts=1)
    await until(lambda: len(twin.convoy.blocked()) == 4)
    assert isinstance(await twin.stopped(), GeneratorExit if error is GeneratorExit else None.__class__)
    assert sorted(items.told) == [("nack", number) for number in range(4)]


@pytest.mark.parametrize("error", [ValueError, FrozenError, TextlessError, asyncio.CancelledError, GeneratorExit])
@pytest.mark.parametrize("kind", TWINS)
async def test_an_error_of_the_source_ends_the_convoy_aloud(kind: str, error: Any) -> None:
    ended = await Twin(kind, Items(source=error), lambda item: None).ended()
    assert isinstance(ended, RuntimeError if error in TRANSLATED else error)


@contextlib.asynccontextmanager
async def source_of(kind: str, of: str, address: str, topic: str) -> AsyncIterator[Any]:
    """A member of a group, or a worker of a queue group without order."""
    async with contextlib.AsyncExitStack() as stack:
        if of == "worker":
            async with QueueAdmin(address) as admin:
                settings = QueueSettings(ordering="none", backoff_initial_seconds=0.01, max_attempts=1000)
                await admin.create_queue(topic, topic, settings, start="earliest")
            if kind == SYNC:
                yield stack.enter_context(sync.Worker(address, topic))
            else:
                yield await stack.enter_async_context(Worker(address, topic))
        elif kind == SYNC:
            consumer = stack.enter_context(sync.Consumer(address, group=topic))
            await asyncio.to_thread(consumer.subscribe, topic)
            yield consumer
        else:
            member = await stack.enter_async_context(Consumer(address, group=topic))
            await member.subscribe(topic)
            yield member


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize("error", [*ODD, TypeError])
@pytest.mark.parametrize("of", ["consumer", "worker"])
@pytest.mark.parametrize("kind", TWINS)
async def test_an_error_of_a_key_function_is_a_failed_attempt_of_its_record(
    address: str, topic: str, kind: str, of: str, error: Any
) -> None:
    """The record is in no line, and the others go on."""
    await create(address, topic, 1, [b"a", b"b"] * 4)
    handled: list[int] = []
    asked: list[int] = []

    def key(record: Any) -> Any:
        asked.append(record.offset)
        if record.offset == 3 or (record.offset == 4 and asked.count(4) < 3):
            if error is TypeError:
                return ["unhashable"]
            raise error
        return record.key

    async with source_of(kind, of, address, topic) as source:
        twin = Twin(kind, source, lambda record: handled.append(record.offset), key=key, max_attempts=3)
        convoy = twin.convoy
        await until(lambda: convoy.counts().done == 7 and bool(convoy.blocked()))
        [blocked] = convoy.blocked()
        assert (blocked.key, blocked.attempts) == (None, 3)
        assert error.__name__ in blocked.reason
        assert await twin.skip(blocked) == 1
        assert convoy.counts().failures == 4
        assert await twin.stopped() is None
    # Those that have a key are in its order.
    assert sorted(handled) == [0, 1, 2, 4, 5, 6, 7]
    assert [offset for offset in handled if offset in (0, 2, 6)] == [0, 2, 6]


@pytest.mark.parametrize("of", ["consumer", "worker"])
@pytest.mark.parametrize("kind", TWINS)
async def test_what_is_no_failure_of_a_key_function_ends_the_convoy_and_loses_nothing(
    address: str, topic: str, kind: str, of: str
) -> None:
    await create(address, topic, 1, [b"a", b"b"] * 4)
    handled: list[int] = []

    def key(record: Any) -> Any:
        if record.offset == 3:
            raise GeneratorExit
        return record.key

    async with source_of(kind, of, address, topic) as source:
        twin = Twin(kind, source, lambda record: handled.append(record.offset), key=key)
        assert isinstance(await twin.ended(), GeneratorExit)
        twin = Twin(kind, source, lambda record: handled.append(record.offset))
        await until(lambda: set(handled) == set(range(8)))
        assert await twin.stopped() is None


def _raising(error: Any) -> Callable[[Any], Any]:
    def key(record: Any) -> Any:
        raise error

    return key


async def test_an_ack_of_a_task_that_its_handler_has_cancelled_is_still_told() -> None:
    told: list[int] = []

    async def ack() -> None:
        await asyncio.sleep(0)
        told.append(1)

    async def source() -> AsyncIterator[Any]:
        yield "a", 1, ack, lambda error: None

    async def handle(item: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    convoy = Convoy(source())
    async with asyncio.timeout(DEADLINE_SECONDS):
        await convoy.run(handle)
    assert (told, convoy.counts().done) == ([1], 1)


# --- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_what_is_no_failure_ends_the_synchronous_convoy_at_once(error: Any) -> None:
    """Nothing runs any more: there is nothing to drain."""
    items = Items()
    assert isinstance(await Twin(SYNC, items, raises(error)).ended(), error)
    assert ("nack", 1) in items.told


PROGRAM = """
import asyncio, os, threading
from logbroker.client import Convoy, sync

def hang(item):
    print("hangs", flush=True)
    if threading.active_count() == before + 2:
        convoy.stop()
    threading.Event().wait()

def plain():
    yield from ((key, key, print, print) for key in "ab")
    while True:
        yield None

async def source():
    for item in plain():
        yield item
        if item[0] == "b":
            await asyncio.Event().wait()

before = threading.active_count()
if {is_async}:
    convoy = Convoy(source(), concurrency=2, drain_seconds=0)
    asyncio.run(convoy.run(hang))
else:
    convoy = sync.Convoy(plain(), concurrency=2, drain_seconds=0)
    convoy.run(hang)
print("ended", flush=True)
"""


@pytest.mark.parametrize("kind", TWINS)
async def test_handlers_that_hang_do_not_keep_the_program_alive(kind: str) -> None:
    program = PROGRAM.replace("{is_async}", str(kind == ASYNC))
    arguments = [sys.executable, "-c", program]
    done = await asyncio.to_thread(
        subprocess.run, arguments, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert "ended" in done.stdout
    assert done.returncode == 0, done.stderr


@pytest.mark.prove
async def test_a_stop_gives_handlers_the_time_to_drain_once() -> None:
    release = threading.Event()
    drain_seconds = 4.0

    async def hang(item: int) -> None:
        await asyncio.Event().wait()

    handlers = {ASYNC: hang, THREADS: lambda item: release.wait(), SYNC: lambda item: release.wait()}
    twins = {kind: Twin(kind, Items(1), handler, drain_seconds=drain_seconds) for kind, handler in handlers.items()}
    await until(lambda: all(twin.convoy.counts().running for twin in twins.values()))
    begun = time.monotonic()
    for twin in twins.values():
        twin.convoy.stop()
    for twin in twins.values():
        assert await twin.ended() is None
    assert drain_seconds - 1 < time.monotonic() - begun < 2 * drain_seconds
    release.set()


def test_only_the_first_stop_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(convoy_core, "monotonic", lambda: clock[0])
    convoy = Convoy(Items(), drain_seconds=10)
    assert convoy._core.drain_left_seconds == 10
    convoy.stop()
    clock[0] += 4
    convoy.stop()
    assert convoy._core.drain_left_seconds == 6
    clock[0] += 7
    assert convoy._core.drain_left_seconds == 0


async def test_calls_go_on_in_fewer_threads_if_the_system_gives_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, 0

    def refuse(self: threading.Thread) -> None:
        nonlocal started
        started += 1
        if started > 2:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    names = set[str]()
    threads = HandlerThreads("the handler", lambda number: names.add(threading.current_thread().name), "few")
    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.gather(*(threads.call(number) for number in range(20)))
    threads.close()
    assert names <= {"few-0", "few-1"}


# --- what an operator decides ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TWINS)
async def test_one_blocked_record_is_decided_on_alone(kind: str) -> None:
    """A record without a key has no other name than what `blocked()` gives."""
    items = Items(6, key=lambda number: str(number) if number % 2 else None)
    broken = True

    def handle(item: int) -> None:
        if broken:
            raise ValueError(item)

    twin = Twin(kind, items, handle, max_attempts=1)
    convoy = twin.convoy
    await until(lambda: len(convoy.blocked()) == 6)
    without_key = [each for each in convoy.blocked() if each.key is None]
    with_key = [each for each in convoy.blocked() if each.key == "1"]
    assert len({(each.partition, each.offset) for each in convoy.blocked()}) == 6
    assert await twin.skip(without_key[1]) == 1
    assert await twin.skip(without_key[1]) == 0
    assert await twin.skip(with_key[0]) == 1
    assert [each.key for each in convoy.blocked()].count(None) == 2
    assert [each.reason for each in convoy.blocked() if each.key is None] == [
        each.reason for each in without_key if each is not without_key[1]
    ]
    broken = False
    assert convoy.resume(without_key[0]) == 1
    await until(lambda: len(convoy.blocked()) == 3 and convoy.counts().running == 0)
    # None is the key of those that have none, and no key names all.
    assert convoy.resume(None) == 1
    await until(lambda: [each.key for each in convoy.blocked()] == ["3", "5"] or len(convoy.blocked()) == 2)
    assert {each.key for each in convoy.blocked()} == {"3", "5"}
    assert await twin.skip() == 2
    assert await twin.ended() is None
    assert (convoy.counts().done, convoy.counts().skipped) == (6, 4)
    assert sorted(items.told) == [("ack", number) for number in range(6)]


async def test_two_skips_at_once_skip_a_record_once() -> None:
    told: list[int] = []
    go_on = asyncio.Event()

    async def ack() -> None:
        told.append(1)
        await go_on.wait()

    async def source() -> AsyncIterator[Any]:
        yield "a", 1, ack, lambda error: None

    convoy = Convoy(source(), max_attempts=1)
    running = asyncio.create_task(convoy.run(_raising(ValueError)))
    await until(lambda: bool(convoy.blocked()))
    cancelled = asyncio.create_task(convoy.skip())
    await until(lambda: bool(told))
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    # It was not told to the end: the key stands again.
    assert len(convoy.blocked()) == 1
    skips = [asyncio.create_task(convoy.skip()), asyncio.create_task(convoy.skip())]
    await until(lambda: len(told) == 2)
    assert convoy.resume() == 0
    go_on.set()
    assert await asyncio.gather(*skips) == [1, 0]
    async with asyncio.timeout(DEADLINE_SECONDS):
        await running
    assert (len(told), convoy.counts().skipped, convoy.counts().done) == (2, 1, 1)


# --- dead letters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TWINS)
async def test_a_function_for_dead_letters_gets_the_error_of_the_handler_each_time(kind: str) -> None:
    """Not that of an earlier sending."""
    failures: list[str] = []
    refusal = BrokerAwayError("away")

    def keep(item: int, error: Exception) -> None:
        failures.append(str(error))
        if len(failures) < 3:
            raise refusal

    twin = Twin(
        kind,
        Items(2),
        raises(ValueError("the reason")),
        max_attempts=1,
        on_exhausted="dead-letter",
        dead_letter=keep,
    )
    assert await twin.ended() is None
    assert failures == ["the reason"] * 3
    assert refusal.__traceback__ is None


class BrokerAwayError(LogbrokerError):
    retriable = True


@pytest.mark.prove
@pytest.mark.parametrize("of", ["consumer", "worker"])
@pytest.mark.parametrize("kind", TWINS)
async def test_a_key_waits_while_its_dead_letter_cannot_be_sent(address: str, topic: str, kind: str, of: str) -> None:
    """The topic does not exist yet, so the key is blocked. No record of it is lost, repeated, or overtaken."""
    letters = f"{topic}-letters"
    await create(address, topic, 1, [b"a", b"b"] * 10)
    order: list[int] = []

    def handle(record: Any) -> None:
        if record.key == b"a":
            order.append(record.offset)
        if record.offset == 4:
            raise ValueError(f"failure {len(order)} " + "x" * 1000)

    async with source_of(kind, of, address, topic) as source:
        twin = Twin(
            kind, source, handle, max_attempts=10, backoff_factor=1, on_exhausted="dead-letter", dead_letter=letters
        )
        convoy = twin.convoy
        await until(lambda: bool(convoy.blocked()) and convoy.counts().done == 12)
        [blocked] = convoy.blocked()
        assert (blocked.key, blocked.attempts) == (b"a", 10)
        assert "UnknownTopicError" in blocked.reason
        assert order == [0, 2, *[4] * 10]
        assert convoy.counts().dead_letters == 0
        async with Admin(address) as admin:
            await admin.create_topic(letters, 1)
        assert convoy.resume(blocked) == 1
        await until(lambda: convoy.counts().done == 20)
        counts = convoy.counts()
        assert (counts.dead_letters, counts.skipped) == (1, 0)
        assert await twin.stopped() is None
    assert order == [0, 2, *[4] * 20, 6, 8, 10, 12, 14, 16, 18]
    async with Consumer(address) as consumer:
        await consumer.assign(letters)
        [letter] = [record async for record in consumer.until_end()]
    reasons = [value.decode() for name, value in letter.headers if name == "logbroker-reason" and value is not None]
    # The last eight, as long as those of a queue group.
    assert [reason.split("x")[0] for reason in reasons] == [
        f"ValueError: failure {number} " for number in range(15, 23)
    ]
    assert {len(reason) for reason in reasons} == {256}
    assert letter.header("logbroker-attempts") == b"10"


# --- leases of a worker ----------------------------------------------------------------------------------------------


async def queue_of(address: str, topic: str) -> None:
    """Create a queue group without order, with a short lease and no backoff."""
    async with QueueAdmin(address) as admin:
        settings = QueueSettings(
            ordering="none", lease_seconds=1, backoff_initial_seconds=0.01, backoff_factor=1, max_attempts=1000
        )
        await admin.create_queue(topic, topic, settings, start="earliest")


@pytest.mark.prove
@pytest.mark.parametrize("kind", TWINS)
async def test_the_leases_of_records_that_wait_are_extended_for_as_long_as_they_wait(
    address: str, topic: str, kind: str
) -> None:
    """`max_extension_seconds` counts from the begin of the handler: a key may stand for days."""
    await create(address, topic, 1, [b"a"] * 6)
    await queue_of(address, topic)
    order: list[int] = []
    broken = True

    def handle(delivery: Any) -> None:
        if broken:
            raise ValueError("not yet")
        assert not delivery.redelivered
        order.append(delivery.offset)

    async with contextlib.AsyncExitStack() as stack:
        worker: Any = (
            stack.enter_context(sync.Worker(address, topic, max_extension_seconds=0.5))
            if kind == SYNC
            else await stack.enter_async_context(Worker(address, topic, max_extension_seconds=0.5))
        )
        twin = Twin(kind, worker, handle, max_attempts=1)
        await until(lambda: bool(twin.convoy.blocked()) and twin.convoy.counts().waiting == 6)
        begun = time.monotonic()
        while time.monotonic() < begun + 4:
            assert (twin.convoy.counts().waiting, twin.convoy.counts().blocked) == (6, 1)
            await asyncio.sleep(0.05)
        broken = False
        assert twin.convoy.resume() == 1
        await until(lambda: len(order) >= 6)
        assert await twin.stopped() is None
        await (asyncio.to_thread(worker.flush) if kind == SYNC else worker.flush())
    assert order == list(range(6))
    async with QueueAdmin(address) as admin:
        counts = (await admin.describe_queue(topic)).counts
    assert (counts.acked, counts.nacked, counts.ready, counts.in_flight) == (6, 0, 0, 0)


@pytest.mark.prove
@pytest.mark.parametrize("kind", TWINS)
async def test_records_whose_leases_are_lost_make_room_for_others(address: str, topic: str, kind: str) -> None:
    """They come again, and neither their copies nor the worker's credit pile up."""
    await create(address, topic, 1, [b"a"] * 8)
    await queue_of(address, topic)
    handled: list[int] = []
    broken = True

    def handle(delivery: Any) -> None:
        if broken and delivery.key == b"a":
            raise ValueError("not yet")
        handled.append(delivery.offset)

    async with contextlib.AsyncExitStack() as stack:
        worker: Any = (
            stack.enter_context(sync.Worker(address, topic, prefetch=8))
            if kind == SYNC
            else await stack.enter_async_context(Worker(address, topic, prefetch=8))
        )
        twin = Twin(kind, worker, handle, max_attempts=1)
        for _ in range(3):
            await until(lambda: bool(twin.convoy.blocked()) and twin.convoy.counts().waiting == 8)
            blocked = twin.convoy.blocked()
            if kind == SYNC:
                shared_loop().call_soon_threadsafe(time.sleep, 1.5)  # The process is frozen for longer than a lease.
            else:
                time.sleep(1.5)
            await until(lambda: bool(now := twin.convoy.blocked()) and now != blocked)  # noqa: B023
        await until(lambda: twin.convoy.counts().waiting == 8)
        broken = False
        twin.convoy.resume()
        await until(lambda: set(handled) == set(range(8)))
        await send(address, topic, [b"b"] * 20)
        await until(lambda: set(handled) == set(range(28)))
        assert await twin.stopped() is None
        await until(lambda: worker._core.in_flight.in_hand == 0)
