"""When records were produced, roughly: enough to tell how long the oldest of them has waited.

Of each partition a few thousand samples are kept, at least a second apart: from this record on, about this time. Where
they become too many, every second one goes, and those to come lie twice as far apart: so the error stays below a
thousandth of the time that they span.
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
    """In ms; they rise by and large."""
    apart_ms: int = 1000


class Ages:
    """Timestamps of what is admitted, by record id."""

    def __init__(self) -> None:
        self._samples: dict[int, _Samples] = {}
        """By partition."""

    def admit(self, record_id: int, timestamp_ms: int) -> None:
        """A batch of this time begins here."""
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
        """About when this record was produced; None: not known."""
        samples = self._samples.get(record_id >> PARTITION_SHIFT)
        index = -1 if samples is None else bisect_right(samples.record_ids, record_id) - 1
        return samples.times[index] if samples is not None and index >= 0 else None

    def clear(self) -> None:
        self._samples.clear()
