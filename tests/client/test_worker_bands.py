"""Workers of a queue group with priorities against a real broker: what comes first, and what a band is."""

from __future__ import annotations

import pytest

from logbroker.client import Producer, QueueAdmin, QueueSettings, Worker, sync
from logbroker.errors import InvalidRequestError
from tests.client.worker_helpers import create, describe, numbers, take, wait_until

PRIORITIES = [3, 9, None, 0, 8, 5]


async def send(address: str, topic: str) -> None:
    """One record of each priority, with its place in the list as its value."""
    async with Producer(address) as producer:
        for number, priority in enumerate(PRIORITIES):
            await producer.send(topic, b"%d" % number, b"k%d" % number, priority=priority)


async def test_the_most_urgent_record_comes_first(address: str, topic: str) -> None:
    await create(address, topic, priority="strict")
    await send(address, topic)
    async with Worker(address, topic, prefetch=10) as worker:
        taken = await take(worker, len(PRIORITIES))
        assert numbers(taken) == [1, 4, 5, 2, 0, 3]
        assert [delivery.priority for delivery in taken] == [9, 8, 5, 4, 3, 0]


async def test_a_worker_of_a_band_takes_its_records_and_no_others(address: str, topic: str) -> None:
    await create(address, topic, priority="strict")
    await send(address, topic)
    async with Worker(address, topic, band="cold") as cold, Worker(address, topic, band="hot") as hot:
        for delivery in [*await take(cold, 2), *await take(hot, 2)]:
            assert (delivery.priority < 4) == (int(delivery.value or b"") in (0, 3))
            delivery.ack()
        await cold.flush()
        await hot.flush()
        description = await wait_until(address, topic, lambda queue: queue.counts.acked == 4)
        assert [(each.priority, each.waiting) for each in description.priorities if each.waiting] == [(5, 1), (4, 1)]


async def test_a_band_that_there_is_not_ends_the_worker(address: str, topic: str) -> None:
    await create(address, topic, priority="strict")
    with pytest.raises(InvalidRequestError, match="there is no band 'tepid': ask for hot or warm or cold"):
        async with Worker(address, topic, band="tepid") as worker:
            await take(worker, 1)


async def test_settings_go_there_and_back(address: str, topic: str) -> None:
    await create(address, topic, priority="weighted", weights={"hot": 5, "warm": 2}, priority_rank="head")
    settings = (await describe(address, topic)).settings
    assert (settings.priority, settings.weights, settings.priority_rank) == ("weighted", {"hot": 5, "warm": 2}, "head")
    async with QueueAdmin(address) as queues:
        altered, _ = await queues.alter_queue(topic, QueueSettings(priority="ageing", age_seconds=3.5))
        assert (altered.settings.age_seconds, altered.settings.weights) == (3.5, {})
        with pytest.raises(InvalidRequestError, match="set ageing, or leave it out"):
            await queues.alter_queue(topic, QueueSettings(priority="strict", age_seconds=3.5))


def test_a_synchronous_worker_has_bands_too(address: str, topic: str) -> None:
    with sync.Admin(address) as admin, sync.QueueAdmin(address) as queues, sync.Producer(address) as producer:
        admin.create_topic(topic, 2)
        queues.create_queue(topic, topic, sync.QueueSettings(priority="strict"))
        for number, priority in enumerate(PRIORITIES):
            producer.send(topic, b"%d" % number, priority=priority)
    with sync.Worker(address, topic, band="warm") as worker:
        found = iter(worker)
        assert [next(found).priority for _ in range(2)] == [5, 4]
