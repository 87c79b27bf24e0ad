"""States of sessions. The holder of a session leaves its state to the next holder of the same key.

    row      key    b"y" BLAKE2b of the key (16)
             value  msgpack array: key, state

Each state that is not empty has a row. A state lasts over the ends of sessions, restarts of the broker and rewinds. All
states are in memory, so their number and size are bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from logbroker.errors import OverloadedError, StateTooLargeError
from logbroker.queues.state.change_set import ChangedRows, ChangeSet
from logbroker.queues.state.rows import STATE_ROW, decode, hashed_key

MAX_STATE_BYTES: Final = 262_144
MAX_STATES: Final = 100_000
MAX_STATES_BYTES: Final = 268_435_456
"""Bound for all states of a queue group together."""


class SessionStates:
    """All states of a queue group, by lane key."""

    def __init__(self, changes: ChangeSet) -> None:
        self._states: dict[bytes, bytes] = {}
        self._bytes = 0
        self._rows = ChangedRows(changes, partial(hashed_key, STATE_ROW), self._row_of)

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Load the stored states. Raises CorruptLogError."""
        for row, value in rows.items():
            if row.startswith(STATE_ROW):
                key, state = decode(row, value, tuple[bytes, bytes])
                self._states[key] = state
                self._bytes += len(state)
                self._rows.load(key)

    def get(self, key: bytes) -> bytes:
        """Return the state of a key; empty: none was written, or it was deleted."""
        return self._states.get(key, b"")

    def check(self, key: bytes, state: bytes) -> None:
        """Raise StateTooLargeError, or OverloadedError if the queue group has too many states."""
        if len(state) > MAX_STATE_BYTES:
            raise StateTooLargeError(
                f"the state has {len(state):,} bytes, over {MAX_STATE_BYTES:,}: keep a reference to where the rest is"
            )
        if (state and key not in self._states and len(self._states) >= MAX_STATES) or (
            self._bytes + len(state) - len(self.get(key)) > MAX_STATES_BYTES
        ):
            raise OverloadedError(
                f"the queue group has {len(self._states):,} states, which take {self._bytes:,} bytes; it keeps up to"
                f" {MAX_STATES:,} states with {MAX_STATES_BYTES:,} bytes: delete states of finished keys by writing"
                " empty ones"
            )

    def write(self, key: bytes, state: bytes) -> None:
        """Store a state that `check` accepted; empty deletes it."""
        self._bytes += len(state) - len(self._states.pop(key, b""))
        if state:
            self._states[key] = state
        self._rows.changed(key)

    def _row_of(self, key: bytes) -> tuple[bytes, bytes] | None:
        state = self._states.get(key)
        return None if state is None else (key, state)
