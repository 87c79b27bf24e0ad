"""What an operator sees of the lanes of a queue group, and decides about them."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final

from logbroker.errors import InvalidRequestError, LogbrokerError, UnknownLaneError
from logbroker.grpc_api.paging import FRAME_BYTES
from logbroker.grpc_api.queue_messages import read_place
from logbroker.grpc_api.status import item_status
from logbroker.queues.lane import NO_PLACE, Lane
from logbroker.queues.lanes import lane_key
from logbroker.queues.operator import LaneFacts, Operator
from logbroker.queues.places import Moment, offset_of, partition_of
from logbroker.queues.queue_group import QueueGroup
from logbroker.record.codec import LogRecord
from logbroker.v1 import queues_pb2 as pb

DEFAULT_TOP: Final = 20
MAX_TOP: Final = 10_000
MAX_EXPLAINED: Final = 400
"""Keys that one request may ask about, whose answer tells of all their failures."""
MAX_DATED: Final = 1_000
"""Lanes whose heads are read for one answer: for a date that is in no index."""
SLICE_LANES: Final = 20_000
"""That are looked at in one go: a few milliseconds, in which the broker does nothing else."""
SLICE_EXPLAINED: Final = 50

IDLE: Final = "idle"


# --- looking -------------------------------------------------------------------------------------------------------


async def list_lanes(group: QueueGroup, request: pb.ListLanesRequest, room_bytes: int) -> pb.ListLanesResponse:
    """Raises InvalidRequestError."""
    top = request.top if request.HasField("top") else DEFAULT_TOP
    if not 1 <= top <= MAX_TOP:
        raise InvalidRequestError(f"top must be 1 to {MAX_TOP:,}, not {top}")
    if request.order == pb.LANE_ORDER_HOTTEST:
        lanes = list(group.queue.lanes)
        total, shown = len(lanes), await _most(top, lanes, len)
        dates = await _dates(group, shown[:MAX_DATED])
    elif request.order == pb.LANE_ORDER_OLDEST:
        lanes = list(group.queue.lanes)
        candidates = await _oldest(top, lanes)
        dates = await _dates(group, candidates)
        candidates.sort(key=lambda lane: (dates.get(lane.head, -1) < 0, dates.get(lane.head, -1)))
        total, shown = len(lanes), candidates[:top]
    elif request.order == pb.LANE_ORDER_HELD:
        lanes = group.operator.held()
        total, shown = len(lanes), await _most(top, lanes, lambda lane: -_held_since(group, lane))
        dates = await _dates(group, shown[:MAX_DATED])
    else:
        raise InvalidRequestError(f"order {request.order} is unknown; leave it out or use a value of queues.proto")
    response = pb.ListLanesResponse(total=total)
    for facts in await _explained(group, shown):
        message = _lane(facts, dates.get(facts.head, -1))
        del message.reasons[:-1]
        room_bytes -= message.ByteSize() + FRAME_BYTES
        if room_bytes < 0:
            break
        response.lanes.append(message)
    return response


async def explain_lanes(group: QueueGroup, keys: Sequence[bytes]) -> pb.ExplainLanesResponse:
    lanes: list[Lane | None] = []
    for key in keys:
        try:
            lanes.append(group.operator.lane(lane_key(key)))
        except UnknownLaneError:
            lanes.append(None)
    found = [lane for lane in lanes if lane is not None]
    dates = await _dates(group, found[:MAX_DATED])
    explained = iter(await _explained(group, found))
    response = pb.ExplainLanesResponse()
    for key, lane in zip(keys, lanes, strict=True):
        if lane is None:
            response.lanes.add(key=lane_key(key), state=IDLE, partition=-1, offset=-1, oldest_timestamp_ms=-1)
        else:
            facts = next(explained)
            response.lanes.append(_lane(facts, dates.get(facts.head, -1)))
    return response


async def _most(count: int, lanes: Sequence[Lane], weight: Callable[[Lane], int]) -> list[Lane]:
    """The lanes of the most weight, most first."""
    best: list[Lane] = []
    for start in range(0, len(lanes), SLICE_LANES):
        best = heapq.nlargest(count, chain(best, lanes[start : start + SLICE_LANES]), key=weight)
        await asyncio.sleep(0)
    return best


async def _oldest(count: int, lanes: Sequence[Lane]) -> list[Lane]:
    """The lanes whose heads have the lowest offsets of their partitions: among them are the oldest ones."""
    by_partition: dict[int, list[Lane]] = {}
    for start in range(0, len(lanes), SLICE_LANES):
        for lane in lanes[start : start + SLICE_LANES]:
            if lane.head != NO_PLACE:
                by_partition.setdefault(partition_of(lane.head), []).append(lane)
        share = min(count, max(1, MAX_DATED // max(1, len(by_partition))))
        for partition, found in by_partition.items():
            by_partition[partition] = heapq.nsmallest(share, found, key=lambda lane: lane.head)
        await asyncio.sleep(0)
    return [lane for found in by_partition.values() for lane in found][:MAX_DATED]


def _held_since(group: QueueGroup, lane: Lane) -> int:
    failure = group.queue.held.failure_of(lane)
    return 0 if failure is None else failure.last_ms


async def _dates(group: QueueGroup, lanes: Iterable[Lane]) -> dict[int, int]:
    """The timestamps of heads, by place; of those that can be read."""
    heads = sorted({group.queue.held.first_of(lane) for lane in lanes} - {NO_PLACE})
    records = await group.records.fetch(heads) if heads else []
    return {
        head: record.timestamp_ms for head, record in zip(heads, records, strict=True) if isinstance(record, LogRecord)
    }


async def _explained(group: QueueGroup, lanes: Sequence[Lane]) -> list[LaneFacts]:
    facts: list[LaneFacts] = []
    for start in range(0, len(lanes), SLICE_EXPLAINED):
        now = group.moment()
        facts += [group.operator.explain(lane, now) for lane in lanes[start : start + SLICE_EXPLAINED]]
        await asyncio.sleep(0)
    return facts


def _lane(facts: LaneFacts, timestamp_ms: int) -> pb.Lane:
    message = pb.Lane(
        key=facts.key,
        state=facts.state,
        partition=-1 if facts.head == NO_PLACE else partition_of(facts.head),
        offset=-1 if facts.head == NO_PLACE else offset_of(facts.head),
        waiting=facts.waiting,
        attempt=facts.attempt,
        worker_id=facts.worker_id,
        oldest_timestamp_ms=timestamp_ms,
        session_token=facts.session_token,
        level=facts.level,
        refusal=facts.refusal,
    )
    if facts.due_in_seconds > 0:
        message.due_in_ms = round(facts.due_in_seconds * 1000)
    if facts.failure is not None:
        message.first_failure_ms = facts.failure.first_ms
        message.last_failure_ms = facts.failure.last_ms
        message.reasons.extend(facts.failure.reasons)
    return message


# --- deciding ------------------------------------------------------------------------------------------------------


async def decide_lanes(group: QueueGroup, decisions: Iterable[pb.LaneDecision]) -> pb.DecideLanesResponse:
    """Carry out decisions one by one; returns when all are synced."""
    outcomes: list[asyncio.Future[int] | LogbrokerError] = []
    for message in decisions:
        try:
            outcomes.append(group.operations.decide(await _read_decision(group, message)))
        except LogbrokerError as error:
            outcomes.append(error)
    response = pb.DecideLanesResponse()
    for outcome in outcomes:
        if isinstance(outcome, LogbrokerError):
            response.results.add(status=item_status(outcome))
        else:
            response.results.add(records_done=await outcome)
    return response


async def _read_decision(group: QueueGroup, message: pb.LaneDecision) -> Callable[[Operator, Moment], int]:
    """Return what carries out a decision, and tells how many records are done by it.

    Raises InvalidRequestError, or what prevents the reading of a head that is to be replaced.
    """
    named, kind = message.WhichOneof("lane"), message.WhichOneof("decision")
    if named is None or kind is None:
        raise InvalidRequestError("a decision names a lane, by `key` or `place`, and says what to do with it")
    key = lane_key(message.key)
    place = read_place(message.place.partition, message.place.offset) if named == "place" else NO_PLACE

    def lane_of(operator: Operator) -> Lane:
        return operator.lane(key) if named == "key" else operator.lane_of_record(place)

    def decide(operator: Operator, now: Moment) -> int:
        lane = lane_of(operator)
        if kind == "drop":
            return operator.drop(lane)
        waited = lane.head != NO_PLACE
        if kind == "skip_head":
            operator.skip(lane, now)
            return int(waited)
        operator.resume(lane)
        return 0

    if kind != "replace_head":
        return decide
    new = message.replace_head
    replace = await group.operations.replacement(
        lane_of,
        new.value if new.HasField("value") else None,
        [(header.key, header.value if header.HasField("value") else None) for header in new.headers],
        new.key if new.HasField("key") else None,
    )

    def replace_head(operator: Operator, now: Moment) -> int:
        replace(operator, now)
        return 0

    return replace_head
