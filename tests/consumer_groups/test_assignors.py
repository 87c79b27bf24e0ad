"""Properties of the assignors: complete, balanced, few moves, and the same whatever the order of the arguments."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.consumer_groups.assignors import (
    ASSIGNORS,
    AssignableTopic,
    Subscriber,
    Target,
    range_assignor,
    round_robin_assignor,
    sticky_assignor,
)
from logbroker.types import PartitionKey, TopicId

NAMES = "abcde"


def topic(name: str, partitions: int) -> AssignableTopic:
    # Ids in another order than the names: nothing may lean on theirs being the same.
    return AssignableTopic(name, TopicId(bytes([255 - ord(name)]) * 16), partitions)


def partitions_of(topics: Collection[AssignableTopic]) -> set[PartitionKey]:
    return {PartitionKey(each.topic_id, partition) for each in topics for partition in range(each.partitions)}


def named(target: Target, topics: Collection[AssignableTopic]) -> dict[str, list[str]]:
    """Write a target as Kafka's documentation does: {"C0": ["t0-0", ...]}."""
    names = {each.topic_id: each.name for each in topics}
    return {
        key: [f"{names[held.topic_id]}{held.partition}" for held in sorted_by_name(partitions, names)]
        for key, partitions in target.items()
    }


def sorted_by_name(partitions: Collection[PartitionKey], names: Mapping[TopicId, str]) -> list[PartitionKey]:
    return sorted(partitions, key=lambda held: (names[held.topic_id], held.partition))


topics_strategy = st.lists(
    st.builds(topic, st.sampled_from(NAMES), st.integers(1, 9)), unique_by=lambda each: each.name, max_size=5
)
keys_strategy = st.lists(st.sampled_from([f"m:{number}" for number in range(9)]), unique=True, max_size=9)


@st.composite
def subscribers_strategy(draw: st.DrawFn) -> list[Subscriber]:
    return [Subscriber(key, draw(st.frozensets(st.sampled_from(NAMES + "?")))) for key in draw(keys_strategy)]


@st.composite
def previous_strategy(draw: st.DrawFn) -> dict[str, list[PartitionKey]]:
    """Anything that could have been: gone members, gone topics, partitions over the count, unequal loads."""
    all_partitions = sorted(partitions_of([topic(name, 10) for name in NAMES]))
    keys = draw(keys_strategy) or ["m:gone"]
    previous: dict[str, list[PartitionKey]] = {key: [] for key in keys}
    for partition in draw(st.lists(st.sampled_from(all_partitions), unique=True)):
        previous[draw(st.sampled_from(keys))].append(partition)
    return previous


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("name", ASSIGNORS)
@given(topics=topics_strategy, subscribers=subscribers_strategy(), previous=previous_strategy(), seed=st.integers())
def test_every_partition_with_a_subscriber_is_assigned_once_and_to_a_subscriber(
    name: str,
    topics: list[AssignableTopic],
    subscribers: list[Subscriber],
    previous: dict[str, list[PartitionKey]],
    seed: int,
) -> None:
    target = ASSIGNORS[name](subscribers, topics, previous)

    assert target.keys() == {subscriber.key for subscriber in subscribers}
    owners = Counter(partition for held in target.values() for partition in held)
    wanted = {wanted for subscriber in subscribers for wanted in subscriber.topics}
    assert owners == Counter(partitions_of([each for each in topics if each.name in wanted]))
    subscribed = {subscriber.key: subscriber.topics for subscriber in subscribers}
    names = {each.topic_id: each.name for each in topics}
    assert all(names[partition.topic_id] in subscribed[key] for key, held in target.items() for partition in held)

    shuffle = random.Random(seed).shuffle
    shuffled_topics, shuffled_subscribers, items = list(topics), list(subscribers), list(previous.items())
    for each in (shuffled_topics, shuffled_subscribers, items):
        shuffle(each)
    again = ASSIGNORS[name](
        shuffled_subscribers, shuffled_topics, {key: random.Random(seed).sample(held, len(held)) for key, held in items}
    )
    assert again == target


@pytest.mark.parametrize("name", ["round_robin", "sticky"])
@given(topics=topics_strategy, keys=keys_strategy, previous=previous_strategy())
def test_equal_subscribers_differ_by_one_partition_at_most(
    name: str, topics: list[AssignableTopic], keys: list[str], previous: dict[str, list[PartitionKey]]
) -> None:
    subscribers = [Subscriber(key, frozenset(NAMES)) for key in keys]

    loads = [len(held) for held in ASSIGNORS[name](subscribers, topics, previous).values()]

    assert not loads or max(loads) - min(loads) <= 1


@given(topics=topics_strategy, keys=keys_strategy)
def test_range_is_balanced_within_each_topic(topics: list[AssignableTopic], keys: list[str]) -> None:
    target = range_assignor([Subscriber(key, frozenset(NAMES)) for key in keys], topics, {})

    for each in topics:
        loads = [sum(held.topic_id == each.topic_id for held in partitions) for partitions in target.values()]
        assert sorted(loads, reverse=True) == loads
        assert not loads or max(loads) - min(loads) <= 1


@given(topics=topics_strategy, keys=keys_strategy, previous=previous_strategy())
def test_sticky_moves_no_more_than_balance_demands(
    topics: list[AssignableTopic], keys: list[str], previous: dict[str, list[PartitionKey]]
) -> None:
    target = sticky_assignor([Subscriber(key, frozenset(NAMES)) for key in keys], topics, previous)

    if not keys:
        return
    existing = partitions_of(topics)
    held_before = {key: existing.intersection(previous.get(key, ())) for key in keys}
    quota, extra = divmod(len(existing), len(keys))
    # The best that any balanced target can do: `extra` members keep one more, best those that have one more.
    loads = sorted((len(held) for held in held_before.values()), reverse=True)
    fewest_given_up = sum(max(0, load - quota - (place < extra)) for place, load in enumerate(loads))
    given_up = sum(len(held - set(target[key])) for key, held in held_before.items())
    assert given_up == fewest_given_up


@pytest.mark.prove
@given(topics=topics_strategy, subscribers=subscribers_strategy(), previous=previous_strategy())
def test_sticky_stays_where_nothing_has_changed(
    topics: list[AssignableTopic], subscribers: list[Subscriber], previous: dict[str, list[PartitionKey]]
) -> None:
    once = sticky_assignor(subscribers, topics, previous)

    twice = sticky_assignor(subscribers, topics, once)

    assert {key: set(held) for key, held in twice.items()} == {key: set(held) for key, held in once.items()}


@pytest.mark.prove
@given(topics=topics_strategy, subscribers=subscribers_strategy(), previous=previous_strategy())
def test_sticky_leaves_no_gap_that_one_move_would_narrow(
    topics: list[AssignableTopic], subscribers: list[Subscriber], previous: dict[str, list[PartitionKey]]
) -> None:
    target = sticky_assignor(subscribers, topics, previous)

    names = {each.topic_id: each.name for each in topics}
    for giver in subscribers:
        for held in target[giver.key]:
            for taker in subscribers:
                if names[held.topic_id] in taker.topics:
                    assert len(target[giver.key]) - len(target[taker.key]) <= 1


def test_range_as_kafka_documents_it() -> None:
    topics = [topic("a", 3), topic("b", 3)]
    target = range_assignor([Subscriber("C0", frozenset("ab")), Subscriber("C1", frozenset("ab"))], topics, {})

    assert named(target, topics) == {"C0": ["a0", "a1", "b0", "b1"], "C1": ["a2", "b2"]}


def test_round_robin_as_kafka_documents_it() -> None:
    alike = [topic("a", 3), topic("b", 3)]
    both = frozenset("ab")
    target = round_robin_assignor([Subscriber("C0", both), Subscriber("C1", both)], alike, {})
    assert named(target, alike) == {"C0": ["a0", "a2", "b1"], "C1": ["a1", "b0", "b2"]}

    unlike = [topic("a", 1), topic("b", 2), topic("c", 3)]
    target = round_robin_assignor(
        [Subscriber("C0", frozenset("a")), Subscriber("C1", frozenset("ab")), Subscriber("C2", frozenset("abc"))],
        unlike,
        {},
    )
    assert named(target, unlike) == {"C0": ["a0"], "C1": ["b0"], "C2": ["b1", "c0", "c1", "c2"]}


def test_a_new_member_gets_its_share_and_the_others_keep_the_rest() -> None:
    topics = [topic("a", 9)]
    two = sticky_assignor([Subscriber(key, frozenset("a")) for key in "xy"], topics, {})

    three = sticky_assignor([Subscriber(key, frozenset("a")) for key in "xyz"], topics, two)

    assert sorted(len(held) for held in three.values()) == [3, 3, 3]
    assert set(three["x"]) < set(two["x"])
    assert set(three["y"]) < set(two["y"])
