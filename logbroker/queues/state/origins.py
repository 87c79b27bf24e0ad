"""First origins of records that a redrive sent back. If such a record fails again, its dead letter names its first
origin.

    row      key    b"b" partition (4) offset (8)
             value  msgpack array, the fields of `dead_letter.FirstOrigin`

A row lasts until its record is done. The origin is kept here and not in a header of the record, because any program may
write such headers, and because records go back to their topic unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from logbroker.queues.model.record_id import OFFSET_MASK, offset_of, partition_of
from logbroker.queues.state.change_set import ChangedRows, ChangeSet
from logbroker.queues.state.rows import ORIGIN_ROW, decode, record_id_in, record_row_key
from logbroker.record.dead_letter import FirstOrigin


class Origins:
    """The origins of one queue group."""

    def __init__(self, changes: ChangeSet) -> None:
        self.by_record_id: dict[int, FirstOrigin] = {}
        """Origins by the record ids that the records have now. Read-only for other classes."""
        self._rows = ChangedRows(changes, partial(record_row_key, ORIGIN_ROW), self.by_record_id.get)

    def __len__(self) -> int:
        return len(self.by_record_id)

    def load(self, rows: Mapping[bytes, bytes], ends: Mapping[int, int]) -> None:
        """Load the stored origins, except those of records beyond the ends of the logs. Raises CorruptLogError."""
        for row, value in rows.items():
            if row.startswith(ORIGIN_ROW):
                record_id = record_id_in(row)
                self._rows.load(record_id)
                if offset_of(record_id) < ends.get(partition_of(record_id), OFFSET_MASK):
                    self.by_record_id[record_id] = decode(row, value, FirstOrigin)
                else:
                    self._rows.changed(record_id)

    def get(self, record_id: int) -> FirstOrigin | None:
        return self.by_record_id.get(record_id)

    def put(self, record_id: int, origin: FirstOrigin) -> None:
        self.by_record_id[record_id] = origin
        self._rows.changed(record_id)

    def record_ids(self) -> list[int]:
        return list(self.by_record_id)

    def forget_all(self, record_ids: Iterable[int]) -> None:
        """Forget the origins of records that are done."""
        if self.by_record_id:
            for record_id in record_ids:
                if self.by_record_id.pop(record_id, None) is not None:
                    self._rows.changed(record_id)
