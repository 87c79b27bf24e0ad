"""The state of groups and queue groups, stored in the metadata store of this broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from logbroker.broker.local_engine.disk_space import DiskSpace
from logbroker.broker.local_engine.helpers import Helpers
from logbroker.broker.local_engine.numbers import ReceiptNumbers
from logbroker.engine import DiskUse, StateEvent
from logbroker.errors import InvalidRequestError
from logbroker.storage.metadata.metadata_store import MetadataStore

STATE = "state"
MAX_SCOPE_BYTES = 255
MAX_KEY_BYTES = 255
_ROW_BYTES = 64
"""Bytes counted for a row besides its key and value. The sum is doubled, because pages are half full after a split, a
transaction writes each changed page to a new place, and a value of more than half a page takes whole pages."""


def state_key(scope: str, key: bytes) -> bytes:
    """Return the key of a row in the table `state`."""
    return _prefix(scope) + key


class LocalStateStore:
    """The `logbroker.engine.StateStore` of this engine.

    A row's key is the scope's length (1 byte), the scope and the event's key, so that no scope is a prefix of another.
    """

    def __init__(self, store: MetadataStore, helpers: Helpers, disk: DiskSpace, numbers: ReceiptNumbers) -> None:
        self._store = store
        self._helpers = helpers
        self._disk = disk
        self.numbers = numbers

    def check_room(self, use: DiskUse = DiskUse.USES_RESERVE) -> None:
        self._disk.check(0, use)
        self._store.check_full()

    async def load(self, scope: str) -> dict[bytes, bytes]:
        prefix = _prefix(scope)
        rows = await self._helpers.change(lambda: self._store.scan(STATE, prefix))
        return {key[len(prefix) :]: value for key, value in rows}

    async def commit(self, scope: str, events: Sequence[StateEvent]) -> None:
        prefix = _prefix(scope)
        for event in events:
            if not 1 <= len(event.key) <= MAX_KEY_BYTES:
                raise InvalidRequestError(f"a state key has 1 to {MAX_KEY_BYTES} bytes, not {len(event.key)}")
        writes = [(STATE, prefix + event.key, event.value) for event in events]
        size_bytes = sum(2 * (len(key) + len(value) + _ROW_BYTES) for _, key, value in writes if value is not None)
        with self._disk.taken(size_bytes):
            await asyncio.wrap_future(self._store.submit(writes))


def _prefix(scope: str) -> bytes:
    name = scope.encode()
    if not 1 <= len(name) <= MAX_SCOPE_BYTES:
        raise InvalidRequestError(f"a state scope has 1 to {MAX_SCOPE_BYTES} bytes, not {len(name)}")
    return bytes([len(name)]) + name
