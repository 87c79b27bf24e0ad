"""Requests to the cluster that create, change and delete topics, and read their configs.

Each of them raises PassingError if it may be repeated, and otherwise the error that says why the cluster refused it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from logbroker.broker.cluster_engine.connection.codes import MISSING, NONE, PASSING
from logbroker.broker.cluster_engine.connection.link import (
    MIN_INSYNC_REPLICAS,
    ClusterLink,
    ClusterTopic,
    PassingError,
)
from logbroker.broker.cluster_engine.connection.refusals import refusal
from logbroker.broker.cluster_engine.topics.topic_rows import OWN_CONFIGS
from logbroker.config import TOPIC_CONFIGS
from logbroker.engine import Topic
from logbroker.kafka_wire.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
)
from logbroker.kafka_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsRequestTopic
from logbroker.kafka_wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsRequestCreatableTopicConfig,
)
from logbroker.kafka_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopicState
from logbroker.kafka_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsRequestResource
from logbroker.kafka_wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from logbroker.types import INTERNAL_PREFIX, TopicId

_TIMEOUT_MS: Final = 15_000
_TOPIC: Final = 2
"""Kafka's resource type of a topic."""
_OF_TOPIC: Final = 1
"""Kafka's source of a config that the topic sets itself."""
_KEPT: Final = MappingProxyType({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"})
_SET: Final = 0
_UNSET: Final = 1


class ClusterAdmin:
    """Asks the controller of the cluster for changes, and any node for configs."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link
        self.min_insync_replicas: dict[str, int] = {}
        """How many replicas must have a record before it is acknowledged, by topic, as far as that was read."""

    async def create(self, topic: Topic) -> TopicId:
        """Create a topic, and return the id that the cluster has given it."""
        overrides = {name: text for name, text in topic.overrides.items() if name not in OWN_CONFIGS}
        configs = {**self._link.safety_configs(), **overrides, **_kept_configs(topic.name)}
        creatable = CreateTopicsRequestCreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=self._link.replication_factor(),
            configs=[CreateTopicsRequestCreatableTopicConfig(name=name, value=text) for name, text in configs.items()],
        )
        request = CreateTopicsRequest(topics=[creatable], timeout_ms=_TIMEOUT_MS)
        answer = await self._link.ask(self._link.controller, CREATE_TOPICS, request)
        [found] = answer.topics
        _check(found.error_code, found.error_message, f"the creation of topic {topic.name}")
        return TopicId(found.topic_id)

    async def delete(self, topic: Topic) -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequestTopicState(name=None, topic_id=topic.id)], timeout_ms=_TIMEOUT_MS
        )
        answer = await self._link.ask(self._link.controller, DELETE_TOPICS, request)
        [found] = answer.responses
        _check(found.error_code, found.error_message, f"the deletion of topic {topic.name}")

    async def add_partitions(self, topic: Topic, partitions: int) -> None:
        """Let a topic have `partitions` partitions. Raises InvalidPartitionsError if it has as many already."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsRequestTopic(name=topic.name, count=partitions, assignments=None)],
            timeout_ms=_TIMEOUT_MS,
        )
        answer = await self._link.ask(self._link.controller, CREATE_PARTITIONS, request)
        [found] = answer.results
        _check(found.error_code, found.error_message, f"the growth of topic {topic.name}")

    async def alter_configs(self, topic: Topic, set_configs: Mapping[str, str], unset_configs: Sequence[str]) -> None:
        """Set configs of a topic as in its overrides, and unset others. Leaves out those that the cluster does not
        know."""
        kept = _kept_configs(topic.name)
        changes: list[tuple[str, int, str | None]] = [
            (name, _SET, kept.get(name, topic.overrides[name])) for name in set_configs if name not in OWN_CONFIGS
        ]
        changes += [(name, _UNSET, None) for name in unset_configs if name not in OWN_CONFIGS]
        if not changes:
            return
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequestAlterConfigsResource(
                    resource_type=_TOPIC,
                    resource_name=topic.name,
                    configs=[
                        IncrementalAlterConfigsRequestAlterableConfig(name=name, config_operation=operation, value=text)
                        for name, operation, text in changes
                    ],
                )
            ]
        )
        answer = await self._link.ask(self._link.controller, INCREMENTAL_ALTER_CONFIGS, request)
        [found] = answer.responses
        _check(found.error_code, found.error_message, f"the change of topic {topic.name}")

    async def configs(self, topics: Sequence[ClusterTopic]) -> dict[str, dict[str, tuple[str, bool]]]:
        """Return the configs by topic and name: the value, and whether the topic sets it itself."""
        names = [*(name for name in TOPIC_CONFIGS if name not in OWN_CONFIGS), MIN_INSYNC_REPLICAS]
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequestResource(resource_type=_TOPIC, resource_name=topic.name, configuration_keys=names)
                for topic in topics
            ]
        )
        answer = await self._link.ask_any(DESCRIBE_CONFIGS, request)
        configs: dict[str, dict[str, tuple[str, bool]]] = {}
        for found in answer.results:
            if found.error_code == NONE:
                told = {
                    each.name: (each.value, each.config_source == _OF_TOPIC)
                    for each in found.configs
                    if each.value is not None
                }
                if (replicas := told.pop(MIN_INSYNC_REPLICAS, None)) is not None:
                    self.min_insync_replicas[found.resource_name] = int(replicas[0])
                configs[found.resource_name] = {name: value for name, value in told.items() if name in TOPIC_CONFIGS}
        return configs


def _kept_configs(name: str) -> Mapping[str, str]:
    """Return the configs of a topic of copies: the cluster deletes nothing of it by itself (`ClusterRetention`)."""
    return _KEPT if name.startswith(INTERNAL_PREFIX) else {}


def _check(code: int, message: str | None, what: str) -> None:
    if code in PASSING - MISSING:
        raise PassingError(f"{what} was answered with error {code}")
    if code != NONE:
        raise refusal(code, what, message)
