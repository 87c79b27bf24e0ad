"""Chooses, among the batches of a file, those that form one ascending log."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

_NONE: Final = -1


class BatchChain:
    """Chooses the heaviest chain of batches in which neither offsets nor leader epochs go back.

    The weight of a batch is its size in bytes. So nothing inside a batch, such as the copy of another log in a damaged
    record, outweighs the batches around it. If a batch neither continues the batch before it nor is continued by the
    batch behind it, its offset or epoch is probably damaged, and its weight is 1.

    Each leader epoch has a front: the chains that end in a batch of this epoch. A chain is left out of the front if
    another chain ends no later and weighs no less. So the end offsets and the weights of a front both ascend, and
    bisection finds the best chain that ends at or below an offset. Everything is kept in arrays, about 60 bytes per
    batch.
    """

    def __init__(self) -> None:
        self._positions = array("q")
        self._first_offsets = array("q")
        self._next_offsets = array("q")
        self._epochs = array("i")
        self._sizes = array("q")

    def add(self, position: int, size_bytes: int, first_offset: int, next_offset: int, leader_epoch: int) -> None:
        """Add the next batch of the file."""
        self._positions.append(position)
        self._sizes.append(size_bytes)
        self._first_offsets.append(first_offset)
        self._next_offsets.append(next_offset)
        self._epochs.append(leader_epoch)

    def best(self) -> array[int]:
        """Return the positions of the chosen batches."""
        first_offsets, next_offsets, epochs = self._first_offsets, self._next_offsets, self._epochs
        count = len(first_offsets)
        fronts: dict[int, _Front] = {}
        before = array("q", [_NONE]) * count
        heaviest, last = 0, _NONE
        continues = False
        for number in range(count):
            epoch, first_offset = epochs[number], first_offsets[number]
            is_continued = number + 1 < count and self._continues(number + 1)
            weight = self._sizes[number] if continues or is_continued else 1
            continues = is_continued
            best, best_end = 0, _NONE
            for each, front in fronts.items():
                if each <= epoch:
                    found, end = front.up_to(first_offset)
                    if found > best:
                        best, best_end = found, end
            before[number] = best_end
            best += weight
            if epoch not in fronts:
                fronts[epoch] = _Front()
            fronts[epoch].add(next_offsets[number], best, number)
            if best > heaviest:
                heaviest, last = best, number
        chosen = array("q")
        while last != _NONE:
            chosen.append(self._positions[last])
            last = before[last]
        chosen.reverse()
        return chosen

    def _continues(self, number: int) -> bool:
        """Return whether a batch continues at the offset where the batch before it in the file ends."""
        return (
            self._first_offsets[number] == self._next_offsets[number - 1]
            and self._epochs[number] == self._epochs[number - 1]
        )


class _Front:
    """The best chains that end in a batch of one leader epoch."""

    def __init__(self) -> None:
        self._ends = array("q")
        self._weights = array("q")
        self._batches = array("q")

    def up_to(self, offset: int) -> tuple[int, int]:
        """Return the weight and the last batch of the best chain that ends at or below an offset."""
        index = bisect_right(self._ends, offset) - 1
        return (self._weights[index], self._batches[index]) if index >= 0 else (0, _NONE)

    def add(self, end: int, weight: int, batch: int) -> None:
        index = bisect_right(self._ends, end)
        if index and self._weights[index - 1] >= weight:
            return
        first = bisect_left(self._ends, end, 0, index)
        behind = bisect_right(self._weights, weight, index)
        for column, value in ((self._ends, end), (self._weights, weight), (self._batches, batch)):
            column[first:behind] = array("q", [value])
