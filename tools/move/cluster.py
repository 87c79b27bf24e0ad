"""The cluster that a data directory is moved to, in the hands of this process alone: it is a gateway that serves no
groups."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from logbroker.broker.cluster_engine.engine import ClusterEngine
from logbroker.broker.cluster_engine.homes import ClusterHomes
from logbroker.broker.cluster_engine.lifetime import open_cluster_engine
from logbroker.broker.cluster_engine.ownership.gateways import ALIVE_SECONDS, HEARTBEAT_SECONDS
from logbroker.broker.homes import Home
from logbroker.clock import SystemClock
from logbroker.config import MIB, BrokerConfig
from logbroker.engine import LogEngine, StateStore
from logbroker.errors import InvalidRequestError, StaleOwnerError

_IN_FLIGHT_BYTES: Final = 256 * MIB
_MAX_NAMES: Final = 5


class _IdleHome(Home):
    """A home whose groups nobody serves."""

    def __init__(self) -> None:
        """Begin without groups."""

    def freeze(self) -> None:
        pass

    def move(self, error: StaleOwnerError) -> None:
        pass


class Cluster:
    """The log and the state of a cluster."""

    def __init__(self, engine: ClusterEngine) -> None:
        self.engine = engine
        self.homes: list[tuple[StateStore, Callable[[str], bool]]] = []
        """The store of each home, and what tells whether a group id belongs there."""

    def store_of(self, group_id: str) -> StateStore:
        """Return the store that has the state of a group. Raises StaleOwnerError."""
        for store, is_at_home in self.homes:
            if is_at_home(group_id):
                return store
        raise StaleOwnerError("another gateway has taken over a part of the state: stop it, then move again")


@asynccontextmanager
async def open_cluster(addresses: str) -> AsyncIterator[Cluster]:
    """Connect to a cluster, and own its whole state. Raises InvalidRequestError if a gateway serves it, or
    BrokerUnavailableError."""
    homes: list[tuple[StateStore, Callable[[str], bool]]] = []

    @asynccontextmanager
    async def open_home(engine: LogEngine, store: StateStore, is_at_home: Callable[[str], bool]) -> AsyncIterator[Home]:
        home = store, is_at_home
        homes.append(home)
        try:
            yield _IdleHome()
        finally:
            homes.remove(home)

    config = BrokerConfig(cluster=addresses, max_produce_bytes_in_flight=_IN_FLIGHT_BYTES)
    async with open_cluster_engine(config, SystemClock(), open_home) as (engine, gateways):
        # A gateway that is alive writes a heartbeat meanwhile. What was read so far may be old.
        await asyncio.sleep(ALIVE_SECONDS + HEARTBEAT_SECONDS)
        _check_alone(gateways)
        # The name leads nowhere: nobody can reach this gateway.
        await gateways.join(f"move-{os.getpid()}.invalid:1")
        # One that died just before counts as alive once more: time in which nobody wrote heartbeats does not count.
        await asyncio.sleep(ALIVE_SECONDS + HEARTBEAT_SECONDS)
        _check_alone(gateways)
        await gateways.settled()
        cluster = Cluster(engine)
        cluster.homes = homes
        yield cluster


def _check_alone(gateways: ClusterHomes) -> None:
    if others := gateways.others():
        raise InvalidRequestError(
            f"gateways serve the cluster ({', '.join(others[:_MAX_NAMES])}): stop them, move, then start them again"
        )
