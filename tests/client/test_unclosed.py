"""Clients that nobody closes: dropped while the program goes on, or open when it ends."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from logbroker import client
from logbroker.client import sync
from logbroker.embedded_broker import EmbeddedBroker

END_SECONDS = 50
TAKEN_SECONDS = 100
"""The time for a program to start, connect and take a record on a machine that does much else: there, the imports alone
take some ten seconds."""
COUNT = 200

BEGINNING = """
import asyncio, concurrent.futures, logbroker, multiprocessing, os, signal, sys, threading
from logbroker import client
from logbroker.client import sync

address, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])

def send(producer):
    for number in range(count):
        producer.send(topic, b"%d" % number)

def opened(**settings):
    return sync.Producer(address, linger_ms=3_600_000, **settings)

def work(producer=None):
    send(producer or opened())

async def asend(producer):
    for number in range(count):
        await producer.send(topic, b"%d" % number)

def aopened():
    return client.Producer(address, linger_ms=3_600_000)
"""

FLUSHED = {
    "the end": "producer = opened(); send(producer)",
    "sys.exit": "producer = opened(); send(producer); sys.exit(3)",
    "an exception": "producer = opened(); send(producer); raise ValueError('the program fails')",
    "Ctrl-C": "producer = opened(); send(producer); signal.raise_signal(signal.SIGINT)",
    "dropped": "send(opened())",
    "sys.exit in a block": "with opened() as producer: send(producer); sys.exit(3)",
    "Ctrl-C in a block": "with opened() as producer: send(producer); signal.raise_signal(signal.SIGINT)",
    "SIGTERM that is handled": """
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(3))
        producer = opened(); send(producer); signal.raise_signal(signal.SIGTERM)
    """,
    "a thread": "producer = opened(); threading.Thread(target=send, args=(producer,)).start()",
    "the end of a thread that dropped it": "threading.Thread(target=work).start()",
    "a pool": """
        producer = opened(); pool = concurrent.futures.ThreadPoolExecutor(2)
        for number in range(count): pool.submit(producer.send, topic, b"%d" % number)
    """,
    "a forked process": """
        process = multiprocessing.get_context("fork").Process(target=work); process.start(); process.join()
        sys.exit(process.exitcode)
    """,
    "a thread of a forked process": """
        def threads(): threading.Thread(target=work).start()
        process = multiprocessing.get_context("fork").Process(target=threads); process.start(); process.join()
        sys.exit(process.exitcode)
    """,
    "os.fork": "pid = os.fork()\nif not pid: work(); sys.exit(3)\nos.waitpid(pid, 0)",
    "dropped in an event loop that goes on": """
        from logbroker.client.runtime import lifetime
        async def main():
            await asend(aopened())
            # Who reads the last record may be faster than its answer.
            while lifetime._open: await asyncio.sleep(0.01)
        asyncio.run(main())
    """,
    "a block that is cancelled": """
        async def main():
            async with aopened() as producer:
                await asend(producer)
                asyncio.current_task().cancel()
                await asyncio.sleep(0)
        try: asyncio.run(main())
        except asyncio.CancelledError: pass
    """,
    "an event loop in another thread": """
        loop = asyncio.new_event_loop(); threading.Thread(target=loop.run_forever, daemon=True).start()
        producer = aopened(); asyncio.run_coroutine_threadsafe(asend(producer), loop).result()
    """,
}

LOST = {
    "asyncio.run": "async def main(): await asend(aopened())\nasyncio.run(main())",
    "asyncio.run, still referred to": """
        async def main():
            global producer
            producer = aopened()
            await asend(producer)
        asyncio.run(main())
    """,
    "a block that is cancelled, and a bound of 0 s": """
        async def main():
            async with client.Producer(address, linger_ms=3_600_000, last_flush_seconds=0) as producer:
                await asend(producer)
                asyncio.current_task().cancel()
                await asyncio.sleep(0)
        try: asyncio.run(main())
        except asyncio.CancelledError: pass
    """,
    "an end in the middle of the event loop": """
        async def main():
            producer = client.Producer(address, linger_ms=3_600_000, last_flush_seconds=1000)
            await asend(producer)
            import atexit
            atexit._run_exitfuncs()
            os._exit(0)
        asyncio.run(main())
    """,
    "a closed loop": """
        loop = asyncio.new_event_loop()
        producer = aopened(); loop.run_until_complete(asend(producer)); loop.close()
    """,
    "a topic that is gone": """
        producer = opened(); send(producer)
        with sync.Admin(address) as admin: admin.delete_topic(topic)
    """,
    "a bound of 0 s": "producer = opened(last_flush_seconds=0); send(producer)",
}

TOLD_OF_ONE = {
    "a callback": (1, "producer.send(topic, b'').add_done_callback(lambda delivery: None)"),
    "a result in a thread": (
        1,
        """
        waiting = producer.send(topic, b'')
        threading.Thread(target=waiting.result, daemon=True).start()
        while not waiting.batch.waiters: pass
        """,
    ),
    "a result whose time is over": (
        0,
        """
        try: producer.send(topic, b'').result(timeout=0.01)
        except logbroker.RequestTimeoutError: pass
        """,
    ),
    "a result that was interrupted": (
        0,
        """
        signal.signal(signal.SIGALRM, lambda number, frame: 1 / 0); signal.setitimer(signal.ITIMER_REAL, 0.05)
        try: producer.send(topic, b'').result()
        except ZeroDivisionError: pass
        """,
    ),
}


def program(text: str, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", f"{BEGINNING}\n{textwrap.dedent(text)}", *arguments],
        capture_output=True,
        text=True,
        timeout=END_SECONDS,
        check=False,
    )


def values(address: str, topic: str) -> list[bytes | None]:
    with sync.Consumer(address) as consumer:
        consumer.assign(topic)
        return [record.value for record in consumer.until_end()]


def create(address: str, topic: str) -> None:
    with sync.Admin(address) as admin:
        admin.create_topic(topic, 1)


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("end", list(FLUSHED))
def test_what_was_sent_is_delivered_at_the_end(address: str, topic: str, end: str) -> None:
    topic = f"flushed-{topic}"
    create(address, topic)
    done = program(FLUSHED[end], address, topic, str(COUNT))
    assert sorted(values(address, topic), key=str) == sorted((b"%d" % n for n in range(COUNT)), key=str), done.stderr
    assert "not confirmed" not in done.stderr
    # What the program ended with stays what it ends with.
    assert (done.returncode == 0) == (not re.search(r"sys\.exit\(3|raise|SIGINT", FLUSHED[end]) or end == "os.fork")


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("end", list(LOST))
def test_what_is_lost_is_counted(address: str, topic: str, end: str) -> None:
    topic = f"lost-{topic}"
    create(address, topic)
    done = program(LOST[end], address, topic, str(COUNT))
    told = re.findall(r"logbroker: (\d+) records sent to \S+ were not confirmed: .", done.stderr)
    assert [int(number) for number in told] == [COUNT], done.stderr


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("why", ["no time to flush", "a topic that is gone"])
@pytest.mark.parametrize("told_of", list(TOLD_OF_ONE))
def test_whoever_is_told_of_one_record_is_not_told_of_the_others_of_its_batch(
    address: str, topic: str, told_of: str, why: str
) -> None:
    topic = f"one-{topic}"
    create(address, topic)
    told_count, text = TOLD_OF_ONE[told_of]
    if why == "no time to flush":
        text = f"producer = opened(last_flush_seconds=0); send(producer)\n{textwrap.dedent(text)}"
    else:
        delete = "with sync.Admin(address) as admin: admin.delete_topic(topic)"
        text = f"producer = opened(); send(producer)\n{textwrap.dedent(text)}\n{delete}"
    done = program(text, address, topic, str(COUNT))
    told = re.findall(r"logbroker: (\d+) records sent to \S+ were not confirmed: .", done.stderr)
    assert [int(number) for number in told] == [COUNT + 1 - told_count], done.stderr


def test_ctrl_c_in_the_last_flush_is_given_as_the_reason(logbroker_broker: EmbeddedBroker) -> None:
    create(logbroker_broker.address, "t")
    text = f"""
        producer = opened(); send(producer); os.kill({logbroker_broker.pid}, signal.SIGKILL)
        concurrent.futures.wait = lambda *_: signal.raise_signal(signal.SIGINT)  # the wait at the end
    """
    done = program(text, logbroker_broker.address, "t", str(COUNT))
    assert "were not confirmed: Ctrl-C ended the last flush of the Producer" in done.stderr, done.stderr


def test_a_broker_that_is_away_holds_the_end_up_for_the_bound_only(logbroker_broker: EmbeddedBroker) -> None:
    create(logbroker_broker.address, "t")
    text = f"producer = opened(last_flush_seconds=0.5); send(producer); os.kill({logbroker_broker.pid}, signal.SIGKILL)"
    done = program(text, logbroker_broker.address, "t", str(COUNT))
    assert f"logbroker: {COUNT} records sent to" in done.stderr
    assert "not done within 0.5 s" in done.stderr
    assert done.returncode == 0


def test_a_daemon_thread_that_sends_to_the_end_loses_nothing_that_send_took(address: str, topic: str) -> None:
    topic = f"daemon-{topic}"
    create(address, topic)
    text = """
        producer = sync.Producer(address, batch_bytes=2000)
        begun = threading.Event()
        def ever():
            number = 0
            while True:
                try: producer.send(topic, b"%d" % number)
                except Exception:
                    os.write(1, b"%d" % number)
                    return
                number += 1
                if number == count: begun.set()
        thread = threading.Thread(target=ever, daemon=True)
        thread.start()
        begun.wait()
        import atexit
        # Called first, and so registered after the client's: the thread has until then.
        from logbroker.client.runtime import lifetime
        atexit.unregister(lifetime._at_exit)
        atexit.register(thread.join)
        atexit.register(lifetime._at_exit)
    """
    done = program(text, address, topic, str(COUNT))
    assert "not confirmed" not in done.stderr
    assert values(address, topic) == [b"%d" % n for n in range(int(done.stdout))]


# --- what is held ---------------------------------------------------------------------------------------------------


def sockets() -> int:
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found += os.readlink(entry).startswith("socket:")
        except OSError:
            continue
    return found


def until(true: Callable[[], bool], seconds: float = 30) -> bool:
    deadline = monotonic() + seconds
    while not true():
        if monotonic() > deadline:
            return False
        sleep(0.01)
    return True


def use(kind: str, address: str, topic: str) -> Any:
    match kind:
        case "Admin":
            admin = sync.Admin(address)
            admin.list_topics()
            return admin
        case "QueueAdmin":
            queues = sync.QueueAdmin(address)
            queues.list_queues()
            return queues
        case "Producer":
            producer = sync.Producer(address)
            producer.send_and_wait(topic, b"")
            return producer
        case "Consumer":
            consumer = sync.Consumer(address)
            consumer.assign(topic)
            consumer.poll(1, 20)
            return consumer
        case "member":
            member = sync.Consumer(address, group=f"{topic}-members")
            member.subscribe(topic)
            return member
        case _:
            worker = sync.Worker(address, f"{topic}-workers")
            worker.session(b"key", wait_seconds=10).open()
            return worker


def use_and_drop(kind: str, address: str, topic: str) -> None:
    use(kind, address, topic)
    gc.collect()


@pytest.mark.prove
@pytest.mark.filterwarnings("always::ResourceWarning")
@pytest.mark.parametrize("kind", ["Admin", "QueueAdmin", "Producer", "Consumer", "member", "Worker"])
def test_dropped_clients_give_their_descriptors_back_and_warn(address: str, topic: str, kind: str) -> None:
    topic = f"dropped-{topic}"
    create(address, topic)
    with sync.Producer(address) as producer, sync.QueueAdmin(address) as queues:
        producer.send_and_wait(topic, b"", b"key")
        queues.create_queue(f"{topic}-workers", topic, sync.QueueSettings())
    gc.collect()
    before = sockets()
    count = 4 if kind == "Worker" else 15
    for _ in range(count):
        # Each holds at least one while it is used.
        with pytest.warns(ResourceWarning, match="unclosed (Admin|QueueAdmin|Producer|Consumer|Worker) of "):
            use_and_drop(kind, address, topic)
    assert until(lambda: sockets() <= before), (before, sockets())
    if kind == "member":
        with sync.Admin(address) as admin:
            assert until(lambda: admin.describe_group(f"{topic}-members").members == ())


@pytest.mark.prove
@pytest.mark.filterwarnings("always::ResourceWarning")
def test_dropped_asynchronous_clients_give_their_descriptors_back_and_warn(address: str, topic: str) -> None:
    topic = f"dropped-{topic}"
    create(address, topic)
    gc.collect()
    before = sockets()

    async def use_some() -> None:
        await client.Admin(address).list_topics()
        await client.Producer(address).send_and_wait(topic, b"")
        consumer = client.Consumer(address, group=f"{topic}-members")
        await consumer.subscribe(topic)
        del consumer
        gc.collect()

    async def until_closed() -> None:
        await use_some()
        async with asyncio.timeout(30):
            # Those of the loop itself come on top.
            while sockets() > before + 4:
                await asyncio.sleep(0.01)

    for main in (use_some, until_closed):
        with pytest.warns(ResourceWarning, match="unclosed"):
            asyncio.run(main())
        gc.collect()
        assert until(lambda: sockets() <= before), (before, sockets())


@pytest.mark.prove
def test_at_the_end_a_member_commits_what_is_finished_and_leaves_and_a_worker_settles(address: str, topic: str) -> None:
    topic = f"end-{topic}"
    create(address, topic)
    with sync.QueueAdmin(address) as queues:
        queues.create_queue(topic, topic, sync.QueueSettings())
    text = """
        send(opened())
        member = sync.Consumer(address, group=topic + "-members", auto_commit_interval_seconds=3600)
        member.subscribe(topic, on_revoked=lambda partitions: os.write(2, b"called"))
        records = iter(member)
        for _ in range(11): next(records)
        worker = sync.Worker(address, topic, worker_id="the first")
        deliveries = iter(worker)
        next(deliveries).ack()
        held = next(deliveries)
    """
    done = program(text, address, topic, "20", options=("-W", "always::ResourceWarning"))
    assert "called" not in done.stderr
    for what in ("Producer", "Consumer", "Worker"):
        assert f"ResourceWarning: unclosed {what} of {address}" in done.stderr
    with sync.Admin(address) as admin, sync.QueueAdmin(address) as queues:
        assert admin.describe_group(f"{topic}-members").members == ()
        (committed,) = admin.fetch_offsets(f"{topic}-members").values()
        assert committed.offset == 10
        assert queues.describe_queue(topic).workers == ()
    with sync.Worker(address, topic) as worker:
        deliveries = iter(worker)
        # Neither waits for a lease, nor counts an attempt.
        first = next(deliveries)
        assert (first.offset, first.attempt) == (1, 1)


@pytest.mark.prove
def test_closed_clients_and_those_that_were_never_used_do_not_warn(address: str, topic: str) -> None:
    create(address, topic)
    text = """
        for kind in (sync.Admin, sync.QueueAdmin, sync.Producer, sync.Consumer): kind(address)
        unused = sync.Worker(address, "q")
        with opened() as producer, sync.Consumer(address) as consumer, sync.Admin(address) as admin:
            send(producer); producer.flush(); consumer.assign(topic); consumer.poll(); admin.list_topics()
        async def main():
            async with aopened() as producer: await asend(producer)
        asyncio.run(main())
    """
    done = program(text, address, topic, str(COUNT), options=("-W", "error::ResourceWarning"))
    assert (done.returncode, done.stderr) == (0, "")


READING = {
    "a record in hand": "records = iter(consumer); next(records)",
    "a list in hand": "lists = consumer.batches(max_records=1); next(lists)",
    "a batch of poll in hand": "consumer.poll(1, 20)",
    "until the end": "records = consumer.until_end(); next(records)",
    "a daemon that waits for records": """
        seen = threading.Event()
        def read():
            for record in consumer: seen.set()
        threading.Thread(target=read, daemon=True).start(); assert seen.wait(20)
    """,
    "a daemon that polls": """
        seen = threading.Event()
        def read():
            while True:
                if consumer.poll(1, 20): seen.set()
        threading.Thread(target=read, daemon=True).start(); assert seen.wait(20)
    """,
    "a daemon with deliveries": """
        seen = threading.Event()
        def read():
            for delivery in sync.Worker(address, topic): seen.set()
        threading.Thread(target=read, daemon=True).start(); assert seen.wait(20)
    """,
    "a daemon with an event loop": """
        seen = threading.Event()
        async def read():
            async with client.Consumer(address) as reader:
                await reader.assign(topic)
                async for record in reader: seen.set()
        threading.Thread(target=asyncio.run, args=(read(),), daemon=True).start(); assert seen.wait(20)
    """,
}


@pytest.mark.prove
@pytest.mark.parametrize("member", [False, True], ids=["alone", "in a group"])
@pytest.mark.parametrize("what", list(READING))
def test_the_end_of_a_program_with_an_open_consumer_says_nothing(
    address: str, topic: str, what: str, member: bool
) -> None:
    create(address, topic)
    with sync.Producer(address) as producer, sync.QueueAdmin(address) as queues:
        queues.create_queue(topic, topic)
        for number in range(3):
            producer.send(topic, b"%d" % number)
    opened = "consumer = sync.Consumer(address); consumer.assign(topic)"
    if member:
        opened = "consumer = sync.Consumer(address, group='of-' + topic); consumer.subscribe(topic)"
    done = program(opened + "\n" + textwrap.dedent(READING[what]), address, topic, str(COUNT))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("call", ["worker.run(seen)", "worker.sessions(seen)"])
def test_what_works_in_a_daemon_thread_keeps_no_program_alive(address: str, topic: str, call: str) -> None:
    program = f"""
import threading
from logbroker.client.sync import Admin, Producer, QueueAdmin, Worker
with Admin({address!r}) as admin, QueueAdmin({address!r}) as queues, Producer({address!r}) as producer:
    admin.create_topic({topic!r}, 1)
    queues.create_queue({topic!r}, {topic!r})
    producer.send_and_wait({topic!r}, b"v", b"k")
worker = Worker({address!r}, {topic!r})
taken = threading.Event()
def seen(what):
    taken.set()
threading.Thread(target=lambda: {call}, daemon=True).start()
assert taken.wait({TAKEN_SECONDS})
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * TAKEN_SECONDS, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("of", [client, sync], ids=["async", "sync"])
@pytest.mark.parametrize("name", ["Producer", "Consumer", "Worker", "Admin", "QueueAdmin"])
def test_a_client_cannot_be_copied(address: str, topic: str, of: Any, name: str) -> None:
    """The end of the copy would end the connection of the other one."""
    made = getattr(of, name)(address, *((topic,) if name == "Worker" else ()))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=f"a {name} cannot be copied or pickled"):
            copied(made)
