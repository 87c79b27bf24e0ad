"""Counting how records spread over keys, and numbers over sizes, in bounded memory. No I/O."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

import google_crc32c

MAX_KEYS: Final = 500_000
"""Counted exactly up to here; then by a sample of the keys that halves each time it is full."""
HEAVY_KEYS: Final = 4096
"""Candidates for the most frequent keys, once the others are only sampled."""

_LONG_KEY_BYTES: Final = 128
_EXACT_BELOW: Final = 1024
_STEPS_BITS: Final = 7

PERCENTILES: Final = (50, 90, 99)


class KeyCounts:
    """Records per key.

    Below `max_keys` keys everything is exact. Above, the distribution comes from those keys whose hash ends in some
    zero bits, which are counted in full, and the most frequent keys from Misra and Gries' summary, whose counts may be
    too low by `top_error`.
    """

    def __init__(self, max_keys: int = MAX_KEYS, heavy_keys: int = HEAVY_KEYS) -> None:
        self.records = 0
        self.without_key = 0
        self.top_error = 0
        self._max_keys = max_keys
        self._heavy_keys = heavy_keys
        self._mask = 0
        self._counts: dict[bytes, int] = {}
        self._heavy: dict[bytes, int] | None = None

    @property
    def sampled(self) -> bool:
        return self._heavy is not None

    def add(self, key: bytes | None) -> None:
        """Count a record."""
        self.records += 1
        if key is None:
            self.without_key += 1
            return
        if len(key) > _LONG_KEY_BYTES:
            # Told apart by length and CRC, which is enough for counting.
            key = key[: _LONG_KEY_BYTES - 12] + b"%04x%08x" % (len(key) & 0xFFFF, google_crc32c.value(key))
        if self._heavy is None:
            self._counts[key] = self._counts.get(key, 0) + 1
            if len(self._counts) > self._max_keys:
                self._begin_sampling()
            return
        self._add_heavy(self._heavy, key)
        if not google_crc32c.value(key) & self._mask:
            self._counts[key] = self._counts.get(key, 0) + 1
            if len(self._counts) > self._max_keys:
                self._halve()

    def keys(self) -> int:
        """Return how many different keys there are; an estimate where `sampled`."""
        return len(self._counts) * (self._mask + 1)

    def top(self, count: int) -> list[tuple[bytes, int]]:
        """Return the most frequent keys with their records, most frequent first."""
        counts = self._counts if self._heavy is None else self._heavy
        return heapq.nsmallest(count, counts.items(), key=lambda item: (-item[1], item[0]))

    def records_per_key(self) -> Distribution:
        """Return how many records the keys have."""
        distribution = Distribution()
        for count in self._counts.values():
            distribution.add(count)
        return distribution

    def _begin_sampling(self) -> None:
        self._heavy = dict(self.top(self._heavy_keys))
        self.top_error = min(self._heavy.values())
        self._halve()

    def _halve(self) -> None:
        while len(self._counts) > self._max_keys // 2 and self._mask < 0xFFFF_FFFF:
            self._mask = self._mask << 1 | 1
            self._counts = {
                key: count for key, count in self._counts.items() if not google_crc32c.value(key) & self._mask
            }

    def _add_heavy(self, heavy: dict[bytes, int], key: bytes) -> None:
        if key in heavy:
            heavy[key] += 1
        elif len(heavy) < self._heavy_keys:
            heavy[key] = 1
        else:
            # Each of the candidates pays for the newcomer with one, as in the published algorithm.
            self.top_error += 1
            self._heavy = {known: count - 1 for known, count in heavy.items() if count > 1}


class Distribution:
    """Numbers, exact below 1024 and then to 1 %, in at most some thousand counters."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.largest = 0
        self._counts: dict[int, int] = {}

    def add(self, value: int) -> None:
        self.count += 1
        self.total += value
        self.largest = max(self.largest, value)
        if value >= _EXACT_BELOW:
            shift = value.bit_length() - _STEPS_BITS - 1
            value = value >> shift << shift
        self._counts[value] = self._counts.get(value, 0) + 1

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def percentiles(self, of: Sequence[int] = PERCENTILES) -> list[int]:
        """Return for each percentage the number at or below which so many lie; 0s where there are none."""
        found = []
        ordered = sorted(self._counts)
        for percent in of:
            left = self.count * percent / 100
            value = 0
            for value in ordered:
                left -= self._counts[value]
                if left <= 0:
                    break
            found.append(value)
        return found
