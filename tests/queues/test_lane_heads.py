"""Whoever asks after a lane is told of the same record: its first one that is not done, wherever that is; and all that
one answer says is of one moment, whatever happens while it is made."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from logbroker import pacing
from logbroker.grpc_api.queues.admin_messages import described_queue
from logbroker.grpc_api.queues.lanes import explained_lanes, listed_lanes
from logbroker.pacing import Pace
from logbroker.queues.group import QueueGroup
from logbroker.queues.machine.inspect import AlarmKind
from logbroker.queues.model.messages import Nack, Settlement
from logbroker.queues.model.settings import OnExhausted
from logbroker.queues.model.starts import StartAt
from logbroker.queues.operations import LaneName
from logbroker.queues.scan.scanner import BARRIER_SECONDS
from logbroker.record.message_headers import NOT_BEFORE
from logbroker.v1 import queues_pb2 as pb
from tests.queues.shell import Shell, ack, hello, nack, shell, take, until

ROOM = 1 << 22
ORDERS = [pb.LaneOrder.Name(order) for order in pb.LaneOrder.values()]
RECORDS = 3
"""Records of key k; offset 0 of the partition is of another key, so that its first one has offset 1."""


class Scene:
    """A group and a worker that failed the first record of key k once."""

    def __init__(self, opened: Shell, group: QueueGroup) -> None:
        self.opened = opened
        self.group = group

    async def fail(self, reason: str = "first", delay_seconds: float = 0.0) -> None:
        """Fail the first record of the key; the other is acknowledged where it comes."""
        self.link = await self.group.connect(hello("v"))
        for receipt, record in await take(self.link, 2):
            if record.key == b"k":
                await nack(self.link, receipt, reason=reason, delay_seconds=delay_seconds)
            else:
                await ack(self.link, receipt)

    async def again(self) -> int:
        """Take the first record of the key once more."""
        [(receipt, record)] = await take(self.link, 1)
        assert (record.key, record.value) == (b"k", b"0")
        return receipt


async def ready(scene: Scene) -> tuple[str, int]:
    await scene.fail()
    await until(lambda: scene.group.queue.lanes.ready_records)
    return "ready", 2


async def leased(scene: Scene) -> tuple[str, int]:
    await scene.fail()
    await scene.again()
    return "in flight", 2


async def retrying(scene: Scene) -> tuple[str, int]:
    await scene.fail(delay_seconds=3600.0)
    return "waiting", 2


async def standing(scene: Scene) -> tuple[str, int]:
    await scene.fail()
    await nack(scene.link, await scene.again(), reason="second")
    return "", 3


async def in_session(scene: Scene, prefetch: int) -> None:
    await scene.fail()
    await scene.link.open_session(b"k", prefetch, 10.0)
    taken = await take(scene.link, min(prefetch, RECORDS), credit=False)
    assert [record.value for _, record in taken] == [b"%d" % number for number in range(min(prefetch, RECORDS))]
    scene.receipts = [receipt for receipt, _ in taken]  # type: ignore[attr-defined]


async def session_with_some(scene: Scene) -> tuple[str, int]:
    await in_session(scene, 2)
    return "in session", 2


async def session_with_all(scene: Scene) -> tuple[str, int]:
    await in_session(scene, 10)
    return "in session", 2


async def session_with_holes(scene: Scene) -> tuple[str, int]:
    """A later record is done, another has failed: it comes again when those before it are settled."""
    await in_session(scene, 10)
    [_, second, third] = scene.receipts  # type: ignore[attr-defined]
    await ack(scene.link, second)
    await nack(scene.link, third, reason="of the third")
    return "in session", 2


async def session_that_waits(scene: Scene) -> tuple[str, int]:
    await in_session(scene, 10)
    [first, *_] = scene.receipts  # type: ignore[attr-defined]
    await nack(scene.link, first, reason="second", delay_seconds=3600.0)
    return "waiting", 3


CASES: list[Callable[[Scene], Awaitable[tuple[str, int]]]] = [
    ready,
    leased,
    retrying,
    session_with_some,
    session_with_all,
    session_with_holes,
    session_that_waits,
]


async def all_answers(group: QueueGroup, key: bytes) -> dict[str, pb.Lane]:
    """The lane of a key as each answer shows it; those that keep only the last reason are given all."""
    [explained] = (await explained_lanes(group, [key], ROOM, is_all_scanned=True)).lanes
    answers = {"explain": explained}
    for order in ORDERS:
        listed = await listed_lanes(group, pb.ListLanesRequest(order=order, top=10), ROOM)
        found = [lane for lane in listed.lanes if lane.key == key]
        assert len(found) <= 1 <= listed.total + (not listed.lanes)
        assert listed.total == len(listed.lanes)
        for lane in found:
            assert list(lane.reasons) == list(explained.reasons)[-1:]
            lane.reasons[:] = explained.reasons
            answers[order] = lane
    return answers


def has_cause(lane: pb.Lane) -> bool:
    """Whether the failures are of another record than the head."""
    return any(field.name == "cause" for field, _ in lane.ListFields())


def without_clock(lane: pb.Lane) -> pb.Lane:
    lane.ClearField("due_in_ms")
    lane.ClearField("held_ms")
    return lane


async def check(group: QueueGroup, state: str, attempt: int, waiting: int, *, held: bool = False) -> pb.Lane:
    answers = await all_answers(group, b"k")
    assert answers.keys() == {
        "explain",
        "LANE_ORDER_HOTTEST",
        "LANE_ORDER_OLDEST",
        *(["LANE_ORDER_HELD"] if held else []),
        *(["LANE_ORDER_WAITING"] if state == "waiting" or (state == "dead-lettering" and not held) else []),
    }
    first, *others = map(without_clock, answers.values())
    for other in others:
        assert other == first
    reasons = ["first", "second"][: attempt - 1]
    told = (first.state, first.offset, first.attempt, list(first.reasons), first.waiting)
    assert told == (state, 1, attempt, reasons, waiting)
    assert bool(first.first_failure_ms) == bool(first.last_failure_ms) == (attempt > 1)
    [record] = [record for record in await group.records.fetch([1]) if not isinstance(record, Exception)]
    assert first.oldest_timestamp_ms == record.timestamp_ms
    assert not has_cause(first)
    described = await described_queue(group._engine, group, Pace(), BARRIER_SECONDS)
    assert described.counts.lanes == 1
    assert described.counts.open == waiting
    return first


async def new_scene(opened: Shell, **settings: Any) -> Scene:
    await opened.topic()
    await opened.append((b"other", b""), *((b"k", b"%d" % number) for number in range(RECORDS)))
    return Scene(opened, await opened.group(**{"max_attempts": 3, **settings}))


@pytest.mark.parametrize("bring", CASES, ids=lambda bring: bring.__name__)
async def test_the_first_record_is_told_of_wherever_it_is(
    tmp_path: Path, bring: Callable[[Scene], Awaitable[tuple[str, int]]]
) -> None:
    async with shell(tmp_path) as opened:
        scene = await new_scene(opened)
        state, attempt = await bring(scene)
        waiting = RECORDS - (bring is session_with_holes)
        lane = await check(scene.group, state, attempt, waiting)
        if state in ("in flight", "in session"):
            assert lane.worker_id == "v"


@pytest.mark.parametrize("policy", list(OnExhausted))
async def test_the_first_record_of_a_lane_that_stands(tmp_path: Path, policy: OnExhausted) -> None:
    async with shell(tmp_path) as opened:
        dead = "dead" if policy is OnExhausted.DEAD_LETTER else ""
        if dead:
            await opened.topic("dead")
        scene = await new_scene(opened, max_attempts=2, on_exhausted=policy, dead_letter_topic=dead)
        if dead:
            await opened.engine.delete_topic(opened.engine.topic("dead").id)
        _, attempt = await standing(scene)
        state = {OnExhausted.BLOCK: "blocked", OnExhausted.PARK: "parked", OnExhausted.DEAD_LETTER: "dead-lettering"}
        if dead:
            await until(lambda: scene.group.queue.dead_letters.troubles)
        await check(scene.group, state[policy], attempt, RECORDS, held=True)


async def test_the_first_record_of_a_lane_that_is_not_due(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"other", b""))
        await opened.append_records([(b"k", b"0", [(NOT_BEFORE, b"9" * 14)]), (b"k", b"1", []), (b"k", b"2", [])])
        group = await opened.group()
        link = await group.connect(hello())
        [(receipt, _)] = await take(link, 1)
        await ack(link, receipt)
        await until(lambda: group.queue.open_records == RECORDS)
        await check(group, "waiting", 1, RECORDS)


async def test_the_age_and_the_share_of_a_lane_are_those_of_all_its_records(tmp_path: Path) -> None:
    """This includes a lane of which a session has the first records."""
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group(alarm_age_seconds=60.0, alarm_share=0.0)
        await opened.append_records([(b"k", b"", [], 1_000_000_000_000)])
        await opened.append(*[(b"k", b"")] * 600)
        link = await group.connect(hello())
        await link.open_session(b"k", 10, 10.0)
        await until(lambda: group.queue.position(0) == 601)
        await take(link, 10, credit=False)
        alarms = {alarm.kind: alarm for alarm in group.inspector.alarms(group.moment()) if alarm.key == b"k"}
        assert "601 of 601 waiting records" in alarms[AlarmKind.SHARE].message
        assert "the oldest of 601 records" in alarms[AlarmKind.AGE].message


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_record_before_the_one_that_a_lane_is_parked_for_has_its_own_facts(
    tmp_path: Path, restarted: bool
) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group(max_attempts=2, on_exhausted=OnExhausted.PARK)
        await opened.append((b"k", b"good"), (b"k", b"bad"), (b"k", b"later"))
        link = await group.connect(hello())
        [(receipt, _)] = await take(link, 1)
        await ack(link, receipt)
        for reason in ("first", "second"):
            [(receipt, _)] = await take(link, 1)
            await nack(link, receipt, reason=reason, delay_seconds=0.0)
        await until(lambda: group.inspector.held())
        [before] = (await explained_lanes(group, [b"k"], ROOM, is_all_scanned=True)).lanes
        assert (before.offset, before.attempt, list(before.reasons)) == (1, 3, ["first", "second"])
        assert not has_cause(before)
        await group.operations.rewind(StartAt(offset=0))
        await until(lambda: group.queue.position(0) == 3)
        if not restarted:
            await check_cause(group, before)
    if restarted:
        async with shell(tmp_path) as opened:
            group = opened.groups.group("g")
            await until(lambda: group.queue.position(0) == 3)
            await check_cause(group, before)


async def check_cause(group: QueueGroup, before: pb.Lane) -> None:
    for lane in (await all_answers(group, b"k")).values():
        assert (lane.state, lane.offset, lane.waiting, lane.attempt) == ("parked", 0, 3, 1)
        assert (lane.cause.partition, lane.cause.offset, lane.cause_attempts) == (0, 1, 2), "what has failed"
        for name in ("reasons", "first_failure_ms", "last_failure_ms"):
            assert getattr(lane, name) == getattr(before, name)


# --- of one moment ---------------------------------------------------------------------------------------------------


def meddle(group: QueueGroup, chance: random.Random) -> None:
    """Let something happen: one worker has one record in flight at most."""
    queue = group.queue
    held = list(queue.deliveries.held_by("w"))
    if held:
        receipt = held[0][0]
        if chance.random() < 0.5:
            group.settle("w", Settlement(nacks=[Nack(receipt, receipt, "broken", 0.0)]))
        else:
            group.settle("w", Settlement(releases=[(receipt, receipt)]))
    queue.take("w", 1, group.moment())
    for lane in group.inspector.held()[:2]:
        if chance.random() < 0.5:
            group.operations.resume(LaneName(lane.key, lane.head))
    if chance.random() < 0.01:
        queue.rewind({0: 0}, group.moment())
        group.settle("w", Settlement())


@pytest.mark.parametrize("policy", [OnExhausted.BLOCK, OnExhausted.PARK])
async def test_an_answer_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: OnExhausted) -> None:
    seed = random.randrange(1 << 32)
    logging.getLogger(__name__).warning("seed %d", seed)
    chance = random.Random(seed)
    keys = [b"%d" % number for number in range(20)]
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append_records([(key, b"", [], 1_000_000 + number) for number, key in enumerate(keys * 2)])
        group = await opened.group(max_attempts=1, on_exhausted=policy, max_in_flight=1)
        await until(lambda: group.queue.position(0) == 40)
        give_way, fetch = Pace.give_way, group.records.fetch

        async def meddled(pace: Pace) -> None:
            meddle(group, chance)
            await give_way(pace)

        async def fetch_late(*args: Any) -> Any:
            found = await fetch(*args)
            meddle(group, chance)
            return found

        monkeypatch.setattr(pacing, "FIRST_STEPS", 1)
        monkeypatch.setattr(pacing, "TURN_STEPS", 1)
        monkeypatch.setattr(Pace, "give_way", meddled)
        monkeypatch.setattr(group.records, "fetch", fetch_late)
        for _ in range(3):
            for order in ORDERS:
                answer = await listed_lanes(group, pb.ListLanesRequest(order=order, top=100), ROOM)
                check_answer(list(answer.lanes))
                assert answer.total >= len(answer.lanes)
                if order == "LANE_ORDER_HOTTEST":
                    sizes = [lane.waiting for lane in answer.lanes]
                    assert sizes == sorted(sizes, reverse=True)
                if order == "LANE_ORDER_HELD":
                    assert {lane.state for lane in answer.lanes} <= {"blocked", "parked"}
            explained = await explained_lanes(group, keys, ROOM, is_all_scanned=True)
            check_answer([lane for lane in explained.lanes if lane.state != "idle"])


def check_answer(lanes: list[pb.Lane]) -> None:
    assert len({lane.key for lane in lanes}) == len(lanes), "a key comes twice"
    flying = [lane for lane in lanes if lane.state == "in flight"]
    assert len(flying) <= 1, "the worker has one record at most"
    for lane in lanes:
        assert lane.waiting > 0 or lane.state == "parked", "a parked lane is there before its records are scanned"
        assert (lane.worker_id == "w") == (lane in flying) == lane.HasField("due_in_ms"), lane
        assert lane.oldest_timestamp_ms == 1_000_000 + lane.offset, lane
        if not has_cause(lane):
            assert bool(lane.reasons) == (lane.attempt > 1) == (lane.last_failure_ms > 0), lane
