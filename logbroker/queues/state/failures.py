"""Failed attempts: their count, reasons and times, and the wait before the next attempt.

    row      key    b"a" partition offset
             value  msgpack array, the fields of `Failure` in their order

Times are wall clock times, because the row outlives the monotonic clock. After a start a record waits for the
remainder: min(the delay as it was set, due - now). So even if the clock was changed, the record waits at most its whole
delay once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

import msgspec

from logbroker.errors import CorruptLogError
from logbroker.queues.model.messages import MAX_REASON_CHARACTERS
from logbroker.queues.model.record_id import OFFSET_MASK, partition_of
from logbroker.queues.model.settings import QueueGroupSettings
from logbroker.queues.state.change_set import ChangedRows, ChangeSet
from logbroker.queues.state.rows import FAILURE_ROW, decode, record_id_in, record_row_key
from logbroker.record.dead_letter import MAX_REASONS

RETRYING: Final = 0
BLOCKED: Final = 1
PARKED: Final = 2
"""If the record has an ordering key, its lane has a row of its own, too."""
EXHAUSTED: Final = 3
"""The record is on its way to the dead-letter topic."""


class Failure(msgspec.Struct, array_like=True, gc=False):
    """The failed attempts at one record."""

    count: int
    """Number of failed attempts."""
    first_ms: int
    last_ms: int
    due_ms: int
    delay_ms: int
    state: int
    reasons: tuple[str, ...]

    def wait_seconds(self, wall_ms: int) -> float:
        """Return how long the record still waits after a start."""
        return max(0, min(self.delay_ms, self.due_ms - wall_ms)) / 1000


def backoff_seconds(settings: QueueGroupSettings, failures: int, random: Callable[[], float]) -> float:
    """Return the wait after this many failures; `random` draws from [0, 1).

    The wait is initial * factor ** (failures - 1), at most the cap. A random part of it, at most the share
    `backoff_jitter`, is subtracted.
    """
    # At most 2^64, because a factor of 100 overflows a float after 154 failures.
    growth = min(settings.backoff_factor ** min(failures - 1, 64), 2.0**64)
    backoff = min(settings.backoff_cap_seconds, settings.backoff_initial_seconds * growth)
    return backoff * (1 - settings.backoff_jitter * random())


class Failures:
    """The records of a queue group that failed and are not done, by record id."""

    def __init__(self, changes: ChangeSet) -> None:
        self.by_record_id: dict[int, Failure] = {}
        """Failures by record id. Read-only for other classes."""
        self._rows = ChangedRows(changes, partial(record_row_key, FAILURE_ROW), self.by_record_id.get)

    def load(self, rows: Mapping[bytes, bytes], ends: Mapping[int, int]) -> None:
        """Load the stored failures, except those of records beyond the ends of the logs. Raises CorruptLogError."""
        for key, value in rows.items():
            if not key.startswith(FAILURE_ROW):
                continue
            record_id = record_id_in(key)
            failure = decode(key, value, Failure)
            if failure.count < 0 or failure.state not in (RETRYING, BLOCKED, PARKED, EXHAUSTED):
                raise CorruptLogError(f"the queue row under key {key.hex()} is no failure")
            self._rows.load(record_id)
            if record_id & OFFSET_MASK < ends.get(partition_of(record_id), OFFSET_MASK):
                self.by_record_id[record_id] = failure
            else:
                self._rows.changed(record_id)

    def add(self, record_id: int, reason: str, wall_ms: int) -> Failure:
        """Record a failed attempt. The caller then sets the due time by `delay`, or the state by `set_state`."""
        known = self.by_record_id.get(record_id)
        reason = reason[:MAX_REASON_CHARACTERS]
        if known is None:
            known = Failure(1, wall_ms, wall_ms, wall_ms, 0, RETRYING, (reason,))
            self.by_record_id[record_id] = known
        else:
            known.count += 1
            known.last_ms = wall_ms
            known.reasons = (*known.reasons, reason)[-MAX_REASONS:]
        self._rows.changed(record_id)
        return known

    def delay(self, record_id: int, seconds: float, wall_ms: int) -> None:
        """Set how long a failed record waits for its next attempt."""
        failure = self.by_record_id[record_id]
        failure.state = RETRYING
        failure.delay_ms = int(seconds * 1000)
        failure.due_ms = wall_ms + failure.delay_ms
        self._rows.changed(record_id)

    def set_state(self, record_id: int, state: int) -> None:
        self.by_record_id[record_id].state = state
        self._rows.changed(record_id)

    def get(self, record_id: int) -> Failure | None:
        return self.by_record_id.get(record_id)

    def count(self, record_id: int) -> int:
        """Return the number of failed attempts at a record."""
        failure = self.by_record_id.get(record_id)
        return 0 if failure is None else failure.count

    def forget(self, record_id: int) -> None:
        """Forget the failures of a record that is done, or whose attempts begin anew."""
        if self.by_record_id.pop(record_id, None) is not None:
            self._rows.changed(record_id)

    def forget_all(self, record_ids: Iterable[int]) -> None:
        for record_id in record_ids:
            self.forget(record_id)

    def items(self) -> Iterable[tuple[int, Failure]]:
        return self.by_record_id.items()

    def record_ids(self) -> Iterable[int]:
        return self.by_record_id.keys()

    def __len__(self) -> int:
        return len(self.by_record_id)
