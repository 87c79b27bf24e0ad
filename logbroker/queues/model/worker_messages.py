"""What a worker says of itself when it comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from logbroker.errors import InvalidRequestError

MAX_WORKER_ID_BYTES: Final = 200
MAX_CLIENT_NAME_CHARACTERS: Final = 255
MAX_CREDIT: Final = 1_000_000
DISPATCH_BYTES: Final = 1024 * 1024
"""About as much is handed out to a worker at a time, at most."""
MAX_CREDIT_BYTES: Final = 1 << 50


class ListedSession(msgspec.Struct, frozen=True):
    """A session that a worker says it holds."""

    key: bytes
    token: int
    prefetch: int = 1
    """As it was opened with."""
    credit_bytes: int | None = None
    """How many bytes of its records may be sent on this stream; None: not bounded."""


class OpenedSession(msgspec.Struct, frozen=True):
    """A session that is a worker's now."""

    key: bytes
    """The ordering key; of one of more than 256 bytes that was not asked for, what stands for it everywhere."""
    token: int
    state: bytes
    has_records: bool
    """The first of its records follow."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """A worker introduces itself: as a new one, or as one whose stream broke."""

    worker_id: str
    incarnation: int
    """Random, not 0; a worker that comes back with its own is the same."""
    client_name: str = ""
    held: Sequence[int] = ()
    """The ids of all records that it still holds."""
    sessions: Sequence[ListedSession] = ()
    """All sessions that it still holds."""
    attempts: Sequence[int] = ()
    """Which attempt each of `held` was; empty: not told."""
    group_epoch: int = 0
    """That of the queue group when the worker was there last; 0: not told."""
    band: str = ""
    """Which it serves, outside of sessions; "": all."""
    credit_bytes: int | None = None
    """How many bytes may be sent outside of sessions; None: not bounded."""

    def check(self) -> None:
        """Raises InvalidRequestError where a bound is passed."""
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
    """Raise InvalidRequestError for an id that is too long; an empty one is for those who receive and settle alone."""
    size_bytes = len(worker_id.encode("utf-8", "surrogatepass"))
    if size_bytes > MAX_WORKER_ID_BYTES:
        raise InvalidRequestError(f"the worker_id has {size_bytes} bytes; at most {MAX_WORKER_ID_BYTES} are taken")


def check_credit_bytes(credit_bytes: int | None) -> None:
    """Raise InvalidRequestError for a credit in bytes that cannot be given."""
    if credit_bytes is not None and not 0 <= credit_bytes <= MAX_CREDIT_BYTES:
        raise InvalidRequestError(f"a credit of {credit_bytes} bytes cannot be given: give 0 to {MAX_CREDIT_BYTES:,}")


def check_credit(records: int) -> None:
    """Raise InvalidRequestError for a number of records that cannot be asked for."""
    if not 1 <= records <= MAX_CREDIT:
        raise InvalidRequestError(f"{records} records cannot be asked for: give credit for 1 to {MAX_CREDIT:,}")
