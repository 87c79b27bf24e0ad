"""Counts the records per key, and distributions of numbers, in bounded memory. No I/O."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

import google_crc32c

MAX_KEYS: Final = 500_000
"""Up to this number of keys, counts are exact. Above it, a sample of the keys is counted, which is halved each time it
is full."""
HEAVY_KEYS: Final = 4096
"""Number of candidates for the most frequent keys, once keys are only sampled."""

_LONG_KEY_BYTES: Final = 128
_EXACT_BELOW: Final = 1024
_STEPS_BITS: Final = 7

PERCENTILES: Final = (50, 90, 99)


class KeyCounts:
    """Records per key.

    Up to `max_keys` keys, everything is exact. Above, the distribution comes from a sample: keys with a hash that ends
    in some zero bits, of which all records are counted. The most frequent keys then come from the summary of Misra and
    Gries, in which counts may be too low by up to `top_error`.
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
            # The beginning, the length and the CRC tell long keys apart, which is enough for counting.
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
        """Return the number of different keys; an estimate if `sampled`."""
        return len(self._counts) * (self._mask + 1)

    def top(self, count: int) -> list[tuple[bytes, int]]:
        """Return the most frequent keys and their numbers of records, the most frequent first."""
        counts = self._counts if self._heavy is None else self._heavy
        return heapq.nsmallest(count, counts.items(), key=lambda item: (-item[1], item[0]))

    def records_per_key(self) -> Distribution:
        """Return the distribution of the number of records per key."""
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
            # The count of each candidate is reduced by one instead of adding the new key, as in the published
            # algorithm.
            self.top_error += 1
            self._heavy = {known: count - 1 for known, count in heavy.items() if count > 1}


class Distribution:
    """A distribution of numbers. It is exact below 1024, and to 1 % above, with at most a few thousand counters."""

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
        """Return the percentiles for these percentages, or zeros if nothing was added."""
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
