"""Which records may have been handed out before.

Known for certain are those that came back in this group epoch. After a crash nobody knows what the workers had, so all
that lay in the log counts; a clean stop writes down, per partition, the end of what may have been handed out. So the
mark is set needlessly at times, and never missing. When the index is made anew in one group epoch, it is known as well
as before: what was in flight or came back is kept record by record, and so is what was done, where a rewind undoes
that; only what lies below the floor of a partition that is rewound counts as a whole.

    row      key    b"h"
             value  msgpack array: group epoch, map of partition -> offset

The row counts only as long as its epoch is that of the stored header: an epoch that began after it may have ended in
any way. Whoever writes a header hands out nothing before it is committed, so a start that failed before that costs
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from logbroker.engine import StateEvent
from logbroker.queues.model.record_id import OFFSET_MASK, PARTITION_SHIFT, offset_of, partition_of, record_id_of
from logbroker.queues.state.completion import DoneRecords, RecordIds
from logbroker.queues.state.failures import Failures
from logbroker.queues.state.rows import HANDED_ROW, PAGE_SHIFT, decode, upsert


class Redelivery:
    """What to mark as redelivered, besides what failed."""

    def __init__(self) -> None:
        self.returned: set[int] = set()
        """Records that were handed out and given back."""
        self.marks: dict[int, int] = {}
        """By partition, the record id below which everything may have been handed out."""
        self.noted = RecordIds()
        """Records that were handed out, beside those. Only to be read by others."""

    def load(self, rows: Mapping[bytes, bytes], ends: Mapping[int, int], group_epoch: int, done: DoneRecords) -> bool:
        """Take over what a clean stop of the stored epoch wrote, or expect the worst; return whether it was clean.

        Raises CorruptLogError.
        """
        stopped, known = (
            decode(HANDED_ROW, rows[HANDED_ROW], tuple[int, dict[int, int]]) if HANDED_ROW in rows else (0, {})
        )
        if stopped != group_epoch:
            # Of a log that cannot be looked at now, nobody knows how far it was handed out.
            known = {**dict.fromkeys(done.partitions(), OFFSET_MASK), **ends}
        for partition, end in known.items():
            self.marks[partition] = record_id_of(partition, min(end, ends.get(partition, end)))
        return stopped == group_epoch

    def flags(self, record_ids: Sequence[int], failures: Failures) -> list[bool]:
        """Whether each record may have been handed out before; empty: certainly none."""
        marks, returned, noted = self.marks, self.returned, self.noted
        if not (failures or returned or marks or noted.pages):
            return []
        return [
            record_id in returned
            or record_id < marks.get(record_id >> PARTITION_SHIFT, 0)
            or failures.count(record_id) > 0
            or record_id in noted
            for record_id in record_ids
        ]

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """Cut consecutive records where that changes: yield from, to before, and whether they may have been handed out.
        Of what has failed nothing is said."""
        middle = min(max(self.marks.get(partition_of(start), start), start), end)
        if start < middle:
            yield start, middle, True
        if middle == end:
            return
        handed = self.returned.intersection(range(middle, end)) if self.returned else set()
        if self.noted.pages:
            handed.update(record_id for record_id in range(middle, end) if record_id in self.noted)
        begun = middle
        for record_id in sorted(handed):
            if begun < record_id:
                yield begun, record_id, False
            yield record_id, record_id + 1, True
            begun = record_id + 1
        if begun < end:
            yield begun, end, False

    def mark(self, record_ids: Iterable[int]) -> None:
        """Whatever lies up to these records may have been handed out."""
        for record_id in record_ids:
            self.mark_below(record_id + 1)

    def mark_returned(self) -> None:
        """All that came back may have been handed out; it need not be known one by one any more."""
        self.mark(self.returned)
        self.returned.clear()
        self.mark(self.noted.last_of_pages())
        self.noted.pages.clear()

    def note_returned(self) -> None:
        """What came back is admitted anew: it may be in runs then, which do not tell of each record that is done."""
        self.noted.add(self.returned)
        self.returned.clear()

    def note(self, record_ids: Iterable[int]) -> None:
        """Records were handed out."""
        self.noted.add(record_ids)

    def note_pages(self, pages: Mapping[int, bytes | bytearray]) -> None:
        """The records of bitmaps, by page, were handed out."""
        for page_id, page in pages.items():
            start = page_id << PAGE_SHIFT
            # Most have nothing above what is marked as a whole.
            if start + 8 * len(page.rstrip(b"\0")) > (self.marks.get(partition_of(start), 0) | 7):
                self.noted.add_page(page_id, page)

    def mark_below(self, record_id: int) -> None:
        """Whatever lies below a record, in its partition, may have been handed out."""
        partition = partition_of(record_id)
        self.marks[partition] = max(self.marks.get(partition, 0), record_id)

    def drop_a_mark(self, done: DoneRecords) -> None:
        """Drop the next mark and page below which all is done, or see to it later: one at a time, as they are many."""
        for partition in self.marks:
            mark = self.marks.pop(partition)
            if not done.is_open(partition) or done.floor(partition) < offset_of(mark):
                self.marks[partition] = mark
            break
        for page_id in self.noted.pages:
            page = self.noted.pages.pop(page_id)
            end = page_id + 1 << PAGE_SHIFT
            if not done.is_open(partition_of(end - 1)) or done.floor(partition_of(end - 1)) <= offset_of(end - 1):
                self.noted.pages[page_id] = page
            break

    def forget_all(self, record_ids: Iterable[int]) -> None:
        """Records are done."""
        if self.returned:
            self.returned.difference_update(record_ids)

    def stop_row(self, group_epoch: int) -> StateEvent:
        """The row that a clean stop writes, after `mark` was told all that is in flight or came back."""
        ends = {partition: offset_of(record_id) for partition, record_id in sorted(self.marks.items())}
        return upsert(HANDED_ROW, (group_epoch, ends))
