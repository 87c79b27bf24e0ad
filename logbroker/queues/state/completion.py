"""Completion: the records that are done in each partition, as a floor and, above it, bitmap pages of 32,768 records.

All records below a partition's floor are done. A page above the floor has one bit per offset. The bits of offsets
without a record (compaction, control batches) are set, too, but do not cause a write of their page: another scan of the
log finds these offsets again.

Only changed pages are stored, and a floor only when it leaves its page, because the bits show where it is within the
page. So acknowledging any number of records of one page costs one row of at most 4 KiB. A page ends about at its last
done record, so it is short if partitions have few records. A page above the floor in which all records are done takes
one byte on disk and one set member in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from logbroker.engine import StateEvent
from logbroker.errors import CorruptLogError
from logbroker.pacing import Steps
from logbroker.queues.model.record_id import OFFSET_MASK, partition_of, record_id_of
from logbroker.queues.state.change_set import ChangeSet
from logbroker.queues.state.rows import (
    FLOOR_ROW,
    PAGE_ROW,
    PAGE_SHIFT,
    PAGES_SHIFT,
    decode,
    delete,
    page_in,
    page_key,
    partition_in,
    partition_key,
    upsert,
)

PAGE_BYTES: Final = 4096
PAGE_RECORDS: Final = PAGE_BYTES * 8

_COUNTED_AT_ONCE: Final = 64 * PAGE_RECORDS
_PAGES_PER_STEP: Final = 64
"""Number of pages that are copied to a list within the time of a step."""
_COUNTING_STEPS: Final = 4
"""Cost of counting the bits of a page, in steps of a `Pace`."""
_STEP_BYTES: Final = 64
"""Number of bytes by which a page grows in memory."""
_FULL: Final = b"\xff" * PAGE_BYTES
_FULL_ROW: Final = b"\0"
_IS_UNDONE: Final = bytes.maketrans(b"01", b"\1\0")


class RecordIds:
    """A set of record ids, as a bitmap for each page that contains any of them."""

    def __init__(self) -> None:
        self.pages: dict[int, bytearray] = {}

    def add(self, record_ids: Iterable[int]) -> None:
        pages = self.pages
        for record_id in record_ids:
            page = pages.get(record_id >> PAGE_SHIFT)
            if page is None:
                page = pages[record_id >> PAGE_SHIFT] = bytearray()
            index = record_id >> 3 & 4095
            if index >= len(page):
                _lengthen(page, index)
            page[index] |= 1 << (record_id & 7)

    def add_page(self, page_id: int, page: bytes | bytearray) -> None:
        """Add the records of a bitmap. The caller must not change the bitmap afterwards."""
        known = self.pages.get(page_id)
        if known is None:
            self.pages[page_id] = page if isinstance(page, bytearray) else bytearray(page)
            return
        bits = int.from_bytes(known, "little") | int.from_bytes(page, "little")
        self.pages[page_id] = bytearray(bits.to_bytes(max(len(known), len(page)), "little"))

    def __contains__(self, record_id: int) -> bool:
        page, index = self.pages.get(record_id >> PAGE_SHIFT), record_id >> 3 & 4095
        return page is not None and index < len(page) and bool(page[index] & 1 << (record_id & 7))

    def last_of_pages(self) -> Iterator[int]:
        """Yield the last record of each page."""
        for page_id, page in self.pages.items():
            if bits := int.from_bytes(page, "little"):
                yield (page_id << PAGE_SHIFT) + bits.bit_length() - 1


class DoneRecords:
    """The records that are done, by record id. Marking a record twice is harmless."""

    def __init__(self, changes: ChangeSet) -> None:
        self._changes = changes
        self._pages: dict[int, bytearray] = {}
        self._full: set[int] = set()
        self._floors: dict[int, int] = {}
        """Record ids of the floors, by partition. The bits below a floor in its own page are set."""
        self._dirty: set[int] = set()
        self._moved: dict[int, None] = {}
        """Partitions whose floor is to be written."""
        self._stale: dict[int, None] = {}
        """Partitions whose floor may have moved without a dirty page."""
        self._stored: set[int] = set()
        """Pages that have a row."""

    def load(self, rows: Mapping[bytes, bytes], ends: Mapping[int, int]) -> None:
        """Load the stored rows. Records at or above the end of their partition's log are not done.

        Raises CorruptLogError.
        """
        self._changes.sources[self] = None
        for key, value in rows.items():
            if key.startswith(FLOOR_ROW):
                partition = partition_in(key)
                offset = decode(key, value, int)
                self._floors[partition] = record_id_of(partition, min(offset, ends.get(partition, offset)))
                if offset != self._floors[partition] & OFFSET_MASK:
                    self._moved[partition] = None
            elif key.startswith(PAGE_ROW):
                self._load_page(key, value)
        for page_id in [*self._pages, *self._full]:
            partition = page_id >> PAGES_SHIFT
            self._clamp(page_id, record_id_of(partition, ends.get(partition, OFFSET_MASK)))
        for partition, floor in self._floors.items():
            self._set_range(floor >> PAGE_SHIFT << PAGE_SHIFT, floor)
            self._stale[partition] = None

    def _load_page(self, key: bytes, value: bytes) -> None:
        page_id = page_in(key)
        if not 0 < len(value) <= PAGE_BYTES:
            raise CorruptLogError(f"the queue row under key {key.hex()} is no page of done records")
        self._stored.add(page_id)
        if value == _FULL_ROW:
            self._full.add(page_id)
        else:
            self._pages[page_id] = bytearray(value)

    def _clamp(self, page_id: int, end: int) -> None:
        start = page_id << PAGE_SHIFT
        if end >= start + PAGE_RECORDS:
            return
        bits = (1 << max(0, end - start)) - 1
        page = _FULL if page_id in self._full else self._pages[page_id]
        kept = (int.from_bytes(page, "little") & bits).to_bytes(PAGE_BYTES, "little").rstrip(b"\0")
        if kept != page:
            self._full.discard(page_id)
            self._pages[page_id] = bytearray(kept)
            self._dirty.add(page_id)

    def open(self, partition: int, start_offset: int) -> None:
        """Begin to keep a partition, in which all records below `start_offset` count as done. This is stored with the
        next rows."""
        self._changes.sources[self] = None
        floor = record_id_of(partition, start_offset)
        self._floors[partition] = floor
        self._set_range(floor >> PAGE_SHIFT << PAGE_SHIFT, floor)
        self._moved[partition] = None

    def rewind(self, targets: Mapping[int, int], kept: Mapping[int, RecordIds]) -> dict[int, bytes | bytearray]:
        """In some partitions, count all records below an offset as done, and all records from the offset on as not
        done. Records in `kept` that are not done stay undone. Return the bitmaps, by page, of the records done above
        the old floors, absent offsets included. Raises KeyError for a partition that is not open."""
        for partition in targets:
            if partition not in self._floors:
                raise KeyError(partition)
        self._changes.sources[self] = None
        undone = {partition: self._undone_of(kept[partition]) for partition in targets if partition in kept}
        # In one pass, because there may be many partitions and pages.
        were: dict[int, bytes | bytearray] = {}
        for page_id in [page_id for page_id in (*self._pages, *self._full) if page_id >> PAGES_SHIFT in targets]:
            were[page_id] = self._pages.pop(page_id, _FULL)
            self._full.discard(page_id)
            self._dirty.add(page_id)
        for partition, offset in targets.items():
            self._rewind(partition, record_id_of(partition, offset), undone.get(partition, {}))
        return were

    def _rewind(self, partition: int, end: int, undone: Mapping[int, int]) -> None:
        """In a partition without pages, count everything below `end` as done except the `undone` records."""
        floor = end
        if undone:
            first = min(undone)
            floor = (first << PAGE_SHIFT) + _trailing_zeros(undone[first])
        self._floors[partition] = floor
        self._dirty.update(self._set_range(floor >> PAGE_SHIFT << PAGE_SHIFT, end))
        for page_id, bits in undone.items():
            self._full.discard(page_id)
            page = self._pages.get(page_id, _FULL)
            left = int.from_bytes(page, "little") & ~bits
            self._pages[page_id] = bytearray(left.to_bytes(len(page), "little"))
            self._dirty.add(page_id)
        self._moved[partition] = None

    def count_undone(self, record_ids: RecordIds) -> int:
        """Return how many of the records are not done."""
        return sum(bits.bit_count() for bits in self._undone_of(record_ids).values())

    def _undone_of(self, record_ids: RecordIds) -> dict[int, int]:
        """Return the bits of the records that are not done, by page. Pages without such records are left out."""
        undone: dict[int, int] = {}
        for page_id, wanted in record_ids.pages.items():
            floor = self._floors.get(page_id >> PAGES_SHIFT, 0)
            if page_id in self._full or page_id < floor >> PAGE_SHIFT:
                continue
            bits = int.from_bytes(wanted, "little") & ~int.from_bytes(self._pages.get(page_id, b""), "little")
            if bits:
                undone[page_id] = bits
        return undone

    def __contains__(self, record_id: int) -> bool:
        page_id = record_id >> PAGE_SHIFT
        floor = self._floors.get(record_id >> 48)
        if page_id in self._full or (floor is not None and record_id < floor):
            return True
        page = self._pages.get(page_id)
        index = record_id >> 3 & 4095
        return page is not None and index < len(page) and bool(page[index] & 1 << (record_id & 7))

    def is_open(self, partition: int) -> bool:
        return partition in self._floors

    def partitions(self) -> Iterable[int]:
        return self._floors.keys()

    def floor(self, partition: int) -> int:
        """Return the first offset that is not done. Offsets without a record count as done once they are scanned. The
        floor may be ahead of the rows until the next `take_rows`."""
        self._advance(partition)
        return self._floors[partition] & OFFSET_MASK

    def count(self) -> Steps[dict[int, int]]:
        """Count the offsets of each partition that are done, absent offsets included. The cost grows with the pages,
        not with the offsets."""
        # A floor that moves during the count passes only pages that are completely done. The bits below a floor in its
        # own page are set.
        counts = {partition: floor & OFFSET_MASK & ~(PAGE_RECORDS - 1) for partition, floor in self._floors.items()}
        first_pages = {partition: floor >> PAGE_SHIFT for partition, floor in self._floors.items()}
        pages = [*self._pages, *self._full]
        yield (len(counts) + len(pages)) // _PAGES_PER_STEP
        for page_id in pages:
            partition = page_id >> PAGES_SHIFT
            if page_id >= first_pages.get(partition, page_id + 1):
                page = self._pages.get(page_id)
                if page is not None:
                    counts[partition] += int.from_bytes(page, "little").bit_count()
                elif page_id in self._full or page_id < self._floors[partition] >> PAGE_SHIFT:
                    counts[partition] += PAGE_RECORDS
                yield 1 if page is None else _COUNTING_STEPS
        return counts

    def any_in(self, start: int, end: int) -> bool:
        """Return whether a record of the range may be done. False means that certainly no record of the range is
        done."""
        pages, full = self._pages, self._full
        return start < self._floors.get(partition_of(start), start) or any(
            page_id in pages or page_id in full for page_id in range(start >> PAGE_SHIFT, (end - 1 >> PAGE_SHIFT) + 1)
        )

    def count_not_done(self, start: int, end: int) -> int:
        """Return how many record ids of a range are not done."""
        record_id = max(start, self._floors.get(partition_of(start), start))
        count = 0
        while record_id < end:
            page_id = record_id >> PAGE_SHIFT
            stop = min(end, page_id + 1 << PAGE_SHIFT)
            if page_id not in self._full:
                base = page_id << PAGE_SHIFT
                bits = int.from_bytes(self._pages.get(page_id, b""), "little") >> record_id - base
                count += stop - record_id - (bits & (1 << stop - record_id) - 1).bit_count()
            record_id = stop
        return count

    def count_below(self, partition: int, offset: int) -> Steps[int]:
        """Count the records of a partition below an offset that are not done. A record that becomes done meanwhile may
        be counted or not."""
        base, count = record_id_of(partition, 0), 0
        for start in range(self.floor(partition), offset, _COUNTED_AT_ONCE):
            count += self.count_not_done(base | start, base | min(offset, start + _COUNTED_AT_ONCE))
            yield _COUNTED_AT_ONCE // PAGE_RECORDS
        return count

    def undone(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges within `start` to `end` that are not done."""
        begun = -1
        # The scan may be below the floor, if the record that held the floor back became done after the scan began.
        record_id = max(start, self._floors.get(partition_of(start), start))
        while record_id < end:
            page_id = record_id >> PAGE_SHIFT
            stop = min(end, page_id + 1 << PAGE_SHIFT)
            page = self._pages.get(page_id)
            if page is None and page_id not in self._full:
                begun = record_id if begun < 0 else begun
                record_id = stop
                continue
            if page is None:
                if begun >= 0:
                    yield begun, record_id
                    begun = -1
                record_id = stop
                continue
            bits = int.from_bytes(page, "little") >> (record_id & PAGE_RECORDS - 1)
            while record_id < stop:
                # Length of the next run of equal bits.
                run = _trailing_ones(bits) if bits & 1 else _trailing_zeros(bits)
                if bits & 1:
                    if begun >= 0:
                        yield begun, record_id
                        begun = -1
                elif begun < 0:
                    begun = record_id
                record_id = min(stop, record_id + run)
                bits >>= run
        if begun >= 0:
            yield begun, end

    def undone_mask(self, start: int, end: int) -> bytes:
        """Return a byte for each record of a range: 1 if it is not done."""
        mask = bytearray()
        floor = min(end, max(start, self._floors.get(partition_of(start), start)))
        record_id = floor
        while record_id < end:
            page_id = record_id >> PAGE_SHIFT
            stop = min(end, page_id + 1 << PAGE_SHIFT)
            page = self._pages.get(page_id)
            if page is None:
                mask += (b"\0" if page_id in self._full else b"\1") * (stop - record_id)
            else:
                octets = page[record_id >> 3 & 4095 : (stop - 1 >> 3 & 4095) + 1]
                # The fast way: format the bits as text.
                width = (stop - 1 | 7) + 1 - (record_id & ~7)
                bits = f"{int.from_bytes(octets, 'little'):0{width}b}"[::-1].encode()
                mask += bits[record_id & 7 : (record_id & 7) + stop - record_id].translate(_IS_UNDONE)
            record_id = stop
        return bytes(floor - start) + mask

    def skip_full(self, record_id: int) -> int:
        """Return the first record id, from this one on, that is neither below the floor nor in a page that is
        completely done."""
        record_id = max(record_id, self._floors.get(partition_of(record_id), record_id))
        while record_id >> PAGE_SHIFT in self._full:
            record_id = (record_id >> PAGE_SHIFT) + 1 << PAGE_SHIFT
        return record_id

    def skip_done(self, record_id: int) -> int:
        """Return the first record id, from this one on, that is not done."""
        while True:
            record_id = self.skip_full(record_id)
            page = self._pages.get(record_id >> PAGE_SHIFT)
            if page is None:
                return record_id
            page_end = (record_id >> PAGE_SHIFT) + 1 << PAGE_SHIFT
            record_id += _trailing_ones(int.from_bytes(page, "little") >> (record_id & PAGE_RECORDS - 1))
            if record_id < page_end:
                return record_id

    def mark(self, record_ids: Iterable[int]) -> None:
        """Mark records as done."""
        self._changes.sources[self] = None
        pages, dirty = self._pages, self._dirty
        page_id = -1
        page = bytearray()
        for record_id in record_ids:
            if record_id >> PAGE_SHIFT != page_id:
                page_id = record_id >> PAGE_SHIFT
                found = pages.get(page_id)
                if found is not None:
                    page = found
                elif page_id in self._full:
                    page = bytearray(_FULL)  # A scratch page: the page stays full.
                else:
                    page = self._new_page(page_id)
                dirty.add(page_id)
            try:
                page[record_id >> 3 & 4095] |= 1 << (record_id & 7)
            except IndexError:
                _lengthen(page, record_id >> 3 & 4095)
                page[record_id >> 3 & 4095] |= 1 << (record_id & 7)

    def mark_range(self, start: int, end: int) -> None:
        """Mark consecutive records of one partition as done."""
        self._changes.sources[self] = None
        self._dirty.update(self._set_range(start, end))

    def skip_range(self, start: int, end: int) -> None:
        """Mark offsets that have no record."""
        self._changes.sources[self] = None
        self._set_range(start, end)
        self._stale[partition_of(start)] = None

    def take_rows(self) -> list[StateEvent]:
        """Return the rows of everything that changed since the last call. Moves the floors."""
        for page_id in self._dirty:
            self._stale[page_id >> PAGES_SHIFT] = None
        for partition in self._stale:
            self._advance(partition)
        self._stale.clear()
        events: list[StateEvent] = []
        for page_id in sorted(self._dirty):
            # The page is absent if the floor has passed it, or went back to an offset before it.
            page = self._pages.get(page_id, bytearray())
            if page == _FULL:
                del self._pages[page_id]
                self._full.add(page_id)
            row = _FULL_ROW if page_id in self._full else bytes(page).rstrip(b"\0")
            if row:
                self._stored.add(page_id)
                events.append(StateEvent(page_key(page_id), row))
            elif page_id in self._stored:
                self._stored.discard(page_id)
                events.append(delete(page_key(page_id)))
        self._dirty.clear()
        for partition in self._moved:
            floor = self._floors[partition]
            events.append(upsert(partition_key(FLOOR_ROW, partition), floor & OFFSET_MASK))
        if self._moved:
            events += self._drop_below_floors()
        self._moved.clear()
        return events

    def _drop_below_floors(self) -> list[StateEvent]:
        floors = {partition: self._floors[partition] >> PAGE_SHIFT for partition in self._moved}
        gone = [page_id for page_id in self._stored if page_id < floors.get(page_id >> PAGES_SHIFT, 0)]
        self._stored.difference_update(gone)
        return [delete(page_key(page_id)) for page_id in sorted(gone)]

    def _new_page(self, page_id: int) -> bytearray:
        page = self._pages[page_id] = bytearray()
        return page

    def _set_range(self, start: int, end: int) -> list[int]:
        """Set the bits of a range, and return its pages."""
        touched: list[int] = []
        while start < end:
            page_id = start >> PAGE_SHIFT
            stop = min(end, page_id + 1 << PAGE_SHIFT)
            if page_id not in self._full:
                touched.append(page_id)
                if stop - start == PAGE_RECORDS:
                    # A compacted log may have gaps of billions of offsets.
                    self._pages.pop(page_id, None)
                    self._full.add(page_id)
                    start = stop
                    continue
                page = self._pages.get(page_id)
                if page is None:
                    page = self._new_page(page_id)
                first, last = start >> 3 & 4095, stop - 1 >> 3 & 4095
                _lengthen(page, last)
                head, tail = 0xFF << (start & 7) & 0xFF, 0xFF >> 7 - (stop - 1 & 7)
                if first == last:
                    page[first] |= head & tail
                else:
                    page[first] |= head
                    page[first + 1 : last] = _FULL[: last - first - 1]
                    page[last] |= tail
            start = stop
        return touched

    def _advance(self, partition: int) -> None:
        """Move a floor to the first record that is not done, and forget the pages below it."""
        record_id = begun = self._floors[partition]
        while True:
            page_id = record_id >> PAGE_SHIFT
            if page_id in self._full:
                self._full.discard(page_id)
            else:
                page = self._pages.get(page_id)
                if page is None:
                    break
                index, end = record_id >> 3 & 4095, len(page)
                if index < end and page[index] == 0xFF:
                    index = end - len(page[index:].lstrip(b"\xff"))
                if index < PAGE_BYTES:
                    record_id = (
                        (page_id << PAGE_SHIFT) + index * 8 + (_trailing_ones(page[index]) if index < end else 0)
                    )
                    break
                del self._pages[page_id]
            record_id = page_id + 1 << PAGE_SHIFT
        self._floors[partition] = record_id
        if record_id >> PAGE_SHIFT != begun >> PAGE_SHIFT:
            self._moved[partition] = None


def _lengthen(page: bytearray, index: int) -> None:
    """Lengthen a page to include a byte index, with some room, so that this happens rarely."""
    page += bytes(max(0, (index // _STEP_BYTES + 1) * _STEP_BYTES - len(page)))


def _trailing_ones(bits: int) -> int:
    return (~bits & bits + 1).bit_length() - 1


def _trailing_zeros(bits: int) -> int:
    return (bits & -bits).bit_length() - 1 if bits else PAGE_RECORDS
