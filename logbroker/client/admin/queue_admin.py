"""QueueAdmin: queue groups, their settings, and the decisions of an operator about their lanes."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self

from logbroker.client.admin.dead_letters import LetterList, list_letters
from logbroker.client.admin.groups import GroupInfo, list_groups
from logbroker.client.admin.queue_ages import with_oldest
from logbroker.client.admin.queue_descriptions import (
    DecidedAll,
    Decision,
    LaneDescription,
    LaneList,
    LaneOrder,
    LetterEnds,
    QueueDescription,
    QueueSettings,
    Redriven,
    RewoundPartition,
    lane_description,
    queue_description,
    settings_message,
)
from logbroker.client.runtime.arguments import checks_arguments, choice
from logbroker.client.runtime.lifetime import Droppable, Lifetime
from logbroker.client.transport.answers import items
from logbroker.client.transport.connection import Connection
from logbroker.client.transport.offsets import milliseconds
from logbroker.client.transport.status import error_of_item
from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.record.codec import Headers
from logbroker.v1 import common_pb2, queues_pb2

QueueStart = Literal["earliest", "latest"] | datetime.datetime
"""The position at which a queue group begins in each partition. A time means the first record at or after it."""

Lane = bytes | tuple[int, int]
"""A lane, named by its ordering key or, for a record without a key, by that record's partition and offset."""

_DECISIONS: Final[dict[Decision, dict[str, Any]]] = {
    "resume": {"resume": True},
    "skip": {"skip_head": True},
    "drop": {"drop": True},
}
_ORDERS: Final = {
    "hottest": queues_pb2.LANE_ORDER_HOTTEST,
    "oldest": queues_pb2.LANE_ORDER_OLDEST,
    "held": queues_pb2.LANE_ORDER_HELD,
    "waiting": queues_pb2.LANE_ORDER_WAITING,
}


@checks_arguments()
class QueueAdmin(Droppable):
    """Creates, describes, alters and deletes queue groups; shows lanes, and decides what happens to stalled lanes.

    A `lane` is named by its ordering key (bytes) or, for a record without a key, by that record's (partition, offset).

    All methods raise BrokerUnavailableError if the broker cannot be reached or the connection breaks, and
    RequestTimeoutError if it does not answer in time. If the broker was reached, the change may have been made
    nevertheless; the message says so.
    """

    def __init__(self, broker: str, *, request_timeout_seconds: float = 10.0) -> None:
        """`broker` is "HOST:PORT" or "HOST:PORT,HOST:PORT".

        Calls that change nothing are repeated while the broker is away.
        """
        self._lifetime = Lifetime("QueueAdmin", broker)
        self._connection = Connection(broker, request_timeout_seconds=request_timeout_seconds, lifetime=self._lifetime)

    async def create_queue(
        self, group: str, topic: str, settings: QueueSettings | None = None, *, start: QueueStart = "earliest"
    ) -> tuple[QueueDescription, bool]:
        """Create a queue group durably. Return its description, and True if it was created or False if it existed with
        the same settings.

        Raises GroupExistsError if it exists with other settings, UnknownTopicError, or InvalidRequestError.
        """
        request = queues_pb2.CreateQueueRequest(
            group_id=group, topic=topic, settings=settings_message(settings or QueueSettings()), start=_start(start)
        )
        response = await self._connection.unary("CreateQueue", request, retry=False)
        return queue_description(response.queue), response.created

    async def list_queues(self) -> list[GroupInfo]:
        """Return all queue groups, sorted by id."""
        return [group for group in await list_groups(self._connection) if group.type == "queue"]

    async def describe_queue(self, group: str, *, oldest: bool = False) -> QueueDescription:
        """Return the description of a queue group; see `describe_queues`. Raises UnknownGroupError."""
        (outcome,) = await self.describe_queues([group], oldest=oldest)
        if isinstance(outcome, LogbrokerError):
            raise outcome
        return outcome

    async def describe_queues(
        self, groups: Sequence[str], *, oldest: bool = False
    ) -> list[QueueDescription | LogbrokerError]:
        """Return the description or the error of each queue group. With `oldest`, it has the timestamp of the oldest
        record of each partition that is not done, which takes a read of each such partition."""

        async def ask(some: list[str]) -> Sequence[queues_pb2.DescribedQueue]:
            request = queues_pb2.DescribeQueuesRequest(group_ids=some)
            response: queues_pb2.DescribeQueuesResponse = await self._connection.unary("DescribeQueues", request)
            return response.queues

        found = {name: error or queue_description(queue) async for name, queue, error in items(groups, ask)}
        if oldest:
            queues = [queue for queue in found.values() if isinstance(queue, QueueDescription)]
            found |= {queue.id: queue for queue in await with_oldest(self._connection, queues)}
        return [found[group_id] for group_id in groups]

    async def alter_queue(self, group: str, settings: QueueSettings) -> tuple[QueueDescription, bool]:
        """Change settings while the group runs. Return the group's description, and whether a change of ordering has to
        wait until all deliveries in flight are settled.

        Raises UnknownGroupError or InvalidRequestError.
        """
        request = queues_pb2.AlterQueueRequest(group_id=group, settings=settings_message(settings))
        response = await self._connection.unary("AlterQueue", request, retry=False)
        return queue_description(response.queue), response.draining

    async def delete_queue(self, group: str) -> None:
        """Delete a queue group and its state durably. The topic stays. Raises UnknownGroupError."""
        request = queues_pb2.DeleteQueuesRequest(group_ids=[group])
        response = await self._connection.unary("DeleteQueues", request, retry=False)
        _raise_status(response.results[0])

    # --- lanes ------------------------------------------------------------------------------------------------------

    async def list_lanes(self, group: str, *, order: LaneOrder = "hottest", top: int = 20) -> LaneList:
        """Return up to `top` lanes as `lanes`, the total number of lanes, and whether the list may be incomplete. Each
        lane has only the last reason of its failures.

        `order` is "hottest" (lanes with the most records first), "oldest" (lanes with the oldest head first;
        within a partition, heads with lower offsets are taken to be older), "held" (only lanes that need an operator:
        blocked, parked or refused by the dead-letter topic, the longest held first), or "waiting" (only lanes that wait
        for a retry, a not-before time or the dead-letter topic, or whose head cannot be read from the log now; the next
        due first).
        """
        request = queues_pb2.ListLanesRequest(group_id=group, order=choice("order", _ORDERS, order), top=top)
        response = await self._connection.unary("ListLanes", request)
        lanes = [lane_description(lane) for lane in response.lanes]
        return LaneList(lanes, response.total, response.incomplete)

    async def explain_lane(self, group: str, key: bytes) -> LaneDescription:
        """Return the description of the lane of an ordering key, with its first record and the failures of this
        record."""
        request = queues_pb2.ExplainLanesRequest(group_id=group, keys=[key], records=True)
        answer: queues_pb2.ExplainLanesResponse = await self._connection.unary("ExplainLanes", request)
        (lane,) = answer.lanes
        _raise_status(lane.status)
        return lane_description(lane, answer.topic, answer.topic_id)

    async def resume_lane(self, group: str, lane: Lane) -> None:
        """Let a stalled lane (blocked, parked, waiting, or refused by the dead-letter topic) continue with its head.
        The attempts of the head are counted from 0 again.

        Raises UnknownGroupError, UnknownLaneError or LaneNotHeldError.
        """
        await self._decide(group, lane, resume=True)

    async def skip_head(self, group: str, lane: Lane) -> int:
        """Count the head of a lane as done, so that the lane continues behind it. Return the number of records that
        count as done by this call.

        Raises UnknownGroupError, UnknownLaneError or LaneNotHeldError.
        """
        return await self._decide(group, lane, skip_head=True)

    async def drop_lane(self, group: str, lane: Lane) -> int:
        """Count all scanned records of a lane as done. Return their number.

        Raises UnknownGroupError, UnknownLaneError or LaneNotHeldError.
        """
        return await self._decide(group, lane, drop=True)

    async def replace_head(
        self, group: str, lane: Lane, value: bytes | None, *, key: bytes | None = None, headers: Headers = ()
    ) -> None:
        """Let a lane continue with another record in place of its head, for this group only. The new record must have
        the same key; None takes that key. Without `headers`, the record keeps the headers of the head. Raises
        UnknownGroupError, UnknownLaneError, LaneNotHeldError or InvalidRequestError."""
        record = common_pb2.Record(
            key=key, value=value, headers=[common_pb2.Header(key=name, value=content) for name, content in headers]
        )
        await self._decide(group, lane, replace_head=record)

    async def split_lane(self, group: str, key: bytes, by: str, *, into: int = 16) -> None:
        """Split the lane of an ordering key. Its waiting and later records go in `into` sub-lanes, 2 to 1,000, by a
        second key. The sub-lanes begin once the lane's deliveries in flight are settled. Order holds among records with
        the same second key.

        `by` is "header:NAME", "key-suffix:SEPARATOR" (the end of the record's key), or "none", which gives up the order
        of the lane. Raises UnknownGroupError, or InvalidRequestError if the lane is split already.
        """
        split = queues_pb2.LaneSplit(by=by, into=into)
        await self._decide(group, key, split=split)

    async def join_lane(self, group: str, key: bytes) -> None:
        """Undo the split of the lane of an ordering key. New records wait until the sub-lanes are empty, then go on in
        one lane. Raises UnknownGroupError, or InvalidRequestError if the lane is not split."""
        await self._decide(group, key, join=True)

    async def decide_all(self, group: str, decision: Decision) -> DecidedAll:
        """Make the same decision for all lanes that are blocked, parked, or refused by the dead-letter topic.

        `decision` is "resume", "skip" or "drop".
        """
        fields = choice("decision", _DECISIONS, decision)
        request = queues_pb2.DecideLanesRequest(
            group_id=group, decisions=[queues_pb2.LaneDecision(all_held=True, **fields)]
        )
        (result,) = (await self._connection.unary("DecideLanes", request, retry=False)).results
        _raise_status(result.status)
        return DecidedAll(
            lanes=result.lanes,
            records_done=result.records_done,
            refused=result.refused,
            why_refused=error_of_item(result.why_refused),
        )

    async def _decide(self, group: str, lane: Lane, **decision: Any) -> int:
        if isinstance(lane, bytes):
            message = queues_pb2.LaneDecision(key=lane, **decision)
        else:
            partition, offset = lane
            message = queues_pb2.LaneDecision(place=queues_pb2.Place(partition=partition, offset=offset), **decision)
        request = queues_pb2.DecideLanesRequest(group_id=group, decisions=[message])
        (result,) = (await self._connection.unary("DecideLanes", request, retry=False)).results
        _raise_status(result.status)
        return int(result.records_done)

    # --- redrives and rewinds ---------------------------------------------------------------------------------------

    async def list_letters(self, group: str, *, key: bytes | None = None, max_records: int = 100) -> LetterList:
        """Return the dead letters of a queue group that were not sent back: their records as `letters`, and as `more`
        whether there are others. `letters` has at most `max_records`, which may be up to 1,000; with `key`, only those
        of this ordering key. If `why_held` is not empty, a part of the dead-letter topic cannot be read, and letters in
        it are missing. Raises UnknownGroupError, or UnknownTopicError if the group has no dead-letter topic.
        """
        return await list_letters(self._connection, group, key, max_records)

    async def redrive(
        self,
        group: str,
        *,
        key: bytes | None = None,
        dry_run: bool = False,
        max_records: int | None = None,
        until: LetterEnds | None = None,
    ) -> Redriven:
        """Send dead letters, at most `max_records` in one call (None: 10,000; at most 1,000,000), back to the end of
        their original topic, each key in its original order. A letter that cannot be sent back is reported, and holds
        back only its own key. `dry_run` only counts the letters, also up to `max_records`.

        Only letters below `until` are sent back; None: below the current ends of the dead-letter topic. Workers may
        fail records again while letters are sent back. To send back each letter once, pass `Redriven.until` of the
        first call to further calls, until `Redriven.more` is false. Raises UnknownTopicError if `until` belongs to a
        topic that is not the group's dead-letter topic any more.
        """
        ends = None if until is None else queues_pb2.LetterEnds(topic_id=until.topic_id, offsets=until.offsets)
        request = queues_pb2.RedriveRequest(
            group_id=group, key=key, dry_run=dry_run, max_records=max_records, until=ends
        )
        response = await self._connection.unary("Redrive", request, retry=False)
        return Redriven(
            records=response.records,
            keys=response.keys,
            more=response.more,
            held=response.held,
            why_held=response.why_held,
            until=LetterEnds(topic_id=response.until.topic_id, offsets=tuple(response.until.offsets))
            if response.HasField("until")
            else None,
        )

    async def rewind(
        self,
        group: str,
        to: QueueStart | int,
        *,
        partitions: Sequence[int] = (),
        include_parked: bool = False,
        drop_standing: bool = False,
        dry_run: bool = False,
    ) -> list[RewoundPartition]:
        """Move the group to earlier or later offsets in these partitions. Without `partitions`, move it in all.

        Receipts and attempts become invalid, and records from the new offset on are no longer done. Parked lanes stay
        parked unless `include_parked` is set. If the group moves to a later offset, the records of blocked and parked
        lanes below it stay unless `drop_standing` is set, and all other records below it count as done. The result has
        the numbers of both.
        """
        request = queues_pb2.RewindRequest(
            group_id=group,
            to=_start(to),
            partitions=partitions,
            include_parked=include_parked,
            drop_standing=drop_standing,
            dry_run=dry_run,
        )
        response = await self._connection.unary("Rewind", request, retry=False)
        return [
            RewoundPartition(
                partition=partition.partition,
                floor_before=partition.floor_before,
                floor=partition.floor,
                standing_records=partition.standing_records,
                skipped_records=partition.skipped_records,
                unreadable_records=partition.unreadable_records,
                error=error_of_item(partition.status),
            )
            for partition in response.partitions
        ]

    async def close(self) -> None:
        """Close the connection."""
        if self._lifetime.may_close():
            try:
                await self._connection.close()
            finally:
                self._lifetime.closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _start(start: QueueStart | int) -> queues_pb2.StartAt:
    if isinstance(start, datetime.datetime):
        return queues_pb2.StartAt(timestamp_ms=milliseconds(start))
    if isinstance(start, int):
        return queues_pb2.StartAt(offset=start)
    if start == "earliest":
        return queues_pb2.StartAt(earliest=True)
    if start == "latest":
        return queues_pb2.StartAt(latest=True)
    raise InvalidRequestError(f"{start!r} is none of earliest, latest, a datetime")


def _raise_status(status: common_pb2.Status) -> None:
    error = error_of_item(status)
    if error is not None:
        raise error
