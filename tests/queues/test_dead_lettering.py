"""Dead letters: what they tell, that none is lost or doubled, and that a topic that refuses them is waited for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logbroker.config import TOPIC_CONFIGS
from logbroker.engine import Append
from logbroker.errors import OverloadedError
from logbroker.queues.dead_letters.sender import DeadLetterSender
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.settings import OnExhausted
from logbroker.queues.operations import LaneName
from logbroker.record import dead_letter
from logbroker.record.codec import LogRecord
from tests.queues.shell import Shell, ack, hello, nack, shell, take, until

LETTERS = "g.dead-letters"


async def failing_group(opened: Shell, **settings: Any) -> QueueGroup:
    return await opened.group(
        on_exhausted=OnExhausted.DEAD_LETTER, max_attempts=1, backoff_initial_seconds=0.0, **settings
    )


async def fail(group: QueueGroup, count: int) -> None:
    """Have so many records fail, all at once."""
    link = await group.connect(hello("failing"))
    await nack(link, *[receipt for receipt, _ in await take(link, count)], reason="no good")
    await link.goodbye()


async def letters_of(opened: Shell, count: int) -> list[LogRecord]:
    """Wait for so many dead letters in partition 0."""
    topic = opened.engine.topic(LETTERS)
    await until(lambda: opened.engine.partition_facts(topic.id, 0).high_watermark >= count)
    return await opened.stored(LETTERS)


def told(letter: LogRecord) -> dict[str, bytes | None]:
    return dict(letter.headers)


async def test_a_dead_letter_tells_what_happened(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"), (b"a", b"a2"))
        group = await opened.group(
            on_exhausted=OnExhausted.DEAD_LETTER, max_attempts=2, backoff_initial_seconds=0.0, dead_letter_topic=LETTERS
        )
        link = await group.connect(hello())
        for reason in ("first", "second"):
            [(receipt, _)] = await take(link, 1)
            await nack(link, receipt, reason=reason)
        [(receipt, record)] = await take(link, 1)
        assert record.value == b"a2", "the lane goes on"
        await ack(link, receipt)
        [letter] = await letters_of(opened, 1)
        assert (letter.key, letter.value) == (b"a", b"a1")
        assert [value for name, value in letter.headers if name == dead_letter.REASON] == [b"first", b"second"]
        headers = told(letter)
        assert headers[dead_letter.ORIGIN_TOPIC] == b"t"
        assert headers[dead_letter.ORIGIN_PARTITION] == b"0"
        assert headers[dead_letter.ORIGIN_OFFSET] == b"0"
        assert headers[dead_letter.GROUP] == b"g"
        assert headers[dead_letter.ATTEMPTS] == b"2"
        assert int(headers[dead_letter.FIRST_FAILURE] or 0) <= int(headers[dead_letter.LAST_FAILURE] or 0)
        assert group.queue.done.floor(0) == 2
        assert group.dead_lettering.sent == 1


async def test_many_go_in_order_and_once(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append(*[(b"%d" % number, b"%d" % number) for number in range(100)])
        group = await failing_group(opened)
        await fail(group, 100)
        letters = await letters_of(opened, 100)
        assert [letter.value for letter in letters] == [b"%d" % number for number in range(100)]
        await until(lambda: group.queue.done.floor(0) == 100)


async def test_a_crash_between_append_and_done_doubles_no_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(DeadLetterSender, "_done", lambda self, letter: None)
        async with shell(tmp_path, crash=True) as opened:
            await opened.topic()
            await opened.append(*[(b"%d" % number, b"%d" % number) for number in range(5)])
            await fail(await failing_group(opened), 5)
            await letters_of(opened, 5)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        await until(lambda: group.queue.done.floor(0) == 5)
        assert [letter.value for letter in await opened.stored(LETTERS)] == [b"0", b"1", b"2", b"3", b"4"]
        await opened.append((b"a", b"another"))
        await fail(group, 1)
        assert len(await letters_of(opened, 6)) == 6


async def test_letters_go_on_where_the_topic_has_forgotten_their_producer(tmp_path: Path) -> None:
    """For room: under a new producer, also where the forgotten one had been found for them, and had sent nothing."""
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await failing_group(opened)
        for count in (3, 6, 9):
            await opened.append(*[(b"%d" % number, b"%d" % number) for number in range(count - 3, count)])
            await fail(group, 3)
            letters = await letters_of(opened, count)
            assert [letter.value for letter in letters] == [b"%d" % number for number in range(count)]
            await until(lambda count=count: group.queue.done.floor(0) == count)  # type: ignore[misc]
            producers = opened.engine._partitions.get(opened.engine.topic(LETTERS).id, 0).log._producers
            producers.forget(len(producers))
            [group_producer] = group.dead_lettering._producers.values()
            if count == 6:
                group.dead_lettering._producers[0] = msgspec.structs.replace(group_producer, base=6)


async def test_a_topic_that_refuses_letters_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"x" * 1000), (b"b", b"b"))
        group = await failing_group(opened)
        letters = opened.engine.topic(LETTERS)
        await opened.engine.alter_topic(letters.id, set_configs={"max.message.bytes": "200"})
        await fail(group, 2)
        await until(lambda: "dead letters of some lanes cannot be sent" in caplog.text)
        assert group.queue.done.floor(0) == 0
        await opened.engine.alter_topic(letters.id, unset_configs=["max.message.bytes"])
        assert sorted([letter.key or b"" for letter in await letters_of(opened, 2)]) == [b"a", b"b"]
        await until(lambda: group.queue.done.floor(0) == 2)
        assert caplog.text.count("dead letters of some lanes cannot be sent") == 1


async def test_a_dead_letter_topic_that_was_made_anew_takes_letters(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a"), (b"b", b"b"))
        group = await failing_group(opened)
        await fail(group, 2)
        await letters_of(opened, 2)
        await opened.engine.delete_topic(opened.engine.topic(LETTERS).id)
        await opened.append((b"c", b"c"))
        await fail(group, 1)
        await opened.topic(LETTERS)
        assert [letter.value for letter in await letters_of(opened, 1)] == [b"c"]
        await until(lambda: group.queue.done.floor(0) == 3)


async def test_the_largest_record_fits_into_the_dead_letter_topic(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        largest = int(TOPIC_CONFIGS["max.message.bytes"].parse("1048588")) - 100
        await opened.append((b"a", random.Random(1).randbytes(largest)))
        group = await failing_group(opened)
        await fail(group, 1)
        [letter] = await letters_of(opened, 1)
        assert len(letter.value or b"") == largest


async def test_what_the_topic_refuses_stays_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine refuses some appends for now: no letter overtakes another, none is left out."""
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append(*[(b"%d" % number, b"%d" % number) for number in range(30)])
        group = await failing_group(opened)
        append, calls = opened.engine.append, 0

        async def moody(appends: Sequence[Append], durability: Any = None) -> Any:
            nonlocal calls
            calls += 1
            if calls % 2:
                return [OverloadedError("not now"), *(await append(appends[1:], durability) if appends[1:] else [])]
            return await append(appends, durability)

        monkeypatch.setattr(opened.engine, "append", moody)
        await fail(group, 30)
        letters = await letters_of(opened, 30)
        assert [letter.value for letter in letters] == [b"%d" % number for number in range(30)]


async def test_the_dead_letter_of_a_replaced_record_is_the_replacement(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"bad"))
        group = await opened.group(max_attempts=1)
        await fail(group, 1)
        await (await group.operations.replace_head(LaneName(key=b"a"), b"no better", []))
        await opened.groups.alter("g", {"on_exhausted": OnExhausted.DEAD_LETTER})
        await fail(group, 1)
        [letter] = await letters_of(opened, 1)
        assert (letter.key, letter.value) == (b"a", b"no better")
