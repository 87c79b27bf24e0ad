"""The target of a group whose members subscribe to bands: complete, within the bands, balanced in each, sticky."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.consumer_groups import band_topics as parts
from logbroker.consumer_groups.assignors import ASSIGNORS, AssignableTopic
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.consumer_groups.target import TargetTable
from logbroker.errors import InvalidRequestError
from logbroker.record.bands import parse_bands, partitions_of
from logbroker.types import PartitionKey, TopicId

THREE = "hot=7-9:1,warm=4-6:2,cold=0-3:8"


def topic(name: str, bands_or_count: str | int) -> AssignableTopic:
    # Ids in another order than the names: nothing may lean on theirs being the same.
    topic_id = TopicId(bytes([255 - ord(name)]) * 16)
    if isinstance(bands_or_count, int):
        return AssignableTopic(name, topic_id, bands_or_count)
    bands = parse_bands(bands_or_count)
    return AssignableTopic(name, topic_id, partitions_of(bands), bands)


TOPICS = {each.name: each for each in (topic("a", THREE), topic("b", "hot=5-9:3,cold=0-4:2"), topic("c", 5))}
SUBSCRIPTIONS = st.builds(
    Subscription,
    st.sets(st.sampled_from("abc?")).map(lambda names: tuple(sorted(names))),
    bands=st.sets(st.sampled_from(["hot", "warm", "cold", "no-such-band"])).map(lambda names: tuple(sorted(names))),
)
MEMBERS = st.dictionaries(st.sampled_from([f"m:{number}" for number in range(7)]), SUBSCRIPTIONS)


def wanted(subscription: Subscription) -> set[PartitionKey]:
    """Return the partitions that a subscription asks for, found one by one."""
    found = set()
    for each in TOPICS.values():
        for partition in range(each.partitions if each.name in subscription.topics else 0):
            of = [band.name for band in each.bands if partition in band.partition_range]
            if not of or not subscription.bands or of[0] in subscription.bands:
                found.add(PartitionKey(each.topic_id, partition))
    return found


def computed(table: TargetTable, assignor: str, members: dict[str, Subscription]) -> dict[str, frozenset[PartitionKey]]:
    table.compute(assignor, list(members.items()), TOPICS)
    return {slot: table.of(slot) for slot in members}


def check(assignor: str, before: dict[str, Subscription], members: dict[str, Subscription]) -> None:
    table = TargetTable()
    computed(table, assignor, before)
    target = computed(table, assignor, members)
    for slot, held in target.items():
        assert held <= wanted(members[slot]), "a partition outside its bands"
        assert all(table.slot_of(partition) == slot for partition in held)
    owners = Counter(partition for held in target.values() for partition in held)
    asked_for = {partition for subscription in members.values() for partition in wanted(subscription)}
    assert owners == Counter(asked_for), "an orphan, or a partition with two owners"


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(before=MEMBERS, members=MEMBERS)
def test_partitions_of_subscribed_bands_are_assigned_once_and_within_the_bands(
    assignor: str, before: dict[str, Subscription], members: dict[str, Subscription]
) -> None:
    check(assignor, before, members)


@given(members=MEMBERS)
def test_sticky_stays_where_nothing_has_changed_also_over_a_restart(members: dict[str, Subscription]) -> None:
    before = computed(TargetTable(), "sticky", members)
    table = TargetTable()
    for slot, held in before.items():
        table.remember(slot, held)
    assert computed(table, "sticky", members) == before
    assert not table.compute("sticky", list(members.items()), TOPICS), "nothing has changed"


@given(members=MEMBERS, gone=st.integers(0, 6))
def test_sticky_takes_from_nobody_when_a_member_goes(members: dict[str, Subscription], gone: int) -> None:
    """All members subscribe alike: otherwise one that goes may let the others be leveled anew."""
    alike = dict.fromkeys(members, Subscription(("a", "b"), bands=("hot", "cold")))
    table = TargetTable()
    before = computed(table, "sticky", alike)
    left = {slot: each for slot, each in alike.items() if slot != f"m:{gone}"}
    after = computed(table, "sticky", left)
    assert all(before[slot] <= after[slot] for slot in left)
    loads = [len(held) for held in after.values()]
    assert not loads or max(loads) - min(loads) <= 1


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_of_one_group_may_serve_different_bands(assignor: str) -> None:
    members = {
        "hot": Subscription(("a",), bands=("hot",)),
        "cold-1": Subscription(("a",), bands=("cold",)),
        "cold-2": Subscription(("a",), bands=("cold",)),
    }
    target = computed(TargetTable(), assignor, members)
    numbers = {slot: sorted(partition.partition for partition in held) for slot, held in target.items()}
    assert numbers["hot"] == [0]
    assert sorted(numbers["cold-1"] + numbers["cold-2"]) == list(range(3, 11)), "and nobody has warm, 1 and 2"
    assert len(numbers["cold-1"]) == len(numbers["cold-2"]) == 4


def test_range_shares_each_band() -> None:
    members = dict.fromkeys(("x", "y"), Subscription(("a",)))
    target = computed(TargetTable(), "range", members)
    numbers = {slot: sorted(partition.partition for partition in held) for slot, held in target.items()}
    assert numbers == {"x": [0, 1, 3, 4, 5, 6], "y": [2, 7, 8, 9, 10]}


def test_a_partition_counted_in_the_topic_instead_of_the_band_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: the place within the band is taken for the number of the partition."""
    members = {"x": Subscription(("a",), bands=("cold",))}
    check("sticky", {}, members)

    def in_topic(self: parts.BandTopics, partition: PartitionKey) -> PartitionKey:
        return PartitionKey(TopicId(partition.topic_id[:16]), partition.partition)

    monkeypatch.setattr(parts.BandTopics, "_in_topic", in_topic)
    with pytest.raises(AssertionError, match="outside its bands"):
        check("sticky", {}, members)


@pytest.mark.parametrize("bands", [("",), ("hot", "a b"), ("x" * 65,), ("hot:1",), tuple(map(str, range(101)))])
def test_names_that_no_band_can_have_are_refused(bands: Collection[str]) -> None:
    with pytest.raises(InvalidRequestError, match="band"):
        Subscription(("a",), bands=tuple(bands)).check()
    Subscription(("a",), bands=("hot", "not-there-yet")).check()
