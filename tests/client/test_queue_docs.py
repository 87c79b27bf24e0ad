"""The code of docs/QUEUES.md for working on a queue, as it stands, and the ways that the page only names: they go on
after a bad record."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from logbroker import client
from logbroker.client import sync
from logbroker.errors import InvalidRequestError
from tests.client.worker_helpers import create, fill, wait_until
from tests.docs.markdown import ROOT, read

ALL_BLOCKS = [block.text for block in read(ROOT / "docs" / "QUEUES.md").blocks if "from billing import" in block.text]
[LOOP] = (block for block in ALL_BLOCKS if "batches(" not in block)

RUN = """
from billing import charge
from logbroker.client.sync import Worker

with Worker("127.0.0.1:9192", "billing") as worker:
    worker.run(lambda delivery: charge(delivery.value), concurrency=16)
"""

ASYNC_RUN = """
import asyncio

from billing import charge
from logbroker.client import Worker


async def bill(delivery):
    charge(delivery.value)


async def main():
    async with Worker("127.0.0.1:9192", "billing") as worker:
        await worker.run(bill, concurrency=16)


asyncio.run(main())
"""

ASYNC_LOOP = """
import asyncio

from billing import charge
from logbroker.client import Worker


async def main():
    async with Worker("127.0.0.1:9192", "billing") as worker:
        async for delivery in worker:
            try:
                async with delivery:
                    charge(delivery.value)
            except Exception:
                pass


asyncio.run(main())
"""


@pytest.mark.parametrize("block", [LOOP, RUN, ASYNC_LOOP, ASYNC_RUN], ids=["loop", "run", "async loop", "async run"])
async def test_the_documented_way_goes_on_after_a_bad_record(
    address: str, topic: str, block: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(address, topic, ordering="key", max_attempts=1, on_exhausted="park")
    await fill(address, topic, 30, keys=30)
    block = block.replace("127.0.0.1:9192", address).replace('"billing"', f'"{topic}"')
    workers: list[Any] = []
    seen: set[int] = set()

    def charge(value: bytes) -> None:
        seen.add(int(value))
        if len(seen) == 30:
            workers[0].stop()
        if int(value) % 10 == 3:
            raise ValueError("bad")

    def noted(of: Any) -> Any:
        class Noted(of):  # type: ignore[misc]
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                workers.append(self)

        return Noted

    monkeypatch.setattr(client, "Worker", noted(client.Worker))
    monkeypatch.setattr(sync, "Worker", noted(sync.Worker))
    monkeypatch.setitem(sys.modules, "billing", SimpleNamespace(charge=charge))
    async with asyncio.timeout(30):
        await asyncio.to_thread(exec, block, {})
    assert seen == set(range(30))
    described = await wait_until(address, topic, lambda queue: queue.counts.open == queue.counts.parked)
    assert described.counts.parked == 3


@pytest.mark.parametrize("ordering", ["key", "none"])
async def test_the_documented_way_with_lists_settles_each_as_was_said(
    address: str, topic: str, ordering: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [block] = (block for block in ALL_BLOCKS if "batches(" in block)
    await create(address, topic, ordering=ordering, max_attempts=1, on_exhausted="park")
    await fill(address, topic, 300, keys=30)
    lists: list[list[int]] = []

    class Done(Exception):  # noqa: N818 - it ends the loop
        pass

    def charge_all(values: list[bytes]) -> set[int]:
        numbers = [int(value) for value in values]
        lists.append(numbers)
        if ordering == "key":
            assert len({number % 30 for number in numbers}) == len(numbers), "a key is twice in one list"
        if numbers == [300]:
            raise Done
        return {place for place, number in enumerate(numbers) if number == 7}

    def work() -> None:
        text = block.replace("127.0.0.1:9192", address).replace('"billing"', f'"{topic}"')
        with pytest.raises(Done):
            exec(text, {})

    monkeypatch.setitem(sys.modules, "billing", SimpleNamespace(charge_all=charge_all))

    async with asyncio.timeout(60):
        working = asyncio.create_task(asyncio.to_thread(work))
        expected = 300 - 1 - (9 if ordering == "key" else 0)  # What follows the failed one of its key stands with it.
        await wait_until(address, topic, lambda queue: queue.counts.acked == expected)
        await fill(address, topic, 1, keys=1, first=300)
        await working
    assert max(map(len, lists)) > 1
    assert max(map(len, lists)) <= 100
    numbers = [number for each in lists for number in each]
    assert sorted(numbers) == sorted({*range(301)} - ({*range(37, 300, 30)} if ordering == "key" else set()))


@pytest.mark.parametrize("blocking", [False, True])
async def test_lists_of_deliveries_are_bounded(address: str, topic: str, blocking: bool) -> None:
    await create(address, topic, ordering="none")
    await fill(address, topic, 100)
    sizes: list[int] = []

    def work() -> None:
        with sync.Worker(address, topic) as worker:
            for deliveries in worker.batches(max_records=30, max_bytes=20):
                sizes.append(len(deliveries))
                for delivery in deliveries:
                    delivery.ack()
                if sum(sizes) == 100:
                    break

    async with asyncio.timeout(60):
        if blocking:
            await asyncio.to_thread(work)
        else:
            async with client.Worker(address, topic) as worker:
                async for deliveries in worker.batches(max_records=6):
                    sizes.append(len(deliveries))
                    for delivery in deliveries:
                        delivery.ack()
                    if sum(sizes) == 100:
                        break
    assert 1 < max(sizes) <= (7 if blocking else 6)  # The smallest records take 3 bytes.
    for bounds in ({"max_records": 0}, {"max_bytes": 0}, {"max_records": 1_000_001}):
        with pytest.raises(InvalidRequestError, match="max_"):
            await anext(client.Worker(address, topic).batches(**bounds))
