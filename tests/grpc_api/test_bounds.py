"""Limits on the cost of one request: answers stay below what gRPC clients accept, however much is asked for at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from logbroker.broker.read_budget import ReadBudget
from logbroker.errors import Code, UnknownTopicError
from logbroker.grpc_api.log.fetch import Position
from logbroker.grpc_api.log.fetch_session import FetchSession
from logbroker.grpc_api.log.fetch_stream import FetchStream
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.compression import Codec
from logbroker.v1 import log_pb2 as pb
from logbroker.v1.admin_pb2 import DescribeTopicsRequest, TopicRef
from tests.grpc_api.api import Api, batch_of
from tests.grpc_api.test_fetch_session import position

CLIENT_LIMIT_BYTES = 4 * 1024 * 1024


@pytest.mark.prove
def test_an_answer_over_many_partitions_stays_below_what_clients_accept(api: Api) -> None:
    name = "many-items-" + "x" * 200
    api.create(name)
    for _ in range(5):
        api.produce_values(name, [bytes(1_000_000)])
    items = [pb.FetchItem(topic=name, offset=offset) for offset in (0, 1, 2, 3, 4) for _ in range(1000)]
    response = api.log.Fetch(pb.FetchRequest(items=items))
    assert 2_000_000 < response.ByteSize() < CLIENT_LIMIT_BYTES


@pytest.mark.prove
def test_plain_records_of_many_partitions_expand_to_one_answer_at_most(api: Api) -> None:
    api.create("expanding", 20)
    records = [NewRecord(value=bytes(1000)) for _ in range(3000)]
    for partition in range(20):
        assert not api.produce("expanding", encode_batch(records, codec=Codec.ZSTD), partition).status.code
    offsets = dict.fromkeys(range(20), 0)
    while offsets:
        items = [pb.FetchItem(topic="expanding", partition=number, offset=offsets[number]) for number in offsets]
        response = api.log.Fetch(pb.FetchRequest(items=items, plain_records=True))
        assert response.ByteSize() < CLIENT_LIMIT_BYTES
        before = dict(offsets)
        for result in response.results:
            assert len(result.records) == result.next_offset - before[result.partition]
            offsets[result.partition] = result.next_offset
        assert offsets != before
        offsets = {number: offset for number, offset in offsets.items() if offset < 3000}


def test_a_topic_described_very_often_is_answered_once_per_answer(api: Api, topic: str) -> None:
    request = DescribeTopicsRequest(topics=[TopicRef(name=topic)] * 20_000, include_partitions=True)
    results = api.admin.DescribeTopics(request).results
    assert len(results) == 20_000
    assert not results[0].status.code
    assert {result.status.code for result in results[1:]} == {Code.INVALID_ARGUMENT}
    assert "twice" in results[1].status.message


def test_assigning_again_and_again_leaves_nothing_behind() -> None:
    session = FetchSession()
    for number in range(100):
        session.assign(position(0), number)
        picked = session.pick()
        assert picked is not None
        session.sent(picked, 0, 0, more=True)
        session.assign(position(1), number)
    assert len(session._unanswered) + len(session._ready) == 2
    session.add_credit(1)
    found: list[Position] = []
    while (picked := session.pick()) is not None:
        found.append(picked.position)
    assert sorted(each.partition for each in found) == [0, 1]


class StalledClient:
    """A client that sends on and on and never reads."""

    def __init__(self, request: pb.FetchStreamRequest) -> None:
        self.sent = 0
        self._request = request

    async def read(self) -> pb.FetchStreamRequest:
        await asyncio.sleep(0)
        self.sent += 1
        return self._request

    async def write(self, _: bytes) -> None:
        await asyncio.Event().wait()


class NoTopics:
    """An engine that knows no topic."""

    class _Watch:
        def moved(self) -> set[Any]:
            return set()

        def close(self) -> None: ...

    def topic(self, name: str) -> None:
        raise UnknownTopicError(f"there is no topic {name}")

    def watch(self, wake: Callable[[], None]) -> Any:
        return self._Watch()


async def test_refusals_do_not_pile_up_for_a_client_that_does_not_read() -> None:
    client: Any = StalledClient(pb.FetchStreamRequest(assign=[pb.FetchItem(topic="nowhere")] * 100))
    engine: Any = NoTopics()
    stream = FetchStream(engine, client, ReadBudget(1 << 20, 1.0), 1 << 20, asyncio.Event())
    running = asyncio.create_task(stream.run())
    for _ in range(200):
        await asyncio.sleep(0)
    assert 1 <= client.sent <= 2
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("sequence", [(-7, 0, 0), (1, 70_000, 0), (1, -3, 0), (1, 0, -5)])
def test_a_senseless_sequence_fails_its_item_alone(api: Api, topic: str, sequence: tuple[int, int, int]) -> None:
    records = pb.PlainRecords(
        records=[{"value": b"x"}],
        sequence=pb.ProducerSequence(producer_id=sequence[0], producer_epoch=sequence[1], base_sequence=sequence[2]),
    )
    items = [
        pb.ProduceItem(topic=topic, partition=2, records=records),
        pb.ProduceItem(topic=topic, batch=batch_of(b"y"), partition=0),
    ]
    [response] = api.log.ProduceStream(iter([pb.ProduceRequest(items=items)]))
    refused, taken = response.results
    assert (refused.status.reason, refused.partition, refused.base_offset) == ("INVALID_REQUEST", 2, -1)
    assert not taken.status.code


def test_a_stream_refuses_too_many_items_in_few_words(api: Api) -> None:
    many, none = pb.ProduceRequest(items=[pb.ProduceItem()] * 100_000), pb.ProduceRequest(correlation_id=2)
    answered = api.log.ProduceStream(iter([none, many]))
    assert next(answered).correlation_id == 2
    with pytest.raises(grpc.RpcError) as caught:
        next(answered)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
