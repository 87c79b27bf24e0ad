"""Topics grow while dead letters wait or go back: each letter goes back once, and each key keeps its order."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from logbroker.broker.local_engine.engine import LocalEngine
from logbroker.broker.local_engine.state_store import LocalStateStore
from logbroker.engine import Append
from logbroker.errors import PartitionOfflineError
from logbroker.queues.dead_letters.redrive import RedriveOutcome
from logbroker.queues.group import QueueGroup
from logbroker.record.partitioner import partition_for_key
from logbroker.types import TopicId
from tests.nursery import processes
from tests.queues.kills import killed_in
from tests.queues.redrives import LETTERS, fail_all, fail_each, group_of, values_by_key
from tests.queues.shell import Shell, shell, until

KEYS = [b"key-%d" % number for number in range(8)]
COUNTS = (3, 4, 7)
"""Partition counts of the generations of the dead-letter topic."""
LARGE = random.Random(1).randbytes(3000)
TIMES = 2
"""Number of letters of a key in each generation."""
TOTAL = len(COUNTS) * TIMES * len(KEYS)
SENT = {key: [b"%d" % number for number in range(place, TOTAL, len(KEYS))] for place, key in enumerate(KEYS)}
BACK = {key: 2 * values for key, values in SENT.items()}
"""Values of each key in the topic once every letter has gone back."""


class KilledError(Exception):
    pass


async def letters_over_growth(opened: Shell) -> QueueGroup:
    """A group with letters of each key in each generation of its dead-letter topic."""
    await opened.topic()
    await opened.topic(LETTERS, partitions=COUNTS[0])
    group = await group_of(opened)
    first = 0
    for count in COUNTS:
        if count > COUNTS[0]:
            await grow(opened, LETTERS, count)
        for _ in range(TIMES):
            await fail_each(opened, group, KEYS, first)
            first += len(KEYS)
    assert await values_by_key(opened, LETTERS) == SENT
    return group


async def grow(opened: Shell, name: str, partitions: int) -> None:
    await opened.engine.alter_topic(opened.engine.topic(name).id, partitions=partitions)


@pytest.mark.parametrize("round_records", [1000, 3])
@pytest.mark.parametrize("max_records", [1000, 5])
async def test_keys_keep_their_order_over_growth_of_the_dead_letter_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, round_records: int, max_records: int
) -> None:
    monkeypatch.setattr("logbroker.queues.dead_letters.search.MAX_ROUND_RECORDS", round_records)
    async with shell(tmp_path) as opened:
        group = await letters_over_growth(opened)
        counted = await group.redrive(None, 1000, dry_run=True)
        assert counted == RedriveOutcome(TOTAL, len(KEYS), False, letters=counted.letters)
        assert len(set(counted.letters)) == TOTAL
        more = True
        while more:
            more = (await group.redrive(None, max_records)).more
        assert await values_by_key(opened) == BACK
        assert await group.redrive(None, 1000) == RedriveOutcome(0, 0, False)


async def test_one_key_keeps_its_order_and_leaves_the_others(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await letters_over_growth(opened)
        for key in KEYS[:4]:
            counted = await group.redrive(key, 1, dry_run=True)
            assert counted == RedriveOutcome(1, 1, True, letters=counted.letters)
            assert len(counted.letters) == 1
            assert await group.redrive(key, 4) == RedriveOutcome(4, 1, True)
            assert await group.redrive(key, 1000) == RedriveOutcome(2, 1, False)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        assert await group.redrive(None, 1000) == RedriveOutcome(4 * len(COUNTS) * TIMES, 4, False)
        assert await values_by_key(opened) == BACK


async def test_ends_of_an_earlier_generation_leave_out_what_came_since(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.topic(LETTERS, partitions=3)
        group = await group_of(opened)
        await fail_each(opened, group, KEYS)
        ends = group.letter_ends()
        await grow(opened, LETTERS, 4)
        await fail_each(opened, group, KEYS, 8)
        assert await group.redrive(None, 1000, ends) == RedriveOutcome(8, 8, False)
        assert await group.redrive(None, 1000, ends) == RedriveOutcome(0, 0, False)
        assert await group.redrive(None, 1000) == RedriveOutcome(8, 8, False)
        assert all(values[:2] == values[2:] for values in (await values_by_key(opened)).values())


async def test_a_held_letter_holds_later_letters_of_its_key_in_all_generations(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.topic(LETTERS, partitions=3)
        group = await group_of(opened)
        large = [(key, LARGE if number < 5 else b"small") for number, key in enumerate(KEYS)]
        await opened.append(*large)
        await fail_all(opened, group, len(KEYS))
        await grow(opened, LETTERS, 4)
        await fail_each(opened, group, KEYS, 8)
        topic_id = opened.engine.topic("t").id
        await opened.engine.alter_topic(topic_id, set_configs={"max.message.bytes": "200"})
        for records in (6, 0):
            found = await group.redrive(None, 1000)
            assert (found.records, found.held, found.more) == (records, 10, False)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        await opened.engine.alter_topic(topic_id, unset_configs=["max.message.bytes"])
        assert await group.redrive(None, 1000) == RedriveOutcome(10, 5, False)
        assert all(values[:2] == values[2:] for values in (await values_by_key(opened)).values())


async def test_letters_that_cannot_be_read_now_hold_later_letters_of_their_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path) as opened:
        group = await letters_over_growth(opened)
        dead_topic_id, partition_facts = opened.engine.topic(LETTERS).id, opened.engine.partition_facts

        def offline(topic_id: TopicId, partition: int) -> Any:
            if (topic_id, partition) == (dead_topic_id, 1):
                raise PartitionOfflineError("damaged")
            return partition_facts(topic_id, partition)

        with monkeypatch.context() as patched:
            ends = group.letter_ends()
            patched.setattr(opened.engine, "partition_facts", offline)
            found = await group.redrive(None, 1000, ends)
            assert (found.more, found.why) == (False, "damaged")
            for key, values in (await values_by_key(opened)).items():
                assert key is not None
                back = values[len(SENT[key]) :]
                assert back == SENT[key][: len(back)], "nothing before an earlier letter"
                places = [partition_for_key(key, count) for count in COUNTS]
                assert len(back) == TIMES * (places.index(1) if 1 in places else len(COUNTS))
        await group.redrive(None, 1000)
        assert await values_by_key(opened) == BACK


async def test_letters_beyond_those_remembered_as_held_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path) as opened:
        group = await letters_over_growth(opened)
        topic_id = opened.engine.topic("t").id
        await opened.engine.alter_topic(topic_id, set_configs={"max.message.bytes": "10"})
        with monkeypatch.context() as patched:
            patched.setattr("logbroker.queues.dead_letters.search.MAX_LEFT", 3)
            found = await group.redrive(None, 1000)
            assert found.records == 0
            await opened.engine.alter_topic(topic_id, unset_configs=["max.message.bytes"])
            while (await group.redrive(None, 1000)).records:
                pass
        assert await values_by_key(opened) == BACK


# --- growth of the topic that letters go back to ----------------------------------------------------------------------


async def test_the_topic_may_grow_within_a_redrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows between the routing of a round and its append, or waits for the append."""
    monkeypatch.setattr("logbroker.queues.dead_letters.search.MAX_ROUND_RECORDS", 10)
    async with shell(tmp_path) as opened:
        group = await letters_over_growth(opened)
        init_producer_id = opened.engine.init_producer_id
        growths: list[asyncio.Task[None]] = []

        async def then_grow(*arguments: int) -> tuple[int, int]:
            if len(growths) < 4:
                growths.append(asyncio.create_task(grow(opened, "t", len(growths) + 2)))
                await asyncio.wait(growths, timeout=0.3)
            return await init_producer_id(*arguments)

        monkeypatch.setattr(opened.engine, "init_producer_id", then_grow)
        assert await group.redrive(None, 1000) == RedriveOutcome(TOTAL, len(KEYS), False)
        await asyncio.gather(*growths)
        assert opened.engine.topic("t").partitions == 5
        assert await values_by_key(opened) == BACK


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("appended", [0, 1, 3, 1000])
async def test_the_topic_may_grow_after_an_interrupted_redrive(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    appended: int,
    crash: bool,
) -> None:
    """A part of the round was appended before the interruption. Then the topic grows."""
    async with shell(tmp_path, crash=True) as opened:
        group = await letters_over_growth(opened)
        await opened.engine.alter_topic(opened.engine.topic("t").id, set_configs={"max.message.bytes": "400"})
        append = opened.engine.append

        async def interrupted(appends: Sequence[Append], *arguments: Any) -> Any:
            assert len(appends) > 3
            await append(appends[:appended], *arguments)
            raise KilledError

        with monkeypatch.context() as patched:
            patched.setattr(opened.engine, "append", interrupted)
            with pytest.raises(KilledError):
                await group.redrive(None, 1000)
        await grow(opened, "t", 3)
        if not crash:
            assert await go_on(group)
            assert await values_by_key(opened) == BACK
    if crash:
        async with shell(tmp_path) as opened:
            group = opened.groups.group("g")
            await until(lambda: group.redriving._round is None)
            await go_on(group)
            assert await values_by_key(opened) == BACK
    assert "cannot be finished" not in caplog.text


async def go_on(group: QueueGroup) -> int:
    """Redrive until no letter is left."""
    count = 0
    while True:
        found = await group.redrive(None, 1000)
        count += found.records
        if not found.more:
            assert found.held == 0
            return count


# --- processes that die -----------------------------------------------------------------------------------------------

KILLS = [
    *((LocalEngine, "append", call, after) for call in (1, 2, 5) for after in (False, True)),
    *((LocalStateStore, "commit", call, after) for call in (1, 2, 4) for after in (False, True)),
    *((LocalEngine, "alter_topic", call, after) for call in (1, 2, 3) for after in (False, True)),
]


def run_that_ends(path: Path, owner: type, name: str, call: int, after: bool) -> None:
    """Runs in a process of its own."""

    async def live() -> None:
        async with shell(path) as opened:
            group = await letters_over_growth(opened)
            killed_in(owner, name, call=call, after=after)()
            redriving = asyncio.create_task(redrive_in_small_calls(group))
            for count in (2, 3):
                await grow(opened, "t", count)
                await grow(opened, LETTERS, COUNTS[-1] + count)
            await redriving

    asyncio.run(live())


async def redrive_in_small_calls(group: QueueGroup) -> None:
    while (await group.redrive(None, 7)).more:
        pass


@pytest.mark.prove
@pytest.mark.parametrize(("owner", "name", "call", "after"), KILLS)
async def test_a_kill_while_topics_grow_loses_no_letter_and_doubles_none(
    tmp_path: Path, owner: type, name: str, call: int, after: bool
) -> None:
    process = processes.Process(target=run_that_ends, args=(tmp_path, owner, name, call, after))
    process.start()
    await asyncio.to_thread(process.join, 60)
    assert process.exitcode == -signal.SIGKILL
    async with shell(tmp_path) as opened:
        await grow(opened, "t", 6)
        group = opened.groups.group("g")
        await go_on(group)
        assert await values_by_key(opened) == BACK
