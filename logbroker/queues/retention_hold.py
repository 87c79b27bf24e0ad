"""Retention beside a queue group: it waits for records that are not done and, beyond a bound, for copies of some.

Beyond `retention.hold.bytes` retention asks the group to let go of its oldest records. Those of lanes that stand
(blocked, parked, waiting for a retry, a time or the dead-letter topic) or whose head failed are copied first: their
heads, and all that follows in the part of the log that goes, scanned or not. All others go as from any log, and count
as done when they are met.

The part that goes is read through once, as the keys of what is not scanned yet are known nowhere else. What stands is
looked up at the beginning: a lane that is blocked later has lost what it would have lost had it been blocked after the
end.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from logbroker.config import MIB
from logbroker.engine import LogEngine, Read, StateEvent
from logbroker.errors import LogbrokerError
from logbroker.queues.batch_cache import BatchCache
from logbroker.queues.columns import Columns, columns_of, lane_key_of
from logbroker.queues.copies import Copies
from logbroker.queues.decoding import in_decoder
from logbroker.queues.kept_log import KeptLog
from logbroker.queues.lane import BLOCKED, DEAD_LETTERING, PARKED, WAITING
from logbroker.queues.lanes import SHOWN_BYTES
from logbroker.queues.places import offset_of, partition_of, place_of
from logbroker.queues.queue import Queue
from logbroker.queues.records import LATER, MAX_READ_BYTES, Records
from logbroker.queues.settings import Ordering, QueueSettings
from logbroker.record.codec import LogRecord
from logbroker.record.stored_batch import StoredBatch, stored_batches
from logbroker.types import TopicId

_log = logging.getLogger(__name__)

BATCH_BYTES: Final = MIB
"""Of one batch of copies, before compression; a larger record is copied alone."""
MIN_REWRITTEN_BYTES: Final = 64 * MIB
"""The copies of a partition are written anew, without those of done records, when they take this much and twice what
they took the last time."""

_STANDING: Final = frozenset((WAITING, BLOCKED, PARKED, DEAD_LETTERING))
_SOUGHT_KEYS: Final = 8
"""Keys for which the bytes of a batch are searched before it is decoded."""
_KEYS_AT_ONCE: Final = 256
_RECORD_BYTES: Final = 32
"""What a record takes beside its key, value and headers, about."""


class Standing(NamedTuple):
    """What is copied: all records of some lanes, by their keys, and some records whatever their key."""

    keys: frozenset[bytes | None]
    places: list[int]
    """Sorted."""

    def offsets_in(self, partition: int, batch: StoredBatch) -> set[int]:
        """Those of the records that lie in a batch."""
        header = batch.header
        start = bisect_left(self.places, place_of(partition, header.base_offset))
        end = bisect_left(self.places, place_of(partition, header.next_offset))
        return set(map(offset_of, self.places[start:end]))

    def keys_may_be_in(self, batch: StoredBatch) -> bool:
        """Whether to look for the keys in a batch. Where few lanes stand, most batches have none of them."""
        if len(self.keys) > _SOUGHT_KEYS:
            return True
        try:
            plain = batch.plain()
        except LogbrokerError:
            return True  # Who decodes it says so.
        return any(key is not None and key[:SHOWN_BYTES] in plain for key in self.keys)


class RetentionHold:
    """What one queue group still needs of its topic: retention's `Holder` there."""

    def __init__(
        self,
        group_id: str,
        queue: Queue,
        engine: LogEngine,
        commit: Callable[[Sequence[StateEvent]], Awaitable[None]],
    ) -> None:
        """`commit` stores rows of the group."""
        self._topic_id = TopicId(queue.topic_id)
        self.copies = Copies(group_id, self._topic_id, engine, queue.done, commit)
        self.log = KeptLog(engine, self.copies)
        """Where the group reads its topic."""
        self.expired = 0
        """Records that were let go without being done, about: offsets that hold none are among them."""
        self._group_id = group_id
        self._queue = queue
        self._engine = engine
        self._let_go: dict[int, int] = {}
        """By partition, the offset below which nothing is needed any more."""
        self._asked: dict[int, int] = {}
        self._rewritten_bytes: dict[int, int] = {}
        self._complaints: dict[int, str] = {}
        """By partition, why it cannot be let go: told once."""
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def open(self) -> None:
        """Hold what is needed."""
        self._engine.hold(self._topic_id, self)
        self.copies.open()

    async def stop(self) -> None:
        """Copy nothing any more; what is held stays so, as retention goes on until the engine stops."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Hold nothing any more: the group is no more."""
        await self.stop()
        self._engine.release(self._topic_id, self)
        self.copies.close()

    # --- what retention asks -----------------------------------------------------------------------------------------

    def needed_from(self, partition: int) -> int:
        return max(self.copies.floor(partition), self._let_go.get(partition, 0))

    def let_go(self, partition: int, offset: int) -> None:
        if self._stopped:
            return
        self._asked[partition] = offset
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"copies of queue group {self._group_id}")

    async def _run(self) -> None:
        while self._asked:
            partition, offset = self._asked.popitem()
            try:
                await self._copy_below(partition, offset)
                await self._rewrite_if_worth_it(partition)
            except LogbrokerError as error:
                if self._complaints.get(partition) != error.reason:
                    self._complaints[partition] = error.reason
                    _log.warning(
                        "queue group %s: retention has to wait in partition %d, as what stands cannot be copied: %s",
                        self._group_id,
                        partition,
                        error.message,
                    )
            else:
                self._complaints.pop(partition, None)

    # --- copying -----------------------------------------------------------------------------------------------------

    async def _copy_below(self, partition: int, until: int) -> None:
        """Copy what stands below an offset and is not copied yet, then let go."""
        copies = self.copies
        loop = asyncio.get_running_loop()
        await copies.forget_done(partition)
        log_start_offset = self._engine.partition_facts(self._topic_id, partition).log_start_offset
        begun = max(self.needed_from(partition), log_start_offset)
        copied = 0
        settings = self._queue.settings
        standing = await self._standing(settings)
        if standing.keys or standing.places:
            gathered = _Gathered(self._generation_starts(partition))

            def complete(batches: bytes, offsets: range) -> Iterator[list[LogRecord]]:
                for records in self._pick(partition, batches, offsets, standing, settings):
                    yield from gathered.add(records)

            # What an attempt that was cut short has copied, the log still has: other lanes may have come to stand.
            kept_from = max(log_start_offset, self._let_go.get(partition, 0))
            copied_twice = [last for last, batch in copies.batches(partition, kept_from) if batch.first >= kept_from]
            await copies.forget(partition, copied_twice)
            offset = max(copies.end(partition), log_start_offset)
            while offset < until:
                begun_at = loop.time()
                [result] = await self._engine.read([Read(self._topic_id, partition, offset, MAX_READ_BYTES)])
                if isinstance(result, LogbrokerError):
                    raise result
                next_piece = partial(next, complete(result.batches, range(offset, until)), None)
                while (records := await in_decoder(next_piece)) is not None:
                    await copies.add(partition, records)
                    copied += len(records)
                offset = result.next_offset
                # Nobody waits for it: the interpreter belongs to the deliveries.
                await asyncio.sleep(loop.time() - begun_at)
            if gathered.records:
                await copies.add(partition, gathered.records)
                copied += len(gathered.records)
        self._let_go[partition] = until
        expired = await asyncio.to_thread(self._count_undone, partition, begun, until) - copied
        self.expired += max(0, expired)
        _log.log(
            logging.WARNING if expired > 0 else logging.INFO,
            "queue group %s: retention takes partition %d below offset %d; %d records of lanes that stand are copied,"
            " about %d others were not done",
            self._group_id,
            partition,
            until,
            copied,
            max(0, expired),
        )

    async def _standing(self, settings: QueueSettings) -> Standing:
        queue = self._queue
        failures = queue.failures
        places = {*failures.places(), *queue.dead_letters.intents(), *queue.held.waits.heads()}
        if not places and not queue.held.parked:
            return Standing(frozenset(), [])
        lanes = list(queue.lanes)  # They may be a million: looked at in a thread.
        keys: set[bytes | None] = await asyncio.to_thread(
            lambda: {lane.key for lane in lanes if lane.state in _STANDING or failures.count(lane.head)}
        )
        # After a start the scan may not have met them yet.
        unmet = [
            place
            for place in sorted(places)
            if not queue.done.is_open(partition_of(place)) or not queue.intake.has_admitted(place)
        ]
        fetched = Records(self.log, self._topic_id, BatchCache(0))
        while unmet:
            now, unmet = unmet[:_KEYS_AT_ONCE], unmet[_KEYS_AT_ONCE:]
            for place, record in zip(now, await fetched.fetch(now, MAX_READ_BYTES), strict=True):
                if record is LATER:
                    unmet.append(place)
                elif isinstance(record, LogRecord):
                    keys.add(lane_key_of(record, settings))
        return Standing(frozenset(keys - {None}), sorted(places))

    def _pick(
        self, partition: int, batches: bytes, offsets: range, standing: Standing, settings: QueueSettings
    ) -> Iterator[list[LogRecord]]:
        """Decode batch by batch, and yield what is to be copied of the records at some offsets. For threads."""
        done = self._queue.done
        base = place_of(partition, 0)
        for batch in stored_batches(batches):
            alone = standing.offsets_in(partition, batch)
            if not alone and not standing.keys_may_be_in(batch):
                continue
            wanted: list[int] = []
            for piece in columns_of([batch], offsets.start, settings):
                if not isinstance(piece, Columns):
                    _log.warning(
                        "queue group %s: a batch that cannot be decoded goes with retention: %s",
                        self._group_id,
                        piece.error.message,
                    )
                    continue
                common = b"" if settings.ordering is Ordering.SINGLE else None
                keys = piece.keys or [common] * len(piece.offsets)
                wanted += [
                    offset
                    for offset, key in zip(piece.offsets, keys, strict=True)
                    if (key in standing.keys or offset in alone) and offset in offsets and base | offset not in done
                ]
            if wanted:
                yield batch.records(wanted)

    def _count_undone(self, partition: int, start: int, end: int) -> int:
        base = place_of(partition, 0)
        return sum(high - low for low, high in self._queue.done.undone(base | start, base | max(start, end)))

    def _generation_starts(self, partition: int) -> list[int]:
        spans = self._engine.topic_by_id(self._topic_id).generations
        return [span.start_offsets[partition] for span in spans if partition < len(span.start_offsets)]

    # --- making room -------------------------------------------------------------------------------------------------

    async def _rewrite_if_worth_it(self, partition: int) -> None:
        """Where most copies may be of no use, copy the others to the end, so that all before it goes."""
        copies = self.copies
        before_bytes = copies.size_bytes(partition)
        if before_bytes < max(MIN_REWRITTEN_BYTES, 2 * self._rewritten_bytes.get(partition, 0)):
            return
        base = place_of(partition, 0)
        for last, batch in copies.batches(partition):
            records = await copies.read(partition, batch)
            kept = [record for record in records if base | record.offset not in self._queue.done]
            if kept:
                await copies.add(partition, kept, instead_of=last)
            else:
                await copies.forget(partition, [last])
        self._rewritten_bytes[partition] = copies.size_bytes(partition) - before_bytes


class _Gathered:
    """Records of one partition on their way into batches of copies; as any batch, each is of one generation."""

    def __init__(self, generation_starts: Sequence[int]) -> None:
        self.records: list[LogRecord] = []
        self._size_bytes = 0
        self._generation_starts = generation_starts

    def add(self, records: Sequence[LogRecord]) -> list[list[LogRecord]]:
        """Take records in their order, and return the batches that are complete."""
        complete: list[list[LogRecord]] = []
        starts = self._generation_starts
        for record in records:
            size_bytes = _size_bytes(record)
            if self.records and (
                self._size_bytes + size_bytes > BATCH_BYTES
                or bisect_right(starts, self.records[0].offset) != bisect_right(starts, record.offset)
            ):
                complete.append(self.records)
                self.records = []
                self._size_bytes = 0
            self.records.append(record)
            self._size_bytes += size_bytes
        return complete


def _size_bytes(record: LogRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers
