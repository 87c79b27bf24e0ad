"""Records that are sent with an ack: `send` refuses whatever could not be sent later, when it would stop the stream."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from logbroker.client.transport.metadata import TopicInfo
from logbroker.client.worker.sent_records import MAX_OUTPUT_HEADERS, MAX_OUTPUT_RECORDS, MAX_RUNS
from logbroker.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    LeaseLostError,
    LogbrokerError,
    RecordTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logbroker.grpc_api.queues.outputs import MAX_OUTPUTS
from logbroker.grpc_api.request_parsing import request_parser
from logbroker.queues.outputs.preparation import MAX_OUTPUT_BYTES
from logbroker.record.codec import decode_batch
from logbroker.types import TopicId
from logbroker.v1 import queues_pb2
from tests.client.in_flight_by_hand import NOW, Worker, acks, extensions

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
    "empty topic": (("", b"v"), {}, UnknownTopicError),
    "topic of dots": (("..", b"v"), {}, UnknownTopicError),
    "topic with NUL": (("out\0", b"v"), {}, UnknownTopicError),
    "topic with a line end": (("out\n", b"v"), {}, UnknownTopicError),
    "topic with a letter beyond ASCII": (("öut", b"v"), {}, UnknownTopicError),
    "text as a value": (("out", "v"), {}, TypeError),
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


@pytest.mark.prove(keep=3)
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


@pytest.mark.parametrize("sub_key", [None, b"s"])
@pytest.mark.parametrize("argument", ["value", "key"])
@pytest.mark.parametrize(
    ("given", "remedy"),
    [("text", r"encode it, text\.encode\(\)"), ({"a": 1}, r"json\.dumps\({}\)\.encode\(\)"), (5, "json")],
)
def test_a_refusal_names_what_a_worker_can_do(given: Any, remedy: str, argument: str, sub_key: bytes | None) -> None:
    worker = Worker()
    worker.receive(1, range(1))
    [delivery] = worker.take(1)
    arguments: dict[str, Any] = {"value": b"v", "key": b"k", argument: given}
    with pytest.raises(TypeError, match=rf"{argument} must be bytes .*{remedy.format(argument)}") as raised:
        delivery.send("out", sub_key=sub_key, **arguments)
    assert "serializer" not in str(raised.value)


async def all_readable(worker: Worker) -> None:
    """Build all messages, and read them as the broker does."""
    while (settle := worker.in_flight.next_settle(NOW)) is not None:
        assert len(settle.outputs) <= MAX_OUTPUTS
        assert sum(output.ByteSize() for output in settle.outputs) <= MAX_OUTPUT_BYTES
        await _parse(queues_pb2.WorkerRequest(settle=settle).SerializeToString())
        worker.answer(settle)


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize("routed", [False, True], ids=["plain", "routed"])
@pytest.mark.parametrize("what", ["records", "headers", "partitions", "topics", "turns"])
async def test_a_delivery_and_many_send_no_more_than_the_broker_reads(what: str, routed: bool) -> None:
    def send(delivery: Any, number: int) -> None:
        headers = [(f"h{index}", b"") for index in range(30)] if what == "headers" else ()
        topic = f"out-{number}" if what == "topics" else "out"
        partition = {"partitions": number, "turns": number % 2}.get(what)
        delivery.send(topic, b"", headers=headers, partition=partition)

    most = {"records": MAX_OUTPUT_RECORDS, "headers": MAX_OUTPUT_HEADERS // 30}.get(what, MAX_RUNS)
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


@pytest.mark.parametrize("routed", [False, True], ids=["plain", "routed"])
@pytest.mark.parametrize("deliveries", [1, 12])
async def test_records_of_one_partition_keep_their_order(deliveries: int, routed: bool) -> None:
    """Whatever chooses their partition. A broker that gets them unrouted routes them in the order of the message."""
    choices: list[dict[str, Any]] = [
        {"key": b"k"},
        {"key": b"k", "partition": 0},
        {"key": b"k", "ordering_key": b"o"},
        {"ordering_key": b"p"},
        {"partition": 1},
    ]
    worker = Worker()
    for topic in ("out", "more") if routed else ():
        worker.in_flight.outbox.routes.found(topic, TopicInfo(topic, TopicId(bytes(16)), 2, 1))
    worker.receive(1, range(deliveries))
    for number, delivery in enumerate(worker.take(deliveries)):
        for index in range(number * 60 // deliveries, (number + 1) * 60 // deliveries):
            topic = "out" if index % 7 or deliveries > 1 else "more"
            delivery.send(topic, b"%d" % index, **choices[index * index % len(choices)])
        delivery.ack()
    arrived: dict[Any, list[int]] = {}
    while (settle := worker.in_flight.next_settle(NOW)) is not None:
        for output in settle.outputs:
            values = [record.value for record in output.records.records]
            if output.batch:
                values = [record.value or b"" for record in decode_batch(output.batch)]
            arrived.setdefault((output.topic, output.partition if routed else 0), []).extend(map(int, values))
        worker.answer(settle)
    assert sum(map(len, arrived.values())) == 60
    assert all(values == sorted(values) for values in arrived.values()), arrived


def test_refusals_say_what_to_do() -> None:
    worker = Worker()
    worker.receive(1, range(1))
    [delivery] = worker.take(1)
    for arguments, named, text in (
        (("out", b"v"), {"partition": 1 << 31}, "topic 'out' has no partition 2147483648; they are counted from 0"),
        (("t" * 300, b"v"), {}, "a name has 1 to 249 of a-z"),
        (("out", b"v"), {"headers": [("h" * 70_000, b"")]}, "a header's name has 70,000 bytes; at most 65,536"),
        (("out", "text"), {}, r"value must be bytes or None, not str 'text': encode it, text.encode\(\)$"),
        (("out", b"v", 5), {}, r"key must be bytes or None, not int 5: encode it, json.dumps\(key\).encode\(\)$"),
    ):
        with pytest.raises((LogbrokerError, TypeError), match=text):
            delivery.send(*arguments, **named)


LIMIT = 30_000


def size_of(settle: queues_pb2.Settle) -> int:
    return queues_pb2.WorkerRequest(settle=settle, add_credit=1_000_000).ByteSize()


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize("routed", [False, True], ids=["plain", "routed"])
def test_no_message_is_larger_than_the_broker_reads(routed: bool, in_session: bool) -> None:
    worker = Worker(max_request_bytes=LIMIT)
    session = worker.open_session() if in_session else None
    if routed:
        worker.in_flight.outbox.routes.found("out", TopicInfo("out", TopicId(bytes(16)), 3, 1))
    worker.receive(1, range(60), session=session)
    taken = worker.take(60, buffer=None if session is None else session.buffer)
    for delivery in taken:
        number = delivery.offset
        if session is not None:
            session.set_state(b"%d " % number + bytes(1000))
        delivery.send("out", b"%d " % number + bytes(LIMIT - 5 if number == 40 else 2000), partition=0).ack()
    acked: list[int] = []
    nacked: list[queues_pb2.Nack] = []
    while (settle := worker.in_flight.next_settle(NOW)) is not None:
        assert size_of(settle) <= LIMIT
        acked += [receipt for first, last in acks(settle) for receipt in range(first, last + 1)]
        if settle.states:
            assert int(settle.states[0].state.split(b" ")[0]) == acked[-1] - 1
        nacked += settle.nacks
        worker.answer(settle)
        if nacked and in_session:
            break  # A broker refuses the acks behind it.
    assert acked == [receipt for receipt in range(1, 41 if in_session else 61) if receipt != 41]
    assert [(nack.first_receipt, nack.last_receipt) for nack in nacked] == [(41, 41)]
    assert "the broker reads 29,968 at once (max_request_bytes)" in nacked[0].reason
    if session is not None:
        with pytest.raises(LeaseLostError):
            session.check()


def test_acks_and_extensions_are_split_for_a_broker_that_reads_little() -> None:
    worker = Worker(max_request_bytes=2000)
    worker.receive(1, range(4000))
    taken = worker.take(4000)
    for delivery in taken[::3]:
        delivery.extend(60)
    for delivery in taken[1::3]:
        delivery.ack()
    extended: list[int] = []
    acked: list[int] = []
    while (settle := worker.in_flight.next_settle(NOW)) is not None:
        assert size_of(settle) <= 2000
        extended += [first for first, _ in extensions(settle)]
        acked += [first for first, _ in acks(settle)]
        worker.answer(settle)
    assert (extended, acked) == (list(range(1, 4001, 3)), list(range(2, 4001, 3)))


def test_a_state_that_the_broker_does_not_read_ends_its_session() -> None:
    worker = Worker(max_request_bytes=1000)
    session = worker.open_session()
    worker.receive(1, range(1), session=session)
    [delivery] = worker.take(1, buffer=session.buffer)
    session.set_state(bytes(2000))
    delivery.ack()
    assert worker.sends_nothing()
    with pytest.raises(RecordTooLargeError, match=r"the broker reads 968 at once \(max_request_bytes\)"):
        session.check()


def test_send_refuses_at_once_what_the_broker_never_reads() -> None:
    worker = Worker(max_request_bytes=LIMIT)
    worker.receive(1, range(1))
    [delivery] = worker.take(1)
    with pytest.raises(RecordTooLargeError, match=r"up to 30,000 bytes \(max_request_bytes of the broker\)"):
        delivery.send("out", bytes(LIMIT + 1))
