"""Admission of new members: their ids must not be in use by a connected member, and the group must have room."""

from __future__ import annotations

from logbroker.consumer_groups.member import Member
from logbroker.consumer_groups.messages import Join
from logbroker.errors import (
    AssignorMismatchError,
    GrowthOrderMismatchError,
    InstanceIdInUseError,
    MemberIdInUseError,
    MemberNotReleasedError,
    OverloadedError,
    quoted,
)


def replaced_by(
    join: Join, same_id: Member | None, same_slot: Member | None, *, now: float, grace_seconds: float
) -> list[Member]:
    """Return the earlier incarnations with the same member id or instance id, which the new member replaces. They must
    be away, and it must be certain that they deliver nothing any more.

    Raises InstanceIdInUseError, MemberIdInUseError or MemberNotReleasedError.
    """
    if join.instance_id and same_slot is not None and same_slot.connected:
        raise InstanceIdInUseError(
            f"a member of instance id {quoted(join.instance_id)} is connected: stop it first, or choose another id"
        )
    if same_id is not None and same_id.connected:
        raise MemberIdInUseError(
            f"another incarnation of member {quoted(join.member_id)} is connected: choose an id that nobody else has"
        )
    replaced = [member for member in dict.fromkeys((same_id, same_slot)) if member is not None]
    for member in replaced:
        left_seconds = member.delivers_until(grace_seconds) - now
        if left_seconds >= 0:
            raise MemberNotReleasedError(
                f"member {quoted(member.member_id)}, which this client would replace, lost its connection without a"
                f" goodbye, and may still deliver records: try again in {left_seconds:.1f} s"
            )
    return replaced


def check_room(*, others: int, max_members: int) -> None:
    """Raise OverloadedError if the group is full. `others` is the number of members without the new one."""
    if others >= max_members:
        raise OverloadedError(
            f"the group is full (max_group_members is {max_members}): raise that setting, or start another group"
        )


def check_settings(join: Join, *, assignor: str, growth_order: str) -> None:
    """Raise AssignorMismatchError or GrowthOrderMismatchError if a member asks for other settings than the group
    has."""
    if join.assignor not in ("", assignor):
        raise AssignorMismatchError(f"the members of the group use the assignor {assignor}: join with it, or name none")
    if join.growth_order not in ("", growth_order):
        raise GrowthOrderMismatchError(
            f"the members of the group have growth_order {growth_order}: join with it, or name none; to change it, stop"
            " all members first"
        )
