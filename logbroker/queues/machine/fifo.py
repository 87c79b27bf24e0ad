"""The ready queue without priorities, in which lanes and runs wait for workers: first come, first served.

A lane whose record is done goes to the end, so that a hot key cannot starve the others. A record that was given back
without having been worked on goes to the front.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import filterfalse
from typing import Any

from logbroker.queues.model.lane import IN_FLIGHT, READY, Lane, Run


class FifoLine:
    """Ready lanes, and runs of consecutive records that need not stay in order."""

    def __init__(self) -> None:
        self.clear()

    @property
    def records(self) -> int:
        """Number of records that could be handed out at once."""
        return len(self._entries) - self._runs + self._records_in_runs

    def __iter__(self) -> Iterator[Lane | Run]:
        return iter(self._entries)

    def runs(self) -> Iterator[Run]:
        """Yield all runs. Scans the whole queue if there are any."""
        return (entry for entry in self._entries if type(entry) is Run) if self._runs else iter(())

    def admit_run(self, start: int, end: int, *, redelivered: bool) -> None:
        """Put consecutive records that need no order at the end."""
        last = self._entries[-1] if self._entries else None
        if type(last) is Run and last.end == start and last.redelivered == redelivered:
            last.end = end
            self._records_in_runs += end - start
        else:
            self._add_run(start, end, redelivered)

    def _add_run(self, start: int, end: int, redelivered: bool) -> None:
        if start < end:
            self._entries.append(Run(start, end, redelivered))
            self._runs += 1
            self._records_in_runs += end - start

    def take(self, credit: int) -> list[list[Lane] | Run]:
        """Take up to `credit` records from the front, as lanes and runs. The lanes are then in flight."""
        entries = self._entries
        taken: list[list[Lane] | Run] = []
        if not self._runs:
            # Only lanes: the usual case with an ordering.
            lanes: list[Lane] = [entries.popleft() for _ in range(min(credit, len(entries)))]  # type: ignore[misc]
            if lanes:
                taken.append(lanes)
        else:
            lanes = []
            while credit and entries:
                entry = entries.popleft()
                if type(entry) is Lane:
                    lanes.append(entry)
                    credit -= 1
                elif type(entry) is Run:
                    if lanes:
                        taken.append(lanes)
                        lanes = []
                    run = self._take_run(entry, credit)
                    taken.append(run)
                    credit -= run.end - run.start
            if lanes:
                taken.append(lanes)
        for piece in taken:
            if type(piece) is list:
                for lane in piece:
                    lane.state = IN_FLIGHT
        return taken

    def _take_run(self, run: Run, credit: int) -> Run:
        count = run.end - run.start
        self._records_in_runs -= min(count, credit)
        if count <= credit:
            self._runs -= 1
            return run
        piece = Run(run.start, run.start + credit, run.redelivered)
        run.start += credit
        self._entries.appendleft(run)
        return piece

    def take_these(self, wanted: Sequence[int]) -> list[Lane]:
        """Take out the `wanted` records that are in the queue. `wanted` is sorted. Scans the whole queue."""
        heads = set(wanted)
        found: list[Lane] = []
        entries = list(self._entries)
        self.clear()
        for entry in entries:
            if type(entry) is Lane:
                (found if entry.head in heads else self._entries).append(entry)
            elif type(entry) is Run:
                begun = entry.start
                for record_id in wanted[bisect_left(wanted, entry.start) : bisect_left(wanted, entry.end)]:
                    self._add_run(begun, record_id, entry.redelivered)
                    found.append(Lane(None, record_id, IN_FLIGHT))
                    begun = record_id + 1
                self._add_run(begun, entry.end, entry.redelivered)
        for lane in found:
            lane.state = IN_FLIGHT
        return found

    def take_out(self, lanes: Sequence[Lane]) -> None:
        """Take some lanes out of a queue without runs, wherever they are in it. Costs about 30 ns for each entry of the
        queue."""
        if lanes:
            gone: set[Lane | Run] = set(lanes)
            kept = list(filterfalse(gone.__contains__, self._entries))
            self._entries.clear()
            self._entries.extend(kept)
        for lane in lanes:
            lane.state = IN_FLIGHT

    def give_back(self, lanes: Sequence[Lane]) -> None:
        """Put lanes, in their order, at the front."""
        for lane in lanes:
            lane.state = READY
        self._entries.extendleft(reversed(lanes))

    def give_back_run(self, start: int, end: int, *, redelivered: bool) -> None:
        """Put records that were handed out at the front."""
        self._entries.appendleft(Run(start, end, redelivered))
        self._runs += 1
        self._records_in_runs += end - start

    def next_key(self) -> bytes | None:
        """Return the key of the first lane that has a key. Examines all entries before it."""
        for entry in self._entries:
            if type(entry) is Lane and entry.key is not None:
                return entry.key
        return None

    def remove(self, lane: Lane) -> None:
        """Take out a lane. Costs 10 ns for each entry before it."""
        self._entries.remove(lane)

    def clear(self) -> None:
        """Forget everything."""
        self._entries: deque[Lane | Run] = deque()
        self.append: Callable[[Lane], None] = self._entries.append
        """Put a ready lane at the end."""
        self._runs = 0
        self._records_in_runs = 0

    @property
    def containers(self) -> list[Any]:
        """The large containers. `clear` replaces them by new ones; the caller of `clear` takes the old ones before, and
        frees them step by step."""
        return [self._entries]
