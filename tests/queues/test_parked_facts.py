"""Facts about a lane that is set aside, and what can be done with it, are the same after the index is rebuilt."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from logbroker.errors import UnknownLaneError
from logbroker.grpc_api.queues.lanes import explained_lanes, listed_lanes
from logbroker.pacing import Pace
from logbroker.queues.group import QueueGroup
from logbroker.queues.machine.inspect import Alarm
from logbroker.queues.model.messages import Nack, Settlement
from logbroker.queues.model.record_id import Moment
from logbroker.queues.model.settings import OnExhausted, Priority, PriorityRank
from logbroker.queues.model.starts import StartAt
from logbroker.queues.operations import LaneName
from logbroker.queues.scan.scanner import Scanner
from logbroker.v1 import queues_pb2 as pb
from tests.queues.retained import GroupRun, again
from tests.queues.shell import Shell, ack, hello, shell, take, until
from tests.queues.test_standing import CONFIGS, scan_nothing

KEYS = [b"a", b"b"]
"""Keys of the lanes that are set aside, beside a record without a key."""
RECORDS = [(b"a", b"a0"), (None, b"none"), (b"b", b"b0"), (b"free", b""), (b"a", b"a1"), (b"b", b"b1"), (b"a", b"a2")]


class Told:
    """Facts that an operator is told."""

    def __init__(
        self, explained: pb.ExplainLanesResponse, held: pb.ListLanesResponse, alarms: list[Alarm], counts: Any
    ):
        self.explained = explained
        self.held = held
        self.alarms = alarms
        self.counts = counts

    @classmethod
    async def by(cls, group: QueueGroup, at_ms: int) -> Told:
        """At a moment by which the lanes have stood for too long."""
        held = await listed_lanes(group, pb.ListLanesRequest(order=pb.LANE_ORDER_HELD), 1 << 20)
        held.lanes.sort(key=lambda lane: (lane.key, lane.offset))
        alarms = group.inspector.alarms(Moment(group.moment().seconds, at_ms))
        alarms.sort(key=repr)
        return cls(
            await explained_lanes(group, KEYS, 1 << 20, is_all_scanned=True), held, alarms, group.inspector.counts()
        )


async def lanes_set_aside(opened: Shell, on_exhausted: OnExhausted) -> GroupRun:
    await opened.engine.create_topic("t", 2, CONFIGS)
    group = await opened.group(
        "t",
        None,
        max_attempts=2,
        backoff_initial_seconds=0.0,
        on_exhausted=on_exhausted,
        priority=Priority.STRICT,
        max_parked_records=1,
    )
    run = GroupRun(opened, group, await group.connect(hello()), ())
    await opened.append(*RECORDS)
    for reason in ("first", "second"):
        for receipt, record in await take(run.link, 4 if reason == "first" else 3):
            if record.key == b"free":
                await ack(run.link, receipt)
            else:
                assert await run.link.settle(Settlement(nacks=[Nack(receipt, receipt, reason)])) == []
    await until(lambda: len(group.inspector.held()) == 3)
    return run


async def scanned(run: GroupRun) -> None:
    queue = run.group.queue
    await until(lambda: queue.admission.generation and queue.position(0) == run.facts().high_watermark)


HAPPENS = ["stop", "kill", "rewind here", "rewind elsewhere", "alter", "retention"]


@pytest.mark.parametrize("what", HAPPENS)
@pytest.mark.parametrize("on_exhausted", [OnExhausted.PARK, OnExhausted.BLOCK])
async def test_all_that_is_known_comes_back(tmp_path: Path, on_exhausted: OnExhausted, what: str) -> None:
    if (on_exhausted, what) == (OnExhausted.BLOCK, "rewind here"):
        pytest.skip("a rewind lets blocked lanes above its place go on")
    async with shell(tmp_path, crash=what == "kill") as opened:
        run = await lanes_set_aside(opened, on_exhausted)
        group = run.group
        at_ms = group.moment().wall_ms + 7_200_000
        before = await Told.by(group, at_ms)
        assert [lane.attempt for lane in before.explained.lanes] == [3, 3]
        assert {(alarm.kind.name, alarm.key) for alarm in before.alarms} >= {
            ("AGE", b"a"),
            ("AGE", b"b"),
            ("AGE", None),
        }
        if what == "rewind here":
            await group.operations.rewind(StartAt(offset=0), [0])
            await scanned(run)
            for receipt, record in await take(run.link, 1):
                assert record.key == b"free"
                await ack(run.link, receipt)
        elif what == "rewind elsewhere":
            await group.operations.rewind(StartAt(offset=0), [1])
        elif what == "alter":
            await opened.groups.alter("g", {"priority_rank": PriorityRank.HEAD})
        elif what == "retention":
            for _ in range(80):
                await opened.append((b"free", bytes(100)))
                [(receipt, _)] = await take(run.link, 1)
                await ack(run.link, receipt)
            await run.retain()
            assert run.facts().log_start_offset > len(RECORDS)
        if what not in ("stop", "kill", "retention"):
            await scanned(run)
            await compare(group, before, at_ms)
            await act(run, on_exhausted)
    if what in ("stop", "kill", "retention"):
        async with shell(tmp_path) as opened:
            run = await again(opened)
            await scanned(run)
            await compare(run.group, before, at_ms)
            await act(run, on_exhausted)


async def compare(group: QueueGroup, before: Told, at_ms: int) -> None:
    after = await Told.by(group, at_ms)
    assert after.explained == before.explained
    assert after.held == before.held
    # The oldest record of a partition is known roughly, by when it was met.
    assert [alarm for alarm in after.alarms if "partition" not in alarm.message] == [
        alarm for alarm in before.alarms if "partition" not in alarm.message
    ]
    assert after.counts == before.counts


async def act(run: GroupRun, on_exhausted: OnExhausted) -> None:
    """Another record takes the place of the first of one lane, and the first of the other is skipped."""
    operations = run.group.operations
    await (await operations.replace_head(LaneName(key=b"a"), b"new", ()))
    await operations.skip(LaneName(key=b"b"))
    await (await operations.drop(LaneName(record_id=1), Pace()))
    found: list[tuple[bytes | None, bytes | None]] = []
    for _ in range(4):
        [(receipt, record)] = await take(run.link, 1)
        found.append((record.key, record.value))
        await ack(run.link, receipt)
    assert [value for key, value in found if key == b"a"] == [b"new", b"a1", b"a2"]
    assert [value for key, value in found if key == b"b"] == [b"b1"]
    assert run.group.inspector.held() == []


async def test_before_the_scan_has_met_a_parked_lane_its_facts_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path, crash=True) as opened:
        run = await lanes_set_aside(opened, OnExhausted.PARK)
        at_ms = run.group.moment().wall_ms + 7_200_000
        before = await Told.by(run.group, at_ms)
    monkeypatch.setattr(Scanner, "_scan_some", scan_nothing)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        after = await Told.by(group, at_ms)
        for now, then in zip(after.explained.lanes, before.explained.lanes, strict=True):
            assert now.waiting == 0
            now.waiting, now.level = then.waiting, then.level
            assert now == then
        assert {(alarm.kind.name, alarm.key) for alarm in after.alarms} >= {("AGE", b"a"), ("AGE", b"b")}
        with pytest.raises(UnknownLaneError, match="try again later"):
            group.operations.skip(LaneName(key=b"a"))
        with pytest.raises(UnknownLaneError, match="try again later"):
            await group.operations.drop(LaneName(key=b"a"), Pace())
        await asyncio.sleep(0)
        assert group.queue.stalled.parked.keys() == {b"a", b"b"}, "nothing was decided"
