"""A program that uses clients and forks: what its children can do. Says JSON: the outcome of each attempt by its name.

python -m tests.client.forks SCENE ADDRESS, where the broker has a topic "t" with records, and a queue group "q" on it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import json
import logging
import multiprocessing
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, Final

from logbroker import client, embedded
from logbroker.client import sync
from logbroker.client.runtime.sync_loop import shared_loop
from logbroker.errors import LogbrokerError

_CHILD_SECONDS: Final = 25.0
_EXITS: Final = 16

outcomes: dict[str, Any] = {}


def in_child(name: str, work: Callable[[], object], *, leave: Callable[[int], Any] = os._exit) -> None:
    """Fork, and note what the work comes to in the child: a word, or the name of the error; and how the child ends."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            said = str(work())
        except BaseException as error:
            said = type(error).__name__
        os.write(writing, said.encode())
        os.close(writing)
        # As at the end of a program.
        leave(0)
        os._exit(99)
    os.close(writing)
    said, deadline = "", monotonic() + _CHILD_SECONDS
    while select.select([reading], [], [], max(0.0, deadline - monotonic()))[0] and (piece := os.read(reading, 4096)):
        said += piece.decode()
    os.close(reading)
    end: str | int = "hangs"
    while monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            end = os.waitstatus_to_exitcode(status)
            break
        threading.Event().wait(0.01)
    else:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    outcomes[name] = said if end == 0 else f"{said}, then {end}"


def sent_by_new(address: str) -> str:
    with sync.Producer(address) as producer:
        producer.send_and_wait("t", b"of a child")
    return "works"


def listed(admin: sync.Admin) -> str:
    admin.list_topics()
    return "works"


class Uses:
    """Every client, in use, with the parent's records, deliveries and partitions in hand."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.producer = sync.Producer(address, linger_ms=3_600_000)
        self.producer.send("t", b"of the parent")
        self.producer.flush()
        self.waiting = self.producer.send("t", b"the parent's last")
        self.worker = sync.Worker(address, "q")
        self.deliveries: Iterator[Any] = iter(self.worker)
        self.delivery = next(self.deliveries)
        self.consumer = sync.Consumer(address)
        self.consumer.assign("t")
        self.records = iter(self.consumer)
        next(self.records)
        self.merging = sync.Consumer(address)
        self.merged = iter(self.merging.merged("t"))
        next(self.merged)
        self.member = sync.Consumer(address, group="g")
        self.member.subscribe("t")
        self.member.poll(1, 20)
        self.admin = sync.Admin(address)
        self.admin.list_topics()
        self.queues = sync.QueueAdmin(address)
        self.queues.list_queues()

    def attempts(self) -> dict[str, Callable[[], object]]:
        address = self.address
        return {
            "send": lambda: self.producer.send("t", b"of a child"),
            "send_and_wait": lambda: self.producer.send_and_wait("t", b"of a child"),
            "send to a new topic": lambda: self.producer.send("other", b"of a child"),
            "flush": self.producer.flush,
            "result": self.waiting.result,
            "next delivery": lambda: next(self.deliveries),
            "ack": lambda: self.delivery.ack(),
            "worker.flush": self.worker.flush,
            "session": lambda: self.worker.session(b"k").open(),
            "poll": self.consumer.poll,
            "a loop that goes on": lambda: next(self.records),
            "a merged loop that goes on": lambda: next(self.merged),
            "a new loop": lambda: next(iter(self.consumer)),
            "assign": lambda: self.consumer.assign("t"),
            "end_offsets": self.consumer.end_offsets,
            "member.poll": self.member.poll,
            "commit": self.member.commit,
            "subscribe": lambda: self.member.subscribe("t"),
            "admin": self.admin.list_topics,
            "queues": self.queues.list_queues,
            "a new producer": lambda: sent_by_new(address),
            "a new admin": lambda: listed(sync.Admin(address)),
            "a new worker": lambda: next(iter(sync.Worker(address, "q"))),
            "a new consumer": lambda: sync.Consumer(address).assign("t"),
            "asyncio": lambda: asyncio.run(client.Admin(address).list_topics()),
        }

    def close(self) -> None:
        for each in (self.worker, self.consumer, self.merging, self.member, self.admin, self.queues, self.producer):
            each.close()


def used(address: str) -> None:
    """Each way to use a client that the parent uses, or a new one; and all ways to leave a child."""
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("logbroker").addHandler(handler)
    uses = Uses(address)
    for name, work in uses.attempts().items():
        in_child(name, work)

    def forgotten() -> str:
        vars(uses).clear()
        return "done"

    in_child("close", uses.close)
    in_child("close, then exit", uses.close, leave=sys.exit)
    in_child("forget", forgotten)
    in_child("forget, then exit", forgotten, leave=sys.exit)
    in_child("stop", uses.worker.stop)
    # The parent goes on, over the same connections.
    uses.delivery.ack().result(20)
    uses.member.commit()
    uses.admin.list_topics()
    uses.producer.flush()
    outcomes["offset of the parent's last"] = uses.waiting.result(20).offset
    outcomes["warnings"] = list(warnings)
    uses.close()


def many(address: str) -> None:
    """Children that use no client end as they should, however many there are."""
    uses = Uses(address)
    for number in range(_EXITS):
        in_child(f"exit {number}", lambda: "done", leave=sys.exit)
    uses.close()


def unused(address: str) -> None:
    """Clients of before the fork that were never used, as of a module that gunicorn has preloaded."""
    producer, admin = sync.Producer(address), sync.Admin(address)
    worker, consumer = sync.Worker(address, "q"), sync.Consumer(address)

    def sent() -> str:
        with producer:
            producer.send_and_wait("t", b"of a child")
        return "works"

    def polled() -> str:
        with consumer:
            consumer.assign("t")
            return "works" if consumer.poll(1, 20) else "nothing came"

    def worked() -> str:
        with worker:
            for _ in worker:
                return "works"
        return "nothing came"

    for name, work in {"send": sent, "admin": lambda: listed(admin), "poll": polled, "work": worked}.items():
        in_child(name, work, leave=sys.exit)
    sent()


def preloaded(address: str) -> None:
    """A worker and a member that were made before the forks, in use in several children at once."""
    worker, member = sync.Worker(address, "q"), sync.Consumer(address, group="g")

    def names() -> str:
        with worker, member:
            member.subscribe("t")
            delivery = next(iter(worker))
            assert member._core._group is not None
            identities = worker._core.link._identity, member._core._group.member._identity
            delivery.ack().result(20)
            return " ".join(f"{each.id} {each.incarnation} {each.client_name}" for each in identities)

    for number in range(3):
        in_child(f"child {number}", names, leave=sys.exit)


def in_a_callback(address: str) -> None:
    """A fork in the clients' own thread, whose child ends by sys.exit."""
    children: list[int] = []

    def fork(delivery: object) -> None:
        pid = os.fork()
        if not pid:
            sys.exit()
        children.append(pid)

    with sync.Producer(address) as producer:
        delivery = producer.send("t", b"of the parent")
        delivery.add_done_callback(fork)
        delivery.result(20)
        producer.flush()
    deadline = monotonic() + _CHILD_SECONDS
    while not children and monotonic() < deadline:
        threading.Event().wait(0.01)
    end = "hangs"
    while children and end == "hangs" and monotonic() < deadline:
        ended, _ = os.waitpid(children[0], os.WNOHANG)
        end = "ends" if ended else end
        threading.Event().wait(0.01)
    if end == "hangs":
        os.kill(children[0], signal.SIGKILL)
    outcomes["child"] = end


def closed(address: str) -> None:
    """Clients that were closed before the fork, and new ones in the child, again and again."""
    for number in range(5):
        uses = Uses(address)
        uses.close()
        in_child(f"new {number}", lambda: sent_by_new(address), leave=sys.exit)
        in_child(f"send with the closed one {number}", lambda uses=uses: uses.producer.send("t", b""))  # type: ignore[misc]


def closed_late(address: str) -> None:
    """Clients that were closed before the fork, while something in their event loop still refers to what they used."""
    uses = Uses(address)
    left = [each for each in gc.get_objects() if type(each).__name__ == "AioChannel"]
    outcomes["left"] = bool(left)
    uses.close()
    loop = shared_loop()
    loop.call_soon_threadsafe(lambda: loop.call_later(1, left.clear))
    in_child("new", lambda: sent_by_new(address), leave=sys.exit)


def in_threads(address: str) -> None:
    """Forks in other threads than the main one, several at once; and one after all clients were closed."""
    uses = Uses(address)

    def fork(number: int) -> None:
        in_child(f"exit {number}", lambda: "done", leave=sys.exit)
        in_child(f"send {number}", lambda: uses.producer.send("t", b"of a child"), leave=sys.exit)
        in_child(f"new {number}", lambda: sync.Producer(address).send("t", b"of a child"), leave=sys.exit)
        in_child(f"new loop {number}", lambda: sync.Consumer(address).assign("t"), leave=sys.exit)
        in_child(f"close {number}", uses.close, leave=sys.exit)

    def fork_again() -> None:
        in_child("after", lambda: sent_by_new(address))

    threads = [threading.Thread(target=fork, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    uses.admin.list_topics()
    uses.producer.flush()
    outcomes["offset of the parent's last"] = uses.waiting.result(20).offset
    uses.close()
    last = threading.Thread(target=fork_again)
    last.start()
    last.join()


def in_a_call(address: str) -> None:
    """Forks while other threads are in calls."""
    over = threading.Event()
    counts = {"send": 0, "admin": 0}
    producer, admin = sync.Producer(address), sync.Admin(address)

    def send() -> None:
        while not over.is_set():
            producer.send("t", bytes(100))
            counts["send"] += 1

    def ask() -> None:
        while not over.is_set():
            admin.list_topics()
            counts["admin"] += 1

    def close() -> None:
        producer.close()
        admin.close()

    threads = [threading.Thread(target=send), threading.Thread(target=ask)]
    for thread in threads:
        thread.start()
    while not all(counts.values()):
        threading.Event().wait(0.001)
    for number in range(4):
        in_child(f"send {number}", lambda: producer.send("t", b"of a child"))
        in_child(f"new {number}", lambda: sent_by_new(address), leave=sys.exit)
        in_child(f"close {number}", close, leave=sys.exit)
    over.set()
    for thread in threads:
        thread.join()
    producer.close()
    admin.close()


def processes(address: str) -> None:
    """multiprocessing and its pools by fork, and by spawn."""
    with sync.Producer(address) as producer:
        producer.send_and_wait("t", b"of the parent")
        for way in ("fork", "spawn"):
            context = multiprocessing.get_context(way)
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
                try:
                    outcomes[way] = pool.submit(sent_by_new, address).result(_CHILD_SECONDS)
                except LogbrokerError as error:
                    outcomes[way] = type(error).__name__
        producer.send_and_wait("t", b"of the parent")


def elsewhere(address: str) -> None:
    """gRPC's asyncio part is used by somebody else in the parent."""
    import grpc

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def connect() -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(address)

    channel = asyncio.run_coroutine_threadsafe(connect(), loop).result()
    in_child("new", lambda: sent_by_new(address))
    asyncio.run_coroutine_threadsafe(channel.close(), loop).result()


def from_asyncio(address: str) -> None:
    """Asynchronous clients of the parent, in a child that leaves their loop."""

    async def parent() -> None:
        async with client.Producer(address, linger_ms=3_600_000) as producer, client.Consumer(address) as consumer:
            waiting = await producer.send("t", b"of the parent")
            await consumer.assign("t")
            await consumer.poll(1, 20)

            def outside(work: Callable[[], Any]) -> Callable[[], object]:
                async def call() -> object:
                    return await work()

                return lambda: asyncio.run(call())

            async def awaited() -> object:
                return await waiting

            in_child("send", outside(lambda: producer.send("t", b"of a child")))
            in_child("flush", outside(producer.flush))
            in_child("await", outside(awaited))
            in_child("poll", outside(consumer.poll))
            in_child("close", outside(producer.close))
            in_child("new", outside(client.Admin(address).list_topics))
            in_child("synchronous", lambda: sent_by_new(address))
            await producer.send("t", b"of the parent")
            await producer.flush()

    asyncio.run(parent())


def with_brokers(address: str) -> None:
    """Embedded brokers: the parent's, in a child that leaves its block or ends; and the child's own."""

    def own() -> str:
        with embedded() as broker:
            return "works" if broker.pid else ""

    with embedded() as broker:
        kept = broker.data_dir

        def leave() -> str:
            broker.__exit__(None, None, None)
            return "left"

        def stop() -> None:
            broker.kill()
            broker.stop()

        in_child("leave", leave, leave=sys.exit)
        in_child("stop", stop, leave=sys.exit)
        in_child("start", broker.start)
        in_child("own", own, leave=sys.exit)
        with sync.Admin(broker.address) as admin:
            outcomes["parent"] = listed(admin) if kept.exists() else "the directory is gone"
    outcomes["after"] = kept.exists()


if __name__ == "__main__":
    scene = {
        each.__name__: each
        for each in (
            used,
            many,
            unused,
            preloaded,
            in_a_callback,
            closed,
            closed_late,
            in_threads,
            in_a_call,
            processes,
            elsewhere,
            from_asyncio,
            with_brokers,
        )
    }[sys.argv[1]]
    scene(sys.argv[2])
    sys.stdout.write(json.dumps(outcomes))
