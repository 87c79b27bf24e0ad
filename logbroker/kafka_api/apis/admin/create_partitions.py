"""CreatePartitions (key 37): adds partitions to topics, durably. Keyed records of gRPC clients keep their order.

The number must be above the present one (INVALID_PARTITIONS). A topic cannot grow (POLICY_VIOLATION) if it has bands,
or if a queue group with ordering single reads it. New partitions may be assigned to the one node only
(INVALID_REPLICA_ASSIGNMENT).

v0: whether to check only. v1: as v0. v2: flexible. v3: quotas on changes, of which there are none.
"""

from __future__ import annotations

from collections import Counter

from logbroker.engine import TopicPlan
from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.kafka_api.call import AssignmentError, Call, check_assignments, check_changeable, code_of, served
from logbroker.kafka_wire.apis import CREATE_PARTITIONS
from logbroker.kafka_wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreatePartitionsResponseTopicResult,
)

TOPIC_STEPS = 100


async def _handle(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    call.check_item_count(sum(1 + len(topic.assignments or ()) for topic in request.topics))
    plan = TopicPlan() if request.validate_only else None
    named = Counter(topic.name for topic in request.topics)
    response = CreatePartitionsResponse(results=[])
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        await call.step(TOPIC_STEPS)
        result = CreatePartitionsResponseTopicResult(name=name)
        response.results.append(result)
        try:
            if named[name] > 1:
                raise InvalidRequestError("the request names the topic twice")
            await _grow(call, topic, plan)
        except LogbrokerError as error:
            result.error_code, result.error_message = code_of(error), error.message
    return response


async def _grow(call: Call, wish: CreatePartitionsRequestTopic, plan: TopicPlan | None) -> None:
    check_changeable(wish.name)
    engine = call.node.engine
    topic = engine.topic(wish.name)
    if wish.assignments is not None:
        new = wish.count - topic.partitions
        if 0 < new != len(wish.assignments):
            raise AssignmentError(f"{new} partitions are to be added, but {len(wish.assignments)} are assigned")
        check_assignments(each.broker_ids for each in wish.assignments)
    await engine.alter_topic(topic.id, partitions=wish.count, plan=plan)


SERVED = served(CREATE_PARTITIONS, 0, 3, _handle)
