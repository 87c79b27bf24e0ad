"""The index of waiting records: lanes with their heads and successors, and the ready queue.

With an ordering, all records of one ordering key form a lane: a head and, behind it, the record ids of its successors
in the order of their admission. A record without an ordering key is a lane of its own, which cannot be found by key.
Without any ordering, the ready queue contains *runs* of consecutive offsets instead; only single records, such as one
that failed, are lanes. With priorities, it contains cursors (see `priority.runs`) for all records without an ordering
key.

`line` is the ready queue, in which lanes, runs and cursors wait for workers: a `FifoLine` or, in a group with
priorities, a `PriorityLine`. In the latter case `ranking` is told of each change of a lane. Every entry of the ready
queue is ready: a lane that is stalled, in flight or in a session is not in it.

Memory: a lane takes about 110 bytes plus its key, and each successor (see `successors`) takes 8 bytes. With priorities,
a lane takes 290 bytes plus its key, and each successor 20 bytes. Without priorities, the cost of a delivery does not
depend on the number of waiting records; with them, it grows with the logarithm of the number of lanes and cursors.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import compress
from typing import Final

from logbroker.pacing import Steps
from logbroker.queues.machine.fifo import FifoLine
from logbroker.queues.machine.successors import ChunkStore, Successors
from logbroker.queues.model.holders import WorkerSession
from logbroker.queues.model.lane import (
    CHUNK_RECORDS,
    GATED,
    IN_FLIGHT,
    IN_SESSION,
    NO_RECORD,
    PARKED,
    READY,
    Lane,
    RankedLane,
    Run,
)
from logbroker.queues.priority.policy import ALL_LEVELS, SchedulingPolicy
from logbroker.queues.priority.ranking import Ranking
from logbroker.queues.priority.ready_queue import PriorityLine
from logbroker.queues.state.change_set import ChangeSet

LANES_AT_ONCE: Final = 2_000
"""Number of lanes that are examined in one step."""


def _ignore(lane: Lane) -> None:
    pass


class LaneIndex:
    """All lanes of a queue group, and the ready queue."""

    def __init__(self, changes: ChangeSet, store: ChunkStore | None = None) -> None:
        self.line: FifoLine | PriorityLine = FifoLine()
        self.ranking: Ranking | None = None
        """The ranking of the lanes, in a group with priorities. Its ready queue is `line`."""
        self._by_key: dict[bytes, Lane] = {}
        self.has_keyless = False
        """Whether there are, or were, records without a key."""
        self.successors = Successors(store)
        self._changes = changes
        self.sessions: dict[bytes, WorkerSession] = {}
        """Open sessions by lane key. Their lanes never enter the ready queue."""
        self.offered: dict[bytes, None] = {}
        """Keys of the sessions that may have a record for their holder."""
        self.gated: set[bytes] = set()
        """Keys whose lanes never enter the ready queue, because they are being split or joined again."""
        self.on_parked_head: Callable[[Lane], None] = _ignore
        """Called when a parked lane without records gets its first record."""

    def rank_by(self, policy: SchedulingPolicy | None, *, by_head: bool) -> None:
        """Set the order in which lanes are handed out; None: first come, first served. While there are lanes, a policy
        may only be replaced by another policy: a change from or to None is not possible."""
        if policy is None:
            if self.ranking is not None:
                self.line, self.ranking = FifoLine(), None
        elif self.ranking is None:
            self.line = PriorityLine(policy, by_head=by_head)
            self.ranking = Ranking(self.line)
        else:
            self.ranking.line.policy, self.ranking.line.by_head = policy, by_head

    # --- queries -----------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> Lane | None:
        return self._by_key.get(key)

    def __iter__(self) -> Iterator[Lane]:
        """Iterate over the lanes with a key."""
        return iter(self._by_key.values())

    @property
    def count(self) -> int:
        """Number of lanes with a key."""
        return len(self._by_key)

    def only_in_sessions(self) -> list[bytes]:
        """Return the keys of lanes that have all their records in flight in sessions. `get` does not find these
        lanes."""
        by_key = self._by_key
        return [key for key, session in self.sessions.items() if session.in_flight and key not in by_key]

    @property
    def ready_records(self) -> int:
        """Number of records that could be handed out at once."""
        return self.line.records

    # --- admission ---------------------------------------------------------------------------------------------------

    def admit(
        self, base: int, offsets: Iterable[int], keys: Iterable[bytes | None], enter: Callable[[Lane], None] | None
    ) -> None:
        """Append records to the lanes of their keys. `base` is the record id of offset 0 of their partition.

        A new lane becomes ready. If `enter` is given, it is called with the new lane instead, and makes it ready or
        stalls it.
        """
        by_key = self._by_key
        get, roll = by_key.get, self.successors.roll
        put = enter or (self.make_ready if self.sessions or self.gated else self.line.append)
        for key, offset in zip(keys, offsets, strict=True):
            lane = get(key) if key is not None else None
            if lane is None:
                lane = Lane(key, base | offset, READY)
                if key is not None:
                    by_key[key] = lane
                else:
                    self.has_keyless = True
                put(lane)
            else:
                tail = lane.tail
                if tail is not None:
                    tail.append(base | offset)
                    if len(tail) >= CHUNK_RECORDS:
                        roll(lane, tail)
                elif lane.head != NO_RECORD:
                    lane.tail = array("q", (base | offset,))
                else:
                    lane.head = base | offset
                    self.on_parked_head(lane)

    def admit_ranked(
        self,
        ranking: Ranking,
        base: int,
        offsets: Sequence[int],
        keys: Sequence[bytes | None],
        priorities: bytes,
        times: Sequence[int],
        attention: Set[int],
        enter: Callable[[Lane], None],
    ) -> None:
        """Admit records in a group with priorities, as `admit` does. `enter` gets only new lanes whose head is in
        `attention`."""
        by_key = self._by_key
        without_key = bytearray(len(offsets))
        for index, (key, offset) in enumerate(zip(keys, offsets, strict=True)):
            record_id = base | offset
            lane = by_key.get(key) if key is not None else None
            if lane is not None:
                if lane.head != NO_RECORD:
                    ranking.join(lane, record_id, priorities[index], times[index])
                    self.successors.append(lane, record_id)
                else:
                    ranking.begin(lane, record_id, priorities[index], times[index])
                    self.on_parked_head(lane)
            elif key is None and record_id not in attention:
                without_key[index] = 1
            else:
                lane = ranking.new_lane(key, record_id, priorities[index], times[index])
                if key is not None:
                    by_key[key] = lane
                (enter if record_id in attention else self.make_ready)(lane)
        self.has_keyless = self.has_keyless or None in keys
        if any(without_key):
            ranking.admit(
                base,
                array("q", compress(offsets, without_key)),
                bytes(compress(priorities, without_key)),
                array("q", compress(times, without_key)),
            )

    def add_parked(self, key: bytes) -> Lane:
        """Add a parked lane of which no record is admitted yet."""
        make = Lane if self.ranking is None else RankedLane
        lane = self._by_key[key] = make(key, NO_RECORD, PARKED)
        return lane

    # --- the ready queue ---------------------------------------------------------------------------------------------

    def take(self, credit: int, levels: int = ALL_LEVELS) -> list[list[Lane] | Run]:
        """Take up to `credit` records out of the ready queue, as lanes and runs. The lanes are then in flight. With
        priorities, only the given levels are served."""
        if isinstance(self.line, FifoLine):
            return self.line.take(credit)
        assert self.ranking is not None
        lanes = self.ranking.take(credit, levels)
        return [lanes] if lanes else []

    def find_heads(self, record_ids: Sequence[int]) -> Steps[list[Lane]]:
        """Return the lanes that have these records as heads. Lanes without a key are not among them."""
        wanted = set(record_ids)
        found: list[Lane] = []
        lanes = list(self._by_key.values()) if wanted else []
        for start in range(0, len(lanes), LANES_AT_ONCE):
            yield LANES_AT_ONCE // 8
            found += [lane for lane in lanes[start : start + LANES_AT_ONCE] if lane.head in wanted]
        return found

    def take_these(self, wanted: Sequence[int], found: Sequence[Lane] | None = None) -> list[Lane]:
        """Take the `wanted` records out of the ready queue, as far as they are in it. `wanted` is sorted. `found`: the
        result of `find_heads` for `wanted`. Without `found`, or if there are records without a key, this scans the
        whole queue."""
        if found is None or self.has_keyless:
            lanes = self.line.take_these(wanted)
        else:
            heads, get = set(wanted), self._by_key.get
            # The lanes may have moved on since `find_heads`.
            lanes = [
                lane
                for lane in found
                if lane.key is not None and get(lane.key) is lane and lane.state == READY and lane.head in heads
            ]
            self.line.take_out(lanes)
        if self.ranking is not None:
            self.ranking.hand_out(lanes)
        return lanes

    def make_ready(self, lane: Lane) -> None:
        """Put a lane into the ready queue, unless it is gated or has a session. In a session, offer it to the
        holder."""
        if lane.key is not None and lane.key in self.gated:
            lane.state = GATED
        elif lane.key is not None and lane.key in self.sessions:
            lane.state = IN_SESSION
            self.offered[lane.key] = None
        else:
            lane.state = READY
            self.line.append(lane)

    def take_back(self, lanes: Sequence[Lane]) -> None:
        """Note that the heads of lanes are no longer in flight. The caller then stalls the lanes or makes them
        ready."""
        if self.ranking is not None:
            self.ranking.take_back(lanes)

    def give_back(self, lanes: Sequence[Lane]) -> None:
        """Put back lanes with heads that were not worked on, in their order: at the front of the ready queue, or at
        their rank."""
        self.take_back(lanes)
        if self.gated:
            for lane in lanes:
                if lane.key in self.gated:
                    lane.state = GATED
            lanes = [lane for lane in lanes if lane.state != GATED]
        self.line.give_back(lanes)

    # --- sessions ----------------------------------------------------------------------------------------------------

    def next_key(self) -> bytes | None:
        """Return the key of the next lane that has a key."""
        return self.line.next_key()

    def reserve(self, key: bytes) -> None:
        """Move the lane of a key from the ready queue, if it is there, to the key's new session."""
        lane = self._by_key.get(key)
        if lane is not None and lane.state == READY:
            self.line.remove(lane)
            self.make_ready(lane)

    def is_behind(self, lane: Lane) -> bool:
        """Return whether the lane has to wait: its session has earlier records in flight, or the lane is gated."""
        if self.gated and lane.key in self.gated:
            return True
        session = self.sessions.get(lane.key) if lane.key is not None else None
        return session is not None and session.in_flight > 0

    def take_head(self, lane: Lane) -> Lane:
        """Take the head of a lane in a session, and return it as a lane of its own, in flight."""
        head = Lane(lane.key, lane.head, IN_FLIGHT) if self.ranking is None else self.ranking.detached(lane)
        if self.pop_head(lane) == NO_RECORD:
            self.remove(lane)
        return head

    def put_back(self, key: bytes, records: Sequence[Lane]) -> Lane:
        """Put back records that came from `take_head`, before all waiting records of their key. Return the lane; its
        head is the first of these records."""
        self.take_back(records)
        lane = self._by_key.get(key)
        later = list(records)
        if lane is None:
            lane = self._by_key[key] = later.pop()
            lane.state = IN_SESSION
        for record in reversed(later):
            if self.ranking is not None:
                self.ranking.come_before(lane, record)
            self.successors.push(lane, lane.head)
            lane.head = record.head
        return lane

    # --- advancing ---------------------------------------------------------------------------------------------------

    def advance(self, lanes: Iterable[Lane], attention: Set[int], enter: Callable[[Lane], None]) -> None:
        """Replace the heads of lanes, which are done, by their successors, and make the lanes ready.

        If the new head is in `attention`, or the lane has a session or is gated, `enter` is called with the lane
        instead, and makes it ready or stalls it. A lane without a successor is removed.
        """
        by_key, sessions, gated, ranking = self._by_key, self.sessions, self.gated, self.ranking
        append = self.line.append
        for lane in lanes:
            left, tail = lane.head, lane.tail
            if ranking is not None and lane.state != IN_FLIGHT:
                ranking.forget(lane)
            if lane.chunks is not None:
                first = lane.chunks[0]
                if type(first) is array and len(first) > 1:
                    lane.head = first.pop()  # Does what `pop_from_chunk` does, without a call.
                else:
                    following = self.successors.pop_from_chunk(lane, lane.chunks)
                    if following is None:
                        self.remove(lane)
                        continue
                    lane.head = following
            elif tail is not None:
                lane.head = tail.pop(0)
                if not tail:
                    lane.tail = None
            else:
                if lane.key is not None:
                    del by_key[lane.key]
                continue
            if ranking is not None:
                ranking.go_on(lane, left)
            lane.state = READY
            if (
                (attention and lane.head in attention)
                or (sessions and lane.key in sessions)
                or (gated and lane.key in gated)
            ):
                enter(lane)
            else:
                append(lane)

    def pop_head(self, lane: Lane) -> int:
        """Make the next successor of a lane its head and return it, or NO_RECORD if there is none. The lane keeps its
        state."""
        left, following = lane.head, self.successors.pop(lane)
        if following is None:
            lane.head = NO_RECORD
            return NO_RECORD
        lane.head = following
        if self.ranking is not None:
            self.ranking.go_on(lane, left)
        return lane.head

    def first_records(self, lane: Lane, count: int) -> list[int]:
        """Return about `count` first records of a lane that has a head."""
        return [lane.head, *self.successors.peek(lane, count - 1)]

    def take_out(self, lane: Lane, record_ids: Sequence[int]) -> list[int]:
        """Take the first records out of a lane that is neither ready nor in flight, as long as they are `record_ids`,
        and return them. An empty lane is removed."""
        taken: list[int] = []
        for record_id in record_ids:
            if lane.head != record_id:
                break
            taken.append(record_id)
            if self.ranking is not None:
                self.ranking.forget(lane)
            if self.pop_head(lane) == NO_RECORD:
                self.remove(lane)
                break
        return taken

    def drop_successors(self, lane: Lane, count: int) -> list[int]:
        """Remove up to `count` records that follow the head of a lane, and return them. They are done."""
        record_ids: list[int] = []
        while len(record_ids) < count and (record_id := self.successors.pop(lane)) is not None:
            record_ids.append(record_id)
            if self.ranking is not None:
                self.ranking.forget_successor(lane, record_id)
        return record_ids

    def empty(self, lane: Lane) -> list[int]:
        """Remove a lane that is neither ready nor in flight, and return its records, which are done."""
        record_ids: list[int] = []
        while lane.head != NO_RECORD:
            record_ids.append(lane.head)
            if self.ranking is not None:
                self.ranking.forget(lane)
            self.pop_head(lane)
        self.remove(lane)
        return record_ids

    def remove(self, lane: Lane) -> None:
        """Remove a lane that is neither ready nor in flight, and has no records left."""
        if lane.key is not None:
            del self._by_key[lane.key]

    def clear(self) -> None:
        """Forget everything but the sessions and the gates, at once. The containers are freed later step by step,
        because that takes long."""
        self.successors.clear()
        self._changes.discarded += [self._by_key, *self.line.containers]
        self._by_key = {}
        self.has_keyless = False
        self.line.clear()
        self.offered.clear()
        if self.ranking is not None:
            self._changes.discarded += self.ranking.ranks.containers
            self.ranking.clear()
