"""The streams of groups go to the gateway that owns their group."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

import grpc
import pytest

from logbroker.client import Admin, Consumer, Producer, QueueAdmin, Worker
from logbroker.client.transport.connection import Connection
from logbroker.client.transport.owner_route import OwnerRoute
from logbroker.client.transport.status import error_of_call
from logbroker.errors import BrokerUnavailableError, StaleOwnerError
from logbroker.v1 import admin_pb2
from tests.client.gateways import Gateway, stale_owner
from tests.client.worker_helpers import take


def test_the_error_names_the_owner() -> None:
    for owner in ("127.0.0.1:9", ""):
        code = grpc.StatusCode.UNAVAILABLE
        failure = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), stale_owner(owner), details="not here")
        error = error_of_call(failure, "127.0.0.1:1")
        assert isinstance(error, StaleOwnerError)
        assert (error.owner, error.message) == (owner, "not here")


async def test_a_route_follows_a_few_owners_and_then_waits() -> None:
    given = Connection("a:1,b:1", request_timeout_seconds=10)
    route = OwnerRoute(given)

    def ended(owner: str) -> tuple[bool, str]:
        may_go_on = route.ended(StaleOwnerError("not here").owned_by(owner))
        return may_go_on, route.connection.broker

    for _ in range(2):
        assert [ended(owner) for owner in ("x:1", "y:1", "x:1")] == [(True, "x:1"), (True, "y:1"), (True, "x:1")]
        # Gateways that name each other would keep the client busy.
        assert ended("y:1") == (False, given.broker)
        assert route.connection is given
    # An owner that does not own the group, or cannot be reached, leads back to the given addresses.
    for back in ("", "x:1"):
        assert ended("x:1") == (True, "x:1")
        assert ended(back) == (False, given.broker)
    assert ended("x:1") == (True, "x:1")
    assert not route.ended(BrokerUnavailableError("away"))
    assert route.connection is given
    # The owner may be at the given addresses.
    assert ended("x:1") == (True, "x:1")
    assert ended(given.broker) == (True, given.broker)
    assert route.connection is given
    # A gateway that names itself, nobody, or no address gets another try after a pause.
    for nobody in (given.broker, "", "nowhere"):
        assert ended(nobody) == (False, given.broker)
    # An accepted stream ends the search.
    for _ in range(10):
        assert ended("x:1") == (True, "x:1")
        route.accepted()
        assert ended("y:1") == (True, "y:1")
        route.accepted()
    await given.close()


async def fill(address: str, topic: str) -> None:
    async with Admin(address) as admin, QueueAdmin(address) as queues, Producer(address) as producer:
        await admin.create_topic(topic, 1)
        await queues.create_queue(f"{topic}-queue", topic)
        for number in range(10):
            await producer.send(topic, b"%d" % number, b"key")


async def read_all(consumer: Consumer, count: int) -> list[bytes | None]:
    values = []
    async for record in consumer:
        values.append(record.value)
        if len(values) == count:
            break
    return values


async def work_off(worker: Worker, count: int) -> list[bytes | None]:
    values = []
    async for delivery in worker:
        async with delivery:
            values.append(delivery.value)
        if len(values) == count:
            break
    await worker.flush()
    return values


VALUES = [b"%d" % number for number in range(10)]


async def test_streams_of_groups_go_to_the_owner_and_the_rest_stays(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(address, topic)
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(Gateway(address))
        asked = await stack.enter_async_context(Gateway(address, [owner.address] * 2))
        with caplog.at_level(logging.INFO):
            async with Consumer(asked.address, group=topic) as consumer:
                await consumer.subscribe(topic)
                assert await read_all(consumer, 10) == VALUES
                await consumer.commit()
            async with Worker(asked.address, f"{topic}-queue") as worker:
                assert await work_off(worker, 10) == VALUES
        assert (asked.served, owner.served, len(asked.owners)) == (0, 2, 0)
    # Following an owner is no failure.
    assert not [record for record in caplog.records if record.name.startswith("logbroker.client")]


@pytest.mark.parametrize("first", ["", "itself", "dead", "not an address", "another that is none"])
async def test_a_gateway_that_names_no_owner_is_asked_again(
    address: str, topic: str, unused_tcp_port: int, first: str
) -> None:
    await fill(address, topic)
    async with AsyncExitStack() as stack:
        asked = await stack.enter_async_context(Gateway(address))
        other = await stack.enter_async_context(Gateway(address))
        named = {
            "itself": asked.address,
            "dead": f"127.0.0.1:{unused_tcp_port}",
            "another that is none": other.address,
        }.get(first, first)
        for begin in (read_as_member, take_as_worker):
            asked.owners.extend([named] * 2)
            other.owners.extend([other.address, ""])
            await begin(asked.address, topic)
            other.owners.clear()
            assert not asked.owners
        assert (asked.served, other.served) == (2, 0)


async def read_as_member(address: str, topic: str) -> None:
    async with Consumer(address, group=topic) as consumer:
        await consumer.subscribe(topic)
        assert await read_all(consumer, 10) == VALUES


async def take_as_worker(address: str, topic: str) -> None:
    async with Worker(address, f"{topic}-queue") as worker:
        assert await work_off(worker, 10) == VALUES


async def test_members_and_workers_keep_what_they_hold_when_the_owner_goes(address: str, topic: str) -> None:
    """The gateway that was asked at first serves the groups after that."""
    await fill(address, topic)
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(Gateway(address))
        asked = await stack.enter_async_context(Gateway(address, [owner.address] * 2))
        consumer = await stack.enter_async_context(Consumer(asked.address, group=topic))
        await consumer.subscribe(topic)
        worker = await stack.enter_async_context(Worker(asked.address, f"{topic}-queue"))
        assert await read_all(consumer, 1) == [b"0"]
        [delivery] = await take(worker, 1)
        assert owner.served == 2
        await owner.stop()
        await delivery.ack()
        await worker.flush()
        assert await work_off(worker, 9) == VALUES[1:]
        assert await read_all(consumer, 9) == VALUES[1:]
        await consumer.commit()
        assert asked.served == 2


async def test_a_call_is_repeated_until_the_owner_answers() -> None:
    """A call that may be repeated. The gateway passes calls on; it fails while it does not know the owner."""
    owners = ["", "127.0.0.1:1"]

    async def answer(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        if owners:
            trailing = tuple(stale_owner(owners.pop()))
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not here", trailing)
        return admin_pb2.ListTopicsResponse().SerializeToString()

    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(answer)
    methods = {"ListTopics": handler, "DeleteTopics": handler}
    service = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with asyncio.timeout(20), Admin(f"127.0.0.1:{port}") as admin:
            assert await admin.list_topics() == []
            owners.append("127.0.0.1:1")
            with pytest.raises(StaleOwnerError) as caught:
                await admin.delete_topics(["t"])
            assert caught.value.owner == "127.0.0.1:1"
    finally:
        await server.stop(None)
