"""Group ids and the stored rows of groups. Groups of all types share one namespace of ids.

scope "groups"           key group id, value msgpack map {type: "consumer" or "queue"}
scope "group:" + id      the rows of the group: see `rows` of its type
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from logbroker.engine import Numbers, StateEvent, StateStore
from logbroker.errors import (
    CorruptLogError,
    InvalidGroupIdError,
    InvalidRequestError,
    OverloadedError,
    quoted,
    unreadable_row,
)

GROUPS_SCOPE: Final = "groups"
GROUP_SCOPE: Final = "group:"
"""Prefix of the scope of one group, before its id."""
MAX_GROUP_ID_LENGTH: Final = 200
"""Bound that makes `"group:" + id` a legal scope of the StateStore."""
RETRY_SECONDS: Final = 0.05
"""Wait before the next try to store, when the store is overloaded."""

_LEGAL_ID: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_group_id(group_id: str) -> None:
    """Raise InvalidGroupIdError for an illegal id."""
    if not group_id:
        raise InvalidGroupIdError("the group id is empty; choose one of 1 to 200 characters")
    if len(group_id) > MAX_GROUP_ID_LENGTH:
        raise InvalidGroupIdError(f"a group id has at most {MAX_GROUP_ID_LENGTH} characters, not {len(group_id)}")
    if not _LEGAL_ID.fullmatch(group_id):
        raise InvalidGroupIdError(f"{quoted(group_id)} is not a group id: use a-z, A-Z, 0-9, '.', '_' and '-'")


class _ListedRow(msgspec.Struct):
    type: str


async def stored_group_ids(store: StateStore, group_type: str) -> list[str]:
    """Return the ids of all stored groups of a type. Raises CorruptLogError."""
    return listed_ids(await store.load(GROUPS_SCOPE), group_type)


@contextmanager
def reading_rows(group_id: str) -> Iterator[None]:
    """Name the group and the table in errors about rows that cannot be loaded.

    Raises CorruptLogError.
    """
    where = f"scope {GROUP_SCOPE}{group_id} in table state of the metadata store"
    advice = "start the version of logbroker that wrote it, or restore a backup (logbroker meta restore)"
    try:
        yield
    except CorruptLogError as error:
        raise CorruptLogError(f"{where}: {error.message}; {advice}") from None
    except (ArithmeticError, InvalidRequestError, LookupError, TypeError, ValueError) as error:
        # A well-formed row has an impossible content.
        raise CorruptLogError(f"{where}: its rows contradict each other ({error!r}); {advice}") from None


def listed_ids(rows: Mapping[bytes, bytes], group_type: str) -> list[str]:
    """Return the ids of all groups of a type, from the rows of `GROUPS_SCOPE`. Raises CorruptLogError."""
    return [group_id for group_id, listed_type in listed_types(rows).items() if listed_type == group_type]


def listed_types(rows: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the type of each group, by its id, from the rows of `GROUPS_SCOPE`. Raises CorruptLogError."""
    types = {}
    for key, value in rows.items():
        try:
            row = msgspec.msgpack.decode(value, type=_ListedRow)
            group_id = key.decode()
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise unreadable_row("state", bytes([len(GROUPS_SCOPE)]) + GROUPS_SCOPE.encode() + key, error) from None
        types[group_id] = row.type
    return types


class GroupStore:
    """The rows of one group."""

    def __init__(self, store: StateStore, group_id: str, group_type: str, *, is_stored: bool) -> None:
        self._store = store
        self._group_id = group_id
        self._type = group_type
        self._scope = f"{GROUP_SCOPE}{group_id}"
        self._is_stored = is_stored
        self.check_room: Callable[..., None] = store.check_room
        """See `StateStore.check_room`."""

    @property
    def numbers(self) -> Numbers:
        """See `StateStore.numbers`."""
        return self._store.numbers

    async def load(self) -> Mapping[bytes, bytes]:
        return await self._store.load(self._scope)

    async def commit(self, events: Sequence[StateEvent]) -> None:
        """Commit events, and return when all are synced. Raises StorageFailedError."""
        if not self._is_stored:
            await self._list(msgspec.msgpack.encode(_ListedRow(self._type)))
            self._is_stored = True
        await self._commit(self._scope, events)

    async def delete(self, events: Sequence[StateEvent]) -> None:
        """Commit the events, which delete all rows of the group, and remove the group from the list."""
        await self._commit(self._scope, events)
        await self._list(None)

    async def _list(self, row: bytes | None) -> None:
        await self._commit(GROUPS_SCOPE, [StateEvent(self._group_id.encode(), row)])

    async def _commit(self, scope: str, events: Sequence[StateEvent]) -> None:
        """Commit events. Retries as long as the store is overloaded, because the change is already decided."""
        while True:
            try:
                return await self._store.commit(scope, events)
            except OverloadedError:
                await asyncio.sleep(RETRY_SECONDS)
