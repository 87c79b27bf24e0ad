"""How records come in: the scan's position in each partition, and what it may pass over.

Growth of the topic gives a key another partition. So all records of a generation are admitted, in every partition,
before the first of the next, and lanes are first in, first out over both: a key's records keep their order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from logbroker.queues.done import DoneRecords
from logbroker.queues.held import HeldLanes
from logbroker.queues.lane import READY, Lane
from logbroker.queues.lanes import Lanes
from logbroker.queues.places import OFFSET_MASK, PARTITION_SHIFT, Moment, place_of
from logbroker.queues.redelivery import Redelivery
from logbroker.queues.settings import Ordering, QueueSettings

_SINGLE_KEY: Final = b""


class Intake:
    """Admits the records of all partitions into the index; goes forward only."""

    def __init__(self, done: DoneRecords, lanes: Lanes, held: HeldLanes, redelivery: Redelivery) -> None:
        self._done = done
        self._lanes = lanes
        self._held = held
        self._redelivery = redelivery
        self.generation = 0
        """Of the topic, whose records come in; 0: the index is empty, nothing is begun."""
        self._positions: dict[int, int] = {}
        self._scanned_to: dict[int, int] = {}
        """Per partition, the offset below which records may be done before they are admitted."""

    def open(self, partition: int, start_offset: int) -> None:
        """Scan a partition from an offset on, unless it is served already."""
        if not self._done.is_open(partition):
            self._done.open(partition, start_offset)
            self._positions[partition] = start_offset

    def load(self, ends: Mapping[int, int]) -> None:
        """Nothing is admitted yet, but below `ends` records may be done."""
        for partition in self._done.partitions():
            self._scanned_to[partition] = ends.get(partition, OFFSET_MASK)
        self.rewind()

    def rewind(self) -> None:
        """Nothing is admitted any more: scan from the floors."""
        self.generation = 0
        for partition in self._done.partitions():
            # Of what a scan before had not reached yet, some may be done all the same, since a start before that.
            reached = self._positions.get(partition, 0)
            self._scanned_to[partition] = max(reached, self._scanned_to.get(partition, 0))
            self._positions[partition] = self._done.floor(partition)

    def position(self, partition: int) -> int:
        """The offset to scan a partition from; jumps over whole pages that are done."""
        position = self._positions[partition]
        if position < self._scanned_to.get(partition, 0):
            position = self._done.skip_full(place_of(partition, position)) & OFFSET_MASK
            self._positions[partition] = position
        return position

    def reached(self, partition: int) -> int:
        """The offset below which records may be handed out or done, by this scan or by one before it."""
        return max(self._positions[partition], self._scanned_to.get(partition, 0))

    def has_admitted(self, place: int) -> bool:
        return place & OFFSET_MASK < self._positions[place >> PARTITION_SHIFT]

    def begin_generation(self, generation: int, start_offsets: Sequence[int]) -> None:
        """See `Queue.begin_generation`."""
        if generation <= self.generation:
            raise ValueError(f"generation {generation} follows {self.generation}: the scan goes forward")
        for partition, end in enumerate(start_offsets):
            if (position := self._positions.get(partition, 0)) < end:
                raise ValueError(
                    f"generation {generation} begins after offset {end} of partition {partition}, of which the scan has"
                    f" only reached {position}"
                )
        self.generation = generation

    def admit(
        self,
        settings: QueueSettings,
        partition: int,
        generation: int,
        offsets: Sequence[int],
        next_offset: int,
        keys: Sequence[bytes | None],
        not_before: Iterable[tuple[int, int]],
        now: Moment,
    ) -> int:
        """Take in the next records of a partition, and return how many were not done; see `Queue.admit`."""
        start = self._positions[partition]
        if next_offset <= start or generation != self.generation:
            raise ValueError(
                f"the batch before offset {next_offset} of generation {generation} cannot follow offset {start} of"
                f" generation {self.generation}: the scan goes forward"
            )
        self._positions[partition] = next_offset
        base = place_of(partition, 0)
        held, done = self._held, self._done
        for offset, due_ms in not_before:
            if due_ms > now.wall_ms and offset >= start and base | offset not in done:
                held.not_before[base | offset] = due_ms
                held.attention.add(base | offset)
        pieces: Iterable[tuple[int, int]] = ((start, next_offset),)
        if start < self._scanned_to.get(partition, 0) and done.any_in(base | start, base | next_offset):
            pieces = [(low - base, high - base) for low, high in done.undone(base | start, base | next_offset)]
        admitted = 0
        for low, high in pieces:
            first, last = bisect_left(offsets, low), bisect_left(offsets, high)
            if last > first:
                self._admit(settings, base, offsets[first:last], keys[first:last], now)
                admitted += last - first
        self._skip_gaps(base, start, offsets, next_offset)
        return admitted

    def _skip_gaps(self, base: int, start: int, offsets: Sequence[int], next_offset: int) -> None:
        """Offsets that hold no record must not hold back the floor."""
        present = bisect_left(offsets, start)
        if len(offsets) - present == next_offset - start:
            return
        for before, after in pairwise((start - 1, *offsets[present:], next_offset)):
            if after - before > 1:
                self._done.skip_range(base | before + 1, base | after)

    def _admit(
        self, settings: QueueSettings, base: int, offsets: Sequence[int], keys: Sequence[bytes | None], now: Moment
    ) -> None:
        attention = self._held.attention
        special = bool(attention) and not attention.isdisjoint([base | offset for offset in offsets])

        def enter(lane: Lane) -> None:
            self._held.enter(lane, now)

        if settings.ordering is not Ordering.NONE:
            if settings.ordering is Ordering.SINGLE:
                keys = [_SINGLE_KEY] * len(offsets)
            self._lanes.admit(base, offsets, keys, enter if special else None)
            return
        # A record of which something is stored leaves its run, and comes alone.
        cuts = [index for index, offset in enumerate(offsets) if special and base | offset in attention]
        begun = 0
        for cut in (*cuts, len(offsets)):
            self._admit_runs(base, offsets[begun:cut])
            if cut < len(offsets):
                enter(Lane(None, base | offsets[cut], READY))
            begun = cut + 1

    def _admit_runs(self, base: int, offsets: Sequence[int]) -> None:
        if not offsets:
            return
        edges = [0, len(offsets)]
        if offsets[-1] - offsets[0] != len(offsets) - 1:
            edges[1:1] = [index for index in range(1, len(offsets)) if offsets[index] != offsets[index - 1] + 1]
        mark = self._redelivery.marks.get(base >> PARTITION_SHIFT, base)
        for low, high in pairwise(edges):
            start, end = base | offsets[low], (base | offsets[high - 1]) + 1
            middle = min(max(mark, start), end)
            if start < middle:
                self._lanes.admit_run(start, middle, redelivered=True)
            if middle < end:
                self._lanes.admit_run(middle, end, redelivered=False)
