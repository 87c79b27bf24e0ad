"""Who has records, and which: workers, their sessions, and grants."""

from __future__ import annotations

import msgspec

from logbroker.queues.model.lane import Lane
from logbroker.queues.model.lost_receipts import Loss


class LeaseHolder(msgspec.Struct, eq=False):
    """Who holds deliveries."""

    id: str
    grants: dict[int, Grant]
    """By their first receipts."""
    sessions: dict[bytes, WorkerSession]
    """By their keys."""
    in_flight: int = 0
    gone: Loss | None = None
    """It is gone by this, and what it had is taken from it by and by: to itself it is lost already."""


class WorkerSession(msgspec.Struct, eq=False):
    """A worker's hold on one lane, for as long as its lock."""

    key: bytes
    token: int
    """The fencing token: higher than that of any session before it."""
    worker: LeaseHolder
    prefetch: int
    """Deliveries that may be in flight."""
    deadline: float
    """When the lock ends (monotonic seconds)."""
    grants: list[Grant]
    """In the order of their receipts, which is the order of the records; some are over."""
    in_flight: int = 0

    @property
    def first(self) -> Lane | None:
        """The first record that is in flight: what waits of the lane lies behind it."""
        for grant in self.grants:
            for lane in grant.lanes or ():
                if lane is not None:
                    return lane
        return None


class Grant(msgspec.Struct, eq=False):
    """Deliveries of consecutive receipts to one worker, under one lease."""

    first: int
    worker: LeaseHolder
    deadline: float
    lanes: list[Lane | None] | None
    """None in it: settled. Of a session, each stands for one record."""
    record_ids: range | None
    """The run, where there are no lanes."""
    left: int
    """Deliveries that are not settled. 0: the grant is over."""
    session: WorkerSession | None = None
    """The lease is the lock of the session."""
    excused: bool = False
    """Where the lease ends, no attempt counts: the worker may never have seen them."""

    @property
    def end(self) -> int:
        """After its last receipt."""
        return self.first + len(self.lanes if self.lanes is not None else self.record_ids or ())
