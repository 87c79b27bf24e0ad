"""Asynchronous programs that end while their clients are in use: every task of the loop is cancelled, the clients' too.

So it is where a signal handler calls sys.exit, as docs/PYTHON.md advises, where something in a task raises SystemExit
or KeyboardInterrupt, and where a program cancels all its tasks by itself. The blocks that use the clients are left by
that: what was finished is committed, settled and flushed, the rest is given back, and nobody waits for an answer that
nobody reads. Requests may take longer here than the programs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from logbroker import client
from logbroker.client import sync
from logbroker.client.transport.background import Background
from logbroker.client.transport.connection import Connection
from logbroker.errors import LogbrokerError

END_SECONDS = 40
COUNT = 10
KEYS = 5

BEGINNING = """
import asyncio, os, signal, sys
from logbroker import client

address, topic, end = sys.argv[1:4]
settings = {"request_timeout_seconds": 120}
member = settings | {"group": topic + "-group", "auto_commit_interval_seconds": 3600}
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

def ready():
    match end:
        case "SIGTERM": os.write(1, b"ready")
        case "sys.exit in a callback": asyncio.get_running_loop().call_soon(sys.exit)
        case "sys.exit in a task": sys.exit()
        case "KeyboardInterrupt in a task": raise KeyboardInterrupt
        case "SIGTERM that cancels the task":
            (task,) = (task for task in asyncio.all_tasks() if task.get_coro() is running)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            os.kill(os.getpid(), signal.SIGTERM)
        case "all tasks cancelled":
            for task in asyncio.all_tasks(): task.cancel()

async def forever():
    await asyncio.Event().wait()

counts = {"done": 0, "in hand": 0}

async def work(delivery):
    if counts["done"] < 2:
        counts["done"] += 1
        return
    counts["in hand"] += 1
    if counts["in hand"] == 3: ready()
    await forever()
"""
PRODUCERS = {
    "a block": """
        async with client.Producer(address, linger_ms=3_600_000, last_flush_seconds=120) as producer:
            for number in range(10): await producer.send(topic, b"%d" % number)
            ready()
            await forever()
    """,
    "close": """
        producer = client.Producer(address, linger_ms=3_600_000)
        try:
            for number in range(10): await producer.send(topic, b"%d" % number)
            ready()
            await forever()
        finally:
            await producer.close()
    """,
    "last words": """
        async with client.Producer(address) as producer:
            try:
                for number in range(9): await producer.send(topic, b"%d" % number)
                ready()
                await forever()
            finally:
                await producer.send_and_wait(topic, b"9")
    """,
}
WORKERS = {
    "run": """
        async with client.Worker(address, topic, **settings) as worker:
            await worker.run(work, concurrency=3)
    """,
    "a loop": """
        async with client.Worker(address, topic, **settings) as worker:
            async for delivery in worker:
                if delivery.offset < 2:
                    delivery.ack()
                else:
                    ready()
                    await forever()
    """,
    "batches": """
        async with client.Worker(address, topic, **settings) as worker:
            async for deliveries in worker.batches(max_records=4):
                for delivery in deliveries[:2]: delivery.ack()
                ready()
                await forever()
    """,
    "nothing to say but goodbye": """
        async with client.Worker(address, topic, **settings) as worker:
            deliveries = aiter(worker)
            for _ in range(2): await (await anext(deliveries)).ack()
            await anext(deliveries)
            ready()
            await forever()
    """,
}
SESSIONS = """
    async def work(session):
        async for delivery in session:
            if delivery.offset < KEYS:
                session.state = b"seen"
                delivery.ack()
                counts["done"] += 1
                if counts["done"] == 3: ready()
            else:
                await forever()
    async with client.Worker(address, topic, **settings) as worker:
        await worker.sessions(work, concurrency=3)
""".replace("KEYS", str(KEYS))
MEMBERS = {
    "a list in hand": (
        5,
        """
        async with client.Consumer(address, **member) as consumer:
            await consumer.subscribe(topic)
            for _ in range(2): assert len(await consumer.poll(5, 60)) == 5
            ready()
            await forever()
        """,
    ),
    "a loop": (
        7,
        """
        async with client.Consumer(address, **member) as consumer:
            await consumer.subscribe(topic)
            async for record in consumer:
                if record.offset == 7:
                    ready()
                    await forever()
        """,
    ),
    "waiting for more": (
        COUNT,
        """
        async with client.Consumer(address, **member) as consumer:
            await consumer.subscribe(topic)
            assert len(await consumer.poll(10, 60)) == 10
            asyncio.get_running_loop().call_soon(ready)
            await consumer.poll(10, 60)
        """,
    ),
    "a commit of its own": (
        6,
        """
        async with client.Consumer(address, auto_commit=False, **member) as consumer:
            await consumer.subscribe(topic)
            records = await consumer.poll(10, 60)
            try:
                ready()
                await forever()
            finally:
                await consumer.commit(records[5])
        """,
    ),
    "nothing to say but goodbye": (
        3,
        """
        async with client.Consumer(address, auto_commit=False, **member) as consumer:
            await consumer.subscribe(topic)
            records = await consumer.poll(3, 60)
            await consumer.commit(records)
            ready()
            await forever()
        """,
    ),
}
OTHERS = {
    "Consumer": """
        async with client.Consumer(address, **settings) as consumer:
            await consumer.assign(topic)
            assert await consumer.poll(1, 60)
            ready()
            await forever()
    """,
    "Admin": """
        async with client.Admin(address, **settings) as admin, client.QueueAdmin(address, **settings) as queues:
            await admin.list_topics()
            await queues.list_queues()
            try:
                ready()
                await forever()
            finally:
                await admin.delete_topic(topic)
    """,
}
UNBEGUN = "ignore:coroutine 'UnaryUnaryCall._invoke' was never awaited:RuntimeWarning"
"""Where a signal's exception comes while gRPC makes a call, Python says this of the call that never began."""
OTHER_ENDS = {
    "sys.exit in a callback": 0,
    "sys.exit in a task": 0,
    "KeyboardInterrupt in a task": -signal.SIGINT,
    "all tasks cancelled": 1,
    "SIGTERM that cancels the task": 1,
}


def run(main: str, address: str, topic: str, end: str) -> None:
    """Run a program to its end, which must come by itself."""
    body = textwrap.indent(textwrap.dedent(main), "    ")
    program = subprocess.Popen(
        [
            sys.executable,
            "-W",
            UNBEGUN,
            "-c",
            f"{BEGINNING}\nasync def main():\n{body}\nrunning = main()\nasyncio.run(running)",
            address,
            topic,
            end,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        try:
            if end == "SIGTERM":
                assert program.stdout is not None
                os.read(program.stdout.fileno(), 100)
                program.send_signal(signal.SIGTERM)
            _, said = program.communicate(timeout=END_SECONDS)
        finally:
            program.kill()
    assert program.returncode == OTHER_ENDS.get(end, 0), said
    # A traceback of what ended it, where that is no clean end, and nothing of the clients.
    assert program.returncode or not said
    assert "committed" not in said
    assert "confirmed" not in said


def fill(address: str, topic: str) -> None:
    with sync.Admin(address) as admin, sync.QueueAdmin(address) as queues, sync.Producer(address) as producer:
        admin.create_topic(topic, 1)
        queues.create_queue(topic, topic, sync.QueueSettings(lease_seconds=120))
        for number in range(COUNT):
            producer.send(topic, b"%d" % number, b"%d" % (number % KEYS))


def check_given_back(address: str, topic: str, acked: int) -> None:
    """All but so many records are there for others, and none of them counts as tried."""
    with sync.QueueAdmin(address) as queues:
        described = queues.describe_queue(topic)
    assert described.workers == ()
    assert (described.counts.acked, described.counts.in_flight) == (acked, 0)
    with sync.Worker(address, topic) as worker:
        deliveries = iter(worker)
        for _ in range(COUNT - acked):
            delivery = next(deliveries)
            assert delivery.attempt == 1
            delivery.ack()


def check_flushed(address: str, topic: str) -> None:
    with sync.Consumer(address) as consumer:
        consumer.assign(topic)
        assert [record.value for record in consumer.until_end()] == [b"%d" % number for number in range(10)]


def check_left(address: str, topic: str, committed: int) -> None:
    with sync.Admin(address) as admin:
        assert admin.describe_group(f"{topic}-group").members == ()
        (offset,) = admin.fetch_offsets(f"{topic}-group").values()
        assert offset.offset == committed


@pytest.mark.parametrize("way", list(PRODUCERS))
def test_what_was_sent_is_flushed(address: str, topic: str, way: str) -> None:
    with sync.Admin(address) as admin:
        admin.create_topic(topic, 1)
    run(PRODUCERS[way], address, topic, "SIGTERM")
    check_flushed(address, topic)


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("way", list(WORKERS))
def test_a_worker_settles_and_gives_back(address: str, topic: str, way: str) -> None:
    fill(address, topic)
    run(WORKERS[way], address, topic, "SIGTERM")
    check_given_back(address, topic, 2)


def test_sessions_are_given_back_with_their_state(address: str, topic: str) -> None:
    fill(address, topic)
    run(SESSIONS, address, topic, "SIGTERM")
    with sync.QueueAdmin(address) as queues:
        described = queues.describe_queue(topic)
    assert described.workers == ()
    assert (described.counts.acked, described.counts.in_flight) == (3, 0)
    with sync.Worker(address, topic) as worker:
        states = []
        for number in range(KEYS):
            with worker.session(b"%d" % number, wait_seconds=0) as session:
                states.append(session.state)
    assert sorted(states) == [b"", b"", b"seen", b"seen", b"seen"]


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("way", list(MEMBERS))
def test_a_member_commits_and_leaves(address: str, topic: str, way: str) -> None:
    fill(address, topic)
    committed, main = MEMBERS[way]
    run(main, address, topic, "SIGTERM")
    check_left(address, topic, committed)


@pytest.mark.parametrize("kind", list(OTHERS))
def test_others_end_as_well(address: str, topic: str, kind: str) -> None:
    fill(address, topic)
    run(OTHERS[kind], address, topic, "SIGTERM")
    with sync.Admin(address) as admin:
        names = [found.name for found in admin.list_topics()]
    assert (topic in names) == (kind != "Admin")


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("end", list(OTHER_ENDS))
def test_whatever_cancels_all_tasks(address: str, topic: str, end: str) -> None:
    """Three clients in one program."""
    fill(address, topic)
    sent = f"{topic}-sent"
    with sync.Admin(address) as admin:
        admin.create_topic(sent, 1)
    main = f"""
    async with client.Producer(address, linger_ms=3_600_000, last_flush_seconds=120) as producer:
        for number in range(10): await producer.send("{sent}", b"%d" % number)
        async with client.Consumer(address, **member) as consumer:
            await consumer.subscribe(topic)
            for _ in range(2): assert len(await consumer.poll(5, 60)) == 5
            async with client.Worker(address, topic, **settings) as worker:
                await worker.run(work, concurrency=3)
    """
    run(main, address, topic, end)
    check_given_back(address, topic, 2)
    check_left(address, topic, 5)
    check_flushed(address, sent)


async def cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.wait(others)


async def test_clients_outlive_the_cancellation_of_all_tasks(address: str, topic: str) -> None:
    """A program that goes on after it, goes on with its clients, and nobody waits for ever."""
    fill(address, topic)
    async with (
        client.Producer(address) as producer,
        client.Consumer(address, group=topic + "-group") as consumer,
        client.Consumer(address) as reader,
        client.Worker(address, topic) as worker,
    ):
        await consumer.subscribe(topic)
        await reader.assign(topic)
        deliveries = aiter(worker)
        assert (await consumer.poll(COUNT, 60))[0].offset == (await reader.poll(COUNT, 60))[0].offset == 0
        (await anext(deliveries)).ack()
        for number in range(COUNT, COUNT + 3):
            delivery = await producer.send(topic, b"")
            await cancel_others()
            assert (await delivery).offset == number
            assert [record.offset for record in await consumer.poll(10, 60)] == [number]
            assert [record.offset for record in await reader.poll(10, 60)] == [number]
            await (await anext(deliveries)).ack()
    check_left(address, topic, COUNT + 2)


# --- the work itself ------------------------------------------------------------------------------------------------


@pytest.fixture
async def connection(address: str) -> AsyncIterator[Connection]:
    connection = Connection(address, request_timeout_seconds=10)
    yield connection
    await connection.close()


class Work:
    """Notes what happens to it."""

    def __init__(self, connection: Connection) -> None:
        self.begun = 0
        self.breaks: list[bool] = []
        self.overs = 0
        self.background = Background("the work", connection, self._run, on_break=self._broken, on_over=self._over)

    def _broken(self, error: LogbrokerError, cancelled: bool) -> None:
        self.breaks.append(cancelled)

    def _over(self) -> None:
        self.overs += 1

    async def _run(self) -> None:
        self.begun += 1
        await asyncio.Event().wait()


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.001)


async def test_work_that_others_end_begins_anew_until_its_client_ends_it(connection: Connection) -> None:
    work = Work(connection)
    work.background.start()
    for number in range(1, 4):
        await until(lambda: work.begun == number)  # noqa: B023
        await cancel_others()
    await until(lambda: work.begun == 4)
    await work.background.end()
    assert not work.background.is_running
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert (work.begun, work.breaks, work.overs) == (4, [True] * 3, 0)


async def test_work_has_ended_when_others_hear_of_the_last_that_it_did(connection: Connection) -> None:
    """A caller that this wakes may start it again; the end of the first run is not taken for that of the second."""
    told = asyncio.Event()
    may_end = asyncio.Event()
    begun = 0

    async def run() -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            told.set()
        else:
            await may_end.wait()

    work = Background("the work", connection, run)
    work.start()
    await told.wait()
    states = [work.is_running]
    work.start()
    await until(lambda: begun == 2)
    await asyncio.sleep(0)
    states.append(work.is_running)
    assert states == [False, True]
    may_end.set()
    await work.wait(30)
    assert not work.is_running
    await work.end()


async def test_who_cancels_until_no_task_is_left_comes_to_an_end(connection: Connection) -> None:
    work = Work(connection)
    work.background.start()
    async with asyncio.timeout(30):
        while asyncio.all_tasks() != {asyncio.current_task()}:
            await cancel_others()
    assert not work.background.is_running
    assert work.overs == 1
    # Nobody waits for it any more.
    await work.background.wait(60)
    await work.background.end()


def test_work_of_a_client_that_is_left_open_ends_with_its_loop(address: str) -> None:
    async def main() -> Work:
        work = Work(Connection(address, request_timeout_seconds=10))
        work.background.start()
        await until(lambda: work.begun)
        return work

    told: list[dict[str, Any]] = []
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(lambda loop, context: told.append(context))
        work = runner.run(main())
    assert (work.begun, work.overs) == (1, 1)
    assert not work.background.is_running
    assert told == []


async def test_the_fault_of_a_work_is_told_and_it_begins_anew(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work(connection)
    failures = iter([ValueError("a fault"), None])

    async def fail_once() -> None:
        if (failure := next(failures)) is not None:
            raise failure

    work.background._work = fail_once
    work.background.start()
    await work.background.wait(60)
    assert not work.background.is_running
    assert work.breaks == [False]
    assert "the work failed and is started again" in caplog.text
