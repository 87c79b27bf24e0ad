"""What an operator does to a queue group that needs its log: begin elsewhere, and put another record in one's place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from logbroker.engine import LogEngine, ReadableLog
from logbroker.errors import InvalidRequestError, LaneNotHeldError, LogbrokerError, UnknownLaneError
from logbroker.queues.lane import NO_PLACE, Lane
from logbroker.queues.operator import Operator
from logbroker.queues.places import Moment, offset_of
from logbroker.queues.queue import Queue
from logbroker.queues.records import Records
from logbroker.queues.starts import Rewound, StartAt
from logbroker.record.codec import LogRecord, NewRecord
from logbroker.types import TopicId


async def rewind(
    queue: Queue,
    engine: LogEngine,
    log: ReadableLog,
    moment: Callable[[], Moment],
    start: StartAt,
    partitions: Sequence[int] | None,
    *,
    include_parked: bool,
    dry_run: bool,
) -> list[Rewound | LogbrokerError]:
    """See `QueueGroup.rewind`; `log` is the topic as the group reads it."""
    numbers = sorted(queue.done.partitions()) if partitions is None else partitions
    found = await start.offsets(engine, log, TopicId(queue.topic_id), numbers)
    targets = {partition: target for partition, target in found.items() if isinstance(target, int)}
    for partition in targets:
        queue.open_partition(partition, 0)  # The topic may have grown a moment ago.
    before = {partition: queue.done.floor(partition) for partition in targets}
    if targets and not dry_run:
        queue.rewind(targets, moment(), include_parked=include_parked)
    return [
        Rewound(partition, before[partition], target) if isinstance(target, int) else target
        for partition, target in found.items()
    ]


async def replace_head(
    queue: Queue, records: Records, operator: Operator, find: Callable[[Operator], Lane], new: NewRecord
) -> None:
    """See `QueueGroup.replace_head`."""
    head = find(operator).head
    if head == NO_PLACE:
        raise UnknownLaneError("no record of the lane is scanned yet: try again later")
    [old] = await records.fetch([head])
    if isinstance(old, LogRecord):
        if new.key is not None and new.key != old.key:
            raise InvalidRequestError("the record has another key than the head of the lane: leave it out, or give its")
        key, timestamp_ms = old.key, old.timestamp_ms
    else:
        key, timestamp_ms = new.key, -1  # That it cannot be read may be why it is replaced.
    lane = find(operator)
    if lane.head != head:
        raise LaneNotHeldError("the lane has gone on meanwhile: look at it again")
    if new.timestamp_ms is not None:
        timestamp_ms = new.timestamp_ms
    operator.replace_head(lane, LogRecord(offset_of(head), timestamp_ms, key, new.value, new.headers))
