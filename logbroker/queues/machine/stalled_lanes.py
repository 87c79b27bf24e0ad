"""Stalled lanes: the consequences of a failure, and of exhausted attempts.

A failing record stalls its own lane and no other, either for its backoff or until an operator decides. When its
attempts are exhausted, the lane is *blocked* (its head stops it until an operator decides about this record) or
*parked* (its key is set aside, so later records join it, too, even after a rewind), or its head goes to the dead-letter
topic and the lane goes on.

The rows store failures and their states by record, and parked lanes by ordering key, but not the lanes themselves. When
a scan makes a record with stored state the head of a lane, `enter` restores the state of the lane. A parked lane exists
before its first record is scanned. When this record is admitted, `meet_parked` sets the lane aside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec

from logbroker.errors import LogbrokerError
from logbroker.queues.machine.delay_queue import DelayQueue
from logbroker.queues.machine.lane_index import LaneIndex
from logbroker.queues.model.lane import BLOCKED, DEAD_LETTERING, NO_RECORD, PARKED, WAITING, Lane
from logbroker.queues.model.messages import MAX_REASON_CHARACTERS, Notice, NoticeKind
from logbroker.queues.model.record_id import OFFSET_MASK, Moment, offset_of, partition_of
from logbroker.queues.model.settings import OnExhausted, QueueGroupSettings
from logbroker.queues.records.read_failures import ReadFailures
from logbroker.queues.state import failures as retry
from logbroker.queues.state.change_set import ChangedRows, ChangeSet
from logbroker.queues.state.dead_letter_intents import DeadLetters
from logbroker.queues.state.failures import Failure, Failures, backoff_seconds
from logbroker.queues.state.replacements import Replacements
from logbroker.queues.state.rows import PARKED_ROW, decode, hashed_key

HELD: frozenset[int] = frozenset((WAITING, BLOCKED, PARKED, DEAD_LETTERING))
"""States of stalled lanes. An operator can decide about lanes in these states."""


class Parked(msgspec.Struct, frozen=True, array_like=True):
    """The row of a parked lane."""

    key: bytes
    since_ms: int
    reason: str
    head: int
    """Id of the record that failed."""


class StalledLanes:
    """The stalled lanes of a queue group."""

    def __init__(
        self,
        settings: QueueGroupSettings,
        lanes: LaneIndex,
        failures: Failures,
        dead_letters: DeadLetters,
        replacements: Replacements,
        random: Callable[[], float],
        changes: ChangeSet,
    ) -> None:
        self.settings = settings
        self.attention: set[int] = set()
        """Records that `enter` has to examine when they become heads, because they have stored state, or a not-before
        time that is not applied yet."""
        self.delays = DelayQueue()
        self.not_before: dict[int, int] = {}
        """Not-before times (wall clock, ms) of records that are not heads yet."""
        self.read_failures = ReadFailures()
        self._read_again: dict[int, float] = {}
        """Times (monotonic, s) at which unreadable records are tried again, for records whose lanes do not wait yet."""
        self.done_in_line: set[int] = set()
        """Records that became done while they were successors in a lane. They are skipped when they become heads."""
        self.parked: dict[bytes, Parked] = {}
        self.set_aside: dict[int, Lane] = {}
        """Blocked and parked lanes by their heads."""
        self._lanes = lanes
        self._failures = failures
        self._dead_letters = dead_letters
        self._replacements = replacements
        self._random = random
        lanes.on_parked_head = self.meet_parked
        self._changes = changes
        self._rows = ChangedRows(changes, partial(hashed_key, PARKED_ROW), self.parked.get)
        self._noting: list[dict[int, bytes | None]] = []
        self.on_first_failure: Callable[[int], None] = lambda record_id: None
        """Called with each record that fails for the first time."""

    def load(self, rows: Mapping[bytes, bytes], ends: Mapping[int, int]) -> None:
        """Load the parked lanes, except those whose failed record is beyond the end of its log.

        Raises CorruptLogError.
        """
        for key, value in rows.items():
            if key.startswith(PARKED_ROW):
                parked = decode(key, value, Parked)
                self._rows.load(parked.key)
                if offset_of(parked.head) >= ends.get(partition_of(parked.head), OFFSET_MASK):
                    self._rows.changed(parked.key)
                    continue
                self.parked[parked.key] = parked
                self._lanes.add_parked(parked.key)

    def expect_all(self) -> None:
        """Put all records with stored state into `attention`, because the index is empty and they will all be admitted
        again."""
        self.attention.update(self._failures.record_ids(), self._dead_letters.intents(), self._replacements.records)

    @property
    def count(self) -> int:
        """Number of stalled lanes, except parked lanes that the scan has not met since the start."""
        return len(self.delays) + len(self.set_aside) + len(self._dead_letters)

    # --- holding and releasing ---------------------------------------------------------------------------------------

    def enter(self, lane: Lane, now: Moment) -> None:
        """Make a lane with a new head ready, or stall it, by the state of the head. If the session of the lane has
        earlier records in flight, the lane stalls only when they are settled."""
        entering = [lane]
        while entering:
            self._enter(entering.pop(), now, entering.append)

    def _enter(self, lane: Lane, now: Moment, enter_next: Callable[[Lane], None]) -> None:
        """`enter_next` gets the lane if its head is skipped and another record becomes the head."""
        record_id = lane.head
        if record_id not in self.attention or self._lanes.is_behind(lane):
            self._lanes.make_ready(lane)
            return
        self.attention.discard(record_id)
        due_ms = self.not_before.pop(record_id, 0)
        again = self._read_again.pop(record_id, 0.0)
        if record_id in self.done_in_line:
            self.done_in_line.discard(record_id)
            self._lanes.advance((lane,), self.attention, enter_next)
            return
        failure = self._failures.get(record_id)
        wait = max((due_ms - now.wall_ms) / 1000, again - now.seconds)
        if self._dead_letters.has_intent(record_id):
            self._dead_letters.request(lane)
            return
        if failure is not None:
            if failure.state == retry.EXHAUSTED:
                self._dead_letters.request(lane)
                return
            if failure.state == retry.BLOCKED:
                self._set_aside(lane, BLOCKED)
                return
            if failure.state == retry.PARKED:
                self._park(lane, failure)
                return
            wait = max(wait, failure.wait_seconds(now.wall_ms))
        if wait > 0:
            self.wait(lane, now.seconds + wait)
        else:
            self._lanes.make_ready(lane)

    def wait(self, lane: Lane, due: float) -> None:
        lane.state = WAITING
        self.delays.add(lane, due)

    def fail(self, lane: Lane, reason: str, delay_seconds: float | None, now: Moment) -> None:
        """Record a failed attempt at the head of a lane. `delay_seconds` None: the backoff of the settings."""
        self.note(lane.key, lane.head, reason, delay_seconds, now)
        self.enter(lane, now)

    def note_unreadable(self, record_id: int, error: LogbrokerError, now: Moment) -> None:
        """Note that a record cannot be read now. It waits from the moment when `enter` gets it as a head."""
        self._read_again[record_id] = self.read_failures.add(record_id, error, now.seconds)
        self.attention.add(record_id)

    def note(self, key: bytes | None, record_id: int, reason: str, delay_seconds: float | None, now: Moment) -> None:
        """Record a failed attempt. The consequence is decided now, and takes effect when `enter` gets the record as a
        head."""
        for noted in self._noting:
            noted[record_id] = key
        self.attention.add(record_id)
        failure = self._failures.add(record_id, reason, now.wall_ms)
        if failure.count == 1:
            self.on_first_failure(record_id)
        if failure.count < self.settings.max_attempts:
            if delay_seconds is None:
                delay_seconds = backoff_seconds(self.settings, failure.count, self._random)
            self._failures.delay(record_id, delay_seconds, now.wall_ms)
            return
        match self.settings.on_exhausted:
            case OnExhausted.BLOCK:
                self._exhaust(key, record_id, reason, retry.BLOCKED, NoticeKind.BLOCKED)
            case OnExhausted.PARK:
                self._exhaust(key, record_id, reason, retry.PARKED, NoticeKind.PARKED)
            case OnExhausted.DEAD_LETTER:
                self._exhaust(key, record_id, reason, retry.EXHAUSTED, NoticeKind.DEAD_LETTERED)

    @contextmanager
    def noting(self) -> Iterator[dict[int, bytes | None]]:
        """Gather the records that fail during the context, with the keys of their lanes. A search for stalled lanes
        needs them, because lanes may fail during the search."""
        noted: dict[int, bytes | None] = {}
        self._noting.append(noted)
        try:
            yield noted
        finally:
            self._noting = [other for other in self._noting if other is not noted]

    def _exhaust(self, key: bytes | None, record_id: int, reason: str, state: int, kind: NoticeKind) -> None:
        self._failures.set_state(record_id, state)
        self._changes.notices.append(Notice(kind, key, record_id, reason[:MAX_REASON_CHARACTERS]))

    def _park(self, lane: Lane, failure: Failure) -> None:
        if lane.key is not None:
            self.parked[lane.key] = Parked(lane.key, failure.last_ms, failure.reasons[-1], lane.head)
            self._rows.changed(lane.key)
        self._set_aside(lane, PARKED)

    def meet_parked(self, lane: Lane) -> None:
        """Set a parked lane aside when its first record is admitted, after a start or a rebuild of the lanes."""
        self.attention.discard(lane.head)
        self.not_before.pop(lane.head, None)
        self._set_aside(lane, PARKED)

    def let_go(self, lane: Lane) -> None:
        """Remove a lane from the stalled lanes, so that it can go on. The attempts of its head begin anew."""
        if lane.state == WAITING:
            self.delays.cancel(lane)
        elif lane.state == DEAD_LETTERING:
            self._dead_letters.withdraw(lane.head)
        elif lane.head != NO_RECORD:
            del self.set_aside[lane.head]
        if lane.state == PARKED and lane.key is not None:
            # The record that the lane was parked for may not be scanned yet.
            self._failures.forget(self.parked.pop(lane.key).head)
            self._rows.changed(lane.key)
        if lane.head != NO_RECORD:
            self._failures.forget(lane.head)
            self.attention.discard(lane.head)
            self.not_before.pop(lane.head, None)
            self._read_again.pop(lane.head, None)

    def suspend(self, lane: Lane, now: Moment) -> None:
        """Remove a lane from the stalled lanes for a while. Its head keeps its attempts and the reason for the stall:
        `enter` stalls the lane again when it gets the head."""
        head = lane.head
        if lane.state == WAITING:
            due = self.delays.due(lane)
            self.delays.cancel(lane)
            if self.read_failures.error_of(head) is not None:
                self._read_again[head] = due
            elif self._failures.get(head) is None:
                self.not_before[head] = now.wall_ms + math.ceil(1000 * (due - now.seconds))
        elif lane.state == DEAD_LETTERING:
            self._dead_letters.forget_lane(head)
        elif head != NO_RECORD:
            del self.set_aside[head]
        if lane.state == PARKED and lane.key is not None:
            self.attention.add(self.parked.pop(lane.key).head)
            self._rows.changed(lane.key)
        if head != NO_RECORD:
            self.attention.add(head)

    def tick(self, now: float) -> None:
        """Make ready the lanes that are due."""
        for lane in self.delays.pop(now):
            self._lanes.make_ready(lane)

    def first_of(self, lane: Lane) -> int:
        """Return the first record of a lane. For a parked lane that the scan has not met yet, it is the record that
        failed."""
        parked = self.parked.get(lane.key) if lane.head == NO_RECORD and lane.key is not None else None
        return lane.head if parked is None else parked.head

    def cause_of(self, lane: Lane) -> int:
        """Return the record that holds up a lane: its head, unless a rewind put records before the record that the lane
        was parked for."""
        if lane.state == PARKED and lane.key is not None and self._failures.get(lane.head) is None:
            parked = self.parked.get(lane.key)
            return lane.head if parked is None else parked.head
        return lane.head

    def failure_of(self, lane: Lane) -> Failure | None:
        """Return the failure of the record that holds up a lane."""
        return self._failures.get(self.cause_of(lane))

    def find(self, record_id: int) -> Lane | None:
        """Return the stalled lane with this head."""
        return self.set_aside.get(record_id) or self.delays.get(record_id) or self._dead_letters.find(record_id)

    def forget_heads(self, record_ids: Sequence[int]) -> None:
        """Forget records that are done without having become heads."""
        self.attention.difference_update(record_ids)
        self.done_in_line.difference_update(record_ids)
        if self.not_before:
            for record_id in record_ids:
                self.not_before.pop(record_id, None)
        if self._read_again:
            for record_id in record_ids:
                self._read_again.pop(record_id, None)

    def forget_parked(self, which: Callable[[Parked], bool]) -> None:
        """Unpark the keys of some parked lanes. The failures of their records stay as they are."""
        for key in [key for key, parked in self.parked.items() if which(parked)]:
            del self.parked[key]
            self._rows.changed(key)

    def forget_lanes(self) -> None:
        """Forget all lanes but the parked ones. Failures of records stay, and decide the state of a lane when such a
        record becomes its head."""
        for key in self.parked:
            self._lanes.add_parked(key)
        self.delays.clear()
        self.set_aside.clear()
        self.not_before.clear()
        self.read_failures.clear()
        self._read_again.clear()
        self.attention.clear()
        self.done_in_line.clear()

    # --- outputs -----------------------------------------------------------------------------------------------------

    def parked_lanes(self) -> Iterator[Lane]:
        """Yield all parked lanes, with an ordering key and without."""
        for key in self.parked:
            if (lane := self._lanes.get(key)) is not None:
                yield lane
        for lane in self.set_aside.values():
            if lane.state == PARKED and lane.key is None:
                yield lane

    def _set_aside(self, lane: Lane, state: int) -> None:
        lane.state = state
        self.set_aside[lane.head] = lane
