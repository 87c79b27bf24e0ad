"""Inputs and outputs of the state machine of a group."""

from __future__ import annotations

from typing import Final

import msgspec

from logbroker.consumer_groups.assignors import ASSIGNORS
from logbroker.consumer_groups.rows import KEY_ORDER
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.engine import StateEvent
from logbroker.errors import InvalidRequestError, MemberFencedError, quoted
from logbroker.types import PartitionKey

MAX_ID_BYTES: Final = 200
MAX_CLIENT_NAME_CHARACTERS: Final = 255
MIN_TIMEOUT_MS: Final = 100
MAX_SESSION_TIMEOUT_MS: Final = 3_600_000
MAX_TIMEOUT_MS: Final = 86_400_000

NO_ORDER: Final = "none"
"""Read everything that exists: see `generations`."""
GROWTH_ORDERS: Final = (KEY_ORDER, NO_ORDER)


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """A member introduces itself, as a new member or as a member whose stream broke."""

    member_id: str
    incarnation: int
    """Random number, not 0. A member that comes back with the same incarnation is the same member."""
    instance_id: str = ""
    """If not empty, the member is static: its place in the group outlives it by the session timeout."""
    subscription: Subscription = Subscription()
    assignor: str = ""
    """Empty: the assignor of the group."""
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 60_000
    max_poll_interval_ms: int = 300_000
    epoch: int = 0
    """Epoch of the last assignment that this incarnation took; 0: none."""
    owned: frozenset[PartitionKey] = frozenset()
    """Partitions of this assignment that the member still holds."""
    client_name: str = ""
    growth_order: str = ""
    """One of GROWTH_ORDERS; empty: the growth order of the group."""
    client_host: str = ""
    """The host of a Kafka client; otherwise empty."""
    by_heartbeats: bool = False
    """Whether the member has no stream, and is heard from by its heartbeats alone: see `heartbeats`."""

    def check(self) -> None:
        """Raise InvalidRequestError if a field is out of bounds."""
        if not self.member_id:
            raise InvalidRequestError("the member_id is empty: choose one that is unique in the group, such as a UUID")
        for name in ("member_id", "instance_id"):
            size_bytes = len(getattr(self, name).encode("utf-8", "surrogatepass"))
            if size_bytes > MAX_ID_BYTES:
                raise InvalidRequestError(f"the {name} has {size_bytes} bytes; at most {MAX_ID_BYTES} are taken")
        if not 0 < self.incarnation < 1 << 64:
            raise InvalidRequestError("the incarnation must be a random number of 64 bits, and not 0")
        if self.assignor and self.assignor not in ASSIGNORS:
            raise InvalidRequestError(
                f"there is no assignor {quoted(self.assignor)}; there are: {', '.join(ASSIGNORS)}"
            )
        if self.growth_order and self.growth_order not in GROWTH_ORDERS:
            raise InvalidRequestError(
                f"growth_order takes {' or '.join(GROWTH_ORDERS)}, not {quoted(self.growth_order)}"
            )
        for name, longest_ms in (
            ("session_timeout_ms", MAX_SESSION_TIMEOUT_MS),
            ("rebalance_timeout_ms", MAX_TIMEOUT_MS),
            ("max_poll_interval_ms", MAX_TIMEOUT_MS),
        ):
            if not MIN_TIMEOUT_MS <= getattr(self, name) <= longest_ms:
                raise InvalidRequestError(f"{name} must be from {MIN_TIMEOUT_MS} to {longest_ms}")
        if len(self.client_name) > MAX_CLIENT_NAME_CHARACTERS:
            raise InvalidRequestError(
                f"the client_name has {len(self.client_name)} characters;"
                f" at most {MAX_CLIENT_NAME_CHARACTERS} are taken"
            )
        self.subscription.check()


class Joined(msgspec.Struct, frozen=True):
    """The member has joined."""

    assignor: str
    session_timeout_ms: int
    reconnect_grace_ms: int
    growth_order: str
    resumed: bool
    """Whether the member came back, and keeps the partitions that it listed as owned and its epoch. Otherwise it owns
    nothing, and its epoch is 0."""


class Assignment(msgspec.Struct, frozen=True):
    """All partitions that a member shall hold. The member answers with `taken`, once it has given up all others."""

    epoch: int
    partitions: frozenset[PartitionKey]
    granted: frozenset[PartitionKey]
    """The assigned partitions that the member did not hold before."""


class Fenced(msgspec.Struct, frozen=True):
    """The member was removed, and holds nothing."""

    error: MemberFencedError


Message = Joined | Assignment | Fenced


class GroupOutputs(msgspec.Struct, frozen=True):
    """The results of the inputs since the last call. No message may be sent before the events are durable."""

    events: list[StateEvent]
    messages: list[tuple[str, Message]]
    """Messages with the ids of their members, in order."""
