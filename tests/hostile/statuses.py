"""Every error is one of ours: a code and a reason of logbroker/errors.py, and never UNKNOWN or INTERNAL."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status as RpcStatus

from logbroker.errors import Code, LogbrokerError, from_status
from logbroker.v1.common_pb2 import Status, StoredRecord

FORBIDDEN = (Code.UNKNOWN, Code.INTERNAL, Code.DATA_LOSS)
_DETAILS = "grpc-status-details-bin"


def check_response(response: Message) -> None:
    for status in _statuses_in(response):
        check_status(status.code, status.reason, status.message)


def check_call_error(error: grpc.aio.AioRpcError) -> None:
    """Check how a whole call failed."""
    code, reason = error.code().value[0], reason_of(error)
    if reason:
        check_status(code, reason, error.details() or "")
        return
    # The transport's own refusals have a code, but no reason: too large a message is the one that is allowed here.
    assert code == Code.RESOURCE_EXHAUSTED, f"without a reason: {error.code()} {error.details()}"
    assert "larger than max" in (error.details() or ""), error.details()


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """The reason that the broker gave for a failed call, "" for none."""
    metadata = error.trailing_metadata()
    packed = None if metadata is None else metadata.get(_DETAILS)
    if not isinstance(packed, bytes):
        return ""
    info = ErrorInfo()
    RpcStatus.FromString(packed).details[0].Unpack(info)
    reason: str = info.reason
    return reason


def check_status(code: int, reason: str, message: str) -> None:
    if not code and not reason:
        return
    assert code not in FORBIDDEN, f"{code} {reason}: {message}"
    found = from_status(code, reason, message)
    assert type(found) is not LogbrokerError, f"an unknown reason: {reason!r}"
    assert (found.code, found.reason) == (code, reason), f"{reason} with code {code}"
    assert 0 < len(message) <= 2_000, f"a message of {len(message)} characters"


def _statuses_in(message: Message) -> Iterator[Status]:
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type is StoredRecord.DESCRIPTOR:
            continue
        if field.message_type.GetOptions().map_entry:
            continue  # A map: of numbers, wherever there is one.
        for part in value if field.is_repeated else [value]:
            if isinstance(part, Status):
                yield part
            else:
                yield from _statuses_in(part)
