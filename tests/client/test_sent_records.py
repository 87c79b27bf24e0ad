"""Records that are sent with an ack: `send` refuses whatever could not be sent later, when it would stop the stream."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from logbroker.client.transport.metadata import TopicInfo
from logbroker.client.worker.sent_records import MAX_OUTPUT_HEADERS, MAX_OUTPUT_RECORDS, MAX_PLACES
from logbroker.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    LogbrokerError,
    RecordTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logbroker.grpc_api.queues.outputs import MAX_OUTPUTS
from logbroker.grpc_api.request_parsing import request_parser
from logbroker.queues.outputs.preparation import MAX_OUTPUT_BYTES
from logbroker.types import TopicId
from logbroker.v1 import queues_pb2
from tests.client.in_flight_by_hand import Worker

_descriptor: Any = queues_pb2.WorkerRequest.DESCRIPTOR
_parse = request_parser(_descriptor)


class Name(enum.StrEnum):
    OUT = "out"


class Place(enum.IntEnum):
    FIRST = 1


ODD: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception] | None]] = {
    "partition beyond int32": (("out", b"v"), {"partition": 1 << 31}, UnknownPartitionError),
    "partition beyond int64": (("out", b"v"), {"partition": 1 << 63}, TypeError),
    "negative partition": (("out", b"v"), {"partition": -1}, UnknownPartitionError),
    "last partition": (("out", b"v"), {"partition": (1 << 31) - 1}, None),
    "partition of an enum": (("out", b"v"), {"partition": Place.FIRST}, None),
    "boolean partition": (("out", b"v"), {"partition": True}, TypeError),
    "topic with a surrogate": (("\ud800", b"v"), {}, TypeError),
    "long topic": (("t" * 70_000, b"v"), {}, UnknownTopicError),
    "longest topic": (("t" * 249, b"v"), {}, None),
    "empty topic": (("", b"v"), {}, None),
    "topic with NUL": (("out\0", b"v"), {}, None),
    "topic of an enum": ((Name.OUT, b"v"), {}, None),
    "topic of another type": ((b"out", b"v"), {}, TypeError),
    "header with a surrogate": (("out", b"v"), {"headers": [("\ud800", b"")]}, TypeError),
    "header without a pair": (("out", b"v"), {"headers": [("a",)]}, TypeError),
    "headers of another type": (("out", b"v"), {"headers": 5}, TypeError),
    "headers of another type with a priority": (("out", b"v"), {"headers": 5, "priority": 1}, TypeError),
    "long header name": (("out", b"v"), {"headers": [("h" * 70_000, b"")]}, InvalidRecordError),
    "long header name with a priority": (
        ("out", b"v"),
        {"headers": [("é" * 40_000, b"")], "priority": 3},
        InvalidRecordError,
    ),
    "longest header name": (("out", b"v"), {"headers": [("é" * 32_768, b"")]}, None),
    "many headers": (("out", b"v"), {"headers": [("", None)] * (MAX_OUTPUT_HEADERS + 1)}, RecordTooLargeError),
    "most headers": (("out", b"v"), {"headers": [("", None)] * MAX_OUTPUT_HEADERS}, None),
    "more headers than are read": (("out", b"v"), {"headers": [("", None)] * 600_000}, InvalidRecordError),
    "headers of names only": (("out", b"v"), {"headers": [("h" * 1000, b"")] * 1000}, None),
    "time beyond int64": (("out", b"v"), {"timestamp_ms": 1 << 63}, TypeError),
    "time beyond a record's": (("out", b"v"), {"timestamp_ms": 1 << 62}, InvalidTimestampError),
    "latest time": (("out", b"v"), {"timestamp_ms": (1 << 62) - 1}, None),
    "large key": (("out", None, bytes((1 << 20) + 1)), {}, RecordTooLargeError),
    "largest key": (("out", None, bytes(1 << 20)), {}, None),
    "nothing": (("out", None), {}, None),
}


@pytest.mark.parametrize("routed", [False, True], ids=["plain", "routed"])
@pytest.mark.parametrize("case", ODD)
async def test_what_send_takes_fits_into_a_message_that_the_broker_reads(case: str, routed: bool) -> None:
    arguments, named, error = ODD[case]
    worker = Worker()
    if routed:
        worker.in_flight.outbox.routes.found(str(arguments[0]), TopicInfo("out", TopicId(bytes(16)), 3, 1))
    worker.receive(1, range(2))
    delivery, other = worker.take(2)
    delivery.send("out", b"")
    if error is None:
        delivery.send(*arguments, **named)
    else:
        with pytest.raises(error):
            delivery.send(*arguments, **named)
    delivery.ack()
    other.ack()
    await all_readable(worker)


async def all_readable(worker: Worker) -> None:
    """Build all messages, and read them as the broker does."""
    while (settle := worker.in_flight.next_settle(100.0)) is not None:
        assert len(settle.outputs) <= MAX_OUTPUTS
        assert sum(output.ByteSize() for output in settle.outputs) <= MAX_OUTPUT_BYTES
        await _parse(queues_pb2.WorkerRequest(settle=settle).SerializeToString())
        worker.answer(settle)


@pytest.mark.parametrize("routed", [False, True], ids=["plain", "routed"])
@pytest.mark.parametrize("what", ["records", "headers", "partitions", "topics"])
async def test_a_delivery_and_many_send_no_more_than_the_broker_reads(what: str, routed: bool) -> None:
    def send(delivery: Any, number: int) -> None:
        headers = [(f"h{index}", b"") for index in range(30)] if what == "headers" else ()
        topic = f"out-{number}" if what == "topics" else "out"
        delivery.send(topic, b"", headers=headers, partition=number if what == "partitions" else None)

    most = {"records": MAX_OUTPUT_RECORDS, "headers": MAX_OUTPUT_HEADERS // 30}.get(what, MAX_PLACES)
    worker = Worker()
    if routed:
        for number in range(most):
            name = f"out-{number}" if what == "topics" else "out"
            worker.in_flight.outbox.routes.found(name, TopicInfo(name, TopicId(bytes(16)), 3, 1))
    worker.receive(1, range(6))
    alone, *together = worker.take(6)
    for number in range(most):
        send(alone, number)
    with pytest.raises(RecordTooLargeError):
        send(alone, most)
    alone.ack()
    for delivery in together:
        for number in range(most // 2):
            send(delivery, number)
        delivery.ack()
    await all_readable(worker)
    assert all(delivery.settlement is not None and delivery.settlement.answered for delivery in (alone, *together))


def test_refusals_say_what_to_do() -> None:
    worker = Worker()
    worker.receive(1, range(1))
    [delivery] = worker.take(1)
    for arguments, named, text in (
        (("out", b"v"), {"partition": 1 << 31}, "topic 'out' has no partition 2147483648; they are counted from 0"),
        (("t" * 300, b"v"), {}, "a name has at most 249 characters"),
        (("out", b"v"), {"headers": [("h" * 70_000, b"")]}, "a header's name has 70,000 bytes; at most 65,536"),
    ):
        with pytest.raises(LogbrokerError, match=text):
            delivery.send(*arguments, **named)
