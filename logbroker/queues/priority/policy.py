"""Scheduling policies, which choose the level to serve next: strict, by weights of bands, or by age.

A *level* is a priority under which the ready queue keeps lanes and records. Sets of levels are bits of an integer:
`active` are the levels with ready records, `allowed` the levels that the worker serves. At least one level is in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from logbroker.queues.model.settings import Priority, QueueGroupSettings
from logbroker.record.bands import Band
from logbroker.record.message_headers import MAX_PRIORITY

LEVELS: Final = MAX_PRIORITY + 1
ALL_LEVELS: Final = (1 << LEVELS) - 1

_STRIDE: Final = 1 << 40
"""Stride of a band of weight 1, per delivery. It is large, so that the remainder of a division does not matter."""

Heaps = Sequence[Sequence[tuple[Any, ...]]]
"""Ready entries by level. The first entry of each level begins with the timestamp (ms) of the level's first record."""


class SchedulingPolicy(Protocol):
    """Decides which level is served next."""

    def choose(self, active: int, allowed: int, heaps: Heaps) -> int:
        """Return the level from which to hand out one record."""
        ...


class StrictPolicy:
    """Chooses the most urgent level."""

    def choose(self, active: int, allowed: int, heaps: Heaps) -> int:
        return (active & allowed).bit_length() - 1


class AgeingPolicy:
    """Chooses the level whose oldest record has the lowest `timestamp - level * age`. So a record gains one level with
    each `age` that it waits.

    A record is never overtaken by a record that is more than 9 ages younger.
    """

    def __init__(self, age_ms: int) -> None:
        self._age_ms = age_ms

    def choose(self, active: int, allowed: int, heaps: Heaps) -> int:
        levels = active & allowed
        best = level = levels.bit_length() - 1
        least = heaps[level][0][0] - level * self._age_ms
        while levels := levels & ~(1 << level):
            level = levels.bit_length() - 1
            key = heaps[level][0][0] - level * self._age_ms
            if key < least:
                best, least = level, key
        return best


class StridePolicy:
    """Gives each band its share, by stride scheduling: a delivery advances its band by 1 / weight, and the band that
    has advanced least is next.

    A band that was without ready records continues at the position of the band served last, so it cannot catch up on
    deliveries that it missed. A delivery does not advance its band if no other band with a weight could be served. A
    band of weight 0 is served only when no other band can be.
    """

    def __init__(self, bands: Sequence[Band], weights: Sequence[int]) -> None:
        """Take the bands, the most urgent first, and their weights."""
        self._bands = [
            (index, levels_of(band), _STRIDE // weight)
            for index, (band, weight) in enumerate(zip(bands, weights, strict=True))
            if weight
        ]
        self._reached = [0] * len(bands)
        self._now = 0
        """Position of the band that was served last."""
        self._was_active = 0

    def choose(self, active: int, allowed: int, heaps: Heaps) -> int:
        reached = self._reached
        candidates = 0
        best, best_levels, best_stride = -1, active & allowed, 0
        for index, levels, stride in self._bands:
            if active & levels:
                if not self._was_active & levels and reached[index] < self._now:
                    reached[index] = self._now
                if active & allowed & levels:
                    candidates += 1
                    if best < 0 or reached[index] < reached[best]:
                        best, best_levels, best_stride = index, levels, stride
        self._was_active = active
        if candidates > 1:
            self._now = reached[best]
            reached[best] += best_stride
        return (active & allowed & best_levels).bit_length() - 1


def policy_of(settings: QueueGroupSettings, bands: Sequence[Band]) -> SchedulingPolicy:
    """Return the scheduling policy of a group with priorities."""
    match settings.priority:
        case Priority.AGEING:
            return AgeingPolicy(max(1, round(settings.age_seconds * 1000)))
        case Priority.WEIGHTED:
            weights = settings.weights or default_weights(bands)
            return StridePolicy(bands, [weights.get(band.name, 0) for band in bands])
        case _:
            return StrictPolicy()


def default_weights(bands: Sequence[Band]) -> dict[str, int]:
    """Return the weights by band name to use if none are set: 6, 3, 1 for three bands; otherwise each band has twice
    the weight of the next less urgent one."""
    weights = (6, 3, 1) if len(bands) == 3 else [1 << rank for rank in reversed(range(len(bands)))]
    return dict(zip((band.name for band in bands), weights, strict=True))


def levels_of(band: Band | None) -> int:
    """Return the levels of a band; None: all levels."""
    if band is None:
        return ALL_LEVELS
    return (1 << band.highest_priority + 1) - (1 << band.lowest_priority)
