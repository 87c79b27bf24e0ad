"""A convoy without a broker: records arrive, run, fail, end and are committed in any order; the convoy dies, its
partition goes and comes back. What must hold is checked at each step.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping
from typing import Final

from logbroker.client.convoy import done_offsets
from logbroker.client.convoy.done_offsets import MAX_TEXT_BYTES, decode
from logbroker.client.convoy.lanes import Lanes, RetryPolicy
from logbroker.client.convoy.track import Entry, RecordState, Track
from tests.anomalies import Anomaly, BrokenPromisesError

_POLICY: Final = RetryPolicy(
    max_attempts=3, backoff_initial_seconds=1, backoff_factor=2, backoff_cap_seconds=10, backoff_jitter=0.5
)
_MAX_STEPS: Final = 60_000


class Kind(enum.Enum):
    """The anomalies."""

    TWO_OF_A_KEY = "two records of a key run at once"
    OUT_OF_ORDER = "a record starts before an earlier one of its key is done"
    COMMIT_AHEAD = "a commit of records that are not done"
    REPEATED = "a record runs again although the commit said that it is done"
    TOO_LONG = "a text that the broker would refuse"
    NO_PROGRESS = "the convoy stands although nothing is blocked"


class Simulation:
    """One partition, read by one convoy after the other."""

    def __init__(self, seed: int, *, records: int, keys: int, gaps: float = 0.2, crashes: float = 0.01) -> None:
        self.rng = rng = random.Random(seed)
        self.offsets: list[int] = []
        at = rng.randrange(100)
        for _ in range(records):
            at += 1 if rng.random() > gaps else rng.randint(1, 5)
            self.offsets.append(at)
        self.keys: dict[int, str | None] = {
            offset: None if rng.random() < 0.1 else f"key {rng.randrange(keys)}" for offset in self.offsets
        }
        self.crashes = crashes
        self.handled: set[int] = set()
        self.committed = self.offsets[0], ""
        self.widest = 0
        """The largest distance of a record that ran from the first one that was not done."""
        self.lives = 0
        self._begin()

    def _begin(self) -> None:
        self.lives += 1
        offset, text = self.committed
        done = decode(text, offset)
        self.known = set() if done is None else {each for first, end in done.ranges for each in range(first, end)}
        self.track = Track("partition", offset, done)
        self.lanes = Lanes(_POLICY, max_records=self.rng.choice([20, 300]), max_bytes=1 << 30)
        self.to_read = [each for each in reversed(self.offsets) if each >= offset]
        self.done_here = set[int]()
        self.running: list[Entry] = []
        self.now = 0.0

    def run(self) -> None:
        """Play until all is handled and committed."""
        for _ in range(_MAX_STEPS):
            self._step()
            if self.committed[0] > self.offsets[-1]:
                return
        self._wrong(Kind.NO_PROGRESS, f"{len(self.handled)} of {len(self.offsets)} are handled")

    def _step(self) -> None:
        rng = self.rng
        chance = rng.random()
        if chance < self.crashes:
            self._begin()
        elif chance < self.crashes * 2:
            self._leave_and_stay()
        elif chance < 0.3:
            self._read(rng.randint(1, 30))
        elif chance < 0.6:
            self._start()
        elif chance < 0.9 and self.running:
            self._end(self.running.pop(rng.randrange(len(self.running))))
        elif chance < 0.94:
            self._commit()
        else:
            self.now += rng.expovariate(0.3)
            self.lanes.tick(self.now)
            for entry in list(self.lanes.blocked):
                if rng.random() < 0.3:
                    self.lanes.resume(entry)

    def _read(self, count: int) -> None:
        for _ in range(min(count, self.lanes.room[0], len(self.to_read))):
            offset = self.to_read.pop()
            if self.track.is_done(offset, 0):
                self.track.skip(offset, 0)
            else:
                self.lanes.add(Entry(self.track, offset, self.keys[offset], "record", 1))

    def _start(self) -> None:
        entry = self.lanes.start()
        if entry is None:
            return
        key, offset = entry.key, entry.offset
        if key is not None:
            if any(other.key == key for other in self.running):
                self._wrong(Kind.TWO_OF_A_KEY, f"{key} at {offset}")
            earlier = [each for each in self.offsets if each < offset and self.keys[each] == key]
            if not self.handled.issuperset(earlier):
                self._wrong(Kind.OUT_OF_ORDER, f"{key} at {offset}")
        if offset in self.known:
            self._wrong(Kind.REPEATED, f"{offset}")
        self.widest = max(self.widest, offset - (self.track.floor or 0))
        self.running.append(entry)

    def _end(self, entry: Entry) -> None:
        if self.rng.random() < 0.1:
            if self.lanes.failed(entry, ValueError("no"), self.now):
                self.lanes.block(entry)
        else:
            if entry.state is RecordState.RUNNING:
                self.handled.add(entry.offset)
                self.done_here.add(entry.offset)
            self.lanes.done(entry)

    def _commit(self) -> None:
        floor = self.track.floor
        assert floor is not None
        text = self.track.text(floor)
        if len(text.encode()) > MAX_TEXT_BYTES:
            self._wrong(Kind.TOO_LONG, f"{len(text)}")
        done = decode(text, floor)
        assert (done is None) == (text == "")
        ranges = [] if done is None else done.ranges
        claimed = {each for first, end in ranges for each in range(first, end)}
        ahead = [each for each in self.offsets if (each < floor or each in claimed) and each not in self.handled]
        if ahead:
            self._wrong(Kind.COMMIT_AHEAD, f"{floor} is committed, and {ahead[:3]} are not done")
        # What is done and not said would be repeated after a crash.
        unsaid = [each for each in self.known if each >= floor and each not in claimed]
        if unsaid:
            self._wrong(Kind.REPEATED, f"{unsaid[:3]} were known to be done")
        missing = sorted(each for each in self.done_here if each >= floor and each not in claimed)
        if missing:
            self._wrong(Kind.REPEATED, f"{missing[:3]} are done, and the commit does not say so")
        self.committed = floor, text

    def _leave_and_stay(self) -> None:
        """Let the partition be revoked, and then stay after all."""
        self.lanes.hold(self.track)
        for _ in range(self.rng.randrange(4)):
            if self.running:
                self._end(self.running.pop())
        self.lanes.drop(self.track)
        for entry in self.running:
            self.lanes.done(entry)  # It ends later, which does not count.
        self.running = []
        assert (self.lanes.records, self.lanes.running, self.lanes.bytes) == (0, 0, 0)
        self.track = self.track.again()
        floor = self.track.floor
        assert floor is not None
        self.to_read = [each for each in reversed(self.offsets) if each >= floor]

    def _wrong(self, kind: Kind, text: str) -> None:
        raise BrokenPromisesError([str(Anomaly(kind, text))], {kind})


def limits(payload_bytes: int) -> Mapping[str, int]:
    """Return the limits of a text as small as this, by the names of the module."""
    return {"MAX_PAYLOAD_BYTES": payload_bytes, "MAX_BITMAP_OFFSETS": payload_bytes * 8}


assert limits(done_offsets.MAX_PAYLOAD_BYTES)["MAX_BITMAP_OFFSETS"] == done_offsets.MAX_BITMAP_OFFSETS
