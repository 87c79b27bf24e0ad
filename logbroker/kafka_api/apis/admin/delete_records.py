"""DeleteRecords (key 21): deletes the first records of partitions, durably: the log then starts at the given offset.

-1 stands for the high watermark; an offset above it is refused (OFFSET_OUT_OF_RANGE). An offset below the log start
deletes nothing. Before records that a queue group has not done are deleted, those of stalled lanes are copied, as for
retention. If that takes longer than the client waits, the answer is REQUEST_TIMED_OUT, and the copying goes on, so a
repeat gets further.

v0: the low watermark, which is the log start offset. v1: as v0. v2: flexible.
"""

from __future__ import annotations

import asyncio

from logbroker.errors import LogbrokerError
from logbroker.kafka_api.call import INVALID_REQUEST, REQUEST_TIMED_OUT, Call, check_changeable, code_of, served
from logbroker.kafka_wire.apis import DELETE_RECORDS
from logbroker.kafka_wire.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartitionResult,
    DeleteRecordsResponseTopicResult,
)

DELETION_STEPS = 50
MAX_SECONDS = 120.0


async def _handle(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    call.check_item_count(sum(1 + len(topic.partitions) for topic in request.topics))
    due = asyncio.get_running_loop().time() + min(max(request.timeout_ms, 0) / 1000, MAX_SECONDS)
    response = DeleteRecordsResponse(topics=[])
    seen: set[tuple[str, int]] = set()
    for topic in request.topics:
        answer = DeleteRecordsResponseTopicResult(name=topic.name, partitions=[])
        response.topics.append(answer)
        for wish in topic.partitions:
            await call.step(DELETION_STEPS)
            result = DeleteRecordsResponsePartitionResult(partition_index=wish.partition_index, low_watermark=-1)
            answer.partitions.append(result)
            if (topic.name, wish.partition_index) in seen:
                result.error_code = INVALID_REQUEST
                continue
            seen.add((topic.name, wish.partition_index))
            try:
                async with asyncio.timeout_at(due):
                    result.low_watermark = await _delete(call, topic.name, wish.partition_index, wish.offset)
            except LogbrokerError as error:
                result.error_code = code_of(error)
            except TimeoutError:
                result.error_code = REQUEST_TIMED_OUT
    return response


async def _delete(call: Call, topic: str, partition: int, offset: int) -> int:
    check_changeable(topic)
    engine = call.node.engine
    return await engine.delete_records(engine.topic(topic).id, partition, offset)


SERVED = served(DELETE_RECORDS, 0, 2, _handle)
