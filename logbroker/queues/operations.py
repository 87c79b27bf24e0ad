"""Operations on a queue group: decide about lanes, rewind partitions, replace the head of a lane.

Most operations take effect at once. Each is answered when its effect is synced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal

import msgspec

from logbroker.errors import (
    InvalidRequestError,
    LaneNotHeldError,
    LogbrokerError,
    OverloadedError,
    UnknownLaneError,
    quoted,
    quoted_key,
)
from logbroker.pacing import Pace, in_turns
from logbroker.queues.context import GroupContext
from logbroker.queues.machine.inspect import Inspector
from logbroker.queues.machine.stalled_lanes import HELD
from logbroker.queues.model.lane import NO_RECORD, Lane
from logbroker.queues.model.second_key import SecondKey
from logbroker.queues.model.splits import Split
from logbroker.queues.model.starts import Rewound, StartAt
from logbroker.queues.records.fetch import Records
from logbroker.queues.retention.holder import RetentionHolder
from logbroker.queues.retention.stalled_records import StalledBelow
from logbroker.queues.state import failures as retry
from logbroker.record.codec import Headers, LogRecord
from logbroker.record.message_headers import NOT_BEFORE
from logbroker.types import TopicId

DROPPED_AT_ONCE: Final = 500
"""Number of records of a lane that are dropped in one go."""
DECIDED_STEPS: Final = 5
"""Steps of a `Pace` that a decision about one of many lanes takes."""

_log = logging.getLogger(__name__)

MAX_LOOKS: Final = 20
"""Attempts at listing the records of blocked and parked lanes before a rewind gives up."""


class LaneName(msgspec.Struct, frozen=True):
    """The name that an operator gives for a lane: its ordering key or, for a lane without a key, the id of its
    record."""

    key: bytes | None = None
    record_id: int = NO_RECORD

    def find(self, inspector: Inspector) -> Lane:
        """Return the lane as it is now. Raises UnknownLaneError."""
        return inspector.lane_of_record(self.record_id) if self.key is None else inspector.lane(self.key)


class BulkDecision(msgspec.Struct):
    """The outcome of a decision about all held lanes."""

    lanes: int = 0
    """Number of lanes that the decision was carried out for."""
    records_done: int = 0
    refused: int = 0
    """Number of lanes that refused the decision."""
    why: LogbrokerError | None = None
    """Error of the first lane that refused it."""


class Operations:
    """The operations on one queue group. All of them raise the group's terminal error, or BrokerUnavailableError."""

    def __init__(self, context: GroupContext, inspector: Inspector, records: Records, hold: RetentionHolder) -> None:
        self._context = context
        self._queue = context.queue
        self._inspector = inspector
        self._records = records
        self._hold = hold
        self._rewinding = asyncio.Lock()

    def resume(self, name: LaneName) -> asyncio.Future[int]:
        """Resume a stalled lane with its head, which gets new attempts. The future completes with 0, the number of
        records done, when this is synced. Raises UnknownLaneError or LaneNotHeldError."""
        self._check()
        self._inspector.resume(name.find(self._inspector))
        return self._done(0)

    def skip(self, name: LaneName) -> asyncio.Future[int]:
        """Resume a stalled lane without its head, which counts as done. The future completes with the number of records
        done when this is synced. Raises UnknownLaneError or LaneNotHeldError."""
        self._check()
        lane = name.find(self._inspector)
        records = int(lane.head != NO_RECORD)
        self._inspector.skip(lane, self._context.moment())
        return self._done(records)

    def split(self, lane_key: bytes, second: SecondKey, into: int) -> asyncio.Future[int]:
        """Split the lane of an ordering key. The future completes with 0 when this is synced. Raises the errors of
        `Splitting.split`."""
        self._check()
        moment = self._context.moment()
        split = Split(lane_key, second, into, moment.wall_ms)
        self._queue.splitting.split(split, moment)
        _log.info("queue group %s: %s", self._context.group_id, split)
        return self._done(0)

    def join(self, lane_key: bytes) -> asyncio.Future[int]:
        """Undo the split of a lane. The future completes with 0 when this is synced. Raises InvalidRequestError if the
        lane is not split."""
        self._check()
        self._queue.splitting.join(lane_key, self._context.moment())
        _log.info("queue group %s: the sub-lanes of key %s are joined", self._context.group_id, quoted_key(lane_key))
        return self._done(0)

    def _check(self) -> None:
        self._context.check_serving()
        self._context.check_room()

    def _done(self, records: int) -> asyncio.Future[int]:
        self._context.touched()
        return self._context.commits.synced(records)

    async def drop(self, name: LaneName, pace: Pace) -> asyncio.Future[int]:
        """Count all records of a stalled lane as done. The future completes with their number when this is synced.

        A long lane is dropped in slices: first the records behind the head, and the head last. If another decision lets
        the lane go on between two slices, its remaining records stay. Raises UnknownLaneError or LaneNotHeldError.
        """
        return await self._drop(name.find, pace)

    async def _drop(self, find: Callable[[Inspector], Lane], pace: Pace) -> asyncio.Future[int]:
        self._check()
        inspector = self._inspector
        lane = find(inspector)
        dropped, slices = 0, len(lane) // DROPPED_AT_ONCE
        while slices and len(lane) > DROPPED_AT_ONCE:
            slices -= 1
            dropped += inspector.drop_some(lane, DROPPED_AT_ONCE)
            self._context.touched()
            await pace.step(2 * DROPPED_AT_ONCE)
            self._context.check_serving()
            if not _finds(find, inspector, lane):
                return self._context.commits.synced(dropped)
        dropped += inspector.drop(lane)
        return self._done(dropped)

    async def decide_all(self, what: Literal["resume", "skip", "drop"], pace: Pace) -> BulkDecision:
        """Apply one decision to every lane that is held now, one by one; return when all is synced. If a lane refuses
        the decision, the other lanes are still decided."""
        self._check()
        inspector = self._inspector
        decided = BulkDecision()
        dropping: list[asyncio.Future[int]] = []
        for found in await in_turns(inspector.held_lanes(), pace):
            await pace.step(DECIDED_STEPS)
            self._context.check_serving()
            lane = inspector.as_it_is(found)
            if lane is None or not inspector.is_held(lane):
                continue
            try:
                if what == "resume":
                    inspector.resume(lane)
                elif what == "skip":
                    skipped = int(lane.head != NO_RECORD)
                    inspector.skip(lane, self._context.moment())
                    decided.records_done += skipped
                else:
                    dropping.append(await self._drop(partial(_the_same, found=lane), pace))
            except LogbrokerError as error:
                decided.refused += 1
                decided.why = decided.why or error.as_value()
                continue
            decided.lanes += 1
            self._context.touched()
        await self._context.commits.synced(None)
        for dropped in dropping:
            decided.records_done += await dropped
        return decided

    async def rewind(
        self,
        start: StartAt,
        partitions: Sequence[int] | None = None,
        *,
        include_parked: bool = False,
        drop_standing: bool = False,
        dry_run: bool = False,
    ) -> list[Rewound | LogbrokerError]:
        """Move partitions (None: all) to other start offsets; return when the moves are synced. A partition is not
        moved, and an error takes its place in the result, if its target offset cannot be found or the records below the
        target cannot be read.

        Records of blocked and parked lanes below the target stay unless `drop_standing` is set. `Rewound` counts them,
        and the other records that are skipped. Records in damaged parts of the log are skipped, too, because nobody can
        tell whose they are.
        Raises the error that prevents reading the keys of these lanes, or OverloadedError if lanes are blocked or
        parked faster than they can be looked up.
        """
        async with self._rewinding:
            return await self._rewind(
                start, partitions, include_parked=include_parked, drop_standing=drop_standing, dry_run=dry_run
            )

    async def _rewind(
        self,
        start: StartAt,
        partitions: Sequence[int] | None,
        *,
        include_parked: bool,
        drop_standing: bool,
        dry_run: bool,
    ) -> list[Rewound | LogbrokerError]:
        self._context.check_serving()
        if not dry_run:
            self._context.check_room()
        queue = self._queue
        numbers = sorted(queue.done.partitions()) if partitions is None else partitions
        found = await start.offsets(self._context.engine, self._hold.log, TopicId(queue.topic_id), numbers)
        for partition, target in found.items():
            if isinstance(target, int):
                queue.open_partition(partition, 0)  # The topic may have grown a moment ago.
        undone = await self._count_undone_below(found)
        standing = await self._standing_below(found)
        self._context.check_serving()
        targets = {partition: target for partition, target in found.items() if isinstance(target, int)}
        before = {partition: queue.done.floor(partition) for partition in targets}
        kept = {partition: below.record_ids for partition, below in standing.items()}
        counts = {partition: queue.done.count_undone(record_ids) for partition, record_ids in kept.items()}
        if targets and not dry_run:
            queue.rewind(
                targets, self._context.moment(), include_parked=include_parked, kept=None if drop_standing else kept
            )
            self._hold.rewound(targets)
        self._context.touched()
        rewound = [
            Rewound(
                partition,
                before[partition],
                target,
                stands,
                max(0, undone[partition] - stands),
                standing[partition].unreadable if partition in standing else 0,
            )
            if isinstance(target, int)
            else target
            for partition, target in found.items()
            for stands in (counts.get(partition, 0),)
        ]
        if not dry_run:
            told = "; ".join(f"partition {number} {_told(done)}" for number, done in zip(found, rewound, strict=True))
            _log.info("queue group %s: rewound by an operator: %s", self._context.group_id, told)
            for partition, below in standing.items():
                if below.unreadable:
                    text = (
                        "queue group %s: the rewind gave up %d records of partition %d that cannot be read, because the"
                        " log is damaged there; they may be of blocked and parked lanes"
                    )
                    _log.warning(text, self._context.group_id, below.unreadable, partition)
        return await self._context.commits.synced(rewound)

    async def _count_undone_below(self, targets: dict[int, int | LogbrokerError]) -> dict[int, int]:
        """Count the records below the targets that are not done, by partition. Records that retention has removed do
        not count."""
        pace = Pace()
        undone: dict[int, int] = {}
        for partition, target in targets.items():
            if isinstance(target, int):
                removed = await in_turns(self._hold.count_removed(partition), pace)
                below = await in_turns(self._queue.done.count_below(partition, target), pace)
                undone[partition] = max(0, below - removed)
                await pace.step(2)
        return undone

    async def _standing_below(self, targets: dict[int, int | LogbrokerError]) -> dict[int, StalledBelow]:
        """Find the records below the targets that are in lanes that are blocked or parked when this returns, by
        partition. If a partition cannot be read, its error replaces its target in `targets`."""
        queue, finder = self._queue, self._hold.standing
        with queue.stalled.noting() as noted:
            for _ in range(MAX_LOOKS):
                noted.clear()
                keyed_by = finder.keyed_by()
                standing = await finder.set_aside(
                    {partition: target for partition, target in targets.items() if isinstance(target, int)}
                )
                below: dict[int, StalledBelow] = {}
                for partition, target in list(targets.items()) if standing else ():
                    if isinstance(target, int) and target > queue.done.floor(partition):
                        try:
                            below[partition] = await finder.below(partition, target, standing)
                        except LogbrokerError as error:
                            targets[partition] = error.as_value()
                if keyed_by == finder.keyed_by() and not any(
                    key not in standing.keys and not standing.has_record_id(record_id)
                    for record_id, key in noted.items()
                    if (failure := queue.failures.get(record_id)) is not None and failure.state != retry.RETRYING
                ):
                    return below
        raise OverloadedError("lanes are blocked or parked faster than they can be looked up: try again later")

    async def replace_head(
        self, name: LaneName, value: bytes | None, headers: Headers, key: bytes | None = None
    ) -> asyncio.Future[int]:
        """Resume a stalled lane with another record in the place of its head, for this group only. The future completes
        with 0, the number of records done, when this is synced.

        The record gets the head's key (`key` may repeat it) and timestamp. Without `headers`, it gets the head's
        headers; with some, it gets these and the head's ordering key header. Raises UnknownLaneError,
        InvalidRequestError, the error that prevents reading the head, LaneNotHeldError if the lane went on while its
        head was read, and the errors of `Inspector.replace_head`.
        """
        self._context.check_serving()
        head = name.find(self._inspector).head
        if head == NO_RECORD:
            raise UnknownLaneError("no record of the lane is scanned yet: try again later")
        [old] = await self._records.fetch([head])
        if isinstance(old, LogbrokerError):
            raise old
        if key is not None and key != old.key:
            raise InvalidRequestError(
                f"the replacement has key {quoted_key(key)}, but the record to be replaced has {quoted_key(old.key)}:"
                " leave the key out"
            )
        headers = _with_ordering_key(headers, old.headers, self._queue.settings.key_header) if headers else old.headers
        new = LogRecord(old.offset, old.timestamp_ms, old.key, value, headers)
        self._check()
        lane = name.find(self._inspector)
        if lane.head != head:
            raise LaneNotHeldError(
                "the first record of the lane is another one by now, because the lane went on: look at it again"
            )
        self._inspector.replace_head(lane, new)
        return self._done(0)


def _the_same(inspector: Inspector, found: Lane) -> Lane:
    """Return a lane that was found before. Raises UnknownLaneError if it is gone."""
    if inspector.as_it_is(found) is not found:
        raise UnknownLaneError("the lane is gone: its records are done, or go on")
    return found


def _finds(find: Callable[[Inspector], Lane], inspector: Inspector, lane: Lane) -> bool:
    """Return whether a lane still exists and is stalled."""
    try:
        return find(inspector) is lane and lane.state in HELD
    except UnknownLaneError:
        return False


def _with_ordering_key(headers: Headers, old: Headers, key_header: str) -> Headers:
    """Return the headers of a replacement, with the ordering key headers of the old record. Raises InvalidRequestError
    if `headers` has other ordering key headers, or a not-before time that the old record does not have."""
    ordering = [header for header in old if key_header and header[0] == key_header]
    given = [header for header in headers if key_header and header[0] == key_header]
    if given and given != ordering:
        raise InvalidRequestError(
            f"header {quoted(key_header)} holds the ordering key: leave it out, or give it unchanged"
        )
    if any(header[0] == NOT_BEFORE and header not in old for header in headers):
        raise InvalidRequestError(f"a replacement is handed out at once: leave out header {NOT_BEFORE}")
    return headers if given else (*ordering, *headers)


def _told(done: Rewound | LogbrokerError) -> str:
    """Return what an operator's rewind did in a partition, for the log."""
    if isinstance(done, LogbrokerError):
        return f"stays: {done}"
    skipped = f" (records skipped: {done.skipped_records})" if done.skipped_records else ""
    return f"from offset {done.floor_before} to {done.floor}{skipped}"
