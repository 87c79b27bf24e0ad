"""Decides what a fetch stream sends next: a state machine without I/O.

A partition of the stream is in one of three states, and the calls move it between them:

    unanswered   assigned (again), and nothing is sent for it yet; is read at once and needs no credit, so that the
                 client learns the offsets of the partition even if there are no records
    ready        may have more to send; is read in turn while there is credit
    idle         was read up to its high watermark; waits until the high watermark moves

    assign -> unanswered;  sent(more) -> ready;  sent(no more) -> idle;  moved: idle -> ready;  failed, remove -> gone

Credit is the number of bytes that the client has granted and the broker has not sent yet. Batches are never cut, so
credit may become negative; later grants make up for it. Partitions take turns: after a read, a partition goes to the
end of the line.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from logbroker.errors import InvalidRequestError
from logbroker.grpc_api.log.fetch import Position
from logbroker.types import PartitionKey

MAX_CREDIT_BYTES = 2**40
MAX_PARTITIONS = 20_000


class FetchAssignment(msgspec.Struct, gc=False, eq=False):
    """One partition of the stream."""

    position: Position
    correlation_id: int
    answered: bool = False
    moved: bool = False
    """Whether the high watermark has moved since the partition was picked."""
    told_end: int = -1
    """End of the generation that was sent to the client; -1: none yet."""


class FetchSession:
    """Positions, credit and turns of one stream."""

    def __init__(self) -> None:
        self.credit_bytes = 0
        self._partitions: dict[PartitionKey, FetchAssignment] = {}
        # By partition, so that a second assignment of a partition, or its removal, leaves no old entry.
        self._unanswered: OrderedDict[PartitionKey, FetchAssignment] = OrderedDict()
        self._ready: OrderedDict[PartitionKey, FetchAssignment] = OrderedDict()

    def assign(self, position: Position, correlation_id: int) -> None:
        """Assign a partition, or change its position. Raises InvalidRequestError if the stream has too many
        partitions."""
        key = position.key
        if key not in self._partitions and len(self._partitions) >= MAX_PARTITIONS:
            raise InvalidRequestError(f"a fetch stream takes {MAX_PARTITIONS} partitions; open another one")
        self.remove(key)
        self._partitions[key] = self._unanswered[key] = FetchAssignment(position, correlation_id)

    def remove(self, key: PartitionKey) -> None:
        for partitions in (self._partitions, self._unanswered, self._ready):
            partitions.pop(key, None)

    def add_credit(self, size_bytes: int) -> None:
        """Add to the credit. Raises InvalidRequestError for a negative grant."""
        if size_bytes < 0:
            raise InvalidRequestError(f"credit can only be added, not {size_bytes}")
        self.credit_bytes = min(self.credit_bytes + size_bytes, MAX_CREDIT_BYTES)

    def moved(self, keys: Iterable[PartitionKey]) -> None:
        """Note that partitions have new readable records."""
        for key in keys:
            assigned = self._partitions.get(key)
            if assigned is None:
                continue
            assigned.moved = True
            if assigned.answered:
                self._ready.setdefault(key, assigned)

    def has_work(self) -> bool:
        return bool(self._unanswered) or (bool(self._ready) and self.credit_bytes > 0)

    def pick(self) -> FetchAssignment | None:
        """Take the next partition to read: unanswered ones first, then ready ones in turn while there is credit."""
        queue = self._unanswered or (self._ready if self.credit_bytes > 0 else None)
        if not queue:
            return None
        _, assigned = queue.popitem(last=False)
        assigned.moved = False
        return assigned

    def is_current(self, assigned: FetchAssignment) -> bool:
        """Return whether the assignment was neither removed nor replaced since it was picked."""
        return self._partitions.get(assigned.position.key) is assigned

    def put_back(self, assigned: FetchAssignment) -> None:
        """Put back an assignment that was picked but not sent: it is picked next."""
        queue = self._ready if assigned.answered else self._unanswered
        queue[assigned.position.key] = assigned
        queue.move_to_end(assigned.position.key, last=False)

    def sent(self, assigned: FetchAssignment, next_offset: int, size_bytes: int, *, more: bool) -> None:
        """Note that a response was sent; `more` says whether the read stopped before the high watermark."""
        self.credit_bytes -= size_bytes
        assigned.answered = True
        assigned.position.advance(next_offset)
        if (more or assigned.moved) and self.is_current(assigned):
            self._ready[assigned.position.key] = assigned

    def failed(self, assigned: FetchAssignment) -> bool:
        """Remove a failed assignment, and return whether it was still there: it may have been replaced meanwhile."""
        was_current = self.is_current(assigned)
        if was_current:
            self.remove(assigned.position.key)
        return was_current
