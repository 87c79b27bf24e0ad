"""The synchronous twins: the same behaviour, in threads without an event loop."""

from __future__ import annotations

import inspect
import itertools
import logging
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from logbroker import client
from logbroker.client import sync
from logbroker.client.sync import Admin, Consumer, Producer, Record, TopicPartition
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import (
    OffsetOutOfRangeError,
    RecordTooLargeError,
    RequestTimeoutError,
    TopicExistsError,
    UnknownPartitionError,
    UnknownTopicError,
)
from tests.client.reading import numbers_by_key


@pytest.mark.parametrize("name", ["Admin", "Consumer", "Producer"])
def test_the_twins_have_the_same_methods_and_parameters(name: str) -> None:
    def shape(cls: type) -> dict[str, list[tuple[str, object, object]]]:
        return {
            method: [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]
            for method, function in inspect.getmembers(cls, inspect.isfunction)
            if not method.startswith("_") or method == "__init__"
        }

    of_loops = {"begin", "asked", "ends", "begin_chunk", "open_next", "rest_of_batch", "fail_open"}
    internal = {*of_loops, "turn", "goodbye"}
    theirs = {method: shape_ for method, shape_ in shape(getattr(client, name)).items() if method not in internal}
    assert shape(getattr(sync, name)) == theirs
    assert set(sync.__all__) == set(client.__all__)


def test_records_go_round(address: str, topic: str) -> None:
    with Admin(address) as admin, Producer(address) as producer, Consumer(address) as consumer:
        admin.create_topic(topic, 4)
        deliveries = [producer.send(topic, b"%d" % number, b"key-%d" % (number % 30)) for number in range(5000)]
        assert deliveries[-1].result(timeout_seconds=20).topic == topic
        assert deliveries[-1].done()
        assert producer.send_and_wait(topic, b"5000", b"key-0").offset > 0
        producer.flush()
        consumer.assign(topic)
        records = list(consumer.until_end())
        assert numbers_by_key(records) == {
            b"key-%d" % key: [*range(key, 5000, 30)] + ([5000] if key == 0 else []) for key in range(30)
        }
        consumer.seek_to_beginning()
        assert sum(len(batch) for batch in consumer.batches(until_end=True)) == 5001
        consumer.seek(TopicPartition(topic, 1), 3)
        assert [record.offset for record in consumer.poll(max_records=2, timeout_seconds=25)] == [3, 4]
        for record in consumer:
            assert (record.partition, record.offset) == (1, 5)
            break
        assert consumer.position(TopicPartition(topic, 1)) == 6
        consumer.pause()
        assert consumer.poll(timeout_seconds=0.05) == []
        consumer.resume()
        assert consumer.poll(max_records=1, timeout_seconds=25)[0].offset == 6


def test_many_threads_share_a_producer_and_each_keeps_its_order(address: str, topic: str) -> None:
    with Admin(address) as admin:
        admin.create_topic(topic, 2)
    with Producer(address, batch_bytes=5000, max_buffered_bytes=100_000) as producer:

        def send(thread: int) -> None:
            for number in range(5000):
                producer.send(topic, b"%d" % number, b"thread-%d" % thread)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with Consumer(address) as consumer:
        consumer.assign(topic)
        found = numbers_by_key(list(consumer.until_end()))
    assert found == {b"thread-%d" % thread: list(range(5000)) for thread in range(4)}


def test_errors_come_to_the_caller(address: str, topic: str) -> None:
    with Admin(address) as admin, Producer(address) as producer, Consumer(address) as consumer:
        admin.create_topic(topic, configs={"max.message.bytes": "1000"})
        with pytest.raises(TopicExistsError):
            admin.create_topic(topic)
        with pytest.raises(UnknownTopicError):
            producer.send("nowhere", b"")
        with pytest.raises(UnknownPartitionError):
            producer.send(topic, b"", partition=9)
        with pytest.raises(RecordTooLargeError):
            producer.send(topic, bytes(2000)).result()
        producer.send(topic, bytes(2000))
        with pytest.raises(RecordTooLargeError):
            producer.flush()
        consumer.assign(topic, start=50)
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll(timeout_seconds=25)


def test_a_result_is_waited_for_so_long_and_send_while_the_buffer_is_full(
    logbroker_broker: EmbeddedBroker, topic: str
) -> None:
    with Admin(logbroker_broker.address) as admin:
        admin.create_topic(topic)
    with Producer(logbroker_broker.address, max_buffered_bytes=10_000, batch_bytes=1000) as producer:
        producer.send_and_wait(topic, b"")
        os.kill(logbroker_broker.pid, signal.SIGSTOP)
        try:
            with pytest.raises(RequestTimeoutError, match="may still come"):
                producer.send(topic, b"").result(timeout_seconds=0.05)
            sent = threading.Event()

            def send_much() -> None:
                for _ in range(100):
                    producer.send(topic, bytes(500))
                sent.set()

            thread = threading.Thread(target=send_much)
            thread.start()
            assert not sent.wait(0.3)
            assert producer._accumulator.buffered_bytes < 11_000
        finally:
            os.kill(logbroker_broker.pid, signal.SIGCONT)
        thread.join(20)
        assert sent.is_set()


def test_a_restart_is_ridden_out(logbroker_broker: EmbeddedBroker) -> None:
    address = logbroker_broker.address
    with Admin(address) as admin:
        admin.create_topic("orders", 2)
    with Producer(address) as producer, Consumer(address) as consumer:
        consumer.assign("orders")
        for number in range(3000):
            producer.send("orders", b"%d" % number, b"key")
            if number == 1500:
                logbroker_broker.kill()
                logbroker_broker.start()
        producer.flush()
        assert [int(record.value or b"") for record in consumer.until_end()] == list(range(3000))
        logbroker_broker.kill()
        logbroker_broker.start()
        producer.send_and_wait("orders", b"3000", b"key")
        assert [record.value for record in consumer.poll(timeout_seconds=25)] == [b"3000"]


class InterruptedWaitError(TimeoutError):
    """Raised by a program's own signal handler, most of all to end what takes too long."""


def interrupt(number: int, frame: object) -> None:
    raise InterruptedWaitError


def interrupted(records: Iterator[Record]) -> Iterator[Record]:
    """Yield a few, and be interrupted while the next is decoded."""
    yield from itertools.islice(records, 3)
    raise InterruptedWaitError


@pytest.mark.parametrize("how", ["poll", "loop", "batches"])
def test_what_interrupts_a_wait_for_records_loses_none(address: str, topic: str, how: str) -> None:
    before = signal.signal(signal.SIGUSR1, interrupt)
    with Admin(address) as admin, Producer(address, linger_ms=10_000) as producer, Consumer(address) as consumer:
        admin.create_topic(topic, 1)
        consumer.assign(topic)
        seen: list[int] = []

        def read(count: int) -> None:
            while len(seen) < count:
                if how == "poll":
                    seen.extend(record.offset for record in consumer.poll(10, timeout_seconds=30))
                elif how == "batches":
                    seen.extend(record.offset for record in next(consumer.batches()))
                else:
                    seen.append(next(iter(consumer)).offset)

        try:
            threading.Timer(0.3, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1)).start()
            with pytest.raises(InterruptedWaitError):
                read(1)
            for _ in range(100):
                producer.send(topic, b"")
            producer.flush()
            if how != "batches":
                read(1)
                cursor = consumer._core.cursor
                cursor.records = interrupted(cursor.records)  # type: ignore[assignment]
                with pytest.raises(InterruptedWaitError):
                    read(100)
            read(100)
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert seen == list(range(100))


def test_only_grpcs_wake_up_noise_is_kept_from_the_log(caplog: pytest.LogCaptureFixture) -> None:
    sync.Admin("127.0.0.1:1").close()
    log = logging.getLogger("asyncio")
    for message, error in (
        ("Exception in callback PollerCompletionQueue._handle_events()", BlockingIOError(11, "again")),
        ("Exception in callback PollerCompletionQueue._handle_events()", ValueError()),
        ("Exception in callback other()", BlockingIOError(11, "again")),
    ):
        log.error(message, exc_info=error)
    assert len([record for record in caplog.records if record.name == "asyncio"]) == 2
