"""The target of one group, computed by an assignor: the member that shall hold each partition. A member is named by its
slot: its instance id if it is static, otherwise its member id."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from logbroker.consumer_groups.assignors import ASSIGNORS, AssignableTopic, Subscriber
from logbroker.consumer_groups.band_topics import BandTopics
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.types import PartitionKey

_NOTHING: Final[frozenset[PartitionKey]] = frozenset()


class TargetTable:
    """The target in both directions: partitions by slot, and slots by partition."""

    def __init__(self) -> None:
        self._partitions: dict[str, frozenset[PartitionKey]] = {}
        self._slots: dict[PartitionKey, str] = {}
        self._basis: object = None

    def of(self, slot: str) -> frozenset[PartitionKey]:
        return self._partitions.get(slot, _NOTHING)

    def slot_of(self, partition: PartitionKey) -> str | None:
        return self._slots.get(partition)

    def remember(self, slot: str, partitions: frozenset[PartitionKey]) -> None:
        """Use the partitions held before a restart in place of the previous target."""
        self._partitions[slot] = partitions

    def compute(
        self,
        assignor: str,
        subscriptions: Collection[tuple[str, Subscription]],
        topics: Mapping[str, AssignableTopic],
    ) -> bool:
        """Assign the topics to slots by their subscriptions. Return False if nothing relevant has changed."""
        resolved = {subscription: subscription.resolve(topics) for subscription in {each for _, each in subscriptions}}
        parts = BandTopics(topics[name] for name in frozenset[str]().union(*resolved.values()))
        wanted = {
            subscription: list(parts.named(names, subscription.bands)) for subscription, names in resolved.items()
        }
        names = {subscription: frozenset(part.name for part in wished) for subscription, wished in wanted.items()}
        subscribers = [Subscriber(slot, names[subscription]) for slot, subscription in subscriptions]
        subscribed = {part for wished in wanted.values() for part in wished}
        basis = (assignor, frozenset(subscribers), frozenset(subscribed))
        if basis == self._basis:
            return False
        self._basis = basis
        target = ASSIGNORS[assignor](subscribers, subscribed, parts.into(self._partitions))
        self._partitions = parts.out_of(target)
        self._slots = {partition: slot for slot, held in self._partitions.items() for partition in held}
        return True
