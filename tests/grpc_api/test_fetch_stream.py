"""The fetch stream: credit, seeking, errors of one partition, and its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

from logbroker.v1 import log_pb2 as pb
from logbroker.v1.admin_pb2 import DeleteTopicsRequest, TopicRef
from tests.faults.serving import Served, in_directory
from tests.grpc_api.api import Api, batch_of, values_in

INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE = 3, 5, 11


class Stream:
    """A fetch stream driven by a test."""

    def __init__(self, api: Api) -> None:
        self._requests: SimpleQueue[pb.FetchStreamRequest | None] = SimpleQueue()
        self.call: Any = api.log.FetchStream(self._sent())

    def _sent(self) -> Iterator[pb.FetchStreamRequest]:
        while (request := self._requests.get()) is not None:
            yield request

    def send(self, **fields: Any) -> None:
        self._requests.put(pb.FetchStreamRequest(**fields))

    def results(self, count: int) -> list[pb.FetchResult]:
        """The next results, at least so many."""
        found: list[pb.FetchResult] = []
        while len(found) < count:
            found += next(self.call).results
        return found

    def values(self, count: int) -> list[bytes | None]:
        """The next values, at least so many."""
        found: list[bytes | None] = []
        while len(found) < count:
            for result in next(self.call).results:
                assert not result.status.code, result.status
                found += values_in(result.batches)
        return found

    def close(self) -> None:
        self._requests.put(None)
        self.call.cancel()


@pytest.fixture
def stream(api: Api) -> Iterator[Stream]:
    found = Stream(api)
    yield found
    found.close()


# --- the stream ---


def test_a_stream_follows_many_partitions(api: Api, topic: str, stream: Stream) -> None:
    assign = [pb.FetchItem(topic=topic, partition=number) for number in range(4)]
    stream.send(correlation_id=5, assign=assign, add_credit_bytes=10**6)
    first = stream.results(4)
    assert {(result.partition, result.correlation_id, result.batches) for result in first} == {
        (number, 5, b"") for number in range(4)
    }
    for number in range(8):
        api.produce_values(topic, [b"%d" % number], number % 4)
    assert sorted(stream.values(8), key=lambda value: value or b"") == [b"%d" % number for number in range(8)]


def test_credit_bounds_what_is_sent(api: Api, topic: str, stream: Stream) -> None:
    size = len(batch_of(bytes(1000)))
    for _ in range(10):
        api.produce_values(topic, [bytes(1000)])
    assign = [pb.FetchItem(topic=topic, partition=0)]
    settings = pb.FetchStreamSettings(max_response_bytes=size)
    stream.send(settings=settings, assign=assign)
    [facts] = stream.results(1)
    assert (facts.high_watermark, facts.batches) == (10, b""), "the offsets come without credit, the bytes do not"
    stream.send(add_credit_bytes=2 * size + 1)
    assert [result.next_offset for result in stream.results(3)] == [1, 2, 3], "the last one is sent on 1 byte"
    stream.send(add_credit_bytes=size - 1)  # pays the debt, no more
    stream.send(correlation_id=9, assign=[pb.FetchItem(topic=topic, partition=1)])
    assert [result.correlation_id for result in stream.results(1)] == [9], "and nothing of partition 0 before"
    stream.send(add_credit_bytes=1)
    assert [result.next_offset for result in stream.results(1)] == [4]


def test_seek_and_remove_within_a_stream(api: Api, topic: str, stream: Stream) -> None:
    for number in range(5):
        api.produce_values(topic, [b"%d" % number])
    stream.send(correlation_id=1, assign=[pb.FetchItem(topic=topic)], add_credit_bytes=10**6)
    assert stream.values(5) == [b"0", b"1", b"2", b"3", b"4"]
    stream.send(correlation_id=2, assign=[pb.FetchItem(topic=topic, offset=3)])
    [result] = stream.results(1)
    assert (result.correlation_id, values_in(result.batches)) == (2, [b"3", b"4"])
    stream.send(remove=[pb.PartitionRef(topic=topic)])
    stream.send(correlation_id=3, assign=[pb.FetchItem(topic=topic, partition=1)])
    assert stream.results(1)[0].partition == 1
    api.produce_values(topic, [b"unseen"], 0)
    api.produce_values(topic, [b"seen"], 1)
    assert stream.values(1) == [b"seen"]


def test_an_items_error_leaves_the_stream_alive(api: Api, topic: str, stream: Stream) -> None:
    api.produce_values(topic, [b"good"])
    assign = [
        pb.FetchItem(topic="nowhere"),
        pb.FetchItem(topic=topic, partition=9),
        pb.FetchItem(topic=topic, partition=1, offset=77),
        pb.FetchItem(topic=topic, partition=0),
    ]
    stream.send(assign=assign, add_credit_bytes=10**6)
    by_reason = {result.status.reason: result for result in stream.results(4)}
    assert set(by_reason) == {"UNKNOWN_TOPIC", "UNKNOWN_PARTITION", "OFFSET_OUT_OF_RANGE", ""}
    assert values_in(by_reason[""].batches) == [b"good"]
    stream.send(assign=[pb.FetchItem(topic=topic, partition=1)])
    assert not stream.results(1)[0].status.code


def test_a_stream_tells_of_a_deleted_topic(api: Api, stream: Stream) -> None:
    api.create("streamed")
    stream.send(assign=[pb.FetchItem(topic="streamed")], add_credit_bytes=10**6)
    stream.results(1)
    api.admin.DeleteTopics(DeleteTopicsRequest(topics=[TopicRef(name="streamed")]))
    assert stream.results(1)[0].status.reason == "UNKNOWN_TOPIC"


@pytest.mark.parametrize(
    "request_fields",
    [{"add_credit_bytes": -1}, {"settings": pb.FetchStreamSettings(max_response_bytes=0)}],
)
def test_a_senseless_request_ends_the_stream(stream: Stream, request_fields: dict[str, Any]) -> None:
    stream.send(**request_fields)
    with pytest.raises(grpc.RpcError) as caught:
        next(stream.call)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_stream_of_plain_records(api: Api, topic: str, stream: Stream) -> None:
    for number in range(3):
        api.produce_values(topic, [b"%d" % number])
    settings = pb.FetchStreamSettings(plain_records=True)
    stream.send(settings=settings, assign=[pb.FetchItem(topic=topic, offset=1)], add_credit_bytes=10**6)
    [result] = stream.results(1)
    assert [record.value for record in result.records] == [b"1", b"2"]


# --- stopping ---


PATIENT = """
import logbroker.grpc_api.server, logbroker.cli.main
logbroker.grpc_api.server.STOP_GRACE_SECONDS = 3600.0
raise SystemExit(logbroker.cli.main.main())
"""


def test_open_streams_do_not_hold_up_a_stop(tmp_path: Path) -> None:
    """They do not wait for the grace of calls in flight, which would be an hour here."""
    with Served(in_directory(tmp_path), launcher=("-c", PATIENT)) as broker:
        api = Api(broker.address)
        api.create("t")
        fetching = Stream(api)
        fetching.send(assign=[pb.FetchItem(topic="t")], add_credit_bytes=1000)
        fetching.results(1)
        requests: SimpleQueue[pb.ProduceRequest] = SimpleQueue()
        producing = api.log.ProduceStream(iter(requests.get, None))
        requests.put(pb.ProduceRequest(items=[pb.ProduceItem(topic="t", partition=0, batch=batch_of(b"x"))]))
        assert next(producing).results[0].base_offset == 0
        broker.process.terminate()
        assert broker.exit_code() == 0
        for call in (fetching.call, producing):
            with pytest.raises(grpc.RpcError) as caught:
                for _ in call:
                    pass
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        fetching.close()
        api.channel.close()
