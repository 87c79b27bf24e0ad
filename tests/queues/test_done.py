"""Done records: floors and pages against plain sets, through their rows; and how much an acknowledgement writes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logbroker.errors import CorruptLogError
from logbroker.pacing import at_once
from logbroker.queues.model.record_id import OFFSET_MASK, record_id_of
from logbroker.queues.state.change_set import ChangeSet
from logbroker.queues.state.completion import PAGE_RECORDS, DoneRecords

END = 3 * PAGE_RECORDS
OFFSETS = st.integers(0, END - 1) | st.integers(0, 40) | st.integers(PAGE_RECORDS - 20, PAGE_RECORDS + 20)
RANGES = st.tuples(OFFSETS, st.integers(0, PAGE_RECORDS + 40)).map(lambda pair: (pair[0], min(END, sum(pair))))


def apply(rows: dict[bytes, bytes], done: DoneRecords) -> int:
    """Keep the rows that are owed; return how many."""
    events = done.take_rows()
    for event in events:
        if event.value is None:
            del rows[event.key]
        else:
            assert len(event.value) <= 4096
            rows[event.key] = event.value
    return len(events)


def loaded(rows: dict[bytes, bytes], end: int = END) -> DoneRecords:
    done = DoneRecords(ChangeSet())
    done.load(rows, {0: end, 1: end})
    return done


def first_undone(marked: set[int]) -> int:
    offset = 0
    while offset in marked:
        offset += 1
    return offset


@pytest.mark.prove
@given(st.lists(RANGES, max_size=6), st.lists(st.lists(OFFSETS, unique=True, max_size=20), max_size=4), st.booleans())
def test_floor_pages_and_undone_ranges_agree_with_a_set(
    ranges: list[tuple[int, int]], marks: list[list[int]], restart: bool
) -> None:
    done, marked, rows = DoneRecords(ChangeSet()), set[int](), dict[bytes, bytes]()
    done.open(0, 0)
    done.open(1, 0)
    apply(rows, done)
    for start, end in ranges:
        if marked.isdisjoint(range(start, end)):
            done.mark_range(record_id_of(1, start), record_id_of(1, end))
            marked.update(range(start, end))
        apply(rows, done)
    for offsets in marks:
        done.mark(record_id_of(1, offset) for offset in offsets if offset not in marked)
        marked.update(offsets)
        apply(rows, done)
    if restart:
        done = loaded(rows)
    floor = first_undone(marked)
    assert done.floor(1) == floor
    assert done.floor(0) == 0
    undone = [
        offset
        for start, end in done.undone(record_id_of(1, 0), record_id_of(1, END))
        for offset in range(start & OFFSET_MASK, end & OFFSET_MASK)
        if offset >= floor
    ]
    assert undone == [offset for offset in range(floor, END) if offset not in marked]
    assert at_once(done.count()) == {0: 0, 1: len(marked)}
    for offset in (0, floor, END - 1, *list(marked)[:20]):
        assert (record_id_of(1, offset) in done) == (offset in marked)
        following = next((later for later in range(offset, END) if later not in marked), END)
        assert done.skip_done(record_id_of(1, offset)) == record_id_of(1, following)
    assert record_id_of(0, 0) not in done


@pytest.mark.prove
@given(st.lists(st.lists(RANGES, min_size=1, max_size=3), min_size=2, max_size=5))
def test_a_count_that_pauses_lies_between_what_was_done_at_its_begin_and_at_its_end(
    batches: list[list[tuple[int, int]]],
) -> None:
    done, marked = DoneRecords(ChangeSet()), set[int]()
    done.open(0, 0)

    def mark(ranges: list[tuple[int, int]]) -> None:
        for start, end in ranges:
            done.mark(record_id_of(0, offset) for offset in range(start, end) if offset not in marked)
            marked.update(range(start, end))
        done.take_rows()

    mark(batches[0])
    before, counting = len(marked), done.count()
    counts: dict[int, int] = {}
    for ranges in batches[1:]:
        try:
            next(counting)
        except StopIteration as end:
            counts = end.value
            break
        mark(ranges)
    counts = counts or at_once(counting)
    assert before <= counts[0] <= len(marked)


def test_the_cost_of_a_count_grows_with_the_pages_and_not_with_the_offsets() -> None:
    done = DoneRecords(ChangeSet())
    done.open(0, 1 << 46)
    done.open(1, 5)
    done.mark([record_id_of(1, 1 << 45)])
    assert sum(done.count()) < 20
    assert at_once(done.count()) == {0: 1 << 46, 1: 6}


@given(st.lists(OFFSETS, unique=True, max_size=20), st.integers(0, END))
def test_what_lies_above_the_end_of_a_cut_log_is_not_done(offsets: list[int], end: int) -> None:
    done, rows = DoneRecords(ChangeSet()), dict[bytes, bytes]()
    done.open(0, 0)
    done.mark(map(int, offsets))
    if not any(PAGE_RECORDS <= offset < 2 * PAGE_RECORDS for offset in offsets):
        done.mark_range(PAGE_RECORDS, 2 * PAGE_RECORDS)
    apply(rows, done)
    cut = loaded(rows, end)
    assert not any(record_id_of(0, offset) in cut for offset in (end, end + 1, END - 1) if offset >= end)
    assert cut.floor(0) <= end
    apply(rows, cut)
    again = loaded(rows)
    assert not any(record_id_of(0, offset) in again for offset in (end, end + 1, END - 1) if offset >= end)


def test_an_acknowledgement_of_a_thousand_records_costs_one_row() -> None:
    done, rows = DoneRecords(ChangeSet()), dict[bytes, bytes]()
    done.open(0, 0)
    apply(rows, done)
    done.mark(range(1000))
    assert apply(rows, done) == 1
    done.mark(range(1001, 3000, 2))
    assert apply(rows, done) == 1


def test_a_floor_that_leaves_its_page_takes_the_row_with_it() -> None:
    done, rows = DoneRecords(ChangeSet()), dict[bytes, bytes]()
    done.open(0, 0)
    done.mark(range(100))
    apply(rows, done)
    assert len(rows) == 2
    done.mark_range(100, PAGE_RECORDS + 5)
    apply(rows, done)
    assert loaded(rows).floor(0) == PAGE_RECORDS + 5
    assert sorted(key[:1] for key in rows) == [b"f", b"p"]


def test_a_page_above_a_held_floor_costs_one_byte_when_all_of_it_is_done() -> None:
    done, rows = DoneRecords(ChangeSet()), dict[bytes, bytes]()
    done.open(0, 0)
    done.mark_range(1, 3 * PAGE_RECORDS)
    apply(rows, done)
    assert sorted(len(value) for key, value in rows.items() if key[:1] == b"p") == [1, 1, 4096]
    again = loaded(rows)
    assert again.floor(0) == 0
    assert again.skip_full(PAGE_RECORDS + 7) == 3 * PAGE_RECORDS
    again.mark((0,))
    assert again.take_rows()
    assert again.floor(0) == 3 * PAGE_RECORDS


def test_offsets_without_a_record_make_no_rows_but_move_the_floor() -> None:
    done, rows = DoneRecords(ChangeSet()), dict[bytes, bytes]()
    done.open(0, 0)
    apply(rows, done)
    done.skip_range(0, 50)
    assert apply(rows, done) == 0
    assert done.floor(0) == 50
    done.skip_range(50, PAGE_RECORDS + 1)
    assert apply(rows, done) == 1
    assert loaded(rows).floor(0) == PAGE_RECORDS + 1


def test_a_gap_of_a_billion_offsets_takes_little_memory_and_no_rows() -> None:
    done, rows = DoneRecords(ChangeSet()), dict[bytes, bytes]()
    done.open(0, 0)
    apply(rows, done)
    done.mark([PAGE_RECORDS + 1])
    done.skip_range(2, PAGE_RECORDS + 1)
    done.skip_range(PAGE_RECORDS + 2, 1 << 30)
    assert len(done._pages) <= 2
    assert list(done.undone(0, 1 << 30)) == [(0, 2)]
    assert apply(rows, done) == 1
    assert list(loaded(rows).undone(0, END)) == [(0, PAGE_RECORDS), (2 * PAGE_RECORDS, END)], "gaps are found again"
    done.mark([0, 1])
    assert done.floor(0) == 1 << 30
    apply(rows, done)
    assert len(rows) == 1, "the floor alone"
    assert not done._pages
    assert not done._full


def test_a_page_that_is_done_at_once_takes_the_place_of_what_was_of_it() -> None:
    done, rows = DoneRecords(ChangeSet()), dict[bytes, bytes]()
    done.open(0, 0)
    done.mark([PAGE_RECORDS, 2 * PAGE_RECORDS - 1])
    apply(rows, done)
    done.mark_range(PAGE_RECORDS, 2 * PAGE_RECORDS)
    apply(rows, done)
    assert list(loaded(rows).undone(0, END)) == [(0, PAGE_RECORDS), (2 * PAGE_RECORDS, END)]


def test_a_group_that_starts_inside_a_page_has_done_all_before() -> None:
    done, rows = DoneRecords(ChangeSet()), dict[bytes, bytes]()
    done.open(0, PAGE_RECORDS + 77)
    apply(rows, done)
    again = loaded(rows)
    assert again.floor(0) == PAGE_RECORDS + 77
    again.mark((record_id_of(0, PAGE_RECORDS + 77),))
    apply(rows, again)
    assert loaded(rows).floor(0) == PAGE_RECORDS + 78


@pytest.mark.parametrize("value", [b"", bytes(4097)])
def test_a_page_of_a_wrong_size_is_refused(value: bytes) -> None:
    with pytest.raises(CorruptLogError, match="no page"):
        loaded({b"p" + bytes(9): value})


@given(
    st.lists(st.tuples(st.integers(0, 3 * PAGE_RECORDS), st.integers(0, 70_000)), max_size=5),
    st.lists(st.integers(0, 3 * PAGE_RECORDS), max_size=20),
    st.integers(0, PAGE_RECORDS),
    st.tuples(st.integers(0, 3 * PAGE_RECORDS), st.integers(0, 5_000)),
)
@example(ranges=[(1, 65535)], single=[32768], start=0, asked=(27770, 5000))
def test_a_mask_tells_of_each_record_whether_it_is_done(
    ranges: list[tuple[int, int]], single: list[int], start: int, asked: tuple[int, int]
) -> None:
    done = DoneRecords(ChangeSet())
    done.open(0, start)
    for first, count in ranges:
        done.mark_range(max(first, start), max(first + count, start))
    done.mark(record_id for record_id in single if record_id >= start)
    done.take_rows()  # Pages that are full are kept as such from now on.
    first, count = asked
    mask = done.undone_mask(first, first + count)
    assert mask == bytes(record_id not in done for record_id in range(first, first + count))
