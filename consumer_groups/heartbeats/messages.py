"""Heartbeats and their answers."""

from __future__ import annotations

from typing import Final

import msgspec

from logbroker.consumer_groups.assignors import DEFAULT_ASSIGNOR
from logbroker.types import PartitionKey

JOINING: Final = 0
"""Epoch of a heartbeat that joins the group; the member owns nothing."""
LEAVING: Final = -1
"""Epoch of a heartbeat that leaves the group."""
AWAY: Final = -2
"""Epoch of a heartbeat by which a static member leaves for a while: its place is kept."""

ASSIGNORS: Final = {"uniform": DEFAULT_ASSIGNOR, "range": "range"}
"""Assignors by the names that Kafka has for them."""


class MemberHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat. None in a field means that the value is the same as before."""

    member_id: str
    epoch: int
    """Epoch of the member, or one of JOINING, LEAVING and AWAY."""
    instance_id: str | None = None
    rebalance_timeout_ms: int | None = None
    """How long the member may take to give up partitions. A member that joins names it."""
    topics: tuple[str, ...] | None = None
    topic_pattern: str | None = None
    assignor: str | None = None
    """One of ASSIGNORS."""
    owned: frozenset[PartitionKey] | None = None
    """Partitions that the member has not given up."""
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether the member tells all that it knows, because it joins or has missed an answer."""
        has_subscription = self.topics is not None or self.topic_pattern is not None
        return self.rebalance_timeout_ms is not None and has_subscription and self.owned is not None


class HeartbeatAnswer(msgspec.Struct, frozen=True):
    """The answer to a heartbeat."""

    member_id: str
    epoch: int
    partitions: frozenset[PartitionKey] | None = None
    """All partitions that the member shall hold; None: the same as in the answer before."""


class HeartbeatTimes(msgspec.Struct, frozen=True):
    """Times that the broker chooses for members that send heartbeats."""

    session_timeout_ms: int
    interval_ms: int
