"""Who shall read which partition: the assignors, pure functions from subscriptions to a target.

Every partition of a topic that somebody subscribes to is given to exactly one of its subscribers; a topic without
subscribers is left out. The result depends on nothing but the arguments, not even on their order: subscribers count in
the order of their keys, topics in that of their names.

- `range`: topic by topic, neighbouring partitions to a member, so that equal numbers of equally cut topics meet in one
  member (Kafka's RangeAssignor).
- `round_robin`: all partitions of all topics are dealt in turn to the subscribers, who are skipped where they do not
  subscribe (Kafka's RoundRobinAssignor).
- `sticky` (default): balanced, and whoever has a partition keeps it where balance allows; `sticky_assignor` tells more.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from logbroker.consumer_groups.leveling import level
from logbroker.record.bands import Band
from logbroker.types import PartitionKey, TopicId


class AssignableTopic(NamedTuple):
    """A topic, as far as assignment goes."""

    name: str
    topic_id: TopicId
    partitions: int
    bands: tuple[Band, ...] = ()
    """Those with partitions of their own; the assignors get them one by one, see `parts`."""


class Subscriber(NamedTuple):
    """A member, as far as assignment goes."""

    key: str
    """Unique; the same before and after a restart of the member where that shall change nothing."""
    topics: frozenset[str]
    """Names; those that do not exist are passed over."""


Target = dict[str, list[PartitionKey]]
"""Partitions by the keys of the subscribers: every subscriber is there, and every partition at most once."""


class Assignor(Protocol):
    """One way to assign. Each call may take O(subscribers + partitions), and the size of differing subscriptions."""

    def __call__(
        self,
        subscribers: Collection[Subscriber],
        topics: Collection[AssignableTopic],
        previous: Mapping[str, Collection[PartitionKey]],
    ) -> Target:
        """Return the new target; `previous` is the one before, by the same keys, perhaps with gone ones in it."""
        ...


def range_assignor(
    subscribers: Collection[Subscriber],
    topics: Collection[AssignableTopic],
    previous: Mapping[str, Collection[PartitionKey]],
) -> Target:
    """Give each subscriber of a topic a run of its partitions; the first ones get one more where it does not divide."""
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
        # The next in turn among the subscribers of this topic: found once, then it goes round them.
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

    Where all subscribe to the same topics, no two loads differ by more than one, and no assignment that is so balanced
    keeps more partitions where they were. Where subscriptions differ, everybody keeps what it had, free partitions go
    to the least loaded subscriber (topics with few subscribers first), and then partitions move from more to less
    loaded subscribers of their topic while that narrows a gap of two or more (`leveling`): greedy, so a balance that
    only a chain of moves could reach is not found.
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
    """All may have everything: cut who has too much down to its quota, then fill up."""
    quota, extra = divmod(sum(topic.partitions for topic in topics), len(target))
    # The quotas that are one higher go to those who have most: a move less each.
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
    """Who may have what differs: fill up greedily, then level topic by topic."""
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
