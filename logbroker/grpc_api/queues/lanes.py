"""What an operator sees of the lanes of a queue group, and decides about them."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.grpc_api.paging import FRAME_BYTES, FULL
from logbroker.grpc_api.queues.messages import read_place
from logbroker.grpc_api.status import Statuses, item_status
from logbroker.pacing import Pace, in_turns
from logbroker.queues.group import QueueGroup
from logbroker.queues.machine.inspect import Inspector, LaneFacts
from logbroker.queues.model.lane import IN_SESSION, NO_PLACE, Lane, lane_key
from logbroker.queues.model.record_id import Moment, offset_of, partition_of
from logbroker.queues.operations import BulkDecision
from logbroker.record.codec import LogRecord
from logbroker.v1 import queues_pb2 as pb

DEFAULT_TOP: Final = 20
MAX_TOP: Final = 10_000
MAX_EXPLAINED: Final = 400
"""Keys that one request may ask about, whose answer tells of all their failures."""
MAX_DATED: Final = 1_000
"""Lanes whose heads are read for one answer: for a date that is in no index."""
SLICE_LANES: Final = 1_000
"""That are looked at in one go."""
MOMENT_LANES: Final = 500
"""That are told of as they are at one moment."""
# Of a `Pace`:
EXPLAINED_STEPS: Final = 15
DECIDED_STEPS: Final = 20
HASHED_PER_STEP: Final = 1_000
"""Bytes of a key."""

IDLE: Final = "idle"
NOT_SCANNED: Final = "not scanned"
"""Nothing of it waits as far as the log is scanned, which is not all of it."""


# --- looking -------------------------------------------------------------------------------------------------------


async def list_lanes(group: QueueGroup, request: pb.ListLanesRequest, room_bytes: int) -> pb.ListLanesResponse:
    """Choose lanes, by what they are while all are gone through; then tell of these what they are at one moment.

    Raises InvalidRequestError.
    """
    top = request.top if request.HasField("top") else DEFAULT_TOP
    if not 1 <= top <= MAX_TOP:
        raise InvalidRequestError(f"top must be 1 to {MAX_TOP:,}, not {top}")
    pace = Pace()
    operator = group.operator

    def has_records(lane: Lane) -> bool:
        return operator.first_of(lane) != NO_PLACE

    if request.order == pb.LANE_ORDER_HELD:
        lanes = await in_turns(operator.held_lanes(), pace)
        chosen = await _most(top, lanes, lambda lane: -_held_since(group, lane), pace)
        told = [facts for facts in await _facts(group, chosen, operator.is_held, pace) if facts is not None]
        told.sort(key=lambda facts: 0 if facts.failure is None else facts.failure.last_ms)
        dates = await _dates(group, told[:MAX_DATED])
    elif request.order == pb.LANE_ORDER_WAITING:
        lanes = await in_turns(operator.waiting_lanes(), pace)

        def soonest(lane: Lane) -> float:
            return -operator.due(lane) if operator.is_waiting(lane) else -math.inf

        chosen = await _most(top, lanes, soonest, pace)
        told = [facts for facts in await _facts(group, chosen, operator.is_waiting, pace) if facts is not None]
        told.sort(key=lambda facts: facts.due_in_seconds)
        dates = await _dates(group, told[:MAX_DATED])
    elif request.order == pb.LANE_ORDER_HOTTEST:
        lanes = await in_turns(operator.all_lanes(), pace)
        chosen = await _most(top, lanes, operator.size, pace)
        told = [facts for facts in await _facts(group, chosen, has_records, pace) if facts is not None]
        told.sort(key=lambda facts: -facts.waiting)
        dates = await _dates(group, told[:MAX_DATED])
    elif request.order == pb.LANE_ORDER_OLDEST:
        lanes = await in_turns(operator.all_lanes(), pace)
        chosen = await _oldest(top, lanes, operator.first_of, pace)
        told = [facts for facts in await _facts(group, chosen, has_records, pace) if facts is not None]
        dates = await _dates(group, told)
        told.sort(key=lambda facts: (dates.get(facts.head, -1) < 0, dates.get(facts.head, -1)))
        del told[top:]
    else:
        raise InvalidRequestError(f"order {request.order} is unknown; leave it out or use a value of queues.proto")
    response = pb.ListLanesResponse(total=len(lanes))
    for facts in told:
        message = _lane(facts, dates.get(facts.head, -1))
        del message.reasons[:-1]
        room_bytes -= message.ByteSize() + FRAME_BYTES
        if room_bytes < 0:
            break
        response.lanes.append(message)
        await pace.step(EXPLAINED_STEPS)
    return response


async def explain_lanes(
    group: QueueGroup, keys: Sequence[bytes], room_bytes: int, *, is_all_scanned: bool
) -> pb.ExplainLanesResponse:
    """`is_all_scanned`: all that was readable when the request came, so that what is not there is not in the log."""
    pace = Pace()
    absent = IDLE if is_all_scanned else NOT_SCANNED
    named: list[Lane] = []
    for key in keys:
        named.append(Lane(lane_key(key), NO_PLACE, IN_SESSION))
        await pace.step(2 + len(key) // HASHED_PER_STEP)
    told = await _facts(group, named, lambda _: True, pace)
    dates = await _dates(group, [facts for facts in told if facts is not None][:MAX_DATED])
    response = pb.ExplainLanesResponse()
    full = item_status(FULL)
    for lane, facts in zip(named, told, strict=True):
        if facts is None:
            message = pb.Lane(key=lane.key, state=absent, partition=-1, offset=-1, oldest_timestamp_ms=-1)
        else:
            message = _lane(facts, dates.get(facts.head, -1))
        room_bytes -= message.ByteSize() + FRAME_BYTES
        response.lanes.append(message if room_bytes >= 0 else pb.Lane(key=message.key, status=full))
        await pace.step(EXPLAINED_STEPS + len(message.key) // HASHED_PER_STEP)
    return response


async def _facts(
    group: QueueGroup, found: Sequence[Lane], is_asked_for: Callable[[Lane], bool], pace: Pace
) -> list[LaneFacts | None]:
    """What holds now of lanes that were found or named some time ago, `MOMENT_LANES` of them at one moment; None: the
    lane is no more, or is not asked for any more."""
    operator = group.operator
    explanation = operator.explanation(lane.key for lane in found if lane.key is not None)
    told: list[LaneFacts | None] = []
    for start in range(0, len(found), MOMENT_LANES):
        if start:
            await pace.step(MOMENT_LANES * EXPLAINED_STEPS)
        await in_turns(explanation.catch_up(), pace)
        now = group.moment()
        for each in found[start : start + MOMENT_LANES]:
            lane = operator.as_it_is(each)
            told.append(explanation.of(lane, now) if lane is not None and is_asked_for(lane) else None)
    return told


async def _most(count: int, lanes: Sequence[Lane], weight: Callable[[Lane], float], pace: Pace) -> list[Lane]:
    """The lanes of the most weight, most first; of equal weight, those that come first."""
    best: list[tuple[float, int, Lane]] = []
    for start in range(0, len(lanes), SLICE_LANES):
        # What weighs less than all that was found so far is not even compared.
        for number, lane in enumerate(lanes[start : start + SLICE_LANES], start):
            entry = weight(lane), -number, lane
            if len(best) < count:
                heapq.heappush(best, entry)
            elif entry > best[0]:
                heapq.heapreplace(best, entry)
        await pace.step(SLICE_LANES)
    best.sort(reverse=True)
    await pace.step(len(best))
    return [lane for *_, lane in best]


async def _oldest(count: int, lanes: Sequence[Lane], first_of: Callable[[Lane], int], pace: Pace) -> list[Lane]:
    """The lanes whose heads have the lowest offsets of their partitions: among them are the oldest ones."""
    by_partition: dict[int, list[tuple[int, int, Lane]]] = {}
    for start in range(0, len(lanes), SLICE_LANES):
        for number, lane in enumerate(lanes[start : start + SLICE_LANES], start):
            if (head := first_of(lane)) != NO_PLACE:
                by_partition.setdefault(partition_of(head), []).append((head, number, lane))
        share = min(count, max(1, MAX_DATED // max(1, len(by_partition))))
        for partition, found in by_partition.items():
            if len(found) > share:
                by_partition[partition] = heapq.nsmallest(share, found)
        await pace.step(2 * SLICE_LANES)
    return [lane for found in by_partition.values() for *_, lane in found][:MAX_DATED]


def _held_since(group: QueueGroup, lane: Lane) -> int:
    failure = group.queue.held.failure_of(lane)
    return 0 if failure is None else failure.last_ms


async def _dates(group: QueueGroup, told: Iterable[LaneFacts]) -> dict[int, int]:
    """The timestamps of heads, by place; of those that can be read."""
    heads = sorted({facts.head for facts in told} - {NO_PLACE})
    records = await group.records.fetch(heads) if heads else []
    return {
        head: record.timestamp_ms for head, record in zip(heads, records, strict=True) if isinstance(record, LogRecord)
    }


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
        if facts.cause != facts.head:
            message.cause.partition, message.cause.offset = partition_of(facts.cause), offset_of(facts.cause)
            message.cause_attempts = facts.failure.count
        message.first_failure_ms = facts.failure.first_ms
        message.last_failure_ms = facts.failure.last_ms
        message.reasons.extend(facts.failure.reasons)
    return message


# --- deciding ------------------------------------------------------------------------------------------------------


async def decide_lanes(group: QueueGroup, decisions: Iterable[pb.LaneDecision]) -> pb.DecideLanesResponse:
    """Carry out decisions one by one; returns when all are synced."""
    pace, statuses = Pace(), Statuses()
    outcomes: list[asyncio.Future[int] | BulkDecision | LogbrokerError] = []
    for message in decisions:
        try:
            if message.WhichOneof("lane") == "all_held":
                outcomes.append(await group.operations.decide_all(_decision_of_all(message), pace))
            elif message.WhichOneof("decision") == "drop":
                outcomes.append(await group.operations.drop(_lane_named(message), pace))
            else:
                outcomes.append(group.operations.decide(await _read_decision(group, message)))
        except LogbrokerError as error:
            outcomes.append(error.as_value())
        await pace.step(DECIDED_STEPS)
    response = pb.DecideLanesResponse()
    for outcome in outcomes:
        if isinstance(outcome, LogbrokerError):
            response.results.add(status=statuses.of(outcome))
        elif isinstance(outcome, BulkDecision):
            result = response.results.add(
                records_done=outcome.records_done, lanes=outcome.lanes, refused=outcome.refused
            )
            if outcome.why is not None:
                result.why_refused.CopyFrom(statuses.of(outcome.why))
        else:
            response.results.add(records_done=await outcome)
        await pace.step(2)
    return response


def _decision_of_all(message: pb.LaneDecision) -> Literal["resume", "skip", "drop"]:
    kind = message.WhichOneof("decision")
    if not message.all_held or kind is None or kind == "replace_head":
        raise InvalidRequestError("of all lanes that stand can be decided: resume, skip_head or drop")
    return "resume" if kind == "resume" else "skip" if kind == "skip_head" else "drop"


def _lane_named(message: pb.LaneDecision) -> Callable[[Inspector], Lane]:
    """Return what finds the lane that a decision is about; raises InvalidRequestError."""
    named = message.WhichOneof("lane")
    if named is None or message.WhichOneof("decision") is None:
        raise InvalidRequestError("a decision names a lane, by `key` or `place`, and says what to do with it")
    if named == "key":
        key = lane_key(message.key)
        return lambda operator: operator.lane(key)
    place = read_place(message.place.partition, message.place.offset)
    return lambda operator: operator.lane_of_record(place)


async def _read_decision(group: QueueGroup, message: pb.LaneDecision) -> Callable[[Inspector, Moment], int]:
    """Return what carries out a decision, and tells how many records are done by it.

    Raises InvalidRequestError, or what prevents the reading of a head that is to be replaced.
    """
    lane_of, kind = _lane_named(message), message.WhichOneof("decision")

    def decide(operator: Inspector, now: Moment) -> int:
        lane = lane_of(operator)
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

    def replace_head(operator: Inspector, now: Moment) -> int:
        replace(operator, now)
        return 0

    return replace_head
