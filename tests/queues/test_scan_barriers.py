"""Barriers of a scan: when one has passed, all is scanned that was readable when it was taken; and each one passes."""

from __future__ import annotations

import random

import pytest

from logbroker.queues.scan.barriers import NO_BARRIER, ScanBarriers

PARTITIONS = 5


class Scanned:
    """A scan of partitions that grow, as the scanner tells it to its barriers."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.barriers = ScanBarriers()
        self.ends = [draw.randrange(0, 30) for _ in range(PARTITIONS)]
        self.positions = [0] * PARTITIONS
        self.due: dict[int, None] = {}
        self.moved: set[int] = set()
        self.taken: list[tuple[int, list[int]]] = []
        self.stopped: set[int] = set()
        for partition in range(PARTITIONS):
            self.due[partition] = None
            self.barriers.begin(partition)
        self.barriers.is_behind = False

    def append(self) -> None:
        partition = self.draw.randrange(PARTITIONS)
        self.ends[partition] += self.draw.randrange(1, 20)
        self.moved.add(partition)

    def tell(self) -> None:
        moved, self.moved = self.moved, set()
        for partition in moved - self.stopped:
            self.due[partition] = None
            self.barriers.note(partition)

    def take(self) -> None:
        self.tell()
        barrier = self.barriers.take()
        self.taken.append((barrier, list(self.ends)))
        self.check()

    def something(self) -> None:
        """Do what may happen at any time, also during a read."""
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
        self.barriers.reading(partition)
        self.something()
        if self.draw.random() < 0.02:
            self.stopped.add(partition)
            self.due.pop(partition, None)
            self.barriers.drop(partition)
            return
        end, position = self.ends[partition], self.positions[partition]
        upto = min(end, position + 10)
        self.something()
        if position < end:
            self.barriers.has_end(partition, end)
        while self.positions[partition] < upto:
            self.positions[partition] = min(upto, self.positions[partition] + 4)
            self.barriers.scanned(partition, self.positions[partition])
            self.check()
            self.something()
        if upto < end:
            self.due[partition] = None
        else:
            self.barriers.scanned_all(partition)
        self.check()

    def check(self) -> None:
        for barrier, ends in self.taken:
            if self.barriers.has_passed(barrier):
                for partition in set(range(PARTITIONS)) - self.stopped:
                    assert self.positions[partition] >= ends[partition], f"barrier {barrier}, partition {partition}"
        self.taken = [(barrier, ends) for barrier, ends in self.taken if not self.barriers.has_passed(barrier)]


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize("seed", range(60))
def test_a_barrier_passes_when_all_that_was_readable_is_scanned(seed: int) -> None:
    scan = Scanned(random.Random(seed))
    for _ in range(150):
        scan.something()
        scan.read()
    while scan.due or scan.moved:
        scan.tell()
        scan.read()
    scan.check()
    assert not scan.taken, "all is scanned, and a barrier has not passed"


def test_barriers_pass_though_a_partition_grows_faster_than_it_is_read() -> None:
    barriers = ScanBarriers()
    barriers.begin(0)
    barriers.is_behind = False
    position, end, passed, barrier = 0, 10, 0, barriers.take()
    for _ in range(30):
        barriers.reading(0)
        barriers.has_end(0, end)
        position += 5
        end += 10
        barriers.note(0)
        barriers.scanned(0, position)
        if barriers.has_passed(barrier):
            passed += 1
            barrier = barriers.take()
    assert passed >= 3


def test_a_barrier_that_is_taken_when_all_is_scanned_has_passed_and_stays_so() -> None:
    barriers = ScanBarriers()
    barriers.is_behind = False
    barrier = barriers.take()
    barriers.note(3)
    assert barriers.has_passed(barrier)
    assert not barriers.has_passed(barriers.take())
    assert barriers.has_passed(NO_BARRIER)


def test_nothing_passes_before_the_last_generation_is_begun_and_scanned() -> None:
    barriers = ScanBarriers()
    barriers.begin(0)
    barrier = barriers.take()
    barriers.reading(0)
    barriers.scanned_all(0)
    assert not barriers.has_passed(barrier)
    barriers.begin(0)
    barriers.begin(1)
    barriers.is_behind = False
    for partition in (0, 1):
        assert not barriers.has_passed(barrier)
        barriers.reading(partition)
        barriers.scanned_all(partition)
    assert barriers.has_passed(barrier)


def test_barriers_of_before_the_index_was_emptied_pass_when_it_is_made_anew() -> None:
    barriers = ScanBarriers()
    barriers.begin(0)
    barriers.is_behind = False
    barriers.note(1)
    barrier = barriers.take()
    barriers.drop_all()
    assert not barriers.has_passed(barrier)
    barriers.begin(0)
    barriers.is_behind = False
    barriers.reading(0)
    barriers.scanned_all(0)
    assert barriers.has_passed(barrier)
