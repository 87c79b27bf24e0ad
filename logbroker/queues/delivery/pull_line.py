"""Workers that wait for records: first come, first served, and what is ready is shared evenly among those who wait.

Nothing is handed out before somebody can take it on: a worker that is busy, or whose stream is slow, does not wait.

With priorities, a credit counts only when all is scanned that was readable when it was given: what is then ready and
most urgent is so in the log, too. Each credit has its own barrier (`Scanner.barrier`), so that who gives one after the
other is served all the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from logbroker.errors import LogbrokerError
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.holders import WorkerSession
from logbroker.queues.model.messages import Granted
from logbroker.queues.model.record_id import Moment
from logbroker.queues.model.worker_messages import DISPATCH_BYTES
from logbroker.queues.scan.barriers import NO_BARRIER
from logbroker.queues.scan.scanner import Scanner
from logbroker.record.bands import Band

DISPATCH_RECORDS: Final = 8192
_WEIGHT: Final = 0.2
"""The weight of the newest dispatch in the mean size of records."""


class Turn(msgspec.Struct):
    """What was handed out to somebody: records of the line, or those of a session."""

    granted: list[Granted]
    granted_at: float
    """Monotonic seconds."""
    session: WorkerSession | None = None


class PullRequest:
    """A worker's wait for records: its credit, and whether it waits now."""

    def __init__(self, worker_id: str, band: Band | None = None) -> None:
        """`band`: only records of its priorities; None: all."""
        self.worker_id = worker_id
        self.band = band
        self.credit = 0
        """What may be handed out outside of sessions; each record handed out uses one up."""
        self.early: deque[tuple[int, int]] = deque()
        """Of the credit, what does not count yet: barriers of the scan and numbers of records. Few: a barrier that is
        taken anew is soon reached, or the one before."""
        self.max_bytes: Callable[[], int] = lambda: DISPATCH_BYTES
        """How much may be handed out at a time, about; set by who writes it."""
        self.credit_bytes: int | None = None
        """What may be sent outside of sessions; None: not bounded. Below 0 by what the last message had too much."""
        self.session_credit_bytes: dict[int, int] = {}
        """The same of sessions, by their tokens; those that are not in it are not bounded."""
        self.turn: asyncio.Future[Turn] | None = None
        """Pending: it waits."""

    @property
    def waits(self) -> bool:
        return self.turn is not None and not self.turn.done()

    def add_credit(self, records: int, barrier: int) -> None:
        self.credit += records
        if barrier == NO_BARRIER:
            return
        if self.early and self.early[-1][0] == barrier:
            records += self.early.pop()[1]
        self.early.append((barrier, records))

    def may_send(self, session_token: int = 0) -> bool:
        """Whether the credit in bytes allows another message, outside of sessions or of one."""
        left = self.session_credit_bytes.get(session_token) if session_token else self.credit_bytes
        return left is None or left > 0

    def sent(self, size_bytes: int, session_token: int = 0) -> None:
        """So much goes to the worker."""
        if not session_token and self.credit_bytes is not None:
            self.credit_bytes -= size_bytes
        elif session_token in self.session_credit_bytes:
            self.session_credit_bytes[session_token] -= size_bytes

    def usable_credit(self, may_serve: Callable[[int], bool]) -> int:
        """The credit that counts by now."""
        while self.early and may_serve(self.early[0][0]):
            self.early.popleft()
        return self.credit - sum(records for _, records in self.early)


class PullLine:
    """The line of one queue group. Who has no credit waits beside it, for records of sessions."""

    def __init__(self, queue: Queue, scanner: Scanner, moment: Callable[[], Moment]) -> None:
        self._queue = queue
        self._scanner = scanner
        self._moment = moment
        self._loop = asyncio.get_running_loop()
        self._pulls: deque[PullRequest] = deque()
        self._by_worker: dict[str, PullRequest] = {}
        """Those that wait for records of sessions."""
        self._record_bytes = 1024.0
        self._error: LogbrokerError | None = None
        self.delivered = 0
        """Records handed out in this group epoch."""

    @property
    def is_waited_in(self) -> bool:
        """Whether anybody waits for records, of the line or of sessions."""
        return bool(self._pulls or self._by_worker)

    def join(self, pull: PullRequest, *, sessions: bool) -> asyncio.Future[Turn]:
        """Wait for records at the end of the line, with `sessions` also for those of the worker's sessions. It is
        time to serve then. Raises what the line was closed with."""
        if self._error is not None:
            raise self._error.anew()
        pull.turn = self._loop.create_future()
        if pull.credit:
            self._pulls.append(pull)
        if sessions:
            self._by_worker[pull.worker_id] = pull
        return pull.turn

    def credited(self, pull: PullRequest, records: int) -> None:
        """Somebody may be handed more."""
        if not pull.credit and pull.waits:
            self._pulls.append(pull)
        pull.add_credit(records, self._scanner.barrier() if self._queue.settings.has_priorities else NO_BARRIER)

    def leave(self, pull: PullRequest, error: LogbrokerError | None = None) -> Turn | None:
        """Wait no more; return what was handed out already, but not noticed yet. Who waits may be told of an error."""
        turn, pull.turn = pull.turn, None
        if turn is None:
            return None
        self._remove(pull)
        if turn.done() and not turn.cancelled():
            return turn.result()
        if error is None:
            turn.cancel()
        elif not turn.done():
            turn.set_exception(error.anew())
            turn.exception()  # Who waited may be gone.
        return None

    def _remove(self, pull: PullRequest) -> None:
        if self._by_worker.get(pull.worker_id) is pull:
            del self._by_worker[pull.worker_id]
        with suppress(ValueError):
            self._pulls.remove(pull)

    def close(self, error: LogbrokerError) -> None:
        """Send everybody home, also who comes later."""
        self._error = error
        for pull in {*self._pulls, *self._by_worker.values()}:
            self.leave(pull, error)

    def serve_sessions(self) -> None:
        """Hand out what sessions have for those who wait."""
        for session in self._queue.sessions.ready():
            pull = self._by_worker.get(session.worker.id)
            if pull is not None and pull.waits and pull.may_send(session.token):
                now = self._moment()
                granted = self._queue.sessions.take(session, now)
                if granted:
                    self._remove(pull)
                    self._hand_out(pull, Turn(granted, now.seconds, session))

    def serve(self) -> None:
        """Hand out what is ready."""
        queue, pulls, may_serve = self._queue, self._pulls, self._scanner.may_serve
        if queue.settings.has_priorities and not may_serve(NO_BARRIER):
            return
        for _ in range(len(pulls)):
            if not queue.ready_records():
                return
            pull = pulls.popleft()
            if not pull.waits:
                continue  # The task that waited was cancelled, and is about to leave.
            if not pull.may_send():
                pulls.append(pull)
                continue
            max_bytes = pull.max_bytes() if pull.credit_bytes is None else min(pull.max_bytes(), pull.credit_bytes)
            ready = queue.ready_records(pull.band)
            credit = pull.usable_credit(may_serve) if pull.early else pull.credit
            share = -(-ready // (len(pulls) + 1))
            most = min(credit, share, DISPATCH_RECORDS, max(1, int(max_bytes / self._record_bytes)))
            now = self._moment()
            granted = queue.take(pull.worker_id, most, now, pull.band)
            if granted:
                pull.credit -= sum(map(len, granted))
                self._by_worker.pop(pull.worker_id, None)
                self._hand_out(pull, Turn(granted, now.seconds))
            else:
                pulls.append(pull)  # It holds as many as it may, its credit does not count yet, or its band has none.

    def _hand_out(self, pull: PullRequest, turn: Turn) -> None:
        assert pull.turn is not None
        self.delivered += sum(map(len, turn.granted))
        pull.turn.set_result(turn)

    def observe(self, records: int, size_bytes: int) -> None:
        """Records were handed out that had so many bytes."""
        self._record_bytes += _WEIGHT * (size_bytes / records - self._record_bytes)
