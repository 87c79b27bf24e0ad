"""Loading at a start: one group after the other, however many offsets there are."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import ClassVar, cast

import pytest

from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.consumer_groups.groups import Groups
from logbroker.consumer_groups.offsets import OffsetTable, TopicCommit
from logbroker.engine import DiskUse, LogEngine, Numbers, StateEvent, Topic
from logbroker.group_runtime.group_store import GROUPS_SCOPE
from logbroker.types import TopicId

GROUPS = 20
PARTITIONS = 100
TOPIC = TopicId(b"t" * 16)
END = 1_000


class Row(bytes):
    """The value of a row; all of them are counted."""

    alive: ClassVar[int] = 0

    def __init__(self, _: bytes) -> None:
        Row.alive += 1

    def __del__(self) -> None:
        Row.alive -= 1


class CountingStore:
    """A state store that knows how many of the values that it gave away are still kept."""

    numbers: Numbers

    def __init__(self) -> None:
        self.most_kept = 0

    async def load(self, scope: str) -> dict[bytes, bytes]:
        if scope == GROUPS_SCOPE:
            return {f"group-{number}".encode(): b"\x81\xa4type\xa8consumer" for number in range(GROUPS)}
        gc.collect()
        self.most_kept = max(self.most_kept, Row.alive)
        table, numbers = OffsetTable(), list(range(PARTITIONS))
        assert table.stage(TopicCommit(TOPIC, numbers, numbers, [], []), None, lambda *_: END, 0) == []
        return {event.key: Row(event.value or b"") for event in table.take_staged().events()}

    def check_room(self, use: DiskUse = DiskUse.USES_RESERVE) -> None:
        pass

    async def commit(self, scope: str, events: Sequence[StateEvent]) -> None:
        raise AssertionError("nothing has changed")


class OneTopic:
    """As much of a log engine as a start asks for."""

    def topics(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="t", id=TOPIC, partitions=PARTITIONS, routing_bands=())]

    def on_topics_changed(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        return lambda: None

    def topic_by_id(self, topic_id: TopicId) -> SimpleNamespace:
        assert topic_id == TOPIC
        return self.topics()[0]

    def partition_facts(self, topic_id: TopicId, partition: int) -> SimpleNamespace:
        return SimpleNamespace(high_watermark=END, log_end_offset=END)


@pytest.mark.prove
async def test_the_stored_rows_of_one_group_are_in_memory_at_a_time() -> None:
    store = CountingStore()
    groups = Groups(BrokerConfig(), SystemClock(), cast(LogEngine, OneTopic()), store)
    await groups.load()
    assert len(groups.ids()) == GROUPS
    assert {len(groups.group(group_id).offsets) for group_id in groups.ids()} == {PARTITIONS}
    assert store.most_kept <= PARTITIONS, "while the next group is read, the one before may still be in hand"
