"""OffsetForLeaderEpoch (key 23): where a leader epoch ends, so that a reader finds out whether the log was cut.

The leader epoch of a partition rises when the broker has cut its log at a start. An epoch that is not known is answered
with epoch and offset -1, as in Kafka.

v2: the client's idea of the present leader epoch, checked as in Fetch, and the throttle time. v3: whether a replica or
a consumer asks, which makes no difference. v4: flexible.
"""

from __future__ import annotations

from logbroker.errors import LogbrokerError
from logbroker.kafka_api.call import Call, code_of, epoch_fault, served
from logbroker.kafka_wire.apis import OFFSET_FOR_LEADER_EPOCH
from logbroker.kafka_wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderEpochResponseTopicResult,
)

ITEM_STEPS = 6


async def _handle(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    call.check_item_count(sum(1 + len(topic.partitions) for topic in request.topics))
    engine = call.node.engine
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in request.topics:
        result = OffsetForLeaderEpochResponseTopicResult(topic=topic.topic, partitions=[])
        response.topics.append(result)
        for wish in topic.partitions:
            await call.step(ITEM_STEPS)
            answer = OffsetForLeaderEpochResponseEpochEndOffset(partition=wish.partition)
            result.partitions.append(answer)
            try:
                topic_id = engine.topic(topic.topic).id
                answer.error_code = epoch_fault(
                    engine.partition_facts(topic_id, wish.partition), wish.current_leader_epoch
                )
                if not answer.error_code:
                    found = engine.end_of_epoch(topic_id, wish.partition, wish.leader_epoch)
                    answer.leader_epoch, answer.end_offset = found or (-1, -1)
            except LogbrokerError as error:
                answer.error_code = code_of(error)
    return response


SERVED = served(OFFSET_FOR_LEADER_EPOCH, 2, 4, _handle)
