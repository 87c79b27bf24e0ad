"""Converts failed gRPC calls, and the statuses of items, into the errors of logbroker."""

from __future__ import annotations

from typing import Final

import grpc
from google.rpc import error_details_pb2, status_pb2

from logbroker.errors import (
    BrokerUnavailableError,
    LogbrokerError,
    RequestTimeoutError,
    StaleOwnerError,
    from_status,
)
from logbroker.v1 import common_pb2

_DETAILS_KEY = "grpc-status-details-bin"
_DOMAIN = "logbroker"


UNKNOWN_EFFECT: Final = "; whether the request took effect is not known"
"""Added to the message if a failed call changes something and the broker may have received it without answering."""

_NEVER_SENT: Final = ("failed to connect to all addresses", "errors resolving ", "DNS resolution failed")
"""The beginnings of gRPC's messages for a call that found no connection. If a call fails with another message, its
effect counts as unknown."""

_ENDED_WHILE_SENDING: Final = "Internal error from Core"
"""gRPC's message, with the status INTERNAL, for a stream that ends while a message is written to it."""


def error_of_call(error: grpc.aio.AioRpcError, broker: str) -> LogbrokerError:
    """Return the error of a call that failed as a whole. `broker` is the address, for the message."""
    code = error.code()
    message = error.details() or code.name
    info = _info(error)
    reason = info.reason
    # A call that this client cancels raises CancelledError. The status CANCELLED comes from a connection that ended
    # during the call.
    if not reason and code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        if _was_never_sent(error):
            return BrokerUnavailableError(f"the broker at {broker} cannot be reached: {message}; is it running?")
        return BrokerUnavailableError(f"the connection to the broker at {broker} broke before the answer: {message}")
    if not reason and code is grpc.StatusCode.INTERNAL and message == _ENDED_WHILE_SENDING:
        return BrokerUnavailableError(f"the broker at {broker} went away, or ended the stream")
    if not reason and code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return RequestTimeoutError(f"the broker at {broker} has not answered in time")
    if not reason and code is grpc.StatusCode.UNIMPLEMENTED:
        message = (
            f"the server at {broker} does not know this call: it is no logbroker broker, or one of another version"
        )
    reported = from_status(code.value[0], reason, message)
    if isinstance(reported, StaleOwnerError):
        reported.owned_by(info.metadata.get("owner", ""))
    return reported


def may_have_taken_effect(error: grpc.aio.AioRpcError) -> bool:
    """Whether the broker may have received a failed call, and carried out some or all of it."""
    is_answered = bool(_info(error).reason) or error.code() is grpc.StatusCode.UNIMPLEMENTED
    return not (is_answered or _was_never_sent(error))


def _was_never_sent(error: grpc.aio.AioRpcError) -> bool:
    return error.code() is grpc.StatusCode.UNAVAILABLE and (error.details() or "").startswith(_NEVER_SENT)


def error_of_item(status: common_pb2.Status) -> LogbrokerError | None:
    """Return the error of one item of a call, or None for success."""
    if not status.code:
        return None
    return from_status(status.code, status.reason, status.message)


def _info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    """Return what the broker says of the error. The reason is empty if the error does not come from a broker."""
    info = error_details_pb2.ErrorInfo()
    for key, value in error.trailing_metadata() or ():
        if key != _DETAILS_KEY or not isinstance(value, bytes):
            continue
        for detail in status_pb2.Status.FromString(value).details:
            if detail.Unpack(info) and info.domain == _DOMAIN:
                return info
    return error_details_pb2.ErrorInfo()
