"""Fetches that read a topic generation by generation: nothing of the next one is sent, and its begin is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logbroker.v1 import admin_pb2
from logbroker.v1 import log_pb2 as pb
from tests.grpc_api.api import Api, values_in
from tests.grpc_api.test_fetch_stream import Stream


@pytest.fixture
def stream(api: Api) -> Iterator[Stream]:
    found = Stream(api)
    yield found
    found.close()


def grow(api: Api, topic: str, partitions: int) -> None:
    alteration = admin_pb2.TopicAlteration(topic=admin_pb2.TopicRef(name=topic), partitions=partitions)
    [result] = api.admin.AlterTopics(admin_pb2.AlterTopicsRequest(topics=[alteration])).results
    assert not result.status.code, result.status


@pytest.fixture
def grown(api: Api, topic: str) -> str:
    """A topic with two records each of the first and of the second generation in partition 0."""
    api.produce_values(topic, [b"0", b"1"])
    grow(api, topic, 6)
    api.produce_values(topic, [b"2"])
    api.produce_values(topic, [b"3"])
    return topic


@pytest.mark.parametrize("plain", [False, True])
def test_a_stream_sends_nothing_of_the_next_generation(api: Api, grown: str, stream: Stream, plain: bool) -> None:
    item = pb.FetchItem(topic=grown, partition=0, generation=1)
    stream.send(
        correlation_id=1,
        settings=pb.FetchStreamSettings(plain_records=plain),
        assign=[item],
        add_credit_bytes=10**6,
    )
    [result] = stream.results(1)
    values = [record.value for record in result.records] if plain else values_in(result.batches)
    assert (values, result.next_offset, result.generation_end) == ([b"0", b"1"], 2, 2)
    # Records that follow are not sent either, until the next generation is asked for.
    api.produce_values(grown, [b"4"])
    stream.send(correlation_id=2, assign=[pb.FetchItem(topic=grown, partition=0, offset=2, generation=2)])
    [result] = stream.results(1)
    assert (result.correlation_id, result.next_offset, result.HasField("generation_end")) == (2, 5, False)


def test_an_added_partition_has_nothing_of_the_generations_before(api: Api, grown: str, stream: Stream) -> None:
    api.produce_values(grown, [b"new"], 5)
    stream.send(assign=[pb.FetchItem(topic=grown, partition=5, generation=1)], add_credit_bytes=10**6)
    [result] = stream.results(1)
    assert (result.batches, result.generation_end, result.next_offset, result.high_watermark) == (b"", 0, 0, 1)


def test_a_stream_tells_that_its_generation_has_ended(api: Api, topic: str, stream: Stream) -> None:
    """Also where nothing follows in the partition."""
    api.produce_values(topic, [b"0"])
    assign = [pb.FetchItem(topic=topic, partition=number, generation=1) for number in range(4)]
    stream.send(assign=assign, add_credit_bytes=10**6)
    assert not any(result.HasField("generation_end") for result in stream.results(4))
    grow(api, topic, 5)
    told = stream.results(4)
    assert sorted((result.partition, result.generation_end) for result in told) == [(0, 1), (1, 0), (2, 0), (3, 0)]
    assert not any(result.batches for result in told)


def test_no_record_slips_through_while_the_topic_grows(api: Api, topic: str, stream: Stream) -> None:
    """Records sent before a stream announces the end lie before that end."""
    stream.send(assign=[pb.FetchItem(topic=topic, partition=0, generation=1)], add_credit_bytes=10**6)
    stream.results(1)
    for count in range(5, 15):
        api.produce_values(topic, [b"before"] * 5)
        grow(api, topic, count)
        api.produce_values(topic, [b"after"] * 5)
    found: list[bytes | None] = []
    while True:
        [result] = stream.results(1)
        found += values_in(result.batches)
        if result.HasField("generation_end") and result.next_offset >= result.generation_end:
            break
    assert found == [b"before"] * 5


def fetch(api: Api, topic: str, offset: int = 0, generation: int = 0) -> pb.FetchResult:
    request = pb.FetchRequest(items=[pb.FetchItem(topic=topic, offset=offset, generation=generation)])
    results: list[pb.FetchResult] = api.log.Fetch(request).results
    return results[0]


def test_a_fetch_sends_nothing_of_the_next_generation(api: Api, grown: str) -> None:
    result = fetch(api, grown, generation=1)
    assert (values_in(result.batches), result.next_offset, result.generation_end) == ([b"0", b"1"], 2, 2)
    result = fetch(api, grown, offset=2, generation=1)
    assert (result.batches, result.next_offset, result.generation_end) == (b"", 2, 2)
    result = fetch(api, grown, offset=2, generation=2)
    assert (values_in(result.batches), result.HasField("generation_end")) == ([b"2", b"3"], False)
    assert values_in(fetch(api, grown).batches) == [b"0", b"1", b"2", b"3"]
    assert values_in(fetch(api, grown, generation=7).batches) == [b"0", b"1", b"2", b"3"]
