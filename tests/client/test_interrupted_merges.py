"""Ctrl-C in a merged loop of a synchronous consumer: a program that goes on gets each record once."""

from __future__ import annotations

import asyncio
import random
import time

from logbroker.client import sync
from tests.client.test_interrupted_takes import MANY, RungError, alarms
from tests.client.test_merged import create, scattered, send


def test_what_a_signal_handler_raises_anywhere_leaves_no_record_out(address: str, topic: str) -> None:
    asyncio.run(create(address, topic, 3))
    asyncio.run(send(address, topic, scattered(MANY, 3)))
    seen: list[int] = []
    in_client = has_begun = False
    interrupts = 0
    until = time.monotonic() + 50

    def may_ring() -> bool:
        # Seldom before the first record, since nothing would come then.
        return in_client and (has_begun or random.random() < 0.03)

    with alarms(may_ring), sync.Consumer(address) as consumer:
        while len(seen) < MANY:
            assert time.monotonic() < until, (interrupts, len(seen))
            try:
                in_client, has_begun = True, False
                for record in consumer.merged(topic, max_wait_seconds=30, max_records=500, until_end=True):
                    in_client, has_begun = False, True
                    seen.append(int(record.value or b""))
                    in_client = True
                in_client = False
            except RungError:
                in_client = False
                interrupts += 1
    assert interrupts
    assert sorted(seen) == list(range(MANY))
