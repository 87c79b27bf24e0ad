"""ListOffsets (key 2): the earliest or latest offset, or the first one at or after a time.

Latest (-1) is the high watermark, whatever the isolation: there are no transactions. Other special timestamps came with
later versions, and are refused (UNSUPPORTED_VERSION).

v1: one offset instead of a list. v2: isolation, and the throttle time. v4: leader epochs, checked as in Fetch.
v6: flexible.
"""

from __future__ import annotations

from logbroker.errors import LogbrokerError, UnsupportedFeatureError
from logbroker.kafka_api.call import Call, code_of, epoch_fault, served
from logbroker.kafka_wire.apis import LIST_OFFSETS
from logbroker.kafka_wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from logbroker.types import TopicId

LATEST, EARLIEST = -1, -2
FIRST_WITH_EPOCHS = 4
ITEM_STEPS = 6


async def _handle(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    call.check_item_count(sum(1 + len(topic.partitions) for topic in request.topics))
    response = ListOffsetsResponse(topics=[])
    # Equal items are looked up once, because a lookup by time reads the log.
    known: dict[tuple[TopicId, int, int], ListOffsetsResponsePartition] = {}
    for topic in request.topics:
        answer = ListOffsetsResponseTopic(name=topic.name, partitions=[])
        response.topics.append(answer)
        for wish in topic.partitions:
            await call.step(ITEM_STEPS)
            try:
                topic_id = call.node.engine.topic(topic.name).id
                key = topic_id, wish.partition_index, wish.timestamp
                if key not in known:
                    known[key] = await _found(call, topic_id, wish)
                answer.partitions.append(known[key])
            except LogbrokerError as error:
                answer.partitions.append(
                    ListOffsetsResponsePartition(partition_index=wish.partition_index, error_code=code_of(error))
                )
    return response


async def _found(call: Call, topic_id: TopicId, wish: ListOffsetsRequestPartition) -> ListOffsetsResponsePartition:
    engine, partition = call.node.engine, wish.partition_index
    answer = ListOffsetsResponsePartition(partition_index=partition)
    facts = engine.partition_facts(topic_id, partition)
    if fault := epoch_fault(facts, wish.current_leader_epoch):
        answer.error_code = fault
    elif wish.timestamp in (LATEST, EARLIEST):
        answer.offset = facts.high_watermark if wish.timestamp == LATEST else facts.log_start_offset
        answer.leader_epoch = facts.leader_epoch
    elif wish.timestamp < 0:
        raise UnsupportedFeatureError(f"the special timestamp {wish.timestamp} is not supported")
    else:
        found = await engine.offset_for_time(topic_id, partition, wish.timestamp)
        answer.offset, answer.timestamp, answer.leader_epoch = found.offset, found.timestamp_ms, found.leader_epoch
    if call.version < FIRST_WITH_EPOCHS:
        answer.leader_epoch = -1
    return answer


SERVED = served(LIST_OFFSETS, 1, 6, _handle)
