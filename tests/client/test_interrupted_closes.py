"""Whoever gives up a `close`, as often as they like and at any point of it: nothing waits for ever, nothing stays."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import math
import os
import random
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

from logbroker import client
from logbroker.client import Admin, Consumer, Producer, QueueAdmin, Worker, sync
from logbroker.client.consumer import member
from logbroker.client.consumer.group_reader import GroupReader
from logbroker.client.runtime import sync_loop
from logbroker.client.runtime.lifetime import Lifetime
from logbroker.client.worker import worker_connection
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import BrokerUnavailableError, LogbrokerError, RequestTimeoutError, StaleSessionError
from tests.client.links import Link
from tests.client.worker_helpers import create, fill

CLIENT_FILES = client.__path__[0]
SYNC_FILES = (str(Path(CLIENT_FILES, "blocking")), str(Path(CLIENT_FILES, "runtime", "sync_loop")))
TURNS = range(1, 7)
CANCELS = (1, 2, 3)
ENDED_SECONDS = 20


# --- asynchronous clients: cancelled ---------------------------------------------------------------------------------


async def done() -> None:
    pass


@pytest.fixture(autouse=True)
def coroutines_that_never_began() -> Iterator[None]:
    """Collect coroutines that an interrupt kept from beginning, here where their warning is expected."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        gc.collect()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (member, worker_connection):
        monkeypatch.setattr(module, "_GOODBYE_SECONDS", 0.02)
    monkeypatch.setattr(sync_loop, "_CHECK_SECONDS", 0.02)


class Opened(msgspec.Struct):
    """A client whose broker does not answer any more."""

    close: Callable[[], Awaitable[Any]]
    waits: list[asyncio.Future[Any]]
    """The program's waits on this client."""
    is_open: Callable[[], bool]
    """Whether it holds anything yet."""
    close_rest: Callable[[], Awaitable[Any]] = done


async def outcome(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except LogbrokerError as error:
        return error


def begun(*works: Awaitable[Any]) -> list[asyncio.Future[Any]]:
    return [asyncio.ensure_future(outcome(work)) for work in works]


def holds(lifetime: Lifetime) -> Callable[[], bool]:
    return lambda: lifetime.is_open


async def open_producer(link: Link, topic: str) -> Opened:
    producer = Producer(link.address, max_buffered_bytes=2_000)
    await producer.send_and_wait(topic, b"")
    link.freeze()
    deliveries = [await producer.send(topic, bytes(1_000)) for _ in range(2)]
    waits = begun(*deliveries, producer.flush(), producer.send(topic, b"for which there is no room"))
    return Opened(
        producer.close,
        waits,
        lambda: producer._lifetime.is_open or not all(delivery.done() for delivery in deliveries),
    )


async def open_reader(link: Link, topic: str) -> Opened:
    consumer = Consumer(link.address)
    await consumer.assign(topic)
    assert await consumer.poll(timeout_seconds=ENDED_SECONDS)
    link.freeze()
    return Opened(consumer.close, begun(consumer.poll(timeout_seconds=1_000)), holds(consumer._core._lifetime))


async def open_member(link: Link, topic: str) -> Opened:
    consumer = Consumer(link.address, group=f"{topic}-{random.getrandbits(60):x}")
    await consumer.subscribe(topic)
    assert await consumer.poll(timeout_seconds=ENDED_SECONDS)
    assert await consumer.poll(timeout_seconds=0) == []
    link.freeze()
    waits = begun(consumer.poll(timeout_seconds=1_000), consumer.subscribe(topic, "another"), consumer.commit({}))
    return Opened(consumer.close, waits, holds(consumer._core._lifetime))


async def next_of(worker: Worker) -> Any:
    return await anext(aiter(worker))


async def open_worker(link: Link, topic: str) -> Opened:
    worker = Worker(link.address, topic, prefetch=1)
    delivery = await asyncio.wait_for(next_of(worker), ENDED_SECONDS)
    link.freeze()
    delivery.ack()
    waits = begun(worker.flush(), next_of(worker), worker.session(b"another").open())
    return Opened(worker.close, waits, lambda: worker._lifetime.is_open or not delivery.lost)


async def open_session(link: Link, topic: str) -> Opened:
    worker = Worker(link.address, topic, request_timeout_seconds=1)
    session = worker.session()
    await session.open()
    link.freeze()
    session.state = b"state"

    async def close() -> None:
        await session.__aexit__(None, None, None)

    def renewed() -> bool:
        return bool(worker._core.in_flight.sessions.renewals(math.inf))

    return Opened(close, begun(worker.flush()), renewed, worker.close)


async def open_admin(link: Link, topic: str) -> Opened:
    admin = Admin(link.address)
    await admin.describe_topic(topic)
    link.freeze()
    waits = begun(admin.list_topics())
    await asyncio.sleep(0)
    # As where the broker was found to be silent: the end of that channel is waited for.
    admin._connection.renew()
    await asyncio.sleep(0)
    return Opened(admin.close, waits, holds(admin._lifetime))


async def open_queue_admin(link: Link, topic: str) -> Opened:
    admin = QueueAdmin(link.address)
    await admin.describe_queue(topic)
    link.freeze()
    admin._connection.renew()
    return Opened(admin.close, [], holds(admin._lifetime))


OPENERS = (open_producer, open_reader, open_member, open_worker, open_admin, open_queue_admin)


@contextlib.asynccontextmanager
async def link_to(address: str, topic: str, **settings: Any) -> AsyncIterator[Link]:
    await create(address, topic, 1, **settings)
    await fill(address, topic, 100, keys=100)
    async with Link().to(address) as link:
        yield link


def of_clients() -> list[asyncio.Task[Any]]:
    """Tasks that run code of clients."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    return [task for task in tasks if task.get_coro().cr_code.co_filename.startswith(CLIENT_FILES)]  # type: ignore[union-attr]


async def give_up(opened: Opened, turns: int, cancels: int) -> None:
    """Cancel a close; the very cancellation asked for comes out: anyio knows those of its scopes by their message."""
    got: list[asyncio.CancelledError] = []

    async def close() -> None:
        try:
            await opened.close()
        except asyncio.CancelledError as error:
            got.append(error)

    closing = asyncio.ensure_future(close())
    for _ in range(turns):
        await asyncio.sleep(0)
    for _ in range(cancels):
        closing.cancel("this very scope")
        await asyncio.sleep(0)
    with contextlib.suppress(LogbrokerError):
        await closing
    assert [error.args for error in got] == [("this very scope",)] * len(got), (turns, cancels)


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__[5:])
async def test_a_close_that_is_cancelled_leaves_nothing_behind(
    address: str, topic: str, opener: Callable[[Link, str], Awaitable[Opened]]
) -> None:
    async with link_to(address, topic) as link:
        for turns in TURNS:
            for cancels in CANCELS:
                before = set(of_clients())
                opened = await opener(link, topic)
                async with asyncio.timeout(ENDED_SECONDS):
                    await give_up(opened, turns, cancels)
                    assert not opened.is_open(), (turns, cancels)
                    # Nor is there anything left for another call.
                    await opened.close()
                    if opened.waits:
                        await asyncio.wait(opened.waits)
                    while set(of_clients()) - before:
                        await asyncio.sleep(0)


async def test_a_session_whose_close_is_cancelled_is_renewed_no_more(address: str, topic: str) -> None:
    async with link_to(address, topic, ordering="key") as link:
        for turns in TURNS:
            opened = await open_session(link, topic)
            async with asyncio.timeout(ENDED_SECONDS):
                await give_up(opened, turns, 2)
                link.release()
                # It is renewed only until its settlements are answered: else they would be refused.
                while opened.is_open():
                    await asyncio.sleep(0.01)
                await outcome(opened.close_rest())


@pytest.mark.parametrize("turns", [1, 2, 3, 5])
async def test_what_was_acked_in_a_session_whose_close_is_cancelled_is_done(
    address: str, topic: str, turns: int
) -> None:
    """The ack may not be sent yet."""
    async with (
        asyncio.timeout(ENDED_SECONDS),
        link_to(address, topic, ordering="key"),
        Worker(address, topic) as worker,
    ):
        session = worker.session()
        await session.open()
        delivery = await anext(aiter(session))
        delivery.ack()
        closing = asyncio.ensure_future(session.__aexit__(None, None, None))
        for _ in range(turns):
            await asyncio.sleep(0)
        for _ in range(3):
            closing.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([closing])
        with pytest.raises(StaleSessionError):
            await anext(aiter(session))
    async with QueueAdmin(address) as admin:
        counts = (await admin.describe_queue(topic)).counts
        assert (counts.acked, counts.in_flight) == (1, 0)


async def test_a_member_that_is_closed_when_it_is_just_let_in_begins_nothing(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(address, topic, 1)
    joined, closing = GroupReader.joined, []
    before = set(of_clients())
    consumer = Consumer(address, group=f"{topic}-members")

    def close_then(reader: GroupReader) -> None:
        joined(reader)
        closing.append(asyncio.ensure_future(consumer.close()))

    monkeypatch.setattr(GroupReader, "joined", close_then)
    async with asyncio.timeout(ENDED_SECONDS):
        with pytest.raises(BrokerUnavailableError, match="closed"):
            await consumer.subscribe(topic)
        await asyncio.gather(*closing)
        while set(of_clients()) - before:
            await asyncio.sleep(0)


# --- synchronous clients: interrupted --------------------------------------------------------------------------------


@contextlib.contextmanager
def interrupted(*points: int) -> Iterator[list[int]]:
    """Raise KeyboardInterrupt in this thread at the first of these points of the synchronous clients' code, and again
    so many points after that, as Ctrl-C may. Yields what is left of `points`.

    Python sees to signals where a function begins, and where one that is not Python's has returned.
    """
    left, passed = list(points), 0

    def is_client(frame: FrameType | None) -> bool:
        return frame is not None and frame.f_code.co_filename.startswith(SYNC_FILES)

    def is_finalizer(frame: FrameType | None) -> bool:
        """Whether this runs at the end of an object, which may come at any moment: what is raised is not passed on."""
        while frame is not None and frame.f_code.co_name != "__del__":
            frame = frame.f_back
        return frame is not None

    def look(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal passed
        # Nor is what is raised in the callback of a weak reference, or in Hypothesis's of the collector.
        is_call = event == "call" and not re.search("weakref|hypothesis", frame.f_code.co_filename)
        is_call = is_call and (is_client(frame) or is_client(frame.f_back))
        if left and (is_call or (event == "c_return" and is_client(frame))):
            passed += 1
            if passed >= left[0] and not is_finalizer(frame):
                del left[0]
                passed = 0
                # Python calls no function any more that has raised: have it set anew in what is run next.
                sys.settrace(look_again)
                at: FrameType | None = frame
                while at is not None:
                    at.f_trace = look_again
                    at = at.f_back
                raise KeyboardInterrupt

    def look_again(frame: FrameType, event: str, argument: Any) -> None:
        sys.settrace(None)
        sys.setprofile(look)

    before = sys.gettrace()
    sys.setprofile(look)
    try:
        yield left
    finally:
        sys.setprofile(None)
        sys.settrace(before)


class Frozen:
    """A broker that is stopped within the block."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker

    def __enter__(self) -> None:
        os.kill(self.broker.pid, signal.SIGSTOP)

    def __exit__(self, *error: object) -> None:
        os.kill(self.broker.pid, signal.SIGCONT)


async def client_tasks() -> set[asyncio.Task[Any]]:
    return set(of_clients())


class Background:
    """Tasks of this test's clients in the loop of the synchronous ones: other tests may leave something there."""

    def __init__(self) -> None:
        self._before = sync_loop.run(client_tasks())

    def wait_for_end(self, point: int = 0) -> None:
        """Wait until nothing of it runs any more."""
        deadline = time.monotonic() + ENDED_SECONDS
        while left := sync_loop.run(client_tasks()) - self._before:
            assert time.monotonic() < deadline, (point, left)


@pytest.fixture
def background() -> Background:
    return Background()


def check_closed_producer(
    background: Background, producer: sync.Producer, deliveries: list[sync.Delivery], *, are_stored: bool
) -> None:
    """After an interrupted `close`, a whole one: all is done, and nothing is left."""
    with contextlib.suppress(LogbrokerError):
        producer.close()
    for delivery in deliveries:
        assert delivery.done()
        try:
            delivery.result()
        except RequestTimeoutError as error:
            raise AssertionError("it was never done") from error
        except BrokerUnavailableError:
            assert not are_stored
    assert not producer._lifetime.is_open
    background.wait_for_end()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_close_of_a_producer_that_is_interrupted_once_anywhere_delivers_all(
    logbroker_broker: EmbeddedBroker, topic: str, background: Background
) -> None:
    address = logbroker_broker.address
    with sync.Admin(address) as admin:
        admin.create_topic(topic, 1)
    point, is_through = 0, False
    while not is_through:
        point += 1
        producer = sync.Producer(address)
        producer.send_and_wait(topic, b"")
        deliveries = [producer.send(topic, bytes(100)) for _ in range(3)]
        with interrupted(point) as left, contextlib.suppress(KeyboardInterrupt):
            producer.close()
        is_through = bool(left)
        check_closed_producer(background, producer, deliveries, are_stored=True)
    assert point > 20


@pytest.mark.prove
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_close_of_a_producer_that_is_interrupted_twice_leaves_nothing_undone(
    logbroker_broker: EmbeddedBroker, topic: str, background: Background
) -> None:
    address = logbroker_broker.address
    with sync.Admin(address) as admin:
        admin.create_topic(topic, 1)
    seed = random.getrandbits(32)
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    for _ in range(30):
        steps = chance.randint(1, 50), chance.randint(1, 40), chance.choice((1, 1_000_000))
        producer = sync.Producer(address, last_flush_seconds=0.01, delivery_timeout_seconds=1_000)
        producer.send_and_wait(topic, b"")
        with Frozen(logbroker_broker):
            deliveries = [producer.send(topic, bytes(100)) for _ in range(3)]
            with interrupted(*steps), contextlib.suppress(KeyboardInterrupt):
                producer.close()
        check_closed_producer(background, producer, deliveries, are_stored=False)


def open_sync_member(address: str, topic: str) -> Any:
    consumer = sync.Consumer(address, group=f"{topic}-{random.getrandbits(60):x}")
    consumer.subscribe(topic)
    assert consumer.poll(timeout_seconds=ENDED_SECONDS)
    return consumer


def open_sync_worker(address: str, topic: str) -> Any:
    worker = sync.Worker(address, topic, prefetch=1)
    next(iter(worker)).release()
    return worker


def open_sync_admin(address: str, topic: str) -> Any:
    admin = sync.Admin(address)
    admin.describe_topic(topic)
    return admin


@pytest.mark.prove
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("opener", [open_sync_member, open_sync_worker, open_sync_admin], ids=lambda o: o.__name__[10:])
def test_a_close_that_is_interrupted_anywhere_can_be_ended(
    address: str, topic: str, background: Background, opener: Callable[[str, str], Any]
) -> None:
    asyncio.run(create(address, topic, 1))
    asyncio.run(fill(address, topic, 3))
    point, is_through = 0, False
    while not is_through:
        point += 1
        opened = opener(address, topic)
        with interrupted(point, 1_000_000 if point % 2 else 3) as left, contextlib.suppress(KeyboardInterrupt):
            opened.close()
        is_through = len(left) == 2
        opened.close()
        background.wait_for_end(point)
        holder = getattr(opened, "_core", None) or opened._admin
        assert not (getattr(holder, "lifetime", None) or holder._lifetime).is_open, point
    assert point > 10


def interrupt_at(events: list[threading.Event], last: Callable[[], object]) -> threading.Thread:
    """Send this thread Ctrl-C at each of these events but the last, and call `last` at that."""
    main = threading.get_ident()

    def work() -> None:
        for event in events[:-1]:
            assert event.wait(ENDED_SECONDS)
            signal.pthread_kill(main, signal.SIGINT)
        assert events[-1].wait(ENDED_SECONDS)
        last()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def flushes_of(producer: sync.Producer, monkeypatch: pytest.MonkeyPatch) -> list[threading.Event]:
    """Return what tells that the first, and the second, flush of the producer has begun."""
    begun_flushes = [threading.Event(), threading.Event()]
    flush, left = producer._sender.flush, iter(begun_flushes)

    async def telling() -> None:
        next(left).set()
        await flush()

    monkeypatch.setattr(producer._sender, "flush", telling)
    return begun_flushes


@pytest.mark.parametrize("in_block", [False, True])
def test_ctrl_c_in_a_close_leaves_the_flush_its_time(
    logbroker_broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch, *, in_block: bool
) -> None:
    with sync.Admin(logbroker_broker.address) as admin:
        admin.create_topic(topic, 1)
    producer = sync.Producer(logbroker_broker.address, last_flush_seconds=1_000)
    producer.send_and_wait(topic, b"")
    frozen = Frozen(logbroker_broker)
    with frozen:
        deliveries = [producer.send(topic, b"") for _ in range(3)]
        thread = interrupt_at(flushes_of(producer, monkeypatch), frozen.__exit__)
        close = functools.partial(producer.__exit__, None, None, None) if in_block else producer.close
        with pytest.raises(KeyboardInterrupt):
            close()
        thread.join()
    assert [delivery.result(timeout_seconds=0).offset for delivery in deliveries] == [1, 2, 3]
    assert not producer._lifetime.is_open


def test_a_second_ctrl_c_in_a_close_ends_the_flush(
    logbroker_broker: EmbeddedBroker,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    background: Background,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with sync.Admin(logbroker_broker.address) as admin:
        admin.create_topic(topic, 1)
    producer = sync.Producer(logbroker_broker.address, last_flush_seconds=1_000)
    producer.send_and_wait(topic, b"")
    with Frozen(logbroker_broker):
        deliveries = [producer.send(topic, b"") for _ in range(3)]
        ended = threading.Event()
        thread = interrupt_at([*flushes_of(producer, monkeypatch), ended], lambda: None)
        with pytest.raises(KeyboardInterrupt):
            producer.close()
        ended.set()
        thread.join()
        for delivery in deliveries:
            with pytest.raises(BrokerUnavailableError, match="closed before"):
                delivery.result(timeout_seconds=0)
    assert not producer._lifetime.is_open
    assert "3 records" in capfd.readouterr().err
    background.wait_for_end()


def test_what_an_interrupted_call_does_at_last_is_done_when_the_interrupt_goes_on() -> None:
    state = "not begun"

    async def work() -> None:
        nonlocal state
        state = "begun"
        begun_working.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            state = "ended"

    begun_working, over = threading.Event(), threading.Event()
    thread = interrupt_at([begun_working, over], lambda: None)
    with pytest.raises(KeyboardInterrupt):
        sync_loop.run(work())
    assert state == "ended"
    over.set()
    thread.join()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_call_that_is_interrupted_anywhere_has_ended_or_never_begins(background: Background) -> None:
    states: list[str] = []

    async def work() -> None:
        states.append("begun")
        try:
            await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            states.append("ended")

    point, is_through = 0, False
    while not is_through:
        point += 1
        states.clear()
        with interrupted(point) as left, contextlib.suppress(KeyboardInterrupt):
            sync_loop.run(work())
        is_through = bool(left)
        assert states in ([], ["begun", "ended"]), point
    background.wait_for_end()
    assert states
