"""The end of a generation on a cluster: what the leaders say once nobody appends to it any more."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from logbroker.broker.catalog import Catalog
from logbroker.broker.cluster_engine.connection.link import ClusterLink, ClusterPartition, ClusterTopic, PassingError
from logbroker.broker.cluster_engine.log.remote_partition import RemotePartition
from logbroker.broker.cluster_engine.ownership.gateways import Gateways
from logbroker.broker.cluster_engine.ownership.membership import GatewayMembership
from logbroker.broker.cluster_engine.topics.cluster_topics import ClusterTopics
from logbroker.broker.cluster_engine.topics.topic_rows import TopicRows
from logbroker.broker.topics import new_topic
from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.types import TopicId

TOPIC_ID = TopicId(bytes(range(16)))


async def test_ends_that_were_heard_before_the_growth_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader may die meanwhile, and records have been appended through other gateways since."""
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
    answering = [0]

    async def sweep(wanted: Iterable[RemotePartition]) -> None:
        for each in wanted:
            if each.key.partition in answering:
                each.heard(0, 9)
                each.fresh_at = float("inf")

    async def refresh() -> None:
        pass

    monkeypatch.setattr(link, "refresh", refresh)
    monkeypatch.setattr(topics.offsets, "sweep", sweep)
    with pytest.raises(PassingError, match="no leader that tells its end"):
        await topics._ends(topic, 3)
    answering.append(1)
    assert await topics._ends(topic, 3) == [9, 9]
