"""The index of what waits: lanes with their heads and successors, and what of them is ready.

With an ordering, all records of one ordering key form a lane: a head and, behind it, the places of its successors in
the order of their admission. Records without an ordering key are lanes of their own that no key finds. Without any
ordering there are *runs* of consecutive offsets instead, and a lane only for a record that comes back alone.

`ready` is the line in which lanes and runs wait for workers, first come, first served: a lane whose record is done
goes to the end of the line, so a hot key cannot starve others, and what was handed back unworked goes to its front.
Every entry of it is ready: a lane that is held or in flight is not in the line, nor one that a session has.

Memory: a lane takes about 110 bytes and its key, a successor 8 bytes. Successors lie in chunks of 512, of which those
beyond the first 16 of a lane go to a `ChunkStore` where there is one, so that a key with millions of records waiting
takes 64 KiB here. The cost of a delivery does not depend on how much waits.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

from logbroker.queues.holders import Session
from logbroker.queues.lane import CHUNK_RECORDS, IN_FLIGHT, IN_SESSION, NO_PLACE, PARKED, READY, Lane, Run

CHUNKS_IN_MEMORY: Final = 16
MAX_KEY_BYTES: Final = 256
SHOWN_BYTES: Final = 64


def lane_key(ordering_key: bytes) -> bytes:
    """The key by which a lane is kept: the ordering key or, of one of more than 256 bytes, its beginning and a hash.

    So no number of long keys fills the memory. The shell gives `Queue.admit` these, made off the event loop.
    """
    if len(ordering_key) <= MAX_KEY_BYTES:
        return ordering_key
    return ordering_key[:SHOWN_BYTES] + hashlib.blake2b(ordering_key, digest_size=32).digest()


class ChunkStore(Protocol):
    """Where chunks of places are kept that are not needed soon. Disposable: a start begins with an empty one."""

    def put(self, places: array[int]) -> int:
        """Keep 512 places, and return by which number they are found."""
        ...

    def take(self, number: int) -> array[int]:
        """Return what was put under this number, and forget it."""
        ...

    def drop(self, number: int) -> None: ...


class Lanes:
    """All lanes of a queue group, and the line of those that are ready."""

    def __init__(self, store: ChunkStore | None = None) -> None:
        self.ready: deque[Lane | Run] = deque()
        self._by_key: dict[bytes, Lane] = {}
        self._store = store
        self._runs = 0
        """Runs in the line."""
        self._records_in_runs = 0
        self._long: dict[int, Lane] = {}
        """Lanes that have chunks, by identity: the only ones that can hold much of what waits."""
        self.sessions: dict[bytes, Session] = {}
        """The open ones by key: their lanes never come into the line."""
        self.offered: dict[bytes, None] = {}
        """Those of them whose head can go to the holder of the session."""

    # --- what is asked -----------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> Lane | None:
        return self._by_key.get(key)

    def __iter__(self) -> Iterator[Lane]:
        """All lanes that a key finds."""
        return iter(self._by_key.values())

    @property
    def count(self) -> int:
        """How many lanes a key finds."""
        return len(self._by_key)

    @property
    def ready_records(self) -> int:
        """How many records could be handed out at once."""
        return len(self.ready) - self._runs + self._records_in_runs

    def long_lanes(self) -> Iterable[Lane]:
        """The lanes with more than 512 successors."""
        return self._long.values()

    # --- admission ---------------------------------------------------------------------------------------------------

    def admit(
        self, base: int, offsets: Iterable[int], keys: Iterable[bytes | None], enter: Callable[[Lane], None] | None
    ) -> None:
        """Put records behind those of their keys; `base` is the place of offset 0 of their partition.

        A new lane is ready, unless `enter` is given, which puts it where it belongs.
        """
        by_key = self._by_key
        get = by_key.get
        put = enter or (self.make_ready if self.sessions else self.ready.append)
        for key, offset in zip(keys, offsets, strict=True):
            lane = get(key) if key is not None else None
            if lane is None:
                lane = Lane(key, base | offset, READY)
                if key is not None:
                    by_key[key] = lane
                put(lane)
            else:
                tail = lane.tail
                if tail is None:
                    lane.tail = array("q", (base | offset,))
                else:
                    tail.append(base | offset)
                    if len(tail) >= CHUNK_RECORDS:
                        self._roll(lane, tail)

    def admit_run(self, start: int, end: int, *, redelivered: bool) -> None:
        """Put consecutive records without order at the end of the line."""
        last = self.ready[-1] if self.ready else None
        if type(last) is Run and last.end == start and last.redelivered == redelivered:
            last.end = end
            self._records_in_runs += end - start
        else:
            self._add_run(start, end, redelivered)

    def _add_run(self, start: int, end: int, redelivered: bool) -> None:
        if start < end:
            self.ready.append(Run(start, end, redelivered))
            self._runs += 1
            self._records_in_runs += end - start

    def add_parked(self, key: bytes) -> Lane:
        """Make a parked lane of which no record is admitted yet."""
        lane = self._by_key[key] = Lane(key, NO_PLACE, PARKED)
        return lane

    # --- the line ----------------------------------------------------------------------------------------------------

    def take(self, credit: int) -> list[list[Lane] | Run]:
        """Take up to `credit` records from the front of the line: lanes, now in flight, and runs."""
        ready = self.ready
        taken: list[list[Lane] | Run] = []
        if not self._runs:
            # Only lanes: the usual case with an ordering.
            lanes: list[Lane] = [ready.popleft() for _ in range(min(credit, len(ready)))]  # type: ignore[misc]
            if lanes:
                taken.append(lanes)
        else:
            lanes = []
            while credit and ready:
                entry = ready.popleft()
                if type(entry) is Lane:
                    lanes.append(entry)
                    credit -= 1
                elif type(entry) is Run:
                    if lanes:
                        taken.append(lanes)
                        lanes = []
                    run = self._take_run(entry, credit)
                    taken.append(run)
                    credit -= run.end - run.start
            if lanes:
                taken.append(lanes)
        for piece in taken:
            if type(piece) is list:
                for lane in piece:
                    lane.state = IN_FLIGHT
        return taken

    def _take_run(self, run: Run, credit: int) -> Run:
        count = run.end - run.start
        self._records_in_runs -= min(count, credit)
        if count <= credit:
            self._runs -= 1
            return run
        piece = Run(run.start, run.start + credit, run.redelivered)
        run.start += credit
        self.ready.appendleft(run)
        return piece

    def take_these(self, wanted: Sequence[int]) -> list[Lane]:
        """Take those of the `wanted` records out of the line that are in it; they are sorted. Goes through it all."""
        heads = set(wanted)
        found: list[Lane] = []
        line, self.ready = self.ready, deque()
        self._runs = self._records_in_runs = 0
        for entry in line:
            if type(entry) is Lane:
                (found if entry.head in heads else self.ready).append(entry)
            elif type(entry) is Run:
                begun = entry.start
                for place in wanted[bisect_left(wanted, entry.start) : bisect_left(wanted, entry.end)]:
                    self._add_run(begun, place, entry.redelivered)
                    found.append(Lane(None, place, IN_FLIGHT))
                    begun = place + 1
                self._add_run(begun, entry.end, entry.redelivered)
        for lane in found:
            lane.state = IN_FLIGHT
        return found

    def make_ready(self, lane: Lane) -> None:
        """Put a lane at the end of the line, or offer it to its session."""
        if lane.key is not None and lane.key in self.sessions:
            lane.state = IN_SESSION
            self.offered[lane.key] = None
        else:
            lane.state = READY
            self.ready.append(lane)

    def give_back(self, lanes: Sequence[Lane]) -> None:
        """Put lanes, in their order, at the front of the line."""
        for lane in lanes:
            lane.state = READY
        self.ready.extendleft(reversed(lanes))

    def give_back_run(self, start: int, end: int) -> None:
        """Put records that were handed out at the front of the line."""
        self.ready.appendleft(Run(start, end, True))
        self._runs += 1
        self._records_in_runs += end - start

    # --- sessions ----------------------------------------------------------------------------------------------------

    def next_key(self) -> bytes | None:
        """The key of the first lane in the line that has one. Looks through what lies before it: records without."""
        for entry in self.ready:
            if type(entry) is Lane and entry.key is not None:
                return entry.key
        return None

    def reserve(self, key: bytes) -> None:
        """Take the lane of a key that has a session now out of the line, where it is there.

        Costs 10 ns for each entry of the line before it.
        """
        lane = self._by_key.get(key)
        if lane is not None and lane.state == READY:
            self.ready.remove(lane)
            self.make_ready(lane)

    def is_behind(self, lane: Lane) -> bool:
        """Whether records of a session that lie before the lane are in flight."""
        session = self.sessions.get(lane.key) if lane.key is not None else None
        return session is not None and session.in_flight > 0

    def put_back(self, key: bytes, places: Sequence[int]) -> Lane:
        """Put records before all that waits of their key, and return the lane, whose head is the first of them."""
        lane = self._by_key.get(key)
        later = list(places)
        if lane is None:
            lane = self._by_key[key] = Lane(key, later.pop(), IN_SESSION)
        for place in reversed(later):
            if lane.chunks is not None:
                self._first_chunk(lane.chunks).append(lane.head)
            elif lane.tail is not None:
                lane.tail.insert(0, lane.head)
            else:
                lane.tail = array("q", (lane.head,))
            lane.head = place
        return lane

    # --- going on ----------------------------------------------------------------------------------------------------

    def advance(self, lanes: Iterable[Lane], attention: set[int], enter: Callable[[Lane], None]) -> None:
        """The heads of lanes are done: their successors become heads, and ready.

        A new head in `attention`, or of a session, is given to `enter` instead, which puts the lane where it belongs.
        A lane without a successor is no more.
        """
        by_key, sessions = self._by_key, self.sessions
        append = self.ready.append
        for lane in lanes:
            tail = lane.tail
            if lane.chunks is not None:
                first = lane.chunks[0]
                if type(first) is array and len(first) > 1:
                    lane.head = first.pop()  # What the call would do, without its cost.
                else:
                    lane.head = self._pop_from_chunk(lane, lane.chunks)
            elif tail is not None:
                lane.head = tail.pop(0)
                if not tail:
                    lane.tail = None
            else:
                if lane.key is not None:
                    del by_key[lane.key]
                continue
            if (attention and lane.head in attention) or (sessions and lane.key in sessions):
                enter(lane)
            else:
                lane.state = READY
                append(lane)

    def pop_head(self, lane: Lane) -> int:
        """Return the next successor of a lane, which becomes its head, or NO_PLACE; the lane stays where it is."""
        if lane.chunks is not None:
            lane.head = self._pop_from_chunk(lane, lane.chunks)
        elif lane.tail is not None:
            lane.head = lane.tail.pop(0)
            lane.tail = lane.tail or None
        else:
            lane.head = NO_PLACE
        return lane.head

    def remove(self, lane: Lane) -> None:
        """Forget a lane that is neither in the line nor in flight, and whose records are all gone."""
        if lane.key is not None:
            del self._by_key[lane.key]

    def _roll(self, lane: Lane, tail: array[int]) -> None:
        """The tail is a whole chunk: begin another."""
        chunks = lane.chunks
        if chunks is None:
            chunks = lane.chunks = deque()
            self._long[id(lane)] = lane
        tail.reverse()  # Consumed from its end, which costs the same however long it is.
        chunks.append(tail if self._store is None or len(chunks) < CHUNKS_IN_MEMORY else self._store.put(tail))
        lane.tail = None

    def _pop_from_chunk(self, lane: Lane, chunks: deque[array[int] | int]) -> int:
        first = self._first_chunk(chunks)
        place = first.pop()
        if not first:
            chunks.popleft()
            if not chunks:
                lane.chunks = None
                del self._long[id(lane)]
        return place

    def _first_chunk(self, chunks: deque[array[int] | int]) -> array[int]:
        first = chunks[0]
        if isinstance(first, int):
            assert self._store is not None
            first = chunks[0] = self._store.take(first)
        return first

    def clear(self) -> None:
        """Forget everything but the sessions."""
        for lane in self._long.values():
            for chunk in lane.chunks or ():
                if isinstance(chunk, int) and self._store is not None:
                    self._store.drop(chunk)
        self._long.clear()
        self._by_key.clear()
        self.ready.clear()
        self.offered.clear()
        self._runs = self._records_in_runs = 0
