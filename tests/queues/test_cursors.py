"""Sorted runs of records in any disorder: in order all the same, and never much work at a time."""

from __future__ import annotations

import random
from array import array

import pytest

from logbroker.queues.priority import runs as cursors
from logbroker.queues.priority.runs import Cursors, RunCursor

SEED = 7


class Runs:
    """Cursors of one partition and priority, and those that left the line."""

    def __init__(self) -> None:
        self.left: list[RunCursor] = []
        self.entered: list[int] = []
        """How long each was."""
        self.cursors = Cursors(lambda cursor: self.entered.append(len(cursor)), self.left.append)
        self.records: list[tuple[int, int]] = []

    def admit(self, times: list[int]) -> None:
        offsets = range(len(self.records), len(self.records) + len(times))
        self.records += zip(times, offsets, strict=True)
        self.cursors.admit(0, 4, array("q", offsets), array("q", times))

    def waiting(self) -> list[tuple[int, int]]:
        """All records, cursor by cursor, each of which is to be in order."""
        found: list[tuple[int, int]] = []
        for cursor in self.cursors._cursors[4]:
            run = list(zip(cursor.times[cursor.at :], cursor.offsets[cursor.at :], strict=True))
            assert run == sorted(run)
            found += run
        return found


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("batch", [1, 7, 300])
def test_disorder_never_moves_many_records_at_once(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr(cursors, "MAX_JOINED_RECORDS", 500)
    draw, runs = random.Random(SEED), Runs()
    for _ in range(30_000 // batch):
        runs.admit([draw.randrange(1_000_000) for _ in range(batch)])
    assert sorted(runs.waiting()) == sorted(runs.records)
    assert max(runs.entered) <= 500
    # Of any two that could not be joined, one has more than half of that.
    assert len(runs.cursors._cursors[4]) <= cursors.MAX_CURSORS + 30_000 // 250


def test_what_was_joined_takes_no_memory_until_its_void_entry_goes() -> None:
    draw, runs = random.Random(SEED), Runs()
    for _ in range(200):
        runs.admit([draw.randrange(1_000_000) for _ in range(20)])
    assert runs.left
    assert all(not cursor.times and not cursor.offsets for cursor in runs.left)
    assert len(runs.cursors._cursors[4]) <= cursors.MAX_CURSORS
