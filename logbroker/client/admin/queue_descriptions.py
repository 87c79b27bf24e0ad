"""Queue groups and their settings as an administrator sees them."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from logbroker.client.runtime.arguments import check_fields
from logbroker.client.transport.status import error_of_item
from logbroker.errors import LogbrokerError
from logbroker.v1 import queues_pb2


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue group. None means the default, or the present value if a group is altered."""

    ordering: str | None = None
    """none, key (the default) or single."""
    key_header: str | None = None
    """The header that holds the ordering key; empty: the record key is used."""
    lease_seconds: float | None = None
    max_attempts: int | None = None
    backoff_initial_seconds: float | None = None
    backoff_factor: float | None = None
    backoff_cap_seconds: float | None = None
    backoff_jitter: float | None = None
    """The share of a backoff that is random."""
    on_exhausted: str | None = None
    """block (the default), dead-letter or park."""
    dead_letter_topic: str | None = None
    """The dead-letter topic; by default the group's id followed by ".dead-letters"."""
    grace_seconds: float | None = None
    """The time for which a worker keeps its deliveries after its connection broke."""
    alarm_share: float | None = None
    """Raise an alarm if one lane holds more than this share of the waiting records, and more than 512 of them; 1:
    never."""
    alarm_age_seconds: float | None = None
    """Raise an alarm if a lane is stalled or fails for longer than this, or if a record waits longer, even if it only
    waits for a worker."""
    max_parked_records: int | None = None
    max_in_flight: int | None = None
    """The number of deliveries that one worker may have in flight."""
    max_ready_records: int | None = None
    max_held_lanes: int | None = None
    max_delayed_records: int | None = None
    on_undecodable: str | None = None
    """stop (the default) or dead-letter."""
    priority: str | None = None
    """none, strict, weighted or ageing. The default is strict if the topic has bands, otherwise none."""
    priority_rank: str | None = None
    """The urgency of an ordering key: lane (that of its most urgent waiting record, the default) or head."""
    age_seconds: float | None = None
    """With ageing: the time after which a waiting record counts as one level more urgent."""
    weights: dict[str, int] | None = None
    """With weighted: the weight of each band, by name."""


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a queue group. Each counts records unless its name says lanes or sessions."""

    open: int
    """Scanned records that are not done. They include the ready, in-flight and parked ones."""
    ready: int
    in_flight: int
    parked: int
    unscanned: int
    lanes: int
    held_lanes: int
    """Lanes that are blocked or parked, or whose head waits for a retry, a time or the dead-letter topic."""
    blocked_lanes: int
    parked_lanes: int
    sessions: int
    refused_letters: int
    """Records that the dead-letter topic refuses. Each holds its lane, and a `QueueAlarm` gives the reason."""
    copied_bytes: int
    """Bytes on disk of the copies of records that retention removed from the log while their lanes were stalled."""
    delivered: int
    """Counted since the broker started, like all following fields."""
    acked: int
    nacked: int
    dead_lettered: int
    leases_lost: int
    alarms_raised: int
    """Causes of alarm that occurred. A cause that occurs again counts again."""
    expired: int
    """Approximate number of records that retention removed before they were done."""


class WorkerDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One worker at one moment."""

    id: str
    client_name: str
    in_flight: int
    credit: int
    """The number of deliveries for which the worker waits."""
    sessions: int
    connected: bool


class QueuePartition(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a queue group in one partition, by offsets."""

    partition: int
    floor: int
    """All records below it are done. It is -1 if the group begins at the end of a partition that is offline."""
    scanned: int
    end: int
    """The high watermark."""
    error: LogbrokerError | None = None
    """The error because of which the partition is not served any more; None if it is served."""


class QueueAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that an operator should look at."""

    kind: str
    """share, age, parked or letters (the dead-letter topic refuses all records, or this one)."""
    key: bytes | None
    message: str


class PriorityDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one priority in a queue group with priorities."""

    priority: int
    waiting: int
    oldest_timestamp_ms: int | None
    """Timestamp of the oldest record that could be delivered now; None if there is none."""
    delivered: int
    """Counted since the broker started, like `overtaken`."""
    overtaken: int
    """The number of times that a more urgent record was delivered before an older one of this priority."""


class QueueDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the broker reports about a queue group."""

    id: str
    topic: str
    state: str
    """serving; draining (before a change of ordering); waiting (for the workers from before a crash); indexing (with
    priorities: `counts.unscanned` records have to be scanned first); paused (scanning stops until some held or delayed
    records are done); or failed (stopped until the broker restarts; the broker's log gives the reason)."""
    settings: QueueSettings
    counts: QueueCounts
    workers: tuple[WorkerDescription, ...]
    partitions: tuple[QueuePartition, ...]
    alarms: tuple[QueueAlarm, ...]
    priorities: tuple[PriorityDescription, ...]
    """One entry for each priority that occurred, the most urgent first."""


class LaneDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One lane: its state and, if it is stalled, the cause."""

    key: bytes | None
    """The ordering key; None for a single record without an ordering key."""
    state: str
    """ready, in flight, waiting, blocked, parked, dead-lettering, in session, idle (no record of it waits), or not
    scanned (no scanned record of it waits, but the log is not scanned to the end)."""
    partition: int
    """Partition of the head, which is the first record that is not done. It is -1, like the offset, if no head is
    known."""
    offset: int
    waiting: int
    """Number of waiting records, the head included."""
    attempt: int
    worker_id: str
    """The worker that holds the lane; empty if none does."""
    due_in_ms: int | None
    """Time until the lease or the session ends, or until the lane becomes ready again."""
    oldest_timestamp_ms: int | None
    """Timestamp of the head."""
    first_failure_ms: int | None
    """Time of the first failure of the head or, if `cause` is set, of the record at `cause`. The next two fields
    concern the same record."""
    last_failure_ms: int | None
    reasons: tuple[str, ...]
    session_token: int
    """The fencing token of the session; 0 if the lane is in no session."""
    level: int | None
    """The priority with which the lane is served, 0 to 9; None if the queue group has no priorities."""
    refusal: str
    """The reason why the dead-letter topic refuses the head, and what to do; empty if it does not refuse it or was not
    asked."""
    cause: tuple[int, int] | None = None
    """Partition and offset of the record because of which the lane was parked, if a rewind put others before it."""
    cause_attempts: int = 0
    """Number of failed attempts at the record at `cause`."""


LaneOrder = Literal["hottest", "oldest", "held", "waiting"]
"""The order of lanes in a list. `hottest` puts those with the most records first, `oldest` those with the oldest head.
`held` lists only lanes that are blocked, parked or refused by the dead-letter topic, the longest held first. `waiting`
lists only those that wait for a retry, for a time or for the dead-letter topic, the next due first."""
Decision = Literal["resume", "skip", "drop"]


class DecidedAll(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a decision about all stalled lanes."""

    lanes: int
    """Lanes for which the decision was carried out."""
    records_done: int
    refused: int
    """Lanes for which the decision was refused."""
    why_refused: LogbrokerError | None
    """The first of these refusals."""


class Redriven(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters that were sent back to their topic. A dry run counts those that would be."""

    records: int
    keys: int
    more: bool
    """Whether dead letters are left."""
    held: int = 0
    """Dead letters that their topic refuses, or that are held back behind a refused one of the same key. The next call
    tries them again."""
    why_held: str = ""
    """The reason for the first of these, or why a part of the dead-letter topic cannot be read, and what to do."""


class RewoundPartition(msgspec.Struct, frozen=True, kw_only=True):
    """The floor of a queue group in one partition before and after a rewind. A dry run gives the floor that would
    result."""

    partition: int
    floor_before: int
    floor: int
    standing_records: int = 0
    """Records of blocked and parked lanes below the floor. They stay or, with `drop_standing`, count as done."""
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
    """Lanes of a queue group, in the requested order."""

    lanes: list[LaneDescription]
    total: int
    """The total number of lanes of this kind."""
    incomplete: bool
    """Whether the list may be incomplete because some records are not scanned yet or cannot be scanned. Lanes may be
    missing, and others may have more records than shown."""


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
