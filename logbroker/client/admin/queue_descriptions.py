"""Queue groups as an administrator sees and sets them."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from logbroker.client.runtime.arguments import check_fields
from logbroker.client.transport.status import error_of_item
from logbroker.errors import LogbrokerError
from logbroker.v1 import queues_pb2


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue group. None: the default or, where a group is altered, as it is."""

    ordering: str | None = None
    """none, key (the default) or single."""
    key_header: str | None = None
    """The header that holds the ordering key; empty: the record key is it."""
    lease_seconds: float | None = None
    max_attempts: int | None = None
    backoff_initial_seconds: float | None = None
    backoff_factor: float | None = None
    backoff_cap_seconds: float | None = None
    backoff_jitter: float | None = None
    """The share of a backoff that is drawn by lot."""
    on_exhausted: str | None = None
    """block (the default), dead-letter or park."""
    dead_letter_topic: str | None = None
    """By default the group's id and ".dead-letters"."""
    grace_seconds: float | None = None
    """How long a worker whose connection broke keeps what it held."""
    alarm_share: float | None = None
    """Alarm where one lane has more of what waits, and over 512 records; 1: never."""
    alarm_age_seconds: float | None = None
    """Alarm where a lane stands or fails for longer, or a record waits for longer, if only for a worker."""
    max_parked_records: int | None = None
    max_in_flight: int | None = None
    """Of one worker."""
    max_ready_records: int | None = None
    max_held_lanes: int | None = None
    max_delayed_records: int | None = None
    on_undecodable: str | None = None
    """stop (the default) or dead-letter."""
    priority: str | None = None
    """none, strict, weighted or ageing; by default strict where the topic has bands, else none."""
    priority_rank: str | None = None
    """How urgent an ordering key is: lane (as its most urgent record that waits, the default) or head."""
    age_seconds: float | None = None
    """With ageing: after so long a record counts as one level more urgent."""
    weights: dict[str, int] | None = None
    """With weighted, by the names of bands."""


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """A queue group in numbers. Of records, but for lanes and sessions."""

    open: int
    """Scanned and not done, of which:"""
    ready: int
    in_flight: int
    parked: int
    unscanned: int
    lanes: int
    held_lanes: int
    """Blocked, parked, waiting for a retry or a time, or for the dead-letter topic."""
    blocked_lanes: int
    parked_lanes: int
    sessions: int
    refused_letters: int
    """Records that the dead-letter topic does not take; each holds its lane, and `QueueAlarm`s say why."""
    copied_bytes: int
    """On disk: the copies of records that retention took while their lanes stand."""
    delivered: int
    """Since the broker started, as all that follow."""
    acked: int
    nacked: int
    dead_lettered: int
    leases_lost: int
    alarms_raised: int
    """Causes of alarm that arose; one that comes again counts again."""
    expired: int
    """Taken by retention before they were done, about."""


class WorkerDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One worker at one moment."""

    id: str
    client_name: str
    in_flight: int
    credit: int
    """How many deliveries it waits for."""
    sessions: int
    connected: bool


class QueuePartition(msgspec.Struct, frozen=True, kw_only=True):
    """How far a queue group is in one partition, by offsets."""

    partition: int
    floor: int
    """All records below it are done; -1 where the group is to begin at the end of a partition that is offline."""
    scanned: int
    end: int
    """The high watermark."""
    error: LogbrokerError | None = None
    """Why it is not served any more."""


class QueueAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody should look at."""

    kind: str
    """share, age, parked or letters (the dead-letter topic takes none, or not this one)."""
    key: bytes | None
    message: str


class PriorityDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one priority in a queue group with priorities."""

    priority: int
    waiting: int
    oldest_timestamp_ms: int | None
    """Of what could be handed out now; None: nothing could."""
    delivered: int
    """Since the broker started, as the next."""
    overtaken: int
    """How many times a more urgent record went before an older one of this priority."""


class QueueDescription(msgspec.Struct, frozen=True, kw_only=True):
    """All that the broker tells of a queue group."""

    id: str
    topic: str
    state: str
    """serving, draining (before another ordering), waiting (for the workers of before a crash), indexing (with
    priorities: `counts.unscanned` are to be looked through first) or paused (it looks through no more before some that
    are held or delayed are done); or failed: it stands until the broker starts again, whose log says why."""
    settings: QueueSettings
    counts: QueueCounts
    workers: tuple[WorkerDescription, ...]
    partitions: tuple[QueuePartition, ...]
    alarms: tuple[QueueAlarm, ...]
    priorities: tuple[PriorityDescription, ...]
    """The most urgent first; those that were met."""


class LaneDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One lane: why it stands, or that it does not."""

    key: bytes | None
    """None: a record without an ordering key, by itself."""
    state: str
    """ready, in flight, waiting, blocked, parked, dead-lettering, in session, idle (nothing of it waits), or not
    scanned (nothing of it waits as far as the log is scanned, which is not all of it)."""
    partition: int
    """Of its head, the first record that is not done, as the offset; -1: none is known."""
    offset: int
    waiting: int
    """Records, the head included."""
    attempt: int
    worker_id: str
    """Who holds it; empty: nobody."""
    due_in_ms: int | None
    """Until the lease or the session ends, or the lane is ready again."""
    oldest_timestamp_ms: int | None
    """Of the head."""
    first_failure_ms: int | None
    """Of the head or, where that is not None, of `cause`, as the next two."""
    last_failure_ms: int | None
    reasons: tuple[str, ...]
    session_token: int
    """0: in no session."""
    level: int | None
    """As how urgent it counts, 0 to 9; None: the queue group has no priorities."""
    refusal: str
    """Why the dead-letter topic does not take its head, and what to do; empty: it does, or is not asked to."""
    cause: tuple[int, int] | None = None
    """Partition and offset of the record that the lane was parked for, where a rewind put others before it."""
    cause_attempts: int = 0
    """How many attempts at it failed."""


LaneOrder = Literal["hottest", "oldest", "held", "waiting"]
Decision = Literal["resume", "skip", "drop"]


class DecidedAll(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a decision about all lanes that stand."""

    lanes: int
    """That it was carried out for."""
    records_done: int
    refused: int
    """Lanes that it was refused for."""
    why_refused: LogbrokerError | None
    """The first of these refusals."""


"""Those with the most records first; those with the oldest head first; only blocked and parked ones, and those
whose head the dead-letter topic refuses, the longest held first."""


class Redriven(msgspec.Struct, frozen=True, kw_only=True):
    """What was, or would be, sent back to where it came from."""

    records: int
    keys: int
    more: bool
    """Dead letters are left."""
    held: int = 0
    """Dead letters that their topic does not take, or that stay behind such a one of their key; another call tries
    them again."""
    why_held: str = ""
    """Why the first of them is, or why a part of the dead-letter topic cannot be read, and what to do."""


class RewoundPartition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a queue group was, and is, or would be, in one partition."""

    partition: int
    floor_before: int
    floor: int
    standing_records: int = 0
    """Of blocked and parked lanes, below the floor: they stay or, with `drop_standing`, count as done."""
    error: LogbrokerError | None = None


def settings_message(settings: QueueSettings) -> queues_pb2.QueueSettings:
    check_fields("settings", settings)
    return queues_pb2.QueueSettings(**msgspec.structs.asdict(settings))


def queue_description(queue: queues_pb2.DescribedQueue) -> QueueDescription:
    counts: dict[str, Any] = {name: getattr(queue.counts, name) for name in QueueCounts.__struct_fields__}
    return QueueDescription(
        id=queue.group_id,
        topic=queue.topic,
        state=queue.state,
        settings=_settings(queue.settings),
        counts=QueueCounts(**counts),
        workers=tuple(
            WorkerDescription(
                id=worker.worker_id,
                client_name=worker.client_name,
                in_flight=worker.in_flight,
                credit=worker.credit,
                sessions=worker.sessions,
                connected=worker.connected,
            )
            for worker in queue.workers
        ),
        partitions=tuple(
            QueuePartition(
                partition=partition.partition,
                floor=partition.floor,
                scanned=partition.scanned,
                end=partition.end,
                error=error_of_item(partition.status),
            )
            for partition in queue.partitions
        ),
        alarms=tuple(
            QueueAlarm(kind=alarm.kind, key=alarm.key if alarm.HasField("key") else None, message=alarm.message)
            for alarm in queue.alarms
        ),
        priorities=tuple(
            PriorityDescription(
                priority=counted.priority,
                waiting=counted.waiting,
                oldest_timestamp_ms=counted.oldest_timestamp_ms if counted.oldest_timestamp_ms >= 0 else None,
                delivered=counted.delivered,
                overtaken=counted.overtaken,
            )
            for counted in queue.priorities
        ),
    )


def _settings(message: queues_pb2.QueueSettings) -> QueueSettings:
    values: dict[str, Any] = {field.name: value for field, value in message.ListFields()}
    values["weights"] = dict(message.weights)
    return QueueSettings(**values)


class LaneList(NamedTuple):
    """Lanes of a queue group, in an order."""

    lanes: list[LaneDescription]
    total: int
    """How many there are of this kind."""
    incomplete: bool
    """Not all records are scanned, or some cannot be: lanes may be missing, and others have more than is told."""


def lane_description(lane: queues_pb2.Lane) -> LaneDescription:
    return LaneDescription(
        key=lane.key if lane.HasField("key") else None,
        state=lane.state,
        partition=lane.partition,
        offset=lane.offset,
        waiting=lane.waiting,
        attempt=lane.attempt,
        worker_id=lane.worker_id,
        due_in_ms=lane.due_in_ms if lane.HasField("due_in_ms") else None,
        oldest_timestamp_ms=lane.oldest_timestamp_ms if lane.oldest_timestamp_ms >= 0 else None,
        first_failure_ms=lane.first_failure_ms or None,
        last_failure_ms=lane.last_failure_ms or None,
        reasons=tuple(lane.reasons),
        session_token=lane.session_token,
        level=lane.level if lane.HasField("level") else None,
        refusal=lane.refusal,
        cause=(lane.cause.partition, lane.cause.offset) if lane.HasField("cause") else None,
        cause_attempts=lane.cause_attempts,
    )
