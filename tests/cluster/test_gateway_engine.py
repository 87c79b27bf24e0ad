"""A gateway whose leader grows a topic under way, or is not there: what is refused, and what is not known."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from logbroker.broker.catalog import Catalog
from logbroker.broker.cluster_engine.connection import requests
from logbroker.broker.cluster_engine.connection.link import ClusterLink, PassingError
from logbroker.broker.cluster_engine.engine import ClusterEngine
from logbroker.broker.cluster_engine.log import offsets
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
from logbroker.grpc_api.log.service import LogService
from logbroker.kafka_wire.messages.list_offsets import ListOffsetsResponsePartition
from logbroker.kafka_wire.messages.produce import ProduceResponsePartitionProduce
from logbroker.queues.model.starts import StartAt
from logbroker.types import TopicId
from logbroker.v1.log_pb2 import (
    OFFSET_SPEC_LATEST,
    ListOffsetsItem,
    ListOffsetsRequest,
    ProduceItem,
    ProduceRequest,
)
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
        self.partition = RemotePartition(link, lambda: None, "t", TOPIC_ID, 0)
        topics._partitions[TOPIC_ID] = [self.partition]
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


async def test_an_end_is_unknown_while_no_leader_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records behind the end that was heard last may have been acknowledged through another gateway."""
    gateway = Gateway(monkeypatch)
    told: dict[RemotePartition, ListOffsetsResponsePartition] = {}

    async def list_offsets(*_: Any, **__: Any) -> dict[RemotePartition, ListOffsetsResponsePartition]:
        return told

    monkeypatch.setattr(offsets, "list_offsets", list_offsets)
    monkeypatch.setattr("logbroker.broker.cluster_engine.engine.LEARN_SECONDS", 0.05)
    gateway.partition.heard(0, 5)
    broker: Any = SimpleNamespace(engine=gateway.engine, clock=SystemClock(), config=BrokerConfig())
    service = LogService(broker, Mock(), asyncio.Event())
    request = ListOffsetsRequest(items=[ListOffsetsItem(topic="t", partition=0, spec=OFFSET_SPEC_LATEST)])
    for leader_tells, reason, offset in ((False, BrokerUnavailableError.reason, -1), (True, "", 9)):
        if leader_tells:
            told[gateway.partition] = ListOffsetsResponsePartition(error_code=0, offset=9)
        [found] = (await service.list_offsets(request, Mock())).results
        assert (found.status.reason, found.offset) == (reason, offset)
        [start] = (await StartAt(latest=True).offsets(gateway.engine, gateway.engine, TOPIC_ID, [0])).values()
        assert start == 9 if leader_tells else isinstance(start, BrokerUnavailableError)
