"""Splitting columns of offsets, priorities and timestamps by level (see `policy`)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Final

from logbroker.queues.priority.policy import LEVELS

Head = tuple[int, int]
"""Timestamp (ms) and offset of the first record of a level."""

_NO_HEAD: Final = (0, 0)
_IS_LEVEL: Final = tuple(bytes(value == level for value in range(256)) for level in range(LEVELS))
"""Translation tables that map a priority to 1 if it is the level, else to 0."""


def counts_of(priorities: bytes | bytearray) -> list[int]:
    """Return the number of records of each level."""
    return [priorities.count(level) for level in range(LEVELS)]


def of_level(
    offsets: Sequence[int], priorities: bytes | bytearray, times: Sequence[int], level: int
) -> tuple[array[int], array[int]]:
    """Return offsets and timestamps of the records of one level."""
    selectors = priorities.translate(_IS_LEVEL[level])
    return array("q", compress(offsets, selectors)), array("q", compress(times, selectors))


def heads_of(
    offsets: Sequence[int],
    priorities: bytes | bytearray,
    times: Sequence[int],
    levels: Iterable[int] = range(LEVELS),
) -> list[Head]:
    """Return the lowest (timestamp, offset) of each of these levels. For a level without records, the pair has no
    meaning."""
    if rises(times):
        firsts = [max(0, priorities.find(level)) for level in levels]
        return [(times[first], offsets[first]) for first in firsts]
    columns = (of_level(offsets, priorities, times, level) for level in levels)
    return [min(zip(stamps, chosen, strict=True), default=_NO_HEAD) for chosen, stamps in columns]


def rises(times: Sequence[int]) -> bool:
    """Return whether the timestamps never decrease."""
    listed = list(times)
    return listed == sorted(listed)  # Fastest if the timestamps rise, the usual case.
