"""DescribeProducers (key 61): the idempotent producers that a partition remembers, with their last batch.

A timestamp is the largest one of the last batch; -1 if an older version of logbroker stored it. There are no
transactions, so no producer has a coordinator or an open transaction (-1).

v0: flexible from the start.
"""

from __future__ import annotations

from logbroker.errors import LogbrokerError
from logbroker.kafka_api.call import Call, code_of, served
from logbroker.kafka_wire.apis import DESCRIBE_PRODUCERS
from logbroker.kafka_wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
    DescribeProducersResponseProducerState,
    DescribeProducersResponseTopic,
)

PARTITION_STEPS = 4
NO_COORDINATOR = -1


async def _handle(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    call.check_item_count(sum(1 + len(topic.partition_indexes) for topic in request.topics))
    numbers: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        numbers.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    response = DescribeProducersResponse(topics=[])
    for name, asked in numbers.items():
        answer = DescribeProducersResponseTopic(name=name, partitions=[])
        response.topics.append(answer)
        for number in asked:
            await call.step(PARTITION_STEPS)
            result = DescribeProducersResponsePartition(partition_index=number)
            answer.partitions.append(result)
            try:
                result.active_producers = _producers(call, name, number)
            except LogbrokerError as error:
                result.error_code, result.error_message = code_of(error), error.message
            await call.step(len(result.active_producers))
    return response


def _producers(call: Call, topic: str, partition: int) -> list[DescribeProducersResponseProducerState]:
    engine = call.node.engine
    return [
        DescribeProducersResponseProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.timestamp_ms,
            coordinator_epoch=NO_COORDINATOR,
        )
        for producer in engine.producers(engine.topic(topic).id, partition)
    ]


SERVED = served(DESCRIBE_PRODUCERS, 0, 0, _handle)
