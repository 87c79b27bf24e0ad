"""One strip of the lanes experiment: the waiting records of a queue, its busy workers, and the order in which records
were finished. No I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

import msgspec

from logbroker.tools.experiments import metrics
from logbroker.tools.experiments.metrics import Finish, busy_shares, percentile

RECENT: Final = 512
"""Maximum number of finished records that the line "finished" of the live display can show."""
_WINDOW_SECONDS: Final = 0.5
"""The shortest time over which the live throughput and the busy workers are counted."""
_WINDOW_WORKS: Final = 4.0
"""The same window as a multiple of the work time of a record, because work is reported only when it is finished."""
_SETTLED_SECONDS: Final = 0.3
"""The time after which all workers have surely reported a finished record. It is six times their report interval."""


class StripPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A queue group to drain: its ordering, and the key of each record by position."""

    name: str
    ordering: str
    workers: int
    keys: Sequence[int]
    """The key within which each record is in order: its second key, if its key is split."""
    key_count: int
    sent_keys: Sequence[int] = ()
    """The key with which each record is sent. Empty: `keys`."""
    split_into: int = 0
    """Number of sub-lanes into which the hot key is split, by the second key. 0: it is not split."""

    @property
    def record_keys(self) -> Sequence[int]:
        """The key with which each record is sent."""
        return self.sent_keys or self.keys


class StripMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one strip. Times are in ms from the moment at which its records were sent, all at once."""

    name: str
    ordering: str
    keys: int
    """Number of keys within which order is checked: second keys, if a key is split."""
    hottest_key_share: float
    """The share of all records that the most frequent key has, split or not."""
    split_into: int
    """Number of sub-lanes into which the hottest key is split. 0: it is not split."""
    workers: int
    records: int
    seconds: float
    records_per_second: float
    violations: int
    """Number of records that were finished after a later record of their key."""
    violated_keys: int
    idle_share: float
    """The idle share of the workers' time."""
    mean_busy_workers: float
    work_ms_mean: float
    """The measured work time. A sleep lasts a little longer than requested."""
    wait_ms_p50: float
    """Time until a worker began to work on the record."""
    wait_ms_p99: float
    finish_ms_p50: float
    """Time until the work on the record was finished."""
    finish_ms_p99: float
    repeats: int
    """Deliveries of a record that had been finished before."""


class Strip:
    """The state of one strip. Records have positions from 0 on: their offsets in the one partition."""

    def __init__(self, plan: StripPlan) -> None:
        self.plan = plan
        self.begun = 0.0
        """The time at which the records were sent, on the monotonic clock."""
        self.finishes: list[Finish] = []
        """The first finish of each record, in the order of time."""
        self.recent: deque[tuple[int, bool]] = deque(maxlen=RECENT)
        """The positions that were finished last. The flag says whether a later record of the same key was finished
        before."""
        self.violations = 0
        self.repeats = 0
        self._told: list[Finish] = []
        self._done = bytearray(len(plan.keys))
        self._head = 0
        self._latest: dict[int, int] = {}

    def add(self, told: Sequence[Finish]) -> None:
        """Add the finishes that a worker reported. `look` puts them in order."""
        self._told += told

    def look(self, now: float) -> None:
        """Put the finishes in order, except the most recent ones: other workers may not have reported theirs yet."""
        self._told.sort(key=lambda finish: finish.finished)
        known = bisect_right(self._told, now - _SETTLED_SECONDS, key=lambda finish: finish.finished)
        for finish in self._told[:known]:
            self._take(finish)
        del self._told[:known]
        while self._head < len(self._done) and self._done[self._head]:
            self._head += 1

    def _take(self, finish: Finish) -> None:
        position = finish.offset
        if self._done[position]:
            self.repeats += 1
            return
        self._done[position] = 1
        self.finishes.append(finish)
        key = self.plan.keys[position]
        is_late = position < self._latest.get(key, -1)
        if is_late:
            self.violations += 1
        else:
            self._latest[key] = position
        self.recent.append((position, is_late))

    @property
    def total(self) -> int:
        return len(self.plan.keys)

    @property
    def is_done(self) -> bool:
        return len(self.finishes) == self.total

    @property
    def seconds(self) -> float:
        """Time from the sending until the last record was finished."""
        return self.finishes[-1].finished - self.begun

    @property
    def head(self) -> int:
        """The first position that is not finished."""
        return self._head

    def waiting(self, most: int) -> list[int]:
        """Return up to `most` positions that are not finished, from the head on."""
        found: list[int] = []
        position = self._head
        while len(found) < most and (position := self._done.find(0, position)) >= 0:
            found.append(position)
            position += 1
        return found

    def recent_rate(self, now: float) -> float:
        """Return the recent number of records finished per second."""
        since, now = self._window(now)
        return len(self._finished_since(since)) / (now - since)

    def recent_busy(self, now: float) -> list[float]:
        """Return the share of the recent time that each worker was at work."""
        since, now = self._window(now)
        return busy_shares(self._finished_since(since), self.plan.workers, since, now)

    def _window(self, now: float) -> tuple[float, float]:
        now = max(self.begun, now - _SETTLED_SECONDS)
        last_seconds = self.finishes[-1].finished - self.finishes[-1].begun if self.finishes else 0.0
        since = max(self.begun, now - max(_WINDOW_SECONDS, _WINDOW_WORKS * last_seconds))
        return since, max(now, since + 1e-3)

    def _finished_since(self, since: float) -> list[Finish]:
        first = len(self.finishes)
        while first and self.finishes[first - 1].finished > since:
            first -= 1
        return self.finishes[first:]

    def settle(self) -> StripMetrics:
        """Return the metrics, after all records are finished."""
        ended, seconds = self.finishes[-1].finished, self.seconds
        violated = metrics.violations((finish.offset for finish in self.finishes), self.plan.keys)
        busy = busy_shares(self.finishes, self.plan.workers, self.begun, ended)
        waits = [1e3 * (finish.begun - self.begun) for finish in self.finishes]
        ends = [1e3 * (finish.finished - self.begun) for finish in self.finishes]
        return StripMetrics(
            name=self.plan.name,
            ordering=self.plan.ordering,
            keys=self.plan.key_count,
            hottest_key_share=max(Counter(self.plan.record_keys).values()) / self.total,
            split_into=self.plan.split_into,
            workers=self.plan.workers,
            records=self.total,
            seconds=seconds,
            records_per_second=self.total / seconds,
            violations=sum(violated.values()),
            violated_keys=len(violated),
            idle_share=1 - metrics.mean(busy),
            mean_busy_workers=sum(busy),
            work_ms_mean=1e3 * metrics.mean([finish.finished - finish.begun for finish in self.finishes]),
            wait_ms_p50=percentile(waits, 0.5),
            wait_ms_p99=percentile(waits, 0.99),
            finish_ms_p50=percentile(ends, 0.5),
            finish_ms_p99=percentile(ends, 0.99),
            repeats=self.repeats,
        )
