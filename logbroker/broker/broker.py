"""The composition root: one broker, its engine, its state and its groups, opened and closed in one place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from logbroker.broker.homes import Home, Homes, OneHome, Shared, open_home
from logbroker.broker.local_engine.helpers import HELPER_THREADS
from logbroker.broker.local_engine.lifetime import open_engine
from logbroker.broker.read_budget import ReadBudget
from logbroker.clock import Clock, SystemClock
from logbroker.config import BrokerConfig
from logbroker.engine import LogEngine, StateStore
from logbroker.queues.registry import INDEX_DIRECTORY


class Broker:
    """One broker: the parts that the services use."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        engine: LogEngine,
        state: StateStore | None,
        homes: Homes,
    ) -> None:
        self.config = config
        self.clock = clock
        self.engine = engine
        self.state = state
        """The state of the whole broker; None: it is a gateway, and each home has a store of its own."""
        self.homes = homes
        """The consumer groups and queue groups."""
        self.read_budget = ReadBudget(config.max_fetch_bytes_in_flight, config.fetch_memory_wait_seconds)
        """The memory for what readers fetch, through any listener."""
        self.gateways: Callable[[], Sequence[str]] | None = None
        """Returns HOST:PORT of each other gateway of the cluster. None: the broker is not a gateway."""
        self.started_at_ms = clock.wall_ms()


def own_threads(config: BrokerConfig) -> int:
    """Return how many threads a broker may have at once, besides those of the event loop and the server."""
    metadata_writer = 1
    # Recovery has as many threads as the pool that writes and syncs, and runs beside it.
    return 2 * config.sync_threads + HELPER_THREADS + metadata_writer


@asynccontextmanager
async def open_broker(config: BrokerConfig, failure: asyncio.Future[None]) -> AsyncIterator[Broker]:
    """Open a broker on its data directory; `failure` gets the exception when its storage fails.

    Raises DataDirError, CorruptLogError or InvalidConfigError.
    """
    clock = SystemClock()

    def failed(error: Exception) -> None:
        if not failure.done():
            failure.set_exception(error)
            # Mark the error as retrieved, so that asyncio does not log it: an error during the start is raised by
            # `open_broker`, and nobody awaits `failure`.
            failure.exception()

    if config.cluster:
        async with _open_gateway(config, clock) as broker:
            yield broker
        return
    async with (
        open_engine(config, clock, failed, {INDEX_DIRECTORY}) as (engine, state),
        open_home(config, clock, engine, state, Path(config.data_dir), Shared(config)) as home,
    ):
        # All groups have registered what they still need (`LogEngine.hold`).
        engine.start_retention()
        try:
            yield Broker(config, clock, engine, state, OneHome(home))
        finally:
            engine.stop_retention()


@asynccontextmanager
async def _open_gateway(config: BrokerConfig, clock: Clock) -> AsyncIterator[Broker]:
    """Open a broker whose log and state are a cluster's. It has homes once it has joined the other gateways."""
    # Only a gateway loads what it needs.
    from logbroker.broker.cluster_engine.lifetime import open_cluster_engine

    shared = Shared(config)
    with TemporaryDirectory(prefix="logbroker-") as directory:

        def opened(
            engine: LogEngine, store: StateStore, is_at_home: Callable[[str], bool]
        ) -> AbstractAsyncContextManager[Home]:
            return open_home(config, clock, engine, store, Path(directory), shared, is_at_home)

        async with open_cluster_engine(config, clock, opened) as (engine, homes):
            broker = Broker(config, clock, engine, None, homes)
            broker.gateways = homes.others
            yield broker
