"""Settings and numbers of queue groups as messages. No I/O."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from logbroker.engine import LogEngine, Topic
from logbroker.errors import InvalidRequestError, LogbrokerError, quoted
from logbroker.grpc_api.groups.messages import topic_name
from logbroker.grpc_api.status import Statuses
from logbroker.pacing import Pace, Steps, in_large_steps, in_turns
from logbroker.queues.group import QueueGroup
from logbroker.queues.machine.inspect import Counts
from logbroker.queues.model.settings import (
    OnExhausted,
    OnUndecodable,
    Ordering,
    Priority,
    PriorityRank,
    QueueGroupSettings,
)
from logbroker.queues.model.starts import UNSEEN_END, Rewound, StartAt
from logbroker.types import TopicId
from logbroker.v1 import queues_pb2 as pb

MAX_ALARMS: Final = 100
"""That one answer tells of."""

# Of a `Pace`:
DESCRIBED_STEPS: Final = 200
"""What describing a queue group takes beside its lists."""
PARTITION_STEPS: Final = 6

_CHOICES: Final[dict[str, type[enum.Enum]]] = {
    "ordering": Ordering,
    "on_exhausted": OnExhausted,
    "on_undecodable": OnUndecodable,
    "priority": Priority,
    "priority_rank": PriorityRank,
}


def read_settings(message: pb.QueueSettings) -> dict[str, Any]:
    """Return the settings that a message gives, by name. Raises InvalidRequestError for an unknown word; bounds are
    checked by the queue group."""
    return {field.name: _setting(field.name, value) for field, value in message.ListFields()}


def _setting(name: str, value: Any) -> Any:
    choices = _CHOICES.get(name)
    if choices is None:
        return dict(value) if name == "weights" else value
    try:
        return choices(value)
    except ValueError:
        words = " or ".join(choice.value for choice in choices)
        raise InvalidRequestError(f"{name} takes {words}, not {quoted(value)}") from None


def new_settings(message: pb.QueueSettings, topic: Topic) -> QueueGroupSettings:
    """Return the settings of a queue group that is to be created. Raises as `read_settings`."""
    given = read_settings(message)
    if topic.config.priority_bands and given.get("ordering") is not Ordering.SINGLE:
        given.setdefault("priority", Priority.STRICT)
    settings = QueueGroupSettings(**given)
    check_age(given, settings.priority)
    return settings


def check_age(given: Mapping[str, Any], priority: Priority) -> None:
    """Raises InvalidRequestError where `age_seconds` is given, and nothing ages."""
    if "age_seconds" in given and priority is not Priority.AGEING:
        raise InvalidRequestError(
            f"age_seconds is of no use with priority {priority.value}: set ageing, or leave it out"
        )


def settings_message(settings: QueueGroupSettings) -> pb.QueueSettings:
    values = msgspec.structs.asdict(settings)
    return pb.QueueSettings(
        **{name: value.value if isinstance(value, enum.Enum) else value for name, value in values.items()}
    )


def read_start(message: pb.StartAt) -> StartAt:
    kind = message.WhichOneof("at")
    return StartAt(
        latest=message.latest,
        timestamp_ms=message.timestamp_ms if kind == "timestamp_ms" else None,
        offset=message.offset if kind == "offset" else None,
    )


async def described_queue(engine: LogEngine, group: QueueGroup, pace: Pace, wait_seconds: float) -> pb.DescribedQueue:
    """Looks at all lanes that are blocked or parked, and at all partitions; all that is told is of one moment, where
    these are not very many. Waits so long for the scan. Raises UnknownGroupError where the group goes meanwhile."""
    await group.scanner.catch_up(wait_seconds)
    described = await in_turns(in_large_steps(_describe(engine, group)), pace)
    await pace.step(DESCRIBED_STEPS + len(described.workers) + PARTITION_STEPS * len(described.partitions))
    return described


def _describe(engine: LogEngine, group: QueueGroup) -> Steps[pb.DescribedQueue]:
    queue = group.queue
    topic_id = TopicId(queue.topic_id)
    alarms = yield from group.alarms.checking()
    statuses = Statuses()
    partitions: list[pb.QueuePartition] = []
    copied_bytes = 0
    for partition in sorted(queue.done.partitions()):
        partitions.append(_partition(engine, group, topic_id, partition, statuses))
        copied_bytes += group.hold.copies.size_bytes(partition)
        yield PARTITION_STEPS + 1
    unscanned = yield from group.scanner.count_unscanned()
    workers: list[pb.DescribedWorker] = []
    for link in list(group.links.values()):
        worker = queue.deliveries.worker(link.worker_id)
        workers.append(
            pb.DescribedWorker(
                worker_id=link.worker_id,
                client_name=link.client_name,
                in_flight=worker.in_flight,
                credit=link.seat.credit,
                sessions=len(worker.sessions),
                connected=link.connected,
            )
        )
        yield 2
    counts = yield from group.operator.count_lanes()
    return pb.DescribedQueue(
        group_id=group.group_id,
        topic=topic_name(engine, topic_id),
        topic_id=topic_id,
        settings=settings_message(queue.latest_settings),
        counts=_counts(group, counts, unscanned, copied_bytes),
        workers=workers,
        partitions=partitions,
        alarms=[pb.Alarm(kind=alarm.kind.value, key=alarm.key, message=alarm.message) for alarm in alarms[:MAX_ALARMS]],
        state=queue_state(group),
        priorities=[
            pb.PriorityCounts(
                priority=counted.priority,
                waiting=counted.waiting,
                oldest_timestamp_ms=-1 if counted.oldest_timestamp_ms is None else counted.oldest_timestamp_ms,
                delivered=counted.delivered,
                overtaken=counted.overtaken,
            )
            for counted in queue.priority_counts()
        ],
    )


def queue_state(group: QueueGroup) -> str:
    if group.has_failed:
        return "failed"
    if group.queue.draining:
        return "draining"
    if group.reserved:
        return "waiting"
    if not group.queue.settings.has_priorities:
        return "serving"
    if not group.queue.wants_more:
        return "paused"
    return "indexing" if group.scanner.is_indexing else "serving"


def _counts(group: QueueGroup, counts: Counts, unscanned: int, copied_bytes: int) -> pb.QueueCounts:
    queue = group.queue
    return pb.QueueCounts(
        open=counts.open,
        ready=counts.ready,
        in_flight=counts.in_flight,
        parked=counts.parked,
        unscanned=unscanned,
        lanes=counts.lanes,
        held_lanes=counts.held_lanes,
        blocked_lanes=counts.blocked_lanes,
        parked_lanes=counts.parked_lanes,
        sessions=counts.sessions,
        delivered=group.handouts.line.delivered,
        acked=queue.tally.acked,
        nacked=queue.tally.nacked,
        dead_lettered=group.dead_lettering.sent,
        leases_lost=queue.tally.leases_lost,
        alarms_raised=group.alarms.raised,
        expired=group.queue.tally.expired,
        refused_letters=counts.refused_letters,
        copied_bytes=copied_bytes,
    )


def _partition(
    engine: LogEngine, group: QueueGroup, topic_id: TopicId, partition: int, statuses: Statuses
) -> pb.QueuePartition:
    floor, scanned = group.queue.done.floor(partition), group.queue.position(partition)
    if floor >= UNSEEN_END:
        floor = scanned = -1
    described = pb.QueuePartition(partition=partition, floor=floor, scanned=scanned, end=-1)
    error: LogbrokerError | None = group.scanner.stopped.get(partition)
    try:
        described.end = engine.partition_facts(topic_id, partition).high_watermark
    except LogbrokerError as unknown:
        error = unknown.as_value()
    if error is not None:
        described.status.CopyFrom(statuses.of(error))
    return described


def rewound_partition(partition: int, outcome: Rewound | LogbrokerError, statuses: Statuses) -> pb.RewoundPartition:
    if isinstance(outcome, LogbrokerError):
        return pb.RewoundPartition(partition=partition, floor_before=-1, floor=-1, status=statuses.of(outcome))
    return pb.RewoundPartition(
        partition=partition,
        floor_before=outcome.floor_before,
        floor=outcome.floor,
        standing_records=outcome.standing_records,
    )
