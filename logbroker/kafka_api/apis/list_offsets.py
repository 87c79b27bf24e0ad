"""ListOffsets (key 2): the earliest or latest offset, the first one at or after a time, or that of the largest time.

Latest (-1) is the high watermark, whatever the isolation: there are no transactions. No log is tiered: the earliest
offset on this node (-4) is the earliest of all (-2). The latest tiered offset (-5) and the earliest one that waits to
be tiered (-6) do not exist, so the answer is -1. A special timestamp that is unknown, or newer than the version of the
request, is refused (UNSUPPORTED_VERSION).

v1: one offset instead of a list. v2: isolation, and the throttle time. v4: leader epochs, checked as in Fetch.
v6: flexible. v7: the largest time (-3). v8: -4. v9: -5. v10: how long to wait for tiered storage. v11: -6.
"""

from __future__ import annotations

from logbroker.config import MAX_INT32
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

LATEST, EARLIEST, LARGEST_TIME, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
FIRST_VERSIONS = {LATEST: 1, EARLIEST: 1, LARGEST_TIME: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
"""The first version of each special timestamp."""
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
    if wish.timestamp < 0 and call.version < FIRST_VERSIONS.get(wish.timestamp, MAX_INT32):
        raise UnsupportedFeatureError(f"the special timestamp {wish.timestamp} is not supported")
    if fault := epoch_fault(facts, wish.current_leader_epoch):
        answer.error_code = fault
    elif wish.timestamp == LATEST:
        answer.offset, answer.leader_epoch = facts.high_watermark, facts.leader_epoch
    elif wish.timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset, answer.leader_epoch = facts.log_start_offset, facts.leader_epoch
    elif wish.timestamp not in (LATEST_TIERED, EARLIEST_PENDING):
        by_time = wish.timestamp >= 0
        found = await (
            engine.offset_for_time(topic_id, partition, wish.timestamp)
            if by_time
            else engine.offset_for_latest_time(topic_id, partition)
        )
        answer.offset, answer.timestamp, answer.leader_epoch = found.offset, found.timestamp_ms, found.leader_epoch
    if call.version < FIRST_WITH_EPOCHS:
        answer.leader_epoch = -1
    return answer


SERVED = served(LIST_OFFSETS, 1, 11, _handle)
