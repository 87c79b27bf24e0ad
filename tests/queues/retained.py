"""A queue group whose topic is short of room, and what is left of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from logbroker.engine import PartitionFacts
from logbroker.queues.delivery.worker_stream import WorkerLink
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.messages import Nack, Settlement
from logbroker.queues.operations import LaneName
from tests.queues.shell import DEADLINE_SECONDS, Shell, hello, records, until

SEGMENT_BYTES = 2_000
KEPT_BYTES = 4_000
HOLD_BYTES = 20_000
CONFIGS = {
    "segment.bytes": str(SEGMENT_BYTES),
    "retention.bytes": str(KEPT_BYTES),
    "retention.hold.bytes": str(HOLD_BYTES),
    "retention.ms": "-1",
}
COPIES = "__queue.g"
KEYS = [b"blocked", *(b"k%d" % number for number in range(6)), b"other"]
"""In the order of the records of each batch."""


class GroupRun:
    """One run of a broker with the group `g`, and a worker that fails the records of some keys."""

    def __init__(self, opened: Shell, group: QueueGroup, link: WorkerLink, failing: Iterable[bytes | None]) -> None:
        self.opened = opened
        self.group = group
        self.link = link
        self.failing = set(failing)
        self.done: dict[bytes | None, list[int]] = {}
        """The numbers of the records that were acknowledged, by key."""

    async def write(self, keys: Sequence[bytes | None], numbers: Iterable[int], partition: int = 0) -> None:
        """Append a batch with a record of each key, for each number."""
        for number in numbers:
            await self.opened.append(*((key, b"%0180d" % number) for key in keys), partition=partition)

    async def work(self, count: int) -> None:
        """Acknowledge or fail what comes, until so many records are acknowledged."""
        while count > 0:
            count -= await self.work_once()

    async def work_once(self) -> int:
        """Acknowledge or fail one message full of records; return how many were acknowledged."""
        self.link.add_credit(100)
        async with asyncio.timeout(DEADLINE_SECONDS):
            delivered = await self.link.next_deliveries()
        acks: list[tuple[int, int]] = []
        nacks: list[Nack] = []
        for receipt, record in enumerate(records(delivered), delivered.first_receipt):
            if record.key in self.failing:
                nacks.append(Nack(receipt, receipt))
            else:
                acks.append((receipt, receipt))
                self.done.setdefault(record.key, []).append(int(record.value or b""))
        assert await self.link.settle(Settlement(acks=acks, nacks=nacks)) == []
        return len(acks)

    async def look(self) -> None:
        """Retention looks once, and the group does what it is asked to."""
        await self.opened.engine._upkeep.apply_retention()
        task = self.group.hold._task
        if task is not None:
            await asyncio.wait([task])
            task.result()

    async def retain(self) -> None:
        """Retention looks until all is gone that is to go."""
        await self.look()
        await self.look()

    def facts(self, topic: str = "t", partition: int = 0) -> PartitionFacts:
        return self.opened.engine.partition_facts(self.opened.engine.topic(topic).id, partition)

    def copied(self, partition: int = 0) -> list[int]:
        """The offsets in order of which the group has copies, first and last of each batch."""
        return [
            offset
            for last, batch in self.group.hold.copies.batches(partition)
            for offset in ((batch.first, last) if batch.first < last else (last,))
        ]

    async def resume(self, *keys: bytes) -> None:
        """Let these lanes that stand go on; all of them where none is named."""
        for lane in self.group.inspector.held():
            if not keys or lane.key in keys:
                await self.group.operations.resume(LaneName(lane.key, lane.head))


async def begin(opened: Shell, failing: Iterable[bytes | None], partitions: int = 1, **settings: Any) -> GroupRun:
    """Create a topic and the group, whose records fail once and for all."""
    await opened.engine.create_topic("t", partitions, CONFIGS)
    group = await opened.group("t", None, **{"max_attempts": 1, **settings})
    return GroupRun(opened, group, await group.connect(hello()), failing)


async def again(opened: Shell, failing: Iterable[bytes | None] = ()) -> GroupRun:
    """Go on with the group in another run of the broker."""
    group = opened.groups.group("g")
    return GroupRun(opened, group, await group.connect(hello(incarnation=2)), failing)


async def all_held(run: GroupRun, records: int) -> None:
    held = run.group.inspector.held
    await until(lambda: sum(map(len, held())) == records)
