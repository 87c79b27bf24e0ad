"""Dead letters go back to where they came from: once, in order, also over a crash."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

import pytest

from logbroker.engine import Append, Appended
from logbroker.errors import InvalidRequestError, PartitionOfflineError, UnknownTopicError
from logbroker.queues.dead_letters.redrive import RedriveOutcome, Redriving
from logbroker.queues.dead_letters.search import gather
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.redrive_ends import RedriveEnds
from logbroker.queues.model.settings import Ordering
from logbroker.record import dead_letter
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.message_headers import with_priority
from logbroker.record.partitioner import partition_for_key
from logbroker.types import TopicId
from tests.queues.redrives import LETTERS, fail_all, group_of
from tests.queues.shell import Shell, hello, nack, shell, take, until


async def dead(opened: Shell, *keys: bytes, **settings: Any) -> QueueGroup:
    """A group all of whose records became dead letters; each has its number as value."""
    await opened.topic()
    await opened.append(*[(key, b"%d" % number) for number, key in enumerate(keys)])
    group = await group_of(opened, **settings)
    await fail_all(opened, group, len(keys)) if len(set(keys)) == len(keys) else await fail_in_turn(opened, group, keys)
    return group


async def fail_in_turn(opened: Shell, group: QueueGroup, keys: tuple[bytes, ...]) -> None:
    for number in range(len(keys)):
        link = await group.connect(hello("failing"))
        [(receipt, _)] = await take(link, 1)
        await nack(link, receipt)
        await link.goodbye()
        await until(lambda number=number: group.dead_lettering.sent == number + 1)  # type: ignore[misc]


async def tail(opened: Shell, start: int) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in await opened.stored("t") if record.offset >= start]


async def test_all_go_back_in_their_order_and_as_they_were(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await dead(opened, b"a", b"b", b"a", b"a", b"c")
        assert await group.redrive(None, 100, dry_run=True) == RedriveOutcome(5, 3, False, letters=(0, 1, 2, 3, 4))
        assert await tail(opened, 5) == []
        assert await group.redrive(None, 100) == RedriveOutcome(5, 3, False)
        found = await tail(opened, 5)
        assert [value for key, value in found if key == b"a"] == [b"0", b"2", b"3"]
        assert sorted(found) == sorted([(b"a", b"0"), (b"b", b"1"), (b"a", b"2"), (b"a", b"3"), (b"c", b"4")])
        assert not any(name in dead_letter.HEADERS for record in await opened.stored("t") for name, _ in record.headers)
        assert await group.redrive(None, 100) == RedriveOutcome(0, 0, False)
        # They are records as any other, and may fail again.
        await fail_all(opened, group, 3)
        assert await group.redrive(None, 100) == RedriveOutcome(3, 3, False)


async def test_one_key_goes_back_before_the_others(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await dead(opened, b"a", b"b", b"a", b"b")
        assert await group.redrive(b"b", 100) == RedriveOutcome(2, 1, False)
        assert await tail(opened, 4) == [(b"b", b"1"), (b"b", b"3")]
        assert await group.redrive(b"b", 100) == RedriveOutcome(0, 0, False)
        assert await group.redrive(None, 1) == RedriveOutcome(1, 1, True)
        assert await group.redrive(None, 100) == RedriveOutcome(1, 1, False)
        assert await tail(opened, 6) == [(b"a", b"0"), (b"a", b"2")]


async def test_what_is_redriven_stays_so_over_restarts(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await dead(opened, b"a", b"b", b"c")
        await group.redrive(b"b", 100)
        await group.redrive(None, 1)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        assert await group.redrive(None, 100) == RedriveOutcome(1, 1, False)
        assert await tail(opened, 3) == [(b"b", b"1"), (b"a", b"0"), (b"c", b"2")]


@pytest.mark.parametrize("appended", [True, False])
async def test_a_crash_within_a_redrive_leaves_no_letter_out_and_doubles_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, appended: bool
) -> None:
    class KilledError(Exception):
        pass

    async with shell(tmp_path, crash=True) as opened:
        keys = [b"%02d" % number for number in range(40)]
        group = await dead(opened, *keys)
        await opened.engine.alter_topic(opened.engine.topic("t").id, set_configs={"max.message.bytes": "400"})
        append = opened.engine.append

        async def dies(*arguments: Any) -> Any:
            if appended:
                await append(*arguments)
            raise KilledError

        with monkeypatch.context() as patched:
            patched.setattr(opened.engine, "append", dies)
            with pytest.raises(KilledError):
                await group.redrive(None, 100)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        await until(lambda: group.redriving._round is None)
        await group.redrive(None, 100)
        assert await tail(opened, 40) == [(key, b"%d" % number) for number, key in enumerate(keys)]
        assert await group.redrive(None, 100) == RedriveOutcome(0, 0, False)


async def test_a_refusal_leaves_what_it_is_about_for_another_call(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        large = b"x" * 3000
        await opened.append((b"a", b"0"), (b"b", large))
        group = await group_of(opened)
        await fail_all(opened, group, 2)
        topic = opened.engine.topic("t")
        await opened.engine.alter_topic(topic.id, set_configs={"max.message.bytes": "80"})
        found = await group.redrive(None, 100)
        assert (found.records, found.more, found.held) == (1, False, 1)
        assert "raise its max.message.bytes to" in found.why
        await opened.engine.alter_topic(topic.id, unset_configs=["max.message.bytes"])
        await group.redrive(None, 100)
        assert sorted(await tail(opened, 2)) == [(b"a", b"0"), (b"b", large)]


async def test_many_go_in_rounds_and_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logbroker.queues.dead_letters.search.MAX_ROUND_RECORDS", 30)
    async with shell(tmp_path) as opened:
        keys = [b"%d" % number for number in range(100)]
        group = await dead(opened, *keys)
        await opened.engine.alter_topic(opened.engine.topic("t").id, set_configs={"max.message.bytes": "400"})
        assert await group.redrive(None, 1000) == RedriveOutcome(100, 100, False)
        assert await tail(opened, 100) == [(key, key) for key in keys]


async def test_a_call_ends_with_the_letters_that_were_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that it sends back fails again before the next round."""
    monkeypatch.setattr("logbroker.queues.dead_letters.search.MAX_ROUND_RECORDS", 2)
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=2)
        for partition in range(2):
            await opened.append(*[(b"%d" % number, b"%d" % partition) for number in range(3)], partition=partition)
        group = await group_of(opened, ordering=Ordering.NONE)
        await fail_all(opened, group, 6)

        async def then_fail_again(*arguments: Any, **options: Any) -> Any:
            again = (
                sum([len(await opened.stored("t", partition)) for partition in range(2)]) - group.dead_lettering.sent
            )
            if again:
                await fail_all(opened, group, again)
            return await gather(*arguments, **options)

        monkeypatch.setattr("logbroker.queues.dead_letters.redrive.gather", then_fail_again)
        assert await group.redrive(None, 20) == RedriveOutcome(6, 3, False)
        assert [len(await opened.stored("t", partition)) for partition in range(2)] in ([6, 6], [5, 7], [7, 5]), "once"


async def test_calls_with_the_same_ends_send_what_was_there_at_the_first(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await dead(opened, b"a", b"b", b"a", b"b", b"c")
        ends = group.letter_ends()
        assert ends.offsets == [5]
        assert await group.redrive(None, 2, ends) == RedriveOutcome(2, 2, True)
        await fail_all(opened, group, 2)
        await opened.engine.alter_topic(opened.engine.topic(LETTERS).id, partitions=3)
        await opened.append((b"d", b"5"))
        await fail_all(opened, group, 1)
        counted = await group.redrive(None, 100, ends, dry_run=True)
        assert counted == RedriveOutcome(3, 3, False, letters=(2, 3, 4))
        assert await group.redrive(b"b", 100, ends) == RedriveOutcome(1, 1, False)
        assert await group.redrive(b"d", 100, ends) == RedriveOutcome(0, 0, False)
        assert await group.redrive(None, 100, ends) == RedriveOutcome(2, 2, False)
        assert await group.redrive(None, 100, ends) == RedriveOutcome(0, 0, False)
        assert await group.redrive(None, 100) == RedriveOutcome(3, 3, False), "those that were made meanwhile"


async def test_ends_may_lie_within_a_batch_or_where_retention_has_been(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await dead(opened, b"a", b"b", b"c")
        letters = [NewRecord(each.value, each.key, each.headers) for each in await opened.stored(LETTERS)]
        dead_topic = opened.engine.topic(LETTERS)
        await opened.engine.append([Append(dead_topic.id, 0, encode_batch(letters))])
        within = RedriveEnds(dead_topic.id, [4])
        assert await group.redrive(None, 100, within) == RedriveOutcome(4, 3, False)
        assert await group.redrive(None, 100, within) == RedriveOutcome(0, 0, False)
        assert await group.redrive(None, 1, RedriveEnds(dead_topic.id, [5])) == RedriveOutcome(1, 1, False)
        assert await group.redrive(None, 100, RedriveEnds(dead_topic.id, [])) == RedriveOutcome(0, 0, False)
        assert await group.redrive(None, 100, RedriveEnds(dead_topic.id, [9])) == RedriveOutcome(1, 1, False)


async def test_a_partition_that_is_offline_at_first_stays_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=2)
        for partition in range(2):
            await opened.append((b"a", b"a"), (b"b", b"b"), partition=partition)
        group = await group_of(opened, ordering=Ordering.NONE)
        await fail_all(opened, group, 4)
        dead_topic_id, partition_facts = opened.engine.topic(LETTERS).id, opened.engine.partition_facts

        def offline(topic_id: TopicId, partition: int) -> Any:
            if (topic_id, partition) == (dead_topic_id, 0):
                raise PartitionOfflineError("damaged")
            return partition_facts(topic_id, partition)

        with monkeypatch.context() as patched:
            patched.setattr(opened.engine, "partition_facts", offline)
            ends = group.letter_ends()
            assert ends.offsets == [0, 2]
            found = await group.redrive(None, 1, ends)
            assert (found.records, found.more, found.why) == (1, True, "damaged")
            found = await group.redrive(None, 100, ends)
            assert (found.records, found.more, found.why) == (1, False, "damaged")
        assert (await group.redrive(None, 100, ends)).records == 0
        assert (await group.redrive(None, 100)).records == 2


async def test_ends_of_another_topic_are_refused(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await dead(opened, b"a", b"b")
        ends = group.letter_ends()
        with pytest.raises(
            InvalidRequestError, match=r"`until` has 2 offsets, but topic g\.dead-letters has 1 partitions"
        ):
            await group.redrive(None, 100, RedriveEnds(ends.topic_id, [2, 2]))
        assert await group.redrive(None, 1, ends) == RedriveOutcome(1, 1, True)
        await opened.engine.delete_topic(opened.engine.topic(LETTERS).id)
        await opened.topic(LETTERS)
        with pytest.raises(UnknownTopicError, match="is not the dead-letter topic in which this redrive began"):
            await group.redrive(None, 1, ends)
        assert await group.redrive(None, 1) == RedriveOutcome(0, 0, False)


async def test_letters_of_other_groups_are_not_touched(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await dead(opened, b"a", dead_letter_topic="letters")
        context = copy(group._context)
        context.group_id = "other"
        monkey = Redriving(context, group.dead_lettering.topic)
        assert await monkey.redrive(None, 100, None, dry_run=True) == RedriveOutcome(0, 0, False)


async def test_without_a_dead_letter_topic_there_is_nothing_to_redrive(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group()
        with pytest.raises(UnknownTopicError, match="dead-letters nothing"):
            await group.redrive(None, 100)


async def test_a_record_goes_back_to_the_band_of_its_priority(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        topic = await opened.topic(partitions=None, **{"priority.bands": "hot=5-9:3,cold=0-4:4"})
        hot, cold = topic.routing_bands
        records = [(priority, b"key-%d" % number) for priority in (9, 0, None) for number in range(5)]
        for priority, key in records:
            band = hot if priority == 9 else cold
            headers = with_priority((), priority) if priority is not None else ()
            batch = encode_batch([NewRecord(value=b"v", key=key, headers=headers)])
            partition = band.first_partition + partition_for_key(key, band.partitions)
            [appended] = await opened.engine.append([Append(topic.id, partition, batch)])
            assert isinstance(appended, Appended)
        before = [[(each.key, each.headers) for each in await opened.stored("t", n)] for n in range(7)]
        group = await group_of(opened, ordering=Ordering.NONE)
        await fail_all(opened, group, len(records))
        assert await group.redrive(None, 100) == RedriveOutcome(len(records), 5, False)
        for number, expected in enumerate(before):
            after = [(each.key, each.headers) for each in await opened.stored("t", number)]
            assert sorted(after, key=str) == sorted(expected * 2, key=str), f"partition {number}"
