"""The index of what waits: lanes with their heads and successors, and what of them is ready.

With an ordering, all records of one ordering key form a lane: a head and, behind it, the places of its successors in
the order of their admission. Records without an ordering key are lanes of their own that no key finds. Without any
ordering there are *runs* of consecutive offsets instead, and a lane only for a record that comes back alone.

`ready` is the line in which lanes and runs wait for workers, first come, first served: a lane whose record is done
goes to the end of the line, so a hot key cannot starve others, and what was handed back unworked goes to its front.
Every entry of it is ready: a lane that is held or in flight is not in the line.

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

import msgspec

READY: Final = 0
IN_FLIGHT: Final = 1
WAITING: Final = 2
"""For a time: its backoff, or the not-before time of its head."""
BLOCKED: Final = 3
PARKED: Final = 4
DEAD_LETTERING: Final = 5

STATE_NAMES: Final = ("ready", "in flight", "waiting", "blocked", "parked", "dead-lettering")

NO_PLACE: Final = -1
CHUNK_RECORDS: Final = 512
CHUNKS_IN_MEMORY: Final = 16
MAX_KEY_BYTES: Final = 256
_SHOWN_BYTES: Final = 64


def lane_key(ordering_key: bytes) -> bytes:
    """The key by which a lane is kept: the ordering key or, of one of more than 256 bytes, its beginning and a hash.

    So no number of long keys fills the memory. The shell gives `Queue.admit` these, made off the event loop.
    """
    if len(ordering_key) <= MAX_KEY_BYTES:
        return ordering_key
    return ordering_key[:_SHOWN_BYTES] + hashlib.blake2b(ordering_key, digest_size=32).digest()


class ChunkStore(Protocol):
    """Where chunks of places are kept that are not needed soon. Disposable: a start begins with an empty one."""

    def put(self, places: array[int]) -> int:
        """Keep 512 places, and return by which number they are found."""
        ...

    def take(self, number: int) -> array[int]:
        """Return what was put under this number, and forget it."""
        ...

    def drop(self, number: int) -> None: ...


class Lane(msgspec.Struct, gc=False, eq=False):
    """Records of one ordering key, of which only the head may be handed out."""

    key: bytes | None
    head: int
    """NO_PLACE only in a parked lane none of whose records is admitted yet."""
    state: int
    tail: array[int] | None = None
    """The last successors; None or not empty, as `chunks`."""
    chunks: deque[array[int] | int] | None = None
    """The successors before those, last first, 512 each but for the first chunk, which is consumed; a number: in the
    store."""

    def __len__(self) -> int:
        """The records of the lane, its head included."""
        count = (self.head != NO_PLACE) + len(self.tail or ())
        if self.chunks:
            first = self.chunks[0]
            count += (len(self.chunks) - 1) * CHUNK_RECORDS + (CHUNK_RECORDS if isinstance(first, int) else len(first))
        return count


class Run(msgspec.Struct, gc=False, eq=False):
    """Consecutive records without an order among them, `start` to before `end`."""

    start: int
    end: int
    redelivered: bool


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
        put = enter or self.ready.append
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
        """Put a lane at the end of the line."""
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

    # --- going on ----------------------------------------------------------------------------------------------------

    def advance(self, lanes: Iterable[Lane], attention: set[int], enter: Callable[[Lane], None]) -> None:
        """The heads of lanes are done: their successors become heads, and ready.

        A new head in `attention` is given to `enter` instead, which puts the lane where it belongs. A lane without
        a successor is no more.
        """
        by_key = self._by_key
        append = self.ready.append
        for lane in lanes:
            tail = lane.tail
            if lane.chunks is not None:
                lane.head = self._pop_from_chunk(lane, lane.chunks)
            elif tail is not None:
                lane.head = tail.pop(0)
                if not tail:
                    lane.tail = None
            else:
                if lane.key is not None:
                    del by_key[lane.key]
                continue
            if attention and lane.head in attention:
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
        first = chunks[0]
        if isinstance(first, int):
            assert self._store is not None
            first = chunks[0] = self._store.take(first)
        place = first.pop()
        if not first:
            chunks.popleft()
            if not chunks:
                lane.chunks = None
                del self._long[id(lane)]
        return place

    def clear(self) -> None:
        """Forget everything."""
        for lane in self._long.values():
            for chunk in lane.chunks or ():
                if isinstance(chunk, int) and self._store is not None:
                    self._store.drop(chunk)
        self._long.clear()
        self._by_key.clear()
        self.ready.clear()
        self._runs = self._records_in_runs = 0
