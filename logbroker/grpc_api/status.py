"""Errors on the wire: the status of one item, and the status of a whole call."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status as RpcStatus
from grpc_status import rpc_status

from logbroker.errors import LogbrokerError, StaleOwnerError
from logbroker.v1.common_pb2 import Status

_log = logging.getLogger(__name__)

ERROR_DOMAIN = "logbroker"
"""The `domain` of every google.rpc.ErrorInfo of the broker."""

OWNER_KEY = "owner"
"""The key in the `metadata` of an ErrorInfo for the gateway that serves the group."""

MAX_MESSAGE_LENGTH = 1000
"""Maximum number of characters of a message: a call's status is sent twice in its trailers, and clients accept trailers
of 8 KiB."""

MAX_SENTENCES_BYTES = 1024 * 1024
"""Maximum bytes of the statuses with messages in one answer."""
MAX_REASONS_BYTES = 512 * 1024
"""Maximum bytes of the further statuses, which have a reason but no message."""

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]


def item_status(error: LogbrokerError) -> Status:
    return Status(
        code=error.code, reason=error.reason, message=error.message[:MAX_MESSAGE_LENGTH], owner=_owner_of(error)
    )


def _owner_of(error: LogbrokerError) -> str:
    return error.owner if isinstance(error, StaleOwnerError) else ""


class Statuses:
    """The statuses of the items of one answer. The first MiB of them have messages, the next 512 KiB have code and
    reason, and all others have only the code. So an answer does not become too large, however many of its items
    fail."""

    __slots__ = ("_used_bytes",)

    def __init__(self) -> None:
        self._used_bytes = 0

    def of(self, error: LogbrokerError) -> Status:
        """Return the status of the next item that failed."""
        used_bytes = self._used_bytes
        if used_bytes < MAX_SENTENCES_BYTES:
            status = item_status(error)
        elif used_bytes < MAX_SENTENCES_BYTES + MAX_REASONS_BYTES:
            status = Status(code=error.code, reason=error.reason, owner=_owner_of(error))
        else:
            return Status(code=error.code)
        self._used_bytes = used_bytes + status.ByteSize()
        return status

    def beside(self, size_bytes: int) -> None:
        """Count bytes that accompany a status with a message, such as the name of its item."""
        self._used_bytes += size_bytes


async def abort(context: Context, error: LogbrokerError) -> NoReturn:
    """End the call with the error's code, its message, and an ErrorInfo with its reason, and the owner if it names
    one."""
    message = error.message[:MAX_MESSAGE_LENGTH]
    detail = AnyMessage()
    owner = _owner_of(error)
    metadata = {OWNER_KEY: owner} if owner else {}
    detail.Pack(ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN, metadata=metadata))
    status = rpc_status.to_status(RpcStatus(code=error.code, message=message, details=[detail]))
    await context.abort_with_status(status)
    raise AssertionError("abort_with_status returned")


class ForwardableContext:
    """The context of a call that is forwarded if another gateway serves its group: `answers` raises the error that
    names the owner, unless a part of the answer is written."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.is_forwardable = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: Any) -> None:
        self.is_forwardable = False
        await self._context.write(message)


def answers(method: Callable[[Any, Any, Context], Awaitable[T]]) -> Callable[[Any, Any, Context], Awaitable[T]]:
    """Decorate a method of a service: errors of the whole call become its status. See also `ForwardableContext`.

    Any exception other than a LogbrokerError is logged, and the client learns no details.
    """

    @functools.wraps(method)
    async def answer(self: Any, request: Any, context: Context) -> T:
        try:
            return await method(self, request, context)
        except LogbrokerError as error:
            if _owner_of(error) and isinstance(context, ForwardableContext) and context.is_forwardable:
                raise
            await abort(context, error)
        except grpc.aio.AbortError:
            raise
        except grpc.aio.InternalError:
            # A write failed: the caller is gone, so no status is needed.
            raise asyncio.CancelledError("the caller is gone") from None
        except Exception:
            _log.exception("a call failed")
            await abort(context, LogbrokerError("the broker met an unexpected error; its log tells more"))

    return answer
