"""Keeps retention and deletions from removing records that a queue group needs: those that are not done, until the
group releases them.

Retention asks the group to release its oldest records beyond `retention.hold.bytes`; a deletion asks it to release all
records that are to be deleted. In the part of the log to release, the group first copies all records of stalled lanes
(blocked, parked, waiting for a retry, a time or the dead-letter topic) and of lanes with a failed head. When such a
lane goes on, its later records are copied too, until all its copies are done. All other records are deleted as in any
log, and count as done when the group comes to them: see `scanner`.

Stalled records are found in the stored state and in the log itself (see `stalled_records`). Records that the scan has
not met are read here once, before they are released. So the log does not grow while a scan pauses.

The part to release is read in pieces. A piece is released only when all its stalled records are copied: if more lanes
become stalled while a piece is being copied, it is copied again. If a lane becomes stalled after that, its records in
this piece are not copied, unless the log may keep released records for long (`LogEngine.waits_for_holders`): then the
group takes the release of these records back.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

from logbroker.config import MIB
from logbroker.engine import ReadResult
from logbroker.errors import LogbrokerError, UnknownTopicError
from logbroker.pacing import Steps
from logbroker.queues.context import GroupContext
from logbroker.queues.machine.inspect import Alarm, AlarmKind
from logbroker.queues.model.record_id import offset_of, partition_of, record_id_of
from logbroker.queues.records.decoder import in_decoder
from logbroker.queues.retention.copied_lanes import CopiedLanes
from logbroker.queues.retention.copies import Copies
from logbroker.queues.retention.log_view import RetainedLog
from logbroker.queues.retention.stalled_records import Sifted, StalledRecords, Standing, sift
from logbroker.record.codec import LogRecord
from logbroker.types import TopicId

_log = logging.getLogger(__name__)

BATCH_BYTES: Final = MIB
"""Maximum size of one batch of copies, before compression; a larger record is copied alone."""
PIECE_BYTES: Final = 16 * MIB
"""Bytes of the log that are released at once."""
MAX_TRIES: Final = 8
"""Attempts to copy only the stalled records of the smallest piece. After these, all records of the piece are copied."""
MIN_REWRITTEN_BYTES: Final = 64 * MIB
"""Minimum size of a partition's copies before they are rewritten without the records that are done. The copies must
also have twice the size that they had after the last rewrite."""

_RECORD_BYTES: Final = 32
"""Approximate size of a record without its key, value and headers."""


class RetentionHolder:
    """Holds the part of the topic that one queue group still needs: the group's `Holder` for retention."""

    def __init__(self, context: GroupContext, on_removed: Callable[[int], None]) -> None:
        """`on_removed` is called with the number of a partition after records of it were removed."""
        self.removed = on_removed
        self._context = context
        self._queue = queue = context.queue
        self._engine = context.engine
        self._topic_id = TopicId(queue.topic_id)
        self.copies = Copies(context.group_id, self._topic_id, context.engine, queue.done, context.stored)
        self.log = RetainedLog(context.engine, self.copies)
        """The topic as the group reads it, copies included."""
        self.standing = StalledRecords(queue, self.log)
        self._copied_lanes = CopiedLanes(self.copies, queue.done)
        self._rewinds = 0
        self._let_go: dict[int, int] = {}
        """Offset below which the log is released, by partition."""
        self._stalled_from: dict[int, int] = {}
        """First released record that has failed since it was released, by partition."""
        self._asked: dict[int, int] = {}
        self._rewritten_bytes: dict[int, int] = {}
        self._complaints: dict[int, str] = {}
        """Last logged reason why retention has to wait, by partition."""
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._is_open = False

    def open(self) -> None:
        """Start holding the needed part of the topic."""
        self._engine.hold(self._topic_id, self)
        self._is_open = True
        self.copies.open()
        if not self._engine.waits_for_holders:
            self._queue.stalled.on_first_failure = self._failed

    async def stop(self) -> None:
        """Stop copying. The hold stays until `close`."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Release the topic, because the group is deleted, or because others see to what it needs from now on."""
        await self.stop()
        if self._is_open:
            self._is_open = False
            self._engine.release(self._topic_id, self)
        self.copies.close()

    # --- requests of retention ---------------------------------------------------------------------------------------

    def needed_from(self, partition: int) -> int:
        return max(self.copies.floor(partition), self._released(partition))

    def _released(self, partition: int) -> int:
        """Return the offset below which a partition is released, and no record has failed since."""
        released = self._let_go.get(partition, 0)
        return min(released, self._stalled_from.get(partition, released))

    def _failed(self, record_id: int) -> None:
        """Take back the release of a record that has failed, and of the later ones, which may be of its lane. Those
        that the log has no more were copied with their lane."""
        partition, offset = partition_of(record_id), offset_of(record_id)
        if not self._log_start_offset(partition) <= offset < self._released(partition):
            return
        self._stalled_from[partition] = offset
        try:
            topic = self._engine.topic_by_id(self._topic_id)
        except UnknownTopicError:
            return
        ends = [topic.end_of(span.generation, partition) for span in topic.generations]
        generation = 1 + sum(end is not None and end <= offset for end in ends)
        for other in list(self._let_go):
            # Keys may have moved there with the next generation, or lie in another band.
            start = 0 if topic.routing_bands else topic.end_of(generation, other)
            if other != partition and start is not None and start < self._released(other):
                self._stalled_from[other] = start

    def _log_start_offset(self, partition: int) -> int:
        try:
            return self._engine.partition_facts(self._topic_id, partition).log_start_offset
        except LogbrokerError:
            return 0

    def let_go(self, partition: int, offset: int) -> asyncio.Future[None] | None:
        if self._stopped:
            return None
        self._asked[partition] = offset
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"copies of queue group {self._context.group_id}")
        return self._task

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
                        "queue group %s: the removal of records has to wait in partition %d: stalled records cannot be"
                        " copied: %s",
                        self._context.group_id,
                        partition,
                        error.message,
                    )
            else:
                self._complaints.pop(partition, None)

    def count_removed(self, partition: int) -> Steps[int]:
        """Count, approximately, the records of a partition that are not done, and neither in the log nor copied."""
        done = self._queue.done
        try:
            start = self._engine.partition_facts(self._topic_id, partition).log_start_offset
            if done.floor(partition) >= start:
                return 0
        except (LogbrokerError, KeyError):
            return 0
        removed = yield from done.count_below(partition, start)
        return max(0, removed - self.copies.count_not_done(partition))

    def find_alarms(self) -> Steps[list[Alarm]]:
        """Return an alarm for each partition with records that may be deleted at any time, and that are not copied."""
        alarms: list[Alarm] = []
        for partition in () if self._engine.waits_for_holders else list(self._let_go):
            undone = yield from self._queue.done.count_below(partition, self._released(partition))
            removed = yield from self.count_removed(partition)
            if (count := undone - removed - self.copies.count_not_done(partition)) > 0:
                text = (
                    f"about {count} records of partition {partition} that are not done are deleted at any time: they"
                    " are almost as old as retention.ms of the topic; raise it, or add workers"
                )
                alarms.append(Alarm(AlarmKind.RETENTION, None, record_id_of(partition, 0), text))
        return alarms

    # --- copying -----------------------------------------------------------------------------------------------------

    def rewound(self, partitions: Iterable[int]) -> None:
        """After a rewind of the group, hold released records again, as far as the log still has them."""
        self._rewinds += 1
        self._copied_lanes.rewound()
        for partition in partitions:
            self._let_go.pop(partition, None)
            self._stalled_from.pop(partition, None)
            self.standing.forget(partition)

    def _version(self) -> tuple[object, ...]:
        """Return a value that changes when earlier findings about stalled records are void. Failures do not change it;
        `StalledLanes.noting` collects them."""
        return self._rewinds, self.standing.keyed_by()

    async def _copy_below(self, partition: int, until: int) -> None:
        """Copy the stalled records below an offset that are not copied yet, then release the log below it."""
        copies = self.copies
        await copies.forget_done(partition)
        partitions = self._engine.topic_by_id(self._topic_id).partitions
        log_start_offset = self._engine.partition_facts(self._topic_id, partition).log_start_offset
        begun = max(self.needed_from(partition), log_start_offset)
        kept_from = max(log_start_offset, self._released(partition))
        if self._stalled_from.pop(partition, None) is not None:
            self._let_go[partition] = kept_from
        # The log still has records that an interrupted attempt copied; other lanes may have become stalled since.
        copied_again = await self._copied_lanes.record_ids(partition, kept_from)
        copied = 0
        reached = kept_from
        with self._queue.stalled.noting() as noted:
            version = self._version()
            now_ms = self._context.moment().wall_ms
            standing = await self.standing.standing(partition, kept_from, until, now_ms)
            keys = await self._copied_lanes.keys(self._queue.settings, self._queue.splitting.keying, partitions)
            await asyncio.to_thread(standing.add, keys, copied_again)
            await copies.split(partition, kept_from)
            max_bytes = PIECE_BYTES
            while reached < until:
                piece = _Piece(partition, range(reached, until), now_ms, version, max_bytes)
                while not await self._copy_piece(piece, standing, noted):
                    if piece.is_void:
                        await copies.forget(partition, piece.copied_first)
                        break
                    piece.again()
                if piece.is_void:
                    break  # Retention will ask again.
                await self._forget_others(piece)
                copied += piece.records
                reached = self._let_go[partition] = piece.end
                max_bytes = min(PIECE_BYTES, max(2 * MIB, 2 * piece.max_bytes))
        if reached == kept_from:
            return
        # Some of the records without a copy may still be handed out before they are removed. So the number in the
        # log line is only a bound; `DeliveryCounts.expired` counts the records that were lost.
        expired = await asyncio.to_thread(self._count_undone, partition, begun, reached) - copied
        _log.log(
            logging.WARNING if expired > 0 else logging.INFO,
            "queue group %s: partition %d is released below offset %d; %d records of stalled lanes are copied,"
            " about %d other records were not done",
            self._context.group_id,
            partition,
            reached,
            copied,
            max(0, expired),
        )

    async def _copy_piece(self, piece: _Piece, standing: Standing, noted: dict[int, bytes | None]) -> bool:
        """Copy the stalled records of a piece. Return False if more of its records have become stalled during the copy,
        or if the piece is void.

        The log is read even if nothing is stalled: a damaged batch with records that are not done must stay.
        """
        partition, offsets, settings = piece.partition, piece.offsets, self._queue.settings
        gathered = _CopyBatches(self._generation_starts(partition))
        piece.begin(offsets.start)
        reads = self.standing.read(partition, offsets.start, offsets.stop, check_crc=True)
        async with aclosing(reads) as results:
            async for result in results:
                sifted = sift(
                    result.batches,
                    partition,
                    # Copies below a log start that has risen may begin before this.
                    range(piece.end, offsets.stop),
                    standing,
                    settings,
                    self._queue.done,
                    now_ms=piece.now_ms,
                    everything=piece.is_copied_whole,
                    left=piece.left,
                )
                next_records = partial(next, self._pick(sifted, gathered), None)
                while (records := await in_decoder(next_records)) is not None:
                    await self._add(piece, records)
                self.standing.saw(partition, piece.end, min(offsets.stop, result.next_offset), standing)
                piece.read(result)
                if piece.is_full:
                    break
            else:
                piece.end = offsets.stop
        if gathered.records:
            await self._add(piece, gathered.records)
        if self._version() != piece.version:
            piece.is_void = True
            return False
        return not _came_to_stand(piece, standing, noted)

    async def _add(self, piece: _Piece, records: Sequence[LogRecord]) -> None:
        """Copy records, in the place of what an earlier attempt has copied between these and the ones before: never is
        a record without its copy, because the log may lose it at any time (`LogEngine.waits_for_holders`)."""
        start = piece.copied_to[-1] + 1 if piece.copied_to else piece.offsets.start
        last = records[-1].offset
        earlier = [offset for offset, _ in self.copies.batches(piece.partition, start) if offset <= last]
        await self.copies.add(piece.partition, records, earlier)
        if not earlier:
            piece.copied_first.append(last)
        await self._copied_lanes.saw(piece.partition, records, self._queue.settings, self._queue.splitting.keying)
        piece.copied_to.append(records[-1].offset)
        piece.records += len(records)

    async def _forget_others(self, piece: _Piece) -> None:
        """Forget what earlier attempts have copied of a piece: what is needed of it was copied again."""
        batches = self.copies.batches(piece.partition, piece.offsets.start)
        others = {last for last, _ in batches if last < piece.end} - set(piece.copied_to)
        await self.copies.forget(piece.partition, sorted(others))

    def _pick(self, sifted: Iterator[Sifted], gathered: _CopyBatches) -> Iterator[list[LogRecord]]:
        """Decode batch by batch, and yield the records of each batch of copies. Raises the error of a batch that cannot
        be decoded and still has to go to the dead-letter topic as one record: it cannot be copied, so retention has to
        wait. May run in a thread."""
        for batch, offsets, error, stands in sifted:
            if error is not None and stands:
                raise error
            if error is not None:
                _log.warning(
                    "queue group %s: a batch that cannot be decoded is deleted by retention, without a copy: %s",
                    self._context.group_id,
                    error.message,
                )
            if offsets:
                yield from gathered.add(batch.records(offsets))

    def _count_undone(self, partition: int, start: int, end: int) -> int:
        base = record_id_of(partition, 0)
        return sum(high - low for low, high in self._queue.done.undone(base | start, base | max(start, end)))

    def _generation_starts(self, partition: int) -> list[int]:
        spans = self._engine.topic_by_id(self._topic_id).generations
        return [span.start_offsets[partition] for span in spans if partition < len(span.start_offsets)]

    # --- making room -------------------------------------------------------------------------------------------------

    async def _rewrite_if_worth_it(self, partition: int) -> None:
        """Rewrite the copies of a partition if most of them may be of done records: append the needed ones anew, so
        that all copies before them can be deleted."""
        copies = self.copies
        before_bytes = copies.size_bytes(partition)
        if before_bytes < max(MIN_REWRITTEN_BYTES, 2 * self._rewritten_bytes.get(partition, 0)):
            return
        base = record_id_of(partition, 0)
        for last, batch in copies.batches(partition):
            records = await copies.read(partition, last, batch)
            kept = [record for record in records if base | record.offset not in self._queue.done]
            if kept:
                await copies.add(partition, kept, [last])
            else:
                await copies.forget(partition, [last])
        self._rewritten_bytes[partition] = copies.size_bytes(partition) - before_bytes


class _Piece:
    """A part of the log that is released at once."""

    def __init__(
        self, partition: int, offsets: range, now_ms: int, version: tuple[object, ...], max_bytes: int
    ) -> None:
        self.partition = partition
        self.offsets = offsets
        self.now_ms = now_ms
        self.version = version
        self.is_void = False
        """Whether `_version` has changed since the piece was begun."""
        self.is_copied_whole = False
        """Whether all records of the piece are copied, not only stalled ones."""
        self.end = offsets.start
        """Offset up to which the piece has been read."""
        self.records = 0
        self.copied_to: list[int] = []
        """Last offset of each batch of copies."""
        self.copied_first: list[int] = []
        """Last offset of each batch of copies that replaced no earlier ones."""
        self.max_bytes = max_bytes
        """Maximum number of bytes of the log in the piece; 1: what one read returns."""
        self.left: set[bytes] | None = None
        """Keys of records that are neither done nor copied; None: not known."""
        self._size_bytes = 0
        self._tries = 0

    def begin(self, start: int) -> None:
        self.end = start
        self.records = self._size_bytes = 0
        self.copied_to.clear()
        self.copied_first.clear()
        self.left = set() if self.max_bytes == 1 else None

    def read(self, result: ReadResult) -> None:
        self.end = min(self.offsets.stop, result.next_offset)
        self._size_bytes += len(result.batches)

    @property
    def is_full(self) -> bool:
        return self._size_bytes >= self.max_bytes

    def again(self) -> None:
        """Shrink the piece for another attempt, because lanes became stalled while it was copied: a smaller piece takes
        less time. The smallest piece is copied again only if a lane with records in it became stalled. After
        `MAX_TRIES` attempts, all its records are copied."""
        self._tries += self.max_bytes == 1
        self.is_copied_whole = self._tries >= MAX_TRIES
        smaller = self.max_bytes // 8
        self.max_bytes = smaller if smaller >= MIB else 1


def _came_to_stand(piece: _Piece, standing: Standing, noted: dict[int, bytes | None]) -> bool:
    """Add the failures noted since the piece was begun to `standing`. Return whether the piece has to be copied again
    because of them."""
    is_new = False
    for record_id, key in noted.items():
        is_behind = partition_of(record_id) == piece.partition and offset_of(record_id) >= piece.end
        is_here = partition_of(record_id) == piece.partition and not is_behind
        if standing.add_record_id(record_id) and key is None:
            is_new = is_new or is_here
        elif key is not None and key not in standing.keys:
            standing.add_keys((key,))
            is_new = is_new or (not is_behind if piece.left is None else key in piece.left)
    noted.clear()
    return is_new and not (standing.everything or piece.is_copied_whole)


class _CopyBatches:
    """Gathers records of one partition into batches of copies. All records of a batch are of one generation."""

    def __init__(self, generation_starts: Sequence[int]) -> None:
        self.records: list[LogRecord] = []
        self._size_bytes = 0
        self._generation_starts = generation_starts

    def add(self, records: Sequence[LogRecord]) -> list[list[LogRecord]]:
        """Add records in offset order; return the batches that are complete."""
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
