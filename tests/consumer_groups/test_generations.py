"""When a group begins the next generation of a topic, and that nothing makes it wait for ever."""

from __future__ import annotations

import pytest

from logbroker.consumer_groups.generations import Generations, ReadingState, ToldPosition, Wait
from logbroker.consumer_groups.offsets import Committed
from logbroker.types import PartitionKey, TopicId
from tests.consumer_groups.growth_simulation import TOPIC, TopicLog

PATIENCE_SECONDS = 300.0


class Group:
    """A topic of two partitions with three records each, that grew to three and then to five."""

    def __init__(self) -> None:
        self.log = TopicLog(2)
        self._fill()
        self.log.grow(3)
        self._fill()
        self.log.grow(5)
        self.committed: dict[int, Committed] = {}
        self.generations = Generations(self.log, lambda topic_id: self.committed)
        self.now = 0.0

    def _fill(self) -> None:
        for records in self.log.records:
            records += [(0, 0)] * 3

    def commit(self, *offsets: int) -> None:
        for partition, offset in enumerate(offsets):
            self.committed[partition] = Committed(offset, -1, "", 0)

    def tell(self, partition: int, offset: int, state: ReadingState = ReadingState.READING, member: str = "m") -> None:
        position = ToldPosition(PartitionKey(TOPIC, partition), offset, state)
        self.generations.tell(member, position, self.now, PATIENCE_SECONDS)

    @property
    def generation(self) -> int:
        """The generation that members hear: it changes by what `advanced` tells."""
        first = self.generations.of(TOPIC, self.now)
        assert self.generations.advanced(self.now) in ({}, {TOPIC: first})
        return first


@pytest.fixture
def group() -> Group:
    return Group()


def test_a_generation_begins_when_all_before_it_is_committed(group: Group) -> None:
    assert group.generation == 1
    group.commit(3, 2)
    assert group.generation == 1
    group.commit(3, 3)
    assert group.generation == 2
    group.commit(6, 6, 2)
    assert group.generation == 2
    group.commit(6, 6, 3)
    assert group.generation == 3


def test_several_generations_may_begin_at_once(group: Group) -> None:
    group.commit(6, 6, 3)
    assert group.generation == 3


def test_what_changes_is_told_once(group: Group) -> None:
    assert group.generation == 1
    group.commit(3, 3)
    assert group.generations.advanced(0.0) == {TOPIC: 2}
    assert group.generations.advanced(0.0) == {}
    group.log.grow(6)
    group.generations.topics_changed()
    assert group.generations.advanced(0.0) == {}
    group.commit(6, 6, 3, 0, 0)
    assert group.generations.advanced(0.0) == {TOPIC: 4}


def test_it_is_known_what_is_waited_for(group: Group) -> None:
    group.commit(3, 2)
    assert group.generation == 1
    assert group.generations.waits(TOPIC, 0.0) == [Wait(1, 3, 2)]
    group.commit(3, 3)
    assert group.generation == 2
    assert group.generations.waits(TOPIC, 0.0) == [Wait(0, 6, 3), Wait(1, 6, 3), Wait(2, 3, -1)]
    group.commit(6, 6, 3)
    assert group.generation == 3
    assert group.generations.waits(TOPIC, 0.0) == []
    assert not group.generations.are_waiting


def test_without_commits_what_members_tell_counts(group: Group) -> None:
    group.tell(0, 3)
    assert group.generation == 1
    group.tell(1, 3)
    assert group.generation == 2


def test_with_commits_it_counts_when_the_member_has_stood_there_long_enough(group: Group) -> None:
    group.commit(3, 1)
    group.tell(1, 3)
    group.now = PATIENCE_SECONDS - 1
    group.tell(1, 3)
    assert group.generation == 1
    group.now = PATIENCE_SECONDS
    assert group.generation == 2


def test_what_will_never_be_committed_counts_at_once(group: Group) -> None:
    group.commit(3)
    group.tell(1, 3, ReadingState.FINISHED)
    assert group.generation == 2


def test_a_member_that_goes_back_takes_the_generation_back(group: Group) -> None:
    group.tell(0, 3)
    group.tell(1, 3)
    assert group.generation == 2
    group.tell(1, 1)
    assert group.generation == 1


def test_what_a_member_told_goes_with_its_hold(group: Group) -> None:
    group.tell(0, 3)
    group.tell(1, 3, member="other")
    assert group.generation == 2
    group.generations.forget("other", {PartitionKey(TOPIC, 1)})
    assert group.generation == 2
    group.generations.forget("other")
    assert group.generation == 1
    group.tell(1, 3)
    assert group.generation == 2


def test_nobody_waits_for_a_partition_that_is_offline(group: Group) -> None:
    group.commit(3, 0)
    group.log.offline.add(1)
    assert group.generation == 2


def test_nobody_waits_for_a_partition_whose_member_cannot_read_it(group: Group) -> None:
    group.commit(3, 0)
    group.tell(1, 0, ReadingState.FAILED)
    assert group.generation == 2
    group.tell(1, 0)
    assert group.generation == 1


def test_a_paused_partition_is_waited_for_but_not_for_ever(group: Group) -> None:
    group.commit(3, 0)
    group.tell(1, 0, ReadingState.PAUSED)
    group.now = PATIENCE_SECONDS - 1
    assert group.generation == 1
    group.now = PATIENCE_SECONDS
    assert group.generation == 2


def test_nobody_waits_for_what_retention_has_removed(group: Group) -> None:
    group.commit(3, 1)
    group.log.starts[1] = 3
    assert group.generation == 2


def test_nobody_waits_for_what_was_lost_with_the_end_of_a_log(group: Group) -> None:
    """A topic of durability `written`, after a power cut: the log ends before its generation does."""
    del group.log.records[1][2:]
    group.commit(3, 1)
    assert group.generation == 1
    group.commit(3, 2)
    assert group.generation == 2


def test_nobody_waits_for_partitions_without_records() -> None:
    log = TopicLog(2)
    log.grow(4)
    log.grow(7)
    assert Generations(log, lambda topic_id: {}).of(TOPIC, 0.0) == 3


def test_a_deleted_topic_is_not_waited_for(group: Group) -> None:
    other = TopicId(b"o" * 16)
    assert group.generations.of(other, 0.0) == 0
    assert group.generations.advanced(0.0) == {}
    assert not group.generations.are_waiting


def test_however_often_a_topic_has_grown_a_look_costs_its_partitions() -> None:
    log = TopicLog(1)
    for partitions in range(2, 400):
        for records in log.records:
            records.append((0, 0))
        log.grow(partitions)
    looks = 0
    committed = {number: Committed(len(records), -1, "", 0) for number, records in enumerate(log.records)}

    def committed_now(topic_id: TopicId) -> dict[int, Committed]:
        nonlocal looks
        looks += 1
        return committed

    generations = Generations(log, committed_now)
    assert generations.of(TOPIC, 0.0) == 399
    assert looks < 2 * 400
    generations.forget_all()
    looks = 0
    for generation in (300, 20, 1):
        for number, records in enumerate(log.records):
            # Partition number n began with generation n, and got a record in each since.
            committed[number] = Committed(max(0, min(generation - number - 1, len(records))), -1, "", 0)
        generations.forget_all()
        looks = 0
        assert generations.of(TOPIC, 0.0) == generation
        assert looks < 4 * 400


def test_a_commit_costs_a_look_at_one_partition() -> None:
    """Not at all that are waited for."""
    partitions = 1000
    log = TopicLog(partitions)
    for records in log.records:
        records.append((0, 0))
    log.grow(2 * partitions)
    committed: dict[int, Committed] = {}
    looks = 0

    def committed_now(topic_id: TopicId) -> dict[int, Committed]:
        nonlocal looks
        looks += 1
        return committed

    generations = Generations(log, committed_now)
    assert generations.of(TOPIC, 0.0) == 1
    looks = 0
    for partition in range(partitions):
        committed[partition] = Committed(1, -1, "", 0)
        assert generations.advanced(0.0) == ({TOPIC: 2} if partition == partitions - 1 else {})
    assert looks <= 3 * partitions
