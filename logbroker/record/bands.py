"""Bands: ranges of priorities. A topic may have some. Unless it routes by key (`priority.routing=key`), each band has
partitions of its own.

In `hot=7-9:1,warm=4-6:2,cold=0-3:8`, each band is written as name=priorities:number of partitions. Partition numbers
begin at the most urgent band: hot has partition 0, warm has 1 and 2, cold has 3 to 10.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from logbroker.record.message_headers import MAX_PRIORITY, MIN_PRIORITY

MAX_NAME_LENGTH: Final = 64
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_ITEM: Final = re.compile(r"([a-zA-Z0-9._-]+)=([0-9])(?:-([0-9]))?:([0-9]{1,6})")
_FORM: Final = "name=priorities:partitions, ..., as in hot=7-9:1,warm=4-6:2,cold=0-3:8"


class Band(msgspec.Struct, frozen=True):
    """A range of priorities and, in a topic that has bands, its partitions."""

    name: str
    lowest_priority: int
    highest_priority: int
    first_partition: int = 0
    partitions: int = 0

    @property
    def partition_range(self) -> range:
        return range(self.first_partition, self.first_partition + self.partitions)


DEFAULT_BANDS: Final = (Band("hot", 7, 9), Band("warm", 4, 6), Band("cold", 0, 3))
"""The bands of a queue group on a topic without bands, the most urgent first."""


def parse_bands(text: str) -> tuple[Band, ...]:
    """Return bands from their text, the most urgent first; for "" an empty tuple. Raises ValueError, which says what is
    allowed."""
    if not text:
        return ()
    bands: list[Band] = []
    # Split at most one item more than there can be bands: a long list is refused without reading all of it.
    for item in text.split(",", MAX_PRIORITY - MIN_PRIORITY + 1):
        match = _ITEM.fullmatch(item.strip())
        if match is None:
            raise ValueError(_FORM)
        name, low, high, partitions = match.groups()
        if len(name) > MAX_NAME_LENGTH:
            raise ValueError(f"names of at most {MAX_NAME_LENGTH} characters")
        bands.append(Band(name, int(low), int(high or low), 0, int(partitions)))
    return _numbered(sorted(bands, key=lambda band: -band.highest_priority))


def _numbered(bands: Sequence[Band]) -> tuple[Band, ...]:
    names = [band.name for band in bands]
    if len(set(names)) < len(names):
        raise ValueError("bands of different names")
    for band in bands:
        if band.lowest_priority > band.highest_priority:
            raise ValueError(f"priorities from low to high, as in {band.highest_priority}-{band.lowest_priority}")
        if not band.partitions:
            raise ValueError(f"bands with at least one partition each; {band.name} has none")
    for above, below in pairwise(bands):
        if below.highest_priority >= above.lowest_priority:
            raise ValueError(f"bands that do not overlap; {above.name} and {below.name} do")
        if below.highest_priority < above.lowest_priority - 1:
            raise ValueError(f"bands without a gap; priority {above.lowest_priority - 1} is in none")
    if bands[0].highest_priority < MAX_PRIORITY or bands[-1].lowest_priority > MIN_PRIORITY:
        raise ValueError(f"bands for all priorities, {MIN_PRIORITY} to {MAX_PRIORITY}")
    first = 0
    numbered: list[Band] = []
    for band in bands:
        numbered.append(msgspec.structs.replace(band, first_partition=first))
        first += band.partitions
    return tuple(numbered)


def is_band_name(name: str) -> bool:
    """Whether a band may have this name."""
    return len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def bands_text(bands: Sequence[Band]) -> str:
    """Return the text that `parse_bands` reads."""
    return ",".join(f"{band.name}={band.lowest_priority}-{band.highest_priority}:{band.partitions}" for band in bands)


def partitions_of(bands: Sequence[Band]) -> int:
    """Return the number of partitions of a topic with these bands."""
    return sum(band.partitions for band in bands)


def one_band(partitions: int) -> Band:
    """Return the single band of a topic without bands."""
    return Band("", MIN_PRIORITY, MAX_PRIORITY, 0, partitions)


def band_of(bands: Sequence[Band], priority: int) -> Band:
    """Return the band that a priority is in."""
    return next(band for band in bands if priority >= band.lowest_priority)
