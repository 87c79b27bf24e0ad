"""One member of a group: its state, the partitions it holds, and its deadlines.

state        meaning                                       partitions held (by no other member)
STABLE       connected, no assignment is outstanding       what it took last
RECONCILING  connected, an assignment is outstanding       what it took last, and what is assigned
AWAY         no stream: it broke, a static member left,    what it held before, until it returns or expires
             or the broker has started
GONE         not a member any more                         nothing

A member that has no stream, but sends heartbeats, is connected as long as they come. It is away only after a start of
the broker, or as a static member that has left.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import Final

from logbroker.consumer_groups.messages import Join
from logbroker.consumer_groups.rows import MemberRow, by_topic
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.errors import (
    MemberFencedError,
    PollTimedOutError,
    RebalanceTimedOutError,
    SessionTimedOutError,
)
from logbroker.types import PartitionKey


class State(enum.Enum):
    STABLE = "stable"
    RECONCILING = "reconciling"
    AWAY = "away"
    GONE = "gone"


class Input(enum.Enum):
    """Inputs that may change the state of a member."""

    ASSIGNED = "assigned"
    """An assignment is pushed to the member."""
    TAKEN = "taken"
    """The member confirms the assignment, and has given up all other partitions."""
    RESUMED = "resumed"
    """The same incarnation has a new stream. Perhaps the broker has not noticed yet that the old stream broke."""
    DISCONNECTED = "disconnected"
    """The stream broke, or a static member left."""
    LEFT = "left"
    """A dynamic member left."""
    REPLACED = "replaced"
    """A new incarnation of the member came."""
    FENCED = "fenced"
    """A timeout of the member passed."""


TRANSITIONS: Final[Mapping[tuple[State, Input], State]] = {
    (State.STABLE, Input.ASSIGNED): State.RECONCILING,
    (State.STABLE, Input.RESUMED): State.STABLE,
    (State.STABLE, Input.DISCONNECTED): State.AWAY,
    (State.STABLE, Input.LEFT): State.GONE,
    (State.STABLE, Input.FENCED): State.GONE,
    (State.RECONCILING, Input.TAKEN): State.STABLE,
    (State.RECONCILING, Input.RESUMED): State.STABLE,
    (State.RECONCILING, Input.DISCONNECTED): State.AWAY,
    (State.RECONCILING, Input.LEFT): State.GONE,
    (State.RECONCILING, Input.FENCED): State.GONE,
    (State.AWAY, Input.RESUMED): State.STABLE,
    (State.AWAY, Input.REPLACED): State.GONE,
    (State.AWAY, Input.FENCED): State.GONE,
}
"""All possible transitions. The state machine refuses others beforehand."""


class Member:
    """The data of a member. It has no rules except the table of transitions; `group` decides."""

    __slots__ = (
        "assigned",
        "assigned_at",
        "assigned_epoch",
        "epoch",
        "expires_at",
        "heard_at",
        "join",
        "left",
        "needs_assignment",
        "polled_at",
        "slot",
        "state",
        "subscription",
        "taken",
        "urged_at",
    )

    def __init__(self, join: Join, now: float) -> None:
        self.join = join
        """Identity and timeouts of the member."""
        self.slot = slot_of(join)
        self.subscription = join.subscription
        self.state = State.STABLE
        self.epoch = 0
        """Epoch of the assignment that it took last; 0: none yet."""
        self.taken: frozenset[PartitionKey] = frozenset()
        """Partitions of the assignment taken last; while the member is away, all partitions that it may hold."""
        self.assigned: frozenset[PartitionKey] | None = None
        """Partitions of the outstanding assignment; None: there is none."""
        self.assigned_epoch = 0
        """Epoch of the assignment that was pushed last."""
        self.needs_assignment = True
        """Whether to send an assignment even if it changes nothing: the member is new, or an assignment on its way
        became void."""
        self.left = False
        """Whether the member said goodbye, and so delivers nothing any more."""
        self.heard_at = self.polled_at = now
        self.assigned_at = now
        """The time at which the latest assignment was pushed."""
        self.urged_at = math.inf
        """The time since which others wait until the member takes the outstanding assignment; inf while nobody does."""
        self.expires_at = math.inf
        """The time at which the member expires, while it is away."""

    @property
    def member_id(self) -> str:
        return self.join.member_id

    @property
    def connected(self) -> bool:
        return self.state is State.STABLE or self.state is State.RECONCILING

    @property
    def held(self) -> frozenset[PartitionKey]:
        """All partitions that the member may hold. No other member may hold them."""
        return self.taken if self.assigned is None else self.taken | self.assigned

    def move(self, cause: Input) -> None:
        self.state = TRANSITIONS[self.state, cause]

    def deadline(self) -> float:
        """Return the time at which the member is fenced unless it is heard from (monotonic seconds)."""
        if self.state is State.AWAY:
            return self.expires_at
        if self.state is State.GONE:
            return math.inf
        at = self.heard_at + self.join.session_timeout_ms / 1000
        if self.assigned is not None:
            at = min(at, self._take_deadline())
        if self.taken or self.assigned is not None:
            at = min(at, self._poll_deadline())
        return at

    def delivers_until(self, grace_seconds: float) -> float:
        """Return the time until which the member, which is away, may still deliver records (monotonic seconds).

        It may learn late that its stream broke, but delivers for no longer than the shorter of grace and session
        timeout after it was last heard from. A grace of 0 asks for immediate takeovers, and accepts the consequences.
        A member that sends heartbeats goes on without a stream, for its session.
        """
        if self.left or not self.held:
            return -math.inf
        if self.join.by_heartbeats:
            return self.heard_at + self.join.session_timeout_ms / 1000
        if not grace_seconds:
            return -math.inf
        return self.heard_at + min(grace_seconds, self.join.session_timeout_ms / 1000)

    def overdue(self, now: float) -> MemberFencedError:
        """Return the error for fencing the member, whose deadline has passed."""
        if self.assigned is not None and self._rebalance_deadline() <= now:
            return RebalanceTimedOutError(
                f"the assignment of epoch {self.assigned_epoch} was not taken for {self.join.rebalance_timeout_ms} ms:"
                " let go of revoked partitions sooner, or raise the rebalance timeout"
            )
        if (self.taken or self.assigned is not None) and self._poll_deadline() <= now:
            return PollTimedOutError(
                f"the program asked for no records for {self.join.max_poll_interval_ms} ms: handle fewer records"
                " between two polls, or raise the max poll interval"
            )
        if self.assigned is not None and self._take_deadline() <= now:
            return RebalanceTimedOutError(
                f"the member did not take the assignment of epoch {self.assigned_epoch} for"
                f" {self.join.max_poll_interval_ms} ms: handle fewer records between two polls, or raise the max poll"
                " interval; a client of your own has to take each assignment before the next poll"
            )
        return SessionTimedOutError(
            f"nothing was heard of the member for {self.join.session_timeout_ms} ms: it may join anew, owning nothing;"
            " if an asyncio program blocks its event loop for longer, run that work in a thread or raise the session"
            " timeout"
        )

    def _poll_deadline(self) -> float:
        return self.polled_at + self.join.max_poll_interval_ms / 1000

    def _rebalance_deadline(self) -> float:
        return self.urged_at + self.join.rebalance_timeout_ms / 1000

    def _take_deadline(self) -> float:
        """Return the time by which the member must take the outstanding assignment, even if it polls."""
        return min(self._rebalance_deadline(), self.assigned_at + self.join.max_poll_interval_ms / 1000)

    def to_row(self) -> MemberRow:
        join = self.join
        return MemberRow(
            1,
            join.instance_id,
            join.incarnation,
            self.subscription.topics,
            self.subscription.topic_pattern,
            join.session_timeout_ms,
            join.rebalance_timeout_ms,
            join.max_poll_interval_ms,
            join.client_name,
            self.epoch,
            self.assigned_epoch,
            by_topic(self.held),
            self.subscription.bands,
            join.client_host,
            join.by_heartbeats,
            self.left,
        )


def slot_of(join: Join) -> str:
    """Return the member's slot. Static members are found by their instance id, whatever their member id. Their slots
    sort first."""
    return static_slot(join.instance_id) if join.instance_id else f"m:{join.member_id}"


def static_slot(instance_id: str) -> str:
    """Return the slot of a static member."""
    return f"i:{instance_id}"


def loaded_member(member_id: str, row: MemberRow, now: float) -> Member:
    """Return the stored member: away, with all partitions that it may hold."""
    member = Member(
        Join(
            member_id=member_id,
            incarnation=row.incarnation,
            instance_id=row.instance_id,
            subscription=Subscription(row.topics, row.topic_pattern, row.bands),
            session_timeout_ms=row.session_timeout_ms,
            rebalance_timeout_ms=row.rebalance_timeout_ms,
            max_poll_interval_ms=row.max_poll_interval_ms,
            client_name=row.client_name,
            client_host=row.client_host,
            by_heartbeats=row.by_heartbeats,
        ),
        now,
    )
    member.state = State.AWAY
    member.epoch = row.epoch
    member.assigned_epoch = row.assigned_epoch
    member.taken = row.partitions()
    member.left = row.left
    return member
