"""Records that a program has finished, whichever way it takes them: never more than it has."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from logbroker.client.consumer.cursor import Cursor, Record
from logbroker.client.consumer.fetcher import Assigned, Chunk
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.header import HEADER
from logbroker.types import TopicId, TopicPartition


def chunk_of(assigned: Assigned, base_offset: int, sizes: list[int]) -> Chunk:
    """Batches of so many records each, one after the other."""
    batches = b""
    for size in sizes:
        batch = bytearray(encode_batch([NewRecord(b"") for _ in range(size)]))
        batch[:8] = base_offset.to_bytes(8, "big")
        assert HEADER.unpack_from(batch)[0] == base_offset
        batches += batch
        base_offset += size
    return Chunk(assigned, assigned.version, batches, base_offset)


def partition(number: int) -> Assigned:
    return Assigned(TopicPartition("t", number), TopicId(b""), 0, 0)


class Program:
    """Takes records as the consumers hand them out, and keeps its own account of what it has finished."""

    def __init__(self) -> None:
        self.cursor = Cursor(1 << 20)
        self.partitions = [partition(0), partition(1)]
        self.handed_out = [0, 0]
        self.finished = [0, 0]
        self.exhausted = True
        """No batch is open, or nothing of it is left."""

    def ask(self) -> None:
        self.cursor.asked()
        self.finished = list(self.handed_out)

    def next_batch(self, number: int, sizes: list[int]) -> None:
        if not self.exhausted:
            return
        self.exhausted = False
        if not self.cursor.advance():
            self.cursor.take(chunk_of(self.partitions[number], self.partitions[number].position, sizes))
            self.cursor.advance()

    def take_records(self, count: int) -> None:
        """As a loop over records does."""
        for record in self.cursor.records:
            self.cursor.last = record
            self.got(record)
            self.check()
            count -= 1
            if not count:
                return
            # Within a batch, only the next record shows that the loop has asked.
            self.finished = list(self.handed_out)
        self.exhausted = True

    def take_list(self, count: int) -> None:
        """As `poll` and `batches` do."""
        records = list(itertools.islice(self.cursor.records, count))
        self.exhausted = len(records) < count
        if records:
            self.cursor.hand_out(records, 0)
            for record in records:
                self.got(record)

    def drop(self) -> None:
        """As pause and seek do, in the midst of a loop."""
        self.cursor.drop()
        self.exhausted = True

    def got(self, record: Record) -> None:
        self.handed_out[record.partition] = record.offset + 1

    def check(self) -> None:
        for assigned, finished, handed_out in zip(self.partitions, self.finished, self.handed_out, strict=True):
            assert self.cursor.finished(assigned) <= finished <= handed_out


steps = st.lists(
    st.one_of(
        st.tuples(st.just("records"), st.integers(1, 5)),
        st.tuples(st.just("list"), st.integers(1, 5)),
        st.tuples(st.just("two batches"), st.integers(1, 5)),
        st.tuples(st.just("drop"), st.just(0)),
        st.tuples(st.just("ask"), st.just(0)),
    ),
    max_size=30,
)


@given(steps, st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_never_more_than_the_program_has_finished(
    done: list[tuple[str, int]], sizes: list[int], data: st.DataObject
) -> None:
    program = Program()
    for what, count in done:
        if what == "drop":
            program.drop()
        elif what == "ask":
            program.ask()
        else:
            program.ask()
            for _ in range(2 if what == "two batches" else 1):
                program.next_batch(data.draw(st.integers(0, 1)), sizes)
                if what == "records":
                    program.take_records(count)
                else:
                    program.take_list(100 if what == "two batches" else count)
        program.check()


def test_a_loop_over_records_finishes_each_with_the_next_question() -> None:
    cursor, assigned = Cursor(1 << 20), partition(0)
    cursor.take(chunk_of(assigned, 0, [3]))
    assert cursor.advance()
    seen = []
    for record in cursor.records:
        cursor.last = record
        seen.append(cursor.finished(assigned))
    assert seen == [0, 1, 2]
    cursor.asked()
    assert not cursor.advance()
    assert cursor.finished(assigned) == 3


def test_a_list_is_finished_as_a_whole_with_the_next_question() -> None:
    cursor, assigned = Cursor(1 << 20), partition(0)
    cursor.take(chunk_of(assigned, 0, [2, 2]))
    cursor.advance()
    cursor.hand_out(list(cursor.records), 0)
    cursor.advance()
    cursor.hand_out(list(cursor.records), 0)
    cursor.advance()
    assert assigned.position == 4
    assert cursor.finished(assigned) == 0
    cursor.asked()
    assert cursor.finished(assigned) == 4


def test_a_record_in_hand_is_not_finished_by_a_pause() -> None:
    cursor, assigned = Cursor(1 << 20), partition(0)
    cursor.take(chunk_of(assigned, 0, [5]))
    cursor.advance()
    for record in cursor.records:
        cursor.last = record
        if record.offset == 2:
            break
    cursor.drop()
    assert assigned.position == 3
    assert cursor.finished(assigned) == 2
    cursor.asked()
    assert cursor.finished(assigned) == 3
