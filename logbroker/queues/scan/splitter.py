"""Moves the waiting records of a lane that is being split to its sub-lanes: reads their second keys from the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from logbroker.engine import Read, ReadableLog, damage_at
from logbroker.errors import (
    LogbrokerError,
    OffsetOutOfRangeError,
    StorageFailedError,
    UnknownTopicError,
    quoted_key,
)
from logbroker.queues.machine.queue import Queue
from logbroker.queues.machine.splitting import Moved
from logbroker.queues.model.record_id import Moment, offset_of, partition_of, record_id_of
from logbroker.queues.model.splits import Split
from logbroker.queues.records.columns import Undecodable, columns_of
from logbroker.queues.records.decoder import in_decoder_if, is_heavy
from logbroker.queues.scan.hot_lanes import HotLanes
from logbroker.record.message_headers import DEFAULT_PRIORITY
from logbroker.record.stored_batch import stored_batches
from logbroker.types import TopicId

RECORDS_AT_ONCE: Final = 4_096
"""Number of records that are moved in one go, within a few milliseconds."""
LOOK_SECONDS: Final = 1.0
"""Interval between two looks for hot lanes."""
READ_BYTES: Final = 1024 * 1024
RETRY_SECONDS: Final = 0.1
"""Pause between two attempts to read records that cannot be read now."""

_log = logging.getLogger(__name__)


class Splitter:
    """Moves records to sub-lanes, and watches for hot lanes, for one queue group. Runs on the event loop."""

    def __init__(
        self,
        group_id: str,
        queue: Queue,
        log: ReadableLog,
        moment: Callable[[], Moment],
        changed: Callable[[], None],
    ) -> None:
        """`log` is the topic as the group reads it. `changed` is called after each step: there may be rows to store,
        and more records may be ready."""
        self._group_id = group_id
        self._queue = queue
        self._log = log
        self._moment = moment
        self._changed = changed
        self._awake = asyncio.Event()
        self._hot_lanes = HotLanes(queue)

    def wake(self) -> None:
        """Wake `run` if there are records to move."""
        if self._queue.splitting.next_key(self._moment()) is not None:
            self._awake.set()

    async def run(self) -> None:
        """Move records until cancelled, or until the topic is deleted."""
        splitting = self._queue.splitting
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(splitting.next_try_in_seconds(self._moment())):
                    await self._awake.wait()
            self._awake.clear()
            while (key := splitting.next_key(self._moment())) is not None:
                try:
                    await self._move_some(self._queue.splits.by_key[key])
                except UnknownTopicError:
                    return
                # Reads from the page cache do not let other tasks run.
                await asyncio.sleep(0)

    async def watch(self) -> None:
        """Split hot lanes, and join calm ones, until cancelled."""
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, self._queue.settings.split_age_seconds / 2))
            if not self._hot_lanes.has_work:
                continue
            made, undone, refused = self._hot_lanes.look(self._moment())
            for split in made:
                _log.warning("queue group %s: a lane is hot: %s", self._group_id, split)
            for key, why in refused:
                _log.warning(
                    "queue group %s: a lane is hot and cannot be split, key %s: %s",
                    self._group_id,
                    quoted_key(key),
                    why,
                )
            for split in undone:
                _log.info(
                    "queue group %s: the sub-lanes of key %s are calm, and are joined",
                    self._group_id,
                    quoted_key(split.key),
                )
            if made or undone:
                self._changed()

    async def _move_some(self, split: Split) -> None:
        """Move the first records of a lane. Raises UnknownTopicError or StorageFailedError."""
        splitting = self._queue.splitting
        record_ids = splitting.next_records(split.key, RECORDS_AT_ONCE)
        try:
            found, end = await self._look_up(split, record_ids)
        except (UnknownTopicError, StorageFailedError):
            raise
        except LogbrokerError as error:
            if error.retriable:
                await asyncio.sleep(RETRY_SECONDS)
                return
            if not isinstance(error, OffsetOutOfRangeError):
                self._cannot_read(split, error)
                return
            found, end = {}, max(record_ids[0] + 1, self._log_start(partition_of(record_ids[0])))
        splitting.move(split, _to_move(split, record_ids, found, end), self._moment())
        self._changed()

    def _cannot_read(self, split: Split, error: LogbrokerError) -> None:
        if self._queue.splitting.cannot_read(split, error, self._moment()):
            _log.warning(
                "queue group %s: key %s, which is being split, waits until its first record can be read: %s",
                self._group_id,
                quoted_key(split.key),
                error,
            )
        self._changed()

    def _log_start(self, partition: int) -> int:
        """Return the id of the first record that a partition may have; all before were deleted. 0 if the partition
        cannot be read."""
        try:
            facts = self._log.partition_facts(TopicId(self._queue.topic_id), partition)
        except LogbrokerError:
            return 0
        return record_id_of(partition, facts.log_start_offset)

    async def _look_up(self, split: Split, record_ids: Sequence[int]) -> tuple[dict[int, Moved], int]:
        """Read the log from the first of these records on. Return the records found for the sub-lanes, and the record
        id up to which the log was read. Raises the error that prevents reading the first record."""
        partition, offset = partition_of(record_ids[0]), offset_of(record_ids[0])
        topic_id = TopicId(self._queue.topic_id)
        [result] = await self._log.read([Read(topic_id, partition, offset, READ_BYTES)])
        if isinstance(result, LogbrokerError):
            raise result
        sub_lanes = frozenset(split.sub_lanes())
        base = record_id_of(partition, 0)
        wanted = set(record_ids)
        last = max(record_id for record_id in record_ids if partition_of(record_id) == partition)
        found: dict[int, Moved] = {}
        heavy = is_heavy(result.batches)
        pieces = columns_of(
            stored_batches(result.batches), offset, self._queue.settings, self._queue.splitting.keying, partition
        )
        end = record_ids[0]
        while True:
            try:
                piece = await in_decoder_if(heavy, lambda: next(pieces, None))
                if isinstance(piece, Undecodable):
                    await self._check_damage(piece, partition, wanted)
                    continue
            except LogbrokerError:
                if end == record_ids[0]:
                    raise
                return found, end
            if piece is None:
                return found, base | max(result.next_offset, offset + 1)
            priorities = piece.priorities or bytes((DEFAULT_PRIORITY,)) * len(piece.offsets)
            times: Sequence[int] = piece.times or [-1] * len(piece.offsets)
            for at, (each, key) in enumerate(zip(piece.offsets, piece.keys, strict=True)):
                if key in sub_lanes and base | each in wanted:
                    found[base | each] = Moved(base | each, key, priorities[at], times[at])
            end = base | piece.next_offset
            if end > last:
                return found, end
            await asyncio.sleep(0)

    async def _check_damage(self, piece: Undecodable, partition: int, wanted: set[int]) -> None:
        """Raise CorruptLogError if a batch with one of the wanted records is damaged. An intact batch that nobody can
        decode has no key either: its records stay in the first sub-lane."""
        header = piece.batch.header
        base = record_id_of(partition, 0)
        if any(base | header.base_offset <= record_id < base | header.next_offset for record_id in wanted):
            damage = await damage_at(self._log, TopicId(self._queue.topic_id), partition, header.base_offset)
            if damage is not None:
                raise damage


def _to_move(split: Split, record_ids: Sequence[int], found: dict[int, Moved], end: int) -> list[Moved]:
    """Return the records at the front of a lane, up to record id `end`, with their sub-lanes. A record that was not
    found, for instance because the log no longer has it, goes to the first sub-lane."""
    first = split.sub_lane(0)
    begin = record_ids[0]
    moved: list[Moved] = []
    for record_id in record_ids:
        if not begin <= record_id < end:
            break  # It lies in another partition, or was not read.
        moved.append(found.get(record_id) or Moved(record_id, first, DEFAULT_PRIORITY, -1))
    return moved
