"""Clients that are given several addresses use the one that answers, and go on with another when it fails."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from logbroker.client import Admin, Consumer, Producer, QueueAdmin, Worker, sync
from logbroker.client.transport.brokers import Brokers, begin_with
from logbroker.client.transport.connection import Connection
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import BrokerUnavailableError, InvalidRequestError
from logbroker.v1 import admin_pb2
from tests.cli.command import LOGBROKER
from tests.client.gateways import Gateway
from tests.client.worker_helpers import drain, numbers, take


def test_a_wrong_address_of_several_is_named_at_once() -> None:
    for make in (Admin, QueueAdmin, Producer, Consumer, sync.Admin, sync.QueueAdmin, sync.Producer, sync.Consumer):
        with pytest.raises(InvalidRequestError) as caught:
            make("one:9192,two")
        assert str(caught.value) == (
            "the address of the broker, 'one:9192,two', is wrong: address 2 of 2, 'two', names no port:"
            " give HOST:PORT, such as two:9192"
        )
    for worker in (Worker, sync.Worker):
        with pytest.raises(InvalidRequestError, match="address 2 of 3, '', is empty: give HOST:PORT"):
            worker("one:9192,,two:9192", "group")


def test_each_address_has_its_turn() -> None:
    brokers = Brokers("b:1, a:1,c:1,a:1")
    assert (brokers.text, len(brokers)) == ("b:1,a:1,c:1", 3)
    begin_with("b:1,a:1,c:1", "c:1")
    used = []
    brokers = Brokers("b:1, a:1,c:1")
    for _ in range(4):
        used.append(brokers.current)
        assert not brokers.failed("another:1")
        assert brokers.failed(brokers.current)
        assert not brokers.failed(used[-1])
    assert used == ["c:1", "b:1", "a:1", "c:1"]
    # The next client does not begin with an address that has failed.
    assert Brokers("b:1,a:1,c:1").current == brokers.current == "b:1"
    one = Brokers("a:1")
    assert not one.failed("a:1")
    assert one.current == "a:1"


def test_every_address_is_tried_before_the_pauses_grow() -> None:
    one, three = (Connection(text, request_timeout_seconds=10) for text in ("a:1", "a:1,b:1,c:1"))
    for attempt in range(10):
        longest = min(1.0, 0.05 * 2**attempt)
        assert 0.8 * longest <= one.backoff_seconds(attempt) <= longest
        for number in range(3):
            assert 0.8 * longest <= three.backoff_seconds(3 * attempt + number) <= longest


@pytest.fixture
def dead_first(address: str, unused_tcp_port: int) -> str:
    """Two addresses, the first of which is dead. Clients begin with it."""
    addresses = f"127.0.0.1:{unused_tcp_port},{address}"
    begin_with(addresses, f"127.0.0.1:{unused_tcp_port}")
    return addresses


async def use_admin(brokers: str, topic: str) -> None:
    async with Admin(brokers) as admin:
        # The call may not be repeated once a broker may have got it.
        assert (await admin.create_topic(f"{topic}-new", 1)).name == f"{topic}-new"


async def use_queue_admin(brokers: str, topic: str) -> None:
    async with QueueAdmin(brokers) as queues:
        await queues.create_queue(topic, topic)


async def use_producer(brokers: str, topic: str) -> None:
    async with Producer(brokers) as producer:
        assert (await producer.send_and_wait(topic, b"0")).offset == 0


async def use_consumer(brokers: str, topic: str) -> None:
    await use_producer(brokers, topic)
    async with Consumer(brokers) as consumer:
        await consumer.assign(topic)
        assert (await read(consumer, 1)) == [0]


async def use_member(brokers: str, topic: str) -> None:
    await use_producer(brokers, topic)
    async with Consumer(brokers, group=topic) as consumer:
        await consumer.subscribe(topic)
        assert (await read(consumer, 1)) == [0]
        await consumer.commit()


async def use_worker(brokers: str, topic: str) -> None:
    await use_queue_admin(brokers, topic)
    await use_producer(brokers, topic)
    async with Worker(brokers, topic) as worker:
        assert numbers(await drain(worker, 1)) == [0]


async def use_synchronous_clients(brokers: str, topic: str) -> None:
    await asyncio.to_thread(_use_synchronous_clients, brokers, topic)


def _use_synchronous_clients(brokers: str, topic: str) -> None:
    with sync.Admin(brokers) as admin, sync.QueueAdmin(brokers) as queues, sync.Producer(brokers) as producer:
        admin.create_topic(f"{topic}-new", 1)
        queues.create_queue(topic, f"{topic}-new")
        producer.send(f"{topic}-new", b"0")
    with sync.Worker(brokers, topic) as worker:
        for delivery in worker:
            with delivery:
                assert delivery.value == b"0"
            break
    with sync.Consumer(brokers, group=f"{topic}-group") as consumer:
        consumer.subscribe(f"{topic}-new")
        assert next(iter(consumer)).value == b"0"


async def read(consumer: Consumer, count: int) -> list[int]:
    found = []
    async for record in consumer:
        found.append(int(record.value or b""))
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize(
    "use",
    [use_admin, use_queue_admin, use_producer, use_consumer, use_member, use_worker, use_synchronous_clients],
)
async def test_a_dead_address_at_the_start_is_passed_over(
    address: str, dead_first: str, topic: str, unused_tcp_port: int, use: Callable[[str, str], Any]
) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, 1)
    begin_with(dead_first, f"127.0.0.1:{unused_tcp_port}")
    async with asyncio.timeout(20):
        await use(dead_first, topic)
    assert Brokers(dead_first).current == address


async def test_clients_of_dead_addresses_try_each_before_they_say_so(unused_tcp_port: int) -> None:
    """A call that may not be repeated ends after one attempt at each address."""
    addresses = f"127.0.0.1:{unused_tcp_port},localhost:{unused_tcp_port}"
    begin_with(addresses, f"127.0.0.1:{unused_tcp_port}")
    async with Admin(addresses) as admin:
        with pytest.raises(BrokerUnavailableError, match=f"at localhost:{unused_tcp_port} cannot be reached"):
            await admin.create_topic("t", 1)


async def test_a_call_that_may_have_taken_effect_is_not_made_at_another_address(address: str, topic: str) -> None:
    """The first broker reads the request, and ends the connection."""
    requests = 0

    async def answer(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        nonlocal requests
        requests += 1
        await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        raise AssertionError

    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(answer)
    service = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name
    methods = {"CreateTopics": handler, "ListTopics": handler}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    first = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        begin_with(f"{first},{address}", first)
        async with Admin(f"{first},{address}") as admin:
            with pytest.raises(BrokerUnavailableError, match="whether the request took effect is not known"):
                await admin.create_topic(topic, 1)
            # The next call goes to the other address at once, and so does one that may be repeated.
            assert topic not in [info.name for info in await admin.list_topics()]
            assert requests == 1
        begin_with(f"{first},{address}", first)
        async with Admin(f"{first},{address}") as admin:
            assert topic not in [info.name for info in await admin.list_topics()]
        assert requests == 2
    finally:
        await server.stop(None)


async def test_clients_go_on_when_their_gateway_goes(address: str, topic: str) -> None:
    """Members and workers keep what they hold."""
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        first = await stack.enter_async_context(Gateway(address))
        second = await stack.enter_async_context(Gateway(address))
        brokers = f"{first.address},{second.address}"
        begin_with(brokers, first.address)
        admin = await stack.enter_async_context(Admin(brokers))
        queues = await stack.enter_async_context(QueueAdmin(brokers))
        producer = await stack.enter_async_context(Producer(brokers))
        await admin.create_topic(topic, 1)
        await queues.create_queue(topic, topic)
        for number in range(10):
            await producer.send_and_wait(topic, b"%d" % number, b"key")
        member = await stack.enter_async_context(Consumer(brokers, group=f"{topic}-group"))
        await member.subscribe(topic)
        worker = await stack.enter_async_context(Worker(brokers, topic))
        assert await read(member, 5) == list(range(5))
        [held] = await take(worker, 1)
        assert (first.served, second.served) == (2, 0)
        await first.stop()
        # This call may not be repeated. Without a connection it goes to the other address.
        assert (await admin.create_topic(f"{topic}-new", 1)).name == f"{topic}-new"
        assert (await producer.send_and_wait(topic, b"10", b"key")).offset == 10
        assert await read(member, 6) == list(range(5, 11))
        await member.commit()
        await held.ack()
        await worker.flush()
        assert numbers(await drain(worker, 10)) == list(range(1, 11))
        assert second.served == 2


class Moved:
    """A broker that is killed, and starts again at the second of two addresses, with the same data."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._broker = stack.enter_context(EmbeddedBroker(directory))
        # A bound socket that does not listen keeps the port, and refuses connections.
        self._port = stack.enter_context(socket.socket())
        self._port.bind(("127.0.0.1", 0))
        self._second = f"127.0.0.1:{self._port.getsockname()[1]}"
        self.addresses = f"{self._broker.address},{self._second}"
        begin_with(self.addresses, self._broker.address)

    def kill(self) -> None:
        self._broker.kill()

    def start(self) -> None:
        self._port.close()
        self._stack.enter_context(EmbeddedBroker(self._directory, listen=self._second))


@pytest.fixture
def moved(tmp_path: Path) -> Iterator[Moved]:
    with ExitStack() as stack:
        yield Moved(tmp_path / "data", stack)


@pytest.mark.prove
async def test_all_clients_go_on_at_the_other_address(moved: Moved, topic: str) -> None:
    """Nothing is stored twice, and members and workers keep what they hold."""
    brokers = moved.addresses
    async with asyncio.timeout(50), AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(brokers))
        queues = await stack.enter_async_context(QueueAdmin(brokers))
        producer = await stack.enter_async_context(Producer(brokers))
        await admin.create_topic(topic, 1)
        await queues.create_queue(topic, topic)
        for number in range(10):
            await producer.send_and_wait(topic, b"%d" % number, b"key")
        member = await stack.enter_async_context(Consumer(brokers, group=f"{topic}-group"))
        await member.subscribe(topic)
        reader = await stack.enter_async_context(Consumer(brokers))
        await reader.assign(topic)
        worker = await stack.enter_async_context(Worker(brokers, topic))
        assert await read(member, 10) == await read(reader, 10) == list(range(10))
        [held] = await take(worker, 1)

        sending = [await producer.send(topic, b"%d" % number, b"key") for number in range(10, 1000)]
        await asyncio.to_thread(moved.kill)
        sending += [await producer.send(topic, b"%d" % number, b"key") for number in range(1000, 1010)]
        listing = asyncio.create_task(admin.list_topics())
        await asyncio.to_thread(moved.start)

        assert [(await sent).offset for sent in sending] == list(range(10, 1010))
        assert [info.name for info in await listing] == [topic]
        assert await read(member, 1000) == await read(reader, 1000) == list(range(10, 1010))
        await member.commit()
        await held.ack()
        await worker.flush()
        assert numbers(await drain(worker, 9)) == list(range(1, 10))
        assert (await queues.describe_queue(topic)).topic == topic


@pytest.mark.prove
def test_synchronous_clients_and_commands_go_on_at_the_other_address(moved: Moved, topic: str) -> None:
    brokers = moved.addresses
    environment = os.environ | {"LOGBROKER_BROKER": brokers}
    with ExitStack() as stack:
        admin = stack.enter_context(sync.Admin(brokers))
        admin.create_topic(topic, 1)
        producer = stack.enter_context(sync.Producer(brokers))
        producer.send(topic, b"0").result(20)
        member = stack.enter_context(sync.Consumer(brokers, group=topic))
        member.subscribe(topic)
        assert next(iter(member)).value == b"0"
        command = [*LOGBROKER, "produce", topic]
        pipe = subprocess.PIPE
        produce = stack.enter_context(
            subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)
        )
        assert produce.stdin is not None
        stack.callback(produce.kill)
        produce.stdin.write("1\n")
        produce.stdin.flush()
        assert next(iter(member)).value == b"1"
        moved.kill()
        produce.stdin.write("2\n")
        produce.stdin.flush()
        moved.start()
        assert next(iter(member)).value == b"2"
        produce.stdin.close()
        assert produce.wait(20) == 0
        assert producer.send(topic, b"3").result(20).offset == 3
        assert next(iter(member)).value == b"3"
        member.commit()
        assert [info.name for info in admin.list_topics()] == [topic]
    listed = subprocess.run([*LOGBROKER, "topic", "list", "--json"], capture_output=True, env=environment, check=True)
    assert [found["name"] for found in json.loads(listed.stdout)] == [topic]
