"""The message of a worker that connects (`Hello`), the session that it gets, and the bounds of ids and credit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from logbroker.errors import InvalidRequestError

MAX_WORKER_ID_BYTES: Final = 200
MAX_CLIENT_NAME_CHARACTERS: Final = 255
MAX_CREDIT: Final = 1_000_000
DISPATCH_BYTES: Final = 1024 * 1024
"""Approximate maximum of bytes handed out to a worker at a time."""
MAX_CREDIT_BYTES: Final = 1 << 50


class ListedSession(msgspec.Struct, frozen=True):
    """A session that a worker says it holds."""

    key: bytes
    token: int
    prefetch: int = 1
    """The prefetch with which the session was opened."""
    credit_bytes: int | None = None
    """How many bytes of its records may be sent on this stream; None: unbounded."""


class OpenedSession(msgspec.Struct, frozen=True):
    """A session that now belongs to a worker."""

    key: bytes
    """The ordering key that the worker asked for. If the worker asked for the next free session, the lane key (see
    `lane_key`)."""
    token: int
    state: bytes
    has_records: bool
    """Whether the session has records. Its first records then follow. True also if this is not known yet."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """A worker introduces itself, as a new worker or as one whose stream broke."""

    worker_id: str
    incarnation: int
    """Random number, not 0. A worker that comes back with the same incarnation is the same worker."""
    client_name: str = ""
    held: Sequence[int] = ()
    """Ids of all records that the worker still holds."""
    sessions: Sequence[ListedSession] = ()
    """All sessions that the worker still holds."""
    attempts: Sequence[int] = ()
    """Attempt numbers of `held`; empty: not given."""
    group_epoch: int = 0
    """Group epoch at the worker's last connection; 0: not given."""
    band: str = ""
    """Band that the worker serves outside of sessions; "": all."""
    credit_bytes: int | None = None
    """How many bytes may be sent outside of sessions; None: unbounded."""

    def check(self) -> None:
        """Raise InvalidRequestError if a field is out of bounds."""
        check_worker_id(self.worker_id)
        if not self.worker_id:
            raise InvalidRequestError("the worker_id is empty: choose one that is unique in the group, such as a UUID")
        if not 0 < self.incarnation < 1 << 64:
            raise InvalidRequestError("the incarnation must be a random number of 64 bits, and not 0")
        if len(self.client_name) > MAX_CLIENT_NAME_CHARACTERS:
            raise InvalidRequestError(
                f"the client_name has {len(self.client_name)} characters;"
                f" at most {MAX_CLIENT_NAME_CHARACTERS} are taken"
            )
        for credit_bytes in (self.credit_bytes, *(session.credit_bytes for session in self.sessions)):
            check_credit_bytes(credit_bytes)


def check_worker_id(worker_id: str) -> None:
    """Raise InvalidRequestError for an id that is too long. An empty id is for callers that only receive and settle."""
    size_bytes = len(worker_id.encode("utf-8", "surrogatepass"))
    if size_bytes > MAX_WORKER_ID_BYTES:
        raise InvalidRequestError(f"the worker_id has {size_bytes} bytes; at most {MAX_WORKER_ID_BYTES} are taken")


def check_credit_bytes(credit_bytes: int | None) -> None:
    """Raise InvalidRequestError for a credit in bytes that is out of bounds."""
    if credit_bytes is not None and not 0 <= credit_bytes <= MAX_CREDIT_BYTES:
        raise InvalidRequestError(f"a credit of {credit_bytes} bytes cannot be given: give 0 to {MAX_CREDIT_BYTES:,}")


def check_credit(records: int) -> None:
    """Raise InvalidRequestError for a number of records that is out of bounds."""
    if not 1 <= records <= MAX_CREDIT:
        raise InvalidRequestError(f"{records} records cannot be asked for: give credit for 1 to {MAX_CREDIT:,}")
