"""Workers that hold records, with their sessions and grants."""

from __future__ import annotations

import msgspec

from logbroker.queues.model.lane import Lane
from logbroker.queues.model.lost_receipts import Loss


class LeaseHolder(msgspec.Struct, eq=False):
    """A worker that holds deliveries."""

    id: str
    grants: dict[int, Grant]
    """Grants by their first receipts."""
    sessions: dict[bytes, WorkerSession]
    """Sessions by their lane keys."""
    in_flight: int = 0
    gone: Loss | None = None
    """Reason why the worker is gone; None: it is not. Its deliveries are taken back step by step, but count as lost to
    it at once."""


class WorkerSession(msgspec.Struct, eq=False):
    """A worker's hold on one lane, until its lock ends."""

    key: bytes
    token: int
    """The fencing token, higher than that of any earlier session."""
    worker: LeaseHolder
    prefetch: int
    """Maximum number of deliveries in flight."""
    deadline: float
    """When the lock ends (monotonic seconds)."""
    grants: list[Grant]
    """Grants in the order of their receipts, which is the order of the records. Some may be over."""
    in_flight: int = 0

    @property
    def first(self) -> Lane | None:
        """The first record in flight. The waiting records of the lane come after it."""
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
    """Delivered lanes; None in the list: settled. In a session, each lane stands for one record."""
    record_ids: range | None
    """The delivered run, where `lanes` is None."""
    left: int
    """Number of deliveries that are not settled. 0: the grant is over."""
    session: WorkerSession | None = None
    """The session whose lock is the lease of this grant; None: the grant has its own lease."""
    excused: bool = False
    """Whether no attempt is counted when the lease ends, because the worker may never have seen the deliveries."""
    first_deadline: float = 0.0
    """The deadline that it was granted with."""
    is_redelivered: bool = False
    """Whether the records of the run may have been handed out before."""

    @property
    def end(self) -> int:
        """The receipt after the last one."""
        return self.first + len(self.lanes if self.lanes is not None else self.record_ids or ())
