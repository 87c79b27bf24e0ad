"""Queue groups and their settings as an administrator sees them."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from logbroker.client.consumer.cursor import Record
from logbroker.client.runtime.arguments import check_fields
from logbroker.client.transport.status import error_of_item
from logbroker.errors import LogbrokerError
from logbroker.record.message_headers import MAX_PRIORITY, MIN_PRIORITY
from logbroker.types import TopicId
from logbroker.v1 import queues_pb2


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue group. None means the default or, when a group is altered, that the value stays.

    ordering: none, key (the default) or single.
    key_header: the header that holds the ordering key; empty: the record key is the ordering key.
    lease_seconds: how long a delivery belongs to its worker (30).
    max_attempts: failed attempts after which `on_exhausted` applies (5).
    backoff_initial_seconds, backoff_factor, backoff_cap_seconds: the wait before the second attempt (1), the factor by
        which it grows with each further attempt (2), and its maximum (300).
    backoff_jitter: the largest share by which a wait is shortened at random (0.2).
    on_exhausted: block (the default: the lane stops at the failed record), park (its key is set aside) or dead-letter.
    dead_letter_topic: by default the group's id followed by ".dead-letters".
    grace_seconds: how long a worker whose connection broke keeps its deliveries (2).
    alarm_share: alarm if one lane has more than this share of the waiting records, and more than 512 of them (0.5);
        with 1, never.
    alarm_age_seconds: alarm if a lane is stalled or fails, or a record waits, for longer than this (3600).
    max_parked_records: alarm if more than this many records are parked (100,000).
    max_in_flight: unsettled deliveries that one worker may have (10,000).
    max_ready_records, max_held_lanes, max_delayed_records: the scan of the log pauses at this many ready records,
        stalled lanes, or records with a not-before time that are not the first of their lane (`logbroker config --kind
        queue` shows the defaults).
    on_undecodable: the action for a batch that cannot be decoded: stop (the default) or dead-letter.
    priority: none, strict, weighted or ageing; by default strict if the topic has bands, otherwise none.
    priority_rank: the record that decides how urgent an ordering key is: lane (its most urgent waiting record, the
        default) or head (its first record).
    age_seconds: with ageing, a waiting record becomes more urgent by one level after each time of this length.
    weights: with weighted, the weight of each band, by its name.
    split_by: split hot lanes by a second key: header:NAME, key-suffix:SEPARATOR or none; empty (the default): do not.
    split_into: number of sub-lanes of a hot lane (16).
    split_share, split_age_seconds: a lane is hot if it has more than this share of the waiting records (0.5) for this
        many seconds (10).
    """

    ordering: str | None = None
    key_header: str | None = None
    lease_seconds: float | None = None
    max_attempts: int | None = None
    backoff_initial_seconds: float | None = None
    backoff_factor: float | None = None
    backoff_cap_seconds: float | None = None
    backoff_jitter: float | None = None
    on_exhausted: str | None = None
    dead_letter_topic: str | None = None
    grace_seconds: float | None = None
    alarm_share: float | None = None
    alarm_age_seconds: float | None = None
    max_parked_records: int | None = None
    max_in_flight: int | None = None
    max_ready_records: int | None = None
    max_held_lanes: int | None = None
    max_delayed_records: int | None = None
    on_undecodable: str | None = None
    priority: str | None = None
    priority_rank: str | None = None
    age_seconds: float | None = None
    weights: dict[str, int] | None = None
    split_by: str | None = None
    split_into: int | None = None
    split_share: float | None = None
    split_age_seconds: float | None = None


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """A queue group in numbers. Each is a number of records unless its name or the text beside it says otherwise.

    open: records that are scanned and not done. Those that are ready, in flight or parked are among them. ready:
    records that a worker could get now. in_flight: records that are delivered and not settled. parked: records of
    parked lanes. unscanned: records of the log that the group has not looked at yet. lanes: ordering keys with records
    that are not done. held_lanes: stalled lanes. They are blocked or parked, wait for a retry, a not-before time or the
    dead-letter topic, or cannot be read from the log now. `list_lanes` in the order `held` lists fewer: those that need
    an operator. blocked_lanes, parked_lanes: stalled lanes that are blocked, and those that are parked. moving_lanes:
    lanes that go on by themselves in a moment, because they are being split, or their first record is being appended to
    the dead-letter topic. sessions: open sessions. refused_letters: records that the dead-letter topic refuses. Each
    holds its lane, and a `QueueAlarm` says why. copied_bytes: bytes on disk for copies of records that were deleted
    from the log while their lanes were stalled. removed: records, approximately, that were deleted from the log before
    they were done, without those that were copied. They count in `expired` instead once a worker reaches them, or soon
    if the group has no workers. unsent_outputs: settlements whose outputs are not all appended yet.

    The following are counted since the broker started:

    delivered, acked, nacked: deliveries. dead_lettered: records that went to the dead-letter topic.
    `QueueAdmin.redrive` with `dry_run` counts the letters that are there now. leases_lost: deliveries whose lease ended
    before they were settled. alarms_raised: causes of alarm that arose. A cause that comes back counts again. expired:
    records, approximately, that were deleted from the log before they were done, counted when their turn came.
    """

    open: int
    ready: int
    in_flight: int
    parked: int
    unscanned: int
    lanes: int
    held_lanes: int
    blocked_lanes: int
    parked_lanes: int
    moving_lanes: int
    sessions: int
    refused_letters: int
    copied_bytes: int
    removed: int
    unsent_outputs: int
    delivered: int
    acked: int
    nacked: int
    dead_lettered: int
    leases_lost: int
    alarms_raised: int
    expired: int

    @property
    def waiting(self) -> int:
        """The number of records that no worker has: those that are open or not scanned, and not in flight."""
        return self.open - self.in_flight + self.unscanned


class WorkerDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One worker at one moment."""

    id: str
    client_name: str
    in_flight: int
    credit: int
    """The number of deliveries for which the worker waits."""
    sessions: int
    connected: bool
    band: str | None = None
    """Name of the band whose records the worker takes; None: it takes all records."""
    priorities: tuple[int, int] = (MIN_PRIORITY, MAX_PRIORITY)
    """Lowest and highest priority of the records that the worker takes."""


class QueuePartition(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a queue group in one partition, by offsets."""

    partition: int
    floor: int
    """All records below it are done. It is -1 if the group is to begin at the end of the partition, but the partition
    is offline."""
    scanned: int
    end: int
    """The high watermark."""
    done: int
    """Number of offsets below the end that are done: those below the floor, those above it, and those without a record.
    It is -1 if the floor is -1. An older broker does not report it: then it is the floor."""
    oldest_timestamp_ms: int | None = None
    """The timestamp of the oldest record that is not done, the one at the floor: it waits, is in flight, or is blocked
    or parked. If retention has removed it, the timestamp of the first record that is left. None: there is no such
    record, it cannot be read, or the description was not asked for `oldest`."""
    error: LogbrokerError | None = None
    """The error because of which the partition is not served, or not to its end; None if it is served."""


class QueueAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that an operator should look at."""

    kind: str
    """share, age, parked, letters (the dead-letter topic refuses all records, or the record that `message` names),
    outputs (a topic does not take the outputs of settlements) or retention (a cluster may delete records that are not
    done at any time)."""
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


class SplitDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A lane that is split into sub-lanes.

    key: the ordering key of the lane.
    by, into: where the second key of a record is, and the number of sub-lanes.
    since_ms: when the lane was split.
    automatic: whether the queue group split the lane because it was hot; it joins it again when it is calm.
    state: splitting (its waiting records are being moved), split, or joining (new records wait for the sub-lanes).
    waiting: number of records that wait in the sub-lanes.
    """

    key: bytes
    by: str
    into: int
    since_ms: int
    automatic: bool
    state: str
    waiting: int


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
    obstacle: str = ""
    """Reason why the group delivers no records now, in any state; empty: there is none."""
    splits: tuple[SplitDescription, ...] = ()
    """Lanes that are split, at most 100."""

    @property
    def oldest_timestamp_ms(self) -> int | None:
        """The timestamp of the oldest record that is not done, of all partitions, as in `QueuePartition`."""
        times = [each.oldest_timestamp_ms for each in self.partitions if each.oldest_timestamp_ms is not None]
        return min(times, default=None)


class LaneDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One lane: its state, its head (the first record that is not done) and, if the head failed, the failures.

    key: the ordering key; None: a single record without an ordering key.
    state: ready, in flight, waiting, blocked, parked, dead-lettering, in session, idle (no record waits), or not
        scanned (no scanned record waits, but the log is not scanned to its end). A lane that is split: splitting, split
        or joining, as in `SplitDescription`.
    partition, offset: the head; -1: no head is known.
    waiting: number of waiting records, the head included, also while it is in flight. `explain_lane` adds the records
        of the sub-lanes, if the lane is split.
    attempt: number of the head's next attempt, or of the current one while it is in flight: its failures + 1. So a lane
        parked after 2 failures has attempt 3. 0: idle.
    worker_id: the worker that holds the lane; empty: none does.
    worker_client: the client name of this worker, which is "HOST:PID" unless its program has chosen another one.
    due_in_ms: time until the lease or the session ends, or until the lane is ready again; None: nothing is due.
    oldest_timestamp_ms: timestamp of the head.
    first_failure_ms, last_failure_ms, reasons: failures of the head; None and empty: it has not failed. The last reason
        comes last. If `cause` is set, they are the failures of the record in `cause`. `list_lanes` gives the last
        reason only.
    session_token: the fencing token of the session; 0: the lane is in no session.
    level: the priority by which the lane is served, 0 to 9; None: the queue group has no priorities.
    refusal: why the dead-letter topic refuses the head, and what to do; empty: the topic does not refuse the head, or
        was not asked to take it.
    obstacle: why the head cannot be read from the log, and what to do. No attempt is counted, and the lane goes on by
        itself once the head can be read. Empty: the head can be read, or nobody has tried to read it.
    held_ms: time since the head was handed out, while it is in flight. A worker extends its lease if it needs longer.
    replaced: whether `replace_head` put another record in the place of the head.
    record: the head as workers get it: if it is replaced, the record in its place. None: there is no head, or it cannot
        be read or is too large for the answer; `list_lanes` leaves it out.
    cause: partition and offset of the record for which the lane was parked, if a rewind put other records before it;
        otherwise None.
    cause_attempts: number of failed attempts at the record of `cause`.
    sub_lanes: the keys of the sub-lanes that have records, if the lane is split; `list_lanes` leaves them out.
    """

    key: bytes | None
    state: str
    partition: int
    offset: int
    waiting: int
    attempt: int
    worker_id: str
    due_in_ms: int | None
    oldest_timestamp_ms: int | None
    first_failure_ms: int | None
    last_failure_ms: int | None
    reasons: tuple[str, ...]
    session_token: int
    level: int | None
    refusal: str
    worker_client: str = ""
    obstacle: str = ""
    cause: tuple[int, int] | None = None
    cause_attempts: int = 0
    sub_lanes: tuple[bytes, ...] = ()
    held_ms: int | None = None
    replaced: bool = False
    record: Record | None = None


LaneOrder = Literal["hottest", "oldest", "held", "waiting"]
"""The order of lanes in a list. `hottest` puts lanes with the most records first, `oldest` lanes with the oldest head.
`held` lists only lanes that are blocked, parked or refused by the dead-letter topic, the longest held first. `waiting`
lists only lanes that wait for a retry, a not-before time or the dead-letter topic, or whose head cannot be read from
the log now, the next due first."""
Decision = Literal["resume", "skip", "drop"]


class DecidedAll(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a decision about all held lanes."""

    lanes: int
    """Lanes for which the decision was carried out."""
    records_done: int
    refused: int
    """Lanes for which the decision was refused."""
    why_refused: LogbrokerError | None
    """The error of the first refusal."""


class LetterEnds(msgspec.Struct, frozen=True, kw_only=True):
    """The ends of a dead-letter topic at one moment. Pass the ends that a first `redrive` returned as `until` to later
    calls. These calls then send back only letters that were there at the first call.

    offsets: the end offset of each partition, from partition 0 on.
    """

    topic_id: bytes
    offsets: tuple[int, ...]


class Redriven(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters that were sent back to their topic or, in a dry run, would be.

    records, keys: the number of dead letters, and of their keys.
    more: whether dead letters are left below `until`.
    held: dead letters that their topic refuses, or that stay behind a refused letter of the same key. The next call
        tries them again.
    why_held: why the first of these letters is held, or why a part of the dead-letter topic cannot be read, and the
        remedy.
    until: the ends of the dead-letter topic that the call used; None from an older broker.
    """

    records: int
    keys: int
    more: bool
    held: int = 0
    why_held: str = ""
    until: LetterEnds | None = None


class RewoundPartition(msgspec.Struct, frozen=True, kw_only=True):
    """The floor of a queue group in one partition before and after a rewind. A dry run gives the floor that would
    result."""

    partition: int
    floor_before: int
    floor: int
    standing_records: int = 0
    """Records of blocked and parked lanes below the floor. They stay or, with `drop_standing`, count as done."""
    skipped_records: int = 0
    """Other records below the floor that are not done. They count as done after the rewind."""
    unreadable_records: int = 0
    """Number of these other records that could not be read because the log is damaged there: it is not known whether
    they belong to blocked and parked lanes. 0 if no lane is blocked or parked."""
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
                band=worker.band if worker.HasField("band") else None,
                priorities=(worker.lowest_priority, worker.highest_priority)
                if worker.HasField("band")
                else (MIN_PRIORITY, MAX_PRIORITY),
            )
            for worker in queue.workers
        ),
        partitions=tuple(
            QueuePartition(
                partition=partition.partition,
                floor=partition.floor,
                scanned=partition.scanned,
                end=partition.end,
                done=partition.done if partition.HasField("done") else partition.floor,
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
        obstacle=queue.obstacle,
        splits=tuple(
            SplitDescription(
                key=split.key,
                by=split.split.by,
                into=split.split.into,
                since_ms=split.since_ms,
                automatic=split.automatic,
                state=split.state,
                waiting=split.waiting,
            )
            for split in queue.splits
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


def lane_description(lane: queues_pb2.Lane, topic: str = "", topic_id: bytes = b"") -> LaneDescription:
    """Return the description of a lane. `topic` and `topic_id` name the topic of its record, if there is one."""
    return LaneDescription(
        key=lane.key if lane.HasField("key") else None,
        state=lane.state,
        partition=lane.partition,
        offset=lane.offset,
        waiting=lane.waiting,
        attempt=lane.attempt,
        worker_id=lane.worker_id,
        worker_client=lane.worker_client,
        due_in_ms=lane.due_in_ms if lane.HasField("due_in_ms") else None,
        oldest_timestamp_ms=lane.oldest_timestamp_ms if lane.oldest_timestamp_ms >= 0 else None,
        first_failure_ms=lane.first_failure_ms or None,
        last_failure_ms=lane.last_failure_ms or None,
        reasons=tuple(lane.reasons),
        session_token=lane.session_token,
        level=lane.level if lane.HasField("level") else None,
        refusal=lane.refusal,
        obstacle=lane.obstacle,
        cause=(lane.cause.partition, lane.cause.offset) if lane.HasField("cause") else None,
        cause_attempts=lane.cause_attempts,
        sub_lanes=tuple(lane.sub_lanes),
        held_ms=lane.held_ms if lane.HasField("held_ms") else None,
        replaced=lane.replaced,
        record=_record(lane, topic, TopicId(topic_id)) if lane.HasField("record") else None,
    )


def _record(lane: queues_pb2.Lane, topic: str, topic_id: TopicId) -> Record:
    stored = lane.record
    return Record(
        topic,
        lane.partition,
        stored.offset,
        stored.timestamp_ms,
        stored.key if stored.HasField("key") else None,
        stored.value if stored.HasField("value") else None,
        [(header.key, header.value if header.HasField("value") else None) for header in stored.headers],
        topic_id,
    )
