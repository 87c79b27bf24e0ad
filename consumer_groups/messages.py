"""What goes into the machine of a group and comes out of it."""

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
"""Whatever is there is read: see `generations`."""
GROWTH_ORDERS: Final = (KEY_ORDER, NO_ORDER)


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """A member introduces itself: as a new one, or as one whose stream broke."""

    member_id: str
    incarnation: int
    """Random, not 0; a member that comes back with its own is the same."""
    instance_id: str = ""
    """Not empty: a static member, whose place in the group outlives it by the session timeout."""
    subscription: Subscription = Subscription()
    assignor: str = ""
    """Empty: whatever the group uses."""
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 60_000
    max_poll_interval_ms: int = 300_000
    epoch: int = 0
    """Of the last assignment that this incarnation took; 0: none."""
    owned: frozenset[PartitionKey] = frozenset()
    """What it still holds of that."""
    client_name: str = ""
    growth_order: str = ""
    """One of GROWTH_ORDERS; empty: whatever the group uses."""

    def check(self) -> None:
        """Raises InvalidRequestError where a bound is passed."""
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
    """The member is one."""

    assignor: str
    session_timeout_ms: int
    reconnect_grace_ms: int
    growth_order: str
    resumed: bool
    """It came back and keeps what it listed as owned, at its epoch. False: it owns nothing, and its epoch is 0."""


class Assignment(msgspec.Struct, frozen=True):
    """All that a member shall hold. To be answered by `taken`, once it has let go of everything else."""

    epoch: int
    partitions: frozenset[PartitionKey]
    granted: frozenset[PartitionKey]
    """Those of the partitions that it did not hold before."""


class Fenced(msgspec.Struct, frozen=True):
    """The member was removed, and holds nothing."""

    error: MemberFencedError


Message = Joined | Assignment | Fenced


class GroupOutputs(msgspec.Struct, frozen=True):
    """What followed from the inputs since the last time. No message may leave before the events are durable."""

    events: list[StateEvent]
    messages: list[tuple[str, Message]]
    """With the ids of the members, in order."""
