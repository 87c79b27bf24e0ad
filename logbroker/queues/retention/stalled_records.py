"""Which records of a queue group belong to lanes that stand: found by what is stored of them, and by what the log says.

A lane stands when it is blocked or parked, when its head has failed, and when it waits for a time or for the
dead-letter topic. The machine knows this of lanes that the scan has met since the last start, rewind or alteration, and
the keys of what a session has in flight are not in its index at all. Who must not miss a lane, as retention and a
rewind must not, begins with what is stored instead: records that failed, and parked keys. The key of a record of which
only its record id is stored is read from the log. Not-before times are stored nowhere but in the log, so records that
the scan has not met are read for them.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Set
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from logbroker.engine import LogGeneration, Read, ReadableLog, ReadResult
from logbroker.errors import InvalidRequestError, LogbrokerError, OffsetOutOfRangeError
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.lane import BLOCKED, DEAD_LETTERING, PARKED, SHOWN_KEY_BYTES, WAITING, Lane
from logbroker.queues.model.record_id import offset_of, partition_of, record_id_of
from logbroker.queues.model.settings import Ordering, QueueGroupSettings
from logbroker.queues.records.batch_cache import BatchCache
from logbroker.queues.records.columns import NOT_BEFORE_BYTES, Columns, Undecodable, columns_of, lane_key_of
from logbroker.queues.records.decoder import in_decoder
from logbroker.queues.records.fetch import LATER, MAX_READ_BYTES, Records
from logbroker.queues.state import failures as retry
from logbroker.queues.state.completion import DoneRecords, RecordIds
from logbroker.queues.state.failures import Failure
from logbroker.record.codec import LogRecord
from logbroker.record.stored_batch import StoredBatch, stored_batches
from logbroker.types import TopicId

MAX_KEYS: Final = 1_000_000
"""Of lanes that stand. Where there are more, all that is not done counts as standing."""

_STANDING: Final = frozenset((WAITING, BLOCKED, PARKED, DEAD_LETTERING))
_SOUGHT_KEYS: Final = 8
"""Keys for which the bytes of a batch are searched before it is decoded."""
_KEYS_AT_ONCE: Final = 256


class Standing:
    """What stands: all records of some lanes, by their keys, and some records whatever their key."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self.record_ids: list[int] = []
        """Sorted."""
        self.delayed: dict[bytes, int] = {}
        """Until when (wall clock, ms) the lanes wait of which `sift` found a record with a not-before time."""
        self.everything = False
        """All that is not done stands."""
        self.scanned = 0
        """Below this offset, `sift` finds no lane that waits for a time and is not among these."""

    def __bool__(self) -> bool:
        return bool(self.keys or self.record_ids or self.everything)

    def add_keys(self, keys: Iterable[bytes | None]) -> None:
        self.keys.update(key for key in keys if key is not None)
        self.everything = self.everything or len(self.keys) > MAX_KEYS

    def add_record_id(self, record_id: int) -> bool:
        """Return whether it is new."""
        is_new = not self.has_record_id(record_id)
        if is_new:
            insort(self.record_ids, record_id)
        return is_new

    def add(self, keys: Iterable[bytes], record_ids: Iterable[int]) -> None:
        """Add what may be many. For threads."""
        self.add_keys(keys)
        self.record_ids = sorted({*self.record_ids, *record_ids})

    def has_record_id(self, record_id: int) -> bool:
        index = bisect_left(self.record_ids, record_id)
        return self.record_ids[index : index + 1] == [record_id]

    def offsets_in(self, partition: int, batch: StoredBatch) -> set[int]:
        """Those of the records that lie in a batch."""
        header = batch.header
        start = bisect_left(self.record_ids, record_id_of(partition, header.base_offset))
        end = bisect_left(self.record_ids, record_id_of(partition, header.next_offset))
        return set(map(offset_of, self.record_ids[start:end]))

    def keys_may_be_in(self, batch: StoredBatch) -> bool:
        """Whether to look for the keys in a batch. Where few lanes stand, most batches have none of them."""
        if len(self.keys) > _SOUGHT_KEYS:
            return True
        try:
            plain = batch.plain()
        except LogbrokerError:
            return True  # Who decodes it says so.
        return any(key[:SHOWN_KEY_BYTES] in plain for key in self.keys)


class Sifted(NamedTuple):
    """Records of one batch that stand, or a batch that cannot be decoded."""

    batch: StoredBatch
    offsets: list[int]
    error: LogbrokerError | None = None
    stands: bool = False
    """Whether something is stored of a record in a batch that cannot be decoded."""


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
    """Yield what stands of the records at some offsets, or all of them, and is not done. For threads.

    A record whose not-before time lies after `now_ms` stands, and so does from there on what has its key. `left` takes
    the keys of what is neither done nor yielded.
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
        for piece in columns_of([batch], offsets.start, settings):
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
        return True  # Who decodes it says so.


class _Scan(NamedTuple):
    """How far the scan was at some moment."""

    spans: tuple[LogGeneration, ...]
    """Of the topic."""
    generation: int
    positions: dict[int, int]


class StalledRecords:
    """Finds what stands of one queue group."""

    def __init__(self, queue: Queue, log: ReadableLog) -> None:
        """`log` is the topic as the group reads it."""
        self._queue = queue
        self._log = log
        self._topic_id = TopicId(queue.topic_id)
        self._keyed_by: tuple[Ordering, str] | None = None
        """What the keys below depend on."""
        self._keys: dict[int, bytes | None] = {}
        """Of records that were looked up, by record id."""
        self._delayed: dict[bytes, int] = {}
        """Lanes that wait for a time in what the scan had not met, and until when (wall clock, ms)."""
        self._seen: dict[int, tuple[int, int]] = {}
        """By partition, the offsets that were read for such lanes: from, to."""

    def keyed_by(self) -> tuple[Ordering, str]:
        """What the keys of lanes depend on: what was found before it changed counts no more."""
        settings = self._queue.settings
        return settings.ordering, settings.key_header

    # --- what stands -------------------------------------------------------------------------------------------------

    async def standing(self, partition: int, start: int, until: int, now_ms: int) -> Standing:
        """What stands of a partition between two offsets. Of records that wait for their time, `sift` finds those
        there itself. Raises what hinders reading."""
        self._forget_other_keys()
        queue, stalled = self._queue, self._queue.stalled
        found = Standing()
        # The scan goes on beside: what it meets from here on is looked for as if it did not.
        spans = self._log.topic_by_id(self._topic_id).generations
        partitions = list(queue.done.partitions()) if len(spans) > 1 else [partition]
        positions = {each: queue.position(each) for each in partitions if queue.done.is_open(each)}
        scan = _Scan(spans, queue.admission.generation, positions)
        found.scanned = scan.positions.get(partition, 0)
        # All of it may be a million: only copied here, and looked at in a thread.
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
        # What lies behind in the same partition has its lane behind it.
        end = record_id_of(partition, until)
        unknown = {record_id for record_id in unknown if partition_of(record_id) != partition or record_id < end}
        # Such are met where they lie; only what was copied before is not.
        begin = record_id_of(partition, start)
        met = {record_id for record_id in unknown if begin <= record_id < end and record_id in stalled.not_before}
        found.add_keys(await self._keys_of(unknown - met, (partition,)))
        found.add_keys(await self._delayed_before(scan, partition, start, until, now_ms))
        return found

    async def set_aside(self, partitions: Collection[int]) -> Standing:
        """The lanes that are blocked and parked, and the records that are to go to the dead-letter topic: what stands
        in some partitions until somebody decides. Raises what hinders reading."""
        self._forget_other_keys()
        queue = self._queue
        found = Standing()
        found.add_keys(queue.stalled.parked)
        lanes, failures = list(queue.lanes), list(queue.failures.items())
        intents = set(queue.dead_letters.intents())
        aside, letters = await asyncio.to_thread(_set_aside, failures)
        found.record_ids = await asyncio.to_thread(sorted, (aside | letters) - intents)
        if aside and queue.settings.ordering is not Ordering.NONE:
            keys, heads = await asyncio.to_thread(_of_lanes, lanes, aside, frozenset((BLOCKED, PARKED)))
            found.add_keys(keys)
            found.add_keys(await self._keys_of(aside - heads, partitions))
        return found

    def _has_grown(self) -> bool:
        """Whether a key may have records in more than one partition."""
        return self._log.topic_by_id(self._topic_id).generation > 1

    async def _keys_of(self, record_ids: Iterable[int], partitions: Collection[int]) -> list[bytes | None]:
        """Read the keys of records. One that the log has no more has none; nor has one that cannot be read now, unless
        it lies in these partitions, or growth may have moved its key there."""
        settings = self._queue.settings
        wanted = set(record_ids)
        if settings.ordering is Ordering.SINGLE:
            return [b""] if wanted else []
        keys = {record_id: self._keys[record_id] for record_id in wanted & self._keys.keys()}
        unknown = sorted(wanted - keys.keys())
        has_grown = self._has_grown()
        fetched = Records(self._log, self._topic_id, BatchCache(0))
        while unknown:
            now, unknown = unknown[:_KEYS_AT_ONCE], unknown[_KEYS_AT_ONCE:]
            for record_id, record in zip(now, await fetched.fetch(now, MAX_READ_BYTES), strict=True):
                if record is LATER:
                    unknown.append(record_id)
                elif isinstance(record, LogRecord):
                    keys[record_id] = lane_key_of(record, settings)
                elif isinstance(record, OffsetOutOfRangeError | InvalidRequestError):
                    keys[record_id] = None  # It is gone, or cannot be decoded: it has no lane.
                elif has_grown or partition_of(record_id) in partitions:
                    raise record
        self._keys = keys  # Only now: another may have asked meanwhile.
        return list(keys.values())

    # --- lanes that wait for a time ----------------------------------------------------------------------------------

    async def _delayed_before(self, scan: _Scan, partition: int, start: int, until: int, now_ms: int) -> list[bytes]:
        """Return the keys of lanes that wait for a time by a record that comes before some of a partition, and that the
        scan had not met."""
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
        """Read a partition for such lanes, up to an offset, where neither the scan nor this did so before."""
        queue = self._queue
        scanned = scan.positions.get(partition)
        if scanned is None:
            return
        low, high = self._seen.get(partition, (scanned, scanned))
        if not low <= scanned <= high:
            low = high = scanned
        found = Standing()
        async for result in self.read(partition, high, until):
            offsets = range(high, min(until, result.next_offset))
            sifted = sift(result.batches, partition, offsets, found, queue.settings, queue.done, now_ms=now_ms)
            await in_decoder(partial(_exhaust, sifted))
            self._note_delayed(found)
            high = min(until, result.next_offset)
            self._seen[partition] = low, high

    def saw(self, partition: int, start: int, end: int, found: Standing) -> None:
        """A part of a partition was sifted."""
        self._note_delayed(found)
        low, high = self._seen.get(partition, (start, start))
        if low <= start <= high < end:
            self._seen[partition] = low, end

    def forget(self, partition: int) -> None:
        """What was done in a partition, and passed over, may not be so any more."""
        self._seen.pop(partition, None)

    def _note_delayed(self, found: Standing) -> None:
        for key, due_ms in found.delayed.items():
            self._delayed[key] = max(due_ms, self._delayed.get(key, 0))
        found.delayed.clear()

    def _forget_other_keys(self) -> None:
        if self._keyed_by != self.keyed_by():
            self._keyed_by = self.keyed_by()
            self._keys.clear()
            self._delayed.clear()
            self._seen.clear()

    # --- reading -----------------------------------------------------------------------------------------------------

    async def read(self, partition: int, start: int, until: int) -> AsyncGenerator[ReadResult, None]:
        """Read a partition between two offsets, and pass over what is done. Leaves half of the time to others. Raises
        what hinders reading."""
        loop = asyncio.get_running_loop()
        done = self._queue.done
        while (offset := offset_of(done.skip_full(record_id_of(partition, start)))) < until:
            begun_at = loop.time()
            [result] = await self._log.read([Read(self._topic_id, partition, offset, MAX_READ_BYTES)])
            if isinstance(result, LogbrokerError):
                raise result
            if result.next_offset <= offset:
                return  # The end of the log.
            yield result
            start = result.next_offset
            # Nobody waits for it: the interpreter belongs to the deliveries.
            await asyncio.sleep(loop.time() - begun_at)

    async def below(self, partition: int, until: int, standing: Standing) -> RecordIds:
        """The records of a partition below an offset that stand and are not done. Raises what hinders reading."""
        queue = self._queue
        record_ids = RecordIds()
        start = queue.done.floor(partition)
        async for result in self.read(partition, start, until):
            sifted = sift(result.batches, partition, range(start, until), standing, queue.settings, queue.done)
            await in_decoder(partial(_gather, sifted, partition, record_ids))
        return record_ids


def _of_lanes(
    lanes: Iterable[Lane], record_ids: Set[int], states: Set[int] = _STANDING
) -> tuple[set[bytes | None], set[int]]:
    """The keys of lanes that are in one of some states or whose head is one of some records, and those heads."""
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
    """The records that are blocked or parked, and those that are to go to the dead-letter topic."""
    aside: set[int] = set()
    letters: set[int] = set()
    for record_id, failure in failures:
        if failure.state in (retry.BLOCKED, retry.PARKED):
            aside.add(record_id)
        elif failure.state == retry.EXHAUSTED:
            letters.add(record_id)
    return aside, letters


def _exhaust(sifted: Iterator[Sifted]) -> None:
    for _ in sifted:
        pass


def _gather(sifted: Iterator[Sifted], partition: int, record_ids: RecordIds) -> None:
    for each in sifted:
        record_ids.add(record_id_of(partition, offset) for offset in each.offsets)
