"""The description of a queue group: its settings, numbers, workers and partitions."""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec

from logbroker.engine import LogEngine
from logbroker.errors import LogbrokerError
from logbroker.pacing import Pace, Steps, in_large_steps, in_turns
from logbroker.queues.group import QueueGroup
from logbroker.queues.machine.inspect import Alarm, Counts
from logbroker.queues.model.messages import DeliveryCounts, PriorityCounts
from logbroker.queues.model.settings import QueueGroupSettings
from logbroker.queues.model.splits import Split
from logbroker.queues.model.starts import UNSEEN_END
from logbroker.record.bands import Band
from logbroker.types import TopicId

# Steps of a `Pace`:
DESCRIBED_STEPS: Final = 200
"""Cost of describing a queue group without its lists."""
PARTITION_STEPS: Final = 7
MAX_SPLITS: Final = 100
"""Maximum number of splits in one description."""


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that is connected, or may still come back."""

    worker_id: str
    client_name: str
    in_flight: int
    credit: int
    sessions: int
    connected: bool
    band: Band | None
    """Band whose records the worker takes; None: it takes all records."""


class PartitionProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A queue group's progress in a partition. An offset that is not known yet is -1."""

    partition: int
    floor: int
    """Offset below which all records are done."""
    scanned: int
    end: int
    """The high watermark."""
    done: int
    """Number of offsets below `end` that are done, those below the floor and absent ones included; -1: the floor is not
    known."""
    error: LogbrokerError | None
    """Error that prevents reading records of the partition; None: none is known."""


class SplitReport(msgspec.Struct, frozen=True, kw_only=True):
    """A lane that is split, is being split, or is being joined."""

    split: Split
    state: str
    waiting: int
    """Number of records that wait in the sub-lanes."""


class QueueGroupReport(msgspec.Struct, frozen=True, kw_only=True):
    """A queue group at one moment."""

    group_id: str
    topic_id: TopicId
    settings: QueueGroupSettings
    state: str
    counts: Counts
    tally: DeliveryCounts
    delivered: int
    dead_lettered: int
    alarms_raised: int
    obstacle: str
    """See `QueueGroup.obstacle`."""
    unscanned: int
    """Approximate number of records that are not scanned yet."""
    copied_bytes: int
    removed: int
    """Approximate number of records that are not done and no longer in the log; copied ones do not count."""
    unsent_outputs: int
    """Number of settlements whose outputs are not all appended yet."""
    workers: list[WorkerReport]
    partitions: list[PartitionProgress]
    alarms: list[Alarm]
    priorities: list[PriorityCounts]
    splits: list[SplitReport]


async def describe_group(engine: LogEngine, group: QueueGroup, pace: Pace, wait_seconds: float) -> QueueGroupReport:
    """Wait up to `wait_seconds` for the scan, then describe a queue group. All numbers are of one moment, unless there
    are very many lanes or partitions. Raises UnknownGroupError if the group is deleted before the end."""
    await group.catch_up(wait_seconds)
    described = await in_turns(in_large_steps(_describe(engine, group)), pace)
    await pace.step(DESCRIBED_STEPS + len(described.workers) + PARTITION_STEPS * len(described.partitions))
    return described


def _describe(engine: LogEngine, group: QueueGroup) -> Steps[QueueGroupReport]:
    queue = group.queue
    alarms = yield from group.alarms.checking()
    done = yield from queue.done.count()
    partitions: list[PartitionProgress] = []
    copied_bytes = removed = 0
    for partition in group.partitions():
        partitions.append(_partition(engine, group, partition, done.get(partition, 0)))
        copied_bytes += group.hold.copies.size_bytes(partition)
        removed += yield from group.hold.count_removed(partition)
        yield PARTITION_STEPS + 1
    unscanned = yield from group.scanner.count_unscanned()
    workers: list[WorkerReport] = []
    for link in list(group.links.values()):
        worker = queue.deliveries.worker(link.worker_id)
        workers.append(
            WorkerReport(
                worker_id=link.worker_id,
                client_name=link.client_name,
                in_flight=worker.in_flight,
                credit=link.pull.credit,
                sessions=len(worker.sessions),
                connected=link.connected,
                band=link.pull.band,
            )
        )
        yield 2
    splits: list[SplitReport] = []
    for split in islice(list(queue.splits), MAX_SPLITS):
        state, waiting = queue.splitting.state_of(split.key), queue.splitting.waiting(split)
        splits.append(SplitReport(split=split, state=state, waiting=waiting))
        yield 1 + split.into // 8
    counts = yield from group.inspector.count_lanes()
    return QueueGroupReport(
        group_id=group.group_id,
        topic_id=group.topic_id,
        settings=group.latest_settings,
        state=group.state(unscanned),
        obstacle=group.obstacle,
        counts=counts,
        tally=msgspec.structs.replace(queue.tally),
        delivered=group.dispatcher.line.delivered,
        dead_lettered=group.dead_lettering.sent,
        alarms_raised=group.alarms.raised,
        unscanned=unscanned,
        copied_bytes=copied_bytes,
        removed=removed,
        unsent_outputs=len(queue.outbox),
        workers=workers,
        partitions=partitions,
        alarms=alarms,
        priorities=list(queue.priority_counts()),
        splits=splits,
    )


def _partition(engine: LogEngine, group: QueueGroup, partition: int, done: int) -> PartitionProgress:
    floor, scanned, end = group.queue.done.floor(partition), group.queue.position(partition), -1
    if floor >= UNSEEN_END:
        floor = scanned = done = -1
    error: LogbrokerError | None = group.scanner.stopped.get(partition)
    if error is None and (unread := group.queue.stalled.read_failures.by_partition.get(partition)) is not None:
        error = unread.error
    try:
        end = engine.partition_facts(group.topic_id, partition).high_watermark
        if error is None and scanned < end:
            error = group.scanner.held_back(partition)
    except LogbrokerError as unknown:
        error = unknown.as_value()
    # `done` may be counted at another moment than `floor` and `end`: see `describe_group`.
    done = max(floor, done if end < 0 else min(done, end))
    return PartitionProgress(partition=partition, floor=floor, scanned=scanned, end=end, done=done, error=error)
