"""Workers that hold records, with their sessions and grants."""

from __future__ import annotations

import msgspec

from logbroker.queues.model.lane import Lane
from logbroker.queues.model.lost_receipts import Loss


class LeaseHolder(msgspec.Struct, eq=False):
    """A worker that holds deliveries or sessions."""

    id: str
    client: str
    """The name that the worker has given for operators, such as its host and process; "": none."""
    grants: dict[int, Grant]
    """Grants by their first receipts."""
    sessions: dict[bytes, WorkerSession]
    """Sessions by their lane keys."""
    in_flight: int = 0
    gone: Loss | None = None
    """Reason why the worker is gone; None if it is not gone. A gone worker can settle nothing from now on, although its
    deliveries are taken back in several steps."""

    def reason(self, what: str) -> str:
        """Return the reason of a failed attempt that was not the program's word: what happened, and to which worker."""
        name = f"{self.id} ({self.client})" if self.client else self.id
        return f"{what}: {name}" if name else what


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
    """Deliveries to one worker with consecutive receipts, under one lease."""

    first: int
    worker: LeaseHolder
    deadline: float
    lanes: list[Lane | None] | None
    """The lanes whose heads are delivered; an entry is None once its delivery is settled. In a session, each record in
    flight has a `Lane` object of its own. None instead of a list: the grant is a run (`record_ids`)."""
    record_ids: range | None
    """Ids of the delivered records, if `lanes` is None."""
    left: int
    """Number of deliveries that are not settled; at 0, the grant is over."""
    session: WorkerSession | None = None
    """The session whose lock is the lease of this grant; None: the grant has its own lease."""
    excused: bool = False
    """Whether no attempt is counted when the lease ends, because the worker may never have seen the deliveries."""
    first_deadline: float = 0.0
    """The deadline before any extension."""
    is_redelivered: bool = False
    """Whether the records of the run may have been handed out before."""

    @property
    def end(self) -> int:
        """The receipt after the last one."""
        return self.first + len(self.lanes if self.lanes is not None else self.record_ids or ())
