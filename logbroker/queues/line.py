"""Workers that wait for records: first come, first served, and what is ready is shared evenly among those who wait.

Nothing is handed out before somebody can take it on: a worker that is busy, or whose stream is slow, does not wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from logbroker.errors import LogbrokerError
from logbroker.queues.messages import Granted
from logbroker.queues.places import Moment
from logbroker.queues.queue import Queue

HANDOUT_BYTES: Final = 1024 * 1024
"""About as much is handed out to a worker at a time."""
HANDOUT_RECORDS: Final = 8192
_WEIGHT: Final = 0.2
"""Of the newest handout, in the mean size of records."""


class Seat:
    """Who waits. `credit` is what may be handed out; each record handed out uses one up."""

    def __init__(self, worker_id: str, credit: int = 0) -> None:
        self.worker_id = worker_id
        self.credit = credit
        self.turn: asyncio.Future[list[Granted]] | None = None
        """Pending: in the line."""


class Line:
    """The line of one queue group."""

    def __init__(self, queue: Queue, moment: Callable[[], Moment]) -> None:
        self._queue = queue
        self._moment = moment
        self._loop = asyncio.get_running_loop()
        self._seats: deque[Seat] = deque()
        self._record_bytes = 1024.0
        self.delivered = 0
        """Records handed out in this life."""

    def join(self, seat: Seat) -> asyncio.Future[list[Granted]]:
        """Wait for records at the end of the line; somebody who has credit. `serve` is due then."""
        seat.turn = self._loop.create_future()
        self._seats.append(seat)
        return seat.turn

    def leave(self, seat: Seat, error: LogbrokerError | None = None) -> list[Granted]:
        """Wait no more; return what was handed out already, but not noticed yet. Who waits may be told of an error."""
        turn, seat.turn = seat.turn, None
        if turn is None:
            return []
        if turn.done() and not turn.cancelled():
            return turn.result()
        with suppress(ValueError):
            self._seats.remove(seat)
        if error is None:
            turn.cancel()
        elif not turn.done():
            turn.set_exception(error)
            turn.exception()  # Who waited may be gone.
        return []

    def close(self, error: LogbrokerError) -> None:
        """Send everybody home."""
        for seat in tuple(self._seats):
            self.leave(seat, error)

    def serve(self) -> None:
        """Hand out what is ready."""
        queue, seats = self._queue, self._seats
        most = max(1, min(HANDOUT_RECORDS, int(HANDOUT_BYTES / self._record_bytes)))
        for _ in range(len(seats)):
            ready = queue.lanes.ready_records
            if not ready:
                return
            seat = seats.popleft()
            if seat.turn is None or seat.turn.done():
                continue  # The task that waited was cancelled, and is about to leave.
            share = -(-ready // (len(seats) + 1))
            granted = queue.take(seat.worker_id, min(seat.credit, share, most), self._moment())
            if granted:
                count = sum(map(len, granted))
                seat.credit -= count
                self.delivered += count
                seat.turn.set_result(granted)
            else:
                seats.append(seat)  # It has no credit, or holds as many as it may.

    def observe(self, records: int, size_bytes: int) -> None:
        """Records were handed out that had so many bytes."""
        self._record_bytes += _WEIGHT * (size_bytes / records - self._record_bytes)
