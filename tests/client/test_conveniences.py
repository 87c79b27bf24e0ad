"""Conveniences known from other clients: topics that may exist, headers, serializers, futures, commits of records; and
wrong arguments, named."""

from __future__ import annotations

import asyncio
import enum
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
import pytest

from logbroker.client import Admin, Consumer, Producer, QueueAdmin, QueueSettings, Record, TopicPartition, Worker, sync
from logbroker.client.runtime.arguments import fits
from logbroker.errors import (
    BrokerUnavailableError,
    DeserializationError,
    InvalidRecordError,
    InvalidRequestError,
    RecordTooLargeError,
    SerializationError,
    TopicExistsError,
    UnknownLaneError,
    UnknownTopicError,
)
from tests.client.group_helpers import committed
from tests.client.worker_helpers import create, wait_until


class Order(msgspec.Struct):
    number: int
    customer: str


def record(value: bytes | None, **options: Any) -> Record:
    return Record("orders", 3, 17, 0, None, value, options.get("headers", ()))


async def in_either(blocking: bool, call: Callable[[], Any]) -> Any:
    if blocking:
        return await asyncio.to_thread(call)
    outcome = call()
    return await outcome if asyncio.iscoroutine(outcome) else outcome


both = pytest.mark.parametrize("blocking", [False, True])

# --- topics ----------------------------------------------------------------------------------------------------------


@both
async def test_a_topic_may_exist(address: str, topic: str, blocking: bool) -> None:
    admin: Any = (sync.Admin if blocking else Admin)(address)
    first = await in_either(blocking, lambda: admin.create_topic(topic, 3, exist_ok=True))
    again = await in_either(blocking, lambda: admin.create_topic(topic, 5, exist_ok=True))
    assert again == first
    assert again.partitions == 3
    with pytest.raises(TopicExistsError):
        await in_either(blocking, lambda: admin.create_topic(topic, 3))
    await in_either(blocking, admin.close)


async def test_many_that_create_one_topic_all_have_it(address: str, topic: str) -> None:
    async with Admin(address) as admin:
        found = await asyncio.gather(*(admin.create_topic(topic, 2, exist_ok=True) for _ in range(10)))
        assert len({info.id for info in found}) == 1


# --- records ---------------------------------------------------------------------------------------------------------


def test_a_header_is_found_by_its_name_the_last_one_first() -> None:
    one = record(b"", headers=(("a", b"1"), ("b", None), ("a", b"2")))
    assert one.header("a") == b"2"
    assert one.header("b", b"default") is None
    assert one.header("c") is None
    assert one.header("c", b"default") == b"default"


def test_values_are_decoded_where_they_are_used() -> None:
    assert record("né".encode()).text() == "né"
    assert record(b'{"number": 1}').json() == {"number": 1}
    assert record(b'{"number": 1, "customer": "x"}').json(Order) == Order(1, "x")
    assert record(msgspec.msgpack.encode([1, 2])).msgpack(list[int]) == [1, 2]
    assert record(b"12").decode(int) == 12


@pytest.mark.parametrize(
    ("value", "decode"),
    [
        (b"\xff", lambda each: each.text()),
        (b"{", lambda each: each.json()),
        (b'{"number": "x"}', lambda each: each.json(Order)),
        (b"\xc1", lambda each: each.msgpack()),
        (b"x", lambda each: each.decode(int)),
        (None, lambda each: each.json()),
    ],
)
def test_a_value_that_does_not_decode_is_told_with_its_place(value: bytes | None, decode: Callable[[Any], Any]) -> None:
    with pytest.raises(DeserializationError, match="orders-3, offset 17") as raised:
        decode(record(value))
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("orders", 3, 17)


@both
@pytest.mark.parametrize("argument", ["key", "value"])
@pytest.mark.parametrize("serializer", ["str", "json"])
@pytest.mark.parametrize(
    "given", [b"{not json", bytearray(b"{}"), memoryview(b"{}")], ids=["bytes", "bytearray", "view"]
)
async def test_serializers_without_bytes_refuse_them(
    address: str, topic: str, blocking: bool, argument: str, serializer: str, given: Any
) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, 1)
    made: Any = sync.Producer if blocking else Producer
    producer = made(address, **{f"{argument}_serializer": serializer})
    value, key = (given, None) if argument == "value" else (None, given)
    message = (
        rf"{argument}_serializer failed .*{serializer} takes .*, not {type(given).__name__}: .*without a serializer"
    )
    with pytest.raises(SerializationError, match=message):
        await in_either(blocking, partial(producer.send_and_wait, topic, value, key))
    await in_either(blocking, producer.close)
    async with Admin(address) as admin:
        [partition] = (await admin.describe_topic(topic)).partitions
        assert partition.high_watermark == 0


@both
async def test_bytes_within_objects_are_written_as_base64(address: str, topic: str, blocking: bool) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, 1)
    producer: Any = (sync.Producer if blocking else Producer)(address, value_serializer="json")
    await in_either(blocking, partial(producer.send_and_wait, topic, {"seal": b"\xff"}))
    await in_either(blocking, producer.close)
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        [found] = [each async for each in consumer.until_end()]
    assert found.json() == {"seal": "/w=="}
    assert found.json(dict[str, bytes]) == {"seal": b"\xff"}


@both
async def test_serializers_make_bytes(address: str, topic: str, blocking: bool) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, 1)
    made: Any = sync.Producer if blocking else Producer
    cases: list[tuple[Any, Any, bytes]] = [
        ("str", "é", "é".encode()),
        ("json", {"a": [1, None]}, b'{"a":[1,null]}'),
        ("msgpack", [1], msgspec.msgpack.encode([1])),
        (lambda value: b"%d" % value, 7, b"7"),
    ]
    for serializer, value, _ in cases:
        producer = made(address, key_serializer="str", value_serializer=serializer)
        await in_either(blocking, partial(producer.send_and_wait, topic, value, "key"))
        await in_either(blocking, partial(producer.send_and_wait, topic, None))
        if callable(serializer) or serializer == "str":
            with pytest.raises(SerializationError, match="value_serializer"):
                await in_either(blocking, partial(producer.send, topic, object()))
        await in_either(blocking, producer.close)
    with pytest.raises(InvalidRequestError, match="value_serializer takes str, json, msgpack"):
        made(address, value_serializer="pickle")
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        found = [(each.key, each.value) async for each in consumer.until_end()]
    assert found == [pair for _, _, encoded in cases for pair in ((b"key", encoded), (None, None))]


async def test_a_worker_nacks_what_does_not_decode_with_that_reason(address: str, topic: str) -> None:
    await create(address, topic, partitions=1, ordering="none", max_attempts=1, on_exhausted="dead-letter")
    async with Producer(address) as producer:
        for value in (b"1", b"not a number", b"3"):
            await producer.send_and_wait(topic, value)
    seen: list[int] = []
    async with Worker(address, topic) as worker:

        def handle(delivery: Any) -> None:
            seen.append(delivery.json(int))
            if len(seen) == 2:
                worker.stop()

        async with asyncio.timeout(25):
            await worker.run(handle)
    assert seen == [1, 3]
    await wait_until(address, topic, lambda queue: queue.counts.open == 0)
    async with Consumer(address) as consumer:
        await consumer.assign(f"{topic}.dead-letters")
        (letter,) = [each async for each in consumer.until_end()]
    assert any(b"offset 1 cannot be decoded" in (value or b"") for _, value in letter.headers)


# --- what send returns -----------------------------------------------------------------------------------------------


@both
async def test_a_callback_hears_once_of_each_record_whatever_becomes_of_it(
    address: str, topic: str, blocking: bool
) -> None:
    """Also of those that go on in other batches, as one that is too large is among them."""
    async with Admin(address) as admin:
        await admin.create_topic(topic, 1, {"max.message.bytes": "2000"})
    heard: list[Any] = []
    all_heard = threading.Event()

    def note(delivery: Any) -> None:
        heard.append(delivery)
        if len(heard) == 21:
            all_heard.set()
        raise ValueError("its own trouble")

    producer: Any = (sync.Producer if blocking else Producer)(address, linger_ms=50)
    sent = []
    for number in range(21):
        value = bytes(5000) if number == 10 else b"%d" % number
        delivery = await in_either(blocking, partial(producer.send, topic, value))
        delivery.add_done_callback(note)
        sent.append(delivery)
    await asyncio.to_thread(all_heard.wait, 25)
    assert set(map(id, heard)) == set(map(id, sent))
    assert len(heard) == 21
    with pytest.raises(RecordTooLargeError):
        sent[10].result()
    assert [delivery.result().offset for delivery in sent if delivery is not sent[10]] == list(range(20))
    late: list[Any] = []
    sent[0].add_done_callback(late.append)
    assert late == [sent[0]]
    if blocking:
        assert sent[0].result(timeout=0).offset == 0
    await in_either(blocking, producer.close)


# --- commits ---------------------------------------------------------------------------------------------------------


@both
async def test_a_record_is_committed_as_done(address: str, topic: str, blocking: bool) -> None:
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic(topic, 2)
        for number in range(10):
            await producer.send_and_wait(topic, b"", partition=number % 2)
    consumer: Any = (sync.Consumer if blocking else Consumer)(address, group=topic, auto_commit=False)
    await in_either(blocking, lambda: consumer.subscribe(topic))
    records: list[Record] = []
    while len(records) < 10:
        records += await in_either(blocking, lambda: consumer.poll(timeout_seconds=5))
    first = next(each for each in records if each.partition == 1 and each.offset == 1)
    await in_either(blocking, lambda: consumer.commit(first))
    assert await committed(address, topic) == {1: 2}
    some = [each for each in records if each.offset in (2, 3)]
    await in_either(blocking, lambda: consumer.commit(some[::-1]))
    assert await committed(address, topic) == {0: 4, 1: 4}
    await in_either(blocking, consumer.close)


@both
async def test_no_offset_below_0_is_committed(address: str, topic: str, blocking: bool) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, 1)
    consumer: Any = (sync.Consumer if blocking else Consumer)(address, group=topic)
    await in_either(blocking, lambda: consumer.subscribe(topic))
    with pytest.raises(InvalidRequestError, match="-1 cannot be committed"):
        await in_either(blocking, lambda: consumer.commit({TopicPartition(topic, 0): -1}))
    await in_either(blocking, consumer.close)


@both
async def test_a_record_is_checked_alike_whether_or_not_a_batch_is_open(
    address: str, topic: str, blocking: bool
) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, 1)
    producer: Any = (sync.Producer if blocking else Producer)(address, linger_ms=1000)
    for _ in range(3):  # The first one begins a batch.
        for stamp in (1.5, "5", True):
            with pytest.raises(TypeError, match="timestamp_ms must be int or None"):
                await in_either(blocking, partial(producer.send, topic, b"", timestamp_ms=stamp))
        await in_either(blocking, lambda: producer.send(topic, b"", headers=[["name", b"value"]]))
    await in_either(blocking, producer.close)


# --- wrong arguments -------------------------------------------------------------------------------------------------

WRONG: list[tuple[str, Callable[[Any], Any], str]] = [
    ("Consumer", lambda c: c.subscribe(["t"]), r"topics must be str, not list \['t'\].*subscribe\(\*topics\)"),
    ("Consumer", lambda c: c.subscribe(b"t"), r"topics must be str, not bytes b't'"),
    ("Consumer", lambda c: c.subscribe("t", pattern=5), r"pattern must be str or None, not int 5"),
    ("Consumer", lambda c: c.assign(5), "assign.*topics must be"),
    ("Consumer", lambda c: c.assign(["t", 5]), "assign.*topics must be"),
    ("Consumer", lambda c: c.seek(TopicPartition("t", 0), "5"), "offset must be int, not str '5'"),
    (
        "Consumer",
        lambda c: c.seek(("t", 0), 5),
        r"partition must be TopicPartition, not tuple .*: write TopicPartition",
    ),
    ("Consumer", lambda c: c.commit({("t", 0): 5}), "offsets must be .*TopicPartition"),
    ("Consumer", lambda c: c.end_offsets([("t", 0)]), "partitions must be .*TopicPartition"),
    ("Admin", lambda c: c.commit_offsets("g", {("t", 0): 5}), "offsets must be .*TopicPartition"),
    ("Consumer", lambda c: c.poll("10"), "max_records must be int"),
    ("Consumer", lambda c: c.poll(timeout_ms=10), "unexpected keyword argument 'timeout_ms'"),
    ("Consumer", lambda c: c.commit("t"), "offsets must be"),
    (
        "Producer",
        lambda p: p.send("t", "text"),
        r"value must be bytes or None, not str 'text'.*encode.*value_serializer",
    ),
    ("Producer", lambda p: p.send("t", {"a": 1}), r"value must be bytes or None, not dict.*value_serializer"),
    ("Producer", lambda p: p.send("t", b"", "key"), r"key must be bytes or None, not str 'key'.*key_serializer"),
    ("Producer", lambda p: p.send(b"t", b""), "topic must be str, not bytes b't'.*decode"),
    ("Producer", lambda p: p.send(["t"], b""), "topic must be str, not list"),
    ("Producer", lambda p: p.send("t", b"", partition="1"), "partition must be int or None, not str '1'"),
    ("Producer", lambda p: p.send("t", b"", headers={"a": b"1"}), "headers must be pairs"),
    ("Producer", lambda p: p.send("t", b"", headers=[("a", "1")]), "headers must be pairs"),
    ("Producer", lambda p: p.send("t", b"", ordering_key="k"), "ordering_key must be bytes or None, not str 'k'"),
    ("Admin", lambda a: a.create_topic("t", "4"), "partitions must be int or None, not str '4'"),
    ("Admin", lambda a: a.create_topic("t", 1, {"retention.ms": 5}), r"configs must be Mapping\[str, str\] or None"),
    ("Admin", lambda a: a.describe_topics("t"), "names must be"),
    ("QueueAdmin", lambda q: q.create_queue("g", None), "topic must be str, not None"),
    ("QueueAdmin", lambda q: q.create_queue("g", "t", {"ordering": "key"}), "settings must be"),
    ("Worker", lambda w: w.run(None), "handler must be"),
    ("Worker", lambda w: w.session("key"), "key must be bytes or None, not str 'key'.*encode"),
]


@both
@pytest.mark.parametrize(("client_name", "call", "message"), WRONG)
async def test_a_wrong_argument_is_named(
    address: str, topic: str, client_name: str, call: Callable[[Any], Any], message: str, blocking: bool
) -> None:
    from logbroker import client

    made = getattr(sync if blocking else client, client_name)
    arguments = {"Consumer": [address], "Worker": [address, topic]}.get(client_name, [address])
    options = {"group": topic} if client_name == "Consumer" else {}
    used = made(*arguments, **options)
    with pytest.raises(TypeError, match=message):
        await in_either(blocking, lambda: call(used))
    await in_either(blocking, used.close)


WRONG_OF_A_DELIVERY: list[tuple[Callable[[Any], Any], str]] = [
    (lambda d: d.nack(reason=5), r"nack\(\): reason must be str, not int 5"),
    (lambda d: d.nack(reason=b"broken"), r"nack\(\): reason must be str, not bytes b'broken'"),
    (lambda d: d.nack(delay_seconds="5"), r"nack\(\): delay_seconds must be float or None, not str '5'"),
    (lambda d: d.extend("5"), r"extend\(\): lease_seconds must be float or None, not str '5'"),
]


@both
async def test_a_wrong_argument_for_a_delivery_is_named_and_settles_nothing(
    address: str, topic: str, blocking: bool
) -> None:
    await create(address, topic, 1)
    async with Producer(address) as producer:
        await producer.send_and_wait(topic, b"")
    worker: Any = (sync.Worker if blocking else Worker)(address, topic)
    delivery = await (asyncio.to_thread(next, iter(worker)) if blocking else anext(aiter(worker)))
    for call, message in WRONG_OF_A_DELIVERY:
        with pytest.raises(TypeError, match=message):
            call(delivery)
    delivery.ack()
    await in_either(blocking, worker.flush)
    await in_either(blocking, worker.close)


async def test_wrong_settings_of_a_client_are_named(address: str) -> None:
    for made in (Consumer, sync.Consumer):
        with pytest.raises(TypeError, match=r"Consumer\(\): group must be str or None, not int 5"):
            made(address, group=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Producer\(\): broker must be str, not tuple"):
        Producer(("127.0.0.1", 9192))  # type: ignore[arg-type]


async def test_an_open_batch_takes_no_wrong_record_either(address: str, topic: str) -> None:
    async with Admin(address) as admin, Producer(address, linger_ms=60_000) as producer:
        await admin.create_topic(topic, 1)
        first = await producer.send(topic, b"1")
        for wrong in ("text", 5, {"a": 1}):
            with pytest.raises(TypeError, match="value must be bytes or None"):
                await producer.send(topic, wrong)
        for name in ("timestamp_ms", "partition"):
            await producer.send(topic, b"by hand", partition=0)
            options: Any = {"partition": 0, name: True}
            with pytest.raises(TypeError, match=f"{name} must be int or None, not bool True"):
                await producer.send(topic, b"", **options)
            await producer.flush()
        last = await producer.send(topic, b"2")
        await producer.flush()
        assert [first.result().offset, last.result().offset] == [0, 3]


class Name(enum.StrEnum):
    """Header names of a program."""

    ONE = "one"


class Bytes(bytes):
    """Bytes of a program, with methods of its own."""


LIKE_BYTES: list[Callable[[bytes], Any]] = [
    bytes,
    Bytes,
    bytearray,
    memoryview,
    lambda text: memoryview(bytearray(text)),
    lambda text: memoryview(b"".join(bytes((byte, 0)) for byte in text))[::2],
    lambda text: memoryview(text).cast("I"),
]


@both
async def test_what_is_like_bytes_is_taken_wherever_bytes_are(address: str, topic: str, blocking: bool) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, 4)
    producer: Any = (sync.Producer if blocking else Producer)(address, linger_ms=60_000)
    for _ in range(2):  # The first of a batch, and behind it.
        for like in LIKE_BYTES:
            four = like(b"four")
            # An iterator, too, is as good as a list.
            headers = (header for header in [(Name.ONE, like(b"head")), ("two", None)])
            await in_either(blocking, partial(producer.send, topic, four, four, headers=headers))
            await in_either(blocking, partial(producer.send, topic, four, ordering_key=like(b"four"), partition=None))
    released = memoryview(b"four")
    released.release()
    for wrong in ({"value": released}, {"value": b"", "key": released}, {"value": b"", "headers": [("one", released)]}):
        with pytest.raises(TypeError, match=f"{[*wrong][-1]} cannot be read: .*released"):
            await in_either(blocking, partial(producer.send, topic, **wrong))
    await in_either(blocking, producer.close)
    async with Consumer(address) as consumer:
        await consumer.assign(topic)
        records = [each async for each in consumer.until_end()]
    assert len({each.partition for each in records}) == 1
    assert {each.value for each in records} == {b"four"}
    head = (("one", b"head"), ("two", None))
    assert [(each.key, each.headers) for each in records] == 2 * len(LIKE_BYTES) * [(b"four", head), (None, ())]


@both
@pytest.mark.parametrize("like", LIKE_BYTES)
async def test_what_is_like_bytes_is_an_ordering_key_and_a_state(
    address: str, topic: str, like: Callable[[bytes], Any], blocking: bool
) -> None:
    await create(address, topic, 1)
    async with Producer(address) as producer:
        await producer.send_and_wait(topic, b"", b"four")
    queues: Any = (sync.QueueAdmin if blocking else QueueAdmin)(address)
    assert (await in_either(blocking, lambda: queues.explain_lane(topic, like(b"four")))).key == b"four"
    with pytest.raises(UnknownLaneError):
        await in_either(blocking, lambda: queues.drop_lane(topic, like(b"none")))
    with pytest.raises(UnknownTopicError, match="has no dead letters"):
        await in_either(blocking, lambda: queues.redrive(topic, key=like(b"four")))
    await in_either(blocking, queues.close)
    worker: Any = (sync.Worker if blocking else Worker)(address, topic)
    for before, after in (b"", b"five"), (b"five", b"last"):
        session = worker.session(like(b"four"))
        await in_either(blocking, session.open)
        assert session.state == before
        with pytest.raises(TypeError, match="state must be bytes, not str 'text'"):
            session.state = "text"
        session.state = like(after)
        assert session.state == after
        await in_either(blocking, session.flush)
        await in_either(blocking, partial((session.__exit__ if blocking else session.__aexit__), None, None, None))
    await in_either(blocking, worker.close)


@both
async def test_only_what_can_be_called_is_a_callback(address: str, topic: str, blocking: bool) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, 1)
    producer: Any = (sync.Producer if blocking else Producer)(address)
    delivery = await in_either(blocking, lambda: producer.send(topic, b""))
    for wrong in (None, 5, "print"):
        with pytest.raises(TypeError, match=r"add_done_callback\(\): function must be a function, not"):
            delivery.add_done_callback(wrong)
    await in_either(blocking, producer.close)


@both
async def test_the_error_of_a_record_to_a_topic_that_is_gone_names_the_topic(
    address: str, topic: str, blocking: bool
) -> None:
    producer: Any = (sync.Producer if blocking else Producer)(address)
    async with Admin(address) as admin:
        await admin.create_topic(topic, 1)
        await in_either(blocking, lambda: producer.send_and_wait(topic, b""))
        await admin.delete_topic(topic)
    for _ in range(2):  # The first one is refused by the broker, the second one has to ask for the topic.
        with pytest.raises(UnknownTopicError, match=f"topic '{topic}'"):
            await in_either(blocking, lambda: producer.send_and_wait(topic, b""))
    await in_either(blocking, producer.close)


def test_what_fits_a_hint() -> None:
    assert fits(1, float)
    assert not fits("1", float)
    assert fits(TopicPartition("t", 0), TopicPartition)
    assert not fits(("t", 0), TopicPartition)
    assert not fits({("t", 0): 1}, Mapping[TopicPartition, int])
    assert not fits("abc", list[str])
    assert fits({"a": "b"}, dict[str, str])
    assert not fits({"a": 1}, dict[str, str])
    assert fits(None, int | None)
    assert fits(QueueSettings(), QueueSettings | None)
    assert fits(iter(["a"]), Any)


# --- asyncio only ----------------------------------------------------------------------------------------------------

USES = [
    "Admin('127.0.0.1:1').list_topics()",
    "Producer('127.0.0.1:1').send('t', b'')",
    "Producer('127.0.0.1:1').__aenter__()",
    "Consumer('127.0.0.1:1').assign('t')",
    "Consumer('127.0.0.1:1', group='g').subscribe('t')",
    "Consumer('127.0.0.1:1').poll()",
    "Worker('127.0.0.1:1', 'g').run(print)",
    "Worker('127.0.0.1:1', 'g').session().open()",
    "anext(aiter(Worker('127.0.0.1:1', 'g')))",
]


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("use", USES)
def test_another_event_loop_than_asyncio_s_is_told_so(use: str) -> None:
    """As trio does: a coroutine is driven, and no loop of asyncio runs."""
    program = f"from logbroker.client import *\nawaitable = {use}\nawaitable.__await__().send(None)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 1
    assert "runs in asyncio only" in done.stderr.splitlines()[-1]
    assert BrokerUnavailableError.__name__ not in done.stderr


def test_a_callback_may_send_and_is_told_where_it_would_wait_for_itself(address: str, topic: str) -> None:
    with sync.Admin(address) as admin:
        admin.create_topic(topic, 1)
    refused: list[Exception] = []
    sent: list[Any] = []
    done = threading.Event()

    def again(delivery: Any) -> None:
        try:
            producer.flush()
        except InvalidRequestError as error:
            refused.append(error)
        sent.append(producer.send(topic, b"%d" % len(sent)))
        if len(sent) < 50:
            sent[-1].add_done_callback(again)
        else:
            done.set()

    with sync.Producer(address, linger_ms=0) as producer:
        producer.send(topic, b"first").add_done_callback(again)
        assert done.wait(25)
        assert [delivery.result(timeout=25).offset for delivery in sent] == list(range(1, 51))
    assert len(refused) == 50
    assert "background thread" in str(refused[0])


def test_a_client_that_a_callback_cannot_close_is_closed_later(address: str, topic: str) -> None:
    with sync.Admin(address) as admin:
        admin.create_topic(topic, 1)
    with sync.Producer(address, linger_ms=60_000) as producer, sync.Consumer(address) as consumer:
        consumer.assign(topic)
        refused: list[Exception] = []

        def close(_: Any) -> None:
            for client in (producer, consumer):
                try:
                    client.close()
                except InvalidRequestError as error:
                    refused.append(error)

        producer.send(topic, b"first").add_done_callback(close)
        producer.flush()
        assert len(refused) == 2
        later = producer.send(topic, b"later")
        assert [record.value for record in consumer.until_end()] == [b"first"]
    assert later.result(timeout=0).offset == 1


@pytest.mark.prove
@both
async def test_no_more_headers_are_sent_than_are_read(address: str, topic: str, blocking: bool) -> None:
    """A consumer would stop at such a record, and so would a queue group."""
    with sync.Admin(address) as admin:
        admin.create_topic(topic, 1, {"max.message.bytes": "4194304"})
    producer: Any = (sync.Producer if blocking else Producer)(address, batch_bytes=4 << 20, linger_ms=60_000)
    await in_either(blocking, partial(producer.send, topic, b"opens a batch with room for the next"))
    with pytest.raises(InvalidRecordError, match="a record has 524289 headers; at most 524288 are read"):
        await in_either(blocking, partial(producer.send, topic, b"", headers=[("", None)] * 524_289))
    await in_either(blocking, producer.close)
