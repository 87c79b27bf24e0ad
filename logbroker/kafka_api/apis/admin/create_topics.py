"""CreateTopics (key 19): creates topics durably, with configs under Kafka's names.

There is one node, so a replication factor other than 1 (or -1, the default) is refused, and so are replicas elsewhere.
Configs that logbroker does not have are refused (INVALID_CONFIG), not ignored, unless they say what holds for each
topic here. A name that comes twice is refused.

v2: adds the throttle time. v4: -1 partitions or replicas stand for the defaults. v5: flexible; adds the configs to the
answer. v6: quotas on changes, of which there are none. v7: adds the topic ids.
"""

from __future__ import annotations

from collections import Counter

from logbroker.config import FIXED_CONFIGS, TOPIC_CONFIGS, check_given, config_text
from logbroker.engine import Topic, TopicPlan
from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.kafka_api.call import (
    INVALID_REPLICATION_FACTOR,
    AssignmentError,
    Call,
    check_assignments,
    check_changeable,
    code_of,
    served,
)
from logbroker.kafka_api.config_resources import source_of, without_kafka_defaults
from logbroker.kafka_wire.apis import CREATE_TOPICS
from logbroker.kafka_wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsResponse,
    CreateTopicsResponseCreatableTopicConfigs,
    CreateTopicsResponseCreatableTopicResult,
)

TOPIC_STEPS = 100
DEFAULT = -1


class _ReplicationFactorError(InvalidRequestError):
    """The topic was to have several replicas, and there is one node.

    Use a replication factor of 1, or leave it out.
    """

    kafka_code = INVALID_REPLICATION_FACTOR


async def _handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    call.check_item_count(sum(1 + len(topic.assignments) + len(topic.configs) for topic in request.topics))
    plan = TopicPlan() if request.validate_only else None
    named = Counter(topic.name for topic in request.topics)
    response = CreateTopicsResponse(topics=[])
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        await call.step(TOPIC_STEPS)
        try:
            if named[name] > 1:
                raise InvalidRequestError("the request names the topic twice")
            response.topics.append(_created(call, await _create(call, topic, plan)))
        except LogbrokerError as error:
            response.topics.append(
                CreateTopicsResponseCreatableTopicResult(
                    name=name, error_code=code_of(error), error_message=error.message
                )
            )
    return response


async def _create(call: Call, topic: CreateTopicsRequestCreatableTopic, plan: TopicPlan | None) -> Topic:
    check_changeable(topic.name)
    partitions = None if topic.num_partitions == DEFAULT else topic.num_partitions
    if topic.assignments:
        if partitions is not None:
            raise InvalidRequestError("give the number of partitions or their assignments, not both")
        partitions = len(topic.assignments)
        if {each.partition_index for each in topic.assignments} != set(range(partitions)):
            raise AssignmentError("assign the partitions from 0 on, each once")
        check_assignments(each.broker_ids for each in topic.assignments)
    elif topic.replication_factor not in (DEFAULT, 1):
        raise _ReplicationFactorError(f"there is one node, so a replication factor of {topic.replication_factor} fails")
    configs = without_kafka_defaults({each.name: each.value for each in topic.configs if each.value is not None})
    check_given(configs)
    return await call.node.engine.create_topic(topic.name, partitions, configs, plan=plan)


def _created(call: Call, topic: Topic) -> CreateTopicsResponseCreatableTopicResult:
    return CreateTopicsResponseCreatableTopicResult(
        name=topic.name,
        topic_id=topic.id,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=1,
        configs=[
            CreateTopicsResponseCreatableTopicConfigs(
                name=name,
                value=config_text(topic.config, name),
                config_source=source_of(topic, name, call.node.broker.config),
                read_only=name in FIXED_CONFIGS,
            )
            for name in TOPIC_CONFIGS
        ],
    )


SERVED = served(CREATE_TOPICS, 2, 7, _handle)
