"""Errors as they travel: the status of one item, and the status of a whole call."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status as RpcStatus
from grpc_status import rpc_status

from logbroker.errors import LogbrokerError
from logbroker.v1.common_pb2 import Status

_log = logging.getLogger(__name__)

ERROR_DOMAIN = "logbroker"
"""The `domain` of every google.rpc.ErrorInfo of the broker."""

MAX_MESSAGE_LENGTH = 1000
"""A call's status travels twice in its trailers, and clients take 8 KiB of these."""

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]


def item_status(error: LogbrokerError) -> Status:
    return Status(code=error.code, reason=error.reason, message=error.message[:MAX_MESSAGE_LENGTH])


async def abort(context: Context, error: LogbrokerError, metadata: Mapping[str, str] | None = None) -> NoReturn:
    """End the call with the error's code, its message, and an ErrorInfo with its reason."""
    message = error.message[:MAX_MESSAGE_LENGTH]
    detail = AnyMessage()
    detail.Pack(ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN, metadata=dict(metadata or {})))
    status = rpc_status.to_status(RpcStatus(code=error.code, message=message, details=[detail]))
    await context.abort_with_status(status)
    raise AssertionError("abort_with_status returned")


def answers(method: Callable[[Any, Any, Context], Awaitable[T]]) -> Callable[[Any, Any, Context], Awaitable[T]]:
    """Decorate a method of a service: errors that concern the whole call become its status.

    What is no LogbrokerError is logged, and the client is told no more than that.
    """

    @functools.wraps(method)
    async def answer(self: Any, request: Any, context: Context) -> T:
        try:
            return await method(self, request, context)
        except LogbrokerError as error:
            await abort(context, error)
        except grpc.aio.AbortError:
            raise
        except Exception:
            _log.exception("a call failed")
            await abort(context, LogbrokerError("the broker met an unexpected error; its log tells more"))

    return answer
