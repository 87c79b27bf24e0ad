"""Topics that grow under those who read them: all of a generation comes before anything of the next one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from logbroker.client import Admin, Consumer, Producer, Record, TopicPartition, sync
from logbroker.client.admin.groups import GenerationDescription
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import (
    CorruptLogError,
    GrowthOrderMismatchError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from logbroker.record.header import HEADER_BYTES
from tests.client.group_helpers import numbers, settle

COUNT = 40
"""Records of each partition in each generation."""


class GrowingTopic:
    """A topic whose records say of which generation they are."""

    def __init__(self, address: str, name: str, admin: Admin, producer: Producer) -> None:
        self.address = address
        self.name = name
        self.partitions = 0
        self.sent = 0
        self.admin = admin
        self._producer = producer
        self._generation = 0

    async def grow(self, partitions: int) -> None:
        if self._generation:
            await self.admin.alter_topic(self.name, partitions=partitions)
        else:
            await self.admin.create_topic(self.name, partitions)
        self._generation += 1
        self.partitions = partitions

    async def fill(self, *partitions: int, count: int = COUNT) -> None:
        """Append records of this generation to these partitions, or all."""
        for partition in partitions or range(self.partitions):
            for _ in range(count):
                await self._producer.send(self.name, b"%d" % self._generation, partition=partition)
                self.sent += 1
        await self._producer.flush()

    async def grow_and_fill(self, *counts: int) -> None:
        for partitions in counts:
            await self.grow(partitions)
            await self.fill()

    def at(self, partition: int) -> TopicPartition:
        return TopicPartition(self.name, partition)


@pytest.fixture
async def growing(address: str, topic: str) -> AsyncIterator[GrowingTopic]:
    async with Admin(address) as admin, Producer(address, batch_bytes=300) as producer:
        yield GrowingTopic(address, topic, admin, producer)


@pytest.fixture
async def damaged(logbroker_broker: EmbeddedBroker, topic: str) -> AsyncIterator[GrowingTopic]:
    """A topic that grew from two partitions to three; nothing can be read of the second one."""
    address = logbroker_broker.address
    async with Admin(address) as admin, Producer(address, batch_bytes=300) as producer:
        found = GrowingTopic(address, topic, admin, producer)
        await found.grow_and_fill(2, 3)
        with (logbroker_broker.data_dir / f"{topic}-1" / "00000000000000000000.log").open("r+b") as log:
            log.seek(HEADER_BYTES)
            byte = log.read(1)[0]
            log.seek(HEADER_BYTES)
            log.write(bytes([byte ^ 1]))
        yield found


def generations(records: list[Record]) -> list[int]:
    return [int(record.value or b"") for record in records]


def in_order(records: list[Record]) -> bool:
    found = generations(records)
    return found == sorted(found)


async def read_some(consumer: Consumer, seconds: float = 0.3) -> list[Record]:
    """Read until nothing comes for a while."""
    found: list[Record] = []
    while records := await consumer.poll(timeout_seconds=seconds):
        found += records
    return found


async def read(consumer: Consumer, count: int, *raised: type[Exception]) -> list[Record]:
    """`raised`: what may be raised meanwhile."""
    found: list[Record] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            with suppress(*raised):
                found += await consumer.poll(timeout_seconds=0.2)
    return found


async def read_into(found: list[Record], consumer: Consumer) -> None:
    """Read until an error comes."""
    async with asyncio.timeout(30):
        while True:
            found += await consumer.poll(timeout_seconds=0.2)


# --- a consumer that assigned a whole topic ------------------------------------------------------------------------


@pytest.mark.parametrize("buffer_bytes", [500, 8_000_000])
async def test_a_whole_topic_is_read_generation_by_generation(growing: GrowingTopic, buffer_bytes: int) -> None:
    await growing.grow_and_fill(2, 7, 16, 17)
    async with Consumer(growing.address, buffer_bytes=buffer_bytes) as consumer:
        await consumer.assign(growing.name)
        records = [record async for record in consumer.until_end()]
    assert len(records) == growing.sent
    assert in_order(records)


async def test_a_synchronous_consumer_reads_generation_by_generation(growing: GrowingTopic) -> None:
    await growing.grow_and_fill(2, 7, 16)

    def by_record() -> list[Record]:
        with sync.Consumer(growing.address, buffer_bytes=2000) as consumer:
            consumer.assign(growing.name)
            return list(consumer.until_end())

    def by_batch() -> list[Record]:
        with sync.Consumer(growing.address, buffer_bytes=2000) as consumer:
            consumer.assign(growing.name)
            return [record for batch in consumer.batches(until_end=True) for record in batch]

    for read_all in (by_record, by_batch):
        records = await asyncio.to_thread(read_all)
        assert len(records) == growing.sent
        assert in_order(records)


async def _poll(consumer: Consumer, count: int) -> list[Record]:
    return await read(consumer, count)


async def _loop(consumer: Consumer, count: int) -> list[Record]:
    found: list[Record] = []
    async for record in consumer:
        found.append(record)
        if len(found) == count:
            break
    return found


async def _batches(consumer: Consumer, count: int) -> list[Record]:
    found: list[Record] = []
    async for records in consumer.batches():
        found += records
        if len(found) >= count:
            break
    return found


@pytest.mark.parametrize("get", [_poll, _loop, _batches])
async def test_added_partitions_are_read_too(
    growing: GrowingTopic, get: Callable[[Consumer, int], Awaitable[list[Record]]]
) -> None:
    """All at once, one after the other, and while it waits; what they have before is still finished first."""
    await growing.grow_and_fill(2)
    async with Consumer(growing.address) as consumer, asyncio.timeout(60):
        await consumer.assign(growing.name)
        found = await get(consumer, growing.sent)
        await growing.grow_and_fill(3, 7)
        found += await get(consumer, growing.sent - len(found))
        waiting: asyncio.Future[list[Record]] = asyncio.ensure_future(get(consumer, 12 * COUNT))
        await growing.grow_and_fill(12)
        found += await waiting
        assert len(consumer.assignment()) == 12
        assert all(consumer.position(partition) > 0 for partition in consumer.assignment())
    assert len(found) == len({(record.partition, record.offset) for record in found}) == growing.sent
    assert in_order(found)


async def test_a_synchronous_consumer_reads_added_partitions_too(growing: GrowingTopic) -> None:
    await growing.grow_and_fill(1)
    with sync.Consumer(growing.address) as consumer:
        await asyncio.to_thread(consumer.assign, growing.name)

        def get(count: int) -> list[Record]:
            found: list[Record] = []
            for record in consumer:
                found.append(record)
                if len(found) == count:
                    break
            return found

        async with asyncio.timeout(60):
            found = await asyncio.to_thread(get, growing.sent)
            await growing.grow_and_fill(4, 5)
            found += await asyncio.to_thread(get, growing.sent - len(found))
        assert len(consumer.assignment()) == 5
    assert len(found) == growing.sent
    assert in_order(found)


async def test_added_partitions_are_read_where_order_is_given_up(
    growing: GrowingTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logbroker.client.consumer.generations.LOOK_SECONDS", 0.05)
    await growing.grow_and_fill(2)
    async with Consumer(growing.address, growth_order="none") as consumer:
        await consumer.assign(growing.name, "latest")
        before = growing.sent
        await growing.grow_and_fill(4)
        found = await read(consumer, growing.sent - before)
    assert {record.partition for record in found} == set(range(4))


async def test_who_begins_at_the_end_gets_all_of_added_partitions(growing: GrowingTopic) -> None:
    await growing.grow_and_fill(2)
    async with Consumer(growing.address) as consumer:
        await consumer.assign(growing.name, "latest")
        before = growing.sent
        await growing.grow_and_fill(4)
        found = await read(consumer, growing.sent - before)
    assert len(found) == 4 * COUNT


async def test_a_bounded_loop_reads_what_was_added_before_it_and_not_what_is_added_meanwhile(
    growing: GrowingTopic,
) -> None:
    await growing.grow_and_fill(2)
    async with Consumer(growing.address) as consumer, asyncio.timeout(60):
        await consumer.assign(growing.name)
        await growing.grow_and_fill(3, 5)
        there, found = growing.sent, []
        async for record in consumer.until_end():
            found.append(record)
            if len(found) == 1:
                await growing.grow_and_fill(6, 7)
        assert len(found) == there
        found += [record async for record in consumer.until_end()]
    assert len(found) == growing.sent
    assert in_order(found)


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("in_group", [False, True])
async def test_a_bounded_loop_reads_all_whatever_is_empty(growing: GrowingTopic, seed: int, in_group: bool) -> None:
    """Generations that hold nothing, partitions that have nothing of some: none holds the others back."""
    chance = random.Random(seed)
    async with Consumer(growing.address, group=growing.name if in_group else None) as consumer, asyncio.timeout(60):
        found: list[Record] = []
        partitions = 0
        for loop in range(3):
            for _ in range(chance.randint(2 - bool(loop), 4)):
                partitions += chance.randint(1, 3)
                await growing.grow(partitions)
                for partition in chance.sample(range(partitions), chance.choice((0, 0, 1, partitions))):
                    await growing.fill(partition, count=3)
            if not loop:
                await (consumer.subscribe(growing.name) if in_group else consumer.assign(growing.name))
            if in_group:
                while len(consumer.assignment()) < partitions:
                    found += await consumer.poll(timeout_seconds=0.05)
            found += [record async for record in consumer.until_end()]
            assert len(found) == growing.sent, (seed, loop)
    assert in_order(found)


async def test_what_comes_with_the_last_records_of_a_bounded_loop_is_of_the_next_one(
    growing: GrowingTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def append() -> None:
        for _ in range(3):
            await growing.fill(0, count=1)

    await growing.grow(1)
    # Few batches fit into what is sent ahead, so that some come together with what is appended during the loop.
    async with Consumer(growing.address, buffer_bytes=300) as consumer, asyncio.timeout(60):
        await consumer.assign(growing.name)
        find_ends = consumer._core.ends

        async def find_and_append() -> dict[TopicPartition, int]:
            ends = await find_ends()
            await append()
            return ends

        monkeypatch.setattr(consumer._core, "ends", find_and_append)
        found: list[int] = []
        for loop in range(12):
            await append()
            there = growing.sent
            found += [record.offset async for record in consumer.until_end()]
            assert found == list(range(there)), loop


async def test_a_partition_assigned_by_hand_is_all_that_is_read(growing: GrowingTopic) -> None:
    await growing.grow_and_fill(2)
    async with Consumer(growing.address) as consumer:
        await consumer.assign(growing.at(1))
        await growing.grow_and_fill(4)
        found = [record async for record in consumer.until_end()]
        assert consumer.assignment() == [growing.at(1)]
    assert len(found) == 2 * COUNT


async def test_another_topic_of_the_name_is_not_taken_for_one_that_has_grown(growing: GrowingTopic) -> None:
    await growing.grow_and_fill(1)
    async with Consumer(growing.address) as consumer:
        await consumer.assign(growing.name)
        found = await read(consumer, growing.sent)
        await growing.grow(2)
        # Not polled meanwhile, so that it learns of both at once.
        await growing.admin.delete_topic(growing.name)
        await growing.admin.create_topic(growing.name, 3)
        await growing.admin.alter_topic(growing.name, partitions=4)
        await growing.admin.alter_topic(growing.name, partitions=5)
        with pytest.raises(UnknownTopicError):
            await read(consumer, 1)
        assert consumer.assignment() == [growing.at(0)]
    assert len(found) == COUNT


@pytest.mark.prove
async def test_growth_is_found_over_a_restart_of_the_broker(logbroker_broker: EmbeddedBroker, topic: str) -> None:
    address = logbroker_broker.address
    async with Admin(address) as admin, Producer(address, batch_bytes=300) as producer, Consumer(address) as consumer:
        growing = GrowingTopic(address, topic, admin, producer)
        await growing.grow_and_fill(2)
        await consumer.assign(topic)
        found = await read(consumer, growing.sent)
        await growing.grow_and_fill(3)
        reading = asyncio.create_task(read(consumer, growing.sent - len(found)))
        await asyncio.to_thread(logbroker_broker.kill)
        await asyncio.to_thread(logbroker_broker.start)
        found += await reading
    assert len(found) == growing.sent
    assert in_order(found)


async def test_who_seeks_back_to_before_the_growth_reads_in_order_again(growing: GrowingTopic) -> None:
    await growing.grow_and_fill(2)
    async with Consumer(growing.address) as consumer, asyncio.timeout(60):
        await consumer.assign(growing.name)
        await growing.grow_and_fill(4, 6)
        await read(consumer, growing.sent)
        await consumer.seek_to_beginning()
        found = await read(consumer, growing.sent)
    assert len(found) == growing.sent
    assert in_order(found)


async def test_a_topic_that_grows_while_it_is_read(growing: GrowingTopic) -> None:
    """At the end of the log, in the middle of a partition, and twice at once."""
    await growing.grow_and_fill(2)
    async with Consumer(growing.address, buffer_bytes=1000) as consumer:
        await consumer.assign(growing.name)
        found = await read(consumer, 2 * COUNT)
        await growing.grow(3)
        await growing.fill(0)
        found += await read(consumer, COUNT)
        await growing.fill(1)
        found += await consumer.poll(max_records=1, timeout_seconds=25)
        await growing.grow(4)
        await growing.fill(0, 3)
        await growing.grow(5)
        await growing.fill(0, 1)
        found += await read(consumer, growing.sent - len(found))
    assert len(found) == growing.sent
    assert in_order(found)


async def test_the_program_finishes_a_generation_before_it_gets_the_next(growing: GrowingTopic) -> None:
    """Received is not finished: the last records of a generation are finished when it asks for more."""
    await growing.grow_and_fill(1, 2)
    async with Consumer(growing.address) as consumer:
        await consumer.assign(growing.name)
        last = await read(consumer, COUNT)
        assert generations(last) == [1] * COUNT
        assert consumer.position(growing.at(1)) == 0
        assert set(generations(await read(consumer, 2 * COUNT))) == {2}


async def test_a_paused_partition_keeps_the_next_generation_waiting(growing: GrowingTopic) -> None:
    await growing.grow_and_fill(2, 3)
    async with Consumer(growing.address) as consumer:
        await consumer.assign(growing.name)
        consumer.pause(growing.at(1))
        assert generations(await read_some(consumer)) == [1] * COUNT
        # A bounded loop does not wait for it: it ends.
        assert [record async for record in consumer.until_end()] == []
        consumer.resume(growing.at(1))
        rest = await read(consumer, 4 * COUNT)
    assert generations(rest) == [1] * COUNT + [2] * 3 * COUNT


async def test_who_seeks_back_reads_on_by_generations(growing: GrowingTopic) -> None:
    await growing.grow_and_fill(2, 3, 4)
    async with Consumer(growing.address) as consumer:
        await consumer.assign(growing.name)
        await read(consumer, growing.sent)
        await consumer.seek(growing.at(1), 0)
        await consumer.seek(growing.at(2), COUNT)
        again = await read(consumer, 4 * COUNT)
    assert generations(again) == [1] * COUNT + [2] * COUNT + [3] * 2 * COUNT


@pytest.mark.parametrize("how", ["until_end", "batches", "merged"])
async def test_a_bounded_loop_raises_where_a_position_is_not_in_the_log(growing: GrowingTopic, how: str) -> None:
    """The next generation waits for that partition, and the loop must not wait with it."""
    await growing.grow_and_fill(2, 3)
    await growing.admin.delete_records({growing.at(1): COUNT // 2})
    found: list[Any] = []

    async def read_to_the_end(consumer: Consumer) -> None:
        nonlocal found
        if how == "batches":
            async for batch in consumer.batches(until_end=True):
                found.extend(batch)
            return
        bounded = consumer.until_end() if how == "until_end" else consumer.merged(growing.name, until_end=True)
        async for record in bounded:
            found += [record]

    async with Consumer(growing.address, on_out_of_range="error") as consumer, asyncio.timeout(20):
        await consumer.assign(growing.name)
        await consumer.seek(growing.at(1), 1)
        with pytest.raises(OffsetOutOfRangeError):
            await read_to_the_end(consumer)
    assert len(found) == COUNT


async def test_a_bounded_loop_ends_at_the_end_after_a_seek_back_over_generations(growing: GrowingTopic) -> None:
    """Also if the loop before was left at the last record, whose partition has nothing more."""
    await growing.grow_and_fill(2, 3, 4)
    async with Consumer(growing.address) as consumer, asyncio.timeout(60):
        await consumer.assign(growing.name)
        count = 0
        async for _ in consumer:
            count += 1
            if count == growing.sent:
                break
        await consumer.seek(growing.at(1), 0)
        again = [record async for record in consumer.until_end()]
    assert generations(again) == [1] * COUNT + [2] * COUNT + [3] * COUNT


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
async def test_who_seeks_back_in_the_middle_of_a_batch_of_another_partition_gets_that_one_once(
    growing: GrowingTopic, kind: Any, bounded: bool
) -> None:
    """The other one goes back to the first generation as well, while the program has its batch: what was left of that
    came, and then the same batch again, which was taken for damage; or nothing came any more."""
    await growing.grow_and_fill(2, 3)
    found: list[Record] = []
    before: list[Record] = []

    def is_middle(record: Record) -> bool:
        found.append(record)
        if before or record.partition != 1 or record.offset != COUNT + 5:
            return False
        before.extend(found)
        return True

    def is_last() -> bool:
        return not bounded and len(found) == growing.sent + sum(each.partition == 0 for each in before)

    def read_all() -> None:
        with sync.Consumer(growing.address) as consumer:
            consumer.assign(growing.name)
            for record in consumer.until_end() if bounded else consumer:
                if is_middle(record):
                    consumer.seek(growing.at(0), 0)
                if is_last():
                    break

    async with asyncio.timeout(30):
        if kind is sync.Consumer:
            await asyncio.to_thread(read_all)
        else:
            async with Consumer(growing.address) as consumer:
                await consumer.assign(growing.name)
                async for record in consumer.until_end() if bounded else consumer:
                    if is_middle(record):
                        await consumer.seek(growing.at(0), 0)
                    if is_last():
                        break
    offsets = {number: [each.offset for each in found if each.partition == number] for number in range(3)}
    assert offsets[0] == [each.offset for each in before if each.partition == 0] + list(range(2 * COUNT))
    assert offsets[1] == list(range(2 * COUNT))
    assert offsets[2] == list(range(COUNT))


@pytest.mark.parametrize("start", ["latest", COUNT])
async def test_who_begins_behind_the_end_of_a_generation_waits_for_nothing(growing: GrowingTopic, start: Any) -> None:
    await growing.grow_and_fill(2)
    await growing.grow(3)
    async with Consumer(growing.address) as consumer:
        await consumer.assign(growing.name, start)
        if start == COUNT:
            await consumer.seek(growing.at(2), 0)
        await growing.fill()
        assert generations(await read(consumer, 3 * COUNT)) == [2] * 3 * COUNT


async def test_a_partition_that_cannot_be_read_holds_nobody_up(damaged: GrowingTopic) -> None:
    async with Consumer(damaged.address) as consumer:
        await consumer.assign(damaged.name)
        found = await read(consumer, 3 * COUNT, CorruptLogError)
    assert generations(found) == [1] * COUNT + [2] * 2 * COUNT


@pytest.mark.prove
async def test_a_partition_is_waited_for_while_the_program_is_to_say_where_to_go_on(growing: GrowingTopic) -> None:
    await growing.grow_and_fill(2, 3)
    async with Consumer(growing.address) as consumer:
        await consumer.assign(growing.name)
        # No log holds it.
        await consumer.seek(growing.at(1), 1_000_000)
        found: list[Record] = []
        with pytest.raises(OffsetOutOfRangeError):
            await read_into(found, consumer)
        await consumer.seek(growing.at(1), 1)
        found += await read(consumer, 5 * COUNT - 1 - len(found))
    assert len(found) == 5 * COUNT - 1
    assert in_order(found)


async def test_partitions_assigned_by_hand_are_not_held_back(growing: GrowingTopic) -> None:
    await growing.grow_and_fill(2, 3)
    async with Consumer(growing.address) as consumer:
        await consumer.assign([growing.at(1), growing.at(2)])
        consumer.pause(growing.at(1))
        assert generations(await read(consumer, COUNT)) == [2] * COUNT


async def test_the_order_can_be_given_up(growing: GrowingTopic) -> None:
    await growing.grow_and_fill(2, 3)
    async with Consumer(growing.address, growth_order="none") as consumer:
        await consumer.assign(growing.name)
        consumer.pause(growing.at(1))
        assert sorted(generations(await read(consumer, 3 * COUNT))) == [1] * COUNT + [2] * 2 * COUNT
    with pytest.raises(InvalidRequestError, match="growth_order"):
        Consumer(growing.address, growth_order="some")  # type: ignore[arg-type]


# --- groups ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def two_members(growing: GrowingTopic, **options: Any) -> AsyncIterator[tuple[Consumer, Consumer]]:
    """Two members that hold a partition each of a topic without records."""
    await growing.grow(2)
    options = {"group": growing.name, "auto_commit_interval_seconds": 60, **options}
    async with Consumer(growing.address, **options) as one, Consumer(growing.address, **options) as other:
        await one.subscribe(growing.name)
        await other.subscribe(growing.name)
        await settle(one, other, partitions=2)
        yield one, other


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await holds():
            await asyncio.sleep(0.01)


MODES = pytest.mark.parametrize("mode", ["auto", "manual", "none"])
"""How a group commits. By itself it does so at once at the end of a generation, however long its interval."""


@MODES
async def test_a_group_finishes_a_generation_in_all_partitions(growing: GrowingTopic, mode: str) -> None:
    async with two_members(growing, auto_commit=mode == "auto") as (one, other):
        await growing.fill()
        await growing.grow_and_fill(4)
        mine = await read_some(one)
        assert set(generations(mine)) == {1}, "the other member has finished nothing"
        theirs = await read(other, COUNT)
        if mode == "manual":
            for consumer in (one, other):
                await consumer.commit()
        found = [mine, theirs]

        async def read_on(consumer: Consumer, records: list[Record]) -> None:
            while sum(map(len, found)) < growing.sent:
                records += await consumer.poll(timeout_seconds=0.1)

        async with asyncio.timeout(20):
            await asyncio.gather(read_on(one, mine), read_on(other, theirs))
        assert in_order(mine)
        assert in_order(theirs)


async def test_what_is_read_and_not_committed_is_not_finished(growing: GrowingTopic) -> None:
    """A program that commits by hand has its records in hand until it does."""
    async with two_members(growing, auto_commit=False) as (one, other):
        await growing.fill()
        assert len(await read(one, COUNT)) == len(await read(other, COUNT)) == COUNT
        await one.commit()
        await other.commit()
        await growing.fill()
        assert len(await read(one, COUNT)) == len(await read(other, COUNT)) == COUNT
        await growing.grow_and_fill(2 + 2)
        await other.commit()
        assert await read_some(one) == await read_some(other) == []
        await one.commit()
        assert set(generations(await one.poll(timeout_seconds=25))) == {2}


async def test_describe_tells_what_is_waited_for(growing: GrowingTopic) -> None:
    async with two_members(growing) as (one, other):
        assert (await growing.admin.describe_group(growing.name)).generations == ()
        await growing.fill()
        await growing.grow_and_fill(3)
        await growing.grow_and_fill(5)
        mine = numbers(one)[0]
        await read_some(one)

        async def described() -> GenerationDescription:
            description = await growing.admin.describe_group(growing.name)
            assert description.growth_order == "key"
            [generation] = description.generations
            return generation

        async def is_committed() -> bool:
            return (await described()).waiting == 1

        await until(is_committed)
        found = await described()
        assert (found.topic, found.generation, found.last_generation) == (growing.name, 1, 3)
        [awaited] = found.waits_for
        assert (awaited.partition, awaited.end_offset) == (growing.at(1 - mine), COUNT)
        assert not awaited.finished_offset
        while (await described()).waiting:
            await asyncio.gather(*(consumer.poll(timeout_seconds=0.1) for consumer in (one, other)))
        assert (await described()).generation == 3


async def test_a_member_that_goes_holds_nobody_up(growing: GrowingTopic) -> None:
    async with two_members(growing) as (one, other):
        await growing.fill()
        await growing.grow_and_fill(3)
        found = await read_some(one)
        assert set(generations(found)) == {1}
        await other.close()
        found += await read(one, growing.sent - len(found))
        assert in_order(found)


async def test_a_paused_member_is_waited_for_and_resumes(growing: GrowingTopic) -> None:
    async with two_members(growing) as (one, other):
        other.pause()
        await growing.fill()
        await growing.grow_and_fill(3)
        assert await other.poll(timeout_seconds=0) == []
        assert set(generations(await read_some(one))) == {1}
        other.resume()
        assert set(generations(await read(other, COUNT))) == {1}
        while not (records := await one.poll(timeout_seconds=0.1)):
            assert set(generations(await other.poll(timeout_seconds=0.1))) <= {2}
        assert set(generations(records)) == {2}


@MODES
async def test_a_group_that_begins_late_reads_generation_by_generation(growing: GrowingTopic, mode: str) -> None:
    """Several generations at once, partitions without records in some, and nothing committed before."""
    await growing.grow(3)
    await growing.fill(1)
    await growing.grow(5)
    await growing.fill(1, 4)
    await growing.grow(6)
    await growing.grow(9)
    await growing.fill(0, 1, 8)
    async with Consumer(
        growing.address, group=growing.name, auto_commit=mode == "auto", auto_commit_interval_seconds=60
    ) as consumer:
        await consumer.subscribe(growing.name)
        found: list[Record] = []
        async with asyncio.timeout(20):
            while len(found) < growing.sent:
                found += await consumer.poll(timeout_seconds=0.2)
                if mode == "manual":
                    await consumer.commit()
    assert in_order(found)


@MODES
async def test_a_group_that_begins_at_the_end_waits_for_nothing(growing: GrowingTopic, mode: str) -> None:
    await growing.grow_and_fill(2)
    await growing.grow(3)
    async with Consumer(
        growing.address,
        group=growing.name,
        start="latest",
        auto_commit=mode == "auto",
        auto_commit_interval_seconds=60,
    ) as consumer:
        await consumer.subscribe(growing.name)
        await settle(consumer, partitions=3)
        await growing.fill()
        assert generations(await read(consumer, 3 * COUNT)) == [2] * 3 * COUNT


async def test_a_reset_of_the_offsets_takes_the_generation_with_it(growing: GrowingTopic) -> None:
    await growing.grow_and_fill(2, 3, 4)
    everywhere = [growing.at(number) for number in range(4)]

    async def read_all(count: int) -> list[Record]:
        async with Consumer(growing.address, group=growing.name) as consumer:
            await consumer.subscribe(growing.name)
            found = await read(consumer, count)
            await consumer.commit()
            return found

    assert in_order(await read_all(growing.sent))
    # Back into the first generation in one partition, and into the second in another.
    await growing.admin.commit_offsets(growing.name, {everywhere[0]: COUNT // 2, everywhere[2]: 0})
    again = await read_all(5 * COUNT - COUNT // 2)
    assert generations(again) == [1] * (COUNT // 2) + [2] * 2 * COUNT + [3] * 2 * COUNT
    # And ahead, over the end of the first.
    await growing.admin.commit_offsets(growing.name, dict.fromkeys(everywhere, 0))
    await growing.admin.commit_offsets(growing.name, {everywhere[0]: COUNT, everywhere[1]: COUNT + 1})
    ahead = await read_all(9 * COUNT - 2 * COUNT - 1)
    assert generations(ahead) == [2] * (3 * COUNT - 1) + [3] * 4 * COUNT


async def test_a_member_that_cannot_read_a_partition_holds_nobody_up(damaged: GrowingTopic) -> None:
    async with Consumer(damaged.address, group=damaged.name) as consumer:
        await consumer.subscribe(damaged.name)
        found = await read(consumer, 3 * COUNT, CorruptLogError)
    assert generations(found) == [1] * COUNT + [2] * 2 * COUNT


@pytest.mark.prove
@pytest.mark.parametrize("reason", ["paused", "not committed", "no such position"])
async def test_nobody_is_waited_for_longer_than_the_max_poll_interval(growing: GrowingTopic, reason: str) -> None:
    """Where a group commits, but not this."""
    async with two_members(growing, auto_commit=reason == "paused", max_poll_interval_seconds=1) as (one, other):
        [held] = numbers(other)
        await growing.fill(count=1)
        for consumer in (one, other):
            await read(consumer, 1)
            await consumer.commit()
        if reason == "paused":
            other.pause()
        elif reason == "no such position":
            await other.seek(growing.at(held), 1_000_000)
        await growing.fill()
        await growing.grow_and_fill(3)
        found: list[Record] = []

        async def has_come_to_the_next_generation() -> bool:
            with suppress(OffsetOutOfRangeError):
                await other.poll(timeout_seconds=0.05)
            found.extend(await one.poll(timeout_seconds=0.05))
            if reason != "paused":
                await one.commit()
            return 2 in generations(found)

        await until(has_come_to_the_next_generation)
        assert in_order(found)


async def test_a_group_can_give_the_order_up(growing: GrowingTopic) -> None:
    async with two_members(growing, growth_order="none") as (one, other):
        await growing.fill()
        await growing.grow_and_fill(3)
        assert 2 in generations(await read_some(one))
        async with Consumer(growing.address, group=growing.name, growth_order="key") as third:
            with pytest.raises(GrowthOrderMismatchError, match="none"):
                await third.subscribe(growing.name)
        assert (await growing.admin.describe_group(growing.name)).growth_order == "none"
        assert await other.poll(timeout_seconds=25)


async def test_a_bounded_loop_of_a_member_ends(growing: GrowingTopic) -> None:
    await growing.grow_and_fill(2, 3)
    async with Consumer(growing.address, group=growing.name) as consumer:
        await consumer.subscribe(growing.name)
        await settle_with_records(consumer, 3)
        found = [record async for record in consumer.until_end()]
        assert len(found) == growing.sent
        assert in_order(found)
        await growing.fill(0)
        await growing.grow_and_fill(4)
        consumer.pause(growing.at(1))
        rest = [record async for record in consumer.until_end()]
        assert in_order(rest)


async def settle_with_records(consumer: Consumer, partitions: int) -> None:
    """Let it hold so many partitions, and begin anew with them."""
    async with asyncio.timeout(20):
        while len(consumer.assignment()) < partitions:
            await consumer.poll(max_records=1, timeout_seconds=0.02)
    await consumer.seek_to_beginning()
