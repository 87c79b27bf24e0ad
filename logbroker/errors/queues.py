"""Errors of queue groups: settlements that come too late or never were due, and lanes."""

from __future__ import annotations

from logbroker.errors.base import Code, InvalidRequestError, LogbrokerError

# --- settlements ---------------------------------------------------------------------------------------------------


class UnknownReceiptError(InvalidRequestError):
    """The queue group never gave out this receipt."""

    reason = "UNKNOWN_RECEIPT"
    kafka_code = 121


class NotHolderError(LogbrokerError):
    """The delivery is another worker's."""

    code = Code.FAILED_PRECONDITION
    reason = "NOT_HOLDER"
    kafka_code = 121


class AlreadySettledError(LogbrokerError):
    """The delivery was settled before."""

    code = Code.FAILED_PRECONDITION
    reason = "ALREADY_SETTLED"
    kafka_code = 121


class LeaseLostError(LogbrokerError):
    """The delivery is not the worker's any more: the record was, or will be, handed out again."""

    code = Code.FAILED_PRECONDITION
    reason = "LEASE_LOST"
    kafka_code = 121


# --- sessions ------------------------------------------------------------------------------------------------------


class StaleSessionError(LogbrokerError):
    """The session is over, or another's: its fencing token is not that of the present holder."""

    code = Code.FAILED_PRECONDITION
    reason = "STALE_SESSION"
    kafka_code = 123


class SessionHeldError(LogbrokerError):
    """Somebody holds the session of this key, or a record of it is in flight: try again later."""

    code = Code.FAILED_PRECONDITION
    reason = "SESSION_HELD"
    retriable = True


class NoFreeSessionError(LogbrokerError):
    """No key has records that nobody works on, or none had until the time given was over: try again later."""

    code = Code.NOT_FOUND
    reason = "NO_FREE_SESSION"
    kafka_code = 121
    retriable = True


class StateTooLargeError(InvalidRequestError):
    """A session's state of over 256 KiB."""

    reason = "STATE_TOO_LARGE"
    kafka_code = 10


# --- lanes ---------------------------------------------------------------------------------------------------------


class UnknownLaneError(LogbrokerError):
    """Nothing of this ordering key waits in the queue group."""

    code = Code.NOT_FOUND
    reason = "UNKNOWN_LANE"
    kafka_code = 42


class LaneNotHeldError(LogbrokerError):
    """The lane is neither blocked, parked nor waiting for a retry: there is nothing to decide about it."""

    code = Code.FAILED_PRECONDITION
    reason = "LANE_NOT_HELD"
    kafka_code = 42


# --- groups and workers --------------------------------------------------------------------------------------------


class GroupExistsError(LogbrokerError):
    """There is a queue group of this id, with another topic or other settings."""

    code = Code.ALREADY_EXISTS
    reason = "GROUP_EXISTS"
    kafka_code = 42


class WrongGroupTypeError(LogbrokerError):
    """The group is of another type: a consumer group where a queue group is meant, or the other way round."""

    code = Code.FAILED_PRECONDITION
    reason = "WRONG_GROUP_TYPE"
    kafka_code = 23


class WorkerIdInUseError(LogbrokerError):
    """Another incarnation of a worker of this id is connected: choose another id."""

    code = Code.ALREADY_EXISTS
    reason = "WORKER_ID_IN_USE"
    kafka_code = 25


class WorkerReplacedError(LogbrokerError):
    """The worker came back on another stream, which goes on in the place of this one."""

    code = Code.ABORTED
    reason = "WORKER_REPLACED"
    kafka_code = 82
