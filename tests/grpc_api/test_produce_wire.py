"""Our reader of produce requests agrees with protobuf's, on good bytes and on bad ones."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from logbroker.errors import InvalidRequestError
from logbroker.grpc_api.log import produce_wire
from logbroker.grpc_api.log.produce_wire import WireRequest, read_produce_request
from logbroker.v1 import log_pb2 as pb
from logbroker.v1.common_pb2 import Record

records = st.builds(
    pb.PlainRecords,
    records=st.lists(
        st.builds(Record, key=st.binary(max_size=5), value=st.none() | st.binary(max_size=200)), max_size=3
    ),
    sequence=st.none() | st.builds(pb.ProducerSequence, producer_id=st.integers(-(2**63), 2**63 - 1)),
)
items = st.builds(
    pb.ProduceItem,
    topic=st.text(max_size=10),
    topic_id=st.binary(max_size=16),
    partition=st.none() | st.integers(-(2**31), 2**31 - 1),
    generation=st.none() | st.integers(0, 2**32 - 1),
)
requests = st.builds(
    pb.ProduceRequest,
    correlation_id=st.integers(0, 2**64 - 1),
    durability=st.sampled_from([0, 1, 2]),
    items=st.lists(
        st.one_of(
            items,
            st.tuples(items, st.binary(max_size=300)).map(lambda pair: _with(pair[0], batch=pair[1])),
            st.tuples(items, records).map(lambda pair: _with(pair[0], records=pair[1])),
        ),
        max_size=4,
    ),
)


def _with(item: pb.ProduceItem, **data: Any) -> pb.ProduceItem:
    item.MergeFrom(pb.ProduceItem(**data))
    return item


def seen(request: pb.ProduceRequest | WireRequest) -> list[Any]:
    """Return the values on which both readers must agree."""
    found: list[Any] = [request.correlation_id, int(request.durability)]
    for item in request.items:
        if isinstance(item, pb.ProduceItem):
            partition = item.partition if item.HasField("partition") else None
            kind = item.WhichOneof("data")
            batch = item.batch if kind == "batch" else None
            plain = item.records if kind == "records" else None
        else:
            partition, plain = item.partition, item.records
            batch = None if item.batch is None else bytes(item.batch)
        found.append((item.topic, item.topic_id, partition, item.generation, batch, plain))
    return found


@given(requests)
def test_good_requests_read_alike(request: pb.ProduceRequest) -> None:
    assert seen(read_produce_request(request.SerializeToString())) == seen(request)


@given(requests, requests)
def test_merged_messages_read_alike(first: pb.ProduceRequest, second: pb.ProduceRequest) -> None:
    both = first.SerializeToString() + second.SerializeToString()
    assert seen(read_produce_request(both)) == seen(pb.ProduceRequest.FromString(both))


@given(items, records, records, st.binary(max_size=9))
def test_the_last_of_a_oneof_counts(item: pb.ProduceItem, a: pb.PlainRecords, b: pb.PlainRecords, batch: bytes) -> None:
    parts = [pb.ProduceItem(records=a), pb.ProduceItem(records=b), pb.ProduceItem(batch=batch)]
    for order in ([0, 1, 2], [2, 0, 1], [0, 2, 1]):
        inner = item.SerializeToString() + b"".join(parts[index].SerializeToString() for index in order)
        outer = b"\x1a" + _length(len(inner)) + inner
        assert seen(read_produce_request(outer)) == seen(pb.ProduceRequest.FromString(outer))


def _length(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _length(value >> 7)


@given(requests, st.data())
def test_damaged_bytes_are_refused_or_read_alike(request: pb.ProduceRequest, data: st.DataObject) -> None:
    message = bytearray(request.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        if message and data.draw(st.booleans()):
            message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
        else:
            del message[data.draw(st.integers(0, len(message))) :]
    try:
        ours = read_produce_request(bytes(message))
    except InvalidRequestError:
        return
    try:
        theirs = pb.ProduceRequest.FromString(bytes(message))
    except DecodeError:
        pytest.fail("protobuf refuses these bytes")
    assert seen(ours) == seen(theirs)


@given(st.binary(max_size=200))
def test_garbage_never_raises_anything_else(message: bytes) -> None:
    with contextlib.suppress(InvalidRequestError):
        read_produce_request(message)


@pytest.mark.parametrize(
    "tag", [b"\xfa\x80\x80\x80\x10", b"\xfa\x80\x80\x80\x80\x00", b"\xfa" + b"\x80" * 10 + b"\x00"]
)
def test_tags_of_too_many_bits_or_bytes_are_refused_as_by_protobuf(tag: bytes) -> None:
    with pytest.raises(DecodeError):
        pb.ProduceRequest.FromString(tag + b"\x00")
    with pytest.raises(InvalidRequestError):
        read_produce_request(tag + b"\x00")


def test_unknown_fields_are_passed_over() -> None:
    known = pb.ProduceRequest(correlation_id=7, items=[pb.ProduceItem(topic="t")]).SerializeToString()
    for unknown in (b"\x78\x05", b"\x7a\x02ab", b"\x79" + bytes(8), b"\x7d" + bytes(4)):
        assert seen(read_produce_request(unknown + known)) == seen(pb.ProduceRequest.FromString(known))


def test_millions_of_empty_parts_are_refused_early() -> None:
    with pytest.raises(InvalidRequestError, match="items"):
        read_produce_request(b"\x1a\x00" * 1_000_000)
    inner = b"\x0a\x00" * 1_000_000
    item = b"\x32" + _length(len(inner)) + inner
    with pytest.raises(InvalidRequestError, match="lists more than"):
        read_produce_request(b"\x1a" + _length(len(item)) + item)


def test_the_field_numbers_are_those_of_the_proto() -> None:
    request, item = pb.ProduceRequest.DESCRIPTOR.fields_by_name, pb.ProduceItem.DESCRIPTOR.fields_by_name
    assert {name: field.number for name, field in request.items()} == {
        "correlation_id": produce_wire._CORRELATION_ID >> 3,
        "durability": produce_wire._DURABILITY >> 3,
        "items": produce_wire._ITEMS >> 3,
    }
    assert {name: field.number for name, field in item.items()} == {
        "topic": produce_wire._TOPIC >> 3,
        "topic_id": produce_wire._TOPIC_ID >> 3,
        "partition": produce_wire._PARTITION >> 3,
        "generation": produce_wire._GENERATION >> 3,
        "batch": produce_wire._BATCH >> 3,
        "records": produce_wire._RECORDS >> 3,
    }
