"""The queues of a convoy, one per key: which record may run now, and what becomes of a record that fails.

A state machine without I/O. Times are monotonic seconds that callers pass in. A *lane* is the line of records of one
key in one partition. (A dash: does not happen in this state.)

    state     start    done  interrupted  delay     block    tick     resume   skip     hold  drop  lost
    WAITING   RUNNING  -     -            -         -        -        -        -        GONE  GONE  LOST
    RUNNING   -        DONE  WAITING      RETRYING  BLOCKED  -        -        -        -     GONE  LOST
    RETRYING  -        -     -            -         -        WAITING  -        -        GONE  GONE  LOST
    BLOCKED   -        -     -            -         -        -        WAITING  RUNNING  GONE  GONE  LOST

The columns are methods of `Lanes`. `failed` calls `delay`, or leaves the record RUNNING if its attempts are used up.
Then the caller decides. The caller of `skip` acks the record at its source, and then calls `done`.

Why records of a key run one at a time and in order: only the first record of a lane is ever in `_ready`, `_far`,
`_delayed` or `blocked`, or RUNNING. When it is DONE or LOST, its successor becomes the first. A record without a key is
a lane of its own.

Why nothing that runs is committed: the floor of a track is at most the offset of each of its records that is not DONE.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from typing import Final

import msgspec

from logbroker.client.convoy.track import Entry, RecordState, Track

_KEPT: Final = frozenset((RecordState.RUNNING, RecordState.DONE, RecordState.GONE))
"""States of records that `hold` leaves as they are."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and when a failed record is tried again. The names are those of the settings of queue groups."""

    max_attempts: int
    backoff_initial_seconds: float
    backoff_factor: float
    backoff_cap_seconds: float
    backoff_jitter: float

    def wait_seconds(self, attempts: int) -> float:
        """Return how long to wait after this number of failed attempts."""
        try:
            seconds = self.backoff_initial_seconds * self.backoff_factor ** (attempts - 1)
        except OverflowError:
            seconds = self.backoff_cap_seconds
        return min(seconds, self.backoff_cap_seconds) * (1 - self.backoff_jitter * random.random())


class Lanes:
    """All records that a convoy has taken and not finished."""

    def __init__(self, policy: RetryPolicy, *, max_records: int, max_bytes: int) -> None:
        self.records = 0
        """Number of records that are not done."""
        self.bytes = 0
        self.running = 0
        self.finished = 0
        """Number of records that are done, including skipped ones, but not those that were done before this convoy."""
        self.failures = 0
        self.blocked: dict[Entry, None] = {}
        self._policy = policy
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._ready: deque[Entry] = deque()
        self._far: dict[Track, list[tuple[int, int, Entry]]] = {}
        """Heaps, by offset, of first records of lanes that may not start yet: the text beside the committed offset
        might have no room for them."""
        self._delayed: list[tuple[float, int, Entry]] = []
        self._sequence = 0
        """Breaks ties in heaps."""
        self._roomy = set[Track]()
        """Tracks in which a record of `_far` may be able to start now."""

    # --- what comes in ----------------------------------------------------------------------------------------------

    @property
    def room(self) -> tuple[int, int]:
        """The records and the bytes that may be added; both are 0 if there is no room."""
        records, size_bytes = self._max_records - self.records, self._max_bytes - self.bytes
        return (records, size_bytes) if records > 0 and size_bytes > 0 else (0, 0)

    @property
    def has_much_room(self) -> bool:
        """Whether at least a quarter of both limits is free. Only then the source is asked for records."""
        return self.records <= self._max_records * 3 // 4 and self.bytes <= self._max_bytes * 3 // 4

    def add(self, entry: Entry, epoch: int = 0) -> None:
        """Add the next record of its track."""
        track = entry.track
        track.add(entry, epoch)
        self.records += 1
        self.bytes += entry.size_bytes
        key = entry.key
        if key is None:
            self._ready.append(entry)
            return
        lanes = track.lanes
        last = lanes.get(key)
        lanes[key] = entry
        if last is None:
            self._ready.append(entry)
        else:
            last.successor = entry

    # --- what runs --------------------------------------------------------------------------------------------------

    @property
    def has_ready(self) -> bool:
        """Whether `start` may find a record."""
        return bool(self._ready or self._roomy)

    def start(self) -> Entry | None:
        """Return the next record to run, or None if none may start."""
        entry = self._take_far() if self._roomy else None
        while entry is None and self._ready:
            first = self._ready.popleft()
            track = first.track
            if first.state is RecordState.LOST:
                self._promote(first)
                continue
            if first.state is not RecordState.WAITING or not track.is_open:
                continue  # Its partition is being given away, or was given away or lost.
            if track.may_start(first):
                entry = first
            else:
                self._sequence += 1
                heapq.heappush(self._far.setdefault(track, []), (first.offset, self._sequence, first))
        if entry is not None:
            self._run(entry)
        return entry

    def _run(self, entry: Entry) -> None:
        entry.state = RecordState.RUNNING
        entry.track.started(entry)
        self.running += 1

    def _take_far(self) -> Entry | None:
        while self._roomy:
            track = next(iter(self._roomy))
            far = self._far.get(track, [])
            while far and far[0][2].state is not RecordState.WAITING:
                heapq.heappop(far)
            if far and track.is_open and track.may_start(far[0][2]):
                return heapq.heappop(far)[2]
            self._roomy.discard(track)
            if not far:
                self._far.pop(track, None)
        return None

    def done(self, entry: Entry) -> None:
        """Note that a record is done. Does nothing if its partition was given away or lost."""
        if entry.state is RecordState.RUNNING:
            self.running -= 1
            entry.track.running -= 1
            self._finish(entry)

    def _finish(self, entry: Entry) -> None:
        track = entry.track
        entry.state = RecordState.DONE
        entry.item = entry.error = entry.refusal = entry.settlement = entry.abandon = None
        entry.reasons = ()
        self.finished += 1
        self.records -= 1
        self.bytes -= entry.size_bytes
        track.done(entry)
        if track in self._far:
            self._roomy.add(track)
        self._promote(entry)

    def _promote(self, entry: Entry) -> None:
        """Let the next record of the key be the first of its lane."""
        if entry.key is None:
            return
        successor, entry.successor = entry.successor, None
        while successor is not None and successor.state is RecordState.LOST:
            successor = successor.successor
        if successor is None:
            del entry.track.lanes[entry.key]
        else:
            self._ready.append(successor)

    def lost(self, entry: Entry) -> None:
        """Forget a worker's record that is delivered again. The next record of its key goes on."""
        state = entry.state
        if state is RecordState.RUNNING:
            self.running -= 1
            entry.track.stopped()
        elif state is RecordState.BLOCKED:
            del self.blocked[entry]
        entry.state = RecordState.LOST
        entry.item = entry.error = entry.refusal = entry.settlement = entry.abandon = None
        self.records -= 1
        self.bytes -= entry.size_bytes
        entry.track.done(entry)
        if state is not RecordState.WAITING:
            self._promote(entry)  # It was the first of its lane. If a WAITING record is the first, `start` does this.

    def interrupted(self, entry: Entry) -> None:
        """Note that the handler of a running record has ended without a result, because the convoy ends."""
        if entry.state is RecordState.RUNNING:
            self._stop(entry, RecordState.WAITING)
            self._ready.append(entry)

    def failed(self, entry: Entry, error: Exception, now: float) -> bool:
        """Note that a running record has failed. Return whether its attempts are used up. If so, it is still RUNNING:
        call `done`, `block` or `delay` next."""
        if entry.state is not RecordState.RUNNING:
            return False
        self.failures += 1
        entry.attempts += 1
        entry.error = error
        if entry.attempts >= self._policy.max_attempts:
            return True
        self.delay(entry, now)
        return False

    def delay(self, entry: Entry, now: float) -> None:
        """Start a running record again after its backoff."""
        if entry.state is RecordState.RUNNING:
            self._stop(entry, RecordState.RETRYING)
            entry.due_at = now + self._policy.wait_seconds(entry.attempts)
            self._sequence += 1
            heapq.heappush(self._delayed, (entry.due_at, self._sequence, entry))

    def block(self, entry: Entry) -> None:
        """Block the key of a running record."""
        if entry.state is RecordState.RUNNING:
            self._stop(entry, RecordState.BLOCKED)
            self.blocked[entry] = None

    def _stop(self, entry: Entry, state: RecordState) -> None:
        entry.state = state
        entry.abandon = None
        self.running -= 1
        entry.track.stopped()
        if entry.track in self._far:
            self._roomy.add(entry.track)

    def resume(self, entry: Entry) -> None:
        """Try a blocked record again, with new attempts."""
        if entry.state is RecordState.BLOCKED:
            del self.blocked[entry]
            entry.attempts = 0
            entry.state = RecordState.WAITING
            self._ready.append(entry)

    def skip(self, entry: Entry) -> bool:
        """Make a blocked record RUNNING, so that `done` can be called. Return False if it is not blocked any more."""
        if entry.state is not RecordState.BLOCKED:
            return False
        del self.blocked[entry]
        self._run(entry)
        return True

    @property
    def next_due(self) -> float | None:
        """When the next record is to be tried again; None if none is."""
        while self._delayed and self._delayed[0][2].state is not RecordState.RETRYING:
            heapq.heappop(self._delayed)
        return self._delayed[0][0] if self._delayed else None

    def tick(self, now: float) -> None:
        """Make the records ready whose backoff is over."""
        while (due_at := self.next_due) is not None and due_at <= now:
            entry = heapq.heappop(self._delayed)[2]
            entry.state = RecordState.WAITING
            self._ready.append(entry)

    # --- partitions that go -----------------------------------------------------------------------------------------

    def hold(self, track: Track) -> list[Entry]:
        """Start no more records of a track. Forget those that do not run, and return them."""
        track.is_open = False
        gone = [entry for entry in track.nodes() if entry.state not in _KEPT]
        for entry in gone:
            if entry.state is RecordState.BLOCKED:
                del self.blocked[entry]
            self._forget(entry)
        return gone

    def drop(self, track: Track) -> list[Entry]:
        """Forget all records of a track. Return those that run: their handlers should end, and their results are
        ignored. The track still knows which records are done."""
        self.hold(track)
        ran = [entry for entry in track.nodes() if entry.state is RecordState.RUNNING]
        for entry in ran:
            self._forget(entry)
        self.running -= len(ran)
        track.running = 0
        track.lanes = {}
        self._far.pop(track, None)
        self._roomy.discard(track)
        return ran

    def _forget(self, entry: Entry) -> None:
        entry.state = RecordState.GONE
        entry.successor = None
        self.records -= 1
        self.bytes -= entry.size_bytes
