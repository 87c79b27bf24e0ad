"""Admin against a real broker, and how errors travel."""

from __future__ import annotations

import datetime

import grpc
import pytest

from logbroker.client import Admin, Consumer, ListedOffset, NewTopic, Producer, TopicInfo, TopicPartition
from logbroker.errors import (
    BrokerUnavailableError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidRequestError,
    InvalidTopicNameError,
    LogbrokerError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsupportedFeatureError,
)
from logbroker.v1 import admin_pb2, log_pb2


@pytest.mark.parametrize(("partitions", "least"), [(None, 9), (8_000, 49)])
async def test_a_call_that_makes_many_partitions_has_time_for_them(partitions: int | None, least: int) -> None:
    left: list[float | None] = []

    async def answer(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        left.append(context.time_remaining())
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "seen")
        raise AssertionError

    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(answer)
    methods = {"CreateTopics": handler, "AlterTopics": handler}
    service = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with Admin(f"127.0.0.1:{port}") as admin:
            for call in (admin.create_topic("t", partitions), admin.alter_topic("t", partitions=partitions)):
                with pytest.raises(LogbrokerError, match="seen"):
                    await call
    finally:
        await server.stop(None)
    assert len(left) == 2
    for seconds in left:
        assert seconds is not None
        assert least < seconds <= least + 1.5


async def test_an_empty_name_is_that_of_no_topic(address: str, topic: str) -> None:
    """A program has it from a variable that is not set."""
    async with Admin(address) as admin, Producer(address) as producer, Consumer(address) as consumer:
        for look_up in (producer.send_and_wait("", b""), consumer.assign([topic, ""])):
            with pytest.raises(UnknownTopicError, match="no topic '': the name is empty"):
                await look_up
        for call in (admin.describe_topic(""), admin.alter_topic("", partitions=2), admin.delete_topic("")):
            with pytest.raises(InvalidRequestError, match="name is empty"):
                await call
    async with Consumer(address, group=topic) as member:
        with pytest.raises(InvalidTopicNameError, match="no topic can have the name ''"):
            await member.subscribe("")


async def test_records_are_deleted(address: str, topic: str) -> None:
    first, second, missing = (TopicPartition(topic, number) for number in range(3))
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic(topic, 2)
        for number in range(6):
            await producer.send(topic, b"v", partition=number % 2)
        await producer.flush()
        found = await admin.delete_records({first: 2, second: None, missing: 0})
        assert (found[first], found[second]) == (2, 3)
        assert isinstance(found[missing], UnknownPartitionError)
        described = await admin.describe_topic(topic)
        assert [each.log_start_offset for each in described.partitions] == [2, 3]
        refused = await admin.delete_records({first: 4})
        assert isinstance(refused[first], OffsetOutOfRangeError)


async def test_a_topics_life(address: str, topic: str) -> None:
    async with Admin(address) as admin:
        created = await admin.create_topic(topic, 3, {"retention.ms": "1000"})
        assert (created.name, created.partitions, created.generation, len(created.id)) == (topic, 3, 1, 16)
        assert created in await admin.list_topics()
        await admin.alter_topic(topic, partitions=5, set_configs={"segment.ms": "77"}, unset_configs=["retention.ms"])
        described = await admin.describe_topic(topic)
        assert described.info == TopicInfo(topic, created.id, 5, 2)
        assert [(g.generation, g.partitions, g.start_offsets) for g in described.generations] == [
            (1, 3, ()),
            (2, 5, (0, 0, 0)),
        ]
        configs = {config.name: config for config in described.configs}
        assert (configs["segment.ms"].value, configs["segment.ms"].is_default) == ("77", False)
        assert configs["retention.ms"].is_default
        assert configs["retention.ms"].documentation
        assert [partition.partition for partition in described.partitions] == list(range(5))
        assert all(partition.error is None and partition.high_watermark == 0 for partition in described.partitions)
        assert (await admin.delete_topic(topic)).id == created.id
        with pytest.raises(UnknownTopicError):
            await admin.describe_topic(topic)


async def test_nothing_is_created_where_it_is_only_checked(address: str, topic: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, 2, validate_only=True)
        with pytest.raises(UnknownTopicError):
            await admin.describe_topic(topic)


async def test_lists_answer_each_item(address: str, topic: str) -> None:
    async with Admin(address) as admin:
        outcomes = await admin.create_topics(
            [
                NewTopic(topic, 2),
                NewTopic("a/b"),
                NewTopic(topic),
                NewTopic(topic + "-0", 0),
                NewTopic(topic + "-1", configs={"retention.ms": "long"}),
            ]
        )
        assert [type(outcome) for outcome in outcomes] == [
            TopicInfo,
            InvalidTopicNameError,
            TopicExistsError,
            InvalidPartitionsError,
            InvalidConfigError,
        ]
        assert "retention.ms" in str(outcomes[4])
        described = await admin.describe_topics([topic, "nowhere"])
        assert isinstance(described[1], UnknownTopicError)
        assert not isinstance(described[0], LogbrokerError)
        offsets = await admin.list_offsets([TopicPartition(topic, 0), TopicPartition(topic, 5)], "latest")
        assert offsets[0] == ListedOffset(0, -1, 0)
        assert isinstance(offsets[1], UnknownPartitionError)
        # The broker takes 20,000 at once.
        many = await admin.list_offsets([*[TopicPartition(topic, 5)] * 45_000, TopicPartition(topic, 0)], "latest")
        assert {type(outcome) for outcome in many[:-1]} == {UnknownPartitionError}
        assert (len(many), many[-1]) == (45_001, offsets[0])
        deleted = await admin.delete_topics([topic, "nowhere"])
        assert [type(outcome) for outcome in deleted] == [TopicInfo, UnknownTopicError]


async def test_offsets_are_found_by_time(address: str, topic: str) -> None:
    async with Admin(address) as admin, Producer(address) as producer:
        # The records are old, and the broker lives longer than it takes until old ones go.
        await admin.create_topic(topic, configs={"retention.ms": "-1"})
        for stamp_ms in (1000, 2000, 3000):
            await producer.send(topic, b"", timestamp_ms=stamp_ms)
        await producer.flush()
        partition = [TopicPartition(topic, 0)]
        assert (await admin.list_offsets(partition, 1500))[0] == ListedOffset(1, 2000, 0)
        moment = datetime.datetime(1970, 1, 1, 0, 0, 3, tzinfo=datetime.UTC)
        assert (await admin.list_offsets(partition, moment))[0] == ListedOffset(2, 3000, 0)
        (nothing,) = await admin.list_offsets(partition, 3001)
        assert isinstance(nothing, ListedOffset)
        assert nothing.offset == -1
        assert (await admin.list_offsets(partition, "earliest"))[0] == ListedOffset(0, -1, 0)
        with pytest.raises(InvalidRequestError):
            await admin.list_offsets(partition, "newest")  # type: ignore[arg-type]


async def test_the_broker_describes_itself(address: str) -> None:
    async with Admin(address) as admin:
        described = await admin.describe_broker()
    assert described.version
    assert described.max_request_bytes > described.max_response_bytes > 1_000_000


async def test_the_error_of_a_whole_call_is_the_brokers(address: str) -> None:
    """The reason in its google.rpc.ErrorInfo selects the exception."""
    async with Admin(address) as admin:
        with pytest.raises(UnsupportedFeatureError, match="transactions"):
            await admin._connection.unary("InitProducerId", log_pb2.InitProducerIdRequest(transactional_id="t"))


async def test_a_broker_that_is_not_there_is_said_not_to_be(unused_tcp_port: int) -> None:
    async with Admin(f"127.0.0.1:{unused_tcp_port}", request_timeout_seconds=0.2) as admin:
        for call in (admin.list_topics(), admin.create_topic("topic")):
            with pytest.raises(BrokerUnavailableError, match="is it running"):
                await call
