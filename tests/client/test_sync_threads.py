"""Synchronous clients and threads: any of them first, any number at once, closing beside others, at the end."""

from __future__ import annotations

import json
import logging
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import pytest

from logbroker.client import sync
from logbroker.client.runtime import sync_loop
from logbroker.client.sync import Admin, Consumer, Producer, QueueAdmin, QueueSettings, Worker
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.errors import BrokerUnavailableError, InvalidRequestError, LogbrokerError
from tests.client.first_calls import ARGUMENTS, public_methods

END_SECONDS = 50


def in_process(*command: str) -> str:
    """Run Python in a process of its own, to its end; return what it says."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=END_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", list(ARGUMENTS))
def test_every_method_is_among_the_first_calls(name: str) -> None:
    assert public_methods(name) == set(ARGUMENTS[name])


@pytest.mark.prove
@pytest.mark.parametrize("clients", ["each its own", "shared"])
def test_threads_whose_first_calls_come_at_once_share_one_loop(clients: str) -> None:
    seed = random.randrange(1 << 32)
    with embedded() as broker, Admin(broker.address) as admin, QueueAdmin(broker.address) as queues:
        admin.create_topic("t")
        queues.create_queue("q", "t", QueueSettings())
        shared = ["shared"] if clients == "shared" else []
        found = json.loads(in_process("-m", "tests.client.first_calls", broker.address, str(seed), *shared))
    wrong = {name: outcome for name, outcome in found["outcomes"].items() if outcome not in ("done", "refused")}
    assert wrong == {}, f"seed {seed}"
    assert (found["loops"], found["later"]) == (1, "done"), f"seed {seed}"


# --- a first call that fails ----------------------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has used no client yet."""
    monkeypatch.setattr(sync_loop, "_shared", None)


@pytest.mark.usefixtures("fresh")
def test_a_first_call_that_finds_no_thread_fails_alone(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    first = Admin(address)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for attempt in (first.list_topics, lambda: Producer(address), lambda: Consumer(address)):
        with pytest.raises(BrokerUnavailableError, match="can't start new thread"):
            attempt()
    monkeypatch.setattr(threading.Thread, "start", start)
    first.list_topics()
    first.close()
    with Producer(address) as producer:
        producer.flush()


@pytest.mark.usefixtures("fresh")
def test_a_first_call_that_is_interrupted_harms_no_later_one(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new_loop = sync_loop._new_loop

    def interrupted() -> Any:
        raise KeyboardInterrupt

    admin = Admin(address)
    monkeypatch.setattr(sync_loop, "_new_loop", interrupted)
    with pytest.raises(KeyboardInterrupt):
        admin.list_topics()
    monkeypatch.setattr(sync_loop, "_new_loop", new_loop)
    admin.list_topics()
    admin.close()


@pytest.mark.usefixtures("fresh")
def test_a_signal_handler_may_be_first_while_a_first_call_begins(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new_loop = sync_loop._new_loop
    answered: list[object] = []

    def handle(number: int, frame: object) -> None:
        with Admin(address) as admin:
            answered.append(admin.list_topics())

    def signalled() -> Any:
        monkeypatch.setattr(sync_loop, "_new_loop", new_loop)
        signal.raise_signal(signal.SIGUSR1)
        return new_loop()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        monkeypatch.setattr(sync_loop, "_new_loop", signalled)
        loop = sync_loop.shared_loop()
        assert answered
        assert sync_loop.shared_loop() is loop
        with Admin(address) as admin:
            admin.list_topics()
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.prove
def test_a_broker_that_is_away_at_the_first_call_is_found_later(unused_tcp_port: int) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    clients = [Admin(address, request_timeout_seconds=0.2) for _ in range(4)]
    producer = Producer(address, request_timeout_seconds=0.2)
    for client in clients:
        with pytest.raises(LogbrokerError):
            client.list_topics()
    with pytest.raises(LogbrokerError):
        producer.send("orders", b"")
    with embedded(listen=address):
        admin = Admin(address)
        admin.create_topic("orders")
        for client in clients:
            client._admin._connection.request_timeout_seconds = 20
            assert [topic.name for topic in client.list_topics()] == ["orders"]
        producer._connection.request_timeout_seconds = 20
        assert producer.send_and_wait("orders", b"").offset == 0
        producer.close()
        for each in (admin, *clients):
            each.close()


# --- what is raised in the loop -------------------------------------------------------------------------------------


def test_what_is_raised_in_the_loop_ends_no_client(address: str, caplog: pytest.LogCaptureFixture) -> None:
    admin = Admin(address)
    admin.list_topics()

    def leave() -> None:
        raise SystemExit(3)

    loop = sync_loop.shared_loop()
    with caplog.at_level(logging.CRITICAL, "asyncio"):
        loop.call_soon_threadsafe(leave)
        admin.list_topics()
        admin.list_topics()
    assert sync_loop.shared_loop() is loop
    admin.close()


def test_a_logging_handler_that_raises_ends_no_client(address: str) -> None:
    """The exception ends the event loop, and the report of it raises the next one."""
    admin = Admin(address)
    admin.list_topics()
    raised = 0

    class Leaving(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            nonlocal raised
            raised += 1
            raise SystemExit(3)

    loop, handler = sync_loop.shared_loop(), Leaving()
    logging.getLogger().addHandler(handler)
    try:
        loop.call_soon_threadsafe(logging.getLogger("program").error, "a line")
        admin.list_topics()
    finally:
        logging.getLogger().removeHandler(handler)
    assert raised >= 2
    assert sync_loop.shared_loop() is loop
    admin.close()


def test_the_loops_own_thread_is_told_that_it_would_wait_for_itself(address: str) -> None:
    admin = Admin(address)
    found: list[BaseException] = []
    called = threading.Event()

    def use() -> None:
        try:
            admin.list_topics()
        except LogbrokerError as error:
            found.append(error)
        called.set()

    sync_loop.shared_loop().call_soon_threadsafe(use)
    assert called.wait(20)
    assert [type(error) for error in found] == [InvalidRequestError]
    admin.list_topics()
    admin.close()


# --- closing in another thread --------------------------------------------------------------------------------------


def admin_calls(address: str, topic: str) -> tuple[Any, Callable[[Any], object]]:
    return Admin(address), lambda client: client.describe_topic(topic)


def queue_calls(address: str, topic: str) -> tuple[Any, Callable[[Any], object]]:
    return QueueAdmin(address), lambda client: client.describe_queue(topic)


def sends(address: str, topic: str) -> tuple[Any, Callable[[Any], object]]:
    return Producer(address, max_buffered_bytes=2000), lambda client: client.send(topic, bytes(100)).result(20)


def deliveries(address: str, topic: str) -> tuple[Any, Callable[[Any], object]]:
    def work(client: Worker) -> None:
        for delivery in client:
            with delivery:
                pass

    return Worker(address, topic), work


def sessions(address: str, topic: str) -> tuple[Any, Callable[[Any], object]]:
    def work(client: Worker) -> None:
        with client.session(b"nobody's key") as session:
            for _ in session:
                pass

    return Worker(address, topic), work


@pytest.mark.parametrize("kind", [admin_calls, queue_calls, sends, deliveries, sessions])
def test_closing_ends_the_calls_of_other_threads(address: str, topic: str, kind: Any) -> None:
    """With an answer or an error of ours, and soon."""
    with Admin(address) as admin, QueueAdmin(address) as queues:
        admin.create_topic(topic, 4)
        queues.create_queue(topic, topic, QueueSettings())
    for _ in range(5):
        client, use = kind(address, topic)
        begun = threading.Semaphore(0)
        ends: list[BaseException | None] = []

        def work(client: Any = client, use: Any = use, begun: Any = begun, ends: Any = ends) -> None:
            for number in range(10_000):
                if number == (2 if kind in (admin_calls, queue_calls, sends) else 0):
                    begun.release()
                try:
                    use(client)
                except BaseException:
                    ends.append(sys.exception())
                    return

        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        closers = [threading.Thread(target=client.close, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in threads:
            begun.acquire()
        for thread in closers:
            thread.start()
        for thread in (*closers, *threads):
            thread.join(20)
            assert not thread.is_alive()
        assert len(ends) == len(threads)
        assert all(isinstance(error, LogbrokerError) for error in ends), ends


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("way", ["poll", "loop", "batches", "assigning"])
@pytest.mark.parametrize("member", [False, True], ids=["alone", "group"])
def test_closing_a_consumer_ends_the_wait_of_its_thread(address: str, topic: str, way: str, member: bool) -> None:
    with Admin(address) as admin, Producer(address, batch_bytes=2000) as producer:
        admin.create_topic(topic, 2)
        for number in range(3000):
            producer.send(topic, bytes(100), partition=number % 2)
    seen: list[int] = []
    for _ in range(6):
        consumer = Consumer(address, group=topic if member else None, auto_commit_interval_seconds=0.01)
        begun = threading.Event()
        ends: list[BaseException] = []

        def read(consumer: Consumer = consumer, begun: threading.Event = begun, ends: Any = ends) -> None:
            try:
                if way == "assigning":
                    begun.set()
                if member:
                    consumer.subscribe(topic, on_assigned=lambda partitions: begun.set())
                else:
                    consumer.assign(topic)
                while way in ("poll", "assigning"):
                    seen.append(len(consumer.poll(7, timeout_seconds=30)))
                    begun.set()
                for records in consumer if way == "loop" else consumer.batches():
                    seen.append(1 if way == "loop" else len(records))  # type: ignore[arg-type]
                    begun.set()
            except BaseException:
                ends.append(sys.exception())

        thread = threading.Thread(target=read, daemon=True)
        closers = [threading.Thread(target=consumer.close, daemon=True) for _ in range(2)]
        thread.start()
        assert begun.wait(20)
        for closer in closers:
            closer.start()
        for each in (*closers, thread):
            each.join(20)
            assert not each.is_alive()
        assert [type(error) for error in ends] == [BrokerUnavailableError], ends
        if member and way != "assigning":
            with Admin(address) as admin:
                assert admin.describe_group(topic).members == ()
    if member:
        # What a closed one had not finished comes to the next one.
        with Consumer(address, group=topic) as consumer:
            consumer.subscribe(topic)
            assert sum(seen) + sum(map(len, consumer.batches(until_end=True))) >= 3000


# --- the end of the program -----------------------------------------------------------------------------------------

LAST_CALLS = {
    "first at exit": """
        def last():
            try:
                print(len(sync.Admin(address).list_topics()))
            except LogbrokerError as error:
                print(error.reason)
        atexit.register(last)
    """,
    "again at exit": """
        admin = sync.Admin(address)
        admin.list_topics()
        atexit.register(lambda: print(len(admin.list_topics())))
        atexit.register(lambda: sync.Producer(address).flush())
    """,
    "when the interpreter ends": """
        class Last:
            def __init__(self, client):
                self.client = client

            def __del__(self, write=os.write):
                try:
                    self.client.close()
                except BaseException as error:
                    write(1, type(error).__name__.encode() + b" ")

        admin = sync.Admin(address)
        admin.list_topics()
        last = Last(admin), Last(sync.Producer(address)), Last(sync.Consumer(address)), Last(sync.Admin(address))
    """,
    "nothing was closed": """
        admin, producer = sync.Admin(address), sync.Producer(address)
        consumer, member = sync.Consumer(address), sync.Consumer(address, group="t")
        consumer.assign("t", "latest")
        member.subscribe("t")
        threading.Thread(target=consumer.poll, args=(1, 1000), daemon=True).start()
        producer.send_and_wait("t", b"")
    """,
    "in many threads": """
        def work():
            for _ in range(5):
                with sync.Admin(address) as admin:
                    admin.list_topics()
        for _ in range(8):
            threading.Thread(target=work).start()
    """,
}


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("case", list(LAST_CALLS))
def test_a_program_comes_to_its_end(logbroker_session_broker: EmbeddedBroker, case: str) -> None:
    address = logbroker_session_broker.address
    with Admin(address) as admin:
        if "t" not in [topic.name for topic in admin.list_topics()]:
            admin.create_topic("t")
    beginning = "import atexit, os, threading\nfrom logbroker.client import sync\nfrom logbroker.errors import *\n"
    program = f"{beginning}address = {address!r}\n{textwrap.dedent(LAST_CALLS[case])}"
    said = in_process("-c", program).split()
    if case == "when the interpreter ends":
        assert said == ["BrokerUnavailableError"] * 4
    elif case == "again at exit":
        assert [word.isdigit() for word in said] == [True]


def test_all_synchronous_classes_have_their_calls_here() -> None:
    classes = {name for name in sync.__all__ if hasattr(getattr(sync, name), "close")}
    assert classes == set(ARGUMENTS)
