"""A producer keeps the order of each key while its topic grows, whatever its settings, and where the broker dies."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import threading
from itertools import count
from typing import Any

import pytest

from logbroker.client import Admin, Producer, sync
from logbroker.embedded_broker import EmbeddedBroker
from tests.client.reading import numbers_over_growth

KEYS = [b"key-%d" % number for number in range(40)]
GROWTHS = range(3, 7)
MAX_BUFFERED_BYTES = 20_000
"""So that not too much is sent while the broker starts again."""

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "small batches, many in flight": {"batch_bytes": 300},
    "one in flight": {"batch_bytes": 2000, "max_requests_in_flight": 1},
    "lingering, compressed": {"batch_bytes": 2000, "linger_ms": 5, "compression": "zstd"},
    "not idempotent": {"batch_bytes": 500, "idempotent": False},
}


async def check_order(address: str, topic: str, sent: int | list[int], *, may_repeat: bool = False) -> None:
    """Check that each key's records of an older generation come first, all in order. `sent`: how many in all, or by
    each thread."""
    found = await numbers_over_growth(address, topic)
    for number, key in enumerate(KEYS):
        numbers = found[key]
        if may_repeat:
            numbers = list(dict.fromkeys(numbers))
        end = sent if isinstance(sent, int) else sent[number % len(sent)]
        assert numbers == list(range(number, end, len(KEYS))), key


class Growing:
    """A topic whose producer sends while it changes: each round it grows, in one of them the broker is killed."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self._partitions = iter(GROWTHS)

    async def round(self, admin: Admin) -> None:
        partitions = next(self._partitions)
        await admin.alter_topic("t", partitions=partitions)
        if partitions == GROWTHS[1]:
            await asyncio.to_thread(self._broker.kill)
            await asyncio.to_thread(self._broker.start)


@pytest.mark.prove(keep=1)
@pytest.mark.usefixtures("quiet_clients")
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
async def test_keys_stay_in_order_over_growth(
    logbroker_broker: EmbeddedBroker, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    address = logbroker_broker.address
    caplog.set_level(logging.INFO, "logbroker.client.producer")
    growing = Growing(logbroker_broker)
    async with (
        Admin(address) as admin,
        Producer(address, max_buffered_bytes=MAX_BUFFERED_BYTES, **settings) as producer,
    ):
        await admin.create_topic("t", GROWTHS[0] - 1)
        numbers = count()
        for _ in GROWTHS:
            round_ = asyncio.create_task(growing.round(admin))
            while not round_.done():
                for number in itertools.islice(numbers, 200):
                    await producer.send("t", b"%d" % number, KEYS[number % len(KEYS)])
                # Else the growth would wait for a pause.
                await asyncio.sleep(0)
            await round_
        await producer.flush()
    await check_order(address, "t", next(numbers), may_repeat=not settings.get("idempotent", True))
    told = re.findall(r"topic t grew from (\d+) to (\d+) partitions", caplog.text)
    assert told
    assert all(before != after for before, after in told)


@pytest.mark.prove
@pytest.mark.usefixtures("quiet_clients")
def test_keys_of_many_threads_stay_in_order_over_growth(logbroker_broker: EmbeddedBroker) -> None:
    """Each thread has keys of its own."""
    address = logbroker_broker.address
    growing = Growing(logbroker_broker)
    over = threading.Event()
    sent = [0, 0]

    def send(producer: sync.Producer, thread: int) -> None:
        for number in count():
            if number % len(KEYS) == 0 and over.is_set():
                sent[thread] = number
                return
            if number % len(KEYS) % 2 == thread:
                producer.send("t", b"%d" % number, KEYS[number % len(KEYS)])

    async def grow() -> None:
        async with Admin(address) as admin:
            for _ in GROWTHS:
                await growing.round(admin)

    with sync.Admin(address) as admin:
        admin.create_topic("t", GROWTHS[0] - 1)
    with sync.Producer(address, max_buffered_bytes=MAX_BUFFERED_BYTES, batch_bytes=1000) as producer:
        threads = [threading.Thread(target=send, args=(producer, thread), daemon=True) for thread in (0, 1)]
        for thread in threads:
            thread.start()
        asyncio.run(grow())
        over.set()
        for thread in threads:
            thread.join()
    asyncio.run(check_order(address, "t", sent))
