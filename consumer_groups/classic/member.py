"""One member of a classic group, and the memory that members take."""

from __future__ import annotations

import sys
from typing import Final

from logbroker.consumer_groups.classic.errors import GroupFullError
from logbroker.consumer_groups.classic.messages import ClassicJoin
from logbroker.consumer_groups.classic.rows import ClassicMemberRow, classic_member_row
from logbroker.group_runtime.deadline_heap import NEVER

NEW_MEMBER_SECONDS: Final = 300.0
"""How long a member's first join may wait. Its client sends nothing meanwhile, and may be gone."""
MEMBER_BYTES: Final = 2048
"""Memory of a member without its data."""
PROTOCOL_BYTES: Final = 256
"""Memory of a protocol without its name and data, in its member and in the group."""
MAX_GROUP_BYTES: Final = 16 * 1024 * 1024
MAX_BYTES: Final = 256 * 1024 * 1024


class ClassicMember:
    """The data of a member; `group` decides."""

    __slots__ = ("assignment", "heard_at", "is_dirty", "is_new", "join", "join_ticket", "member_id", "sync_ticket")

    def __init__(self, member_id: str, join: ClassicJoin, now: float) -> None:
        self.member_id = member_id
        self.join = join
        """Its latest join: identity, timeouts and protocols."""
        self.assignment = b""
        self.join_ticket: int | None = None
        """Ticket of its join that waits until all have joined."""
        self.sync_ticket: int | None = None
        """Ticket of its request that waits for the leader's assignment."""
        self.is_new = True
        """Whether it belongs to no generation yet."""
        self.is_dirty = True
        """Whether it differs from its row."""
        self.heard_at = now

    @property
    def is_waiting(self) -> bool:
        """Whether the member waits for an answer, and so sends nothing."""
        return self.join_ticket is not None or self.sync_ticket is not None

    @property
    def size_bytes(self) -> int:
        return size_bytes(self.join, self.assignment)

    def deadline(self) -> float:
        """Return the time at which the member is removed unless it is heard from (monotonic seconds)."""
        if self.is_new:
            return self.heard_at + NEW_MEMBER_SECONDS
        return NEVER if self.is_waiting else self.heard_at + self.join.session_timeout_ms / 1000

    def metadata(self, protocol: str) -> bytes:
        """Return the member's data for a protocol."""
        return next((data for name, data in self.join.protocols if name == protocol), b"")

    def to_row(self) -> ClassicMemberRow:
        join = self.join
        return classic_member_row(
            instance_id=join.instance_id,
            client_id=join.client_id,
            client_host=join.client_host,
            session_timeout_ms=join.session_timeout_ms,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            protocols=join.protocols,
            assignment=self.assignment,
        )


class PendingMember:
    """A client that was given a member id, and is about to join with it."""

    __slots__ = ("expires_at", "member_id")

    def __init__(self, member_id: str, expires_at: float) -> None:
        self.member_id = member_id
        self.expires_at = expires_at

    def deadline(self) -> float:
        return self.expires_at


def size_bytes(join: ClassicJoin, assignment: bytes) -> int:
    """Return the memory that is counted for a member."""
    protocols_bytes = sum(PROTOCOL_BYTES + len(name) + len(data) for name, data in join.protocols)
    return MEMBER_BYTES + len(assignment) + protocols_bytes


def loaded_member(member_id: str, protocol_type: str, row: ClassicMemberRow, now: float) -> ClassicMember:
    """Return the stored member; it is expected to be heard from within its session timeout."""
    join = ClassicJoin(
        member_id=member_id,
        new_member_id="",
        instance_id=row.instance_id,
        client_id=row.client_id,
        client_host=row.client_host,
        protocol_type=protocol_type,
        protocols=row.protocols,
        session_timeout_ms=row.session_timeout_ms,
        rebalance_timeout_ms=row.rebalance_timeout_ms,
    )
    member = ClassicMember(member_id, join, now)
    member.assignment = row.assignment
    member.is_new = member.is_dirty = False
    return member


class MemberBudget:
    """Budgets of memory in bytes for the members of all classic groups, and of one group."""

    def __init__(self, max_bytes: int = sys.maxsize, max_group_bytes: int = MAX_GROUP_BYTES) -> None:
        self.max_bytes = max_bytes
        self.max_group_bytes = max_group_bytes
        self.used_bytes = 0

    def check(self, group_bytes: int, growth_bytes: int) -> None:
        """Raise GroupFullError if the members of a group, which take `group_bytes`, may not take `growth_bytes`
        more."""
        if growth_bytes <= 0:
            return
        if group_bytes + growth_bytes > self.max_group_bytes:
            raise GroupFullError(
                f"the members of the group take {group_bytes} bytes of {self.max_group_bytes}: spread them over more"
                " groups, or subscribe to fewer topics"
            )
        if self.used_bytes + growth_bytes > self.max_bytes:
            raise GroupFullError(
                f"the members of all classic groups take {self.used_bytes} bytes of {self.max_bytes}: stop some"
            )
