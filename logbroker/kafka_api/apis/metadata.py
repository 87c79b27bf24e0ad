"""Metadata (key 3): the node and the topics, with the leader of each partition, which is always this node.

A topic is never created by asking for it. A partition that is offline has no leader (LEADER_NOT_AVAILABLE). Each topic
is answered once, however often it is named.

v0: an empty list asks for all topics. v1: null does, and empty asks for none; adds controller and internal topics.
v2: adds the cluster id. v3: the throttle time. v4: whether to create topics, which is ignored. v5: offline replicas.
v7: leader epochs. v8: authorized operations, which are not told. v9: flexible. v10: topic ids. v11: no authorized
operations of the cluster. v12: topics by id. v13: an error for the whole, which is 0.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from logbroker.engine import Topic
from logbroker.errors import UnknownTopicError
from logbroker.kafka_api.call import NODE_ID, Call, code_of, leader_of, served, topic_of
from logbroker.kafka_wire.apis import METADATA
from logbroker.kafka_wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from logbroker.kafka_wire.primitives import NO_UUID
from logbroker.types import INTERNAL_PREFIX

_TOPIC_STEPS = 4
_PARTITION_STEPS = 4


async def _handle(call: Call, request: MetadataRequest) -> MetadataResponse:
    address = call.address
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=NODE_ID, host=address.host, port=address.port)],
        cluster_id=call.node.cluster_id,
        controller_id=NODE_ID,
        topics=[topic async for topic in _topics(call, request)],
    )


async def _topics(call: Call, request: MetadataRequest) -> AsyncIterator[MetadataResponseTopic]:
    if request.topics is None or (not request.topics and not call.version):
        for topic in call.node.engine.topics():
            yield await _described(call, topic)
        return
    call.check_item_count(len(request.topics))
    for name, topic_id in dict.fromkeys(_wanted(each) for each in request.topics):
        await call.step(_TOPIC_STEPS)
        try:
            topic = topic_of(call.node, name or "", topic_id, by_id=name is None)
        except UnknownTopicError as error:
            no_name = None if call.version >= 12 else ""
            yield MetadataResponseTopic(
                error_code=code_of(error), name=no_name if name is None else name, topic_id=topic_id
            )
        else:
            yield await _described(call, topic)


def _wanted(topic: MetadataRequestTopic) -> tuple[str | None, bytes]:
    """Return the name and the id to look for. An id that is not zero decides, as in Kafka, whatever the name is: Java
    leaves the name empty, where librdkafka and others leave it out."""
    return (topic.name, NO_UUID) if topic.topic_id == NO_UUID else (None, topic.topic_id)


async def _described(call: Call, topic: Topic) -> MetadataResponseTopic:
    result = MetadataResponseTopic(
        name=topic.name, topic_id=topic.id, is_internal=topic.name.startswith(INTERNAL_PREFIX), partitions=[]
    )
    for number in range(topic.partitions):
        await call.step(_PARTITION_STEPS)
        leader = leader_of(call.node, topic.id, number)
        partition = MetadataResponsePartition(
            error_code=leader.error_code,
            partition_index=number,
            leader_id=leader.node_id,
            leader_epoch=leader.epoch,
            replica_nodes=[NODE_ID],
            isr_nodes=leader.in_sync,
            offline_replicas=leader.offline,
        )
        result.partitions.append(partition)
    return result


# librdkafka 2.16 asks for all topics with four zero bytes where the length of a null array takes one.
SERVED = served(METADATA, 0, 13, _handle, may_be_longer=True)
