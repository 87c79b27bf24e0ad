"""Splits of lanes in a queue group over a real log: what waits is moved, through restarts, growth and retention."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logbroker.errors import InvalidRequestError, StaleSessionError
from logbroker.pacing import Pace
from logbroker.queues.delivery.worker_stream import WorkerLink
from logbroker.queues.description import describe_group
from logbroker.queues.group import QueueGroup
from logbroker.queues.lanes import explain_lanes
from logbroker.queues.model.second_key import SecondKey
from logbroker.queues.model.settings import OnExhausted, Ordering, Priority
from logbroker.queues.operations import LaneName
from logbroker.queues.records import read_failures
from logbroker.queues.records.columns import lane_key_of
from logbroker.queues.scan import splitter
from logbroker.queues.scan.hot_lanes import HotLanes
from logbroker.record.codec import LogRecord
from logbroker.record.message_headers import PRIORITY
from tests.queues.retained import CONFIGS, GroupRun
from tests.queues.shell import Shell, ack, hello, nack, shell, take, until

PART = SecondKey.parse("header:part")
PARTS = 5
KEY = b"hot"


async def fill(opened: Shell, numbers: Sequence[int], *, keys: Sequence[bytes] = (KEY, b"other")) -> None:
    """Append records in batches of ten. The values count up, the second keys take turns."""
    for start in range(0, len(numbers), 10):
        await opened.append_records(
            [
                (
                    keys[number % len(keys)],
                    b"%d" % number,
                    [("part", b"%d" % (number % PARTS)), (PRIORITY, b"%d" % (number % 3))],
                )
                for number in numbers[start : start + 10]
            ]
        )


class Done:
    """The numbers of the acknowledged records, by key and second key, in this order."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[bytes | None, int], list[int]] = defaultdict(list)

    async def work(self, link: WorkerLink, count: int, at_once: int = 7) -> None:
        """Acknowledge so many records; several are in flight meanwhile."""
        link.add_credit(at_once)
        done = 0
        held: list[tuple[int, LogRecord]] = []
        while done < count:
            if not held:
                held = await take(link, 1, credit=False)
            receipt, record = held.pop(0)
            number = int(record.value or b"")
            self.numbers[record.key, number % PARTS].append(number)
            await ack(link, receipt)
            done += 1
            if count - done >= at_once:
                link.add_credit(1)

    def check(self, numbers: Sequence[int]) -> None:
        assert sorted(number for each in self.numbers.values() for number in each) == list(numbers)
        for each in self.numbers.values():
            assert each == sorted(each)


def state(group: QueueGroup) -> str:
    return group.queue.splitting.state_of(KEY) if KEY in group.queue.splits.by_key else ""


async def split(group: QueueGroup, into: int = 4, second: SecondKey = PART) -> None:
    await group.operations.split(KEY, second, into)


@pytest.mark.parametrize("priority", [Priority.NONE, Priority.STRICT])
@pytest.mark.parametrize("crash", [True, False])
async def test_what_waits_is_split_and_goes_on_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: bool, priority: Priority
) -> None:
    monkeypatch.setattr(splitter, "RECORDS_AT_ONCE", 20)
    done = Done()
    async with shell(tmp_path, crash=crash) as opened:
        await opened.topic()
        await fill(opened, range(300))
        group = await opened.group(priority=priority, grace_seconds=0.0)
        await until(lambda: group.queue.position(0) == 300)
        await split(group)
        await until(lambda: state(group) == "split")
        assert {lane.key for lane in group.queue.lanes if lane.key != b"other"} == {
            sub_lane for sub_lane in group.queue.splits.by_key[KEY].sub_lanes() if group.queue.lanes.get(sub_lane)
        }
        link = await group.connect(hello())
        await done.work(link, 100)
        await fill(opened, range(300, 400))
        await group.goodbye(link)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        await until(lambda: group.queue.position(0) == 400)
        assert state(group) == "split"
        assert group.queue.lanes.get(KEY) is None
        link = await group.connect(hello("v"))
        await done.work(link, 300)
    done.check(range(400))


async def test_the_index_of_before_a_split_is_not_used_after_it(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await fill(opened, range(100))
        group = await opened.group(priority=Priority.STRICT, grace_seconds=0.0)
        await until(lambda: group.queue.position(0) == 100)
    async with shell(tmp_path, crash=True) as opened:
        group = opened.groups.group("g")
        await until(lambda: group.queue.position(0) == 100)
        await split(group)
        await until(lambda: state(group) == "split")
    done = Done()
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        await until(lambda: group.queue.position(0) == 100)
        assert group.queue.lanes.get(KEY) is None
        await done.work(await group.connect(hello()), 100)
    done.check(range(100))


async def test_a_lane_is_joined_when_its_sub_lanes_are_done(tmp_path: Path) -> None:
    done = Done()
    async with shell(tmp_path) as opened:
        await opened.topic()
        await fill(opened, range(40))
        group = await opened.group(grace_seconds=0.0)
        await split(group)
        await until(lambda: state(group) == "split" and group.queue.position(0) == 40)
        link = await group.connect(hello())
        await done.work(link, 5, at_once=1)
        await group.operations.join(KEY)
        assert state(group) == "joining"
        await fill(opened, range(40, 80))
        await until(lambda: group.queue.position(0) == 80)
        lane = group.queue.lanes.get(KEY)
        assert lane is not None
        assert len(lane) == 20
        await group.goodbye(link)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        assert state(group) == "joining"
        await done.work(await group.connect(hello("v")), 75)
        assert state(group) == ""
    done.check(range(80))
    assert [number for number in done.numbers[KEY, 0] if number >= 40] == [40, 50, 60, 70]


async def test_records_in_flight_come_before_the_sub_lanes(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await fill(opened, range(10), keys=[KEY])
        group = await opened.group()
        link = await group.connect(hello())
        [(receipt, _)] = await take(link, 1)
        await split(group, into=100)
        link.add_credit(10)
        assert state(group) == "splitting"
        assert group.queue.lanes.ready_records == 0
        await nack(link, receipt, delay_seconds=30.0)
        # The record that failed waits, and only those of its sub-lane behind it.
        taken = await take(link, PARTS - 1, credit=False)
        assert len(taken) == PARTS - 1
        failed = lane_key_of(
            LogRecord(0, 0, KEY, b"0", (("part", b"0"),)), group.settings, group.queue.splitting.keying
        )
        [waiting] = group.queue.stalled.delays.lanes()
        assert waiting.key == failed
        assert waiting.head == 0


async def test_a_blocked_record_holds_up_its_sub_lane_only_and_keeps_its_attempts(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        await opened.topic()
        await fill(opened, range(20), keys=[KEY])
        group = await opened.group(max_attempts=1, on_exhausted=OnExhausted.PARK)
        link = await group.connect(hello())
        [(receipt, _)] = await take(link, 1)
        await nack(link, receipt)
        await until(lambda: group.inspector.held())
        await split(group, into=100)
        await until(lambda: state(group) == "split")
        [held] = group.inspector.held()
        assert held.key in group.queue.splits.by_key[KEY].sub_lanes()
        assert group.queue.failures.count(0) == 1
        name = held.key
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        await until(lambda: group.queue.position(0) == 20)
        [held] = group.inspector.held()
        assert (held.key, held.head, group.queue.failures.count(0)) == (name, 0, 1)
        link = await group.connect(hello("v"))
        taken = await take(link, PARTS - 1)
        assert all(int(record.value or b"") % PARTS for _, record in taken)
        await group.operations.resume(LaneName(key=name))
        [(_, record)] = await take(link, 1)
        assert record.value == b"0"


async def test_retention_keeps_the_records_of_a_blocked_sub_lane_only(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic("t", 1, **CONFIGS)
        group = await opened.group(max_attempts=1)
        await split(group, into=2)
        link = await group.connect(hello())
        await opened.append_records([(KEY, b"bad", [("part", b"bad")])])
        [(receipt, _)] = await take(link, 1)
        await nack(link, receipt)
        await until(lambda: group.inspector.held())
        [blocked] = group.inspector.held()
        keying = group.queue.splitting.keying
        kept = []
        for number in range(1, 120):
            part = b"%d" % number
            await opened.append_records([(KEY, b"%0180d" % number, [("part", part)])])
            record = LogRecord(number, 0, KEY, b"", (("part", part),))
            if lane_key_of(record, group.settings, keying) == blocked.key:
                kept.append(number)
        await until(lambda: group.queue.position(0) == 120)
        for _ in range(group.queue.open_records - len(blocked)):
            [(receipt, _)] = await take(link, 1)
            await ack(link, receipt)
        run = GroupRun(opened, group, link, [])
        await run.retain()
        assert run.facts().log_start_offset > 10
        first, last = run.copied()
        assert first == 0
        assert last == max(number for number in kept if number < run.facts().log_start_offset)
        [(end, batch)] = run.group.hold.copies.batches(0)
        held = [record.offset for record in await run.group.hold.copies.read(0, end, batch)]
        assert held == [number for number in [0, *kept] if number <= last]
        await group.goodbye(link)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        await until(lambda: group.queue.position(0) == 120)
        await group.operations.skip(LaneName(key=blocked.key))
        link = await group.connect(hello("v"))
        found = []
        for _ in kept:
            [(receipt, record)] = await take(link, 1)
            found.append(int(record.value or b""))
            await ack(link, receipt)
        assert found == kept


async def test_the_one_lane_of_a_group_is_split_by_the_suffix_of_the_key(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group(ordering=Ordering.SINGLE)
        await opened.append(*((b"a/b/%d" % (number % 3), b"%d" % number) for number in range(12)))
        await group.operations.split(b"", SecondKey.parse("key-suffix:/"), 100)
        await until(lambda: group.queue.splitting.state_of(b"") == "split")
        link = await group.connect(hello())
        taken = await take(link, 3)
        assert {record.value for _, record in taken} == {b"0", b"1", b"2"}


async def test_a_topic_grows_under_a_split(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await fill(opened, range(30), keys=[KEY])
        group = await opened.group()
        await split(group)
        await opened.engine.alter_topic(opened.engine.topic("t").id, partitions=2)
        await opened.append_records(
            [(KEY, b"%d" % n, [("part", b"%d" % (n % PARTS))]) for n in range(30, 60)], partition=1
        )
        done = Done()
        await done.work(await group.connect(hello()), 60)
        done.check(range(60))


async def test_a_session_ends_when_its_lane_is_split(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await fill(opened, range(20), keys=[KEY])
        group = await opened.group()
        await until(lambda: group.queue.position(0) == 20)
        link = await group.connect(hello())
        session = await link.open_session(KEY, 5, 10.0)
        assert session is not None
        taken = await take(link, 5, credit=False)
        await split(group)
        for receipt, _ in taken:
            await ack(link, receipt)
        await until(lambda: state(group) == "split")
        with pytest.raises(StaleSessionError):
            group.session_waiters.renew(link.worker_id, KEY, session.token)
        with pytest.raises(InvalidRequestError, match="is split"):
            await link.open_session(KEY, 5, 10.0)
        other = await link.open_session(None, 5, 10.0)
        assert other is not None
        assert other.key in group.queue.splits.by_key[KEY].sub_lanes()


@pytest.mark.parametrize("priority", [Priority.NONE, Priority.STRICT])
@pytest.mark.parametrize("at_once", [7, 1000])
async def test_a_split_waits_for_damaged_records_and_keeps_the_order_when_they_are_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, at_once: int, priority: Priority
) -> None:
    monkeypatch.setattr(splitter, "RECORDS_AT_ONCE", at_once)
    monkeypatch.setattr(read_failures, "FIRST_PAUSE_SECONDS", 0.002)
    monkeypatch.setattr(read_failures, "LONGEST_PAUSE_SECONDS", 0.02)
    done = Done()
    async with shell(tmp_path) as opened:
        await opened.topic()
        await fill(opened, range(200), keys=[KEY])
        group = await opened.group(priority=priority, grace_seconds=0.0)
        await until(lambda: group.queue.position(0) == 200)
        [segment] = tmp_path.glob("data/t-0/*.log")
        intact = segment.read_bytes()
        position = len(intact) // 3
        with segment.open("r+b") as damaged:
            damaged.seek(position)
            damaged.write(bytes([intact[position] ^ 0x55]))
        await split(group)
        await until(lambda: "waits until its first record can be read" in caplog.text)
        [lane] = await explain_lanes(group, [KEY], Pace(), is_all_scanned=True)
        assert lane.state == "splitting"
        assert lane.told is not None
        assert "CRC" in lane.told.facts.obstacle
        described = await describe_group(opened.engine, group, Pace(), 0)
        assert "CRC" in str(described.partitions[0].error)
        link = await group.connect(hello())
        count = group.queue.splitting.waiting(group.queue.splits.by_key[KEY])
        assert 10 < count < 100
        await done.work(link, count)
        await group.goodbye(link)
    assert caplog.text.count("waits until its first record can be read") == 1
    segment.write_bytes(intact)
    async with shell(tmp_path) as opened:
        await fill(opened, range(200, 220), keys=[KEY])
        link = await opened.groups.group("g").connect(hello("v"))
        await done.work(link, 220 - count)
        done.check(range(220))


async def test_a_hot_lane_is_split_and_joined_when_it_is_calm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitter, "LOOK_SECONDS", 0.02)
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group(split_by="header:part", split_into=3, split_age_seconds=0.1)
        await fill(opened, range(1200), keys=[KEY, KEY, KEY, b"other"])
        await until(lambda: state(group) == "split")
        [made] = group.queue.splits
        assert (made.key, made.into, made.is_automatic) == (KEY, 3, True)
        done = Done()
        link = await group.connect(hello())
        await done.work(link, 1200)
        await until(lambda: state(group) == "")
        done.check(range(1200))


async def test_a_lane_among_many_that_are_joined_goes_on_without_another_event(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group(lease_seconds=3_600.0, alarm_age_seconds=3_600.0)
        keys = [b"k%d" % number for number in range(400)]
        for key in keys:
            await group.operations.split(key, PART, 2)
        await opened.append_records([(key, b"before", [("part", b"0")]) for key in keys])
        link = await group.connect(hello())
        held = {record.key: receipt for receipt, record in await take(link, len(keys))}
        for key in keys:
            await group.operations.join(key)
        await opened.append_records([(key, b"after", [("part", b"0")]) for key in keys])
        await until(lambda: group.queue.position(0) == 2 * len(keys))
        link.add_credit(1)
        for last in (keys[200], keys[399]):
            await ack(link, held[last])
            [(_, record)] = await take(link, 1)
            assert (record.key, record.value) == (last, b"after")


async def test_a_hot_lane_that_is_blocked_is_left_to_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitter, "LOOK_SECONDS", 0.02)
    looks = HotLanes.look
    seen: list[object] = []

    def look(self: HotLanes, *arguments: Any) -> Any:
        seen.append(found := looks(self, *arguments))
        return found

    monkeypatch.setattr(HotLanes, "look", look)
    async with shell(tmp_path) as opened:
        await opened.topic()
        await fill(opened, range(1000), keys=[KEY])
        group = await opened.group(max_attempts=1)
        link = await group.connect(hello())
        [(receipt, _)] = await take(link, 1)
        await nack(link, receipt)
        await until(lambda: group.inspector.held())
        await group.alter(msgspec.structs.replace(group.settings, split_by="header:part", split_age_seconds=0.1))
        await until(lambda: len(seen) > 20)
        assert state(group) == ""
        await group.operations.resume(LaneName(key=KEY))
        await until(lambda: state(group) == "split")


async def test_why_a_hot_lane_cannot_be_split_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(splitter, "LOOK_SECONDS", 0.02)
    async with shell(tmp_path) as opened:
        await opened.topic()
        await fill(opened, range(1000), keys=[KEY])
        group = await opened.group()
        link = await group.connect(hello())
        session = await link.open_session(KEY + b"#1", 1, 10.0)
        assert session is not None
        await group.alter(msgspec.structs.replace(group.settings, split_by="header:part", split_age_seconds=0.1))
        said = "a lane is hot and cannot be split, key 'hot': key 'hot#1' has a session"
        await until(lambda: said in caplog.text)
        await link.close_session(KEY + b"#1", session.token)
        await until(lambda: state(group) == "split")
        assert caplog.text.count(said) == 1


async def test_sub_lanes_with_a_held_record_are_not_calm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one record would hold up the whole key."""
    monkeypatch.setattr(splitter, "LOOK_SECONDS", 0.02)
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group(split_by="header:part", split_into=8, split_age_seconds=0.1, max_attempts=1)
        await fill(opened, range(1000), keys=[KEY])
        await until(lambda: state(group) == "split")
        link = await group.connect(hello())
        [(receipt, record)] = await take(link, 1)
        bad = dict(record.headers)["part"]
        await nack(link, receipt)
        left = [len(lane) for lane in group.queue.lanes if lane.head != group.inspector.held()[0].head]
        for _ in range(sum(left)):
            [(receipt, _)] = await take(link, 1)
            await ack(link, receipt)
        [held] = group.inspector.held()
        while len(held) > 1:
            group.inspector.drop_some(held, 10)
        looks = HotLanes.look
        seen = 0

        def look(self: HotLanes, *arguments: Any) -> Any:
            nonlocal seen
            seen += 1
            return looks(self, *arguments)

        monkeypatch.setattr(HotLanes, "look", look)
        await until(lambda: seen > 20)
        assert state(group) == "split"
        # Joined by hand, and hot again: it is split as before.
        group.queue.splits.put(msgspec.structs.replace(group.queue.splits.by_key[KEY], is_automatic=True))
        await group.operations.join(KEY)
        assert state(group) == "joining"
        await fill(opened, range(1000, 2000), keys=[KEY])
        await until(lambda: state(group) == "split")
        [(_, record)] = await take(link, 1)
        assert dict(record.headers)["part"] != bad
