"""A convoy over the consumer of a group, against a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
import weakref
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest

from logbroker.client import Admin, BlockedKey, Consumer, Convoy, Record, TopicPartition
from logbroker.embedded_broker import embedded
from logbroker.errors import InvalidRequestError
from tests.client.convoy.convoy_helpers import DEADLINE_SECONDS, create, send, stored, until


@contextlib.asynccontextmanager
async def joined(address: str, topic: str, **settings: Any) -> AsyncIterator[Consumer]:
    """A member of the topic's group."""
    async with Consumer(address, group=topic, auto_commit_interval_seconds=0.05, **settings) as consumer:
        await consumer.subscribe(topic)
        yield consumer


@contextlib.asynccontextmanager
async def running(convoy: Convoy, handler: Any) -> AsyncIterator[asyncio.Task[None]]:
    """Run a convoy during the block, then stop it."""
    task = asyncio.create_task(convoy.run(handler))
    try:
        yield task
    finally:
        convoy.stop()
        async with asyncio.timeout(DEADLINE_SECONDS):
            await asyncio.wait([task])
    await task


class Book:
    """A handler that checks what it gets."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.values: defaultdict[bytes | None, list[int]] = defaultdict(list)
        self.handled: list[tuple[int, int]] = []
        self.most_at_once = 0
        self._running: list[bytes | None] = []

    async def handle(self, record: Record) -> None:
        assert record.value is not None
        assert record.key is None or record.key not in self._running
        self._running.append(record.key)
        self.most_at_once = max(self.most_at_once, len(self._running))
        await asyncio.sleep(self.seconds)
        self._running.remove(record.key)
        self.values[record.key].append(int(record.value))
        self.handled.append((record.partition, record.offset))

    def check_order(self) -> None:
        for key, values in self.values.items():
            assert key is None or values == sorted(values)


async def test_keys_are_worked_off_at_once_and_each_in_order(address: str, topic: str) -> None:
    await create(address, topic, 4, [b"key %d" % (number % 50) for number in range(1000)])
    book = Book(0.002)
    async with joined(address, topic) as consumer:
        convoy = Convoy(consumer, concurrency=30)
        async with running(convoy, book.handle):
            await until(lambda: len(book.handled) >= 1000)
        assert convoy.counts().done == 1000
    assert book.most_at_once == 30
    book.check_order()
    assert sum(offset for offset, _ in (await stored(address, topic)).values()) == 1000


async def test_what_is_done_out_of_order_is_not_delivered_again(address: str, topic: str) -> None:
    await create(address, topic, 1, [b"slow", *(b"key %d" % number for number in range(200)), b"slow"])
    release = asyncio.Event()
    first, second = Book(), Book()

    async def handle(record: Record) -> None:
        if record.key == b"slow":
            await release.wait()
        await first.handle(record)

    async with joined(address, topic) as consumer:
        convoy = Convoy(consumer, drain_seconds=0)
        async with running(convoy, handle):
            async with asyncio.timeout(DEADLINE_SECONDS):
                # The commit in the background says so while the record at the floor still runs.
                while await stored(address, topic) != {0: (0, set(range(1, 201)))}:
                    await asyncio.sleep(0.01)
    async with joined(address, topic) as consumer:
        convoy = Convoy(consumer)
        async with running(convoy, second.handle):
            await until(lambda: len(second.handled) >= 2)
        assert convoy.counts().repeats_saved == 200
    assert second.handled == [(0, 0), (0, 201)]
    assert await stored(address, topic) == {0: (202, set())}


async def test_a_consumer_without_a_convoy_begins_at_the_committed_offset(address: str, topic: str) -> None:
    await create(address, topic, 1, [b"a", b"b", b"c", b"d"])
    done = Book()

    async def handle(record: Record) -> None:
        if record.key == b"b":
            raise ValueError("not this one")
        await done.handle(record)

    async with joined(address, topic) as consumer:
        async with running(Convoy(consumer, max_attempts=1), handle):
            await until(lambda: len(done.handled) >= 3)
        # The same consumer goes on where something is left to do.
        assert consumer.position(TopicPartition(topic, 0)) == 1
        assert await stored(address, topic) == {0: (1, {2, 3})}
        assert [record.key for record in await consumer.poll(2, timeout_seconds=20)] == [b"b", b"c"]
        await consumer.commit()
    # Its commit replaces what the convoy had written: nothing says any more that the last record is done.
    assert await stored(address, topic) == {0: (3, set())}


async def test_a_failed_record_is_tried_again_and_its_key_waits(address: str, topic: str) -> None:
    await create(address, topic, 1, [b"a", b"a", b"b", b"b"])
    book = Book()
    failures = 0

    async def handle(record: Record) -> None:
        nonlocal failures
        if record.offset == 0 and failures < 2:
            failures += 1
            raise ValueError("not yet")
        await book.handle(record)

    async with joined(address, topic) as consumer:
        convoy = Convoy(consumer, backoff_initial_seconds=0.05, backoff_jitter=0)
        async with running(convoy, handle):
            await until(lambda: len(book.handled) >= 4)
        assert convoy.counts().failures == 2
    assert [offset for _, offset in book.handled] == [2, 3, 0, 1]


async def test_a_key_stands_until_somebody_decides(address: str, topic: str) -> None:
    await create(address, topic, 1, [b"a", b"a", b"b"])
    book = Book()
    broken = True

    async def handle(record: Record) -> None:
        if record.key == b"a" and broken:
            raise ValueError("out of order")
        await book.handle(record)

    async with joined(address, topic) as consumer:
        convoy = Convoy(consumer, max_attempts=2, backoff_initial_seconds=0.01)
        async with running(convoy, handle):
            await until(lambda: bool(convoy.blocked()))
            partition = TopicPartition(topic, 0)
            assert convoy.blocked() == [
                BlockedKey(key=b"a", partition=partition, offset=0, attempts=2, reason="ValueError: out of order")
            ]
            assert convoy.resume(b"b") == 0
            assert convoy.resume(b"a") == 1
            await until(lambda: convoy.counts().failures == 4 and bool(convoy.blocked()))
            assert await convoy.skip(b"a", partition) == 1
            broken = False
            await until(lambda: len(book.handled) >= 2)
        assert convoy.counts().skipped == 1
    assert book.handled == [(0, 2), (0, 1)]
    assert await stored(address, topic) == {0: (3, set())}


async def test_a_dead_letter_is_stored_before_the_offset_moves_on(address: str, topic: str) -> None:
    letters = f"{topic}-letters"
    await create(address, topic, 1, [b"a", b"a"])

    async def handle(record: Record) -> None:
        if record.offset == 0:
            raise ValueError("no such customer")

    async with joined(address, topic) as consumer:
        convoy = Convoy(
            consumer,
            max_attempts=2,
            backoff_initial_seconds=0.01,
            on_exhausted="dead-letter",
            dead_letter=letters,
        )
        async with running(convoy, handle):
            # The topic does not exist: the key stands, and no offset is committed.
            await until(lambda: bool(convoy.blocked()))
            assert "UnknownTopicError" in convoy.blocked()[0].reason
            assert (await stored(address, topic)).get(0, (0, set())) == (0, set())
            async with Admin(address) as admin:
                await admin.create_topic(letters, 1)
            convoy.resume()
            await until(lambda: convoy.counts().done == 2)
        assert convoy.counts().dead_letters == 1
    assert await stored(address, topic) == {0: (2, set())}
    async with Consumer(address) as consumer:
        await consumer.assign(letters)
        [letter] = [record async for record in consumer.until_end()]
    assert (letter.key, letter.value) == (b"a", b"0")
    assert letter.header("logbroker-origin-topic") == topic.encode()
    assert letter.header("logbroker-group") == topic.encode()
    assert letter.header("logbroker-reason") == b"ValueError: no such customer"


async def test_a_function_may_take_dead_letters_and_records_may_be_skipped(address: str, topic: str) -> None:
    await create(address, topic, 1, [b"a", b"b"])
    letters: list[tuple[bytes | None, str]] = []

    async def handle(record: Record) -> None:
        raise ValueError(f"{record.offset}")

    async def keep(record: Record, error: Exception) -> None:
        letters.append((record.key, str(error)))

    async with joined(address, topic) as consumer:
        convoy = Convoy(consumer, max_attempts=1, on_exhausted="dead-letter", dead_letter=keep)
        async with running(convoy, handle):
            await until(lambda: convoy.counts().done == 2)
        assert sorted(letters) == [(b"a", "0"), (b"b", "1")]
        await send(address, topic, [b"c"])
        convoy = Convoy(consumer, max_attempts=1, on_exhausted="skip")
        async with running(convoy, handle):
            await until(lambda: convoy.counts().skipped == 1)
    assert await stored(address, topic) == {0: (3, set())}


@pytest.mark.prove
async def test_memory_is_bounded_and_the_source_waits(address: str, topic: str) -> None:
    await create(address, topic, 1, [b"a"] * 300)
    release = asyncio.Event()
    book = Book()

    async def handle(record: Record) -> None:
        await release.wait()
        await book.handle(record)

    async with joined(address, topic, max_poll_interval_seconds=1.0) as consumer:
        convoy = Convoy(consumer, max_records=20)
        async with running(convoy, handle):
            await until(lambda: convoy.counts().waiting == 19)
            # It stays a member, although it takes no record for longer than the poll interval.
            async with Admin(address) as admin:
                held_until = asyncio.get_running_loop().time() + 2.5
                while asyncio.get_running_loop().time() < held_until:
                    assert convoy.counts().waiting == 19
                    assert len((await admin.describe_group(topic)).members) == 1
                    await asyncio.sleep(0.1)
            release.set()
            await until(lambda: len(book.handled) >= 300)
    book.check_order()


async def test_revoked_partitions_finish_what_runs_and_commit(address: str, topic: str) -> None:
    await create(address, topic, 8, [b"key %d" % (number % 40) for number in range(2000)])
    books = [Book(0.004), Book(0.004), Book(0.004)]
    handled: list[tuple[int, int]] = []
    async with joined(address, topic) as one, contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(running(Convoy(one, concurrency=8), books[0].handle))
        for book in books[1:]:
            await until(lambda: len(books[0].handled) > 100)
            consumer = await stack.enter_async_context(joined(address, topic))
            await stack.enter_async_context(running(Convoy(consumer, concurrency=8), book.handle))
        await until(lambda: sum(len(book.handled) for book in books) >= 2000)
    for book in books:
        assert book.handled
        book.check_order()
        handled += book.handled
    # Nothing was lost, and nothing was repeated: every partition was given away with all that was done in it.
    assert len(handled) == len(set(handled)) == 2000


async def test_a_handler_that_takes_too_long_is_cancelled_before_its_partition_goes(address: str, topic: str) -> None:
    await create(address, topic, 2, [])
    await send(address, topic, [b"a"], partition=0)
    await send(address, topic, [b"b"], partition=1)
    events: list[str] = []
    forever = asyncio.Event()

    async def handle(record: Record) -> None:
        events.append(f"begun {record.partition}")
        try:
            await forever.wait()
        except asyncio.CancelledError:
            events.append(f"cancelled {record.partition}")
            raise

    async def again(record: Record) -> None:
        events.append(f"elsewhere {record.partition}")

    async with (
        joined(address, topic, rebalance_timeout_seconds=6.0) as first,
        running(Convoy(first, drain_seconds=0.3), handle),
    ):
        await until(lambda: len(events) == 2)
        async with joined(address, topic) as second, running(Convoy(second), again):
            await until(lambda: len(events) == 4)
            moved = events[2].split()[1]
            assert events[2:] == [f"cancelled {moved}", f"elsewhere {moved}"]


async def test_plain_functions_run_in_threads(address: str, topic: str) -> None:
    await create(address, topic, 2, [b"key %d" % (number % 6) for number in range(60)])
    together = threading.Barrier(6, timeout=DEADLINE_SECONDS)
    names = set[str]()
    done: list[int] = []

    def handle(record: Record) -> None:
        names.add(threading.current_thread().name)
        if int(record.value or b"") < 6:
            together.wait()
        done.append(int(record.value or b""))

    async with joined(address, topic) as consumer, running(Convoy(consumer, concurrency=6), handle):
        await until(lambda: len(done) == 60)
    assert threading.main_thread().name not in names
    assert len(names) == 6


@pytest.mark.prove
async def test_a_stop_lets_running_handlers_end_and_gives_the_rest_back(address: str, topic: str) -> None:
    await create(address, topic, 1, [b"a", b"a", b"a"])
    book, begun = Book(), asyncio.Event()

    async def handle(record: Record) -> None:
        begun.set()
        await asyncio.sleep(0.2)
        await book.handle(record)

    async with joined(address, topic) as consumer:
        async with running(Convoy(consumer), handle):
            await begun.wait()
        assert book.handled == [(0, 0)]
        assert await stored(address, topic) == {0: (1, set())}
        begun.clear()
        async with running(Convoy(consumer), handle):
            await until(lambda: len(book.handled) >= 3)


@pytest.mark.prove
async def test_a_cancelled_run_cancels_handlers_and_commits_what_is_done(address: str, topic: str) -> None:
    await create(address, topic, 1, [b"a", b"b", b"c"])
    book = Book()
    cancelled: list[int] = []

    async def handle(record: Record) -> None:
        if record.key == b"b":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(record.offset)
                raise
        await book.handle(record)

    async with joined(address, topic) as consumer:
        task = asyncio.create_task(Convoy(consumer).run(handle))
        await until(lambda: len(book.handled) >= 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cancelled == [1]
        assert await stored(address, topic) == {0: (1, {2})}


@pytest.mark.prove
async def test_records_of_a_key_stay_in_order_when_partitions_are_added(address: str, topic: str) -> None:
    keys: list[bytes | None] = [b"key %d" % (number % 20) for number in range(300)]
    await create(address, topic, 1, keys)
    book = Book(0.002)
    async with joined(address, topic) as consumer, running(Convoy(consumer, concurrency=8), book.handle):
        await until(lambda: len(book.handled) > 50)
        async with Admin(address) as admin:
            await admin.alter_topic(topic, partitions=4)
        async with asyncio.timeout(DEADLINE_SECONDS):
            from logbroker.client import Producer

            async with Producer(address) as producer:
                for number in range(300, 600):
                    await producer.send(topic, b"%d" % number, key=keys[number % 20])
        await until(lambda: len(book.handled) >= 600)
    book.check_order()
    assert len(set(book.handled)) == 600


async def test_another_key_may_order_the_records(address: str, topic: str) -> None:
    await create(address, topic, 1, [b"a-1", b"a-2", b"b-1", b"b-2"])
    started: list[bytes | None] = []
    release = asyncio.Event()

    async def handle(record: Record) -> None:
        started.append(record.key)
        await release.wait()

    async with joined(address, topic) as consumer:
        convoy = Convoy(consumer, key=lambda record: record.key.partition(b"-")[0])
        async with running(convoy, handle):
            await until(lambda: len(started) == 2 and convoy.counts().waiting == 2)
            assert started == [b"a-1", b"b-1"]
            release.set()
            await until(lambda: len(started) == 4)


async def test_records_without_a_key_have_no_order(address: str, topic: str) -> None:
    await create(address, topic, 1, [None] * 10)
    book = Book(0.05)
    async with joined(address, topic) as consumer, running(Convoy(consumer, concurrency=10), book.handle):
        await until(lambda: len(book.handled) >= 10)
    assert book.most_at_once == 10


@pytest.mark.prove
async def test_foreign_texts_beside_an_offset_count_as_none(address: str, topic: str) -> None:
    import grpc

    from logbroker.v1 import groups_pb2

    await create(address, topic, 1, [b"a", b"b", b"c"])
    with grpc.insecure_channel(address) as channel:
        commit = channel.unary_unary(
            "/logbroker.v1.Groups/CommitOffsets",
            request_serializer=groups_pb2.CommitOffsetsRequest.SerializeToString,
            response_deserializer=groups_pb2.CommitOffsetsResponse.FromString,
        )
        offsets = groups_pb2.TopicOffsets(topic=topic, partitions=[0], offsets=[1], metadata=["convoy:of somebody"])
        await asyncio.to_thread(commit, groups_pb2.CommitOffsetsRequest(group_id=topic, topics=[offsets]))
    book = Book()
    async with joined(address, topic) as consumer, running(Convoy(consumer), book.handle):
        await until(lambda: len(book.handled) >= 2)
    assert await stored(address, topic) == {0: (3, set())}


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"concurrency": 0}, "concurrency must be between"),
        ({"max_attempts": 0}, "max_attempts must be between"),
        ({"max_records": 0}, "max_records must be between"),
        ({"max_bytes": 0}, "max_bytes must be between"),
        ({"drain_seconds": -1}, "drain_seconds must be between"),
        ({"backoff_jitter": 2}, "backoff_jitter must be between"),
        ({"backoff_initial_seconds": 10, "backoff_cap_seconds": 1}, "raise the cap"),
        ({"on_exhausted": "park"}, "on_exhausted takes block, dead-letter, skip"),
        ({"on_exhausted": "dead-letter"}, "belong together"),
        ({"dead_letter": "letters"}, "belong together"),
    ],
)
async def test_bad_settings_get_one_clear_error(address: str, settings: dict[str, Any], message: str) -> None:
    async with Consumer(address, group="nobody") as consumer:
        with pytest.raises(InvalidRequestError, match=message):
            Convoy(consumer, **settings)


async def test_sources_of_wrong_types_are_refused() -> None:
    for source in (5, "topic", [("key", 1)], None):
        with pytest.raises(TypeError, match="source must be Consumer or Worker or ConvoySource"):
            Convoy(source)  # type: ignore[arg-type]


async def test_a_consumer_that_is_not_ready_is_refused_and_stays_as_it_is(address: str, topic: str) -> None:
    await create(address, topic, 1, [b"a", b"b"])
    book = Book()
    async with Consumer(address) as consumer:
        with pytest.raises(InvalidRequestError, match="the consumer of a group"):
            await Convoy(consumer).run(book.handle)
    async with Consumer(address, group=topic) as consumer:
        with pytest.raises(InvalidRequestError, match="has subscribed"):
            await Convoy(consumer).run(book.handle)
    async with Consumer(address, group=topic, auto_commit=False) as consumer:
        await consumer.subscribe(topic)
        with pytest.raises(InvalidRequestError, match="leave auto_commit"):
            await Convoy(consumer).run(book.handle)
    async with joined(address, topic) as consumer:
        convoy = Convoy(consumer)

        def generator(record: Record) -> Any:
            yield record

        with pytest.raises(InvalidRequestError, match="generator"):
            await convoy.run(generator)
        async with running(convoy, book.handle):
            await until(lambda: len(book.handled) >= 2)
            with pytest.raises(InvalidRequestError, match="another convoy"):
                await Convoy(consumer).run(book.handle)
            with pytest.raises(InvalidRequestError, match="commit nothing beside it"):
                await consumer.commit()
            with pytest.raises(InvalidRequestError, match="make another one"):
                await convoy.run(book.handle)
            await send(address, topic, [b"c"])
            await until(lambda: len(book.handled) >= 3)
        with pytest.raises(InvalidRequestError, match="make another one"):
            await convoy.run(book.handle)


async def test_closing_the_consumer_ends_the_convoy(address: str, topic: str) -> None:
    await create(address, topic, 1, [b"a"])
    book = Book()
    consumer = Consumer(address, group=topic)
    await consumer.subscribe(topic)
    task = asyncio.create_task(Convoy(consumer).run(book.handle))
    await until(lambda: len(book.handled) >= 1)
    await consumer.close()
    with pytest.raises(Exception, match="closed"):
        async with asyncio.timeout(DEADLINE_SECONDS):
            await task
    assert await stored(address, topic) == {0: (1, set())}


async def test_a_failure_is_logged_with_its_record(address: str, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    await create(address, topic, 1, [b"a"])

    async def handle(record: Record) -> None:
        raise ValueError("no such customer")

    async with joined(address, topic) as consumer:
        convoy = Convoy(consumer, max_attempts=1, on_exhausted="skip")
        with caplog.at_level(logging.ERROR, "logbroker"):
            async with running(convoy, handle):
                await until(lambda: convoy.counts().done == 1)
    assert f"attempt 1 of offset 0 of {topic}-0, key b'a' failed: ValueError: no such customer" in caplog.text


@pytest.mark.prove
async def test_a_consumer_that_a_convoy_has_left_can_be_collected(address: str, topic: str) -> None:
    await create(address, topic, 1, [b"a"])
    book = Book()
    consumer = Consumer(address, group=topic)
    await consumer.subscribe(topic)
    async with running(Convoy(consumer), book.handle):
        await until(lambda: len(book.handled) >= 1)
    left, held = weakref.ref(consumer), [consumer]
    del consumer

    def drop() -> None:
        held.clear()
        gc.collect()

    with pytest.warns(ResourceWarning):
        drop()
    assert left() is None


@pytest.mark.prove
async def test_offsets_are_committed_even_if_the_broker_has_no_room_for_texts(
    topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with embedded(max_group_offsets_bytes=350) as broker:
        address = broker.address
        await create(address, topic, 1, [b"key %d" % number for number in range(1000)])
        book = Book()

        async def handle(record: Record) -> None:
            # Every fourth record of the rest stands, so that a text has to name a hundred ranges.
            if record.offset >= 500 and record.offset % 4 == 0:
                raise ValueError("never")
            await book.handle(record)

        async with joined(address, topic) as consumer:
            convoy = Convoy(consumer, max_attempts=1)
            async with running(convoy, handle):
                await until(lambda: len(set(book.handled)) == 875)
                async with asyncio.timeout(DEADLINE_SECONDS):
                    while await stored(address, topic) != {0: (500, set())}:
                        await asyncio.sleep(0.01)
    assert caplog.text.count("is repeated after a crash") == 1


async def test_a_loop_whose_body_runs_a_convoy_goes_on_and_commits(address: str, topic: str) -> None:
    await create(address, topic, 1, [b"a", b"b", b"c", b"d"])
    done = Book()

    async def handle(record: Record) -> None:
        if record.key == b"b":
            raise ValueError("not this one")
        await done.handle(record)

    async with joined(address, topic) as consumer:
        records = aiter(consumer)
        assert (await anext(records)).key == b"a"
        async with running(Convoy(consumer, max_attempts=1), handle):
            await until(lambda: len(done.handled) >= 2)
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert [(await anext(records)).key for _ in range(3)] == [b"b", b"c", b"d"]
            while await stored(address, topic) != {0: (3, set())}:
                await asyncio.sleep(0.01)
