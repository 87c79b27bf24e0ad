"""Conversion of lanes of a queue group, and of operators' decisions about them, to and from messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from logbroker.errors import InvalidRequestError, LogbrokerError, UnknownLaneError
from logbroker.grpc_api.log.plain_records import stored_record
from logbroker.grpc_api.paging import FRAME_BYTES, FULL
from logbroker.grpc_api.queues.messages import read_record_id
from logbroker.grpc_api.status import Statuses, item_status
from logbroker.pacing import Pace
from logbroker.queues.group import QueueGroup
from logbroker.queues.lanes import (
    EXPLAINED_STEPS,
    HASHED_PER_STEP,
    LaneOrder,
    ToldLane,
    choose_lanes,
    explain_lanes,
)
from logbroker.queues.model.lane import NO_RECORD, lane_key
from logbroker.queues.model.record_id import offset_of, partition_of
from logbroker.queues.model.second_key import SecondKey
from logbroker.queues.operations import BulkDecision, LaneName
from logbroker.record.codec import LogRecord
from logbroker.v1 import queues_pb2 as pb

DEFAULT_TOP: Final = 20
MAX_TOP: Final = 10_000
MAX_EXPLAINED: Final = 400
"""Maximum number of keys that one request may ask about: the answer lists all failures of their lanes."""
DECIDED_STEPS: Final = 20
"""Steps of a `Pace` that a decision takes."""

_ORDERS: Final = {
    pb.LANE_ORDER_HOTTEST: LaneOrder.HOTTEST,
    pb.LANE_ORDER_OLDEST: LaneOrder.OLDEST,
    pb.LANE_ORDER_HELD: LaneOrder.HELD,
    pb.LANE_ORDER_WAITING: LaneOrder.WAITING,
}


# --- listing -------------------------------------------------------------------------------------------------------


async def listed_lanes(group: QueueGroup, request: pb.ListLanesRequest, room_bytes: int) -> pb.ListLanesResponse:
    """Return the lanes that a request asks for, as many as fit. Raises InvalidRequestError."""
    top = request.top if request.HasField("top") else DEFAULT_TOP
    if not 1 <= top <= MAX_TOP:
        raise InvalidRequestError(f"top must be 1 to {MAX_TOP:,}, not {top}")
    order = _ORDERS.get(request.order)
    if order is None:
        raise InvalidRequestError(f"order {request.order} is unknown; leave it out or use a value of queues.proto")
    pace = Pace()
    total, told = await choose_lanes(group, order, top, pace)
    response = pb.ListLanesResponse(total=total)
    for each in told:
        message = _lane(each)
        del message.reasons[:-1]
        room_bytes -= message.ByteSize() + FRAME_BYTES
        if room_bytes < 0:
            break
        response.lanes.append(message)
        await pace.step(EXPLAINED_STEPS)
    return response


async def explained_lanes(
    group: QueueGroup, keys: Sequence[bytes], room_bytes: int, *, is_all_scanned: bool, with_records: bool = False
) -> pb.ExplainLanesResponse:
    """Explain the lanes of these keys, as many as fit; see `explain_lanes`. A record that does not fit is left out,
    except the first one of the answer."""
    pace = Pace()
    response = pb.ExplainLanesResponse()
    has_record = False
    full = item_status(FULL)
    explained = await explain_lanes(group, keys, pace, is_all_scanned=is_all_scanned, with_records=with_records)
    for key, told, state, sub_lanes, waiting, record in explained:
        if told is None:
            message = pb.Lane(key=key, state=state, partition=-1, offset=-1, oldest_timestamp_ms=-1)
        else:
            message = _lane(told)
        message.state = state
        message.sub_lanes.extend(sub_lanes)
        message.waiting = waiting
        room_bytes -= message.ByteSize() + FRAME_BYTES
        fits = room_bytes >= 0
        if fits and record is not None and (not has_record or _content_bytes(record) <= room_bytes):
            stored = stored_record(record)
            size_bytes = stored.ByteSize() + FRAME_BYTES
            if not has_record or size_bytes <= room_bytes:
                has_record = True
                message.record.CopyFrom(stored)
                room_bytes -= size_bytes
            await pace.step(len(record.headers))
        response.lanes.append(message if fits else pb.Lane(key=message.key, status=full))
        await pace.step(EXPLAINED_STEPS + len(message.key) // HASHED_PER_STEP)
    return response


def _content_bytes(record: LogRecord) -> int:
    return sum(len(content or b"") for content in (record.key, record.value, *(value for _, value in record.headers)))


def _lane(told: ToldLane) -> pb.Lane:
    facts = told.facts
    message = pb.Lane(
        key=facts.key,
        state=facts.state,
        partition=-1 if facts.head == NO_RECORD else partition_of(facts.head),
        offset=-1 if facts.head == NO_RECORD else offset_of(facts.head),
        waiting=facts.waiting,
        attempt=facts.attempt,
        worker_id=facts.worker_id,
        worker_client=facts.worker_client,
        oldest_timestamp_ms=told.timestamp_ms,
        session_token=facts.session_token,
        level=facts.level,
        refusal=facts.refusal,
        obstacle=facts.obstacle,
        replaced=facts.replaced,
    )
    if facts.due_in_seconds > 0:
        message.due_in_ms = round(facts.due_in_seconds * 1000)
    if facts.held_seconds > 0:
        message.held_ms = round(facts.held_seconds * 1000)
    if facts.failure is not None:
        if facts.cause != facts.head:
            message.cause.partition, message.cause.offset = partition_of(facts.cause), offset_of(facts.cause)
            message.cause_attempts = facts.failure.count
        message.first_failure_ms = facts.failure.first_ms
        message.last_failure_ms = facts.failure.last_ms
        message.reasons.extend(facts.failure.reasons)
    return message


# --- deciding ------------------------------------------------------------------------------------------------------


async def decide_lanes(
    group: QueueGroup, decisions: Iterable[pb.LaneDecision], *, is_all_scanned: bool
) -> pb.DecideLanesResponse:
    """Carry out decisions one by one; return when all are synced. `is_all_scanned`: as in `explain_lanes`."""
    pace, statuses = Pace(), Statuses()
    outcomes: list[asyncio.Future[int] | BulkDecision | LogbrokerError] = []
    for message in decisions:
        try:
            if message.WhichOneof("lane") == "all_held":
                outcomes.append(await group.operations.decide_all(_decision_of_all(message), pace))
            else:
                outcomes.append(await _decide(group, message, pace))
        except UnknownLaneError as error:
            rest = "" if is_all_scanned else "; the log is not scanned to its end yet: try again later"
            outcomes.append(UnknownLaneError(f"{error}{rest}"))
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
    if not message.all_held or kind not in ("resume", "skip_head", "drop"):
        raise InvalidRequestError("a decision about all held lanes must be resume, skip_head or drop")
    return "resume" if kind == "resume" else "skip" if kind == "skip_head" else "drop"


async def _decide(group: QueueGroup, message: pb.LaneDecision, pace: Pace) -> asyncio.Future[int]:
    """Carry out a decision about one lane. The future completes with the number of records done, when the change is
    synced.

    Raises InvalidRequestError, or the errors of the decision.
    """
    lane, operations = _lane_named(message), group.operations
    match message.WhichOneof("decision"):
        case "skip_head":
            return operations.skip(lane)
        case "drop":
            return await operations.drop(lane, pace)
        case "replace_head":
            new = message.replace_head
            return await operations.replace_head(
                lane,
                new.value if new.HasField("value") else None,
                [(header.key, header.value if header.HasField("value") else None) for header in new.headers],
                new.key if new.HasField("key") else None,
            )
        case "split":
            done = operations.split(_key_named(lane), SecondKey.parse(message.split.by), message.split.into)
            await pace.step(message.split.into)
            return done
        case "join":
            return operations.join(_key_named(lane))
        case _:
            return operations.resume(lane)


def _key_named(lane: LaneName) -> bytes:
    if lane.key is None:
        raise InvalidRequestError("only the lane of an ordering key can be split or joined: name it by `key`")
    return lane.key


def _lane_named(message: pb.LaneDecision) -> LaneName:
    """Return the name of the lane in a decision. Raises InvalidRequestError."""
    named = message.WhichOneof("lane")
    if named is None or message.WhichOneof("decision") is None:
        raise InvalidRequestError("a decision names a lane, by `key` or `place`, and says what to do with it")
    if named == "key":
        return LaneName(key=lane_key(message.key))
    return LaneName(record_id=read_record_id(message.place.partition, message.place.offset))
