"""The open sessions, with their locks and fencing tokens.

Fencing tokens come from a counter that begins at the group epoch, like receipts. So each holder of a lane has a higher
token than all holders before it, even if earlier holders are forgotten, and a key without a session needs no row.

    row      key    b"z" BLAKE2b of the key (16)
             value  msgpack array: key, token of the session that is held

The row lets a holder get its session back, under the same token, after a restart of the broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from operator import attrgetter

from logbroker.group_runtime.deadline_heap import DeadlineHeap
from logbroker.queues.model.holders import WorkerSession
from logbroker.queues.state.change_set import ChangedRows, ChangeSet
from logbroker.queues.state.rows import SESSION_ROW, decode, hashed_key


class SessionTable:
    """The open sessions of a queue group, by lane key."""

    def __init__(self, group_epoch: int, open_sessions: dict[bytes, WorkerSession], changes: ChangeSet) -> None:
        self.unclaimed: dict[bytes, int] = {}
        """Tokens of sessions that were held when the broker ended and are not reclaimed, by lane key."""
        self._token = group_epoch
        self._open = open_sessions
        self.locks = DeadlineHeap[WorkerSession](attrgetter("deadline"))
        self._rows = ChangedRows(changes, partial(hashed_key, SESSION_ROW), self._row_of)

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Load the stored sessions. Raises CorruptLogError."""
        for row, value in rows.items():
            if row.startswith(SESSION_ROW):
                key, token = decode(row, value, tuple[bytes, int])
                self.unclaimed[key] = token
                self._rows.load(key)

    def get(self, key: bytes) -> WorkerSession | None:
        return self._open.get(key)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[WorkerSession]:
        return iter(self._open.values())

    @property
    def last_token(self) -> int:
        """Upper bound of the tokens given out."""
        return self._token

    def next_token(self) -> int:
        self._token += 1
        return self._token

    def add(self, session: WorkerSession) -> None:
        self.unclaimed.pop(session.key, None)
        self._open[session.key] = session
        self._rows.changed(session.key)
        self.locks.arm(session, session.deadline, session.token)

    def remove(self, session: WorkerSession) -> None:
        del self._open[session.key]
        self.locks.disarm(session)
        self._rows.changed(session.key)

    def forget_unclaimed(self) -> None:
        for key in self.unclaimed:
            self._rows.changed(key)
        self.unclaimed.clear()

    def expired(self, now: float, at_most: int) -> list[WorkerSession]:
        """Return sessions whose lock has ended, at most `at_most`. The caller ends them."""
        over: list[WorkerSession] = []
        while len(over) < at_most and (session := self.locks.pop(now)) is not None:
            over.append(session)
        return over

    def _row_of(self, key: bytes) -> tuple[bytes, int] | None:
        session = self._open.get(key)
        return None if session is None else (key, session.token)
