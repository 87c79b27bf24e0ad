"""Records that a real broker hands out, one after the other: their exact order, and the shares of bands."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Final

import pytest

from logbroker.client import Admin, Producer
from logbroker.client.admin.queue_admin import QueueAdmin
from logbroker.client.admin.queue_descriptions import QueueSettings
from logbroker.client.worker.worker import Worker
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.record.bands import DEFAULT_BANDS, band_of
from tests.queue_storm.worker_process import receipt_of

RECORDS: Final = 400
AGE_SECONDS: Final = 2.0
SHARED: Final = 10_000
"""Deliveries of which the shares are looked at."""
WEIGHTS: Final = {"hot": 6, "warm": 3, "cold": 1}


@pytest.fixture(scope="module")
def address() -> object:
    broker: EmbeddedBroker
    with embedded() as broker:
        yield broker.address


@pytest.mark.prove
@pytest.mark.parametrize("partitions", [1, 10])
@pytest.mark.parametrize("priority", ["strict", "ageing"])
async def test_records_come_in_the_order_of_their_ranks(address: str, priority: str, partitions: int) -> None:
    rng = random.Random(f"{priority} {partitions}")
    topic = group = f"{priority}-{partitions}"
    now_ms = int(time.time() * 1000)
    async with Admin(address) as admin:
        await admin.create_topic(topic, partitions)
    ranks: dict[tuple[int, int], tuple[float, ...]] = {}
    async with Producer(address) as producer:
        for number in range(RECORDS):
            level, timestamp_ms = rng.randrange(10), now_ms - rng.randrange(30) * 1000
            sent = await producer.send(
                topic, b"", partition=number % partitions, priority=level, timestamp_ms=timestamp_ms
            )
            record_id = ((await sent).partition, (await sent).offset)
            key = -level if priority == "strict" else timestamp_ms - level * AGE_SECONDS * 1000
            ranks[record_id] = (key, -level, timestamp_ms, *record_id)
    async with QueueAdmin(address) as admin:
        age_seconds = AGE_SECONDS if priority == "ageing" else None
        settings = QueueSettings(ordering="none", priority=priority, age_seconds=age_seconds)
        await admin.create_queue(group, topic, settings)
    delivered = []
    async with Worker(address, group, prefetch=1) as worker:
        async for delivery in worker:
            delivered.append((delivery.partition, delivery.offset))
            delivery.ack()
            if len(delivered) == RECORDS:
                break
    assert delivered == sorted(ranks, key=ranks.__getitem__)


async def test_bands_get_their_shares(address: str) -> None:
    rng = random.Random(1)
    async with Admin(address) as admin:
        await admin.create_topic("shares", 8)
    async with Producer(address) as producer:
        for band in DEFAULT_BANDS:
            # As much as the share takes, and some more, so that each band always has something.
            for number in range(SHARED * WEIGHTS[band.name] // 10 + 1000):
                level = rng.randint(band.lowest_priority, band.highest_priority)
                await producer.send("shares", b"", partition=number % 8, priority=level)
        await producer.flush()
    async with QueueAdmin(address) as admin:
        await admin.create_queue(
            "shares", "shares", QueueSettings(ordering="none", priority="weighted", weights=WEIGHTS)
        )
    bands: dict[int, str] = {}
    async with Worker(address, "shares", prefetch=50) as worker:
        async for delivery in worker:
            bands[receipt_of(delivery)] = band_of(DEFAULT_BANDS, delivery.priority).name
            delivery.ack()
            if len(bands) == SHARED + 500:
                break
    # Receipts count up in the order of the hand-out.
    shares = Counter(bands[receipt] for receipt in sorted(bands)[:SHARED])
    for name, weight in WEIGHTS.items():
        assert shares[name] == pytest.approx(SHARED * weight / 10, rel=0.05), shares
