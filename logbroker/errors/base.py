"""What every error has: a gRPC code, a reason and the Kafka error code it corresponds to."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final, Self

from logbroker.types import TopicPartition

_MAX_QUOTED: Final = 256


class Code(enum.IntEnum):
    """The gRPC status codes in use (google.rpc.Code)."""

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
    """The root. Raised itself only for what has no class of its own."""

    code: ClassVar[Code] = Code.INTERNAL
    reason: ClassVar[str] = "INTERNAL"
    kafka_code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False
    """Whether the same request may succeed later without a change."""
    partitions: Mapping[TopicPartition, int] = MappingProxyType({})
    """Where a consumer raises it: the partitions that cannot be read on, with their positions (-1: none yet)."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def as_value(self) -> Self:
        """Return the error to be kept, instead of raised: its traceback would keep what was worked on, such as all that
        a batch expanded to. Whatever is caught into a list, an attribute or an answer goes through this: a traceback
        refers to the frame that caught the error, and where that refers to the error only the garbage collector ends
        it."""
        self.__context__ = self.__cause__ = None
        return self.with_traceback(None)

    def anew(self) -> Self:
        """Return another error that says the same, to be raised in the place of one that is kept.

        Each `raise` adds the frames that it goes through to the error's traceback, and these refer to all that was
        worked on: one error that is raised again and again keeps every request it ever refused.
        """
        other = type(self).__new__(type(self))
        other.args = self.args
        other.__dict__.update(self.__dict__)
        return other


def quoted(text: object) -> str:
    """Return what a caller named, as it may stand in a message: its repr, cut where it is long."""
    try:
        shown = repr(text[: _MAX_QUOTED + 1]) if isinstance(text, str | bytes) else repr(text)
    except Exception as failure:  # Of the program's own class.
        shown = f"<{type(text).__name__} whose __repr__ raises {type(failure).__name__}>"
    return shown if len(shown) <= _MAX_QUOTED else shown[:_MAX_QUOTED] + "..."


def quoted_key(key: bytes | None) -> str:
    """Return a key as it may stand in a message: as text where it is UTF-8, as most are."""
    try:
        return quoted(None if key is None else key.decode())
    except UnicodeDecodeError:
        return quoted(key)


class ConcurrentUseError(LogbrokerError):
    """A client is used by two threads or tasks at once, in a call that is for one at a time; or by a signal handler
    that interrupts a call for whose end it would have to wait."""

    code = Code.FAILED_PRECONDITION
    reason = "CONCURRENT_USE"


class InvalidRequestError(LogbrokerError):
    """A field is missing, contradictory or out of bounds."""

    code = Code.INVALID_ARGUMENT
    reason = "INVALID_REQUEST"
    kafka_code = 42
