"""What an operator does to a queue group: decide about lanes, begin elsewhere, put another record in one's place.

It is done at once, and the answer comes when it is synced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from logbroker.engine import LogEngine, ReadableLog
from logbroker.errors import InvalidRequestError, LaneNotHeldError, LogbrokerError, UnknownLaneError, quoted
from logbroker.queues.flush import Flush
from logbroker.queues.lane import NO_PLACE, Lane
from logbroker.queues.operator import Operator
from logbroker.queues.places import Moment
from logbroker.queues.queue import Queue
from logbroker.queues.records import Records
from logbroker.queues.starts import Rewound, StartAt
from logbroker.record.codec import Headers, LogRecord
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

    async def replacement(
        self, find: Callable[[Operator], Lane], value: bytes | None, headers: Headers, key: bytes | None = None
    ) -> Callable[[Operator, Moment], None]:
        """Return the decision to go on with another record in the place of a held lane's head, for this group.

        It has the head's key (`key` may say so), its time and the header with its ordering key. Raises what `find`
        raises, UnknownLaneError, InvalidRequestError, or what hinders the reading of the head; the decision raises
        LaneNotHeldError where the lane went on meanwhile, and what `Operator.replace_head` raises.
        """
        self._check_serving()
        head = find(self._operator).head
        if head == NO_PLACE:
            raise UnknownLaneError("no record of the lane is scanned yet: try again later")
        [old] = await self._records.fetch([head])
        if isinstance(old, LogbrokerError):
            raise old
        if key is not None and key != old.key:
            raise InvalidRequestError(
                f"the record in the head's place has key {quoted(key)}, not {quoted(old.key)}: leave it out"
            )
        headers = _with_ordering_key(headers, old.headers, self._queue.settings.key_header)
        new = LogRecord(old.offset, old.timestamp_ms, old.key, value, headers)

        def replace(operator: Operator, _: Moment) -> None:
            lane = find(operator)
            if lane.head != head:
                raise LaneNotHeldError("the lane went on meanwhile, and has another head: look at it again")
            operator.replace_head(lane, new)

        return replace


def _with_ordering_key(headers: Headers, old: Headers, key_header: str) -> Headers:
    """The headers of a replacement; those that hold the ordering key stay what they are."""
    ordering = [header for header in old if key_header and header[0] == key_header]
    given = [header for header in headers if key_header and header[0] == key_header]
    if given and given != ordering:
        raise InvalidRequestError(f"header {quoted(key_header)} holds the ordering key: leave it out, or as it is")
    return headers if given else (*ordering, *headers)
