"""Conversion of settings and numbers of queue groups to and from messages. No I/O."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from logbroker.engine import LogEngine, Topic
from logbroker.errors import InvalidRequestError, LogbrokerError, quoted
from logbroker.grpc_api.groups.messages import topic_name
from logbroker.grpc_api.status import Statuses
from logbroker.pacing import Pace
from logbroker.queues.description import QueueGroupReport, WorkerReport, describe_group
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.record_id import MAX_PARTITIONS
from logbroker.queues.model.redrive_ends import RedriveEnds
from logbroker.queues.model.settings import (
    OnExhausted,
    OnUndecodable,
    Ordering,
    Priority,
    PriorityRank,
    QueueGroupSettings,
)
from logbroker.queues.model.starts import Rewound, StartAt
from logbroker.v1 import queues_pb2 as pb

MAX_ALARMS: Final = 100
"""Maximum number of alarms in one answer."""

_CHOICES: Final[dict[str, type[enum.Enum]]] = {
    "ordering": Ordering,
    "on_exhausted": OnExhausted,
    "on_undecodable": OnUndecodable,
    "priority": Priority,
    "priority_rank": PriorityRank,
}


def read_settings(message: pb.QueueSettings) -> dict[str, Any]:
    """Return the settings in a message, by name. Raises InvalidRequestError for an unknown word. The queue group checks
    the limits of numbers."""
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
    """Return the settings for a new queue group. Raises as `read_settings`."""
    given = read_settings(message)
    if topic.config.priority_bands and given.get("ordering") is not Ordering.SINGLE:
        given.setdefault("priority", Priority.STRICT)
    settings = QueueGroupSettings(**given)
    check_age(given, settings.priority)
    return settings


def check_age(given: Mapping[str, Any], priority: Priority) -> None:
    """Raise InvalidRequestError if `age_seconds` is given with a priority other than ageing."""
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


def read_redrive_ends(message: pb.LetterEnds) -> RedriveEnds:
    """Return the ends in a message. Raises InvalidRequestError."""
    if len(message.offsets) > MAX_PARTITIONS:
        raise InvalidRequestError(
            f"`until` has {len(message.offsets):,} offsets, and a topic has {MAX_PARTITIONS:,} partitions at most"
        )
    if message.offsets and min(message.offsets) < 0:
        raise InvalidRequestError(f"`until` has the offset {min(message.offsets)}: ends of partitions are 0 or more")
    return RedriveEnds(message.topic_id, list(message.offsets))


async def described_queue(engine: LogEngine, group: QueueGroup, pace: Pace, wait_seconds: float) -> pb.DescribedQueue:
    """Describe a queue group as a message; see `describe_group`."""
    described = await describe_group(engine, group, pace, wait_seconds)
    statuses = Statuses()
    return pb.DescribedQueue(
        group_id=described.group_id,
        topic=topic_name(engine, described.topic_id),
        topic_id=described.topic_id,
        settings=settings_message(described.settings),
        counts=_counts(described),
        workers=[_worker(worker) for worker in described.workers],
        partitions=[
            pb.QueuePartition(
                partition=each.partition,
                floor=each.floor,
                scanned=each.scanned,
                end=each.end,
                done=each.done,
                status=None if each.error is None else statuses.of(each.error),
            )
            for each in described.partitions
        ],
        alarms=[
            pb.Alarm(kind=alarm.kind.value, key=alarm.key, message=alarm.message)
            for alarm in described.alarms[:MAX_ALARMS]
        ],
        state=described.state,
        obstacle=described.obstacle,
        priorities=[
            pb.PriorityCounts(
                priority=counted.priority,
                waiting=counted.waiting,
                oldest_timestamp_ms=-1 if counted.oldest_timestamp_ms is None else counted.oldest_timestamp_ms,
                delivered=counted.delivered,
                overtaken=counted.overtaken,
            )
            for counted in described.priorities
        ],
        splits=[
            pb.DescribedSplit(
                key=each.split.key,
                split=pb.LaneSplit(by=str(each.split.second), into=each.split.into),
                since_ms=each.split.since_ms,
                automatic=each.split.is_automatic,
                state=each.state,
                waiting=each.waiting,
            )
            for each in described.splits
        ],
    )


def _worker(worker: WorkerReport) -> pb.DescribedWorker:
    message = pb.DescribedWorker(
        worker_id=worker.worker_id,
        client_name=worker.client_name,
        in_flight=worker.in_flight,
        credit=worker.credit,
        sessions=worker.sessions,
        connected=worker.connected,
    )
    if (band := worker.band) is not None:
        message.band = band.name
        message.lowest_priority, message.highest_priority = band.lowest_priority, band.highest_priority
    return message


def _counts(described: QueueGroupReport) -> pb.QueueCounts:
    counts, tally = described.counts, described.tally
    return pb.QueueCounts(
        open=counts.open,
        ready=counts.ready,
        in_flight=counts.in_flight,
        parked=counts.parked,
        unscanned=described.unscanned,
        lanes=counts.lanes,
        held_lanes=counts.held_lanes,
        blocked_lanes=counts.blocked_lanes,
        parked_lanes=counts.parked_lanes,
        moving_lanes=counts.moving_lanes,
        sessions=counts.sessions,
        delivered=described.delivered,
        acked=tally.acked,
        nacked=tally.nacked,
        dead_lettered=described.dead_lettered,
        leases_lost=tally.leases_lost,
        alarms_raised=described.alarms_raised,
        expired=tally.expired,
        refused_letters=counts.refused_letters,
        copied_bytes=described.copied_bytes,
        removed=described.removed,
        unsent_outputs=described.unsent_outputs,
    )


def rewound_partition(partition: int, outcome: Rewound | LogbrokerError, statuses: Statuses) -> pb.RewoundPartition:
    if isinstance(outcome, LogbrokerError):
        return pb.RewoundPartition(partition=partition, floor_before=-1, floor=-1, status=statuses.of(outcome))
    return pb.RewoundPartition(
        partition=partition,
        floor_before=outcome.floor_before,
        floor=outcome.floor,
        standing_records=outcome.standing_records,
        skipped_records=outcome.skipped_records,
        unreadable_records=outcome.unreadable_records,
    )
