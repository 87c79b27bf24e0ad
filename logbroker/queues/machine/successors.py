"""The successors of lanes: the record ids behind the head, in the order of their admission.

The last successors are in the lane's tail, the earlier ones in chunks of 512. Chunks beyond the first 16 of a lane go
to a `ChunkStore` if there is one: then a key with millions of waiting records takes only 64 KiB of memory.

If a chunk cannot be read back, the lane seems to end before it, and `is_broken` is set: the index must be rebuilt
before anything else is handed out.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from logbroker.queues.model.lane import CHUNK_RECORDS, Lane

CHUNKS_IN_MEMORY: Final = 16


class ChunkStore(Protocol):
    """Keeps chunks of record ids that are not needed soon. Disposable: a start begins with an empty store."""

    def put(self, record_ids: array[int]) -> int:
        """Store a chunk of 512 record ids, and return the number of the chunk."""
        ...

    def take(self, number: int) -> array[int] | None:
        """Return the chunk with this number, and forget it; None: it cannot be read."""
        ...

    def drop(self, number: int) -> None: ...

    def close(self) -> None:
        """Discard all chunks. They cannot be read afterwards."""
        ...


class Successors:
    """The successors of all lanes of a queue group."""

    def __init__(self, store: ChunkStore | None) -> None:
        self._store = store
        self._long: dict[int, Lane] = {}
        """Lanes that have chunks, by identity. No other lane can have many waiting records."""
        self.is_broken = False
        """Whether a chunk cannot be read."""

    def long_lanes(self) -> Iterable[Lane]:
        """Return all lanes with over 512 records, and some that once had as many."""
        return self._long.values()

    def append(self, lane: Lane, record_id: int) -> None:
        """Append a record to a lane."""
        tail = lane.tail
        if tail is None:
            lane.tail = array("q", (record_id,))
        else:
            tail.append(record_id)
            if len(tail) >= CHUNK_RECORDS:
                self.roll(lane, tail)

    def roll(self, lane: Lane, tail: array[int]) -> None:
        """Make the tail, which has 512 records, the last chunk."""
        chunks = lane.chunks
        if chunks is None:
            chunks = lane.chunks = deque()
            self._long[id(lane)] = lane
        tail.reverse()  # Records are popped from the end, which is cheap.
        chunks.append(tail if self._store is None or len(chunks) < CHUNKS_IN_MEMORY else self._store.put(tail))
        lane.tail = None

    def peek(self, lane: Lane, count: int) -> list[int]:
        """Return about `count` first successors, as whole chunks; fewer if a chunk cannot be read."""
        found: list[int] = []
        chunks = lane.chunks or deque()
        for index in range(len(chunks)):
            chunk = self._chunk(chunks, index) if len(found) < count else None
            if chunk is None:
                return found
            found += reversed(chunk)
        found += lane.tail or ()
        return found

    def pop(self, lane: Lane) -> int | None:
        """Take the first successor; None: there is none."""
        if lane.chunks is not None:
            return self.pop_from_chunk(lane, lane.chunks)
        if lane.tail is None:
            return None
        record_id = lane.tail.pop(0)
        lane.tail = lane.tail or None
        return record_id

    def pop_from_chunk(self, lane: Lane, chunks: deque[array[int] | int]) -> int | None:
        """Take the first successor of a lane that has chunks; None: it cannot be read."""
        first = self._chunk(chunks, 0)
        if first is None:
            return None
        record_id = first.pop()
        if not first:
            chunks.popleft()
            if not chunks:
                lane.chunks = None
                del self._long[id(lane)]
        return record_id

    def push(self, lane: Lane, record_id: int) -> None:
        """Put a record before all successors."""
        if lane.chunks is not None:
            first = self._chunk(lane.chunks, 0)
            if first is not None:
                first.append(record_id)
        elif lane.tail is not None:
            lane.tail.insert(0, record_id)
        else:
            lane.tail = array("q", (record_id,))

    def _chunk(self, chunks: deque[array[int] | int], index: int) -> array[int] | None:
        """Return a chunk, which is then in memory; None: it cannot be read."""
        kept = chunks[index]
        if not isinstance(kept, int):
            return kept
        assert self._store is not None
        chunk = self._store.take(kept)
        if chunk is None:
            self.is_broken = True
        else:
            chunks[index] = chunk
        return chunk

    def close(self) -> None:
        """Discard the records that are stored outside of memory, because no record is handed out any more."""
        if self._store is not None:
            self._store.close()

    def clear(self) -> None:
        self.is_broken = False
        for lane in self._long.values():
            for chunk in lane.chunks or ():
                if isinstance(chunk, int) and self._store is not None:
                    self._store.drop(chunk)
        self._long.clear()
