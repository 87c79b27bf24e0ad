"""Merged reading: the partitions of a topic as one stream in order, against a real broker."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from logbroker.client import Admin, Consumer, MergedRecord, Producer, TopicPartition, sync
from logbroker.client.consumer import fetcher, merged
from logbroker.client.consumer.resequencer import Resequencer
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import BrokerUnavailableError, ConcurrentUseError, CorruptLogError, InvalidRequestError
from tests.client.test_conveniences import both, in_either

LONG = 30.0
"""A wait that no test lasts for."""
now_ms = int(time.time() * 1000)


async def create(address: str, topic: str, partitions: int) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, partitions, {"retention.ms": "-1"})


async def send(
    address: str, topic: str, records: Sequence[tuple[int, int]], *, batch_bytes: int = 1000, **options: Any
) -> None:
    """Send records with these partitions and sequences: the sequence is the timestamp, the header `n` and the value."""
    async with Producer(address, batch_bytes=batch_bytes) as producer:
        for partition, number in records:
            await producer.send(
                topic,
                b"%d" % number,
                partition=partition,
                timestamp_ms=now_ms + number,
                headers=[("n", b"%d" % number)],
                **options,
            )


async def taken(records: AsyncIterator[MergedRecord], count: int | None = None) -> list[MergedRecord]:
    found: list[MergedRecord] = []
    async with asyncio.timeout(20):
        async for record in records:
            found.append(record)
            if len(found) == count:
                break
    return found


async def take(blocking: bool, consumer: Any, count: int | None, *args: Any, **options: Any) -> list[MergedRecord]:
    """Take records of a merged reading with either client: so many, or all until its end."""
    if blocking:
        return await asyncio.to_thread(lambda: list(itertools.islice(consumer.merged(*args, **options), count)))
    return await taken(consumer.merged(*args, **options), count)


def opened(blocking: bool, address: str, **options: Any) -> Any:
    return (sync.Consumer if blocking else Consumer)(address, **options)


def numbers(records: Sequence[MergedRecord]) -> list[int]:
    return [int(record.value or b"") for record in records]


def scattered(count: int, partitions: int, seed: int = 7) -> list[tuple[int, int]]:
    random_ = random.Random(seed)
    return [(random_.randrange(partitions), number) for number in range(count)]


@both
@pytest.mark.parametrize("by", ["timestamp", "n", lambda record: int(record.value) / 2])
async def test_partitions_are_one_stream_in_order(address: str, topic: str, blocking: bool, by: Any) -> None:
    await create(address, topic, 5)
    await send(address, topic, scattered(3000, 4))  # Nothing is in the fifth.
    consumer = opened(blocking, address)
    records = await take(blocking, consumer, None, topic, by=by, max_wait_seconds=LONG, until_end=True)
    assert numbers(records) == list(range(3000))
    assert not any(record.late for record in records)
    assert isinstance(records[0], MergedRecord)
    # At the end, another reading goes on there, and `start` begins anew.
    assert await take(blocking, consumer, None, topic, until_end=True) == []
    again = await take(blocking, consumer, None, topic, by=by, start="earliest", max_wait_seconds=LONG, until_end=True)
    assert numbers(again) == numbers(records)
    await in_either(blocking, consumer.close)


@both
async def test_the_sub_streams_of_a_key_are_one_stream_in_order(address: str, topic: str, blocking: bool) -> None:
    await create(address, topic, 4)
    async with Producer(address) as producer:
        for number in range(1200):
            key, sub_key = [b"general", b"gen", b"other"][number % 3], b"thread-%d" % (number % 20)
            options: dict[str, Any] = {} if number % 5 == 0 else {"sub_key": sub_key}
            await producer.send(topic, b"%d" % number, key, timestamp_ms=now_ms + number, **options)
    consumer = opened(blocking, address)
    records = await take(blocking, consumer, None, topic, b"general", max_wait_seconds=LONG, until_end=True)
    assert numbers(records) == list(range(0, 1200, 3))
    assert not any(record.late for record in records)
    assert {record.main_key for record in records} == {b"general"}
    assert len({record.partition for record in records}) > 1
    await in_either(blocking, consumer.close)


@both
async def test_records_of_other_keys_show_how_far_a_partition_is(address: str, topic: str, blocking: bool) -> None:
    await create(address, topic, 2)
    await send(address, topic, [(0, 1)], key=b"general")
    await send(address, topic, [(1, 2)], key=b"other")
    consumer = opened(blocking, address)
    [record] = await take(blocking, consumer, 1, topic, b"general", max_wait_seconds=LONG)
    assert (numbers([record]), record.late) == ([1], False)
    await in_either(blocking, consumer.close)


@pytest.mark.prove
@both
async def test_an_idle_partition_holds_nothing_up_for_longer_than_the_wait(
    address: str, topic: str, blocking: bool
) -> None:
    await create(address, topic, 3)
    consumer = opened(blocking, address)
    await send(address, topic, [(0, 5)])
    begun = time.monotonic()
    [first] = await take(blocking, consumer, 1, topic, max_wait_seconds=0.5)
    assert (numbers([first]), first.late) == ([5], False)
    assert time.monotonic() - begun > 0.4
    # What comes within the wait comes in order.
    taking = asyncio.create_task(take(blocking, consumer, 3, topic, max_wait_seconds=2))
    async with Producer(address) as producer:
        for partition, number in [(2, 9), (0, 8), (1, 7)]:
            await producer.send_and_wait(topic, b"%d" % number, partition=partition, timestamp_ms=now_ms + number)
    assert [(int(record.value or b""), record.late) for record in await taking] == [(7, False), (8, False), (9, False)]
    await in_either(blocking, consumer.close)


@both
async def test_what_comes_too_late_is_marked_and_not_left_out(address: str, topic: str, blocking: bool) -> None:
    await create(address, topic, 2)
    consumer = opened(blocking, address)
    await send(address, topic, [(0, 5)])

    def read() -> Iterator[MergedRecord]:
        yield from consumer.merged(topic, max_wait_seconds=0.01)

    records: Any = read() if blocking else aiter(consumer.merged(topic, max_wait_seconds=0.01))

    async def step() -> MergedRecord:
        found: MergedRecord = await (asyncio.to_thread(next, records) if blocking else anext(records))
        return found

    async with asyncio.timeout(20):
        assert ((first := await step()).late, first.value) == (False, b"5")
        await send(address, topic, [(1, 4)])
        assert ((second := await step()).late, second.value) == (True, b"4")
        await send(address, topic, [(1, 6)])
        assert ((third := await step()).late, third.value) == (False, b"6")
    await in_either(blocking, consumer.close)


@pytest.mark.prove(keep=1)
@both
@pytest.mark.parametrize("order", ["key", "none"])
async def test_added_partitions_join(address: str, topic: str, blocking: bool, order: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("logbroker.client.consumer.generations.LOOK_SECONDS", 0.05)
    await create(address, topic, 1)
    consumer = opened(blocking, address, growth_order=order)
    await send(address, topic, [(0, number) for number in range(100)])
    taking = asyncio.create_task(take(blocking, consumer, 500, topic, max_wait_seconds=1, max_records=50))
    async with Admin(address) as admin:
        for partitions in (2, 4):
            await admin.alter_topic(topic, partitions=partitions)
            await send(address, topic, [(each % partitions, partitions * 100 + each) for each in range(200)])
    records = await taking
    assert sorted(numbers(records)) == [*range(100), *range(200, 400), *range(400, 600)]
    assert {record.partition for record in records} == set(range(4))
    for partition in range(4):
        of_one = [record.offset for record in records if record.partition == partition]
        assert of_one == list(range(len(of_one)))
    await in_either(blocking, consumer.close)


@both
async def test_a_loop_that_is_left_loses_nothing_and_doubles_nothing(address: str, topic: str, blocking: bool) -> None:
    await create(address, topic, 3)
    await send(address, topic, scattered(2000, 3))
    random_ = random.Random(3)
    consumer = opened(blocking, address)
    found = numbers(await take(blocking, consumer, 1, topic, max_wait_seconds=LONG))
    got: list[int] = []
    while len(found) < 2000:
        assert sum(map(consumer.position, consumer.assignment())) == len(found)
        count = random_.randrange(1, 200)
        if random_.random() < 0.3:
            got = [int(each.value) for each in await in_either(blocking, lambda: consumer.poll(count))]  # noqa: B023
        else:
            got = numbers(await take(blocking, consumer, count, topic, max_wait_seconds=LONG, until_end=True))
            assert got == sorted(got)
        found += got
    assert sorted(found) == list(range(2000))
    await in_either(blocking, consumer.close)


async def test_positions_may_move_in_the_body_of_a_loop(address: str, topic: str) -> None:
    await create(address, topic, 2)
    await send(address, topic, [(number % 2, number) for number in range(200)])
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(address) as consumer, asyncio.timeout(20):
        found: list[int] = []
        async for record in consumer.merged(topic, max_wait_seconds=0.05):
            found += numbers([record])
            if len(found) == 10:
                assert (consumer.position(first), consumer.position(second)) == (5, 5)
                consumer.pause(second)
            if len(found) == 20:
                assert found[10:] == [10, 12, 14, 16, 18, 20, 22, 24, 26, 28]
                assert (consumer.position(first), consumer.position(second)) == (15, 5)
                await consumer.seek(first, 98)
            if len(found) == 22:
                assert found[20:] == [196, 198]
                consumer.resume(second)
            if len(found) == 30:
                # What the program has read otherwise does not come again.
                polled = await consumer.poll(1)
                found += [int(each.value or b"") for each in polled]
            if len(found) == 117:
                break
        assert found[22:] == list(range(11, 200, 2))


@pytest.mark.prove(keep=1)
@both
@pytest.mark.parametrize("meanwhile", [False, True])
async def test_a_topic_that_grew_comes_in_order_and_without_waiting(
    address: str, topic: str, blocking: bool, meanwhile: bool
) -> None:
    """The partitions that were added bring nothing until the others are read up to where they were added."""
    await create(address, topic, 2)
    numbered = [(number % (2 + 2 * (number // 100)), number) for number in range(300)]

    async def grow(generation: int) -> None:
        async with Admin(address) as admin:
            await admin.alter_topic(topic, partitions=2 + 2 * generation)
        await send(address, topic, numbered[100 * generation : 100 * (generation + 1)], batch_bytes=300)

    await send(address, topic, numbered[:100], batch_bytes=300)
    if not meanwhile:
        await grow(1)
        await grow(2)
    consumer = opened(blocking, address)
    options = {"max_wait_seconds": LONG, "max_records": 20}
    found = await take(blocking, consumer, 50, topic, **options)
    if meanwhile:
        await grow(1)
        await grow(2)
    found += await take(blocking, consumer, 240, topic, **options)
    assert numbers(found) == list(range(290))
    assert not any(record.late for record in found)
    await in_either(blocking, consumer.close)


def _one_of(records: Iterator[Any]) -> list[Any]:
    return list(itertools.islice(records, 1))


def _pause(consumer: sync.Consumer, at: TopicPartition) -> None:
    consumer.pause(at)
    consumer.resume(at)


MEANWHILE: dict[str, Callable[[sync.Consumer, TopicPartition], list[Any] | None]] = {
    "poll": lambda consumer, _: consumer.poll(1),
    "until_end": lambda consumer, _: _one_of(consumer.until_end()),
    "batches": lambda consumer, _: [record for batch in _one_of(consumer.batches(until_end=True)) for record in batch],
    "merged": lambda consumer, at: _one_of(consumer.merged(at.topic, until_end=True)),
    "seek": lambda consumer, at: consumer.seek(at, consumer.position(at)),
    "seek past one": lambda consumer, at: consumer.seek(at, consumer.position(at) + 1),
    "pause": _pause,
}
"""Things that the body of a merged loop may do: use its consumer otherwise, and go on."""


def test_a_partition_that_is_resumed_is_waited_for_again(address: str, topic: str) -> None:
    asyncio.run(create(address, topic, 2))
    asyncio.run(send(address, topic, [(number % 2, number) for number in range(400)]))
    paused, found = TopicPartition(topic, 0), list[MergedRecord]()
    with sync.Consumer(address) as consumer:
        for record in consumer.merged(topic, max_wait_seconds=LONG, until_end=True):
            found.append(record)
            if len(found) == 20:
                consumer.pause(paused)
            if len(found) == 30:
                consumer.resume(paused)
    # While it is paused, ten records of the other one come, and so nine of its own are late.
    late = [int(record.value or b"") for record in found if record.late]
    assert late == [number for number in range(20, 39) if number % 2 == 0]
    on_time = [int(record.value or b"") for record in found if not record.late]
    assert on_time == sorted(on_time)
    assert sorted(numbers(found)) == list(range(400))


@pytest.mark.parametrize("other", [name for name in MEANWHILE if name not in ("seek", "seek past one", "pause")])
@pytest.mark.parametrize("until_end", [True, False])
def test_a_merged_loop_goes_on_where_another_read_has_ended_a_generation(
    address: str, topic: str, other: str, until_end: bool
) -> None:
    asyncio.run(create(address, topic, 1))
    asyncio.run(send(address, topic, [(0, 0), (0, 1)]))
    with sync.Admin(address) as admin:
        admin.alter_topic(topic, partitions=2)
    asyncio.run(send(address, topic, [(1, 2)]))
    read = MEANWHILE[other]
    with sync.Consumer(address) as consumer:
        consumer.assign(topic)
        found = numbers(read(consumer, TopicPartition(topic, 0)) or [])
        while len(found) < 2:
            found += numbers(read(consumer, TopicPartition(topic, 0)) or [])
        records = consumer.merged(topic, max_wait_seconds=0.2, until_end=until_end)
        found += numbers(list(itertools.islice(records, 3 - len(found))))
    assert found == [0, 1, 2]


@pytest.mark.parametrize("bounds", [{"max_records": 1000}, {"max_bytes": 10_000}], ids=["records", "bytes"])
def test_what_waits_stays_within_twice_the_bounds_however_many_partitions_there_are(
    address: str, topic: str, bounds: dict[str, Any]
) -> None:
    partitions, of_each = 16, 1000
    asyncio.run(create(address, topic, partitions))
    records = [(number % partitions, number) for number in range(partitions * of_each)]
    asyncio.run(send(address, topic, records, batch_bytes=1 << 20))
    most = most_bytes = 0
    with sync.Consumer(address) as consumer:
        for number, record in enumerate(consumer.merged(topic, max_wait_seconds=LONG, until_end=True, **bounds)):
            assert int(record.value or b"") == number
            waiting = consumer._core._read_ahead._resequencer  # type: ignore[union-attr]
            most, most_bytes = max(most, len(waiting)), max(most_bytes, waiting._bytes)
    assert 0 < most <= 2 * bounds.get("max_records", len(records)) + partitions
    assert most_bytes <= 2.2 * bounds.get("max_bytes", 1 << 30)


@both
@pytest.mark.parametrize("until_end", [False, True])
async def test_records_of_other_keys_do_not_hold_up_a_topic_that_grew(
    address: str, topic: str, blocking: bool, until_end: bool
) -> None:
    await create(address, topic, 1)
    async with Admin(address) as admin:
        for generation in range(3):
            await send(address, topic, [(0, generation)], key=b"other")
            await admin.alter_topic(topic, partitions=2 + generation)
    await send(address, topic, [(number % 4, number) for number in range(10, 20)], key=b"general")
    consumer = opened(blocking, address)
    count = None if until_end else 10
    found = await take(blocking, consumer, count, topic, b"general", max_wait_seconds=0.2, until_end=until_end)
    assert numbers(found) == list(range(10, 20))
    await in_either(blocking, consumer.close)


@pytest.mark.parametrize("meanwhile", ["pause", "pause, resume", "seek"])
@pytest.mark.parametrize("until_end", [True, False])
def test_records_of_a_key_stay_in_order_over_growth_whatever_the_body_moves(
    address: str, topic: str, meanwhile: str, until_end: bool
) -> None:
    """Nothing of the next generation comes before everything of this one was handed out."""
    asyncio.run(create(address, topic, 2))
    asyncio.run(send(address, topic, [(number % 2, number) for number in range(32)], batch_bytes=300))
    with sync.Admin(address) as admin:
        admin.alter_topic(topic, partitions=4)
    asyncio.run(send(address, topic, [(number % 4, number) for number in range(32, 96)], batch_bytes=300))
    moved, found = TopicPartition(topic, 1), list[int]()
    with sync.Consumer(address) as consumer:
        for record in consumer.merged(topic, max_wait_seconds=0.3, until_end=until_end):
            found += numbers([record])
            if len(found) == 3:
                if meanwhile == "seek":
                    consumer.seek(moved, 0)
                else:
                    consumer.pause(moved)
            if len(found) == 10 and meanwhile == "pause, resume":
                consumer.resume(moved)
            if not until_end and len(found) == (17 if meanwhile == "pause" else 90):
                break
    first_of_next = next((place for place, number in enumerate(found) if number >= 32), len(found))
    assert set(found[:first_of_next]) >= (set(range(32)) if meanwhile != "pause" else set(range(0, 32, 2)))
    assert all(number >= 32 for number in found[first_of_next:])
    if meanwhile == "pause":
        assert first_of_next == len(found)
    elif until_end:
        assert set(found) == set(range(96))


@pytest.mark.parametrize("meanwhile", MEANWHILE.values(), ids=MEANWHILE)
@pytest.mark.parametrize("until_end", [True, False])
@pytest.mark.parametrize("by", ["timestamp", lambda record: int(record.value)])
def test_the_order_holds_whatever_the_body_of_the_loop_does_with_its_consumer(
    address: str, topic: str, meanwhile: Callable[..., list[Any] | None], until_end: bool, by: Any
) -> None:
    """A record is late only if one with a higher sequence was handed out before it by this loop."""
    count = 40
    asyncio.run(create(address, topic, 2))
    asyncio.run(send(address, topic, [(number % 2, number) for number in range(count)], batch_bytes=300))
    found: list[MergedRecord] = []
    others: list[int] = []
    with sync.Consumer(address) as consumer:
        for record in consumer.merged(topic, by=by, max_wait_seconds=LONG, until_end=until_end):
            found.append(record)
            if len(found) % 10 == 1:
                at = TopicPartition(topic, record.partition)
                skipped = consumer.position(at) if meanwhile is MEANWHILE["seek past one"] else None
                others += numbers(meanwhile(consumer, at) or [])
                if skipped is not None:
                    others.append(2 * skipped + at.partition)
            # What comes last waits for the other partition, unless there is an end.
            if not until_end and len(found) + len(others) >= count // 2:
                break
    got = numbers(found)
    assert len(set(got + others)) == len(got + others)
    assert not until_end or sorted(got + others) == list(range(count))
    high = -1
    for record, number in zip(found, got, strict=True):
        assert record.late == (number < high)
        high = max(high, number)
    assert got == sorted(got)


@both
async def test_a_partition_that_is_far_ahead_is_not_fetched_meanwhile(
    address: str, topic: str, blocking: bool, monkeypatch: Any
) -> None:
    await create(address, topic, 3)
    # The second begins where the first ends, the third is between.
    await send(address, topic, [(0, number) for number in range(3000)])
    await send(address, topic, [(1, number) for number in range(3000, 6000)])
    await send(address, topic, [(2, number) for number in range(2000, 4000)])
    most = 0
    add_all = Resequencer.add_all

    def added(self: Any, *arguments: Any, **named: Any) -> None:
        nonlocal most
        add_all(self, *arguments, **named)
        most = max(most, len(self))

    monkeypatch.setattr(Resequencer, "add_all", added)
    consumer = opened(blocking, address)
    options: dict[str, Any] = {"max_wait_seconds": LONG, "max_records": 200, "until_end": True}
    found = numbers(await take(blocking, consumer, None, topic, **options))
    assert found == sorted([*range(6000), *range(2000, 4000)])
    assert 200 <= most <= 500
    most = 0
    options |= {"max_records": 100_000, "max_bytes": 5000, "start": "earliest"}
    assert numbers(await take(blocking, consumer, None, topic, **options)) == found
    assert 200 <= most <= 900
    await in_either(blocking, consumer.close)


@both
async def test_a_partition_that_has_its_share_is_not_fetched_again_and_again(
    address: str, topic: str, blocking: bool, monkeypatch: Any
) -> None:
    """It waits for the other partition, in which nothing is."""
    await create(address, topic, 2)
    await send(address, topic, [(0, number) for number in range(3000)])
    requests = 0
    move = fetcher.Fetcher.move

    def moved(self: Any, assigned: Any) -> None:
        nonlocal requests
        requests += 1
        move(self, assigned)

    monkeypatch.setattr(fetcher.Fetcher, "move", moved)
    consumer = opened(blocking, address)
    records = await take(blocking, consumer, 2000, topic, max_wait_seconds=1, max_records=500)
    assert numbers(records) == list(range(2000))
    assert requests < 30
    await in_either(blocking, consumer.close)


@both
async def test_a_partition_that_the_broker_could_not_send_is_not_silent(
    address: str, topic: str, blocking: bool, monkeypatch: Any
) -> None:
    """The read-ahead is small, and the program takes long over each record: by its clock, any wait is over."""
    await create(address, topic, 3)
    await send(address, topic, [(number // 100 % 3, number) for number in range(6000)])
    passed_seconds = 0.0
    for module in (merged, fetcher):
        monkeypatch.setattr(module, "monotonic", lambda: time.monotonic() + passed_seconds)

    def work(record: MergedRecord) -> int:
        nonlocal passed_seconds
        passed_seconds += 100
        return int(record.value or b"")

    consumer = opened(blocking, address, buffer_bytes=3000)
    options: dict[str, Any] = {"max_wait_seconds": LONG, "max_records": 500}
    if blocking:
        stream = consumer.merged(topic, **options)
        found = await asyncio.to_thread(lambda: [work(record) for record in itertools.islice(stream, 5900)])
    else:
        stream = aiter(consumer.merged(topic, **options))
        found = [work(await anext(stream)) for _ in range(5900)]
    assert found == list(range(5900))
    await in_either(blocking, consumer.close)


@both
async def test_an_idle_partition_does_not_slow_a_backlog_down(address: str, topic: str, blocking: bool) -> None:
    """It holds up the first records, and no others, however little is read at a time."""
    await create(address, topic, 3)
    await send(address, topic, scattered(4000, 2))
    consumer = opened(blocking, address)
    begun = time.monotonic()
    records = await take(blocking, consumer, 3900, topic, max_wait_seconds=1, max_records=100)
    assert numbers(records) == list(range(3900))
    assert time.monotonic() - begun < 10
    await in_either(blocking, consumer.close)


async def test_the_records_before_an_error_come_first(logbroker_broker: EmbeddedBroker, topic: str) -> None:
    address = logbroker_broker.address
    await create(address, topic, 2)
    await send(address, topic, [(number % 2, number) for number in range(400)])
    await asyncio.to_thread(logbroker_broker.stop)
    with (logbroker_broker.data_dir / f"{topic}-1" / "00000000000000000000.log").open("r+b") as log:
        log.seek(-5, 2)
        log.write(b"xxx")
    await asyncio.to_thread(logbroker_broker.start)
    async with Consumer(logbroker_broker.address) as consumer:
        found: list[int] = []
        stopped: set[TopicPartition] = set()
        errors = 0
        async with asyncio.timeout(20):
            while errors < 3 or 404 not in found:
                try:
                    async for record in consumer.merged(topic, max_wait_seconds=LONG):
                        found += numbers([record])
                        assert not record.late
                except CorruptLogError as error:
                    errors += 1
                    stopped |= error.partitions.keys()
                    # The other partitions go on, between two errors.
                    await send(address, topic, [(0, 398 + 2 * errors)])
        assert stopped == {TopicPartition(topic, 1)}
        # All of the partition that can be read, and nothing twice.
        assert len(set(found)) == len(found)
        assert set(range(0, 400, 2)) < set(found)
        odd = [number for number in found if number % 2]
        assert odd == list(range(1, 2 * len(odd), 2))
        assert len(odd) > 100


async def test_nothing_is_lost_when_the_broker_restarts(logbroker_broker: EmbeddedBroker, topic: str) -> None:
    address = logbroker_broker.address
    await create(address, topic, 3)
    await send(address, topic, scattered(1000, 3))
    async with Consumer(address) as consumer:
        found: list[int] = []
        async with asyncio.timeout(40):
            async for record in consumer.merged(topic, max_wait_seconds=0.2):
                found += numbers([record])
                if len(found) == 500:
                    await asyncio.to_thread(logbroker_broker.kill)
                    await asyncio.to_thread(logbroker_broker.start)
                    await send(address, topic, [(each % 3, 1000 + each) for each in range(500)])
                if len(found) == 1500:
                    break
    assert sorted(found) == list(range(1500))


@both
async def test_who_may_read_merged(address: str, topic: str, blocking: bool) -> None:
    await create(address, topic, 2)
    await create(address, f"{topic}-2", 1)
    await send(address, topic, [(0, 0), (1, 1)])
    member = opened(blocking, address, group=topic)
    with pytest.raises(InvalidRequestError, match="a member of a group has its share of them only"):
        member.merged(topic)
    await in_either(blocking, member.close)
    consumer = opened(blocking, address)
    for wrong in ({"by": 3}, {"max_wait_seconds": -1.0}, {"max_records": 0}):
        with pytest.raises((TypeError, InvalidRequestError)):
            await take(blocking, consumer, 1, topic, **wrong)
    # Positions of the topic alone count, others do not.
    await in_either(blocking, lambda: consumer.assign([topic, f"{topic}-2"], "latest"))
    assert numbers(await take(blocking, consumer, None, topic, until_end=True)) == [0, 1]
    await in_either(blocking, lambda: consumer.seek(TopicPartition(topic, 0), 0))
    assert numbers(await take(blocking, consumer, None, topic, until_end=True)) == [0]
    await in_either(blocking, consumer.close)


def test_a_loop_that_another_thread_begins_leaves_a_merged_one_alone(address: str, topic: str) -> None:
    asyncio.run(create(address, topic, 2))
    asyncio.run(send(address, topic, [(number % 2, number) for number in range(100)]))
    waits, was_refused = threading.Event(), threading.Event()

    def sequence(record: MergedRecord) -> int:
        if not waits.is_set():
            waits.set()
            assert was_refused.wait(20)
        return int(record.value or b"")

    with sync.Consumer(address) as consumer, ThreadPoolExecutor() as threads:
        stream = consumer.merged(topic, by=sequence, max_wait_seconds=LONG, until_end=True)
        taking = threads.submit(lambda: numbers(list(stream)))
        assert waits.wait(20)
        with pytest.raises(ConcurrentUseError):
            next(iter(consumer))
        was_refused.set()
        assert taking.result(20) == list(range(100))


@pytest.mark.parametrize("until_end", [False, True])
def test_a_merged_loop_ends_when_its_consumer_is_closed(address: str, topic: str, until_end: bool) -> None:
    asyncio.run(create(address, topic, 2))
    asyncio.run(send(address, topic, scattered(100, 2)))
    with sync.Consumer(address) as consumer:
        records = iter(consumer.merged(topic, until_end=until_end))
        assert next(records).offset == 0
        consumer.close()
        with pytest.raises(BrokerUnavailableError, match="this client is closed"):
            next(records)
        assert sum(map(consumer.position, consumer.assignment())) == 1


async def test_another_assignment_ends_a_merged_loop(address: str, topic: str) -> None:
    await create(address, topic, 2)
    await send(address, topic, scattered(100, 2))
    async with Consumer(address) as consumer:
        records = aiter(consumer.merged(topic, until_end=True))
        await anext(records)
        await consumer.assign(TopicPartition(topic, 0))
        with pytest.raises(InvalidRequestError, match="assigned other partitions during the loop"):
            await anext(records)
        assert len([record async for record in consumer.until_end()]) == sum(
            partition == 0 for partition, _ in scattered(100, 2)
        )


async def test_an_error_of_the_sequence_loses_nothing(address: str, topic: str) -> None:
    await create(address, topic, 2)
    await send(address, topic, scattered(300, 2))
    failing = {50, 120, 121}

    def sequence(record: MergedRecord) -> int:
        number = int(record.value or b"")
        if number in failing:
            failing.remove(number)
            raise ValueError(number)
        return number

    found: list[int] = []
    async with Consumer(address) as consumer:
        while len(found) < 300:
            try:
                found += numbers(
                    await taken(consumer.merged(topic, by=sequence, max_wait_seconds=LONG, until_end=True))
                )
            except ValueError:
                continue
    assert not failing
    assert sorted(found) == list(range(300))


@pytest.mark.parametrize("what", ["seek", "pause", "other"])
@pytest.mark.parametrize("offset", [3, 20])
def test_the_function_of_the_sequence_may_move_positions(address: str, topic: str, what: str, offset: int) -> None:
    count = 60
    moved: list[TopicPartition] = []
    asyncio.run(create(address, topic, 2))
    asyncio.run(send(address, topic, [(number % 2, number) for number in range(count)], batch_bytes=300))

    def sequence(record: MergedRecord) -> int:
        at = TopicPartition(topic, record.partition if what != "other" else 1 - record.partition)
        if record.offset == offset and not moved:
            moved.append(at)
            if what == "pause":
                consumer.pause(at)
                consumer.resume(at)
            else:
                consumer.seek(at, consumer.position(at))
        return int(record.value or b"")

    with sync.Consumer(address) as consumer:
        found = list(consumer.merged(topic, by=sequence, max_wait_seconds=LONG, until_end=True, max_records=8))
        assert moved
        assert numbers(found) == list(range(count))
        assert not any(record.late for record in found)
        assert sum(map(consumer.position, consumer.assignment())) == count


async def test_a_loop_that_waits_goes_on_after_another_task_has_moved_a_position(address: str, topic: str) -> None:
    await create(address, topic, 1)
    await send(address, topic, [(0, 0), (0, 1)])
    async with Consumer(address) as consumer, asyncio.timeout(20):
        records = consumer.merged(topic, max_wait_seconds=0.05)
        found = [await anext(records), await anext(records)]
        waiting = asyncio.ensure_future(anext(records))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        consumer.pause()
        consumer.resume()
        await send(address, topic, [(0, 2)])
        found.append(await waiting)
    assert numbers(found) == [0, 1, 2]


def test_a_partition_that_was_not_fetched_meanwhile_is_not_silent(address: str, topic: str) -> None:
    """The program is slow, and more is appended than the bound lets the reader know of."""
    asyncio.run(create(address, topic, 3))
    found: list[MergedRecord] = []
    sent = 0

    def append() -> None:
        nonlocal sent
        for each in range(sent, sent + 100):
            asyncio.run(send(address, topic, [(int(each % 10 == 9), each)]))
        sent += 100

    append()
    with sync.Consumer(address) as consumer:
        for record in consumer.merged(topic, max_wait_seconds=0.3, max_records=100):
            found.append(record)
            if len(found) % 50 == 1 and sent < 500:
                append()
                time.sleep(0.5)
            if len(found) == 490:
                break
    assert [int(record.value or b"") for record in found if record.late] == []
    assert numbers(found) == list(range(490))
