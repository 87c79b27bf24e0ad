"""Opening and closing of the cluster engine: its parts, and their order."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from logbroker.broker.catalog import Catalog
from logbroker.broker.cluster_engine.connection.link import ClusterLink
from logbroker.broker.cluster_engine.engine import ClusterEngine
from logbroker.broker.cluster_engine.homes import ClusterHomes
from logbroker.broker.cluster_engine.ownership.gateways import Gateways
from logbroker.broker.cluster_engine.ownership.membership import GatewayMembership
from logbroker.broker.cluster_engine.state.state_partition import OPEN_SECONDS
from logbroker.broker.cluster_engine.state.state_store import STATE_TOPIC, open_state_topic
from logbroker.broker.cluster_engine.topics.cluster_topics import ClusterTopics
from logbroker.broker.cluster_engine.topics.topic_rows import TopicRows
from logbroker.broker.homes import Home
from logbroker.clock import Clock
from logbroker.config import BrokerConfig
from logbroker.engine import LogEngine, StateStore

OpenHome = Callable[[LogEngine, StateStore, Callable[[str], bool]], AbstractAsyncContextManager[Home]]
"""Opens a home, given the engine, the home's store, and what tells whether a group id belongs there."""


@asynccontextmanager
async def open_cluster_engine(
    config: BrokerConfig, clock: Clock, open_home: OpenHome
) -> AsyncIterator[tuple[ClusterEngine, ClusterHomes]]:
    """Connect to the cluster, and yield the engine and the homes, which `ClusterHomes.join` takes over.

    Raises BrokerUnavailableError or CorruptLogError.
    """
    # It logs each failed attempt to connect; the gateway says itself what it cannot do.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    async with AsyncExitStack() as stack:
        link = ClusterLink(config.cluster)
        stack.push_async_callback(link.close)
        await link.open()
        gateways = Gateways(uuid.uuid4().hex, await open_state_topic(link))
        membership = GatewayMembership(link, STATE_TOPIC, gateways, lambda: homes.numbers())
        stack.push_async_callback(membership.close)
        await membership.open()
        catalog, rows = Catalog(), TopicRows(membership)
        topics = ClusterTopics(config, clock, link, rows, membership, catalog)
        membership.on_rows = topics.rows_changed
        await link.persist(topics.refresh, seconds=OPEN_SECONDS)
        engine = ClusterEngine(config, clock, link, catalog, topics)
        homes = ClusterHomes(
            link,
            membership,
            rows,
            topics,
            lambda number, store: open_home(engine, store, lambda group_id: homes.number_of(group_id) == number),
            config.advertise,
        )
        tasks = [asyncio.create_task(each.run()) for each in (topics, topics.offsets, engine.retention)]
        try:
            yield engine, homes
        finally:
            await homes.close()
            await topics.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await engine.close()
