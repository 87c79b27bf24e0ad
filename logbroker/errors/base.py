"""The base of all errors: gRPC code, reason, Kafka error code and message."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final, Self

from logbroker.types import TopicPartition

_MAX_QUOTED: Final = 256


class Code(enum.IntEnum):
    """The gRPC status codes (google.rpc.Code)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15


class LogbrokerError(Exception):
    """Something failed for which there is no error class. This class is the base of all others.

    Read the message and the log of the broker. Report a bug if neither explains the failure.
    """

    code: ClassVar[Code] = Code.INTERNAL
    reason: ClassVar[str] = "INTERNAL"
    kafka_code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False
    """Whether the same request may succeed later, unchanged."""
    partitions: Mapping[TopicPartition, int] = MappingProxyType({})
    """The partitions that a consumer cannot read any further, with their positions (-1: none yet)."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def as_value(self) -> Self:
        """Remove the traceback, and return the error: for an error that is kept instead of raised.

        A traceback refers to all frames that the error went through, and so to their data, such as a whole decoded
        batch. It also refers to the frame that caught the error; if this frame refers to the error, only the garbage
        collector frees both. So call this method for each error that is kept in a list, an attribute or an answer.
        """
        self.__context__ = self.__cause__ = None
        return self.with_traceback(None)

    def anew(self) -> Self:
        """Return a copy of the error, to be raised instead of an error that is kept.

        Each `raise` adds frames to the traceback of the error, and frames refer to their data. One error that is raised
        again and again would keep every request that it ever refused.
        """
        other = type(self).__new__(type(self))
        other.args = self.args
        other.__dict__.update(self.__dict__)
        return other


def quoted(text: object) -> str:
    """Return the repr of a value for a message, shortened if it is long."""
    try:
        shown = repr(text[: _MAX_QUOTED + 1]) if isinstance(text, str | bytes) else repr(text)
    except Exception as failure:  # The program's own __repr__.
        shown = f"<{type(text).__name__} whose __repr__ raises {type(failure).__name__}>"
    return shown if len(shown) <= _MAX_QUOTED else shown[:_MAX_QUOTED] + "..."


def quoted_key(key: bytes | None) -> str:
    """Return a key for a message: as text if it is UTF-8, else as bytes."""
    try:
        return quoted(None if key is None else key.decode())
    except UnicodeDecodeError:
        return quoted(key)


class ConcurrentUseError(LogbrokerError):
    """Two threads or tasks used a client at the same time, in a call that allows only one. Or a signal handler used the
    client in the middle of such a call.

    Give each thread or task its own client, or guard the client with a lock. In a signal handler, only set a flag or
    call `worker.stop()`.
    """

    code = Code.FAILED_PRECONDITION
    reason = "CONCURRENT_USE"


class InvalidRequestError(LogbrokerError):
    """A field of the request is missing, contradicts another one or is out of bounds.

    Change the request as the message says.
    """

    code = Code.INVALID_ARGUMENT
    reason = "INVALID_REQUEST"
    kafka_code = 42
