"""Dead letters that their topic refuses: each holds back its own lane, says why, and goes once when it can."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from logbroker.broker.local_engine.engine import LocalEngine
from logbroker.config import MAX_BATCH_BYTES, MAX_STORED_BATCH_BYTES
from logbroker.engine import Append
from logbroker.errors import (
    CorruptLogError,
    InvalidTimestampError,
    LaneNotHeldError,
    LogbrokerError,
    PartitionOfflineError,
    RecordTooLargeError,
)
from logbroker.group_runtime.group_store import GroupStore
from logbroker.pacing import Pace
from logbroker.queues.dead_letters.redrive import RedriveOutcome
from logbroker.queues.dead_letters.sender import DeadLetterSender
from logbroker.queues.group import QueueGroup
from logbroker.queues.lanes import LaneOrder, choose_lanes
from logbroker.queues.machine.inspect import AlarmKind
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import OnExhausted, Ordering
from logbroker.queues.operations import LaneName
from logbroker.queues.records.fetch import Records
from logbroker.record.codec import LogRecord, NewRecord, encode_batch, with_producer
from logbroker.record.dead_letter import GROUP, ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TOPIC, header_value
from tests.nursery import processes
from tests.queues.kills import killed_in
from tests.queues.shell import Shell, hello, nack, shell, take, until

LETTERS = "g.dead-letters"
SMALL = {"max.message.bytes": "1000"}
LARGE = random.Random(1).randbytes(2000)
HUGE = random.Random(2).randbytes(6000)


async def failing_group(opened: Shell, **settings: Any) -> QueueGroup:
    return await opened.group(
        on_exhausted=OnExhausted.DEAD_LETTER, max_attempts=1, backoff_initial_seconds=0.0, **settings
    )


async def fail(group: QueueGroup, count: int) -> None:
    """Have so many records fail, those of a lane one after the other."""
    if not count:
        return
    link = await group.connect(hello("failing"))
    link.add_credit(count)
    while count:
        taken = await take(link, 1, credit=False)
        await nack(link, *(receipt for receipt, _ in taken))
        count -= len(taken)
    await link.goodbye()


async def limit(opened: Shell, max_bytes: int, topic: str = LETTERS) -> None:
    configs = {"max.message.bytes": str(max_bytes)}
    await opened.engine.alter_topic(opened.engine.topic(topic).id, set_configs=configs)


def origin(letter: LogRecord) -> int:
    return int(header_value(letter.headers, ORIGIN_OFFSET) or -1)


async def letters(opened: Shell) -> list[int]:
    """The offsets of the records that are dead letters, in all partitions."""
    topic = opened.engine.topic(LETTERS)
    found = [await opened.stored(LETTERS, partition) for partition in range(topic.partitions)]
    return [origin(letter) for each in found for letter in each]


def alarms(group: QueueGroup) -> list[tuple[bytes | None, str]]:
    return [
        (alarm.key, alarm.message)
        for alarm in group.inspector.alarms(group.moment())
        if alarm.kind is AlarmKind.LETTERS
    ]


async def test_one_that_is_too_large_holds_back_its_lane_and_no_other(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=2)
        numbers = range(200)
        for partition in (0, 1):
            await opened.append(*((b"%d" % number, b"%d" % number) for number in numbers), partition=partition)
        await opened.append((b"large", LARGE), (b"large", b"behind it"), (b"0", b"after all"))
        group = await failing_group(opened)
        await limit(opened, 1000)
        await fail(group, 402)
        await until(lambda: group.dead_lettering.sent == 401)
        [(key, message)] = alarms(group)
        assert key == b"large"
        assert "raise max.message.bytes there to" in message
        lane = group.inspector.lane(b"large")
        facts = group.inspector.explain(lane, group.moment())
        assert (facts.state, facts.waiting) == ("dead-lettering", 2)
        assert f"topic {LETTERS} does not take it" in facts.refusal
        assert group.inspector.held() == [lane]
        assert group.inspector.counts().refused_letters == 1
        await limit(opened, 3000)
        await until(lambda: group.queue.done.floor(0) == 201)
        assert (alarms(group), group.inspector.counts().refused_letters) == ([], 0)
        await fail(group, 1)
        await until(lambda: group.queue.done.floor(0) == 203)
        found = await letters(opened)
        assert sorted(found) == sorted([*numbers, *numbers, 200, 201, 202])


async def test_what_is_said_of_letters_is_of_the_topic_as_it_is(tmp_path: Path) -> None:
    """A letter that was too large is not mentioned while there is no topic: to raise a limit would not help."""
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"large", LARGE))
        group = await failing_group(opened)
        await limit(opened, 1000)
        await fail(group, 1)
        await until(lambda: alarms(group))
        lane = group.inspector.lane(b"large")
        await opened.engine.delete_topic(opened.engine.topic(LETTERS).id)
        await until(lambda: group.queue.dead_letters.troubles)
        told = [message for _, message in alarms(group)]
        told.append(group.inspector.explain(lane, group.moment()).refusal)
        assert all(LETTERS in message and "max.message.bytes" not in message for message in told), told
        assert group.inspector.counts().refused_letters == 1
        await opened.engine.create_topic(LETTERS, 1, {"max.message.bytes": "1000"})
        await until(lambda: not group.queue.dead_letters.troubles)
        [(key, message)] = alarms(group)
        assert (key, "raise max.message.bytes" in message) == (b"large", True)
        await opened.engine.delete_topic(opened.engine.topic(LETTERS).id)
        await opened.engine.create_topic(LETTERS, 1, {})
        await until(lambda: group.dead_lettering.sent == 1)
        assert alarms(group) == []


async def test_a_refused_letter_is_not_tried_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"large", LARGE))
        group = await failing_group(opened)
        await limit(opened, 1000)
        await fail(group, 1)
        await until(lambda: alarms(group))
        tries = 0
        append = opened.engine.append

        async def counted(appends: Sequence[Append], durability: Any = None) -> Any:
            nonlocal tries
            tries += sum(item.topic_id == opened.engine.topic(LETTERS).id for item in appends)
            return await append(appends, durability)

        monkeypatch.setattr(opened.engine, "append", counted)
        for number in range(20):
            await opened.topic(f"other-{number}")
            await limit(opened, 1000 + number)
        assert group.dead_lettering._sending is not None
        assert tries == 0
        await limit(opened, 10_000)
        await until(lambda: group.queue.done.floor(0) == 1)
        assert tries == 1


@pytest.mark.parametrize("how", ["skip", "resume", "replace", "drop"])
async def test_operators_decide_about_a_lane_whose_letter_is_refused(tmp_path: Path, how: str) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"large", LARGE), (b"large", b"behind it"), (None, LARGE), (b"a", b"a"))
        group = await failing_group(opened)
        await limit(opened, 1000)
        await fail(group, 3)
        await until(lambda: len(alarms(group)) == 2)
        for key in (b"large", None):
            name = LaneName(record_id=record_id_of(0, 2)) if key is None else LaneName(key=key)
            if how == "replace":
                await (await group.operations.replace_head(name, b"small", []))
            elif how == "drop":
                await (await group.operations.drop(name, Pace()))
            else:
                await (group.operations.skip if how == "skip" else group.operations.resume)(name)
        if how == "resume":
            await fail(group, 2)
            await until(lambda: len(alarms(group)) == 2)
            await limit(opened, 3000)
            await until(lambda: group.dead_lettering.sent == 3)
        await fail(group, {"skip": 1, "resume": 1, "replace": 3, "drop": 0}[how])
        await until(lambda: group.queue.done.floor(0) == 4)
        expected = {"skip": [1, 3], "resume": [0, 1, 2, 3], "replace": [0, 1, 2, 3], "drop": [3]}[how]
        assert sorted(await letters(opened)) == expected
        assert alarms(group) == []


async def test_a_record_that_cannot_be_read_holds_back_its_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = Records.fetch

    async def damaged(self: Records, record_ids: Sequence[int], *bound: int) -> Any:
        found = await fetch(self, record_ids, *bound)
        if is_damaged and record_id_of(0, 3) in record_ids and len(record_ids) == 1:
            return [CorruptLogError("damaged")]
        return found

    async def not_found(self: Records, record_ids: Sequence[int], *bound: int) -> Any:
        if record_ids == [record_id_of(0, 3)]:
            raise CorruptLogError("damaged")
        return await find(self, record_ids, *bound)

    find = Records.find
    is_damaged = True
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append(*((b"%d" % number, b"%d" % number) for number in range(20)))
        group = await failing_group(opened)
        monkeypatch.setattr(Records, "fetch", damaged)
        monkeypatch.setattr(Records, "find", not_found)
        await fail(group, 20)
        await until(lambda: group.dead_lettering.sent == 19)
        [(key, message)] = alarms(group)
        assert key == b"3"
        assert "its dead letter cannot be made: damaged" in message
        assert "does not take it" not in message, "the topic was not asked"
        monkeypatch.setattr(Records, "find", find)
        is_damaged = False
        await until(lambda: group.queue.done.floor(0) == 20)
        assert sorted(await letters(opened)) == list(range(20))


@pytest.mark.parametrize(
    "error", [InvalidTimestampError("a year ahead"), RuntimeError("planted"), RecordTooLargeError("for now")]
)
async def test_whatever_a_letter_is_refused_for_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append(*((b"%d" % number, b"%d" % number) for number in range(20)))
        group = await failing_group(opened)
        encode = DeadLetterSender._encode
        append = opened.engine.append
        refuse = True

        async def refused(self: DeadLetterSender, topic: Any, origin: str, letter: Any) -> Any:
            if refuse and letter.record_id == record_id_of(0, 3) and not isinstance(error, LogbrokerError):
                raise error
            return await encode(self, topic, origin, letter)

        async def refusing(appends: Sequence[Append], durability: Any = None) -> Any:
            bad = [
                refuse and isinstance(error, LogbrokerError) and b"offset\x023" in bytes(each.batch) for each in appends
            ]
            if not any(bad):
                return await append(appends, durability)
            first = bad.index(True)
            before = await append(appends[:first], durability) if first else []
            after = await append(appends[first + 1 :], durability) if first + 1 < len(appends) else []
            return [*before, error, *after]

        monkeypatch.setattr(DeadLetterSender, "_encode", refused)
        monkeypatch.setattr(opened.engine, "append", refusing)
        await fail(group, 20)
        await until(lambda: group.dead_lettering.sent == 19)
        assert [key for key, _ in alarms(group)] == [b"3"]
        refuse = False
        await limit(opened, 2_000_000)
        await until(lambda: group.queue.done.floor(0) == 20)
        assert sorted(await letters(opened)) == list(range(20))


async def test_a_partition_that_is_offline_holds_back_what_goes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=4)
        for partition in range(4):
            await opened.append(*((b"%d" % number, b"%d" % number) for number in range(50)), partition=partition)
        group = await failing_group(opened, ordering=Ordering.NONE)
        append, facts, topic = opened.engine.append, opened.engine.partition_facts, opened.engine.topic(LETTERS)

        def is_offline(topic_id: bytes, partition: int) -> bool:
            return (topic_id, partition) == (topic.id, 1)

        def offline_facts(topic_id: Any, partition: int) -> Any:
            if is_offline(topic_id, partition):
                raise PartitionOfflineError("planted")
            return facts(topic_id, partition)

        async def offline(appends: Sequence[Append], durability: Any = None) -> Any:
            assert not any(is_offline(item.topic_id, item.partition) for item in appends)
            return await append(appends, durability)

        with monkeypatch.context() as patched:
            patched.setattr(opened.engine, "append", offline)
            patched.setattr(opened.engine, "partition_facts", offline_facts)
            await fail(group, 200)
            await until(lambda: group.dead_lettering.sent == 150)
            assert group.inspector.counts().refused_letters == 50
            [(_, message)] = alarms(group)
            assert "in partition 1: planted" in message
        await until(lambda: group.dead_lettering.sent == 200)
        assert sorted(await letters(opened)) == sorted([*range(50)] * 4)
        assert alarms(group) == []


async def test_a_topic_that_is_gone_is_told_of_and_waited_for(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a"), (b"b", b"b"), (b"c", b"c"))
        group = await failing_group(opened)
        await opened.engine.delete_topic(opened.engine.topic(LETTERS).id)
        await fail(group, 3)
        await until(lambda: alarms(group))
        assert group.inspector.counts().refused_letters == 3
        listed = [await choose_lanes(group, order, 10, Pace()) for order in (LaneOrder.HELD, LaneOrder.WAITING)]
        assert [number for number, _ in listed] == [3, 0], "a held lane is not listed as one that waits"
        assert "takes no dead letters" in group.inspector.explain(group.inspector.lane(b"a"), group.moment()).refusal
        await group.operations.skip(LaneName(key=b"b"))
        await opened.topic(LETTERS)
        await until(lambda: group.queue.done.floor(0) == 3)
        assert sorted(await letters(opened)) == [0, 2]
        assert alarms(group) == []


async def test_what_may_be_there_already_cannot_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a"))
        group = await failing_group(opened)
        append, release, arrived = opened.engine.append, asyncio.Event(), asyncio.Event()

        async def slow(appends: Sequence[Append], durability: Any = None) -> Any:
            arrived.set()
            await release.wait()
            return await append(appends, durability)

        monkeypatch.setattr(opened.engine, "append", slow)
        await fail(group, 1)
        await arrived.wait()
        with pytest.raises(LaneNotHeldError, match="may be there already"):
            group.inspector.resume(group.inspector.lane(b"a"))
        release.set()
        await until(lambda: group.queue.done.floor(0) == 1)
        assert await letters(opened) == [0]


# --- room ----------------------------------------------------------------------------------------------------------


@pytest.mark.prove
async def test_a_topic_that_the_broker_made_has_room_for_the_largest_record_there_can_be(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.engine.create_topic("t", 1, {"max.message.bytes": str(MAX_BATCH_BYTES)})
        value = random.Random(1).randbytes(MAX_BATCH_BYTES - 100)
        await opened.append((b"a", value))
        group = await failing_group(opened)
        await fail(group, 1)
        await until(lambda: group.queue.done.floor(0) == 1)
        assert [letter.value for letter in await opened.stored(LETTERS)] == [value]
        assert await group.redrive(None, 10) == RedriveOutcome(1, 1, False)
        assert (await opened.stored("t"))[-1].value == value


async def test_a_topic_that_the_broker_made_follows_its_source(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        await opened.engine.create_topic("t", 1, SMALL)
        group = await failing_group(opened)
        await limit(opened, 10_000, "t")
        await opened.append((b"large", random.Random(1).randbytes(9_900)))
        await fail(group, 1)
        await until(lambda: group.queue.done.floor(0) == 1)
        await limit(opened, 300_000, "t")
        await until(lambda: opened.engine.topic(LETTERS).config.max_message_bytes > 300_000)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        await limit(opened, MAX_BATCH_BYTES, "t")
        await until(lambda: opened.engine.topic(LETTERS).config.max_message_bytes == MAX_STORED_BATCH_BYTES)
        # What an operator sets, stays.
        await limit(opened, 5_000)
        await limit(opened, MAX_BATCH_BYTES - 1, "t")
        await opened.groups.alter("g", {"lease_seconds": 20.0})
        assert opened.engine.topic(LETTERS).config.max_message_bytes == 5_000


async def test_a_topic_that_somebody_else_made_is_left_alone(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.engine.create_topic(LETTERS, 1, SMALL)
        await failing_group(opened)
        await limit(opened, 2_000_000, "t")
        await opened.groups.alter("g", {"lease_seconds": 20.0})
        assert opened.engine.topic(LETTERS).config.max_message_bytes == 1000


# --- sent back -----------------------------------------------------------------------------------------------------


async def test_one_that_is_too_large_to_go_back_holds_its_key_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logbroker.queues.dead_letters.search.MAX_ROUND_RECORDS", 30)
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append(*((b"%d" % number, b"%d" % number) for number in range(60)))
        await opened.append((b"large", LARGE), (None, LARGE))
        await opened.append(*((b"%d" % number, b"%d" % number) for number in range(60)), (b"large", b"behind it"))
        group = await failing_group(opened)
        await fail(group, 123)
        await until(lambda: group.dead_lettering.sent == 123)
        await limit(opened, 400, "t")
        for _ in range(2):
            found = await group.redrive(None, 1000)
            assert (found.more, found.held) == (False, 3)
            assert "raise its max.message.bytes to" in found.why
        back = [(record.key, record.value) for record in (await opened.stored("t"))[123:]]
        assert sorted(back, key=str) == sorted([(b"%d" % n, b"%d" % n) for n in range(60)] * 2, key=str)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        await limit(opened, 10_000, "t")
        assert await group.redrive(None, 1000) == RedriveOutcome(3, 1, False)
        back = [(record.key, record.value) for record in (await opened.stored("t"))[243:]]
        assert [value for key, value in back if key == b"large"] == [LARGE, b"behind it"]
        assert len(back) == 3
        assert await group.redrive(None, 1000) == RedriveOutcome(0, 0, False)


async def test_a_batch_among_the_letters_that_cannot_be_decoded_holds_no_other(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append(*((b"%d" % number, b"%d" % number) for number in range(10)))
        group = await failing_group(opened)
        poison = bytearray(encode_batch([NewRecord(b"x" * 100)]))
        poison[61:] = b"\xff" * (len(poison) - 61)
        damaged = with_producer(bytes(poison), -1, -1, -1)
        await opened.engine.append([Append(opened.engine.topic(LETTERS).id, 0, damaged)])
        await fail(group, 10)
        await until(lambda: group.dead_lettering.sent == 10)
        found = await group.redrive(None, 1000)
        assert (found.records, found.more, found.held) == (10, False, 1)
        assert (await group.redrive(None, 1000)).records == 0


async def test_letters_that_somebody_forged_hold_no_other(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append(*((b"%d" % number, b"%d" % number) for number in range(3)))
        group = await failing_group(opened)
        forged = [b"9" * 5000, b"-1", b"\xff", b"", None, b"4294967295"]
        headers = [(GROUP, b"g"), (ORIGIN_TOPIC, b"t")]
        batch = encode_batch([NewRecord(b"forged", None, [*headers, (ORIGIN_PARTITION, value)]) for value in forged])
        await opened.engine.append([Append(opened.engine.topic(LETTERS).id, 0, batch)])
        await fail(group, 3)
        await until(lambda: group.dead_lettering.sent == 3)
        assert await group.redrive(None, 100) == RedriveOutcome(3 + len(forged), 3, False)


# --- crashes -------------------------------------------------------------------------------------------------------

COUNT = 30
KILLS = [
    *((LocalEngine, "append", call, after) for call in (2, 3, 4, 6) for after in (False, True)),
    *((GroupStore, "commit", call, after) for call in range(2, 12, 2) for after in (False, True)),
    *((LocalEngine, "init_producer_id", call, True) for call in range(1, 4)),
    *((LocalEngine, "alter_topic", call, after) for call in (2, 3) for after in (False, True)),
]


def run_that_ends(path: Path, owner: type, name: str, call: int, after: bool) -> None:
    """Runs in a process of its own."""
    killed_in(owner, name, call=call, after=after)()
    asyncio.run(live(path))


async def live(path: Path) -> None:
    """Have all records fail; some of them are too large for a while, one for ever."""
    async with shell(path) as opened:
        await opened.topic()
        batch = [(b"%d" % number, LARGE if number % 7 == 3 else b"%d" % number) for number in range(COUNT)]
        await opened.append(*batch, (b"huge", HUGE))
        group = await failing_group(opened)
        await limit(opened, 1000)
        await fail(group, COUNT + 1)
        await until(lambda: len(alarms(group)) == 5)
        await limit(opened, 3000)
        await until(lambda: len(alarms(group)) == 1)


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(("owner", "name", "call", "after"), KILLS)
async def test_a_kill_at_any_step_loses_no_letter_and_doubles_none(
    tmp_path: Path, owner: type, name: str, call: int, after: bool
) -> None:
    process = processes.Process(target=run_that_ends, args=(tmp_path, owner, name, call, after))
    process.start()
    await asyncio.to_thread(process.join, 60)
    assert process.exitcode in (-signal.SIGKILL, 0)
    if process.exitcode == 0:
        pytest.skip("so many calls there are not")
    async with shell(tmp_path) as opened:
        if "g" not in opened.groups.ids():
            return
        group = opened.groups.group("g")
        left = (
            COUNT
            + 1
            - len(group.queue.failures)
            - sum(1 for n in range(COUNT + 1) if record_id_of(0, n) in group.queue.done)
        )
        await limit(opened, 3000)
        await fail(group, left)
        await until(lambda: [key for key, _ in alarms(group)] == [b"huge"] and group.queue.open_records == 1)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        await until(lambda: alarms(group))
        await limit(opened, 100_000)
        await until(lambda: group.queue.done.floor(0) == COUNT + 1)
        assert sorted(await letters(opened)) == list(range(COUNT + 1))
