"""Finds the records of a queue group that belong to stalled lanes, in the stored state and in the log.

A lane is stalled when it is blocked or parked, when its head has failed, or when it waits for a time or for the
dead-letter topic. The index of the state machine only has lanes that the scan has met since the last start, rewind or
alteration, and has no keys of records in flight in a session. Retention and a rewind must not miss a stalled lane. So
the search begins with the stored state: records that failed, and parked keys. If only the id of a record is stored, its
key is read from the log. Not-before times are only in the log, so records that the scan has not met are read to find
theirs.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Set
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from logbroker.engine import LogGeneration, Read, ReadableLog, ReadResult, damage_at
from logbroker.errors import (
    CorruptBatchError,
    CorruptLogError,
    InvalidRequestError,
    LogbrokerError,
    OffsetOutOfRangeError,
)
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.lane import BLOCKED, DEAD_LETTERING, PARKED, SHOWN_KEY_BYTES, WAITING, Lane
from logbroker.queues.model.record_id import offset_of, partition_of, record_id_of
from logbroker.queues.model.settings import Ordering, QueueGroupSettings
from logbroker.queues.model.splits import Keying
from logbroker.queues.records.batch_cache import BatchCache
from logbroker.queues.records.columns import NOT_BEFORE_BYTES, Columns, Undecodable, columns_of, lane_key_of
from logbroker.queues.records.decoder import in_decoder
from logbroker.queues.records.fetch import LATER, MAX_READ_BYTES, Records
from logbroker.queues.state import failures as retry
from logbroker.queues.state.completion import DoneRecords, RecordIds
from logbroker.queues.state.failures import Failure
from logbroker.record.codec import LogRecord, check_crc
from logbroker.record.stored_batch import StoredBatch, stored_batches
from logbroker.types import TopicId

MAX_KEYS: Final = 1_000_000
"""Maximum number of keys of stalled lanes. With more, every record that is not done counts as stalled."""

_STANDING: Final = frozenset((WAITING, BLOCKED, PARKED, DEAD_LETTERING))
_SOUGHT_KEYS: Final = 8
"""Maximum number of keys that are searched for in the bytes of a batch before it is decoded."""
_KEYS_AT_ONCE: Final = 256


class Standing:
    """A set of stalled records: all records of some lanes, by key, and some single records, by id."""

    def __init__(self, keying: Keying, lane_of: Callable[[bytes], bytes]) -> None:
        """`keying` decides which lane a record belongs to. `lane_of` returns the split lane of a sub-lane, and any
        other lane itself."""
        self.keying = keying
        self._lane_of = lane_of
        self.keys: set[bytes] = set()
        self.record_ids: list[int] = []
        """Record ids, sorted."""
        self.delayed: dict[bytes, int] = {}
        """End of the wait (wall clock, ms), by key, for lanes in which `sift` found a record with a not-before time."""
        self.everything = False
        """Whether every record that is not done is stalled."""

    def __bool__(self) -> bool:
        return bool(self.keys or self.record_ids or self.everything)

    def add_keys(self, keys: Iterable[bytes | None]) -> None:
        added = {key for key in keys if key is not None}
        for split in self.keying.splits.values():
            # While a lane is being split or joined, its records may wait behind records of its sub-lanes, or the
            # reverse.
            sub_lanes = split.sub_lanes()
            if split.key in added:
                added.update(sub_lanes)
            elif split.ends is not None and not added.isdisjoint(sub_lanes):
                added.add(split.key)
        self.keys |= added
        self.everything = self.everything or len(self.keys) > MAX_KEYS

    def add_record_id(self, record_id: int) -> bool:
        """Add a record; return whether it is new."""
        is_new = not self.has_record_id(record_id)
        if is_new:
            insort(self.record_ids, record_id)
        return is_new

    def add(self, keys: Iterable[bytes], record_ids: Iterable[int]) -> None:
        """Add keys and records, which may be many. May run in a thread."""
        self.add_keys(keys)
        self.record_ids = sorted({*self.record_ids, *record_ids})

    def has_record_id(self, record_id: int) -> bool:
        index = bisect_left(self.record_ids, record_id)
        return self.record_ids[index : index + 1] == [record_id]

    def offsets_in(self, partition: int, batch: StoredBatch) -> set[int]:
        """Return the offsets of those `record_ids` that lie in a batch."""
        header = batch.header
        start = bisect_left(self.record_ids, record_id_of(partition, header.base_offset))
        end = bisect_left(self.record_ids, record_id_of(partition, header.next_offset))
        return set(map(offset_of, self.record_ids[start:end]))

    def keys_may_be_in(self, batch: StoredBatch) -> bool:
        """Return whether a batch may have records of the keys. If few lanes are stalled, most batches have none."""
        if len(self.keys) > _SOUGHT_KEYS:
            return True
        try:
            plain = batch.plain()
        except LogbrokerError:
            return True  # Decoding it raises the error.
        return any(key[:SHOWN_KEY_BYTES] in plain for key in map(self._lane_of, self.keys))


class Sifted(NamedTuple):
    """Stalled records of one batch, or a batch that cannot be decoded."""

    batch: StoredBatch
    offsets: list[int]
    error: LogbrokerError | None = None
    stands: bool = False
    """Whether one of the records of a batch that cannot be decoded is known to be stalled."""


def sift(
    batches: bytes,
    partition: int,
    offsets: range,
    standing: Standing,
    settings: QueueGroupSettings,
    done: DoneRecords,
    *,
    now_ms: int | None = None,
    everything: bool = False,
    left: set[bytes] | None = None,
) -> Iterator[Sifted]:
    """Yield the records at `offsets` that are not done and are stalled; with `everything`, all that are not done. May
    run in a thread.

    A record whose not-before time is after `now_ms` is stalled, and so are the later ones of its key. `left` collects
    the keys of records that are neither done nor yielded.
    """
    base = record_id_of(partition, 0)
    for batch in stored_batches(batches):
        start, end = max(offsets.start, batch.header.base_offset), min(offsets.stop, batch.header.next_offset)
        if start >= end or next(done.undone(base | start, base | end), None) is None:
            continue
        alone = standing.offsets_in(partition, batch)
        if not (
            alone
            or everything
            or left is not None
            or standing.everything
            or (now_ms is not None and _has_not_before(batch))
            or standing.keys_may_be_in(batch)
        ):
            continue
        wanted: list[int] = []
        error: LogbrokerError | None = None
        for piece in columns_of([batch], offsets.start, settings, standing.keying, partition):
            if isinstance(piece, Undecodable):
                error = piece.error
            else:
                due_ms = {offset: due for offset, due in piece.not_before if now_ms is not None and due > now_ms}
                for offset, key in zip(piece.offsets, _keys_in(piece, settings), strict=True):
                    stands = everything or standing.everything or key in standing.keys or offset in alone
                    if not (stands or offset in due_ms or left is not None):
                        continue
                    if offset not in offsets or base | offset in done:
                        continue
                    if not (stands or offset in due_ms):
                        if left is not None and key is not None:
                            left.add(key)
                    else:
                        wanted.append(offset)
                        if offset in due_ms and key is not None:
                            standing.add_keys((key,))
                            standing.delayed[key] = max(due_ms[offset], standing.delayed.get(key, 0))
        if wanted or error is not None:
            yield Sifted(batch, wanted, error, bool(alone))


def _keys_in(piece: Columns, settings: QueueGroupSettings) -> list[bytes | None]:
    common = b"" if settings.ordering is Ordering.SINGLE else None
    return piece.keys or [common] * len(piece.offsets)


def _has_not_before(batch: StoredBatch) -> bool:
    try:
        return NOT_BEFORE_BYTES in batch.plain()
    except LogbrokerError:
        return True  # Decoding it raises the error.


class StalledBelow(NamedTuple):
    """Stalled records below an offset of a partition."""

    record_ids: RecordIds
    unreadable: int
    """Number of records that are not done and lie in damaged parts of the log: their keys are not known."""


class _Scan(NamedTuple):
    """The position of the scan at some moment."""

    spans: tuple[LogGeneration, ...]
    """Generations of the topic."""
    generation: int
    positions: dict[int, int]


class StalledRecords:
    """Finds the stalled records of one queue group."""

    def __init__(self, queue: Queue, log: ReadableLog) -> None:
        """`log` is the topic as the group reads it, copies included."""
        self._queue = queue
        self._log = log
        self._topic_id = TopicId(queue.topic_id)
        self._keyed_by: Keying | None = None
        """Keying that the keys below were read with."""
        self._keys: dict[int, bytes | None] = {}
        """Keys that the last call of `_keys_of` found, by record id."""
        self._delayed: dict[bytes, int] = {}
        """End of the delay (wall clock, ms) by key of the lane, for lanes that are delayed by a record that the scan
        had not met."""
        self._seen: dict[int, tuple[int, int]] = {}
        """Range of offsets (from, to) that was read to find delayed lanes, by partition."""

    def keyed_by(self) -> Keying:
        """Return the keying by which records belong to lanes. When this returns another object, earlier results are
        void."""
        return self._queue.splitting.keying

    # --- finding stalled records -------------------------------------------------------------------------------------

    async def standing(self, partition: int, start: int, until: int, now_ms: int) -> Standing:
        """Return the stalled records of a partition between two offsets. Records there that wait for a time are left
        for `sift` to find. Raises the error that prevents reading."""
        self._forget_other_keys()
        queue, stalled = self._queue, self._queue.stalled
        found = Standing(self.keyed_by(), self._queue.splits.lane_of)
        # The scan may go on during this search. Its position at this moment decides which records are read from the
        # log.
        spans = self._log.topic_by_id(self._topic_id).generations
        partitions = list(queue.done.partitions()) if len(spans) > 1 else [partition]
        positions = {each: queue.position(each) for each in partitions if queue.done.is_open(each)}
        scan = _Scan(spans, queue.admission.generation, positions)
        # There may be a million entries: they are only copied here, and processed in a thread.
        lists = [
            list(each)
            for each in (
                queue.failures.record_ids(),
                queue.dead_letters.intents(),
                stalled.delays.heads(),
                stalled.not_before,
            )
        ]
        replaced = list(queue.replacements.records)
        lanes = list(queue.lanes) if any(lists) else []
        found.add_keys(stalled.parked)
        unknown: set[int] = set()
        if replaced or any(lists):
            unknown = await asyncio.to_thread(set, chain.from_iterable(lists))
            found.record_ids = await asyncio.to_thread(sorted, unknown.union(replaced))
        if queue.settings.ordering is Ordering.NONE:
            return found
        if unknown:
            keys, heads = await asyncio.to_thread(_of_lanes, lanes, unknown)
            unknown -= heads
            found.add_keys(keys)
        # If a record lies behind `until` in this partition, so do the later records of its lane, and its key is not
        # needed.
        end = record_id_of(partition, until)
        unknown = {record_id for record_id in unknown if partition_of(record_id) != partition or record_id < end}
        # `sift` itself finds the records of this range that have a not-before time.
        begin = record_id_of(partition, start)
        met = {record_id for record_id in unknown if begin <= record_id < end and record_id in stalled.not_before}
        has_grown = self._has_grown()
        found.add_keys(
            await self._keys_of(unknown - met, lambda record_id, _: has_grown or partition_of(record_id) == partition)
        )
        found.add_keys(await self._delayed_before(scan, partition, start, until, now_ms))
        return found

    async def set_aside(self, targets: Mapping[int, int]) -> Standing:
        """Return the lanes and records that are set aside below some offsets, by partition: lanes that are blocked or
        parked, and records that are due for the dead-letter topic and have no intent yet. A blocked lane is left out if
        the log is damaged at its head there, and its key is not known. Raises any other error that prevents reading."""

        def is_needed(record_id: int, error: LogbrokerError) -> bool:
            is_below = offset_of(record_id) < targets.get(partition_of(record_id), 0)
            return not isinstance(error, CorruptLogError) if is_below else has_grown

        has_grown = self._has_grown()
        self._forget_other_keys()
        queue = self._queue
        found = Standing(self.keyed_by(), self._queue.splits.lane_of)
        found.add_keys(queue.stalled.parked)
        lanes, failures = list(queue.lanes), list(queue.failures.items())
        intents = set(queue.dead_letters.intents())
        aside, letters = await asyncio.to_thread(_set_aside, failures)
        found.record_ids = await asyncio.to_thread(sorted, (aside | letters) - intents)
        if aside and queue.settings.ordering is not Ordering.NONE:
            keys, heads = await asyncio.to_thread(_of_lanes, lanes, aside, frozenset((BLOCKED, PARKED)))
            found.add_keys(keys)
            found.add_keys(await self._keys_of(aside - heads, is_needed))
        return found

    def _has_grown(self) -> bool:
        """Return whether a key may have records in more than one partition, so that a record that cannot be read may
        have the key of records in any of them."""
        return self._log.topic_by_id(self._topic_id).generation > 1

    async def _keys_of(
        self, record_ids: Iterable[int], is_needed: Callable[[int, LogbrokerError], bool]
    ) -> list[bytes | None]:
        """Return the keys of records, read from the log. The key is None if a record is gone from the log or cannot be
        decoded. If a record cannot be read for another reason, the error is raised if `is_needed` returns true for the
        record and the error; otherwise the record is left out."""
        settings, keying = self._queue.settings, self.keyed_by()
        wanted = set(record_ids)
        if settings.ordering is Ordering.SINGLE and not keying.splits:
            return [b""] if wanted else []
        keys = {record_id: self._keys[record_id] for record_id in wanted & self._keys.keys()}
        unknown = sorted(wanted - keys.keys())
        fetched = Records(self._log, self._topic_id, BatchCache(0))
        while unknown:
            now, unknown = unknown[:_KEYS_AT_ONCE], unknown[_KEYS_AT_ONCE:]
            for record_id, record in zip(now, await fetched.fetch(now, MAX_READ_BYTES), strict=True):
                if record is LATER:
                    unknown.append(record_id)
                elif isinstance(record, LogRecord):
                    keys[record_id] = lane_key_of(record, settings, keying, partition_of(record_id))
                elif isinstance(record, OffsetOutOfRangeError | InvalidRequestError):
                    keys[record_id] = None  # The record is gone or cannot be decoded.
                elif is_needed(record_id, record):
                    raise record
        self._keys = keys  # Set after the reads, because another call may have run during them.
        return list(keys.values())

    # --- delayed lanes -----------------------------------------------------------------------------------------------

    async def _delayed_before(self, scan: _Scan, partition: int, start: int, until: int, now_ms: int) -> list[bytes]:
        """Return the keys of lanes that wait for the not-before time of a record that the scan had not met and that
        precedes this part of the partition: in the partition itself or, in an earlier generation, in another one."""
        await self._see(scan, partition, start, now_ms)
        later = [
            span
            for span in scan.spans[1:]
            if partition < span.partitions
            and (partition >= len(span.start_offsets) or span.start_offsets[partition] < until)
        ]
        if later and scan.generation < later[-1].generation:
            for other, end in enumerate(later[-1].start_offsets):
                if other != partition:
                    await self._see(scan, other, end, now_ms)
        self._delayed = {key: due_ms for key, due_ms in self._delayed.items() if due_ms > now_ms}
        return list(self._delayed)

    async def _see(self, scan: _Scan, partition: int, until: int, now_ms: int) -> None:
        """Read a partition up to an offset to find delayed lanes. Skip what the scan or an earlier call has read."""
        queue = self._queue
        scanned = scan.positions.get(partition)
        if scanned is None:
            return
        low, high = self._seen.get(partition, (scanned, scanned))
        if not low <= scanned <= high:
            low = high = scanned
        found = Standing(self.keyed_by(), self._queue.splits.lane_of)
        async for result in self.read(partition, high, until):
            offsets = range(high, min(until, result.next_offset))
            sifted = sift(result.batches, partition, offsets, found, queue.settings, queue.done, now_ms=now_ms)
            await in_decoder(partial(_exhaust, sifted))
            self._note_delayed(found)
            high = min(until, result.next_offset)
            self._seen[partition] = low, high

    def saw(self, partition: int, start: int, end: int, found: Standing) -> None:
        """Note that a part of a partition was sifted."""
        self._note_delayed(found)
        low, high = self._seen.get(partition, (start, start))
        if low <= start <= high < end:
            self._seen[partition] = low, end

    def forget(self, partition: int) -> None:
        """Forget which offsets of a partition were read: records that were skipped as done may no longer be done."""
        self._seen.pop(partition, None)

    def _note_delayed(self, found: Standing) -> None:
        for key, due_ms in found.delayed.items():
            self._delayed[key] = max(due_ms, self._delayed.get(key, 0))
        found.delayed.clear()

    def _forget_other_keys(self) -> None:
        if self._keyed_by is not self.keyed_by():
            self._keyed_by = self.keyed_by()
            self._keys.clear()
            self._delayed.clear()
            self._seen.clear()

    # --- reading -----------------------------------------------------------------------------------------------------

    async def read(
        self, partition: int, start: int, until: int, *, check_crc: bool = False
    ) -> AsyncGenerator[ReadResult, None]:
        """Read a partition between two offsets; begin each read at a record that is not done. After each read, sleep as
        long as it took, to leave half of the time to other work.

        Raises the error that prevents reading. With `check_crc`, this is also CorruptLogError for a damaged batch with
        records that are not done: a key in it may be another one than was written.
        """
        loop = asyncio.get_running_loop()
        done = self._queue.done
        while (offset := offset_of(done.skip_done(record_id_of(partition, start)))) < until:
            begun_at = loop.time()
            result = await self._read_at(partition, offset)
            if result is None:
                return
            if check_crc:
                wanted = range(offset, until)
                damaged = await in_decoder(partial(_first_damaged, result.batches, partition, wanted, done))
                if damaged is not None:
                    base_offset, error = damaged
                    raise await damage_at(self._log, self._topic_id, partition, base_offset) or error
            yield result
            start = result.next_offset
            # Nobody waits for this; deliveries need the interpreter more.
            await asyncio.sleep(loop.time() - begun_at)

    async def _read_as_the_scan(self, partition: int, start: int, until: int) -> AsyncGenerator[ReadResult, None]:
        """Read everything between two offsets of a partition, done records included, and check each CRC. Sleep as
        `read` does. Raises the error at which the scan will stop."""
        loop = asyncio.get_running_loop()
        while start < until:
            begun_at = loop.time()
            result = await self._read_at(partition, start, check_crc=True)
            if result is None:
                return
            yield result
            start = result.next_offset
            await asyncio.sleep(loop.time() - begun_at)

    async def _read_at(self, partition: int, offset: int, *, check_crc: bool = False) -> ReadResult | None:
        """Read some batches; return None at the end of the log."""
        [result] = await self._log.read([Read(self._topic_id, partition, offset, MAX_READ_BYTES, check_crc=check_crc)])
        if isinstance(result, LogbrokerError):
            raise result
        return result if result.next_offset > offset else None

    async def below(self, partition: int, until: int, standing: Standing) -> StalledBelow:
        """Return the stalled records of a partition below an offset that are not done. Damaged parts of the log are
        passed over. Raises any other error that prevents reading.

        After a rewind, the scan begins at the first of these records and reads everything behind it. So this reads as
        much: damage in a done record makes the later records of its segment unreadable for the scan.
        """
        queue = self._queue
        record_ids = RecordIds()
        unreadable = 0
        start = queue.done.floor(partition)
        while start < until:
            try:
                async for result in self._read_as_the_scan(partition, start, until):
                    sifted = sift(result.batches, partition, range(start, until), standing, queue.settings, queue.done)
                    await in_decoder(partial(_gather, sifted, partition, record_ids))
                    start = result.next_offset
                break
            except CorruptLogError as error:
                if error.readable_from <= start:
                    raise
                end = min(until, error.readable_from)
                unreadable += queue.done.count_not_done(record_id_of(partition, start), record_id_of(partition, end))
                start = end
        return StalledBelow(record_ids, unreadable)


def _of_lanes(
    lanes: Iterable[Lane], record_ids: Set[int], states: Set[int] = _STANDING
) -> tuple[set[bytes | None], set[int]]:
    """Return the keys of lanes that are in one of `states` or have their head among `record_ids`, and these heads."""
    keys: set[bytes | None] = set()
    heads: set[int] = set()
    for lane in lanes:
        head = lane.head
        if head in record_ids:
            heads.add(head)
            keys.add(lane.key)
        elif lane.state in states:
            keys.add(lane.key)
    return keys, heads


def _set_aside(failures: Iterable[tuple[int, Failure]]) -> tuple[set[int], set[int]]:
    """Return the records that are blocked or parked, and those due for the dead-letter topic."""
    aside: set[int] = set()
    letters: set[int] = set()
    for record_id, failure in failures:
        if failure.state in (retry.BLOCKED, retry.PARKED):
            aside.add(record_id)
        elif failure.state == retry.EXHAUSTED:
            letters.add(record_id)
    return aside, letters


def _first_damaged(
    batches: bytes, partition: int, offsets: range, done: DoneRecords
) -> tuple[int, CorruptBatchError] | None:
    """Return the base offset and the error of the first batch with a wrong CRC, of those with records at `offsets` that
    are not done."""
    base = record_id_of(partition, 0)
    for batch in stored_batches(batches):
        start, end = max(offsets.start, batch.header.base_offset), min(offsets.stop, batch.header.next_offset)
        if start < end and next(done.undone(base | start, base | end), None) is not None:
            try:
                check_crc(batch.header, batch.raw)
            except CorruptBatchError as error:
                return batch.header.base_offset, error.as_value()
    return None


def _exhaust(sifted: Iterator[Sifted]) -> None:
    for _ in sifted:
        pass


def _gather(sifted: Iterator[Sifted], partition: int, record_ids: RecordIds) -> None:
    for each in sifted:
        record_ids.add(record_id_of(partition, offset) for offset in each.offsets)
