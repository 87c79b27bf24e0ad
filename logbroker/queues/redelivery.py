"""Which records may have been handed out before.

Known for certain are those that came back in this life. After a crash nobody knows what the workers had, so all that
lay in the log counts; a clean stop writes down, per partition, the end of what may have been handed out. So the mark is
set needlessly at times, and never missing.

    row      key    b"h"
             value  msgpack array: life, map of partition -> offset

The row counts only as long as its life is that of the stored header: a life that began after it may have ended in any
way. Whoever writes a header hands out nothing before it is committed, so a start that failed before that costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from logbroker.engine import StateEvent
from logbroker.queues.done import DoneRecords
from logbroker.queues.places import OFFSET_MASK, PARTITION_SHIFT, offset_of, partition_of, place_of
from logbroker.queues.retry import Failures
from logbroker.queues.rows import HANDED_ROW, decode, upsert


class Redelivery:
    """What to mark as redelivered, besides what failed."""

    def __init__(self) -> None:
        self.returned: set[int] = set()
        """Records that were handed out and given back."""
        self.marks: dict[int, int] = {}
        """By partition, the place below which everything may have been handed out."""

    def load(self, rows: Mapping[bytes, bytes], ends: Mapping[int, int], life: int, done: DoneRecords) -> bool:
        """Take over what a clean stop of the stored life wrote, or expect the worst; return whether it was clean.

        Raises CorruptLogError.
        """
        stopped, known = (
            decode(HANDED_ROW, rows[HANDED_ROW], tuple[int, dict[int, int]]) if HANDED_ROW in rows else (0, {})
        )
        if stopped != life:
            # Of a log that cannot be looked at now, nobody knows how far it was handed out.
            known = {**dict.fromkeys(done.partitions(), OFFSET_MASK), **ends}
        for partition, end in known.items():
            self.marks[partition] = place_of(partition, min(end, ends.get(partition, end)))
        return stopped == life

    def flags(self, places: Sequence[int], failures: Failures) -> list[bool]:
        """Whether each record may have been handed out before; empty: certainly none."""
        marks, returned = self.marks, self.returned
        if not (failures or returned or marks):
            return []
        return [
            place in returned or place < marks.get(place >> PARTITION_SHIFT, 0) or failures.count(place) > 0
            for place in places
        ]

    def mark(self, places: Iterable[int]) -> None:
        """Whatever lies up to these records may have been handed out."""
        for place in places:
            self.mark_below(place + 1)

    def mark_returned(self) -> None:
        """All that came back may have been handed out; it need not be known one by one any more."""
        self.mark(self.returned)
        self.returned.clear()

    def mark_below(self, place: int) -> None:
        """Whatever lies below a place, in its partition, may have been handed out."""
        partition = partition_of(place)
        self.marks[partition] = max(self.marks.get(partition, 0), place)

    def drop_a_mark(self, done: DoneRecords) -> None:
        """Drop the next mark below which all is done, or see to it later: one at a time, as partitions may be many."""
        for partition in self.marks:
            mark = self.marks.pop(partition)
            if not done.is_open(partition) or done.floor(partition) < offset_of(mark):
                self.marks[partition] = mark
            break

    def forget_all(self, places: Iterable[int]) -> None:
        """Records are done."""
        if self.returned:
            self.returned.difference_update(places)

    def stop_row(self, life: int) -> StateEvent:
        """The row that a clean stop writes, after `mark` was told all that is in flight or came back."""
        ends = {partition: offset_of(place) for partition, place in sorted(self.marks.items())}
        return upsert(HANDED_ROW, (life, ends))
