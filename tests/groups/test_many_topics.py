"""Groups that subscribe to many topics by a pattern, while topics come and go."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from logbroker.client import NewTopic
from logbroker.client.sync import Admin, Consumer
from logbroker.embedded_broker import EmbeddedBroker, embedded
from tests.waiting import until

TOPICS = 1500
CHANGED = 150


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker of its own: all groups of a broker are told of all topics."""
    with embedded() as broker:
        yield broker


@pytest.mark.prove
def test_topics_are_changed_one_by_one_and_looked_at_together(broker: EmbeddedBroker) -> None:
    """A group needs some 20 ms to look at so many topics: after each change, that would take seconds."""
    stop = threading.Event()

    def read() -> None:
        with Consumer(broker.address, group="group") as consumer:
            consumer.subscribe(pattern="x.*")
            while not stop.is_set():
                consumer.poll(timeout_seconds=0.01)

    with Admin(broker.address) as admin:
        admin.create_topics([NewTopic(f"x{number}", 1) for number in range(TOPICS)])

        def held() -> int:
            members = admin.describe_group("group").members
            return sum(len(member.owned) for member in members)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            until(lambda: "group" in {group.id for group in admin.list_groups()} and held() == TOPICS)
            before = admin.describe_group("group").epoch
            admin.delete_topics([f"x{number}" for number in range(CHANGED)])
            until(lambda: held() == TOPICS - CHANGED)
            admin.create_topic("x-new", 1)
            until(lambda: held() == TOPICS - CHANGED + 1)
            after = admin.describe_group("group").epoch
        finally:
            stop.set()
            reader.join()
    assert after - before < CHANGED / 5
