"""Malformed requests to a real broker: it refuses them in its own words, stays small, and serves the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError

from logbroker.errors import InvalidRequestError
from logbroker.grpc_api.log.produce_wire import WireItem, read_produce_request
from logbroker.v1 import log_pb2 as log
from logbroker.v1 import queues_pb2 as pb
from tests.hostile import barrage, queue_inputs
from tests.hostile.api import Api
from tests.hostile.broker import MIB, LimitedBroker
from tests.hostile.inputs import METHODS, STREAMS, Catalog, Requests, path_of
from tests.hostile.statuses import check_call_error, check_response, reason_of
from tests.hostile.wire_mutants import BYTES, varint

SEED = 1
QUEUE_SEED = 3
"""Seed of the requests to queue groups: by few seeds hardly any Receive is right while something is ready."""
INPUTS = 10_000
QUEUE_INPUTS = 4_000
ONE_AT_A_TIME_BYTES = 288 * MIB
"""Limit on the broker's memory where requests of 12 MiB come one after the other. Its parts, in MiB: 65 for itself; 128
that malloc keeps of what is freed, 64 in each of two arenas; and a request four times: as gRPC reads it, as it joins
it, as bytes, and what is looked at of it, 48, with 24 of buffers for sockets. Measured: 141. Elements that became
objects would be 500."""
REPEATED = {
    "Fetch": "items",
    "FetchStream": "assign",
    "Produce": "items",
    "ProduceStream": "items",
    "ListOffsets": "items",
    "CreateTopics": "topics",
    "DescribeTopics": "topics",
    "AlterTopics": "topics",
    "DeleteTopics": "topics",
    "DeleteRecords": "deletions",
    "DescribeQueues": "group_ids",
    "DeleteQueues": "group_ids",
    "ExplainLanes": "keys",
    "DecideLanes": "decisions",
}
"""The methods whose requests have a list, and its name."""


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | BYTES) + varint(len(content)) + content


def settle(content: bytes) -> bytes:
    """A message of a worker."""
    return field(pb.WorkerRequest.SETTLE_FIELD_NUMBER, content)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimitedBroker]:
    directory = tmp_path_factory.mktemp("broker")
    with LimitedBroker(directory, memory_bytes=barrage.MEMORY_BYTES, min_free_disk_bytes=0) as running:
        yield running


@pytest.mark.prove
def test_ten_thousand_hostile_inputs(tmp_path: Path) -> None:
    figures = barrage.run(tmp_path, SEED, INPUTS)
    assert figures["inputs"] >= INPUTS
    assert figures["acknowledged"] > 1000, "hardly anything was right; the mutations are too coarse to test much"
    assert figures["calls refused, INVALID_ARGUMENT"] > 1000


@pytest.mark.prove
def test_thousands_of_hostile_inputs_to_queue_groups(tmp_path: Path) -> None:
    figures = barrage.run(tmp_path, QUEUE_SEED, QUEUE_INPUTS, methods=[*queue_inputs.MAKERS, "Produce"])
    assert figures["inputs"] >= QUEUE_INPUTS
    assert figures["messages to workers"] > 200, "hardly any worker was welcome"
    assert figures["received"] > 100, "hardly anything was handed out"
    assert figures["calls refused, INVALID_ARGUMENT"] > 500


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize("method", REPEATED)
async def test_millions_of_empty_elements_cost_no_memory(method: str, broker: LimitedBroker) -> None:
    await empty_elements_are_refused(broker, method)


async def empty_elements_are_refused(broker: LimitedBroker, method: str) -> None:
    element = varint(METHODS[method].input_type.fields_by_name[REPEATED[method]].number << 3 | BYTES) + b"\0"
    await _refused(broker, method, element * (6 * MIB))
    assert broker.peak_bytes() < ONE_AT_A_TIME_BYTES


@pytest.mark.parametrize("method", ["CreateTopics", "AlterTopics"])
async def test_millions_of_empty_configs_cost_no_memory(method: str, broker: LimitedBroker) -> None:
    changes = METHODS[method].input_type.fields_by_name["topics"]
    assert changes.message_type is not None
    configs = {"CreateTopics": "configs", "AlterTopics": "unset_configs"}[method]
    element = varint(changes.message_type.fields_by_name[configs].number << 3 | BYTES) + b"\0"
    inner = element * (6 * MIB)
    await _refused(broker, method, varint(changes.number << 3 | BYTES) + varint(len(inner)) + inner)
    assert broker.peak_bytes() < ONE_AT_A_TIME_BYTES


@pytest.mark.parametrize(
    ("method", "content"),
    [
        ("Work", settle(field(pb.Settle.NACKS_FIELD_NUMBER, b"") * (3 * MIB))),
        (
            "Work",
            settle(field(pb.Settle.ACKS_FIELD_NUMBER, field(pb.Receipts.FIRSTS_FIELD_NUMBER, b"\1" * (12 * MIB)))),
        ),
        ("Work", settle(field(pb.Settle.ACKS_FIELD_NUMBER, (varint(1 << 3) + b"\1") * (6 * MIB)))),
        ("Work", field(1, field(5, field(1, b"\1" * (6 * MIB)) + field(2, b"\1" * (6 * MIB))))),
        ("Rewind", field(pb.RewindRequest.PARTITIONS_FIELD_NUMBER, b"\1" * (12 * MIB))),
    ],
)
async def test_millions_of_numbers_cost_no_memory(method: str, content: bytes, broker: LimitedBroker) -> None:
    await _refused(broker, method, content)
    assert broker.peak_bytes() < ONE_AT_A_TIME_BYTES


async def _refused(broker: LimitedBroker, method: str, message: bytes) -> None:
    async with grpc.aio.insecure_channel(broker.address, options=[("grpc.max_send_message_length", -1)]) as channel:
        if method in STREAMS:
            stream: Any = channel.stream_stream(path_of(method))
            answer = stream(iter([message]), timeout=20).read()
        else:
            call: Any = channel.unary_unary(path_of(method))
            answer = call(message, timeout=20)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await answer
        check_call_error(caught.value)
        assert reason_of(caught.value) == "INVALID_REQUEST"


@pytest.mark.parametrize("method", [name for name in METHODS if name not in STREAMS])
async def test_bytes_that_are_no_message_are_an_invalid_request(method: str, broker: LimitedBroker) -> None:
    await _refused(broker, method, b"\xff\xff\xff")


async def test_a_stream_ends_with_its_error_while_it_answers(broker: LimitedBroker) -> None:
    """The end of a stream must not be lost where a response is on its way: the client would wait for ever."""
    first = log.FetchStreamRequest(assign=[log.FetchItem(topic="assigned")]).SerializeToString()
    async with grpc.aio.insecure_channel(broker.address) as channel:
        await Api(channel).create("assigned", 1, {})
        stream: Any = channel.stream_stream(path_of("FetchStream"))
        for _ in range(100):
            call = stream(iter([first, b"\xff"]), timeout=25)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in call:
                    pass
            check_call_error(caught.value)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_answer_repeats_only_so_much_of_a_request(broker: LimitedBroker) -> None:
    long_name, long_id = "ж" * 30_000, b"\xff" * 60_000
    refs: list[dict[str, Any]] = [{"topic": long_name}, {"topic_id": long_id}]
    async with grpc.aio.insecure_channel(broker.address) as channel:
        api = Api(channel)
        fetched = await api.call("Fetch", log.FetchRequest(items=[log.FetchItem(**ref) for ref in refs]))
        items = [log.ProduceItem(partition=0, batch=b"", **ref) for ref in refs]
        produced = await api.call("Produce", log.ProduceRequest(items=items))
        for response in (fetched, produced):
            check_response(response)
            assert [result.status.reason for result in response.results] == ["UNKNOWN_TOPIC"] * 2
            assert response.ByteSize() < 5_000


async def test_an_unknown_isolation_is_refused(broker: LimitedBroker) -> None:
    unknown: Any = 7
    settings = log.FetchStreamSettings(isolation=unknown)
    await _refused(broker, "Fetch", log.FetchRequest(isolation=unknown).SerializeToString())
    await _refused(broker, "FetchStream", log.FetchStreamRequest(settings=settings).SerializeToString())
    await _refused(broker, "ListOffsets", log.ListOffsetsRequest(isolation=unknown).SerializeToString())


@pytest.mark.prove
def test_our_reader_takes_nothing_that_protobuf_refuses_or_reads_otherwise() -> None:
    catalog = Catalog({"ledger-0": b"1" * 16, "ledger-1": b"2" * 16}, {"victim-0": b"3" * 16})
    requests = Requests(SEED, catalog, ["Produce"])
    taken = 0
    for number in range(2500):
        [message] = requests.input(number).messages
        try:
            ours = read_produce_request(message)
        except InvalidRequestError:
            continue
        taken += 1
        try:
            theirs = log.ProduceRequest.FromString(message)
        except DecodeError:
            pytest.fail(f"protobuf refuses input {number} of seed {SEED}: {message.hex()[:2000]}")
        assert ours.correlation_id == theirs.correlation_id, number
        assert [_seen(item) for item in ours.items] == [_seen_by_protobuf(item) for item in theirs.items], number
    assert taken > 600


def _seen(item: WireItem) -> object:
    batch = None if item.batch is None else bytes(item.batch)
    return item.topic, item.topic_id, item.partition, item.generation, batch, item.records


def _seen_by_protobuf(item: log.ProduceItem) -> object:
    kind = item.WhichOneof("data")
    return (
        item.topic,
        item.topic_id,
        item.partition if item.HasField("partition") else None,
        item.generation,
        item.batch if kind == "batch" else None,
        item.records if kind == "records" else None,
    )
