"""Errors of the classic protocol, with the codes that Kafka clients react to."""

from __future__ import annotations

from logbroker.errors import (
    AssignorMismatchError,
    InvalidRequestError,
    LogbrokerError,
    MemberFencedError,
    OverloadedError,
    StaleMemberEpochError,
    UnknownMemberError,
)


class CoordinatorStoppingError(LogbrokerError):
    """The broker stops, and answers nobody who waits for a rebalance.

    Find the coordinator again, and repeat the request: members keep their ids over a restart.
    """

    kafka_code = 16
    retriable = True


class IllegalGenerationError(StaleMemberEpochError):
    """The request is of another generation than the present one of the group.

    Join the group again.
    """

    kafka_code = 22


class InconsistentProtocolError(AssignorMismatchError):
    """The member has another type of protocol than the group, or no protocol that all members have.

    Give all members of a group a common assignor.
    """

    kafka_code = 23


class InvalidSessionTimeoutError(InvalidRequestError):
    """The session timeout is too short or too long.

    Choose one within the bounds that the message names.
    """

    kafka_code = 26


class RebalanceInProgressError(LogbrokerError):
    """The group rebalances.

    Join again.
    """

    kafka_code = 27
    retriable = True


class MemberIdRequiredError(UnknownMemberError):
    """The member has no id yet.

    Join again with the id of the answer.
    """

    kafka_code = 79

    def __init__(self, member_id: str) -> None:
        super().__init__(f"join again with the member id {member_id}")
        self.member_id = member_id


class GroupFullError(OverloadedError):
    """The group has as many members as it may have, or they take as much memory as they may.

    Start another group, or raise max_group_members.
    """

    kafka_code = 81


class FencedInstanceIdError(MemberFencedError):
    """Another member has the instance id by now.

    Give each member an instance id of its own.
    """

    kafka_code = 82
