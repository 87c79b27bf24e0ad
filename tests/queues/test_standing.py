"""Retention loses nothing of a lane that stands, whatever made it stand, and whatever the machine knows of it by then.

Every combination of: what makes the lane stand, whether the scan has met it again, and what happened before retention
came.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from logbroker.engine import Append, Appended
from logbroker.queues.machine.stalled_lanes import HELD
from logbroker.queues.model.messages import Nack, Settlement
from logbroker.queues.model.settings import OnExhausted, Priority
from logbroker.queues.model.starts import StartAt
from logbroker.queues.operations import LaneName
from logbroker.queues.scan.scanner import Scanner
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.message_headers import NOT_BEFORE
from tests.queues.retained import GroupRun, again
from tests.queues.shell import DEADLINE_SECONDS, Shell, hello, records, shell, take, until

KEY = b"stands"
COUNT = 24
CONFIGS = {
    "segment.bytes": "1500",
    "retention.bytes": "1500",
    "retention.hold.bytes": "3000",
    "retention.ms": "-1",
}
MOST_BYTES = 3 * 1500 + 3000
HOUR_MS = 3_600_000

STANDS_BY = ["session", "retry", "delay", "parked", "blocked"]
HAPPENS = ["nothing", "start", "kill", "rewind", "alter"]


async def scan_nothing(scanner: Scanner, partition: int) -> None:
    pass


async def append(
    opened: Shell, keys: Iterable[bytes], number: int, headers: Iterable[tuple[str, bytes]] = (), partition: int = 0
) -> None:
    """Append a batch with a record of each key; the headers are those of the first."""
    value = b"%0100d" % number
    batch = [NewRecord(value=value, key=key) for key in keys]
    batch[0].headers = list(headers)
    [result] = await opened.engine.append([Append(opened.engine.topic("t").id, partition, encode_batch(batch))])
    assert isinstance(result, Appended), result


async def run_with_a_head_that_stands(opened: Shell, stands_by: str) -> GroupRun:
    await opened.engine.create_topic("t", 2, CONFIGS)
    by_cause: dict[str, dict[str, Any]] = {
        "session": {"backoff_initial_seconds": 0.0},
        "retry": {"backoff_initial_seconds": 3600.0, "backoff_cap_seconds": 3600.0},
        "delay": {},
        "parked": {"max_attempts": 1, "on_exhausted": OnExhausted.PARK},
        "blocked": {"max_attempts": 1, "on_exhausted": OnExhausted.BLOCK},
    }
    group = await opened.group("t", None, **by_cause[stands_by])
    group.records.batches.cache.max_bytes = 0  # Else what was read shortly before is still served.
    run = GroupRun(opened, group, await group.connect(hello()), ())
    await append(
        opened, [KEY], 0, [(NOT_BEFORE, b"%d" % (int(time.time() * 1000) + HOUR_MS))] if stands_by == "delay" else ()
    )
    if stands_by == "session":
        session = group.queue.sessions.open("w", KEY, 5, group.moment())
        await until(lambda: group.queue.position(0) == 1)
        assert session is not None
        for attempt in range(2):
            [granted] = group.queue.sessions.take(session, group.moment())
            if attempt == 0:
                receipt = granted.first_receipt
                assert group.queue.settle("w", Settlement(nacks=[Nack(receipt, receipt)]), group.moment()) == []
                group.queue.tick(group.moment())
        await group._commits.synced(None)
    elif stands_by != "delay":
        [(receipt, _)] = await take(run.link, 1)
        assert await run.link.settle(Settlement(nacks=[Nack(receipt, receipt)])) == []
    return run


async def happen(run: GroupRun, what: str) -> None:
    """Do what empties the index in the same run of the broker."""
    group = run.group
    if what == "rewind":
        await group.operations.rewind(StartAt(offset=0), [1])
    elif what == "alter":
        await run.opened.groups.alter("g", {"priority": Priority.STRICT})


async def let_go_on(run: GroupRun) -> None:
    await until(lambda: run.group.queue.position(0) == run.facts().high_watermark)
    if run.group.inspector.lane(KEY).state in HELD:
        await run.group.operations.resume(LaneName(key=KEY))


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("scanned", [True, False], ids=["scanned", "not scanned"])
@pytest.mark.parametrize("what", HAPPENS)
@pytest.mark.parametrize("stands_by", STANDS_BY)
async def test_nothing_of_a_lane_that_stands_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stands_by: str, what: str, scanned: bool
) -> None:
    async with shell(tmp_path, crash=what == "kill") as opened:
        run = await run_with_a_head_that_stands(opened, stands_by)
        if not scanned:
            monkeypatch.setattr(Scanner, "_scan_some", scan_nothing)
        for number in range(1, COUNT):
            await append(opened, [KEY, b"a", b"b", b"c"], number)
        await happen(run, what)
        if what in ("nothing", "rewind", "alter"):
            await retention_takes_its_part(run, scanned)
    if what in ("start", "kill"):
        async with shell(tmp_path) as opened:
            await retention_takes_its_part(await again(opened), scanned)
    monkeypatch.undo()
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await let_go_on(run)
        found: list[int] = []
        run.link.add_credit(1000)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(found) < COUNT:
                delivered = await run.link.next_deliveries()
                found += [int(record.value or b"") for record in records(delivered) if record.key == KEY]
                first = delivered.first_receipt
                assert await run.link.settle(Settlement(acks=[(first, first + delivered.count - 1)])) == []
        assert found == list(range(COUNT))


async def retention_takes_its_part(run: GroupRun, scanned: bool) -> None:
    queue = run.group.queue
    if scanned and not queue.draining:
        await until(lambda: queue.admission.generation and queue.position(0) == run.facts().high_watermark)
    await run.retain()
    assert run.facts().log_start_offset > 20, "retention waits"
    assert run.facts().size_bytes <= MOST_BYTES, "the log grows"
