"""The fence of a produce stream to a gateway, whose batches may be refused after they were sent to the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from logbroker.broker.catalog import Catalog
from logbroker.broker.cluster_engine.connection import requests
from logbroker.broker.cluster_engine.connection.link import ClusterLink, PassingError
from logbroker.broker.cluster_engine.engine import ClusterEngine
from logbroker.broker.cluster_engine.log.remote_partition import RemotePartition
from logbroker.broker.cluster_engine.ownership.gateways import Gateways
from logbroker.broker.cluster_engine.ownership.membership import GatewayMembership
from logbroker.broker.cluster_engine.topics.cluster_topics import ClusterTopics
from logbroker.broker.cluster_engine.topics.topic_rows import TopicRows
from logbroker.broker.topics import grown, new_topic
from logbroker.client.transport.status import error_of_item
from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.engine import RoutingFence
from logbroker.errors import BrokerUnavailableError, StaleGenerationError
from logbroker.grpc_api.log.produce import PreparedProduce
from logbroker.grpc_api.log.produce_wire import read_produce
from logbroker.kafka_wire.messages.produce import ProduceResponsePartitionProduce
from logbroker.types import TopicId
from logbroker.v1.log_pb2 import ProduceItem, ProduceRequest
from tests.grpc_api.api import batch_of

TOPIC_ID = TopicId(bytes(range(16)))


class Gateway:
    """An engine with one topic of one partition, whose leader answers as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        config, clock, link, self.catalog = BrokerConfig(), SystemClock(), ClusterLink("127.0.0.1:1"), Catalog()
        membership = GatewayMembership(link, "state", Gateways("me", 1), lambda: ())
        topics = ClusterTopics(config, clock, link, TopicRows(membership), membership, self.catalog)
        self.engine = ClusterEngine(config, clock, link, self.catalog, topics)
        defaults = config.parsed_topic_defaults()
        self.topic = new_topic("t", TOPIC_ID, 1, {}, defaults, 0)
        self.catalog.put(self.topic)
        topics._partitions[TOPIC_ID] = [RemotePartition(link, lambda: None, "t", TOPIC_ID, 0)]
        self.grows_at_next = False
        monkeypatch.setattr(requests, "append", self._leader)
        monkeypatch.setattr(link, "refresh", self._refresh)

    async def _refresh(self) -> None:
        pass

    async def _leader(self, *_: Any) -> ProduceResponsePartitionProduce:
        if self.grows_at_next:
            self.grows_at_next = False
            self.catalog.put(grown(self.topic, 2, [0]))
            raise PassingError("the leader has died")
        return ProduceResponsePartitionProduce(index=0, error_code=0, base_offset=7)


async def produce(gateway: Gateway, fence: RoutingFence, generation: int) -> str:
    """Send one batch on the stream of this fence. Return the reason of its refusal, or "" if it was appended."""
    item = ProduceItem(topic="t", partition=0, batch=batch_of(b"v"), generation=generation)
    message = ProduceRequest(items=[item]).SerializeToString()
    prepared = PreparedProduce(gateway.engine, SystemClock(), await read_produce(message), fence)
    await prepared.prepare()
    [result] = (await prepared.append()).results
    prepared.answered()
    error = error_of_item(result.status)
    return error.reason if error else ""


async def test_the_fence_opens_after_a_batch_was_refused_that_the_cluster_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gateway, fence = Gateway(monkeypatch), RoutingFence()
    gateway.grows_at_next = True
    assert await produce(gateway, fence, 1) == BrokerUnavailableError.reason
    assert await produce(gateway, fence, 1) == StaleGenerationError.reason
    assert not await produce(gateway, fence, 2)
    assert not await produce(gateway, fence, 2)
