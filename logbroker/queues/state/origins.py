"""First origins of records that a redrive brought back: should they fail again, their letters tell of these.

    row      key    b"b" partition (4) offset (8)
             value  msgpack array, the fields of `dead_letter.FirstOrigin`

A row lasts until its record is done. It is kept here and not in a header of the record, since anybody may write to the
topic, and records go back to it as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from logbroker.queues.model.record_id import OFFSET_MASK, offset_of, partition_of
from logbroker.queues.state.change_set import ChangedRows, ChangeSet
from logbroker.queues.state.rows import ORIGIN_ROW, decode, place_in, place_key
from logbroker.record.dead_letter import FirstOrigin


class Origins:
    """Those of one queue group."""

    def __init__(self, changes: ChangeSet) -> None:
        self.by_place: dict[int, FirstOrigin] = {}
        """Only to be read by others."""
        """By the places of their records now."""
        self._rows = ChangedRows(changes, partial(place_key, ORIGIN_ROW), self.by_place.get)

    def __len__(self) -> int:
        return len(self.by_place)

    def load(self, rows: Mapping[bytes, bytes], ends: Mapping[int, int]) -> None:
        """Take over what is stored, but for records that the log has not any more. Raises CorruptLogError."""
        for row, value in rows.items():
            if row.startswith(ORIGIN_ROW):
                place = place_in(row)
                self._rows.load(place)
                if offset_of(place) < ends.get(partition_of(place), OFFSET_MASK):
                    self.by_place[place] = decode(row, value, FirstOrigin)
                else:
                    self._rows.changed(place)

    def get(self, place: int) -> FirstOrigin | None:
        return self.by_place.get(place)

    def put(self, place: int, origin: FirstOrigin) -> None:
        self.by_place[place] = origin
        self._rows.changed(place)

    def places(self) -> list[int]:
        return list(self.by_place)

    def forget_all(self, places: Iterable[int]) -> None:
        """Records are done."""
        if self.by_place:
            for place in places:
                if self.by_place.pop(place, None) is not None:
                    self._rows.changed(place)
