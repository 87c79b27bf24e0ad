"""The settings of a consumer in a group."""

from __future__ import annotations

from typing import Literal

import msgspec

from logbroker.client.consumer.member import MemberOptions
from logbroker.client.consumer.offset_reset import OffsetReset, Policy, reset_policy
from logbroker.client.runtime.arguments import check_seconds

GrowthOrder = Literal["key", "none"]
"""Whether records of a key stay in order when partitions are added to their topic."""


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a consumer in a group."""

    member: MemberOptions
    start: Policy
    """The start position in a partition without a committed offset."""
    auto_commit: bool
    auto_commit_interval_seconds: float


def group_settings(
    group: str | None,
    *,
    start: OffsetReset,
    auto_commit: bool,
    auto_commit_interval_seconds: float,
    instance_id: str | None,
    assignor: str | None,
    growth_order: GrowthOrder | None,
    session_timeout_seconds: float,
    rebalance_timeout_seconds: float,
    max_poll_interval_seconds: float,
) -> GroupSettings | None:
    """Return the settings of a group's consumer, or None without a group. Raises InvalidRequestError."""
    if group is None:
        return None
    policy = reset_policy(start, "start")
    check_seconds(
        session_timeout_seconds=session_timeout_seconds,
        rebalance_timeout_seconds=rebalance_timeout_seconds,
        max_poll_interval_seconds=max_poll_interval_seconds,
        auto_commit_interval_seconds=auto_commit_interval_seconds,
    )
    member = MemberOptions(
        group_id=group,
        instance_id=instance_id or "",
        assignor=assignor or "",
        growth_order=growth_order or "",
        session_timeout_seconds=session_timeout_seconds,
        rebalance_timeout_seconds=rebalance_timeout_seconds,
        max_poll_interval_seconds=max_poll_interval_seconds,
    )
    return GroupSettings(
        member=member,
        start=policy,
        auto_commit=auto_commit,
        auto_commit_interval_seconds=auto_commit_interval_seconds,
    )
