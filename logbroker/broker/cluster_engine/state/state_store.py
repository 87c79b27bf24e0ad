"""The state of groups and queue groups, stored in a compacted topic of the cluster.

Each partition of the topic is a home: the state of all groups whose ids hash to it. A gateway that has a home writes to
it, and no other one does.

Why compacted, and not snapshots with deltas: the rows of a group are upserts under stable keys already, so the last
record of each key is the state, and the cluster drops the others by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logbroker.broker.cluster_engine.connection.codes import TOPIC_ALREADY_EXISTS
from logbroker.broker.cluster_engine.connection.link import ClusterLink, PassingError, check
from logbroker.broker.cluster_engine.state.numbers import ClusterNumbers
from logbroker.broker.cluster_engine.state.state_partition import MAX_COMMIT_BYTES, OPEN_SECONDS, StatePartition
from logbroker.broker.cluster_engine.state.state_rows import records_of, scope_prefix
from logbroker.engine import DiskUse, StateEvent
from logbroker.group_runtime.group_store import GROUP_SCOPE
from logbroker.kafka_wire.apis import CREATE_TOPICS
from logbroker.kafka_wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsRequestCreatableTopicConfig,
)
from logbroker.record.partitioner import murmur2

STATE_TOPIC: Final = "__logbroker_state"
STATE_PARTITIONS: Final = 50
CREATE_TIMEOUT_MS: Final = 10_000
SEGMENT_MS: Final = 3_600_000
"""Only closed segments are compacted, and each gateway writes some heartbeats a second."""


def home_of(group_id: str, homes: int) -> int:
    """Return the number of a group's home: murmur2 of the scope of its rows, modulo the number of homes."""
    return murmur2(scope_prefix(GROUP_SCOPE + group_id)) % homes


class HomeStore:
    """The `logbroker.engine.StateStore` of one home."""

    numbers: ClusterNumbers

    def __init__(self, partition: StatePartition) -> None:
        self._partition = partition

    @classmethod
    async def open(cls, partition: StatePartition) -> HomeStore:
        """Return the store of a partition that is open."""
        store = cls(partition)
        store.numbers = await ClusterNumbers.open(store)
        return store

    def check_room(self, use: DiskUse = DiskUse.USES_RESERVE) -> None:
        """Room is the cluster's affair: a full node refuses commits."""

    async def load(self, scope: str) -> dict[bytes, bytes]:
        return self._partition.rows.of(scope)

    async def commit(self, scope: str, events: Sequence[StateEvent]) -> None:
        if events:
            await self._partition.commit(records_of(scope, events))


async def open_state_topic(link: ClusterLink) -> int:
    """Create the topic if it does not exist, and return how many partitions it has. Raises BrokerUnavailableError."""

    async def attempt() -> int:
        topic = link.topics.get(STATE_TOPIC)
        if topic is None:
            await _create(link)
            raise PassingError(f"{STATE_TOPIC} was created just now")
        return len(topic.partitions)

    return await link.persist(attempt, seconds=OPEN_SECONDS)


async def _create(link: ClusterLink) -> None:
    configs = {"cleanup.policy": "compact", "max.message.bytes": str(MAX_COMMIT_BYTES), "segment.ms": str(SEGMENT_MS)}
    configs |= link.safety_configs()
    topic = CreateTopicsRequestCreatableTopic(
        name=STATE_TOPIC,
        num_partitions=STATE_PARTITIONS,
        replication_factor=link.replication_factor(),
        configs=[CreateTopicsRequestCreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=CREATE_TIMEOUT_MS)
    answer = await link.ask(link.controller, CREATE_TOPICS, request)
    [found] = answer.topics
    if found.error_code != TOPIC_ALREADY_EXISTS:
        check(found.error_code, f"the creation of {STATE_TOPIC}")
