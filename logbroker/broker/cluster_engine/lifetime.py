"""Opening and closing of the cluster engine: its parts, and their order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from logbroker.broker.catalog import Catalog
from logbroker.broker.cluster_engine.cluster_topics import ClusterTopics
from logbroker.broker.cluster_engine.engine import ClusterEngine
from logbroker.broker.cluster_engine.link import ClusterLink
from logbroker.broker.cluster_engine.state_partition import OPEN_SECONDS
from logbroker.broker.cluster_engine.state_store import ClusterStateStore
from logbroker.clock import Clock
from logbroker.config import BrokerConfig


@asynccontextmanager
async def open_cluster_engine(
    config: BrokerConfig, clock: Clock, on_failure: Callable[[Exception], None]
) -> AsyncIterator[tuple[ClusterEngine, ClusterStateStore]]:
    """Connect to the cluster, take over the state, and yield the engine and the state store.

    `on_failure` is called when the state is another gateway's, or cannot be written any more: nothing more is
    acknowledged then, and the caller must end the process. Raises BrokerUnavailableError, StaleOwnerError or
    CorruptLogError.
    """
    # It logs each failed attempt to connect; the gateway says itself what it cannot do.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    async with AsyncExitStack() as stack:
        link = ClusterLink(config.cluster)
        stack.push_async_callback(link.close)
        await link.open()
        state = ClusterStateStore(link, config.listen, on_failure)
        await state.open()
        stack.push_async_callback(state.close)
        confirming = asyncio.create_task(state.run())
        stack.callback(confirming.cancel)
        catalog = Catalog()
        topics = ClusterTopics(config, clock, link, state, state.ownership, catalog)
        await link.persist(topics.refresh, seconds=OPEN_SECONDS)
        engine = ClusterEngine(config, clock, link, catalog, topics)
        tasks = [asyncio.create_task(topics.run()), asyncio.create_task(topics.offsets.run())]
        try:
            yield engine, state
        finally:
            await topics.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await engine.close()
