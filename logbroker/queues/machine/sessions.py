"""Sessions: one worker has one lane alone, gets its records in order, and leaves a state to who comes after it.

The lane of an open session never comes into the line. Its holder gets up to `prefetch` consecutive records; they are
settled in any order. A failure, or a release, returns that record and all later ones in flight; it takes effect when
those before it are settled: then the lane waits for the backoff, or stands, as any other would, and the session stays
open. So while anything of a session is in flight its lane is not held, and what is in flight lies before all that
waits in the lane. A session may be open where nothing of its key waits: what arrives is its holder's.

The lock of a session is `lease_seconds` long. `renew` prolongs it, and so does each settlement that touches one of its
deliveries or its state; the deliveries have no lease of their own. When it ends, or the grace of a worker whose stream
broke, the session is free and what was in flight comes back. Of that only the first record counts a failure: it was
the one at work, those behind it were only fetched ahead, and would exhaust their attempts by a neighbour's fault. Close
and goodbye count none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from logbroker.engine import StateEvent
from logbroker.errors import (
    InvalidRequestError,
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

MAX_PREFETCH: Final = 1_000
ENDED_AT_ONCE: Final = 300
MAX_SESSIONS: Final = 100_000
"""Open ones of a queue group."""

_REASONS: Final = {Loss.LOCK_ENDED: "the lock of the session ended", Loss.WORKER_LOST: "the worker was lost"}
"""Of the attempt that failed, where a session ends by that."""


class Sessions:
    """All sessions of a queue group, by `lane.lane_key` of their ordering keys."""

    def __init__(
        self,
        group_epoch: int,
        lanes: LaneIndex,
        deliveries: Deliveries,
        stalled: StalledLanes,
        redelivery: Redelivery,
        outcomes: Outcomes,
        graces: ReconnectGraces,
        tick: Callable[[Moment], None],
        changes: ChangeSet,
    ) -> None:
        self.paused = False
        """Another ordering waits: nothing is opened or handed out."""
        self._lanes = lanes
        self._deliveries = deliveries
        self._stalled = stalled
        self._redelivery = redelivery
        self._outcomes = outcomes
        self._graces = graces
        self._tick = tick
        self._states = SessionStates(changes)
        self._table = SessionTable(group_epoch, lanes.sessions, changes)
        self.locks = self._table.locks
        self._changes = changes
        self._now = 0.0

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Take over what is stored. Raises CorruptLogError."""
        self._table.load(rows)
        self._states.load(rows)

    # --- what is asked -----------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> WorkerSession | None:
        """The open session of a key."""
        return self._table.get(key)

    @property
    def have_unclaimed(self) -> bool:
        """Whether sessions were held when the broker crashed that nobody has reclaimed."""
        return bool(self._table.unclaimed)

    @property
    def last_token(self) -> int:
        """No token of this group epoch is above it."""
        return self._table.last_token

    def is_taken(self, key: bytes) -> bool:
        """Whether somebody has the session of a key, or a record of it outside of one."""
        lane = self._lanes.get(key)
        return self._table.get(key) is not None or (lane is not None and lane.state == IN_FLIGHT)

    def state(self, key: bytes) -> bytes:
        """The state of a key, of up to 256 KiB; empty where there is none."""
        return self._states.get(key)

    def has_records(self, session: WorkerSession) -> bool:
        """Whether the holder of a session was handed some of its records, or is about to be."""
        lane = self._lanes.get(session.key)
        return bool(session.in_flight) or (lane is not None and self._may_take(lane))

    def held_by(self, worker_id: str) -> list[WorkerSession]:
        return list(self._deliveries.worker(worker_id).sessions.values())

    def ready(self) -> list[WorkerSession]:
        """The sessions that may have something to take; each leaves this list by `take`."""
        return [self._lanes.sessions[key] for key in self._lanes.offered]

    def __len__(self) -> int:
        """How many are open."""
        return len(self._table)

    # --- a session's life --------------------------------------------------------------------------------------------

    def open(self, worker_id: str, key: bytes | None, prefetch: int, now: Moment) -> WorkerSession | None:
        """Open the session of a key, or (None) that of the first lane in the line; to be answered when the events are
        synced. Returns None where no lane is ready for that, the worker has its grace, or another ordering waits.

        Raises SessionHeldError where somebody has the session, or a record of the key outside of one;
        InvalidRequestError without an ordering key, or for a prefetch that is not 1 to 1,000; OverloadedError where
        the worker would hold more than `max_in_flight`, or too many sessions are open.
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
        self._check_free(key)
        return self._begin(worker, key, self._table.next_token(), prefetch, now)

    def reclaim(self, worker_id: str, key: bytes, token: int, prefetch: int, now: Moment) -> WorkerSession:
        """Give a worker the session again that it held when the broker crashed, under the same token; its records come
        by `take` with new receipts. For the grace after such a start, and before `Queue.reclaim`, which would hand out
        the heads of such lanes outside of their sessions. Raises StaleSessionError, and as `open`."""
        self._tick(now)
        if self._table.unclaimed.get(key) != token:
            raise StaleSessionError("the session is over: open another")
        worker = self._deliveries.worker(worker_id)
        self._check(worker, prefetch)
        self._check_free(key)
        return self._begin(worker, key, token, prefetch, now)

    def forget_unclaimed(self) -> None:
        """The grace after a crash is over: what nobody reclaimed is free."""
        self._table.forget_unclaimed()

    def renew(self, worker_id: str, key: bytes, token: int, now: Moment) -> None:
        """Prolong the lock to `lease_seconds` from now. Raises StaleSessionError."""
        self._tick(now)
        self.prolong(self._own(worker_id, key, token), now)

    def close(self, worker_id: str, key: bytes, token: int, now: Moment) -> None:
        """Free a session; what is in flight comes back, and no attempt is counted. Raises StaleSessionError."""
        self._tick(now)
        self.end(self._own(worker_id, key, token), Loss.CLOSED, now)

    def take(self, session: WorkerSession, now: Moment) -> list[Granted]:
        """Hand out the next records of a session to its holder, as many as its prefetch has room for."""
        self._tick(now)
        self._lanes.offered.pop(session.key, None)
        if self.paused or session.worker.id in self._graces or self._table.get(session.key) is not session:
            return []
        if not self._is_good(session):
            return []
        records: list[Lane] = []
        lane = self._lanes.get(session.key)
        while lane is not None and self._may_take(lane) and len(records) < session.prefetch - session.in_flight:
            records.append(self._lanes.take_head(lane))
        if not records:
            return []
        return [self._outcomes.hand_out(session.worker, records, NEVER, session)]

    # --- settlements -------------------------------------------------------------------------------------------------

    def check_states(self, worker_id: str, writes: Sequence[SessionWrite]) -> None:
        """Raises StaleSessionError, StateTooLargeError or OverloadedError where one of them cannot be written."""
        for write in writes:
            self._own(worker_id, write.key, write.token)
            self._states.check(write.key, write.state)

    def write_state(self, write: SessionWrite, now: Moment) -> None:
        """Write a state that was checked."""
        self._states.write(write.key, write.state)
        self.prolong(self._lanes.sessions[write.key], now)

    def finish(self, session: WorkerSession, settled: Settled, now: Moment) -> None:
        """Deliveries of a session are acknowledged."""
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
    ) -> None:
        """Deliveries of a session, in the order of their receipts, come back, and with them all from receipt `end` on.
        With a reason the first of them has failed."""
        records = _records(settled)
        if records:
            self.prolong(session, now)
            records += self._deliveries.lose_from(session, Loss.CAME_BACK, end)
            self._put_back(session.key, records, reason, delay_seconds, now)
            self._go_on(session, now)

    def prolong(self, session: WorkerSession, now: Moment, lease_seconds: float | None = None) -> None:
        """Let the lock end so long from now, or later; None: the group's lease."""
        seconds = self._stalled.settings.lease_seconds if lease_seconds is None else lease_seconds
        session.deadline = max(session.deadline, now.seconds + seconds)

    # --- time and workers --------------------------------------------------------------------------------------------

    def expire(self, now: Moment) -> None:
        """End sessions whose lock is over, up to `ENDED_AT_ONCE` of them; those that are left are over all the same."""
        self._now = now.seconds
        for session in self._table.expired(now.seconds, ENDED_AT_ONCE):
            self.end(session, Loss.LOCK_ENDED, now)

    def end(self, session: WorkerSession, why: Loss, now: Moment) -> None:
        """End a session; an attempt is counted where it is lost, that is, for its lock or its worker, unless its holder
        may never have seen the first record."""
        key, reason = session.key, _REASONS.get(why)
        first = next((grant for grant in session.grants if grant.left), None)
        records = self._deliveries.lose_from(session, why, ended=True)
        self._deliveries.remove_session(session)
        self._table.remove(session)
        self._lanes.offered.pop(key, None)
        excused = first is not None and first.excused
        if reason is not None:
            self._changes.lost_sessions.append((session, why))
            if not excused:
                self._outcomes.tally.leases_lost += len(records)
        if records:
            self._put_back(key, records, None if excused else reason, None, now)
        lane = self._lanes.get(key)
        if lane is not None and lane.state == IN_SESSION:
            # At the end of the line: whoever opens the next free session shall not get the same one for ever.
            self._stalled.enter(lane, now)

    def offer_again(self, worker_id: str) -> None:
        """A worker came back in time: its sessions may have something to take."""
        self._lanes.offered.update(dict.fromkeys(self._deliveries.worker(worker_id).sessions))

    def resume(self) -> None:
        """No other ordering waits any more."""
        if self.paused:
            self.paused = False
            self._lanes.offered.update(dict.fromkeys(self._lanes.sessions))

    def void(self, why: Loss) -> None:
        """All sessions are over, as the index is; nothing is in flight."""
        for session in list(self._table):
            self._changes.lost_sessions.append((session, why))
            self._table.remove(session)
            self._deliveries.remove_session(session)
        self._table.forget_unclaimed()
        self.paused = False

    # --- outputs -----------------------------------------------------------------------------------------------------

    def stop_rows(self) -> list[StateEvent]:
        """The rows of a clean stop: after it, nobody holds a session."""
        return self._table.stop_rows()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _check(self, worker: LeaseHolder, prefetch: int) -> None:
        settings = self._stalled.settings
        if settings.ordering is not Ordering.KEY:
            raise InvalidRequestError(
                f"the queue group has ordering {settings.ordering.value}: sessions are of ordering keys, order by key"
            )
        if not 1 <= prefetch <= MAX_PREFETCH:
            raise InvalidRequestError(f"a session's prefetch is {prefetch}: give 1 to {MAX_PREFETCH:,}")
        if sum(session.prefetch for session in worker.sessions.values()) + prefetch > settings.max_in_flight:
            raise OverloadedError(
                f"the sessions of the worker may have more in flight than max_in_flight, {settings.max_in_flight:,}:"
                " close one, or prefetch less"
            )
        if len(self._table) >= MAX_SESSIONS:
            raise OverloadedError(f"{MAX_SESSIONS:,} sessions of the queue group are open: try again later")

    def _check_free(self, key: bytes) -> None:
        if self.is_taken(key):
            raise SessionHeldError(
                f"another holds the session of key {quoted_key(key)}, or a record of it: try again later"
            )

    def _own(self, worker_id: str, key: bytes, token: int) -> WorkerSession:
        session = self._table.get(key)
        if session is None or session.token != token or session.worker.id != worker_id or not self._is_good(session):
            raise StaleSessionError(
                "the session is over: its lock ended, it was closed, or the queue group began anew; stop working on it,"
                " and open another"
            )
        return session

    def _is_good(self, session: WorkerSession) -> bool:
        """Whether a session is not over, but for that it is not ended yet."""
        return session.worker.gone is None and session.deadline > self._now

    def _may_take(self, lane: Lane) -> bool:
        """Whether the head of the lane of a session may be handed out."""
        return lane.head != NO_RECORD and lane.state == IN_SESSION and lane.head not in self._stalled.attention

    def _begin(self, worker: LeaseHolder, key: bytes, token: int, prefetch: int, now: Moment) -> WorkerSession:
        deadline = now.seconds + self._stalled.settings.lease_seconds
        session = WorkerSession(key, token, worker, prefetch, deadline, [])
        self._deliveries.add_session(session)
        self._table.add(session)
        self._lanes.reserve(key)
        return session

    def _put_back(
        self, key: bytes, records: list[Lane], reason: str | None, delay_seconds: float | None, now: Moment
    ) -> None:
        record_ids = [record.head for record in records]
        self._lanes.put_back(key, records)
        self._redelivery.returned.update(record_ids)
        if reason is not None:
            self._stalled.note(key, record_ids[0], reason, delay_seconds, now)

    def _go_on(self, session: WorkerSession, now: Moment) -> None:
        """Offer the head of the lane to the holder, or put the lane where its head demands."""
        lane = self._lanes.get(session.key)
        if lane is None or lane.state != IN_SESSION:
            return
        if lane.head not in self._stalled.attention:
            if session.in_flight < session.prefetch:
                self._lanes.offered[session.key] = None
        elif not session.in_flight:
            self._stalled.enter(lane, now)


def _records(settled: Settled) -> list[Lane]:
    """Deliveries of a session are all lanes, of one record each."""
    return [lane for lane in settled if isinstance(lane, Lane)]
