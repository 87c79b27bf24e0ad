"""The records of the state topic, and what they add up to.

Each partition holds the state of many scopes (groups and queue groups). A record is one row: its key is the length of
the scope's name (1 byte), the name and the row's key; its value is the row's value, or null for a row that is gone. One
batch is one commit, so it is stored whole or not at all. The topic is compacted: the last record of each key stays.

A gateway that takes over a partition first writes a *claim*, a record under a key of its own. Batches after a claim
that are not from the claimant are void: their writer had lost the partition and did not know it. The cluster refuses
them already by the producer epoch (INVALID_PRODUCER_EPOCH), unless the epochs of the producer id have run out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logbroker.engine import StateEvent
from logbroker.errors import CorruptLogError, InvalidRequestError
from logbroker.record.codec import NewRecord, decode_batch
from logbroker.record.header import BatchHeader

MAX_SCOPE_BYTES: Final = 255
MAX_KEY_BYTES: Final = 255
CLAIM_KEY: Final = b"\x00claim"
CONFIRM_KEY: Final = b"\x00confirm"
"""The key under which an owner writes to hear whether it still is the owner."""
HEARTBEAT_KEY: Final = b"\x00gateway "
"""The beginning of the keys of heartbeats; the id of the gateway follows. No row has any of these keys: a scope has a
name."""


def scope_prefix(scope: str) -> bytes:
    """Return what the keys of a scope's records begin with. Raises InvalidRequestError."""
    name = scope.encode()
    if not 1 <= len(name) <= MAX_SCOPE_BYTES:
        raise InvalidRequestError(f"a state scope has 1 to {MAX_SCOPE_BYTES} bytes, not {len(name)}")
    return bytes([len(name)]) + name


def records_of(scope: str, events: Sequence[StateEvent]) -> list[NewRecord]:
    """Return the records of one commit. Raises InvalidRequestError."""
    prefix = scope_prefix(scope)
    for event in events:
        if not 1 <= len(event.key) <= MAX_KEY_BYTES:
            raise InvalidRequestError(f"a state key has 1 to {MAX_KEY_BYTES} bytes, not {len(event.key)}")
    return [NewRecord(key=prefix + event.key, value=event.value) for event in events]


class StateRows:
    """The rows of one partition of the state topic, as the batches so far say."""

    def __init__(self, only: str = "") -> None:
        """If `only` is given, the rows of all other scopes are left out."""
        self._only = scope_prefix(only) if only else b""
        self.changed: set[bytes] = set()
        """With `only`: the keys of rows that have changed. The caller empties it."""
        self._scopes: dict[bytes, dict[bytes, bytes]] = {}
        """Rows by the prefix of their scope, then by their key."""
        self._claimant: tuple[int, int] | None = None
        """Producer id and epoch of the last claim; None: no claim was seen yet, because it was compacted away."""

    def of(self, scope: str) -> dict[bytes, bytes]:
        """Return a copy of the rows of a scope, by key."""
        return dict(self._scopes.get(scope_prefix(scope), ()))

    def scopes(self) -> list[str]:
        """Return the scopes that have rows, sorted."""
        return sorted(prefix[1:].decode() for prefix in self._scopes)

    def replay(self, header: BatchHeader, batch: bytes) -> None:
        """Take in the next batch of the log. Raises CorruptLogError."""
        if header.is_control or header.producer_id < 0:  # Heartbeats have no producer id.
            return
        records = list(decode_batch(batch))
        writer = header.producer_id, header.producer_epoch
        if records and records[0].key == CLAIM_KEY:
            self._claimant = writer
        if self._claimant not in (None, writer):
            return
        for record in records:
            key = record.key
            if key in (CLAIM_KEY, CONFIRM_KEY):
                continue
            if not key or len(key) < 2 + key[0]:
                raise CorruptLogError(f"the record at offset {record.offset} of the state topic has no key of a row")
            self._put(key, record.value)

    def commit(self, records: Sequence[NewRecord]) -> None:
        """Take in the records of commits of one's own."""
        for record in records:
            if record.key and record.key != CONFIRM_KEY:
                self._put(record.key, record.value)

    def _put(self, record_key: bytes, value: bytes | None) -> None:
        """Set a row, or remove it if `value` is None."""
        length = 1 + record_key[0]
        prefix, key = record_key[:length], record_key[length:]
        if self._only:
            if prefix != self._only:
                return
            self.changed.add(key)
        if value is not None:
            self._scopes.setdefault(prefix, {})[key] = value
        elif (rows := self._scopes.get(prefix)) is not None:
            rows.pop(key, None)
            if not rows:
                del self._scopes[prefix]
