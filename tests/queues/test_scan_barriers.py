"""Marks of a scan: when one has passed, all is scanned that was readable when it was taken; and each one passes."""

from __future__ import annotations

import random

import pytest

from logbroker.queues.scan.barriers import NO_MARK, ScanBarriers

PARTITIONS = 5


class Scanned:
    """A scan of partitions that grow, as the scanner tells it to its marks."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.marks = ScanBarriers()
        self.ends = [draw.randrange(0, 30) for _ in range(PARTITIONS)]
        self.positions = [0] * PARTITIONS
        self.due: dict[int, None] = {}
        self.moved: set[int] = set()
        self.taken: list[tuple[int, list[int]]] = []
        self.stopped: set[int] = set()
        for partition in range(PARTITIONS):
            self.due[partition] = None
            self.marks.begin(partition)
        self.marks.is_behind = False

    def append(self) -> None:
        partition = self.draw.randrange(PARTITIONS)
        self.ends[partition] += self.draw.randrange(1, 20)
        self.moved.add(partition)

    def tell(self) -> None:
        moved, self.moved = self.moved, set()
        for partition in moved - self.stopped:
            self.due[partition] = None
            self.marks.note(partition)

    def take(self) -> None:
        self.tell()
        mark = self.marks.take()
        self.taken.append((mark, list(self.ends)))
        self.check()

    def something(self) -> None:
        """What may happen at any time, also during a read."""
        what = self.draw.random()
        if what < 0.3:
            self.append()
        elif what < 0.5:
            self.tell()
        elif what < 0.7:
            self.take()

    def read(self) -> None:
        if not self.due:
            return
        partition = next(iter(self.due))
        del self.due[partition]
        self.marks.reading(partition)
        self.something()
        if self.draw.random() < 0.02:
            self.stopped.add(partition)
            self.due.pop(partition, None)
            self.marks.drop(partition)
            return
        end, position = self.ends[partition], self.positions[partition]
        upto = min(end, position + 10)
        self.something()
        if position < end:
            self.marks.has_end(partition, end)
        while self.positions[partition] < upto:
            self.positions[partition] = min(upto, self.positions[partition] + 4)
            self.marks.scanned(partition, self.positions[partition])
            self.check()
            self.something()
        if upto < end:
            self.due[partition] = None
        else:
            self.marks.scanned_all(partition)
        self.check()

    def check(self) -> None:
        for mark, ends in self.taken:
            if self.marks.has_passed(mark):
                for partition in set(range(PARTITIONS)) - self.stopped:
                    assert self.positions[partition] >= ends[partition], f"mark {mark}, partition {partition}"
        self.taken = [(mark, ends) for mark, ends in self.taken if not self.marks.has_passed(mark)]


@pytest.mark.parametrize("seed", range(60))
def test_a_mark_passes_when_all_that_was_readable_is_scanned(seed: int) -> None:
    scan = Scanned(random.Random(seed))
    for _ in range(150):
        scan.something()
        scan.read()
    while scan.due or scan.moved:
        scan.tell()
        scan.read()
    scan.check()
    assert not scan.taken, "all is scanned, and a mark has not passed"


def test_marks_pass_though_a_partition_grows_faster_than_it_is_read() -> None:
    marks = ScanBarriers()
    marks.begin(0)
    marks.is_behind = False
    position, end, passed, mark = 0, 10, 0, marks.take()
    for _ in range(30):
        marks.reading(0)
        marks.has_end(0, end)
        position += 5
        end += 10
        marks.note(0)
        marks.scanned(0, position)
        if marks.has_passed(mark):
            passed += 1
            mark = marks.take()
    assert passed >= 3


def test_a_mark_that_is_taken_when_all_is_scanned_has_passed_and_stays_so() -> None:
    marks = ScanBarriers()
    marks.is_behind = False
    mark = marks.take()
    marks.note(3)
    assert marks.has_passed(mark)
    assert not marks.has_passed(marks.take())
    assert marks.has_passed(NO_MARK)


def test_nothing_passes_before_the_last_generation_is_begun_and_scanned() -> None:
    marks = ScanBarriers()
    marks.begin(0)
    mark = marks.take()
    marks.reading(0)
    marks.scanned_all(0)
    assert not marks.has_passed(mark)
    marks.begin(0)
    marks.begin(1)
    marks.is_behind = False
    for partition in (0, 1):
        assert not marks.has_passed(mark)
        marks.reading(partition)
        marks.scanned_all(partition)
    assert marks.has_passed(mark)


def test_marks_of_before_the_index_was_emptied_pass_when_it_is_made_anew() -> None:
    marks = ScanBarriers()
    marks.begin(0)
    marks.is_behind = False
    marks.note(1)
    mark = marks.take()
    marks.drop_all()
    assert not marks.has_passed(mark)
    marks.begin(0)
    marks.is_behind = False
    marks.reading(0)
    marks.scanned_all(0)
    assert marks.has_passed(mark)
