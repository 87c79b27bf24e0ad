"""A topic grows in the middle of a stream, under members in processes of their own; one of them is killed, and so is
the broker. No record of a key is handed out, for the first time, behind a later one."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logbroker.client import Admin, Producer
from logbroker.embedded_broker import EmbeddedBroker, embedded
from tests.groups.growth_member import Delivery, GrowthMemberSpec, read_history, run
from tests.member_life import Life

TOPIC = "growing"
KEYS = 60
RECORDS = 1_500
"""Records per generation."""
_seconds = 50


class Crowd:
    """The members."""

    def __init__(self, broker: str, directory: Path, mode: str, seed: int) -> None:
        self._broker = broker
        self._directory = directory
        self._mode = mode
        self._rng = random.Random(seed)
        self._names = itertools.count()
        self.lives: list[Life] = []

    def join(self) -> None:
        number = next(self._names)
        name = f"member-{number}"
        spec = GrowthMemberSpec(
            name=name,
            broker=self._broker,
            topic=TOPIC,
            history_path=str(self._directory / name),
            mode=self._mode,
            seed=self._rng.randrange(1 << 32),
            # So that one is far ahead of the other.
            seconds_per_record=number % 3 * 0.0005,
        )
        self.lives.append(Life(spec, run))

    async def kill_one(self) -> None:
        await self.lives.pop(self._rng.randrange(len(self.lives))).kill()

    def deliveries(self) -> list[Delivery]:
        found = [delivery for path in self._directory.iterdir() for delivery in read_history(path)]
        return sorted(found, key=lambda delivery: delivery.at)

    async def got(self, count: int) -> None:
        """Wait until so many records were handed out."""
        async with asyncio.timeout(_seconds):
            while len({delivery.number for delivery in self.deliveries()}) < count:
                await asyncio.sleep(0.05)


@contextmanager
def crowd(broker: EmbeddedBroker, directory: Path, mode: str, seed: int) -> Iterator[Crowd]:
    directory.mkdir()
    found = Crowd(broker.address, directory, mode, seed)
    try:
        yield found
    finally:
        for life in found.lives:
            life.end()


@pytest.mark.prove
@pytest.mark.parametrize("mode", ["auto", "manual", "none"])
def test_growth_in_the_middle_of_a_stream(tmp_path: Path, mode: str) -> None:
    seed = random.randrange(1 << 32)
    with embedded(reconnect_grace_seconds=0.5) as broker, crowd(broker, tmp_path / "histories", mode, seed) as members:
        asyncio.run(_play(broker, members))
        deliveries = members.deliveries()
    _check(deliveries, seed)


async def _play(broker: EmbeddedBroker, members: Crowd) -> None:
    numbers = itertools.count()
    async with Admin(broker.address) as admin, Producer(broker.address, batch_bytes=500) as producer:

        async def send(count: int) -> None:
            for number in itertools.islice(numbers, count):
                await producer.send(TOPIC, b"%d" % number, b"key-%d" % (number * 7 % KEYS))
            await producer.flush()

        await admin.create_topic(TOPIC, 2)
        for _ in range(3):
            members.join()
        await send(RECORDS)
        await admin.alter_topic(TOPIC, partitions=7)
        await send(RECORDS)
        await members.got(RECORDS // 2)
        await members.kill_one()
        await send(RECORDS)
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        members.join()
        await admin.alter_topic(TOPIC, partitions=16)
        await send(RECORDS)
        await members.got(4 * RECORDS)


def _check(deliveries: list[Delivery], seed: int) -> None:
    last: dict[str, Delivery] = {}
    met: set[int] = set()
    behind = []
    for delivery in deliveries:
        before = last.setdefault(delivery.key, delivery)
        if delivery.number in met:
            continue
        met.add(delivery.number)
        if before.number > delivery.number:
            behind.append((before, delivery))
        else:
            last[delivery.key] = delivery
    assert not behind, f"seed {seed}: {len(behind)} records behind a later one of their key, first {behind[0]}"
