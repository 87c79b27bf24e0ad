"""Calls whose answer does not come: what is said of a change that may have been made, and of one that was not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
import pytest

from logbroker import client
from logbroker.client import TopicPartition
from logbroker.client.transport.connection import _CHANGING, METHODS, Connection
from logbroker.client.transport.status import error_of_call, may_have_taken_effect
from logbroker.errors import BrokerUnavailableError, LogbrokerError, RequestTimeoutError, UnknownTopicError
from logbroker.v1 import admin_pb2, groups_pb2
from tests.client.links import Link

SAID: Final = "whether the request took effect is not known"
READS: Final = frozenset({
    "DescribeBroker",
    "DescribeGroups",
    "DescribeQueues",
    "DescribeTopics",
    "ExplainLanes",
    "Fetch",
    "FetchOffsets",
    "ListGroups",
    "ListLanes",
    "ListOffsets",
    "ListTopics",
})  # fmt: skip

Call = Callable[[client.Admin, client.QueueAdmin, str], Awaitable[Any]]

CHANGES: dict[str, Call] = {
    "create_topic": lambda admin, _, name: admin.create_topic(name),
    "create_topics": lambda admin, _, name: admin.create_topics([client.NewTopic(name)]),
    "alter_topic": lambda admin, _, name: admin.alter_topic(name, partitions=3),
    "delete_topic": lambda admin, _, name: admin.delete_topic(name),
    "delete_records": lambda admin, _, name: admin.delete_records({TopicPartition(name, 0): None}),
    "delete_group": lambda admin, _, name: admin.delete_group(name),
    "commit_offsets": lambda admin, _, name: admin.commit_offsets(name, {TopicPartition(name, 0): 0}),
    "create_queue": lambda _, queues, name: queues.create_queue(name, name),
    "alter_queue": lambda _, queues, name: queues.alter_queue(name, client.QueueSettings()),
    "delete_queue": lambda _, queues, name: queues.delete_queue(name),
    "resume_lane": lambda _, queues, name: queues.resume_lane(name, b"key"),
    "replace_head": lambda _, queues, name: queues.replace_head(name, b"key", b""),
    "decide_all": lambda _, queues, name: queues.decide_all(name, "resume"),
    "redrive": lambda _, queues, name: queues.redrive(name),
    "rewind": lambda _, queues, name: queues.rewind(name, "earliest"),
}
NO_CHANGES: dict[str, Call] = {
    "list_topics": lambda admin, _, name: admin.list_topics(),
    "describe_group": lambda admin, _, name: admin.describe_group(name),
    "list_offsets": lambda admin, _, name: admin.list_offsets([TopicPartition(name, 0)], "latest"),
    "fetch_offsets": lambda admin, _, name: admin.fetch_offsets(name),
    "list_queues": lambda _, queues, name: queues.list_queues(),
    "explain_lane": lambda _, queues, name: queues.explain_lane(name, b"key"),
    "a topic that is only checked": lambda admin, _, name: admin.create_topic(name, validate_only=True),
    "a redrive that only counts": lambda _, queues, name: queues.redrive(name, dry_run=True),
    "list_letters": lambda _, queues, name: queues.list_letters(name),
    "a rewind that only counts": lambda _, queues, name: queues.rewind(name, "earliest", dry_run=True),
}


@pytest.fixture
async def link(address: str) -> AsyncIterator[Link]:
    async with Link().to(address) as link:
        yield link


async def outcome(link: Link, call: Call, name: str, seconds: float, *, cut: str = "") -> LogbrokerError:
    """Make a call whose answer is held back, and do something to its connection meanwhile."""
    async with (
        client.Admin(link.address, request_timeout_seconds=60) as admin,
        client.QueueAdmin(link.address, request_timeout_seconds=60) as queues,
    ):
        await admin.list_topics()
        await queues.list_queues()
        admin._connection.request_timeout_seconds = queues._connection.request_timeout_seconds = seconds
        link.freeze(answers_only=True)
        making = asyncio.ensure_future(call(admin, queues, name))
        if cut == "broken":
            await asyncio.sleep(0)  # The call has begun, at least.
            link.break_off()
            link.limit_bytes = 0  # Nor does a repetition come through.
        elif cut == "closed":
            await asyncio.sleep(0)
            await admin.close()
            await queues.close()
        with pytest.raises(LogbrokerError) as told:
            await making
        return told.value


def test_of_every_method_it_is_known_whether_it_changes_anything() -> None:
    unary = {name for name, method in METHODS.items() if not (method.client_streaming or method.server_streaming)}
    assert unary == _CHANGING | READS | {"InitProducerId"}
    assert not _CHANGING & READS


async def test_a_topic_is_created_though_its_connection_broke(link: Link, address: str, topic: str) -> None:
    async with client.Admin(address) as beside, client.Admin(link.address, request_timeout_seconds=60) as admin:
        await admin.list_topics()
        link.freeze(answers_only=True)
        creating = asyncio.create_task(admin.create_topic(topic))
        while topic not in [found.name for found in await beside.list_topics()]:
            await asyncio.sleep(0.001)
        link.break_off()
        with pytest.raises(BrokerUnavailableError, match=SAID) as told:
            await creating
    assert told.value.retriable
    assert "cannot be reached" not in told.value.message
    assert "is it running" not in told.value.message


@pytest.mark.parametrize("name", list(CHANGES))
async def test_a_change_whose_connection_breaks_may_have_been_made(link: Link, topic: str, name: str) -> None:
    error = await outcome(link, CHANGES[name], topic, 1, cut="broken")
    assert isinstance(error, BrokerUnavailableError | RequestTimeoutError)
    assert error.message.endswith(SAID)
    assert error.message.count(SAID) == 1


@pytest.mark.parametrize("name", ["create_topic", "decide_all", "commit_offsets"])
async def test_a_change_that_is_not_answered_may_have_been_made(link: Link, topic: str, name: str) -> None:
    error = await outcome(link, CHANGES[name], topic, 0.2)
    assert isinstance(error, RequestTimeoutError)
    assert error.message.endswith(SAID)


@pytest.mark.parametrize("name", ["create_topic", "decide_all", "commit_offsets"])
async def test_a_change_whose_client_is_closed_may_have_been_made(link: Link, topic: str, name: str) -> None:
    error = await outcome(link, CHANGES[name], topic, 60, cut="closed")
    assert isinstance(error, BrokerUnavailableError)
    assert "is closed" in error.message
    assert error.message.endswith(SAID)


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("cut", ["", "broken", "closed"])
@pytest.mark.parametrize("name", list(NO_CHANGES))
async def test_nothing_is_said_of_what_changes_nothing(link: Link, topic: str, name: str, cut: str) -> None:
    error = await outcome(link, NO_CHANGES[name], topic, 60 if cut == "closed" else 0.3, cut=cut)
    assert isinstance(error, BrokerUnavailableError | RequestTimeoutError)
    assert "effect" not in error.message


@pytest.mark.parametrize("name", list(CHANGES))
async def test_a_change_that_was_never_sent_was_not_made(unused_tcp_port: int, topic: str, name: str) -> None:
    """This fails where gRPC has other words for that than those that are known here."""
    broker = f"127.0.0.1:{unused_tcp_port}"
    async with (
        client.Admin(broker, request_timeout_seconds=0.3) as admin,
        client.QueueAdmin(broker, request_timeout_seconds=0.3) as queues,
    ):
        with pytest.raises(BrokerUnavailableError, match=r"cannot be reached: .*is it running") as told:
            await CHANGES[name](admin, queues, topic)
    assert "effect" not in told.value.message


async def test_neither_was_one_for_a_name_that_has_no_address(topic: str) -> None:
    async with client.Admin("nobody.invalid:9192", request_timeout_seconds=20) as admin:
        with pytest.raises(BrokerUnavailableError, match="cannot be reached") as told:
            await admin.create_topic(topic)
    assert "effect" not in told.value.message


async def test_a_repeated_change_that_meets_nobody_in_the_end_may_have_been_made(link: Link, topic: str) -> None:
    """It broke the first time, and then it could not be sent."""
    request = groups_pb2.CommitOffsetsRequest(group_id=topic)
    connection = Connection(link.address, request_timeout_seconds=60)
    try:
        await connection.unary("ListTopics", admin_pb2.ListTopicsRequest())
        connection.request_timeout_seconds = 1
        link.freeze(answers_only=True)
        making = asyncio.ensure_future(connection.unary("CommitOffsets", request))
        await asyncio.sleep(0)
        link.cut_far_ends()  # New ones are broken off at once.
        link.break_off()
        with pytest.raises(BrokerUnavailableError, match=f"cannot be reached.*{SAID}"):
            await making
    finally:
        await connection.close()


async def test_the_answer_of_the_broker_is_told_as_it_is(link: Link, topic: str) -> None:
    async with client.Admin(link.address) as admin:
        with pytest.raises(UnknownTopicError) as told:
            await admin.delete_topic(topic)
    assert "effect" not in told.value.message


def failure(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


@pytest.mark.parametrize(
    ("code", "details", "kind", "may_have"),
    [
        (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; last", BrokerUnavailableError, False),
        (grpc.StatusCode.UNAVAILABLE, "errors resolving host:1: [x]", BrokerUnavailableError, False),
        (grpc.StatusCode.UNAVAILABLE, "Stream removed (Socket closed)", BrokerUnavailableError, True),
        (grpc.StatusCode.UNAVAILABLE, "Stream removed (ping timeout)", BrokerUnavailableError, True),
        (grpc.StatusCode.UNAVAILABLE, "words that nobody knows", BrokerUnavailableError, True),
        (grpc.StatusCode.CANCELLED, "CANCELLED", BrokerUnavailableError, True),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", RequestTimeoutError, True),
        (grpc.StatusCode.INTERNAL, "Stream removed (RST_STREAM)", LogbrokerError, True),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max", LogbrokerError, True),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", LogbrokerError, False),
    ],
)  # fmt: skip
def test_what_is_known_of_a_failed_call(
    code: grpc.StatusCode, details: str, kind: type[LogbrokerError], may_have: bool
) -> None:
    error = failure(code, details)
    assert isinstance(error_of_call(error, "127.0.0.1:9192"), kind)
    assert may_have_taken_effect(error) == may_have


# --- cancellation ---------------------------------------------------------------------------------------------------


async def cancelled(link: Link, work: Callable[[], Awaitable[Any]]) -> asyncio.CancelledError:
    """Cancel work that waits for an answer, and return what its task gets."""
    got: list[asyncio.CancelledError] = []

    async def run() -> None:
        try:
            await work()
        except asyncio.CancelledError as error:
            got.append(error)
            raise

    link.freeze(answers_only=True)
    task = asyncio.create_task(run())
    for _ in range(10):
        await asyncio.sleep(0)  # So it waits for gRPC, which has no answer.
    task.cancel("this very scope")
    with pytest.raises(asyncio.CancelledError):
        await task
    link.release()
    return got[0]


async def test_a_call_that_is_cancelled_passes_the_cancellation_on(link: Link, topic: str) -> None:
    """As it was given: anyio knows the cancellations of its scopes by their message."""
    async with client.Admin(link.address) as admin, client.QueueAdmin(link.address) as queues:
        await admin.list_topics()
        await queues.list_queues()
        for call in (
            admin.list_topics,
            lambda: admin.create_topic(topic),
            lambda: admin.describe_topic(topic),
            lambda: queues.decide_all(topic, "resume"),
        ):
            assert (await cancelled(link, call)).args == ("this very scope",)


async def test_a_send_that_asks_for_its_topic_passes_it_on(link: Link, topic: str) -> None:
    async with client.Producer(link.address) as producer, client.Admin(link.address) as admin:
        await admin.create_topic(topic)
        await producer.send_and_wait(topic, b"")
        assert (await cancelled(link, lambda: producer.send(f"{topic}-2", b""))).args == ("this very scope",)
        await producer.send_and_wait(topic, b"")


async def test_nothing_is_left_of_a_call_that_was_cancelled(link: Link) -> None:
    async with client.Admin(link.address) as admin:
        await admin.list_topics()
        before = asyncio.all_tasks()
        await cancelled(link, admin.list_topics)
        async with asyncio.timeout(30):
            while asyncio.all_tasks() - before:
                await asyncio.sleep(0.001)
