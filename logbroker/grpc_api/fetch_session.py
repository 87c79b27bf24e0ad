"""What a fetch stream sends next: a state machine without I/O.

A partition of the stream is in one of three states, and moves between them by what it is told:

    unanswered   assigned (again), nothing sent for it yet; is read at once, without need of credit, so that the
                 client learns the offsets of a partition that has nothing for it
    ready        may have more to send; is read in turn while there is credit
    idle         was read up to its high watermark; waits until that moves

    assign -> unanswered;  sent(more) -> ready;  sent(no more) -> idle;  moved: idle -> ready;  failed, remove -> gone

Credit is bytes that the client has granted and that were not sent. A batch is never cut, so it may go below zero; the
debt is paid by the next grants. Turns go round: a partition that was read goes to the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from logbroker.errors import InvalidRequestError
from logbroker.grpc_api.fetch import Position
from logbroker.types import PartitionKey

MAX_CREDIT_BYTES = 2**40
MAX_PARTITIONS = 20_000


class Assigned(msgspec.Struct, gc=False, eq=False):
    """One partition of the stream."""

    position: Position
    correlation_id: int
    answered: bool = False
    queued: bool = False
    """In the round of those to be read."""
    moved: bool = False
    """Its high watermark moved since it was picked."""


class FetchSession:
    """Positions, credit and turns of one stream."""

    def __init__(self) -> None:
        self.credit_bytes = 0
        self._partitions: dict[PartitionKey, Assigned] = {}
        self._unanswered: deque[Assigned] = deque()
        self._ready: deque[Assigned] = deque()

    def assign(self, position: Position, correlation_id: int) -> None:
        """Start a partition, or move it; raises InvalidRequestError above the bound of a stream."""
        key = position.key
        if key not in self._partitions and len(self._partitions) >= MAX_PARTITIONS:
            raise InvalidRequestError(f"a fetch stream takes {MAX_PARTITIONS} partitions; open another one")
        assigned = Assigned(position, correlation_id, queued=True)
        self._partitions[key] = assigned
        self._unanswered.append(assigned)

    def remove(self, key: PartitionKey) -> None:
        self._partitions.pop(key, None)

    def add_credit(self, size_bytes: int) -> None:
        """Raises InvalidRequestError for a negative grant."""
        if size_bytes < 0:
            raise InvalidRequestError(f"credit can only be added, not {size_bytes}")
        self.credit_bytes = min(self.credit_bytes + size_bytes, MAX_CREDIT_BYTES)

    def moved(self, keys: Iterable[PartitionKey]) -> None:
        """New records can be read there."""
        for key in keys:
            assigned = self._partitions.get(key)
            if assigned is None:
                continue
            assigned.moved = True
            if assigned.answered and not assigned.queued:
                self._queue(assigned)

    def has_work(self) -> bool:
        return bool(self._unanswered) or (bool(self._ready) and self.credit_bytes > 0)

    def pick(self) -> Assigned | None:
        """Take the next partition to read: the unanswered first, then in turn while there is credit."""
        for queue in (self._unanswered, self._ready):
            if queue is self._ready and self.credit_bytes <= 0:
                break
            while queue:
                assigned = queue.popleft()
                assigned.queued = False
                if self.is_current(assigned):
                    assigned.moved = False
                    return assigned
        return None

    def is_current(self, assigned: Assigned) -> bool:
        """Whether it was neither removed nor moved to another offset since it was picked."""
        return self._partitions.get(assigned.position.key) is assigned

    def put_back(self, assigned: Assigned) -> None:
        """It was picked, but nothing of it was sent: it is the next one again."""
        assigned.queued = True
        (self._ready if assigned.answered else self._unanswered).appendleft(assigned)

    def sent(self, assigned: Assigned, next_offset: int, size_bytes: int, *, more: bool) -> None:
        """So much was sent; `more` says whether the reading stopped before the high watermark."""
        self.credit_bytes -= size_bytes
        assigned.answered = True
        assigned.position.offset = next_offset
        if (more or assigned.moved) and self.is_current(assigned) and not assigned.queued:
            self._queue(assigned)

    def failed(self, assigned: Assigned) -> None:
        """It leaves the stream."""
        if self.is_current(assigned):
            del self._partitions[assigned.position.key]

    def _queue(self, assigned: Assigned) -> None:
        assigned.queued = True
        self._ready.append(assigned)
