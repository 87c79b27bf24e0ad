"""Records that a topic refuses fail alone: their neighbours in the batch are delivered, once and in their order."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from logbroker.client import Admin, Delivery, Producer, sync
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.errors import InvalidTimestampError, LogbrokerError, RecordTooLargeError, UnknownTopicError
from logbroker.record.partitioner import partition_for_key
from tests.client.reading import numbers_by_key, numbers_over_growth, read_all

YEAR_MS = 365 * 24 * 3_600_000
KEYS = [b"key-%d" % number for number in range(5)]


def a_year_ahead() -> int:
    return int(time.time() * 1000) + YEAR_MS


async def create(address: str, topic: str, partitions: int = 1, **configs: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(topic, partitions, {name.replace("_", "."): value for name, value in configs.items()})


async def set_bound(address: str, topic: str, max_message_bytes: int) -> None:
    async with Admin(address) as admin:
        await admin.alter_topic(topic, set_configs={"max.message.bytes": str(max_message_bytes)})


async def outcomes(deliveries: list[Delivery]) -> dict[int, LogbrokerError]:
    """The failures by the numbers of their records."""
    results = await asyncio.gather(*deliveries, return_exceptions=True)
    return {number: result for number, result in enumerate(results) if isinstance(result, LogbrokerError)}


async def check_log(address: str, topic: str, sent: int, failed: dict[int, LogbrokerError]) -> None:
    """All that did not fail is there, once, and each key is in order."""
    expected = {key: [n for n in range(number, sent, len(KEYS)) if n not in failed] for number, key in enumerate(KEYS)}
    assert numbers_by_key(await read_all(address, topic)) == expected


PRODUCERS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "compressed": {"compression": "zstd"},
    "not idempotent": {"idempotent": False},
}


@pytest.mark.parametrize("settings", PRODUCERS.values(), ids=PRODUCERS)
async def test_a_record_stamped_too_far_ahead_fails_alone(address: str, topic: str, settings: dict[str, Any]) -> None:
    await create(address, topic)
    stamp = a_year_ahead()
    bad = {0, 499, 500, 998}
    async with Producer(address, linger_ms=60_000, **settings) as producer:
        deliveries = [
            await producer.send(topic, b"%d" % n, KEYS[n % 5], timestamp_ms=stamp if n in bad else None)
            for n in range(999)
        ]
        with pytest.raises(InvalidTimestampError):
            await producer.flush()
        failed = await outcomes(deliveries)
        last = await producer.send(topic, b"999", KEYS[4])
        await producer.flush()
        assert (await last).offset == 995
    assert set(failed) == bad
    for error in failed.values():
        assert f"the record is stamped {stamp}" in str(error)
        assert "message.timestamp.after.max.ms" in str(error)
    await check_log(address, topic, 1000, failed)


async def test_a_batch_of_nothing_but_refused_records_fails(address: str, topic: str) -> None:
    await create(address, topic)
    async with Producer(address, linger_ms=20) as producer:
        deliveries = [await producer.send(topic, b"", timestamp_ms=a_year_ahead()) for _ in range(10)]
        after = await producer.send(topic, b"")
        assert len(await outcomes(deliveries)) == 10
        assert (await after).offset == 0


@pytest.mark.parametrize("settings", PRODUCERS.values(), ids=PRODUCERS)
async def test_a_topic_of_small_batches_takes_all_that_a_default_producer_sends(
    address: str, topic: str, settings: dict[str, Any]
) -> None:
    await create(address, topic, 3, max_message_bytes="700")
    async with Producer(address, linger_ms=5, **settings) as producer:
        deliveries = [await producer.send(topic, b"%d" % n, KEYS[n % 5]) for n in range(2000)]
        await producer.flush()
        assert await outcomes(deliveries) == {}
    await check_log(address, topic, 2000, {})


@pytest.mark.parametrize("settings", PRODUCERS.values(), ids=PRODUCERS)
async def test_a_batch_of_before_the_bound_was_lowered_is_split(
    address: str, topic: str, settings: dict[str, Any]
) -> None:
    await create(address, topic)
    random = Random(3)
    noise = [random.randbytes(3000 if n in (7, 150) else 60).replace(b" ", b"") for n in range(300)]
    async with Producer(address, linger_ms=60_000, **settings) as producer:
        deliveries = [
            await producer.send(topic, b"%d" % n, KEYS[n % 5], headers=[("noise", noise[n])]) for n in range(300)
        ]
        await set_bound(address, topic, 1000)
        with pytest.raises(RecordTooLargeError, match=r"1000 \(max\.message\.bytes\)"):
            await producer.flush()
        failed = await outcomes(deliveries)
        assert set(failed) == {7, 150}
        await set_bound(address, topic, 1_000_000)
        deliveries.append(await producer.send(topic, b"300", KEYS[0], headers=[("noise", bytes(100_000))]))
        await producer.flush()
    assert [(await each).offset for n, each in enumerate(deliveries) if n not in failed] == list(range(299))
    await check_log(address, topic, 301, failed)


async def test_parts_are_routed_again_where_the_topic_grows_too(address: str, topic: str) -> None:
    """The ordering keys beside the records choose the partitions."""
    await create(address, topic, 2)
    async with Producer(address, linger_ms=60_000) as producer, Admin(address) as admin:
        sent = [
            (await producer.send(topic, bytes(50), ordering_key=KEYS[n % 5], headers=[("n", b"%d" % n)]), KEYS[n % 5])
            for n in range(200)
        ]
        await admin.alter_topic(topic, partitions=7, set_configs={"max.message.bytes": "600"})
        await producer.flush()
        offsets: dict[bytes, list[int]] = {}
        for delivery, key in sent:
            placed = await delivery
            assert placed.partition == partition_for_key(key, 7)
            offsets.setdefault(key, []).append(placed.offset)
    assert all(found == sorted(found) for found in offsets.values())
    assert len(await read_all(address, topic)) == 200


async def send_with_noise(producer: Producer, numbers: range, sizes: dict[int, int]) -> list[Delivery]:
    """Records of 900 bytes, or as many as it says, that no codec makes smaller."""
    random = Random(4)
    return [
        await producer.send("t", b"%d" % n, KEYS[n % 5], headers=[("noise", random.randbytes(sizes.get(n, 900)))])
        for n in numbers
    ]


@pytest.mark.prove
@pytest.mark.usefixtures("quiet_clients")
@pytest.mark.parametrize("settings", PRODUCERS.values(), ids=PRODUCERS)
async def test_a_broker_that_reads_small_requests_takes_all_that_a_default_producer_sends(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    """And a producer finds out where the broker reads even less when it is back."""
    async with AsyncExitStack() as exits:
        with embedded(tmp_path, max_request_bytes=100_000) as broker:
            address = broker.address
            await create(address, "t", 8)
            producer = await exits.enter_async_context(Producer(address, linger_ms=20, **settings))
            deliveries = await send_with_noise(producer, range(1000), {500: 200_000})
            with pytest.raises(RecordTooLargeError, match="max_request_bytes"):
                await producer.flush()
            failed = await outcomes(deliveries)
            assert set(failed) == {500}
        with embedded(tmp_path, listen=address, max_request_bytes=20_000):
            later = await send_with_noise(producer, range(1000, 1500), {1100: 30_000})
            with pytest.raises(RecordTooLargeError, match="max_request_bytes"):
                await producer.flush()
            unlucky = await outcomes(later)
            # What went out before the new bound was known: the broker before might have had it.
            assert 100 in unlucky
            assert all(number == 100 or "not known" in str(error) for number, error in unlucky.items())
            failed |= {number + 1000: error for number, error in unlucky.items()}
            await check_log(address, "t", 1500, failed)


def test_a_synchronous_producer_fails_one_record_too(address: str, topic: str) -> None:
    with sync.Admin(address) as admin:
        admin.create_topic(topic, 1, {"max.message.bytes": "2000"})
    with sync.Producer(address, linger_ms=20) as producer:
        deliveries = [
            producer.send(topic, bytes(5000 if n == 50 else 30), timestamp_ms=a_year_ahead() if n in (3, 90) else None)
            for n in range(100)
        ]
        for n, delivery in enumerate(deliveries):
            if n in (3, 50, 90):
                with pytest.raises((RecordTooLargeError, InvalidTimestampError)):
                    delivery.result()
            else:
                assert delivery.result().offset == n - sum(n > bad for bad in (3, 50, 90))


@pytest.mark.prove
@pytest.mark.usefixtures("quiet_clients")
@pytest.mark.parametrize("settings", PRODUCERS.values(), ids=PRODUCERS)
async def test_bounds_that_change_while_records_are_on_their_way(
    logbroker_broker: EmbeddedBroker, settings: dict[str, Any]
) -> None:
    """Records at fault among them; the topic grows, and the broker is killed once."""
    address = logbroker_broker.address
    await create(address, "t", 2)
    random = Random(16)
    bad: set[int] = set()
    deliveries: list[Delivery] = []

    async def change(bound: int) -> None:
        await set_bound(address, "t", bound)
        if bound == 900:
            await asyncio.to_thread(logbroker_broker.kill)
            await asyncio.to_thread(logbroker_broker.start)
        if bound == 2000:
            async with Admin(address) as admin:
                await admin.alter_topic("t", partitions=5)

    async with Producer(address, max_buffered_bytes=20_000, **settings) as producer:
        for bound in (3000, 900, 700, 2000, 10_000, 800):
            changing = asyncio.create_task(change(bound))
            while not changing.done():
                for _ in range(50):
                    number = len(deliveries)
                    is_bad = random.random() < 0.005
                    too_large = is_bad and random.random() < 0.5
                    bad.update([number] if is_bad else [])
                    deliveries.append(
                        await producer.send(
                            "t",
                            b"%d" % number,
                            KEYS[number % 5],
                            headers=[("noise", random.randbytes(11_000 if too_large else random.randrange(100)))],
                            timestamp_ms=a_year_ahead() if is_bad and not too_large else None,
                        )
                    )
                await asyncio.sleep(0)
            await changing
        with pytest.raises((RecordTooLargeError, InvalidTimestampError)):
            await producer.flush()
    failed = await outcomes(deliveries)
    # The bound was wide enough for a large one only before it was lowered first.
    assert set(failed) <= bad
    assert {number for number in bad if number not in failed} <= set(range(len(deliveries) // 2))
    if settings.get("idempotent", True):
        assert await numbers_over_growth(address, "t") == {
            key: [n for n in range(number, len(deliveries), 5) if n not in failed] for number, key in enumerate(KEYS)
        }


async def test_flush_raises_what_nobody_was_told_of_though_one_record_of_the_batch_was_awaited(
    address: str, topic: str
) -> None:
    await create(address, topic)
    producer = Producer(address, linger_ms=60_000)
    deliveries = [await producer.send(topic, b"%d" % number) for number in range(10)]
    async with Admin(address) as admin:
        await admin.delete_topic(topic)
    waiting = asyncio.gather(*deliveries[:9], return_exceptions=True)
    await asyncio.sleep(0)
    with pytest.raises(LogbrokerError, match="deleted"):
        await producer.flush()
    assert {type(error) for error in await waiting} == {UnknownTopicError}

    await producer.flush()
    await producer.close()


async def test_flush_raises_nothing_where_all_were_told(address: str, topic: str) -> None:
    await create(address, topic)
    producer = Producer(address, linger_ms=60_000)
    deliveries = [await producer.send(topic, b"%d" % number) for number in range(10)]
    told: list[Delivery] = []
    deliveries[9].add_done_callback(told.append)
    async with Admin(address) as admin:
        await admin.delete_topic(topic)
    waiting = asyncio.gather(*deliveries[:9], return_exceptions=True)
    await asyncio.sleep(0)
    await producer.flush()
    assert {type(error) for error in await waiting} == {UnknownTopicError}
    assert told == [deliveries[9]]
    await producer.close()


@pytest.mark.prove
@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_producer_warns_once_while_a_full_disk_refuses_its_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, idempotent: bool
) -> None:
    """An idempotent one is refused its id, and another one its records."""
    caplog.set_level(logging.INFO, "logbroker.client.producer")

    def logged(level: int, words: str) -> list[str]:
        return [entry.message for entry in caplog.records if entry.levelno == level and words in entry.message]

    with embedded(tmp_path) as broker:
        await create(broker.address, "t", partitions=3)
    too_much = 4 * shutil.disk_usage(tmp_path).free
    with embedded(tmp_path, min_free_disk_bytes=too_much) as broker:
        address = broker.address
        async with Producer(address, idempotent=idempotent) as producer:
            deliveries = [await producer.send("t", b"%d" % number, partition=number) for number in range(3)]
            async with asyncio.timeout(30):
                while not logged(logging.WARNING, "; trying again"):
                    await asyncio.sleep(0.02)
                while not idempotent and any(len(logged(logging.INFO, f"t-{n}: DISK_FULL")) < 7 for n in range(3)):
                    await asyncio.sleep(0.02)
            [warning] = logged(logging.WARNING, "")
            assert "min_free_disk_bytes" in warning
            assert idempotent or "for up to 120 s a record" in warning
            broker.stop()
            with embedded(tmp_path, listen=address):
                assert [(await delivery).partition for delivery in deliveries] == [0, 1, 2]
    assert len(logged(logging.WARNING, "going on" if idempotent else "accepts records again")) == 1


def test_a_refusal_says_how_much_the_broker_reads() -> None:
    with embedded(max_request_bytes=100) as broker, sync.Admin(broker.address) as admin:
        admin.create_topic("t")
        with sync.Producer(broker.address) as producer, pytest.raises(RecordTooLargeError, match="reads 100 at once"):
            producer.send_and_wait("t", b"v")
