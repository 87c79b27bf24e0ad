"""Errors of queue groups: settlements, sessions, lanes, groups and workers."""

from __future__ import annotations

from logbroker.errors.base import Code, InvalidRequestError, LogbrokerError

# --- settlements ---------------------------------------------------------------------------------------------------


class UnknownReceiptError(InvalidRequestError):
    """The queue group has never issued this receipt.

    Settle with the receipt of the delivery.
    """

    reason = "UNKNOWN_RECEIPT"
    kafka_code = 121


class NotHolderError(LogbrokerError):
    """The delivery belongs to another worker.

    Settle only deliveries that this worker has received.
    """

    code = Code.FAILED_PRECONDITION
    reason = "NOT_HOLDER"
    kafka_code = 121


class AlreadySettledError(LogbrokerError):
    """The delivery was settled before, or the worker lost it long ago: the broker remembers only the last 4,096
    losses of a group.

    Settle each delivery once. After a settlement whose answer was lost, this error usually means that it took effect.
    """

    code = Code.FAILED_PRECONDITION
    reason = "ALREADY_SETTLED"
    kafka_code = 121


class LeaseLostError(LogbrokerError):
    """The worker no longer holds the delivery, for example because the lease ended or the broker restarted. The record
    is delivered again, unless an earlier settlement of it was stored.

    Stop working on the record. If work takes long, extend the lease, or raise lease_seconds.
    """

    code = Code.FAILED_PRECONDITION
    reason = "LEASE_LOST"
    kafka_code = 121


# --- sessions ------------------------------------------------------------------------------------------------------


class StaleSessionError(LogbrokerError):
    """The session has ended, or another worker holds it by now: the fencing token is not the current one.

    Stop working on the key, and open another session.
    """

    code = Code.FAILED_PRECONDITION
    reason = "STALE_SESSION"
    kafka_code = 123


class SessionHeldError(LogbrokerError):
    """Another worker holds the session of this key, or a record of the key is in flight.

    Try again later, or open the session of the next free key.
    """

    code = Code.FAILED_PRECONDITION
    reason = "SESSION_HELD"
    retriable = True


class NoFreeSessionError(LogbrokerError):
    """No key that has records is free, or none became free within the time of the request.

    Try again later, or wait longer.
    """

    code = Code.NOT_FOUND
    reason = "NO_FREE_SESSION"
    kafka_code = 121
    retriable = True


class StateTooLargeError(InvalidRequestError):
    """The state of a session is larger than 256 KiB.

    Store the state elsewhere, and keep a reference to it in the session.
    """

    reason = "STATE_TOO_LARGE"
    kafka_code = 10


# --- lanes ---------------------------------------------------------------------------------------------------------


class UnknownLaneError(LogbrokerError):
    """The queue group has no waiting record with this ordering key.

    Check the key. If the group has not scanned the whole log yet, try again later; `logbroker queue describe` says so.
    """

    code = Code.NOT_FOUND
    reason = "UNKNOWN_LANE"
    kafka_code = 42


class LaneNotHeldError(LogbrokerError):
    """The lane moves: it is not blocked or parked, and its first record does not wait. Or that record is on its way to
    the dead-letter topic.

    Look at the lane with `logbroker queue explain`, or with `logbroker queue lanes` if it has no key, and decide again.
    """

    code = Code.FAILED_PRECONDITION
    reason = "LANE_NOT_HELD"
    kafka_code = 42


# --- groups and workers --------------------------------------------------------------------------------------------


class GroupExistsError(LogbrokerError):
    """A queue group with this id exists already, with another topic or other settings.

    Change it with `logbroker queue alter`, or choose another id.
    """

    code = Code.ALREADY_EXISTS
    reason = "GROUP_EXISTS"
    kafka_code = 42


class WrongGroupTypeError(LogbrokerError):
    """The group has the other type: the request is for a consumer group and this is a queue group, or the reverse.

    Use a worker for a queue group and a consumer for a consumer group, or choose another id.
    """

    code = Code.FAILED_PRECONDITION
    reason = "WRONG_GROUP_TYPE"
    kafka_code = 23


class WorkerIdInUseError(LogbrokerError):
    """Another client is connected with this worker id.

    Give each worker an id of its own.
    """

    code = Code.ALREADY_EXISTS
    reason = "WORKER_ID_IN_USE"
    kafka_code = 25


class WorkerReplacedError(LogbrokerError):
    """The worker has connected again on another stream, which replaces this one.

    Use the new stream. If another program has the same worker id, give each its own.
    """

    code = Code.ABORTED
    reason = "WORKER_REPLACED"
    kafka_code = 82
