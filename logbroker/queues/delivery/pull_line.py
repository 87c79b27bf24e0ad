"""The line of workers that wait for records: first come, first served, with ready records shared evenly among them.

Records are handed out only to a worker that can take them: a worker that is busy or has a slow stream is not in the
line.

With priorities, a credit may be used once the scan has reached everything that was readable when the credit was given:
the most urgent ready record is then the most urgent one of the log. Each credit has its own barrier
(`Scanner.barrier`), so that a worker that keeps giving credit is still served.
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
    """Records granted to a worker, from the line or from one of its sessions."""

    granted: list[Granted]
    granted_at: float
    """Time of the grant (monotonic, s)."""
    session: WorkerSession | None = None


class PullRequest:
    """A worker's wait for records: its credit, and whether it waits now."""

    def __init__(self, worker_id: str, band: Band | None = None) -> None:
        """Only records with the priorities of `band` are handed out; None: all records."""
        self.worker_id = worker_id
        self.band = band
        self.credit = 0
        """Records that may be handed out outside of sessions; each one handed out uses one up."""
        self.early: deque[tuple[int, int]] = deque()
        """The part of the credit that may not be used yet: scan barriers, each with a number of records. The queue
        stays short, because each barrier is soon reached and equal ones are merged."""
        self.max_bytes: Callable[[], int] = lambda: DISPATCH_BYTES
        """Returns about how many bytes may be handed out at a time; set by the writer of the stream."""
        self.credit_bytes: int | None = None
        """Bytes that may be sent outside of sessions; None: not bounded. Negative if the last message exceeded it."""
        self.window_bytes: int | None = None
        """The credit in bytes when the worker last added to it: about how much the worker wants to be sent ahead; None:
        not bounded."""
        self.session_credit_bytes: dict[int, int] = {}
        """Bytes that may be sent of a session, by its token; a session that is missing here is not bounded."""
        self.turn: asyncio.Future[Turn] | None = None
        """Future of the turn; pending while the worker waits."""

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
        """Return whether the credit in bytes allows another message, of a session or outside of sessions."""
        left = self.left_bytes(session_token)
        return left is None or left > 0

    def left_bytes(self, session_token: int = 0) -> int | None:
        """Return the credit in bytes, of a session or outside of sessions; None: not bounded."""
        return self.session_credit_bytes.get(session_token) if session_token else self.credit_bytes

    def sent(self, size_bytes: int, session_token: int = 0) -> None:
        """Charge a message of this size to the credit in bytes."""
        if not session_token and self.credit_bytes is not None:
            self.credit_bytes -= size_bytes
        elif session_token in self.session_credit_bytes:
            self.session_credit_bytes[session_token] -= size_bytes

    def usable_credit(self, may_serve: Callable[[int], bool]) -> int:
        """Return the credit in records that may be used now."""
        while self.early and may_serve(self.early[0][0]):
            self.early.popleft()
        return self.credit - sum(records for _, records in self.early)


class PullLine:
    """The line of one queue group. A worker without credit is not in the line, and waits only for records of its
    sessions."""

    def __init__(self, queue: Queue, scanner: Scanner, moment: Callable[[], Moment]) -> None:
        self._queue = queue
        self._scanner = scanner
        self._moment = moment
        self._loop = asyncio.get_running_loop()
        self._pulls: deque[PullRequest] = deque()
        self._by_worker: dict[str, PullRequest] = {}
        """Requests that wait for records of sessions, by worker id."""
        self._record_bytes = 1024.0
        self._error: LogbrokerError | None = None
        self.delivered = 0
        """Records handed out in this group epoch."""

    @property
    def is_waited_in(self) -> bool:
        """Whether any worker waits for records, in the line or of sessions."""
        return bool(self._pulls or self._by_worker)

    def join(self, pull: PullRequest, *, sessions: bool) -> asyncio.Future[Turn]:
        """Join the end of the line; with `sessions`, also wait for records of the worker's sessions. The caller must
        serve the line next. Raises the error that the line was closed with."""
        if self._error is not None:
            raise self._error.anew()
        pull.turn = self._loop.create_future()
        if pull.credit:
            self._pulls.append(pull)
        if sessions:
            self._by_worker[pull.worker_id] = pull
        return pull.turn

    def credited(self, pull: PullRequest, records: int) -> None:
        """Add to the credit of a worker."""
        if not pull.credit and pull.waits:
            self._pulls.append(pull)
        pull.add_credit(records, self._scanner.barrier() if self._queue.settings.has_priorities else NO_BARRIER)

    def leave(self, pull: PullRequest, error: LogbrokerError | None = None) -> Turn | None:
        """Leave the line; return a turn that was granted and that the waiting task has not taken yet. With `error`, a
        pending wait ends with this error."""
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
            turn.exception()  # The waiting task may be gone.
        return None

    def _remove(self, pull: PullRequest) -> None:
        if self._by_worker.get(pull.worker_id) is pull:
            del self._by_worker[pull.worker_id]
        with suppress(ValueError):
            self._pulls.remove(pull)

    def close(self, error: LogbrokerError) -> None:
        """Close the line: end all waits with the error, and refuse later ones."""
        self._error = error
        for pull in {*self._pulls, *self._by_worker.values()}:
            self.leave(pull, error)

    def serve_sessions(self) -> None:
        """Hand out ready records of sessions to the workers that wait."""
        for session in self._queue.sessions.ready():
            pull = self._by_worker.get(session.worker.id)
            if pull is not None and pull.waits and pull.may_send(session.token):
                now = self._moment()
                granted = self._queue.sessions.take(session, now, self._most(pull, session.token))
                if granted:
                    self._remove(pull)
                    self._hand_out(pull, Turn(granted, now.seconds, session))

    def serve(self) -> None:
        """Hand out ready records to the workers in the line, in turn."""
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
            ready = queue.ready_records(pull.band)
            credit = pull.usable_credit(may_serve) if pull.early else pull.credit
            share = -(-ready // (len(pulls) + 1))
            most = min(credit, share, self._most(pull))
            now = self._moment()
            granted = queue.take(pull.worker_id, most, now, pull.band)
            if granted:
                pull.credit -= sum(map(len, granted))
                self._by_worker.pop(pull.worker_id, None)
                self._hand_out(pull, Turn(granted, now.seconds))
            else:
                pulls.append(pull)  # Its limit in flight, its credit or its band allows no record now.

    def _most(self, pull: PullRequest, session_token: int = 0) -> int:
        """Return how many records to hand out at a time, by their mean size."""
        left_bytes = pull.left_bytes(session_token)
        max_bytes = pull.max_bytes() if left_bytes is None else min(pull.max_bytes(), left_bytes)
        return min(DISPATCH_RECORDS, max(1, int(max_bytes / self._record_bytes)))

    def _hand_out(self, pull: PullRequest, turn: Turn) -> None:
        assert pull.turn is not None
        self.delivered += sum(map(len, turn.granted))
        pull.turn.set_result(turn)

    def observe(self, records: int, size_bytes: int) -> None:
        """Update the mean size of records."""
        self._record_bytes += _WEIGHT * (size_bytes / records - self._record_bytes)
