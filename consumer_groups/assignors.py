"""The assignors: pure functions that compute from the subscriptions which member reads which partition (the target).

Each partition of a topic with subscribers is given to exactly one of them. Topics without subscribers are left out. The
result depends only on the arguments, and not on their order: subscribers are taken in the order of their keys, topics
in the order of their names.

- `range`: topic by topic, a range of adjacent partitions to each member, so that topics with equal partition counts
  give equal partition numbers to the same member (Kafka's RangeAssignor).
- `round_robin`: all partitions of all topics are dealt in turn to the subscribers, skipping those that do not subscribe
  to the topic (Kafka's RoundRobinAssignor).
- `sticky` (default): balanced, and partitions stay where they are as far as balance allows; see `sticky_assignor`.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from logbroker.consumer_groups.leveling import level
from logbroker.record.bands import Band
from logbroker.types import PartitionKey, TopicId


class AssignableTopic(NamedTuple):
    """The facts of a topic that assignment needs."""

    name: str
    topic_id: TopicId
    partitions: int
    bands: tuple[Band, ...] = ()
    """Bands with their own partitions. The assignors get each band as a topic of its own, see `band_topics`."""


class Subscriber(NamedTuple):
    """The facts of a member that assignment needs."""

    key: str
    """Unique. It stays the same when a static member restarts."""
    topics: frozenset[str]
    """Topic names. Names of topics that do not exist are ignored."""


Target = dict[str, list[PartitionKey]]
"""Partitions by the keys of the subscribers. Each subscriber has an entry, and each partition occurs at most once."""


class Assignor(Protocol):
    """A function that assigns partitions. A call may take O(n log n), where n is the number of the subscribers, of
    their topics (summed over all subscribers) and of the partitions together."""

    def __call__(
        self,
        subscribers: Collection[Subscriber],
        topics: Collection[AssignableTopic],
        previous: Mapping[str, Collection[PartitionKey]],
    ) -> Target:
        """Return the new target. `previous` is the previous target, by the same keys. It may contain keys and
        partitions that are gone."""
        ...


def range_assignor(
    subscribers: Collection[Subscriber],
    topics: Collection[AssignableTopic],
    previous: Mapping[str, Collection[PartitionKey]],
) -> Target:
    """Give each subscriber of a topic a range of its partitions. The first subscribers get one partition more if the
    division leaves a remainder."""
    target: Target = {key: [] for key in sorted(subscriber.key for subscriber in subscribers)}
    keys_by_topic = subscribers_by_topic(subscribers)
    for topic in _subscribed(topics, keys_by_topic):
        keys = keys_by_topic[topic.name]
        quota, extra = divmod(topic.partitions, len(keys))
        start = 0
        for place, key in enumerate(keys):
            end = start + quota + (place < extra)
            target[key] += [PartitionKey(topic.topic_id, partition) for partition in range(start, end)]
            start = end
    return target


def round_robin_assignor(
    subscribers: Collection[Subscriber],
    topics: Collection[AssignableTopic],
    previous: Mapping[str, Collection[PartitionKey]],
) -> Target:
    """Deal the partitions of all topics in turn."""
    ordered = sorted(subscribers)
    target: Target = {subscriber.key: [] for subscriber in ordered}
    keys_by_topic = subscribers_by_topic(subscribers)
    place_of = {subscriber.key: place for place, subscriber in enumerate(ordered)}
    place = 0
    for topic in _subscribed(topics, keys_by_topic):
        # Find the next subscriber of this topic once, then take its subscribers in turn.
        keys = keys_by_topic[topic.name]
        turn = next((turn for turn, key in enumerate(keys) if place_of[key] >= place), 0)
        for partition in range(topic.partitions):
            target[keys[(turn + partition) % len(keys)]].append(PartitionKey(topic.topic_id, partition))
        place = place_of[keys[(turn + topic.partitions - 1) % len(keys)]] + 1
    return target


def sticky_assignor(
    subscribers: Collection[Subscriber],
    topics: Collection[AssignableTopic],
    previous: Mapping[str, Collection[PartitionKey]],
) -> Target:
    """Balance with few moves.

    If all subscribe to the same topics, no two loads differ by more than one, and no assignment with this balance keeps
    more partitions in place. If subscriptions differ, all subscribers keep what they had. Free partitions then go to
    the least loaded subscriber (topics with few subscribers first). After that, partitions move from more to less
    loaded subscribers of their topic while this narrows a gap of two or more (`leveling`). This is greedy, so it does
    not find a balance that needs a chain of moves.
    """
    ordered = sorted(subscribers)
    existing = {topic.topic_id: topic for topic in topics}
    target: Target = {}
    taken: set[PartitionKey] = set()
    for subscriber in ordered:
        kept = target[subscriber.key] = []
        for partition in sorted(previous.get(subscriber.key, ())):
            topic = existing.get(partition.topic_id)
            if (
                topic is not None
                and partition.partition < topic.partitions
                and topic.name in subscriber.topics
                and partition not in taken
            ):
                taken.add(partition)
                kept.append(partition)
    keys_by_topic = subscribers_by_topic(ordered)
    subscribed = _subscribed(topics, keys_by_topic)
    if not subscribed:
        return target
    if all(len(keys_by_topic[topic.name]) == len(ordered) for topic in subscribed):
        _level_alike(target, subscribed, taken)
    else:
        _level_unlike(target, subscribed, taken, keys_by_topic)
    return target


def _level_alike(target: Target, topics: Iterable[AssignableTopic], taken: set[PartitionKey]) -> None:
    """Level subscribers that all subscribe to all topics: reduce each to its quota, then give out the free
    partitions."""
    quota, extra = divmod(sum(topic.partitions for topic in topics), len(target))
    # The most loaded subscribers get the quotas that are one higher, which saves a move each.
    by_load = sorted(target, key=lambda key: (-len(target[key]), key))
    quotas = {key: quota + (place < extra) for place, key in enumerate(by_load)}
    for key, kept in target.items():
        taken.difference_update(kept[quotas[key] :])
        del kept[quotas[key] :]
    loads = [(len(kept), key) for key, kept in sorted(target.items()) if len(kept) < quotas[key]]
    heapq.heapify(loads)
    for partition in _free(topics, taken):
        load, key = loads[0]
        target[key].append(partition)
        if load + 1 < quotas[key]:
            heapq.heapreplace(loads, (load + 1, key))
        else:
            heapq.heappop(loads)


def _level_unlike(
    target: Target,
    topics: Sequence[AssignableTopic],
    taken: set[PartitionKey],
    keys_by_topic: Mapping[str, Sequence[str]],
) -> None:
    """Level subscribers with different subscriptions: give out the free partitions greedily, then level topic by
    topic."""
    chosen_first = sorted(topics, key=lambda topic: (len(keys_by_topic[topic.name]), topic.name))
    for topic in chosen_first:
        free = _free((topic,), taken)
        if not free:
            continue
        loads = [(len(target[key]), key) for key in keys_by_topic[topic.name]]
        heapq.heapify(loads)
        for partition in free:
            load, key = loads[0]
            target[key].append(partition)
            heapq.heapreplace(loads, (load + 1, key))
    level(target, [(topic.topic_id, keys_by_topic[topic.name]) for topic in chosen_first])


def _free(topics: Iterable[AssignableTopic], taken: set[PartitionKey]) -> list[PartitionKey]:
    return [
        key
        for topic in topics
        for partition in range(topic.partitions)
        if (key := PartitionKey(topic.topic_id, partition)) not in taken
    ]


def _subscribed(topics: Iterable[AssignableTopic], keys_by_topic: Mapping[str, Sequence[str]]) -> list[AssignableTopic]:
    return sorted(topic for topic in topics if topic.name in keys_by_topic)


def subscribers_by_topic(subscribers: Iterable[Subscriber]) -> dict[str, list[str]]:
    """Return the keys of the subscribers of each topic, sorted."""
    keys: dict[str, list[str]] = {}
    for subscriber in sorted(subscribers):
        for name in subscriber.topics:
            keys.setdefault(name, []).append(subscriber.key)
    return keys


DEFAULT_ASSIGNOR: Final = "sticky"
ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "range": range_assignor,
    "round_robin": round_robin_assignor,
    "sticky": sticky_assignor,
}
