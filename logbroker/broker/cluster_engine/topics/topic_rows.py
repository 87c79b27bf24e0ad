"""The rows of topics: all gateways read them, and the owner of home 0 writes them.

A row has what the cluster has no place for: generations, and the configs of this project.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Final

import msgspec

from logbroker.broker.cluster_engine.ownership.membership import SHARED_PARTITION, TOPICS, GatewayMembership
from logbroker.broker.cluster_engine.state.state_partition import StatePartition
from logbroker.broker.cluster_engine.state.state_rows import records_of
from logbroker.engine import LogGeneration, StateEvent, Topic
from logbroker.errors import StaleOwnerError

KNOWN_SECONDS: Final = 3.0
"""The time for which a change of a topic waits until all gateways know it. One that does not answer is dead by then."""
OWN_CONFIGS: Final = frozenset({"durability", "priority.bands", "priority.routing", "retention.hold.bytes"})
"""Configs that the cluster does not know."""


class ClusterTopicRow(msgspec.Struct):
    """The value of a row, under the id of its topic."""

    own_configs: dict[str, str]
    generations: list[LogGeneration]
    created_at_ms: int
    is_growing: bool = False
    """Whether no gateway may append keyed records of the last of these generations any more."""

    @property
    def generation(self) -> int:
        """The generation that keyed appends must carry."""
        return self.generations[-1].generation + self.is_growing


def row_of(topic: Topic, *, is_growing: bool = False) -> bytes:
    own = {name: text for name, text in topic.overrides.items() if name in OWN_CONFIGS}
    return msgspec.msgpack.encode(ClusterTopicRow(own, list(topic.generations), topic.created_at_ms, is_growing))


class TopicRows:
    """The rows as this gateway knows them."""

    def __init__(self, membership: GatewayMembership) -> None:
        self._membership = membership
        self._written: StatePartition | None = None
        """The partition of the state that has the rows, if this gateway has it; None: it does not."""

    @property
    def is_owner(self) -> bool:
        """Whether this gateway is the one that changes topics."""
        return self._written is not None and self._written.lost is None

    def owned(self, partition: StatePartition | None) -> None:
        """Note that this gateway has home 0, or that it has it no more."""
        self._written = partition

    def owner_address(self) -> str:
        """Return HOST:PORT of the gateway that changes topics, if it is another one and known, else ""."""
        gateways = self._membership.gateways
        owner = gateways.owner(SHARED_PARTITION, monotonic())
        return "" if owner == gateways.own_id else gateways.address(owner)

    def check_owner(self) -> None:
        """Raise StaleOwnerError if another gateway changes topics."""
        if not self.is_owner:
            raise StaleOwnerError("another gateway changes topics").owned_by(self.owner_address())

    def all(self) -> Mapping[bytes, bytes]:
        """Return the rows by their keys."""
        found = self._written if self.is_owner else None
        return (self._membership.rows if found is None else found.rows).of(TOPICS)

    def followed(self) -> Mapping[bytes, bytes]:
        """Return the rows as partition 0 has them, as far as it was read."""
        return self._membership.rows.of(TOPICS)

    async def known_to_all(self) -> None:
        """Return when all gateways know what this one has committed, or after KNOWN_SECONDS."""
        if self._written is not None:
            await self._membership.taken_in_by_all(self._written.last_offset, seconds=KNOWN_SECONDS)

    async def commit(self, *rows: tuple[bytes, bytes | None]) -> None:
        """Store rows, or remove those that are None. Raises StaleOwnerError."""
        self.check_owner()
        assert self._written is not None
        await self._written.commit(records_of(TOPICS, [StateEvent(key, value) for key, value in rows]))
