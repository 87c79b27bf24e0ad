"""Lanes as operators see them: the reasons why they are stalled, and which lanes need attention first."""

from __future__ import annotations

import enum
import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from logbroker.pacing import Pace, in_turns
from logbroker.queues.group import QueueGroup
from logbroker.queues.machine.inspect import LaneFacts
from logbroker.queues.model.lane import IN_SESSION, NO_RECORD, Lane, lane_key
from logbroker.queues.model.record_id import partition_of
from logbroker.record.codec import LogRecord

MAX_DATED: Final = 1_000
"""Maximum number of lanes whose heads are read for one answer, because no index has the timestamps of heads."""
SLICE_LANES: Final = 1_000
"""Number of lanes that are examined between two steps of a `Pace`."""
MOMENT_LANES: Final = 500
"""Maximum number of lanes that are described as of one moment."""
# Steps of a `Pace`:
EXPLAINED_STEPS: Final = 15
HASHED_PER_STEP: Final = 1_000
"""Bytes of a key that are hashed in one step."""

IDLE: Final = "idle"
NOT_SCANNED: Final = "not scanned"
"""State of a lane without waiting records while the log is not scanned to its end."""


class LaneOrder(enum.Enum):
    """The order in which lanes are listed."""

    HOTTEST = "hottest"
    """Lanes with the most records first."""
    OLDEST = "oldest"
    """Lanes with the oldest first record first."""
    HELD = "held"
    """Only held lanes; those whose last failure is the longest ago first."""
    WAITING = "waiting"
    """Only lanes that wait for a time, or for the dead-letter topic; those that are due soonest first."""


class ToldLane(NamedTuple):
    """A lane at one moment, and the timestamp of its head; -1 if it is unknown."""

    facts: LaneFacts
    timestamp_ms: int


class ExplainedLane(NamedTuple):
    """The lane of a key. If none of its records waits, `told` is None, and `state` says whether the log is scanned to
    its end, or that the lane is split."""

    key: bytes
    told: ToldLane | None
    state: str
    sub_lanes: list[bytes]
    """Keys of the sub-lanes that have records, if the lane is split."""
    waiting: int
    """Records of the lane and of its sub-lanes, including those that sessions have in flight."""
    record: LogRecord | None
    """The head as workers get it: if it is replaced, the record in its place. None: it was not asked for, or cannot be
    read."""


async def choose_lanes(group: QueueGroup, order: LaneOrder, top: int, pace: Pace) -> tuple[int, list[ToldLane]]:
    """Choose up to `top` lanes by their state during one pass over all of them, then describe the chosen lanes,
    `MOMENT_LANES` at a time as of one moment. Return the number of lanes in the pass, and the chosen lanes in
    `order`."""
    inspector = group.inspector

    def has_records(lane: Lane) -> bool:
        return inspector.first_of(lane) != NO_RECORD

    if order is LaneOrder.HELD:
        lanes = await in_turns(inspector.held_lanes(), pace)
        chosen = await _most(top, lanes, lambda lane: -_held_since(group, lane), pace)
        told = [facts for facts in await _facts(group, chosen, inspector.is_held, pace) if facts is not None]
        told.sort(key=lambda facts: 0 if facts.failure is None else facts.failure.last_ms)
        dates = await _dates(group, told[:MAX_DATED])
    elif order is LaneOrder.WAITING:
        lanes = await in_turns(inspector.waiting_lanes(), pace)

        def soonest(lane: Lane) -> float:
            return -inspector.due(lane) if inspector.is_waiting(lane) else -math.inf

        chosen = await _most(top, lanes, soonest, pace)
        told = [facts for facts in await _facts(group, chosen, inspector.is_waiting, pace) if facts is not None]
        told.sort(key=lambda facts: facts.due_in_seconds)
        dates = await _dates(group, told[:MAX_DATED])
    elif order is LaneOrder.HOTTEST:
        lanes = await in_turns(inspector.all_lanes(), pace)
        chosen = await _most(top, lanes, inspector.size, pace)
        told = [facts for facts in await _facts(group, chosen, has_records, pace) if facts is not None]
        told.sort(key=lambda facts: -facts.waiting)
        dates = await _dates(group, told[:MAX_DATED])
    else:
        lanes = await in_turns(inspector.all_lanes(), pace)
        chosen = await _oldest(top, lanes, inspector.first_of, pace)
        told = [facts for facts in await _facts(group, chosen, has_records, pace) if facts is not None]
        dates = await _dates(group, told)
        told.sort(key=lambda facts: (dates.get(facts.head, -1) < 0, dates.get(facts.head, -1)))
        del told[top:]
    return len(lanes), [ToldLane(facts, dates.get(facts.head, -1)) for facts in told]


async def explain_lanes(
    group: QueueGroup, keys: Sequence[bytes], pace: Pace, *, is_all_scanned: bool, with_records: bool = False
) -> list[ExplainedLane]:
    """Return the states of the lanes of these keys and the reasons why they are stalled. The states are of one moment,
    unless there are more than `MOMENT_LANES` keys. `with_records` adds the heads themselves.

    `is_all_scanned`: the scan has reached the high watermarks that held at the time of the request, so a lane that is
    absent has no waiting records.
    """
    inspector = group.inspector
    absent = IDLE if is_all_scanned else NOT_SCANNED
    named: list[Lane] = []
    for key in keys:
        named.append(Lane(lane_key(key), NO_RECORD, IN_SESSION))
        await pace.step(2 + len(key) // HASHED_PER_STEP)
    told = await _facts(group, named, lambda _: True, pace)
    records = await _heads(group, [facts for facts in told if facts is not None][:MAX_DATED])
    replacements = group.queue.replacements.records
    explained: list[ExplainedLane] = []
    for lane, facts in zip(named, told, strict=True):
        key = lane.key or b""
        split = group.queue.splits.by_key.get(key)
        state = absent if facts is None else facts.state
        sub_lanes: list[bytes] = []
        waiting = 0 if facts is None else facts.waiting
        if split is not None:
            state = group.queue.splitting.state_of(key)
            for each in split.sub_lanes():
                if inspector.has_lane(each):
                    sub_lanes.append(each)
                    waiting += inspector.size(inspector.lane(each))
            await pace.step(split.into)
        if facts is None:
            explained.append(ExplainedLane(key, None, state, sub_lanes, waiting, None))
            continue
        record = records.get(facts.head)
        lane_told = ToldLane(facts, -1 if record is None else record.timestamp_ms)
        if facts.replaced:
            record = replacements.get(facts.head)  # None: it is done since the lane was described.
        explained.append(ExplainedLane(key, lane_told, state, sub_lanes, waiting, record if with_records else None))
    return explained


async def _facts(
    group: QueueGroup, found: Sequence[Lane], is_asked_for: Callable[[Lane], bool], pace: Pace
) -> list[LaneFacts | None]:
    """Return the current facts of lanes that were found or named earlier, `MOMENT_LANES` at a time as of one moment;
    None for a lane that is gone or no longer fits the request."""
    inspector = group.inspector
    explanation = inspector.explanation(lane.key for lane in found if lane.key is not None)
    told: list[LaneFacts | None] = []
    for start in range(0, len(found), MOMENT_LANES):
        await in_turns(explanation.catch_up(), pace)
        now = group.moment()
        some = found[start : start + MOMENT_LANES]
        for each in some:
            lane = inspector.as_it_is(each)
            told.append(explanation.of(lane, now) if lane is not None and is_asked_for(lane) else None)
        await pace.step(len(some) * EXPLAINED_STEPS)
    return told


async def _most(count: int, lanes: Sequence[Lane], weight: Callable[[Lane], float], pace: Pace) -> list[Lane]:
    """Return the `count` lanes with the highest weights, heaviest first. Among equal lanes, those found first are
    preferred."""
    best: list[tuple[float, int, Lane]] = []
    for start in range(0, len(lanes), SLICE_LANES):
        # A lane that is lighter than all kept lanes costs one comparison.
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
    """Return up to `MAX_DATED` lanes, in each partition those whose heads have the lowest offsets. These are the oldest
    of their partition if timestamps rise with the offsets."""
    by_partition: dict[int, list[tuple[int, int, Lane]]] = {}
    for start in range(0, len(lanes), SLICE_LANES):
        for number, lane in enumerate(lanes[start : start + SLICE_LANES], start):
            if (head := first_of(lane)) != NO_RECORD:
                by_partition.setdefault(partition_of(head), []).append((head, number, lane))
        share = min(count, max(1, MAX_DATED // max(1, len(by_partition))))
        for partition, found in by_partition.items():
            if len(found) > share:
                by_partition[partition] = heapq.nsmallest(share, found)
        await pace.step(2 * SLICE_LANES)
    return [lane for found in by_partition.values() for *_, lane in found][:MAX_DATED]


def _held_since(group: QueueGroup, lane: Lane) -> int:
    failure = group.queue.stalled.failure_of(lane)
    return 0 if failure is None else failure.last_ms


async def _dates(group: QueueGroup, told: Iterable[LaneFacts]) -> dict[int, int]:
    """Return the timestamps of those heads that can be read, by record id."""
    return {head: record.timestamp_ms for head, record in (await _heads(group, told)).items()}


async def _heads(group: QueueGroup, told: Iterable[LaneFacts]) -> dict[int, LogRecord]:
    """Return those heads that can be read from the log, by record id."""
    heads = sorted({facts.head for facts in told} - {NO_RECORD})
    records = await group.records.fetch(heads) if heads else []
    return {head: record for head, record in zip(heads, records, strict=True) if isinstance(record, LogRecord)}
