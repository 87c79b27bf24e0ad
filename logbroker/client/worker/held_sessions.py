"""The sessions that one worker holds. No I/O; callers pass in the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from logbroker.client.worker.held_session import HeldSession
from logbroker.client.worker.leased_record import LeasedRecord
from logbroker.client.worker.leases import RENEW_SHARE
from logbroker.client.worker.prefetch_buffer import PrefetchBuffer
from logbroker.client.worker.receive_window import ReceiveWindow
from logbroker.client.worker.settlements import SettlementOutbox
from logbroker.errors import LogbrokerError, StaleSessionError
from logbroker.v1 import queues_pb2

D = TypeVar("D", bound=LeasedRecord)

_LOST_IN_BREAK: Final = "the connection was broken for too long: the session is free or belongs to another worker"


class HeldSessions(Generic[D]):
    """The sessions of a worker, by token and key.

    `opened`, `answered`, `lost` and `leave` take the lock of the outbox. The other methods are called under that lock,
    or in the event loop, because sessions are added and dropped only there.
    """

    def __init__(self, outbox: SettlementOutbox, make: Callable[..., D], window: ReceiveWindow) -> None:
        self._outbox = outbox
        self._make = make
        self.window = window
        self.held: dict[tuple[int, bytes], HeldSession[D]] = {}
        """The sessions by token and key. Read-only for other classes."""
        self._asked_for = 0

    def __iter__(self) -> Iterator[HeldSession[D]]:
        return iter(self.held.values())

    def find(self, token: int, key: bytes) -> HeldSession[D] | None:
        return self.held.get((token, key))

    def ask_for(self, number: int) -> None:
        """Change the number of sessions that are being requested. They share the window already, because their records
        may follow the answers at once."""
        self._asked_for += number
        self._share_window()

    def _share_window(self) -> None:
        self.window.buffers = 1 + len(self.held) + self._asked_for

    # --- what the broker says ---------------------------------------------------------------------------------------

    def opened(
        self, answer: queues_pb2.SessionAnswer, prefetch: int, credit_bytes: int, asked_at: float, now: float
    ) -> HeldSession[D]:
        """Add a session. It was requested at `asked_at` with this prefetch and this credit."""
        with self._outbox.lock.free():
            buffer = PrefetchBuffer(self._make, self.window, credit_bytes)
            buffer.open = True
            session = HeldSession(
                self._outbox, buffer, key=answer.key, token=answer.token, prefetch=prefetch, state=answer.state
            )
            session.locked(max(asked_at, self._outbox.heard_at), answer.lock_ms / 1000)
            if answer.has_records:
                session.expect_records(now)
            self.held[answer.token, answer.key] = session
            self._share_window()
            return session

    def answered(self, answer: queues_pb2.SessionAnswer, error: LogbrokerError | None) -> bool:
        """Handle the answer to a renewal. Return False if the answer belongs to no renewal."""
        with self._outbox.lock.free():
            for session in self:
                if session.renewal_id == answer.correlation_id:
                    session.renewal_id = 0
                    if error is None:
                        session.locked(session.renewal_at, answer.lock_ms / 1000)
                    elif not error.retriable:
                        self._drop(session.token, session.key, error)
                    return True
            return False

    def lost(self, token: int, key: bytes, error: LogbrokerError) -> None:
        """End a session that is over or belongs to another worker."""
        with self._outbox.lock.free():
            self._drop(token, key, error)

    def leave(self, session: HeldSession[D], error: LogbrokerError) -> None:
        """End a session for the program. Its settlements are still sent and answered; `lost` follows."""
        with self._outbox.lock.free():
            session.leave(error)

    def welcomed(self, kept: Iterable[queues_pb2.SessionRef]) -> int:
        """Keep the sessions that a new stream confirmed, and drop the others. Return how many were lost."""
        still = {(ref.token, ref.key) for ref in kept}
        gone = [token_key for token_key in self.held if token_key not in still]
        for token, key in gone:
            self._drop(token, key, StaleSessionError(_LOST_IN_BREAK))
        for session in self:
            session.buffer.set_open(True)
        return len(gone)

    def broken(self) -> None:
        """Handle the end of the stream."""
        for session in self:
            session.broken()

    def fail(self, error: LogbrokerError) -> None:
        """Drop all sessions, because the worker ends with an error."""
        for token, key in list(self.held):
            self._drop(token, key, error)

    def _drop(self, token: int, key: bytes, error: LogbrokerError) -> None:
        session = self.held.pop((token, key), None)
        self._share_window()
        if session is not None:
            session.lose(error)

    # --- time -------------------------------------------------------------------------------------------------------

    def renewals(self, now: float) -> list[HeldSession[D]]:
        """Return the sessions whose lock ends soon. A session that the program has left is renewed until its
        settlements are answered."""
        return [
            session
            for session in self
            if not session.renewal_id
            and session.until < now + session.lock_seconds * RENEW_SHARE
            and (session.lost is None or session.unfinished())
        ]
