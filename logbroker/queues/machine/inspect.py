"""An operator's view of a queue group, and the operator's decisions about stalled lanes."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterable, Iterator
from copy import copy
from itertools import islice
from typing import Final

import msgspec

from logbroker.errors import LaneNotHeldError, UnknownLaneError, quoted_key
from logbroker.pacing import Steps, at_once
from logbroker.queues.machine.queue import Queue
from logbroker.queues.machine.stalled_lanes import HELD
from logbroker.queues.model.holders import Grant
from logbroker.queues.model.lane import (
    BLOCKED,
    CHUNK_RECORDS,
    DEAD_LETTERING,
    GATED,
    IN_FLIGHT,
    IN_SESSION,
    NO_RECORD,
    PARKED,
    READY,
    STATE_NAMES,
    WAITING,
    Lane,
    RankedLane,
)
from logbroker.queues.model.record_id import OFFSET_MASK, Moment, offset_of, partition_of, record_id_of
from logbroker.queues.model.settings import PriorityRank
from logbroker.queues.state.dead_letter_intents import WHOLE_TOPIC
from logbroker.queues.state.failures import Failure
from logbroker.record.codec import LogRecord

MAX_LETTER_ALARMS: Final = 50
"""Maximum number of records refused by the dead-letter topic that get an alarm of their own."""
LANES_PER_STEP: Final = 64
"""Number of lanes that are copied to a list within the time of a step."""
_NOT_HANDED_OUT: Final = frozenset((READY, WAITING, IN_SESSION, GATED))
"""States of lanes whose head may be tried again after it could not be read."""
MAX_CATCHES: Final = 10
"""Maximum number of passes between which other tasks run. After these, the remaining deliveries are examined in one
go."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a queue group. Names with `lanes` count lanes, `sessions` counts sessions, the others count records."""

    open: int
    """Records that are admitted and not done."""
    ready: int
    in_flight: int
    lanes: int
    blocked_lanes: int
    parked_lanes: int
    held_lanes: int
    """Stalled lanes, whether or not they need an operator: they are blocked or parked, or wait for a retry, for a time,
    or for the dead-letter topic."""
    moving_lanes: int
    """Lanes that go on by themselves in a moment: their records are being moved to sub-lanes, or their heads are being
    appended to the dead-letter topic. Of the latter, those that wait for an earlier one do not count."""
    parked: int
    sessions: int
    """Open sessions."""
    refused_letters: int
    """Records that the dead-letter topic refuses."""


class LaneFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a lane and, if it is stalled, the reason."""

    key: bytes | None
    state: str
    head: int
    """Id of the first record that is not done, in flight or not; -1: none is admitted yet."""
    waiting: int
    """Records of the lane, including the head and the session's records in flight."""
    attempt: int
    """Failures of the head + 1."""
    worker_id: str
    """The worker that holds the lane; "": none."""
    worker_client: str
    """The name that this worker has given for operators; "": none."""
    session_token: int
    """Fencing token of the lane's session; 0: no session."""
    due_in_seconds: float
    """Seconds until the lease or the session's lock ends, or the lane becomes ready again; 0: the lane waits for no
    time."""
    held_seconds: float
    """Seconds since the head was handed out under its lease; 0: it is not in flight, or in a session."""
    failure: Failure | None
    """Failure of the record that holds up the lane."""
    cause: int
    """Id of the record that holds up the lane: the head, unless a rewind put records before the record that the lane
    was parked for."""
    level: int | None
    """The priority under which the lane is handed out; None: the group has no priorities, or none of the lane's records
    is admitted."""
    refusal: str
    """Why the dead-letter topic refuses the head, and what to do; "": the head is not refused."""
    obstacle: str
    """Why the head cannot be read from the log now, which counts no attempt; "": no read of it has failed."""
    replaced: bool
    """Whether an operator has put another record in the place of the head."""


class AlarmKind(enum.Enum):
    """Conditions that need attention."""

    SHARE = "share"
    """One lane, with over 512 records, holds more than the configured share of the waiting records."""
    AGE = "age"
    """The first failure of a held lane is longer ago than the configured time. Or the oldest record of a partition, or
    of a lane with over 512 records, has waited longer than that, and not only for its not-before time."""
    PARKED = "parked"
    """More records are parked than the configured limit."""
    LETTERS = "letters"
    """The dead-letter topic refuses a record, or all records."""
    OUTPUTS = "outputs"
    """A topic does not accept outputs: the outputs of stored settlements, or acks with outputs, wait."""
    RETENTION = "retention"
    """Records that are neither done nor copied may be deleted at any time, because the log does not wait for them."""


class Alarm(msgspec.Struct, frozen=True):
    """One condition that needs attention, reported for as long as it lasts."""

    kind: AlarmKind
    key: bytes | None
    """Key of the lane; None: the lane has no key, or the alarm is not about a lane."""
    record_id: int
    """Record that the alarm is about: the refused record, the head of a lane without a key, or offset 0 of the
    partition (for letters, of the dead-letter topic); else a number that belongs to no record, such as -1. Kind, key
    and record id together identify the cause."""
    message: str


class Inspector:
    """Examines a queue group, and carries out an operator's decisions about stalled lanes. After a decision, the
    outputs of the queue have to be handled (see `queue`)."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    # --- finding -----------------------------------------------------------------------------------------------------

    def lane(self, key: bytes) -> Lane:
        """Return the lane of an ordering key; a lane without records if there is only a session. Raises
        UnknownLaneError."""
        lane = self._queue.lanes.get(key)
        if lane is None and self._queue.sessions.get(key) is not None:
            return Lane(key, NO_RECORD, IN_SESSION)
        split = self._queue.splits.by_key.get(key)
        if lane is None and split is not None:
            raise UnknownLaneError(f"{split}: name one of them, such as {quoted_key(split.sub_lane(0))}")
        if lane is None:
            raise UnknownLaneError(f"the queue group has no waiting records of key {quoted_key(key)}")
        return lane

    def has_lane(self, key: bytes) -> bool:
        """Return whether a lane has records, or a session."""
        return self._queue.lanes.get(key) is not None or self._queue.sessions.get(key) is not None

    def lane_of_record(self, record_id: int) -> Lane:
        """Return the stalled lane with this head. Needed for records without an ordering key. Raises
        UnknownLaneError."""
        lane = self._queue.stalled.find(record_id)
        if lane is None:
            raise UnknownLaneError(
                "the record is not the first record of a stalled lane: list the lanes that are held, and those that are"
                " waiting"
            )
        return lane

    # --- looking -----------------------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """Run `count_lanes` in one go."""
        return at_once(self.count_lanes())

    def count_lanes(self) -> Steps[Counts]:
        """Count the lanes and records of the queue group. All counts are taken at the end, except those of held lanes,
        which are examined one by one."""
        queue = self._queue
        lanes = yield from self.held_lanes()
        parked = blocked_lanes = parked_lanes = refused_letters = 0
        for lane in lanes:
            if lane.state == PARKED:
                parked_lanes += 1
                parked += len(lane)
            elif lane.state == BLOCKED:
                blocked_lanes += 1
            elif lane.state == DEAD_LETTERING:
                refused_letters += 1
            yield 1
        return Counts(
            open=queue.open_records,
            ready=queue.lanes.ready_records,
            in_flight=queue.deliveries.in_flight,
            lanes=queue.lanes.count + len(queue.lanes.only_in_sessions()),
            held_lanes=queue.stalled.count,
            blocked_lanes=blocked_lanes,
            parked_lanes=parked_lanes,
            moving_lanes=queue.splitting.lanes_under_way + queue.dead_letters.under_way,
            parked=parked,
            sessions=len(queue.sessions),
            refused_letters=refused_letters,
        )

    def first_of(self, lane: Lane) -> int:
        """Return the first record of a lane that is scanned and not done. It is waiting, or in flight, perhaps in a
        session. NO_RECORD: there is none."""
        sessions = self._queue.lanes.sessions
        session = sessions.get(lane.key) if sessions and lane.key is not None else None
        first = None if session is None else session.first
        return self._queue.stalled.first_of(lane) if first is None else first.head

    def size(self, lane: Lane) -> int:
        """Return the number of records of a lane, including the session's records in flight."""
        sessions = self._queue.lanes.sessions
        session = sessions.get(lane.key) if sessions and lane.key is not None else None
        return len(lane) if session is None else len(lane) + session.in_flight

    def explain(self, lane: Lane, now: Moment) -> LaneFacts:
        """Return the state of a lane, and why it is stalled. Examines all deliveries in flight."""
        explanation = Explanation(self._queue, () if lane.key is None else (lane.key,))
        at_once(explanation.catch_up())
        return explanation.of(lane, now)

    def explanation(self, keys: Iterable[bytes]) -> Explanation:
        """Return an Explanation for the lanes of some keys, and for the lanes without a key that are not in flight."""
        return Explanation(self._queue, keys)

    def all_lanes(self) -> Steps[list[Lane]]:
        """Return all lanes with a key, including lanes that have all their records in flight in a session. Lanes
        without a key are included if they are stalled, but not if they are ready or in flight."""
        queue = self._queue
        lanes, keys = list(queue.lanes), queue.lanes.only_in_sessions()
        yield (len(lanes) + len(keys)) // LANES_PER_STEP
        for key in keys:
            lanes.append(Lane(key, NO_RECORD, IN_SESSION))
            yield 1
        apart = [*queue.stalled.set_aside.values(), *queue.stalled.delays.lanes(), *queue.dead_letters.lanes()]
        yield len(apart) // LANES_PER_STEP
        lanes += [lane for lane in apart if lane.key is None]
        return lanes

    def waiting_lanes(self) -> Steps[list[Lane]]:
        """Return all lanes that wait for a retry, for a time, or for the dead-letter topic, which has not refused
        them."""
        lanes = [*self._queue.stalled.delays.lanes(), *self._queue.dead_letters.lanes()]
        yield len(lanes) // LANES_PER_STEP
        waiting: list[Lane] = []
        for lane in lanes:
            if self.is_waiting(lane):
                waiting.append(lane)
            yield 1
        return waiting

    def is_waiting(self, lane: Lane) -> bool:
        """Return whether a lane is now one of `waiting_lanes`."""
        return lane.state == WAITING or (lane.state == DEAD_LETTERING and not self.is_held(lane))

    def due(self, lane: Lane) -> float:
        """Return the monotonic time at which a waiting lane becomes ready; 0, which sorts first, if it waits for no
        time."""
        return self._queue.stalled.delays.due(lane) if lane.state == WAITING else 0.0

    def hottest(self, count: int) -> list[Lane]:
        """Return the lanes with the most records, the largest first. Examines every lane, so it must not be called
        often."""
        return heapq.nlargest(count, at_once(self.all_lanes()), key=self.size)

    def held(self) -> list[Lane]:
        """Run `held_lanes` in one go."""
        return at_once(self.held_lanes())

    def held_lanes(self) -> Steps[list[Lane]]:
        """Return all blocked and parked lanes, and those whose heads the dead-letter topic refuses. Each lane occurs
        once, although lanes may change between two steps."""
        stalled, find = self._queue.stalled, self._queue.lanes.get
        letters = self._queue.dead_letters
        aside, keys = list(stalled.set_aside.values()), list(stalled.parked)
        refused = letters.lanes() if letters.refusals or letters.troubles else []
        yield (len(aside) + len(keys) + len(refused)) // LANES_PER_STEP
        lanes: dict[bytes | int, Lane] = {}
        for lane in aside:
            lanes[lane.head if lane.key is None else lane.key] = lane
            yield 1
        for key in keys:
            # Parked lanes without an admitted record are not in `set_aside`.
            if (found := find(key)) is not None and found.state == PARKED:
                lanes[key] = found
            yield 1
        for lane in refused:
            if lane.state == DEAD_LETTERING and letters.refusal(lane.head):
                lanes[lane.head if lane.key is None else lane.key] = lane
            yield 1
        return list(lanes.values())

    def is_held(self, lane: Lane) -> bool:
        """Return whether a lane is now one of `held_lanes`."""
        if lane.state == DEAD_LETTERING:
            letters = self._queue.dead_letters
            return letters.find(lane.head) is lane and bool(letters.refusal(lane.head))
        if lane.state == PARKED and lane.key is not None:
            return lane.key in self._queue.stalled.parked and self._queue.lanes.get(lane.key) is lane
        return self._queue.stalled.set_aside.get(lane.head) is lane

    def as_it_is(self, lane: Lane) -> Lane | None:
        """Return the current lane for a lane that was found some time ago; None: it no longer exists."""
        if lane.key is None:
            return self._queue.stalled.find(lane.head)
        try:
            return self.lane(lane.key)
        except UnknownLaneError:
            return None

    def alarms(self, now: Moment) -> list[Alarm]:
        """Run `find_alarms` in one go."""
        return at_once(self.find_alarms(now))

    def find_alarms(self, now: Moment) -> Steps[list[Alarm]]:
        """Return all current alarms. Examines the lanes with over 512 records, the held lanes, and the oldest record of
        each partition."""
        queue, settings = self._queue, self._queue.settings
        alarms: list[Alarm] = []
        for lane in list(queue.lanes.successors.long_lanes()):
            size, first = self.size(lane), self.first_of(lane)
            if size > max(CHUNK_RECORDS, settings.alarm_share * queue.open_records):
                state = f", which is {STATE_NAMES[lane.state]}" if lane.state in (BLOCKED, PARKED) else ""
                text = f"{size} of {queue.open_records} waiting records are of one key{state}"
                alarms.append(Alarm(AlarmKind.SHARE, lane.key, NO_RECORD, text))
            if lane.head not in queue.stalled.set_aside and (seconds := self._too_old(first, now)):
                text = f"the oldest of {size} records of the lane has waited for {seconds} s"
                alarms.append(Alarm(AlarmKind.AGE, lane.key, NO_RECORD, text))
            yield 3
        parked = 0
        lanes = yield from self.held_lanes()
        for lane in lanes:
            if lane.state == PARKED:
                parked += len(lane)
            failure = queue.stalled.failure_of(lane)
            if failure is not None and now.wall_ms - failure.first_ms > settings.alarm_age_seconds * 1000:
                seconds = (now.wall_ms - failure.first_ms) // 1000
                text = f"the lane has been failing or {STATE_NAMES[lane.state]} for {seconds} s"
                alarms.append(Alarm(AlarmKind.AGE, lane.key, lane.head if lane.key is None else NO_RECORD, text))
                yield 2
            yield 1
        for partition in list(queue.done.partitions()):
            floor = queue.done.floor(partition)
            if floor < queue.position(partition) and (seconds := self._too_old(record_id_of(partition, floor), now)):
                text = f"the oldest record of partition {partition}, at offset {floor}, has waited for {seconds} s"
                alarms.append(Alarm(AlarmKind.AGE, None, record_id_of(partition, 0), text))
            yield 2
        if parked > settings.max_parked_records:
            text = f"{parked} records are parked, more than max_parked_records, {settings.max_parked_records}"
            alarms.append(Alarm(AlarmKind.PARKED, None, NO_RECORD, text))
        alarms += self._letter_alarms()
        for topic_id, why in queue.outbox.obstacles(now.seconds).items():
            alarms.append(Alarm(AlarmKind.OUTPUTS, None, -int.from_bytes(topic_id, "big"), why))
        return alarms

    def _letter_alarms(self) -> Iterator[Alarm]:
        letters = self._queue.dead_letters
        for partition, why in letters.troubles.items():
            record_id = NO_RECORD if partition == WHOLE_TOPIC else record_id_of(partition, 0)
            yield Alarm(AlarmKind.LETTERS, None, record_id, why)
        if WHOLE_TOPIC in letters.troubles:
            return  # While the whole topic is in trouble, refusals of single letters may be out of date.
        for record_id, why in islice(letters.refusals.items(), MAX_LETTER_ALARMS):
            lane = letters.find(record_id)
            key = None if lane is None else lane.key
            text = (
                f"the record at offset {offset_of(record_id)} of partition {partition_of(record_id)} holds up its lane:"
                f" {why}"
            )
            yield Alarm(AlarmKind.LETTERS, key, record_id, text)
        if len(letters.refusals) > MAX_LETTER_ALARMS:
            text = f"{len(letters.refusals) - MAX_LETTER_ALARMS} more records are refused by the dead-letter topic"
            yield Alarm(AlarmKind.LETTERS, None, OFFSET_MASK, text)

    def _too_old(self, record_id: int, now: Moment) -> int:
        """Return how many seconds a record has waited if this is too long, else 0. The time is approximate, as in
        `Ages`."""
        queue = self._queue
        stalled = queue.stalled
        if stalled.delays.get(record_id) is not None and not (
            queue.failures.count(record_id) or stalled.read_failures.error_of(record_id)
        ):
            return 0  # It has a not-before time: it is meant to wait.
        timestamp_ms = queue.ages.timestamp_ms(record_id)
        waited_ms = 0 if timestamp_ms is None else now.wall_ms - timestamp_ms
        return waited_ms // 1000 if waited_ms > queue.settings.alarm_age_seconds * 1000 else 0

    # --- deciding ----------------------------------------------------------------------------------------------------

    def resume(self, lane: Lane) -> None:
        """Let a stalled lane go on with its head. The attempts of the head begin anew. Raises LaneNotHeldError."""
        self._check_returns(lane)
        self._take_over(lane)
        if lane.head == NO_RECORD:
            self._queue.lanes.remove(lane)
        else:
            self._queue.redelivery.returned.add(lane.head)
            self._queue.lanes.make_ready(lane)

    def skip(self, lane: Lane, now: Moment) -> None:
        """Let a stalled lane go on without its head, which counts as done. Raises LaneNotHeldError or
        UnknownLaneError."""
        self._check_scanned(lane)
        self._take_over(lane)
        if lane.head == NO_RECORD:
            self._queue.lanes.remove(lane)
        else:
            self._queue.outcomes.finish([lane], now)

    def replace_head(self, lane: Lane, record: LogRecord) -> None:
        """Let a stalled lane go on with another record instead of its head, for this group only. The attempts begin
        anew.

        The code that hands out records reads the new one from `Queue.replacements`. Key, offset and timestamp should be
        those of the head. Raises LaneNotHeldError, UnknownLaneError, RecordTooLargeError over 1 MiB, or
        OverloadedError.
        """
        self._queue.replacements.check(record)
        self._check_scanned(lane)
        if lane.state in HELD and lane.head == NO_RECORD:
            raise UnknownLaneError("the lane is parked, and has no record: resume it")
        self._check_returns(lane)
        self._take_over(lane)
        self._queue.replacements.put(lane.head, record)
        self._queue.redelivery.returned.add(lane.head)
        self._queue.lanes.make_ready(lane)

    def drop(self, lane: Lane) -> int:
        """Count all admitted records of a stalled lane as done; return their number. Records that arrive later form a
        new lane. Raises LaneNotHeldError or UnknownLaneError."""
        self._check_scanned(lane)
        self._take_over(lane)
        return self._queue.outcomes.finish_lane(lane)

    def _check_scanned(self, lane: Lane) -> None:
        """Raise UnknownLaneError for a parked lane whose records are not scanned yet."""
        queue = self._queue
        parked = queue.stalled.parked.get(lane.key) if lane.head == NO_RECORD and lane.key is not None else None
        if parked is not None and not (
            queue.done.is_open(partition_of(parked.head)) and queue.admission.has_admitted(parked.head)
        ):
            raise UnknownLaneError("no record of the lane is scanned yet: try again later")

    def _check_returns(self, lane: Lane) -> None:
        if lane.state == DEAD_LETTERING and not self._queue.dead_letters.may_return(lane.head):
            raise LaneNotHeldError(
                "the lane's first record is under way to the dead-letter topic, and may be there already: try again in"
                " a moment, or skip it"
            )

    def drop_some(self, lane: Lane, count: int) -> int:
        """Count up to `count` records that follow the head of a stalled lane as done; return their number. The lane
        keeps its state. Raises LaneNotHeldError or UnknownLaneError."""
        self._check_scanned(lane)
        self._check_held(lane)
        return self._queue.outcomes.finish_successors(lane, count)

    def _take_over(self, lane: Lane) -> None:
        self._check_held(lane)
        if (cause := self._queue.stalled.cause_of(lane)) != lane.head:
            self._queue.redelivery.returned.add(cause)  # Its failures are forgotten, but it was handed out.
        self._queue.stalled.let_go(lane)

    def _state(self, lane: Lane) -> str:
        if lane.state == GATED and lane.key is not None:
            return self._queue.splitting.state_of(lane.key)
        return STATE_NAMES[lane.state]

    def _check_held(self, lane: Lane) -> None:
        if lane.state not in HELD:
            advice = ""
            if lane.state in (IN_FLIGHT, IN_SESSION):
                advice = "; `logbroker queue explain` names its worker: wait until it is done, or stop it"
            raise LaneNotHeldError(
                f"the lane is {self._state(lane)}: only a lane that is blocked, parked, waiting or dead-lettering"
                f" can be moved{advice}"
            )


class Explanation:
    """Explains the states of lanes. `of` is accurate if `catch_up` has ended immediately before."""

    def __init__(self, queue: Queue, keys: Iterable[bytes]) -> None:
        """`keys`: the keys of the lanes to explain."""
        self._queue = queue
        self._keys = frozenset(keys)
        self._receipts: dict[bytes, int] = {}
        """Receipt of the last delivery of each lane, outside of sessions, by key."""
        self._next = 0
        """The first receipt that is not examined yet."""

    def catch_up(self) -> Steps[None]:
        """Find the holders of the lanes, by examining all deliveries since the last call."""
        deliveries = self._queue.deliveries
        for _ in range(MAX_CATCHES):
            # More records are handed out during a pass. Each pass has less to do than the one before, unless records
            # are handed out faster than they are examined.
            end = deliveries.next_receipt
            while self._next < end:
                yield self._look()
        while self._next < deliveries.next_receipt:
            self._look()

    def _look(self) -> int:
        """Examine one grant; return the cost in steps."""
        grant = self._queue.deliveries.next_grant(self._next)
        if grant is None:
            self._next = self._queue.deliveries.next_receipt
            return 1
        self._next = max(grant.first + 1, grant.end)
        if grant.lanes is None or grant.session is not None:
            return 1
        keys, receipts = self._keys, self._receipts
        for receipt, lane in enumerate(grant.lanes, grant.first):
            if lane is not None and lane.key in keys:
                receipts[lane.key] = receipt
        return 1 + len(grant.lanes) // 4

    def of(self, lane: Lane, now: Moment) -> LaneFacts:
        """Explain an existing lane, or the lane without records that `Inspector.lane` returns."""
        queue, worker, due, held_seconds, in_session, first = self._queue, None, now.seconds, 0.0, 0, None
        session = queue.sessions.get(lane.key) if lane.key is not None else None
        if session is not None:
            worker, due, in_session, first = session.worker, session.deadline, session.in_flight, session.first
        if lane.state == IN_FLIGHT and (grant := self._holder(lane)) is not None:
            worker, due = grant.worker, grant.deadline
            held_seconds = max(0.0, now.seconds - (grant.first_deadline - queue.settings.lease_seconds))
        elif lane.state == WAITING:
            due = queue.stalled.delays.due(lane)
        head = queue.stalled.first_of(lane) if first is None else first.head
        cause = queue.stalled.cause_of(lane) if first is None else head
        failure = queue.failures.get(cause)
        return LaneFacts(
            key=lane.key,
            state=STATE_NAMES[lane.state] if lane.state != GATED else queue.splitting.state_of(lane.key or b""),
            head=head,
            waiting=len(lane) + in_session,
            attempt=queue.failures.count(head) + 1,
            worker_id="" if worker is None else worker.id,
            worker_client="" if worker is None else worker.client,
            session_token=0 if session is None else session.token,
            due_in_seconds=max(0.0, due - now.seconds),
            held_seconds=held_seconds,
            # A copy, because the stored failure changes with the record.
            failure=None if failure is None else copy(failure),
            cause=cause,
            level=self._level(lane, first),
            refusal=queue.dead_letters.refusal(lane.head) if lane.state == DEAD_LETTERING else "",
            obstacle=self._obstacle(lane, head) if queue.stalled.read_failures.by_partition else "",
            replaced=head in queue.replacements.records,
        )

    def _obstacle(self, lane: Lane, head: int) -> str:
        error = self._queue.stalled.read_failures.error_of(head) if lane.state in _NOT_HANDED_OUT else None
        return "" if error is None else error.message

    def _holder(self, lane: Lane) -> Grant | None:
        receipt = self._receipts.get(lane.key) if lane.key is not None else None
        return None if receipt is None else self._queue.deliveries.holder_of(lane, receipt)

    def _level(self, lane: Lane, first: Lane | None) -> int | None:
        by_head = self._queue.settings.priority_rank is PriorityRank.HEAD
        if isinstance(first, RankedLane) and (by_head or lane.head == NO_RECORD):
            return first.priority
        if not isinstance(lane, RankedLane) or lane.head == NO_RECORD:
            return None
        return lane.priority if by_head else lane.urgency
