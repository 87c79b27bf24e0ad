"""What an operator does to a queue group: decide about lanes, begin elsewhere, put another record in one's place.

It is done at once, and the answer comes when it is synced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from logbroker.engine import LogEngine, ReadableLog
from logbroker.errors import InvalidRequestError, LaneNotHeldError, LogbrokerError, UnknownLaneError
from logbroker.queues.flush import Flush
from logbroker.queues.lane import NO_PLACE, Lane
from logbroker.queues.operator import Operator
from logbroker.queues.places import Moment, offset_of
from logbroker.queues.queue import Queue
from logbroker.queues.records import Records
from logbroker.queues.starts import Rewound, StartAt
from logbroker.record.codec import LogRecord, NewRecord
from logbroker.types import TopicId

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Operations:
    """On one queue group; all of them raise what the group has ended with, or BrokerUnavailableError."""

    def __init__(
        self,
        group_id: str,
        queue: Queue,
        operator: Operator,
        engine: LogEngine,
        log: ReadableLog,
        records: Records,
        flush: Flush,
        moment: Callable[[], Moment],
        check_serving: Callable[[], None],
        touched: Callable[[], None],
    ) -> None:
        """`log` is the topic as the group reads it. `check_serving` raises where the group serves nobody; `touched` is
        called when the queue was given an input."""
        self._group_id = group_id
        self._queue = queue
        self._operator = operator
        self._engine = engine
        self._log = log
        self._records = records
        self._flush = flush
        self._moment = moment
        self._check_serving = check_serving
        self._touched = touched

    def decide(self, decision: Callable[[Operator, Moment], T]) -> asyncio.Future[T]:
        """Let an operator decide; the future has what the decision returned as soon as it is synced.

        Raises what the decision raises.
        """
        self._check_serving()
        result = decision(self._operator, self._moment())
        self._touched()
        return self._flush.synced(result)

    async def rewind(
        self,
        start: StartAt,
        partitions: Sequence[int] | None = None,
        *,
        include_parked: bool = False,
        dry_run: bool = False,
    ) -> list[Rewound | LogbrokerError]:
        """Begin partitions (None: all) anew elsewhere; returns when that is synced. A partition whose offset cannot be
        told has its error, and stays where it is."""
        self._check_serving()
        queue = self._queue
        numbers = sorted(queue.done.partitions()) if partitions is None else partitions
        found = await start.offsets(self._engine, self._log, TopicId(queue.topic_id), numbers)
        targets = {partition: target for partition, target in found.items() if isinstance(target, int)}
        for partition in targets:
            queue.open_partition(partition, 0)  # The topic may have grown a moment ago.
        before = {partition: queue.done.floor(partition) for partition in targets}
        if targets and not dry_run:
            queue.rewind(targets, self._moment(), include_parked=include_parked)
        self._touched()
        rewound = [
            Rewound(partition, before[partition], target) if isinstance(target, int) else target
            for partition, target in found.items()
        ]
        if not dry_run:
            _log.info("queue group %s: rewound by an operator: %s", self._group_id, rewound)
        return await self._flush.synced(rewound)

    async def replace_head(self, find: Callable[[Operator], Lane], new: NewRecord) -> None:
        """Put another record, of the same key, in the place of a held lane's head, for this group, and go on with it;
        returns when that is synced. Raises what `find` and `Operator.replace_head` raise, and InvalidRequestError."""
        self._check_serving()
        head = find(self._operator).head
        if head == NO_PLACE:
            raise UnknownLaneError("no record of the lane is scanned yet: try again later")
        [old] = await self._records.fetch([head])
        if isinstance(old, LogRecord):
            if new.key is not None and new.key != old.key:
                raise InvalidRequestError(
                    "the record has another key than the head of the lane: leave it out, or give its"
                )
            key, timestamp_ms = old.key, old.timestamp_ms
        else:
            key, timestamp_ms = new.key, -1  # That it cannot be read may be why it is replaced.
        lane = find(self._operator)
        if lane.head != head:
            raise LaneNotHeldError("the lane has gone on meanwhile: look at it again")
        if new.timestamp_ms is not None:
            timestamp_ms = new.timestamp_ms
        self._operator.replace_head(lane, LogRecord(offset_of(head), timestamp_ms, key, new.value, new.headers))
        self._touched()
        await self._flush.synced(None)
