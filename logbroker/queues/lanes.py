"""Lanes as operators see them: the reasons why they are stalled, and which lanes need attention first."""

from __future__ import annotations

import enum
import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from logbroker.pacing import Pace, Steps, in_turns
from logbroker.queues.group import QueueGroup
from logbroker.queues.machine.inspect import LaneFacts
from logbroker.queues.model.lane import IN_SESSION, NO_RECORD, Lane, lane_key
from logbroker.queues.model.record_id import partition_of
from logbroker.record.codec import LogRecord

READ_AT_ONCE: Final = 1_000
"""Maximum number of heads that are read at once. No index has the timestamps of heads."""
SLICE_LANES: Final = 1_000
"""Number of lanes that are examined between two steps of a `Pace`."""
MOMENT_LANES: Final = 500
"""Maximum number of lanes that are described as of one moment."""
# Steps of a `Pace`:
EXPLAINED_STEPS: Final = 15
READ_STEPS: Final = 2
SORTED_PER_STEP: Final = 8
"""Number of integers that are sorted in one step."""
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
        dates = await _dates(group, (facts.head for facts in told), pace)
    elif order is LaneOrder.WAITING:
        lanes = await in_turns(inspector.waiting_lanes(), pace)

        def soonest(lane: Lane) -> float:
            return -inspector.due(lane) if inspector.is_waiting(lane) else -math.inf

        chosen = await _most(top, lanes, soonest, pace)
        told = [facts for facts in await _facts(group, chosen, inspector.is_waiting, pace) if facts is not None]
        told.sort(key=lambda facts: facts.due_in_seconds)
        dates = await _dates(group, (facts.head for facts in told), pace)
    elif order is LaneOrder.HOTTEST:
        lanes = await in_turns(inspector.all_lanes(), pace)
        chosen = await _most(top, lanes, inspector.size, pace)
        told = [facts for facts in await _facts(group, chosen, has_records, pace) if facts is not None]
        told.sort(key=lambda facts: -facts.waiting)
        dates = await _dates(group, (facts.head for facts in told), pace)
    else:
        lanes = await in_turns(inspector.all_lanes(), pace)
        chosen, known = await _oldest(group, top, lanes, pace)
        told = [facts for facts in await _facts(group, chosen, has_records, pace) if facts is not None]
        dates = known | await _dates(group, {facts.head for facts in told} - known.keys(), pace)
        told.sort(key=lambda facts: (dates.get(facts.head, -1) < 0, dates.get(facts.head, -1)))
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
    records = await _heads(group, sorted({facts.head for facts in told if facts is not None} - {NO_RECORD}))
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


async def _oldest(
    group: QueueGroup, count: int, lanes: Sequence[Lane], pace: Pace
) -> tuple[list[Lane], dict[int, int]]:
    """Return the `count` lanes with the oldest heads, and the timestamps of heads that were read for that, by record
    id. Lanes with heads that cannot be read are taken last.

    Within a partition, the timestamps are assumed to rise with the offsets. So only a few heads are read for each lane
    of the answer, and at least one in each partition.
    """
    search = OldestFirst(count, await _by_partition(count, lanes, group.inspector.first_of, pace))
    while heads := await in_turns(search.heads_to_read(), pace):
        search.dates.update(await _dates(group, heads, pace))
    return await in_turns(search.oldest(), pace), search.dates


async def _by_partition(
    count: int, lanes: Sequence[Lane], first_of: Callable[[Lane], int], pace: Pace
) -> dict[int, list[tuple[int, int, Lane]]]:
    """Return the `count` lanes of each partition whose heads have the lowest offsets, in this order. Each lane comes
    with its head and a number that no other lane has."""
    found: dict[int, list[tuple[int, int, Lane]]] = {}

    async def trim(entries: list[tuple[int, int, Lane]]) -> None:
        steps = len(entries)
        entries.sort()
        del entries[count:]
        await pace.step(steps)

    for start in range(0, len(lanes), SLICE_LANES):
        for number, lane in enumerate(lanes[start : start + SLICE_LANES], start):
            if (head := first_of(lane)) != NO_RECORD:
                entries = found.setdefault(partition_of(head), [])
                entries.append((head, number, lane))
                if len(entries) >= count + SLICE_LANES:
                    await trim(entries)
        await pace.step(2 * SLICE_LANES)
    for entries in found.values():
        await trim(entries)
    return found


class OldestFirst:
    """Decides which heads are read to find the lanes with the oldest ones. The timestamps of those that can be read go
    to `dates`.

    In a partition, twice as many heads are read each time, until the last of them is not older than `count` others.
    """

    def __init__(self, count: int, by_partition: Mapping[int, Sequence[tuple[int, int, Lane]]]) -> None:
        """`by_partition`: as `_by_partition` returns it."""
        self.dates: dict[int, int] = {}
        """Timestamps of heads, by record id."""
        self._count = count
        self._by_partition = by_partition
        self._tried: dict[int, int] = {}
        """Number of lanes of each partition whose heads were to be read."""
        self._open = set(by_partition)
        """Partitions whose next lane may be one of the oldest."""

    def heads_to_read(self) -> Steps[list[int]]:
        """Return the heads that are to be read next; none if the oldest lanes are known."""
        bound, heads = self._bound(), set[int]()
        yield len(self.dates) // SORTED_PER_STEP
        for partition in list(self._open):
            lanes, tried = self._by_partition[partition], self._tried.get(partition, 0)
            read = (self.dates.get(lanes[index][0], -1) for index in range(tried - 1, -1, -1))
            newest = next((date for date in read if date >= 0), -1)
            if tried == len(lanes) or newest >= bound:
                self._open.remove(partition)
                yield 2
                continue
            self._tried[partition] = min(len(lanes), max(1, 2 * tried))
            some = [head for head, *_ in lanes[tried : self._tried[partition]]]
            heads.update(some)
            yield 2 + len(some)
        return sorted(heads)

    def oldest(self) -> Steps[list[Lane]]:
        """Return the lanes with the oldest heads, oldest first; then lanes with heads that could not be read."""
        bound, dates = self._bound(), self.dates
        dated: list[tuple[int, Lane]] = []
        others: list[Lane] = []
        for partition, tried in self._tried.items():
            for head, _, lane in self._by_partition[partition][:tried]:
                if (date := dates.get(head)) is None:
                    others.append(lane)
                elif date <= bound:
                    dated.append((date, lane))
            yield 2 + tried
        dated.sort(key=itemgetter(0))
        yield len(dated) // SORTED_PER_STEP
        return [*(lane for _, lane in dated), *others][: self._count]

    def _bound(self) -> float:
        """Return the timestamp of the last of the oldest lanes, as far as is known now."""
        return sorted(self.dates.values())[self._count - 1] if len(self.dates) >= self._count else math.inf


def _held_since(group: QueueGroup, lane: Lane) -> int:
    failure = group.queue.stalled.failure_of(lane)
    return 0 if failure is None else failure.last_ms


async def _dates(group: QueueGroup, heads: Iterable[int], pace: Pace) -> dict[int, int]:
    """Return the timestamps of those heads that can be read and have one, by record id."""
    wanted = sorted(set(heads) - {NO_RECORD})
    dates: dict[int, int] = {}
    for start in range(0, len(wanted), READ_AT_ONCE):
        some = wanted[start : start + READ_AT_ONCE]
        records = await _heads(group, some)
        dates.update((head, record.timestamp_ms) for head, record in records.items() if record.timestamp_ms >= 0)
        await pace.step(READ_STEPS * len(some))
    return dates


async def _heads(group: QueueGroup, heads: Sequence[int]) -> dict[int, LogRecord]:
    """Return those heads that can be read from the log, by record id. `heads` rise."""
    records = await group.records.fetch(heads) if heads else []
    return {head: record for head, record in zip(heads, records, strict=True) if isinstance(record, LogRecord)}
