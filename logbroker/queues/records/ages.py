"""Approximate production times of records, from which the age of the oldest waiting record is computed.

Each partition keeps a few thousand samples, at least a second apart. A sample is a record id and the timestamp from
that record on. When there are too many samples, every second sample is dropped, and the distance between new samples
doubles. So the error stays below a thousandth of the time span that the samples cover.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

import msgspec

from logbroker.queues.model.record_id import PARTITION_SHIFT

MAX_SAMPLES: Final = 4096


class _Samples(msgspec.Struct):
    record_ids: array[int]
    times: array[int]
    """Times in ms; they mostly rise."""
    apart_ms: int = 1000


class Ages:
    """Timestamps of admitted records, by record id."""

    def __init__(self) -> None:
        self._samples: dict[int, _Samples] = {}
        """Samples by partition."""

    def admit(self, record_id: int, timestamp_ms: int) -> None:
        """Note that a batch with this timestamp begins at this record."""
        samples = self._samples.get(record_id >> PARTITION_SHIFT)
        if samples is None:
            samples = self._samples[record_id >> PARTITION_SHIFT] = _Samples(array("q"), array("q"))
        elif abs(timestamp_ms - samples.times[-1]) < samples.apart_ms:
            return
        samples.record_ids.append(record_id)
        samples.times.append(timestamp_ms)
        if len(samples.record_ids) > MAX_SAMPLES:
            del samples.record_ids[1::2], samples.times[1::2]
            samples.apart_ms *= 2

    def timestamp_ms(self, record_id: int) -> int | None:
        """Return the approximate time at which the record was produced; None: unknown."""
        samples = self._samples.get(record_id >> PARTITION_SHIFT)
        index = -1 if samples is None else bisect_right(samples.record_ids, record_id) - 1
        return samples.times[index] if samples is not None and index >= 0 else None

    def clear(self) -> None:
        self._samples.clear()
