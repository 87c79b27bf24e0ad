"""Partitions that cannot be read on: every call says so, until the program or its reset policy decides."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import inspect
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logbroker import client
from logbroker.client import (
    Admin,
    Consumer,
    Producer,
    QueueAdmin,
    QueueSettings,
    TopicPartition,
    Worker,
    sync,
)
from logbroker.client.consumer import fetcher
from logbroker.client.consumer.offset_reset import OffsetReset, reset_policy
from logbroker.client.transport import connection
from logbroker.client.transport.connection import Connection
from logbroker.client.transport.offsets import find_offsets
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.errors import (
    CorruptBatchError,
    CorruptLogError,
    InvalidRequestError,
    LogbrokerError,
    LogTruncatedError,
    NoCommittedOffsetError,
    OffsetOutOfRangeError,
    PartitionOfflineError,
    UnknownTopicError,
    UnsupportedFeatureError,
)
from logbroker.record.codec import NewRecord, encode_batch, with_producer
from tests.client.group_helpers import committed, take
from tests.client.test_consumer import produce_batch
from tests.waiting import until

LAST_MS = 1_700_000_000_000
_numbers = itertools.count()


class Place(NamedTuple):
    """A topic of two partitions, each of ten records in segments of their own. A group has its name."""

    broker: EmbeddedBroker
    name: str

    @property
    def address(self) -> str:
        return self.broker.address

    @property
    def sick(self) -> TopicPartition:
        return TopicPartition(self.name, 0)

    @property
    def healthy(self) -> TopicPartition:
        return TopicPartition(self.name, 1)

    def segment(self, offset: int) -> Path:
        """The file of one record of the partition that falls sick."""
        return self.broker.data_dir / str(self.sick) / f"{offset:020d}.log"

    async def committed(self) -> dict[int, int]:
        return await committed(self.address, self.name)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with embedded(checkpoint_seconds=600, retention_check_seconds=0.05) as broker:
        yield broker


@pytest.fixture
async def place(broker: EmbeddedBroker) -> Place:
    broker.start()
    place = Place(broker, f"orders{next(_numbers)}")
    async with Admin(broker.address) as admin, Producer(broker.address, batch_bytes=250) as producer:
        await admin.create_topic(place.name, 2, {"segment.bytes": "256", "retention.ms": "-1"})
        for number in range(10):
            for partition in (place.sick.partition, place.healthy.partition):
                stamp = LAST_MS - 60_000 * (9 - number)
                await producer.send(place.name, bytes(200), partition=partition, timestamp_ms=stamp)
    return place


class Asker:
    """A consumer of either kind, in a group or not, that has read all ten records of the partition that falls sick."""

    def __init__(self, consumer: Any, place: Place, *, member: bool = False) -> None:
        self.consumer = consumer
        self.name = place.name
        self.member = member

    async def do(self, name: str, *arguments: Any, **options: Any) -> Any:
        outcome = getattr(self.consumer, name)(*arguments, **options)
        return await outcome if inspect.isawaitable(outcome) else outcome

    async def begin(self) -> None:
        await self.do("subscribe" if self.member else "assign", self.name)
        seen = 0
        while seen < 20:
            seen += len(await self.do("poll", timeout_seconds=25))

    async def poll(self) -> list[Any]:
        return list(await self.do("poll", timeout_seconds=25))

    async def loop(self) -> list[Any]:
        return await self._first_of(self.consumer)

    async def batches(self) -> list[Any]:
        return await self._first_of(self.consumer.batches())

    async def _first_of(self, records: Any) -> list[Any]:
        async with asyncio.timeout(25):
            async for found in self.lists_of(records):
                return found
        return []

    def lists(self, way: str) -> AsyncIterator[list[Any]]:
        return self.lists_of(self.consumer if way == "loop" else self.consumer.batches())

    async def lists_of(self, records: Any) -> AsyncIterator[list[Any]]:
        if isinstance(self.consumer, sync.Consumer):
            for found in records:
                yield found if isinstance(found, list) else [found]
        else:
            async for found in records:
                yield found if isinstance(found, list) else [found]

    @property
    def ways(self) -> list[Callable[[], Awaitable[list[Any]]]]:
        return [self.poll, self.loop, self.batches]


ALONE_OR_NOT = pytest.mark.parametrize("member", [False, True], ids=["alone", "group"])


KINDS = {
    "async-alone": (client, False),
    "async-group": (client, True),
    "sync-alone": (sync, False),
    "sync-group": (sync, True),
}


@pytest.fixture(params=list(KINDS))
async def asker(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[Asker]:
    kind, member = KINDS[request.param]
    options: dict[str, Any] = {"group": place.name, "auto_commit_interval_seconds": 0.05} if member else {}
    asker = Asker(kind.Consumer(place.address, **options), place, member=member)
    await asker.begin()
    yield asker
    await asker.do("close")


async def out_of_range(asker: Asker, place: Place) -> None:
    await asker.do("seek", place.sick, 1000)


async def corrupt(asker: Asker, place: Place) -> None:
    """The file of offset 5 loses its bytes, under a broker that runs."""
    place.segment(5).write_bytes(b"")
    await asker.do("seek", place.sick, 5)


async def truncated(asker: Asker, place: Place) -> None:
    """The last record, which was read, is torn: the log ends at 9 in the next life, and grows again."""
    place.broker.kill()
    last = place.segment(9)
    last.write_bytes(last.read_bytes()[:-1])
    place.broker.start()
    async with Producer(place.address) as producer:
        for number in range(3):
            await producer.send_and_wait(place.name, b"new %d" % number, partition=0)


async def offline(asker: Asker, place: Place) -> None:
    place.broker.stop()
    place.segment(5).write_bytes(b"")
    place.broker.start()


async def undecodable(asker: Asker, place: Place) -> None:
    batch = bytearray(encode_batch([NewRecord(b"damaged")]))
    batch[-2 - len(b"damaged")] = 0x7E  # the length of the value
    await produce_batch(place.address, place.name, with_producer(bytes(batch), -1, -1, -1))


async def gone(asker: Asker, place: Place) -> None:
    async with Admin(place.address) as admin:
        await admin.delete_topic(place.name)


CAUSES = [
    # For all kinds of consumers, or for two of them where the broker has to start again.
    *[(kind, out_of_range, OffsetOutOfRangeError, 1000) for kind in KINDS],
    *[(kind, corrupt, CorruptLogError, 5) for kind in KINDS],
    *[(kind, undecodable, CorruptBatchError, 10) for kind in KINDS],
    *[(kind, truncated, LogTruncatedError, 10) for kind in ("async-alone", "sync-group")],
    *[(kind, offline, PartitionOfflineError, 10) for kind in ("async-group", "sync-alone")],
]


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(
    ("asker", "cause", "error", "position"),
    CAUSES,
    ids=[f"{cause.__name__}-{kind}" for kind, cause, _, _ in CAUSES],
    indirect=["asker"],
)
async def test_every_call_raises_the_error_until_the_program_seeks(
    asker: Asker, place: Place, cause: Any, error: type[LogbrokerError], position: int
) -> None:
    await cause(asker, place)
    for ask in [*asker.ways, *asker.ways, asker.poll, asker.poll]:
        with pytest.raises(error, match=str(place.sick)) as raised:
            await ask()
        assert raised.value.partitions == {place.sick: position}
    if asker.member:
        assert (await place.committed()).get(0, 10) <= 10
    if asker.member and error is LogTruncatedError:
        # 0: where it began was committed before anything of this partition was read.
        assert (await place.committed()).get(0) in (None, 0, 9)
    if error is PartitionOfflineError:
        return  # Nothing of it can be read.
    assert await asker.do("position", place.sick) == position
    await asker.do("seek", place.sick, 2)
    assert [record.offset for record in await asker.do("poll", 3, timeout_seconds=25)] == [2, 3, 4]
    if error is OffsetOutOfRangeError:
        await asker.do("seek_to_end", place.sick)
        assert await asker.do("poll", timeout_seconds=0.05) == []


@pytest.mark.parametrize("way", ["until_end", "batches"])
async def test_a_loop_to_the_end_reads_the_others_to_theirs_and_then_raises(
    asker: Asker, place: Place, way: str
) -> None:
    """But for the one after an error: a program that has heard it may go on with the others."""
    await out_of_range(asker, place)
    with pytest.raises(OffsetOutOfRangeError):
        await asker.poll()

    async def read(seen: list[int]) -> None:
        loop = asker.consumer.until_end() if way == "until_end" else asker.consumer.batches(until_end=True)
        async for records in asker.lists_of(loop):
            seen += [record.offset for record in records]

    async with asyncio.timeout(30):
        for expected in (range(10), range(3)):
            for raises in (False, True, False, True):
                await asker.do("seek", place.healthy, 10 - len(expected))
                seen: list[int] = []
                if raises:
                    with pytest.raises(OffsetOutOfRangeError):
                        await read(seen)
                else:
                    await read(seen)
                assert seen == list(range(10 - len(expected), 10))
        await asker.do("pause", place.healthy)
        await read([])
        with pytest.raises(OffsetOutOfRangeError):
            await read([])


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(
    "start", ["earliest", 0, datetime.datetime.fromtimestamp(LAST_MS / 1000 - 86_400, datetime.UTC)]
)
@pytest.mark.parametrize("kind", [client, sync])
async def test_a_partition_that_is_offline_from_the_beginning_keeps_nobody_from_the_others(
    place: Place, kind: Any, start: Any
) -> None:
    await asyncio.to_thread(place.broker.stop)
    place.segment(0).unlink()
    await asyncio.to_thread(place.broker.start)
    in_group = start == "earliest"
    for member in (False, True)[: 1 + in_group]:
        asker = Asker(kind.Consumer(place.address, group=place.name if member else None), place, member=member)
        try:
            await (asker.do("subscribe", place.name) if member else asker.do("assign", place.name, start))
            seen: list[int] = []

            async def read(asker: Asker = asker, seen: list[int] = seen) -> None:
                async for records in asker.lists_of(asker.consumer.until_end()):
                    seen += [record.offset for record in records]

            with pytest.raises(PartitionOfflineError):
                await read()
            assert seen == list(range(10))
            await read()
            assert len(seen) == 10
            with pytest.raises(PartitionOfflineError):
                await asker.poll()
        finally:
            await asker.do("close")


async def test_a_topic_that_is_gone_stays_so(place: Place) -> None:
    for kind in (client, sync):
        asker = Asker(kind.Consumer(place.address), place)
        try:
            if kind is client:
                await asker.begin()
                await gone(asker, place)
                async with Admin(place.address) as admin:
                    await admin.create_topic(place.name, 2)
            else:
                await asker.do("assign", place.name)
                await gone(asker, place)
            for ask in [*asker.ways, *asker.ways]:
                with pytest.raises(UnknownTopicError):
                    await ask()
            with pytest.raises(UnknownTopicError) as raised:
                await asker.poll()
            assert set(raised.value.partitions) == {place.sick, place.healthy}
        finally:
            await asker.do("close")


@pytest.mark.parametrize("way", ["poll", "loop", "batches"])
async def test_the_other_partitions_go_on_and_no_two_calls_in_a_row_pass_the_error_over(
    asker: Asker, place: Place, way: str
) -> None:
    await out_of_range(asker, place)
    with pytest.raises(OffsetOutOfRangeError):
        await asker.poll()
    async with Producer(place.address, batch_bytes=200) as producer:
        for number in range(100):
            await producer.send(place.name, b"%d" % number, partition=place.healthy.partition)
        await producer.flush()
    seen: list[int] = []
    told: list[bool] = []
    async with asyncio.timeout(30):
        while len(seen) < 100:
            try:
                if way == "poll":
                    seen += [record.offset for record in await asker.do("poll", 7, timeout_seconds=25)]
                    told.append(False)
                else:
                    async for records in asker.lists(way):
                        seen += [record.offset for record in records]
            except OffsetOutOfRangeError:
                told.append(True)
    assert seen == list(range(10, 110))
    assert all(earlier or later for earlier, later in itertools.pairwise(told))


@pytest.mark.prove(keep=1)
async def test_pausing_unassigning_and_rebalancing_end_it(asker: Asker, place: Place) -> None:
    await out_of_range(asker, place)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError):
            await asker.poll()
    await asker.do("pause", place.sick)
    assert await asker.do("poll", timeout_seconds=0.3) == []
    await asker.do("resume", place.sick)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError):
            await asker.poll()
    if not asker.member:
        await asker.do("assign", place.healthy, 9)
        assert [record.offset for record in await asker.poll()] == [9]
        return
    async with Consumer(place.address, group=place.name, assignor=None) as other:
        await other.subscribe(place.name)
        raised = 0
        async with asyncio.timeout(20):
            while len(await asker.do("assignment")) == 2 or not other.assignment():
                try:
                    await asker.do("poll", timeout_seconds=0.05)
                except OffsetOutOfRangeError:
                    raised += 1
                await other.poll(timeout_seconds=0.05)
        assert raised
        if place.sick in await asker.do("assignment"):
            await asker.do("subscribe", "elsewhere")
            async with asyncio.timeout(20):
                while await asker.do("assignment"):
                    with contextlib.suppress(OffsetOutOfRangeError):
                        await asker.do("poll", timeout_seconds=0.05)
        assert await asker.do("poll", timeout_seconds=0.3) == []


async def test_errors_of_several_partitions_are_told_together_by_their_class(place: Place) -> None:
    async with Consumer(place.address) as consumer, Admin(place.address) as admin:
        others = place.name + "-others"
        await admin.create_topic(others, 2)
        await consumer.assign([place.name, others])
        assert len(await consumer.poll(timeout_seconds=25)) > 0
        await admin.delete_topic(others)
        await consumer.seek(place.sick, 1000)
        await consumer.seek(place.healthy, 2000)
        found: dict[type, dict[TopicPartition, int]] = {}
        async with asyncio.timeout(20):
            while sum(map(len, found.values())) < 4:
                with pytest.raises(LogbrokerError) as raised:
                    await consumer.poll(timeout_seconds=25)
                found[type(raised.value)] = dict(raised.value.partitions)
        assert found == {
            OffsetOutOfRangeError: {place.sick: 1000, place.healthy: 2000},
            UnknownTopicError: {TopicPartition(others, 0): 0, TopicPartition(others, 1): 0},
        }
        # In turn from now on.
        told = []
        for _ in range(6):
            with pytest.raises(LogbrokerError) as raised:
                await consumer.poll(timeout_seconds=25)
            told.append(type(raised.value))
        assert told in ([OffsetOutOfRangeError, UnknownTopicError] * 3, [UnknownTopicError, OffsetOutOfRangeError] * 3)


async def test_each_error_has_the_words_of_the_partition_that_it_names_first(place: Place) -> None:
    """Also where it is the other one's turn to be told."""
    async with Consumer(place.address) as consumer:
        await consumer.assign(place.name)
        positions = {place.sick: 1000, place.healthy: 2000}
        named = set()
        for partition, position in positions.items():
            await consumer.seek(partition, position)
            for _ in range(3):
                async with asyncio.timeout(20):
                    with pytest.raises(OffsetOutOfRangeError) as raised:
                        await take(consumer, 100)  # What was read before it comes first.
                first = next(iter(raised.value.partitions))
                named.add(first)
                other = place.sick if first == place.healthy else place.healthy
                assert raised.value.message.startswith(str(first))
                assert str(positions[first]) in raised.value.message
                assert str(other) not in raised.value.message
        assert named == set(positions)


@pytest.mark.prove
@pytest.mark.parametrize("asker", ["async-group", "sync-alone"], indirect=True)
async def test_what_a_restart_mends_is_read_on(asker: Asker, place: Place) -> None:
    place.broker.stop()
    damaged = place.segment(5)
    content = damaged.read_bytes()
    damaged.write_bytes(b"")
    place.broker.start()
    for _ in range(2):
        with pytest.raises(PartitionOfflineError):
            await asker.poll()
    place.broker.stop()
    damaged.write_bytes(content)
    place.broker.start()
    async with Producer(place.address) as producer:
        await producer.send_and_wait(place.name, b"10", partition=0)
    seen: list[int] = []
    async with asyncio.timeout(20):
        while not seen:
            with contextlib.suppress(PartitionOfflineError):
                seen += [record.offset for record in await asker.poll()]
    assert seen == [10]
    assert await asker.do("poll", timeout_seconds=0.3) == []


# --- reset policies -----------------------------------------------------------------------------------------------

AGE_OF_LAST_FOUR = datetime.timedelta(minutes=3.5)


def ago(age: datetime.timedelta) -> datetime.timedelta:
    """Since the last record was made."""
    made = datetime.datetime.fromtimestamp(LAST_MS / 1000, datetime.UTC)
    return datetime.datetime.now(datetime.UTC) - made + age


def by_duration() -> str:
    return f"by_duration:PT{ago(AGE_OF_LAST_FOUR).total_seconds():f}S"


POLICIES: list[tuple[str, Callable[[], OffsetReset], int]] = [
    ("earliest", lambda: "earliest", 0),
    ("latest", lambda: "latest", 10),
    ("timedelta", lambda: ago(AGE_OF_LAST_FOUR), 6),
    ("by_duration", by_duration, 6),
    ("nothing so young", lambda: "by_duration:PT0S", 10),
]
of_policies = pytest.mark.parametrize(
    ("policy", "first"), [(policy, first) for _, policy, first in POLICIES], ids=[name for name, _, _ in POLICIES]
)


async def first_offset(consumer: Consumer, place: Place) -> int:
    """Return the offset at which a consumer reads on in the sick partition; whatever comes later is 10."""
    async with asyncio.timeout(20), Producer(place.address) as producer:
        while True:
            await producer.send_and_wait(place.name, b"later", partition=0)
            found = [record.offset for record in await consumer.poll(timeout_seconds=1) if not record.partition]
            if found:
                return found[0]


@of_policies
@pytest.mark.parametrize("kind", [client, sync], ids=["async", "sync"])
async def test_a_policy_decides_where_the_group_has_committed_nothing(
    place: Place, kind: Any, policy: Callable[[], OffsetReset], first: int
) -> None:
    consumer = kind.Consumer(place.address, group=place.name, auto_offset_reset=policy())
    asker = Asker(consumer, place, member=True)
    await asker.do("subscribe", place.name)
    async with asyncio.timeout(20):
        while True:
            await asker.do("poll", 1, timeout_seconds=0.3 if first == 10 else 10)
            with contextlib.suppress(InvalidRequestError):  # It is not assigned yet.
                position = await asker.do("position", place.sick)
                break
    assert position in (first, first + 1)
    await asker.do("close")


@pytest.mark.prove(keep=1)
@of_policies
@ALONE_OR_NOT
async def test_a_policy_decides_where_the_position_is_not_in_the_log(
    place: Place, policy: Callable[[], OffsetReset], first: int, member: bool
) -> None:
    async with Consumer(
        place.address, group=place.name if member else None, start="latest", auto_offset_reset=policy()
    ) as consumer:
        if member:
            await consumer.subscribe(place.name)
            async with asyncio.timeout(20):
                while not consumer.assignment():
                    await consumer.poll(timeout_seconds=0.3)
        else:
            await consumer.assign(place.name, "latest")
        await consumer.seek(place.sick, 1000)
        # A loop to the end does not take it for one that is there.
        assert [r.offset async for r in consumer.until_end() if r.partition == 0] == list(range(first, 10))
        assert await first_offset(consumer, place) == 10


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(
    ("policy", "member"), [(lambda: "latest", False), (lambda: "earliest", True), (by_duration, True)]
)
async def test_where_the_log_was_cut_any_policy_goes_on_at_the_cut(
    place: Place, policy: Callable[[], OffsetReset], member: bool
) -> None:
    consumer = Consumer(place.address, group=place.name if member else None, auto_offset_reset=policy())
    async with consumer:
        asker = Asker(consumer, place)
        if member:
            await consumer.subscribe(place.name)
            while not consumer.assignment():
                await consumer.poll(timeout_seconds=0.3)
            await consumer.seek_to_beginning()
        else:
            await consumer.assign(place.name)
        seen = 0
        while seen < 20:
            seen += len(await consumer.poll(timeout_seconds=25))
        await truncated(asker, place)
        found = [record.value for record in await consumer.poll(timeout_seconds=20)]
        while len(found) < 3:
            found += [record.value for record in await consumer.poll(timeout_seconds=20)]
        assert found == [b"new 0", b"new 1", b"new 2"]
        if member:
            await consumer.commit()
            assert (await place.committed())[0] == 12


async def test_a_search_for_a_place_that_is_overtaken_leaves_nothing_behind(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is overtaken by a pause and a resumption, a broken connection, and an assignment without that partition."""
    asked = asyncio.Semaphore(0)
    answer = asyncio.Event()

    async def slow(*arguments: Any) -> dict[TopicPartition, int]:
        asked.release()
        await answer.wait()
        return await find_offsets(*arguments)

    monkeypatch.setattr(fetcher, "find_offsets", slow)
    async with Consumer(place.address, auto_offset_reset="earliest") as consumer, asyncio.timeout(30):
        await consumer.assign(place.sick)
        await consumer.seek(place.sick, 1000)
        await asked.acquire()
        consumer.pause()
        consumer.resume()
        place.broker.kill()
        place.broker.start()
        await asked.acquire()
        answer.set()
        seen = 0
        while seen < 10:
            seen += len(await consumer.poll(timeout_seconds=25))
        answer.clear()
        await consumer.seek(place.sick, 1000)
        await asked.acquire()
        await consumer.assign(place.healthy)
        answer.set()
        seen = 0
        while seen < 10:
            seen += len(await consumer.poll(timeout_seconds=25))
        assert not consumer._core.fetcher._searching


async def test_a_cut_log_is_not_committed_past_before_the_program_goes_back(place: Place) -> None:
    async with Consumer(place.address, group=place.name, auto_commit=False) as consumer:
        asker = Asker(consumer, place, member=True)
        await asker.begin()
        await truncated(asker, place)
        with pytest.raises(LogTruncatedError) as raised:
            await asker.poll()
        assert raised.value.cut_offsets == {place.sick: 9}
        assert raised.value.cut_offset == 9
        # 10 would be another record than the one that was read.
        await consumer.commit()
        assert await place.committed() == {place.healthy.partition: 10}
        await consumer.seek(place.sick, raised.value.cut_offset)
        assert [record.value for record in await consumer.poll(1, timeout_seconds=25)] == [b"new 0"]
        await consumer.commit()
        assert await place.committed() == {place.sick.partition: 10, place.healthy.partition: 10}


async def test_what_was_read_ahead_of_a_cut_is_not_committed_past_it_either(place: Place) -> None:
    async with Consumer(place.address, group=place.name, auto_commit=False) as consumer, asyncio.timeout(30):
        asker = Asker(consumer, place, member=True)
        await consumer.subscribe(place.name)
        found = await consumer.poll(1, timeout_seconds=25)
        reading = consumer._core.assigned
        while len(reading) < 2 or any(each.fetched < 10 for each in reading.values()):
            await asyncio.sleep(0.01)
        await truncated(asker, place)
        while not reading[place.sick].failed:
            await asyncio.sleep(0.01)
        while len(found) < 20:
            found += await consumer.poll(timeout_seconds=25)
        with pytest.raises(LogTruncatedError) as raised:
            await asker.poll()
        assert raised.value.cut_offsets == {place.sick: 9}
        await consumer.commit()
        assert await place.committed() == {place.healthy.partition: 10}


@pytest.mark.parametrize("kind", [client, sync], ids=["async", "sync"])
async def test_no_policy_at_all_raises_where_nothing_is_committed_and_commits_nothing(place: Place, kind: Any) -> None:
    async with Admin(place.address) as admin:
        await admin.commit_offsets(place.name, {place.healthy: 4})
    asker = Asker(kind.Consumer(place.address, group=place.name, auto_offset_reset="none"), place)
    await asker.do("subscribe", place.name)
    seen: list[int] = []
    raised = 0
    async with asyncio.timeout(20):
        while len(seen) < 6 or raised < 3:
            try:
                seen += [record.offset for record in await asker.poll()]
            except NoCommittedOffsetError:
                raised += 1
    assert seen == list(range(4, 10))
    with pytest.raises(NoCommittedOffsetError):
        await asker.do("position", place.sick)
    with pytest.raises(NoCommittedOffsetError) as told:
        await asker.poll()
    assert told.value.partitions == {place.sick: -1}
    await asker.do("commit")
    assert await place.committed() == {place.healthy.partition: 10}
    await asker.do("seek", place.sick, 8)
    assert [record.offset for record in await asker.poll()] == [8, 9]
    assert await asker.do("poll", timeout_seconds=0.05) == []
    await asker.do("close")
    assert await place.committed() == {place.sick.partition: 10, place.healthy.partition: 10}


def test_a_group_behind_retention_is_told_and_told_again() -> None:
    """The case that users meet most."""
    configs = {"segment.bytes": "256", "retention.bytes": "150"}
    first = TopicPartition("orders", 0)
    with embedded(checkpoint_seconds=0.02, retention_check_seconds=0.02) as broker, sync.Admin(broker.address) as admin:
        admin.create_topic("orders", 1, configs)
        with sync.Producer(broker.address, batch_bytes=250) as producer:
            for _ in range(10):
                producer.send("orders", bytes(200))
        admin.commit_offsets("billing", {first: 2})

        def earliest() -> int:
            (found,) = admin.list_offsets([first], "earliest")
            assert not isinstance(found, LogbrokerError)
            return found.offset

        until(lambda: earliest() > 2)
        with sync.Consumer(broker.address, group="billing") as consumer:
            consumer.subscribe("orders")
            for _ in range(5):
                with pytest.raises(OffsetOutOfRangeError):
                    consumer.poll(timeout_seconds=25)
            consumer.seek_to_beginning(first)
            assert consumer.poll(timeout_seconds=25)[-1].offset == 9


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("by_duration:PT1H", 3600),
        ("by_duration:P7D", 7 * 86_400),
        ("by_duration:P1DT12H30M5.25S", 86_400 + 12 * 3600 + 30 * 60 + 5.25),
        ("by_duration:pt5m", 300),
    ],
)
def test_durations_are_read_as_kafka_reads_them(text: str, seconds: float) -> None:
    assert reset_policy(text, "start") == datetime.timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "setting",
    ["", "middle", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1H", "by_duration:PT-1H", 5,
     "by_duration:P99999999999999D", datetime.timedelta(seconds=-1), "by_duration:P1DT"],
)  # fmt: skip
def test_what_is_no_policy_is_refused(setting: Any) -> None:
    for name in ("auto_offset_reset", "start", "on_out_of_range"):
        with pytest.raises(TypeError if setting == 5 else InvalidRequestError, match=name):
            sync.Consumer("127.0.0.1:1", group="g", **{name: setting})


def test_a_policy_that_is_none_of_a_position_is_refused_by_its_name() -> None:
    for group in ("g", None):
        with pytest.raises(InvalidRequestError, match=r"^auto_offset_reset takes"):
            sync.Consumer("127.0.0.1:1", group=group, auto_offset_reset="error")


# --- faults of the client itself ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["FetchStream", "Member", "ProduceStream", "Work"])
async def test_a_fault_of_the_client_silences_nobody(
    place: Place, method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The task that keeps a stream begins anew."""
    stream = Connection.stream
    faults = iter([True, True])

    def faulty(self: Connection, method_name: str) -> Any:
        if method_name == method and next(faults, False):
            raise ValueError("a fault")
        return stream(self, method_name)

    monkeypatch.setattr(Connection, "stream", faulty)
    caplog.set_level(logging.CRITICAL, "logbroker.client.transport.connection")
    async with asyncio.timeout(30):
        if method == "Work":
            async with QueueAdmin(place.address) as admin, Worker(place.address, "q" + place.name) as worker:
                await admin.create_queue("q" + place.name, place.name, QueueSettings())
                async for delivery in worker:
                    await delivery.ack()
                    break
        elif method == "ProduceStream":
            async with Producer(place.address) as producer:
                assert (await producer.send_and_wait(place.name, b"", partition=0)).offset == 10
        else:
            async with Consumer(place.address, group=place.name if method == "Member" else None) as consumer:
                asker = Asker(consumer, place, member=method == "Member")
                await asker.begin()
    assert next(faults, None) is None


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("kind", ["async-alone", "sync-group"])
async def test_a_broker_that_takes_no_stream_is_told_by_every_call(
    place: Place, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = connection._path
    monkeypatch.setattr(connection, "_path", lambda method: path(method).replace("FetchStream", "NoSuchStream"))
    module, member = KINDS[kind]
    asker = Asker(module.Consumer(place.address, group=place.name if member else None), place, member=member)
    await asker.do("subscribe" if member else "assign", place.name)
    for ask in [*asker.ways, *asker.ways]:
        with pytest.raises(UnsupportedFeatureError):
            await ask()
    monkeypatch.undo()
    seen = 0
    async with asyncio.timeout(20):
        while seen < 20:
            with contextlib.suppress(UnsupportedFeatureError):
                seen += len(await asker.poll())
    await asker.do("close")
