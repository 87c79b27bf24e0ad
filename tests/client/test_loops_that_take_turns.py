"""Loops over one consumer, of any kinds, and calls between their steps: the next record is the one at the position."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from logbroker.client import Admin, Consumer, Producer, Record, TopicPartition, sync
from logbroker.errors import InvalidRequestError
from tests.client.test_conveniences import both, in_either

COUNTS = [60, 45, 0]
SECONDS = 30

WITHOUT_END: dict[str, Callable[[Any, str, int], Any]] = {
    "records": lambda consumer, topic, size: consumer,
    "lists": lambda consumer, topic, size: consumer.batches(max_records=size),
    "merged": lambda consumer, topic, size: consumer.merged(topic, max_wait_seconds=0.02, max_records=size),
}
UNTIL_END: dict[str, Callable[[Any, str, int], Any]] = {
    "records until the end": lambda consumer, topic, size: consumer.until_end(),
    "lists until the end": lambda consumer, topic, size: consumer.batches(until_end=True, max_records=size),
    "merged until the end": lambda consumer, topic, size: consumer.merged(
        topic, max_wait_seconds=0.02, until_end=True, max_records=size
    ),
}
LOOPS = WITHOUT_END | UNTIL_END


async def fill(address: str, topic: str) -> list[TopicPartition]:
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic(topic, len(COUNTS))
        for number in range(max(COUNTS)):
            for partition, count in enumerate(COUNTS):
                if number < count:
                    await producer.send(topic, b"%d" % number, partition=partition)
            if number % 7 == 0:
                await producer.flush()
    return [TopicPartition(topic, partition) for partition in range(len(COUNTS))]


class Program:
    """A program with several loops over one consumer, and a model of the positions."""

    def __init__(self, consumer: Any, topic: str, blocking: bool) -> None:
        self.consumer = consumer
        self.topic = topic
        self.blocking = blocking
        self.ends = {TopicPartition(topic, partition): count for partition, count in enumerate(COUNTS)}
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.is_whole = False
        self.assignments = 0
        self.loops: list[tuple[str, Any, int]] = []
        """The name of each loop, and the assignment in which it began."""
        self.log: list[str] = []

    @property
    def unread(self) -> list[TopicPartition]:
        """The partitions that have records for the next loop."""
        return [each for each, at in self.positions.items() if at < self.ends[each] and each not in self.paused]

    async def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        self.log.append(f"{name} {arguments} {named}")
        return await in_either(self.blocking, lambda: getattr(self.consumer, name)(*arguments, **named))

    async def assign(self, partitions: list[TopicPartition], start: int, *, whole: bool) -> None:
        await self.call("assign", self.topic if whole else partitions, start)
        self.positions = {each: min(start, self.ends[each]) for each in partitions}
        self.paused.clear()
        self.is_whole = whole
        self.assignments += 1
        for each in partitions:
            await self.seek(each, self.positions[each])

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        await self.call("seek", partition, offset)
        self.positions[partition] = offset

    async def poll(self, count: int) -> None:
        self.handed_out(await self.call("poll", count, timeout_seconds=0.02))

    async def begin(self, name: str, size: int) -> None:
        self.log.append(f"begin {name} {size}")
        loop = LOOPS[name](self.consumer, self.topic, size)
        self.loops.append((name, iter(loop) if self.blocking else aiter(loop), self.assignments))
        await self.step(len(self.loops) - 1)

    async def step(self, index: int) -> None:
        """Take one step of a loop. It may end only if nothing is unread."""
        name, loop, assignments = self.loops[index]
        is_refused = name.startswith("merged") and assignments != self.assignments
        if name in WITHOUT_END and not self.unread and not is_refused:
            return  # It would wait for ever.
        self.log.append(f"step {index} {name}")
        try:
            async with asyncio.timeout(SECONDS):
                given = await (asyncio.to_thread(next, loop, None) if self.blocking else anext(loop, None))
        except InvalidRequestError:
            assert is_refused
            del self.loops[index]
            return
        assert not is_refused
        if given is None:
            assert name in UNTIL_END
            assert not self.unread
            del self.loops[index]
        else:
            self.handed_out([given] if isinstance(given, Record) else given)

    def handed_out(self, records: list[Record]) -> None:
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            assert partition not in self.paused
            assert record.offset == self.positions[partition]
            assert record.value == b"%d" % record.offset
            self.positions[partition] += 1

    async def check_positions(self) -> None:
        for partition, position in self.positions.items():
            assert await in_either(self.blocking, lambda: self.consumer.position(partition)) == position  # noqa: B023

    async def act(self, random_: random.Random) -> None:
        everything, partition = list(self.ends), random_.choice(list(self.positions))
        match random_.choices(range(8), [40, 8, 6, 5, 4, 4, 2, 3])[0]:
            case 0 if self.loops:
                for _ in range(random_.choice([1, 3, 30])):
                    if self.loops:
                        await self.step(random_.randrange(len(self.loops)))
            case 1 if self.unread and len(self.loops) < 4:
                names = [name for name in LOOPS if self.is_whole or not name.startswith("merged")]
                await self.begin(random_.choice(names), random_.choice([1, 4, 1000]))
            case 2:
                await self.poll(random_.choice([1, 5, 100]))
            case 3:
                await self.seek(partition, random_.randint(0, self.ends[partition]))
            case 4:
                await self.call("pause", partition)
                self.paused.add(partition)
            case 5:
                await self.call("resume")
                self.paused.clear()
            case 6:
                whole = random_.random() < 0.6
                partitions = everything if whole else random_.sample(everything, random_.randint(1, len(everything)))
                await self.assign(partitions, random_.choice([0, 20]), whole=whole)
            case 7 if self.loops:
                _, loop, _ = self.loops.pop(random_.randrange(len(self.loops)))
                await in_either(self.blocking, loop.close if self.blocking else loop.aclose)


@pytest.mark.prove(keep=1)
@both
@pytest.mark.parametrize("seed", range(6))
async def test_each_step_hands_out_the_record_at_the_position(
    address: str, topic: str, blocking: bool, seed: int
) -> None:
    random_ = random.Random(seed)
    partitions = await fill(address, topic)
    for _ in range(5):
        buffer_bytes = random_.choice([1, 1000, 1_000_000])
        consumer: Any = (sync.Consumer if blocking else Consumer)(address, buffer_bytes=buffer_bytes)
        program = Program(consumer, topic, blocking)
        try:
            await program.assign(partitions, 0, whole=True)
            for _ in range(100):
                await program.act(random_)
                await program.check_positions()
        except BaseException as error:
            error.add_note("\n".join(program.log[-60:]))
            raise
        finally:
            await in_either(blocking, consumer.close)
