"""DescribeTopicPartitions (key 75): topics in pages, by name, with the leader of each partition.

An empty list asks for all topics. A page has at most `response_partition_limit` partitions, and 2,000 in any case; if
there are more, the cursor names the next one, and the client sends it back. A topic that is gone meanwhile is passed
over. Elections are not held here, so no replica is eligible besides the leader.

v0: flexible from the start.
"""

from __future__ import annotations

from bisect import bisect_left

from logbroker.engine import Topic
from logbroker.errors import InvalidTopicNameError, UnknownTopicError
from logbroker.kafka_api.call import INVALID_REQUEST, NODE_ID, Call, code_of, leader_of, served
from logbroker.kafka_api.config_resources import topic_named
from logbroker.kafka_wire.apis import DESCRIBE_TOPIC_PARTITIONS
from logbroker.kafka_wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from logbroker.types import INTERNAL_PREFIX

MAX_PARTITIONS = 2_000
"""Maximum number of partitions in one answer."""
MAX_TOPICS = 2_000
"""Maximum number of topics in one answer, those that do not exist included."""
TOPIC_STEPS = 4
PARTITION_STEPS = 4


async def _handle(call: Call, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    call.check_item_count(len(request.topics))
    response = DescribeTopicPartitionsResponse(topics=[])
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        names = {each.name for each in request.topics} or {cursor.topic_name}
        failed = [DescribeTopicPartitionsResponseTopic(error_code=INVALID_REQUEST, name=name) for name in sorted(names)]
        return DescribeTopicPartitionsResponse(topics=failed)
    names_in_order = sorted({each.name for each in request.topics})
    if not names_in_order:
        names_in_order = [topic.name for topic in call.node.engine.topics()]
    if cursor is not None:
        del names_in_order[: bisect_left(names_in_order, cursor.topic_name)]
    left = min(max(request.response_partition_limit, 1), MAX_PARTITIONS)
    for name in names_in_order:
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if not left or len(response.topics) == MAX_TOPICS:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=first)
            break
        await call.step(TOPIC_STEPS)
        try:
            topic = topic_named(call, name)
        except (UnknownTopicError, InvalidTopicNameError) as error:
            if request.topics:
                response.topics.append(DescribeTopicPartitionsResponseTopic(error_code=code_of(error), name=name))
            continue
        end = min(first + left, topic.partitions)
        response.topics.append(await _described(call, topic, range(first, end)))
        left -= max(end - first, 0)
        if end < topic.partitions:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=end)
            break
    return response


async def _described(call: Call, topic: Topic, numbers: range) -> DescribeTopicPartitionsResponseTopic:
    result = DescribeTopicPartitionsResponseTopic(
        name=topic.name, topic_id=topic.id, is_internal=topic.name.startswith(INTERNAL_PREFIX), partitions=[]
    )
    for number in numbers:
        await call.step(PARTITION_STEPS)
        leader = leader_of(call.node, topic.id, number)
        result.partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=leader.error_code,
                partition_index=number,
                leader_id=leader.node_id,
                leader_epoch=leader.epoch,
                replica_nodes=[NODE_ID],
                isr_nodes=leader.in_sync,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=leader.offline,
            )
        )
    return result


SERVED = served(DESCRIBE_TOPIC_PARTITIONS, 0, 0, _handle)
