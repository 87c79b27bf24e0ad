"""Rules by which Hypothesis drives lanes with priorities, beside a model that sorts all that is ready each time."""

from __future__ import annotations

from array import array
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logbroker.queues.machine.lane_index import LaneIndex
from logbroker.queues.model.lane import IN_FLIGHT, WAITING, Lane
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import Priority, PriorityRank, QueueGroupSettings
from logbroker.queues.priority.levels import counts_of, heads_of, of_level
from logbroker.queues.priority.policy import ALL_LEVELS, levels_of, policy_of
from logbroker.queues.priority.ranking import Ranking
from logbroker.queues.priority.runs import Unread
from logbroker.queues.state.change_set import ChangeSet
from logbroker.record.bands import DEFAULT_BANDS
from tests.queues.priority_model import ModelLane, ModelRecord, aged_order, overtaken, strict_order

PARTITIONS = 3
AGE_MS = 20
KEYS = st.sampled_from([b"a", b"b", b"c", None, None])
RECORDS = st.tuples(KEYS, st.integers(0, 9), st.integers(0, 99))
LEVELS = st.sampled_from([ALL_LEVELS, ALL_LEVELS, *map(levels_of, DEFAULT_BANDS)])


class PriorityMachine(RuleBasedStateMachine):
    """The lanes taken are those that the model would take, one by one."""

    ranks: tuple[PriorityRank, ...] = tuple(PriorityRank)
    priorities: tuple[Priority, ...] = (Priority.STRICT, Priority.AGEING)

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.rank = data.draw(st.sampled_from(self.ranks))
        self.priority = data.draw(st.sampled_from(self.priorities))
        settings = QueueGroupSettings(priority=self.priority, age_seconds=AGE_MS / 1000)
        self.lanes = LaneIndex(ChangeSet())
        self.lanes.rank_by(policy_of(settings, DEFAULT_BANDS), by_head=self.rank is PriorityRank.HEAD)
        assert self.lanes.ranking is not None
        self.ranking: Ranking = self.lanes.ranking
        self.ends = [0] * PARTITIONS
        self.ready: dict[int, ModelLane] = {}
        """Ready lanes by their heads."""
        self.others: dict[int, tuple[ModelLane, Lane]] = {}
        """In flight or held."""
        self.by_key: dict[bytes, ModelLane] = {}
        self.overtaken = [0] * 10

    # --- coming in ---------------------------------------------------------------------------------------------------

    @rule(
        partition=st.integers(0, PARTITIONS - 1), records=st.lists(RECORDS, min_size=1, max_size=8), gap=st.booleans()
    )
    def admit(self, partition: int, records: list[tuple[bytes | None, int, int]], gap: bool) -> None:
        self.ends[partition] += gap
        offsets = range(self.ends[partition], self.ends[partition] + len(records))
        self.ends[partition] += len(records)
        self.lanes.admit_ranked(
            self.ranking,
            record_id_of(partition, 0),
            offsets,
            [key for key, _, _ in records],
            bytes(priority for _, priority, _ in records),
            array("q", [time for _, _, time in records]),
            frozenset(),
            self.lanes.make_ready,
        )
        for offset, (key, priority, time) in zip(offsets, records, strict=True):
            self.join(ModelRecord(record_id_of(partition, offset), key, priority, time))

    def join(self, record: ModelRecord) -> None:
        lane = self.by_key.get(record.key) if record.key is not None else None
        if lane is not None:
            lane.records.append(record)
            return
        lane = self.ready[record.record_id] = ModelLane([record])
        if record.key is not None:
            self.by_key[record.key] = lane

    @rule(
        partition=st.integers(0, PARTITIONS - 1),
        records=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), min_size=1, max_size=8),
    )
    def admit_unread(self, partition: int, records: list[tuple[int, int]]) -> None:
        base, first = record_id_of(partition, 0), self.ends[partition]
        self.ends[partition] += len(records)
        priorities, times = bytes(priority for priority, _ in records), array("q", [time for _, time in records])
        offsets = range(first, first + len(records))
        counts, heads = counts_of(priorities), heads_of(offsets, priorities, times)
        read = partial(of_level, offsets, priorities, times)
        self.ranking.admit_unread(Unread(base, first, self.ends[partition], counts, heads, read))
        for offset, (priority, time) in zip(offsets, records, strict=True):
            self.join(ModelRecord(base | offset, None, priority, time))

    # --- going out and coming back -----------------------------------------------------------------------------------

    @rule(credit=st.integers(1, 6), levels=LEVELS)
    def take(self, credit: int, levels: int) -> None:
        expected: list[ModelLane] = []
        served = range((levels & -levels).bit_length() - 1, levels.bit_length())
        for _ in range(credit):
            ready = list(self.ready.values())
            if self.priority is Priority.STRICT:
                best = strict_order(ready, self.rank, served)[:1]
            else:
                best = aged_order(ready, self.rank, AGE_MS, served)[:1]
            for model in best:
                for level in overtaken(model, ready, self.rank):
                    self.overtaken[level] += 1
                expected.append(self.ready.pop(model.head.record_id))
        taken = [lane for piece in self.lanes.take(credit, levels) if isinstance(piece, list) for lane in piece]
        assert [lane.head for lane in taken] == [lane.head.record_id for lane in expected]
        for model, lane in zip(expected, taken, strict=True):
            assert (lane.key, lane.state) == (model.head.key, IN_FLIGHT)
            self.others[lane.head] = model, lane
        assert self.ranking.line.overtaken == self.overtaken

    @precondition(lambda self: self.others)
    @rule(pick=st.integers(0, 99), how=st.sampled_from(["ack", "ack", "give back", "hold"]))
    def settle(self, pick: int, how: str) -> None:
        record_id = list(self.others)[pick % len(self.others)]
        model, lane = self.others.pop(record_id)
        if how == "hold" and lane.state == IN_FLIGHT:
            self.lanes.take_back([lane])
            lane.state = WAITING
            self.others[record_id] = model, lane
        elif how == "ack":
            self.lanes.advance([lane], set(), self.lanes.make_ready)
            model.records.pop(0)
            if model.records:
                self.ready[model.head.record_id] = model
            elif lane.key is not None:
                del self.by_key[lane.key]
        elif lane.state == IN_FLIGHT:
            self.lanes.give_back([lane])
            self.ready[record_id] = model
        else:
            self.lanes.make_ready(lane)
            self.ready[record_id] = model

    @precondition(lambda self: self.ready)
    @rule(picks=st.lists(st.integers(0, 99), min_size=1, max_size=4))
    def take_these(self, picks: list[int]) -> None:
        """As after a crash of the broker; some of the records are not there."""
        wanted = {list(self.ready)[pick % len(self.ready)] for pick in picks}
        found = self.lanes.take_these(sorted({*wanted, *self.others, record_id_of(1, 1 << 40)}))
        assert {lane.head for lane in found} == wanted
        for lane in found:
            self.others[lane.head] = self.ready.pop(lane.head), lane

    # --- sessions ----------------------------------------------------------------------------------------------------

    @rule(ahead=st.integers(0, 3))
    def open_session(self, ahead: int) -> None:
        """The best lane that has a key leaves the line; records of it are handed out ahead, and come back."""
        keyed = [lane for lane in self.ready.values() if lane.head.key is not None]
        if self.priority is Priority.STRICT:
            best = strict_order(keyed, self.rank)
        else:
            best = aged_order(keyed, self.rank, AGE_MS)
        key = self.lanes.next_key()
        assert key == (best[0].head.key if best else None)
        if key is None:
            return
        lane = self.lanes.get(key)
        assert lane is not None
        self.lanes.line.remove(lane)
        heads = [self.lanes.take_head(lane) for _ in range(min(ahead, len(lane)))]
        assert [head.head for head in heads] == [record.record_id for record in best[0].records[:ahead]]
        if heads:
            self.lanes.put_back(key, heads)
        put_back = self.lanes.get(key)
        assert put_back is not None
        self.lanes.make_ready(put_back)

    # --- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "lanes"):
            return
        assert self.lanes.ready_records == len(self.ready)
        for band in DEFAULT_BANDS:
            levels = range(band.lowest_priority, band.highest_priority + 1)
            count = sum(lane.level(self.rank) in levels for lane in self.ready.values())
            assert self.ranking.line.ready(levels_of(band)) == count
        waiting = [0] * 10
        for model in self.ready.values():
            for record in model.records:
                waiting[record.priority] += 1
        for model, lane in self.others.values():
            for record in model.records[lane.state == IN_FLIGHT :]:
                waiting[record.priority] += 1
        assert self.ranking.waiting == waiting

    def teardown(self) -> None:
        if not hasattr(self, "lanes"):
            return
        while self.ready or self.others:
            self.take(6, ALL_LEVELS)
            while self.others:
                self.settle(0, "ack")
        assert self.lanes.count == self.lanes.ready_records == 0
        assert self.ranking.ranks.pages == 0, "ranks of records that are done"
        assert self.ranking.waiting == [0] * 10
