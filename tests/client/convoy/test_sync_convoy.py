"""The synchronous convoy: threads run the handlers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from logbroker.client.convoy.lanes import Lanes
from logbroker.client.convoy.track import Entry, LooseTrack
from logbroker.client.sync import Consumer, Convoy, QueueAdmin, QueueSettings, Record, Worker, WorkerDelivery
from logbroker.errors import InvalidRequestError
from tests.client.convoy.convoy_helpers import DEADLINE_SECONDS, create, stored


class Book:
    """A handler that checks what it gets."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.values: dict[bytes | None, list[int]] = {}
        self.handled: list[tuple[int, int]] = []
        self.most_at_once = 0
        self._running: list[bytes | None] = []
        self._lock = threading.Lock()

    def handle(self, record: Record) -> None:
        assert record.value is not None
        with self._lock:
            assert record.key not in self._running
            self._running.append(record.key)
            self.most_at_once = max(self.most_at_once, len(self._running))
        time.sleep(self.seconds)
        with self._lock:
            self._running.remove(record.key)
            self.values.setdefault(record.key, []).append(int(record.value))
            self.handled.append((record.partition, record.offset))

    def check_order(self) -> None:
        assert all(values == sorted(values) for values in self.values.values())


def run_until(convoy: Convoy, handler: Callable[[Any], object], holds: Callable[[], bool]) -> None:
    """Run a convoy in this thread until something holds."""
    failed: list[bool] = []

    def watch() -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                failed.append(True)
                break
            time.sleep(0.005)
        convoy.stop()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        convoy.run(handler)
    finally:
        watcher.join()
    assert not failed


def test_threads_work_off_keys_at_once_and_each_in_order(address: str, topic: str) -> None:
    asyncio.run(create(address, topic, 4, [b"key %d" % (number % 40) for number in range(800)]))
    book = Book(0.002)
    with Consumer(address, group=topic) as consumer:
        consumer.subscribe(topic)
        convoy = Convoy(consumer, concurrency=20)
        run_until(convoy, book.handle, lambda: len(book.handled) == 800)
    assert book.most_at_once > 10
    book.check_order()
    assert sum(offset for offset, _ in asyncio.run(stored(address, topic)).values()) == 800


def test_what_is_done_out_of_order_is_not_delivered_again(address: str, topic: str) -> None:
    asyncio.run(create(address, topic, 1, [b"slow", *(b"key %d" % number for number in range(50)), b"slow"]))
    book = Book()

    def handle(record: Record) -> None:
        if record.key == b"slow":
            raise ValueError("never")
        book.handle(record)

    with Consumer(address, group=topic) as consumer:
        consumer.subscribe(topic)
        convoy = Convoy(consumer, max_attempts=2, backoff_initial_seconds=0.01)
        run_until(convoy, handle, lambda: len(book.handled) == 50 and bool(convoy.blocked()))
        assert asyncio.run(stored(address, topic)) == {0: (0, set(range(1, 51)))}
        again = Book()
        convoy = Convoy(consumer)
        run_until(convoy, again.handle, lambda: len(again.handled) == 2)
        assert convoy.counts().repeats_saved == 50
    assert again.handled == [(0, 0), (0, 51)]


def test_partitions_move_between_convoys_without_a_repeat(address: str, topic: str) -> None:
    asyncio.run(create(address, topic, 6, [b"key %d" % (number % 30) for number in range(900)]))
    books = [Book(0.003), Book(0.003)]

    def done() -> bool:
        return sum(len(book.handled) for book in books) >= 900

    def second() -> None:
        while len(books[0].handled) < 50:
            time.sleep(0.005)
        with Consumer(address, group=topic) as consumer:
            consumer.subscribe(topic)
            run_until(Convoy(consumer, concurrency=5), books[1].handle, done)

    thread = threading.Thread(target=second)
    thread.start()
    with Consumer(address, group=topic) as consumer:
        consumer.subscribe(topic)
        run_until(Convoy(consumer, concurrency=5), books[0].handle, done)
    thread.join()
    handled = books[0].handled + books[1].handled
    assert len(handled) == len(set(handled)) == 900
    assert books[1].handled
    for book in books:
        book.check_order()


def test_an_iterator_is_worked_off_to_its_end_and_the_rest_is_nacked(address: str) -> None:
    settled: dict[int, str] = {}

    def source() -> Iterator[Any]:
        for number in range(30):
            if number % 10 == 5:
                yield None
            yield (
                f"key {number % 3}",
                number,
                lambda number=number: settled.__setitem__(number, "acked"),
                lambda error, number=number: settled.__setitem__(number, f"nacked: {error}"),
            )

    def handle(number: int) -> None:
        if number == 27:
            raise ValueError("never")

    convoy = Convoy(source(), max_attempts=1)
    run_until(convoy, handle, lambda: len(settled) == 29)
    assert settled == dict.fromkeys(range(30), "acked") | {27: "nacked: never"}


def test_a_worker_feeds_threads(address: str, topic: str) -> None:
    asyncio.run(create(address, topic, 1, [b"key %d" % (number % 10) for number in range(100)]))
    with QueueAdmin(address) as admin:
        admin.create_queue(topic, topic, QueueSettings(ordering="none"), start="earliest")
    book = Book(0.001)
    seen: list[str] = []

    def handle(delivery: WorkerDelivery) -> None:
        seen.append(threading.current_thread().name)
        book.handle(delivery)  # type: ignore[arg-type]

    with Worker(address, topic) as worker:
        convoy = Convoy(worker, concurrency=8)
        run_until(convoy, handle, lambda: convoy.counts().done == 100)
    book.check_order()
    assert len(set(seen)) > 1


def test_a_record_that_ends_while_another_thread_looks_is_noted_by_that_one() -> None:
    """Its own thread finds the look taken, and waits for a record: nobody else would look again."""
    convoy = Convoy(iter(()))
    first, late = (Entry(LooseTrack(None), number, b"k", None, 0) for number in range(2))

    class Look:
        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.late = [late]

        def acquire(self, *, blocking: bool) -> bool:
            return self.lock.acquire(blocking=blocking)

        def release(self) -> None:
            convoy._ended.extend(self.late)
            self.late = []
            self.lock.release()

    convoy._looking = Look()  # type: ignore[assignment]
    convoy._ended.append(first)
    assert convoy._look() is None
    assert not convoy._ended


def test_what_a_signal_interrupts_on_its_way_into_a_convoy_comes_again(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception may come after a delivery was taken from the worker, and before the convoy has it."""
    asyncio.run(create(address, topic, 1, [b"key %d" % number for number in range(10)]))
    with QueueAdmin(address) as admin:
        admin.create_queue(topic, topic, QueueSettings(ordering="key"), start="earliest")

    class SignalError(Exception):
        pass

    def interrupted(_item: Any) -> None:
        raise SignalError

    with Worker(address, topic) as worker:
        convoy = Convoy(worker)
        monkeypatch.setattr(convoy._core, "take_item", interrupted)
        with pytest.raises(SignalError):
            convoy.run(lambda _delivery: None)
        book = Book()
        again = Convoy(worker)
        run_until(again, book.handle, lambda: again.counts().done == 10)
    assert sorted(value for values in book.values.values() for value in values) == list(range(10))


@pytest.mark.parametrize("on_exhausted", ["skip", "dead-letter"])
def test_the_outputs_of_the_attempt_that_succeeds_go_with_the_ack(address: str, topic: str, on_exhausted: Any) -> None:
    asyncio.run(create(address, topic, 1, [b"a", b"b", b"a"]))
    results, letters = f"{topic}-results", f"{topic}-letters"
    asyncio.run(create(address, results, 1, []))
    asyncio.run(create(address, letters, 1, []))
    attempts = dict[bytes | None, int]()

    def handle(delivery: WorkerDelivery) -> None:
        attempts[delivery.value] = attempts.get(delivery.value, 0) + 1
        delivery.send(results, b"%s of attempt %d" % (delivery.value or b"", attempts[delivery.value]))
        if delivery.key == b"b" or attempts[delivery.value] < 2:
            raise ValueError("not yet")

    with QueueAdmin(address) as admin:
        admin.create_queue(topic, topic, QueueSettings(ordering="none"), start="earliest")
    with Worker(address, topic) as worker:
        convoy = Convoy(
            worker,
            max_attempts=3,
            backoff_initial_seconds=0.01,
            on_exhausted=on_exhausted,
            dead_letter=letters if on_exhausted == "dead-letter" else None,
        )
        run_until(convoy, handle, lambda: convoy.counts().done == 3)
    with Consumer(address) as consumer:
        consumer.assign(results)
        assert sorted(record.text() for record in consumer.until_end()) == ["0 of attempt 2", "2 of attempt 2"]
        consumer.assign(letters)
        assert [record.value for record in consumer.until_end()] == [b"1"] * (on_exhausted == "dead-letter")


def test_outputs_keep_the_order_of_their_key_and_a_refusal_is_not_done(address: str, topic: str) -> None:
    asyncio.run(create(address, topic, 1, [b"%d" % (number % 5) for number in range(200)]))
    results, others = f"{topic}-results", f"{topic}-others"
    asyncio.run(create(address, results, 1, []))
    asyncio.run(create(address, others, 1, []))
    refused: list[bytes | None] = []

    def handle(delivery: WorkerDelivery) -> None:
        number = int(delivery.value or b"")
        if number == 100 and delivery.attempt == 1:
            refused.append(delivery.value)
            delivery.send(f"{topic}-nowhere", b"x")
            return
        delivery.send(results, delivery.value, delivery.key)
        if number // 5 % 2:
            delivery.send(others, delivery.value, delivery.key)

    with QueueAdmin(address) as admin:
        admin.create_queue(topic, topic, QueueSettings(ordering="none"), start="earliest")
    with Worker(address, topic) as worker:
        convoy = Convoy(worker, concurrency=10)
        run_until(convoy, handle, lambda: convoy.counts().done == 200)
    assert refused == [b"100"]
    with Consumer(address) as consumer:
        consumer.assign(results)
        sent = dict[bytes | None, list[int]]()
        for record in consumer.until_end():
            sent.setdefault(record.key, []).append(int(record.text()))
    assert sum(map(len, sent.values())) == 200
    sent[b"0"].remove(100)  # It came again behind others of its key.
    assert all(numbers == sorted(numbers) for numbers in sent.values()), sent


def test_a_failure_after_the_handler_has_settled_changes_nothing(address: str, topic: str) -> None:
    asyncio.run(create(address, topic, 1, [b"a", b"a"]))
    handled: list[bytes | None] = []

    def handle(delivery: WorkerDelivery) -> None:
        handled.append(delivery.value)
        if len(handled) == 1:
            delivery.nack(delay_seconds=0.01)
            raise ValueError("afterwards")

    with QueueAdmin(address) as admin:
        admin.create_queue(topic, topic, QueueSettings(ordering="none"), start="earliest")
    with Worker(address, topic) as worker:
        convoy = Convoy(worker, max_attempts=2, backoff_initial_seconds=0.01)
        run_until(convoy, handle, lambda: convoy.counts().done == 3)
        assert convoy.blocked() == []
    assert sorted(handled) == [b"0", b"0", b"1"]  # type: ignore[type-var]


def test_bad_input_gets_one_clear_error(address: str, topic: str) -> None:
    asyncio.run(create(address, topic, 1, [b"a"]))

    async def coroutine(record: Record) -> None: ...

    with Consumer(address, group=topic, auto_commit=False) as consumer:
        with pytest.raises(InvalidRequestError, match="has subscribed"):
            Convoy(consumer).run(print)
        consumer.subscribe(topic)
        with pytest.raises(InvalidRequestError, match="leave auto_commit"):
            Convoy(consumer).run(print)
        with pytest.raises(InvalidRequestError, match="coroutine function"):
            Convoy(consumer).run(coroutine)
    with pytest.raises(TypeError, match="source must be"):
        Convoy(5)  # type: ignore[arg-type]
    with pytest.raises(ConnectionError, match="away"):
        Convoy(_broken()).run(print)


def _broken() -> Iterator[Any]:
    yield None
    raise ConnectionError("away")


def test_an_error_that_is_no_exception_of_a_handler_ends_the_convoy(address: str, topic: str) -> None:
    asyncio.run(create(address, topic, 1, [b"a", b"b"]))

    def handle(record: Record) -> None:
        raise SystemExit(3)

    with Consumer(address, group=topic) as consumer:
        consumer.subscribe(topic)
        with pytest.raises(SystemExit):
            Convoy(consumer, drain_seconds=0.5).run(handle)
    assert asyncio.run(stored(address, topic)).get(0, (0, set())) == (0, set())


def test_an_item_that_was_given_back_is_not_acked_later(address: str) -> None:
    """The handler outlives `drain_seconds`, so the convoy ends and gives the item back while it runs."""
    settled: list[str] = []
    has_begun, may_end, has_ended = threading.Event(), threading.Event(), threading.Event()

    def source() -> Iterator[Any]:
        yield "key", 1, lambda: settled.append("acked"), lambda error: settled.append("nacked")

    def handle(number: int) -> None:
        has_begun.set()
        assert may_end.wait(DEADLINE_SECONDS)

    class Noting(Convoy):
        def _handle(self, handler: Any, entry: Entry) -> bool:
            try:
                return super()._handle(handler, entry)
            finally:
                has_ended.set()

    run_until(Noting(source(), drain_seconds=0), handle, has_begun.is_set)
    assert settled == ["nacked"]
    may_end.set()
    assert has_ended.wait(DEADLINE_SECONDS)
    assert settled == ["nacked"]


def test_room_that_comes_while_the_convoy_looks_for_it_asks_for_no_empty_batch(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With little room, handlers often end between the two looks at the room. Here they nearly always do."""
    asyncio.run(create(address, topic, 1, [b"key %d" % number for number in range(50)]))
    book = Book()
    real = vars(Lanes)["has_much_room"]

    def late(lanes: Lanes) -> bool:
        deadline = time.monotonic() + 0.01
        while lanes.records and time.monotonic() < deadline:
            time.sleep(0.001)
        return bool(real.__get__(lanes))

    monkeypatch.setattr(Lanes, "has_much_room", property(late))
    with Consumer(address, group=topic) as consumer:
        consumer.subscribe(topic)
        run_until(Convoy(consumer, concurrency=4, max_records=2), book.handle, lambda: len(book.handled) == 50)
