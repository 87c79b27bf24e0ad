"""The end of a generation on a cluster: what the leaders say once nobody appends to it any more."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from logbroker.broker.catalog import Catalog
from logbroker.broker.cluster_engine.connection.link import ClusterLink, ClusterPartition, ClusterTopic, PassingError
from logbroker.broker.cluster_engine.log import offsets
from logbroker.broker.cluster_engine.log.remote_partition import RemotePartition
from logbroker.broker.cluster_engine.ownership.gateways import Gateways
from logbroker.broker.cluster_engine.ownership.membership import GatewayMembership
from logbroker.broker.cluster_engine.topics.cluster_topics import ClusterTopics
from logbroker.broker.cluster_engine.topics.topic_rows import TopicRows
from logbroker.broker.topics import new_topic
from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.kafka_wire.messages.list_offsets import ListOffsetsResponsePartition
from logbroker.types import TopicId

TOPIC_ID = TopicId(bytes(range(16)))


async def test_a_generation_ends_where_the_leaders_say_and_all_replicas_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader may die meanwhile, and records that were sent through other gateways be acknowledged later."""
    config, clock, link, catalog = BrokerConfig(), SystemClock(), ClusterLink("127.0.0.1:1"), Catalog()
    membership = GatewayMembership(link, "state", Gateways("me", 1), lambda: ())
    topics = ClusterTopics(config, clock, link, TopicRows(membership), membership, catalog)
    topic = new_topic("t", TOPIC_ID, 2, {}, config.parsed_topic_defaults(), 0)
    catalog.put(topic)
    partitions = [RemotePartition(link, lambda: None, "t", TOPIC_ID, number) for number in range(2)]
    topics._partitions[TOPIC_ID] = partitions
    link.topics["t"] = ClusterTopic("t", TOPIC_ID, (ClusterPartition(leader=1, leader_epoch=0),) * 3)
    for each in partitions:
        each.heard(0, 5)
    logs, ends = {0: 9}, {0: 9, 1: 7}

    async def list_offsets(
        _: ClusterLink, wanted: Iterable[RemotePartition], *, isolation_level: int = 1, replica_id: int = -1
    ) -> dict[RemotePartition, ListOffsetsResponsePartition]:
        told = logs if replica_id == -2 else ends
        return {
            each: ListOffsetsResponsePartition(error_code=0, offset=told[each.key.partition], leader_epoch=0)
            for each in wanted
            if each.key.partition in told
        }

    async def refresh() -> None:
        pass

    monkeypatch.setattr(link, "refresh", refresh)
    monkeypatch.setattr(offsets, "list_offsets", list_offsets)
    with pytest.raises(PassingError, match="no leader"):
        await topics._ends(topic, 3, partitions)
    logs[1] = 8
    with pytest.raises(PassingError, match="some of its replicas"):
        await topics._ends(topic, 3, partitions)
    ends[1] = 8
    assert await topics._ends(topic, 3, partitions) == [9, 8]
