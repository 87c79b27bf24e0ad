"""Who shall hold which partition: the target of one group, computed by an assignor. Members stand in it by slot."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from logbroker.consumer_groups.assignors import ASSIGNORS, AssignableTopic, Subscriber
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.types import PartitionKey

_NOTHING: Final[frozenset[PartitionKey]] = frozenset()


class TargetTable:
    """The target, both ways round."""

    def __init__(self) -> None:
        self._partitions: dict[str, frozenset[PartitionKey]] = {}
        self._slots: dict[PartitionKey, str] = {}
        self._basis: object = None

    def of(self, slot: str) -> frozenset[PartitionKey]:
        return self._partitions.get(slot, _NOTHING)

    def slot_of(self, partition: PartitionKey) -> str | None:
        return self._slots.get(partition)

    def remember(self, slot: str, partitions: frozenset[PartitionKey]) -> None:
        """After a restart: what was held stands for the target before."""
        self._partitions[slot] = partitions

    def compute(
        self,
        assignor: str,
        subscriptions: Collection[tuple[str, Subscription]],
        topics: Mapping[str, AssignableTopic],
    ) -> bool:
        """Assign the topics to slots by their subscriptions; False: nothing that matters has changed."""
        resolved: dict[Subscription, frozenset[str]] = {}
        subscribers = []
        for slot, subscription in subscriptions:
            names = resolved.get(subscription)
            if names is None:
                names = resolved[subscription] = subscription.resolve(topics)
            subscribers.append(Subscriber(slot, names))
        subscribed = [topics[name] for name in frozenset[str]().union(*resolved.values())]
        basis = (assignor, frozenset(subscribers), frozenset(subscribed))
        if basis == self._basis:
            return False
        self._basis = basis
        target = ASSIGNORS[assignor](subscribers, subscribed, self._partitions)
        self._partitions = {slot: frozenset(partitions) for slot, partitions in target.items()}
        self._slots = {partition: slot for slot, partitions in target.items() for partition in partitions}
        return True
