"""Errors of consumer groups: who may join, hold and commit what."""

from __future__ import annotations

from logbroker.errors.base import Code, InvalidRequestError, LogbrokerError

# --- requests that can never succeed -------------------------------------------------------------------------------


class InvalidGroupIdError(InvalidRequestError):
    """Not 1-200 of the characters a-z, A-Z, 0-9, '.', '_' and '-'."""

    reason = "INVALID_GROUP_ID"
    kafka_code = 24


class OffsetMetadataTooLargeError(InvalidRequestError):
    """The text beside a committed offset is over its limit."""

    reason = "OFFSET_METADATA_TOO_LARGE"
    kafka_code = 12


# --- groups and members that are not there, or are there already -----------------------------------------------------


class UnknownGroupError(LogbrokerError):
    """No group of this id."""

    code = Code.NOT_FOUND
    reason = "UNKNOWN_GROUP"
    kafka_code = 69


class UnknownMemberError(LogbrokerError):
    """The group has no such member (any more): join first."""

    code = Code.NOT_FOUND
    reason = "UNKNOWN_MEMBER"
    kafka_code = 25


class MemberIdInUseError(LogbrokerError):
    """Another incarnation of a member of this id is connected: choose another id."""

    code = Code.ALREADY_EXISTS
    reason = "MEMBER_ID_IN_USE"
    kafka_code = 25


class InstanceIdInUseError(LogbrokerError):
    """A member of this instance id is connected: stop it first, or choose another one."""

    code = Code.ALREADY_EXISTS
    reason = "INSTANCE_ID_IN_USE"
    kafka_code = 111


class MemberNotReleasedError(LogbrokerError):
    """The previous incarnation of this member or instance has lost its connection, and may not know it yet: a new one
    is let in when it surely delivers nothing any more."""

    code = Code.UNAVAILABLE
    reason = "MEMBER_NOT_RELEASED"
    kafka_code = 111
    retriable = True


class GroupNotEmptyError(LogbrokerError):
    """The group has members: what was asked for is only done without them."""

    code = Code.FAILED_PRECONDITION
    reason = "GROUP_NOT_EMPTY"
    kafka_code = 68


class AssignorMismatchError(LogbrokerError):
    """The group's members use another assignor."""

    code = Code.FAILED_PRECONDITION
    reason = "ASSIGNOR_MISMATCH"
    kafka_code = 23


class GrowthOrderMismatchError(LogbrokerError):
    """The group's members read added partitions in another way."""

    code = Code.FAILED_PRECONDITION
    reason = "GROWTH_ORDER_MISMATCH"
    kafka_code = 23


# --- commits -------------------------------------------------------------------------------------------------------


class StaleMemberEpochError(LogbrokerError):
    """The commit was made under another assignment than the member's present one."""

    code = Code.FAILED_PRECONDITION
    reason = "STALE_MEMBER_EPOCH"
    kafka_code = 113


class NotOwnerError(LogbrokerError):
    """The member does not hold the partition that it commits for."""

    code = Code.FAILED_PRECONDITION
    reason = "NOT_OWNER"
    kafka_code = 110


class OffsetGoesBackError(LogbrokerError):
    """A commit below one that the same member made since it got the partition."""

    code = Code.FAILED_PRECONDITION
    reason = "OFFSET_GOES_BACK"
    kafka_code = 42


class OffsetsFullError(LogbrokerError):
    """The committed offsets of the group, or of all groups, take the memory that they may."""

    code = Code.RESOURCE_EXHAUSTED
    reason = "OFFSETS_FULL"
    kafka_code = 28


# --- fencing -------------------------------------------------------------------------------------------------------


class MemberFencedError(LogbrokerError):
    """The broker has removed the member, which holds nothing: it may join anew."""

    code = Code.ABORTED
    reason = "MEMBER_FENCED"
    kafka_code = 110


class SessionTimedOutError(MemberFencedError):
    """Nothing was heard of the member for its session timeout."""

    reason = "SESSION_TIMED_OUT"
    kafka_code = 25


class RebalanceTimedOutError(MemberFencedError):
    """The member did not let go of partitions within its rebalance timeout."""

    reason = "REBALANCE_TIMED_OUT"
    kafka_code = 25


class PollTimedOutError(MemberFencedError):
    """The program did not ask for records for its max poll interval."""

    reason = "POLL_TIMED_OUT"
    kafka_code = 25


class MemberReplacedError(MemberFencedError):
    """The member, or a new incarnation of it, came back on another stream, which goes on in the place of this one."""

    reason = "MEMBER_REPLACED"
    kafka_code = 82
