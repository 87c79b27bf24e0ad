"""Sub-streams: records that are sent with a sub-key, which have an order, a partition and a lane of their own."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import example, given
from hypothesis import strategies as st

from logbroker.client import Admin, Consumer, Producer, QueueAdmin, Record, Worker, sync
from logbroker.errors import InvalidRequestError, RecordTooLargeError
from logbroker.record.message_headers import KEY, SUB_KEY, joined_key, key_parts, with_sub_key
from tests.client.reading import read_all
from tests.client.test_conveniences import both, in_either
from tests.client.worker_helpers import create, numbers, take, wait_until

PARTITIONS = 8
keys = st.binary(max_size=6) | st.sampled_from([b"", b"#", b"a", b"a#b", b"b#c", b"c"])
headers = st.lists(st.tuples(st.sampled_from([KEY, SUB_KEY, "other"]), st.none() | keys), max_size=5)


@given(keys, keys, headers)
@example(b"a#b", b"c", [(KEY, b"a"), (SUB_KEY, b"b#c")])
def test_the_headers_tell_the_parts_of_a_key(key: bytes, sub_key: bytes, given: list[tuple[str, bytes | None]]) -> None:
    found = with_sub_key(given, key, sub_key)
    assert key_parts(joined_key(key, sub_key), found) == (key, sub_key)
    assert [each for each in found if each[0] == "other"] == [each for each in given if each[0] == "other"]


@given(st.none() | keys, headers)
def test_headers_that_do_not_make_up_the_key_count_for_nothing(
    key: bytes | None, given: list[tuple[str, bytes | None]]
) -> None:
    main_key, sub_key = key_parts(key, given)
    if sub_key is None:
        assert main_key == key
    else:
        last = dict(given)
        assert main_key is not None
        assert (last[KEY], last[SUB_KEY], main_key + b"#" + sub_key) == (main_key, sub_key, key)


@both
async def test_sub_streams_lie_where_every_client_looks_for_their_keys(
    address: str, topic: str, blocking: bool
) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, PARTITIONS)
    producer: Any = (sync.Producer if blocking else Producer)(address)
    for number in range(120):
        options = {"sub_key": b"thread-%d" % (number % 12), "headers": [("trace", b"1")], "priority": 7}
        send = producer.send if number % 2 else producer.send_and_wait
        await in_either(blocking, lambda: send(topic, b"%d" % number, b"general", **options))  # noqa: B023
    await in_either(blocking, producer.close)
    records = await read_all(address, topic)
    of: dict[bytes | None, list[Record]] = defaultdict(list)
    for record in records:
        assert record.main_key == b"general"
        assert (record.header("trace"), record.priority) == (b"1", 7)
        of[record.sub_key].append(record)
    assert len(of) == 12
    everywhere = list(range(PARTITIONS))
    for sub_key, stream in of.items():
        assert {record.key for record in stream} == {b"general#" + (sub_key or b"")}
        # Kafka's client chooses the partition by its own code.
        place = DefaultPartitioner()(stream[0].key, everywhere, everywhere)
        assert {record.partition for record in stream} == {place}
        values = [int(record.value or b"") for record in stream]
        assert len(values) == 10
        assert values == sorted(values)
    assert len({record.partition for record in records}) > 1


@both
async def test_an_empty_sub_key_is_a_sub_key(address: str, topic: str, blocking: bool) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic)
    producer: Any = (sync.Producer if blocking else Producer)(address, key_serializer="str")
    await in_either(blocking, lambda: producer.send(topic, b"", "general", sub_key=b""))
    await in_either(blocking, lambda: producer.send(topic, b"", "general", sub_key=memoryview(b"x")))
    await in_either(blocking, lambda: producer.send(topic, b"", "general#"))
    await in_either(blocking, lambda: producer.send(topic, b"", "", sub_key=b""))
    await in_either(blocking, producer.close)
    parts = [(record.main_key, record.sub_key) for record in await read_all(address, topic)]
    assert parts == [(b"general", b""), (b"general", b"x"), (b"general#", None), (b"", b"")]


@both
async def test_a_sub_key_without_a_key_is_refused_and_nothing_is_sent(address: str, topic: str, blocking: bool) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, configs={"max.message.bytes": "10000"})
    producer: Any = (sync.Producer if blocking else Producer)(address)
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (InvalidRequestError, "a sub_key without a key; give both", {"sub_key": b"s"}),
        (TypeError, "sub_key must be bytes or None, not str 's': encode it", {"key": b"k", "sub_key": "s"}),
        (TypeError, "key must be bytes or None, not str 'k': encode it", {"key": "k", "sub_key": b"s"}),
        (RecordTooLargeError, "record", {"key": b"k", "sub_key": bytes(20_000)}),
    ]
    for _ in range(2):  # Before a batch is open, and beside an open one.
        for error, text, options in wrong:
            with pytest.raises(error, match=text):
                await in_either(blocking, lambda: producer.send_and_wait(topic, b"not this", **options))  # noqa: B023
        await in_either(blocking, lambda: producer.send(topic, b"this"))
    await in_either(blocking, producer.close)
    assert {record.value for record in await read_all(address, topic)} == {b"this"}


async def test_queue_groups_lane_by_key_and_sub_key(address: str, topic: str) -> None:
    await create(address, topic, 4)
    async with Producer(address) as producer:
        for number in range(6):
            await producer.send(topic, b"%d" % number, b"general", sub_key=b"thread-%d" % (number % 3))
        await producer.flush()
    async with Worker(address, topic) as worker:
        heads = await take(worker, 3)
        assert sorted(numbers(heads)) == [0, 1, 2]
        assert {(head.main_key, head.sub_key) for head in heads} == {
            (b"general", b"thread-%d" % number) for number in range(3)
        }
        for head in heads:
            head.ack()
        assert sorted(numbers(await take(worker, 3))) == [3, 4, 5]


async def test_dead_letters_and_redriven_records_keep_the_parts(address: str, topic: str) -> None:
    await create(address, topic, max_attempts=1, on_exhausted="dead-letter")
    async with Producer(address) as producer:
        await producer.send_and_wait(topic, b"1", b"general", sub_key=b"thread-1")
    async with Worker(address, topic) as worker, QueueAdmin(address) as queues:
        [delivery] = await take(worker, 1)
        await delivery.nack(reason="no")
        await wait_until(address, topic, lambda queue: queue.counts.dead_lettered == 1)
        [letter] = await read_all(address, f"{topic}.dead-letters")
        assert (letter.main_key, letter.sub_key) == (b"general", b"thread-1")
        assert (await queues.redrive(topic)).records == 1
        [again] = await take(worker, 1)
        assert (again.key, again.main_key, again.sub_key) == (b"general#thread-1", b"general", b"thread-1")
        again.ack()


@both
async def test_workers_send_to_sub_streams(address: str, topic: str, blocking: bool) -> None:
    out = f"{topic}-out"
    await create(address, topic)
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic(out, PARTITIONS)
        for number in range(2):
            await producer.send(topic, b"", b"%d" % number)

    def work(worker: Any) -> None:
        with worker.session(b"0") as session:
            delivery = next(iter(session))
            session.send(out, b"1", b"general", sub_key=b"a")
            delivery.ack()
        [delivery] = next(iter(worker.batches(max_records=1)))
        delivery.send(out, b"2", b"general", sub_key=b"b")
        with pytest.raises(InvalidRequestError, match="without a key"):
            delivery.send(out, b"not this", sub_key=b"a")
        delivery.ack()
        worker.close()

    async def work_async(worker: Any) -> None:
        async with worker.session(b"0") as session:
            delivery = await anext(aiter(session))
            session.send(out, b"1", b"general", sub_key=b"a")
            await delivery.ack()
        [delivery] = await take(worker, 1)
        delivery.send(out, b"2", b"general", sub_key=b"b")
        await delivery.ack()
        await worker.close()

    if blocking:
        await in_either(True, lambda: work(sync.Worker(address, topic)))
    else:
        await work_async(Worker(address, topic))
    async with Consumer(address) as consumer:
        await consumer.assign(out)
        records = [record async for record in consumer.until_end()]
    assert {(record.value, record.main_key, record.sub_key) for record in records} == {
        (b"1", b"general", b"a"),
        (b"2", b"general", b"b"),
    }
