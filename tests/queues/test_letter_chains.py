"""Dead letters of dead letters, and redrives between: each tells where the record came from first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from logbroker.engine import Append, Appended
from logbroker.queues.dead_letters.redrive import RedriveOutcome
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.messages import Settlement
from logbroker.queues.model.settings import OnExhausted, OnUndecodable, Ordering, QueueGroupSettings
from logbroker.queues.model.starts import StartAt
from logbroker.record import dead_letter
from logbroker.record.codec import LogRecord
from tests.queues.fake_log import undecodable_batch
from tests.queues.shell import Shell, hello, nack, shell, take, until

FORGED = [
    (dead_letter.ORIGIN_TOPIC, b"forged"),
    (dead_letter.ORIGIN_PARTITION, b"7"),
    (dead_letter.ORIGIN_OFFSET, b"77"),
    (dead_letter.GROUP, b"forged"),
    (dead_letter.FIRST_TOPIC, b"forged"),
    (dead_letter.FIRST_PARTITION, b"9"),
    (dead_letter.FIRST_OFFSET, b"99"),
    (dead_letter.TIMES, b"99"),
]
PRIORITY = ("logbroker-priority", b"8")


async def group_on(opened: Shell, group_id: str, topic: str, **settings: Any) -> QueueGroup:
    """A queue group that gives up at the first failure, to `group_id`.dead-letters."""
    fields: dict[str, Any] = {"max_attempts": 1, "backoff_initial_seconds": 0.0, "grace_seconds": 0.0, **settings}
    group, _ = await opened.groups.create(
        group_id,
        opened.engine.topic(topic),
        QueueGroupSettings(on_exhausted=OnExhausted.DEAD_LETTER, **fields),
        StartAt(),
    )
    return group


async def fail(group: QueueGroup, count: int = 1, key: bytes | None = None) -> None:
    """Let so many records fail; those of a key in a session."""
    sent = group.dead_lettering.sent
    link = await group.connect(hello("failing"))
    if key is not None:
        await link.open_session(key, 1, 20.0)
        delivered = await link.next_deliveries()
        await nack(link, delivered.first_receipt)
    else:
        for _ in range(count):
            [(receipt, _)] = await take(link, 1)
            await nack(link, receipt)
    await link.goodbye()
    await until(lambda: group.dead_lettering.sent == sent + count)


async def letters(opened: Shell, group_id: str) -> list[LogRecord]:
    topic = opened.engine.topic(f"{group_id}.dead-letters")
    return [record for partition in range(topic.partitions) for record in await opened.stored(topic.name, partition)]


def told(record: LogRecord, names: Sequence[str]) -> list[str | None]:
    values = [dead_letter.header_value(record.headers, name) for name in names]
    return [None if value is None else value.decode() for value in values]


def first(record: LogRecord) -> list[str | None]:
    names = dead_letter.FIRST_TOPIC, dead_letter.FIRST_PARTITION, dead_letter.FIRST_OFFSET
    return told(record, (*names, dead_letter.FIRST_GROUP, dead_letter.TIMES))


def latest(record: LogRecord) -> list[str | None]:
    return told(
        record,
        (dead_letter.ORIGIN_TOPIC, dead_letter.ORIGIN_PARTITION, dead_letter.ORIGIN_OFFSET, dead_letter.GROUP),
    )


def own(record: LogRecord) -> list[tuple[str, bytes | None]]:
    return [header for header in record.headers if header[0] not in dead_letter.HEADERS]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({}, None),
        ({"ordering": Ordering.NONE}, None),
        ({"ordering": Ordering.SINGLE}, None),
        ({}, b"k"),
    ],
    ids=["key", "none", "single", "session"],
)
async def test_three_hops_and_back_again(tmp_path: Path, settings: dict[str, Any], key: bytes | None) -> None:
    mine = [("mine", b"1"), ("mine", None)]
    async with shell(tmp_path) as opened:
        await opened.topic("t")
        await opened.append((b"before", b"x"))
        await opened.append_records([(b"k", b"v", mine, 1_700_000_000_000)])
        a = await group_on(opened, "a", "t", **settings)
        if key is None:
            await fail(a, 2)
        else:
            await fail(a, key=key)
        [one] = [record for record in await letters(opened, "a") if record.key == b"k"]
        assert (latest(one), first(one)) == (["t", "0", "1", "a"], [None] * 5)

        b = await group_on(opened, "b", "a.dead-letters", **settings)
        await fail(b, 2 if key is None else 1, key)
        [two] = [record for record in await letters(opened, "b") if record.key == b"k"]
        assert latest(two) == ["a.dead-letters", "0", str(one.offset), "b"]
        assert first(two) == ["t", "0", "1", "a", "2"]
        assert told(two, [dead_letter.FIRST_TIMESTAMP, dead_letter.FIRST_ATTEMPTS]) == ["1700000000000", "1"]
        c = await group_on(opened, "c", "b.dead-letters", **settings)
        await fail(c, 2 if key is None else 1, key)
        [three] = [record for record in await letters(opened, "c") if record.key == b"k"]
        assert latest(three) == ["b.dead-letters", "0", str(two.offset), "c"]
        assert first(three) == ["t", "0", "1", "a", "3"]
        assert own(one) == own(two) == own(three) == mine
        assert (three.key, three.value) == (b"k", b"v")

        # Back by the way that it came: each time as it was, so that the next group knows its letter.
        for group, group_id, was, count in ((c, "b", two, 1), (b, "a", one, 2)):
            assert (await group.redrive(b"k", 10)).records == count, "those from before, and the one that came back"
            back = (await letters(opened, group_id))[-1]
            assert (back.key, back.value, list(back.headers)) == (was.key, was.value, list(was.headers))
        assert (await a.redrive(b"k", 10)).records == 3
        last = (await opened.stored("t"))[-1]
        assert (last.key, last.value, list(last.headers)) == (b"k", b"v", mine)

        # And once more down: the first origin is still the same.
        if key is None:
            await fail(a, 1)
        else:
            await fail(a, key=key)
        again = (await letters(opened, "a"))[-1]
        assert latest(again)[0::3] == ["t", "a"]
        assert first(again)[:4] == ["t", "0", "1", "a"]


async def test_the_letters_of_a_group_that_parks_now_keep_their_first_origin(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic("t")
        await opened.append((b"k", b"v"))
        await fail(await group_on(opened, "a", "t", dead_letter_topic="all-letters"))
        await opened.groups.alter("a", {"on_exhausted": OnExhausted.PARK})
        await fail(await group_on(opened, "b", "all-letters"))
        [letter] = await letters(opened, "b")
        assert (latest(letter), first(letter)) == (["all-letters", "0", "0", "b"], ["t", "0", "0", "a", "2"])


async def test_what_is_redriven_and_fails_again_tells_its_first_origin_also_after_a_start(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic("t")
        await opened.append((b"k", b"v"))
        a = await group_on(opened, "a", "t")
        await fail(a)
        assert await a.redrive(None, 10) == RedriveOutcome(1, 1, False)
    async with shell(tmp_path, crash=True) as opened:
        a = opened.groups.group("a")
        assert len(a.queue.origins) == 1
        await fail(a)
        assert len(a.queue.origins) == 0
        assert first((await letters(opened, "a"))[-1]) == ["t", "0", "0", "a", "2"]
        assert await a.redrive(None, 10) == RedriveOutcome(1, 1, False)
    async with shell(tmp_path) as opened:
        a = opened.groups.group("a")
        await fail(a)
        last = (await letters(opened, "a"))[-1]
        assert (latest(last), first(last)) == (["t", "0", "2", "a"], ["t", "0", "0", "a", "3"])
        assert await a.redrive(None, 10) == RedriveOutcome(1, 1, False)
        link = await a.connect(hello("working"))
        [(receipt, _)] = await take(link, 1)
        await link.settle(Settlement(acks=[(receipt, receipt)]))
        assert len(a.queue.origins) == 0, "what is done is forgotten"


async def test_headers_of_these_names_that_are_a_producers_own_are_not_believed(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic("t")
        await opened.append_records([(b"k", b"v", [*FORGED, ("mine", b"1")])])
        a = await group_on(opened, "a", "t")
        await fail(a)
        [letter] = await letters(opened, "a")
        assert (latest(letter), first(letter)) == (["t", "0", "0", "a"], [None] * 5)
        assert own(letter) == [("mine", b"1")]
        assert b"forged" not in [value for _, value in letter.headers]


async def test_a_forged_letter_does_no_harm(tmp_path: Path) -> None:
    """Anybody may write to a dead-letter topic: what cannot be read is passed over, and stays its own trouble."""
    async with shell(tmp_path) as opened:
        await opened.topic("t")
        await group_on(opened, "a", "t")
        broken = [
            (dead_letter.ORIGIN_TOPIC, b"\xff"),
            (dead_letter.ORIGIN_PARTITION, b"x" * 100),
            (dead_letter.ORIGIN_OFFSET, None),
            (dead_letter.LETTER, b"\xc1"),
            (dead_letter.TIMES, b"-1"),
        ]
        await opened.append_records([(b"k", b"v", broken), (b"l", b"w", [])], topic="a.dead-letters")
        b = await group_on(opened, "b", "a.dead-letters")
        await fail(b, 2)
        assert await b.redrive(None, 10) == RedriveOutcome(2, 2, False)
        back = (await opened.stored("a.dead-letters"))[2:]
        assert sorted((record.key, list(record.headers)) for record in back) == [(b"k", broken), (b"l", [])]


async def test_a_raw_letter_comes_back_as_it_was(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        topic = await opened.topic("t")
        bad = undecodable_batch(b"x", b"y")
        [appended] = await opened.engine.append([Append(topic.id, 0, bad)])
        assert isinstance(appended, Appended)
        a = await group_on(opened, "a", "t", on_undecodable=OnUndecodable.DEAD_LETTER)
        await until(lambda: a.dead_lettering.sent == 1)
        [raw] = await letters(opened, "a")
        assert dead_letter.header_value(raw.headers, dead_letter.UNDECODABLE) == b"1"
        b = await group_on(opened, "b", "a.dead-letters")
        await fail(b)
        [letter] = await letters(opened, "b")
        assert first(letter) == ["t", "0", "0", "a", "2"]
        assert letter.value == raw.value
        assert dead_letter.header_value(letter.headers, dead_letter.UNDECODABLE) is None
        assert await b.redrive(None, 10) == RedriveOutcome(1, 0, False)
        back = (await letters(opened, "a"))[-1]
        assert (back.value, list(back.headers)) == (raw.value, list(raw.headers))
        assert await a.redrive(None, 10) == RedriveOutcome(0, 0, False), "what no group can decode stays where it is"


async def test_bands_keep_their_origin(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic("t", None, **{"priority.bands": "hot=7-9:1,cold=0-6:1"})
        await opened.append_records([(b"k", b"v", [PRIORITY])], partition=0)
        a = await group_on(opened, "a", "t")
        await fail(a)
        assert (await a.redrive(None, 10)).records == 1
        assert [len(await opened.stored("t", partition)) for partition in (0, 1)] == [2, 0]
        await fail(a)
        assert first((await letters(opened, "a"))[-1]) == ["t", "0", "0", "a", "2"]


async def test_a_group_of_a_used_name_does_not_redrive_the_letters_of_the_one_before(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic("t")
        await opened.append((b"k", b"v"), (b"l", b"w"))
        await fail(await group_on(opened, "a", "t"), 2)
        await opened.groups.delete("a")
        a = await group_on(opened, "a", "t", ordering=Ordering.NONE)
        assert await a.redrive(None, 10, dry_run=True) == RedriveOutcome(0, 0, False)
        await fail(a, 2)
        assert await a.redrive(None, 1) == RedriveOutcome(1, 1, True)
    async with shell(tmp_path) as opened:
        assert await opened.groups.group("a").redrive(None, 10) == RedriveOutcome(1, 1, False)
        assert len(await opened.stored("t")) == 4
