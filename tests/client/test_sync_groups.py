"""Members of a group in threads without an event loop: callbacks in them, heartbeats in the background."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from logbroker.client.sync import Admin, Consumer, Producer, Record, TopicPartition
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import InstanceIdInUseError
from tests.waiting import until


def fill(address: str, topic: str, partitions: int, records: int) -> None:
    with Admin(address) as admin, Producer(address, batch_bytes=500) as producer:
        admin.create_topic(topic, partitions)
        for number in range(records):
            producer.send(topic, b"%d" % number, partition=number % partitions)


def values(records: list[Record]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


def test_threads_share_a_topic_and_hand_partitions_over(address: str, topic: str) -> None:
    fill(address, topic, 4, 2000)
    seen: list[Record] = []
    threads_of_callbacks = set()

    def work(records_until_leaving: int) -> None:
        def note(partitions: list[TopicPartition]) -> None:
            threads_of_callbacks.add(threading.get_ident())

        with Consumer(address, group=topic) as consumer:
            consumer.subscribe(topic, on_assigned=note, on_revoked=note)
            seen.extend(itertools.islice(consumer, records_until_leaving))
            consumer.commit()

    workers = [threading.Thread(target=work, args=(250,)) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert values(seen) == list(range(2000))
    assert threads_of_callbacks == {worker.ident for worker in workers}


def test_a_callback_may_use_the_consumer(address: str, topic: str) -> None:
    fill(address, topic, 2, 100)
    one = TopicPartition(topic, 1)
    with Consumer(address, group=topic, auto_commit=False) as first, Consumer(address, group=topic) as second:
        first.subscribe(
            topic, on_assigned=lambda partitions: first.seek(one, 10), on_revoked=lambda partitions: first.commit()
        )
        seen: list[Record] = []
        while len(seen) < 90:
            seen += first.poll(timeout_seconds=25)
        assert min(record.offset for record in seen if record.partition == 1) == 10
        second.subscribe(topic)
        while not second.assignment():
            first.poll(timeout_seconds=0.02)
            second.poll(timeout_seconds=0.02)
        assert second.position(second.assignment()[0]) == 50
    with Admin(address) as admin:
        assert {offset.offset for offset in admin.fetch_offsets(topic).values()} == {50}


@pytest.mark.prove
def test_a_busy_thread_stays_a_member(address: str, topic: str) -> None:
    fill(address, topic, 1, 30)
    lost: list[TopicPartition] = []
    with Consumer(address, group=topic, session_timeout_seconds=0.3, auto_commit_interval_seconds=0.01) as consumer:
        consumer.subscribe(topic, on_lost=lost.extend)
        for record in consumer:
            time.sleep(0.2)
            # What is finished is committed in the background, and the record in hand is not.
            until(lambda finished=record.offset: consumer.committed() == {TopicPartition(topic, 0): finished})  # type: ignore[misc]
            if record.offset == 4:
                break
        assert [record.offset for record in consumer.poll(max_records=3, timeout_seconds=25)] == [5, 6, 7]
        time.sleep(0.5)
        assert consumer.committed() == {TopicPartition(topic, 0): 5}
        assert sum(len(batch) for batch in consumer.batches(until_end=True)) == 22
    assert not lost


def test_a_restart_of_the_broker_moves_nothing(logbroker_broker: EmbeddedBroker, topic: str) -> None:
    fill(logbroker_broker.address, topic, 2, 200)
    calls: list[str] = []
    with Consumer(logbroker_broker.address, group=topic) as consumer:
        consumer.subscribe(
            topic,
            on_assigned=lambda partitions: calls.append("assigned"),
            on_lost=lambda partitions: calls.append("lost"),
        )
        seen = list(itertools.islice(consumer, 20))
        logbroker_broker.kill()
        logbroker_broker.start()
        seen += consumer.until_end()
    assert values(seen) == list(range(200))
    assert calls == ["assigned"]


def test_a_second_incarnation_of_a_static_member_is_refused(address: str, topic: str) -> None:
    fill(address, topic, 1, 0)
    with Consumer(address, group=topic, instance_id="one") as first:
        first.subscribe(topic)
        with Consumer(address, group=topic, instance_id="one") as second, pytest.raises(InstanceIdInUseError):
            second.subscribe(topic)
