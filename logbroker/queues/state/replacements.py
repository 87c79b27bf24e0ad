"""Replacements: records that an operator set in the place of other records, for one queue group.

    row      key    b"r" partition (4) offset (8)
             value  msgpack array: timestamp in ms (-1: none), key, value, headers as arrays of name and value

A replacement lasts until its record is done. All replacements are in memory, so their number and size are bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

import msgspec

from logbroker.errors import OverloadedError, RecordTooLargeError
from logbroker.queues.model.record_id import OFFSET_MASK, offset_of, partition_of
from logbroker.queues.state.change_set import ChangedRows, ChangeSet
from logbroker.queues.state.rows import REPLACEMENT_ROW, decode, record_id_in, record_row_key
from logbroker.record.codec import LogRecord

MAX_REPLACEMENT_BYTES: Final = 1_048_576
MAX_REPLACEMENTS_BYTES: Final = 67_108_864
"""Bound for all replacements of a queue group together."""
_OWN_BYTES: Final = 256
"""Size that is counted for each replacement in addition to its content."""


class _Row(msgspec.Struct, frozen=True, array_like=True):
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Replacements:
    """All replacements of a queue group."""

    def __init__(self, changes: ChangeSet) -> None:
        self.records: dict[int, LogRecord] = {}
        """Replacements by the ids of the records that they replace. A replacement has the offset of the record.
        Read-only."""
        self._bytes = 0
        self._rows = ChangedRows(changes, partial(record_row_key, REPLACEMENT_ROW), self._row_of)

    def load(self, rows: Mapping[bytes, bytes], ends: Mapping[int, int]) -> None:
        """Load the stored replacements, except those of records beyond the ends of the logs. Raises CorruptLogError."""
        for row, value in rows.items():
            if row.startswith(REPLACEMENT_ROW):
                record_id = record_id_in(row)
                stored = decode(row, value, _Row)
                self._rows.load(record_id)
                if offset_of(record_id) < ends.get(partition_of(record_id), OFFSET_MASK):
                    self._put(
                        record_id,
                        LogRecord(offset_of(record_id), stored.timestamp_ms, stored.key, stored.value, stored.headers),
                    )
                else:
                    self._rows.changed(record_id)

    def get(self, record_id: int) -> LogRecord | None:
        return self.records.get(record_id)

    def check(self, record: LogRecord) -> None:
        """Raise RecordTooLargeError over 1 MiB, or OverloadedError if the queue group has too many replacements."""
        size = _size(record)
        if size > MAX_REPLACEMENT_BYTES + _OWN_BYTES:
            raise RecordTooLargeError(
                f"the replacement has {size - _OWN_BYTES:,} bytes, over {MAX_REPLACEMENT_BYTES:,}: skip the first"
                " record of the lane, and produce the record anew"
            )
        if self._bytes + size > MAX_REPLACEMENTS_BYTES:
            raise OverloadedError(
                f"the queue group has {len(self.records):,} replacements, which take {self._bytes:,} bytes of at most"
                f" {MAX_REPLACEMENTS_BYTES:,}, and this one does not fit: wait until some of their records are done"
            )

    def put(self, record_id: int, record: LogRecord) -> None:
        """Store a replacement that `check` accepted."""
        self._drop(record_id)
        self._put(record_id, record)
        self._rows.changed(record_id)

    def forget_all(self, record_ids: Iterable[int]) -> None:
        """Forget the replacements of records that are done."""
        if self.records:
            for record_id in record_ids:
                self._drop(record_id)

    def _row_of(self, record_id: int) -> _Row | None:
        record = self.records.get(record_id)
        return None if record is None else _Row(record.timestamp_ms, record.key, record.value, tuple(record.headers))

    def _put(self, record_id: int, record: LogRecord) -> None:
        self.records[record_id] = record
        self._bytes += _size(record)

    def _drop(self, record_id: int) -> None:
        record = self.records.pop(record_id, None)
        if record is not None:
            self._bytes -= _size(record)
            self._rows.changed(record_id)


def _size(record: LogRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return _OWN_BYTES + len(record.key or b"") + len(record.value or b"") + headers
