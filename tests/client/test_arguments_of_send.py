"""The arguments of `send`: whether they are taken is no matter of chance. It does not depend on the batches that are
open, on the kind of the producer, or on the other arguments."""

from __future__ import annotations

import array
import asyncio
import enum
import inspect
from collections.abc import Callable
from typing import Any, Final

import pytest

from logbroker.client import Admin, Producer, sync
from logbroker.client.worker.sent_records import sent_record
from logbroker.errors import InvalidRequestError, InvalidTimestampError, UnknownPartitionError
from logbroker.record.message_headers import KEY, PRIORITY, SUB_KEY
from tests.client.reading import read_all

ODD: Final = b"odd"
OPENS: Final = b"opens a batch"


class OddBytes(bytes):
    def __bytes__(self) -> bytes:
        return ODD


class EqualToAll(bytes):
    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        return True


class Number(enum.IntEnum):
    ZERO = 0


class Text(enum.StrEnum):
    NAME = "name"


class NoName:
    """An object that a dictionary takes for a topic's name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return other == self.name


def released() -> memoryview:
    view = memoryview(ODD)
    view.release()
    return view


Make = Callable[[], Any]
CASES: Final[list[tuple[str, Make, type[Exception] | None]]] = [
    ("value", lambda: None, None),
    ("value", lambda: bytearray(ODD), None),
    ("value", lambda: memoryview(ODD), None),
    ("value", lambda: memoryview(b"o-d-d")[::2], None),
    ("value", lambda: OddBytes(b"other"), None),
    ("value", lambda: array.array("i", [1, 2]), TypeError),
    ("value", released, TypeError),
    ("value", lambda: "odd", TypeError),
    ("value", lambda: 0, TypeError),
    ("key", lambda: bytearray(ODD), None),
    ("key", lambda: memoryview(ODD), None),
    ("key", lambda: EqualToAll(ODD), None),
    ("key", lambda: array.array("b", [1]), TypeError),
    ("key", released, TypeError),
    ("key", lambda: "", TypeError),
    ("key", lambda: 0, TypeError),
    ("ordering_key", lambda: bytearray(ODD), None),
    ("ordering_key", lambda: memoryview(ODD), None),
    ("ordering_key", lambda: EqualToAll(ODD), None),
    ("ordering_key", lambda: "", TypeError),
    ("ordering_key", lambda: 0, TypeError),
    *(("headers", make, TypeError) for make in (lambda: None, dict, str, bytes, lambda: 0, lambda: False)),
    *(("headers", make, None) for make in (list, tuple, set, frozenset, lambda: iter(()))),
    ("headers", lambda: [("a", b"b"), ("a", None)], None),
    ("headers", lambda: (["a", b"b"],), None),
    ("headers", lambda: iter([("a", b"b")]), None),
    ("headers", lambda: {"a": b"b"}.items(), None),
    ("headers", lambda: [(Text.NAME, bytearray(ODD))], None),
    ("headers", lambda: [("Ü", memoryview(ODD))], None),
    ("headers", lambda: {"ab": b"b"}, TypeError),
    ("headers", lambda: ["ab"], TypeError),
    ("headers", lambda: [("a", "b")], TypeError),
    ("headers", lambda: [("a", array.array("i", [1]))], TypeError),
    ("headers", lambda: [("a", released())], TypeError),
    ("headers", lambda: [(b"a", b"b")], TypeError),
    ("headers", lambda: [("a", b"b", "c")], TypeError),
    ("headers", lambda: [("\ud800", b"")], TypeError),
    ("headers", lambda: [()], TypeError),
    ("headers", lambda: [None], TypeError),
    ("partition", lambda: Number.ZERO, None),
    ("partition", lambda: False, TypeError),
    ("partition", lambda: 0.0, TypeError),
    ("partition", lambda: "0", TypeError),
    ("partition", lambda: -1, UnknownPartitionError),
    ("partition", lambda: 1 << 70, TypeError),
    ("timestamp_ms", lambda: Number.ZERO, None),
    ("timestamp_ms", lambda: True, TypeError),
    ("timestamp_ms", lambda: 1.0, TypeError),
    *(("timestamp_ms", lambda at=at: at, InvalidTimestampError) for at in (-1, 1 << 62)),
    *(("timestamp_ms", lambda at=at: at, TypeError) for at in (1 << 63, 10**5000)),
    ("priority", lambda: "3", InvalidRequestError),
    ("priority", lambda: True, InvalidRequestError),
    ("priority", lambda: 10, InvalidRequestError),
    ("sub_key", lambda: bytearray(ODD), None),
    ("sub_key", lambda: "", TypeError),
    ("sub_key", lambda: 0, TypeError),
    ("topic", list, TypeError),
    ("topic", lambda: NoName("topic"), TypeError),
]


async def use(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    outcome = function(*arguments, **named)
    return await outcome if inspect.isawaitable(outcome) else outcome


@pytest.mark.parametrize("kind", [Producer, sync.Producer])
async def test_a_producer_takes_an_argument_always_or_never(address: str, topic: str, kind: Any) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic)
    wrong: list[str] = []
    producer = kind(address, linger_ms=3_600_000)
    try:
        for name, make, expected in CASES:
            for more in ({}, {"priority": 3}, {"key": b"k", "sub_key": b"s"}):
                if name in more:
                    continue
                # A record that is sent by its key, and one whose partition the program chose, never share a batch.
                opener = {"partition": 0} if name == "partition" else {}
                needs = {"key": b"k"} if name == "sub_key" else {}
                for is_open in (False, True):
                    await use(producer.flush)
                    if is_open:
                        await use(producer.send, topic, OPENS, **opener)
                    given = make()
                    if isinstance(given, NoName):
                        given.name = topic
                    arguments = {"topic": topic, "value": ODD, **needs, **more, name: given}
                    outcome = None
                    try:
                        await use(producer.send, **arguments)
                    except Exception as error:
                        outcome = error
                    if type(outcome) is not (type(None) if expected is None else expected):
                        wrong.append(f"{name}={given!r:.60}, {more}, open batch: {is_open}: {outcome!r:.100}")
    finally:
        await use(producer.close)
    assert not wrong


def contents(records: list[Any]) -> set[tuple[object, ...]]:
    """Return the distinct contents of the records that were sent with odd arguments, without what `more` adds."""
    own = [
        tuple(header for header in record.headers if header[0] not in (PRIORITY, KEY, SUB_KEY)) for record in records
    ]
    return {
        (record.value, record.key, headers)
        for record, headers in zip(records, own, strict=True)
        if record.value != OPENS
    }


@pytest.mark.parametrize("kind", [Producer, sync.Producer])
async def test_an_argument_is_stored_alike_whether_or_not_a_batch_is_open(address: str, topic: str, kind: Any) -> None:
    taken = [(name, make) for name, make, expected in CASES if expected is None and name != "sub_key"]
    async with Admin(address) as admin:
        await asyncio.gather(*(admin.create_topic(f"{topic}-{number}") for number in range(len(taken))))
    producer = kind(address, linger_ms=3_600_000)
    try:
        for number, (name, make) in enumerate(taken):
            opener = {"partition": 0} if name == "partition" else {}
            one = f"{topic}-{number}"
            await use(producer.send, **{"topic": one, "value": ODD, name: make()})
            await use(producer.flush)
            await use(producer.send, one, OPENS, **opener)
            await use(producer.send, **{"topic": one, "value": ODD, name: make()})
            await use(producer.send, **{"topic": one, "value": ODD, name: make(), "priority": 3})
    finally:
        await use(producer.close)
    for number, (name, make) in enumerate(taken):
        records = await read_all(address, f"{topic}-{number}")
        assert len(records) == 4
        assert len(contents(records)) == 1, f"{name}={make()!r}: {records}"


def test_a_worker_takes_the_arguments_that_producers_take() -> None:
    wrong: list[str] = []
    for name, make, expected in CASES:
        for more in ({}, {"priority": 3}, {"key": b"k", "sub_key": b"s"}):
            if name in more:
                continue
            needs = {"key": b"k"} if name == "sub_key" else {}
            usual = {"topic": "topic", "value": ODD, "headers": ()}
            rest = dict.fromkeys(("key", "sub_key", "partition", "timestamp_ms", "ordering_key", "priority"))
            given = make()
            outcome = None
            try:
                sent_record(**{**usual, **rest, **needs, **more, name: given})
            except Exception as error:
                outcome = error
            if type(outcome) is not (type(None) if expected is None else expected):
                wrong.append(f"{name}={given!r:.60}, {more}: {outcome!r:.100}")
    assert not wrong
