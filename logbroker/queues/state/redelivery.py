"""Keeps which records may have been handed out before, and therefore get the redelivered mark.

In this group epoch, the records that came back are known exactly. After a crash it is not known which records the
workers had, so every record in the log gets the mark. A clean stop stores, for each partition, the offset below which
records may have been handed out. So the mark is sometimes set needlessly, but never missing. A rebuild of the index
within a group epoch keeps these facts: records that were in flight or came back are noted one by one, and so are
records that were done before a rewind. In a rewound partition, all records below the old floor get the mark.

    row      key    b"h"
             value  msgpack array: group epoch, map of partition -> offset

The row is valid only if its epoch is the epoch in the stored header of the group. If the header has a later epoch, the
broker that wrote the header may have crashed. No record is handed out before the header with the new epoch is
committed, so a start that fails before that invalidates nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from logbroker.engine import StateEvent
from logbroker.queues.model.record_id import OFFSET_MASK, PARTITION_SHIFT, offset_of, partition_of, record_id_of
from logbroker.queues.state.completion import DoneRecords, RecordIds
from logbroker.queues.state.failures import Failures
from logbroker.queues.state.rows import HANDED_ROW, PAGE_SHIFT, decode, upsert


class Redelivery:
    """The records to mark as redelivered, besides those that failed."""

    def __init__(self) -> None:
        self.returned: set[int] = set()
        """Records that were handed out and given back."""
        self.marks: dict[int, int] = {}
        """Record ids by partition. Every record of the partition below this id may have been handed out."""
        self.noted = RecordIds()
        """Other records that were handed out. Read-only for other classes."""

    def load(self, rows: Mapping[bytes, bytes], ends: Mapping[int, int], group_epoch: int, done: DoneRecords) -> bool:
        """Load the row of a clean stop. `group_epoch` is the epoch in the stored header; without a row of this epoch,
        the stop was not clean, and every record in the log may have been handed out. Return whether it was clean.

        Raises CorruptLogError.
        """
        stopped, known = (
            decode(HANDED_ROW, rows[HANDED_ROW], tuple[int, dict[int, int]]) if HANDED_ROW in rows else (0, {})
        )
        if stopped != group_epoch:
            # If a log cannot be read now, it is unknown how far it was handed out.
            known = {**dict.fromkeys(done.partitions(), OFFSET_MASK), **ends}
        for partition, end in known.items():
            self.marks[partition] = record_id_of(partition, min(end, ends.get(partition, end)))
        return stopped == group_epoch

    def flags(self, record_ids: Sequence[int], failures: Failures) -> list[bool]:
        """Return whether each record may have been handed out before; empty: certainly none."""
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
        """Cut consecutive records into pieces: yield the first id, the id after the last, and whether the piece may
        have been handed out. Failures are not considered."""
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
        """Note that each of these records, and all records before it in its partition, may have been handed out."""
        for record_id in record_ids:
            self.mark_below(record_id + 1)

    def mark_returned(self) -> None:
        """Call `mark` for the records that came back, and forget the single records."""
        self.mark(self.returned)
        self.returned.clear()
        self.mark(self.noted.last_of_pages())
        self.noted.pages.clear()

    def note_returned(self) -> None:
        """Move the records that came back to `noted`, before they are admitted again. They may then be in runs, which
        do not report each record that is done, so `returned` would keep them for ever. `drop_a_mark` drops whole pages
        of `noted`."""
        self.noted.add(self.returned)
        self.returned.clear()

    def note(self, record_ids: Iterable[int]) -> None:
        """Note that these records were handed out."""
        self.noted.add(record_ids)

    def note_pages(self, pages: Mapping[int, bytes | bytearray]) -> None:
        """Note that the records of these bitmaps, by page, were handed out."""
        for page_id, page in pages.items():
            start = page_id << PAGE_SHIFT
            # Most pages have no records above the mark of their partition.
            if start + 8 * len(page.rstrip(b"\0")) > (self.marks.get(partition_of(start), 0) | 7):
                self.noted.add_page(page_id, page)

    def mark_below(self, record_id: int) -> None:
        """Note that all records below this one, in its partition, may have been handed out."""
        partition = partition_of(record_id)
        self.marks[partition] = max(self.marks.get(partition, 0), record_id)

    def drop_a_mark(self, done: DoneRecords) -> None:
        """Drop the next mark if everything below it is done, and the next page if all its records are done. Otherwise
        keep them for a later call. Each call examines one mark and one page, because there may be many."""
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
        """Forget records that are done."""
        if self.returned:
            self.returned.difference_update(record_ids)

    def stop_row(self, group_epoch: int) -> StateEvent:
        """Return the row of a clean stop. `mark` must have been called for everything in flight or given back."""
        ends = {partition: offset_of(record_id) for partition, record_id in sorted(self.marks.items())}
        return upsert(HANDED_ROW, (group_epoch, ends))
