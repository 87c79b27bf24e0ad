"""The resequencer: makes one stream, in the order of a sequence, of the records of several sources.

It does no I/O and reads no clock. Each source (a partition, a topic, a sub-lane) has a queue, and `take` merges the
queues by the sequences of their first records. Records with equal sequences come in the order in which their sources
became known.

**What a record waits for.** A source whose queue is empty may still bring a record that belongs before the next record
of the stream. The *watermark* of a source is the highest sequence that it has brought, or that `advance` was given. The
sequences of a source are expected to ascend, so no record below its watermark is expected. The next record waits for
each source that may still bring a record before it: the watermark of the source is lower than the sequence of the
record, or equal to it if the source became known earlier. The wait ends `max_wait_seconds` after the arrival of the
oldest waiting record. So silent sources, however many, delay no record for longer. A record is not late if it arrives
within that time after the first record that belongs behind it.

For a source that is known to have more records, the wait begins when its queue becomes empty. For a source that is new,
or goes on after a pause, the wait begins when `expect` is called.

**Nothing is lost, and no source is reordered.** A record leaves its queue only at the front, into the result of `take`;
apart from that, only `drop` and `restart` remove records. A record whose sequence is below that of an earlier released
record is released at once and marked as late, because there is nothing left to wait for.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from collections.abc import Sequence as List
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from logbroker.client.runtime.arguments import MAX_INT, check_bounds, check_seconds, checks_arguments
from logbroker.client.runtime.handlers import SIGNALS, check_plain, let_out
from logbroker.errors import InvalidRequestError, quoted
from logbroker.record.message_headers import header_number

R = TypeVar("R")

Sequence = int | float
SequenceOf = str | Callable[[Any], Sequence | None]
"""How to get the sequence of a record: "timestamp", the name of a header with a number in ASCII decimal, or a function.
A record without a sequence (None) gets that of the record before it in its source, or the lowest if it is the first."""

TIMESTAMP: Final = "timestamp"
DEFAULT_MAX_WAIT_SECONDS: Final = 1.0
DEFAULT_MAX_RECORDS: Final = 200_000
DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024
TAKEN_LOWEST: Final = 1000
"""Maximum number of records that `take` returns by default."""

_LOWEST: Final = -math.inf
"""The sequence of the first record of a source, if that record has none."""
_END: Final = (math.inf, math.inf)

_Place = tuple[Sequence, float]
"""A place in the merged order: a sequence, and the index of a source."""


def sequence_function(by: SequenceOf) -> Callable[[Any], Sequence | None]:
    """Return the function that gives the sequence of a record. Raises InvalidRequestError."""
    if by == TIMESTAMP:
        found: Callable[[Any], Sequence] = attrgetter("timestamp_ms")
        return found
    if isinstance(by, str):
        name = by

        def in_header(record: Any) -> int | None:
            return header_number(record.header(name))

        return in_header
    if not callable(by):
        raise InvalidRequestError(f"by takes {TIMESTAMP}, the name of a header, or a function, not {quoted(by)}")
    check_plain("the function given as by", by)
    return by


class _Batch:
    """Records that were added together."""

    __slots__ = ("arrived", "bytes", "left")

    def __init__(self, count: int, arrived: float, size_bytes: int) -> None:
        self.left = count
        """The number of these records that wait."""
        self.arrived = arrived
        self.bytes = size_bytes


class _Source(Generic[R]):
    """The records of one source that were not released yet."""

    __slots__ = ("batches", "bytes", "has_more", "index", "is_idle", "last", "low", "records", "sequences", "since")

    def __init__(self, index: int) -> None:
        self.index = index
        # Records and sequences are in separate lists, because a tuple for each record would cost garbage collection.
        self.records: deque[R] = deque()
        self.sequences: deque[Sequence] = deque()
        """The sequences of the records."""
        self.batches: deque[_Batch] = deque()
        """The batches in which the records were added."""
        self.bytes = 0
        self.last: Sequence = _LOWEST
        """The sequence of the record that was added last."""
        self.low: Sequence = _LOWEST
        """The watermark: no record with a lower sequence is expected."""
        self.since = -math.inf
        """The wait for the source's next record does not begin before this time."""
        self.has_more = False
        """Whether more records are known to be on their way."""
        self.is_idle = False


_PER_RECORD: Final = ("expect", "add", "add_all", "advance", "idle", "drop", "held", "is_full", "take", "release")


@checks_arguments(*_PER_RECORD)
class Resequencer(Generic[R]):
    """Makes one ordered stream of the records of several sources: of partitions, topics, or sub-lanes.

    resequencer = Resequencer(by="number")
    for source in ("a", "b"):
        resequencer.expect(source, monotonic())
    ...
    resequencer.add("a", record, monotonic())
    for record, late in resequencer.take(monotonic()):
        ...

    A source is anything hashable. `now` is in seconds, by any clock that does not go back. After `take`, call it again
    when something was added, or at `deadline`.

    The waiting records are in memory, and `add` checks no bound: stop adding to a source while it `is_full`.
    """

    def __init__(
        self,
        by: SequenceOf = TIMESTAMP,
        *,
        max_wait_seconds: float = DEFAULT_MAX_WAIT_SECONDS,
        max_records: int = DEFAULT_MAX_RECORDS,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        """`by` gives the sequence of a record: "timestamp", the name of a header that holds it in ASCII decimal, or a
        function of the record that returns a number, or None if the record has none. `max_wait_seconds` bounds how long
        a record waits for sources that are silent. `max_records` and `max_bytes` (of keys, values and headers) are the
        bounds of `is_full`. Raises InvalidRequestError."""
        check_seconds(shortest=0, max_wait_seconds=max_wait_seconds)
        check_bounds(1, MAX_INT, max_records=max_records, max_bytes=max_bytes)
        self._sequence_of = sequence_function(by)
        self._is_checked = by == TIMESTAMP
        """Whether each record is known to have a number."""
        self._wait = max_wait_seconds
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._sources: dict[Hashable, _Source[R]] = {}
        self._by_index: list[_Source[R]] = []
        self._heads: list[tuple[Sequence, int]] = []
        """A heap: the sequence of the first record of each queue that is not empty, and the index of its source."""
        self._awaited: dict[int, _Source[R]] = {}
        """The sources whose queues are empty, by their index, unless they are idle."""
        self._high: Sequence = _LOWEST
        """The highest sequence that was released."""
        self._high_before: Sequence = _LOWEST
        """The same before the last release."""
        self._last_places: list[tuple[Sequence, int]] = []
        """The sequences of the records that were released last, and the indexes of their sources."""
        self._last_of: dict[int, Sequence] = {}
        """For each source, by index: the sequence of its last record that was released before those. Kept only where a
        record may have none."""
        self._now = -math.inf
        self._records = self._bytes = 0

    def __len__(self) -> int:
        """Return the number of records that wait."""
        return self._records

    def expect(self, source: Hashable, now: float) -> None:
        """Wait for records of this source from now on, because it begins or goes on after a pause. A source to which
        records were added needs no such call."""
        found = self._source(source)
        found.since, found.is_idle = max(now, found.since), False
        if not found.records:
            self._awaited[found.index] = found

    def _source(self, source: Hashable) -> _Source[R]:
        found = self._sources.get(source)
        if found is None:
            found = self._sources[source] = _Source(len(self._by_index))
            self._by_index.append(found)
            self._awaited[found.index] = found
        return found

    def add(self, source: Hashable, record: R, now: float) -> None:
        """Add a record behind those that its source has brought before. Raises TypeError or InvalidRequestError, and
        adds nothing, if its sequence is no number."""
        self.add_all(source, [record], now)

    def add_all(
        self,
        source: Hashable,
        records: Iterable[R],
        arrived: float,
        *,
        has_more: bool = False,
        size_bytes: int | None = None,
    ) -> None:
        """Add records of one source, in their order. `arrived` is when they arrived, or were known to be there. With
        `has_more`, more records of the source are known to be on their way. `size_bytes` is their size; None takes the
        sum of their attribute `size_bytes`, as far as they have one."""
        found = self._source(source)
        if not isinstance(records, List):
            records = list(records)
        sequences = self._sequences_of(records, found.last)
        found.has_more = has_more
        if not records:
            found.since = max(found.since, self._now) if has_more else -math.inf
            return
        if size_bytes is None:
            size_bytes = sum(getattr(record, "size_bytes", 0) for record in records)
        found.is_idle = False
        if not found.records:
            self._awaited.pop(found.index, None)
            heappush(self._heads, (sequences[0], found.index))
        found.records.extend(records)
        found.sequences.extend(sequences)
        found.batches.append(_Batch(len(records), arrived, size_bytes))
        found.last, found.low = sequences[-1], max(found.low, max(sequences))
        found.bytes += size_bytes
        self._bytes += size_bytes
        self._records += len(records)

    def _sequences_of(self, records: List[R], last: Sequence) -> list[Sequence]:
        if self._is_checked:
            return list(map(self._sequence_of, records))  # type: ignore[arg-type]
        given: list[Any] = []
        try:
            for record in records:
                given.append(self._sequence_of(record))  # noqa: PERF401 (a comprehension is no faster here)
        except SIGNALS as error:
            raise let_out("the function given as by", error) from error
        for index, sequence in enumerate(given):
            if sequence is None:
                given[index] = last
            elif type(sequence) is not int:
                _check_sequence(sequence)
            last = given[index]
        return given

    def advance(self, source: Hashable, sequence: Sequence) -> None:
        """Raise the watermark of a source: expect no record of it with a sequence below this one. Raises TypeError or
        InvalidRequestError if it is no number."""
        _check_sequence(sequence, "a watermark must be a number")
        found = self._sources.get(source)
        if found is not None and sequence > found.low:
            found.low = sequence

    def idle(self, source: Hashable) -> None:
        """Wait for no record of this source until it brings one. Its records that were added are still released."""
        found = self._sources.get(source)
        if found is not None:
            found.is_idle = True
            self._awaited.pop(found.index, None)

    def drop(self, source: Hashable) -> int:
        """Forget the records of this source, and its watermark, because they are going to be added again, or are not
        wanted any more. Return their number."""
        found = self._sources.get(source)
        if found is None:
            return 0
        count = len(found.records)
        self._forget(found)
        if count:
            self._find_heads()
        self.expect(source, self._now)
        return count

    def _forget(self, source: _Source[R]) -> None:
        self._records -= len(source.records)
        self._bytes -= source.bytes
        source.records.clear()
        source.sequences.clear()
        source.batches.clear()
        source.bytes, source.low, source.has_more = 0, _LOWEST, False
        source.last = self._last_of.get(source.index, _LOWEST)
        if not source.is_idle:
            self._awaited[source.index] = source

    def restart(self, handed_on: int) -> None:
        """Forget the records that wait, and the watermarks of their sources. Of the records that were released last,
        only the first `handed_on` count as released: the caller did not hand on the others, and adds them again.

        Raises InvalidRequestError if fewer records were released.
        """
        if not 0 <= handed_on <= len(self._last_places):
            raise InvalidRequestError(
                f"{handed_on} records cannot have been handed on: {len(self._last_places)} were released last"
            )
        handed_on_places, rest = self._last_places[:handed_on], self._last_places[handed_on:]
        self._high = max(self._high_before, max((sequence for sequence, _ in handed_on_places), default=_LOWEST))
        self._note(handed_on_places)
        released_indexes = {index for _, index in rest}
        for each in self._by_index:
            if each.records or each.index in released_indexes:
                self._forget(each)
        self._heads, self._last_places, self._high_before = [], [], self._high

    def _note(self, places: List[tuple[Sequence, int]]) -> None:
        """Note the last sequence of each source, for records without one that follow."""
        if not self._is_checked:
            self._last_of.update((index, sequence) for sequence, index in places)

    def _find_heads(self) -> None:
        self._heads = [(each.sequences[0], each.index) for each in self._by_index if each.sequences]
        heapify(self._heads)

    def held(self, source: Hashable) -> int:
        """Return the number of records of this source that wait."""
        found = self._sources.get(source)
        return 0 if found is None else len(found.records)

    def is_full(self, source: Hashable) -> bool:
        """Whether to add no more records of this source for now: a bound is reached, and the source has its share of
        the waiting records. A source without waiting records is never full, because other records may wait for it."""
        found = self._sources.get(source)
        if found is None or not found.records:
            return False
        sharers = len(self._sources)
        return (self._records >= self._max_records and len(found.records) * sharers >= self._max_records) or (
            self._bytes >= self._max_bytes and found.bytes * sharers >= self._max_bytes
        )

    def portion(self, sources: int) -> tuple[int, int]:
        """Return how many records, and how many bytes of them, to add at once for one of so many sources. If no source
        gets more, all that waits stays within twice the bounds."""
        sharers = max(1, sources)
        # Rounded up, so that a source with its share is full.
        return (
            max(self._max_records - self._records, -(-self._max_records // sharers)),
            max(self._max_bytes - self._bytes, -(-self._max_bytes // sharers)),
        )

    @property
    def deadline(self) -> float | None:
        """The time at which `take` releases the next record at the latest, or None if no record waits. If this time is
        over, `take` releases a record now."""
        if not self._heads:
            return None
        place = self._heads[0]
        if place[0] >= self._high:
            since = [each.since for each in self._awaited.values() if (each.low, each.index) <= place]
            if since:
                return max(self._oldest(), *since) + self._wait
        return self._now

    def take(self, now: float, max_records: int = TAKEN_LOWEST) -> list[tuple[R, bool]]:
        """Release records: return those whose turn has come, in their order, and for each whether it is late."""
        records, late = self.release(now, max_records)
        marks = [False] * len(records)
        for index in late:
            marks[index] = True
        return list(zip(records, marks, strict=True))

    def release(self, now: float, max_records: int = TAKEN_LOWEST) -> tuple[list[R], list[int]]:
        """Release records as `take` does. Return them, and the indexes of those that are late."""
        now = self._now = max(now, self._now)
        self._note(self._last_places)
        wait, heads, awaited = self._wait, self._heads, self._awaited
        taken: list[R] = []
        late: list[int] = []
        places: list[tuple[Sequence, int]] = []
        # The next record of an awaited source comes at or behind the place (watermark, index). `waits_new` is the first
        # of these places. `waits_all` is the first place of a source whose wait began less than `max_wait_seconds` ago
        # (`since`). A record before `waits_new` is released, and a record behind `waits_all` waits. A record between
        # the two waits only if it is new (`_is_new`).
        waits_all = waits_new = _END
        for each in awaited.values():
            place: _Place = (each.low, each.index)
            if place < waits_new:
                waits_new = place
            if place < waits_all and each.since + wait > now:
                waits_all = place
        high = self._high_before = self._high
        while heads and len(taken) < max_records:
            head = heads[0]
            sequence, index = head
            source = self._by_index[index]
            if sequence < high:
                late.append(len(taken))
            elif head > waits_all or (head > waits_new and self._is_new(source, now)):
                break
            else:
                high = sequence
            sequences = source.sequences
            sequences.popleft()
            taken.append(source.records.popleft())
            batch = source.batches[0]
            places.append(head)
            batch.left -= 1
            if not batch.left:
                source.batches.popleft()
                source.bytes -= batch.bytes
                self._bytes -= batch.bytes
            if sequences:
                heapreplace(heads, (sequences[0], index))
                continue
            heappop(heads)
            if source.has_more:
                source.since = now
            if not source.is_idle:
                awaited[index] = source
                place = (source.low, index)
                waits_new = min(waits_new, place)
                if source.since + wait > now:
                    waits_all = min(waits_all, place)
        self._high = high
        self._last_places = places
        self._records -= len(taken)
        return taken, late

    def _is_new(self, source: _Source[R], now: float) -> bool:
        """Whether the first record of this source, and every other waiting record, has waited for less than
        `max_wait_seconds`."""
        return source.batches[0].arrived + self._wait > now and self._oldest() + self._wait > now

    def _oldest(self) -> float:
        """Return the arrival time of the oldest waiting record. This time decides even if that record is not the next
        one: when its wait is over, the records before it are released, too."""
        return min(self._by_index[index].batches[0].arrived for _, index in self._heads)


def _check_sequence(sequence: object, rule: str = "the sequence of a record must be a number or None") -> None:
    if isinstance(sequence, bool) or not isinstance(sequence, int | float):
        raise TypeError(f"{rule}, not {quoted(sequence)}")
    if math.isnan(sequence):
        raise InvalidRequestError(f"{rule}, not NaN")
