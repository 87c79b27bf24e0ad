"""A queue group is altered from one dead-letter topic to another and back: each letter of this group goes back once,
and none of an earlier group of its name does."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logbroker.broker.local_engine.state_store import LocalStateStore
from logbroker.engine import StateEvent
from logbroker.errors import InvalidRequestError
from logbroker.queues.dead_letters.redrive import RedriveOutcome
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.settings import OnExhausted, QueueGroupSettings
from logbroker.queues.model.starts import StartAt
from logbroker.queues.registry import QueueGroupRegistry
from logbroker.queues.state.rows import PROGRESS_ROW
from tests.nursery import processes
from tests.queues.kills import killed_in
from tests.queues.redrives import LETTERS, fail_each, group_of, values_by_key
from tests.queues.shell import Shell, hello, shell, take
from tests.queues.shell import ack as ack_all

KEYS = [b"key-%d" % number for number in range(5)]
NOTHING = RedriveOutcome(0, 0, False)
ALL = RedriveOutcome(len(KEYS), len(KEYS), False)


async def fail(opened: Shell, group: QueueGroup, first: int) -> None:
    """Let one record of each key become a letter."""
    await fail_each(opened, group, KEYS, first)


async def redrive(group: QueueGroup) -> RedriveOutcome:
    """Redrive all letters; workers then do their records."""
    found = await group.redrive(None, 1000)
    link = await group.connect(hello("doing"))
    if found.records:
        await ack_all(link, *[receipt for receipt, _ in await take(link, found.records)])
    await link.goodbye()
    return found


async def alter(opened: Shell, **changes: Any) -> None:
    await opened.groups.alter("g", changes)


async def tally(opened: Shell) -> list[tuple[bytes | None, int]]:
    """How many times each value is in the topic."""
    return list(Counter(value for values in (await values_by_key(opened)).values() for value in values).items())


async def progress_keys(opened: Shell) -> list[bytes]:
    return [key for key in await opened.state.load("group:g") if key.startswith(PROGRESS_ROW)]


@pytest.mark.parametrize("restart", [False, True])
async def test_letters_that_went_back_stay_out_after_an_alteration_to_and_fro(tmp_path: Path, restart: bool) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await group_of(opened, dead_letter_topic="A")
        await fail(opened, group, 0)
        assert await redrive(group) == ALL
        await fail(opened, group, 5)
        await alter(opened, dead_letter_topic="B")
        assert await redrive(group) == NOTHING
        await fail(opened, group, 10)
        assert await redrive(group) == ALL
        if not restart:
            await alter(opened, dead_letter_topic="A")
            assert await redrive(group) == ALL
    if restart:
        async with shell(tmp_path) as opened:
            await alter(opened, dead_letter_topic="A")
            assert await redrive(opened.groups.group("g")) == ALL
    async with shell(tmp_path) as opened:
        for name in ("A", "B", "A"):
            await alter(opened, dead_letter_topic=name)
            assert await redrive(opened.groups.group("g")) == NOTHING
        assert set(await tally(opened)) == {(b"%d" % number, 2) for number in range(15)}


@pytest.mark.parametrize("off", [False, True])
@pytest.mark.parametrize("restart", [False, True])
async def test_letters_that_never_went_back_do_so_after_an_alteration_to_and_fro(
    tmp_path: Path, off: bool, restart: bool
) -> None:
    """The group turns away from a topic in which no redrive ever was: to another topic, or from dead letters."""
    away = {"on_exhausted": OnExhausted.PARK} if off else {"dead_letter_topic": "B"}
    back = {"on_exhausted": OnExhausted.DEAD_LETTER, "dead_letter_topic": "A"}
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await group_of(opened, dead_letter_topic="A")
        await fail(opened, group, 0)
        await alter(opened, **away)
        if not restart:
            await alter(opened, **back)
            assert await redrive(group) == ALL
            assert await redrive(group) == NOTHING
    if restart:
        async with shell(tmp_path) as opened:
            await alter(opened, **back)
            assert await redrive(opened.groups.group("g")) == ALL


@pytest.mark.parametrize(
    "first",
    [
        {},
        {"dead_letter_topic": "other"},
        {"on_exhausted": OnExhausted.BLOCK},
        {"on_exhausted": OnExhausted.PARK},
    ],
    ids=["same", "other", "block", "park"],
)
@pytest.mark.parametrize("restart", [False, True])
async def test_letters_of_a_deleted_group_of_the_name_stay(
    tmp_path: Path, first: dict[str, Any], restart: bool
) -> None:
    """The new group begins with another setting, and is altered to the dead-letter topic of the deleted group."""
    async with shell(tmp_path) as opened:
        await opened.topic()
        await fail(opened, await group_of(opened), 0)
        await opened.groups.delete("g")
        group = await group_of(opened, start=StartAt(latest=True), **first)
        await alter(opened, on_exhausted=OnExhausted.DEAD_LETTER, dead_letter_topic=LETTERS)
        if not restart:
            assert await redrive(group) == NOTHING
            await fail(opened, group, 5)
            assert await redrive(group) == ALL
    if restart:
        async with shell(tmp_path) as opened:
            group = opened.groups.group("g")
            assert await redrive(group) == NOTHING
            await fail(opened, group, 5)
            assert await redrive(group) == ALL


@pytest.mark.parametrize("meanwhile", [OnExhausted.PARK, OnExhausted.BLOCK])
@pytest.mark.parametrize("restart", [False, True])
async def test_a_group_keeps_its_dead_letter_topic_while_it_makes_no_letters(
    tmp_path: Path, meanwhile: OnExhausted, restart: bool
) -> None:
    """The letters of a deleted group lie in the topic with the default name."""

    async def go_on(opened: Shell) -> None:
        group = opened.groups.group("g")
        assert (await group.redrive(KEYS[2], 1000)).records == 1
        link = await group.connect(hello("doing"))
        await ack_all(link, *[receipt for receipt, _ in await take(link, 1)])
        await link.goodbye()
        await alter(opened, on_exhausted=OnExhausted.DEAD_LETTER)
        assert group.settings.dead_letter_topic == "own"
        assert (await group.redrive(None, 1000, dry_run=True)).records == len(KEYS) - 1
        await fail(opened, group, 10)
        assert (await group.redrive(None, 1000, dry_run=True)).records == 2 * len(KEYS) - 1

    async with shell(tmp_path) as opened:
        await opened.topic()
        await fail(opened, await group_of(opened), 0)
        await opened.groups.delete("g")
        group = await group_of(opened, start=StartAt(latest=True), dead_letter_topic="own")
        await fail(opened, group, 5)
        await alter(opened, on_exhausted=meanwhile)
        if not restart:
            await go_on(opened)
    if restart:
        async with shell(tmp_path) as opened:
            await go_on(opened)


async def test_the_kept_dead_letter_topic_does_not_make_the_settings_other_ones(tmp_path: Path) -> None:
    parking = QueueGroupSettings(on_exhausted=OnExhausted.PARK)
    async with shell(tmp_path) as opened:
        topic = await opened.topic()
        await opened.groups.create("g", topic, msgspec.structs.replace(parking, max_attempts=3), StartAt())
        await alter(opened, on_exhausted=OnExhausted.DEAD_LETTER, dead_letter_topic="own")
        await alter(opened, on_exhausted=OnExhausted.PARK, max_attempts=parking.max_attempts)
        group, is_new = await opened.groups.create("g", topic, parking, StartAt())
        assert not is_new
        await opened.groups.create("g", topic, group.latest_settings, StartAt())
        with pytest.raises(InvalidRequestError, match="a dead_letter_topic is of no use"):
            await alter(opened, dead_letter_topic="another")


async def test_a_topic_that_was_made_again_begins_anew_and_the_rows_of_the_old_one_go(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await group_of(opened, dead_letter_topic="A")
        for first in (0, 10):
            await fail(opened, group, first)
            assert await redrive(group) == ALL
            assert len(await progress_keys(opened)) == 1
            await opened.engine.delete_topic(opened.engine.topic("A").id)
            await opened.topic("A")
        await fail(opened, group, 20)
        await alter(opened, dead_letter_topic="B")
        await alter(opened, dead_letter_topic="A")
        assert await redrive(group) == ALL
        for name in ("A", "B"):
            await opened.engine.delete_topic(opened.engine.topic(name).id)
    async with shell(tmp_path) as opened:
        assert await progress_keys(opened) == []


async def test_rows_of_an_older_broker_are_read(tmp_path: Path) -> None:
    """Its rows had no topic id in their keys."""
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.topic(LETTERS, partitions=3)
        group = await group_of(opened)
        await fail(opened, group, 0)
        assert await redrive(group) == ALL
        await fail(opened, group, 5)
        assert (await group.redrive(KEYS[3], 1000)).records == 1
        rows = {key: (await opened.state.load("group:g"))[key] for key in await progress_keys(opened)}
        assert len(rows) > 1
        older = [StateEvent(key[:5], value) for key, value in rows.items()]
        await opened.state.commit("group:g", [*(StateEvent(key, None) for key in rows), *older])
    for _ in range(2):
        async with shell(tmp_path) as opened:
            assert rows.items() <= (await opened.state.load("group:g")).items()
            assert not [key for key in await progress_keys(opened) if len(key) == 5]
            group = opened.groups.group("g")
            assert (await group.redrive(None, 1000, dry_run=True)).records == len(KEYS) - 1
            await alter(opened, dead_letter_topic="B")
            await alter(opened, dead_letter_topic=LETTERS)
    async with shell(tmp_path) as opened:
        assert (await opened.groups.group("g").redrive(None, 1000)).records == len(KEYS) - 1


# --- processes that die -----------------------------------------------------------------------------------------------

KILLS = [
    *((LocalStateStore, "commit", call, after) for call in (1, 2, 3, 5, 8) for after in (False, True)),
    *((QueueGroupRegistry, "alter", call, after) for call in (1, 2, 3) for after in (False, True)),
]


def run_that_ends(path: Path, owner: type, name: str, call: int, after: bool) -> None:
    """Runs in a process of its own."""

    async def live() -> None:
        async with shell(path) as opened:
            await opened.topic()
            group = await group_of(opened, dead_letter_topic="A")
            await fail(opened, group, 0)
            await alter(opened, dead_letter_topic="B")
            await fail(opened, group, 5)
            killed_in(owner, name, call=call, after=after)()
            for topic in ("A", "B", "A"):
                await group.redrive(None, 3)
                await alter(opened, dead_letter_topic=topic)

    asyncio.run(live())


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(("owner", "name", "call", "after"), KILLS)
async def test_a_kill_between_alterations_loses_no_letter_and_doubles_none(
    tmp_path: Path, owner: type, name: str, call: int, after: bool
) -> None:
    process = processes.Process(target=run_that_ends, args=(tmp_path, owner, name, call, after))
    process.start()
    await asyncio.to_thread(process.join, 60)
    assert process.exitcode == -signal.SIGKILL
    async with shell(tmp_path) as opened:
        for topic in ("A", "B", "A", "B"):
            await alter(opened, dead_letter_topic=topic)
            while (await opened.groups.group("g").redrive(None, 1000)).more:
                pass
        assert set(await tally(opened)) == {(b"%d" % number, 2) for number in range(10)}
