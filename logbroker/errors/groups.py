"""Errors of consumer groups: joins, assignments and commits."""

from __future__ import annotations

from logbroker.errors.base import Code, InvalidRequestError, LogbrokerError

# --- requests that can never succeed -------------------------------------------------------------------------------


class InvalidGroupIdError(InvalidRequestError):
    """The group id is not valid.

    Use 1 to 200 of the characters a-z, A-Z, 0-9, '.', '_' and '-'.
    """

    reason = "INVALID_GROUP_ID"
    kafka_code = 24


class OffsetMetadataTooLargeError(InvalidRequestError):
    """The metadata text of a committed offset is longer than 4,096 bytes.

    Commit less metadata. Store the rest elsewhere.
    """

    reason = "OFFSET_METADATA_TOO_LARGE"
    kafka_code = 12


# --- groups and members that are not there, or are there already -----------------------------------------------------


class UnknownGroupError(LogbrokerError):
    """No group has this id.

    Check the id with `logbroker group list` or `logbroker queue list`.
    """

    code = Code.NOT_FOUND
    reason = "UNKNOWN_GROUP"
    kafka_code = 69


class UnknownMemberError(LogbrokerError):
    """The group has no such member, or no longer has it.

    Join the group again.
    """

    code = Code.NOT_FOUND
    reason = "UNKNOWN_MEMBER"
    kafka_code = 25


class MemberIdInUseError(LogbrokerError):
    """Another client is connected with this member id.

    Give each member an id of its own.
    """

    code = Code.ALREADY_EXISTS
    reason = "MEMBER_ID_IN_USE"
    kafka_code = 25


class InstanceIdInUseError(LogbrokerError):
    """A member with this instance id is connected.

    Stop that member first, or choose another instance id.
    """

    code = Code.ALREADY_EXISTS
    reason = "INSTANCE_ID_IN_USE"
    kafka_code = 111


class MemberNotReleasedError(LogbrokerError):
    """A previous client with this member or instance id has lost its connection, and may still deliver records. The
    broker admits a new client when the previous one can no longer deliver records.

    Try again after the time that the message gives.
    """

    code = Code.UNAVAILABLE
    reason = "MEMBER_NOT_RELEASED"
    kafka_code = 111
    retriable = True


class GroupNotEmptyError(LogbrokerError):
    """The group has members, and the request needs a group without any.

    Stop the members, wait for their session timeout, and try again.
    """

    code = Code.FAILED_PRECONDITION
    reason = "GROUP_NOT_EMPTY"
    kafka_code = 68


class AssignorMismatchError(LogbrokerError):
    """The members of the group use another assignor.

    Join with the assignor of the group, or name none.
    """

    code = Code.FAILED_PRECONDITION
    reason = "ASSIGNOR_MISMATCH"
    kafka_code = 23


class GrowthOrderMismatchError(LogbrokerError):
    """The members of the group have another growth_order, which says how they read added partitions.

    Join with the growth_order of the group, or name none. To change it, stop all members first.
    """

    code = Code.FAILED_PRECONDITION
    reason = "GROWTH_ORDER_MISMATCH"
    kafka_code = 23


# --- commits -------------------------------------------------------------------------------------------------------


class StaleMemberEpochError(LogbrokerError):
    """The commit belongs to an assignment that the member has replaced since.

    Commit before you take a new assignment. Uncommitted records are delivered again.
    """

    code = Code.FAILED_PRECONDITION
    reason = "STALE_MEMBER_EPOCH"
    kafka_code = 113


class NotOwnerError(LogbrokerError):
    """The member commits for a partition that it does not hold.

    Drop the commit: the new owner of the partition commits.
    """

    code = Code.FAILED_PRECONDITION
    reason = "NOT_OWNER"
    # Clients repeat a commit that is refused as STALE_MEMBER_EPOCH, and this one would be refused each time. Kafka has
    # no such error: it does not ask who holds a partition.
    kafka_code = 3


class OffsetGoesBackError(LogbrokerError):
    """A higher offset of the partition is committed already, and a member that keeps the partition cannot go back.

    Commit higher offsets only. To go back, use `logbroker group reset-offsets`.
    """

    code = Code.FAILED_PRECONDITION
    reason = "OFFSET_GOES_BACK"
    kafka_code = 42


class OffsetsFullError(LogbrokerError):
    """The committed offsets of the group, or of all groups, have used up their memory.

    Commit less metadata, delete unused groups, or raise max_group_offsets_bytes or max_offsets_bytes.
    """

    code = Code.RESOURCE_EXHAUSTED
    reason = "OFFSETS_FULL"
    kafka_code = 28


# --- fencing -------------------------------------------------------------------------------------------------------


class MemberFencedError(LogbrokerError):
    """The broker has removed the member from the group. The member holds no partition any more.

    Join the group again. Uncommitted records are delivered again.
    """

    code = Code.ABORTED
    reason = "MEMBER_FENCED"
    kafka_code = 110


class SessionTimedOutError(MemberFencedError):
    """The broker heard nothing from the member for its session timeout, and removed it from the group.

    Join the group again. If the program or the network pauses for longer, raise the session timeout. Work that blocks
    the event loop of an asynchronous program belongs in a thread.
    """

    reason = "SESSION_TIMED_OUT"
    kafka_code = 25


class RebalanceTimedOutError(MemberFencedError):
    """The member did not give up its revoked partitions within its rebalance timeout, or did not take an assignment
    within its max poll interval, and was removed from the group.

    Give up revoked partitions sooner, or raise the rebalance timeout.
    """

    reason = "REBALANCE_TIMED_OUT"
    kafka_code = 25


class PollTimedOutError(MemberFencedError):
    """The program asked for no records for its max poll interval, and the member was removed from the group.

    Handle fewer records between two polls, or raise the max poll interval.
    """

    reason = "POLL_TIMED_OUT"
    kafka_code = 25


class MemberReplacedError(MemberFencedError):
    """The member has connected again on another stream, which replaces this one.

    Use the new stream. If another program has the same member id, give each its own.
    """

    reason = "MEMBER_REPLACED"
    kafka_code = 82
