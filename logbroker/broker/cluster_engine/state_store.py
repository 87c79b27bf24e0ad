"""The state of groups and queue groups, stored in a compacted topic of the cluster.

Why compacted, and not snapshots with deltas: the rows of a group are upserts under stable keys already, so the last
record of each key is the state, and the cluster drops the others by itself.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from logbroker.broker.cluster_engine.codes import TOPIC_ALREADY_EXISTS
from logbroker.broker.cluster_engine.link import ClusterLink, PassingError, check
from logbroker.broker.cluster_engine.numbers import ClusterNumbers
from logbroker.broker.cluster_engine.state_partition import MAX_COMMIT_BYTES, OPEN_SECONDS, StatePartition
from logbroker.broker.cluster_engine.state_rows import records_of, scope_prefix
from logbroker.engine import DiskUse, StateEvent
from logbroker.errors import LogbrokerError
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
CONFIRMED_BY: Final = 0
"""The partition by which the owner confirms that it still is the owner. Who takes over claims all of them."""
CONFIRM_SECONDS: Final = 0.5
LEASE_SECONDS: Final = 2.0
UNDER_WAY_SECONDS: Final = 3.0
"""The time after which an append that was sent has arrived, or never will. A network may break this: no time is long
enough for a connection that stands still and goes on later."""


class Ownership:
    """How sure this gateway is that no other one has taken over.

    An owner writes to its state every CONFIRM_SECONDS. It appends to topics only if it began such a write less than
    LEASE_SECONDS ago that succeeded, because topics themselves know no owner. Who takes over waits until that time and
    that of the requests under way is over, before it changes what an append of the earlier owner could break.
    """

    def __init__(self) -> None:
        self._confirmed_at = -math.inf
        self.lost: LogbrokerError | None = None
        """The error after which this gateway appends nothing any more; None: there was none."""
        self.alone_from = math.inf
        """Time from which no append of an earlier owner can arrive any more (monotonic seconds)."""

    @property
    def is_taken(self) -> bool:
        """Whether this gateway has claimed all of the state."""
        return self.alone_from < math.inf

    def taken(self) -> None:
        """Note that this gateway has claimed the state."""
        self._confirmed_at = monotonic()
        self.alone_from = self._confirmed_at + LEASE_SECONDS + UNDER_WAY_SECONDS

    def confirmed(self, begun_at: float) -> None:
        """Note that a write that began at a time has succeeded."""
        self._confirmed_at = max(self._confirmed_at, begun_at)

    def check(self) -> None:
        """Raise the error after which nothing may be appended, or PassingError if that is not known now."""
        if self.lost is not None:
            raise self.lost.anew()
        if monotonic() - self._confirmed_at >= LEASE_SECONDS:
            raise PassingError("it is not known whether another gateway has taken over")


class ClusterStateStore:
    """The `logbroker.engine.StateStore` of this engine. The home of a scope is the partition murmur2(scope) mod N."""

    def __init__(self, link: ClusterLink, owner: str, on_lost: Callable[[LogbrokerError], None]) -> None:
        """For `owner` and `on_lost` see `StatePartition`."""
        self._link = link
        self._owner = owner
        self._on_lost = on_lost
        self._partitions: list[StatePartition] = []
        self.ownership = Ownership()
        self.numbers: ClusterNumbers

    async def open(self) -> None:
        """Create the topic if it does not exist, and take over all its partitions.

        Raises StaleOwnerError, BrokerUnavailableError or CorruptLogError.
        """
        count = await self._link.persist(self._partition_count, seconds=OPEN_SECONDS)
        self._partitions = [
            StatePartition(self._link, STATE_TOPIC, number, self._owner, self._lost, self._check_owner(number))
            for number in range(count)
        ]
        await asyncio.gather(*(partition.open() for partition in self._partitions))
        self.ownership.taken()
        self.numbers = await ClusterNumbers.open(self)

    def _check_owner(self, number: int) -> Callable[[], None]:
        """Return the check before a write to a partition. The cluster refuses what an earlier owner writes, unless it
        has forgotten a transactional id; so all depend on the partition by which the ownership is confirmed."""

        def check_owner() -> None:
            if number != CONFIRMED_BY and self.ownership.is_taken:
                self.ownership.check()

        return check_owner

    def _lost(self, error: LogbrokerError) -> None:
        if self.ownership.lost is None:
            self.ownership.lost = error
            self._on_lost(error)

    async def run(self) -> None:
        """Confirm the ownership, on and on."""
        while self.ownership.lost is None:
            begun_at = monotonic()
            try:
                await self._partitions[CONFIRMED_BY].confirm()
                self.ownership.confirmed(begun_at)
            except LogbrokerError:
                return  # `_lost` was called.
            await asyncio.sleep(CONFIRM_SECONDS)

    async def close(self) -> None:
        """Wait for the commits under way."""
        await asyncio.gather(*(partition.close() for partition in self._partitions))

    async def _partition_count(self) -> int:
        topic = self._link.topics.get(STATE_TOPIC)
        if topic is None:
            await self._create()
            raise PassingError(f"{STATE_TOPIC} was created just now")
        return len(topic.partitions)

    async def _create(self) -> None:
        configs = {"cleanup.policy": "compact", "max.message.bytes": str(MAX_COMMIT_BYTES)}
        configs |= self._link.safety_configs()
        topic = CreateTopicsRequestCreatableTopic(
            name=STATE_TOPIC,
            num_partitions=STATE_PARTITIONS,
            replication_factor=self._link.replication_factor(),
            configs=[CreateTopicsRequestCreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=CREATE_TIMEOUT_MS)
        answer = await self._link.ask(self._link.controller, CREATE_TOPICS, request)
        [found] = answer.topics
        if found.error_code != TOPIC_ALREADY_EXISTS:
            check(found.error_code, f"the creation of {STATE_TOPIC}")

    def _home(self, scope: str) -> StatePartition:
        return self._partitions[murmur2(scope_prefix(scope)) % len(self._partitions)]

    def check_room(self, use: DiskUse = DiskUse.USES_RESERVE) -> None:
        """Room is the cluster's affair: a full node refuses commits."""

    async def load(self, scope: str) -> dict[bytes, bytes]:
        return self._home(scope).rows.of(scope)

    async def commit(self, scope: str, events: Sequence[StateEvent]) -> None:
        if events:
            await self._home(scope).commit(records_of(scope, events))
