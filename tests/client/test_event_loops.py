"""An asynchronous client belongs to the event loop of its first use: another one is told so, whatever it asks for."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from logbroker.client import Admin, Consumer, Producer, QueueAdmin, TopicPartition, Worker
from logbroker.client.transport.background import CANCELLED
from logbroker.errors import BrokerUnavailableError, InvalidRequestError
from tests.client.worker_helpers import create, fill

OTHER_LOOP = "belongs to another event loop"
ENDED = r"ended before close\(\)"


async def first(source: AsyncIterator[Any]) -> Any:
    return await anext(aiter(source))


async def opened(session: Any) -> None:
    async with session:
        pass


async def handle(_: Any) -> None:
    raise AssertionError("nothing is handed out in another loop")


async def use_admin(client: Any, topic: str) -> None:
    await client.list_topics()


async def use_queue_admin(client: Any, topic: str) -> None:
    await client.describe_queue(topic)


async def use_producer(client: Any, topic: str) -> None:
    await client.send_and_wait(topic, b"1", b"k0")


async def use_consumer(client: Any, topic: str) -> None:
    await client.assign(topic)
    await client.poll(max_records=1, timeout_seconds=20)


async def use_member(client: Any, topic: str) -> None:
    await client.subscribe(topic)
    await client.poll(max_records=1, timeout_seconds=20)


async def use_worker(client: Any, topic: str) -> None:
    delivery = await first(client)
    delivery.ack()
    await delivery
    # It has prefetched more.
    client.unsettled = await first(client)
    client.open_session = client.session(b"nobody's")
    await client.open_session.open()


Use = Callable[[Any, str], Coroutine[Any, Any, None]]
Call = Callable[[Any, str], Coroutine[Any, Any, Any]]

READS: dict[str, Call] = {
    "poll": lambda client, topic: client.poll(timeout_seconds=5),
    "loop": lambda client, topic: first(aiter(client)),
    "batches": lambda client, topic: first(client.batches()),
    "until_end": lambda client, topic: first(client.until_end()),
    "seek": lambda client, topic: client.seek(TopicPartition(topic, 0), 0),
}

KINDS: dict[str, tuple[Callable[[str, str], Any], Use, dict[str, Call], bool]] = {
    # How it is made and used, what else there is, and whether anything may be lost with its loop.
    "Admin": (lambda address, topic: Admin(address), use_admin, {}, False),
    "QueueAdmin": (lambda address, topic: QueueAdmin(address), use_queue_admin, {}, False),
    "Producer": (
        lambda address, topic: Producer(address),
        use_producer,
        {"flush": lambda client, topic: client.flush()},
        True,
    ),
    "Consumer": (
        lambda address, topic: Consumer(address),
        use_consumer,
        {**READS, "end_offsets": lambda client, topic: client.end_offsets()},
        False,
    ),
    "member": (
        lambda address, topic: Consumer(address, group=f"{topic}-members"),
        use_member,
        {
            **READS,
            "commit": lambda client, topic: client.commit(),
            "committed": lambda client, topic: client.committed(),
        },
        True,
    ),
    "Worker": (
        lambda address, topic: Worker(address, topic),
        use_worker,
        {
            "loop": lambda client, topic: first(aiter(client)),
            "batches": lambda client, topic: first(client.batches()),
            "run": lambda client, topic: client.run(handle),
            "session": lambda client, topic: opened(client.session(wait_seconds=5)),
            "sessions": lambda client, topic: client.sessions(handle),
            "flush": lambda client, topic: client.flush(),
            "a delivery": lambda client, topic: wait_for(client.unsettled.ack()),
            "a session's loop": lambda client, topic: first(aiter(client.open_session)),
            "a session's flush": lambda client, topic: client.open_session.flush(),
            "a session's end": lambda client, topic: client.open_session.__aexit__(None, None, None),
        },
        True,
    ),
}


async def wait_for(awaitable: Any) -> None:
    await awaitable


@pytest.fixture
def filled(address: str, topic: str) -> str:
    async def prepare() -> None:
        await create(address, topic, 1)
        await fill(address, topic, 20)

    asyncio.run(prepare())
    return topic


def in_another_loop(work: Coroutine[Any, Any, Any]) -> None:
    """Nothing waits there for what would never come."""

    async def within() -> None:
        async with asyncio.timeout(20):
            await work

    asyncio.run(within())


class RunningLoop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(20)

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_loop_is_refused_once_the_first_one_has_ended(address: str, filled: str, kind: str) -> None:
    make, use, calls, loses = KINDS[kind]
    client = make(address, filled)
    asyncio.run(use(client, filled))
    for call in (use, *calls.values()):
        # A delivery was lost at that end already, and says so.
        with pytest.raises((InvalidRequestError, BrokerUnavailableError), match=f"{OTHER_LOOP}|{CANCELLED}"):
            in_another_loop(call(client, filled))
    if loses:
        with pytest.raises(InvalidRequestError, match=ENDED):
            in_another_loop(client.close())
    for _ in range(2):
        # That was the end of it.
        in_another_loop(client.close())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del client
        gc.collect()


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_loop_is_refused_while_the_first_one_runs(address: str, filled: str, kind: str) -> None:
    make, use, calls, _ = KINDS[kind]
    client = make(address, filled)
    home = RunningLoop()
    try:
        home.do(use(client, filled))
        for call in (use, *calls.values()):
            with pytest.raises(InvalidRequestError, match=OTHER_LOOP):
                in_another_loop(call(client, filled))
        with pytest.raises(InvalidRequestError, match="close it there"):
            in_another_loop(client.close())
        # It has done no harm.
        if kind != "Worker":
            home.do(use(client, filled))
        else:
            home.do(first(client))
        home.do(client.close())
        in_another_loop(client.close())
    finally:
        home.end()


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_close_without_an_event_loop_of_asyncio_ends(address: str, filled: str, kind: str, used: bool) -> None:
    """As that of a trio program, which drives coroutines by itself."""
    make, use, _, loses = KINDS[kind]
    client = make(address, filled)
    if used:
        asyncio.run(use(client, filled))
    closing = client.close()
    if used and loses:
        with pytest.raises(InvalidRequestError, match=ENDED):
            closing.send(None)
    else:
        with pytest.raises(StopIteration):
            closing.send(None)


def test_a_delivery_of_a_producer_is_told_of_in_whichever_loop_waits(address: str, filled: str) -> None:
    """Its producer sends in the other one all the same."""
    producer = Producer(address, linger_ms=300)
    home = RunningLoop()
    deliveries: list[Any] = []

    async def send() -> None:
        deliveries.append(await producer.send(filled, b"1", b"k0"))

    try:
        home.do(send())
        in_another_loop(wait_for(deliveries[0]))
        assert deliveries[0].done()
        home.do(producer.close())
    finally:
        home.end()


def test_what_belongs_to_a_loop_that_does_not_run_is_waited_for_nowhere_else(address: str, topic: str) -> None:
    """Its batch is open still: neither is another record taken into that, nor its answer waited for, for ever."""
    first_loop, second_loop = asyncio.new_event_loop(), asyncio.new_event_loop()
    producer = Producer(address, linger_ms=60_000)

    async def send() -> Any:
        return await producer.send(topic, b"")

    async def wait(delivery: Any) -> None:
        async with asyncio.timeout(20):
            await delivery

    try:
        first_loop.run_until_complete(create(address, topic))
        delivery = first_loop.run_until_complete(send())
        for work in (send(), wait(delivery)):
            with pytest.raises(InvalidRequestError, match="another event loop"):
                second_loop.run_until_complete(work)
        first_loop.run_until_complete(producer.close())
        second_loop.run_until_complete(wait(delivery))
    finally:
        first_loop.close()
        second_loop.close()


THREADS = """
import asyncio, sys, threading
from logbroker.client import Consumer, Producer

async def work(address, topic):
    for _ in range(3):
        async with Producer(address) as producer, Consumer(address) as consumer:
            await producer.send_and_wait(topic, b"value")
            await consumer.assign(topic)
            await consumer.poll(timeout_seconds=20)

def run():
    for _ in range(4):
        asyncio.run(work(*sys.argv[1:]))

threads = [threading.Thread(target=run) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


async def test_loops_that_end_beside_others_say_nothing(address: str, topic: str) -> None:
    """gRPC has one poller for all loops of a process, which logs what it has for a loop that has ended."""
    async with Admin(address) as admin:
        await admin.create_topic(topic)
    arguments = [sys.executable, "-c", THREADS, address, topic]
    run = await asyncio.to_thread(subprocess.run, arguments, capture_output=True, text=True, timeout=50, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
