"""One queue group at work: over a real log, with real commits."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logbroker.errors import (
    AlreadySettledError,
    InvalidRequestError,
    LaneNotHeldError,
    LeaseLostError,
    UnknownLaneError,
)
from logbroker.pacing import Pace, Steps
from logbroker.queues.alarms import Alarms
from logbroker.queues.description import describe_group
from logbroker.queues.machine.inspect import Alarm
from logbroker.queues.model.messages import Notice, NoticeKind, Settlement
from logbroker.queues.model.record_id import Moment
from logbroker.queues.model.settings import Ordering
from logbroker.queues.model.starts import StartAt
from logbroker.queues.operations import LaneName
from tests.queues.shell import ack, hello, nack, records, shell, take, until, values


async def test_records_go_to_a_worker_by_key_and_are_done_when_acknowledged(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"), (b"b", b"b1"), (b"a", b"a2"))
        group = await opened.group()
        link = await group.connect(hello())
        first = await take(link, 2)
        assert [record.value for _, record in first] == [b"a1", b"b1"]
        link.add_credit(5)
        waiting = asyncio.create_task(take(link, 1, credit=False))
        await asyncio.sleep(0.05)
        assert not waiting.done(), "the successor of a key in flight was handed out"
        await ack(link, *[receipt for receipt, _ in first])
        [(receipt, record)] = await waiting
        assert record.value == b"a2"
        await opened.append((b"c", b"c1"))
        [(other, record)] = await take(link, 1, credit=False)
        assert record.value == b"c1"
        await ack(link, receipt, other)
        assert group.queue.done.floor(0) == 4
        assert (group.dispatcher.line.delivered, group.queue.tally.acked) == (4, 4)


async def test_what_is_acknowledged_survives_a_crash_and_nothing_else_is_lost(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        await opened.topic()
        await opened.append(*[(b"%d" % number, b"%d" % number) for number in range(10)])
        group = await opened.group()
        link = await group.connect(hello())
        taken = await take(link, 10)
        await ack(link, *[receipt for receipt, _ in taken[::2]])
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        link = await group.connect(hello("other"))
        begun = asyncio.get_running_loop().time()
        link.add_credit(10)
        delivered = await link.next_deliveries()
        assert values(delivered) == [b"1", b"3", b"5", b"7", b"9"]
        assert delivered.redelivered == [True] * 5
        assert asyncio.get_running_loop().time() - begun > 0.1, "others were served within the grace after a crash"
        last = delivered.first_receipt + 4
        assert await link.settle(Settlement(acks=[(delivered.first_receipt, last)])) == []
        [refusal] = await link.settle(Settlement(acks=[(taken[1][0], taken[1][0])]))
        assert isinstance(refusal.error, LeaseLostError)


async def test_a_lease_that_ends_gives_the_record_to_another_worker(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"))
        group = await opened.group(lease_seconds=0.2, backoff_initial_seconds=0.0)
        slow = await group.connect(hello("slow"))
        [(receipt, _)] = await take(slow, 1)
        other = await group.connect(hello("other"))
        other.add_credit(1)
        async with asyncio.timeout(25):
            delivered = await other.next_deliveries()
        assert (values(delivered), delivered.attempts, delivered.redelivered) == ([b"a1"], [2], [True])
        [refusal] = await slow.settle(Settlement(acks=[(receipt, receipt)]))
        assert isinstance(refusal.error, LeaseLostError)
        assert group.queue.tally.leases_lost == 1
        await ack(other, delivered.first_receipt)
        [refusal] = await other.settle(Settlement(acks=[(delivered.first_receipt, delivered.first_receipt)]))
        assert isinstance(refusal.error, AlreadySettledError)


async def test_attempts_and_backoffs_outlive_a_clean_restart(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"), (b"b", b"b1"))
        group = await opened.group(backoff_initial_seconds=100.0)
        link = await group.connect(hello())
        taken = await take(link, 2)
        await nack(link, taken[0][0], reason="no")
        await ack(link, taken[1][0])
        await link.goodbye()
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        await until(lambda: group.queue.position(0) == 2)
        lane = group.inspector.lane(b"a")
        facts = group.inspector.explain(lane, group.moment())
        assert (facts.state, facts.attempt) == ("waiting", 2)
        assert 50 < facts.due_in_seconds <= 100


async def test_what_is_ready_is_shared_among_those_who_wait(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group()
        links = [await group.connect(hello(f"w{number}")) for number in range(4)]
        for link in links:
            link.add_credit(100)
        waiting = [asyncio.create_task(link.next_deliveries()) for link in links]
        await asyncio.sleep(0.01)
        await opened.append(*[(b"%d" % number, b"x") for number in range(40)])
        async with asyncio.timeout(25):
            assert [(await task).count for task in waiting] == [10, 10, 10, 10]


async def test_a_worker_that_does_not_ask_is_handed_nothing(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group()
        idle, busy = await group.connect(hello("idle")), await group.connect(hello("busy"))
        idle.add_credit(1000)
        await opened.append(*[(b"%d" % number, b"x") for number in range(40)])
        assert len(await take(busy, 40)) == 40
        assert idle.pull.credit == 1000


async def test_programs_without_a_stream_receive_and_settle(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"), (b"a", b"a2"), (b"b", b"b1"))
        group = await opened.group()
        await until(lambda: group.queue.position(0) == 3)
        [delivered] = await group.receive("", 10, 0)
        assert values(delivered) == [b"a1", b"b1"]
        assert await group.receive("", 10, 0.01) == []
        waiting = asyncio.create_task(group.receive("", 10, 10))
        await asyncio.sleep(0)
        first = delivered.first_receipt
        assert await group.settle("", Settlement(acks=[(first, first + 1)])) == []
        [delivered] = await waiting
        assert values(delivered) == [b"a2"]
        with pytest.raises(InvalidRequestError):
            await group.receive("", 0, 0)


async def test_what_is_granted_when_the_time_is_over_is_handed_out_all_the_same(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"), (b"a", b"a2"))
        group = await opened.group()
        await until(lambda: group.queue.position(0) == 2)
        [delivered] = await group.receive("", 1, 0)
        waiting = asyncio.create_task(group.receive("", 1, 0.01))
        await asyncio.sleep(0)
        group.settle("", Settlement(acks=[(delivered.first_receipt, delivered.first_receipt)]))
        time.sleep(0.02)  # A loop that has much to do: it grants, and the time is over, in the same round.
        [delivered] = await waiting
        assert values(delivered) == [b"a2"]
        assert not any(delivered.redelivered)


async def test_who_went_away_while_it_waited_gets_nothing(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group()
        waiting = asyncio.create_task(group.receive("", 10, 10))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await opened.append((b"a", b"a1"))
        [delivered] = await group.receive("", 10, 10)
        assert records(delivered)[0].value == b"a1"


@pytest.mark.parametrize(("start", "expected"), [(StartAt(), 3), (StartAt(latest=True), 1), (StartAt(offset=1), 2)])
async def test_a_group_begins_where_it_is_told(tmp_path: Path, start: StartAt, expected: int) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"1"), (b"b", b"2"))
        group = await opened.group(start=start)
        await opened.append((b"c", b"3"))
        link = await group.connect(hello())
        taken = await take(link, expected)
        assert [record.value for _, record in taken] == [b"1", b"2", b"3"][3 - expected :]


async def test_runs_are_handed_on_as_they_lie(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        for start in range(0, 1000, 100):
            await opened.append(*[(None, b"%d" % number) for number in range(start, start + 100)])
        group = await opened.group(ordering=Ordering.NONE)
        link = await group.connect(hello())
        taken = await take(link, 1000)
        assert [record.value for _, record in taken] == [b"%d" % number for number in range(1000)]
        await ack(link, *[receipt for receipt, _ in taken])
        assert group.queue.done.floor(0) == 1000


async def test_an_operator_puts_another_record_in_the_place_of_a_blocked_one(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"bad"), (b"a", b"next"))
        group = await opened.group(max_attempts=1)
        link = await group.connect(hello())
        [(receipt, old)] = await take(link, 1)
        replace_head = partial(group.operations.replace_head, LaneName(key=b"a"), b"good")
        with pytest.raises(LaneNotHeldError):
            await replace_head([("h", b"1")])
        await nack(link, receipt)
        with pytest.raises(InvalidRequestError, match="has key 'b', but the record to be replaced has 'a'"):
            await replace_head([], b"b")
        await (await replace_head([("h", b"1")]))
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        link = await group.connect(hello())
        [(receipt, new)] = await take(link, 1)
        assert (new.key, new.value, new.timestamp_ms) == (b"a", b"good", old.timestamp_ms)
        assert list(new.headers) == [("h", b"1")]
        await ack(link, receipt)
        [(_, following)] = await take(link, 1)
        assert following.value == b"next"


async def test_decisions_of_an_operator_outlive_a_crash(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"), (b"b", b"b1"), (b"b", b"b2"))
        group = await opened.group(max_attempts=1)
        link = await group.connect(hello())
        await nack(link, *[receipt for receipt, _ in await take(link, 2)])
        await group.operations.skip(LaneName(key=b"a"))
        assert await (await group.operations.drop(LaneName(key=b"b"), Pace())) == 2
        with pytest.raises(UnknownLaneError):
            group.operations.resume(LaneName(key=b"a"))
    async with shell(tmp_path) as opened:
        assert opened.groups.group("g").queue.done.floor(0) == 3


async def test_alarms_are_told_once_as_long_as_they_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group()
        await opened.append(*[(b"hot", b"x")] * 1000)
        await until(lambda: group.queue.position(0) == 1000)
        assert len(await group.alarms.check()) == len(await group.alarms.check()) == 1
        assert caplog.text.count("are of one key") == 1
        assert group.alarms.raised == 1


async def test_what_happens_to_lanes_is_told_in_a_line_for_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notices = [Notice(NoticeKind.BLOCKED, key, 0, "no good") for key in (b"a", b"b")]
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group()
        letter = Notice(NoticeKind.DEAD_LETTERED, b"c", 0, "no good")
        group.alarms.tell([*notices, Notice(NoticeKind.PARKED, None, 0, "no good"), letter])
    said = [record.getMessage() for record in caplog.records if record.name == "logbroker.queues.alarms"]
    assert said == [
        "queue group g: 2 lanes blocked, the first of key 'a': 'no good'",
        "queue group g: 1 lane parked, the first without a key: 'no good'",
        "queue group g: 1 record dead-lettered, the first of key 'c': 'no good'",
    ]


async def test_events_that_go_on_are_told_at_once_and_then_once_a_minute_with_their_number(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record a second becomes a dead letter, which hides no warnings of other kinds."""
    now = 0.0

    def no_alarms() -> Steps[list[Alarm]]:
        yield from ()
        return []

    inspector: Any = SimpleNamespace(find_alarms=lambda _moment: no_alarms())
    alarms = Alarms("g", inspector, no_alarms, lambda: Moment(now, 0))
    monkeypatch.setattr("logbroker.queues.alarms.CHECK_SECONDS", 0.001)
    watching = asyncio.create_task(alarms.watch())

    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "logbroker.queues.alarms"]

    for second in range(60):
        now = float(second)
        alarms.tell([Notice(NoticeKind.DEAD_LETTERED, b"c%d" % second, 0, "no good")])
    alarms.tell([Notice(NoticeKind.PARKED, b"p", 0, "no good")])
    told = ["queue group g: 1 record dead-lettered, the first of key 'c0': 'no good'"]
    told += ["queue group g: 1 lane parked, the first of key 'p': 'no good'"]
    assert said() == told
    now = 60.0
    told.append("queue group g: 59 more records dead-lettered, the first of key 'c1': 'no good'")
    await until(lambda: said() == told)
    now = 119.0
    alarms.tell([Notice(NoticeKind.DEAD_LETTERED, b"d", 0, "no good")])
    assert said() == told
    watching.cancel()  # The group stops.
    await asyncio.wait([watching])
    told.append("queue group g: 1 more record dead-lettered, the first of key 'd': 'no good'")
    assert said() == told
    now = 179.0
    alarms.tell([Notice(NoticeKind.DEAD_LETTERED, b"e", 0, "no good")])
    assert said() == [*told, "queue group g: 1 record dead-lettered, the first of key 'e': 'no good'"]


async def test_a_settlement_is_answered_when_it_is_synced_and_not_before(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"), (b"b", b"b1"))
        group = await opened.group()
        link = await group.connect(hello())
        [(receipt, _), _] = await take(link, 2)
        with opened.commits_held() as release:
            settling = link.settle(Settlement(acks=[(receipt, receipt)]))
            opening = asyncio.create_task(link.open_session(b"c"))
            await asyncio.sleep(0.05)
            assert not settling.done()
            assert not opening.done()
            release.set()
            assert await settling == []
            assert (await opening).token > 0


async def test_an_index_that_proves_broken_within_the_grace_is_made_anew_at_once(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"), (b"b", b"b1"))
        group = await opened.group(grace_seconds=60)
        await take(await group.connect(hello()), 1)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        link = await group.connect(hello("other"))
        group.queue.admission.is_broken = True
        link.add_credit(1)
        await until(lambda: not group.queue.admission.is_broken)
        assert group.reserved


async def test_a_clean_stop_knows_what_was_in_nobodys_hands(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"), (b"b", b"b1"), (b"c", b"c1"))
        group = await opened.group(grace_seconds=60)
        link = await group.connect(hello())
        [(receipt, _)] = await take(link, 1)
        await ack(link, receipt)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        assert not group.reserved
        link = await group.connect(hello())
        link.add_credit(2)
        assert (await link.next_deliveries()).redelivered == []


async def test_a_lane_that_went_on_meanwhile_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"bad"), (b"a", b"next"))
        group = await opened.group(max_attempts=1)
        link = await group.connect(hello())
        await nack(link, (await take(link, 1))[0][0])
        fetch, is_asked, may_answer = group.records.fetch, asyncio.Event(), asyncio.Event()

        async def fetch_slowly(record_ids: list[int]) -> Any:
            is_asked.set()
            await may_answer.wait()
            return await fetch(record_ids)

        monkeypatch.setattr(group.records, "fetch", fetch_slowly)
        replacing = asyncio.ensure_future(group.operations.replace_head(LaneName(key=b"a"), b"good", []))
        await is_asked.wait()
        group.operations.skip(LaneName(key=b"a"))
        may_answer.set()
        with pytest.raises(LaneNotHeldError, match="because the lane went on"):
            await replacing


async def test_a_group_is_paused_only_while_something_is_not_scanned(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"))
        group = await opened.group(max_held_lanes=1, max_attempts=1)
        link = await group.connect(hello())
        [(receipt, _)] = await take(link, 1)
        await nack(link, receipt)
        assert (group.queue.is_held_up, group.state()) == (True, "serving")
        described = await describe_group(opened.engine, group, Pace(), 1)
        assert (described.unscanned, described.state) == (0, "serving")
        await opened.append((b"b", b"b1"))
        assert group.state() == "paused"
        described = await describe_group(opened.engine, group, Pace(), 1)
        assert (described.unscanned, described.state) == (1, "paused")
