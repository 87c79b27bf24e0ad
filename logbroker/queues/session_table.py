"""Which sessions are open, until when, and under which tokens.

The fencing token is drawn as receipts are: by a counter that begins at the group's life. So each holder of a lane has a
higher one than all before it, whatever was forgotten in between, and no row is needed for keys that have no session.

    row      key    b"z" BLAKE2b of the key (16)
             value  msgpack array: key, token of the session that is held

The row lets a holder have its session again, under the same token, after a broker crash. A clean stop deletes them all.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Final

from logbroker.engine import StateEvent
from logbroker.queues.graces import NEVER
from logbroker.queues.holders import Session
from logbroker.queues.rows import SESSION_ROW, decode, delete, hashed_key, upsert

_COMPACT_AT: Final = 64


class SessionTable:
    """The open sessions of a queue group, by lane key."""

    def __init__(self, life: int, open_sessions: dict[bytes, Session]) -> None:
        self.unclaimed: dict[bytes, int] = {}
        """Tokens of sessions that were held when the broker crashed."""
        self._token = life
        self._open = open_sessions
        self._locks: list[tuple[float, int, Session]] = []
        """A heap; early where the lock was prolonged, void where the session is over."""
        self._stored: set[bytes] = set()
        self._changed: dict[bytes, None] = {}

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Take over what is stored. Raises CorruptLogError."""
        for row, value in rows.items():
            if row.startswith(SESSION_ROW):
                key, token = decode(row, value, tuple[bytes, int])
                self.unclaimed[key] = token
                self._stored.add(key)

    def get(self, key: bytes) -> Session | None:
        return self._open.get(key)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._open.values())

    @property
    def last_token(self) -> int:
        """All that were drawn are at or below it."""
        return self._token

    def next_token(self) -> int:
        self._token += 1
        return self._token

    def add(self, session: Session) -> None:
        self.unclaimed.pop(session.key, None)
        self._open[session.key] = session
        self._changed[session.key] = None
        heapq.heappush(self._locks, (session.deadline, session.token, session))
        if len(self._locks) > 4 * len(self._open) + _COMPACT_AT:
            # Sessions are closed long before their locks end: what is over would stay in the heap until then.
            self._locks = [(kept.deadline, kept.token, kept) for kept in self]
            heapq.heapify(self._locks)

    def remove(self, session: Session) -> None:
        del self._open[session.key]
        self._changed[session.key] = None

    def forget_unclaimed(self) -> None:
        self._changed.update(dict.fromkeys(self.unclaimed))
        self.unclaimed.clear()

    def deadline(self) -> float:
        """The next moment at which a lock may end."""
        return self._locks[0][0] if self._locks else NEVER

    def expired(self, now: float, at_most: int) -> list[Session]:
        """Return sessions whose lock is over, which are ended then."""
        over: list[Session] = []
        while self._locks and self._locks[0][0] <= now and len(over) < at_most:
            _, token, session = heapq.heappop(self._locks)
            if self._open.get(session.key) is not session:
                continue
            if session.deadline <= now:
                over.append(session)
            else:
                heapq.heappush(self._locks, (session.deadline, token, session))
        return over

    def take_rows(self) -> list[StateEvent]:
        """Return the rows of all that changed since the last call."""
        events: list[StateEvent] = []
        for key in self._changed:
            row = hashed_key(SESSION_ROW, key)
            if key in self._open:
                self._stored.add(key)
                events.append(upsert(row, (key, self._open[key].token)))
            elif key in self._stored:
                self._stored.discard(key)
                events.append(delete(row))
        self._changed.clear()
        return events

    def stop_rows(self) -> list[StateEvent]:
        """The rows of a clean stop: after it, nobody holds a session."""
        return [delete(hashed_key(SESSION_ROW, key)) for key in self._stored]
