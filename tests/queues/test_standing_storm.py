"""Anything in any order beside retention, and a plain model of what must not be lost: what stood whenever it came."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from logbroker.engine import Append, Appended
from logbroker.errors import LogbrokerError
from logbroker.queues.model.messages import Nack, Settlement
from logbroker.queues.model.settings import OnExhausted, PriorityRank
from logbroker.queues.model.starts import StartAt
from logbroker.queues.operations import LaneName
from logbroker.queues.scan.scanner import Scanner
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.message_headers import NOT_BEFORE
from tests.queues.retained import GroupRun
from tests.queues.shell import Shell, hello, records, shell, until
from tests.queues.test_standing import CONFIGS, HOUR_MS

STEPS = 40
SEEDS = range(8)
"""The name of a test tells its seed."""
KEYS = [b"a", b"b", b"c", b"d"]


class Storm:
    """A group, and what is known of its records by their offsets in partition 0."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rng = random.Random(seed)
        self.scans = True
        self.keys: dict[int, bytes] = {}
        self.delayed: set[int] = set()
        self.done: set[int] = set()
        self.failed: set[int] = set()
        """And are not done; while one of them is there, its lane stands."""
        self.lost: set[int] = set()
        """Records that may be lost: they did not stand when retention came."""
        self.in_flight: dict[int, int] = {}
        """Receipts, by offset."""
        self.run: GroupRun
        self.incarnation = 0
        scan_some = Scanner._scan_some

        async def scan_if_allowed(scanner: Scanner, partition: int) -> None:
            if self.scans:
                await scan_some(scanner, partition)

        monkeypatch.setattr(Scanner, "_scan_some", scan_if_allowed)

    # --- what happens ------------------------------------------------------------------------------------------------

    async def begin(self, opened: Shell) -> None:
        self.incarnation += 1
        group = opened.groups.group("g")
        group.records.batches.cache.max_bytes = 0  # Else what was read shortly before is still served.
        self.in_flight.clear()
        self.run = GroupRun(opened, group, await group.connect(hello(incarnation=self.incarnation)), ())

    async def write(self) -> None:
        for _ in range(self.rng.randint(1, 6)):
            numbers = range(len(self.keys), len(self.keys) + self.rng.randint(1, 4))  # Their offsets, too.
            batch = [NewRecord(value=b"%0200d" % number, key=self.rng.choice(KEYS)) for number in numbers]
            due = [self.rng.random() < 0.05 for _ in batch]
            for record, is_due in zip(batch, due, strict=True):
                if is_due:
                    record.headers = [(NOT_BEFORE, b"%d" % (int(time.time() * 1000) + HOUR_MS))]
            engine = self.run.opened.engine
            [result] = await engine.append([Append(engine.topic("t").id, 0, encode_batch(batch))])
            assert isinstance(result, Appended), result
            assert result.base_offset == numbers[0]
            self.delayed.update(number for number, is_due in zip(numbers, due, strict=True) if is_due)
            self.keys.update((number, record.key or b"") for number, record in zip(numbers, batch, strict=True))

    async def take(self) -> None:
        """Take some, and settle all but some of what is in flight."""
        delivered = await self.run.group.receive("w", self.rng.randint(1, 5), 0.0)
        for each in delivered:
            for receipt, record in enumerate(records(each), each.first_receipt):
                self.in_flight[int(record.value or b"")] = receipt
        for offset, receipt in list(self.in_flight.items()):
            await self.settle(offset, receipt, self.rng.choice(["ack", "ack", "fail", "fail for long", "keep"]))

    async def settle(self, offset: int, receipt: int, how: str) -> None:
        if how == "keep":
            return
        delay = 3600.0 if how == "fail for long" else 0.0
        settlement = (
            Settlement(acks=[(receipt, receipt)])
            if how == "ack"
            else Settlement(nacks=[Nack(receipt, receipt, "bad", delay)])
        )
        del self.in_flight[offset]
        if await self.run.link.settle(settlement) == []:
            (self.done if how == "ack" else self.failed).add(offset)
            self.failed -= self.done
            if self.is_copying:
                self.note_lost()

    async def hold_a_session(self) -> None:
        """Its first record fails, and is in flight again."""
        group, key = self.run.group, self.rng.choice(KEYS)
        try:
            session = group.queue.sessions.open("w", key, 2, group.moment())
        except LogbrokerError:
            return
        for _ in range(2):
            for granted in group.queue.sessions.take(session, group.moment()) if session is not None else ():
                for receipt, record_id in zip(granted.receipts(), granted.record_ids, strict=True):
                    self.in_flight[record_id] = receipt
                await self.settle(granted.record_ids[0], granted.first_receipt, "fail")
                for record_id in list(granted.record_ids)[1:]:
                    del self.in_flight[record_id]
            group.queue.tick(group.moment())
            await group.settle("w", Settlement())

    async def stop_or_go_on_scanning(self) -> None:
        self.scans = not self.scans

    async def retain(self) -> None:
        """Retention looks; what the group does then, it does beside what follows, or not."""
        self.note_lost()
        if self.rng.random() < 0.5:
            await self.run.opened.engine._upkeep.apply_retention()
            self.note_lost()
        else:
            await self.run.look()

    def note_lost(self) -> None:
        """Note the records that retention may take, as they do not stand."""
        stands = {self.keys[offset] for offset in self.failed - self.lost}
        waits: set[bytes] = set()
        for offset in sorted(self.keys):
            if offset in self.done:
                continue
            key = self.keys[offset]
            if offset in self.delayed and offset not in self.lost:
                waits.add(key)
            if key not in stands and key not in waits:
                self.lost.add(offset)

    @property
    def is_copying(self) -> bool:
        task = self.run.group.hold._task
        return task is not None and not task.done()

    async def look_elsewhere(self) -> None:
        await self.run.group.operations.rewind(StartAt(offset=0), [1])
        self.in_flight.clear()

    async def alter(self) -> None:
        rank = self.rng.choice(list(PriorityRank))
        await self.run.opened.groups.alter("g", {"priority_rank": rank})

    # --- the end -----------------------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """All that is left comes, each lane in its order."""
        self.scans = True
        group = self.run.group
        await group.operations.rewind(StartAt(offset=0), [1])
        queue = group.queue
        await until(lambda: queue.admission.generation and queue.position(0) == self.run.facts().high_watermark)
        found: list[int] = []

        while queue.open_records:
            for key in KEYS:
                with suppress(LogbrokerError):
                    await group.operations.resume(LaneName(key=key))
            for delivered in await group.receive("w", 100, 1.0):
                found += [int(record.value or b"") for record in records(delivered)]
                first = delivered.first_receipt
                await self.run.link.settle(Settlement(acks=[(first, first + delivered.count - 1)]))
        missing = set(self.keys) - self.done - self.lost - set(found)
        assert not missing, "lost"
        for key in KEYS:
            lane = [offset for offset in found if self.keys[offset] == key]
            assert lane == sorted(lane), "out of order"


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("seed", SEEDS)
async def test_what_stands_outlives_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    storm = Storm(seed, monkeypatch)
    acts: list[tuple[float, Callable[[], Awaitable[None]]]] = [
        (6, storm.write),
        (6, storm.take),
        (2, storm.hold_a_session),
        (2, storm.stop_or_go_on_scanning),
        (6, storm.retain),
        (1, storm.look_elsewhere),
        (1, storm.alter),
    ]
    async with shell(tmp_path) as opened:
        await opened.engine.create_topic("t", 2, CONFIGS)
        await opened.group(
            max_attempts=3,
            on_exhausted=storm.rng.choice([OnExhausted.BLOCK, OnExhausted.PARK]),
            backoff_initial_seconds=0.0,
            grace_seconds=0.0,
        )
    left = STEPS
    while left > 0:
        async with shell(tmp_path, crash=storm.rng.random() < 0.5) as opened:
            await storm.begin(opened)
            for _ in range(storm.rng.randint(5, 15)):
                [act] = storm.rng.choices([act for _, act in acts], [weight for weight, _ in acts])
                await act()
                if storm.is_copying:
                    storm.note_lost()
                left -= 1
    async with shell(tmp_path) as opened:
        await storm.begin(opened)
        await storm.finish()
