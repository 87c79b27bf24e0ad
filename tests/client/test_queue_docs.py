"""The code of docs/QUEUES.md for working on a queue, as it stands: it goes on after a bad record."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from logbroker import client
from logbroker.client import sync
from tests.client.worker_helpers import create, fill, wait_until

DOCS = Path(__file__).resolve().parents[2] / "docs" / "QUEUES.md"
BLOCKS = [
    block
    for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL)
    if '"billing"' in block
]


def is_async(block: str) -> bool:
    return "from logbroker.client import" in block


def test_the_docs_show_both_ways_for_both_clients() -> None:
    shown = sorted((is_async(block), "worker.run(" in block) for block in BLOCKS)
    assert shown == [(False, False), (False, True), (True, False), (True, True)]
    assert "worker.run(" in BLOCKS[0], "the way that most want comes first"


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
async def test_the_documented_way_goes_on_after_a_bad_record(
    address: str, topic: str, block: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(address, topic, ordering="key", max_attempts=1, on_exhausted="park")
    await fill(address, topic, 30, keys=30)
    block = block.replace("127.0.0.1:9192", address).replace('"billing"', f'"{topic}"')
    workers: list[Any] = []
    seen: set[int] = set()

    def note(delivery: Any) -> None:
        seen.add(int(delivery.value))
        if len(seen) == 30:
            workers[0].stop()
        if int(delivery.value) % 10 == 3:
            raise ValueError("bad")

    async def bill(delivery: client.WorkerDelivery) -> None:
        note(delivery)

    def noted(of: Any) -> Any:
        class Noted(of):  # type: ignore[misc]
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                workers.append(self)

        return Noted

    monkeypatch.setattr(client, "Worker", noted(client.Worker))
    monkeypatch.setattr(sync, "Worker", noted(sync.Worker))
    names: dict[str, Any] = {"bill": bill if is_async(block) else note}
    if is_async(block):
        exec(f"async def main():\n{textwrap.indent(block, '    ')}", names)
        async with asyncio.timeout(30):
            await names["main"]()
    else:
        await asyncio.to_thread(exec, block, names)
    assert seen == set(range(30))
    described = await wait_until(address, topic, lambda queue: queue.counts.open == queue.counts.parked)
    assert described.counts.parked == 3
