"""Sessions: a worker has one lane for itself, gets its records in order, and leaves a state to the next holder.

The lane of an open session never enters the ready queue. Its holder gets up to `prefetch` consecutive records, and may
settle them in any order. A failure or a release returns that record and all later ones in flight. When the earlier ones
are settled, the lane stalls for the backoff or until an operator decides, like any other lane, and the session stays
open. So a lane does not stall while its session has records in flight, and these records precede all that wait in the
lane. A session may be open while no record of its key waits; its holder gets the records that arrive.

The lock of a session lasts `lease_seconds`. `renew` extends it, and so does each settlement of one of its deliveries or
write of its state; the deliveries have no lease of their own. When the lock ends, or the grace ends after the worker's
stream broke, the session is free and its records in flight come back. Only the first of them counts a failure, because
the worker was working on it. The later records were only fetched ahead, and would otherwise exhaust their attempts
through the fault of another record. Close and goodbye count no failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from logbroker.errors import (
    InvalidRequestError,
    LogbrokerError,
    OverloadedError,
    SessionHeldError,
    StaleSessionError,
    quoted_key,
)
from logbroker.group_runtime.deadline_heap import NEVER
from logbroker.queues.machine.lane_index import LaneIndex
from logbroker.queues.machine.leases import Deliveries, Settled
from logbroker.queues.machine.outcomes import Outcomes
from logbroker.queues.machine.reconnect_grace import ReconnectGraces
from logbroker.queues.machine.session_table import SessionTable
from logbroker.queues.machine.stalled_lanes import StalledLanes
from logbroker.queues.model.holders import LeaseHolder, WorkerSession
from logbroker.queues.model.lane import IN_FLIGHT, IN_SESSION, NO_RECORD, Lane
from logbroker.queues.model.lost_receipts import Loss
from logbroker.queues.model.messages import Granted, SessionWrite
from logbroker.queues.model.record_id import Moment
from logbroker.queues.model.settings import Ordering
from logbroker.queues.state.change_set import ChangeSet
from logbroker.queues.state.redelivery import Redelivery
from logbroker.queues.state.session_store import SessionStates
from logbroker.queues.state.splits import Splits

MAX_PREFETCH: Final = 1_000
ENDED_AT_ONCE: Final = 300
MAX_SESSIONS: Final = 100_000
"""Maximum number of open sessions in a queue group."""

_REASONS: Final = {Loss.LOCK_ENDED: "the lock of the session ended", Loss.WORKER_LOST: "the worker was lost"}
"""Failure reason of the record that was being worked on, by the reason why its session ended."""


class Sessions:
    """All sessions of a queue group, by the `lane.lane_key` of their ordering keys."""

    def __init__(
        self,
        group_epoch: int,
        lanes: LaneIndex,
        deliveries: Deliveries,
        stalled: StalledLanes,
        redelivery: Redelivery,
        outcomes: Outcomes,
        graces: ReconnectGraces,
        splits: Splits,
        tick: Callable[[Moment], None],
        changes: ChangeSet,
    ) -> None:
        self.paused = False
        """Whether new settings or a rebuild wait until nothing is in flight. Then no session is opened, and nothing is
        handed out."""
        self._lanes = lanes
        self._deliveries = deliveries
        self._stalled = stalled
        self._redelivery = redelivery
        self._outcomes = outcomes
        self._graces = graces
        self._splits = splits
        self._tick = tick
        self._states = SessionStates(changes)
        self._table = SessionTable(group_epoch, lanes.sessions, changes)
        self.locks = self._table.locks
        self._changes = changes
        self._now = 0.0

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Load the stored sessions and states. Raises CorruptLogError."""
        self._table.load(rows)
        self._states.load(rows)

    # --- queries -----------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> WorkerSession | None:
        """Return the open session of a key."""
        return self._table.get(key)

    @property
    def have_unclaimed(self) -> bool:
        """Whether sessions that were held when the broker ended are not reclaimed yet."""
        return bool(self._table.unclaimed)

    @property
    def last_token(self) -> int:
        """Upper bound of the tokens given out in this group epoch."""
        return self._table.last_token

    def is_taken(self, key: bytes) -> bool:
        """Return whether a worker has the session of a key, or a record of the key outside of a session."""
        lane = self._lanes.get(key)
        return self._table.get(key) is not None or (lane is not None and lane.state == IN_FLIGHT)

    def state(self, key: bytes) -> bytes:
        """Return the state of a key, up to 256 KiB; empty: there is none."""
        return self._states.get(key)

    def has_records(self, session: WorkerSession) -> bool:
        """Return whether the holder of a session has some of its records in flight, or can be handed one."""
        lane = self._lanes.get(session.key)
        return bool(session.in_flight) or (lane is not None and self._may_take(lane))

    def held_by(self, worker_id: str) -> list[WorkerSession]:
        return list(self._deliveries.worker(worker_id).sessions.values())

    def ready(self) -> list[WorkerSession]:
        """Return the sessions that may have a record to take. `take` removes a session from this list."""
        return [self._lanes.sessions[key] for key in self._lanes.offered]

    def __len__(self) -> int:
        """Return the number of open sessions."""
        return len(self._table)

    # --- life of a session -------------------------------------------------------------------------------------------

    def open(self, worker_id: str, key: bytes | None, prefetch: int, now: Moment) -> WorkerSession | None:
        """Open the session of a key or, if `key` is None, of the first lane in the ready queue. The caller answers when
        the events are synced. Returns None if no lane is ready, the worker is in its grace, or new settings wait.

        Raises SessionHeldError if a worker has the session, or a record of the key outside of a session;
        InvalidRequestError if the group does not order by key, if the key is split, or if prefetch is not 1 to 1,000;
        OverloadedError if the worker would hold more than `max_in_flight`, or too many sessions are open.
        """
        self._tick(now)
        worker = self._deliveries.worker(worker_id)
        self._check(worker, prefetch)
        if self.paused or worker_id in self._graces:
            return None
        if key is None:
            key = self._lanes.next_key()
            if key is None:
                return None
        split = self._splits.by_key.get(key)
        if split is not None and split.ends is None:
            first = quoted_key(split.sub_lane(0))
            raise InvalidRequestError(
                f"key {quoted_key(key)} is split: open the session of one of its {split.into:,} sub-lanes, such as"
                f" {first}, or of the next lane"
            )
        self._check_free(key)
        return self._begin(worker, key, self._table.next_token(), prefetch, now)

    def reclaim(self, worker_id: str, key: bytes, token: int, prefetch: int, now: Moment) -> WorkerSession:
        """Give back to a worker the session that it held when the broker ended, under the same token. `take` then
        hands out its records, with new receipts. Call it in the grace after the start, before `Queue.reclaim`, which
        would hand out the heads of these lanes outside of their sessions. Raises StaleSessionError, and the errors of
        `open`."""
        self._tick(now)
        if self._table.unclaimed.get(key) != token or key in self._splits.by_key:
            raise StaleSessionError("the session is over: open another")
        worker = self._deliveries.worker(worker_id)
        self._check(worker, prefetch)
        self._check_free(key)
        return self._begin(worker, key, token, prefetch, now)

    def forget_unclaimed(self) -> None:
        """End the grace after a start: free the sessions that nobody reclaimed."""
        self._table.forget_unclaimed()

    def renew(self, worker_id: str, key: bytes, token: int, now: Moment) -> None:
        """Extend the lock to `lease_seconds` from now. Raises StaleSessionError."""
        self._tick(now)
        self.prolong(self._own(worker_id, key, token), now)

    def close(self, worker_id: str, key: bytes, token: int, now: Moment) -> None:
        """Free a session. Its records in flight come back, and no attempt is counted. Raises StaleSessionError."""
        self._tick(now)
        self.end(self._own(worker_id, key, token), Loss.CLOSED, now)

    def take(self, session: WorkerSession, now: Moment, most: int | None = None) -> list[Granted]:
        """Hand out the next records of a session to its holder: as many as its prefetch has room for, up to `most`.
        If more could be taken, the session is in `ready` again, behind the others."""
        self._tick(now)
        self._lanes.offered.pop(session.key, None)
        if self.paused or session.worker.id in self._graces or self._table.get(session.key) is not session:
            return []
        if not self._is_good(session):
            return []
        records: list[Lane] = []
        lane = self._lanes.get(session.key)
        room = session.prefetch - session.in_flight
        end = room if most is None else min(room, most)
        while lane is not None and self._may_take(lane) and len(records) < end:
            records.append(self._lanes.take_head(lane))
        if lane is not None and self._may_take(lane) and end < room:
            self._lanes.offered[session.key] = None
        if not records:
            return []
        return [self._outcomes.hand_out(session.worker, records, NEVER, session)]

    # --- settlements -------------------------------------------------------------------------------------------------

    def check_states(self, worker_id: str, writes: Sequence[SessionWrite]) -> None:
        """Raise StaleSessionError, StateTooLargeError or OverloadedError if one of the states cannot be written."""
        for write in writes:
            self._own(worker_id, write.key, write.token)
            self._states.check(write.key, write.state)

    def write_state(self, write: SessionWrite, now: Moment) -> None:
        """Write a state that `check_states` accepted."""
        self._states.write(write.key, write.state)
        self.prolong(self._lanes.sessions[write.key], now)

    def finish(self, session: WorkerSession, settled: Settled, now: Moment) -> None:
        """Finish the acknowledged deliveries of a session."""
        records = _records(settled)
        if records:
            self._outcomes.forget([record.head for record in records])
            self.prolong(session, now)
            self._go_on(session, now)

    def give_back(
        self,
        session: WorkerSession,
        settled: Settled,
        end: int,
        now: Moment,
        reason: str | None = None,
        delay_seconds: float | None = None,
        *,
        is_seen: bool = True,
        unreadable: LogbrokerError | None = None,
    ) -> None:
        """Put deliveries of a session back, in the order of their receipts, together with all from receipt `end` on.
        With a reason, the first of them has failed; with `unreadable`, it cannot be read now. `is_seen`: whether the
        deliveries may have left the broker."""
        records = _records(settled)
        if records:
            self.prolong(session, now)
            records += self._deliveries.lose_from(session, Loss.CAME_BACK, end)
            self._put_back(session.key, records, reason, delay_seconds, now, is_seen=is_seen)
            if unreadable is not None:
                self._stalled.note_unreadable(records[0].head, unreadable, now)
            self._go_on(session, now)

    def prolong(self, session: WorkerSession, now: Moment, lease_seconds: float | None = None) -> None:
        """Extend the lock to `lease_seconds` from now, but never shorten it. None: the lease of the group's
        settings."""
        seconds = self._stalled.settings.lease_seconds if lease_seconds is None else lease_seconds
        session.deadline = max(session.deadline, now.seconds + seconds)

    def forget_states(self, keys: Iterable[bytes]) -> None:
        """Delete the states of keys that have no session, because their sub-lanes end."""
        for key in keys:
            if self._states.get(key):
                self._states.write(key, b"")

    # --- time and workers --------------------------------------------------------------------------------------------

    def expire(self, now: Moment) -> None:
        """End sessions whose lock has ended, at most `ENDED_AT_ONCE`. The others are ended later, but are no longer
        valid."""
        self._now = now.seconds
        for session in self._table.expired(now.seconds, ENDED_AT_ONCE):
            self.end(session, Loss.LOCK_ENDED, now)

    def end(self, session: WorkerSession, why: Loss, now: Moment) -> None:
        """End a session. If its lock ended or its worker was lost, an attempt is counted, unless its holder may never
        have seen the first record."""
        key, what = session.key, _REASONS.get(why)
        first = next((grant for grant in session.grants if grant.left), None)
        records = self._deliveries.lose_from(session, why, ended=True)
        self._deliveries.remove_session(session)
        self._table.remove(session)
        self._lanes.offered.pop(key, None)
        excused = first is not None and first.excused
        if what is not None:
            self._changes.lost_sessions.append((session, why))
            if not excused:
                self._outcomes.tally.leases_lost += len(records)
        if records:
            reason = None if what is None or excused else session.worker.reason(what)
            self._put_back(key, records, reason, None, now)
        lane = self._lanes.get(key)
        if lane is not None and lane.state == IN_SESSION:
            # The lane goes to the end of the ready queue, so that a worker that opens the next free session does not
            # get this one over and over.
            self._stalled.enter(lane, now)

    def offer_again(self, worker_id: str) -> None:
        """Offer again the sessions of a worker that came back in time."""
        self._lanes.offered.update(dict.fromkeys(self._deliveries.worker(worker_id).sessions))

    def resume(self) -> None:
        """Go on after settings that waited have taken effect or were withdrawn."""
        if self.paused:
            self.paused = False
            self._lanes.offered.update(dict.fromkeys(self._lanes.sessions))

    def void(self, why: Loss) -> None:
        """End all sessions, because the index is emptied and nothing is in flight."""
        for session in list(self._table):
            self._changes.lost_sessions.append((session, why))
            self._table.remove(session)
            self._deliveries.remove_session(session)
        self._table.forget_unclaimed()
        self.paused = False

    # --- internals ---------------------------------------------------------------------------------------------------

    def _check(self, worker: LeaseHolder, prefetch: int) -> None:
        settings = self._stalled.settings
        if settings.ordering is not Ordering.KEY:
            raise InvalidRequestError(
                f"the queue group has ordering {settings.ordering.value}: sessions need ordering keys, order by key"
            )
        if not 1 <= prefetch <= MAX_PREFETCH:
            raise InvalidRequestError(f"a session's prefetch is {prefetch}: give 1 to {MAX_PREFETCH:,}")
        if sum(session.prefetch for session in worker.sessions.values()) + prefetch > settings.max_in_flight:
            raise OverloadedError(
                "with this session, the worker could have more in flight than max_in_flight,"
                f" {settings.max_in_flight:,}: close one, or prefetch less"
            )
        if len(self._table) >= MAX_SESSIONS:
            raise OverloadedError(f"{MAX_SESSIONS:,} sessions of the queue group are open: try again later")

    def _check_free(self, key: bytes) -> None:
        if self.is_taken(key):
            raise SessionHeldError(
                f"a worker holds the session of key {quoted_key(key)}, or a record of the key: try again later"
            )

    def _own(self, worker_id: str, key: bytes, token: int) -> WorkerSession:
        session = self._table.get(key)
        if session is None or session.token != token or session.worker.id != worker_id or not self._is_good(session):
            raise StaleSessionError(
                "the session is over: its lock ended, it was closed, or the queue group was rewound, rebuilt or"
                " restarted; stop working on it, and open another"
            )
        return session

    def _is_good(self, session: WorkerSession) -> bool:
        """Return whether a session is still valid. Its lock may have ended, or its worker be gone, some time before
        `end` is called."""
        return session.worker.gone is None and session.deadline > self._now

    def _may_take(self, lane: Lane) -> bool:
        """Return whether the head of a session's lane may be handed out."""
        if self._lanes.gated and lane.key in self._lanes.gated:
            return False
        return lane.head != NO_RECORD and lane.state == IN_SESSION and lane.head not in self._stalled.attention

    def _begin(self, worker: LeaseHolder, key: bytes, token: int, prefetch: int, now: Moment) -> WorkerSession:
        deadline = now.seconds + self._stalled.settings.lease_seconds
        session = WorkerSession(key, token, worker, prefetch, deadline, [])
        self._deliveries.add_session(session)
        self._table.add(session)
        self._lanes.reserve(key)
        return session

    def _put_back(
        self,
        key: bytes,
        records: list[Lane],
        reason: str | None,
        delay_seconds: float | None,
        now: Moment,
        *,
        is_seen: bool = True,
    ) -> None:
        record_ids = [record.head for record in records]
        self._lanes.put_back(key, records)
        if is_seen:
            self._redelivery.returned.update(record_ids)
        if reason is not None:
            self._stalled.note(key, record_ids[0], reason, delay_seconds, now)

    def _go_on(self, session: WorkerSession, now: Moment) -> None:
        """Offer the head of a session's lane to the holder, or stall the lane if its head needs that."""
        lane = self._lanes.get(session.key)
        if lane is None or lane.state != IN_SESSION:
            return
        if lane.head not in self._stalled.attention:
            if session.in_flight < session.prefetch:
                self._lanes.offered[session.key] = None
        elif not session.in_flight:
            self._stalled.enter(lane, now)


def _records(settled: Settled) -> list[Lane]:
    """Return the records of a session's deliveries, each as a lane of its own (`LaneIndex.take_head`)."""
    return [lane for lane in settled if isinstance(lane, Lane)]
