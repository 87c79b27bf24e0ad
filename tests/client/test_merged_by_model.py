"""Merged reading against a model that knows the next record, whatever the body of the loop does with its consumer."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from logbroker.client import Record, TopicPartition, sync
from tests.client.test_merged import LONG, create, numbers, send

MOST_USES: Final = 12
"""How often the body of a loop uses its consumer otherwise."""
RECORDS: Final = 200


class Model:
    """The positions of a consumer in a topic that does not change any more."""

    def __init__(self, logs: list[list[int]], ends: list[list[int]]) -> None:
        self.logs = logs
        """The sequences of each partition."""
        self.ends = ends
        """For each generation of the topic: its end offsets."""
        self.positions = [0] * len(logs)
        self.paused = set[int]()

    def next(self, high: int) -> list[tuple[int, int]]:
        """Return the sequence of the next record, and its partition: the lowest of the first unfinished generation. If
        it is late, another late one may come before it: none of them waits."""
        partitions = range(len(self.logs))
        for ends in self.ends:
            if unfinished := [each for each in partitions if self.positions[each] < ends[each]]:
                heads = [(self.logs[each][self.positions[each]], each) for each in unfinished]
                can_come = [head for head in heads if head[1] not in self.paused]
                return [head for head in can_come if head[0] < high] or sorted(can_come)[:1]
        return []

    def take(self, records: Sequence[Record]) -> None:
        """Note what the program has read, and check that each partition goes on at its position."""
        for record in records:
            assert record.offset == self.positions[record.partition]
            assert record.partition not in self.paused
            self.positions[record.partition] += 1


def made_topic(address: str, topic: str, drawn: random.Random) -> Model:
    partitions, generations, numbered = drawn.randint(2, 4), drawn.randint(1, 3), iter(range(RECORDS))
    logs: list[list[int]] = []
    ends = list[list[int]]()
    for generation in range(generations):
        if not generation:
            asyncio.run(create(address, topic, partitions))
        else:
            partitions += drawn.randint(1, 2)
            with sync.Admin(address) as admin:
                admin.alter_topic(topic, partitions=partitions)
        logs += [[] for _ in range(partitions - len(logs))]
        brings = drawn.sample(range(partitions), drawn.randint(1, partitions))
        some = [(drawn.choice(brings), number) for number in itertools.islice(numbered, RECORDS // generations)]
        asyncio.run(send(address, topic, some, batch_bytes=drawn.choice([200, 2000, 100_000])))
        for partition, number in some:
            logs[partition].append(number)
        ends.append([len(log) for log in logs])
    return Model(logs, [each + [0] * (partitions - len(each)) for each in ends])


def used(consumer: sync.Consumer, topic: str, model: Model, drawn: random.Random) -> str:
    """Let the consumer do something, and the model, too."""
    number = drawn.randrange(len(model.logs))
    at, log = TopicPartition(topic, number), model.logs[number]

    def moved(move: Callable[..., None], offset: int, *arguments: Any) -> None:
        move(at, *arguments)
        model.positions[number] = offset

    what = drawn.choice(["seek", "begin", "end", "pause", "pause all", "resume", "resume all", "poll", "until_end"])
    if what == "seek":
        offset = drawn.randint(0, len(log))
        moved(consumer.seek, offset, offset)
    elif what == "begin":
        moved(consumer.seek_to_beginning, 0)
    elif what == "end":
        moved(consumer.seek_to_end, len(log))
    elif what == "pause":
        consumer.pause(at)
        model.paused.add(number)
    elif what == "pause all":
        consumer.pause()
        consumer.resume(at)
        model.paused = set(range(len(model.logs))) - {number}
    elif what == "resume":
        consumer.resume(at)
        model.paused.discard(number)
    elif what == "resume all":
        consumer.resume()
        model.paused.clear()
    elif what == "poll":
        model.take(consumer.poll(drawn.randint(1, 20), 0))
    else:
        model.take(list(itertools.islice(consumer.until_end(), drawn.randint(1, 20))))
    return f"{what} {number}"


@pytest.mark.prove(keep=2)
@pytest.mark.parametrize("seed", range(40))
def test_the_next_record_is_the_first_of_all_partitions(address: str, topic: str, seed: int) -> None:
    drawn = random.Random(seed)
    model = made_topic(address, topic, drawn)
    often, max_records = drawn.choice([0.05, 0.2, 0.5]), drawn.choice([1, 4, 20, 1000])
    uses: list[str] = []
    high = -1
    with sync.Consumer(address) as consumer:
        consumer.assign(topic)
        records = consumer.merged(topic, max_wait_seconds=LONG, max_records=max_records, until_end=True)
        for record in records:
            (number,) = numbers([record])
            assert (number, record.partition) in model.next(high), (uses, model.positions)
            assert record.late == (number < high), uses
            high = max(high, number)
            model.take([record])
            while len(uses) < MOST_USES and drawn.random() < often:
                uses.append(used(consumer, topic, model, drawn))
        # A paused partition of a topic that grew is not known to be finished, and its next generation waits for it.
        assert not model.next(high) or (model.paused and len(model.ends) > 1), (uses, model.positions)
        positions = [consumer.position(TopicPartition(topic, each)) for each in range(len(model.logs))]
        assert positions == model.positions
